//! An axum application over Multipath TCP: axum takes any listener for which its trait is implemented.
//!
//! ```text
//! axum 0.0.0.0:8080     # as root
//! ```

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::connect_info::Connected;
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use manypath::{Host, MpListener, MpStream};
use std::io;
use std::net::SocketAddr;

/// Our listener, as axum wants it.
pub struct Multipath(pub MpListener);

impl Listener for Multipath {
    type Io = MpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (MpStream, SocketAddr) {
        loop {
            // A connection that ended before it could be handed over is nobody's.
            if let Ok(accepted) = self.0.accept().await {
                return accepted;
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// The address that a request came from.
#[derive(Clone, Debug)]
pub struct Peer(pub SocketAddr);

impl Connected<IncomingStream<'_, Multipath>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Multipath>) -> Self {
        Peer(*stream.remote_addr())
    }
}

/// The application.
pub fn app() -> Router {
    Router::new().route(
        "/hello/{name}",
        get(
            |axum::extract::Path(name): axum::extract::Path<String>,
             ConnectInfo(Peer(from)): ConnectInfo<Peer>| async move {
                format!("Hello, {name} at {}!\n", from.ip())
            },
        ),
    )
}

/// Serves it.
pub async fn serve(listener: MpListener) -> io::Result<()> {
    let app = app().into_make_service_with_connect_info::<Peer>();
    axum::serve(Multipath(listener), app).await
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let at = std::env::args().nth(1);
    let at = at.unwrap_or_else(|| "0.0.0.0:8080".to_owned());
    serve(Host::new()?.listen(at)?).await
}
