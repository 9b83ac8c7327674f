//! One limit: its tokens, and the connections that wait for them in the order in which they came.

use alloc::collections::VecDeque;

use manypath_tcp::time::{Duration, Instant};

use super::bucket::Bucket;
use super::turns::{Share, Turns};
use super::{Held, LimitState};
use crate::api::RateLimit;

/// A connection that waits, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    /// The connection's place in the stack's table.
    slot: u32,
    /// Bytes of the packet that it wants to send.
    bytes: u64,
    /// Where classes have weights: the one with the lowest comes first.
    turn: u64,
}

/// How long the first in line keeps its place while it waits for another limit, where that costs tokens.
const PATIENCE: Duration = Duration::from_millis(10);

/// A limit, and who waits for it. First come, first served: a connection that sends long bursts is not starved by those that send short ones.
#[derive(Debug)]
pub(super) struct Gate {
    bucket: Bucket,
    line: VecDeque<Waiter>,
    turns: Turns,
    held: Held,
    sent: u64,
    /// Somebody waits since then.
    since: Option<Instant>,
    /// The first in line has been given a turn and has not asked since.
    pub(super) called: bool,
    /// The first in line keeps its place until then: it waits for another limit.
    pub(super) not_before: Option<Instant>,
    /// Whose tokens come at that time, and are taken by nobody else before.
    reserved: Option<(u32, Instant)>,
    /// When the first in line has its tokens, as it is noted in the shaper.
    pub(super) wake_at: Option<Instant>,
}

impl Gate {
    pub(super) fn new(limit: RateLimit, now: Instant) -> Self {
        Self {
            bucket: Bucket::new(limit, now),
            line: VecDeque::new(),
            turns: Turns::default(),
            held: Held::default(),
            sent: 0,
            since: None,
            called: false,
            not_before: None,
            reserved: None,
            wake_at: None,
        }
    }

    pub(super) fn change(&mut self, limit: RateLimit, now: Instant) {
        self.bucket.change(limit, now);
    }

    pub(super) fn limit(&self) -> RateLimit {
        self.bucket.limit()
    }

    pub(super) fn state(&self, now: Instant) -> LimitState {
        let waits = self.since.map_or(Duration::ZERO, |since| now.since(since));
        LimitState {
            limit: self.bucket.limit(),
            tokens: self.bucket.tokens(now),
            held: Held {
                time: self.held.time + waits,
                ..self.held
            },
            sent: self.sent,
            waiting: self.line.len(),
        }
    }

    /// Whether a packet of this connection may leave now; `called`: it has its turn since some limit has tokens for it, and goes before those
    /// who wait here.
    pub(super) fn permits(&mut self, slot: u32, bytes: u64, called: bool, now: Instant) -> bool {
        if !self.is_open_to(slot, called, now) {
            return false;
        }
        self.bucket.ready_at(bytes, now).is_some_and(|at| at <= now)
    }

    fn is_open_to(&self, slot: u32, called: bool, now: Instant) -> bool {
        if let Some((who, _)) = self.reserved.filter(|(_, until)| *until >= now) {
            return who == slot;
        }
        called || self.line.front().is_none_or(|first| first.slot == slot)
    }

    /// Reserves what a packet of a connection needs, which has its turn at another limit: gives when it is there. `None`: others are before it,
    /// or it would take longer than until `latest`.
    pub(super) fn reserve(
        &mut self,
        slot: u32,
        bytes: u64,
        latest: Instant,
        now: Instant,
    ) -> Option<Instant> {
        if !self.is_open_to(slot, true, now) {
            return None;
        }
        let at = self
            .bucket
            .ready_at(bytes, now)
            .filter(|at| *at <= latest)?;
        self.reserved = Some((slot, at));
        Some(at)
    }

    /// How long the first in line may keep its place while it waits for another limit: until the bucket is full, so that no token is lost, and a
    /// moment in any case.
    pub(super) fn patience(&mut self, now: Instant) -> Instant {
        let full = self.bucket.full_at(now).unwrap_or(now);
        full.max(now + PATIENCE)
    }

    /// Takes the tokens of a packet that leaves.
    pub(super) fn charge(&mut self, bytes: u64, now: Instant) {
        self.bucket.charge(bytes, now);
        self.sent += bytes;
    }

    /// Somebody who waits here has sent so much by another path.
    pub(super) fn note_elsewhere(&mut self, bytes: u64) {
        self.held.elsewhere += bytes;
    }

    /// A connection has what was reserved for it.
    pub(super) fn served(&mut self, slot: u32) {
        if self.reserved.is_some_and(|(who, _)| who == slot) {
            self.reserved = None;
        }
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.line.front().map(|first| first.slot)
    }

    /// When the first in line has its tokens; `None`: nobody waits, or nothing ever comes.
    pub(super) fn first_ready_at(&mut self, now: Instant) -> Option<Instant> {
        let Waiter { slot, bytes, .. } = *self.line.front()?;
        let at = self.bucket.ready_at(bytes, now)?;
        let reserved = self
            .reserved
            .filter(|(who, until)| *who != slot && *until >= now);
        let free = reserved.map(|(_, until)| until + Duration::from_nanos(1));
        let others = [self.not_before, free].into_iter().flatten();
        Some(others.fold(at, Instant::max))
    }

    /// The first in line wants this much now.
    pub(super) fn ask_again(&mut self, bytes: u64) {
        if let Some(first) = self.line.front_mut() {
            first.bytes = bytes;
        }
        self.called = false;
    }

    /// A connection waits from now on; `share`: of a class that goes by weights. The first in line stays so once it was promised its tokens.
    pub(super) fn join(&mut self, slot: u32, bytes: u64, share: Option<Share>, now: Instant) {
        if self.line.is_empty() {
            self.since = Some(now);
            self.held.times += 1;
        }
        let Some(share) = share else {
            let turn = self.line.back().map_or(0, |last| last.turn);
            self.line.push_back(Waiter { slot, bytes, turn });
            return;
        };
        let turn = self.turns.take(share, bytes);
        let place = self.line.partition_point(|other| other.turn <= turn);
        let promised = self.called || self.not_before.is_some();
        let place = place.max(usize::from(promised && !self.line.is_empty()));
        self.line.insert(place, Waiter { slot, bytes, turn });
    }

    /// The first in line waits no more.
    pub(super) fn leave(&mut self, now: Instant) -> Option<u32> {
        let gone = self.line.pop_front()?;
        self.turns.had(gone.turn);
        self.called = false;
        self.not_before = None;
        if self.line.is_empty() {
            self.settle_time(now);
        }
        Some(gone.slot)
    }

    fn settle_time(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.held.time += now.since(since);
        }
    }
}
