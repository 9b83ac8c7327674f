//! Loss detection by time (RFC 8985 section 6): what was sent long enough before something that arrived is lost.

use manypath_wire::seq::SeqNum;

use super::scoreboard::{AckReport, Entry, Flight, Newest};
use crate::time::{Duration, Instant};

/// Recoveries over which a reordering window widened by a duplicate report persists (RFC 8985 section 6.2 step 4).
const WINDOW_PERSIST: u8 = 16;
/// Segments that must arrive before a hole counts as loss without a reordering window (RFC 5681 section 3.2).
const DUP_THRESH: u32 = 3;

/// The state of RACK on one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rack {
    /// The segment sent last of those that arrived: RACK.xmit_ts and RACK.end_seq.
    newest: Option<Newest>,
    /// Round-trip time of the segment delivered last, whenever it was sent: RACK.rtt.
    rtt: Duration,
    reordering_seen: bool,
    multiplier: u32,
    persist: u8,
    /// Duplicate reports before this number is acknowledged belong to a round already answered.
    dsack_round: Option<SeqNum>,
}

/// What the detection needs to know besides the flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The present time.
    pub now: Instant,
    /// Smallest recent round-trip time; zero while unknown.
    pub min_rtt: Duration,
    /// Smoothed round-trip time; zero while unknown.
    pub srtt: Duration,
    /// Fast recovery or recovery after a timeout is under way.
    pub in_recovery: bool,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

/// What the detection found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Found {
    /// Numbers newly marked lost.
    pub lost: u32,
    /// When to look again: something may be lost by then, although nothing arrives in between (section 6.2 step 5).
    pub look_again: Option<Instant>,
}

impl Default for Rack {
    fn default() -> Self {
        Rack::new()
    }
}

impl Rack {
    /// Nothing arrived yet.
    pub fn new() -> Rack {
        Rack {
            newest: None,
            rtt: Duration::ZERO,
            reordering_seen: false,
            multiplier: 1,
            persist: WINDOW_PERSIST,
            dsack_round: None,
        }
    }

    /// The path is known to reorder.
    pub fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }

    /// Steps 2, 3 and the first half of 4: takes in what an acknowledgement reported. `una` and `nxt` are the flight's edges
    /// after it.
    pub fn on_ack(&mut self, report: &AckReport, una: SeqNum, nxt: SeqNum) {
        let mut found = [report.newest, report.proven];
        // In the order of their sending.
        if let [Some(first), Some(second)] = &found
            && first.is_after(second)
        {
            found.swap(0, 1);
        }
        for found in found.into_iter().flatten() {
            self.rtt = found.rtt;
            if self.newest.is_none_or(|old| found.is_after(&old)) {
                self.newest = Some(found);
            }
        }
        self.reordering_seen |= report.reordered;
        if self.dsack_round.is_some_and(|round| una.after_eq(round)) {
            self.dsack_round = None;
        }
        if report.dsack.is_some() && self.dsack_round.is_none() {
            // A needless retransmission: be a quarter of a round trip more patient, once a round.
            self.dsack_round = Some(nxt);
            self.multiplier = self.multiplier.saturating_add(1);
            self.persist = WINDOW_PERSIST;
        }
    }

    /// What counted as the newest delivery was taken for a retransmission's, and it was the original's. `proven`: of this
    /// retransmission a duplicate report says that it arrived as well.
    pub fn forget_newest(&mut self, proven: Option<Newest>) {
        self.newest = proven;
        self.rtt = proven.map_or(self.rtt, |proven| proven.rtt);
    }

    /// A fast retransmission proved needless, so the original was only late: what reordering is, although its proof arrived
    /// too late for step 3.
    pub fn on_needless_retransmission(&mut self) {
        self.reordering_seen = true;
    }

    /// A recovery ended; patience learnt from duplicates wears off with their number (step 4).
    pub fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// Step 4: how long a segment may be overtaken before it counts as lost.
    pub fn window(&self, flight: &Flight, view: &View) -> Duration {
        let many_arrived =
            flight.sacked_runs() >= DUP_THRESH || flight.sacked() > (DUP_THRESH - 1) * view.mss;
        if !self.reordering_seen && (view.in_recovery || many_arrived) {
            return Duration::ZERO;
        }
        view.min_rtt
            .ratio(u64::from(self.multiplier), 4)
            .min(view.srtt)
    }

    /// Step 5: marks what is lost, and says when to look again.
    pub fn detect(&self, flight: &mut Flight, view: &View) -> Found {
        let Some(newest) = self.newest else {
            return Found::default();
        };
        let patience = self.rtt + self.window(flight, view);
        let mut look_again = None;
        let lost = flight.mark_overtaken(newest.sent_at, |entry| {
            if !newest.is_after(&position(entry)) {
                return false;
            }
            let due = entry.sent_at + patience;
            if due > view.now {
                look_again = look_again.max(Some(due));
            }
            due <= view.now
        });
        Found { lost, look_again }
    }

    /// The retransmission timer fired: the head is lost, and so is everything sent a round trip and a reordering window
    /// ago (section 6.3).
    pub fn on_rto(&self, flight: &mut Flight, view: &View) -> u32 {
        let patience = self.newest.map_or(Duration::ZERO, |_| self.rtt) + self.window(flight, view);
        let una = flight.una();
        flight.mark_any(|entry| entry.seq == una || entry.sent_at + patience <= view.now)
    }
}

fn position(entry: &Entry) -> Newest {
    Newest {
        sent_at: entry.sent_at,
        end: entry.end(),
        rtt: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::scoreboard::{AckInfo, Control};

    const MSS: u32 = 1_000;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn seq(n: u32) -> SeqNum {
        SeqNum::new(n)
    }

    fn view(now: u64) -> View {
        View {
            now: at(now),
            min_rtt: Duration::from_millis(40),
            srtt: Duration::from_millis(50),
            in_recovery: false,
            mss: MSS,
        }
    }

    /// Ten segments, one a millisecond.
    fn stream() -> (Flight, Rack) {
        let mut flight = Flight::new(seq(0), MSS);
        for n in 0..10 {
            flight.sent_new(at(n), MSS, Control::default());
        }
        (flight, Rack::new())
    }

    fn ack(flight: &mut Flight, rack: &mut Rack, now: u64, ack: u32, sack: &[(u32, u32)]) -> Found {
        let sack: alloc::vec::Vec<_> = sack
            .iter()
            .map(|&(start, end)| (seq(start), seq(end)))
            .collect();
        let info = AckInfo {
            now: at(now),
            ack: seq(ack),
            sack: &sack,
            echo_before: None,
            min_rtt: view(0).min_rtt,
        };
        let report = flight.on_ack(&info);
        rack.on_ack(&report, flight.una(), flight.nxt());
        rack.detect(flight, &view(now))
    }

    #[test]
    fn a_hole_waits_a_quarter_round_trip_unless_three_segments_passed_it() {
        let (mut flight, mut rack) = stream();
        let found = ack(&mut flight, &mut rack, 41, 0, &[(1_000, 2_000)]);
        // Segment 0 left at 0; the newest, sent at 1, took 40 ms; the window is 10 ms.
        assert_eq!(
            found,
            Found {
                lost: 0,
                look_again: Some(at(50))
            }
        );
        let found = ack(&mut flight, &mut rack, 42, 0, &[(1_000, 3_000)]);
        assert_eq!((found.lost, found.look_again), (0, Some(at(50))));
        let found = ack(&mut flight, &mut rack, 43, 0, &[(1_000, 4_000)]);
        assert_eq!(
            found,
            Found {
                lost: 1_000,
                look_again: None
            }
        );
    }

    #[test]
    fn the_timer_finds_at_its_time_what_it_promised_and_nothing_before() {
        let (mut flight, mut rack) = stream();
        let due = ack(&mut flight, &mut rack, 41, 0, &[(1_000, 2_000)])
            .look_again
            .unwrap();
        assert_eq!(rack.detect(&mut flight, &view(49)).lost, 0);
        assert_eq!(due, at(50));
        assert_eq!(
            rack.detect(&mut flight, &view(50)),
            Found {
                lost: 1_000,
                look_again: None
            }
        );
    }

    #[test]
    fn once_reordering_was_seen_counting_segments_is_not_enough() {
        let (mut flight, mut rack) = stream();
        ack(&mut flight, &mut rack, 41, 0, &[(1_000, 2_000)]);
        ack(&mut flight, &mut rack, 42, 2_000, &[]);
        assert!(rack.reordering_seen());
        let found = ack(&mut flight, &mut rack, 47, 2_000, &[(3_000, 7_000)]);
        // Sent at 2, round trip 41 ms, window 10 ms.
        assert_eq!(
            found,
            Found {
                lost: 0,
                look_again: Some(at(53))
            }
        );
    }

    #[test]
    fn the_round_trip_is_that_of_the_last_delivery_however_old_its_segment() {
        // RFC 8985 section 6.2 step 2
        let (mut flight, mut rack) = stream();
        ack(&mut flight, &mut rack, 43, 0, &[(3_000, 4_000)]);
        // Segment 1 arrives late: segment 2, sent at 2, gets as long as this one took, and a window of 10 ms.
        let found = ack(&mut flight, &mut rack, 60, 0, &[(1_000, 2_000)]);
        assert_eq!(
            found,
            Found {
                lost: 0,
                look_again: Some(at(71))
            }
        );
    }

    #[test]
    fn a_lost_retransmission_is_found_by_what_was_sent_after_it() {
        let (mut flight, mut rack) = stream();
        assert_eq!(
            ack(&mut flight, &mut rack, 44, 0, &[(1_000, 5_000)]).lost,
            1_000
        );
        flight.sent_again(at(45), seq(0), MSS);
        flight.sent_new(at(46), MSS, Control::default());
        let found = ack(&mut flight, &mut rack, 86, 0, &[(1_000, 11_000)]);
        assert_eq!(
            found,
            Found {
                lost: 1_000,
                look_again: None
            }
        );
    }

    #[test]
    fn duplicates_widen_the_window_once_a_round_and_wear_off() {
        let (mut flight, mut rack) = stream();
        ack(&mut flight, &mut rack, 41, 1_000, &[]);
        for (expected_ms, sack) in [(20, (0, 1_000)), (20, (0, 1_000))] {
            ack(&mut flight, &mut rack, 42, 1_000, &[sack]);
            assert_eq!(
                rack.window(&flight, &view(42)),
                Duration::from_millis(expected_ms)
            );
        }
        // A round later it widens again, but never beyond a smoothed round trip.
        for n in 0..9 {
            flight.sent_new(at(50 + n), MSS, Control::default());
            let all = flight.nxt().get();
            ack(&mut flight, &mut rack, 90 + n, all, &[(0, 1_000)]);
        }
        assert_eq!(rack.window(&flight, &view(99)), Duration::from_millis(50));
        for _ in 0..WINDOW_PERSIST {
            rack.on_recovered();
        }
        assert_eq!(rack.window(&flight, &view(99)), Duration::from_millis(10));
    }

    #[test]
    fn a_timeout_condemns_the_head_and_what_is_old() {
        let (mut flight, mut rack) = stream();
        ack(&mut flight, &mut rack, 41, 1_000, &[]);
        flight.sent_new(at(240), MSS, Control::default());
        assert_eq!(rack.on_rto(&mut flight, &view(250)), 9_000);
        assert_eq!(
            flight.pipe(),
            1_000,
            "what left ten milliseconds ago may still arrive"
        );
    }
}
