//! What a connection of several subflows asks of one: a shared receive window, acknowledgements held back, probes of a path that
//! another one stands in for, penalties and caps of the window. A TCP connection alone calls none of it.

use core::num::NonZeroU32;

use manypath_wire::segment::Segment;

use super::Machine;
use super::state::State;
use crate::cc::PathSample;
use crate::time::{Duration, Instant};

impl Machine {
    /// As [`set_recv_window`](Self::set_recv_window) for a window that several subflows share and whose right edge is
    /// kept by the caller in a number space of its own: it is advertised just so, rounded up to the scale's unit. The peer
    /// obeys the window of each subflow, so each tells of a larger one when it is worth a segment.
    pub fn share_recv_window(&mut self, bytes: u32) {
        self.note_recv_window(bytes);
        self.tell_larger_window();
    }

    /// As [`share_recv_window`](Self::share_recv_window), but nothing is sent for it: the next segment tells it.
    pub fn note_recv_window(&mut self, bytes: u32) {
        self.recv.window.set_shared(bytes);
    }

    /// Accepts at most `bytes` from the next expected one, whatever was advertised while the window was shared.
    pub fn confine_recv_window(&mut self, bytes: u32) {
        self.recv.window.confine(self.recv.next(), bytes);
    }

    /// Out-of-order payload may take this many bytes of memory, what is held already included. At the start that is twice
    /// the largest window and a little; a caller with several subflows has them share it.
    pub fn grant_reassembly(&mut self, bytes: usize) {
        self.recv.grant(bytes);
    }

    /// Leaves the last `bytes` of what the peer sends unacknowledged, though they are delivered. The peer goes on sending,
    /// and repeats those bytes by its timer, which is told apart from whatever else it might send for want of an answer
    /// above TCP. What was acknowledged stays so; `None` ends it.
    pub fn withhold(&mut self, bytes: Option<NonZeroU32>) {
        self.recv.withhold(bytes);
    }

    /// The segment repeats, of what arrived, only what is withheld.
    pub fn repeats_withheld(&self, seg: &Segment<'_>) -> bool {
        let (from, end) = (seg.header.seq, seg.header.seq + seg.len());
        from.after_eq(self.recv.acknowledges()) && end.before_eq(self.recv.next())
    }

    /// Sends one probe that the peer has to answer, if nothing is in flight that it has to answer anyway.
    pub fn probe_liveness(&mut self, now: Instant) {
        self.tick(now);
        if self.state.is_synchronized() && !self.send.loss.outstanding() {
            self.prober.request();
        }
    }

    /// Sends one probe that the peer has to answer, whatever is in flight.
    pub fn probe(&mut self, now: Instant) {
        self.tick(now);
        if self.state.is_synchronized() {
            self.prober.request();
        }
    }

    /// While another subflow can carry the data, a silent path is asked at least this often whether it works again: the
    /// back-off of the retransmission timer ends there, unless the path's own round trip needs longer. `None`: RFC 6298.
    pub fn set_probe_interval(&mut self, now: Instant, longest: Option<Duration>) {
        self.tick(now);
        self.send.loss.set_rto_ceiling(now, longest);
    }

    /// The path may work again: its link is up, its address is back, a route changed. What timed out is tried at once
    /// instead of when the timer expires next. True if a segment leaves for it.
    pub fn on_path_hint(&mut self, now: Instant) -> bool {
        self.tick(now);
        self.state != State::Closed && !self.reset_due && self.send.loss.on_path_hint(now)
    }

    /// Packets of this connection can leave the host again, which they could not for a while: what is in flight is marked
    /// lost and sent again at once, whether or not its timer has expired. True if something is in flight.
    pub fn on_path_restored(&mut self, now: Instant) -> bool {
        self.tick(now);
        self.state != State::Closed && !self.reset_due && self.send.loss.on_path_restored(now)
    }

    /// Something that TCP does not know as an answer took so long. It counts as long as no round trip was measured.
    pub fn first_measured(&mut self, now: Instant, rtt: Duration) {
        self.send.loss.first_measured(now, rtt);
    }

    /// Nothing was sent for so long that what was seen of the path counts no more: it is like a new one, of which the round trip
    /// is known.
    pub fn forget_path(&mut self) {
        self.send.loss.forget_path();
    }

    /// Caps the congestion window where the smoothed round trip is twice the base, or no longer
    /// ([`cap()`](crate::cc::cap())).
    pub fn set_capping(&mut self, on: bool) {
        self.send.loss.set_capping(on);
    }

    /// Halves congestion window and threshold because this subflow holds up its siblings. False: a recovery under way
    /// has reduced them already.
    pub fn penalise(&mut self) -> bool {
        self.send.loss.penalise()
    }

    /// A penalty holds that nothing has taken back.
    pub fn is_penalised(&self) -> bool {
        self.send.loss.cc().is_penalised()
    }

    /// No sibling is left that this subflow could hold up: slow start undoes penalties.
    pub fn undo_penalties(&mut self) {
        self.send.loss.undo_penalties();
    }

    /// What the other subflows' congestion control has to know of this one.
    pub fn path_sample(&self) -> PathSample {
        PathSample {
            cwnd: self.send.loss.lasting_cwnd(),
            srtt: self.srtt().unwrap_or(Duration::ZERO),
            mss: self.mss(),
            usable: self.state.may_send() && self.srtt().is_some(),
            interloss: self.send.loss.cc().interloss(),
        }
    }
}
