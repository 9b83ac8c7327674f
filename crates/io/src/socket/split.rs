//! The two directions of a stream, for two tasks.

use super::handle::Handle;
use super::stream::MpStream;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The half that reads.
#[derive(Debug)]
pub struct OwnedReadHalf {
    handle: Arc<Handle>,
}

/// The half that writes. Dropping it closes our direction.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    handle: Arc<Handle>,
    shut_on_drop: bool,
}

/// Halves of different streams cannot be joined; here they are back.
#[derive(Debug)]
pub struct ReuniteError(
    /// The reading half.
    pub OwnedReadHalf,
    /// The writing half.
    pub OwnedWriteHalf,
);

impl std::fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the halves belong to different connections")
    }
}

impl std::error::Error for ReuniteError {}

pub(super) fn split(handle: Arc<Handle>) -> (OwnedReadHalf, OwnedWriteHalf) {
    (
        OwnedReadHalf {
            handle: Arc::clone(&handle),
        },
        OwnedWriteHalf {
            handle,
            shut_on_drop: true,
        },
    )
}

impl OwnedReadHalf {
    /// Joins the halves again.
    ///
    /// # Errors
    /// When they belong to different connections.
    pub fn reunite(self, mut other: OwnedWriteHalf) -> Result<MpStream, ReuniteError> {
        if Arc::ptr_eq(&self.handle, &other.handle) {
            other.shut_on_drop = false;
            Ok(MpStream::from_handle(self.handle))
        } else {
            Err(ReuniteError(self, other))
        }
    }

    /// The peer of the first subflow.
    ///
    /// # Errors
    /// None today; the shape is tokio's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.handle.remote)
    }

    /// Everything there is to know about the connection.
    ///
    /// # Errors
    /// `NotConnected` when the stack has forgotten it.
    pub fn info(&self) -> io::Result<manypath_stack::ConnInfo> {
        self.handle.info()
    }
}

impl OwnedWriteHalf {
    /// Drops the half without closing our direction; the connection then closes with the reading half.
    pub fn forget(mut self) {
        self.shut_on_drop = false;
    }

    /// Our address of the first subflow.
    ///
    /// # Errors
    /// None today; the shape is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.handle.local)
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shut_on_drop {
            // A connection that is over has nothing to close.
            let _ = self.handle.shutdown_write();
        }
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.handle.poll_read(cx, out)
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Cx<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.handle.write(Some(cx.waker()), &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.handle.write(Some(cx.waker()), parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        self.shut_on_drop = false;
        Poll::Ready(self.handle.shutdown_write())
    }
}
