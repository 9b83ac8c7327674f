//! HTTP in absolute form.

use std::time::{Duration, Instant};

use manypath_proxy::serve::{Failure, ForwardedHeader, How, OpeningKind, Policy, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Origin, PATIENCE, Proxy, in_time, nobody, ok, read_head, status, until};

/// The whole of one answer with a length.
async fn answer(client: &mut TcpStream) -> (String, Vec<u8>) {
    let head = in_time(read_head(client)).await.expect("an answer");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.map_or(0, |n| n.parse().expect("a number"));
    let mut body = vec![0; length];
    in_time(client.read_exact(&mut body))
        .await
        .expect("the body");
    (head, body)
}

fn get(at: impl std::fmt::Display, path: &str) -> String {
    format!("GET http://{at}{path} HTTP/1.1\r\nHost: {at}\r\n\r\n")
}

#[tokio::test]
async fn pipelined_requests_go_each_to_its_own_server() {
    let origin = Origin::answering(|head| ok(head.split(' ').nth(1).unwrap_or(""))).await;
    let other = Origin::answering(|_| ok("other")).await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    // The proxy itself is no server: that one is refused, and those around it are not.
    let words = [
        get(origin.at, "/1"),
        get(proxy.at, "/2"),
        get(other.at, "/3"),
        format!(
            "POST http://{}/4 HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            origin.at
        ),
    ];
    let mut client = proxy.connect().await;
    client
        .write_all(words.concat().as_bytes())
        .await
        .expect("open");
    let mut got = Vec::new();
    for _ in 0..4 {
        let (head, body) = answer(&mut client).await;
        got.push((
            status(head.as_bytes()),
            String::from_utf8(body).expect("text"),
        ));
    }
    let texts: Vec<(u16, &str)> = got.iter().map(|(s, b)| (*s, b.as_str())).collect();
    assert_eq!(texts[0], (200, "/1"));
    assert_eq!(texts[1].0, 502);
    assert_eq!(texts[2], (200, "other"));
    assert_eq!(texts[3], (200, "/4"));
    assert_eq!(in_time(client.read(&mut [0])).await.expect("in order"), 0);
    assert_eq!(proxy.reports.refusals(), [Refusal::Loop]);
}

#[tokio::test]
async fn requests_on_one_connection_share_the_servers() {
    let origin = Origin::answering(|_| ok("x")).await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut client = proxy.connect().await;
    for _ in 0..5 {
        client
            .write_all(get(origin.at, "/").as_bytes())
            .await
            .expect("open");
        let (head, body) = answer(&mut client).await;
        assert!(head.contains("\r\nVia: 1.1 manypath-"), "{head}");
        assert_eq!(body, b"x");
    }
    assert_eq!(origin.connections(), 1);
}

/// The server has ended the connection that was kept: nobody notices.
#[tokio::test]
async fn a_kept_connection_that_has_ended_is_replaced() {
    let origin = Origin::start(|mut stream| async move {
        if read_head(&mut stream).await.is_some() {
            let _ = stream.write_all(&ok("x")).await;
        }
        // It waits for the second request, and ends then without a word.
        let _ = stream.read_u8().await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut client = proxy.connect().await;
    for n in 1..=3 {
        client
            .write_all(get(origin.at, "/").as_bytes())
            .await
            .expect("open");
        let (head, _) = answer(&mut client).await;
        assert_eq!(status(head.as_bytes()), 200, "{n}");
    }
    assert_eq!(origin.connections(), 3);
}

#[tokio::test]
async fn answers_without_a_body_are_not_waited_for() {
    let origin = Origin::answering(|head| {
        let text = match head.split(' ').next() {
            Some("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
            _ if head.contains("/304") => "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
            _ => "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        };
        text.as_bytes().to_vec()
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut client = proxy.connect().await;
    for (method, path, wanted, field) in [
        ("HEAD", "/", 200, "Content-Length: 1234"),
        ("GET", "/304", 304, "Content-Length: 99"),
        ("GET", "/204", 204, "Via: "),
        ("GET", "/304", 304, "Via: "),
    ] {
        let words = get(origin.at, path).replacen("GET", method, 1);
        client.write_all(words.as_bytes()).await.expect("open");
        let head = in_time(read_head(&mut client)).await.expect("an answer");
        assert_eq!(status(head.as_bytes()), wanted);
        assert!(head.contains(field), "{head}");
    }
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn an_answer_that_breaks_off_reads_as_broken_off() {
    let origin = Origin::answering(|head| {
        let text = match head {
            _ if head.contains("/length") => "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc",
            _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        };
        text.as_bytes().to_vec()
    });
    let origin = origin.await;
    let short = Origin::start(move |mut client| async move {
        // It passes on one answer and ends.
        let mut server = TcpStream::connect(origin.at).await.expect("it listens");
        let head = read_head(&mut client).await.unwrap_or_default();
        let _ = server.write_all(head.as_bytes()).await;
        let mut bytes = vec![0; 4096];
        let n = server.read(&mut bytes).await.unwrap_or(0);
        let _ = client.write_all(&bytes[..n]).await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let (all, end) = proxy.talk(get(short.at, "/length").as_bytes()).await;
    let text = String::from_utf8_lossy(&all);
    assert!(
        text.contains("Content-Length: 1000\r\n") && text.ends_with("\r\n\r\nabc"),
        "{text}"
    );
    assert!(end.is_ok(), "the length tells: {end:?}");
    let (all, _) = proxy.talk(get(short.at, "/chunks").as_bytes()).await;
    let text = String::from_utf8_lossy(&all);
    assert!(
        text.ends_with("\r\n\r\n3\r\nabc\r\n"),
        "no last chunk of our making: {text}"
    );
    assert_eq!(proxy.reports.ends(), [How::Broken, How::Broken]);
}

/// Without a length only a reset tells that something is missing.
#[tokio::test]
async fn a_reset_within_an_answer_without_length_is_a_reset() {
    let origin = Origin::start(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nabc").await;
        // The proxy acknowledges what it has got before the reset, which would take it along.
        while manypath_io::sys::queue::unacknowledged(std::os::fd::AsFd::as_fd(&stream))
            .is_ok_and(|n| n > 0)
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let (all, end) = proxy.talk(get(origin.at, "/").as_bytes()).await;
    assert!(String::from_utf8_lossy(&all).ends_with("\r\n\r\nabc"));
    assert!(end.is_err(), "it must not look whole");
}

/// We end, and the answer has not: whoever reads to the end must see that.
#[tokio::test]
async fn an_answer_without_length_ends_in_a_reset_when_the_proxy_stops() {
    let origin = Origin::start(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nabc").await;
        let _ = stream.read_u8().await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut client = proxy.connect().await;
    client
        .write_all(get(origin.at, "/").as_bytes())
        .await
        .expect("open");
    in_time(read_head(&mut client)).await.expect("an answer");
    in_time(client.read_exact(&mut [0; 3])).await.expect("abc");
    proxy.stop().await;
    in_time(client.read(&mut [0]))
        .await
        .expect_err("it must not look whole");
}

/// The bytes of its next requests are in front of its reset.
#[tokio::test]
async fn a_client_that_is_gone_is_noticed_behind_requests_that_wait() {
    let (asked, mut was_asked) = tokio::sync::mpsc::channel(1);
    let origin = Origin::start(move |mut stream| {
        let asked = asked.clone();
        async move {
            read_head(&mut stream).await;
            let _ = asked.send(()).await;
            let _ = stream.read_u8().await;
        }
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut client = proxy.connect().await;
    let words = get(origin.at, "/").repeat(2000);
    client.write_all(words.as_bytes()).await.expect("room");
    in_time(was_asked.recv()).await;
    let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
    drop(client);
    proxy.reports.closed(1).await;
}

#[tokio::test]
async fn large_heads_have_a_bound_in_all() {
    let change = |spec: &mut manypath_proxy::serve::ListenerSpec| {
        spec.bounds.header_bytes = 32 * 1024 * 1024;
    };
    let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), change).await;
    let start = format!("GET http://a.test/ HTTP/1.1\r\nA: {}", "x".repeat(20_000));
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut client = proxy.connect().await;
        client.write_all(start.as_bytes()).await.expect("open");
        held.push(client);
    }
    until("two of them fit", || proxy.reports.refusals().len() >= 2).await;
    assert_eq!(proxy.reports.refusals(), [Refusal::HeaderTooLarge; 2]);
    // Small ones are taken.
    let (answer, _) = proxy.talk(b"GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(status(&answer), 400);
}

#[tokio::test]
async fn a_client_that_takes_no_refusals_is_not_waited_for() {
    let change = |spec: &mut manypath_proxy::serve::ListenerSpec| {
        spec.bounds.header_time = Duration::from_millis(300);
    };
    let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), change).await;
    let mut client = proxy.connect().await;
    let words = "GET ftp://a.test/ HTTP/1.1\r\n\r\n".repeat(1000);
    // It never reads, and asks until the proxy does not read either, or has ended it.
    let asking = async { while client.write_all(words.as_bytes()).await.is_ok() {} };
    in_time(asking).await;
    proxy.reports.closed(1).await;
}

/// The chunks of an answer that can have none come a moment later than its head.
#[tokio::test]
async fn a_server_that_announces_a_body_where_none_may_be_is_not_used_again() {
    for stray in [
        "204 No Content\r\nTransfer-Encoding: chunked",
        "204 No\r\nContent-Length: 5",
        "304 Not Modified\r\nTransfer-Encoding: chunked",
    ] {
        let head = format!("HTTP/1.1 {stray}\r\n\r\n");
        let origin = Origin::answering(move |_| head.clone().into_bytes()).await;
        let proxy = Proxy::start(OpeningKind::Http).await;
        let mut client = proxy.connect().await;
        for _ in 0..2 {
            client
                .write_all(get(origin.at, "/").as_bytes())
                .await
                .expect("open");
            in_time(read_head(&mut client)).await.expect("an answer");
        }
        assert_eq!(origin.connections(), 2, "{stray}");
    }
}

#[tokio::test]
async fn an_early_answer_to_an_upload_reaches_the_client() {
    let origin = Origin::start(|mut stream| async move {
        read_head(&mut stream).await;
        // It answers while the body is on its way, and closes at once: with unread bytes that is a reset.
        let _ = stream.read_exact(&mut [0; 10_000]).await;
        let _ = stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmuch")
            .await;
        let _ = stream.shutdown().await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    for _ in 0..20 {
        let client = proxy.connect().await;
        let head = format!(
            "POST http://{}/ HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n",
            origin.at
        );
        let (mut read, mut write) = client.into_split();
        let upload = tokio::spawn(async move {
            write.write_all(head.as_bytes()).await?;
            for _ in 0..500 {
                write.write_all(&[7; 100_000]).await?;
            }
            std::io::Result::Ok(())
        });
        let mut all = vec![0; 4096];
        let mut n = 0;
        while !all[..n].ends_with(b"much") {
            let more = in_time(read.read(&mut all[n..]))
                .await
                .expect("the answer first");
            assert!(more > 0, "{:?}", String::from_utf8_lossy(&all[..n]));
            n += more;
        }
        assert_eq!(status(&all), 413);
        assert!(String::from_utf8_lossy(&all[..n]).contains("Connection: close"));
        upload.abort();
    }
}

#[tokio::test]
async fn a_client_that_expects_100_gets_what_the_server_says() {
    let origin = Origin::start(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap_or_default();
        assert!(head.contains("Expect: 100-continue"), "{head}");
        if head.contains("/401") {
            let _ = stream
                .write_all(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
                .await;
            let _ = stream.read_u8().await;
            return;
        }
        if head.contains("/100") {
            let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        let _ = stream.read_exact(&mut [0; 5]).await;
        let _ = stream.write_all(&ok("got")).await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let ask = |path| {
        let at = origin.at;
        format!(
            "PUT http://{at}{path} HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    let mut client = proxy.connect().await;
    client
        .write_all(ask("/100").as_bytes())
        .await
        .expect("open");
    let interim = in_time(read_head(&mut client)).await.expect("an answer");
    assert_eq!(status(interim.as_bytes()), 100);
    client.write_all(b"hello").await.expect("open");
    assert_eq!(answer(&mut client).await.1, b"got");

    let (refused, _) = {
        let mut client = proxy.connect().await;
        client
            .write_all(ask("/401").as_bytes())
            .await
            .expect("open");
        answer(&mut client).await
    };
    assert_eq!(status(refused.as_bytes()), 401);
    assert!(refused.contains("Connection: close"), "{refused}");

    // Who does not wait any longer sends its body, and that goes on.
    let mut client = proxy.connect().await;
    client
        .write_all(ask("/never").as_bytes())
        .await
        .expect("open");
    let early = tokio::time::timeout(Duration::from_millis(100), client.read_u8()).await;
    assert!(early.is_err(), "nothing of our making");
    client.write_all(b"hello").await.expect("open");
    assert_eq!(answer(&mut client).await.1, b"got");
}

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel() {
    let origin = Origin::start(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap_or_default();
        assert!(head.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
        let _ = stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst")
            .await;
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    for scheme in ["http", "ws"] {
        let mut client = proxy.connect().await;
        let words = format!(
            "GET {scheme}://{}/ws HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
            origin.at
        );
        client.write_all(words.as_bytes()).await.expect("open");
        let head = in_time(read_head(&mut client)).await.expect("an answer");
        assert_eq!(status(head.as_bytes()), 101);
        assert!(
            head.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"),
            "{head}"
        );
        let mut first = [0; 5];
        client.read_exact(&mut first).await.expect("it comes first");
        assert_eq!(&first, b"first");
        let sent: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut read, mut write) = client.split();
        let mut got = vec![0; sent.len()];
        let (written, read) =
            in_time(async { tokio::join!(write.write_all(&sent), read.read_exact(&mut got)) })
                .await;
        written.and(read.map(|_| ())).expect("whole");
        assert_eq!(got, sent);
    }
}

#[tokio::test]
async fn chunks_and_trailers_pass_and_http_1_0_gets_their_payload() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n".to_vec()
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let close = get(origin.at, "/").replace("Host", "Connection: close\r\nHost");
    let (all, _) = proxy.talk(close.as_bytes()).await;
    let text = String::from_utf8_lossy(&all);
    assert!(
        text.ends_with("\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"),
        "{text}"
    );
    let old = get(origin.at, "/").replace("HTTP/1.1", "HTTP/1.0");
    let (all, end) = proxy.talk(old.as_bytes()).await;
    let text = String::from_utf8_lossy(&all);
    assert!(
        text.ends_with("\r\n\r\nabcde") && !text.contains("chunked"),
        "{text}"
    );
    assert!(end.is_ok());
}

#[tokio::test]
async fn a_large_body_goes_both_ways_whole() {
    let origin = Origin::start(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap_or_default();
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("Content-Length: "))
            .expect("a length");
        let length: usize = length.parse().expect("a number");
        let _ = stream
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes())
            .await;
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 % 253) as u8).collect();
    let mut client = proxy.connect().await;
    let head = format!(
        "POST http://{}/ HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
        origin.at,
        sent.len()
    );
    let (mut read, mut write) = client.split();
    let up = async {
        write.write_all(head.as_bytes()).await?;
        write.write_all(&sent).await
    };
    let down = async {
        let mut all = Vec::new();
        while !all.ends_with(b"\r\n\r\n") {
            all.push(read.read_u8().await?);
        }
        let mut got = vec![0; sent.len()];
        read.read_exact(&mut got).await?;
        std::io::Result::Ok(got)
    };
    let (written, got) = in_time(async { tokio::join!(up, down) }).await;
    written.expect("taken");
    assert_eq!(got.expect("whole"), sent);
}

#[tokio::test]
async fn bad_input_gets_an_answer_and_costs_nobody_else_anything() {
    let origin = Origin::answering(|_| ok("x")).await;
    let small = |spec: &mut manypath_proxy::serve::ListenerSpec| {
        spec.bounds.header_bytes = 4096;
        spec.bounds.header_time = Duration::from_millis(300);
    };
    let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), small).await;
    let mut honest = proxy.connect().await;
    let bomb = format!("GET http://a/ HTTP/1.1\r\n{}", "X: y\r\n".repeat(2000));
    let endless = vec![b'A'; 10_000];
    for (words, wanted, why) in [
        (
            &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
            400,
            Refusal::Malformed,
        ),
        (b"\x05\x01\x00", 400, Refusal::Malformed),
        (&endless, 414, Refusal::HeaderTooLarge),
        (bomb.as_bytes(), 431, Refusal::HeaderTooLarge),
        (b"GET http://a/ HT", 408, Refusal::HeaderTimeout),
        (b"", 0, Refusal::HeaderTimeout),
        (b"GET http://a/ HTTP/2.0\r\n\r\n", 505, Refusal::Unsupported),
        (b"GET ftp://a/ HTTP/1.0\r\n\r\n", 501, Refusal::Unsupported),
        (b"GET / HTTP/1.0\r\n\r\n", 400, Refusal::BadTarget),
        (
            b"GET http://user@a/ HTTP/1.0\r\n\r\n",
            400,
            Refusal::BadTarget,
        ),
        (
            b"GET http://127.1/ HTTP/1.0\r\n\r\n",
            400,
            Refusal::BadTarget,
        ),
    ] {
        let (answer, end) = proxy.talk(words).await;
        assert_eq!(
            status(&answer),
            wanted,
            "{:?}",
            String::from_utf8_lossy(&answer)
        );
        assert!(end.is_ok(), "{:?}: {end:?}", String::from_utf8_lossy(words));
        assert_eq!(proxy.reports.refusals().last(), Some(&why));
    }
    // Two empty lines, and what was left behind a message, are no harm.
    let (all, _) = proxy
        .talk(format!("\r\n\r\nGET http://{}/ HTTP/1.0\r\n\r\n", origin.at).as_bytes())
        .await;
    assert_eq!(status(&all), 200);
    drop(honest.shutdown().await);
}

#[tokio::test]
async fn a_client_that_leaves_in_its_request_is_noted() {
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut client = proxy.connect().await;
    client
        .write_all(b"GET http://a/ HTTP/1.1\r\nX")
        .await
        .expect("open");
    client.shutdown().await.expect("open");
    assert_eq!(in_time(client.read(&mut [0])).await.expect("in order"), 0);
    assert_eq!(proxy.reports.refusals(), [Refusal::Truncated]);
    proxy.reports.closed(1).await;
}

#[tokio::test]
async fn each_failure_of_a_server_has_its_own_answer() {
    let silent = Origin::start(|stream| async move { drop(stream) }).await;
    let strange = Origin::start(|mut stream| async move {
        let _ = stream.write_all(b"SSH-2.0-x\r\n\r\n").await;
        let _ = stream.read_u8().await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    for (target, wanted, error, why) in [
        (
            nobody().await.to_string(),
            502,
            "connection_refused",
            Failure::Refused,
        ),
        (
            "no-such-name.invalid".to_owned(),
            502,
            "dns_error",
            Failure::NameNotFound,
        ),
        (
            silent.at.to_string(),
            502,
            "http_protocol_error",
            Failure::BadAnswer,
        ),
        (
            strange.at.to_string(),
            502,
            "http_protocol_error",
            Failure::BadAnswer,
        ),
    ] {
        let (answer, _) = proxy
            .talk(get(&target, "/").replace("1.1", "1.0").as_bytes())
            .await;
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(status(&answer), wanted, "{text}");
        assert!(text.contains(&format!("; error={error}\r\n")), "{text}");
        assert_eq!(proxy.reports.failures().last(), Some(&why));
    }
}

#[tokio::test]
async fn clients_may_not_choose_addresses_of_this_host() {
    let origin = Origin::answering(|_| ok("x")).await;
    let proxy = Proxy::with(OpeningKind::Http, Policy::default(), |_| {}).await;
    let port = origin.at.port();
    let named = [
        "127.0.0.1",
        "127.0.0.2",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "localhost",
        "169.254.169.254",
    ];
    let mut hosts: Vec<String> = named.map(str::to_owned).into();
    let snapshot = manypath_io::netlink::Snapshot::take().expect("netlink");
    hosts.extend(snapshot.addresses.iter().map(|own| match own.addr {
        std::net::IpAddr::V4(v4) => v4.to_string(),
        std::net::IpAddr::V6(v6) => format!("[{v6}]"),
    }));
    for host in hosts {
        let words = get(format!("{host}:{port}"), "/").replace("HTTP/1.1", "HTTP/1.0");
        let (answer, _) = proxy.talk(words.as_bytes()).await;
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(status(&answer), 403, "{host}: {text}");
        assert!(text.contains("error=destination_ip_prohibited"), "{text}");
        assert_eq!(proxy.reports.refusals().last(), Some(&Refusal::Address));
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn the_client_s_address_is_told_where_wanted() {
    let origin = Origin::answering(ok).await;
    for (forwarded, wanted) in [
        (
            ForwardedHeader::XForwardedFor,
            "X-Forwarded-For: 192.0.2.9, 127.0.0.1\r\n",
        ),
        (
            ForwardedHeader::Forwarded,
            "Forwarded: for=127.0.0.1;proto=http\r\n",
        ),
    ] {
        let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), |spec| {
            spec.forwarded = forwarded
        })
        .await;
        let words = get(origin.at, "/")
            .replace("1.1", "1.0")
            .replace("Host", "X-Forwarded-For: 192.0.2.9\r\nHost");
        let (answer, _) = proxy.talk(words.as_bytes()).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(wanted), "{text}");
    }
}

#[tokio::test]
async fn a_connection_without_requests_ends_after_its_time() {
    let origin = Origin::answering(|_| ok("x")).await;
    let keep = |spec: &mut manypath_proxy::serve::ListenerSpec| {
        spec.bounds.keep_alive = Duration::from_millis(200)
    };
    let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), keep).await;
    let mut client = proxy.connect().await;
    client
        .write_all(get(origin.at, "/").as_bytes())
        .await
        .expect("open");
    answer(&mut client).await;
    let began = Instant::now();
    assert_eq!(in_time(client.read(&mut [0])).await.expect("in order"), 0);
    assert!(began.elapsed() < PATIENCE / 2);
    assert_eq!(proxy.reports.refusals(), [], "that is no fault of anybody");
}
