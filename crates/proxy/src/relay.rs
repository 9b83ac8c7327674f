//! Joins two streams: each direction is copied on its own, an end of file is passed on as such, and a slow
//! reader holds back only the one who writes to it.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::time::Instant;

use crate::serve::PathBytes;
use crate::stream::{Leg, Stream};

mod buffers;
mod course;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod sessions;

pub use buffers::{BUFFER, release_buffers};
pub(crate) use buffers::{Buffer, take_buffer, take_large_buffer};
use course::{Course, Event, Farewell, Progress, Side, Stage, Step, farewell};

/// Turns of one direction before the others of this thread have theirs.
const TURNS: usize = 32;

/// Bytes on their way from one stream to the other.
struct Held {
    bytes: Buffer,
    written: usize,
    filled: usize,
}

/// One direction.
struct Direction<'a> {
    /// The stream that it starts at.
    side: Side,
    /// Where bytes are counted the moment they are written.
    sum: &'a AtomicU64,
    held: Option<Held>,
    unflushed: bool,
    read: u64,
    carried: u64,
}

impl<'a> Direction<'a> {
    fn new(side: Side, sum: &'a AtomicU64) -> Self {
        Self {
            side,
            sum,
            held: None,
            unflushed: false,
            read: 0,
            carried: 0,
        }
    }

    /// Does what the course wants, until it would have to wait.
    fn poll<R: Leg, W: Leg>(
        &mut self,
        cx: &mut Context<'_>,
        state: &mut State,
        from: &mut R,
        to: &mut W,
    ) -> Poll<()> {
        let side = self.side;
        for _ in 0..TURNS {
            match state.course.step(side) {
                Step::Write => match ready!(self.poll_write(cx, to)) {
                    Ok(()) => state.course.note(side.other(), Event::Written),
                    Err(error) => state.refused(side.other(), to, error),
                },
                Step::Read | Step::Drop => match self.poll_read(cx, from) {
                    Poll::Ready(Ok(0)) => state.course.note(side, Event::End),
                    Poll::Ready(Ok(_)) if state.course.step(side) == Step::Drop => {}
                    Poll::Ready(Ok(_)) => state.course.note(side, Event::Data),
                    Poll::Ready(Err(error)) => state.broken(side, error),
                    Poll::Pending => {
                        if self.unflushed && state.course.step(side) == Step::Read {
                            let flushed = ready!(Pin::new(&mut *to).poll_flush(cx));
                            self.unflushed = false;
                            if let Err(error) = flushed {
                                state.refused(side.other(), to, error);
                            }
                        }
                        return Poll::Pending;
                    }
                },
                Step::Shut => match ready!(Pin::new(&mut *to).poll_shutdown(cx)) {
                    Ok(()) => {
                        self.unflushed = false;
                        state.course.note(side.other(), Event::Shut);
                    }
                    // A socket that is over cannot be shut, and a read tells why it is over.
                    Err(error) => {
                        let event = Event::Refused {
                            end_is_certain: true,
                        };
                        state.course.note(side.other(), event);
                        state.why.get_or_insert(error);
                    }
                },
                Step::Rest => {
                    self.held = None;
                    // What a TLS session has taken and its socket not yet: no byte comes behind it that would push it on.
                    if self.unflushed {
                        let flushed = ready!(Pin::new(&mut *to).poll_flush(cx));
                        self.unflushed = false;
                        if let Err(error) = flushed {
                            state.refused(side.other(), to, error);
                        }
                    }
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what is held.
    fn poll_write<W: Leg>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>> {
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

    /// Fills a buffer and tells with how much, and gives it back when there is nothing to fill it with.
    fn poll_read<R: Leg>(&mut self, cx: &mut Context<'_>, from: &mut R) -> Poll<io::Result<usize>> {
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
        }
        result.map_ok(|()| filled)
    }
}

/// What is known, and the first error.
struct State {
    course: Course,
    why: Option<io::Error>,
}

impl State {
    fn broken(&mut self, side: Side, error: io::Error) {
        self.course.note(side, Event::Broken);
        self.why.get_or_insert(error);
    }

    fn refused(&mut self, side: Side, to: &impl Leg, error: io::Error) {
        let end_is_certain = to.end_is_certain_after(&error);
        self.course.note(side, Event::Refused { end_is_certain });
        self.why.get_or_insert(error);
    }

    /// Why it ended.
    fn error(&mut self) -> io::Error {
        let why = self.why.take();
        why.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
    }
}

/// Bytes carried each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// The same once one of the streams has ended its direction, where that is less: a peer that has gone without a word is not
    /// waited for as long as one that is there.
    pub half_closed: Option<Duration>,
    /// Gets what was carried, at the end, however it ends.
    pub account: Option<&'a Mutex<Account>>,
}

/// What a relay carried, whole or not.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Bytes each way.
    pub carried: Carried,
    /// The same by the paths of our stack.
    pub paths: Vec<PathBytes>,
}

/// Carries bytes both ways until both directions have ended.
///
/// When one stream breaks, the other gets all that was read before it and is then reset: its peer must not take what it got for
/// the whole. Where an end of file had come before the break, that is passed on first, and what the peer still sends is read and
/// dropped for 5 s of silence or 30 s at most, so that the answer of a server that takes no more arrives (RFC 9112 section
/// 9.6). A peer that takes nothing is waited for 30 s.
///
/// # Errors
/// One of the streams broke.
pub async fn relay(a: Stream, b: Stream) -> io::Result<Carried> {
    let (forth, back) = (AtomicU64::new(0), AtomicU64::new(0));
    let terms = Terms {
        forth: &forth,
        back: &back,
        idle: None,
        half_closed: None,
        account: None,
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
    }
    carry(a, b, terms).await
}

/// Carries bytes between streams of any kind, as [`relay`] does.
pub(crate) async fn carry<A: Leg, B: Leg>(a: A, b: B, terms: Terms<'_>) -> io::Result<Carried> {
    // The kernel closes what a killed process leaves, and half an answer must not end as a whole one does.
    a.reset_on_close(true);
    b.reset_on_close(true);
    let mut pair = Pair(Some((a, b)));
    let Some((a, b)) = &mut pair.0 else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let mut forth = Direction::new(Side::First, terms.forth);
    let mut back = Direction::new(Side::Second, terms.back);
    let mut state = State {
        course: Course::NEW,
        why: None,
    };
    let mut idle = Idle::new(terms.idle, terms.half_closed);
    let (mut watch, mut ending) = (Watch(None), None);
    let last = poll_fn(|cx| {
        loop {
            let before = state.course.broken();
            let _ = forth.poll(cx, &mut state, a, b);
            let _ = back.poll(cx, &mut state, b, a);
            // A break found in one direction changes what is to be done in the other.
            if state.course.broken() == before {
                break;
            }
        }
        // Read and not yet written is movement, too.
        let moved = [forth.read, forth.carried, back.read, back.carried];
        let (left, settled, in_order, ended) = match state.course.stage() {
            Stage::Carrying => {
                let [first, second] = [Side::First, Side::Second].map(|s| state.course.step(s));
                if (first == Step::Write || second == Step::Write)
                    && watch.poll(cx, &mut state, a, b).is_ready()
                {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let half_closed = state.course.is_half_closed();
                return idle.poll(cx, moved, half_closed).map_ok(|()| Last::Reset);
            }
            Stage::Finished => return Poll::Ready(io::Result::Ok(Last::Finished)),
            Stage::Over => return Poll::Ready(Ok(Last::Reset)),
            Stage::Ending {
                left,
                settled,
                in_order,
                ended,
            } => (left, settled, in_order, ended),
        };
        let ending = ending.get_or_insert_with(Ending::new);
        let (unacknowledged, taken, said, unflushed) = match left {
            Side::First => (a.unacknowledged(), back.carried, forth.read, back.unflushed),
            Side::Second => (
                b.unacknowledged(),
                forth.carried,
                back.read,
                forth.unflushed,
            ),
        };
        let settled = settled && !unflushed;
        let how = |progress| farewell(settled, in_order, ended, progress);
        let unacknowledged = unacknowledged.unwrap_or(0);
        match ready!(ending.poll(cx, settled, unacknowledged, taken, said, how)) {
            Farewell::Close => Poll::Ready(Ok(Last::Closed(left))),
            Farewell::Abort => Poll::Ready(Ok(Last::Reset)),
        }
    })
    .await;
    let carried = Carried {
        forth: forth.carried,
        back: back.carried,
    };
    if let Some(account) = terms.account {
        let inside = a.paths().into_iter().map(|path| path.of(true));
        let outside = b.paths().into_iter().map(|path| path.of(false));
        let paths = inside.chain(outside).collect();
        *account.lock().unwrap_or_else(PoisonError::into_inner) = Account { carried, paths };
    }
    match last? {
        // Both directions have ended in order, so plain closing is right.
        Last::Finished => {
            if let Some((a, b)) = pair.0.take() {
                a.reset_on_close(false);
                b.reset_on_close(false);
            }
            Ok(carried)
        }
        Last::Closed(left) => {
            match (left, pair.0.take()) {
                (Side::First, Some((a, b))) => {
                    a.reset_on_close(false);
                    b.abort();
                }
                (Side::Second, Some((a, b))) => {
                    b.reset_on_close(false);
                    a.abort();
                }
                (_, None) => {}
            }
            Err(state.error())
        }
        Last::Reset => Err(state.error()),
    }
}

/// Looks from time to time whether a stream is broken that is not read because the other takes nothing: no read tells it then,
/// and who takes nothing would be waited for without a bound.
struct Watch(Option<Pin<Box<tokio::time::Sleep>>>);

impl Watch {
    const EACH: Duration = Duration::from_secs(1);

    /// Ready when one is broken.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        state: &mut State,
        a: &impl Leg,
        b: &impl Leg,
    ) -> Poll<()> {
        let new = || Box::pin(tokio::time::sleep(Self::EACH));
        let timer = self.0.get_or_insert_with(new);
        loop {
            ready!(timer.as_mut().poll(cx));
            // The error is not taken from the socket by this, so that reading tells an end from a reset afterwards.
            let event = Event::Refused {
                end_is_certain: true,
            };
            let broken = [(Side::First, a.is_broken()), (Side::Second, b.is_broken())];
            for (side, _) in broken.into_iter().filter(|(_, broken)| *broken) {
                state.course.note(side, event);
            }
            timer.as_mut().reset(Instant::now() + Self::EACH);
            if state.course.broken() != [false; 2] {
                return Poll::Ready(());
            }
        }
    }
}

/// How a relay ends.
enum Last {
    /// In order.
    Finished,
    /// One stream was broken, and this one has ended in order.
    Closed(Side),
    /// By resets.
    Reset,
}

/// The time between the break of one stream and the end of the other. No event tells that a peer has acknowledged everything,
/// so it is looked at, less often as time goes by.
struct Ending {
    timer: Pin<Box<tokio::time::Sleep>>,
    began: Instant,
    /// What was written and is acknowledged moves this way, and what was read in the other.
    seen: ([u64; 2], u64),
    taken_at: Instant,
    said_at: Instant,
    had_all_at: Option<Instant>,
}

impl Ending {
    const SOONEST: Duration = Duration::from_millis(5);
    const LATEST: Duration = Duration::from_millis(500);

    fn new() -> Self {
        let now = Instant::now();
        Self {
            timer: Box::pin(tokio::time::sleep(Self::SOONEST)),
            began: now,
            seen: ([0; 2], 0),
            taken_at: now,
            said_at: now,
            had_all_at: None,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        settled: bool,
        unacknowledged: u64,
        taken: u64,
        said: u64,
        how: impl Fn(Progress) -> Option<Farewell>,
    ) -> Poll<Farewell> {
        loop {
            let now = Instant::now();
            if self.seen.0 != [unacknowledged, taken] {
                self.taken_at = now;
            }
            if self.seen.1 != said {
                self.said_at = now;
            }
            self.seen = ([unacknowledged, taken], said);
            if settled && unacknowledged == 0 {
                self.had_all_at.get_or_insert(now);
            }
            let farewell = how(Progress {
                unacknowledged: unacknowledged > 0,
                stuck: now - self.taken_at,
                quiet: now - self.taken_at.max(self.said_at),
                since_all: self.had_all_at.map_or(Duration::ZERO, |at| now - at),
            });
            if let Some(farewell) = farewell {
                return Poll::Ready(farewell);
            }
            ready!(self.timer.as_mut().poll(cx));
            let pause = ((now - self.began) / 4).clamp(Self::SOONEST, Self::LATEST);
            self.timer.as_mut().reset(now + pause);
        }
    }
}

/// Tells when nothing has moved for too long.
struct Idle {
    /// Bounds while both directions are open, and when one has ended.
    most: [Option<Duration>; 2],
    timer: Option<Pin<Box<tokio::time::Sleep>>>,
    seen: ([u64; 4], bool),
    since: Instant,
}

impl Idle {
    fn new(open: Option<Duration>, half_closed: Option<Duration>) -> Self {
        let shorter = [open, half_closed].into_iter().flatten().min();
        Self {
            most: [open, shorter],
            timer: None,
            seen: ([0; 4], false),
            since: Instant::now(),
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        moved: [u64; 4],
        half_closed: bool,
    ) -> Poll<io::Result<()>> {
        let Some(most) = self.most[usize::from(half_closed)] else {
            return Poll::Pending;
        };
        if self.seen != (moved, half_closed) {
            if self.seen.1 != half_closed {
                // The other bound may end earlier than the timer.
                self.timer = None;
            }
            (self.seen, self.since) = ((moved, half_closed), Instant::now());
        }
        let end = self.since + most;
        let new = || Box::pin(tokio::time::sleep_until(end));
        let timer = self.timer.get_or_insert_with(new);
        while timer.as_mut().poll(cx).is_ready() {
            if end <= Instant::now() {
                let text = format!("no byte has moved for {} s", most.as_secs_f32());
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
            }
            timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}

/// Two streams that are reset if they are dropped before their time, by an error or because the relay is stopped.
struct Pair<A: Leg, B: Leg>(Option<(A, B)>);

impl<A: Leg, B: Leg> Drop for Pair<A, B> {
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
            half_closed: Some(Duration::from_secs(20)),
            account: None,
        };
        let started = Instant::now();
        let task = tokio::spawn(relay_on(Stream::from(a), Stream::from(b), terms));
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

    /// A half that moves lives on, and so does a connection whose directions are both open.
    #[tokio::test(start_paused = true)]
    async fn a_half_closed_connection_has_a_shorter_bound() {
        let ((mut client, a), (b, mut server)) = (pair().await, pair().await);
        let sums: &'static [AtomicU64; 2] = Box::leak(Box::default());
        let terms = Terms {
            forth: &sums[0],
            back: &sums[1],
            idle: Some(Duration::from_secs(7440)),
            half_closed: Some(Duration::from_secs(240)),
            account: None,
        };
        let started = Instant::now();
        let task = tokio::spawn(relay_on(Stream::from(a), Stream::from(b), terms));
        tokio::time::sleep(Duration::from_secs(7000)).await;
        client.shutdown().await.expect("open");
        assert_eq!(server.read(&mut [0; 8]).await.expect("an end"), 0);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(200)).await;
            server.write_all(b"x").await.expect("open");
            assert_eq!(client.read(&mut [0; 8]).await.expect("open"), 1);
        }
        let error = task.await.expect("no panic").expect_err("idle");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let lasted = started.elapsed().as_secs();
        assert!((7839..=7842).contains(&lasted), "{lasted} s");
    }

    #[tokio::test]
    async fn an_answer_after_the_end_of_the_question_arrives() {
        let ((mut client, a), (b, mut server)) = (pair().await, pair().await);
        let task = tokio::spawn(relay(Stream::from(a), Stream::from(b)));
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
        let task = tokio::spawn(relay(Stream::from(a), Stream::from(b)));
        Stream::from(server).abort();
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
        let task = tokio::spawn(relay(Stream::from(a), Stream::from(b)));
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
        let task = tokio::spawn(relay(Stream::from(a), Stream::from(b)));
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
        for _ in 0..20 {
            let ((client, a), (b, server)) = (pair().await, pair().await);
            tasks.push(tokio::spawn(relay(Stream::from(a), Stream::from(b))));
            clients.push(client);
            servers.push(server);
        }
        for (client, server) in clients.iter_mut().zip(&mut servers) {
            client.write_all(b"a few").await.expect("written");
            server.read_exact(&mut [0; 5]).await.expect("carried");
        }
        // All of them wait now; what they used is on the shelf, and it was the same buffer again and again.
        let free = buffers::waiting();
        assert!((1..=16).contains(&free), "{free}");
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
        let task = tokio::spawn(relay(Stream::from(a), Stream::from(b)));
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
