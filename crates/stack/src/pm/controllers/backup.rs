//! Smart backup (SMAPP section 4.2): no subflow on the second path until the first one is in trouble; then move, and move
//! back when the first path is well again.

use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::time::{Duration, Instant};

use super::lifeline::is_silent;
use super::{LocalView, Order, SubflowView, View, close, from_address};
use crate::api::{Ending, EventKind, SmartBackup};
use crate::ids::SubflowId;

/// The pause between two looks at the primary path doubles this often.
const DOUBLINGS: u8 = 4;
/// So many time-outs within so many thresholds' time are too many, whatever moves in between.
const TIMEOUTS: usize = 3;
const WITHIN: u64 = 3;
/// How many times the threshold a primary subflow on probation has to do well.
const PROBATION: u64 = 3;
/// The pauses between two attempts to move double this often.
const MOVE_DOUBLINGS: u8 = 6;

#[derive(Clone, Debug)]
pub(super) struct Backup {
    own: SmartBackup,
    /// The address of the first subflow.
    primary: Option<IpAddr>,
    state: State,
    /// Stream bytes acknowledged when that last changed, and when that was.
    progress: (u64, Instant),
    /// The last time-outs of the primary, newest last.
    timeouts: [Instant; TIMEOUTS],
    /// How often the primary path disappointed since it last did well.
    failures: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first subflow.
    New,
    /// All on the primary path.
    Primary,
    /// A time-out happened there; this is when patience ends.
    Suspicious { until: Instant },
    /// All still on the primary path, until a subflow elsewhere is up: since when, when it is looked for one again, and how often
    /// it was.
    Moving {
        since: Instant,
        again: Instant,
        attempts: u8,
    },
    /// On the backup path; when the primary is tried again.
    Away { retry_at: Instant },
    /// A new primary subflow shows how it does until then.
    Probation { until: Instant },
}

impl Backup {
    pub(super) fn new(own: SmartBackup) -> Self {
        Self {
            own,
            primary: None,
            state: State::New,
            progress: (0, Instant::ZERO),
            timeouts: [Instant::ZERO; TIMEOUTS],
            failures: 0,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::New | State::Primary => None,
            State::Suspicious { until } => Some(until),
            State::Moving { again, .. } => Some(again),
            State::Away { retry_at } => Some(retry_at),
            State::Probation { until } => Some(until),
        }
    }

    fn is_primary(&self, sf: &SubflowView) -> bool {
        self.primary == Some(sf.local.ip())
    }

    pub(super) fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        let begins = self.state == State::New;
        if begins || view.acked != self.progress.0 || view.acked == view.written {
            // The timer that expired was started by the last acknowledgement, and was half of what it is now.
            let idle = match event {
                Some(EventKind::Timeout { rto, .. }) => rto.over(2),
                _ => Duration::ZERO,
            };
            self.progress = (view.acked, now - idle);
        }
        if self.state == State::New {
            if let Some(first) = view.subflows.first() {
                self.primary = Some(first.local.ip());
                self.state = State::Primary;
            }
        }
        match event {
            Some(EventKind::Timeout { subflow, rto, .. }) => {
                self.timed_out(now, *subflow, *rto, view, orders);
            }
            Some(EventKind::SubflowUp { .. }) => self.subflow_came(now, view, orders),
            Some(EventKind::SubflowDown { .. }) => self.subflow_gone(now, view, orders),
            Some(EventKind::LocalDown { addr, .. }) if self.primary == Some(*addr) => {
                let why = "the primary address is gone";
                self.move_away(now, view, orders, why);
                // Its subflows end with it.
                if let State::Moving { .. } = self.state {
                    self.leave_primary(now, view, orders, why);
                }
            }
            Some(EventKind::LocalUp { addr, .. }) if self.primary == Some(*addr) => {
                if let State::Away { .. } = self.state {
                    self.failures = 0;
                    self.try_primary(now, view, orders);
                }
            }
            Some(_) => {}
            None => self.time_has_come(now, view, orders),
        }
    }

    /// The event that the paper's controller lives by. Waiting until the timer itself is beyond the threshold would be
    /// late by the time-outs that led there, so the time without progress counts as well.
    fn timed_out(
        &mut self,
        now: Instant,
        subflow: SubflowId,
        rto: Duration,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        let sf = view.subflow(subflow).filter(|sf| self.is_primary(sf));
        let Some(sf) = sf else {
            return;
        };
        let too_often = self.too_often(now);
        // A reader has nothing under way, and waited before it asked.
        let reader = sf.stale && sf.backoffs == 0;
        match self.state {
            State::Primary | State::Suspicious { .. } if reader => {
                self.move_away(now, view, orders, "the primary path does not answer");
            }
            State::Probation { .. } if self.has_other(view) => {
                orders.push(Order::give(
                    close(subflow, Ending::Reset),
                    "the primary path is not well yet",
                ));
                self.disappointed(now);
            }
            State::Probation { .. } => {
                self.extend_probation(now, view, too_often || rto > self.own.threshold, orders);
            }
            State::Primary | State::Suspicious { .. } if rto > self.own.threshold => {
                self.move_away(
                    now,
                    view,
                    orders,
                    "the time-out of the primary passed the threshold",
                );
            }
            State::Primary | State::Suspicious { .. } if too_often => {
                self.move_away(now, view, orders, "the primary times out again and again");
            }
            State::Primary | State::Suspicious { .. } => {
                let until = self.progress.1 + self.own.threshold;
                self.state = State::Suspicious {
                    until: until.max(now),
                };
                if until <= now {
                    self.move_away(now, view, orders, "nothing moves on the primary path");
                } else {
                    orders.push(Order::leave("the time-out is below the threshold"));
                }
            }
            State::Moving { .. } => {
                orders.push(Order::leave("there is nothing yet to move to"));
            }
            State::New | State::Away { .. } => {}
        }
    }

    /// Notes a time-out; whether there were too many lately.
    fn too_often(&mut self, now: Instant) -> bool {
        self.timeouts.rotate_left(1);
        self.timeouts[TIMEOUTS - 1] = now;
        let oldest = self.timeouts[0];
        oldest > Instant::ZERO && now.since(oldest) <= self.own.threshold.times(WITHIN)
    }

    /// What was waited for is there. A subflow that was made where nothing was left is not always on the primary path: that is
    /// returned to.
    fn subflow_came(&mut self, now: Instant, view: &View, orders: &mut Vec<Order>) {
        let elsewhere = !view.subflows.iter().any(|sf| self.is_primary(sf));
        match self.state {
            State::Primary if elsewhere => self.disappointed(now),
            State::Moving { since, .. } if self.has_other(view) => {
                let probation = self.own.threshold.times(PROBATION);
                // It took long, and meanwhile the primary path may have recovered.
                if self.is_well(view) && now >= since + probation {
                    self.state = State::Probation {
                        until: now + probation,
                    };
                    return;
                }
                self.leave_primary(now, view, orders, "there is another subflow now");
            }
            _ => {}
        }
    }

    fn subflow_gone(&mut self, now: Instant, view: &View, orders: &mut Vec<Order>) {
        let primary = view.subflows.iter().any(|sf| self.is_primary(sf));
        match self.state {
            State::Primary | State::Suspicious { .. } if !primary => {
                self.move_away(now, view, orders, "the primary subflow is gone");
            }
            State::Moving { .. } | State::Probation { .. } if !primary => self.disappointed(now),
            State::Away { .. } if view.subflows.is_empty() => {
                self.try_primary(now, view, orders);
            }
            _ => {}
        }
    }

    fn time_has_come(&mut self, now: Instant, view: &View, orders: &mut Vec<Order>) {
        match self.state {
            State::Suspicious { until } if until <= now => {
                if self.progress.1 + self.own.threshold <= now {
                    self.move_away(now, view, orders, "nothing moves on the primary path");
                } else {
                    // Something moved meanwhile; the next time-out starts the watch again.
                    self.state = State::Primary;
                    orders.push(Order::leave("the primary path moves data again"));
                }
            }
            State::Moving {
                since,
                again,
                attempts,
            } if again <= now => self.still_there(now, (since, attempts), view, orders),
            State::Away { retry_at } if retry_at <= now => self.try_primary(now, view, orders),
            State::Probation { until } if until <= now => self.judge(now, view, orders),
            _ => {}
        }
    }

    /// Something carries data, or could, elsewhere than on the primary path.
    fn has_other(&self, view: &View) -> bool {
        let other = |sf: &SubflowView| sf.established && !self.is_primary(sf) && !is_silent(sf);
        view.subflows.iter().any(other)
    }

    /// A subflow on the primary path carries data, or could.
    fn is_well(&self, view: &View) -> bool {
        let well = |sf: &SubflowView| {
            self.is_primary(sf) && sf.established && sf.backoffs == 0 && !sf.stale
        };
        view.subflows.iter().any(well)
    }

    /// The primary path does not do well, but it is all there is: who left it for one that does not work would have nothing.
    /// In trouble another one is begun beside it, and when that comes up the primary is judged as ever.
    fn extend_probation(
        &mut self,
        now: Instant,
        view: &View,
        in_trouble: bool,
        orders: &mut Vec<Order>,
    ) {
        self.state = State::Probation {
            until: now + self.own.threshold.times(PROBATION),
        };
        orders.push(match self.unused_path(view).filter(|_| in_trouble) {
            Some(other) => Order::give(
                from_address(other.addr, false),
                "the primary path is not well yet, and nothing else works",
            ),
            None => Order::leave("the primary path is not well yet, but nothing else works"),
        });
    }

    /// The address to move to. What is meant as a backup goes first.
    fn other_path(&self, view: &View) -> Option<LocalView> {
        let other =
            |local: &&LocalView| Some(local.addr) != self.primary && self.same_family(local.addr);
        let others = view.locals.iter().filter(other);
        others.max_by_key(|local| local.backup).copied()
    }

    /// Opens a subflow on another path, and closes those on the primary when that is up: until then they are all there is, and
    /// who is in trouble may be the peer, or all paths.
    fn move_away(&mut self, now: Instant, view: &View, orders: &mut Vec<Order>, why: &'static str) {
        // It is looked again at the next time-out.
        if self.other_path(view).is_none() {
            self.state = State::Primary;
            return orders.push(Order::leave("there is no other path to move to"));
        }
        if !view.may_join {
            self.state = State::Primary;
            return orders.push(Order::leave("no subflow can be made yet to move to"));
        }
        self.open_other(view, orders, why);
        let all_there_is = |sf: &SubflowView| sf.established && self.is_primary(sf);
        if view.subflows.iter().any(all_there_is) && !self.has_other(view) {
            self.state = State::Moving {
                since: now,
                again: now + self.own.threshold,
                attempts: 1,
            };
        } else {
            self.leave_primary(now, view, orders, why);
        }
    }

    /// The same, if a subflow may be made there and there is none.
    fn unused_path(&self, view: &View) -> Option<LocalView> {
        self.other_path(view).filter(|other| {
            let there = |sf: &SubflowView| sf.local.ip() == other.addr;
            view.may_join && !view.subflows.iter().any(there)
        })
    }

    /// One subflow on the other path, unless there is one.
    fn open_other(&self, view: &View, orders: &mut Vec<Order>, why: &'static str) {
        if let Some(other) = self.unused_path(view) {
            orders.push(Order::give(from_address(other.addr, false), why));
        }
    }

    /// Nothing came up yet to move to: a join that failed is begun again, later and later.
    fn still_there(
        &mut self,
        now: Instant,
        (since, attempts): (Instant, u8),
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        let under_way = |sf: &SubflowView| !sf.established && !self.is_primary(sf);
        if self.is_well(view) && !view.subflows.iter().any(under_way) {
            self.state = State::Primary;
            return orders.push(Order::leave("the primary path is well again"));
        }
        self.open_other(view, orders, "the primary path is not well yet");
        let pause = self.own.threshold.times(1 << attempts.min(MOVE_DOUBLINGS));
        self.state = State::Moving {
            since,
            again: now + pause,
            attempts: attempts.saturating_add(1),
        };
    }

    fn leave_primary(
        &mut self,
        now: Instant,
        view: &View,
        orders: &mut Vec<Order>,
        why: &'static str,
    ) {
        for sf in view.subflows.iter().filter(|sf| self.is_primary(sf)) {
            orders.push(Order::give(close(sf.id, Ending::Reset), why));
        }
        self.disappointed(now);
    }

    fn same_family(&self, addr: IpAddr) -> bool {
        self.primary
            .is_none_or(|primary| primary.is_ipv4() == addr.is_ipv4())
    }

    /// On the backup path from now on, and when to look again.
    fn disappointed(&mut self, now: Instant) {
        let pause = self.own.retry.times(1 << self.failures.min(DOUBLINGS));
        self.failures = self.failures.saturating_add(1);
        self.timeouts = [Instant::ZERO; TIMEOUTS];
        self.state = State::Away {
            retry_at: now + pause,
        };
    }

    fn try_primary(&mut self, now: Instant, view: &View, orders: &mut Vec<Order>) {
        let up = view
            .locals
            .iter()
            .find(|local| Some(local.addr) == self.primary);
        match up {
            Some(local) if view.may_join => {
                // One may be there, made when nothing else was left.
                if !view.subflows.iter().any(|sf| self.is_primary(sf)) {
                    orders.push(Order::give(
                        from_address(local.addr, false),
                        "to see whether the primary path is well again",
                    ));
                }
                self.state = State::Probation {
                    until: now + self.own.threshold.times(PROBATION),
                };
            }
            _ => {
                orders.push(Order::leave("the primary address cannot be used"));
                self.state = State::Away {
                    retry_at: now + self.own.retry,
                };
            }
        }
    }

    /// The probation is over without a time-out.
    fn judge(&mut self, now: Instant, view: &View, orders: &mut Vec<Order>) {
        let well = |sf: &&SubflowView| self.is_primary(sf) && sf.established && sf.backoffs == 0;
        let primary = view.subflows.iter().find(|sf| self.is_primary(sf));
        if !view.subflows.iter().any(|sf| well(&sf)) {
            if primary.is_some_and(|sf| sf.established) && !self.has_other(view) {
                return self.extend_probation(now, view, true, orders);
            }
            for sf in view.subflows.iter().filter(|sf| self.is_primary(sf)) {
                orders.push(Order::give(
                    close(sf.id, Ending::Reset),
                    "the primary path does not answer yet",
                ));
            }
            return self.disappointed(now);
        }
        for sf in view.subflows.iter().filter(|sf| !self.is_primary(sf)) {
            orders.push(Order::give(
                close(sf.id, Ending::Fin),
                "the primary path is well again",
            ));
        }
        self.failures = 0;
        self.state = State::Primary;
    }
}
