//! Name servers that a configuration names, by paths of ours, and a host whose only way out is of one family.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use manypath_proxy::endpoint::Proto;
use manypath_proxy::serve::{ListenerSpec, OpeningKind, Policy, Server};
use manypath_proxy::sockets::Sockets;
use manypath_tests::net::{Family, Net, Own, shell};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::proxy::{host, in_ours};

const DNS: u16 = 5353;
const PORT: u16 = 5000;

const A: u16 = 1;
const AAAA: u16 = 28;

/// What a name server was asked by UDP and by TCP, and from where.
pub(crate) type Asked = Arc<Mutex<Vec<(&'static str, IpAddr)>>>;

/// The addresses that a name server knows of a name.
pub(crate) type Zone = fn(&str) -> Vec<IpAddr>;

/// The answer to a question (RFC 1035 section 4.1); by UDP more than a few addresses do not fit.
fn answer(question: &[u8], zone: Zone, fits: usize) -> Option<Vec<u8>> {
    let (mut name, mut at) = (String::new(), 12);
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = question.get(at..at + length)?;
        name += &String::from_utf8_lossy(label).to_lowercase();
        name.push('.');
        at += length;
    }
    let kind = u16::from_be_bytes([*question.get(at)?, *question.get(at + 1)?]);
    let mut found = zone(&name);
    found.retain(|addr| kind == if addr.is_ipv4() { A } else { AAAA });
    let truncated = found.len() > fits;
    if truncated {
        found.clear();
    }
    let mut out = question.get(..2)?.to_vec();
    out.extend([if truncated { 0x87 } else { 0x85 }, 0x80, 0, 1]);
    out.extend(u16::try_from(found.len()).ok()?.to_be_bytes());
    out.extend([0; 4]);
    out.extend(question.get(12..at + 4)?);
    for addr in found {
        out.extend([0xc0, 12]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 60, 0]);
        match addr {
            IpAddr::V4(addr) => out.extend([&[4][..], &addr.octets()].concat()),
            IpAddr::V6(addr) => out.extend([&[16][..], &addr.octets()].concat()),
        }
    }
    Some(out)
}

/// A name server at the far end, on a port of its own.
pub(crate) fn serve(net: &Net, at: SocketAddr, zone: Zone) -> Asked {
    let asked = Asked::default();
    let (udp, tcp) = net.kernel.run(move || {
        let udp = UdpSocket::bind(at).expect("an address of the far end");
        (
            udp,
            TcpListener::bind(at).expect("an address of the far end"),
        )
    });
    let note = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((n, from)) = udp.recv_from(&mut question) {
            note.lock().expect("whole").push(("udp", from.ip()));
            if let Some(answer) = answer(&question[..n], zone, 10) {
                let _ = udp.send_to(&answer, from);
            }
        }
    });
    let note = Arc::clone(&asked);
    std::thread::spawn(move || {
        while let Ok((mut stream, from)) = tcp.accept() {
            let note = Arc::clone(&note);
            std::thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    note.lock().expect("whole").push(("tcp", from.ip()));
                    let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                    let read = stream.read_exact(&mut question);
                    let Some(answer) = read.ok().and_then(|()| answer(&question, zone, 99)) else {
                        return;
                    };
                    let length = u16::try_from(answer.len()).expect("short").to_be_bytes();
                    let _ = stream.write_all(&[&length[..], &answer].concat());
                }
            });
        }
    });
    asked
}

#[test]
fn a_long_answer_is_asked_for_by_tcp_on_the_configured_port_and_the_same_path() {
    let Some(net) = Net::new(1) else { return };
    let server = SocketAddr::new(Net::kernel_address(Family::V4, 1), DNS);
    let asked = serve(&net, server, |name| match name {
        "many.test." => (1..=40).map(|n| IpAddr::from([192, 0, 2, n])).collect(),
        _ => Vec::new(),
    });
    let ours = Net::our_address(Family::V4, Own::Shared, 1);
    in_ours(&net, move || async move {
        let stack = host(&["v1"]);
        stack.use_name_servers(vec![server]);
        let mut found = stack.lookup("many.test").await.expect("forty addresses");
        found.sort_unstable();
        let wanted: Vec<IpAddr> = (1..=40).map(|n| [192, 0, 2, n].into()).collect();
        assert_eq!(found, wanted);
        let told = stack
            .lookup("none.test")
            .await
            .expect_err("nobody else knows");
        assert_eq!(told.kind(), std::io::ErrorKind::NotFound);
        stack.close(Duration::ZERO).await;
    });
    let asked = asked.lock().expect("whole");
    for kind in ["udp", "tcp"] {
        let from: Vec<IpAddr> = asked.iter().filter(|a| a.0 == kind).map(|a| a.1).collect();
        assert!(!from.is_empty(), "{kind}");
        assert!(from.iter().all(|from| *from == ours), "{kind}: {from:?}");
    }
}

/// The reply of a SOCKS5 proxy to a name.
async fn socks_reply(proxy: SocketAddr, name: &str) -> u8 {
    let mut client = TcpStream::connect(proxy).await.expect("it listens");
    let length = u8::try_from(name.len()).expect("short");
    let port = PORT.to_be_bytes();
    let words = [&[5, 1, 0, 5, 1, 0, 3, length], name.as_bytes(), &port].concat();
    client.write_all(&words).await.expect("open");
    let mut reply = [0; 4];
    client.read_exact(&mut reply).await.expect("a reply");
    reply[3]
}

async fn http_status(proxy: SocketAddr, name: &str) -> u16 {
    let mut client = TcpStream::connect(proxy).await.expect("it listens");
    let words = format!("CONNECT {name}:{PORT} HTTP/1.1\r\n\r\n");
    client.write_all(words.as_bytes()).await.expect("open");
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.expect("an answer");
    let status = String::from_utf8_lossy(&answer[9..]).into_owned();
    status.parse().expect("a status")
}

/// By the host's TCP and by paths of our stack.
#[test]
fn where_the_only_way_out_is_ipv6_a_name_with_ipv4_alone_fails_at_once_and_sends_nothing() {
    let Some(net) = Net::new(1) else { return };
    let far = Net::kernel_address(Family::V6, 1);
    let server = SocketAddr::new(far, DNS);
    let _asked = serve(&net, server, |name| {
        let v4: IpAddr = [203, 0, 113, 1].into();
        let v6 = Net::kernel_address(Family::V6, 1);
        match name {
            "four.test." => vec![v4],
            "six.test." => vec![v6],
            "both.test." => vec![v4, v6],
            _ => Vec::new(),
        }
    });
    let listener = net.kernel.run(move || TcpListener::bind((far, PORT)));
    let listener = listener.expect("an address of the far end");
    std::thread::spawn(move || {
        listener
            .incoming()
            .map_while(Result::ok)
            .collect::<Vec<_>>()
    });
    shell(&net.ours, "ip -4 addr flush dev v1");
    shell(
        &net.ours,
        "nft 'add table inet t; add counter inet t four; add chain inet t out { type filter hook output priority 0; }; \
         add rule inet t out meta nfproto ipv4 oifname != lo counter name four'",
    );
    in_ours(&net, move || async move {
        let sockets = Sockets {
            connect_timeout: Duration::from_secs(6),
            stack: Some(host(&[&Net::path(Family::V6, Own::Shared, 1)])),
            ..Sockets::default()
        };
        sockets.use_name_servers(&[server]);
        let policy = Arc::new(Policy::permissive());
        let mut proxy = Server::new(sockets, Arc::new(()), Arc::clone(&policy));
        let spec = |opening, outside| {
            let on = "tcp:127.0.0.1:0".parse().expect("an endpoint");
            ListenerSpec::new("test", on, opening, outside)
        };
        let kinds = [Proto::Tcp, Proto::Mptcp];
        let openings = [OpeningKind::Socks5, OpeningKind::Http];
        let specs = kinds.into_iter().flat_map(|kind| {
            let named = move |opening: &OpeningKind| {
                let mut spec = spec(opening.clone(), kind);
                spec.name = format!("{} {kind}", opening.name()).into();
                spec
            };
            openings.each_ref().map(named)
        });
        proxy
            .apply(specs.collect(), policy)
            .await
            .expect("loopback");
        let at: Vec<SocketAddr> = proxy.listeners().iter().map(|one| one.address).collect();
        for pair in at.chunks(2) {
            for (name, reply, status) in [
                ("four.test", 4, 502),
                ("six.test", 0, 200),
                ("both.test", 0, 200),
            ] {
                let began = Instant::now();
                let told = (
                    socks_reply(pair[0], name).await,
                    http_status(pair[1], name).await,
                );
                assert_eq!(told, (reply, status), "{name}");
                let took = began.elapsed();
                assert!(took < Duration::from_secs(2), "{name}: {took:?} for two");
            }
        }
        proxy.stop().await;
    });
    let counted = shell(&net.ours, "nft list counter inet t four");
    assert!(counted.contains("packets 0 "), "{counted}");
}
