//! Smart streaming (SMAPP section 4.3): a second subflow only when a block is late, and none that backs off for long.
//!
//! The application writes blocks of a known size; it need not say when one begins, since that shows in how much it has
//! written. Half-way through its period, half of the block must be acknowledged. The paper looks once; here the same question
//! is asked again half-way through what is left, and once more: was no less acknowledged since the last look than is missing
//! still? So a block that stops short of its end is helped in time, too. And since a second subflow helps only after its
//! handshake, that is no part of the time that is halved.
//!
//! On a path that loses, the next late block is only a question of time. So two blocks in a row of which much had to be repeated
//! are reason enough for a second subflow; one is not, since slow start may have overshot. When that one carries at least as much
//! and repeats little, the first is closed; at once where a block is late. A path that was left so is not left again for a while:
//! who had to come back has nothing better, and both are used.

use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::time::{Duration, Instant};

use super::blocks::Blocks;
use super::lately::{LOSSY, Lately};
use super::{LocalView, Order, SubflowView, View, close, from_address};
use crate::api::{Ending, EventKind, Streaming};

/// Periods for which a path is remembered that was left because it lost much.
const MEMORY: u64 = 60;

/// How often the progress of one block is checked: after 1/2, 3/4 and 7/8 of the time in which it can be helped.
const CHECKS: u8 = 3;

#[derive(Clone, Debug)]
pub(super) struct Streamer {
    own: Streaming,
    blocks: Blocks,
    /// When the block that began last is looked at next.
    check: Option<Check>,
    /// The last block was late.
    late: bool,
    /// What the subflows carried of the last blocks.
    lately: Vec<Lately>,
    /// Our addresses of the paths that were left because they lost much, and until when that is remembered.
    left: Vec<(IpAddr, Instant)>,
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

    /// Half-way through the block.
    const fn is_first(&self) -> bool {
        self.more == CHECKS - 1
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
            blocks: Blocks::new(&own),
            check: None,
            late: false,
            lately: Vec::new(),
            left: Vec::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let check = self.check.map(|check| check.at);
        self.blocks.deadline().into_iter().chain(check).min()
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
                self.second_subflow(view, true, orders, "the only subflow waits for its timer");
            } else if *rto > self.own.bound {
                orders.push(Order::give(
                    close(*subflow, Ending::Reset),
                    "its time-out passed the bound",
                ));
            } else {
                self.drop_lossy(now, view, true, orders);
            }
        }
        if let (Some(EventKind::SubflowUp { .. }), true) = (event, self.late) {
            // What a path in trouble holds of the block is not waited for.
            self.drop_lossy(now, view, true, orders);
        }
        if view.written == 0 || !view.may_join {
            self.check = None;
            self.blocks.put_off(now, view.may_join);
            return;
        }
        if let Some(check) = self.check.filter(|check| check.at <= now) {
            self.look_at(now, check, view, orders);
        }
        // A writer may be quicker than its blocks need be: then not each is looked at.
        if self.blocks.begins(now, view.written) && self.check.is_none() {
            let left = time_to_help(self.own.period, view).over(2);
            self.check = Some(Check {
                at: now + left,
                left,
                bytes: self.blocks.last(),
                more: CHECKS - 1,
            });
        }
    }

    /// A check is due.
    fn look_at(&mut self, now: Instant, check: Check, view: &View, orders: &mut Vec<Order>) {
        self.check = check.next(view.acked);
        self.late = check.is_late(view.written, view.acked);
        self.left.retain(|(_, until)| *until > now);
        if check.is_first() {
            let block = self.own.block;
            self.lately = up(view)
                .map(|sf| self.lately(sf).after(sf, block))
                .collect();
        }
        if self.drop_lossy(now, view, self.late, orders) {
            return;
        }
        let only_loses = matches!(&*self.lately, [only] if only.is_lossy());
        if self.late {
            let why = "the rest of the block will not be through in time";
            self.second_subflow(view, true, orders, why);
        } else if check.is_first() && only_loses {
            let why = "the only subflow repeated much of the last blocks";
            self.second_subflow(view, false, orders, why);
        } else {
            orders.push(Order::leave("the block is well under way"));
        }
    }

    fn lately(&self, sf: &SubflowView) -> Lately {
        let known = self.lately.iter().find(|lately| lately.id == sf.id);
        known.copied().unwrap_or(Lately::new(sf.id))
    }

    /// The path from there was left not long ago.
    fn was_left(&self, local: IpAddr) -> bool {
        self.left.iter().any(|(left, _)| *left == local)
    }

    /// Closes the subflow in trouble where there is a better one: in `need` at once, else when both are known well.
    fn drop_lossy(
        &mut self,
        now: Instant,
        view: &View,
        need: bool,
        orders: &mut Vec<Order>,
    ) -> bool {
        let share = |sf: &SubflowView| self.lately(sf).share(sf, self.own.block);
        let carried = |sf: &SubflowView| self.lately(sf).last;
        let may_go = up(view).filter(|sf| !self.was_left(sf.local.ip()));
        let Some(worst) = may_go.max_by_key(|sf| share(sf)) else {
            return false;
        };
        let lost = share(worst);
        let is_better = |sf: &SubflowView| {
            sf.id != worst.id && share(sf) * 4 <= lost && (need || carried(sf) >= carried(worst))
        };
        let known = need || self.lately(worst).is_lossy();
        if lost < LOSSY || !known || !up(view).any(is_better) {
            return false;
        }
        let why = "it repeats much of what it sends, and another subflow does not";
        orders.push(Order::give(close(worst.id, Ending::Reset), why));
        let until = now + self.own.period.times(MEMORY);
        self.left.push((worst.local.ip(), until));
        true
    }

    /// From an address that has none; in `need` even from one that was left.
    fn second_subflow(&self, view: &View, need: bool, orders: &mut Vec<Order>, why: &'static str) {
        let used = |local: &LocalView| view.subflows.iter().any(|sf| sf.local.ip() == local.addr);
        let first = view.subflows.first().map(|sf| sf.local.is_ipv4());
        let free = view
            .locals
            .iter()
            .filter(|local| !used(local) && first.is_none_or(|v4| v4 == local.addr.is_ipv4()));
        let free = free.min_by_key(|local| self.was_left(local.addr));
        orders.push(match free {
            Some(local) if need || !self.was_left(local.addr) => {
                Order::give(from_address(local.addr, false), why)
            }
            _ => Order::leave("there is no unused path to help this block by"),
        });
    }
}

/// The part of a block's period in which a new subflow would carry data: all but the two round trips of its handshake, where
/// that is at least half.
fn time_to_help(period: Duration, view: &View) -> Duration {
    let slowest = up(view).filter_map(|sf| sf.srtt).max();
    let handshake = slowest.map_or(Duration::ZERO, |srtt| srtt.times(2));
    (period - handshake).max(period.over(2))
}

/// The subflows that carry data.
fn up(view: &View) -> impl Iterator<Item = &SubflowView> {
    view.subflows.iter().filter(|sf| sf.established)
}
