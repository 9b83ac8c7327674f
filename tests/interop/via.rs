//! The converter (RFC 8803) that the configuration of a proxy names.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, binary};

use crate::names::serve;

/// The name of the converter, which the far end's name server alone knows.
const NAME: &str = "converter.test";
const CONVERTER: u16 = 1234;
const SERVER: u16 = 5000;
const DNS: u16 = 5353;

fn far() -> IpAddr {
    Net::kernel_address(Family::V4, 1)
}

/// A server that gives back what it gets, once.
fn echo(kernel: &NetNs) {
    let listener = peer::listen(kernel, SocketAddr::new(far(), SERVER), Speaks::Tcp);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            let mut bytes = [0; 64];
            let n = stream.read(&mut bytes).unwrap_or(0);
            let _ = stream.write_all(&bytes[..n]);
        }
    });
}

fn start(ns: &NetNs, folder: &Path, name: &str, text: &str, args: &[&str]) -> Program {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("a folder of ours");
    let file = file.to_str().expect("UTF-8");
    // Root alone may look into the folder.
    let first = ["proxy", "--config", file, "--user", "root"];
    Program::start(ns, first.iter().chain(args), "listens on")
}

#[test]
fn connections_go_through_the_converter_that_the_file_names_by_name_and_key() {
    binary();
    let Some(net) = Net::new(1) else { return };
    echo(&net.kernel);
    let dns = SocketAddr::new(far(), DNS);
    let asked = serve(&net, dns, |name| match name {
        "converter.test." => vec![far()],
        _ => Vec::new(),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "a key that both have: 0123456789").expect("a folder of ours");
    let key = key.display();
    let converter = start(
        &net.kernel,
        folder.path(),
        "converter.toml",
        &format!(
            "[[listen]]\non = \"{}:{CONVERTER}\"\nopening = \"convert\"\noutside = \"tcp\"\nkey = \"{key}\"\n\
             [[rule]]\nto = \"{}\"\nport = {SERVER}\nthen = \"allow\"\n",
            far(),
            far(),
        ),
        &[],
    );
    let via = |key: &str| {
        format!(
            "[[listen]]\non = \"127.0.0.1:7000\"\nopening = \"fixed\"\nto = \"mptcp:{}:{SERVER}\"\n\
             [resolver]\nservers = [\"{dns}\"]\n[via]\nconverter = \"{NAME}:{CONVERTER}\"\n{key}",
            far(),
        )
    };
    let with_key = via(&format!("key = \"{key}\"\n"));
    let paths = ["--path", "v1"];
    let mut program = start(&net.ours, folder.path(), "client.toml", &with_key, &paths);
    let at = SocketAddr::from(([127, 0, 0, 1], 7000));
    let mut client = peer::connect(&net.ours, at, Speaks::Tcp).expect("it listens");
    client.write_all(b"by the converter").expect("open");
    let mut back = [0; 16];
    let got = client.read_exact(&mut back);
    let said = || format!("{}\n{}", program.said(), converter.said());
    assert!(got.is_ok(), "{got:?}: {}", said());
    assert_eq!(&back, b"by the converter");
    let remote = program.connection().subflows[0].remote;
    assert_eq!(remote, Some(SocketAddr::new(far(), CONVERTER)));
    assert!(!asked.lock().expect("whole").is_empty());
    drop(client);
    program.interrupt();
    // Without the key it serves nobody, and nothing goes past it.
    let program = start(&net.ours, folder.path(), "other.toml", &via(""), &paths);
    let mut client = peer::connect(&net.ours, at, Speaks::Tcp).expect("it listens");
    let _ = client.write_all(b"by the converter");
    let got = client.read(&mut back);
    assert!(matches!(got, Ok(0) | Err(_)), "{got:?}");
    program.interrupt();
    converter.interrupt();
}
