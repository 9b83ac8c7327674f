//! The question to the scheduler, and what is kept of its answers.

use alloc::vec::Vec;
use core::cmp::Ordering;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use crate::api::IfaceId;
use crate::conn::dss::offset::Offset;
use crate::conn::pull::reinject::delivery;
use crate::conn::send::queue::Reinjection;
use crate::conn::subflow::Subflow;
use crate::conn::{Conn, Cx};
use crate::ids::{SubflowId, SubflowSet};
use crate::sched::{
    Choice, History, Need, PathView, Purpose, Scheduler, hold_back, leave_to_quicker,
    may_duplicate, shun_queues,
};

/// What a connection keeps for its scheduler.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    history: History,
    /// A round trip of the connection is over when this is acknowledged at data level.
    round_end: Offset,
    /// The window stopped the stream since the round began.
    blocked: bool,
    /// Devices that took no more since the connection's turn began: to the scheduler, their paths have no room.
    full: Vec<IfaceId>,
    /// Position of the subflow that was the last one to say something beside data in this turn.
    said: usize,
    /// Something else than acknowledgements was sent in this turn.
    moved: bool,
    /// When to look for a subflow that rests.
    look_at: Instant,
    /// How the subflows look, in their order. What is their machines' own is kept from one question to the next.
    views: Vec<PathView>,
    /// Space for options that the views count with.
    option_space: u8,
    /// How many of the views count: all or none.
    in_view: usize,
}

impl Schedule {
    /// The connection's turn begins: devices may have room again.
    pub(crate) fn begin_poll(&mut self) {
        self.full.clear();
        self.said = 0;
        self.moved = false;
    }

    /// Something else than acknowledgements was sent in this turn: more may follow from it.
    pub(crate) fn moved(&self) -> bool {
        self.moved
    }

    /// Something else than an acknowledgement was sent.
    pub(crate) fn note_moved(&mut self) {
        self.moved = true;
    }

    /// It is time to look for a subflow that rests, which is so once in each `span`.
    pub(in crate::conn) fn looks_for_rest(&mut self, now: Instant, span: Duration) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now + span;
        }
        due
    }

    /// Something that the views tell changed, and no machine did.
    pub(in crate::conn) fn forget(&mut self) {
        self.views.clear();
        self.in_view = 0;
    }

    /// The subflows in view.
    fn seen(&mut self) -> &mut [PathView] {
        &mut self.views[..self.in_view]
    }

    /// Where to go on looking for a subflow that has to say something beside data.
    pub(crate) fn said(&self) -> usize {
        self.said
    }

    /// The subflow at this position said something beside data.
    pub(crate) fn note_said(&mut self, position: usize) {
        self.said = position;
    }

    /// A device takes no more. True if that is news.
    pub(crate) fn note_full(&mut self, device: IfaceId) -> bool {
        let news = !self.full.contains(&device);
        if news {
            self.full.push(device);
        }
        news
    }

    /// A device that took no more in this turn.
    pub(crate) fn a_full_one(&self) -> Option<IfaceId> {
        self.full.last().copied()
    }

    /// New data left on this subflow.
    pub(crate) fn sent_on(&mut self, subflow: SubflowId) {
        self.history.last = Some(subflow);
    }

    /// Notes where the stream stands: first byte without Data ACK, first byte never sent, and whether data waits that
    /// only the window holds back.
    fn note(&mut self, una: Offset, next: Offset, blocked: bool) {
        self.blocked |= blocked;
        if una >= self.round_end && next > una {
            self.history.lambda = self.history.lambda.after_round(self.blocked);
            self.round_end = next;
            self.blocked = false;
        }
    }
}

/// A copy that the scheduler chose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duplicate {
    pub(crate) on: SubflowId,
    pub(crate) at: Offset,
    pub(crate) bytes: u64,
}

impl Conn {
    /// Looks at the subflows for `bytes` of new data, or of a reinjection. Where none of them has room, which is how most
    /// turns end, nothing else about them matters: nobody is in view.
    pub(in crate::conn) fn look(&mut self, bytes: u64, again: Option<&Reinjection>, cx: &Cx<'_>) {
        let reinjected = again.is_some();
        let count = self.subflows.len();
        let first = (0..count).find_map(|i| match self.room(i, bytes, reinjected, cx) {
            0 => None,
            some => Some((i, some)),
        });
        self.schedule.in_view = 0;
        let Some((first, some)) = first else { return };
        self.begin_views();
        for i in 0..count {
            let room = match i.cmp(&first) {
                Ordering::Less => 0,
                Ordering::Equal => some,
                Ordering::Greater => self.room(i, bytes, reinjected, cx),
            };
            self.view(i, room);
        }
        if let Some(silent) = again.and_then(|part| part.avoid) {
            shun_queues(self.schedule.seen(), silent);
        }
    }

    /// Bytes that a subflow would send now of `bytes`. What it would refuse to send is not offered to the scheduler: a path
    /// with a few bytes of room must not hold back the others.
    fn room(&self, i: usize, bytes: u64, reinjected: bool, cx: &Cx<'_>) -> u32 {
        let sf = &self.subflows[i];
        let available = u32::try_from(bytes).unwrap_or(u32::MAX);
        let congested = sf.tcp.is_congested(available, self.option_space());
        let can_send = || {
            let offer = self.offer(i, bytes, reinjected);
            sf.tcp.can_send_new(cx.now, &offer)
        };
        debug_assert!(!congested || can_send() == 0, "it could send");
        let is_full = self.schedule.full.contains(&sf.endpoint.iface);
        if congested || !sf.carries_data() || is_full || self.would_hold_up(i) {
            return 0;
        }
        can_send()
    }

    /// What a subflow sends to judge its time-out by (RFC 5682) waits behind what the time-out is about, and all others would wait
    /// for it: where there is another one, that one carries it.
    fn would_hold_up(&self, i: usize) -> bool {
        let another = |sf: &Subflow| sf.answers() && !sf.tcp.judges_time_out();
        self.subflows[i].tcp.judges_time_out() && self.subflows.iter().any(another)
    }

    /// All subflows come into view, one after the other.
    fn begin_views(&mut self) {
        let (space, count) = (self.option_space(), self.subflows.len());
        let schedule = &mut self.schedule;
        if schedule.option_space != space {
            schedule.option_space = space;
            schedule.views.clear();
        }
        schedule.views.truncate(count);
        schedule.in_view = count;
    }

    /// A subflow that can send so much comes into view, as it is at this moment. Most of its view is its machine's, which stays
    /// as it was while others send and are acknowledged.
    fn view(&mut self, i: usize, can_send: u32) {
        let changed = self.subflows[i].tcp.take_changed();
        let id = self.subflows[i].id();
        match self.schedule.views.get(i) {
            Some(view) if view.subflow == id && !changed => {}
            Some(_) => self.schedule.views[i] = self.measure(i),
            None => {
                let view = self.measure(i);
                self.schedule.views.push(view);
            }
        }
        let (sf, view) = (&self.subflows[i], &mut self.schedule.views[i]);
        view.duplicates = sf.duplicates.bytes();
        view.can_send = can_send;
        view.backup = sf.is_backup();
        view.stale = sf.is_potentially_failed();
        view.established = sf.carries_data();
    }

    /// What the scheduler wants to know of a subflow's machine; the rest is nothing.
    fn measure(&self, i: usize) -> PathView {
        let sf = &self.subflows[i];
        let (cwnd, inflight) = (sf.tcp.cwnd(), sf.tcp.inflight());
        let pace = self.pace(i);
        let delivery = delivery(&pace, inflight);
        let data_ack_delay = sf.data_ack_delay.get();
        PathView {
            subflow: sf.id(),
            srtt: sf.tcp.srtt().map(|srtt| srtt + data_ack_delay),
            rttvar: sf.tcp.rttvar(),
            rto: sf.tcp.rto(),
            cwnd,
            mss: sf.tcp.data_mss(self.schedule.option_space),
            inflight,
            oldest: sf.tcp.head_sent_at().filter(|_| !sf.tcp.in_recovery()),
            duplicates: 0,
            cwnd_room: cwnd.saturating_sub(inflight),
            window: sf.tcp.peer_window_field_scaled(),
            can_send: 0,
            delivery: delivery.queued + data_ack_delay,
            least: delivery.empty + data_ack_delay,
            capacity: sf.tcp.sustained_rate().map_or(0, Rate::as_bytes_per_sec),
            drain: pace.drain().map_or(0, Rate::as_bytes_per_sec),
            slow_start: pace.slow_start,
            unproven: sf.tcp.is_unproven() && !pace.is_full(),
            home: sf.endpoint.tuple.local.ip() == self.first.local.ip(),
            backup: false,
            stale: false,
            established: false,
        }
    }

    /// Subflows on which new data would hold up the others are kept from it.
    pub(in crate::conn) fn is_guarded(&self) -> bool {
        self.opts.mechanisms.guard && self.opts.scheduler == Scheduler::Guarded
    }

    /// Asks for the subflow of `bytes`, but not those that new data would be late on.
    pub(in crate::conn) fn pick_guarded(
        &mut self,
        bytes: u64,
        purpose: Purpose,
        cx: &mut Cx<'_>,
    ) -> Choice {
        if purpose == Purpose::Fresh && self.is_guarded() {
            // Who has little to send fills no window.
            if self.send.is_busy() {
                hold_back(self.schedule.seen(), self.send.window());
            }
            if !self.writer_has_more {
                let queued = self.send.end().since(self.send.next());
                leave_to_quicker(self.schedule.seen(), queued, self.send.window(), cx.now);
            }
        }
        self.pick(bytes, purpose, cx)
    }

    /// Asks for the subflow of `bytes`. The views of the subflows are up to date.
    pub(crate) fn pick(&mut self, bytes: u64, purpose: Purpose, cx: &mut Cx<'_>) -> Choice {
        let need = self.need(bytes, purpose);
        let scheduler = self.opts.scheduler;
        let views = self.schedule.seen();
        let choice = scheduler.pick(views, need);
        let held_back = choice == Choice::Wait && views.iter().any(|view| view.can_send > 0);
        self.schedule.history = scheduler.remember(views, need);
        cx.count.scheduler_waited += u64::from(held_back);
        choice
    }

    fn need(&self, bytes: u64, purpose: Purpose) -> Need {
        Need {
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            queued: self.send.end().since(self.send.next()),
            window: self.send.window(),
            purpose,
            history: self.schedule.history,
        }
    }

    /// The stream stands here; the window may be what stops it.
    pub(crate) fn note_schedule(&mut self) {
        let (una, next) = (self.send.una(), self.send.next());
        let blocked = next > una && self.send.blocked_by_window();
        self.schedule.note(una, next, blocked);
    }

    /// What to copy now that nothing new can be sent, if the scheduler is one that copies.
    pub(crate) fn next_duplicate(&mut self, cx: &mut Cx<'_>) -> Option<Duplicate> {
        let alone = self.subflows.len() < 2 || !self.fallback.is_multipath();
        if !self.opts.scheduler.duplicates() || alone {
            return None;
        }
        self.begin_views();
        let mut without = SubflowSet::EMPTY;
        for i in 0..self.subflows.len() {
            // To look for something costs more the more is in flight: only where there is room for it.
            let sf = &self.subflows[i];
            let may = may_duplicate(sf.duplicates.bytes(), sf.tcp.cwnd());
            let has_room = may && self.room(i, u64::MAX, true, cx) > 0;
            let part = if has_room {
                self.duplicate_for(i)
            } else {
                None
            };
            let room = match &part {
                Some(part) => self.room(i, part.end.since(part.start), true, cx),
                None => 0,
            };
            if part.is_none() {
                without.insert(self.subflows[i].id());
            }
            self.view(i, room);
        }
        match self.pick(u64::MAX, Purpose::Duplicate(without), cx) {
            Choice::Send(on) => {
                let part = self.duplicate_for(self.position(on)?)?;
                Some(Duplicate {
                    on,
                    at: part.start,
                    bytes: part.end.since(part.start),
                })
            }
            Choice::Wait => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Lambda;

    #[test]
    fn a_round_that_the_window_stopped_raises_the_factor_once() {
        let mut schedule = Schedule::default();
        // The first data; its round trip ends when its last byte is acknowledged.
        schedule.note(Offset(0), Offset(10), false);
        let start = schedule.history.lambda;
        schedule.note(Offset(5), Offset(20), true);
        schedule.note(Offset(9), Offset(20), false);
        assert_eq!(schedule.history.lambda, start);
        schedule.note(Offset(10), Offset(20), false);
        assert_eq!(schedule.history.lambda, start.after_round(true));
        schedule.note(Offset(19), Offset(30), false);
        schedule.note(Offset(20), Offset(30), false);
        let after = start.after_round(true).after_round(false);
        assert_eq!(schedule.history.lambda, after);
        assert!(start < Lambda::INITIAL && after > start);
    }

    #[test]
    fn nothing_in_flight_is_no_round() {
        let mut schedule = Schedule::default();
        for _ in 0..9 {
            schedule.note(Offset(7), Offset(7), false);
        }
        assert_eq!(schedule.history.lambda, Lambda::INITIAL);
    }
}
