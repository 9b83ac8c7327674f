//! `down` of a path in `manypath proxy`, counted on the cables: kept by a converter that is manypath, and asked of the kernel's Multipath TCP.

use std::time::{Duration, Instant};

use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, shell};
use manypath_tests::peer::Speaks;
use manypath_tests::program::{Program, binary};
use manypath_tests::until::wait_until;

use crate::limits::{PORT, carried, configure};
use crate::quotas::{Download, pour, pour_by};

const CONVERTER: u16 = 1234;

fn start(ns: &NetNs, file: &std::path::Path, paths: &[&str]) -> Program {
    let file = file.to_str().expect("UTF-8");
    // Root alone may look into the folder.
    let args = ["proxy", "--config", file, "--user", "root"];
    Program::start(ns, args.iter().chain(paths), "listens on")
}

/// The first path is slow, so that the second one is wanted.
fn two_paths() -> Option<Net> {
    let net = Net::new(2)?;
    for (cable, rate) in [("v1", "20mbit"), ("v2", "100mbit")] {
        let line = format!("tc qdisc add dev {cable} root tbf rate {rate} burst 64kb limit 250000");
        shell(&net.kernel, &line);
    }
    Some(net)
}

/// Bytes that have come by the second path.
fn came(net: &Net) -> (f64, Instant) {
    let [came, _] = carried(&net.ours, 2);
    (came, Instant::now())
}

/// Bits a second that come by the second path in so long, once something does.
fn rate_over(net: &Net, program: &Program, time: Duration) -> f64 {
    let (before, _) = came(net);
    wait_until("something to come by the second path", || {
        let (now, _) = came(net);
        let got = now - before;
        (got > 300_000.0)
            .then_some(())
            .ok_or_else(|| (got, program.said()))
    });
    let (before, began) = came(net);
    let (after, ended) = wait_until("the time to pass", || {
        let (now, at) = came(net);
        (at - began >= time).then_some((now, at)).ok_or(())
    });
    (after - before) * 8.0 / (ended - began).as_secs_f64()
}

#[test]
fn a_converter_keeps_the_rate_that_it_is_told_of_each_address() {
    binary();
    let Some(net) = two_paths() else { return };
    // Each address is reached by its own cable alone: a limit is of the addresses of a path.
    for ns in [&net.ours, &net.kernel] {
        shell(ns, "sysctl -q -w net.ipv4.conf.all.arp_ignore=1");
    }
    // What a cable passes as one packet has the headers of one alone.
    assert!(net.without_offloads(2), "ethtool is there");
    let far = Net::kernel_address(Family::V4, 1);
    pour_by(&net.kernel, Speaks::Tcp);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("converter.toml");
    let text = format!(
        "[[listen]]\non = \"mptcp:{far}:{CONVERTER}\"\nopening = \"convert\"\noutside = \"tcp\"\n\
         [[rule]]\nclient = \"10.77.0.0/16\"\nto = \"{far}\"\nport = {PORT}\nthen = \"allow\"\n"
    );
    std::fs::write(&file, text).expect("a folder of ours");
    let paths = ["--path", "v1", "--path", "v2"];
    let converter = start(&net.kernel, &file, &paths);
    let more = format!(
        "[via]\nconverter = \"{far}:{CONVERTER}\"\n\
         [path.second]\ninterface = \"v2\"\nrate = {{ down = \"10mbit\" }}\n"
    );
    let file = configure(folder.path(), "", &more);
    let mut program = start(&net.ours, &file, &paths);
    for connections in [1, 16] {
        let downloads: Vec<Download> = (0..connections)
            .map(|_| Download::start(&net.ours))
            .collect();
        let rate = rate_over(&net, &program, Duration::from_secs(10));
        let said = || format!("{}\n{}", program.said(), converter.said());
        assert!(
            rate < 10.2e6 && rate > 9.5e6,
            "{connections}: {rate} {}",
            said()
        );
        assert!(downloads.iter().all(Download::is_running), "{}", said());
        let subflows = program.report().connections;
        let mut subflows = subflows.iter().flat_map(|conn| &conn.subflows);
        assert!(
            !subflows.any(|sf| sf.backup_here),
            "nobody is asked for less"
        );
        downloads.into_iter().for_each(Download::end);
    }
    program.interrupt();
    converter.interrupt();
}

#[test]
fn the_kernel_is_asked_to_use_a_path_less_while_it_carries_too_much() {
    let Some(net) = two_paths() else { return };
    net.add_endpoint(Net::kernel_address(Family::V4, 2), 2, "signal");
    pour(&net.kernel);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |rate: &str| {
        format!("[path.first]\ninterface = \"v1\"\n[path.second]\ninterface = \"v2\"\n{rate}")
    };
    let named = "paths = \"named\"";
    let file = configure(folder.path(), named, &path(""));
    let program = start(&net.ours, &file, &[]);
    let download = Download::start(&net.ours);
    let free = rate_over(&net, &program, Duration::from_secs(4));
    assert!(free > 40e6, "{free}: it is fast");
    download.end();
    program.interrupt();
    let file = configure(folder.path(), named, &path("rate = { down = \"8mbit\" }\n"));
    let program = start(&net.ours, &file, &[]);
    let download = Download::start(&net.ours);
    let asked = rate_over(&net, &program, Duration::from_secs(10));
    assert!(asked < 16e6, "{asked}: {}", program.said());
    assert!(download.is_running(), "{}", program.said());
    download.end();
    program.interrupt();
}
