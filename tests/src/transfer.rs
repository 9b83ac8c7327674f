//! Bytes that can be checked, through a pair of connected streams.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

/// Bytes written and read at one time.
const BLOCK: usize = 64 * 1024;

/// An endless stream of bytes: the same for the same seed, and no two blocks of it are equal.
#[derive(Debug)]
struct Source {
    block: Vec<u8>,
    number: u64,
}

impl Source {
    fn new(seed: u64) -> Self {
        // SplitMix64.
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self {
            block: (0..BLOCK / 8).flat_map(|_| next().to_le_bytes()).collect(),
            number: 0,
        }
    }

    fn next(&mut self) -> &[u8] {
        self.number += 1;
        self.block_of(self.number - 1)
    }

    fn block_of(&mut self, number: u64) -> &[u8] {
        self.block[..8].copy_from_slice(&number.to_le_bytes());
        &self.block
    }

    /// Where `bytes`, found at the position `at` of the stream, first differ from it.
    fn difference(&mut self, mut at: u64, mut bytes: &[u8]) -> Option<u64> {
        while !bytes.is_empty() {
            let within = usize::try_from(at % BLOCK as u64).expect("less than a block");
            let take = bytes.len().min(BLOCK - within);
            let right = &self.block_of(at / BLOCK as u64)[within..within + take];
            if right != &bytes[..take] {
                let equal = right.iter().zip(bytes).take_while(|(a, b)| a == b).count();
                return Some(at + equal as u64);
            }
            at += take as u64;
            bytes = &bytes[take..];
        }
        None
    }
}

/// What arrived in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// Hash of what was sent.
    pub sent: [u8; 32],
    /// Hash of what arrived.
    pub received: [u8; 32],
    /// Where it first differed from what was sent, in bytes from the beginning.
    pub differs_at: Option<u64>,
    /// The longest time without a byte, from the first byte on.
    pub stall: Duration,
    /// From the first byte to the last.
    pub took: Duration,
}

impl Arrived {
    /// Fails the test when the hashes differ.
    ///
    /// # Panics
    /// When they do.
    pub fn assert_same(&self) {
        assert_eq!(
            hex(&self.sent),
            hex(&self.received),
            "what arrived is not what was sent, from byte {:?} on",
            self.differs_at
        );
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(stream: &TcpStream, len: u64, seed: u64) -> io::Result<[u8; 32]> {
    let mut source = Source::new(seed);
    let mut hash = Sha256::new();
    let mut left = len;
    while left > 0 {
        let block = source.next();
        let take = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        (&*stream).write_all(&block[..take])?;
        hash.update(&block[..take]);
        left -= take as u64;
    }
    Ok(hash.finalize().into())
}

struct Heard {
    hash: [u8; 32],
    differs_at: Option<u64>,
    stall: Duration,
    took: Duration,
}

fn read(
    stream: &TcpStream,
    len: u64,
    seed: u64,
    mut progress: impl FnMut(u64),
) -> io::Result<Heard> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 4 * BLOCK];
    let mut got = 0;
    let (mut first, mut last) = (None, Instant::now());
    let mut stall = Duration::ZERO;
    let mut expected = Source::new(seed);
    let mut differs_at = None;
    while got < len {
        let room = buffer
            .len()
            .min(usize::try_from(len - got).unwrap_or(usize::MAX));
        let n = (&*stream).read(&mut buffer[..room])?;
        if n == 0 {
            let text = format!("the stream ended after {got} of {len} bytes");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        let now = Instant::now();
        if first.is_some() {
            stall = stall.max(now - last);
        }
        first.get_or_insert(now);
        last = now;
        hash.update(&buffer[..n]);
        differs_at = differs_at.or_else(|| expected.difference(got, &buffer[..n]));
        got += n as u64;
        progress(got);
    }
    Ok(Heard {
        hash: hash.finalize().into(),
        differs_at,
        stall,
        took: last - first.unwrap_or(last),
    })
}

/// Sends `len` bytes from one stream to the other while both stay open. `progress` hears how many have arrived.
///
/// # Errors
/// What either stream reports; `UnexpectedEof` when it ended early.
///
/// # Panics
/// Only when a thread cannot be started.
pub fn send(
    from: &TcpStream,
    to: &TcpStream,
    len: u64,
    seed: u64,
    progress: impl FnMut(u64) + Send,
) -> io::Result<Arrived> {
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(from, len, seed));
        let read = read(to, len, seed, progress);
        if read.is_err() {
            // Nobody takes the writer's bytes any more.
            let _ = from.shutdown(Shutdown::Both);
        }
        let sent = writer.join().expect("the writer does not panic");
        // What the reader met is usually the better story.
        let read = read?;
        Ok(Arrived {
            sent: sent?,
            received: read.hash,
            differs_at: read.differs_at,
            stall: read.stall,
            took: read.took,
        })
    })
}

/// Sends `len` bytes each way at the same time, and checks both hashes. The streams stay open.
///
/// # Panics
/// When a stream breaks or the bytes differ.
pub fn both_ways(a: &TcpStream, b: &TcpStream, len: u64) -> [Arrived; 2] {
    let results = std::thread::scope(|scope| {
        let forth = scope.spawn(|| send(a, b, len, 1, |_| ()));
        let back = send(b, a, len, 2, |_| ());
        [forth.join().expect("no panic"), back]
    });
    let [forth, back] = results;
    let both = [forth.expect("forth"), back.expect("back")];
    for arrived in &both {
        arrived.assert_same();
    }
    both
}

/// Ends both streams in order: each says its end, each sees the other's, nothing comes in between.
///
/// # Panics
/// When one of them sees anything else.
pub fn finish(a: &TcpStream, b: &TcpStream) {
    a.shutdown(Shutdown::Write).expect("the first is open");
    expect_end("second", b);
    b.shutdown(Shutdown::Write).expect("the second is open");
    expect_end("first", a);
}

/// Checks that a stream is at its end.
///
/// # Panics
/// When there are more bytes or an error.
pub fn expect_end(name: &str, mut stream: &TcpStream) {
    match stream.read(&mut [0; 16]) {
        Ok(0) => {}
        Ok(_) => panic!("the {name} stream has bytes that nobody sent"),
        Err(error) => panic!("the {name} stream has no regular end: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_repeatable_and_its_blocks_differ() {
        let (mut a, mut b) = (Source::new(7), Source::new(7));
        let first = a.next().to_vec();
        assert_eq!(first, b.next());
        assert_ne!(first, a.next());
        assert_ne!(first, Source::new(8).next());
    }

    #[test]
    fn the_first_wrong_byte_is_found() {
        let mut source = Source::new(7);
        let mut stream = source.next().to_vec();
        stream.extend_from_slice(source.next());
        assert_eq!(source.difference(100, &stream[100..]), None);
        stream[BLOCK + 5] ^= 1;
        assert_eq!(
            source.difference(100, &stream[100..]),
            Some(BLOCK as u64 + 5)
        );
    }
}
