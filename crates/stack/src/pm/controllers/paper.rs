//! The controllers of SMAPP as the paper's sections 4.2 to 4.4 have them, to be measured beside our own: each looks at one
//! number and does one thing. What becomes of a connection without any subflow is left to the [lifeline](super::lifeline), as
//! with all controllers.

use alloc::vec::Vec;

use manypath_tcp::time::{Duration, Instant};

use super::blocks::Blocks;
use super::{LocalView, Order, SubflowView, View, close, from_address, one_more};
use crate::api::{Ending, EventKind, Refresh, SmartBackup, Streaming};

/// One of them.
#[derive(Clone, Debug)]
pub(super) enum Paper {
    Backup(SmartBackup),
    Streaming(Streamer),
    Refresh { own: Refresh, next: Option<Instant> },
}

/// Smart streaming (section 4.3).
#[derive(Clone, Debug)]
pub(super) struct Streamer {
    own: Streaming,
    blocks: Blocks,
    /// When the block that began last is half-way through its period.
    half_way: Option<Instant>,
}

impl Paper {
    pub(super) const fn backup(own: SmartBackup) -> Self {
        Self::Backup(own)
    }

    pub(super) fn streaming(own: Streaming) -> Self {
        Self::Streaming(Streamer {
            own,
            blocks: Blocks::new(&own),
            half_way: None,
        })
    }

    pub(super) const fn refresh(own: Refresh) -> Self {
        Self::Refresh { own, next: None }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Backup(_) => None,
            Self::Streaming(own) => {
                let next = own.blocks.deadline();
                next.into_iter().chain(own.half_way).min()
            }
            Self::Refresh { next, .. } => *next,
        }
    }

    pub(super) fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        match self {
            Self::Backup(own) => move_to_backup(own.threshold, event, view, orders),
            Self::Streaming(own) => own.react(now, event, view, orders),
            Self::Refresh { own, next } => refresh(*own, next, now, view, orders),
        }
    }
}

/// Section 4.2: a subflow whose retransmission time-out passes the threshold is closed, and one is created over the backup
/// interface.
fn move_to_backup(
    threshold: Duration,
    event: Option<&EventKind>,
    view: &View,
    orders: &mut Vec<Order>,
) {
    let Some(EventKind::Timeout { subflow, rto, .. }) = event else {
        return;
    };
    let Some(sf) = view.subflow(*subflow) else {
        return;
    };
    if *rto <= threshold {
        return orders.push(Order::leave("the time-out is below the threshold"));
    }
    match unused(view, sf) {
        Some(other) if view.may_join => {
            let why = "its time-out passed the threshold";
            orders.push(Order::give(close(sf.id, Ending::Reset), why));
            orders.push(Order::give(from_address(other.addr, false), why));
        }
        _ => orders.push(Order::leave("there is no other path to move to")),
    }
}

/// An address without subflow; what is meant as a backup goes first.
fn unused(view: &View, sf: &SubflowView) -> Option<LocalView> {
    let used = |local: &LocalView| view.subflows.iter().any(|sf| sf.local.ip() == local.addr);
    let alike = |local: &LocalView| sf.local.is_ipv4() == local.addr.is_ipv4();
    let free = view
        .locals
        .iter()
        .filter(|local| !used(local) && alike(local));
    free.max_by_key(|local| local.backup).copied()
}

impl Streamer {
    /// Section 4.3: half-way through a block's period, half of the block has its acknowledgement, or another subflow is opened on the
    /// other interface; and a subflow whose time-out passes the bound is closed at once.
    fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        if let Some(EventKind::Timeout { subflow, rto, .. }) = event {
            if *rto > self.own.bound {
                let why = "its time-out passed the bound";
                orders.push(Order::give(close(*subflow, Ending::Reset), why));
            }
        }
        if self.half_way.is_some_and(|at| at <= now) {
            self.half_way = None;
            self.look_at_block(view, orders);
        }
        if self.blocks.begins(now, view.written) && self.half_way.is_none() {
            self.half_way = Some(now + self.own.period.over(2));
        }
    }

    fn look_at_block(&self, view: &View, orders: &mut Vec<Order>) {
        let (before, end) = self.blocks.last();
        let half = end.min(view.written).saturating_sub(before) / 2;
        if view.acked >= before + half {
            return orders.push(Order::leave("half of the block is through"));
        }
        let first = view.subflows.iter().find(|sf| sf.established);
        match first.and_then(|sf| unused(view, sf)) {
            Some(other) if view.may_join => {
                let why = "less than half of the block is through half-way";
                orders.push(Order::give(from_address(other.addr, false), why));
            }
            _ => orders.push(Order::leave(
                "there is no unused path to help this block by",
            )),
        }
    }
}

/// Section 4.4: the subflow with the lowest pacing rate is removed again and again, and a new one created at once.
fn refresh(
    own: Refresh,
    next: &mut Option<Instant>,
    now: Instant,
    view: &View,
    orders: &mut Vec<Order>,
) {
    if !view.may_create {
        *next = None;
        return;
    }
    let begins = next.is_none();
    if !begins && next.is_some_and(|next| next > now) {
        return;
    }
    *next = Some(now + own.every);
    for _ in view.subflows.len()..usize::from(own.subflows) {
        let why = "the policy wants that many subflows";
        orders.push(Order::give(one_more(), why));
    }
    let established = || view.subflows.iter().filter(|sf| sf.established);
    let slowest = established().min_by_key(|sf| sf.pacing_rate);
    if let (false, Some(slowest), true) = (begins, slowest, established().count() > 1) {
        let why = "it has the lowest pacing rate";
        orders.push(Order::give(close(slowest.id, Ending::Fin), why));
        orders.push(Order::give(one_more(), "in place of the slowest"));
    }
}
