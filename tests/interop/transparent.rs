//! A transparent listener: what the firewall turns to it goes on to where it was going, and who dials it directly gets nowhere.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use manypath_lab::netns::NetNs;
use manypath_proxy::endpoint::Proto;
use manypath_proxy::serve::{ListenerSpec, OpeningKind, Policy, Server};
use manypath_proxy::sockets::Sockets;
use manypath_tests::net::{Net, shell};
use manypath_tests::peer::{self, Speaks};
use tokio::sync::oneshot;

/// A server beyond the host that has the proxy, which has no way back to the client.
const SERVER: &str = "10.88.0.1:5000";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("a literal")
}

/// The proxy's host between a client and a server.
fn server_behind(net: &Net) -> NetNs {
    let server = NetNs::new("server").expect("permitted");
    net.ours.veth("s1", &server, "s1").expect("a cable");
    for (host, line) in [
        (&net.ours, "addr add 10.88.0.254/24 dev s1"),
        (&server, "addr add 10.88.0.1/24 dev s1"),
        (&net.kernel, "route add 10.88.0.0/24 via 10.77.1.2"),
    ] {
        host.ip([line.to_owned()]).expect(line);
    }
    let listener = peer::listen(&server, at(SERVER), Speaks::Tcp);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            let mut bytes = [0; 5];
            if stream.read_exact(&mut bytes).is_ok() {
                // Whoever does not wait for it does not miss it.
                let _ = stream.write_all(&bytes);
            }
        }
    });
    server
}

/// A transparent listener on a host, until the sender is dropped.
fn start(host: &Arc<NetNs>) -> oneshot::Sender<()> {
    let on = "tcp:0.0.0.0:1235".parse().expect("an endpoint");
    let spec = ListenerSpec::new("test", on, OpeningKind::Transparent, Proto::Tcp);
    let (stop, stopped) = oneshot::channel();
    let (ready, is_ready) = mpsc::channel();
    let host = Arc::clone(host);
    std::thread::spawn(move || {
        host.run(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let policy = Arc::new(Policy::permissive());
                let mut server = Server::new(Sockets::default(), Arc::new(()), Arc::clone(&policy));
                server.apply(vec![spec], policy).await.expect("the port");
                ready.send(()).expect("the test waits");
                // Also a test that has failed stops it.
                let _ = stopped.await;
                server.stop().await;
            });
        });
    });
    is_ready.recv().expect("it listens");
    stop
}

fn echoed(mut stream: TcpStream) -> std::io::Result<[u8; 5]> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"hello")?;
    let mut back = [0; 5];
    stream.read_exact(&mut back)?;
    Ok(back)
}

#[test]
fn redirected_and_tproxied_connections_reach_their_own_destination() {
    for rules in [
        "nft 'add table ip t; add chain ip t in { type nat hook prerouting priority dstnat; }; \
             add rule ip t in ip daddr 10.88.0.0/24 tcp dport 5000 redirect to :1235'",
        "nft 'add table ip t; add chain ip t in { type filter hook prerouting priority mangle; }; \
             add rule ip t in ip daddr 10.88.0.0/24 tcp dport 5000 meta mark set 7 tproxy to :1235' && \
             ip rule add fwmark 7 lookup 77 && ip route add local 0.0.0.0/0 dev lo table 77",
    ] {
        let Some(net) = Net::new(1) else { return };
        let _server = server_behind(&net);
        shell(&net.ours, rules);
        let (kernel, ours) = (net.kernel, Arc::new(net.ours));
        let stop = start(&ours);
        for _ in 0..3 {
            let stream = peer::connect(&kernel, at(SERVER), Speaks::Tcp);
            let back = echoed(stream.expect("the proxy answers"));
            assert_eq!(&back.expect("carried"), b"hello", "{rules}");
        }
        drop(stop);
    }
}

#[test]
fn who_dials_the_listener_itself_is_turned_away_at_once() {
    let Some(net) = Net::new(1) else { return };
    let (kernel, ours) = (net.kernel, Arc::new(net.ours));
    // A thread of the proxy's host, which is busy serving.
    let (go, may_go) = mpsc::channel();
    let inside = ours.run(move || {
        std::thread::spawn(move || {
            may_go.recv().expect("the proxy starts");
            for to in ["10.77.1.2:1235", "127.0.0.1:1235", "127.0.0.2:1235"] {
                refused(TcpStream::connect(to).expect("it listens"));
            }
        })
    });
    let stop = start(&ours);
    go.send(()).expect("it waits");
    inside.join().expect("every one was turned away");
    let stream = peer::connect(&kernel, at("10.77.1.2:1235"), Speaks::Tcp);
    refused(stream.expect("it listens"));
    drop(stop);
}

fn refused(stream: TcpStream) {
    let began = Instant::now();
    echoed(stream).expect_err("a loop");
    assert!(began.elapsed() < Duration::from_secs(1));
}
