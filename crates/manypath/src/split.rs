//! The two directions of a stream apart. Each half can do what the whole stream can, by [`Deref`], except for ending it.

use crate::MpStream;
use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The half that reads, borrowed: [`MpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(pub(crate) &'a MpStream);

/// The half that writes, borrowed: [`MpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(pub(crate) &'a MpStream);

/// The half that reads, owned: [`MpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    pub(crate) stream: Arc<MpStream>,
}

/// The half that writes, owned: [`MpStream::into_split`]. Dropping it closes our direction.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<MpStream>,
    shut_on_drop: bool,
}

/// The halves belong to different streams; here they are back.
#[derive(Debug)]
pub struct ReuniteError(
    /// The reading half.
    pub OwnedReadHalf,
    /// The writing half.
    pub OwnedWriteHalf,
);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves belong to different connections")
    }
}

impl std::error::Error for ReuniteError {}

impl OwnedReadHalf {
    /// Joins the halves again.
    ///
    /// # Errors
    /// When they belong to different connections.
    pub fn reunite(self, mut other: OwnedWriteHalf) -> Result<MpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.shut_on_drop = false;
        drop(other);
        // The two halves were the only ones who had it.
        Arc::try_unwrap(self.stream).map_err(|stream| {
            let read = OwnedReadHalf {
                stream: Arc::clone(&stream),
            };
            ReuniteError(read, OwnedWriteHalf::new(stream))
        })
    }
}

impl OwnedWriteHalf {
    pub(crate) fn new(stream: Arc<MpStream>) -> Self {
        OwnedWriteHalf {
            stream,
            shut_on_drop: true,
        }
    }

    /// Joins the halves again.
    ///
    /// # Errors
    /// When they belong to different connections.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<MpStream, ReuniteError> {
        other.reunite(self)
    }

    /// Drops the half without closing our direction, which then closes with the reading half.
    pub fn forget(mut self) {
        self.shut_on_drop = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shut_on_drop {
            // A connection that is over has nothing to close.
            let _ = self.stream.shutdown_shared();
        }
    }
}

macro_rules! half {
    (read $half:ty, $($stream:tt)+) => {
        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                out: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.read_shared(cx, out)
            }
        }

        half!(any $half, $($stream)+);
    };
    (write $half:ty, $($stream:tt)+) => {
        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.write_shared(cx, &[IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                parts: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.write_shared(cx, parts)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.shutdown_shared())
            }
        }

        half!(any $half, $($stream)+);
    };
    (any $half:ty, $($stream:tt)+) => {
        impl Deref for $half {
            type Target = MpStream;

            fn deref(&self) -> &MpStream {
                &self.$($stream)+
            }
        }

        impl AsRef<MpStream> for $half {
            fn as_ref(&self) -> &MpStream {
                self
            }
        }
    };
}

half!(read ReadHalf<'_>, 0);
half!(write WriteHalf<'_>, 0);
half!(read OwnedReadHalf, stream);
half!(write OwnedWriteHalf, stream);
