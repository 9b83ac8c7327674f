//! What a stream does by a shared reference: looking, waiting for readiness, and calls that do not wait.

use super::handle::Reading;
use super::stream::MpStream;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context as Cx, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;

/// The result of a call that brought no waker.
fn at_once<T>(result: Poll<io::Result<T>>) -> io::Result<T> {
    match result {
        Poll::Ready(result) => result,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl MpStream {
    /// Waits for bytes and copies the first of them without taking them: the next read gives them again. Zero is the end of the
    /// stream.
    ///
    /// # Errors
    /// What ended the connection.
    pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.handle.read(Some(cx.waker()), out, Reading::Peek)).await
    }

    /// The same for hand-written futures. The waker replaces that of the last read that waits.
    pub fn poll_peek(&self, cx: &mut Cx<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let place = out.initialize_unfilled();
        let peeked = self.handle.read(Some(cx.waker()), place, Reading::Peek);
        peeked.map_ok(|count| {
            out.advance(count);
            count
        })
    }

    /// Reads by a shared reference, as halves do. One task at a time waits; the last one that asks.
    pub fn poll_read_shared(&self, cx: &mut Cx<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_read(cx, out)
    }

    /// Writes by a shared reference, as halves do. One task at a time waits; the last one that asks.
    pub fn poll_write_shared(
        &self,
        cx: &mut Cx<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.handle.write(Some(cx.waker()), parts)
    }

    /// Closes our direction after everything that was written; the peer's goes on.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.handle.shutdown_write()
    }

    /// Waits until a read would give something: bytes, the end of the stream, or an error. Any number of tasks may wait.
    ///
    /// # Errors
    /// `NotConnected` when the stack has forgotten the connection.
    pub async fn readable(&self) -> io::Result<()> {
        self.handle.ready(|state| state.readable).await
    }

    /// Waits until a write would take bytes, or fail. Any number of tasks may wait.
    ///
    /// # Errors
    /// `NotConnected` when the stack has forgotten the connection.
    pub async fn writable(&self) -> io::Result<()> {
        self.handle.ready(|state| state.writable).await
    }

    /// Reads what has arrived, without waiting. Zero is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` while nothing has; what ended the connection.
    pub fn try_read(&self, out: &mut [u8]) -> io::Result<usize> {
        at_once(self.handle.read(None, out, Reading::Take))
    }

    /// Writes what there is room for, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` while there is none; `BrokenPipe` after our direction was closed; what ended the connection.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    /// The same from several buffers, in order.
    ///
    /// # Errors
    /// Those of [`MpStream::try_write`].
    pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        at_once(self.handle.write(None, parts))
    }

    /// The error that ended the connection, if it ended badly and nobody took the error before (`SO_ERROR`).
    pub fn take_error(&self) -> Option<io::Error> {
        self.handle.take_error()
    }

    /// What happens to bytes that the peer has not acknowledged when the stream is dropped (`SO_LINGER`). `None`, the default:
    /// they are delivered as long as the peer lives. Zero: they are lost, and the peer sees a reset. Otherwise the peer has so
    /// long to acknowledge them, and then sees a reset. The drop itself never waits.
    pub fn set_linger(&self, limit: Option<Duration>) {
        self.handle.set_linger(limit);
    }

    /// What [`MpStream::set_linger`] has set.
    #[must_use]
    pub fn linger(&self) -> Option<Duration> {
        self.handle.linger()
    }
}
