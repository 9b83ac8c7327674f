//! Refresh (SMAPP section 4.4): subflows over a network that spreads flows by a hash of their ports, of which the slowest
//! are replaced again and again, so that none of the parallel paths stays unused. The paper replaces the slowest one; that
//! takes longer to find all paths than to replace half of those that are much slower than the fastest.

use alloc::vec::Vec;

use manypath_tcp::time::Instant;

use super::{Order, SubflowView, View, close, one_more};
use crate::api::{Ending, EventKind, Refresh};
use crate::ids::SubflowId;

#[derive(Clone, Debug)]
pub(super) struct Refresher {
    own: Refresh,
    next: Option<Instant>,
    /// Bytes acknowledged on each subflow at the last look or when it came up, and when that was.
    seen: Vec<(SubflowId, u64, Instant)>,
}

impl Refresher {
    pub(super) fn new(own: Refresh) -> Self {
        Self {
            own,
            next: None,
            seen: Vec::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        if let Some(EventKind::SubflowUp { subflow, .. }) = event {
            self.seen.retain(|(id, ..)| id != subflow);
            self.seen.push((*subflow, 0, now));
        }
        if !view.may_create {
            self.next = None;
            return;
        }
        if self.next.is_none() {
            self.next = Some(now + self.own.every);
            for _ in view.subflows.len()..usize::from(self.own.subflows) {
                orders.push(Order::give(
                    one_more(),
                    "the policy wants that many subflows",
                ));
            }
            return;
        }
        if self.next.is_some_and(|next| next <= now) {
            self.next = Some(now + self.own.every);
            self.refresh(now, view, orders);
        }
    }

    /// Replaces the slowest, or makes up for one that was lost.
    fn refresh(&mut self, now: Instant, view: &View, orders: &mut Vec<Order>) {
        let rate = |sf: &SubflowView| {
            let (_, before, at) = self.seen.iter().find(|(id, ..)| *id == sf.id)?;
            let time = now.since(*at);
            // One that came up a moment ago has not had its chance.
            let fair = time >= self.own.every.over(2);
            fair.then(|| sf.acked.saturating_sub(*before) * 1_000 / time.as_millis().max(1))
        };
        let judged: Vec<(u64, SubflowId)> = view
            .subflows
            .iter()
            .filter(|sf| sf.established)
            .filter_map(|sf| rate(sf).map(|rate| (rate, sf.id)))
            .collect();
        self.seen = view
            .subflows
            .iter()
            .map(|sf| (sf.id, sf.acked, now))
            .collect();
        let missing = usize::from(self.own.subflows).saturating_sub(view.subflows.len());
        for _ in 0..missing {
            orders.push(Order::give(
                one_more(),
                "the policy wants that many subflows",
            ));
        }
        let fastest = judged.iter().map(|(rate, _)| *rate).max().unwrap_or(0);
        let mut slow: Vec<_> = judged
            .into_iter()
            .filter(|(rate, _)| rate.saturating_mul(4) < fastest.saturating_mul(3))
            .collect();
        slow.sort_unstable();
        // Where all do about alike, each has a share of its own or all share one path: another draw wins nothing.
        if slow.is_empty() {
            orders.push(Order::leave("no subflow is much slower than the others"));
        }
        // Slow ones share a path with another, most of them with another slow one: half of them are one too many there.
        slow.truncate((slow.len() / 2).max(1));
        for (_, subflow) in slow {
            orders.push(Order::give(one_more(), "in place of a slow one"));
            orders.push(Order::give(
                close(subflow, Ending::Fin),
                "it is among the slowest",
            ));
        }
    }
}
