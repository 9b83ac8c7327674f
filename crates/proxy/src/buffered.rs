//! A stream with bytes that were read from it and not yet used: what stands behind a head, for example.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use crate::carried::CarriedBy;
use crate::stream::Leg;

/// Room that a read gets at least, so that a head arrives in one read and not in many.
const ROOM: usize = 4096;

/// A stream, and in front of it bytes that were read ahead.
///
/// The buffer's memory is there only as long as there are bytes in it: most connections wait most of the time.
#[derive(Debug)]
pub(crate) struct Buffered<S> {
    stream: S,
    bytes: Vec<u8>,
    /// Bytes of the buffer that were used already.
    used: usize,
}

impl<S> Buffered<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self::with(stream, Vec::new())
    }

    /// A stream of which these bytes were read.
    pub(crate) fn with(stream: S, bytes: Vec<u8>) -> Self {
        Self {
            stream,
            bytes,
            used: 0,
        }
    }

    /// What was read and not used.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Notes that the first `n` of these bytes were used.
    pub(crate) fn consume(&mut self, n: usize) {
        self.used = (self.used + n).min(self.bytes.len());
        if self.used == self.bytes.len() {
            (self.bytes, self.used) = (Vec::new(), 0);
        }
    }

    /// Puts bytes back that were read.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes.splice(..self.used, bytes.iter().copied());
            self.used = 0;
        }
    }

    /// The stream itself.
    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream and what was read of it.
    pub(crate) fn into_parts(mut self) -> (S, Vec<u8>) {
        self.bytes.drain(..self.used);
        (self.stream, self.bytes)
    }
}

impl<S: AsyncRead + Unpin> Buffered<S> {
    /// Reads more, behind what is there. Gives the number of bytes, 0 at the end of the stream. Nothing is lost if it is given up.
    ///
    /// # Errors
    /// Those of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        if self.used > 0 {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        if self.bytes.is_empty() {
            // Memory is taken when there is something to read, not while it is waited for.
            return poll_fn(|cx| self.poll_first(cx)).await;
        }
        self.bytes.reserve(ROOM);
        self.stream.read_buf(&mut self.bytes).await
    }

    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [0; ROOM];
        let mut read = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        self.bytes.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Buffered<S> {
    /// Says some last words and waits for a moment that the peer has them: a close with unread bytes would be a reset, which may take
    /// the words along.
    pub(crate) async fn say_goodbye(mut self, last_words: &[u8]) {
        const LONGEST: Duration = Duration::from_secs(5);
        let goodbye = async {
            self.write_all(last_words).await?;
            self.shutdown().await?;
            loop {
                let n = self.bytes().len();
                self.consume(n);
                if self.fill().await? == 0 {
                    return io::Result::Ok(());
                }
            }
        };
        // A peer that is gone, or does not go, has had its time.
        let _ = timeout(LONGEST, goodbye).await;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Buffered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let n = out.remaining().min(this.bytes().len());
        if n > 0 {
            out.put_slice(&this.bytes()[..n]);
            this.consume(n);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(cx, out)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Buffered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl<S: Leg> Leg for Buffered<S> {
    fn unacknowledged(&self) -> Option<u64> {
        self.stream.unacknowledged()
    }

    fn is_broken(&self) -> bool {
        self.stream.is_broken()
    }

    fn end_is_certain_after(&self, error: &io::Error) -> bool {
        self.stream.end_is_certain_after(error)
    }

    fn reset_on_close(&self, on: bool) {
        self.stream.reset_on_close(on);
    }

    fn abort(self) {
        self.stream.abort();
    }

    fn paths(&self) -> Vec<CarriedBy> {
        self.stream.paths()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn bytes_read_ahead_come_first_and_leave_no_memory_behind() {
        let (mut far, near) = tokio::io::duplex(64);
        let mut stream = Buffered::with(near, b"ab".to_vec());
        far.write_all(b"cdef").await.expect("room");
        assert_eq!(stream.fill().await.expect("open"), 4);
        assert_eq!(stream.bytes(), b"abcdef");
        stream.consume(3);
        let mut rest = [0; 3];
        stream.read_exact(&mut rest).await.expect("there");
        assert_eq!(&rest, b"def");
        assert_eq!(stream.bytes.capacity(), 0);
        far.write_all(b"gh").await.expect("room");
        stream.fill().await.expect("open");
        stream.consume(1);
        assert_eq!(stream.into_parts().1, b"h");
    }
}
