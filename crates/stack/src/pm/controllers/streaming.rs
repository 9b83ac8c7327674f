//! Smart streaming (SMAPP section 4.3): a second subflow only when a block is late, and none that backs off for long.
//!
//! The application writes blocks of a known size; it need not say when one begins, since that shows in how much it has
//! written. Half a period later, half of the block must be acknowledged.

use alloc::vec::Vec;

use manypath_tcp::time::Instant;

use super::{LocalView, Order, SubflowView, View, close, from_address};
use crate::api::{Ending, EventKind, Streaming};

/// A subflow that repeats this many percent of what it sends is in trouble beside one that repeats a quarter of that.
const LOSSY: u64 = 4;

/// Looks at the written bytes for each period.
const LOOKS: u64 = 20;

#[derive(Clone, Debug)]
pub(super) struct Streamer {
    own: Streaming,
    next_look: Option<Instant>,
    /// Blocks that have begun so far.
    begun: u64,
    /// When the block that began last has to be half through, and how many stream bytes that is.
    half_way: Option<(Instant, u64)>,
    /// The last block was late.
    late: bool,
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
            half_way: None,
            late: false,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let half_way = self.half_way.map(|(at, _)| at);
        match (self.next_look, half_way) {
            (Some(look), Some(half_way)) => Some(look.min(half_way)),
            (look, _) => look,
        }
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
                let half = (begun - 1) * self.own.block + self.own.block / 2;
                self.half_way = Some((now + self.own.period.over(2), half));
            }
        }
        if let Some((_, bytes)) = self.half_way.filter(|(at, _)| *at <= now) {
            self.half_way = None;
            self.late = view.acked < bytes;
            let dropped = drop_lossy(view, orders);
            if !dropped && self.late {
                self.second_subflow(view, orders, "less than half of the block is through");
            } else if !dropped {
                orders.push(Order::leave("the block is more than half through"));
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
