//! `take` of a transparent listener: the rules that the program itself puts up, on real packets, and what is left of them when it
//! ends, is killed, or reads its file anew.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use manypath_lab::netns::NetNs;
use manypath_tests::net::{Net, shell};
use manypath_tests::nginx::nginx;
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, binary, manypath};
use manypath_tests::until::{PATIENCE, wait_for};
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// The server, beyond the host that has the proxy.
const SERVERS: [&str; 2] = ["10.88.0.1:5000", "[fd88::1]:5000"];

/// That host, as the server sees it.
const OURS: [&str; 2] = ["10.88.0.254", "fd88::fe"];

/// The client.
const CLIENT: [&str; 2] = ["10.77.1.1", "fd77:1::1"];

fn at(text: &str) -> SocketAddr {
    text.parse().expect("a literal")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a literal")
}

/// A client, the host that has the proxy, and a server that knows no way to the client.
struct Routed {
    net: Net,
    server: NetNs,
    /// Who has connected to the server.
    peers: Receiver<IpAddr>,
}

impl Routed {
    fn new() -> Option<Self> {
        // Who waits to accept does not wait for a compiler.
        let _ = binary();
        let net = Net::new(1)?;
        let server = NetNs::new("server").expect("permitted");
        net.ours.veth("s1", &server, "s1").expect("a cable");
        for (host, lines) in [
            (
                &net.ours,
                [
                    "addr add 10.88.0.254/24 dev s1",
                    "addr add fd88::fe/64 dev s1 nodad",
                ],
            ),
            (
                &server,
                [
                    "addr add 10.88.0.1/24 dev s1",
                    "addr add fd88::1/64 dev s1 nodad",
                ],
            ),
            (
                &net.kernel,
                [
                    "route add 10.88.0.0/24 via 10.77.1.2",
                    "route add fd88::/64 via fd77:1::2",
                ],
            ),
        ] {
            host.ip(lines).expect("permitted");
        }
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            net.ours.sysctl(key, "1").expect("permitted");
        }
        let (tell, peers) = channel();
        for addr in SERVERS {
            let listener = peer::listen(&server, at(addr), Speaks::Tcp);
            let tell = tell.clone();
            std::thread::spawn(move || {
                while let Ok(stream) = peer::accept(&listener) {
                    let peer = stream.peer_addr().map(|addr| addr.ip());
                    // A test that is over does not listen.
                    let _ = peer.map(|peer| tell.send(peer));
                    std::thread::spawn(move || echo(stream));
                }
            });
        }
        Some(Self { net, server, peers })
    }

    /// Has the server know the way to the client.
    fn server_knows_the_way(&self) {
        let lines = [
            "route add 10.77.1.0/24 via 10.88.0.254",
            "route add fd77:1::/64 via fd88::fe",
            "route add fd99::/64 via fd88::fe",
        ];
        self.server.ip(lines).expect("permitted");
    }

    /// A connection of the client that is carried, and who the server takes for its client.
    fn asks(&self, server: &str) -> (TcpStream, IpAddr) {
        let stream = peer::connect(&self.net.kernel, at(server), Speaks::Tcp);
        let mut stream = stream.expect("somebody answers");
        ask(&mut stream).unwrap_or_else(|error| panic!("{server}: {error}"));
        let peer = self
            .peers
            .recv_timeout(PATIENCE)
            .expect("the server has it");
        (stream, peer)
    }

    /// Everything on the host that a program may leave behind. Link-local addresses come when they want to.
    fn state(&self) -> String {
        shell(
            &self.net.ours,
            "{ nft list ruleset; ip rule; ip -6 rule; ip route show table all; } | grep -v fe80:",
        )
    }
}

fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 64];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            n => stream.write_all(&bytes[..n])?,
        }
    }
}

fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"hello")?;
    let mut back = [0; 5];
    stream.read_exact(&mut back)?;
    assert_eq!(&back, b"hello");
    Ok(())
}

/// The proxy with a transparent listener that takes as `take` says.
struct Proxy {
    folder: TempDir,
    program: Program,
}

fn config(take: &str) -> String {
    format!(
        "[[listen]]\non = \"[::]:1235\"\nopening = \"transparent\"\noutside = \"tcp\"\nname = \"taker\"\n{take}\n"
    )
}

impl Proxy {
    fn start(host: &NetNs, take: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // The proxy is nobody when it reads its file anew.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("ours");
        let file = folder.path().join("proxy.toml");
        std::fs::write(&file, config(take)).expect("written");
        let args = ["proxy".into(), "--config".into(), file.into_os_string()];
        let program = Program::start(host, args, "taker listens on");
        Self { folder, program }
    }

    fn reload(&mut self, host: &NetNs, take: &str) {
        std::fs::write(self.folder.path().join("proxy.toml"), config(take)).expect("written");
        let pid = self.program.pid().to_string();
        let (status, said) = Program::run(host, manypath(["reload", "--pid", &pid]));
        assert!(status.success(), "{said}");
    }

    fn kill(mut self) {
        self.program.signal(Signal::SIGKILL);
        let (status, said) = self.program.end();
        assert_eq!(status.code(), None, "{said}");
    }
}

fn take(mode: &str) -> String {
    format!(
        "take = {{ interface = [\"v1\", \"s1\"], port = [5000, \"8000-8999\"], mode = \"{mode}\" }}"
    )
}

fn taken_by_the_programs_own_rules(mode: &str) {
    let Some(routed) = Routed::new() else { return };
    let before = routed.state();
    let proxy = Proxy::start(&routed.net.ours, &take(mode));
    for (server, ours) in SERVERS.iter().zip(OURS) {
        assert_eq!(routed.asks(server).1, ip(ours), "{mode}");
    }
    // The host's own connections are its own, though the interface that they leave by is taken, too.
    let stream = peer::connect(&routed.net.ours, at(SERVERS[0]), Speaks::Tcp);
    ask(&mut stream.expect("a server")).expect("it answers");
    assert_eq!(
        routed.peers.recv_timeout(PATIENCE).expect("it came"),
        ip(OURS[0])
    );
    // So are its services.
    let service = peer::listen(&routed.net.ours, at("10.77.1.2:8080"), Speaks::Tcp);
    let stream = peer::connect(&routed.net.kernel, at("10.77.1.2:8080"), Speaks::Tcp);
    let accepted = peer::accept(&service).expect("somebody came");
    assert_eq!(
        accepted.peer_addr().expect("connected"),
        stream.expect("it answers").local_addr().expect("connected"),
        "{mode}"
    );
    // The client gets another prefix: what it sends comes by the same interface.
    routed.server_knows_the_way();
    routed
        .net
        .kernel
        .ip([
            "addr del fd77:1::1/64 dev v1",
            "addr add fd99::1/64 dev v1 nodad",
            "route replace fd88::/64 via fd99::2",
        ])
        .expect("permitted");
    routed
        .net
        .ours
        .ip(["addr add fd99::2/64 dev v1 nodad"])
        .expect("permitted");
    assert_eq!(routed.asks(SERVERS[1]).1, ip(OURS[1]), "{mode}");
    routed
        .net
        .ours
        .ip(["addr del fd99::2/64 dev v1"])
        .expect("permitted");
    let said = proxy.program.interrupt();
    assert!(
        said.contains("4 connections, 0 open") || said.contains("3 connections"),
        "{said}"
    );
    assert_eq!(routed.state(), before, "{mode}");
}

#[test]
fn redirected_by_the_programs_own_rules() {
    taken_by_the_programs_own_rules("redirect");
}

#[test]
fn tproxied_by_the_programs_own_rules() {
    taken_by_the_programs_own_rules("tproxy");
}

#[test]
fn who_is_killed_leaves_rules_that_take_nothing_and_are_single_after_each_start() {
    for mode in ["redirect", "tproxy"] {
        let Some(routed) = Routed::new() else { return };
        routed.server_knows_the_way();
        let before = routed.state();
        let mut while_it_runs = None;
        for _ in 0..10 {
            let proxy = Proxy::start(&routed.net.ours, &take(mode));
            let (stream, peer) = routed.asks(SERVERS[0]);
            assert_eq!(peer, ip(OURS[0]), "{mode}");
            let state = without_names(&routed.state());
            assert_eq!(while_it_runs.get_or_insert(state.clone()), &state, "{mode}");
            proxy.kill();
            drop(stream);
            // New connections go their own way at once (Linux 5.12, where tables belong to processes).
            for (server, client) in SERVERS.iter().zip(CLIENT) {
                assert_eq!(routed.asks(server).1, ip(client), "{mode}");
            }
        }
        let (status, said) = Program::run(&routed.net.ours, manypath(["undo"]));
        assert!(status.success(), "{said}");
        assert_eq!(routed.state(), before, "{mode}");
    }
}

/// The name of a table has the process in it.
fn without_names(state: &str) -> String {
    let lines = state.lines();
    let named = lines.map(|line| match line.starts_with("table inet manypath_") {
        true => "table inet manypath",
        false => line,
    });
    named.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_reload_takes_more_or_less_and_what_was_taken_goes_on() {
    for mode in ["redirect", "tproxy"] {
        let Some(routed) = Routed::new() else { return };
        routed.server_knows_the_way();
        let before = routed.state();
        let host = &routed.net.ours;
        let mut proxy = Proxy::start(host, "");
        assert_eq!(routed.state(), before, "nothing is taken");
        assert_eq!(routed.asks(SERVERS[0]).1, ip(CLIENT[0]));
        proxy.reload(host, &take(mode));
        let (mut open, peer) = routed.asks(SERVERS[0]);
        assert_eq!(peer, ip(OURS[0]), "{mode}");
        proxy.reload(host, "take = { interface = \"v1\", port = 5001 }");
        assert_eq!(routed.asks(SERVERS[0]).1, ip(CLIENT[0]), "{mode}");
        ask(&mut open).unwrap_or_else(|error| panic!("{mode}: {error}"));
        proxy.reload(host, "");
        assert_eq!(routed.asks(SERVERS[0]).1, ip(CLIENT[0]), "{mode}");
        ask(&mut open).unwrap_or_else(|error| panic!("{mode}: {error}"));
        proxy.program.interrupt();
        assert_eq!(routed.state(), before, "{mode}");
    }
}

#[test]
fn routing_rules_that_somebody_removes_are_put_back() {
    let Some(routed) = Routed::new() else { return };
    let proxy = Proxy::start(&routed.net.ours, &take("tproxy"));
    let rules = || shell(&routed.net.ours, "ip rule; ip -6 rule");
    let before = rules();
    shell(
        &routed.net.ours,
        "ip rule del fwmark 0x6d707900; ip -6 rule del fwmark 0x6d707900; ip route flush table 6900000",
    );
    wait_for("the rules", || {
        let now = rules();
        (now.matches("fwmark 0x6d707900").count() == 2).then_some(())
    });
    assert!(before.contains("fwmark 0x6d707900"), "{before}");
    assert_eq!(routed.asks(SERVERS[0]).1, ip(OURS[0]));
    let said = proxy.program.interrupt();
    assert!(said.contains("put back"), "{said}");
}

#[test]
fn who_dials_a_listener_that_takes_is_turned_away_by_every_address() {
    let Some(routed) = Routed::new() else { return };
    let mut proxy = Proxy::start(&routed.net.ours, &take("redirect"));
    let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
    let pid = proxy.program.pid();
    let before = descriptors(pid).expect("it runs");
    let own = [
        "127.0.0.1",
        "127.0.0.2",
        "::1",
        "10.77.1.2",
        "fd77:1::2",
        "10.88.0.254",
        "fd88::fe",
    ];
    let from_outside = ["10.77.1.2", "fd77:1::2", "10.88.0.254", "fd88::fe"];
    let dials = own.map(|addr| (&routed.net.ours, addr)).into_iter();
    for (host, addr) in dials.chain(from_outside.map(|addr| (&routed.net.kernel, addr))) {
        let to = SocketAddr::new(ip(addr), 1235);
        let began = std::time::Instant::now();
        let mut stream = peer::connect(host, to, Speaks::Tcp).expect("it listens");
        ask(&mut stream).expect_err("it would come back for ever");
        assert!(began.elapsed() < Duration::from_secs(1), "{addr}");
    }
    wait_for("the descriptors to be free", || {
        (descriptors(pid).expect("it runs") <= before).then_some(())
    });
    let said = proxy.program.interrupt();
    assert!(
        said.contains(&format!(
            "{} connections, 0 open",
            own.len() + from_outside.len()
        )),
        "{said}"
    );
}

#[test]
fn nginx_behind_tproxy_sees_the_clients_address() {
    let Some(routed) = Routed::new() else { return };
    routed.server_knows_the_way();
    let folder = tempfile::tempdir().expect("a folder");
    // On both families, and it logs who has asked.
    let http = format!(
        "log_format who '$remote_addr'; access_log {}/access who; server {{ listen 80; listen [::]:80; return 200 \"hello\\n\"; }}",
        folder.path().display()
    );
    let Some(_nginx) = nginx(&routed.server, folder.path(), &http, &[]) else {
        return;
    };
    let log = || std::fs::read_to_string(folder.path().join("access")).unwrap_or_default();
    let mut asked = Vec::new();
    let mut ask = |keep: &str, sees: [&str; 2]| {
        let take = "take = { interface = \"v1\", port = 80, mode = \"tproxy\" }";
        let proxy = Proxy::start(&routed.net.ours, &format!("{take}\n{keep}"));
        for (url, sees) in ["http://10.88.0.1/", "http://[fd88::1]/"].iter().zip(sees) {
            let answer = shell(&routed.net.kernel, &format!("curl -sgm 20 {url}"));
            assert_eq!(answer, "hello\n", "{keep} {url}");
            asked.push(sees.to_owned());
            wait_for("the access log", || {
                (log().lines().collect::<Vec<_>>() == asked).then_some(())
            });
        }
        // Both went through it.
        let said = proxy.program.interrupt();
        assert!(said.contains("manypath: 2 connections, 0 open"), "{said}");
    };
    ask("", OURS);
    ask("keep_client = true", CLIENT);
}
