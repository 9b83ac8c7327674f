//! A congestion control from outside of this crate.
//!
//! What it costs: the algorithms of this crate are the variants of an enum and are called directly, as before. One from outside is
//! called through a pointer, once for each acknowledgement and each reduction, never for a segment that is sent.

use alloc::boxed::Box;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::{AckSample, GroupView, Window};
use crate::time::Instant;

/// A congestion control: one value for each subflow.
///
/// Slow start (with HyStart++, RFC 9406), fast recovery (RFC 6937), the reaction to timeouts and the undoing of reductions that were
/// not justified are common to all; what is asked here is how the window grows in congestion avoidance and how far a loss reduces
/// it. All numbers are bytes. The window never falls below one segment, whatever an implementation does.
pub trait CongestionControl: fmt::Debug + Send {
    /// `acked` bytes were acknowledged in congestion avoidance, in a window that the sender uses: grow it
    /// ([`Window::set_cwnd`], [`Window::earn`]). `group` has the other subflows, if the control is
    /// [coupled](CustomCongestion::coupled).
    fn avoid(&mut self, window: &mut Window, acked: u32, ack: &AckSample, group: &GroupView<'_>);

    /// Data was lost, or marked (RFC 3168), when `flight` bytes were outstanding: the window from now on. Slow start ends there.
    fn reduce(&mut self, window: &Window, flight: u32) -> u32;

    /// Every acknowledgement outside of fast recovery, before anything else is done with it. True: it was dealt with here, and
    /// neither slow start nor [`avoid`](Self::avoid) follows.
    fn on_ack(&mut self, _window: &mut Window, _ack: &AckSample, _group: &GroupView<'_>) -> bool {
        false
    }

    /// A retransmission timeout; the window is one segment now and the threshold what [`reduce`](Self::reduce) said.
    fn on_timeout(&mut self) {}

    /// The window was not used until `now`: time that counts for no growth.
    fn on_idle_until(&mut self, _now: Instant) {}

    /// A copy, which takes the place of this one if a reduction proves to have been without cause (RFC 4015).
    fn copy(&self) -> Box<dyn CongestionControl>;
}

/// A [`CongestionControl`] with its name, as the options of a connection hold it: a `static` of the application.
#[derive(Clone, Copy)]
pub struct CustomCongestion {
    name: &'static str,
    make: fn() -> Box<dyn CongestionControl>,
    coupled: bool,
}

impl CustomCongestion {
    /// A control by its name, which must be its own, and what makes one for a new subflow.
    pub const fn new(name: &'static str, make: fn() -> Box<dyn CongestionControl>) -> Self {
        Self {
            name,
            make,
            coupled: false,
        }
    }

    /// It wants to know of the other subflows of its connection.
    #[must_use]
    pub const fn coupled(self) -> Self {
        Self {
            coupled: true,
            ..self
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// It wants to know of the other subflows.
    pub const fn is_coupled(&self) -> bool {
        self.coupled
    }

    pub(super) fn make(&self) -> Box<dyn CongestionControl> {
        (self.make)()
    }
}

impl PartialEq for CustomCongestion {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CustomCongestion {}

impl Hash for CustomCongestion {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for CustomCongestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One at work, and which one it is.
#[derive(Debug)]
pub(super) struct Custom {
    pub(super) of: &'static CustomCongestion,
    pub(super) state: Box<dyn CongestionControl>,
}

impl Clone for Custom {
    fn clone(&self) -> Self {
        Self {
            of: self.of,
            state: self.state.copy(),
        }
    }
}
