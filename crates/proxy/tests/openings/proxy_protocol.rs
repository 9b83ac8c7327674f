//! The PROXY protocol on both sides of a fixed listener, and behind CONNECT and SOCKS5.

use manypath_proxy::endpoint::Endpoint;
use manypath_proxy::opening::proxy_protocol::{Header, Parsed, header, parse};
use manypath_proxy::serve::{OpeningKind, Policy, ProxyVersion, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Origin, Proxy, in_time};

/// Answers with all that it got, once it has the end.
async fn at_the_end() -> Origin {
    Origin::start(|mut stream| async move {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).await.is_ok() {
            let _ = stream.write_all(&all).await;
        }
    })
    .await
}

fn fixed(origin: &Origin) -> OpeningKind {
    let to: Endpoint = format!("tcp:{}", origin.at).parse().expect("an endpoint");
    OpeningKind::Fixed(to)
}

#[tokio::test]
async fn a_server_gets_the_client_that_a_balancer_told_of() {
    let origin = at_the_end().await;
    for (inside, outside) in [
        (ProxyVersion::V1, ProxyVersion::V2),
        (ProxyVersion::V2, ProxyVersion::V1),
    ] {
        let change = |spec: &mut manypath_proxy::serve::ListenerSpec| {
            (spec.proxy_in, spec.proxy_out) = (true, Some(outside));
        };
        let proxy = Proxy::with(fixed(&origin), Policy::default(), change).await;
        let source = "192.0.2.1:5000".parse().expect("literal");
        let destination = "198.51.100.1:443".parse().expect("literal");
        let mut client = proxy.connect().await;
        let words = [&header(inside, source, Some(destination))[..], b"hello"].concat();
        // In two pieces: a header may arrive as it likes.
        client.write_all(&words[..9]).await.expect("open");
        client.write_all(&words[9..]).await.expect("open");
        client.shutdown().await.expect("open");
        let mut got = Vec::new();
        in_time(client.read_to_end(&mut got))
            .await
            .expect("in order");
        let told = Header {
            source,
            destination,
        };
        let n = got.len() - 5;
        assert_eq!(parse(&got), Ok(Parsed::Whole(n, Some(told))));
        assert_eq!(&got[n..], b"hello");
    }
}

#[tokio::test]
async fn a_connection_without_its_header_is_reset() {
    let origin = at_the_end().await;
    let change = |spec: &mut manypath_proxy::serve::ListenerSpec| {
        spec.proxy_in = true;
        spec.bounds.header_time = std::time::Duration::from_millis(300);
    };
    let proxy = Proxy::with(fixed(&origin), Policy::default(), change).await;
    for words in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"PROXY TCP4 x\r\n",
        b"PROXY",
        b"",
    ] {
        let (got, end) = proxy.talk(words).await;
        assert!(got.is_empty() && end.is_err(), "{words:?}");
        assert_eq!(proxy.reports.refusals().last(), Some(&Refusal::ProxyHeader));
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn headers_are_believed_of_the_networks_that_are_named() {
    for (from, believed) in [("192.0.2.0/24", false), ("127.0.0.0/8", true)] {
        let origin = at_the_end().await;
        let change = |spec: &mut manypath_proxy::serve::ListenerSpec| {
            spec.proxy_in = true;
            spec.proxy_from = vec![from.parse().expect("a network")];
        };
        let proxy = Proxy::with(fixed(&origin), Policy::default(), change).await;
        let words = b"PROXY TCP4 198.51.100.7 198.51.100.8 1 2\r\nhello";
        let mut client = proxy.connect().await;
        client.write_all(words).await.expect("open");
        if believed {
            client.shutdown().await.expect("open");
        }
        let mut got = Vec::new();
        let end = in_time(client.read_to_end(&mut got)).await;
        assert_eq!(end.is_ok(), believed, "{from}");
        assert_eq!(got.ends_with(b"hello"), believed, "{from}");
        let refused = proxy.reports.refusals().contains(&Refusal::ProxyHeader);
        assert_eq!(refused, !believed, "{from}");
    }
}

#[tokio::test]
async fn a_tunnel_begins_with_the_header() {
    let origin = at_the_end().await;
    let change =
        |spec: &mut manypath_proxy::serve::ListenerSpec| spec.proxy_out = Some(ProxyVersion::V1);
    let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), change).await;
    let mut client = proxy.connect().await;
    let here = client.local_addr().expect("bound");
    let words = format!("CONNECT {} HTTP/1.1\r\n\r\nhello", origin.at);
    client.write_all(words.as_bytes()).await.expect("open");
    client.shutdown().await.expect("open");
    let mut got = String::new();
    in_time(client.read_to_string(&mut got))
        .await
        .expect("in order");
    let line = format!(
        "PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nhello",
        here.port(),
        proxy.at.port()
    );
    assert!(got.ends_with(&format!("\r\n\r\n{line}")), "{got}");
}
