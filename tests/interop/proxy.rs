//! The proxy's openings where a network fails in its own ways, and over two paths of ours.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manypath_io::{Attach, Host};
use manypath_proxy::endpoint::Proto;
use manypath_proxy::serve::{Ended, ListenerSpec, Observer, OpeningKind, Policy, Server};
use manypath_proxy::sockets::Sockets;
use manypath_tests::net::{Family, Net, shell, tool};
use manypath_tests::peer::{self, Speaks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PORT: u16 = 5000;

/// Longer than the kernel asks for a neighbour that is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(6);

/// Remembers what has ended.
#[derive(Default)]
pub(crate) struct Ends(Mutex<Vec<Ended>>);

impl Ends {
    pub(crate) fn all(&self) -> Vec<Ended> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Observer for Ends {
    fn ended(&self, _: &Arc<str>, ended: &Ended) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(ended.clone());
    }
}

/// A proxy with these listeners on loopback, and where they are.
pub(crate) async fn start(
    specs: Vec<ListenerSpec>,
    host: Option<Host>,
) -> (Server, Vec<SocketAddr>, Arc<Ends>) {
    let sockets = Sockets {
        connect_timeout: CONNECT_TIMEOUT,
        stack: host,
        ..Sockets::default()
    };
    let (ends, policy) = (Arc::new(Ends::default()), Arc::new(Policy::permissive()));
    let mut server = Server::new(sockets, ends.clone(), Arc::clone(&policy));
    server.apply(specs, policy).await.expect("loopback");
    let at = server.listeners().iter().map(|one| one.address).collect();
    (server, at, ends)
}

pub(crate) fn spec(opening: OpeningKind, outside: Proto) -> ListenerSpec {
    let on = "tcp:127.0.0.1:0".parse().expect("an endpoint");
    ListenerSpec::new("test", on, opening, outside)
}

/// Runs a future on the host where our stack lives.
pub(crate) fn in_ours<F>(net: &Net, what: impl FnOnce() -> F + Send + 'static)
where
    F: Future<Output = ()>,
{
    net.ours.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            let body = tokio::time::timeout(Duration::from_secs(60), what());
            body.await.expect("in time");
        });
    });
}

pub(crate) fn host(paths: &[&str]) -> Host {
    Host::builder()
        .paths(paths.iter().map(|path| path.parse().expect("a path")))
        .attach(Attach::Packet)
        .build()
        .expect("a stack")
}

/// The reply of a SOCKS5 proxy.
async fn socks_reply(proxy: SocketAddr, target: SocketAddr) -> u8 {
    let SocketAddr::V4(target) = target else {
        panic!("IPv4 in this test");
    };
    let mut client = TcpStream::connect(proxy).await.expect("it listens");
    let mut words = vec![5, 1, 0, 5, 1, 0, 1];
    words.extend(target.ip().octets());
    words.extend(target.port().to_be_bytes());
    client.write_all(&words).await.expect("open");
    let mut reply = [0; 12];
    client.read_exact(&mut reply).await.expect("a reply");
    reply[3]
}

/// Status and error of an HTTP proxy.
async fn http_reply(proxy: SocketAddr, target: SocketAddr) -> (u16, String) {
    let mut client = TcpStream::connect(proxy).await.expect("it listens");
    let words = format!("GET http://{target}/ HTTP/1.0\r\n\r\n");
    client.write_all(words.as_bytes()).await.expect("open");
    let mut text = String::new();
    client.read_to_string(&mut text).await.expect("an answer");
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let error = text
        .split("error=")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next());
    (status.unwrap_or(0), error.unwrap_or("").to_owned())
}

#[test]
fn each_failure_of_a_network_has_its_own_reply() {
    let Some(net) = Net::new(1) else { return };
    shell(
        &net.kernel,
        "nft 'add table ip t; add chain ip t in { type filter hook input priority 0; }; add rule ip t in tcp dport 82 drop'",
    );
    in_ours(&net, || async {
        let specs = vec![
            spec(OpeningKind::Socks5, Proto::Tcp),
            spec(OpeningKind::Http, Proto::Tcp),
            spec(OpeningKind::Socks5, Proto::Mptcp),
        ];
        let (server, at, _) = start(specs, Some(host(&["v1"]))).await;
        let (socks, http, ours) = (at[0], at[1], at[2]);
        let case = async |target: &str, reply: u8, status: u16, error: &str| {
            let target: SocketAddr = target.parse().expect("literal");
            let (told, answered) =
                tokio::join!(socks_reply(socks, target), http_reply(http, target));
            assert_eq!(told, reply, "{target}");
            assert_eq!(answered, (status, error.to_owned()), "{target}");
        };
        tokio::join!(
            case("10.77.1.1:81", 5, 502, "connection_refused"),
            case("10.77.1.1:82", 6, 504, "connection_timeout"),
            case("10.77.1.99:80", 4, 502, "destination_unavailable"),
            case("203.0.113.1:80", 3, 502, "destination_ip_unroutable"),
        );
        let over_paths = async |target: &str, reply: u8| {
            let told = socks_reply(ours, target.parse().expect("literal")).await;
            assert_eq!(told, reply, "{target} by our stack");
        };
        tokio::join!(over_paths("10.77.1.1:81", 5), over_paths("10.77.1.1:82", 6));
        server.stop().await;
    });
}

/// The server's end has reached the client, whose own never comes back, as a NAT or a firewall has forgotten the connection.
#[test]
fn a_last_fin_that_is_lost_leaves_no_sockets() {
    let Some(net) = Net::new(1) else { return };
    in_ours(&net, || async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let to = listener.local_addr().expect("bound");
        let to = format!("tcp:{to}").parse().expect("an endpoint");
        let mut fixed = spec(OpeningKind::Fixed(to), Proto::Tcp);
        fixed.bounds.half_closed = Some(Duration::from_secs(1));
        let (server, at, ends) = start(vec![fixed], None).await;
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let mut client = TcpStream::connect(at[0]).await.expect("it listens");
            let (mut served, _) = listener.accept().await.expect("carried");
            served.shutdown().await.expect("open");
            let end = client.read(&mut [0]).await.expect("in order");
            assert_eq!(end, 0);
            clients.push(client);
            servers.push(served);
        }
        let rule = format!(
            "add table ip t; add chain ip t in {{ type filter hook input priority 0; }}; add rule ip t in tcp dport {} drop",
            at[0].port()
        );
        let status = tool("nft").arg(rule).status().expect("nft is installed");
        assert!(status.success());
        drop(clients);
        while ends.all().len() < 100 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for mut served in servers {
            served.read(&mut [0]).await.expect_err("a reset");
        }
        // Of the proxy's sockets none but its listener is left.
        let table = std::fs::read_to_string("/proc/thread-self/net/tcp").expect("procfs");
        let local = format!(":{:04X}", at[0].port());
        let left = table.lines().filter(|line| {
            let mut words = line.split_whitespace();
            words.nth(1).is_some_and(|word| word.ends_with(&local))
                && words.nth(1).is_some_and(|state| state != "0A")
        });
        assert_eq!(left.count(), 0, "{table}");
        server.stop().await;
    });
}

/// A proxy starts before its interface has its address; a reload with an address that is not there is refused.
#[test]
fn a_listener_waits_for_its_address_at_the_start() {
    let Some(net) = Net::new(1) else { return };
    in_ours(&net, || async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let to = listener.local_addr().expect("bound");
        let to = format!("tcp:{to}").parse().expect("an endpoint");
        let mut fixed = spec(OpeningKind::Fixed(to), Proto::Tcp);
        fixed.on = "tcp:10.77.1.200:4000".parse().expect("an endpoint");
        let policy = Arc::new(Policy::permissive());
        let mut server = Server::new(
            Sockets::default(),
            Arc::new(Ends::default()),
            Arc::clone(&policy),
        );
        let refused = server.apply(vec![fixed.clone()], Arc::clone(&policy)).await;
        refused.expect_err("the address is not there");
        server.begin(vec![fixed], policy).await.expect("it waits");
        let at = server.listeners()[0].address;
        assert_eq!(at.to_string(), "10.77.1.200:4000");
        TcpStream::connect(at).await.expect_err("it is not there");
        let added = tool("ip")
            .args(["addr", "add", "10.77.1.200/24", "dev", "v1"])
            .status();
        assert!(added.expect("ip is installed").success());
        let mut client = loop {
            match TcpStream::connect(at).await {
                Ok(client) => break client,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        client.write_all(b"hello").await.expect("carried");
        let (mut served, _) = listener.accept().await.expect("carried");
        let mut got = [0; 5];
        served.read_exact(&mut got).await.expect("carried");
        assert_eq!(&got, b"hello");
        server.stop().await;
    });
}

/// A stock curl downloads from a server on the kernel's Multipath TCP, by HTTP and by SOCKS5, over two paths of ours.
#[test]
fn downloads_go_over_both_paths_and_each_is_accounted_for() {
    const SIZE: usize = 20_000_000;
    let Some(net) = Net::new(2) else { return };
    net.add_endpoint(Net::kernel_address(Family::V4, 2), 2, "signal");
    let any = SocketAddr::from(([0, 0, 0, 0], PORT));
    let listener = peer::listen(&net.kernel, any, Speaks::Mptcp);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            let mut head = [0; 4096];
            if std::io::Read::read(&mut stream, &mut head).is_ok() {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n"
                );
                // A client that is gone does not matter.
                let _ = stream.write_all(&[head.as_bytes(), &vec![b'x'; SIZE]].concat());
            }
        }
    });
    in_ours(&net, || async {
        let specs = vec![
            spec(OpeningKind::Http, Proto::Mptcp),
            spec(OpeningKind::Socks5, Proto::Mptcp),
        ];
        let (server, at, ends) = start(specs, Some(host(&["v1", "v2"]))).await;
        let url = format!("http://{}:{PORT}/", Net::kernel_address(Family::V4, 1));
        let ways = [
            format!("-x http://{}", at[0]),
            format!("-p -x http://{}", at[0]),
            format!("--socks5 {}", at[1]),
        ];
        for (n, way) in ways.iter().enumerate() {
            let mut curl = Command::new("curl");
            curl.args(["-sS", "-f", "-m", "50", "--noproxy", "none"]);
            curl.args(way.split(' ')).arg(&url);
            curl.stdout(std::process::Stdio::piped());
            let Ok(child) = curl.spawn() else {
                eprintln!("skipped: there is no curl");
                return;
            };
            let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await;
            let output = output.expect("no panic").expect("it ends");
            assert!(output.status.success(), "{way}");
            assert!(output.stdout == vec![b'x'; SIZE], "{way}: other bytes");
            while ends.all().len() <= n {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let ended = &ends.all()[n];
            let outside = ended.paths.iter().filter(|path| !path.inside);
            let received: u64 = outside.clone().map(|path| path.received).sum();
            assert!(received >= SIZE as u64, "{way}: {:?}", ended.paths);
            let mut names: Vec<&str> = outside.map(|path| &*path.path).collect();
            names.sort_unstable();
            assert_eq!(names, ["v1", "v2"], "{way}");
        }
        server.stop().await;
    });
}
