//! Joins two streams: each direction is copied on its own, an end of file is passed on as such, and a slow
//! reader holds back only the one who writes to it.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::stream::Stream;

/// Buffer of each direction, in bytes. At 8 Gbit/s that is a quarter of a millisecond.
pub const BUFFER: usize = 256 * 1024;

/// Buffers that wait to be used again, four megabytes in all; what is beyond that goes back to the system.
const SHELF: usize = 16;

/// Turns of one direction before the others of this thread have theirs.
const TURNS: usize = 32;

/// Buffers that no direction holds now. A direction holds one only as long as there are bytes in it, so a thousand quiet
/// connections cost no more than one.
static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

fn take_buffer() -> Box<[u8]> {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    free.unwrap_or_else(|| vec![0; BUFFER].into_boxed_slice())
}

fn put_buffer(buffer: Box<[u8]>) {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    if free.len() < SHELF {
        free.push(buffer);
    }
}

/// Frees the buffers that wait to be used again.
pub fn release_buffers() {
    *FREE.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
}

/// Bytes on their way from one stream to the other.
struct Held {
    bytes: Box<[u8]>,
    written: usize,
    filled: usize,
}

/// One direction.
struct Direction<'a> {
    /// Where bytes are counted the moment they are written.
    sum: &'a AtomicU64,
    held: Option<Held>,
    /// The source has no more.
    ended: bool,
    /// The end was passed on.
    done: bool,
    unflushed: bool,
    read: u64,
    carried: u64,
}

impl<'a> Direction<'a> {
    fn new(sum: &'a AtomicU64) -> Self {
        Self {
            sum,
            held: None,
            ended: false,
            done: false,
            unflushed: false,
            read: 0,
            carried: 0,
        }
    }

    fn poll<R, W>(&mut self, cx: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..TURNS {
            ready!(self.poll_write(cx, to))?;
            if self.ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                self.done = true;
                return Poll::Ready(Ok(()));
            }
            if self.poll_read(cx, from)?.is_pending() {
                if self.unflushed {
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    self.unflushed = false;
                }
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what is held.
    fn poll_write<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>>
    where
        W: AsyncWrite + Unpin,
    {
        let Some(held) = &mut self.held else {
            return Poll::Ready(Ok(()));
        };
        while held.written < held.filled {
            let rest = &held.bytes[held.written..held.filled];
            let n = ready!(Pin::new(&mut *to).poll_write(cx, rest))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            held.written += n;
            self.carried += n as u64;
            self.sum.fetch_add(n as u64, Ordering::Relaxed);
            self.unflushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Fills a buffer, and gives it back when there is nothing to fill it with.
    fn poll_read<R>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
    {
        let mut bytes = self.held.take().map_or_else(take_buffer, |held| held.bytes);
        let mut room = ReadBuf::new(&mut bytes);
        let result = Pin::new(from).poll_read(cx, &mut room);
        let filled = room.filled().len();
        if matches!(result, Poll::Ready(Ok(()))) && filled > 0 {
            self.read += filled as u64;
            self.held = Some(Held {
                bytes,
                written: 0,
                filled,
            });
        } else {
            self.ended = matches!(result, Poll::Ready(Ok(())));
            put_buffer(bytes);
        }
        result
    }
}

/// Bytes carried each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// From the first stream to the second.
    pub forth: u64,
    /// From the second stream to the first.
    pub back: u64,
}

/// What a relay tells, and how long it waits.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Gets the bytes from the first stream to the second, as they are written.
    pub forth: &'a AtomicU64,
    /// Gets the bytes from the second stream to the first, as they are written.
    pub back: &'a AtomicU64,
    /// Ends the relay when no byte has moved either way for so long; `None`: never.
    pub idle: Option<Duration>,
}

/// Carries bytes both ways until both directions have ended.
///
/// When one stream breaks, the other is reset too: its peer must not take what it got for the whole.
///
/// # Errors
/// One of the streams broke.
pub async fn relay(a: Stream, b: Stream) -> io::Result<Carried> {
    let (forth, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let terms = Terms {
        forth: &forth,
        back: &back,
        idle: None,
    };
    relay_on(a, b, terms).await
}

/// Carries bytes as [`relay`] does, on these terms.
///
/// # Errors
/// One of the streams broke; `TimedOut` when no byte has moved for as long as that may last.
pub async fn relay_on(a: Stream, b: Stream, terms: Terms<'_>) -> io::Result<Carried> {
    // The relay writes whole buffers; holding back the last piece of one would only add delay.
    for stream in [&a, &b] {
        // A stream that is broken already says so at the first read.
        let _ = stream.set_nodelay(true);
        // The kernel closes what a killed process leaves, and half an answer must not end as a whole one does.
        stream.reset_on_close(true);
    }
    let mut pair = Pair(Some((a, b)));
    let Some((a, b)) = &mut pair.0 else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let (mut forth, mut back) = (Direction::new(terms.forth), Direction::new(terms.back));
    let mut idle = Idle::new(terms.idle);
    poll_fn(|cx| {
        let there = forth.poll(cx, a, b)?;
        let here = back.poll(cx, b, a)?;
        if there.is_ready() && here.is_ready() {
            return Poll::Ready(io::Result::Ok(()));
        }
        // Read and not yet written is movement, too.
        idle.poll(cx, [forth.read, forth.carried, back.read, back.carried])
    })
    .await?;
    // Both directions have ended in order, so plain closing is right.
    if let Some((a, b)) = pair.0.take() {
        a.reset_on_close(false);
        b.reset_on_close(false);
    }
    Ok(Carried {
        forth: forth.carried,
        back: back.carried,
    })
}

/// Tells when nothing has moved for too long.
struct Idle {
    timer: Option<(Duration, Pin<Box<tokio::time::Sleep>>)>,
    seen: [u64; 4],
    since: Instant,
}

impl Idle {
    fn new(most: Option<Duration>) -> Self {
        Self {
            timer: most.map(|most| (most, Box::pin(tokio::time::sleep(most)))),
            seen: [0; 4],
            since: Instant::now(),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, moved: [u64; 4]) -> Poll<io::Result<()>> {
        let Some((most, sleep)) = &mut self.timer else {
            return Poll::Pending;
        };
        if moved != self.seen {
            (self.seen, self.since) = (moved, Instant::now());
        }
        while sleep.as_mut().poll(cx).is_ready() {
            let end = self.since + *most;
            if end <= Instant::now() {
                let text = format!("no byte has moved for {} s", most.as_secs_f32());
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
            }
            sleep.as_mut().reset(end);
        }
        Poll::Pending
    }
}

/// Two streams that are reset if they are dropped before their time, by an error or because the relay is stopped.
struct Pair(Option<(Stream, Stream)>);

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some((a, b)) = self.0.take() {
            a.abort();
            b.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let addr = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(addr), listener.accept());
        (near.expect("connected"), far.expect("accepted").0)
    }

    /// Time stands still except where everybody waits for it, so the whole is a matter of milliseconds.
    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_no_byte_moves_either_way() {
        let ((mut client, a), (b, mut server)) = (pair().await, pair().await);
        let sums: &'static [AtomicU64; 2] = Box::leak(Box::default());
        let terms = Terms {
            forth: &sums[0],
            back: &sums[1],
            idle: Some(Duration::from_secs(60)),
        };
        let started = Instant::now();
        let task = tokio::spawn(relay_on(Stream::Host(a), Stream::Host(b), terms));
        for _ in 0..3 {
            // One direction moves, and that is enough.
            tokio::time::sleep(Duration::from_secs(40)).await;
            server.write_all(b"x").await.expect("open");
            assert_eq!(client.read(&mut [0; 8]).await.expect("open"), 1);
        }
        let error = task.await.expect("no panic").expect_err("idle");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let lasted = started.elapsed().as_secs();
        assert!((180..=181).contains(&lasted), "{lasted} s");
        assert_eq!(sums[1].load(Ordering::Relaxed), 3);
        // Neither end takes it for a regular end.
        for stream in [&mut client, &mut server] {
            let error = stream.read(&mut [0; 8]).await.expect_err("reset");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    }

    #[tokio::test]
    async fn an_answer_after_the_end_of_the_question_arrives() {
        let ((mut client, a), (b, mut server)) = (pair().await, pair().await);
        let task = tokio::spawn(relay(Stream::Host(a), Stream::Host(b)));
        client.write_all(b"question").await.expect("written");
        client.shutdown().await.expect("half-closed");
        let mut text = String::new();
        server
            .read_to_string(&mut text)
            .await
            .expect("end of file is passed on");
        assert_eq!(text, "question");
        server
            .write_all(b"answer")
            .await
            .expect("the other direction is open");
        drop(server);
        let mut text = String::new();
        client.read_to_string(&mut text).await.expect("read");
        assert_eq!(text, "answer");
        let carried = task.await.expect("no panic").expect("no error");
        assert_eq!(carried, Carried { forth: 8, back: 6 });
    }

    #[tokio::test]
    async fn a_reset_is_passed_on_as_a_reset() {
        let ((mut client, a), (b, server)) = (pair().await, pair().await);
        let task = tokio::spawn(relay(Stream::Host(a), Stream::Host(b)));
        Stream::Host(server).abort();
        let mut rest = Vec::new();
        let error = client
            .read_to_end(&mut rest)
            .await
            .expect_err("not a regular end");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(task.await.expect("no panic").is_err());
    }

    #[tokio::test]
    async fn what_a_killed_process_leaves_is_reset_by_the_kernel() {
        let ((mut client, a), (b, server)) = (pair().await, pair().await);
        // A killed process closes its descriptors and runs nothing else; these two outlive the relay's own.
        let left = [&a, &b].map(|stream| socket2::SockRef::from(stream).try_clone().expect("dup"));
        let task = tokio::spawn(relay(Stream::Host(a), Stream::Host(b)));
        client.write_all(b"half").await.expect("written");
        let mut server = server;
        server.read_exact(&mut [0; 4]).await.expect("carried");
        let lingers = left.each_ref().map(|socket| socket.linger().expect("open"));
        assert_eq!(lingers, [Some(std::time::Duration::ZERO); 2]);
        drop((client, server));
        task.await.expect("no panic").expect("both ended in order");
        let lingers = left.each_ref().map(|socket| socket.linger().expect("open"));
        assert_eq!(lingers, [None; 2], "an end in order stays one");
    }

    #[tokio::test]
    async fn stopping_the_relay_resets_both_ends() {
        let ((mut client, a), (b, mut server)) = (pair().await, pair().await);
        let task = tokio::spawn(relay(Stream::Host(a), Stream::Host(b)));
        client.write_all(b"half of it").await.expect("written");
        server.read_exact(&mut [0; 10]).await.expect("carried");
        task.abort();
        for mut end in [client, server] {
            let error = end
                .read_to_end(&mut Vec::new())
                .await
                .expect_err("no regular end");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
    }

    #[tokio::test]
    async fn quiet_relays_hold_no_buffers() {
        let (mut clients, mut tasks, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SHELF + 4 {
            let ((client, a), (b, server)) = (pair().await, pair().await);
            tasks.push(tokio::spawn(relay(Stream::Host(a), Stream::Host(b))));
            clients.push(client);
            servers.push(server);
        }
        for (client, server) in clients.iter_mut().zip(&mut servers) {
            client.write_all(b"a few").await.expect("written");
            server.read_exact(&mut [0; 5]).await.expect("carried");
        }
        // All of them wait now; what they used is on the shelf, and it was the same buffer again and again.
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).len();
        assert!((1..=SHELF).contains(&free), "{free}");
        drop(clients);
        drop(servers);
        for task in tasks {
            let carried = task.await.expect("no panic").expect("regular ends");
            assert_eq!(carried, Carried { forth: 5, back: 0 });
        }
    }

    #[tokio::test]
    async fn a_reader_that_stops_holds_back_the_writer() {
        let ((client, a), (b, mut server)) = (pair().await, pair().await);
        let task = tokio::spawn(relay(Stream::Host(a), Stream::Host(b)));
        // Fill everything between the two until the kernel takes no more from the client.
        let chunk = vec![7_u8; 64 * 1024];
        let mut sent = 0_u64;
        let mut refused = 0;
        while refused < 50 {
            match client.try_write(&chunk) {
                Ok(n) => {
                    sent += n as u64;
                    refused = 0;
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    refused += 1;
                    tokio::task::yield_now().await;
                }
            }
            assert!(sent < 256 << 20, "nothing holds the writer back");
        }
        drop(client);
        let mut got = 0_u64;
        let mut buf = vec![0_u8; 64 * 1024];
        loop {
            let n = server.read(&mut buf).await.expect("read");
            if n == 0 {
                break;
            }
            assert!(buf[..n].iter().all(|&b| b == 7));
            got += n as u64;
        }
        drop(server);
        assert_eq!(got, sent);
        assert_eq!(task.await.expect("no panic").expect("no error").forth, sent);
    }
}
