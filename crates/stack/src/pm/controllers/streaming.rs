//! Smart streaming (SMAPP section 4.3): a second subflow only when a block is late, and none that backs off for long.
//!
//! The application writes blocks of a known size; it need not say when one begins, since that shows in how much it has
//! written. Half-way through its period, half of the block must be acknowledged. The paper looks once; here the same question
//! is asked again half-way through what is left, and once more: was no less acknowledged since the last look than is missing
//! still? So a block that stops short of its end is helped in time, too. And since a second subflow helps only after its
//! handshake, that is no part of the time that is halved.

use alloc::vec::Vec;

use manypath_tcp::time::{Duration, Instant};

use super::{LocalView, Order, SubflowView, View, close, from_address};
use crate::api::{Ending, EventKind, Streaming};

/// A subflow that repeats this many percent of what it sends is in trouble beside one that repeats a quarter of that.
const LOSSY: u64 = 4;

/// Looks at the written bytes for each period.
const LOOKS: u64 = 50;

/// How often the progress of one block is checked: after 1/2, 3/4 and 7/8 of the time in which it can be helped.
const CHECKS: u8 = 3;

#[derive(Clone, Debug)]
pub(super) struct Streamer {
    own: Streaming,
    next_look: Option<Instant>,
    /// Blocks that have begun so far.
    begun: u64,
    /// When the block that began last is looked at next.
    check: Option<Check>,
    /// The last block was late.
    late: bool,
}

/// A look at the progress of a block, half-way between the last one and the block's end.
#[derive(Clone, Copy, Debug)]
struct Check {
    at: Instant,
    /// What is left of the period then.
    left: Duration,
    /// The stream's bytes that were acknowledged at the last look, and those at the block's end.
    bytes: (u64, u64),
    /// Looks after this one.
    more: u8,
}

impl Check {
    /// Less came since the last look than is missing at this one, which has as much time.
    fn is_late(&self, written: u64, acked: u64) -> bool {
        let (before, end) = self.bytes;
        let missing = end.min(written).saturating_sub(acked);
        missing > acked.saturating_sub(before)
    }

    /// The one after it.
    fn next(self, acked: u64) -> Option<Self> {
        let left = self.left.over(2);
        Some(Self {
            at: self.at + left,
            left,
            bytes: (acked.max(self.bytes.0), self.bytes.1),
            more: self.more.checked_sub(1)?,
        })
    }
}

impl Streamer {
    pub(super) fn new(own: Streaming) -> Self {
        Self {
            own: Streaming {
                block: own.block.max(1),
                ..own
            },
            next_look: None,
            begun: 0,
            check: None,
            late: false,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let check = self.check.map(|check| check.at);
        self.next_look.into_iter().chain(check).min()
    }

    pub(super) fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        if let Some(EventKind::Timeout { subflow, rto, .. }) = event {
            let another = view
                .subflows
                .iter()
                .any(|sf| sf.id != *subflow && sf.established);
            if !another {
                // Half-way would be late to ask: a block that has to wait for a timer is no fast one.
                self.late = true;
                self.second_subflow(view, orders, "the only subflow waits for its timer");
            } else if *rto > self.own.bound {
                orders.push(Order::give(
                    close(*subflow, Ending::Reset),
                    "its time-out passed the bound",
                ));
            } else {
                drop_lossy(view, orders);
            }
        }
        if let (Some(EventKind::SubflowUp { .. }), true) = (event, self.late) {
            // What a path in trouble holds of the block is not waited for.
            drop_lossy(view, orders);
        }
        if view.written == 0 || !view.may_join {
            self.next_look = Some(now + self.own.period.over(LOOKS));
            return;
        }
        if self.next_look.is_none_or(|at| at <= now) {
            self.next_look = Some(now + self.own.period.over(LOOKS));
            let begun = view.written.div_ceil(self.own.block);
            if begun > self.begun {
                self.begun = begun;
                let left = time_to_help(self.own.period, view).over(2);
                self.check = Some(Check {
                    at: now + left,
                    left,
                    bytes: ((begun - 1) * self.own.block, begun * self.own.block),
                    more: CHECKS - 1,
                });
            }
        }
        if let Some(check) = self.check.filter(|check| check.at <= now) {
            self.check = check.next(view.acked);
            self.late = check.is_late(view.written, view.acked);
            let dropped = drop_lossy(view, orders);
            if !dropped && self.late {
                self.second_subflow(
                    view,
                    orders,
                    "the rest of the block will not be through in time",
                );
            } else if !dropped {
                orders.push(Order::leave("the block is well under way"));
            }
        }
    }

    fn second_subflow(&self, view: &View, orders: &mut Vec<Order>, why: &'static str) {
        let used = |local: &LocalView| view.subflows.iter().any(|sf| sf.local.ip() == local.addr);
        let first = view.subflows.first().map(|sf| sf.local.is_ipv4());
        let free = view
            .locals
            .iter()
            .find(|local| !used(local) && first.is_none_or(|v4| v4 == local.addr.is_ipv4()));
        orders.push(match free {
            Some(local) => Order::give(from_address(local.addr, false), why),
            None => Order::leave("a block is late and there is no unused path"),
        });
    }
}

/// The part of a block's period in which a new subflow would carry data: all but the two round trips of its handshake, where
/// that is at least half.
fn time_to_help(period: Duration, view: &View) -> Duration {
    let up = view.subflows.iter().filter(|sf| sf.established);
    let slowest = up.filter_map(|sf| sf.srtt).max();
    let handshake = slowest.map_or(Duration::ZERO, |srtt| srtt.times(2));
    (period - handshake).max(period.over(2))
}

/// Closes the subflow in trouble where there is a better one.
fn drop_lossy(view: &View, orders: &mut Vec<Order>) -> bool {
    let share = |sf: &SubflowView| sf.retransmitted * 100 / (sf.acked + sf.retransmitted).max(1);
    let up = || view.subflows.iter().filter(|sf| sf.established);
    let (Some(worst), Some(best)) = (up().max_by_key(|sf| share(sf)), up().map(share).min()) else {
        return false;
    };
    let lossy = share(worst) >= LOSSY && best * 4 <= share(worst);
    if lossy {
        orders.push(Order::give(
            close(worst.id, Ending::Reset),
            "it repeats much of what it sends, and another subflow does not",
        ));
    }
    lossy
}
