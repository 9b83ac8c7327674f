//! Figures of "How Hard Can It Be? Designing and Implementing a Deployable Multipath TCP", NSDI 2012.

mod buffers;
mod cost;
mod delay;
mod http;
mod networks;
mod setup;

use super::transfer::{CONGESTION, REAL_TIME, REAL_WARM_UP};
use super::{Arm, Figure, Finding, Knob, Seen, Unit};

/// The figures, in the paper's order.
pub(super) const FIGURES: &[Figure] = &[
    cost::CHECKSUM,
    buffers::REGULAR,
    buffers::OPPORTUNISTIC,
    buffers::PENALISING,
    buffers::MEMORY,
    networks::WEAK,
    networks::UNEQUAL,
    networks::EQUAL,
    delay::FIGURE,
    cost::RECEIVE,
    buffers::CAPPED_WIFI,
    setup::FIGURE,
    http::FIGURE,
];

const TCP_WIFI: &str = "TCP over WiFi";
const TCP_3G: &str = "TCP over 3G";
const REGULAR: &str = "Multipath TCP, regular";
const BOTH: &str = "Multipath TCP with M1,2";
const DEFAULT: &str = "our default settings";

const NONE: (&str, &str) = ("mechanisms", "none");
const M1: (&str, &str) = ("mechanisms", "opportunistic");
const M12: (&str, &str) = ("mechanisms", "opportunistic,penalise");

/// The two paths of section 4.2: base round trips 20 and 150 ms, buffers that last 80 ms and 2 s.
const WIRELESS: [Knob; 13] = wireless("8mbit", "2mbit", CONGESTION);
/// The same with a very weak 3G (figure 6a).
const WEAK: [Knob; 13] = wireless("8mbit", "50kbit", CONGESTION);
/// The public WiFi and the provider's 3G of section 5, as far as they are known (figure 9).
const PUBLIC: [Knob; 13] = wireless("2mbit", "2mbit", CONGESTION);

const fn wireless(wifi: &'static str, three_g: &'static str, congestion: Knob) -> [Knob; 13] {
    [
        BUFFER,
        Knob::new("wifi.rate", Unit::Rate, wifi, "rate of WiFi"),
        Knob::new("wifi.rtt", Unit::Time, "20ms", "round trip of WiFi").or_none(),
        Knob::new("wifi.buffer", Unit::Time, "80ms", "network buffer of WiFi"),
        Knob::new("wifi.loss", Unit::Percent, "0", "loss on WiFi"),
        Knob::new("3g.rate", Unit::Rate, three_g, "rate of 3G"),
        Knob::new("3g.rtt", Unit::Time, "150ms", "round trip of 3G").or_none(),
        Knob::new("3g.buffer", Unit::Time, "2s", "network buffer of 3G"),
        Knob::new("3g.loss", Unit::Percent, "0", "loss on 3G"),
        congestion,
        Knob::new("time", Unit::Time, "60s", "length of a simulated transfer").measures(),
        REAL_WARM_UP,
        REAL_TIME,
    ]
}

const BUFFER: Knob = Knob::new("buffer", Unit::Bytes, "200k", "send and receive buffer");

/// The arm that has plain TCP to compare an arm with: the kernel's on real packets.
pub(super) const fn tcp_of(arm: Arm) -> Arm {
    match arm {
        Arm::Real => Arm::Kernel,
        other => other,
    }
}

/// Our default settings are never below plain TCP.
fn never_below_tcp(seen: &Seen<'_>, tcp: &str, whom: &str) -> Vec<Finding> {
    let statement = format!("the default settings are never below {whom}");
    let on = |arm: Arm| {
        let ratio = seen.across((arm, DEFAULT), (tcp_of(arm), tcp))?;
        Some(Finding::not_below(arm, &statement, &ratio, "kB"))
    };
    seen.arms().filter_map(on).collect()
}

/// Our default settings are nowhere below the kernel's Multipath TCP in the same run. A reader that waited for a gap when the
/// measurement began reads more in its time than the paths carry; what they carry is what plain TCP shows.
fn never_below_the_kernel(seen: &Seen<'_>) -> Option<Finding> {
    let kernel = |name: &str, x: f64| seen.at(Arm::Kernel, name, x);
    let carried = |x| Some(kernel(TCP_WIFI, x)? + kernel(TCP_3G, x)?);
    let ratio = seen.over((Arm::Real, DEFAULT), |x| {
        Some(kernel(REGULAR, x)?.min(carried(x).unwrap_or(f64::INFINITY)))
    })?;
    let statement = "the default settings are nowhere below the kernel's Multipath TCP, nor the sum of its TCPs where that is less";
    Some(Finding::not_below(Arm::Real, statement, &ratio, "kB"))
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::*;

    #[test]
    fn nobody_is_held_against_more_than_the_paths_carry() {
        for (ours, kernel, holds) in [
            (9.8, 10.0, true),
            (9.8, 10.4, true),
            (9.5, 10.4, false),
            (9.8, 9.9, true),
            (7.0, 7.5, false),
        ] {
            let of = |arm, name, value| Series::of(arm, name, &[[200.0, value]]);
            let mut series = vec![
                of(Arm::Real, DEFAULT, ours),
                of(Arm::Kernel, REGULAR, kernel),
            ];
            let without = never_below_the_kernel(&Seen::of(&series)).expect("both lines");
            assert_eq!(without.holds, ours >= 0.975 * kernel);
            series.push(of(Arm::Kernel, TCP_WIFI, 8.0));
            series.push(of(Arm::Kernel, TCP_3G, 2.0));
            let found = never_below_the_kernel(&Seen::of(&series)).expect("both lines");
            assert_eq!(found.holds, holds, "{ours} beside {kernel}");
        }
    }
}
