//! Memory of connections that are gone goes back to the system.
//!
//! An allocator keeps freed memory for the next who asks, which is right while connections come and go, and wrong when a
//! crowd of them has left: a forwarder that idles for days would occupy what its busiest second needed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use manypath_io::Host;
use manypath_proxy::forward::Totals;
use tokio::task::JoinHandle;

/// Between two looks: the next crowd may follow at once, and page faults for it would be wasted.
const PAUSE: Duration = Duration::from_secs(1);

/// How many connections there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Now.
    pub(crate) open: u64,
    /// That there ever were.
    pub(crate) ever: u64,
}

impl Load {
    /// What a stack carries; without one, nothing.
    pub(crate) fn of_stack(stack: Option<&Host>) -> Self {
        let Some(stack) = stack else {
            return Self::default();
        };
        let counters = stack.counters();
        Self {
            open: stack.conns().len() as u64,
            ever: counters.conn_active + counters.conn_passive,
        }
    }

    /// What a forwarder carries.
    pub(crate) fn of_forwarder(totals: &Totals) -> Self {
        Self {
            open: totals.open(),
            ever: totals.accepted.load(Ordering::Relaxed),
        }
    }

    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            open: self.open + other.open,
            ever: self.ever + other.ever,
        }
    }
}

/// Tells a crowd that has left from connections that come and go.
#[derive(Debug, Default)]
struct Tide {
    last: Load,
    /// At least as many as were there at one time since memory was given back.
    high: u64,
}

impl Tide {
    /// Half of them at least have gone since memory was given back last.
    fn has_ebbed(&mut self, load: Load) -> bool {
        // Whoever came and went between two looks may have been there together with those of the last one.
        let came = load.ever.saturating_sub(self.last.ever);
        self.high = self.high.max(self.last.open.saturating_add(came));
        self.last = load;
        let ebbed = self.high > 0 && load.open <= self.high / 2;
        if ebbed {
            self.high = load.open;
        }
        ebbed
    }
}

/// Gives memory back, until it is dropped, whenever many connections have ended.
#[derive(Debug)]
pub(crate) struct Keeper(JoinHandle<()>);

impl Keeper {
    /// Looks at what `load` says. Must be called within a runtime.
    pub(crate) fn start(load: impl Fn() -> Load + Send + 'static) -> Self {
        Self(tokio::spawn(async move {
            let mut tide = Tide::default();
            loop {
                tokio::time::sleep(PAUSE).await;
                if tide.has_ebbed(load()) {
                    manypath_proxy::relay::release_buffers();
                    manypath_io::sys::memory::release_free();
                }
            }
        }))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_half_of_a_crowd_has_left() {
        let mut tide = Tide::default();
        let looks = [
            // (open, ever) and whether that is an ebb
            ((0, 0), false),
            ((100, 100), false),
            ((60, 100), false),
            ((50, 100), true),
            ((50, 100), false),
            ((50, 110), false),
            ((30, 110), true),
            ((1, 110), true),
            ((1, 110), false),
            ((0, 110), true),
            ((0, 110), false),
            // A whole crowd between two looks.
            ((0, 1110), true),
            ((0, 1110), false),
        ];
        for (n, ((open, ever), expected)) in looks.into_iter().enumerate() {
            assert_eq!(tide.has_ebbed(Load { open, ever }), expected, "look {n}");
        }
    }
}
