//! One type for streams with TLS (RFC 8446) and without.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use crate::buffered::Buffered;
use crate::carried::{CarriedBy, PathAccount};
use crate::stream::{Leg, Stream};

/// A stream to a client or to a server.
#[derive(Debug)]
pub(crate) enum MaybeTls {
    Plain(Stream),
    Tls(Box<TlsStream<Buffered<Stream>>>),
}

impl MaybeTls {
    /// See [`Stream::account`].
    pub(crate) fn account(&self) -> Option<PathAccount> {
        self.stream().account()
    }

    /// See [`Stream::peer_addr`].
    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream().peer_addr()
    }

    /// The stream below.
    pub(crate) fn stream(&self) -> &Stream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0.get_ref(),
        }
    }
}

impl Leg for MaybeTls {
    fn unacknowledged(&self) -> Option<u64> {
        self.stream().unacknowledged()
    }

    fn is_broken(&self) -> bool {
        self.stream().is_broken()
    }

    fn end_is_certain_after(&self, error: &io::Error) -> bool {
        match self {
            Self::Plain(stream) => stream.end_is_certain_after(error),
            // An end is one only with the peer's close_notify (RFC 8446 section 6.1).
            Self::Tls(_) => true,
        }
    }

    fn reset_on_close(&self, on: bool) {
        self.stream().reset_on_close(on);
    }

    fn abort(self) {
        match self {
            Self::Plain(stream) => stream.abort(),
            Self::Tls(stream) => match *stream {
                TlsStream::Client(stream) => stream.into_inner().0.abort(),
                TlsStream::Server(stream) => stream.into_inner().0.abort(),
            },
        }
    }

    fn paths(&self) -> Vec<CarriedBy> {
        self.stream().paths()
    }
}

impl AsyncRead for MaybeTls {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for MaybeTls {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
