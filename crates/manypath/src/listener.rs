//! Accepting connections.

use crate::{Host, MpStream};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// Accepts connections on a port, as tokio's `TcpListener` does. Peers without Multipath TCP get plain TCP.
///
/// It takes what comes by the host's paths. Programs on this host itself reach it by none of them: for those, open an ordinary
/// listener beside it.
#[derive(Debug)]
pub struct MpListener {
    pub(crate) inner: manypath_io::MpListener,
    pub(crate) host: Host,
}

impl MpListener {
    /// Waits for the next connection. It may be given up (in `select!`) and called again.
    ///
    /// # Errors
    /// `ConnectionAborted` when a connection ended before it could be handed over; go on accepting.
    pub async fn accept(&self) -> io::Result<(MpStream, SocketAddr)> {
        let (stream, peer) = self.inner.accept().await?;
        Ok((MpStream::new(stream, &self.host), peer))
    }

    /// The same for hand-written futures.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(MpStream, SocketAddr)>> {
        let (stream, peer) = ready!(self.inner.poll_accept(cx))?;
        Poll::Ready(Ok((MpStream::new(stream, &self.host), peer)))
    }

    /// Where it listens, with the port that was found where 0 was asked for.
    ///
    /// # Errors
    /// None; the shape is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}
