//! What the two applications do: some megabytes up, perhaps a pause, the same down, and an orderly end, with a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use manypath_sim::rng::Rng;

/// Bytes at the end of each direction. A reader cannot count to the end: boxes that rewrite payload change its length.
const TRAILER: &[u8] = b"\n<<< this is all of it >>>\n";
/// Bytes of one call.
const CHUNK: usize = 64 * 1024;
/// A marker is put into the payload this often.
const EVERY: usize = 20_000;
/// How long is slept between two looks at something that cannot be waited for.
const NAP: Duration = Duration::from_millis(2);

/// Bytes that are the same for the same seed and hold a marker every now and then, for boxes that look for it. What it
/// begins with is nowhere else, so that nothing else looks like it.
pub(super) fn payload(len: usize, seed: u64, marker: Option<&[u8]>) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| rng.bits().to_le_bytes())
        .collect();
    bytes.truncate(len);
    if let Some(marker @ [first, ..]) = marker {
        for byte in bytes.iter_mut().filter(|byte| *byte == first) {
            *byte = first.wrapping_add(1);
        }
        let mut at = EVERY / 2;
        while at + marker.len() < len {
            bytes[at..at + marker.len()].copy_from_slice(marker);
            at += EVERY;
        }
    }
    bytes
}

/// What arrived in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) bytes: Vec<u8>,
    /// The longest time without a byte, from when the other end began.
    pub(super) stall: Duration,
}

/// How a conversation broke off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    /// In people's words.
    pub(super) why: String,
    /// The longest time without a byte until then.
    pub(super) stall: Duration,
}

impl Broken {
    fn new(what: &str, error: &io::Error, stall: Duration) -> Self {
        let why = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "no progress".to_owned(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                "reset".to_owned()
            }
            ErrorKind::UnexpectedEof => "ended early".to_owned(),
            _ => error.to_string(),
        };
        Self {
            why: format!("{what}: {why}"),
            stall,
        }
    }
}

/// Takes the connection that `client` leads to, unless it ends before or the time is over.
pub(super) fn accept(
    listener: &TcpListener,
    client: &TcpStream,
    begun: Instant,
    deadline: Instant,
) -> Result<TcpStream, Broken> {
    let broken = |error: io::Error| Broken::new("connect", &error, begun.elapsed());
    listener.set_nonblocking(true).map_err(broken)?;
    client.set_nonblocking(true).map_err(broken)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(broken)?;
                client.set_nonblocking(false).map_err(broken)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(broken(error)),
        }
        match client.peek(&mut [0]) {
            Ok(0) => return Err(broken(ErrorKind::UnexpectedEof.into())),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(broken(error)),
            _ if Instant::now() > deadline => return Err(broken(ErrorKind::TimedOut.into())),
            _ => std::thread::sleep(NAP),
        }
    }
}

/// Sends `bytes` from one end to the other. Both streams stay open.
pub(super) fn send(
    what: &str,
    [from, to]: [&TcpStream; 2],
    bytes: &[u8],
    begun: Instant,
    deadline: Instant,
) -> Result<Heard, Broken> {
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(from, bytes, deadline));
        let (heard, end) = read(to, bytes.len(), begun, deadline);
        if end.is_err() {
            // The writer must not wait for somebody who is no longer there. It may be gone already.
            let _ = from.shutdown(Shutdown::Both);
        }
        let written = writer.join().expect("writing does not panic");
        // What the reader met is usually the better story.
        match end.and(written) {
            Ok(()) => Ok(heard),
            Err(error) => {
                let mut broken = Broken::new(what, &error, heard.stall);
                broken.why += &progress(&heard.bytes, bytes);
                Err(broken)
            }
        }
    })
}

/// How far it came, and how far it was right.
fn progress(heard: &[u8], sent: &[u8]) -> String {
    let right = heard.iter().zip(sent).take_while(|(a, b)| a == b).count();
    let (all, len) = (heard.len(), sent.len());
    if right < all.min(len) {
        format!(" after {all} of {len} bytes, wrong from {right} on")
    } else {
        format!(" after {all} of {len} bytes")
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn write(mut stream: &TcpStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    for chunk in bytes.chunks(CHUNK).chain([TRAILER]) {
        stream.set_write_timeout(Some(left(deadline)?))?;
        stream.write_all(chunk)?;
    }
    Ok(())
}

/// Reads to the trailer. Whatever else ends it comes with what was read until then.
fn read(
    mut stream: &TcpStream,
    expected: usize,
    begun: Instant,
    deadline: Instant,
) -> (Heard, io::Result<()>) {
    // Boxes make payload longer, but not by so much.
    let most = expected + expected / 2 + CHUNK;
    let mut heard = Heard {
        bytes: Vec::with_capacity(expected + CHUNK),
        stall: Duration::ZERO,
    };
    let mut last = begun;
    let mut chunk = vec![0; CHUNK];
    loop {
        let result = left(deadline)
            .and_then(|left| stream.set_read_timeout(Some(left)))
            .and_then(|()| stream.read(&mut chunk));
        heard.stall = heard.stall.max(last.elapsed());
        last = Instant::now();
        match result {
            Ok(0) => return (heard, Err(ErrorKind::UnexpectedEof.into())),
            Ok(len) => heard.bytes.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (heard, Err(error)),
        }
        if heard.bytes.ends_with(TRAILER) {
            heard.bytes.truncate(heard.bytes.len() - TRAILER.len());
            return (heard, Ok(()));
        }
        if heard.bytes.len() > most {
            return (heard, Err(io::Error::other("too many bytes")));
        }
    }
}

/// Ends both directions in order: each end says that it is done and sees the other's end, and nothing before it.
pub(super) fn finish(
    [client, server]: [&TcpStream; 2],
    deadline: Instant,
) -> Result<Duration, Broken> {
    let begun = Instant::now();
    let broken = |error: io::Error| Broken::new("close", &error, begun.elapsed());
    for (from, mut to) in [(client, server), (server, client)] {
        from.shutdown(Shutdown::Write).map_err(broken)?;
        to.set_read_timeout(Some(left(deadline).map_err(broken)?))
            .map_err(broken)?;
        match to.read(&mut [0; 16]).map_err(broken)? {
            0 => {}
            _ => return Err(broken(io::Error::other("more bytes than were sent"))),
        }
    }
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let now = Instant::now();
        let server =
            accept(&listener, &client, now, now + Duration::from_secs(5)).expect("it is connected");
        [client, server]
    }

    #[test]
    fn a_conversation_arrives_and_ends() {
        let [client, server] = &pair();
        let now = Instant::now();
        let deadline = now + Duration::from_secs(10);
        let bytes = payload(1_000_000, 7, Some(b"MARK"));
        assert_eq!(&bytes[EVERY / 2..EVERY / 2 + 4], b"MARK");
        assert_eq!(bytes.len(), 1_000_000);
        assert_eq!(bytes.iter().filter(|byte| **byte == b'M').count(), 50);
        let up = send("up", [client, server], &bytes, now, deadline).expect("loopback works");
        assert!(up.bytes == bytes);
        let down = send("down", [server, client], &bytes, now, deadline).expect("loopback works");
        assert!(down.bytes == bytes);
        finish([client, server], deadline).expect("both are open");
    }

    #[test]
    fn what_breaks_off_is_told() {
        let [client, server] = pair();
        let now = Instant::now();
        drop(server);
        let error = finish([&client, &client], now).expect_err("the time is over");
        assert_eq!(error.why, "close: no progress");
        let [client, server] = pair();
        server.shutdown(Shutdown::Write).expect("it is open");
        let error = send(
            "down",
            [&server, &client],
            b"x",
            now,
            now + Duration::from_secs(9),
        )
        .expect_err("it is shut");
        assert!(error.why.starts_with("down: "), "{}", error.why);
        assert_eq!(
            progress(b"abx", b"abcd"),
            " after 3 of 4 bytes, wrong from 2 on"
        );
        assert_eq!(progress(b"ab", b"abcd"), " after 2 of 4 bytes");
    }
}
