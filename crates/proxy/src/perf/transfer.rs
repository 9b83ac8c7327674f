//! The two halves of a bulk transfer, used at both ends.

use std::io;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::pattern::Pattern;
use super::wire::{Header, Trailer};
use crate::relay::BUFFER;

/// What a half carried.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    pub(super) sha256: Option<[u8; 32]>,
}

impl Half {
    pub(super) fn trailer(&self) -> Trailer {
        Trailer {
            bytes: self.bytes,
            micros: u64::try_from(self.elapsed.as_micros()).unwrap_or(u64::MAX),
            sha256: self.sha256.unwrap_or_default(),
        }
    }
}

/// Sends the header's amount of its pattern. `count` is told of every piece.
pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    header: &Header,
    mut count: impl FnMut(u64),
) -> io::Result<Half> {
    let started = Instant::now();
    let deadline =
        (header.millis > 0).then(|| started + Duration::from_millis(header.millis.into()));
    let total = if header.bytes > 0 {
        header.bytes
    } else {
        u64::MAX
    };
    let mut pattern = Pattern::new(header.seed);
    let mut hash = header.hash.then(Sha256::new);
    let mut bytes = 0;
    while bytes < total && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let next = pattern.next(total - bytes);
        let len = match deadline {
            // A peer that reads nothing must not hold up the end of a timed run.
            Some(deadline) => {
                match tokio::time::timeout_at(deadline.into(), stream.write(next)).await {
                    Ok(written) => written?,
                    Err(_) => break,
                }
            }
            None => stream.write(next).await?,
        };
        if len == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if let Some(hash) = &mut hash {
            hash.update(&next[..len]);
        }
        pattern.advance(len);
        bytes += len as u64;
        count(len as u64);
    }
    stream.flush().await?;
    Ok(Half {
        bytes,
        elapsed: started.elapsed(),
        sha256: hash.map(|h| h.finalize().into()),
    })
}

/// Receives until the end of file. With `trailer`, the last bytes are the sender's trailer and not data.
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    hash: bool,
    trailer: bool,
    mut count: impl FnMut(u64),
) -> io::Result<(Half, Option<Trailer>)> {
    let keep = if trailer { Trailer::LEN } else { 0 };
    let started = Instant::now();
    let mut hash = hash.then(Sha256::new);
    let mut buf = vec![0; BUFFER + keep];
    // The last bytes seen so far, which may be the trailer, stand at the front of the buffer.
    let mut held = 0;
    let mut bytes = 0;
    loop {
        let len = stream.read(&mut buf[held..]).await?;
        if len == 0 {
            break;
        }
        let filled = held + len;
        let data = filled.saturating_sub(keep);
        if let Some(hash) = &mut hash {
            hash.update(&buf[..data]);
        }
        if data > 0 {
            bytes += data as u64;
            count(data as u64);
            buf.copy_within(data..filled, 0);
        }
        held = filled - data;
    }
    let sha256 = hash.map(|h| h.finalize().into());
    let half = Half {
        bytes,
        elapsed: started.elapsed(),
        sha256,
    };
    if !trailer {
        return Ok((half, None));
    }
    let tail = buf[..held]
        .first_chunk()
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((half, Some(Trailer::parse(tail))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::wire::Kind;

    const HEADER: Header = Header {
        kind: Kind::Send,
        hash: true,
        seed: 5,
        bytes: 700_001,
        millis: 0,
        request: 0,
        response: 0,
    };

    #[tokio::test]
    async fn the_trailer_is_told_from_the_data_wherever_the_pieces_end() {
        for size in [1, 7, 48, 49, 1000] {
            let header = Header {
                bytes: 500,
                ..HEADER
            };
            let (mut a, mut b) = tokio::io::duplex(size);
            let sender = async move {
                let half = send(&mut a, &header, |_| {}).await.expect("sent");
                a.write_all(&half.trailer().to_bytes()).await.expect("sent");
                half
            };
            let (sent, received) = tokio::join!(sender, receive(&mut b, true, true, |_| {}));
            let (half, trailer) = received.expect("received");
            assert_eq!((half.bytes, half.sha256), (500, sent.sha256));
            assert_eq!(trailer.map(|t| t.sha256), sent.sha256);
        }
    }

    #[tokio::test]
    async fn a_stream_cut_before_its_trailer_is_an_error() {
        let (a, mut b) = tokio::io::duplex(100);
        drop(a);
        let error = receive(&mut b, false, true, |_| {})
            .await
            .expect_err("no trailer");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timed_run_ends_though_nobody_reads() {
        let (mut a, _b) = tokio::io::duplex(1000);
        let header = Header {
            bytes: 0,
            millis: 50,
            ..HEADER
        };
        let half = send(&mut a, &header, |_| {}).await.expect("sent");
        assert_eq!(half.bytes, 1000);
    }
}
