//! What every controller does when no subflow is left: one more, from wherever one can be had. A controller judges subflows,
//! and none of them is there to judge; but without any the connection ends when its time is over.
//!
//! One attempt at a time, each between two addresses that have no subflow, and with growing pauses: who goes away may refuse
//! a join in a moment. Those that sent a refusal for good are left alone, as everywhere (RFC 8684 section 3.6).

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};

use super::{Order, SubflowView, View, close};
use crate::api::{Command, Ending, EventKind, NewSubflow, SubflowEnd};
use crate::ids::SubflowId;
use crate::pm::retry::{self, History, Retry};

/// The pause after the first attempt, and how often it doubles: up to 3.2 s.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const DOUBLINGS: u8 = 4;
/// How long a join that is under way is waited for before one from elsewhere is begun beside it.
const HANDSHAKE: Duration = Duration::from_secs(1);
/// How long the SYN of a join is waited for at most, as its own pauses double and it keeps its addresses. Without any subflow the
/// connection ends soon; beside one that is silent it doubles this often with the attempts: up to 51.2 s.
const PATIENCE: Duration = Duration::from_millis(3_200);
const PATIENCE_DOUBLINGS: u8 = 4;
/// After so long without an attempt the pauses begin anew.
const CALM: Duration = Duration::from_secs(10);
/// Refusals for good that are remembered.
const MOST_REFUSED: usize = 32;

/// Two addresses, the peer's with its port.
type Pair = (IpAddr, SocketAddr);

/// Which of the subflows that are there do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    /// All that are established count: the controller itself judges those that are silent.
    Established,
    /// Those whose path is silent do not.
    Answering,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Lifeline {
    /// When the next attempt may be made; `None` while some subflow is there.
    next: Option<Instant>,
    /// When a subflow was last asked for, and how many attempts there were in a row.
    last: Instant,
    attempts: u8,
    /// Subflows that were up when it was looked last.
    up: Vec<SubflowId>,
    /// Those that were not up yet, and since when they were seen.
    waiting: Vec<(SubflowId, Instant)>,
    /// Where the peer wants no more.
    refused: Vec<Pair>,
}

impl Lifeline {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Adds an order where nothing is left and the controller itself ordered no subflow.
    pub(super) fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        counts: Counts,
        orders: &mut Vec<Order>,
    ) {
        if let Some(EventKind::SubflowDown {
            subflow,
            tuple,
            end,
        }) = event
        {
            let established = self.up.contains(subflow);
            if is_lasting(*end, established) && self.refused.len() < MOST_REFUSED {
                self.refused.push((tuple.local.ip(), tuple.remote));
            }
        }
        let established = view.subflows.iter().filter(|sf| sf.established);
        self.up = established.clone().map(|sf| sf.id).collect();
        self.note_waiting(now, view);
        let works = |sf: &SubflowView| counts == Counts::Established || !is_silent(sf);
        if established.clone().any(works) {
            self.next = None;
            return;
        }
        let makes = |order: &Order| matches!(order.command, Some(Command::Create(_)));
        let under_way = view.subflows.iter().any(|sf| !sf.established);
        if orders.iter().any(makes) {
            (self.last, self.next) = (now, Some(now + HANDSHAKE));
        } else if under_way && self.next.is_none() {
            self.next = Some(now + HANDSHAKE);
        }
        // Several events of one moment share a view, which does not have yet what the first of them had ordered.
        let comes = matches!(event, Some(EventKind::LocalUp { .. })) && view.subflows.is_empty();
        if comes && self.last < now {
            self.next = Some(now);
        }
        let next = *self.next.get_or_insert(now);
        if next > now {
            return;
        }
        // What is waited for longer is no calm.
        if now.since(self.last) > CALM && self.waiting.is_empty() {
            self.attempts = 0;
        }
        let free = self.free_pair(view);
        let longest = self.longest_waiting(view);
        let patience = patience(self.attempts, established.clone().next().is_none());
        let overdue = longest.filter(|(_, since)| free.is_none() && *since + patience <= now);
        let again = overdue.map(|(sf, _)| (sf.local.ip(), sf.remote));
        let Some((local, remote)) = free.or(again) else {
            // An address that comes, or a join that fails, is an event; that joins are allowed once more is none.
            let alone = view.subflows.is_empty().then_some(now + HANDSHAKE);
            self.next = longest.map(|(_, since)| since + patience).or(alone);
            return;
        };
        if let Some((sf, _)) = overdue {
            orders.push(Order::give(
                close(sf.id, Ending::Reset),
                "its SYN waits too long to be said again",
            ));
        }
        let backup = view.locals.iter().any(|l| l.addr == local && l.backup);
        let wanted = NewSubflow {
            local: Some(local),
            remote: Some(remote.ip()),
            remote_port: Some(remote.port()),
            backup,
            ..NewSubflow::default()
        };
        orders.push(Order::give(
            Command::Create(wanted),
            "no subflow is left that works",
        ));
        self.next = Some(now + pause(self.attempts));
        self.last = now;
        self.attempts = self.attempts.saturating_add(1);
    }

    fn note_waiting(&mut self, now: Instant, view: &View) {
        let is_waiting = |sf: &&SubflowView| !sf.established;
        let known = core::mem::take(&mut self.waiting);
        let since = |id: SubflowId| known.iter().find(|(known, _)| *known == id);
        let waiting = view.subflows.iter().filter(is_waiting);
        self.waiting = waiting
            .map(|sf| since(sf.id).copied().unwrap_or((sf.id, now)))
            .collect();
    }

    /// The join of ours that is waited for longest, and since when. What the peer began is not ours to begin anew.
    fn longest_waiting<'a>(&self, view: &'a View) -> Option<(&'a SubflowView, Instant)> {
        let (id, since) = self
            .waiting
            .iter()
            .filter(|(id, _)| {
                view.subflow(*id)
                    .is_some_and(|sf| view.may_join && view.remotes.contains(&sf.remote))
            })
            .min_by_key(|(_, since)| *since)?;
        Some((view.subflow(*id)?, *since))
    }

    /// Two addresses without a subflow; each in turn, those first that are no backups.
    fn free_pair(&self, view: &View) -> Option<Pair> {
        if !view.may_join {
            return None;
        }
        let mut locals = view.locals.clone();
        locals.sort_by_key(|local| local.backup);
        let used = |pair: &Pair| {
            let between = |sf: &SubflowView| (sf.local.ip(), sf.remote) == *pair;
            view.subflows.iter().any(between)
        };
        let with_all = |remote: &SocketAddr| {
            let remote = *remote;
            locals.iter().map(move |local| (local.addr, remote))
        };
        let free: Vec<Pair> = view
            .remotes
            .iter()
            .flat_map(with_all)
            .filter(|(local, remote)| local.is_ipv4() == remote.is_ipv4())
            .filter(|pair| !used(pair) && !self.refused.contains(pair))
            .collect();
        let turn = usize::from(self.attempts).checked_rem(free.len())?;
        free.get(turn).copied()
    }
}

/// How long to wait after that many attempts in vain. Pure.
fn pause(attempts: u8) -> Duration {
    FIRST_PAUSE.times(1 << attempts.min(DOUBLINGS))
}

/// How long to wait for a SYN after that many attempts. Pure.
fn patience(attempts: u8, nothing_left: bool) -> Duration {
    let doublings = attempts.saturating_sub(DOUBLINGS).min(PATIENCE_DOUBLINGS);
    PATIENCE.times(if nothing_left { 1 } else { 1 << doublings })
}

/// A subflow whose path does not answer: a sender's after two time-outs, as one may be chance, and a reader's, who has none,
/// when its questions are not answered. Pure.
pub(super) fn is_silent(sf: &SubflowView) -> bool {
    sf.stale && sf.backoffs != 1
}

/// The end says that another attempt is pointless or forbidden. Ends that were ordered say nothing. // rfc8684:T4
fn is_lasting(end: SubflowEnd, established: bool) -> bool {
    let history = History {
        established,
        worked: true,
        failures: 0,
        useful: false,
        beside: false,
    };
    end != SubflowEnd::Administrative && retry::after(end, history) == Retry::Never
}
