//! Opportunistic retransmission and penalisation (NSDI 2012 section 4.2, mechanisms 1 and 2): what to repeat when nothing new can be sent,
//! because one subflow blocks the receive window that all share, the send buffer is full, the stream ends, or the writer pauses. What is
//! reinjected for a path that fails is in `failover/stale`.
//!
//! A subflow with room and nothing new to send reinjects what a slower one carries and would deliver later, the oldest first, no byte
//! twice. The slower one is penalised, so that it does not block again in the next round trip.

use core::ops::Range;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;
use manypath_wire::seq::Ssn;

use crate::api::{ConnOptions, Slots};
use crate::conn::Conn;
use crate::conn::dss::mapping::{TxMapping, TxMaps};
use crate::conn::dss::offset::Offset;
use crate::conn::events::Events;
use crate::conn::pull::source::{Progress, Source};
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::subflow::Subflow;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::ids::SubflowId;

/// Mappings of one subflow searched for the next one to reinject.
const MOST_LOOKED_AT: usize = 256;

/// Of these, those compared with what the reinjecting subflow has in flight itself.
const MOST_COMPARED: usize = 16;

/// Segments beyond what an empty path is known to carry per round trip that count for nothing: limited to the known rate, it would never
/// show that it carries more.
const PROBE: u32 = 2;

/// Why a subflow with room has nothing new to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// It has, or nothing more is waited for.
    None,
    /// The peer's window or our send buffer is full of data without Data ACK.
    Full,
    /// The stream ends here, and only data in flight is missing.
    Tail,
    /// The application has no more for now: the reader may need the data in flight before it responds.
    Pause,
}

/// State of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// New bytes that the peer's window allows.
    pub(crate) sendable: u64,
    /// Sent bytes without Data ACK.
    pub(crate) outstanding: u64,
    pub(crate) limit: Limit,
}

/// Why nothing new can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Something can.
    None,
    /// New bytes wait for the peer's window.
    Window,
    /// All was sent, and the application would write more: the buffer is full.
    Buffer,
    /// All was sent, and the application closed.
    Closed,
    /// All that was written was sent.
    Written,
}

/// Classifies the stall. Pure.
pub(crate) fn stall(now: Standing) -> Stall {
    if now.sendable > 0 || now.outstanding == 0 {
        return Stall::None;
    }
    match now.limit {
        Limit::Window | Limit::Buffer => Stall::Full,
        Limit::Closed => Stall::Tail,
        Limit::Written => Stall::Pause,
        Limit::None => Stall::None,
    }
}

/// Speed estimates of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The latest RTT.
    pub(crate) round_trip: Duration,
    /// The minimum RTT.
    pub(crate) base: Duration,
    /// Maximum bytes in flight while the latest RTT was measured.
    pub(crate) flight: u32,
    /// The peak delivery rate of the last seconds.
    pub(crate) rate: Option<Rate>,
    /// Payload bytes of a full segment.
    pub(crate) mss: u32,
    /// Its window doubles each round trip: it may carry more than it ever did.
    pub(crate) slow_start: bool,
}

impl Pace {
    /// The RTT is longer than that of an empty path.
    fn shows_queue(&self) -> bool {
        self.round_trip > self.base.ratio(9, 8)
    }

    /// The RTT is more than twice that of an empty path: small as the window may be, it fills the path (the criterion of NSDI 2012 section
    /// 4.2, mechanism 4).
    pub(in crate::conn) fn is_full(&self) -> bool {
        self.round_trip > self.base.times(2)
    }

    /// Rate at which the queue that shows in the RTT drains.
    pub(in crate::conn) fn drain(&self) -> Option<Rate> {
        self.rate.filter(|_| self.shows_queue())
    }
}

/// Time until a segment is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// If it is sent now.
    pub(crate) queued: Duration,
    /// If nothing were in flight before it.
    pub(crate) empty: Duration,
}

/// Time until a segment is acknowledged if it is sent now, behind `queue` bytes. While the RTT is short there was no queue; a burst into
/// the empty path beyond what it carries in a round trip makes one, which no RTT sample shows yet. In slow start that excess is unknown.
/// Otherwise the RTT is proportional to the bytes ahead: a drained queue is noticed at once, and a growing one shows in the rate, long
/// before RTT samples include it. Pure.
pub(crate) fn delivery(pace: &Pace, queue: u32) -> Delivery {
    let base = pace.base.min(pace.round_trip);
    let alike = |time| Delivery {
        queued: time,
        empty: time,
    };
    if !pace.shows_queue() {
        let Some(rate) = pace.rate.filter(|_| !pace.slow_start) else {
            return alike(base);
        };
        let carried = rate.bytes_in(base) + u64::from(pace.mss.saturating_mul(PROBE));
        let beyond = (u64::from(queue) + u64::from(pace.mss)).saturating_sub(carried);
        return Delivery {
            queued: base + rate.time_for(beyond),
            empty: base,
        };
    }
    let Some(rate) = pace.rate else {
        return alike(pace.round_trip);
    };
    // The minimum RTT is that of a packet much smaller than a segment.
    let empty = (base + rate.time_for(u64::from(pace.mss))).min(pace.round_trip);
    if queue == 0 {
        return alike(empty);
    }
    let (bytes, flight) = (u64::from(queue) + u64::from(pace.mss), pace.flight.max(1));
    let by_flight = pace.round_trip.ratio(bytes, u64::from(flight));
    let queued = by_flight.max(rate.time_for(bytes)).max(empty);
    Delivery { queued, empty }
}

/// Time that a subflow still needs for a byte in flight, `ahead` bytes behind the oldest of `flight`: data moves evenly, the newest byte
/// needs a whole `delivery`. During loss recovery nothing moves. Pure.
pub(crate) fn remaining(delivery: Duration, ahead: u64, flight: u64, repairing: bool) -> Duration {
    if repairing || flight == 0 {
        return delivery;
    }
    delivery.ratio(ahead.min(flight), flight)
}

/// The oldest byte in flight was sent `waited` ago and is overdue, for more than `usual` has passed: it is lost, or its acknowledgement
/// is. Nothing is certain then but the retransmission timeout, however far that has backed off. Pure.
pub(crate) fn if_overdue(
    carried: Duration,
    waited: Duration,
    usual: Duration,
    rto: Duration,
) -> Duration {
    match waited >= usual {
        true => carried.max(rto),
        false => carried,
    }
}

/// Reinjecting a byte helps if it arrives sooner than by the subflow that carries it; in a pause, when perhaps nothing waits for it, in
/// less than half of the time. Pure.
pub(crate) fn helps(stall: Stall, carried: Duration, repeated: Duration) -> bool {
    match stall {
        Stall::None => false,
        Stall::Full | Stall::Tail => repeated < carried,
        Stall::Pause => repeated.times(2) < carried,
    }
}

/// A subflow as far as a penalty goes: its highest rate, and the time until a byte sent there now is delivered.
type Speed = (Option<Rate>, Duration);

/// How much longer data takes on a subflow that is slower than another one, and not so by chance: two of three equal links would halve each
/// other's window in turn (figure 6(c) of NSDI 2012 with 250 kB: 2.3 Gbit/s without this, 2.8 with it).
const LONGER: (u64, u64) = (5, 4);

/// The blocked subflow is known to carry more, and sooner, than the one it waits for: that one should have less. Otherwise the penalty would
/// cost more than there is to gain; and a subflow without measurements would lose its slow start over a first segment. Pure.
fn worth_more(blocked: Speed, holder: Speed) -> bool {
    let (num, den) = LONGER;
    carries_more(blocked.0, holder.0) && holder.1 > blocked.1.ratio(num, den)
}

/// The blocked subflow is known to carry more than the holder. Pure.
fn carries_more(blocked: Option<Rate>, holder: Option<Rate>) -> bool {
    holder.is_some() && blocked > holder
}

/// Less than a segment of new data does not leave while something is in flight, on whichever subflow, if there is `more` that would fill the
/// segment and only the window or a full buffer keeps it back (RFC 9293 sections 3.7.4 and 3.8.6.2.1). A subflow cannot tell: it sees its
/// own flight, and as available what it is offered. An idle slow one would carry each scrap, and hold up the window with it. Pure.
fn waits_for_more(bytes: u64, mss: u64, in_flight: bool, more: bool) -> bool {
    bytes < mss && in_flight && more
}

/// A round trip has passed since the last penalty, when the subflow had sent what is before `upto`: that is acknowledged. Pure.
pub(crate) fn round_trip_over(upto: Option<Ssn>, una: Ssn) -> bool {
    upto.is_none_or(|upto| upto.before_eq(una))
}

/// This stream position is in flight on the subflow with these mappings.
fn carries(tx: &TxMaps, at: Offset) -> bool {
    let mut mappings = tx.iter().take(MOST_LOOKED_AT);
    mappings.any(|m| m.covers(at))
}

/// A part of the stream to reinject.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    holder: SubflowIdx,
    carrier: SubflowId,
    from: Offset,
    bytes: u64,
}

impl Subflow {
    /// Its speed estimates.
    pub(in crate::conn) fn pace(&self) -> Pace {
        let tcp = &self.tcp;
        Pace {
            round_trip: tcp.latest_rtt().unwrap_or(Duration::ZERO),
            base: tcp.min_rtt().unwrap_or(Duration::ZERO),
            flight: tcp.max_inflight(),
            rate: tcp.peak_rate(),
            mss: tcp.mss(),
            slow_start: tcp.in_slow_start(),
        }
    }
}

impl Subflows {
    /// Undoes the penalty of the only working subflow, which blocks no other. Potentially failed ones may work.
    pub(in crate::conn) fn undo_last_penalty(&mut self) {
        let working = |sf: &&mut Subflow| sf.carries_data() && !sf.is_stale();
        let mut working = self.iter_mut().filter(working);
        let (only, None) = (working.next(), working.next()) else {
            return;
        };
        if let Some(sf) = only.filter(|sf| sf.tcp.is_penalised()) {
            sf.tcp.undo_penalties();
        }
    }

    /// Bytes of new data that may leave: none that [`waits_for_more`]. With the guard, which keeps off a subflow that would hold up the window,
    /// each subflow has its scraps: what it carries is how the guard knows it, and with less than that it leaves narrow windows unused.
    pub(in crate::conn) fn sendable(&self, opts: &ConnOptions, send: &SendQueue) -> u64 {
        let bytes = send.sendable();
        if opts.is_guarded() {
            return bytes;
        }
        let more = send.waits_behind(bytes) || !send.pushes(opts);
        match waits_for_more(bytes, self.least_mss(), send.next() > send.una(), more) {
            true => 0,
            false => bytes,
        }
    }

    /// Payload of the smallest full segment.
    fn least_mss(&self) -> u64 {
        let mss = self.iter().map(|sf| sf.tcp.mss()).min();
        mss.map_or(0, u64::from)
    }

    /// More waits than the peer's window allows, and it allows less than a segment.
    fn leaves_a_scrap(&self, send: &SendQueue) -> bool {
        send.waits_behind(send.sendable()) && send.sendable() < self.least_mss()
    }

    /// Time until what is sent on a subflow now has its Data ACK.
    pub(crate) fn delivery(&self, i: SubflowIdx) -> Duration {
        let sf = &self[i];
        delivery(&self[i].pace(), sf.tcp.inflight()).queued + sf.reinjection.data_ack_delay.get()
    }

    /// Two subflows are between the same addresses, whatever the ports: a responder sees them differ in the peer's.
    fn in_one_queue(&self, i: SubflowIdx, j: SubflowIdx) -> bool {
        let of = |j: SubflowIdx| {
            let endpoint = &self[j].endpoint;
            let tuple = &endpoint.tuple;
            (endpoint.iface, tuple.local.ip(), tuple.remote.ip())
        };
        of(i) == of(j)
    }

    /// The oldest part that a nearby proxy acknowledged, without Data ACK, neither reinjected before nor in flight on `carrier`; which
    /// subflow that was, and the RTT of its whole path, which each of the proxy's own retransmissions takes.
    fn first_behind_a_proxy(
        &self,
        send: &SendQueue,
        carrier: SubflowIdx,
    ) -> Option<(Duration, SubflowIdx, Range<Offset>)> {
        let una = send.una();
        let proxied = self.each();
        let proxied = proxied.filter(|(i, sf)| *i != carrier && sf.is_behind_a_proxy());
        let parts = proxied.filter_map(|(i, sf)| {
            let from = sf.reinjection.opportunistic_to.max(una);
            let part = sf.reinjection.subflow_acked_only.first_behind(from)?;
            let part = part.start.max(from)..part.end;
            let own = &self[carrier].maps.tx;
            (!carries(own, part.start)).then_some((sf.handshake.rtt?, i, part))
        });
        parts.min_by_key(|(.., part)| part.start)
    }

    /// Halves the window of a subflow that blocks the others, at most once per round trip.
    fn penalise(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let sf = &mut self[i];
        if round_trip_over(sf.reinjection.penalised, sf.tcp.snd_una_ssn()) && sf.tcp.penalise() {
            sf.reinjection.penalised = Some(sf.tcp.snd_nxt_ssn());
            cx.count.subflow_penalised += 1;
            self.refresh_sample(i);
        }
    }

    fn standing(&self, opts: &ConnOptions, send: &SendQueue, events: &Events) -> Standing {
        let sendable = self.sendable(opts, send);
        let window_full = send.blocked_by_window() || self.leaves_a_scrap(send);
        // A scrap that waits for the rest of its segment is as good as sent.
        let all_sent = send.all_sent() || sendable == 0;
        let limit = match (window_full, all_sent) {
            (true, _) => Limit::Window,
            (false, false) => Limit::None,
            (false, true) if events.write_blocked => Limit::Buffer,
            (false, true) if send.fin.state != FinState::Open => Limit::Closed,
            (false, true) => Limit::Written,
        };
        Standing {
            sendable: match window_full {
                true => 0,
                false => sendable,
            },
            outstanding: send.next() - send.una(),
            limit,
        }
    }

    /// The subflow that carries the oldest byte without Data ACK.
    pub(in crate::conn) fn held_up_by(&self, send: &SendQueue) -> Option<SubflowIdx> {
        let una = send.una();
        let carries = |sf: &Subflow| sf.maps.tx.iter().any(|m| m.covers(una));
        self.each().find(|(_, sf)| carries(sf)).map(|(i, _)| i)
    }

    /// The window is full, and `blocked` could send more: halves the window of whoever holds it up (NSDI 2012 section 4.2, mechanism 2).
    /// With the guard a window is seldom full, and mostly by chance: then only who carries what would be reinjected is concerned, as `rescue`
    /// says.
    fn penalise_holder(
        &mut self,
        opts: &ConnOptions,
        send: &SendQueue,
        blocked: SubflowIdx,
        rescue: Option<&Candidate>,
        cx: &mut Cx<'_>,
    ) {
        let guarded = opts.is_guarded();
        let holder = match guarded {
            true => rescue.map(|found| found.holder),
            false => self.held_up_by(send),
        };
        let Some(holder) = holder else { return };
        let speed = |i: SubflowIdx| (self[i].tcp.peak_rate(), self.delivery(i));
        let worth = match guarded {
            true => carries_more(speed(blocked).0, speed(holder).0),
            false => worth_more(speed(blocked), speed(holder)),
        };
        if worth {
            self.penalise(holder, cx);
        }
    }

    /// The subflow that delivers soonest of those that could send a segment, and when it would.
    fn quickest(&self, can_resend: impl Fn(SubflowIdx) -> bool) -> Option<(Duration, SubflowIdx)> {
        self.indices()
            .filter(|&i| self[i].is_active() && !self[i].is_backup())
            .filter(|&i| self[i].tcp.srtt().is_some())
            .map(|i| (self.delivery(i), i))
            .filter(|&(_, i)| can_resend(i))
            .min()
    }

    /// The oldest part of the stream in flight on a slower subflow, not reinjected before, that would arrive sooner if the fastest subflow
    /// with room reinjected it.
    fn next_reinjected(
        &self,
        send: &SendQueue,
        stall: Stall,
        (repeated, carrier): (Duration, SubflowIdx),
        now: Instant,
    ) -> Option<Candidate> {
        let una = send.una();
        let mut found: Option<(SubflowIdx, Offset, u64)> = None;
        for (i, sf) in self.each() {
            // Between the same addresses both are presumed to share a queue, and one seems faster for having been measured earlier. When
            // perhaps nothing waits for the data, reinjecting only lengthens that queue.
            let in_one_queue = stall == Stall::Pause && self.in_one_queue(i, carrier);
            if i == carrier || !sf.is_active() || in_one_queue {
                continue;
            }
            let from = sf.reinjection.opportunistic_to.max(una);
            let behind = |m: &&TxMapping| m.at + u64::from(m.len) > from;
            let parts = sf.maps.tx.iter().take(MOST_LOOKED_AT).filter(behind);
            let own = &self[carrier].maps.tx;
            let elsewhere = |m: &&TxMapping| !carries(own, m.at.max(from));
            let Some(m) = parts.take(MOST_COMPARED).find(elsewhere) else {
                continue;
            };
            let at = m.at.max(from);
            if found.is_none_or(|(_, best, _)| at < best) {
                found = Some((i, at, (m.at + u64::from(m.len)).since(at)));
            }
        }
        if let Some((before, i, part)) = self.first_behind_a_proxy(send, carrier) {
            if found.is_none_or(|(_, best, _)| part.start < best) {
                return helps(stall, before, repeated).then(|| Candidate {
                    holder: i,
                    carrier: self[carrier].id(),
                    from: part.start,
                    bytes: part.end - part.start,
                });
            }
        }
        let (holder, at, bytes) = found?;
        let tcp = &self[holder].tcp;
        let flight = u64::from(tcp.snd_nxt_ssn().since(tcp.snd_una_ssn()));
        let oldest = self[holder]
            .maps
            .tx
            .iter()
            .find(|m| m.at + u64::from(m.len) > at);
        let ahead = oldest.map_or(flight, |m| u64::from(m.end().since(tcp.snd_una_ssn())));
        let delivery = self.delivery(holder);
        let carried = remaining(delivery, ahead, flight, tcp.in_recovery());
        let sent = tcp.head_sent_at();
        let waited = sent.map_or(Duration::ZERO, |sent| now.since(sent));
        let round_trip = tcp.latest_rtt().unwrap_or(Duration::ZERO);
        // What was sent behind a queue that has drained since waited for that queue.
        let usual = delivery.max(round_trip) + delivery;
        let carried = if_overdue(carried, waited, usual, tcp.rto());
        helps(stall, carried, repeated).then(|| Candidate {
            holder,
            carrier: self[carrier].id(),
            from: at,
            bytes,
        })
    }
}

impl Conn {
    /// Nothing new can be sent: reinjects what blocks the window, or the end of the stream, where that helps.
    pub(crate) fn opportunistic_retransmission(
        &mut self,
        slots: &mut dyn Slots,
        cx: &mut Cx<'_>,
    ) -> Progress {
        let on = self.opts.mechanisms;
        let wanted = (on.opportunistic || on.penalise) && self.opts.scheduler.spreads();
        if self.subflows.len() < 2 || !wanted {
            return Progress::Nothing;
        }
        let stall = stall(self.subflows.standing(&self.opts, &self.send, &self.events));
        if stall == Stall::None || !self.level.is_multipath() {
            return Progress::Nothing;
        }
        let can_resend = |i| self.offers().can_resend(i, cx.now);
        let Some(carrier) = self.subflows.quickest(can_resend) else {
            return Progress::Nothing;
        };
        let rescue = self
            .subflows
            .next_reinjected(&self.send, stall, carrier, cx.now);
        if on.penalise && stall == Stall::Full {
            self.subflows
                .penalise_holder(&self.opts, &self.send, carrier.1, rescue.as_ref(), cx);
        }
        let Some(rescue) = rescue.filter(|_| on.opportunistic) else {
            return Progress::Nothing;
        };
        let (from, before) = (rescue.from, self.send.bytes_reinjected);
        let sent = self.send_on(
            rescue.carrier,
            rescue.bytes,
            Source::Reinjected(from),
            slots,
            cx,
        );
        let bytes = self.send.bytes_reinjected - before;
        if sent == Progress::Sent && bytes > 0 {
            self.subflows[rescue.holder].reinjection.opportunistic_to = from + bytes;
            cx.count.opportunistic_bytes += bytes;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDING: Standing = Standing {
        sendable: 0,
        outstanding: 100_000,
        limit: Limit::None,
    };

    #[test]
    fn stalls_are_classified_by_what_is_missing() {
        for (name, now, expected) in [
            ("the application has no more", STANDING, Stall::None),
            (
                "the window is full",
                Standing {
                    limit: Limit::Window,
                    ..STANDING
                },
                Stall::Full,
            ),
            (
                "the buffer is full",
                Standing {
                    limit: Limit::Buffer,
                    ..STANDING
                },
                Stall::Full,
            ),
            (
                "the stream ends",
                Standing {
                    limit: Limit::Closed,
                    ..STANDING
                },
                Stall::Tail,
            ),
            (
                "the application pauses",
                Standing {
                    limit: Limit::Written,
                    ..STANDING
                },
                Stall::Pause,
            ),
            (
                "something new can go",
                Standing {
                    sendable: 1,
                    limit: Limit::Buffer,
                    ..STANDING
                },
                Stall::None,
            ),
            (
                "a closed window with nothing under way",
                Standing {
                    outstanding: 0,
                    limit: Limit::Window,
                    ..STANDING
                },
                Stall::None,
            ),
        ] {
            assert_eq!(stall(now), expected, "{name}");
        }
    }

    #[test]
    fn a_path_is_penalised_at_most_once_per_round_trip() {
        for (upto, una, over) in [
            (None, 0, true),
            (Some(5_000), 4_999, false),
            (Some(5_000), 5_000, true),
            (Some(3), u32::MAX, false),
        ] {
            let upto = upto.map(Ssn::new);
            assert_eq!(round_trip_over(upto, Ssn::new(una)), over, "{upto:?} {una}");
        }
    }

    #[test]
    fn expected_delivery_includes_the_queue_in_the_path() {
        let ms = Duration::from_millis;
        // 100 bytes a millisecond.
        let known = Some(Rate::from_bytes_per_sec(100_000));
        for (name, round_trip, flight, rate, queue, expected) in [
            ("no queue", 112, 10_000, known, 11_000, 100),
            (
                "more at once than it carries",
                112,
                90_000,
                known,
                42_000,
                410,
            ),
            ("a steady queue", 150, 15_000, known, 14_000, 150),
            ("it grows", 150, 15_000, known, 15_500, 165),
            ("round trips lag behind", 150, 90_000, known, 89_000, 900),
            ("a queue that is gone", 3_000, 300_000, known, 0, 110),
            ("a tenth of it", 3_000, 300_000, known, 29_000, 300),
            ("never measured", 3_000, 1_000, None, 9_000, 3_000),
            ("not only ours", 3_000, 30_000, known, 29_000, 3_000),
        ] {
            let pace = Pace {
                round_trip: ms(round_trip),
                base: ms(100),
                flight,
                rate,
                mss: 1_000,
                slow_start: false,
            };
            let found = delivery(&pace, queue);
            assert_eq!(found.queued, ms(expected), "{name}");
            assert_eq!(found.empty, delivery(&pace, 0).queued, "{name}");
        }
        let growing = Pace {
            round_trip: ms(112),
            base: ms(100),
            flight: 10_000,
            rate: known,
            mss: 1_000,
            slow_start: true,
        };
        assert_eq!(delivery(&growing, 40_000).queued, ms(100));
    }

    #[test]
    fn a_single_segment_may_fill_a_path() {
        // At 16 kbit/s a segment takes half a second, whatever the window.
        for (round_trip, full) in [(100, false), (200, false), (201, true), (600, true)] {
            let pace = Pace {
                round_trip: Duration::from_millis(round_trip),
                base: Duration::from_millis(100),
                flight: 1_000,
                rate: None,
                mss: 1_000,
                slow_start: false,
            };
            assert_eq!(pace.is_full(), full, "{round_trip} ms");
        }
    }

    #[test]
    fn a_scrap_waits_for_the_rest_of_its_segment_while_something_is_in_flight() {
        for (name, bytes, in_flight, more, waits) in [
            ("the window leaves 80 bytes", 80, true, true, true),
            (
                "nothing is in flight that could open it",
                80,
                false,
                true,
                false,
            ),
            ("the application has no more", 80, true, false, false),
            ("a whole segment", 1_420, true, true, false),
        ] {
            let found = waits_for_more(bytes, 1_420, in_flight, more);
            assert_eq!(found, waits, "{name}");
        }
    }

    #[test]
    fn only_a_subflow_that_carries_less_and_later_is_penalised() {
        let ms = Duration::from_millis;
        let rate = |bytes| Some(Rate::from_bytes_per_sec(bytes));
        for (blocked, holder, penalised) in [
            ((rate(1_000_000), ms(20)), (rate(250_000), ms(150)), true),
            ((rate(250_000), ms(20)), (rate(1_000_000), ms(150)), false),
            // Equal links of which one has a few packets more in its queue.
            ((rate(250_010), ms(20)), (rate(250_000), ms(24)), false),
            ((rate(250_010), ms(20)), (rate(250_000), ms(26)), true),
            // Less, but not later: its window would be halved for nothing.
            ((rate(1_000_000), ms(150)), (rate(250_000), ms(20)), false),
            ((rate(250_000), ms(20)), (None, ms(150)), false),
            ((None, ms(20)), (rate(250_000), ms(150)), false),
        ] {
            assert_eq!(
                worth_more(blocked, holder),
                penalised,
                "{blocked:?} {holder:?}"
            );
        }
    }

    #[test]
    fn only_data_that_would_arrive_later_is_reinjected() {
        let ms = Duration::from_millis;
        for (delivery, ahead, flight, repairing, carrier, repeat) in [
            // The oldest segment of forty on a path of 150 ms has nearly arrived.
            (150, 1_000, 40_000, false, 20, false),
            // One in the middle needs 75 ms.
            (150, 20_000, 40_000, false, 20, true),
            (150, 20_000, 40_000, false, 75, false),
            // Lost: the retransmission needs a whole round trip.
            (150, 1_000, 40_000, true, 20, true),
            (150, 1_000, 40_000, true, 150, false),
            (150, 1_000, 0, false, 20, true),
        ] {
            let carried = remaining(ms(delivery), ahead, flight, repairing);
            let helps = |stall| helps(stall, carried, ms(carrier));
            assert_eq!(helps(Stall::Full), repeat, "{ahead} of {flight}");
            assert_eq!(helps(Stall::Tail), repeat, "{ahead} of {flight}");
            assert!(!helps(Stall::None));
        }
        for (name, waited, rto, carried) in [
            ("it is expected", 59, 900, 30),
            ("overdue", 60, 900, 900),
            ("the timer is as soon", 60, 20, 30),
        ] {
            let found = if_overdue(ms(30), ms(waited), ms(60), ms(rto));
            assert_eq!(found, ms(carried), "{name}");
        }
        assert!(helps(Stall::Pause, ms(41), ms(20)));
        assert!(!helps(Stall::Pause, ms(40), ms(20)));
    }
}
