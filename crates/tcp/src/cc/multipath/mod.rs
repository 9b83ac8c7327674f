//! What serves Multipath TCP alone: congestion control that knows of other subflows.
//!
//! - the coupled algorithms [`Lia`], [`Olia`], [`Balia`] and [`WVegas`], and what they see of the other subflows, [`GroupView`];
//! - penalties of a subflow that holds up the others (NSDI 2012 section 4.2, mechanism 2);
//! - the [`cap()`] on the window of a subflow with excessive queues (NSDI 2012 section 4.2, mechanism 4).
//!
//! NSDI 2012: Raiciu and others, "How Hard Can It Be? Designing and Implementing a Deployable Multipath TCP".

mod balia;
mod cap;
mod coupled;
mod lia;
mod olia;
mod wvegas;

pub use balia::{Balia, increase as balia_increase};
pub use cap::cap;
pub use lia::{Lia, increase as lia_increase};
pub use olia::{Olia, increase as olia_increase};
pub use wvegas::WVegas;

use super::{AckSample, Algorithm, Congestion, Window};
use crate::time::Duration;

/// One path of a connection as coupled congestion control sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Smoothed round-trip time; zero while unknown.
    pub srtt: Duration,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// The path carries data at present; others are left out of the sums.
    pub usable: bool,
    /// The larger of the bytes delivered between the last two losses and since the last one; zero where they are not counted.
    pub interloss: u64,
}

impl PathSample {
    /// The asking path at this moment, which its entry in the group may be older than.
    fn of(window: &Window, srtt: Duration, interloss: u64) -> Self {
        Self {
            cwnd: window.cwnd(),
            srtt,
            mss: window.mss(),
            usable: true,
            interloss,
        }
    }
}

/// All paths of a connection, and which of them is asking.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    /// Every subflow's sample.
    pub paths: &'a [PathSample],
    /// Index of the asking subflow in `paths`.
    pub me: usize,
}

impl GroupView<'static> {
    /// A connection of one path that couples with nothing.
    pub const ALONE: GroupView<'static> = GroupView { paths: &[], me: 0 };
}

impl Congestion {
    /// Bytes between losses, for the other subflows' [`PathSample`]s.
    pub fn interloss(&self) -> u64 {
        self.algorithm.interloss()
    }

    /// No loss, no mark and no queue has ended slow start since the path is new: at most a penalty has. BBR has no threshold.
    pub fn is_unproven(&self) -> bool {
        let threshold = self.unpenalised.unwrap_or(self.window.ssthresh());
        threshold == u32::MAX && self.algorithm() != Algorithm::Bbr
    }

    /// This path holds up the window that all paths of a connection share: window and threshold become half of what the
    /// window was (NSDI 2012 section 4.2, mechanism 2).
    pub fn penalise(&mut self) {
        self.algorithm.penalised(self.window.cwnd());
        self.unpenalised.get_or_insert(self.window.ssthresh());
        let half = (self.window.cwnd() / 2).max(self.window.least_reduced());
        self.window.set_ssthresh(half);
        self.window.set_cwnd(half.min(self.window.cwnd()));
        self.prior = None;
    }

    /// A penalty holds that nothing has taken back.
    pub fn is_penalised(&self) -> bool {
        self.unpenalised.is_some()
    }

    /// There is no other path any more that this one could hold up: slow start undoes penalties.
    pub fn undo_penalties(&mut self) {
        if let Some(ssthresh) = self.unpenalised.take() {
            self.window.set_ssthresh(ssthresh);
        }
    }

    /// The window is capped and must not grow, whatever this acknowledgement would have it do.
    pub fn on_capped(&mut self, ack: &AckSample, group: &GroupView<'_>) {
        self.algorithm.compare(&self.window, ack, group);
        self.algorithm.capped(&mut self.window, ack);
    }

    /// Excessive queues are on this path: the window is `bytes` from now on, and grows in congestion avoidance alone
    /// ([`cap()`]).
    pub fn cap_to(&mut self, bytes: u32) {
        let bytes = bytes.min(self.window.cwnd());
        self.window.set_cwnd(bytes);
        self.algorithm.cut(bytes);
        (self.unpenalised, self.prior) = (None, None);
        if self.window.in_slow_start() {
            self.window.leave_slow_start();
        }
    }

    /// A cap that went further than it had to, for a moment, ends: the window is `bytes` again.
    pub fn return_to(&mut self, bytes: u32) {
        self.window.set_cwnd(bytes.max(self.window.cwnd()));
        self.algorithm.cut(self.window.cwnd());
    }
}
