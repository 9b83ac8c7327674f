//! What the path can carry: ICMP reports (RFC 1191, RFC 8201), black holes and the search upwards (RFC 8899, RFC 4821).
//!
//! Sizes are payload bytes of a segment without the caller's options.

use manypath_wire::seq::SeqNum;

use crate::time::{Duration, Instant};

/// Every path carries this: an IPv4 MTU of 576 (RFC 9293 section 3.7.1) less all headers and options.
const FLOOR: u32 = 496;
/// The size to fall back to when packets vanish (RFC 8899 section 5.1.2: BASE_PLPMTU is 1200 bytes of datagram), with
/// room for headers and options.
const BASE: u32 = 1_120;
/// Timeouts in a row of a large segment that make a black hole likely (RFC 8899 section 4.3).
const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// As many are enough where none of that size was ever seen to arrive: what was smaller was, in the handshake, and
/// a needless doubt costs one probe. Not where the first link itself carries no more than the base size.
const UNPROVEN_TIMEOUTS: u8 = 1;
/// Probes of one size before it counts as too large (RFC 8899 section 5.1.2: MAX_PROBES).
const MAX_PROBES: u8 = 3;
/// Time before a finished search begins again (RFC 8899 section 5.1.1: PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// The search ends when so little is left to gain. A trade: each halving costs one more probe, and 32 bytes are 2 % of a segment.
const FINE_ENOUGH: u32 = 32;

/// The least MTU that a link may have: RFC 791 section 3.2, RFC 8200 section 5.
const LEAST_MTU_V4: u32 = 68;
const LEAST_MTU_V6: u32 = 1_280;

/// What a router's report says of a packet that did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// The largest payload that fits.
    Size(u32),
    /// It does not fit: routers before RFC 1191 say no more.
    TooLarge,
}

impl Report {
    /// Reads the MTU of a report about a packet whose TCP header has `options` bytes of our own. Nothing if no link has such an
    /// MTU: RFC 8201 section 4 has what is below the least of IPv6 discarded.
    pub fn read(mtu: u32, ipv6: bool, options: u32) -> Option<Report> {
        let (least, headers) = match ipv6 {
            true => (LEAST_MTU_V6, 60),
            false => (LEAST_MTU_V4, 40),
        };
        match mtu {
            0 if !ipv6 => Some(Report::TooLarge),
            _ if mtu < least => None,
            _ => Some(Report::Size(mtu.saturating_sub(headers + options))),
        }
    }
}

/// A probe of a larger size that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    size: u32,
    start: SeqNum,
    end: SeqNum,
    /// Part of it was sent again: that the peer has it says nothing any more.
    repeated: bool,
}

/// The path MTU estimate of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pmtu {
    current: u32,
    /// The interface's own limit.
    ceiling: u32,
    /// Sizes from here on are held to be too large at present.
    too_large: u32,
    probe: Option<Probe>,
    failures: u8,
    search_again: Option<Instant>,
    /// The largest size that was seen to arrive since it was last doubted.
    proven: u32,
    /// The proven size that timeouts made smaller and that no answer has spoken for yet.
    doubted: Option<u32>,
    /// Reports without a size speak of what left before the last reduction until then.
    blind_until: Instant,
}

impl Pmtu {
    /// A path whose first link carries `ceiling` bytes of payload; that much is tried at once.
    pub fn new(ceiling: u32) -> Pmtu {
        let ceiling = ceiling.max(1);
        Pmtu {
            current: ceiling,
            ceiling,
            too_large: ceiling + 1,
            probe: None,
            failures: 0,
            search_again: None,
            proven: 0,
            doubted: None,
            blind_until: Instant::ZERO,
        }
    }

    /// Payload bytes that a segment may have.
    pub fn current(&self) -> u32 {
        self.current
    }

    /// A router reported that a packet of ours does not fit. The caller has checked that the quoted number is outstanding (RFC
    /// 5927 section 4.1). Returns the new size if it is lower.
    ///
    /// A size below what every path carries is not believed (RFC 8201 section 4), nor one that is no reduction. A report
    /// without a size means the base size, or the least. There is one for each packet of a flight, so what comes within
    /// `round_trip` of a reduction says nothing new.
    pub fn on_icmp(&mut self, now: Instant, report: Report, round_trip: Duration) -> Option<u32> {
        let size = match report {
            Report::Size(size) => size,
            Report::TooLarge if now < self.blind_until => return None,
            Report::TooLarge if self.current > BASE => BASE,
            Report::TooLarge => FLOOR,
        };
        if size >= self.current || size < FLOOR.min(self.ceiling) {
            return None;
        }
        self.blind_until = now + round_trip;
        self.too_large = self.too_large.min(size + 1);
        self.doubted = None;
        self.lower_to(now, size);
        Some(size)
    }

    /// The retransmission timer fired for a segment of `size` bytes, `in_a_row` timeouts now. Returns the new size if this
    /// looks like packets too large for a link that does not say so. It may as well have been an outage, so the search begins
    /// as soon as something gets through. A segment that is no larger than what would be tried instead says nothing.
    pub fn on_timeout(&mut self, now: Instant, size: u32, in_a_row: u8) -> Option<u32> {
        let (target, suspect) = match self.current > BASE {
            true => (BASE, size > BASE),
            false => (FLOOR, size >= self.current && size > FLOOR),
        };
        let enough = match size > self.proven && self.ceiling > BASE {
            true => UNPROVEN_TIMEOUTS,
            false => BLACK_HOLE_TIMEOUTS,
        };
        if in_a_row < enough || !suspect {
            return None;
        }
        if self.proven >= self.current {
            self.doubted.get_or_insert(self.current);
        }
        self.too_large = self.too_large.min(self.current).min(size);
        self.lower_to(now, target);
        self.search_again = Some(now);
        Some(target)
    }

    /// Segments of `size` bytes arrived at the peer.
    pub fn on_delivered(&mut self, size: u32) {
        self.proven = self.proven.max(size);
    }

    /// The path answers after timeouts. Sizes that it had carried before are believed in again, since an outage is more
    /// common than a route that became narrower; but only once, until they are seen to arrive anew. Returns the new size
    /// if it is larger.
    pub fn on_answer(&mut self) -> Option<u32> {
        let size = self.doubted.take()?;
        self.proven = 0;
        self.too_large = self.ceiling + 1;
        self.search_again = None;
        let larger = size > self.current;
        self.current = self.current.max(size);
        larger.then_some(size)
    }

    fn lower_to(&mut self, now: Instant, size: u32) {
        self.current = size;
        self.probe = None;
        self.failures = 0;
        self.search_again = Some(now + RAISE_AFTER);
    }

    /// The interface's own limit changed, or what is behind it: what was known of the path counts no more, and a larger one is
    /// searched. Returns the new size if it is lower. A probe under way that may still pass is waited for.
    pub fn set_ceiling(&mut self, ceiling: u32) -> Option<u32> {
        if ceiling == self.ceiling {
            return None;
        }
        let smaller = ceiling < self.current;
        *self = Pmtu {
            current: self.current.min(ceiling),
            probe: self.probe.filter(|_| !smaller),
            blind_until: self.blind_until,
            ..Pmtu::new(ceiling)
        };
        smaller.then_some(ceiling)
    }

    /// The size to probe now, if a probe is useful: the middle of what is not known (RFC 4821 section 7.3).
    pub fn probe_size(&self, now: Instant) -> Option<u32> {
        if self.probe.is_some() || self.current >= self.ceiling {
            return None;
        }
        // The timer's end forgets what was too large: routes change.
        let due = self.search_again.is_none_or(|at| at <= now);
        let upper = if due && self.search_again.is_some() {
            self.ceiling + 1
        } else {
            self.too_large
        };
        let searching = due || self.failures > 0;
        if !searching || upper - self.current <= FINE_ENOUGH {
            return None;
        }
        // The whole first: most often the path is the interface's own again.
        Some(if upper > self.ceiling {
            self.ceiling
        } else {
            self.current + (upper - self.current) / 2
        })
    }

    /// The numbers of the probe that is under way: the first one, and the one behind it.
    pub fn probe(&self) -> Option<(SeqNum, SeqNum)> {
        self.probe.map(|probe| (probe.start, probe.end))
    }

    /// A probe of the size that [`probe_size`](Self::probe_size) names left, with the numbers from `start` to before `end`.
    pub fn probe_sent(&mut self, now: Instant, start: SeqNum, end: SeqNum) {
        let Some(size) = self.probe_size(now) else {
            return;
        };
        if self.search_again.is_some_and(|at| at <= now) {
            self.too_large = self.ceiling + 1;
            self.search_again = None;
        }
        self.probe = Some(Probe {
            size,
            start,
            end,
            repeated: false,
        });
    }

    /// The numbers from `start` to before `end` left again, in segments of a size that is known to pass.
    pub fn on_repeated(&mut self, start: SeqNum, end: SeqNum) {
        if let Some(probe) = &mut self.probe {
            probe.repeated |= start.before(probe.end) && end.after(probe.start);
        }
    }

    /// Everything before `una` is acknowledged. Returns the new size if a probe arrived. What a repetition may have brought
    /// instead is tried anew: if the probe was lost, the part of it that was not repeated tells.
    pub fn on_ack(&mut self, now: Instant, una: SeqNum) -> Option<u32> {
        let probe = self.probe.filter(|probe| una.after_eq(probe.end))?;
        self.probe = None;
        if probe.repeated {
            return None;
        }
        self.failures = 0;
        self.current = probe.size.max(self.current).min(self.ceiling);
        self.settle(now);
        Some(self.current)
    }

    /// The probe was lost, which is no sign of congestion while other segments arrive (RFC 4821 section 7.5). True if part
    /// of it had been sent again.
    pub fn on_probe_lost(&mut self, now: Instant) -> bool {
        let Some(probe) = self.probe.take() else {
            return false;
        };
        self.failures += 1;
        if self.failures >= MAX_PROBES {
            self.failures = 0;
            self.too_large = self.too_large.min(probe.size);
        }
        self.settle(now);
        probe.repeated
    }

    fn settle(&mut self, now: Instant) {
        if self.too_large - self.current <= FINE_ENOUGH && self.current < self.ceiling {
            self.search_again = Some(now + RAISE_AFTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(n: u32) -> SeqNum {
        SeqNum::new(n)
    }

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    #[test]
    fn reports_lower_the_size_within_reason() {
        let now = Instant::ZERO;
        for (report, expected) in [
            (Report::Size(1_360), Some(1_360)),
            (Report::Size(1_460), None),
            (Report::Size(9_000), None),
            (Report::Size(FLOOR), Some(FLOOR)),
            (Report::Size(FLOOR - 1), None),
            (Report::Size(0), None),
            (Report::TooLarge, Some(BASE)),
        ] {
            let mut pmtu = Pmtu::new(1_460);
            assert_eq!(
                pmtu.on_icmp(now, report, ROUND_TRIP),
                expected,
                "{report:?}"
            );
            assert_eq!(pmtu.current(), expected.unwrap_or(1_460));
        }
        assert_eq!(
            Pmtu::new(300).on_icmp(now, Report::Size(280), ROUND_TRIP),
            None,
            "a tiny link is not made tinier"
        );
    }

    #[test]
    fn no_report_speaks_of_a_link_that_cannot_be() {
        for (mtu, ipv6, expected) in [
            (0, false, Some(Report::TooLarge)),
            (1, false, None),
            (67, false, None),
            (68, false, Some(Report::Size(16))),
            (1_280, false, Some(Report::Size(1_228))),
            (0, true, None),
            (1_279, true, None),
            (1_280, true, Some(Report::Size(1_208))),
        ] {
            assert_eq!(Report::read(mtu, ipv6, 12), expected, "{mtu}, {ipv6}");
        }
    }

    #[test]
    fn reports_without_a_size_take_two_steps_and_one_a_round_trip() {
        let mut now = Instant::from_secs(1);
        let mut pmtu = Pmtu::new(1_460);
        let mut report = |now| pmtu.on_icmp(now, Report::TooLarge, ROUND_TRIP);
        assert_eq!(report(now), Some(BASE));
        assert_eq!(report(now), None, "of another packet of the flight");
        now += ROUND_TRIP;
        assert_eq!(report(now), Some(FLOOR));
        now += ROUND_TRIP;
        assert_eq!(report(now), None);
        // One with a size knows more.
        let mut pmtu = Pmtu::new(1_460);
        pmtu.on_icmp(now, Report::TooLarge, ROUND_TRIP);
        assert_eq!(
            pmtu.on_icmp(now, Report::Size(1_000), ROUND_TRIP),
            Some(1_000)
        );
    }

    #[test]
    fn the_path_mtu_shrinks_in_two_steps_when_full_segments_vanish() {
        let now = Instant::ZERO;
        let mut pmtu = Pmtu::new(8_960);
        pmtu.on_delivered(8_960);
        assert_eq!(pmtu.on_timeout(now, 8_960, 2), None);
        assert_eq!(
            pmtu.on_timeout(now, 800, 3),
            None,
            "what is smaller than the next size would fit no better"
        );
        assert_eq!(pmtu.on_timeout(now, 8_960, 3), Some(BASE));
        assert_eq!(pmtu.on_timeout(now, 800, 4), None, "not even whole");
        assert_eq!(pmtu.on_timeout(now, BASE, 4), Some(FLOOR));
        assert_eq!(pmtu.on_timeout(now, FLOOR, 5), None);
        // None of that size was ever seen to arrive.
        let mut pmtu = Pmtu::new(8_960);
        assert_eq!(pmtu.on_timeout(now, 800, 1), None);
        assert_eq!(pmtu.on_timeout(now, 8_960, 1), Some(BASE));
        assert_eq!(pmtu.on_timeout(now, BASE, 2), Some(FLOOR));
        assert_eq!(Pmtu::new(1_000).on_timeout(now, 1_000, 2), None);
        // One that was a whole segment elsewhere, on a path with a larger size.
        let mut pmtu = Pmtu::new(1_448);
        assert_eq!(pmtu.on_timeout(now, 1_428, 3), Some(BASE));
    }

    #[test]
    fn a_size_that_had_passed_is_believed_in_once_after_an_outage() {
        let now = Instant::ZERO;
        let mut pmtu = Pmtu::new(1_460);
        pmtu.on_delivered(1_460);
        assert_eq!(pmtu.on_answer(), None, "nothing was doubted");
        assert_eq!(pmtu.on_timeout(now, 1_460, 3), Some(BASE));
        assert_eq!(pmtu.on_timeout(now, BASE, 4), Some(FLOOR));
        assert_eq!(pmtu.on_answer(), Some(1_460));
        assert_eq!((pmtu.current(), pmtu.probe_size(now)), (1_460, None));
        // Now it was the size after all.
        assert_eq!(pmtu.on_timeout(now, 1_460, 3), Some(BASE));
        assert_eq!(pmtu.on_answer(), None);
        assert_eq!(pmtu.current(), BASE);
        assert_eq!(pmtu.probe_size(now), Some(1_460), "the search goes on");
    }

    /// Runs the search on a path that carries `truth`, and returns the sizes probed.
    fn search(pmtu: &mut Pmtu, now: Instant, truth: u32) -> alloc::vec::Vec<u32> {
        let mut sizes = alloc::vec::Vec::new();
        while let Some(size) = pmtu.probe_size(now) {
            sizes.push(size);
            pmtu.probe_sent(now, seq(1_000) - size, seq(1_000));
            assert_eq!(pmtu.probe_size(now), None, "one probe at a time");
            if size <= truth {
                assert_eq!(pmtu.on_ack(now, seq(999)), None);
                assert_eq!(pmtu.on_ack(now, seq(1_000)), Some(size));
            } else {
                pmtu.on_probe_lost(now);
            }
            assert!(sizes.len() < 100, "the search ends");
        }
        sizes
    }

    #[test]
    fn after_a_report_the_search_waits_ten_minutes() {
        let start = Instant::from_secs(1);
        let mut pmtu = Pmtu::new(8_960);
        pmtu.on_icmp(start, Report::Size(1_460), ROUND_TRIP);
        assert_eq!(pmtu.probe_size(start + Duration::from_secs(599)), None);
        assert_eq!(pmtu.probe_size(start + RAISE_AFTER), Some(8_960));
    }

    #[test]
    fn the_search_tries_the_whole_and_halves_the_rest() {
        let later = Instant::from_secs(1);
        let mut pmtu = Pmtu::new(8_960);
        pmtu.on_timeout(later, 8_960, 3);
        let sizes = search(&mut pmtu, later, 1_460);
        assert_eq!(
            sizes[..3],
            [8_960; 3],
            "three failures before a size is too large"
        );
        assert!(
            (1_460 - FINE_ENOUGH..=1_460).contains(&pmtu.current()),
            "{}",
            pmtu.current()
        );
        // The path recovers: the next search finds the whole at once.
        assert_eq!(search(&mut pmtu, later + Duration::from_secs(1), 8_960), []);
        assert_eq!(search(&mut pmtu, later + RAISE_AFTER, 8_960), [8_960]);
        assert_eq!(pmtu.current(), 8_960);
    }

    #[test]
    fn a_probe_that_left_again_in_part_did_not_pass() {
        let now = Instant::from_secs(1);
        for (from, to, expected) in [
            (4_000, 5_000, Some(1_460)),
            (4_999, 5_001, None),
            (6_000, 6_460, None),
            (6_460, 7_460, Some(1_460)),
        ] {
            let mut pmtu = Pmtu::new(1_460);
            pmtu.on_timeout(now, 1_460, 3);
            pmtu.probe_sent(now, seq(5_000), seq(6_460));
            pmtu.on_repeated(seq(from), seq(to));
            assert_eq!(pmtu.on_ack(now, seq(6_460)), expected, "{from}..{to}");
            let again = expected.is_none().then_some(1_460);
            assert_eq!(pmtu.probe_size(now), again);
        }
    }

    #[test]
    fn a_new_interface_limit_starts_over() {
        let now = Instant::from_secs(1);
        let mut pmtu = Pmtu::new(1_460);
        assert_eq!(pmtu.set_ceiling(1_460), None, "no news");
        assert_eq!(pmtu.set_ceiling(1_360), Some(1_360));
        assert_eq!((pmtu.current(), pmtu.probe_size(now)), (1_360, None));
        pmtu.on_probe_lost(now);
        assert_eq!(pmtu.current(), 1_360, "no probe, nothing to say");
        // A larger one is tried, whatever was known of the one before.
        pmtu.on_icmp(now, Report::Size(1_300), ROUND_TRIP);
        assert_eq!(pmtu.probe_size(now), None);
        assert_eq!(pmtu.set_ceiling(8_960), None);
        assert_eq!((pmtu.current(), pmtu.probe_size(now)), (1_300, Some(8_960)));
        // What time-outs made smaller is not believed in any more.
        pmtu.on_delivered(1_300);
        pmtu.on_timeout(now, 1_300, 3);
        assert_eq!(pmtu.set_ceiling(1_200), None);
        assert_eq!((pmtu.on_answer(), pmtu.current()), (None, BASE));
    }

    #[test]
    fn a_probe_under_way_does_not_exceed_a_new_interface_limit() {
        let now = Instant::from_secs(1);
        for (ceiling, expected) in [(8_960, 1_460), (1_360, 1_360), (BASE, BASE)] {
            let mut pmtu = Pmtu::new(1_460);
            pmtu.on_timeout(now, 1_460, 3);
            pmtu.probe_sent(now, seq(0), seq(1_460));
            assert_eq!(pmtu.set_ceiling(ceiling), None);
            pmtu.on_ack(now, seq(1_460));
            assert_eq!(pmtu.current(), expected);
        }
    }
}
