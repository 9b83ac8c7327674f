//! Figure 6: Multipath TCP where the paths are very different, or the same.

use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use super::super::{sim, transfer};
use super::buffers::ACROSS;
use super::{BOTH, BUFFER, CONGESTION, DEFAULT, M12, NONE, REGULAR, TCP_WIFI};
use crate::parallel::PathSpec;

const fn line(name: &'static str, does: Does) -> Line {
    Line {
        name,
        arms: &[Arm::Sim],
        does,
    }
}

/// A line on the simulated and on real packets.
const fn also_real(name: &'static str, arms: &'static [Arm], does: Does) -> Line {
    Line { name, arms, does }
}

const PLAIN: Line = line(REGULAR, Does::Multipath(&[NONE]));
const BOTH_MECHANISMS: Line = line(BOTH, Does::Multipath(&[M12]));
const OURS: Line = line(DEFAULT, Does::Multipath(&[]));

/// Figure 6(a).
pub(super) const WEAK: Figure = Figure {
    id: "nsdi-6a",
    source: "NSDI 2012, figure 6(a)",
    title: "WiFi and a 3G path of 50 kbit/s: goodput against the buffer",
    paper: Paper {
        says: "With receive buffers under 400 kB regular Multipath TCP ends up flow-controlled whenever the 3G path loses \
               something. Around 200 kB mechanisms 1 and 2 bring ten times its goodput.",
        lines: &[],
    },
    knobs: &super::WEAK,
    x: ACROSS,
    y: Axis::linear("Mbit/s"),
    lines: &[
        also_real(TCP_WIFI, &[Arm::Sim, Arm::Kernel], Does::Tcp(0)),
        also_real(
            REGULAR,
            &[Arm::Sim, Arm::Real, Arm::Kernel],
            Does::Multipath(&[NONE]),
        ),
        also_real(BOTH, &[Arm::Sim, Arm::Real], Does::Multipath(&[M12])),
        also_real(DEFAULT, &[Arm::Sim, Arm::Real], Does::Multipath(&[])),
    ],
    load: Load::Light,
    run: weak,
    verdict: tenfold,
};

/// Networks of one data centre, from 64 kB on.
const WIRED: Across = Across::Knob {
    name: "buffer",
    quick: "64k,250k,2m",
    full: "64k,128k,250k,500k,1m,2m,4m",
    logarithmic: true,
};

const TCP_FAST: &str = "TCP over 1 Gbit/s";
const TCP_ONE: &str = "TCP over one link";

/// Figure 6(b).
pub(super) const UNEQUAL: Figure = Figure {
    id: "nsdi-6b",
    source: "NSDI 2012, figure 6(b)",
    title: "Links of 1 Gbit/s and 100 Mbit/s: goodput against the buffer",
    paper: Paper {
        says: "Multipath TCP with mechanisms 1 and 2 uses both links with only 250 kB; regular Multipath TCP stays below TCP \
               over the 1 Gbit/s link until the buffer has 2 MB.",
        lines: &[],
    },
    knobs: &[
        BUFFER,
        Knob::new("fast.rate", Unit::Rate, "1gbit", "rate of the faster link"),
        Knob::new(
            "slow.rate",
            Unit::Rate,
            "100mbit",
            "rate of the slower link",
        ),
        RTT,
        QUEUE,
        CONGESTION,
        TIME,
    ],
    x: WIRED,
    y: Axis::linear("Mbit/s"),
    lines: &[line(TCP_FAST, Does::Tcp(0)), PLAIN, BOTH_MECHANISMS, OURS],
    load: Load::Heavy,
    run: |run| {
        let paths = ["fast.rate", "slow.rate"].map(|rate| link(run, rate));
        wired(run, &paths)
    },
    verdict: underused,
};

/// Figure 6(c).
pub(super) const EQUAL: Figure = Figure {
    id: "nsdi-6c",
    source: "NSDI 2012, figure 6(c)",
    title: "Three equal links of 1 Gbit/s: goodput against the buffer",
    paper: Paper {
        says: "Regular Multipath TCP and Multipath TCP with mechanisms 1 and 2 do equally well, whatever the buffer: when there \
               is too little of it, the fastest path alone is the best there is.",
        lines: &[],
    },
    knobs: &[
        BUFFER,
        Knob::new("rate", Unit::Rate, "1gbit", "rate of each link"),
        RTT,
        QUEUE,
        CONGESTION,
        TIME,
    ],
    x: WIRED,
    y: Axis::linear("Mbit/s"),
    lines: &[line(TCP_ONE, Does::Tcp(0)), PLAIN, BOTH_MECHANISMS, OURS],
    load: Load::Heavy,
    run: |run| wired(run, &[link(run, "rate"); 3]),
    verdict: alike,
};

const RTT: Knob = Knob::new("rtt", Unit::Time, "500us", "round trip of each link").or_none();
const QUEUE: Knob = Knob::new("queue", Unit::Bytes, "250k", "network buffer of each link");
const TIME: Knob = Knob::new("time", Unit::Time, "2s", "length of a transfer")
    .quick("500ms")
    .measures();

fn link(run: &Run<'_>, rate: &str) -> PathSpec {
    PathSpec {
        rate: run.knobs.whole(rate),
        rtt_us: (run.knobs.get("rtt") * 1e6) as u64,
        buffer: run.knobs.whole("queue"),
        loss_ppm: 0,
    }
}

fn wired(run: &Run<'_>, paths: &[PathSpec]) -> Result<Vec<Sample>, String> {
    Ok(run.point(transfer::goodput(run, paths)?))
}

fn weak(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let paths = ["wifi", "3g"].map(|name| sim::path(run.knobs, name));
    wired(run, &paths)
}

fn tenfold(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        for name in [BOTH, DEFAULT] {
            let ratio = seen.ratio(arm, name, REGULAR);
            if let Some(ratio) = ratio.and_then(|ratio| ratio.within(100.0, 300.0)) {
                let statement = format!("{name}: ten times regular Multipath TCP around 200 kB");
                let [x, most] = ratio.most();
                // Nothing is repeated elsewhere there: it is what the window allows.
                let regular = seen.at(arm, REGULAR, x).unwrap_or(f64::NAN);
                let tcp = seen.at(super::tcp_of(arm), TCP_WIFI, x);
                let whole = tcp.map_or(f64::NAN, |tcp| tcp / regular.max(1e-9));
                let found = format!(
                    "up to {most:.2} times, at {x} kB; regular Multipath TCP has {regular:.2} Mbit/s there, a window in each \
                     round trip through the queue of 3G, and all that TCP over WiFi carries is {whole:.2} times that"
                );
                all.push(Finding::new(arm, &statement, found, most >= 10.0));
            }
        }
    }
    all.extend(super::never_below_tcp(seen, TCP_WIFI, "TCP over WiFi"));
    all.extend(super::never_below_the_kernel(seen));
    all
}

fn underused(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        for name in [BOTH, DEFAULT] {
            let ratio = seen.ratio(arm, name, TCP_FAST);
            if let Some(ratio) = ratio.and_then(|ratio| ratio.within(250.0, f64::MAX)) {
                let statement = format!("{name}: at least TCP over 1 Gbit/s from 250 kB on");
                all.push(Finding::not_below(arm, &statement, &ratio, "kB"));
            }
        }
        let ratio = seen.ratio(arm, REGULAR, TCP_FAST);
        if let Some(ratio) = ratio.and_then(|ratio| ratio.within(0.0, 1_999.0)) {
            let [x, most] = ratio.most();
            let seen = format!("up to {most:.2} times, at {x} kB");
            let statement = "regular Multipath TCP stays below TCP over 1 Gbit/s below 2 MB";
            all.push(Finding::new(arm, statement, seen, most < 1.0));
        }
    }
    all
}

fn alike(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        if let Some(ratio) = seen.ratio(arm, BOTH, REGULAR) {
            let (low, high) = (ratio.least()[1], ratio.most()[1]);
            let seen = format!("from {low:.2} to {high:.2} times");
            let statement =
                "with and without M1 and M2 it is the same to a tenth, whatever the buffer";
            let same = low > 0.9 && high < 1.1;
            all.push(Finding::new(arm, statement, seen, same));
        }
    }
    all.extend(super::never_below_tcp(seen, TCP_ONE, "TCP over one link"));
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    fn series(name: &str, values: [f64; 3]) -> Series {
        let xs = [64.0, 250.0, 2000.0];
        Series {
            arm: Arm::Sim,
            name: name.to_owned(),
            points: xs.into_iter().zip(values).map(|(x, y)| [x, y]).collect(),
        }
    }

    fn held(verdict: fn(&Seen<'_>) -> Vec<Finding>, all: &[Series]) -> Vec<bool> {
        verdict(&Seen::of(all)).iter().map(|f| f.holds).collect()
    }

    #[test]
    fn the_papers_shapes_are_found_right_and_others_are_not() {
        let weak = [
            series(TCP_WIFI, [7.5, 7.5, 7.5]),
            series(REGULAR, [3.0, 0.5, 7.0]),
            series(BOTH, [7.5, 5.0, 7.6]),
            series(DEFAULT, [7.5, 4.0, 7.6]),
        ];
        assert_eq!(held(tenfold, &weak), [true, false, false]);
        let unequal = [
            series(TCP_FAST, [300.0, 940.0, 940.0]),
            series(REGULAR, [150.0, 400.0, 960.0]),
            series(BOTH, [300.0, 1000.0, 1030.0]),
            series(DEFAULT, [300.0, 800.0, 1030.0]),
        ];
        assert_eq!(held(underused, &unequal), [true, false, true]);
        let equal = [
            series(TCP_ONE, [400.0, 940.0, 940.0]),
            series(REGULAR, [400.0, 1000.0, 2800.0]),
            series(BOTH, [400.0, 1200.0, 2800.0]),
            series(DEFAULT, [400.0, 1000.0, 2800.0]),
        ];
        assert_eq!(held(alike, &equal), [false, true]);
    }
}
