//! TCP Fast Open of a whole stack (RFC 7413): cookies for peers, cookies of peers, and how much may be taken early.

use core::net::IpAddr;

use manypath_tcp::machine::Machine;
use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::options::FastOpen;

use super::Stack;
use crate::api::{ConnOptions, Event, EventKind, StackError};
use crate::conn::{Cx, FastOpenOutcome};
use crate::ids::ConnId;

/// A cookie longer than this leaves no room for MP_CAPABLE beside what every SYN carries.
const LONGEST_COOKIE: usize = 14;

impl Stack {
    /// A SYN of ours may take payload along: for a cookie, or since the peer takes it without.
    pub(super) fn offer_early(&self, tcp: &mut Machine, opts: &ConnOptions, tuple: &FourTuple) {
        let between = (tuple.local.ip(), tuple.remote.ip());
        if opts.fast_open {
            self.ask_fast_open(tcp, between);
        }
        if opts.data_in_syn && !self.jar.avoids(self.now, between) {
            tcp.offer_payload();
        }
    }

    /// A SYN of ours asks for a cookie, or shows the one we have.
    fn ask_fast_open(&self, tcp: &mut Machine, between: (IpAddr, IpAddr)) {
        let asked = self.jar.ask(self.now, between);
        let fits = |(option, _): &(FastOpen, u16)| option.cookie().len() <= LONGEST_COOKIE;
        if let Some((option, mss)) = asked.filter(fits) {
            tcp.offer_fast_open(option, mss);
        }
    }

    /// Answers the option of a SYN. True: its payload is to be taken.
    pub(super) fn grant_fast_open(&mut self, tcp: &mut Machine, seg: &Segment<'_>) -> bool {
        let Some(shown) = &seg.options.fastopen else {
            return false;
        };
        let (local, peer) = (seg.tuple.local.ip(), seg.tuple.remote.ip());
        if self.early_cookies.is_good(self.now, local, peer, shown) {
            if self.early >= self.config.max_early {
                self.counters.fast_open_limited += 1;
                return false;
            }
            return !seg.payload.is_empty();
        }
        self.counters.fast_open_refused += u64::from(!shown.cookie().is_empty());
        self.counters.fast_open_granted += 1;
        tcp.grant_fast_open(self.early_cookies.grant(self.now, local, peer));
        false
    }

    /// Answers a SYN that is held ([`hold_syns`](Self::hold_syns)); nothing is done for one that has its answer. A peer that is `proven`
    /// to have the address that it says gets data before it acknowledges the answer, too. To refuse, [`abort`](Self::abort).
    pub fn answer_syn(&mut self, now: Instant, id: ConnId, proven: bool) -> Result<(), StackError> {
        self.on_conn(now, id, |conn, _| {
            for sf in &mut conn.subflows {
                sf.tcp.answer_syn(proven);
            }
        })
    }

    /// Whether a connection's SYN waits for [`answer_syn`](Self::answer_syn).
    #[must_use]
    pub fn is_held(&self, id: ConnId) -> bool {
        let entry = self.conns.get(id.0);
        entry.is_some_and(|entry| entry.conn.subflows.is_held())
    }

    /// Whether the peer of a connection whose SYN brought payload has yet to acknowledge our answer, which shows that it has the address
    /// that it says. An `Established` event follows where the SYN was held.
    #[must_use]
    pub fn is_early(&self, id: ConnId) -> bool {
        let entry = self.conns.get(id.0);
        entry.is_some_and(|entry| entry.conn.subflows.is_early())
    }

    /// Gives a connection the payload of its SYN, and to its listener the connection.
    pub(super) fn enter_early(&mut self, conn: ConnId, payload: &[u8], held: bool) {
        self.early += 1;
        if let Some(entry) = self.conns.get_mut(conn.0) {
            (entry.early, entry.held) = (true, held);
        }
        self.with_conn(conn.0.index(), |conn, cx: &mut Cx<'_>| {
            conn.open_early(payload, cx)
        });
    }

    /// Takes in what a connection knows about Fast Open after it was touched.
    pub(super) fn settle_early(&mut self, slot: u32) {
        let Some(handle) = self.conns.handle_at(slot) else {
            return;
        };
        let Some(entry) = self.conns.at_mut(slot) else {
            return;
        };
        if entry.early && !entry.conn.subflows.is_early() {
            entry.early = false;
            self.early -= 1;
            if core::mem::take(&mut entry.held) && !entry.conn.life.has_ended() {
                self.events.push_back(Event {
                    at: self.now,
                    conn: Some(ConnId(handle)),
                    kind: EventKind::Established,
                });
            }
        }
        let first = entry.conn.handshake.first_tuple();
        if let Some(fast_open_outcome) = entry.conn.handshake.take_fast_open() {
            let between = (first.local.ip(), first.remote.ip());
            self.jar.learn(self.now, between, fast_open_outcome);
        }
    }

    /// The cookies that peers gave: our address, the peer's, the cookie, and the largest segment that the peer takes.
    /// Whoever keeps them over a restart gives them back by [`remember_cookie`](Self::remember_cookie).
    pub fn cookies(&self) -> impl Iterator<Item = (IpAddr, IpAddr, FastOpen, u16)> + '_ {
        self.jar.cookies()
    }

    /// Tells of a cookie that a peer gave to one of our addresses earlier.
    pub fn remember_cookie(&mut self, local: IpAddr, peer: IpAddr, cookie: FastOpen, mss: u16) {
        let fast_open_outcome = FastOpenOutcome::Cookie { cookie, mss };
        self.jar.learn(self.now, (local, peer), fast_open_outcome);
    }
}
