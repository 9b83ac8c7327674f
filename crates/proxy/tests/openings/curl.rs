//! Stock curl through each opening.

use std::path::Path;
use std::process::Command;

use manypath_proxy::serve::{OpeningKind, Policy, TlsFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Origin, Proxy, read_head};

/// Runs a program and gives what it prints, or `None` if the host has none; then the test says so and does no more.
async fn run(program: &'static str, args: Vec<String>) -> Option<(bool, Vec<u8>)> {
    let run = tokio::task::spawn_blocking(move || Command::new(program).args(args).output());
    match run.await.expect("no panic") {
        Ok(output) => Some((output.status.success(), output.stdout)),
        Err(error) => {
            eprintln!("skipped: cannot run {program}: {error}");
            None
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn pattern() -> Vec<u8> {
    (0..2_000_000_u32).map(|n| (n * 31 % 251) as u8).collect()
}

/// Serves the pattern, by length or in chunks.
async fn files() -> Origin {
    Origin::start(|mut stream| async move {
        while let Some(head) = read_head(&mut stream).await {
            let body = pattern();
            let answer = match head.contains("/chunks") {
                true => {
                    let mut all = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                    for piece in body.chunks(30_011) {
                        all.extend(format!("{:x}\r\n", piece.len()).as_bytes());
                        all.extend(piece);
                        all.extend(b"\r\n");
                    }
                    [all, b"0\r\n\r\n".to_vec()].concat()
                }
                false => {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    [head.into_bytes(), body].concat()
                }
            };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn downloads_are_whole_by_every_opening() {
    let origin = files().await;
    let http = Proxy::start(OpeningKind::Http).await;
    let socks = Proxy::start(OpeningKind::Socks5).await;
    let fixed = format!("tcp:{}", origin.at).parse().expect("an endpoint");
    let fixed = Proxy::start(OpeningKind::Fixed(fixed)).await;
    for path in ["length", "chunks"] {
        let url = format!("http://{}/{path}", origin.at);
        for way in [
            format!("-x http://{} {url} {url}", http.at),
            format!("-0 -x http://{} {url} {url}", http.at),
            format!("-p -x http://{} {url} {url}", http.at),
            format!("--socks5 {} {url} {url}", socks.at),
            format!("--socks5-hostname {} {url} {url}", socks.at),
            format!("http://{0}/{path} http://{0}/{path}", fixed.at),
        ] {
            let args = words(&format!("-sS -f -m 60 --noproxy none {way}"));
            let Some((ok, got)) = run("curl", args).await else {
                return;
            };
            assert!(ok, "{way}");
            assert!(got == [pattern(), pattern()].concat(), "{way}: other bytes");
        }
    }
}

#[tokio::test]
async fn fifty_tunnels_in_a_row_are_whole() {
    let origin = files().await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    for n in 0..50 {
        let args = format!(
            "-sS -f -m 60 --noproxy none -p -x http://{} http://{}/{n}",
            proxy.at, origin.at
        );
        let Some((ok, got)) = run("curl", words(&args)).await else {
            return;
        };
        assert!(ok && got == pattern(), "{n}");
    }
    proxy.reports.closed(50).await;
}

#[tokio::test]
async fn an_upload_that_is_answered_413_and_closed_is_told_so() {
    let origin = Origin::start(|mut stream| async move {
        read_head(&mut stream).await;
        let _ = stream.read_exact(&mut [0; 1000]).await;
        let answer =
            b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(answer).await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("upload");
    std::fs::write(&file, vec![7; 20_000_000]).expect("written");
    for expect in ["Expect:", "Expect:100-continue"] {
        let args = format!(
            "-s -m 60 --noproxy none -o /dev/null -w %{{http_code}} -H {expect} -x http://{} -T {} http://{}/",
            proxy.at,
            file.display(),
            origin.at
        );
        let Some((_, got)) = run("curl", words(&args)).await else {
            return;
        };
        assert_eq!(String::from_utf8_lossy(&got), "413", "{expect}");
    }
}

#[tokio::test]
async fn clients_speak_tls_with_the_proxy() {
    let origin = files().await;
    let folder = tempfile::tempdir().expect("a folder");
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    let args = format!(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
         -addext subjectAltName=DNS:localhost -keyout {} -out {}",
        key.display(),
        cert.display()
    );
    let Some((made, _)) = run("openssl", words(&args)).await else {
        return;
    };
    assert!(made, "openssl has made a certificate");
    let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), |spec| {
        spec.tls = Some(TlsFiles {
            cert: cert.clone(),
            key,
        });
    })
    .await;
    let at = format!("https://localhost:{}", proxy.at.port());
    let ca = |cert: &Path| format!("--proxy-cacert {}", cert.display());
    for way in ["", "-p"] {
        let url = format!("http://{}/length", origin.at);
        let args = format!(
            "-sS -f -m 60 -4 --noproxy none {} {way} -x {at} {url} {url}",
            ca(&cert)
        );
        let Some((ok, got)) = run("curl", words(&args)).await else {
            return;
        };
        assert!(ok && got == [pattern(), pattern()].concat(), "{way}");
    }
    // Without TLS there is nothing to be had.
    let (got, _) = proxy.talk(b"GET http://a/ HTTP/1.1\r\n\r\n").await;
    assert!(!got.starts_with(b"HTTP"));
    assert_eq!(
        proxy.reports.refusals(),
        [manypath_proxy::serve::Refusal::Tls]
    );
}
