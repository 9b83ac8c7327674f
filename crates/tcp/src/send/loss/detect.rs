//! Which segments are lost: RACK where the peer sends SACK (RFC 8985), duplicate acknowledgements where it does not.

use super::newreno::NewReno;
use super::sack::Sack;
use crate::recovery::rack::{Rack, View};
use crate::recovery::scoreboard::{AckReport, Flight, Newest};
use crate::time::Instant;
use crate::timer::Timer;

/// Loss detection of one subflow.
#[derive(Debug)]
pub(super) struct Detection {
    pub(super) sack: Sack,
    pub(super) newreno: NewReno,
    rack: Rack,
    /// When a segment that was overtaken counts as lost (RFC 8985 section 6.3).
    reorder_timer: Timer,
}

impl Detection {
    pub(super) fn new(sack: bool, newreno: NewReno) -> Detection {
        Detection {
            sack: Sack::new(sack),
            newreno,
            rack: Rack::new(),
            reorder_timer: Timer::OFF,
        }
    }

    pub(super) fn timer(&self) -> &Timer {
        &self.reorder_timer
    }

    /// True if a segment that was overtaken may count as lost by now.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        self.reorder_timer.take_due(now)
    }

    /// Takes in whether the peer's blocks are valid.
    pub(super) fn check_sack(&mut self, report: &AckReport) {
        self.sack = self.sack.after(report.newly_sacked, report.invalid_sack);
    }

    /// Takes in what an acknowledgement reported of the flight.
    pub(super) fn on_ack(&mut self, report: &AckReport, flight: &Flight) {
        self.rack.on_ack(report, flight.una(), flight.nxt());
    }

    /// RACK: marks what is lost by now, and sets the timer for what will be. Returns how much is newly lost.
    pub(super) fn by_time(&mut self, flight: &mut Flight, view: &View) -> u32 {
        let found = self.rack.detect(flight, view);
        match found.look_again {
            Some(at) => self.reorder_timer.set(at),
            None => self.reorder_timer.stop(),
        }
        found.lost
    }

    /// The retransmission timer fired: marks what it says is lost (RFC 8985 section 6.3; RFC 6298 section 5.4 without SACK).
    pub(super) fn on_rto(&mut self, flight: &mut Flight, view: &View) {
        if self.sack.is_on() {
            self.rack.on_rto(flight, view);
        } else {
            flight.mark_any(|_| true);
        }
    }

    /// A reduction was undone: what was marked was only late. `fast`: fast retransmit, and not a timeout, had marked it.
    /// `proven`: the retransmission that arrived as well.
    pub(super) fn on_undo(&mut self, fast: bool, proven: Option<Newest>) {
        self.rack.forget_newest(proven);
        self.reorder_timer.stop();
        if fast {
            self.rack.on_needless_retransmission();
        }
        self.newreno.forget_bytes();
    }

    /// A recovery ended.
    pub(super) fn on_recovered(&mut self) {
        self.newreno.on_recovered();
        self.rack.on_recovered();
    }

    /// The retransmission timer decides: nothing is awaited by time.
    pub(super) fn stop(&mut self) {
        self.reorder_timer.stop();
    }
}
