//! What clients of the proxy say first, and what servers answer: HTTP heads and chunks, SOCKS5, the PROXY protocol, targets.

use std::net::{IpAddr, Ipv4Addr};

use manypath_proxy::opening::http::chunk::{Decoder, Piece};
use manypath_proxy::opening::http::fields::{self, Additions, Manner};
use manypath_proxy::opening::http::framing;
use manypath_proxy::opening::http::head;
use manypath_proxy::opening::proxy_protocol::{self, Parsed};
use manypath_proxy::opening::socks5::wire;
use manypath_proxy::request::Target;
use manypath_proxy::serve::{ForwardedHeader, ProxyVersion};

/// Each parser gets the bytes; the first one chooses what is done with them besides.
pub fn openings(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    request(data, choice);
    response(data, choice);
    chunks(data, usize::from(choice).max(1));
    socks5(data);
    proxy_header(data);
    if let Ok(text) = std::str::from_utf8(data) {
        target(text);
    }
}

/// A request that is passed on reads back with the same framing, and only once through this proxy.
fn request(data: &[u8], choice: u8) {
    let end = head::find_end(data, 0);
    for seen in 0..data.len().min(16) {
        let again = head::find_end(data, seen);
        assert!(end.is_none_or(|end| seen >= end || again == Some(end)));
    }
    let bytes = &data[..end.unwrap_or(data.len())];
    let Ok(read) = head::parse_request(bytes) else {
        return;
    };
    assert!(!head::is_hopeless(bytes));
    let Ok(body) = framing::of_request(&read) else {
        return;
    };
    let Ok(to) = fields::absolute(read.method, read.target) else {
        return;
    };
    let add = Additions {
        pseudonym: "manypath-0123456789abcdef",
        forwarded: match choice % 3 {
            0 => ForwardedHeader::Off,
            1 => ForwardedHeader::Forwarded,
            _ => ForwardedHeader::XForwardedFor,
        },
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        tls: false,
    };
    let passed = fields::request(&read, &to, body, add);
    let again = head::parse_request(&passed).expect("what is passed on is a request");
    assert_eq!(framing::of_request(&again), Ok(body));
    assert_eq!(again.method, read.method);
    assert!(fields::is_loop(&again.fields, add.pseudonym));
    let hosts = again.fields.iter().filter(|field| field.is("host"));
    assert_eq!(hosts.count(), 1);
    for name in ["proxy-authorization", "proxy-connection", "keep-alive"] {
        assert!(!again.fields.iter().any(|field| field.is(name)), "{name}");
    }
}

/// An answer that is passed on reads back with the framing that the client was told.
fn response(data: &[u8], choice: u8) {
    let end = head::find_end(data, 0).unwrap_or(data.len());
    let Ok(read) = head::parse_response(&data[..end]) else {
        return;
    };
    let method = if choice & 1 == 0 { "GET" } else { "HEAD" };
    let Ok(body) = framing::of_response(method, &read) else {
        return;
    };
    let how = Manner {
        pseudonym: "p",
        body,
        close: choice & 2 == 0,
        old: choice & 4 == 0,
    };
    let passed = fields::response(&read, how);
    let again = head::parse_response(&passed).expect("what is passed on is an answer");
    assert_eq!(again.status, read.status);
    assert_eq!(framing::of_response(method, &again), Ok(body));
}

/// A chunked body ends at the same place in whatever pieces it comes.
fn chunks(data: &[u8], step: usize) {
    let whole = decode(data, data.len().max(1));
    assert_eq!(decode(data, step), whole);
    if let Some((payload, _)) = whole {
        let body = format!("{:x}\r\n", payload.len().max(1));
        if !payload.is_empty() {
            let again = [body.as_bytes(), &payload, b"\r\n0\r\n\r\n"].concat();
            assert_eq!(decode(&again, step), Some((payload, again.len())));
        }
    }
}

/// The payload and the length of a whole body.
fn decode(data: &[u8], step: usize) -> Option<(Vec<u8>, usize)> {
    let mut decoder = Decoder::new(1000);
    let (mut payload, mut at) = (Vec::new(), 0);
    while !decoder.is_done() && at < data.len() {
        let piece = &data[at..(at + step).min(data.len())];
        let n = match decoder.advance(piece).ok()? {
            Piece::Framing(n) | Piece::Trailers(n) => n,
            Piece::Data(n) => {
                payload.extend(&piece[..n]);
                n
            }
        };
        assert!((1..=piece.len()).contains(&n));
        at += n;
    }
    if decoder.is_done() {
        let _ = head::parse_trailers(decoder.trailers());
    }
    decoder.is_done().then_some((payload, at))
}

fn socks5(data: &[u8]) {
    let whole = |n: usize| assert!((1..=data.len()).contains(&n));
    if let Ok(wire::Parsed::Whole(n, methods)) = wire::greeting(data) {
        whole(n);
        assert!(!methods.is_empty());
    }
    if let Ok(wire::Parsed::Whole(n, said)) = wire::password(data) {
        whole(n);
        assert!(!said.user.is_empty());
    }
    if let Ok(wire::Parsed::Whole(n, asked)) = wire::request(data) {
        whole(n);
        assert!(asked.target.is_err() || asked.target.is_ok_and(|target| target.port() != 0));
    }
    if let Some((Target::Address(addr), n)) = wire::datagram(data) {
        whole(n);
        let header = wire::datagram_header(addr);
        let back = wire::datagram(&header).expect("a header of ours");
        assert_eq!(back.1, header.len());
    }
}

fn proxy_header(data: &[u8]) {
    if let Ok(Parsed::Whole(n, Some(told))) = proxy_protocol::parse(data) {
        assert!((1..=data.len()).contains(&n));
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let header = proxy_protocol::header(version, told.source, Some(told.destination));
            let again = proxy_protocol::parse(&header);
            assert!(matches!(again, Ok(Parsed::Whole(n, Some(_))) if n == header.len()));
        }
    }
}

/// A target reads back as it is shown.
fn target(text: &str) {
    for default in [None, Some(80)] {
        if let Ok(target) = Target::from_authority(text, default) {
            let shown = target.to_string();
            assert_eq!(Target::from_authority(&shown, None), Ok(target), "{shown}");
        }
    }
}
