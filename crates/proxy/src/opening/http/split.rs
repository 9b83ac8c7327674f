//! A stream in two halves, of which it can still be asked how it is to end.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::Leg;

/// The half that is read.
#[derive(Debug)]
pub(super) struct ReadHalf<S>(Arc<Mutex<S>>);

/// The half that is written.
#[derive(Debug)]
pub(super) struct WriteHalf<S>(Arc<Mutex<S>>);

/// Both halves are polled by the task that owns them, so neither waits for the other.
pub(super) fn split<S>(stream: S) -> (ReadHalf<S>, WriteHalf<S>) {
    let shared = Arc::new(Mutex::new(stream));
    (ReadHalf(Arc::clone(&shared)), WriteHalf(shared))
}

impl<S> ReadHalf<S> {
    /// The whole again, of both halves of one stream.
    pub(super) fn unsplit(self, write: WriteHalf<S>) -> S {
        drop(self.0);
        let whole = Arc::into_inner(write.0).expect("the halves of one stream");
        whole.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Leg> ReadHalf<S> {
    /// See [`Leg::is_broken`].
    pub(super) fn is_broken(&self) -> bool {
        lock(&self.0).is_broken()
    }
}

impl<S: Leg> WriteHalf<S> {
    /// See [`Leg::reset_on_close`].
    pub(super) fn reset_on_close(&self, on: bool) {
        lock(&self.0).reset_on_close(on);
    }
}

fn lock<S>(shared: &Mutex<S>) -> MutexGuard<'_, S> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadHalf<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteHalf<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_shutdown(cx)
    }
}
