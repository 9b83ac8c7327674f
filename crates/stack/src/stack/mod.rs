//! The stack as a whole: the sans-IO contract of the project on top of connections, listeners and tables.
//!
//! Owns who gets which packet and who may send next. What a connection does with its turn is its own business.

mod control;
mod cookies;
pub(crate) mod demux;
mod fastopen;
mod fragments;
mod handle;
mod input;
mod jar;
mod limits;
mod listener;
mod open;
mod output;
mod passive;
mod paths;
mod pressure;
mod race;
pub use cookies::SynCookiePolicy;
pub use handle::ReadOutcome;
pub use race::RaceId;
pub(crate) mod ports;
mod reply;
mod shares;
pub(crate) mod timewait;
pub(crate) mod wheel;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use manypath_tcp::machine::{Config as TcpConfig, CongestionConfig, TcpOptions, Timeouts};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::timer::Soonest;
use manypath_wire::ids::FourTuple;

use crate::api::{ConnOptions, Event, EventKind, IfaceId, Path};
use crate::conn::{Conn, Cx};
use crate::crypto::cookie::SynCookies;
use crate::crypto::early::FastOpenCookies;
use crate::crypto::isn::IsnSource;
use crate::crypto::keypool::{KeyPool, TokenHome};
use crate::crypto::rng::Rng;
use crate::ids::{ConnId, ListenerId};
use crate::sched::Preference;
use crate::shape::{Shaper, Shares};
use crate::slab::Slab;
use crate::stats::Counters;
use demux::{Demux, Target};
use fragments::Fragments;
use jar::CookieJar;
use limits::{Cost, Source, Usage};
use listener::Listener;
use paths::Resting;
use ports::Ports;
use race::Races;
use reply::Replies;
use timewait::{Reply, TimeWait};
use wheel::Wheel;

/// Limits and habits of a whole stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackConfig {
    /// Connections at one time, half-open ones included.
    pub max_connections: usize,
    /// Established connections at one time that peers of one address may open; of IPv6, of one network of 64 bits.
    pub max_per_source: usize,
    /// Bytes of memory that connections may hold. From half of it on, what peers were told they may send counted, receive
    /// windows grow no more. From half of it on that is held little is taken from applications beyond what is in flight,
    /// peers that made a connection hold more than its share and do not move are not listened to, and connections that get
    /// nowhere are ended; from three quarters on joins are refused with MP_TCPRST reason 2. When all is held new connections
    /// are refused, and those that hold most and move least are ended.
    pub max_memory: usize,
    /// How long a connection may get nowhere (a handshake that is not finished, a closed window, a hole that stays open, less
    /// than 4096 bytes a second acknowledged or read of more than a share of the memory)
    /// before it makes room for others when `max_connections` or half of `max_memory` is reached; a quarter of that with
    /// three quarters of the memory in use.
    pub patience: Duration,
    /// The window, in bytes, of a connection that the application has not accepted yet.
    pub unaccepted_window: u32,
    /// Keys that are made ahead, so that answering a SYN hashes nothing.
    pub key_pool: usize,
    /// Which tokens lead to this stack, where several share an address.
    pub token_home: TokenHome,
    /// Answer segments that belong to nothing with a reset.
    pub reset_unknown: bool,
    /// Resets and the like that may be sent for nothing in particular, each second.
    pub replies_per_second: u32,
    /// When SYNs are answered without being remembered.
    pub syn_cookies: SynCookiePolicy,
    /// Connections that may have data of their SYN while the handshake goes on (RFC 7413 section 5.1).
    pub max_early: usize,
    /// Lower bound of the retransmission time-out.
    pub min_rto: Duration,
    /// How long TIME-WAIT lasts.
    pub time_wait: Duration,
    /// TIME-WAIT records at one time.
    pub max_time_wait: usize,
    /// Initial congestion window in segments (RFC 6928).
    pub initial_window: u32,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            max_connections: 65_536,
            max_per_source: 16_384,
            max_memory: 1 << 30,
            patience: Duration::from_secs(20),
            unaccepted_window: 64 << 10,
            key_pool: 64,
            token_home: TokenHome::ANY,
            reset_unknown: true,
            replies_per_second: 1_000,
            syn_cookies: SynCookiePolicy::WhenFull,
            max_early: 256,
            min_rto: Duration::from_millis(200),
            time_wait: Duration::from_secs(60),
            max_time_wait: 32_768,
            initial_window: 10,
        }
    }
}

/// A connection and its place in the stack.
struct Entry {
    conn: Box<Conn>,
    /// Set until the application has accepted it.
    listener: Option<ListenerId>,
    /// What it cost when that was last looked at.
    cost: Cost,
    /// Its deadline and its cost have been looked at since it was touched.
    assessed: bool,
    /// The address that its established connection counts for.
    source: Option<Source>,
    /// It counts among those that have data of their SYN.
    early: bool,
    /// The SYN waited for the application's answer, which its peer has not acknowledged.
    held: bool,
    /// In the queue of those that may have something to send.
    ready: bool,
    /// It was changed since [`Conn::reconcile`].
    to_reconcile: bool,
    /// The race of which it is an attempt that is not decided.
    race: Option<RaceId>,
    /// The limits that hold for it besides those of paths.
    shares: Shares,
}

impl Entry {
    /// The tables know all about its connection, which goes on and has nothing to tell.
    fn is_settled(&self) -> bool {
        let offered = self.listener.is_none() || self.conn.life.offered();
        let listed = offered || !self.conn.handshake.is_established();
        let decided = self.race.is_none();
        listed && decided && !self.early && self.conn.is_settled() && !self.conn.life.has_ended()
    }
}

/// A whole Multipath TCP stack without input, output, clock or randomness of its own.
///
/// After any input call [`poll_transmit`](Self::poll_transmit) until it says `Nothing` or `Blocked`, then
/// [`poll_event`](Self::poll_event) until `None`, then [`poll_deadline`](Self::poll_deadline).
pub struct Stack {
    config: StackConfig,
    conns: Slab<Entry>,
    listeners: Slab<Listener>,
    demux: Demux,
    wheel: Wheel,
    ports: Ports,
    /// Addresses from which subflows are opened.
    paths: Vec<Path>,
    shaper: Shaper,
    /// What an operator wants of the paths, for connections that begin.
    preferences: Vec<(IfaceId, Preference)>,
    races: Races,
    /// Other addresses of the host.
    resting: Vec<Resting>,
    /// The broadcast addresses of the networks that the host is on.
    broadcasts: Vec<Ipv4Addr>,
    rng: Rng,
    isn: IsnSource,
    syn_cookies: SynCookies,
    /// Until then a third packet of a forgotten handshake may come.
    cookies_until: Instant,
    /// Until then segments may come whose third packet was dropped for want of room in the backlog.
    thirds_dropped_until: Instant,
    early_cookies: FastOpenCookies,
    jar: CookieJar,
    /// Connections that have data of their SYN and whose handshake goes on.
    early: usize,
    keys: KeyPool,
    counters: Counters,
    events: VecDeque<Event>,
    ready: VecDeque<u32>,
    /// Connections that were touched, whose deadline and memory are looked at when somebody asks for either: each packet
    /// touches a connection several times, and both take a look at every subflow.
    touched: Vec<u32>,
    /// Scratch space of `handle_timeout`.
    due: Vec<u32>,
    replies: Replies,
    fragments: Fragments,
    time_wait: TimeWait,
    usage: Usage,
    /// The latest time that was told; time never runs backwards in here.
    now: Instant,
}

impl Stack {
    /// An idle stack. `seed` decides everything random: 32 bytes that nobody can guess, or, in a simulator, that
    /// somebody chose.
    pub fn new(config: StackConfig, seed: [u8; 32], now: Instant) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            conns: Slab::new(),
            listeners: Slab::new(),
            demux: Demux::new(&mut rng),
            wheel: Wheel::default(),
            ports: Ports::new(&mut rng),
            paths: Vec::new(),
            shaper: Shaper::default(),
            preferences: Vec::new(),
            races: Races::default(),
            resting: Vec::new(),
            broadcasts: Vec::new(),
            isn: IsnSource::new(&mut rng),
            time_wait: TimeWait::new(config.max_time_wait, &mut rng),
            usage: Usage::new(&mut rng),
            syn_cookies: SynCookies::new(&mut rng, config.token_home.mask.count_ones()),
            cookies_until: Instant::ZERO,
            thirds_dropped_until: Instant::ZERO,
            early_cookies: FastOpenCookies::new(&mut rng),
            jar: CookieJar::default(),
            early: 0,
            keys: KeyPool::new(config.key_pool, config.token_home),
            counters: Counters::default(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            touched: Vec::new(),
            due: Vec::new(),
            replies: Replies::new(config.replies_per_second),
            fragments: Fragments::default(),
            rng,
            now,
            config,
        }
    }

    fn tick(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// What was decided how often.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The local addresses that subflows can be opened from.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Whether a four-tuple, seen from our side, is a subflow's, be it in TIME-WAIT.
    pub fn knows(&self, tuple: &FourTuple) -> bool {
        self.demux.subflow(tuple).is_some() || self.time_wait.contains(tuple)
    }

    /// Subflows that are over but for their TIME-WAIT.
    pub fn time_waits(&self) -> usize {
        self.time_wait.len()
    }

    /// Connections, whatever their state.
    pub fn conns(&self) -> Vec<ConnId> {
        self.conns
            .iter()
            .map(|(handle, _)| ConnId(handle))
            .collect()
    }

    fn for_each_conn(&mut self, mut f: impl FnMut(&mut Conn, &mut Cx<'_>)) {
        let slots: Vec<u32> = self
            .conns
            .iter()
            .map(|(handle, _)| handle.index())
            .collect();
        for slot in slots {
            self.with_conn(slot, &mut f);
        }
    }

    /// Runs something on a connection and settles what follows from it.
    fn with_conn<R>(
        &mut self,
        slot: u32,
        f: impl FnOnce(&mut Conn, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        self.with_entry(slot, |entry, cx| {
            let result = f(&mut entry.conn, cx);
            entry.conn.subflows.mark_dirty();
            entry.conn.reconcile(cx);
            entry.to_reconcile = false;
            result
        })
    }

    /// As `with_conn`, but what follows is settled when the connection has its next turn.
    fn with_conn_stirred<R>(
        &mut self,
        slot: u32,
        f: impl FnOnce(&mut Conn, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        self.with_entry(slot, |entry, cx| {
            entry.to_reconcile = true;
            f(&mut entry.conn, cx)
        })
    }

    fn with_entry<R>(
        &mut self,
        slot: u32,
        f: impl FnOnce(&mut Entry, &mut Cx<'_>) -> R,
    ) -> Option<R> {
        let entry = self.conns.at_mut(slot)?;
        let mut cx = Cx::new(self.now, &mut self.counters, &mut self.rng);
        let result = f(entry, &mut cx);
        self.settle(slot);
        Some(result)
    }

    /// A connection was changed, and what follows from that is left to its next turn.
    fn reconcile_later(&mut self, slot: u32) {
        if let Some(entry) = self.conns.at_mut(slot) {
            entry.to_reconcile = true;
            entry.conn.subflows.mark_dirty();
            self.enqueue(slot);
        }
    }

    /// Gives a connection a turn, and has its deadline looked at again.
    fn enqueue(&mut self, slot: u32) {
        let Some(entry) = self.conns.at_mut(slot) else {
            return;
        };
        if core::mem::take(&mut entry.assessed) {
            self.touched.push(slot);
        }
        if !core::mem::replace(&mut entry.ready, true) {
            self.ready.push_back(slot);
        }
    }

    /// Gives a connection a turn that nothing about it has changed for.
    fn give_turn(&mut self, slot: u32) {
        if let Some(entry) = self.conns.at_mut(slot)
            && !core::mem::replace(&mut entry.ready, true)
        {
            self.ready.push_back(slot);
        }
    }

    /// Brings the tables up to date with a connection that was touched.
    fn settle(&mut self, slot: u32) {
        // Most segments leave nothing to bring up to date.
        if self.conns.at(slot).is_some_and(Entry::is_settled) {
            self.enqueue(slot);
            return;
        }
        self.settle_race(slot);
        self.settle_early(slot);
        self.settle_departed(slot);
        self.settle_wanted(slot);
        self.settle_events(slot);
        let Some(handle) = self.conns.handle_at(slot) else {
            return;
        };
        let Some(entry) = self.conns.at_mut(slot) else {
            return;
        };
        let half_open = entry.listener.is_some() && !entry.conn.handshake.is_established();
        // Neither the application nor the network needs it any more.
        let dead = entry.conn.life.has_ended() && entry.conn.subflows.is_empty();
        if dead && (entry.conn.life.is_released() || half_open) {
            self.forget(handle, slot);
            return;
        }
        self.enqueue(slot);
    }

    /// Brings deadlines and the sum of memory up to date, and has connections end if that is too much.
    fn assess(&mut self) {
        self.assess_touched();
        if !self.permits().roomy {
            self.relieve();
            self.assess_touched();
        }
    }

    fn assess_touched(&mut self) {
        while let Some(slot) = self.touched.pop() {
            // Where no device takes anything, nobody has turns.
            if self.conns.at(slot).is_some_and(|entry| entry.to_reconcile) {
                self.with_conn(slot, |_, _| ());
            }
            let Some(entry) = self.conns.at_mut(slot).filter(|entry| !entry.assessed) else {
                continue;
            };
            entry.assessed = true;
            self.wheel.update(slot, entry.conn.deadline());
            self.charge(slot);
        }
    }

    fn settle_departed(&mut self, slot: u32) {
        let Some(entry) = self.conns.at_mut(slot) else {
            return;
        };
        if !entry.conn.subflows.was_removed() {
            return;
        }
        for gone in entry.conn.subflows.take_removed() {
            let target = Target {
                conn: slot,
                subflow: gone.subflow,
            };
            self.demux.remove_subflow(&gone.tuple, target);
            if let Some(last) = gone.last_ack {
                let reply = Reply {
                    tuple: gone.tuple,
                    iface: last.iface,
                    header: last.header,
                    timestamps: last.timestamps,
                };
                self.time_wait
                    .insert(self.now, reply, self.config.time_wait);
            } else {
                self.ports
                    .rest(gone.tuple, self.now + self.config.time_wait);
            }
        }
        self.counters.time_wait_evicted = self.time_wait.evicted();
    }

    fn settle_wanted(&mut self, slot: u32) {
        while let Some(create) = self
            .conns
            .at_mut(slot)
            .and_then(|entry| entry.conn.paths.poll_wanted())
        {
            self.open_wanted(slot, &create);
        }
        self.settle_orders(slot);
    }

    fn settle_events(&mut self, slot: u32) {
        let Some(handle) = self.conns.handle_at(slot) else {
            return;
        };
        let Some(entry) = self.conns.at_mut(slot) else {
            return;
        };
        let id = ConnId(handle);
        while let Some(kind) = entry.conn.poll_event() {
            self.events.push_back(Event {
                at: self.now,
                conn: Some(id),
                kind,
            });
        }
        let newly = entry.conn.handshake.is_established() && !entry.conn.life.offered();
        if let (true, Some(listener_id)) = (newly, entry.listener) {
            entry.conn.life.set_offered();
            let source = Source::of(entry.conn.handshake.first_tuple().remote.ip());
            entry.source = Some(source);
            self.usage.arrived(source);
            if let Some(listener) = self.listeners.get_mut(listener_id.0) {
                listener.established(id);
                self.events.push_back(Event {
                    at: self.now,
                    conn: Some(id),
                    kind: EventKind::Acceptable(listener_id),
                });
            } else {
                // The listener was closed in the meantime: nobody will ever accept it.
                let mut cx = Cx::new(self.now, &mut self.counters, &mut self.rng);
                entry.conn.ending().release_and_abort(&mut cx);
                entry.to_reconcile = true;
                entry.conn.subflows.mark_dirty();
            }
        }
    }

    fn forget(&mut self, handle: crate::slab::Handle, slot: u32) {
        self.wheel.update(slot, None);
        let Some(entry) = self.conns.remove(handle) else {
            return;
        };
        self.leave_race(ConnId(handle), entry.race);
        self.shaper.limit_one(entry.shares.own, None, self.now);
        self.usage.recharge(entry.cost, Cost::default());
        if let Some(source) = entry.source {
            self.usage.left(source);
        }
        if let Some(token) = entry.conn.handshake.keys.token() {
            self.demux.remove_token(token, slot);
        }
        if let Some(listener) = entry.listener.and_then(|id| self.listeners.get_mut(id.0)) {
            listener.lost(ConnId(handle));
        }
    }

    /// Time has passed: runs what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.tick(now);
        self.assess();
        // Each connection has one turn: whatever it wants next, the others are not kept waiting.
        let mut due = core::mem::take(&mut self.due);
        due.extend(core::iter::from_fn(|| self.wheel.pop_due(now)));
        for slot in due.drain(..) {
            self.with_conn(slot, Conn::on_timeout);
        }
        self.due = due;
        self.time_wait.expire(now, usize::MAX);
        self.expire_fragments();
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_deadline(&mut self) -> Option<Instant> {
        self.assess();
        let mut soonest = Soonest::default();
        soonest.consider(self.wheel.earliest());
        soonest.consider(self.time_wait.deadline());
        soonest.consider(self.fragments.deadline());
        soonest.consider(self.shaper.deadline());
        soonest.get()
    }

    /// The next thing to tell.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn machine_config(&self, opts: &ConnOptions, path: &Path, timestamp_offset: u32) -> TcpConfig {
        TcpConfig {
            mss: path.mss(),
            recv_window: opts.recv_buffer,
            nagle: !opts.nodelay,
            keepalive: opts.keepalive,
            user_timeout: opts.user_timeout,
            options: TcpOptions {
                timestamp_offset,
                ..TcpOptions::default()
            },
            congestion: CongestionConfig {
                ecn: opts.ecn,
                algorithm: opts.congestion,
                capping: opts.mechanisms.cap,
                pacing: opts.pacing,
                initial_window: self.config.initial_window,
            },
            timeouts: Timeouts {
                min_rto: self.config.min_rto,
                time_wait: self.config.time_wait,
                ..Timeouts::default()
            },
            ..TcpConfig::default()
        }
    }
}
