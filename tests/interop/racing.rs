//! Uplinks behind routers that stop carrying without losing their link: new connections begin on one that works, and names are found
//! by it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use manypath_io::{Attach, Connect, Host, MpStream};
use manypath_lab::netns::NetNs;
use manypath_tests::net::tool;
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, binary};
use manypath_tests::routed::Routed;
use manypath_tests::until::{until, wait_for};
use tokio::io::AsyncReadExt;

const PORT: u16 = 5000;

/// What an answer to the second attempt takes at most: 250 ms, and room for a machine that is busy.
const SOON: Duration = Duration::from_millis(1_500);

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a literal address")
}

fn server_at(addr: &str) -> SocketAddr {
    SocketAddr::new(ip(addr), PORT)
}

/// The server says hello on every connection; answers how many it has accepted.
fn serve(net: &Routed, speaks: Speaks) -> Arc<AtomicUsize> {
    let listener = peer::listen(&net.server, server_at("0.0.0.0"), speaks);
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok(mut stream) = peer::accept(&listener) {
            count.fetch_add(1, Ordering::SeqCst);
            // A client that is gone does not matter.
            let _ = stream.write_all(b"hello");
            kept.push(stream);
        }
    });
    accepted
}

/// Runs a future where our stack lives, on the thread whose children are in that namespace.
fn block_on<F, R>(net: &Routed, what: impl FnOnce() -> F + Send + 'static) -> R
where
    F: Future<Output = io::Result<R>>,
    R: Send + 'static,
{
    let result = net.ours.run(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), what()).await })?
    });
    result.expect("it ends well and in time")
}

/// Changes the host that our stack lives on, from the thread of [`block_on`].
fn change(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.expect("ip is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

fn host(attach: Attach, paths: &[&str]) -> io::Result<Host> {
    Host::builder()
        .paths(paths.iter().map(|path| path.parse().expect("a path")))
        .attach(attach)
        .build()
}

/// A connection, and how long it took to hear the server.
async fn open(host: &Host, remotes: &[SocketAddr]) -> io::Result<(MpStream, Duration)> {
    let began = Instant::now();
    let (mut stream, _) = Connect::new(host).connect_any(remotes, &[]).await?;
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).await?;
    assert_eq!(&hello, b"hello");
    Ok((stream, began.elapsed()))
}

/// The host's address that a connection was opened from: behind a TUN device the stack has addresses of its own.
fn local(host: &Host, stream: &MpStream) -> IpAddr {
    let local = stream.local_addr().expect("it is open").ip();
    let paths = host.paths();
    let path = paths.iter().find(|path| path.addr == local);
    path.and_then(|path| path.outside).unwrap_or(local)
}

/// The first uplink stops carrying in one way or another: the next connection goes by the other one, soon, and those after it begin
/// there.
fn begin_on_an_uplink_that_works(attach: Attach) {
    for (what, verdict) in [
        ("silent", "drop"),
        ("unreachable", "reject with icmp type net-unreachable"),
        ("refused by a box", "reject with tcp reset"),
    ] {
        let Some(net) = Routed::new() else { return };
        let accepted = serve(&net, Speaks::Tcp);
        let rules = net.rules();
        block_on(&net, move || async move {
            let host = host(attach, &["u1", "u2"])?;
            let remote = [server_at("192.0.2.1")];
            let (before, _) = open(&host, &remote).await?;
            assert_eq!(local(&host, &before), ip("10.78.1.2"), "{what}: as given");
            rules.set(&[&format!("iifname d1 tcp dport {PORT} {verdict}")]);
            let (second, took) = open(&host, &remote).await?;
            assert_eq!(local(&host, &second), ip("10.78.2.2"), "{what}");
            assert!(took < SOON, "{what}: {took:?}");
            let active = host.counters().conn_active;
            for _ in 0..5 {
                let (more, _) = open(&host, &remote).await?;
                assert_eq!(local(&host, &more), ip("10.78.2.2"), "{what}: remembered");
            }
            let grown = host.counters().conn_active - active;
            assert_eq!(grown, 5, "{what}: one attempt each");
            Ok(())
        });
        assert_eq!(accepted.load(Ordering::SeqCst), 7, "{what}: each once");
    }
}

#[test]
fn new_connections_begin_on_an_uplink_that_works() {
    begin_on_an_uplink_that_works(Attach::Packet);
}

#[test]
fn new_connections_begin_on_an_uplink_that_works_behind_a_tun() {
    begin_on_an_uplink_that_works(Attach::Tun);
}

/// An address of the host itself is refused at once, since no packet for it leaves the host; where another is given, that one is
/// connected to.
fn an_address_of_the_host_itself_is_refused(attach: Attach) {
    let Some(net) = Routed::new() else { return };
    let _accepted = serve(&net, Speaks::Tcp);
    block_on(&net, move || async move {
        let host = host(attach, &["u1", "u2"])?;
        for own in ["10.78.1.2", "10.78.2.2", "127.0.0.1"] {
            let began = Instant::now();
            let connect = Connect::new(&host);
            let refused = connect.connect_any(&[server_at(own)], &[]).await.err();
            let kind = refused.map(|error| error.kind());
            assert!(kind.is_some() && began.elapsed() < SOON, "{own}: {kind:?}");
        }
        let remotes = [server_at("10.78.1.2"), server_at("192.0.2.1")];
        let (_stream, took) = open(&host, &remotes).await?;
        assert!(took < SOON, "{took:?}");
        Ok(())
    });
}

#[test]
fn an_address_of_the_host_itself_is_refused_at_once() {
    an_address_of_the_host_itself_is_refused(Attach::Packet);
}

#[test]
fn an_address_of_the_host_itself_is_refused_at_once_behind_a_tun() {
    an_address_of_the_host_itself_is_refused(Attach::Tun);
}

/// The address from which the only SYN left goes before there is an answer: the connection begins on the other uplink.
fn the_address_of_a_handshake_goes(attach: Attach) {
    let Some(net) = Routed::new() else { return };
    let accepted = serve(&net, Speaks::Tcp);
    net.rules()
        .set(&[&format!("iifname d1 tcp dport {PORT} drop")]);
    block_on(&net, move || async move {
        let host = host(attach, &["u1", "u2"])?;
        let remote = [server_at("192.0.2.1")];
        let goes = async {
            while host.counters().conn_active == 0 {
                tokio::task::yield_now().await;
            }
            change("addr del 10.78.1.2/24 dev u1");
        };
        let (opened, ()) = tokio::join!(open(&host, &remote), goes);
        let (stream, took) = opened?;
        assert_eq!(local(&host, &stream), ip("10.78.2.2"));
        assert!(took < SOON, "{took:?}");
        Ok(())
    });
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_handshake_whose_address_goes_goes_on_by_the_other_uplink() {
    the_address_of_a_handshake_goes(Attach::Packet);
}

#[test]
fn a_handshake_whose_address_goes_goes_on_by_the_other_uplink_behind_a_tun() {
    the_address_of_a_handshake_goes(Attach::Tun);
}

/// A subflow that comes up on it shows that an uplink works again: the next connection begins there.
#[test]
fn an_uplink_that_works_again_is_the_first_again() {
    let Some(net) = Routed::new() else { return };
    serve(&net, Speaks::Mptcp);
    let rules = net.rules();
    block_on(&net, move || async move {
        let host = host(Attach::Packet, &["u1", "u2"])?;
        let remote = [server_at("192.0.2.1")];
        rules.set(&["iifname d1 drop"]);
        let (stream, _) = open(&host, &remote).await?;
        assert_eq!(local(&host, &stream), ip("10.78.2.2"));
        rules.set(&[]);
        // The join of the connection that is open asks again each second or so.
        until("the other subflow", || {
            let info = host.conn_info(stream.id());
            // Not before the peer has acknowledged the join is the path known to work.
            let up = |s: &&manypath_stack::SubflowInfo| {
                s.phase == manypath_stack::SubflowPhase::Established
            };
            info.is_some_and(|info| info.subflows.iter().filter(up).count() == 2)
        })
        .await;
        let (next, _) = open(&host, &remote).await?;
        assert_eq!(local(&host, &next), ip("10.78.1.2"));
        Ok(())
    });
}

/// All refuse: so it says, at once.
fn all_refuse(attach: Attach) {
    let Some(net) = Routed::new() else { return };
    block_on(&net, move || async move {
        let host = host(attach, &["u1", "u2"])?;
        let began = Instant::now();
        let remotes = [server_at("192.0.2.1"), server_at("192.0.2.9")];
        let connect = Connect::new(&host).connect_any(&remotes, &[]);
        let error = connect.await.expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        assert!(host.conns().is_empty(), "nothing is left");
        Ok(())
    });
}

#[test]
fn all_refused_is_refused() {
    all_refuse(Attach::Packet);
}

#[test]
fn all_refused_is_refused_behind_a_tun() {
    all_refuse(Attach::Tun);
}

/// The first address is dead, whatever the path: the second one is tried, and remembered.
fn first_address_is_dead(attach: Attach) {
    let Some(net) = Routed::new() else { return };
    serve(&net, Speaks::Mptcp);
    net.rules().set(&["ip daddr 192.0.2.9 drop"]);
    block_on(&net, move || async move {
        let host = host(attach, &["u1", "u2"])?;
        let remotes = [server_at("192.0.2.9"), server_at("192.0.2.1")];
        let (first, took) = open(&host, &remotes).await?;
        assert_eq!(
            local(&host, &first),
            ip("10.78.1.2"),
            "the path is not to blame"
        );
        assert!(took < SOON, "{took:?}");
        let before = host.counters().conn_active;
        open(&host, &remotes).await?;
        assert_eq!(host.counters().conn_active - before, 1, "remembered");
        Ok(())
    });
}

#[test]
fn the_second_address_is_tried() {
    first_address_is_dead(Attach::Packet);
}

#[test]
fn the_second_address_is_tried_behind_a_tun() {
    first_address_is_dead(Attach::Tun);
}

/// The order of the interfaces, whatever an attachment calls their addresses: by the local address that the server sees.
fn uplink_of(stream: &MpStream, seen: &std::sync::mpsc::Receiver<IpAddr>) -> IpAddr {
    let _ = stream;
    seen.recv_timeout(Duration::from_secs(20))
        .expect("the server sees who connects")
}

/// Paths open connections in the order in which they are named, else by the metric of their routes, and after a flap as before.
#[test]
fn paths_have_the_order_of_their_names_or_metrics() {
    for attach in [Attach::Packet, Attach::Tun] {
        for named in [&[][..], &["u2", "u1"][..]] {
            let Some(net) = Routed::new() else { return };
            let lines = [
                "route del default dev u1",
                "route add default via 10.78.1.1 dev u1 metric 900",
            ];
            net.ours.ip(lines).expect("the links are there");
            let (tell, seen) = std::sync::mpsc::channel();
            let listener = peer::listen(&net.server, server_at("0.0.0.0"), Speaks::Tcp);
            std::thread::spawn(move || {
                while let Ok((mut stream, from)) = listener.accept() {
                    let _ = stream.write_all(b"hello");
                    if tell.send(from.ip()).is_err() {
                        return;
                    }
                }
            });
            block_on(&net, move || async move {
                let host = host(attach, named)?;
                let remote = [server_at("192.0.2.1")];
                let what = format!("{attach:?} {named:?}");
                let (stream, _) = open(&host, &remote).await?;
                assert_eq!(uplink_of(&stream, &seen), ip("10.78.2.2"), "{what}");
                change("link set u2 down");
                let paths = |count| {
                    let host = &host;
                    until("paths", move || host.paths().len() == count)
                };
                paths(1).await;
                let (stream, _) = open(&host, &remote).await?;
                assert_eq!(uplink_of(&stream, &seen), ip("10.78.1.2"), "{what}");
                change("link set u2 up");
                change("route add default via 10.78.2.1 dev u2 metric 200");
                paths(2).await;
                let (stream, _) = open(&host, &remote).await?;
                assert_eq!(
                    uplink_of(&stream, &seen),
                    ip("10.78.2.2"),
                    "{what}: as before"
                );
                Ok(())
            });
        }
    }
}

/// The default route of the second uplink is in a table of its own, to which a rule leads from its address.
fn default_route_in_another_table(attach: Attach) {
    for named in [&[][..], &["u1", "u2"][..]] {
        let Some(net) = Routed::new() else { return };
        serve(&net, Speaks::Mptcp);
        let lines = [
            "route del default dev u2",
            "route add default via 10.78.2.1 dev u2 table 102",
            "rule add from 10.78.2.2 table 102",
        ];
        net.ours.ip(lines).expect("the links are there");
        block_on(&net, move || async move {
            let host = host(attach, named)?;
            let (stream, _) = open(&host, &[server_at("192.0.2.1")]).await?;
            assert_eq!(local(&host, &stream), ip("10.78.1.2"));
            let joined = || {
                let info = stream.info().expect("it is open");
                let paths = host.paths();
                let second = paths
                    .iter()
                    .find(|path| path.outside.unwrap_or(path.addr) == ip("10.78.2.2"));
                let second = second.map(|path| path.addr);
                let by = |s: &manypath_stack::SubflowInfo| Some(s.tuple.local.ip()) == second;
                info.subflows.iter().any(|s| by(s) && s.tcp.srtt.is_some())
            };
            until("the join by the second uplink", joined).await;
            Ok(())
        });
    }
}

#[test]
fn default_routes_of_other_tables_are_used() {
    default_route_in_another_table(Attach::Packet);
}

#[test]
fn default_routes_of_other_tables_are_used_behind_a_tun() {
    default_route_in_another_table(Attach::Tun);
}

/// Routes to the server alone, without a default route: each path takes the router that the kernel would take.
fn no_default_route(attach: Attach) {
    let Some(net) = Routed::new() else { return };
    serve(&net, Speaks::Mptcp);
    let lines = [1, 2].map(|n| format!("route del default dev u{n}"));
    net.ours.ip(lines).expect("they are there");
    let lines =
        [1, 2].map(|n| format!("route add 192.0.2.1/32 via 10.78.{n}.1 dev u{n} metric {n}"));
    net.ours.ip(lines).expect("the links are there");
    // The routers do not answer for what is behind them.
    block_on(&net, move || async move {
        let host = host(attach, &["u1", "u2"])?;
        let (stream, took) = open(&host, &[server_at("192.0.2.1")]).await?;
        assert_eq!(local(&host, &stream), ip("10.78.1.2"));
        assert!(took < SOON, "{took:?}");
        Ok(())
    });
}

#[test]
fn routes_to_one_destination_are_used() {
    no_default_route(Attach::Packet);
}

#[test]
fn routes_to_one_destination_are_used_behind_a_tun() {
    no_default_route(Attach::Tun);
}

/// A path that goes or comes is said, with the reason.
#[test]
fn paths_that_go_and_come_are_said() {
    let Some(net) = Routed::new() else { return };
    let port = peer::free_port(&net.ours);
    let listen = format!("tcp:127.0.0.1:{port}");
    let program = Program::forward(
        &net.ours,
        &listen,
        "mptcp:192.0.2.1:5000",
        ["-v", "--path", "u1", "--path", "u2"],
    );
    let said = |text: &str| {
        wait_for(text, || program.said().contains(text).then_some(()));
    };
    said("path u2 (10.78.2.2) can be used: found at the start");
    for (lines, text) in [
        (
            &["link set u2 down"][..],
            "path u2 (10.78.2.2) cannot be used now: the link is down or has no carrier",
        ),
        (
            &["link set u2 up"],
            "path u2 (10.78.2.2) can be used: the link is up",
        ),
        (
            &["addr del 10.78.2.2/24 dev u2"],
            "path u2 (10.78.2.2) is gone: the address was removed",
        ),
        (
            &["addr add 10.78.2.7/24 dev u2"],
            "path u2 (10.78.2.7) can be used: the address was added",
        ),
        (
            &["link del u2"],
            "path u2 (10.78.2.7) is gone: the interface is gone",
        ),
    ] {
        net.ours.ip(lines.iter()).expect("it is there");
        said(text);
    }
    // Without a default route, that is said too.
    said("path u2 (10.78.2.7) has no route to other networks");
}

/// Answers questions for the addresses of `srv.test` with one A record.
fn name_server(ns: &NetNs, at: &str, answer: [u8; 4]) {
    let at = SocketAddr::new(ip(at), 53);
    let socket = ns
        .run(move || UdpSocket::bind(at))
        .expect("the port is free");
    std::thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut packet) {
            let Some(answer) = answer_to(&packet[..len], answer) else {
                continue;
            };
            // Who asked may be gone.
            let _ = socket.send_to(&answer, from);
        }
    });
}

/// An answer to one question (RFC 1035 section 4.1): an address, or that there is none of the other family.
fn answer_to(question: &[u8], answer: [u8; 4]) -> Option<Vec<u8>> {
    let name = question.get(12..)?.iter().position(|byte| *byte == 0)?;
    let end = 12 + name + 5;
    let kind = question.get(end - 4..end - 2)?;
    let is_a = kind == [0, 1];
    let mut out = question.get(..end)?.to_vec();
    (out[2], out[3]) = (0x81, 0x80);
    out[6..12].fill(0);
    if is_a {
        out[7] = 1;
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        out.extend(answer);
    }
    Some(out)
}

/// The program, for which these lines are in resolv.conf.
fn forward_to_name(net: &Routed, resolv: &str, port: u16) -> (Program, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("resolv.conf");
    std::fs::write(&file, resolv).expect("it is ours");
    let script = format!(
        "mount --bind {} /etc/resolv.conf && exec {} forward -v --listen tcp:127.0.0.1:{port} --to mptcp:srv.test:{PORT}",
        file.display(),
        binary().display()
    );
    let mut command = tool("unshare");
    command.args(["-m", "sh", "-c", &script]);
    (
        Program::start_command(&net.ours, command, "goes to"),
        folder,
    )
}

/// How long it takes through the program until the server is heard.
fn ask(net: &Routed, port: u16) -> Duration {
    let began = Instant::now();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = peer::connect(&net.ours, at, Speaks::Tcp).expect("the program listens");
    let mut hello = [0; 5];
    stream.read_exact(&mut hello).expect("the server is heard");
    began.elapsed()
}

/// Names are found by an uplink that works, and a name server that is silent costs its time once.
#[test]
fn names_do_not_go_by_the_first_uplink_and_name_server_alone() {
    for (what, resolv, rules) in [
        (
            "the first uplink is dead",
            "nameserver 192.0.2.1\n",
            &["iifname d1 drop", "oifname d1 drop"][..],
        ),
        (
            "the first name server is dead",
            "nameserver 192.0.2.9\nnameserver 192.0.2.1\n",
            &["ip daddr 192.0.2.9 drop"][..],
        ),
    ] {
        let Some(net) = Routed::new() else { return };
        serve(&net, Speaks::Mptcp);
        name_server(&net.server, "192.0.2.1", [192, 0, 2, 1]);
        net.rules().set(rules);
        let port = peer::free_port(&net.ours);
        let (_program, _folder) = forward_to_name(&net, resolv, port);
        let first = ask(&net, port);
        assert!(first < Duration::from_secs(3), "{what}: {first:?}");
        let worst = (0..5).map(|_| ask(&net, port)).max().expect("some");
        assert!(worst < Duration::from_millis(700), "{what}: {worst:?}");
    }
}
