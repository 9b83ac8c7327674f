//! HTTP over Multipath TCP with hyper, both ends: a server that says which way each request came, and a client.
//!
//! ```text
//! hyper serve 0.0.0.0:8080            # on one host, as root
//! hyper get server.example:8080 /     # on another one
//! ```

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use manypath::{Host, MpListener};
use std::io;

/// Answers every request with its path and the address that it came from.
pub async fn serve(listener: MpListener) -> io::Result<()> {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            // It ended before it could be handed over.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| async move {
                let text = format!("{} for {}\n", request.uri().path(), peer.ip());
                io::Result::Ok(Response::new(Full::new(Bytes::from(text))))
            });
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
            if let Err(error) = served {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

/// Gets a document.
pub async fn get(host: &Host, server: &str, path: &str) -> io::Result<String> {
    let stream = host.connect(server).await?;
    let (mut requests, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    // Drives the connection until the last request is answered and `requests` is gone.
    let driver = tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", server)
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let answer = requests.send_request(request).await;
    let body = answer.map_err(io::Error::other)?.into_body();
    let text = body.collect().await.map_err(io::Error::other)?.to_bytes();
    drop(requests);
    driver.await?.map_err(io::Error::other)?;
    String::from_utf8(text.to_vec()).map_err(io::Error::other)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", at] => serve(Host::new()?.listen(at)?).await,
        ["get", server, path] => {
            let host = Host::new()?;
            print!("{}", get(&host, server, path).await?);
            // The connection was handed to hyper, so what is left of it is waited for here.
            host.wait_idle().await;
            Ok(())
        }
        _ => {
            eprintln!("usage: hyper serve ADDRESS:PORT | hyper get HOST:PORT PATH");
            Ok(())
        }
    }
}
