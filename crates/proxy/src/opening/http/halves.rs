//! A stream in two halves, so that both directions of an exchange go on at the same time.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

use super::head::find_end;
use super::split::{ReadHalf, WriteHalf, split};
use crate::buffered::Buffered;

/// A stream in two halves, with what was read ahead.
pub(super) struct Halves<S> {
    pub(super) read: Buffered<ReadHalf<S>>,
    pub(super) write: WriteHalf<S>,
}

/// Why no head came.
#[derive(Debug)]
pub(super) enum NoHead {
    /// The connection ended, or broke, before its first byte.
    Ended,
    /// The same in the middle.
    Truncated,
    /// It is longer than allowed; whether its first line is over.
    TooLarge { line_over: bool },
}

impl<S: AsyncRead + AsyncWrite + Unpin> Halves<S> {
    pub(super) fn new(stream: Buffered<S>) -> Self {
        let (stream, bytes) = stream.into_parts();
        let (read, write) = split(stream);
        Self {
            read: Buffered::with(read, bytes),
            write,
        }
    }

    /// The whole again.
    pub(super) fn join(self) -> Buffered<S> {
        let (read, bytes) = self.read.into_parts();
        Buffered::with(read.unsplit(self.write), bytes)
    }
}

/// Reads until a whole head is in the buffer, and tells its length.
pub(super) async fn read_head<S: AsyncRead + Unpin>(
    from: &mut Buffered<S>,
    most: usize,
) -> Result<usize, NoHead> {
    let mut seen = 0;
    loop {
        let bytes = from.bytes();
        match find_end(bytes, seen) {
            Some(end) if end <= most => return Ok(end),
            None if bytes.len() < most => seen = bytes.len(),
            _ => {
                let line_over = bytes.iter().take(most).any(|&b| b == b'\n');
                return Err(NoHead::TooLarge { line_over });
            }
        }
        let read: io::Result<usize> = from.fill().await;
        if !matches!(read, Ok(1..)) {
            return Err(match from.bytes().is_empty() {
                true => NoHead::Ended,
                false => NoHead::Truncated,
            });
        }
    }
}
