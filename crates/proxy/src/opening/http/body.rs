//! Copies the body of one message from one connection to another.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::chunk::{BadChunk, Decoder, Piece};
use super::fields;
use super::framing::Body;
use super::head::parse_trailers;
use crate::buffered::Buffered;
use crate::relay::{BUFFER, Buffer, take_buffer};

/// Why a body did not get across.
#[derive(Debug)]
pub(super) enum BodyError {
    /// Who sends it broke off, or ended its connection before the body's end.
    From,
    /// What it sends are no chunks.
    Bad,
    /// Who gets it takes no more.
    To,
}

impl From<BadChunk> for BodyError {
    fn from(_: BadChunk) -> Self {
        Self::Bad
    }
}

/// Where bytes are counted, for the exchange and for the listener.
#[derive(Clone, Copy)]
pub(super) struct Meter<'a> {
    pub(super) own: &'a AtomicU64,
    pub(super) sum: &'a AtomicU64,
}

impl Meter<'_> {
    fn add(&self, n: usize) {
        self.own.fetch_add(n as u64, Ordering::Relaxed);
        self.sum.fetch_add(n as u64, Ordering::Relaxed);
    }
}

/// Writes all of some bytes, on their way at once.
pub(super) async fn send<W: AsyncWrite + Unpin>(
    to: &mut W,
    mut bytes: &[u8],
    meter: Meter<'_>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = to.write(bytes).await?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        meter.add(n);
        bytes = &bytes[n..];
    }
    to.flush().await
}

/// What is still to come of a body.
enum Left {
    Length(u64),
    UntilClose,
    Chunks { decoder: Decoder, decode: bool },
}

/// What is read behind a request while its answer is on its way.
pub(super) const AHEAD: usize = 16 * 1024;

/// Bytes that are read at one time of who may send more than the body, which would have to be kept.
fn at_once(left: &Left, kept_back: bool) -> usize {
    match left {
        Left::UntilClose => BUFFER,
        _ if !kept_back => BUFFER,
        Left::Length(n) => usize::try_from(*n).unwrap_or(BUFFER).saturating_add(AHEAD),
        Left::Chunks { .. } => 2 * AHEAD,
    }
}

/// Copies a body. With `decode` the reader gets the payload of chunks alone, for HTTP/1.0. Trailers have `most_trailers` bytes
/// at most. `kept_back`: what comes behind the body is kept, so little of it is read.
pub(super) async fn copy<R, W>(
    from: &mut Buffered<R>,
    to: &mut W,
    body: Body,
    decode: bool,
    kept_back: bool,
    most_trailers: usize,
    meter: Meter<'_>,
) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut left = match body {
        Body::None | Body::Length(0) => return Ok(()),
        Body::Length(n) => Left::Length(n),
        Body::UntilClose => Left::UntilClose,
        Body::Chunked => Left::Chunks {
            decoder: Decoder::new(most_trailers),
            decode,
        },
    };
    loop {
        let (used, done) = if from.bytes().is_empty() {
            let most = at_once(&left, kept_back);
            let Some((buffer, n)) = read(from, most).await.map_err(|_| BodyError::From)? else {
                return match left {
                    Left::UntilClose => Ok(()),
                    Left::Length(_) | Left::Chunks { .. } => Err(BodyError::From),
                };
            };
            let passed = pass(&mut left, &buffer[..n], to, meter).await;
            if let Ok((used, _)) = passed {
                from.unread(&buffer[used..n]);
            }
            (0, passed?.1)
        } else {
            pass(&mut left, from.bytes(), to, meter).await?
        };
        from.consume(used);
        if done {
            return Ok(());
        }
    }
}

/// Reads into a buffer that is held only while there is something in it; `None` at the end.
async fn read<R: AsyncRead + Unpin>(
    from: &mut Buffered<R>,
    most: usize,
) -> io::Result<Option<(Buffer, usize)>> {
    poll_fn(|cx| {
        let mut buffer = take_buffer();
        let most = most.min(buffer.len());
        let mut room = ReadBuf::new(&mut buffer[..most]);
        let result = Pin::new(&mut *from).poll_read(cx, &mut room);
        let n = room.filled().len();
        result.map_ok(|()| (n > 0).then_some((buffer, n)))
    })
    .await
}

/// Passes on what of some bytes belongs to the body; tells how many that are, and whether they end it.
async fn pass<W: AsyncWrite + Unpin>(
    left: &mut Left,
    bytes: &[u8],
    to: &mut W,
    meter: Meter<'_>,
) -> Result<(usize, bool), BodyError> {
    let mut put = async |bytes: &[u8]| {
        let sent = send(to, bytes, meter).await;
        sent.map_err(|_| BodyError::To)
    };
    match left {
        Left::UntilClose => {
            put(bytes).await?;
            Ok((bytes.len(), false))
        }
        Left::Length(left) => {
            let n = bytes
                .len()
                .min(usize::try_from(*left).unwrap_or(usize::MAX));
            put(&bytes[..n]).await?;
            *left -= n as u64;
            Ok((n, *left == 0))
        }
        Left::Chunks { decoder, decode } => {
            // Chunks that were found to be well formed go on as they are, many of them in one write.
            let (mut used, mut kept) = (0, 0);
            while used < bytes.len() && !decoder.is_done() {
                let rest = &bytes[used..];
                match decoder.advance(rest) {
                    Ok(Piece::Framing(n)) if !*decode => (used, kept) = (used + n, used + n),
                    Ok(Piece::Data(n)) => {
                        if *decode {
                            put(&rest[..n]).await?;
                        }
                        (used, kept) = (used + n, used + n);
                    }
                    Ok(Piece::Framing(n) | Piece::Trailers(n)) => used += n,
                    Err(bad) => {
                        // The reader gets what came before, and then no end.
                        if !*decode {
                            put(&bytes[..kept]).await?;
                        }
                        return Err(bad.into());
                    }
                }
            }
            if !*decode {
                put(&bytes[..kept]).await?;
            }
            if !decoder.is_done() {
                return Ok((used, false));
            }
            let fields = parse_trailers(decoder.trailers()).map_err(|_| BodyError::Bad)?;
            if !*decode {
                put(&fields::trailers(&fields)).await?;
            }
            Ok((used, true))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    async fn copied(
        body: Body,
        decode: bool,
        input: &[u8],
        ahead: usize,
    ) -> (Vec<u8>, bool, Vec<u8>) {
        let (mut far, near) = tokio::io::duplex(1 << 16);
        let (mut out, mut end) = tokio::io::duplex(1 << 16);
        far.write_all(&input[ahead..]).await.expect("room");
        drop(far);
        let mut from = Buffered::with(near, input[..ahead].to_vec());
        let (own, sum) = (AtomicU64::new(0), AtomicU64::new(0));
        let meter = Meter {
            own: &own,
            sum: &sum,
        };
        let result = copy(&mut from, &mut out, body, decode, true, 100, meter).await;
        drop(out);
        let (mut got, mut rest) = (Vec::new(), Vec::new());
        end.read_to_end(&mut got).await.expect("in memory");
        from.read_to_end(&mut rest).await.expect("in memory");
        assert_eq!(own.into_inner(), got.len() as u64);
        (got, result.is_ok(), rest)
    }

    #[tokio::test]
    async fn a_body_ends_where_its_framing_says() {
        let chunks = b"3\r\nabc\r\n2;x\r\nde\r\n0\r\nA: b\r\nHost: c\r\n\r\nGET";
        for ahead in 0..chunks.len() {
            let (got, ok, rest) = copied(Body::Chunked, false, chunks, ahead).await;
            assert_eq!((ok, &rest[..]), (true, &b"GET"[..]));
            assert_eq!(
                got, b"3\r\nabc\r\n2;x\r\nde\r\n0\r\nA: b\r\n\r\n",
                "{ahead}"
            );
            let (got, ok, rest) = copied(Body::Chunked, true, chunks, ahead).await;
            assert_eq!(
                (&got[..], ok, &rest[..]),
                (&b"abcde"[..], true, &b"GET"[..])
            );
        }
        let (got, ok, rest) = copied(Body::Length(3), false, b"abcGET", 1).await;
        assert_eq!((&got[..], ok, &rest[..]), (&b"abc"[..], true, &b"GET"[..]));
        let (got, ok, _) = copied(Body::UntilClose, false, b"abcGET", 1).await;
        assert_eq!((&got[..], ok), (&b"abcGET"[..], true));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_gets_no_end() {
        let (got, ok, _) = copied(Body::Length(9), false, b"abc", 1).await;
        assert_eq!((&got[..], ok), (&b"abc"[..], false));
        let (got, ok, _) = copied(Body::Chunked, false, b"3\r\nabc\r\n", 1).await;
        assert_eq!((&got[..], ok), (&b"3\r\nabc\r\n"[..], false));
        let (got, ok, _) = copied(Body::Chunked, false, b"3\r\nabc\r\nxyz", 11).await;
        assert_eq!((&got[..], ok), (&b"3\r\nabc"[..], false));
        let (_, ok, _) = copied(Body::Chunked, false, b"0\r\nA\r\n\r\n", 0).await;
        assert!(!ok, "a trailer that is no field");
    }
}
