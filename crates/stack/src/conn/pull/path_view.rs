//! Queries the scheduler: builds the path views it sees and keeps its state. Never sends.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::IpAddr;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use crate::api::{ConnOptions, IfaceId};
use crate::conn::Conn;
use crate::conn::dss::offset::Offset;
use crate::conn::pull::no_room::NoRoom;
use crate::conn::pull::reinject::delivery;
use crate::conn::send::queue::{Reinjection, SendQueue};
use crate::conn::subflow::Subflow;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::ids::{SubflowId, SubflowSet};
use crate::sched::{
    Carried, Choice, CwndView, Division, History, Need, Outside, PathView, Preference, Purpose,
    RatesView, Room, RttView, Scheduler, Tier, Wish, hold_back, leave_to_quicker, may_duplicate,
    prefer, shun_queues,
};
use crate::shape::LimitRates;

/// Scheduler state of a connection.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    history: History,
    /// The state of a scheduler from outside.
    outside: Outside,
    /// A round trip of the connection ends when this is acknowledged at data level.
    round_end: Offset,
    /// The peer's window blocked the stream since the round began.
    blocked: bool,
    /// What had no room in this poll.
    pub(in crate::conn) no_room: NoRoom,
    /// Position of the subflow that last sent something besides data in this poll.
    said: SubflowIdx,
    /// Something other than acknowledgements was sent in this poll.
    moved: bool,
    /// Something besides new data was among it.
    moved_more: bool,
    /// When to look for an idle subflow.
    look_at: Instant,
    /// Path views of the subflows, in their order. What comes from the TCP state machine is cached between queries.
    views: Vec<PathView>,
    /// Option space assumed by the views.
    option_space: u8,
    /// How many views are valid: all or none.
    in_view: usize,
    /// What the operator wants of the paths.
    wanted: Wanted,
    /// What limits let subflows send.
    limits: LimitRates,
}

/// What an operator wants of the paths, and what came of it so far.
#[derive(Debug, Default)]
struct Wanted {
    /// Of interfaces; empty where nothing is wanted.
    preferences: Preferences,
    /// The same of each subflow, in the order of the views.
    wishes: Vec<Wish>,
    /// What was divided by weights.
    division: Division,
    /// What those carry that come first.
    carried: Carried,
}

impl Wanted {
    /// Some path has a weight.
    fn is_divided(&self) -> bool {
        let mut wanted = self.preferences.iter();
        wanted.any(|(_, wanted)| wanted.weight.is_some())
    }
}

/// What an operator wants of interfaces.
pub(crate) type Preferences = Vec<(IfaceId, Preference)>;

impl Schedule {
    /// Starts a poll: devices may have room again.
    pub(crate) fn begin_poll(&mut self) {
        self.no_room.clear();
        self.said = SubflowIdx::FIRST;
        (self.moved, self.moved_more) = (false, false);
    }

    /// Something other than acknowledgements was sent in this poll: more may follow from it.
    pub(crate) fn moved(&self) -> bool {
        self.moved
    }

    /// Something besides acknowledgements and new data was sent in this poll: any subflow may be affected.
    pub(crate) fn moved_more(&self) -> bool {
        self.moved_more
    }

    /// Something other than an acknowledgement was sent: new data, or `more`.
    pub(crate) fn note_moved(&mut self, more: bool) {
        self.moved = true;
        self.moved_more |= more;
    }

    /// True once per `span`: it is time to look for an idle subflow.
    pub(in crate::conn) fn reprobe_search_due(&mut self, now: Instant, span: Duration) -> bool {
        let due = now >= self.look_at;
        if due {
            self.look_at = now + span;
        }
        due
    }

    /// Other preferences from now on.
    pub(crate) fn set_preferences(&mut self, preferences: Preferences) {
        self.wanted = Wanted {
            preferences,
            ..Wanted::default()
        };
    }

    /// Other limits from now on.
    pub(crate) fn set_limits(&mut self, limits: LimitRates) {
        if self.limits != limits {
            self.limits = limits;
            self.forget();
        }
    }

    /// Notes what is wanted of each subflow that has a view.
    fn note_wishes(&mut self, subflows: &Subflows) {
        let wanted = &mut self.wanted;
        if wanted.preferences.is_empty() {
            return;
        }
        let of = |iface: IfaceId| {
            let known = wanted.preferences.iter().find(|(known, _)| *known == iface);
            known.map_or(Preference::NONE, |(_, wanted)| *wanted)
        };
        let wish = |sf: &Subflow| {
            (
                of(sf.endpoint.iface),
                sf.tcp.info().counters.sent.bytes_sent,
            )
        };
        let mut wishes = core::mem::take(&mut wanted.wishes);
        wishes.clear();
        wishes.extend(subflows.iter().map(wish));
        wanted.wishes = wishes;
    }

    /// Leaves room where the operator wants new data to go.
    fn prefer(&mut self, now: Instant) {
        let wanted = &mut self.wanted;
        if !wanted.preferences.is_empty() && self.in_view > 1 {
            let views = &mut self.views[..self.in_view];
            prefer(views, &wanted.wishes, &mut wanted.carried, now);
            wanted.division.divide(views, &wanted.wishes);
        }
    }

    /// Drops the views: they changed without any state machine changing.
    pub(in crate::conn) fn forget(&mut self) {
        self.views.clear();
        self.in_view = 0;
    }

    /// The valid views.
    fn seen(&mut self) -> &mut [PathView] {
        &mut self.views[..self.in_view]
    }

    /// Where to continue the search for a subflow that has to send something besides data.
    pub(crate) fn said(&self) -> SubflowIdx {
        self.said
    }

    /// The subflow at this position sent something besides data.
    pub(crate) fn note_control_sent(&mut self, position: SubflowIdx) {
        self.said = position;
    }

    /// New data was sent on this subflow.
    pub(crate) fn sent_on(&mut self, subflow: SubflowId) {
        self.history.last = Some(subflow);
    }

    /// Notes the stream's state: first byte without Data ACK, first byte never sent, and whether data waits that only the window blocks.
    fn note(&mut self, una: Offset, next: Offset, blocked: bool) {
        self.blocked |= blocked;
        if una >= self.round_end && next > una {
            self.history.lambda = self.history.lambda.after_round(self.blocked);
            self.round_end = next;
            self.blocked = false;
        }
    }

    /// Prepares the views of so many subflows, for `view` to update.
    fn begin_views(&mut self, option_space: u8, count: usize) {
        if self.option_space != option_space {
            self.option_space = option_space;
            self.views.clear();
        }
        self.views.truncate(count);
        self.in_view = count;
    }

    /// Updates a subflow's view, with room for `can_send`. Most of it comes from the TCP state machine, and stays as it was while others
    /// send and are acknowledged.
    fn view(
        &mut self,
        subflows: &mut Subflows,
        home: IpAddr,
        i: SubflowIdx,
        can_send: u32,
        now: Instant,
    ) {
        let changed = subflows[i].tcp.take_changed();
        let id = subflows[i].id();
        match self.views.get(i.0) {
            Some(view) if view.subflow == id && !changed => {}
            Some(_) => self.views[i.0] = self.measure(&subflows[i], home),
            None => {
                let view = self.measure(&subflows[i], home);
                self.views.push(view);
            }
        }
        let (sf, view) = (&subflows[i], &mut self.views[i.0]);
        let srtt = sf.tcp.aged_srtt(now);
        view.rtt.srtt = srtt.map(|srtt| srtt + sf.reinjection.data_ack_delay.get());
        view.duplicates = sf.maps.duplicates.bytes();
        view.room = Room::of(can_send);
        // Where options stopped, what is sent has no Data ACK: such a subflow keeps nothing from a backup. // rfc8684:P1
        let doubtful = sf.is_potentially_failed() || sf.evidence.option_loss.others_tried;
        let tier = Tier::of(doubtful, sf.is_backup());
        view.tier = sf.carries_data().then_some(tier);
    }

    /// The cached part of a subflow's view; the other fields are those of a full subflow.
    fn measure(&self, sf: &Subflow, home: IpAddr) -> PathView {
        let (cwnd, inflight) = (sf.tcp.cwnd(), sf.tcp.inflight());
        let pace = sf.pace();
        let delivery = delivery(&pace, inflight);
        let data_ack_delay = sf.reinjection.data_ack_delay.get();
        let known = |rate: &Rate| *rate > Rate::ZERO;
        let (local, remote) = (sf.endpoint.tuple.local.ip(), sf.endpoint.tuple.remote.ip());
        PathView {
            subflow: sf.id(),
            tier: None,
            home: local == home,
            rtt: RttView {
                srtt: None,
                rttvar: sf.tcp.rttvar(),
                rto: sf.tcp.rto(),
            },
            expected_delivery: delivery.queued + data_ack_delay,
            base_delay: delivery.empty + data_ack_delay,
            rates: RatesView {
                sustained: sf.tcp.sustained_rate().filter(known),
                drain: pace.drain().filter(known),
                limit: self.limits.of(sf.endpoint.iface, local, remote),
            },
            cwnd: CwndView {
                bytes: cwnd,
                room: cwnd.saturating_sub(inflight),
                slow_start: pace.slow_start,
                unproven: sf.tcp.is_unproven() && !pace.is_full(),
            },
            inflight,
            oldest: sf.tcp.head_sent_at().filter(|_| !sf.tcp.in_recovery()),
            duplicates: 0,
            peer_window: sf.tcp.peer_window_field_scaled(),
            room: Room::Full,
            mss: sf.tcp.data_mss(self.option_space),
        }
    }

    /// Takes room from the subflows as guard and preferences want it, where they apply, then asks the scheduler for one of them for `bytes`.
    pub(in crate::conn) fn choose(
        &mut self,
        send: &SendQueue,
        opts: &ConnOptions,
        bytes: u64,
        purpose: Purpose,
        cx: &mut Cx<'_>,
    ) -> Choice {
        let fresh = purpose == Purpose::Fresh;
        if fresh && opts.is_guarded() {
            // A writer with little to send fills no window.
            if send.is_busy() {
                hold_back(self.seen(), send.window());
            }
            // Where new data is divided by weights, that is what it is given out by.
            if !send.writer_has_more && !self.wanted.is_divided() {
                let queued = send.end().since(send.next());
                leave_to_quicker(self.seen(), queued, send.window(), cx.now);
            }
        }
        if fresh {
            self.prefer(cx.now);
        }
        self.pick(send, opts, bytes, purpose, cx)
    }

    /// Picks the subflow for `bytes`. The views must be up to date.
    pub(crate) fn pick(
        &mut self,
        send: &SendQueue,
        opts: &ConnOptions,
        bytes: u64,
        purpose: Purpose,
        cx: &mut Cx<'_>,
    ) -> Choice {
        let need = send.need(self, bytes, purpose);
        let scheduler = opts.scheduler;
        let views = &self.views[..self.in_view];
        let outside = match (scheduler, purpose) {
            (Scheduler::Custom(custom), Purpose::Fresh) if need.bytes > 0 && !views.is_empty() => {
                self.outside.pick(custom, views, &need)
            }
            _ => None,
        };
        let choice = outside.unwrap_or_else(|| scheduler.pick(views, need));
        let held_back = choice == Choice::Wait && views.iter().any(|view| view.room.is_open());
        self.history = scheduler.remember(views, need);
        cx.count.scheduler_waited += u64::from(held_back);
        choice
    }
}

/// A duplicate to send, by the scheduler or a reprobe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duplicate {
    pub(crate) on: SubflowId,
    pub(crate) at: Offset,
    pub(crate) bytes: u64,
}

impl Subflows {
    /// New data that checks for a spurious time-out (F-RTO, RFC 5682) queues behind the data that timed out, and would block the others: if
    /// there is another subflow, that one carries it.
    pub(in crate::conn) fn would_hold_up(&self, i: SubflowIdx) -> bool {
        let another = |sf: &Subflow| sf.is_active() && !sf.tcp.judges_time_out();
        self[i].tcp.judges_time_out() && self.iter().any(another)
    }
}

impl SendQueue {
    fn need(&self, schedule: &Schedule, bytes: u64, purpose: Purpose) -> Need {
        Need {
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            queued: self.end().since(self.next()),
            window: self.window(),
            purpose,
            history: schedule.history,
        }
    }

    /// Notes the stream's state; the window may be what blocks it.
    pub(crate) fn note_schedule(&mut self, schedule: &mut Schedule) {
        let (una, next) = (self.una(), self.next());
        let blocked = next > una && self.blocked_by_window();
        schedule.note(una, next, blocked);
    }
}

impl Conn {
    /// Builds the views for `bytes` of new data, or of a reinjection. If no subflow has room, which is how most polls end, nothing else
    /// matters: no view is valid.
    pub(in crate::conn) fn look(&mut self, bytes: u64, again: Option<&Reinjection>, cx: &Cx<'_>) {
        let offers = self.offers();
        let offer = offers.offer_anywhere(bytes, again.is_some());
        let room = |i| match offers.room(&self.schedule, i, &offer, cx.now) {
            0 => None,
            some => Some((i, some)),
        };
        let first = self.subflows.indices().find_map(room);
        self.schedule.in_view = 0;
        let Some((first, some)) = first else { return };
        let space = self
            .subflows
            .option_space(&self.opts, self.level, &self.fallback);
        self.schedule.begin_views(space, self.subflows.len());
        let home = self.handshake.first.local.ip();
        for i in self.subflows.indices() {
            let room = match i.cmp(&first) {
                Ordering::Less => 0,
                Ordering::Equal => some,
                Ordering::Greater => self.offers().room(&self.schedule, i, &offer, cx.now),
            };
            self.schedule
                .view(&mut self.subflows, home, i, room, cx.now);
        }
        self.schedule.note_wishes(&self.subflows);
        if let Some(silent) = again.and_then(|part| part.avoid) {
            shun_queues(self.schedule.seen(), silent);
        }
    }

    /// What to duplicate now that no new data can be sent, if the scheduler is redundant.
    pub(crate) fn next_duplicate(&mut self, cx: &mut Cx<'_>) -> Option<Duplicate> {
        let alone = self.subflows.len() < 2 || !self.level.is_multipath();
        if !self.opts.scheduler.duplicates() || alone {
            return None;
        }
        let space = self
            .subflows
            .option_space(&self.opts, self.level, &self.fallback);
        self.schedule.begin_views(space, self.subflows.len());
        let home = self.handshake.first.local.ip();
        let mut without = SubflowSet::EMPTY;
        for i in self.subflows.indices() {
            // The search costs more the more is in flight: only where there is room for a duplicate.
            let sf = &self.subflows[i];
            let may = may_duplicate(sf.maps.duplicates.bytes(), sf.tcp.cwnd());
            let has_room = may
                && self.offers().room(
                    &self.schedule,
                    i,
                    &self.offers().offer_anywhere(u64::MAX, true),
                    cx.now,
                ) > 0;
            let part = if has_room {
                self.subflows.duplicate_for(&self.send, i)
            } else {
                None
            };
            let room = match &part {
                Some(part) => {
                    let bytes = part.end.since(part.start);
                    self.offers().room(
                        &self.schedule,
                        i,
                        &self.offers().offer_anywhere(bytes, true),
                        cx.now,
                    )
                }
                None => 0,
            };
            if part.is_none() {
                without.insert(self.subflows[i].id());
            }
            self.schedule
                .view(&mut self.subflows, home, i, room, cx.now);
        }
        match self.schedule.pick(
            &self.send,
            &self.opts,
            u64::MAX,
            Purpose::Duplicate(without),
            cx,
        ) {
            Choice::Send(on) => {
                let part = self
                    .subflows
                    .duplicate_for(&self.send, self.subflows.find(on)?)?;
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
    fn a_window_limited_round_raises_lambda_once() {
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
    fn without_data_in_flight_no_round_ends() {
        let mut schedule = Schedule::default();
        for _ in 0..9 {
            schedule.note(Offset(7), Offset(7), false);
        }
        assert_eq!(schedule.history.lambda, Lambda::INITIAL);
    }
}
