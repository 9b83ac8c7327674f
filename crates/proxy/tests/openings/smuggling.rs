//! Requests that two readers could divide differently: refused, and nothing of them reaches a server.

use manypath_proxy::serve::{OpeningKind, Refusal};

use crate::support::{Origin, Proxy, ok, status};

#[tokio::test]
async fn no_request_that_could_be_divided_differently_reaches_a_server() {
    let origin = Origin::answering(|_| ok("")).await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let at = origin.at;
    // What is behind the first head would be a second request to one of two readers.
    let hidden = format!("GET http://{at}/hidden HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let line = format!("POST http://{at}/ HTTP/1.1\r\n");
    let host = format!("Host: {at}\r\n");
    let cases: Vec<(&str, String, u16)> = vec![
        (
            "two lengths",
            format!("{line}{host}Content-Length: 0\r\nContent-Length: 44\r\n\r\n"),
            400,
        ),
        (
            "two lengths in one",
            format!("{line}{host}Content-Length: 0, 44\r\n\r\n"),
            400,
        ),
        (
            "a length and chunks",
            format!("{line}{host}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (
            "chunks and a length",
            format!("{line}{host}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (
            "a coding in disguise",
            format!("{line}{host}Transfer-Encoding: xchunked\r\n\r\n"),
            501,
        ),
        (
            "chunked twice",
            format!("{line}{host}Transfer-Encoding: chunked, chunked\r\n\r\n"),
            501,
        ),
        (
            "a space before the colon",
            format!("{line}{host}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (
            "a folded field",
            format!("{line}{host}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
            400,
        ),
        (
            "a bare LF",
            format!("{line}{host}X: y\nContent-Length: 44\r\n\r\n"),
            400,
        ),
        (
            "a bare CR",
            format!("{line}{host}X: y\rContent-Length: 44\r\n\r\n"),
            400,
        ),
        (
            "a NUL",
            format!("{line}{host}X: y\0Content-Length: 44\r\n\r\n"),
            400,
        ),
        (
            "a signed length",
            format!("{line}{host}Content-Length: +0\r\n\r\n"),
            400,
        ),
        (
            "a hexadecimal length",
            format!("{line}{host}Content-Length: 0x0\r\n\r\n"),
            400,
        ),
        (
            "a length beyond all numbers",
            format!("{line}{host}Content-Length: 99999999999999999999\r\n\r\n"),
            400,
        ),
        (
            "chunks of HTTP/1.0",
            format!(
                "POST http://{at}/ HTTP/1.0\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            400,
        ),
        (
            "two hosts",
            format!("{line}{host}Host: elsewhere\r\n\r\n"),
            400,
        ),
        (
            "a line that begins blank",
            format!("{line} {host}\r\n"),
            400,
        ),
        (
            "two spaces",
            format!("POST  http://{at}/ HTTP/1.1\r\n{host}\r\n"),
            400,
        ),
        (
            "a version in the target",
            format!("POST http://{at}/ HTTP/1.1 HTTP/1.1\r\n{host}\r\n"),
            400,
        ),
    ];
    for (what, request, wanted) in cases {
        let (answer, end) = proxy.talk(format!("{request}{hidden}").as_bytes()).await;
        assert_eq!(
            status(&answer),
            wanted,
            "{what}: {:?}",
            String::from_utf8_lossy(&answer)
        );
        assert!(end.is_ok(), "{what}: {end:?}");
        let answers = answer.windows(13).filter(|w| w == b"Proxy-Status:").count();
        assert_eq!(answers, 1, "{what}: the connection must end");
    }
    assert_eq!(origin.connections(), 0);
    let refusals = proxy.reports.refusals();
    assert_eq!(refusals.len(), 19);
    assert!(
        refusals
            .iter()
            .all(|why| matches!(why, Refusal::Ambiguous | Refusal::Malformed))
    );
}

/// The head may be forwarded before the body shows to be wrong: then the server's connection is reset, and it gets no end of it.
#[tokio::test]
async fn chunks_that_could_be_divided_differently_end_the_request() {
    use tokio::io::AsyncReadExt;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let origin = Origin::start(move |mut stream| {
        let tell = tell.clone();
        async move {
            let mut all = Vec::new();
            let end = stream.read_to_end(&mut all).await;
            let _ = tell.send((all, end.is_ok()));
        }
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5;x\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n",
        "0\r\nX : y\r\n\r\n",
    ] {
        let head = format!(
            "POST http://{}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            origin.at
        );
        let (answer, _) = proxy.talk(format!("{head}{body}").as_bytes()).await;
        assert_eq!(
            status(&answer),
            400,
            "{body:?}: {:?}",
            String::from_utf8_lossy(&answer)
        );
        let (got, in_order) = told.recv().await.expect("it was connected to");
        assert!(
            !got.ends_with(b"0\r\n\r\n") && !in_order,
            "{body:?} has no end"
        );
    }
}
