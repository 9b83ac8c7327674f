//! What the paper says about its figures, held against what came out.

use super::super::compare::range;
use super::super::nsdi::tcp_of;
use super::super::{Arm, Finding, Seen};
use super::{
    BOTH, CAP_MBIT, ETHERNET, TCP_ETHERNET, TCP_WIFI, UNCAPPED, WIFI, WITH_LARGE, WITH_ROOM,
};

/// The whole may be less than plain TCP by what the options of Multipath TCP take of each segment, and by a packet more or less.
const NO_LESS: f64 = 0.975;
/// A point is the mean of a quarter of a second or more, in which a burst of 20 ms may leave beyond the limit.
const BURST: f64 = 1.1;

type Findings = Vec<Finding>;

/// The mean of a line; each of its points is of the same time.
fn mean(seen: &Seen<'_>, arm: Arm, name: &str) -> Option<f64> {
    let points = &seen.line(arm, name)?.points;
    let sum: f64 = points.iter().map(|point| point[1]).sum();
    (!points.is_empty()).then(|| sum / points.len() as f64)
}

/// When a line ends: how long the download took.
fn length(seen: &Seen<'_>, arm: Arm, name: &str) -> Option<f64> {
    Some(seen.line(arm, name)?.points.last()?[0])
}

/// What a judge says about an arm that has one of the figure's own downloads.
fn on_each(seen: &Seen<'_>, judge: impl Fn(Arm) -> Option<Finding>) -> Findings {
    seen.arms().filter_map(judge).collect()
}

fn rate_of(seen: &Seen<'_>, knob: &str, declared: f64) -> f64 {
    declared * seen.scale(knob)
}

/// Figure 2: plain TCP fills the path that it has.
pub(super) fn fills(seen: &Seen<'_>) -> Findings {
    let judge = |arm, name: &str, knob: &str, declared| {
        let (rate, mean) = (rate_of(seen, knob, declared), mean(seen, arm, name)?);
        let statement = format!("{name} carries nine tenths of its path");
        let shown = format!("{mean:.1} of {rate:.1} Mbit/s");
        Some(Finding::new(arm, &statement, shown, mean >= 0.9 * rate))
    };
    let both = [
        (TCP_ETHERNET, "ethernet.rate", 30.0),
        (TCP_WIFI, "wifi.rate", 10.0),
    ];
    let of = |(name, knob, declared)| on_each(seen, move |arm| judge(arm, name, knob, declared));
    both.into_iter().flat_map(of).collect()
}

/// The whole is no less than plain TCP over Ethernet.
pub(super) fn no_less_than_tcp(seen: &Seen<'_>) -> Findings {
    on_each(seen, |arm| {
        let (both, tcp) = (
            mean(seen, arm, BOTH)?,
            mean(seen, tcp_of(arm), TCP_ETHERNET)?,
        );
        let statement = "Multipath TCP offers no less than plain TCP over Ethernet";
        let shown = format!("{both:.1} and {tcp:.1} Mbit/s");
        Some(Finding::new(arm, statement, shown, both >= NO_LESS * tcp))
    })
}

/// Figure 3.
pub(super) fn shares(seen: &Seen<'_>) -> Findings {
    let most = on_each(seen, |arm| {
        let (ethernet, wifi) = (mean(seen, arm, ETHERNET)?, mean(seen, arm, WIFI)?);
        let shown = format!("{ethernet:.1} and {wifi:.1} Mbit/s");
        let statement = "the largest part comes over Ethernet";
        Some(Finding::new(arm, statement, shown, ethernet > wifi))
    });
    // The paper takes it for what a good scheduler does; its receive buffer is the likelier cause.
    let idle = on_each(seen, |arm| {
        let (wifi, rate) = (mean(seen, arm, WIFI)?, rate_of(seen, "wifi.rate", 10.0));
        let shown = format!("{wifi:.1} of {rate:.1} Mbit/s");
        let statement = "Wi-Fi remains almost fully underutilized (less than half of it used)";
        Some(Finding::new(arm, statement, shown, wifi < rate / 2.0))
    });
    [most, no_less_than_tcp(seen), idle].concat()
}

/// How much longer a download takes than the same without what the figure changes.
fn longer(seen: &Seen<'_>, arm: Arm, usual: &str) -> Option<(f64, String)> {
    let (this, usual) = (length(seen, arm, BOTH)?, length(seen, arm, usual)?);
    Some((this / usual, format!("{this:.1} s, otherwise {usual:.1} s")))
}

/// Figure 4(a).
pub(super) fn narrow(seen: &Seen<'_>) -> Findings {
    let less = on_each(seen, |arm| {
        let (ratio, shown) = longer(seen, arm, WITH_ROOM)?;
        let statement = "a buffer below what is required costs service (5 % of the time or more)";
        Some(Finding::new(arm, statement, shown, ratio >= 1.05))
    });
    [less, no_less_than_tcp(seen)].concat()
}

/// Figure 4(b).
pub(super) fn wide(seen: &Seen<'_>) -> Findings {
    let satisfactory = on_each(seen, |arm| {
        let (wifi, tcp) = (mean(seen, arm, WIFI)?, mean(seen, tcp_of(arm), TCP_WIFI)?);
        let statement = "Wi-Fi has a satisfactory rate (three quarters of plain TCP over it)";
        let shown = format!("{wifi:.1} and {tcp:.1} Mbit/s");
        Some(Finding::new(arm, statement, shown, wifi >= 0.75 * tcp))
    });
    let stable = on_each(seen, |arm| {
        let points = &seen.line(arm, ETHERNET)?.points;
        // Slow start is before, and the end is no whole point.
        let (first, last) = (points.first()?[0], points.last()?[0]);
        let inside = seen.line(arm, ETHERNET)?.within(first + 1.0, last - 0.3);
        let (least, most) = range(&inside)?;
        let shown = format!("{least:.1} to {most:.1} Mbit/s after the first second");
        let statement = "Ethernet is stable (never below seven tenths of its most)";
        Some(Finding::new(arm, statement, shown, least >= 0.7 * most))
    });
    [satisfactory, stable, no_less_than_tcp(seen)].concat()
}

/// Figure 5.
pub(super) fn small_mtu(seen: &Seen<'_>) -> Findings {
    let less = on_each(seen, |arm| {
        let (ratio, shown) = longer(seen, arm, WITH_LARGE)?;
        // Headers alone take 2 % more of a small packet.
        let statement = "a small MTU degrades the service (by more than its headers: 5 %)";
        Some(Finding::new(arm, statement, shown, ratio >= 1.05))
    });
    [less, no_less_than_tcp(seen)].concat()
}

fn cap(seen: &Seen<'_>) -> f64 {
    rate_of(seen, "cap", CAP_MBIT)
}

/// No point of Ethernet is above the limit.
fn within_the_cap(seen: &Seen<'_>, arm: Arm) -> Option<(bool, String)> {
    let (_, most) = range(&seen.line(arm, ETHERNET)?.points)?;
    let cap = cap(seen);
    let shown = format!("Ethernet at most {most:.1}, limit {cap:.1} Mbit/s");
    Some((most <= BURST * cap, shown))
}

/// The whole is nearly the limit and what Wi-Fi carries by itself.
fn sum(seen: &Seen<'_>, arm: Arm) -> Option<Finding> {
    let (both, wifi) = (mean(seen, arm, BOTH)?, mean(seen, tcp_of(arm), TCP_WIFI)?);
    let possible = cap(seen) + wifi;
    let statement = "the whole is at least 0.95 of the limit and plain TCP over Wi-Fi together";
    let shown = format!("{both:.1} of {possible:.1} Mbit/s");
    Some(Finding::new(arm, statement, shown, both >= 0.95 * possible))
}

/// Figure 6(a): ours from the first byte on, the paper's mechanism late.
pub(super) fn capped_at_once(seen: &Seen<'_>) -> Findings {
    let holds = on_each(seen, |arm| {
        let (holds, shown) = within_the_cap(seen, arm)?;
        Some(match arm {
            Arm::Kernel => {
                let statement =
                    "a limit that is put up when subflows are there comes late for 5 MB";
                Finding::new(arm, statement, shown, !holds)
            }
            _ => Finding::new(arm, "the limit holds from the first byte on", shown, holds),
        })
    });
    let ours = [Arm::Sim, Arm::Real].into_iter();
    holds
        .into_iter()
        .chain(ours.filter_map(|arm| sum(seen, arm)))
        .collect()
}

/// Figure 6(b).
pub(super) fn capped(seen: &Seen<'_>) -> Findings {
    let holds = on_each(seen, |arm| {
        let (holds, shown) = within_the_cap(seen, arm)?;
        let statement = "the limit holds from the beginning of the second transfer on";
        Some(Finding::new(arm, statement, shown, holds))
    });
    [holds, on_each(seen, |arm| sum(seen, arm))].concat()
}

/// Figure 7.
pub(super) fn capped_long(seen: &Seen<'_>) -> Findings {
    let moves = on_each(seen, |arm| {
        let (capped, wifi) = (mean(seen, arm, WIFI)?, mean(seen, tcp_of(arm), TCP_WIFI)?);
        let statement = "data moves to Wi-Fi, which carries nine tenths of what plain TCP does";
        let shown = format!("{capped:.1} and {wifi:.1} Mbit/s");
        Some(Finding::new(arm, statement, shown, capped >= 0.9 * wifi))
    });
    let less = on_each(seen, |arm| {
        let (ratio, shown) = longer(seen, arm, UNCAPPED)?;
        let statement = "the whole is less than without a limit";
        Some(Finding::new(arm, statement, shown, ratio > 1.0))
    });
    let more = on_each(seen, |arm| {
        let (both, wifi) = (mean(seen, arm, BOTH)?, mean(seen, tcp_of(arm), TCP_WIFI)?);
        let best = wifi.max(cap(seen));
        let statement = "the whole is more than plain TCP over either path under the same limit";
        let shown = format!("{both:.1} and {best:.1} Mbit/s");
        Some(Finding::new(arm, statement, shown, both > best))
    });
    [moves, less, more, on_each(seen, |arm| sum(seen, arm))].concat()
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    fn series(arm: Arm, name: &str, rate: f64, seconds: f64) -> Series {
        let points: Vec<[f64; 2]> = (1..=(seconds * 2.0) as u32)
            .map(|n| [f64::from(n) / 2.0, rate])
            .collect();
        Series::of(arm, name, &points)
    }

    fn holds(found: &[Finding]) -> Vec<bool> {
        found.iter().map(|finding| finding.holds).collect()
    }

    #[test]
    fn a_limit_holds_from_the_first_point_on() {
        for (first, wanted) in [(5.4, true), (9.0, false)] {
            let mut ethernet = series(Arm::Sim, ETHERNET, 5.0, 3.0);
            ethernet.points[0][1] = first;
            let all = [
                series(Arm::Sim, BOTH, 14.6, 3.0),
                ethernet,
                series(Arm::Sim, TCP_WIFI, 9.8, 3.0),
            ];
            assert_eq!(holds(&capped_at_once(&Seen::of(&all))), [wanted, true]);
        }
    }

    #[test]
    fn the_peer_of_the_first_download_is_expected_to_come_late() {
        let all = [
            series(Arm::Kernel, BOTH, 30.0, 3.0),
            series(Arm::Kernel, ETHERNET, 25.0, 3.0),
            series(Arm::Kernel, TCP_WIFI, 9.8, 3.0),
        ];
        let found = capped_at_once(&Seen::of(&all));
        assert_eq!(holds(&found), [true]);
        assert_eq!(holds(&capped(&Seen::of(&all))), [false, true]);
    }

    #[test]
    fn less_than_plain_tcp_is_told() {
        let all = [
            series(Arm::Sim, BOTH, 28.0, 3.0),
            series(Arm::Sim, TCP_ETHERNET, 29.5, 3.0),
        ];
        assert_eq!(holds(&no_less_than_tcp(&Seen::of(&all))), [false]);
    }

    #[test]
    fn what_a_buffer_costs_is_the_time_that_a_download_takes() {
        for (seconds, wanted) in [(10.5, true), (10.0, false)] {
            let all = [
                series(Arm::Sim, BOTH, 20.0, seconds),
                series(Arm::Sim, WITH_ROOM, 21.0, 10.0),
            ];
            assert_eq!(holds(&narrow(&Seen::of(&all))), [wanted]);
        }
    }
}
