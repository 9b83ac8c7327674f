//! When the window of a path with excessive queues is cut again (NSDI 2012 section 4.2, mechanism 4).
//!
//! What a cut did shows late: first the queue has to drain until no more is in flight than the window, then something that was
//! sent after that has to come back. A round trip measured before tells of the old queue, and to cut by it again would leave
//! the path without data.
//!
//! A path that is held at a full queue never shows its round trip without one, and what is remembered of it ends after some
//! minutes: the queue would then count as the path, and be doubled. So the queue is emptied for a round trip before that.

use super::LossRecovery;
use crate::cc::cap;
use crate::time::{Duration, Instant};

/// How often the queue is emptied: as seldom as is safe, since it costs a round trip at three quarters of the rate. Sooner than the smallest round trip may be forgotten ([`Rtt::min`](crate::recovery::rtt::Rtt::min)).
const EMPTIED_EVERY: Duration = Duration::from_secs(120);

/// Where the sender stands.
#[derive(Clone, Copy, Debug)]
struct View {
    /// Bytes estimated to be in the network.
    inflight: u32,
    /// The congestion window.
    cwnd: u32,
    /// All bytes ever acknowledged.
    acked_total: u64,
    /// All bytes ever sent for the first time.
    sent_total: u64,
    /// This acknowledgement measured a round trip.
    measured: bool,
}

/// What is still to come before the next cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Await {
    #[default]
    Nothing,
    /// More is in flight than the window that the last cut left.
    Drained,
    /// A round trip of what was sent after so many bytes.
    Measured(u64),
}

/// A window that is small for a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dip {
    small: u32,
    back: u32,
}

/// Whether queues are kept short, and how far the last cut's effect is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Capping {
    on: bool,
    awaits: Await,
    /// When the queue was last emptied, or the first cut was.
    emptied: Option<Instant>,
    dip: Option<Dip>,
}

impl Capping {
    /// Switches the mechanism. Returns the window to return to where that ends a dip of the window, which is `cwnd`.
    pub(super) fn set(&mut self, on: bool, cwnd: u32) -> Option<u32> {
        if on == self.on {
            return None;
        }
        let dip = self.dip.filter(|dip| cwnd >= dip.small);
        *self = Self {
            on,
            ..Self::default()
        };
        dip.map(|dip| dip.back)
    }

    fn is_on(&self) -> bool {
        self.on
    }

    /// The window shall be `bytes`, which is a full queue: what it is cut to. Three quarters of what the path holds empty the
    /// queue.
    fn cut(&mut self, now: Instant, bytes: u32) -> u32 {
        self.awaits = Await::Drained;
        if now.since(*self.emptied.get_or_insert(now)) < EMPTIED_EVERY {
            return bytes;
        }
        self.emptied = Some(now);
        let small = bytes / 8 * 3;
        self.dip = Some(Dip { small, back: bytes });
        small
    }

    /// The window to return to, once the queue was emptied and the round trip without it is known. A loss in between has
    /// decided otherwise.
    fn dip_ends(&mut self, cwnd: u32) -> Option<u32> {
        let known = self.awaits == Await::Nothing;
        let dip = self.dip.take_if(|_| known)?;
        (cwnd >= dip.small).then_some(dip.back)
    }

    /// Takes an acknowledgement in. True if the round trip that is known is one of the present window.
    fn may_cut(&mut self, view: &View) -> bool {
        match self.awaits {
            Await::Drained if view.inflight <= view.cwnd => {
                self.awaits = Await::Measured(view.sent_total);
            }
            Await::Measured(after) if view.measured && view.acked_total > after => {
                self.awaits = Await::Nothing;
            }
            Await::Nothing | Await::Drained | Await::Measured(_) => {}
        }
        self.awaits == Await::Nothing
    }
}

impl LossRecovery {
    /// Caps the window where queues are excessive, or no longer.
    pub(crate) fn set_capping(&mut self, on: bool) {
        if let Some(bytes) = self.capping.set(on, self.cc.cwnd()) {
            self.cc.return_to(bytes);
        }
    }

    /// The queues on the path are excessive and the window must not grow. When the last cut has shown its effect, it shrinks to
    /// what the path needs. `measured`: this acknowledgement told a round trip.
    pub(super) fn is_capped(&mut self, now: Instant, measured: bool) -> bool {
        if !self.capping.is_on() {
            return false;
        }
        let may_cut = self.capping.may_cut(&View {
            inflight: self.inflight(),
            cwnd: self.cc.cwnd(),
            acked_total: self.flight.acked_total(),
            sent_total: self.flight.sent_total(),
            measured,
        });
        if let Some(bytes) = self.capping.dip_ends(self.cc.cwnd()) {
            self.cc.return_to(bytes);
        }
        let base = self.timing.min_or_zero();
        let bound = |rtt| cap(self.cc.cwnd(), self.mss(), rtt, base);
        let srtt = self.timing.srtt_or_zero();
        let held = bound(srtt).is_some();
        // The smoothed round trip lags behind: where the last one is shorter, the queue is draining.
        if let Some(bytes) = bound(srtt.min(self.timing.rtt().latest())).filter(|_| held && may_cut)
        {
            let bytes = self.capping.cut(now, bytes);
            self.cc.cap_to(bytes);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_cut_waits_until_the_last_one_shows() {
        let mut capping = Capping::default();
        let view = View {
            inflight: 100_000,
            cwnd: 100_000,
            acked_total: 500_000,
            sent_total: 600_000,
            measured: true,
        };
        assert!(capping.may_cut(&view));
        assert_eq!(capping.cut(Instant::ZERO, 50_000), 50_000);
        for (inflight, acked_total, measured, may) in [
            (99_000, 501_000, true, false),
            // All that was in flight at the cut is acknowledged, but more was sent again.
            (51_000, 600_000, true, false),
            // Drained: what is sent from now on sees the new queue.
            (50_000, 600_000, true, false),
            (50_000, 610_000, true, false),
            (50_000, 620_000, true, false),
            (50_000, 620_001, false, false),
            (50_000, 630_000, true, true),
            (50_000, 631_000, false, true),
        ] {
            let view = View {
                inflight,
                cwnd: 50_000,
                acked_total,
                sent_total: 620_000,
                measured,
            };
            assert_eq!(capping.may_cut(&view), may, "{view:?}");
        }
        capping.cut(Instant::ZERO, 50_000);
        let draining = View {
            inflight: 50_001,
            cwnd: 50_000,
            ..view
        };
        assert!(!capping.may_cut(&draining));
        assert_eq!(capping.set(true, 100_000), None);
        assert!(capping.is_on() && capping.may_cut(&draining));
    }

    #[test]
    fn the_queue_is_emptied_now_and_then() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let view = |cwnd, acked_total| View {
            inflight: cwnd,
            cwnd,
            acked_total,
            sent_total: 1_000,
            measured: true,
        };
        // What is sent after the loss, if there is one, is of a smaller window still.
        for (cwnd, back) in [(30_000, Some(80_000)), (20_000, None)] {
            let mut capping = Capping::default();
            assert_eq!(capping.cut(at(5), 80_000), 80_000, "the first cut");
            assert_eq!(capping.cut(at(124), 80_000), 80_000);
            assert_eq!(capping.cut(at(125), 80_000), 30_000);
            assert_eq!(capping.cut(at(244), 80_000), 80_000);
            assert_eq!(capping.cut(at(245), 80_000), 30_000);
            assert!(!capping.may_cut(&view(cwnd, 900)));
            assert_eq!(capping.dip_ends(cwnd), None, "not measured yet");
            assert!(capping.may_cut(&view(cwnd, 1_001)));
            assert_eq!(capping.dip_ends(cwnd), back);
            assert_eq!(capping.dip_ends(cwnd), None, "once");
        }
    }

    #[test]
    fn switching_capping_on_again_changes_nothing() {
        let mut capping = Capping::default();
        assert_eq!(capping.set(true, 100_000), None);
        let start = Instant::from_millis(1_000);
        capping.cut(start, 80_000);
        let small = capping.cut(start + EMPTIED_EVERY, 80_000);
        let before = capping;
        assert_eq!(capping.set(true, small), None);
        assert_eq!(capping, before);
        // Switching it off restores what the emptying took.
        assert_eq!(capping.set(false, small), Some(80_000));
        assert_eq!(capping, Capping::default());
    }
}
