//! Figures 6 and 7: two links of 100 Mbit/s, one of them slower to deliver, or lossy.

use std::net::IpAddr;

use manypath_sim::Simulation;
use manypath_tcp::time::Instant;

use super::super::compare::range;
use super::super::nsdi::tcp_of;
use super::super::sim::{self, Ends, span};
use super::super::transfer::CONGESTION;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
    transfer,
};
use crate::parallel::{PathSpec, read_by_server};

/// The parameters that say how long real packets flow: as long as simulated ones.
const TIMES: [&str; 2] = ["warm-up", "time"];

const TCP_A: &str = "TCP over link A";
const EQUAL: &str = "Multipath TCP, equal delays";
const TEN: &str = "Multipath TCP, B 10 ms longer";
const HUNDRED: &str = "Multipath TCP, B 100 ms longer";
const HALF_SECOND: &str = "Multipath TCP, B 500 ms longer";

const BUFFER: Knob = Knob::new("buffer", Unit::Bytes, "4m", "receive buffer");
const RATE: Knob = Knob::new("rate", Unit::Rate, "100mbit", "rate of each link");
const RTT: Knob = Knob::new("rtt", Unit::Time, "1ms", "round trip of the links").or_none();
const QUEUE: Knob = Knob::new("queue", Unit::Bytes, "1500k", "buffer before each link");
const WARM_UP: Knob = Knob::new("warm-up", Unit::Time, "10s", "time before the measurement")
    .or_none()
    .quick("4s")
    .measures();
const TIME: Knob = Knob::new("time", Unit::Time, "30s", "length of a measurement")
    .quick("3s")
    .measures();

/// What a line does is by how many milliseconds link B is longer.
const fn longer(name: &'static str, by_ms: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Sim, Arm::Real, Arm::Kernel],
        does: Does::Own(by_ms),
    }
}

/// Figure 6.
pub(super) const DELAY: Figure = Figure {
    id: "net11-6",
    source: "NETWORKING 2011, figure 6",
    title: "Two links of 100 Mbit/s with different delays: goodput against the receive buffer",
    paper: Paper {
        says: "With equal delays both links are full with a receive buffer of 2 MB or more, and 10 ms of difference change \
               nothing. With 100 ms there is a small decrease, less with 4 MB. With 500 ms the goodput is much more affected: \
               losses at the router cause time-outs, after which the window grows slowly.",
        lines: &[],
    },
    knobs: &[BUFFER, RATE, RTT, QUEUE, CONGESTION, WARM_UP, TIME],
    x: Across::Knob {
        name: "buffer",
        quick: "2m,4m",
        full: "1m,2m,3m,4m,6m,8m,10m,12m,14m,16m",
        logarithmic: false,
    },
    y: Axis::linear("Mbit/s"),
    lines: &[
        Line {
            name: TCP_A,
            arms: &[Arm::Sim, Arm::Kernel],
            does: Does::Tcp(0),
        },
        longer(EQUAL, "0"),
        longer(TEN, "10"),
        longer(HUNDRED, "100"),
        longer(HALF_SECOND, "500"),
    ],
    load: Load::Heavy,
    run: delay,
    verdict: little_lost,
};

const LINK_A: &str = "over link A";
const LINK_B: &str = "over link B";

/// Figure 7.
pub(super) const LOSS: Figure = Figure {
    id: "net11-7",
    source: "NETWORKING 2011, figure 7",
    title: "Two links of 100 Mbit/s, losses on link B: what each of them carries",
    paper: Paper {
        says: "Without losses both links are full. What link B carries falls with its losses; what link A carries stays as it is \
               with 1, 2 and 3 %, and decreases slightly with 4 and 5 %.",
        lines: &[],
    },
    knobs: &[
        Knob::new("loss", Unit::Percent, "0", "packets lost on link B"),
        BUFFER,
        RATE,
        RTT,
        QUEUE,
        CONGESTION,
        WARM_UP,
        TIME,
    ],
    x: Across::Knob {
        name: "loss",
        quick: "0,1%,3%,5%",
        full: "0,1%,2%,3%,4%,5%",
        logarithmic: false,
    },
    y: Axis::linear("Mbit/s of payload"),
    lines: &[Line {
        name: "Multipath TCP",
        arms: &[Arm::Sim, Arm::Real, Arm::Kernel],
        does: Does::Multipath(&[]),
    }],
    load: Load::Heavy,
    run: loss,
    verdict: unharmed,
};

fn link(run: &Run<'_>) -> PathSpec {
    PathSpec {
        rate: run.knobs.whole("rate"),
        rtt_us: (run.knobs.get("rtt") * 1e6) as u64,
        buffer: run.knobs.whole("queue"),
        loss_ppm: 0,
    }
}

/// A transfer over both links after its beginning, and what `count` counts of it during the measurement.
fn measured<const N: usize>(
    run: &Run<'_>,
    paths: &[PathSpec],
    count: impl Fn(&Simulation) -> [u64; N],
) -> Result<[f64; N], String> {
    let ends = Ends {
        buffer: Some(run.knobs.whole("buffer")),
        options: &[("congestion", run.knobs.word("congestion"))],
        ..Ends::default()
    };
    let mut simulation = sim::simulation(run, paths, ends, 1)?;
    let (warm_up, time) = (span(run.knobs.get("warm-up")), span(run.knobs.get("time")));
    simulation.run_until(Instant::ZERO + warm_up);
    let before = count(&simulation);
    simulation.run_until(Instant::ZERO + warm_up + time);
    let after = count(&simulation);
    Ok(std::array::from_fn(|n| {
        sim::megabits(after[n].saturating_sub(before[n]), time)
    }))
}

/// The two links of figure 6 in the run's line.
fn delayed(run: &Run<'_>) -> [PathSpec; 2] {
    let a = link(run);
    let longer = match run.line.does {
        Does::Own(by_ms) => by_ms.parse::<u64>().unwrap_or(0) * 1_000,
        Does::Tcp(_) | Does::Multipath(_) => 0,
    };
    [
        a,
        PathSpec {
            rtt_us: a.rtt_us + longer,
            ..a
        },
    ]
}

fn delay(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let paths = delayed(run);
    if run.arm.needs_namespaces() {
        return Ok(run.point(transfer::on_real_packets(run, &paths, TIMES)?.goodput));
    }
    let [goodput] = measured(run, &paths, |simulation| [read_by_server(simulation)])?;
    Ok(run.point(goodput))
}

/// Stream bytes that arrived at the server over each link.
fn carried(simulation: &Simulation) -> [u64; 2] {
    let server = &simulation.hosts()[1];
    let end = server.endpoints().first();
    let info = end.and_then(|end| server.stack.info(end.conn).ok());
    let mut carried = [0; 2];
    for subflow in info.iter().flat_map(|info| &info.subflows) {
        // The client's address on path n is 10.n.0.2, counted from one.
        if let IpAddr::V4(address) = subflow.tuple.remote.ip() {
            let path = usize::from(address.octets()[1].saturating_sub(1));
            if let Some(place) = carried.get_mut(path) {
                *place += subflow.bytes_received;
            }
        }
    }
    carried
}

fn loss(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let a = link(run);
    let b = PathSpec {
        loss_ppm: (run.knobs.get("loss") * 1e4) as u32,
        ..a
    };
    let [over_a, over_b] = match run.arm.needs_namespaces() {
        true => {
            let carried = transfer::on_real_packets(run, &[a, b], TIMES)?;
            std::array::from_fn(|n| carried.paths.get(n).copied().unwrap_or(0.0))
        }
        false => measured(run, &[a, b], carried)?,
    };
    Ok(vec![run.sample(LINK_A, over_a), run.sample(LINK_B, over_b)])
}

fn little_lost(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        if let (Some(equal), Some(tcp)) = (
            seen.at(arm, EQUAL, 2_000.0),
            seen.at(tcp_of(arm), TCP_A, 2_000.0),
        ) {
            let ratio = equal / tcp.max(1e-9);
            all.push(Finding::new(
                arm,
                "with equal delays both links are full with 2 MB: 1.9 times TCP over one",
                format!("{ratio:.2} times TCP over link A"),
                ratio >= 1.9,
            ));
        }
        if let Some(ratio) = seen
            .ratio(arm, TEN, EQUAL)
            .and_then(|r| r.within(2_000.0, f64::MAX))
        {
            let statement = "10 ms of difference take less than 3 % from 2 MB on";
            all.push(Finding::never_below(arm, statement, &ratio, 0.97, "kB"));
        }
        if let Some(ratio) = seen
            .ratio(arm, HUNDRED, EQUAL)
            .and_then(|r| r.within(4_000.0, 4_000.0))
        {
            let statement = "with 100 ms of difference at most 10 % are lost at 4 MB";
            all.push(Finding::never_below(arm, statement, &ratio, 0.9, "kB"));
        }
        if let Some(ratio) = seen.across((arm, HALF_SECOND), (tcp_of(arm), TCP_A)) {
            let statement = "with 500 ms of difference it is still not below TCP over link A";
            all.push(Finding::not_below(arm, statement, &ratio, "kB"));
        }
    }
    all.extend(beside_the_kernel(seen));
    all
}

/// What our transfers in the kernel's place are held against.
fn beside_the_kernel(seen: &Seen<'_>) -> Vec<Finding> {
    let on = |name: &str| {
        let ratio = seen.across((Arm::Real, name), (Arm::Kernel, name))?;
        let statement = format!("{name}: not below the kernel's");
        Some(Finding::not_below(Arm::Real, &statement, &ratio, "kB"))
    };
    [EQUAL, TEN, HUNDRED, HALF_SECOND]
        .into_iter()
        .filter_map(on)
        .collect()
}

/// Losses on link B that the paper shows, in per cent: any, up to five.
const LOSSES: [f64; 2] = [f64::MIN_POSITIVE, 5.0];

fn unharmed(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        let (Some(a), Some(b)) = (seen.line(arm, LINK_A), seen.line(arm, LINK_B)) else {
            continue;
        };
        let [some, most] = LOSSES;
        if let (Some(clean), Some((least, _))) = (a.at(0.0), range(&a.within(some, most))) {
            all.push(Finding::new(
                arm,
                "with up to 5 % of losses on B link A carries at least 0.98 of what it does without",
                format!("at least {:.3} of it", least / clean),
                least >= 0.98 * clean,
            ));
        }
        if let (Some(clean), Some(lossy)) = (b.at(0.0), b.at(most)) {
            all.push(Finding::new(
                arm,
                "with 5 % of losses link B carries less than 0.9 of what it does without",
                format!("from {clean:.1} to {lossy:.1} Mbit/s"),
                lossy < 0.9 * clean,
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    fn series(name: &str, points: &[[f64; 2]]) -> Series {
        Series::of(Arm::Sim, name, points)
    }

    #[test]
    fn the_papers_shapes_are_found_right_and_others_are_not() {
        let lines = |hundred: f64| {
            [
                series(TCP_A, &[[2_000.0, 94.0], [4_000.0, 94.0]]),
                series(EQUAL, &[[2_000.0, 187.0], [4_000.0, 188.0]]),
                series(TEN, &[[2_000.0, 186.0], [4_000.0, 188.0]]),
                series(HUNDRED, &[[2_000.0, 160.0], [4_000.0, hundred]]),
                series(HALF_SECOND, &[[2_000.0, 95.0], [4_000.0, 120.0]]),
            ]
        };
        let held = |all: &[Series]| -> Vec<bool> {
            little_lost(&Seen::of(all))
                .iter()
                .map(|f| f.holds)
                .collect()
        };
        assert_eq!(held(&lines(175.0)), [true; 4]);
        assert_eq!(held(&lines(150.0)), [true, true, false, true]);
        let lossy = |at_five: f64| {
            [
                series(LINK_A, &[[0.0, 94.0], [5.0, at_five]]),
                series(LINK_B, &[[0.0, 94.0], [5.0, 20.0]]),
            ]
        };
        let held = |at_five| -> Vec<bool> {
            unharmed(&Seen::of(&lossy(at_five)))
                .iter()
                .map(|f| f.holds)
                .collect()
        };
        assert_eq!(
            (held(93.9), held(80.0)),
            (vec![true, true], vec![false, true])
        );
        // Nothing is said about more than 5 %, nor from the link without losses alone.
        let swept = [
            series(LINK_A, &[[0.0, 94.0], [5.0, 94.0], [20.0, 10.0]]),
            series(LINK_B, &[[0.0, 94.0], [5.0, 20.0], [20.0, 1.0]]),
        ];
        assert!(unharmed(&Seen::of(&swept)).iter().all(|f| f.holds));
        let clean = [LINK_A, LINK_B].map(|link| series(link, &[[0.0, 94.0], [20.0, 10.0]]));
        assert_eq!(unharmed(&Seen::of(&clean)), []);
    }
}
