//! What of a message's head is passed on: hop-by-hop fields end here (RFC 9110 section 7.6.1), and what a proxy adds is added. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

use super::framing::Body;
use super::head::{Field, RequestHead, ResponseHead, list, lists};
use crate::request::{BadTarget, Target};
use crate::serve::ForwardedHeader;

/// Fields that concern one connection, and those that are written anew.
const NOT_PASSED_ON: [&str; 10] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "te",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "http2-settings",
    "proxy-authorization",
    "proxy-authenticate",
];

/// A request's target in absolute form (RFC 9112 section 3.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absolute {
    /// Where to.
    pub target: Target,
    /// By TLS.
    pub tls: bool,
    /// For `Host`.
    pub authority: String,
    /// In origin form.
    pub path: String,
}

/// Reads a target in absolute form. `ws` is `http` with an upgrade, and `wss` is `https`.
///
/// # Errors
/// `None`: it has another scheme, or none. Otherwise what is wrong with it.
pub fn absolute(method: &str, text: &str) -> Result<Absolute, Option<BadTarget>> {
    let (scheme, rest) = text.split_once("://").ok_or(None)?;
    let is = |known: &str| scheme.eq_ignore_ascii_case(known);
    let tls = is("https") || is("wss");
    if !tls && !is("http") && !is("ws") {
        return Err(None);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.contains('#') {
        return Err(Some(BadTarget::Host));
    }
    let port = if tls { 443 } else { 80 };
    let target = Target::from_authority(authority, Some(port)).map_err(Some)?;
    let path = match path.as_bytes().first() {
        // RFC 9112 section 3.2.4.
        None if method == "OPTIONS" => "*".to_owned(),
        Some(b'/') => path.to_owned(),
        _ => format!("/{path}"),
    };
    Ok(Absolute {
        target,
        tls,
        authority: authority.to_owned(),
        path,
    })
}

/// What a proxy adds to requests.
#[derive(Clone, Copy, Debug)]
pub struct Additions<'a> {
    /// Its name in `Via`.
    pub pseudonym: &'a str,
    /// Whether and how the client is told of.
    pub forwarded: ForwardedHeader,
    /// The client.
    pub client: IpAddr,
    /// Whether the client speaks TLS with us.
    pub tls: bool,
}

/// The protocols that a client wants to change to; HTTP/2 in clear is none of them (RFC 9113 section 3.1 took it back, and a proxy
/// that does not understand it would be passed by).
#[must_use]
pub fn upgrades(fields: &[Field<'_>]) -> Vec<u8> {
    if !lists(fields, "connection", "upgrade") {
        return Vec::new();
    }
    let wanted = list(fields, "upgrade").filter(|name| !name.eq_ignore_ascii_case(b"h2c"));
    wanted.collect::<Vec<_>>().join(&b", "[..])
}

/// Whether a request has passed a proxy of this name before.
#[must_use]
pub fn is_loop(fields: &[Field<'_>], pseudonym: &str) -> bool {
    list(fields, "via").any(|hop| {
        let mut words = hop.split(|&b| b == b' ').filter(|word| !word.is_empty());
        words.nth(1) == Some(pseudonym.as_bytes())
    })
}

/// How many more proxies a TRACE or OPTIONS request may pass (RFC 9110 section 7.6.2).
#[must_use]
pub fn max_forwards(head: &RequestHead<'_>) -> Option<u64> {
    if !["TRACE", "OPTIONS"].contains(&head.method) {
        return None;
    }
    let field = head.fields.iter().find(|field| field.is("max-forwards"))?;
    let digits = field.value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(field.value).ok().filter(|_| digits)?;
    text.parse().ok()
}

/// The head of a request as the server gets it.
#[must_use]
pub fn request(head: &RequestHead<'_>, to: &Absolute, body: Body, add: Additions<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    line(
        &mut out,
        &[
            head.method.as_bytes(),
            b" ",
            to.path.as_bytes(),
            b" HTTP/1.1",
        ],
    );
    line(&mut out, &[b"Host: ", to.authority.as_bytes()]);
    let replaced = match add.forwarded {
        ForwardedHeader::Off => "host",
        ForwardedHeader::Forwarded => "forwarded",
        ForwardedHeader::XForwardedFor => "x-forwarded-for",
    };
    for field in passed_on(&head.fields) {
        let expects_of_http_1_0 = head.minor == 0 && field.is("expect");
        if let Some(left) = max_forwards(head).filter(|_| field.is("max-forwards")) {
            let left = left.saturating_sub(1).to_string();
            line(&mut out, &[b"Max-Forwards: ", left.as_bytes()]);
        } else if !field.is("host") && !field.is(replaced) && !expects_of_http_1_0 {
            line(&mut out, &[field.name.as_bytes(), b": ", field.value]);
        }
    }
    let via = format!("Via: 1.{} {}", head.minor, add.pseudonym);
    line(&mut out, &[via.as_bytes()]);
    let node = match add.client.to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("\"[{v6}]\""),
    };
    let told = match add.forwarded {
        ForwardedHeader::Off => None,
        ForwardedHeader::Forwarded => {
            let proto = if add.tls { "https" } else { "http" };
            Some(("Forwarded", format!("for={node};proto={proto}")))
        }
        ForwardedHeader::XForwardedFor => {
            Some(("X-Forwarded-For", add.client.to_canonical().to_string()))
        }
    };
    if let Some((name, own)) = told {
        let is_open = |field: &Field<'_>| name == "Forwarded" && has_open_quotes(field.value);
        let sound = head.fields.iter().filter(|field| !is_open(field));
        let sound: Vec<Field<'_>> = sound.copied().collect();
        let before: Vec<&[u8]> = list(&sound, name).collect();
        let all = [&before[..], &[own.as_bytes()]].concat().join(&b", "[..]);
        line(&mut out, &[name.as_bytes(), b": ", &all]);
    }
    framing(&mut out, body);
    let upgrade = upgrades(&head.fields);
    let trailers = lists(&head.fields, "te", "trailers");
    match (upgrade.is_empty(), trailers) {
        (true, false) => {}
        (true, true) => line(&mut out, &[b"Connection: TE"]),
        (false, false) => line(&mut out, &[b"Connection: Upgrade"]),
        (false, true) => line(&mut out, &[b"Connection: Upgrade, TE"]),
    }
    if !upgrade.is_empty() {
        line(&mut out, &[b"Upgrade: ", &upgrade]);
    }
    if trailers {
        line(&mut out, &[b"TE: trailers"]);
    }
    out.extend(b"\r\n");
    out
}

/// Whether a quoted string does not end (RFC 9110 section 5.6.4): what is appended would be a part of it.
fn has_open_quotes(value: &[u8]) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for &byte in value {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}

/// How an answer goes to the client.
#[derive(Clone, Copy, Debug)]
pub struct Manner<'a> {
    /// The proxy's name in `Via`.
    pub pseudonym: &'a str,
    /// How its body ends for the client; `None` keeps the length that it would have.
    pub body: Body,
    /// The client's connection ends with it.
    pub close: bool,
    /// The client speaks HTTP/1.0, and has to be told that its connection goes on.
    pub old: bool,
}

/// The head of an answer as the client gets it. An interim answer (1xx) says nothing of connections, but for 101.
#[must_use]
pub fn response(head: &ResponseHead<'_>, how: Manner<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let status = head.status.to_string();
    line(
        &mut out,
        &[b"HTTP/1.1 ", status.as_bytes(), b" ", head.reason],
    );
    for field in passed_on(&head.fields) {
        line(&mut out, &[field.name.as_bytes(), b": ", field.value]);
    }
    let via = format!("Via: 1.{} {}", head.minor, how.pseudonym);
    line(&mut out, &[via.as_bytes()]);
    match how.body {
        // What a HEAD or a condition would have had.
        Body::None if !matches!(head.status, 100..=199 | 204) => {
            if let Ok(Some(length)) = super::framing::length(&head.fields) {
                framing(&mut out, Body::Length(length));
            }
        }
        body => framing(&mut out, body),
    }
    match head.status {
        101 => {
            let protocols: Vec<&[u8]> = list(&head.fields, "upgrade").collect();
            line(&mut out, &[b"Connection: Upgrade"]);
            line(&mut out, &[b"Upgrade: ", &protocols.join(&b", "[..])]);
        }
        100..=199 => {}
        _ if how.close => line(&mut out, &[b"Connection: close"]),
        _ if how.old => line(&mut out, &[b"Connection: keep-alive"]),
        _ => {}
    }
    out.extend(b"\r\n");
    out
}

/// The trailer section as it is passed on: without what would change how the message is read (RFC 9110 section 6.5.1).
#[must_use]
pub fn trailers(fields: &[Field<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in passed_on(fields) {
        if !["host", "trailer", "expect"]
            .iter()
            .any(|name| field.is(name))
        {
            line(&mut out, &[field.name.as_bytes(), b": ", field.value]);
        }
    }
    out.extend(b"\r\n");
    out
}

/// Fields that go on to the next hop. The work grows with the bytes of the head alone, however many members `Connection` has.
fn passed_on<'a>(fields: &'a [Field<'a>]) -> impl Iterator<Item = &'a Field<'a>> {
    let lower = |name: &[u8]| name.to_ascii_lowercase();
    let names = fields.iter().map(|field| lower(field.name.as_bytes()));
    let mut ends_here: HashMap<Vec<u8>, bool> = names.map(|name| (name, false)).collect();
    let named = NOT_PASSED_ON.iter().map(|name| name.as_bytes());
    for name in named.chain(list(fields, "connection")) {
        if let Some(ends) = ends_here.get_mut(&lower(name)) {
            *ends = true;
        }
    }
    let goes_on = move |field: &&Field<'_>| !ends_here[&lower(field.name.as_bytes())];
    fields.iter().filter(goes_on)
}

fn framing(out: &mut Vec<u8>, body: Body) {
    match body {
        Body::None | Body::UntilClose => {}
        Body::Length(n) => line(out, &[format!("Content-Length: {n}").as_bytes()]),
        Body::Chunked => line(out, &[b"Transfer-Encoding: chunked"]),
    }
}

fn line(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend(*part);
    }
    out.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::super::head::{parse_request, parse_response};
    use super::*;

    fn passed(forwarded: ForwardedHeader, target: &str, fields: &str, body: Body) -> String {
        let head = format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
        let head = parse_request(head.as_bytes()).expect("a head");
        let to = absolute(head.method, head.target).expect("absolute");
        let add = Additions {
            pseudonym: "p",
            forwarded,
            client: "2001:db8::1".parse().expect("literal"),
            tls: false,
        };
        String::from_utf8(request(&head, &to, body, add)).expect("text")
    }

    #[test]
    fn hop_by_hop_fields_end_here() {
        let fields = "Host: elsewhere\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nProxy-Connection: x\r\nKeep-Alive: 5\r\n\
            Proxy-Authorization: Basic eA==\r\nTE: trailers, deflate\r\nVia: 1.0 other\r\nContent-Length: 3\r\nX: y\r\n";
        assert_eq!(
            passed(
                ForwardedHeader::Off,
                "http://a:8080/b?c",
                fields,
                Body::Length(3)
            ),
            "GET /b?c HTTP/1.1\r\nHost: a:8080\r\nVia: 1.0 other\r\nX: y\r\nVia: 1.1 p\r\nContent-Length: 3\r\n\
             Connection: TE\r\nTE: trailers\r\n\r\n"
        );
    }

    /// Each of 450 fields was looked for among all members: 200 million comparisons.
    #[test]
    fn a_long_list_of_connection_options_costs_no_more_than_its_length() {
        let fields = "b:\r\n".repeat(450) + "Connection: " + &"a,".repeat(450_000) + "\r\n";
        let began = std::time::Instant::now();
        let text = passed(ForwardedHeader::Off, "http://a/", &fields, Body::None);
        assert!(began.elapsed() < std::time::Duration::from_secs(4));
        assert!(text.contains("\r\nb: \r\n"), "they are not named");
    }

    #[test]
    fn an_upgrade_is_passed_on_but_for_http_2() {
        let fields = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, websocket\r\nHTTP2-Settings: x\r\n";
        let text = passed(ForwardedHeader::Off, "ws://a", fields, Body::None);
        assert!(
            text.ends_with("Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
            "{text}"
        );
        assert!(!text.contains("Settings"), "{text}");
        let alone = passed(
            ForwardedHeader::Off,
            "http://a",
            "Upgrade: x\r\n",
            Body::None,
        );
        assert!(!alone.contains("Upgrade"), "{alone}");
    }

    #[test]
    fn options_and_trace_pass_so_many_proxies_and_no_more() {
        let read = |method: &str, value: &str| {
            let head = format!("{method} http://a/ HTTP/1.1\r\nMax-Forwards: {value}\r\n\r\n");
            max_forwards(&parse_request(head.as_bytes()).expect("a head"))
        };
        assert_eq!(read("TRACE", "0"), Some(0));
        assert_eq!(read("OPTIONS", "7"), Some(7));
        assert_eq!(read("GET", "7"), None);
        assert_eq!(read("TRACE", "+7"), None);
        let head = b"TRACE http://a/ HTTP/1.1\r\nMax-Forwards: 7\r\n\r\n";
        let head = parse_request(head).expect("a head");
        let to = absolute(head.method, head.target).expect("absolute");
        let add = Additions {
            pseudonym: "p",
            forwarded: ForwardedHeader::Off,
            client: "192.0.2.1".parse().expect("literal"),
            tls: false,
        };
        let text = String::from_utf8(request(&head, &to, Body::None, add)).expect("text");
        assert!(text.contains("\r\nMax-Forwards: 6\r\n"), "{text}");
    }

    #[test]
    fn the_client_is_told_of_behind_those_before_it() {
        let text = passed(
            ForwardedHeader::XForwardedFor,
            "http://a/",
            "X-Forwarded-For: 192.0.2.1\r\n",
            Body::None,
        );
        assert!(
            text.contains("\r\nX-Forwarded-For: 192.0.2.1, 2001:db8::1\r\n"),
            "{text}"
        );
        let text = passed(
            ForwardedHeader::Forwarded,
            "http://a/",
            "Forwarded: for=x\r\n",
            Body::None,
        );
        assert!(
            text.contains("\r\nForwarded: for=x, for=\"[2001:db8::1]\";proto=http\r\n"),
            "{text}"
        );
        for open in ["for=\"x", "for=\"x\\\"", "\""] {
            let fields = format!("Forwarded: {open}\r\nForwarded: for=\"[::1]\"\r\n");
            let text = passed(ForwardedHeader::Forwarded, "http://a/", &fields, Body::None);
            let wanted = "\r\nForwarded: for=\"[::1]\", for=\"[2001:db8::1]\";proto=http\r\n";
            assert!(text.contains(wanted), "{text}");
        }
    }

    #[test]
    fn absolute_targets() {
        let read = |method, text| absolute(method, text).map(|a| (a.target.to_string(), a.path));
        let ok = |target: &str, path: &str| Ok((target.to_owned(), path.to_owned()));
        assert_eq!(read("GET", "http://A.test"), ok("a.test:80", "/"));
        assert_eq!(read("GET", "HTTP://a?x"), ok("a:80", "/?x"));
        assert_eq!(read("OPTIONS", "http://a"), ok("a:80", "*"));
        assert_eq!(read("GET", "http://[::1]:8/x"), ok("[::1]:8", "/x"));
        assert_eq!(read("GET", "https://a/x"), ok("a:443", "/x"));
        assert_eq!(read("GET", "wss://a:8/"), ok("a:8", "/"));
        for text in ["/", "*", "a:443", "ftp://a/"] {
            assert_eq!(read("GET", text), Err(None), "{text}");
        }
        for text in [
            "http://",
            "http:///x",
            "http://u@a/",
            "http://a:b@c/",
            "http://a#x",
            "http://a\\b/",
        ] {
            assert!(matches!(read("GET", text), Err(Some(_))), "{text}");
        }
    }

    #[test]
    fn a_loop_is_seen_in_via() {
        let loops = |via: &str| {
            let head = format!("GET http://a/ HTTP/1.1\r\nVia: {via}\r\n\r\n");
            is_loop(
                &parse_request(head.as_bytes()).expect("a head").fields,
                "me",
            )
        };
        assert!(loops("1.1 other, 1.0  me (comment)"));
        assert!(!loops("1.1 other, me 1.1, 1.1 meme"));
    }

    #[test]
    fn answers_say_how_they_end_for_this_client() {
        let told = |head: &[u8], body, close, old| {
            let head = parse_response(head).expect("a head");
            let how = Manner {
                pseudonym: "p",
                body,
                close,
                old,
            };
            String::from_utf8(response(&head, how)).expect("text")
        };
        let head =
            b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nConnection: keep-alive\r\nA: b\r\n\r\n";
        assert_eq!(
            told(head, Body::None, false, false),
            "HTTP/1.1 200 OK\r\nA: b\r\nVia: 1.1 p\r\nContent-Length: 1234\r\n\r\n",
            "a HEAD keeps its length"
        );
        let end = told(head, Body::Length(1234), true, true);
        assert!(
            end.ends_with("Content-Length: 1234\r\nConnection: close\r\n\r\n"),
            "{end}"
        );
        let both = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(
            told(both, Body::Chunked, false, false),
            "HTTP/1.1 200 OK\r\nVia: 1.1 p\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let none = b"HTTP/1.1 204 No\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(
            told(none, Body::None, false, false),
            "HTTP/1.1 204 No\r\nVia: 1.1 p\r\n\r\n"
        );
        let switch = b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(
            told(switch, Body::None, false, false),
            "HTTP/1.1 101 Switching\r\nVia: 1.1 p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
    }
}
