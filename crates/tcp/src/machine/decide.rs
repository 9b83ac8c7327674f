//! What to send next: a pure choice, so that asking twice gives the same answer and nothing counts as sent before it is.

use manypath_wire::seq::{SeqNum, Ssn};

use super::Machine;
use super::plan::{Decision, Kind, Offer, Plan};
use super::state::State;
use crate::send::loss::{BEHIND_MTU_PROBE, Retransmit};
use crate::send::{Follows, Snapshot, Wait, choose};
use crate::time::Instant;

/// What a caller offers that has nothing to send.
const NOTHING: Offer = Offer {
    available: 0,
    fin: false,
    option_space: 0,
    max_burst: 0,
    push: false,
    no_nagle: false,
    probe_new: false,
};

impl Machine {
    /// The one thing to send now, given what the caller offers. Changes nothing: ask again after
    /// [`sent`](Self::sent) until it answers [`Decision::Idle`].
    pub fn decide(&self, now: Instant, offer: &Offer) -> Decision {
        match self.next(now, offer) {
            Some(plan) => Decision::Send(plan),
            None => Decision::Idle,
        }
    }

    /// Something is to be sent even without new payload: a control segment, a retransmission, an acknowledgement.
    pub fn needs_send(&self, now: Instant) -> bool {
        let quiet = self.is_quiet(now);
        debug_assert!(!quiet || self.next(now, &NOTHING).is_none());
        !quiet && self.next(now, &NOTHING).is_some()
    }

    /// Nothing of what could make a subflow send without new payload is there: no answer that is owed, no loss, no probe.
    /// A quick look for the usual case.
    fn is_quiet(&self, now: Instant) -> bool {
        let syn_waits = self.syn_left() && !self.syn_again;
        (self.state.is_synchronized() || syn_waits)
            && !self.reset_due
            && !self.recv.ack.due(now)
            && !self.send.loss.has_repairs()
            && !self.prober.due()
    }

    /// Bytes of the offered new payload that [`decide`](Self::decide) would send now if nothing else were due. Zero while
    /// congestion control, the peer's window or pacing is in the way, or leaves less than is worth sending; what only
    /// Nagle's rule holds back counts, since it belongs behind the small segment that it waits for.
    pub fn can_send_new(&self, now: Instant, offer: &Offer) -> u32 {
        let open = self.may_send() && !self.reset_due && self.send.fin.is_none();
        if !open || offer.available == 0 || !self.pacing_permits(now) {
            return 0;
        }
        if let Some(probe) = self.next_mtu_probe(now, offer, self.send.window_room()) {
            return probe.len;
        }
        match self.choose_new(offer) {
            Ok(len) => len,
            Err(Wait::Small) => offer.available,
            Err(Wait::Nothing | Wait::Congestion | Wait::PeerWindow) => 0,
        }
    }

    /// The peer's window has been closed for so long that it should be asked about (RFC 9293 section 3.8.6.1):
    /// [`decide`](Self::decide) does so if there is something to send.
    #[must_use]
    pub fn window_probe_due(&self) -> bool {
        self.send.persist.due()
    }

    /// A tail loss probe is due (RFC 8985 section 7.3): [`decide`](Self::decide) sends it before anything new.
    #[must_use]
    pub fn tail_probe_due(&self) -> bool {
        self.state.is_synchronized() && self.send.loss.tail_probe(self.mss()).is_some()
    }

    /// Congestion control leaves no whole segment of so many bytes while something is in flight:
    /// [`can_send_new`](Self::can_send_new) is nothing. This is known sooner, and with many subflows nearly all are so.
    pub fn is_congested(&self, available: u32, option_space: u8) -> bool {
        let room = self.send.loss.allowance();
        let less = room < self.data_mss(option_space).min(available);
        less && room < self.send.window_room() && self.send.loss.outstanding()
    }

    fn pacing_permits(&self, now: Instant) -> bool {
        self.send.loss.pacing_ready(now) <= now
    }

    fn next(&self, now: Instant, offer: &Offer) -> Option<Plan> {
        if self.reset_due {
            return Some(self.plan(Kind::Reset, self.send.nxt()));
        }
        match self.state {
            State::Closed => None,
            State::SynSent => self.next_syn(Kind::Syn, offer),
            State::SynReceived if self.is_held() => None,
            State::SynReceived => {
                self.next_syn(Kind::SynAck, offer)
                    .or_else(|| match self.is_early() {
                        // A bare acknowledgement could not say more than the SYN+ACK, and the peer, which expects an
                        // option of its layers above on it, might take its absence for a refusal.
                        true if self.is_open_early() => {
                            self.next_new(now, self.pacing_permits(now), offer)
                        }
                        true => None,
                        false => self.next_ack(now),
                    })
            }
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => self.next_synchronized(now, offer),
        }
    }

    fn next_syn(&self, kind: Kind, offer: &Offer) -> Option<Plan> {
        // Data that was sent early waits with its retransmission until the SYN is acknowledged.
        let lost = || self.send.loss.next_retransmit(self.mss(), 0);
        let again = || self.syn_again || lost().is_some_and(|lost| lost.syn);
        if self.syn_left() && !again() {
            return None;
        }
        Some(Plan {
            syn: true,
            len: self.payload_for_syn(kind, offer),
            ..self.plan(kind, self.isn)
        })
    }

    fn next_synchronized(&self, now: Instant, offer: &Offer) -> Option<Plan> {
        // SACK blocks travel on bare acknowledgements only, so that they never shrink data segments. They go first:
        // a data segment would acknowledge without them.
        if self.recv.ack.due(now) && self.recv.has_blocks() {
            return self.next_ack(now);
        }
        let paced = self.pacing_permits(now);
        paced
            .then(|| {
                // F-RTO tells a late acknowledgement from a loss by new data (RFC 5682 section 2.1 step 2).
                let first = self
                    .send
                    .loss
                    .prefers_new()
                    .then(|| self.next_new(now, paced, offer));
                first.flatten().or_else(|| self.next_retransmit(offer))
            })
            .flatten()
            .or_else(|| self.next_tail_probe(offer))
            .or_else(|| self.next_new(now, paced, offer))
            .or_else(|| self.next_window_probe(offer))
            .or_else(|| self.next_ack(now))
            .or_else(|| self.next_keepalive())
    }

    fn next_ack(&self, now: Instant) -> Option<Plan> {
        self.recv
            .ack
            .due(now)
            .then(|| self.plan(Kind::Ack, self.send.nxt()))
    }

    fn next_keepalive(&self) -> Option<Plan> {
        self.prober
            .due()
            .then(|| self.plan(Kind::KeepAlive, self.send.una() - 1))
    }

    fn next_window_probe(&self, offer: &Offer) -> Option<Plan> {
        let wanted = offer.available > 0 || offer.fin;
        (wanted && self.send.persist.due())
            .then(|| self.plan(Kind::WindowProbe, self.send.una() - 1))
    }

    /// An empty plan.
    pub(super) fn plan(&self, kind: Kind, seq: SeqNum) -> Plan {
        Plan {
            kind,
            seq,
            ssn: Ssn::of(seq, self.base),
            len: 0,
            fin: false,
            syn: false,
            push: false,
            mss: self.mss(),
        }
    }

    /// Whole segments of a burst of at most `max_burst` bytes.
    fn burst(&self, offer: &Offer, mss: u32) -> u32 {
        if offer.max_burst < mss.saturating_mul(2) {
            // No burst whatever the pacer thinks, whose rate takes a division for each segment.
            return mss;
        }
        let limit = offer.max_burst.min(self.send.loss.burst());
        (limit / mss).max(1) * mss
    }

    fn next_retransmit(&self, offer: &Offer) -> Option<Plan> {
        if !self.send.loss.has_repairs() {
            return None;
        }
        let mss = self.data_mss(offer.option_space);
        let lost = self
            .send
            .loss
            .next_retransmit(mss, self.burst(offer, mss))?;
        Some(self.again(Kind::Retransmit, &lost, mss))
    }

    fn again(&self, kind: Kind, r: &Retransmit, mss: u32) -> Plan {
        let len = r.len - u32::from(r.fin) - u32::from(r.syn);
        let push = r.seq + r.len == self.send.nxt();
        Plan {
            len,
            fin: r.fin,
            push,
            mss,
            ..self.plan(kind, r.seq + u32::from(r.syn))
        }
    }

    fn next_tail_probe(&self, offer: &Offer) -> Option<Plan> {
        let mss = self.data_mss(offer.option_space);
        let last = self.send.loss.tail_probe(mss)?;
        // RFC 8985 section 7.3: new data if the peer's window takes it, else the last segment again.
        let len = offer.available.min(mss);
        if offer.probe_new
            && len > 0
            && self.state.may_send()
            && self.send.fin.is_none()
            && self.send.window_room() >= len
        {
            let push = len == offer.available;
            return Some(Plan {
                len,
                push,
                mss,
                ..self.plan(Kind::TailProbe, self.send.nxt())
            });
        }
        Some(self.again(Kind::TailProbe, &last, mss))
    }

    /// One segment larger than the path is known to carry (RFC 8899), if one is wanted and can be filled.
    fn next_mtu_probe(&self, now: Instant, offer: &Offer, room: u32) -> Option<Plan> {
        let size = self.send.loss.mtu_probe(now)?;
        let len = size.saturating_sub(u32::from(offer.option_space));
        // Enough has to follow for its loss to be noticed without a time-out (RFC 4821 section 7.4).
        let needed = len + BEHIND_MTU_PROBE * self.mss();
        (len > self.mss() && needed <= offer.available.min(room)).then(|| Plan {
            len,
            mss: len,
            ..self.plan(Kind::Data, self.send.nxt())
        })
    }

    /// How much new payload to send, congestion and peer permitting.
    fn choose_new(&self, offer: &Offer) -> Result<u32, Wait> {
        let mss = self.data_mss(offer.option_space);
        choose(&Snapshot {
            available: offer.available,
            follows: match (offer.fin, offer.push || offer.no_nagle) {
                (true, _) => Follows::Fin,
                (false, true) => Follows::Nothing,
                (false, false) => Follows::More,
            },
            mss,
            max_burst: self.burst(offer, mss),
            cwnd_room: self.send.loss.allowance(),
            window_room: self.send.window_room(),
            window_largest: self.send.window.largest(),
            unacked: self.send.unacked(),
            nagle: self.cfg.nagle && !offer.no_nagle,
            forced: self.send.persist.due(),
            cwnd: self.send.loss.cc().cwnd(),
        })
    }

    fn next_new(&self, now: Instant, paced: bool, offer: &Offer) -> Option<Plan> {
        if !self.may_send() || self.send.fin.is_some() {
            return None;
        }
        // A FIN waits until the handshake is over.
        let fin = offer.fin && self.state.may_send();
        let (nxt, room) = (self.send.nxt(), self.send.window_room());
        if offer.available == 0 {
            // A FIN alone waits for the window, but neither for the congestion window nor for the pacer.
            return (fin && room > 0).then(|| Plan {
                fin: true,
                push: true,
                ..self.plan(Kind::Fin, nxt)
            });
        }
        if !paced {
            return None;
        }
        if let Some(probe) = self.next_mtu_probe(now, offer, room) {
            return Some(probe);
        }
        let mss = self.data_mss(offer.option_space);
        let len = self.choose_new(offer).ok()?;
        let last = len == offer.available;
        let fin = fin && last && room > len;
        Some(Plan {
            len,
            fin,
            push: fin || (last && (offer.push || offer.no_nagle)),
            mss,
            ..self.plan(Kind::Data, nxt)
        })
    }
}
