//! When the window of a path with excessive queues is cut again (NSDI 2012 section 4.2, mechanism 4).
//!
//! What a cut did shows late: first the queue has to drain until no more is in flight than the window, then something that was
//! sent after that has to come back. A round trip measured before tells of the old queue, and to cut by it again would leave
//! the path without data.

/// Where the sender stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Bytes held to be in the network.
    pub(super) inflight: u32,
    /// The congestion window.
    pub(super) cwnd: u32,
    /// All bytes ever acknowledged.
    pub(super) acked_total: u64,
    /// All bytes ever sent for the first time.
    pub(super) sent_total: u64,
    /// This acknowledgement measured a round trip.
    pub(super) measured: bool,
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

/// Whether queues are kept short, and how far the last cut's effect is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Capping {
    on: bool,
    awaits: Await,
}

impl Capping {
    /// Switches the mechanism.
    pub(super) fn set(&mut self, on: bool) {
        *self = Self {
            on,
            awaits: Await::Nothing,
        };
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// The window was cut.
    pub(super) fn cut(&mut self) {
        self.awaits = Await::Drained;
    }

    /// Takes an acknowledgement in. True if the round trip that is known is one of the present window.
    pub(super) fn may_cut(&mut self, view: &View) -> bool {
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
        capping.cut();
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
        capping.cut();
        let draining = View {
            inflight: 50_001,
            cwnd: 50_000,
            ..view
        };
        assert!(!capping.may_cut(&draining));
        capping.set(true);
        assert!(capping.is_on() && capping.may_cut(&draining));
    }
}
