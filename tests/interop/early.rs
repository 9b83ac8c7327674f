//! A service that starts before the network: addresses and paths that come later are waited for, and that is said.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use manypath_lab::netns::NetNs;
use manypath_tests::net::Net;
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::Program;
use manypath_tests::until::{wait_for, wait_until};

/// A server that greets whoever says something.
fn greeter(host: &NetNs, at: SocketAddr) {
    let listener = host.run(move || TcpListener::bind(at));
    let listener = listener.expect("the port is free");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                if stream.read_exact(&mut [0]).is_ok() {
                    // Whoever does not wait for it does not miss it.
                    let _ = stream.write_all(b"hello");
                }
            });
        }
    });
}

fn is_greeted(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
    stream.write_all(b"x")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("a literal address")
}

#[test]
fn an_address_to_listen_on_comes_later() {
    let Some(net) = Net::new(1) else { return };
    greeter(&net.ours, at("127.0.0.1:5003"));
    let cases = [
        (
            "tcp:10.88.0.5:5000",
            "10.88.0.5/24",
            "10.88.0.5:5000",
            Speaks::Tcp,
        ),
        (
            "tcp:[fd88::5]:5000",
            "fd88::5/64",
            "[fd88::5]:5000",
            Speaks::Tcp,
        ),
        (
            "kernel-mptcp:10.88.0.6:5000",
            "10.88.0.6/24",
            "10.88.0.6:5000",
            Speaks::Tcp,
        ),
        (
            "mptcp:10.77.1.77:5000",
            "10.77.1.77/24",
            "10.77.1.77:5000",
            Speaks::Mptcp,
        ),
    ];
    for (listen, address, target, speaks) in cases {
        let args = [
            "forward",
            "--listen",
            listen,
            "--to",
            "tcp:127.0.0.1:5003",
            "--path",
            "v1",
        ];
        let program = Program::start(&net.ours, args, "yet: connections are taken as soon as");
        // An address that is tentative for a while (RFC 4862 section 5.4) comes later, too.
        let line = format!("addr add {address} dev v1");
        net.ours.ip([line]).expect("the interface is there");
        wait_until(listen, || {
            let said = program.said();
            if said.contains("goes to") {
                Ok(())
            } else {
                Err(said)
            }
        });
        // Those of other networks are the host's own business.
        let from = if speaks == Speaks::Mptcp {
            &net.kernel
        } else {
            &net.ours
        };
        let stream = peer::connect(from, at(target), speaks).expect(listen);
        is_greeted(stream).expect(listen);
        program.interrupt();
    }
}

/// There is no path at the start, named or not: it is used when it comes.
#[test]
fn the_only_path_comes_later() {
    for attach in ["packet", "tun"] {
        for path in [&["--path", "v1"][..], &[]] {
            let Some(net) = Net::new(1) else { return };
            greeter(&net.kernel, at("10.77.1.1:5001"));
            greeter(&net.ours, at("127.0.0.1:5003"));
            net.ours.ip(["link set v1 down"]).expect("it is there");
            let kind = ["--attach", attach];
            let more = kind.iter().chain(path).copied();
            let client = Program::forward(
                &net.ours,
                "tcp:127.0.0.1:7000",
                "mptcp:10.77.1.1:5001",
                more.clone(),
            );
            let server =
                Program::forward(&net.ours, "mptcp:0.0.0.0:5000", "tcp:127.0.0.1:5003", more);
            let words = if path.is_empty() {
                "no interface has a default route"
            } else {
                "v1 is down"
            };
            for program in [&client, &server] {
                assert!(program.said().contains(words), "{}", program.said());
            }
            let ask =
                |host: &NetNs, to: &str, speaks| is_greeted(peer::connect(host, at(to), speaks)?);
            ask(&net.ours, "127.0.0.1:7000", Speaks::Tcp).expect_err("there is no path");
            ask(&net.ours, "127.0.0.1:5000", Speaks::Tcp).expect("that needs none");
            net.ours
                .ip(["link set v1 up", "route add default via 10.77.1.1"])
                .expect("it is there");
            wait_for("the path", || {
                ask(&net.ours, "127.0.0.1:7000", Speaks::Tcp).ok()
            });
            wait_for("the other path", || {
                ask(&net.kernel, "10.77.1.2:5000", Speaks::Mptcp).ok()
            });
            client.interrupt();
            server.interrupt();
        }
    }
}

/// The zone of a link-local address is the name of an interface, or its number.
#[test]
fn link_local_addresses_have_zones() {
    let Some(net) = Net::new(2) else { return };
    for host in [&net.kernel, &net.ours] {
        let end = if std::ptr::eq(host, &net.kernel) {
            1
        } else {
            2
        };
        let lines = [1, 2].map(|n| format!("addr add fe80::7{n}:{end}/64 dev v{n} nodad"));
        host.ip(lines).expect("the interfaces are there");
    }
    let index = net
        .ours
        .run(|| std::fs::read_to_string("/proc/thread-self/net/if_inet6"));
    let index = index.expect("IPv6 is on");
    let index = index
        .lines()
        .find(|line| line.ends_with(" v2"))
        .and_then(|line| line.split_whitespace().nth(1))
        .and_then(|hex| u32::from_str_radix(hex, 16).ok())
        .expect("v2 has addresses");
    let listener = peer::listen(&net.kernel, at("[::]:5001"), Speaks::Mptcp);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                let mut stream = peer::accept(&listener).expect("one for each");
                stream.read_exact(&mut [0]).expect("it says something");
                stream.write_all(b"hello").expect("it listens");
            }
        });
        for zone in ["v2".to_owned(), index.to_string()] {
            for proto in ["tcp", "mptcp"] {
                let to = format!("{proto}:[fe80::72:1%{zone}]:5001");
                let more = ["--path", "v1", "--path", "v2"];
                let program = Program::forward(&net.ours, "tcp:127.0.0.1:7000", &to, more);
                let stream = peer::connect(&net.ours, at("127.0.0.1:7000"), Speaks::Tcp);
                is_greeted(stream.expect("it listens")).expect(&to);
                program.interrupt();
            }
        }
    });
    let args = [
        "forward",
        "--listen",
        "tcp:[fe80::72:2%v2]:7000",
        "--to",
        "tcp:127.0.0.1:1",
    ];
    Program::start(&net.ours, args, "goes to").interrupt();
}
