//! A converter (RFC 8803) on real packets: data in SYNs, each failure of a server, boxes on the way, two paths of which one is cut.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use manypath_io::convert::Via;
use manypath_io::{Attach, Connect, Host, MpStream};
use manypath_lab::netns::NetNs;
use manypath_proxy::endpoint::Proto;
use manypath_proxy::serve::{ListenerSpec, OpeningKind, Policy, Server};
use manypath_proxy::sockets::Sockets;
use manypath_stack::stats::Counters;
use manypath_stack::{SubflowInfo, SubflowPhase};
use manypath_tests::net::{Net, shell};
use manypath_tests::peer::{self, Speaks};
use manypath_wire::convert::{self, MAX_LEN, Tlv, emit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

/// The converter's address, which no kernel has.
pub(crate) const CONVERTER: &str = "10.77.1.20:1234";

/// The server, on the client's host, reached by the second cable.
pub(crate) const SERVER: &str = "10.77.2.2:5000";

/// How long the converter waits for a server: longer than the kernel asks for a neighbour that is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().expect("a literal")
}

pub(crate) fn stack(paths: &[&str]) -> Host {
    Host::builder()
        .paths(paths.iter().map(|path| path.parse().expect("a path")))
        .attach(Attach::Packet)
        .build()
        .expect("a stack")
}

pub(crate) fn block_on<F: Future>(what: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let body = tokio::time::timeout(Duration::from_secs(60), what);
        body.await.expect("in time")
    })
}

/// A converter that serves until it is dropped.
pub(crate) struct Converter {
    stop: Option<oneshot::Sender<()>>,
    ended: mpsc::Receiver<Counters>,
}

impl Converter {
    pub(crate) fn start(host: &Arc<NetNs>, on: &str, paths: &'static [&'static str]) -> Self {
        Self::start_towards(Proto::Tcp, host, on, paths)
    }

    /// The same with another kind of TCP towards servers.
    pub(crate) fn start_towards(
        outside: Proto,
        host: &Arc<NetNs>,
        on: &str,
        paths: &'static [&'static str],
    ) -> Self {
        let on = on.parse().expect("an endpoint");
        let mut spec = ListenerSpec::new("test", on, OpeningKind::Convert, outside);
        spec.bounds.header_time = Duration::from_secs(2);
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        let host = Arc::clone(host);
        std::thread::spawn(move || {
            host.run(move || {
                block_on(async {
                    let stack = stack(paths);
                    let sockets = Sockets {
                        connect_timeout: CONNECT_TIMEOUT,
                        stack: Some(stack.clone()),
                        ..Sockets::default()
                    };
                    let policy = Arc::new(Policy::permissive());
                    let mut server = Server::new(sockets, Arc::new(()), Arc::clone(&policy));
                    server.apply(vec![spec], policy).await.expect("an address");
                    ready.send(()).expect("the test waits");
                    // Also a test that has failed stops it.
                    let _ = stopped.await;
                    let _ = ends.send(stack.counters());
                    server.stop().await;
                });
            });
        });
        is_ready.recv().expect("it listens");
        Self {
            stop: Some(stop),
            ended,
        }
    }

    /// Ends it; gives what its stack has counted.
    pub(crate) fn stop(mut self) -> Counters {
        drop(self.stop.take());
        self.ended.recv().expect("it ends")
    }
}

/// A server that gives back what it gets.
pub(crate) fn echo(host: &NetNs, at: SocketAddr, speaks: Speaks) {
    let listener = peer::listen(host, at, speaks);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

pub(crate) async fn through(
    via: &Via,
    opening: &Connect,
    server: SocketAddr,
    early: &[u8],
) -> std::io::Result<(MpStream, usize)> {
    via.connect(opening, &[server], early).await
}

pub(crate) async fn echoes(stream: &mut MpStream, early: &[u8], words: &[u8]) {
    stream.write_all(words).await.expect("open");
    let wanted = [early, words].concat();
    let mut back = vec![0; wanted.len()];
    stream.read_exact(&mut back).await.expect("the echo");
    assert_eq!(back, wanted);
}

#[test]
fn the_second_connection_takes_no_round_trip_more_and_each_failure_has_its_kind() {
    let Some(net) = Net::new(2) else { return };
    echo(&net.ours, at(SERVER), Speaks::Tcp);
    shell(
        &net.ours,
        "nft 'add table ip t; add chain ip t in { type filter hook input priority 0; }; add rule ip t in tcp dport 82 drop'",
    );
    let kernel = Arc::new(net.kernel);
    let converter = Converter::start(&kernel, &format!("mptcp:{CONVERTER}"), &["v1=10.77.1.20"]);
    net.ours.run(|| {
        block_on(async {
            let (host, via) = (stack(&["v1=10.77.1.10"]), Via::new(at(CONVERTER)));
            let opening = Connect::new(&host);
            // Towards the server it has no Multipath TCP, which the first answer says.
            for n in 0..3u64 {
                let connect = through(&via, &opening, at(SERVER), b"first");
                let (mut stream, written) = connect.await.expect("through the converter");
                assert_eq!(written, 5, "data goes along");
                echoes(&mut stream, b"first", b" and more").await;
                assert_eq!(
                    host.counters().fast_open_taken,
                    n + 2,
                    "the SYN's data was taken"
                );
            }
            let failed = async |server: &str| {
                let connect = through(&via, &opening, at(server), b"first");
                connect.await.expect_err("nobody is there").kind()
            };
            assert_eq!(failed("10.77.2.2:81").await, ErrorKind::ConnectionRefused);
            assert_eq!(failed("10.77.2.99:80").await, ErrorKind::HostUnreachable);
            assert_eq!(
                failed("203.0.113.1:80").await,
                ErrorKind::NetworkUnreachable
            );
            assert_eq!(failed("10.77.2.2:82").await, ErrorKind::NetworkDown);
            assert_eq!(failed("224.0.0.1:80").await, ErrorKind::InvalidData);
        });
    });
    let counted = converter.stop();
    assert_eq!(counted.syn_held, 9, "every SYN brought its message");
}

#[test]
fn where_data_in_syns_does_not_pass_it_follows_behind_the_handshake() {
    let Some(net) = Net::bridged(2) else { return };
    echo(&net.ours, at(SERVER), Speaks::Tcp);
    // SYNs with as much as a message are dropped on the way.
    let box_rules = "nft 'add table bridge b; add chain bridge b f { type filter hook forward priority 0; }; \
         add rule bridge b f ip protocol tcp ip length > 90 tcp flags & (syn|ack) == syn counter drop'";
    shell(net.middle.as_ref().expect("switches"), box_rules);
    let kernel = Arc::new(net.kernel);
    let converter = Converter::start(&kernel, &format!("mptcp:{CONVERTER}"), &["v1=10.77.1.20"]);
    net.ours.run(|| {
        block_on(async {
            let (host, via) = (stack(&["v1=10.77.1.10"]), Via::new(at(CONVERTER)));
            let opening = Connect::new(&host);
            for _ in 0..2 {
                let connect = through(&via, &opening, at(SERVER), b"first");
                let (mut stream, _) = connect.await.expect("through the converter");
                echoes(&mut stream, b"first", b" and more").await;
            }
            let counted = host.counters();
            assert_eq!(counted.fast_open_taken, 0);
            assert_eq!(
                counted.fast_open_sent, 1,
                "what was dropped is not tried again"
            );
        });
    });
    assert_eq!(converter.stop().syn_held, 0);
}

#[test]
fn a_listener_of_the_kernel_that_answers_syns_at_once_serves_too() {
    let Some(net) = Net::new(2) else { return };
    echo(&net.ours, at(SERVER), Speaks::Tcp);
    let kernel = Arc::new(net.kernel);
    for kind in ["tcp", "kernel-mptcp"] {
        let on = "10.77.1.1:1234";
        let converter = Converter::start(&kernel, &format!("{kind}:{on}"), &["v1=10.77.1.20"]);
        net.ours.run(move || {
            block_on(async {
                let (host, via) = (stack(&["v1=10.77.1.10"]), Via::new(at(on)));
                let opening = Connect::new(&host);
                for _ in 0..2 {
                    let connect = through(&via, &opening, at(SERVER), b"first");
                    let (mut stream, _) = connect.await.expect("through the converter");
                    echoes(&mut stream, b"first", b" and more").await;
                }
                let refused = through(&via, &opening, at("10.77.2.2:81"), b"").await;
                let refused = refused.expect_err("nobody is there").kind();
                assert_eq!(refused, ErrorKind::ConnectionRefused, "not a hang");
                assert_eq!(host.counters().fast_open_taken, 0);
            });
        });
        converter.stop();
    }
}

#[test]
fn a_stock_kernel_that_sends_data_with_its_syn_is_served() {
    let Some(net) = Net::new(2) else { return };
    echo(&net.ours, at(SERVER), Speaks::Tcp);
    // Data in SYNs as a client, with no cookie at all.
    net.ours
        .sysctl("net.ipv4.tcp_fastopen", "5")
        .expect("a setting");
    let kernel = Arc::new(net.kernel);
    let converter = Converter::start(&kernel, &format!("mptcp:{CONVERTER}"), &["v1=10.77.1.20"]);
    let mut message = [0; MAX_LEN];
    let connect = Tlv::Connect(convert::Connect::to(at(SERVER)));
    let length = emit(&[connect], &mut message).expect("it fits");
    for n in 0..3 {
        let words = [&message[..length], b"first"].concat();
        let stream = peer::connect_early(&net.ours, at(CONVERTER), &words);
        let mut stream = stream.expect("it is there");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("open");
        stream.write_all(b" and more").expect("open");
        let mut back = [0; 4 + 14];
        stream.read_exact(&mut back).expect("an answer");
        assert_eq!(back[..4], [1, 1, 0x22, 0x63], "{n}");
        assert_eq!(&back[4..], b"first and more");
    }
    assert!(
        converter.stop().syn_held > 0,
        "the kernel's SYNs bring data"
    );
}

#[test]
fn a_connection_through_a_converter_survives_the_loss_of_a_path() {
    let Some(net) = Net::bridged(2) else { return };
    // The server is on the converter's own host.
    let server = at("10.77.2.1:5000");
    echo(&net.kernel, server, Speaks::Tcp);
    let (middle, kernel) = (net.middle.expect("switches"), Arc::new(net.kernel));
    let paths = &["v1=10.77.1.20", "v2=10.77.2.20"];
    let converter = Converter::start(&kernel, &format!("mptcp:{CONVERTER}"), paths);
    net.ours.run(move || {
        block_on(async {
            let host = stack(&["v1=10.77.1.10", "v2=10.77.2.10"]);
            let (opening, via) = (Connect::new(&host), Via::new(at(CONVERTER)));
            let connect = through(&via, &opening, server, b"first");
            let (mut stream, _) = connect.await.expect("through the converter");
            echoes(&mut stream, b"first", b" and more").await;
            let second = |stream: &MpStream| {
                let info = stream.info().expect("open");
                let up = |s: &SubflowInfo| s.phase == SubflowPhase::Established;
                info.subflows.iter().filter(|s| up(s)).count() >= 2
            };
            while !second(&stream) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            shell(
                &middle,
                "nft 'add table bridge c; add chain bridge c f { type filter hook forward priority 0; }; add rule bridge c f iifname { k1, o1 } drop'",
            );
            echoes(&mut stream, b"", &[7; 100_000]).await;
            // Without switches nobody acknowledges the end, which whoever closes last waits ten seconds for.
            stream.close().await.expect("the peer has all of it");
            drop(middle);
        });
    });
    converter.stop();
}
