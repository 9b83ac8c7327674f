//! TCP Fast Open on one subflow (RFC 7413): payload in the SYN, and data before our SYN is acknowledged.
//!
//! Payload of a SYN is no part of the subflow's sequence as the layers above number it: relative sequence numbers begin
//! behind what the peer took of it, so that the first byte after the handshake is number one whether or not a SYN
//! carried payload (RFC 8684 appendix B.2). What the peer did not take was never sent (appendix B.3).

use core::ops::Range;

use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::options::FastOpen;

use super::Machine;
use super::plan::{Kind, Offer};
use super::state::State;

/// Option space that a SYN with payload is held to need: all of it.
const SYN_OPTIONS: u32 = 40;

/// What one subflow does about Fast Open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Early {
    /// Goes on our first SYN: a request or a cookie.
    option: Option<FastOpen>,
    /// Goes on our SYN+ACK: a cookie for the next time.
    grant: Option<FastOpen>,
    /// Payload that our SYN may carry; zero without a cookie.
    room: u32,
    /// Payload that our SYN carried.
    in_syn: u32,
    /// What the peer acknowledged of it together with our SYN.
    taken: u32,
    /// Payload of the peer's SYN was taken.
    took: bool,
    /// Our SYN+ACK waits until somebody has decided about the connection.
    held: bool,
    /// The peer proved that it is where it says: data may be sent before it acknowledges our SYN.
    open: bool,
}

impl Machine {
    /// Asks for Fast Open on the first SYN: by a request for a cookie, or by a cookie, which lets payload go along. The
    /// peer is known to take segments of `peer_mss` bytes.
    pub fn offer_fast_open(&mut self, option: FastOpen, peer_mss: u16) {
        self.early.option = Some(option);
        self.early.room = if option.cookie().is_empty() {
            0
        } else {
            u32::from(self.cfg.mss.min(peer_mss)).saturating_sub(SYN_OPTIONS)
        };
    }

    /// Lets our first SYN carry payload without a cookie: the peer is known to take it for what the payload itself proves
    /// (RFC 8803 section 4.1, for example).
    pub fn offer_payload(&mut self) {
        self.early.room = u32::from(self.cfg.mss).saturating_sub(SYN_OPTIONS);
    }

    /// Gives the peer a cookie with our SYN+ACK.
    pub fn grant_fast_open(&mut self, cookie: FastOpen) {
        self.early.grant = Some(cookie);
    }

    /// Takes the payload of the SYN that made this machine, whose cookie was good: the part of it that is taken, `room`
    /// bytes at most, for the caller to copy. The peer sends the rest again. From now on data may be sent before our SYN is
    /// acknowledged (RFC 7413 section 4.2.2).
    pub fn take_early(&mut self, syn: &Segment<'_>, room: u32) -> Range<usize> {
        self.early.open = true;
        self.early.took = true;
        let len = (syn.payload.len() as u32).min(room);
        self.counters.received.bytes_received += u64::from(len);
        self.recv.payload_of_syn(len);
        0..len as usize
    }

    /// As [`take_early`](Self::take_early) without a cookie: nothing is sent, our SYN+ACK included, until
    /// [`answer_syn`](Self::answer_syn).
    pub fn hold_answer(&mut self, syn: &Segment<'_>, room: u32) -> Range<usize> {
        let taken = self.take_early(syn, room);
        self.early.open = false;
        self.early.held = true;
        taken
    }

    /// Our SYN+ACK waits for [`answer_syn`](Self::answer_syn).
    pub fn is_held(&self) -> bool {
        self.early.held && self.state == State::SynReceived
    }

    /// Lets the SYN+ACK go. A peer that is `proven` to be where it says gets data before it acknowledges our SYN, too.
    pub fn answer_syn(&mut self, proven: bool) {
        if core::mem::take(&mut self.early.held) {
            self.early.open = proven;
        }
    }

    /// Payload of our SYN that the peer acknowledged with it.
    pub fn early_taken(&self) -> u32 {
        self.early.taken
    }

    /// Payload that our SYN carried.
    pub fn early_sent(&self) -> u32 {
        self.early.in_syn
    }

    /// Our first SYN asked for Fast Open, or could carry payload without.
    pub fn offered_fast_open(&self) -> bool {
        self.early.option.is_some() || self.early.room > 0
    }

    /// Our first SYN had the option of Fast Open, in whatever form.
    pub fn named_fast_open(&self) -> bool {
        self.early.option.is_some()
    }

    /// Payload of the peer's SYN was taken, and the peer has not acknowledged ours.
    pub fn is_early(&self) -> bool {
        self.early.took && self.state == State::SynReceived
    }

    /// Our SYN is not acknowledged, but the peer's cookie lets data go to it.
    pub fn is_open_early(&self) -> bool {
        self.early.open && self.state == State::SynReceived
    }

    /// New payload may be sent.
    pub(super) fn may_send(&self) -> bool {
        self.state.may_send() || self.is_open_early()
    }

    /// Payload that a SYN carries now: the first one alone, since a path that drops such SYNs has to be got through
    /// (RFC 7413 section 4.1.3.1).
    pub(super) fn payload_for_syn(&self, kind: Kind, offer: &Offer) -> u32 {
        if kind == Kind::Syn && !self.syn_left() {
            offer.available.min(self.early.room)
        } else {
            0
        }
    }

    /// The option of a SYN or SYN+ACK. The SYN+ACK of a simultaneous open answers a SYN that asked for nothing that we would grant, and
    /// our request or cookie does not belong on it (RFC 7413 section 4.1.1).
    pub(super) fn fast_open_option(&self, kind: Kind) -> Option<FastOpen> {
        match kind {
            Kind::Syn if !self.syn_left() => self.early.option,
            Kind::SynAck => self.early.grant,
            _ => None,
        }
    }

    /// A SYN left with so much payload.
    pub(super) fn syn_carried(&mut self, len: u32) {
        self.early.in_syn = self.early.in_syn.max(len);
    }

    /// `ack` acknowledges our SYN and at most what went with or behind it.
    pub(super) fn answers_syn(&self, ack: SeqNum) -> bool {
        let first = self.isn + 1;
        let sent = if self.send.nxt().after(first) {
            self.send.nxt().since(first)
        } else {
            self.early.in_syn
        };
        self.syn_left() && ack.after_eq(first) && ack.since(first) <= sent
    }

    /// Our SYN is acknowledged by `ack`: payload that was taken with it counts as sent and acknowledged, and the numbers
    /// of the layers above begin behind it.
    pub(super) fn settle_early(&mut self, ack: SeqNum) {
        let first = self.isn + 1;
        if self.early.in_syn == 0 || self.send.nxt() != first {
            return;
        }
        let taken = ack.since(first).min(self.early.in_syn);
        self.early.taken = taken;
        self.base = self.isn + taken;
        self.send.loss.syn_took(taken);
    }
}
