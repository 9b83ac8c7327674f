//! The relay between two sockets in memory that behave as the host's do, in every order of data, FIN and RST at both ends.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{BUFFER, Carried, Leg, Terms, carry};

/// Bytes that a socket takes before it is read.
const WINDOW: usize = 100_000;

/// One connection: the relay's socket, its peer, and what is between them.
#[derive(Default)]
struct Wire {
    /// From the peer, not yet read by the relay.
    to_relay: VecDeque<u8>,
    /// From the relay, not yet acknowledged: a reset takes it along.
    to_peer: VecDeque<u8>,
    sent: Vec<u8>,
    got: Vec<u8>,
    peer_fin: bool,
    peer_rst: bool,
    /// The reset is still to be reported, by the first call that looks.
    error: Option<io::ErrorKind>,
    relay_fin: bool,
    /// The peer has read the relay's FIN.
    saw_end: bool,
    aborted: bool,
    closed: bool,
    read: Option<Waker>,
    write: Option<Waker>,
}

impl Wire {
    fn wake(&mut self) {
        for waker in [self.read.take(), self.write.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn gone(&self) -> bool {
        self.peer_rst || self.aborted || self.closed
    }

    fn send(&mut self, bytes: usize) {
        if self.peer_fin || self.gone() {
            return;
        }
        for _ in 0..bytes {
            let byte = (self.sent.len() % 251) as u8;
            self.sent.push(byte);
            self.to_relay.push_back(byte);
        }
        self.wake();
    }

    fn fin(&mut self) {
        if !self.gone() {
            self.peer_fin = true;
            self.wake();
        }
    }

    /// A host's socket keeps what it has received before, and reports this after a FIN as a broken pipe (to writers alone).
    fn rst(&mut self) {
        if self.gone() {
            return;
        }
        self.peer_rst = true;
        self.error = Some(match self.peer_fin {
            true => io::ErrorKind::BrokenPipe,
            false => io::ErrorKind::ConnectionReset,
        });
        self.to_peer.clear();
        self.wake();
    }

    /// The peer reads.
    fn take(&mut self, bytes: usize) {
        if self.peer_rst {
            return;
        }
        let n = bytes.min(self.to_peer.len());
        self.got.extend(self.to_peer.drain(..n));
        self.saw_end |= self.to_peer.is_empty() && self.relay_fin && !self.aborted;
        self.wake();
    }
}

#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Wire>>);

impl Socket {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The relay's hold on a socket; closes in order when it is dropped.
struct Held(Socket, bool);

impl Drop for Held {
    fn drop(&mut self) {
        let mut wire = self.0.wire();
        // A close with unread bytes is a reset, too. A FIN that has arrived before one is read all the same.
        if self.1 || !wire.to_relay.is_empty() {
            wire.saw_end |= wire.relay_fin && wire.to_peer.is_empty() && !wire.peer_rst;
            wire.aborted = true;
            wire.to_peer.clear();
        } else {
            wire.closed = true;
            wire.relay_fin = true;
        }
    }
}

impl AsyncRead for Held {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = self.0.wire();
        let n = out.remaining().min(wire.to_relay.len());
        if n > 0 {
            let bytes: Vec<u8> = wire.to_relay.drain(..n).collect();
            out.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        if wire.peer_fin {
            return Poll::Ready(Ok(()));
        }
        if wire.peer_rst {
            return Poll::Ready(wire.error.take().map_or(Ok(()), |kind| Err(kind.into())));
        }
        wire.read = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Held {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wire = self.0.wire();
        if wire.peer_rst {
            let kind = wire.error.take().unwrap_or(io::ErrorKind::BrokenPipe);
            return Poll::Ready(Err(kind.into()));
        }
        assert!(!wire.relay_fin, "a write after a FIN");
        let n = bytes.len().min(WINDOW - wire.to_peer.len());
        if n == 0 {
            wire.write = Some(cx.waker().clone());
            return Poll::Pending;
        }
        wire.to_peer.extend(&bytes[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.0.wire();
        if wire.peer_rst {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        wire.relay_fin = true;
        Poll::Ready(Ok(()))
    }
}

impl Leg for Held {
    fn unacknowledged(&self) -> Option<u64> {
        Some(self.0.wire().to_peer.len() as u64)
    }

    fn is_broken(&self) -> bool {
        self.0.wire().error.is_some()
    }

    fn end_is_certain_after(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::BrokenPipe
    }

    fn reset_on_close(&self, _: bool) {}

    fn abort(mut self) {
        self.1 = true;
    }
}

/// What one of the peers does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Send(usize),
    Take(usize),
    Fin,
    Rst,
    /// Time passes, in milliseconds.
    Wait(u64),
}

fn act() -> impl Strategy<Value = (bool, Act)> {
    let act = prop_oneof![
        4 => (1..300_000_usize).prop_map(Act::Send),
        2 => (1..100_usize).prop_map(Act::Send),
        4 => (1..300_000_usize).prop_map(Act::Take),
        2 => Just(Act::Fin),
        2 => Just(Act::Rst),
        1 => (1..8000_u64).prop_map(Act::Wait),
    ];
    (any::<bool>(), act)
}

/// Lets the relay do all that it can without time passing.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Plays the acts, then has both peers read to the end (unless `stall`: then the first takes nothing more), and who is still
/// there sends a FIN. Gives the two connections and the result.
async fn play(acts: &[(bool, Act)], stall: bool) -> ([Socket; 2], io::Result<Carried>) {
    let sockets = [Socket::default(), Socket::default()];
    let [a, b] = sockets.clone().map(|socket| Held(socket, false));
    let sums: &'static [AtomicU64; 2] = Box::leak(Box::default());
    let terms = Terms {
        forth: &sums[0],
        back: &sums[1],
        idle: None,
        half_closed: None,
        account: None,
    };
    let task = tokio::spawn(carry(a, b, terms));
    settle().await;
    for &(second, act) in acts {
        let peer = &sockets[usize::from(second)];
        match act {
            Act::Send(n) => peer.wire().send(n),
            Act::Take(n) => peer.wire().take(n),
            Act::Fin => peer.wire().fin(),
            Act::Rst => peer.wire().rst(),
            Act::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
        settle().await;
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) = (sockets[from].wire(), sockets[to].wire());
            let read = from.sent.len() - from.to_relay.len();
            let passed = to.got.len() + to.to_peer.len();
            let over = to.gone() || from.gone();
            assert!(over || read - passed <= BUFFER, "the relay holds too much");
        }
    }
    // Longer than a peer may take nothing, and than one may go on sending.
    for round in 0..100 {
        for (n, peer) in sockets.iter().enumerate() {
            if !(stall && n == 0) {
                peer.wire().take(usize::MAX);
            }
            if round == 50 {
                peer.wire().fin();
            }
        }
        settle().await;
        if task.is_finished() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(task.is_finished(), "it waits for ever");
    for peer in &sockets {
        peer.wire().take(usize::MAX);
    }
    (sockets, task.await.expect("no panic"))
}

fn check(acts: &[(bool, Act)]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let (sockets, result) = runtime.block_on(play(acts, false));
    let broken = sockets.iter().any(|peer| peer.wire().peer_rst);
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to) = (sockets[from].wire(), sockets[to].wire());
        assert!(from.sent.starts_with(&to.got), "other bytes");
        if to.saw_end {
            assert!(from.peer_fin, "an end that nobody made");
            assert_eq!(from.sent.len(), to.got.len(), "an end before the bytes");
        }
        if to.peer_rst {
            continue;
        }
        if from.peer_rst {
            // What came before the break arrives, and it is no end unless there was one.
            assert_eq!(from.sent.len(), to.got.len(), "lost before a reset");
            assert_eq!(to.saw_end, from.peer_fin);
            assert!(to.aborted || (from.peer_fin && to.peer_fin));
        }
    }
    assert!(result.is_ok() || broken, "{result:?}");
    assert!(result.is_err() || sockets.iter().all(|peer| peer.wire().peer_fin));
    if !broken {
        let all = |wire: &Wire| wire.saw_end && wire.closed && !wire.aborted;
        assert!(sockets.iter().all(|peer| all(&peer.wire())));
        let (first, second) = (sockets[0].wire(), sockets[1].wire());
        assert_eq!((&first.sent, &second.sent), (&second.got, &first.got));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_makes_a_part_look_like_the_whole(acts in proptest::collection::vec(act(), 0..14)) {
        check(&acts);
    }
}

/// Every order of four acts of the two peers.
#[test]
fn all_short_orders() {
    let acts = [Act::Send(7), Act::Fin, Act::Rst];
    let all: Vec<_> = acts
        .iter()
        .flat_map(|&act| [(false, act), (true, act)])
        .collect();
    for number in 0..all.len().pow(4) {
        let digits = (0..4).map(|place| number / all.len().pow(place) % all.len());
        check(&digits.map(|digit| all[digit]).collect::<Vec<_>>());
    }
}

/// The end is no less of one when its reader is idle for so long that the relay gives it up.
#[test]
fn an_end_before_a_reset_is_read_late() {
    check(&[
        (false, Act::Fin),
        (false, Act::Rst),
        (true, Act::Send(1)),
        (false, Act::Wait(5272)),
    ]);
}

/// A peer that takes nothing holds the other's end up for a bounded time.
#[tokio::test(start_paused = true)]
async fn after_a_reset_a_peer_that_takes_nothing_is_given_up() {
    let began = tokio::time::Instant::now();
    let acts = [(true, Act::Send(150_000)), (true, Act::Rst)];
    let (sockets, result) = play(&acts, true).await;
    result.expect_err("broken");
    let lasted = began.elapsed();
    assert!((super::course::STUCK..super::course::STUCK * 2).contains(&lasted));
    assert!(sockets[0].wire().aborted);
}
