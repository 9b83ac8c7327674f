//! Figures 4 and 5: WiFi and 3G, goodput and memory against the configured buffer.

use manypath_stack::ConnInfo;
use manypath_tcp::time::Instant;

use super::super::compare::range;
use super::super::sim::{self, Ends};
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Line, Load, Paper, Run, Sample, Seen, transfer,
};
use super::{BOTH, DEFAULT, M1, M12, NONE, PUBLIC, REGULAR as PLAIN, TCP_3G, TCP_WIFI, WIRELESS};
use crate::parallel::read_by_server;

/// Where the paper's lines are.
pub(super) const ACROSS: Across = Across::Knob {
    name: "buffer",
    quick: "50k,200k,400k,1m",
    full: "50k,100k,150k,200k,250k,300k,400k,500k,600k,700k,800k,1m",
    logarithmic: false,
};

const OPPORTUNISTIC_ONLY: &str = "Multipath TCP with M1";
const TUNED: &str = "Multipath TCP with M1,2,3";
const CAPPED: &str = "Multipath TCP with M1,2,3,4";

const fn line(name: &'static str, does: Does) -> Line {
    Line {
        name,
        arms: &[Arm::Sim],
        does,
    }
}

const fn on(arms: &'static [Arm], line: Line) -> Line {
    Line { arms, ..line }
}

/// Arms that have plain TCP, arms that have our own, and all.
const TCPS: &[Arm] = &[Arm::Sim, Arm::Kernel];
const OURS_ONLY: &[Arm] = &[Arm::Sim, Arm::Real];
const ALL: &[Arm] = &[Arm::Sim, Arm::Real, Arm::Kernel];

const WIFI: Line = line(TCP_WIFI, Does::Tcp(0));
const THREE_G: Line = line(TCP_3G, Does::Tcp(1));
const OURS: Line = line(DEFAULT, Does::Multipath(&[]));
const BOTH_MECHANISMS: Line = line(BOTH, Does::Multipath(&[M12]));

const fn figure(
    id: &'static str,
    source: &'static str,
    title: &'static str,
    says: &'static str,
) -> Figure {
    Figure {
        id,
        source,
        title,
        paper: Paper { says, lines: &[] },
        knobs: &WIRELESS,
        x: ACROSS,
        y: Axis::linear("Mbit/s"),
        lines: &[],
        load: Load::Light,
        run: goodput,
        verdict: above_tcp,
    }
}

/// Figure 4(a).
pub(super) const REGULAR: Figure = Figure {
    lines: &[
        on(TCPS, WIFI),
        on(TCPS, THREE_G),
        on(ALL, line(PLAIN, Does::Multipath(&[NONE]))),
        on(OURS_ONLY, OURS),
    ],
    verdict: regular,
    ..figure(
        "nsdi-4a",
        "NSDI 2012, figure 4(a)",
        "WiFi and 3G, regular Multipath TCP: goodput against the buffer",
        "Regular Multipath TCP falls below TCP over WiFi for buffers under 400 kB (even 370 kB are too little to fill both \
         paths), and needs a megabyte to fill both.",
    )
};

/// Figure 4(b).
pub(super) const OPPORTUNISTIC: Figure = Figure {
    lines: &[
        on(TCPS, WIFI),
        on(TCPS, THREE_G),
        on(OURS_ONLY, line(OPPORTUNISTIC_ONLY, Does::Multipath(&[M1]))),
        on(OURS_ONLY, OURS),
    ],
    run: both_rates,
    verdict: opportunistic,
    ..figure(
        "nsdi-4b",
        "NSDI 2012, figure 4(b)",
        "WiFi and 3G, opportunistic retransmission: goodput and throughput against the buffer",
        "With mechanism 1 the goodput is almost always as good as TCP over WiFi, and mostly better; the throughput is higher, \
         because 3G carries data that WiFi carries again.",
    )
};

/// Figure 4(c).
pub(super) const PENALISING: Figure = Figure {
    lines: &[
        on(TCPS, WIFI),
        on(TCPS, THREE_G),
        on(OURS_ONLY, BOTH_MECHANISMS),
        on(OURS_ONLY, OURS),
    ],
    run: both_rates,
    verdict: penalising,
    ..figure(
        "nsdi-4c",
        "NSDI 2012, figure 4(c)",
        "WiFi and 3G, opportunistic retransmission and penalising: goodput and throughput against the buffer",
        "With mechanisms 1 and 2 Multipath TCP always outperforms or at least matches TCP over WiFi.",
    )
};

/// Figure 5.
pub(super) const MEMORY: Figure = Figure {
    y: Axis::linear("kB held at one end"),
    lines: &[
        WIFI,
        THREE_G,
        line(
            TUNED,
            Does::Multipath(&[("mechanisms", "opportunistic,penalise,autotune")]),
        ),
        line(
            CAPPED,
            Does::Multipath(&[("mechanisms", "opportunistic,penalise,autotune,cap")]),
        ),
    ],
    run: memory,
    verdict: held,
    ..figure(
        "nsdi-5",
        "NSDI 2012, figure 5",
        "WiFi and 3G: memory at both ends against the buffer",
        "At the sender least for TCP over WiFi, more for TCP over 3G; Multipath TCP uses up to 500 kB when the buffer permits it, and capping \
         the window halves that when the buffer is large. The receiver of one path needs little, that of Multipath TCP at least two thirds \
         of what the sender does.",
    )
};

/// Figure 9.
pub(super) const CAPPED_WIFI: Figure = Figure {
    knobs: &PUBLIC,
    x: Across::Knob {
        name: "buffer",
        quick: "50k,100k,200k,500k",
        full: "50k,100k,150k,200k,300k,400k,500k",
        logarithmic: false,
    },
    lines: &[
        on(TCPS, WIFI),
        on(TCPS, THREE_G),
        on(&[Arm::Kernel], line(PLAIN, Does::Multipath(&[]))),
        on(OURS_ONLY, OURS),
    ],
    verdict: doubled,
    ..figure(
        "nsdi-9",
        "NSDI 2012, figure 9",
        "A provider's 3G and a WiFi capped at 2 Mbit/s: goodput against the buffer",
        "TCP gets roughly the same over both. Multipath TCP never underperforms it: it gets 25 % more with 100 kB, most of the \
         bandwidth with 200 kB, and almost the double with 500 kB.",
    )
};

fn throughput_of(line: &str) -> String {
    format!("{line}, throughput")
}

/// The goodput alone.
fn goodput(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let paths = [sim::path(run.knobs, "wifi"), sim::path(run.knobs, "3g")];
    Ok(run.point(transfer::goodput(run, &paths)?))
}

/// The goodput; of Multipath TCP the throughput as well.
fn both_rates(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let knobs = run.knobs;
    let paths = [sim::path(knobs, "wifi"), sim::path(knobs, "3g")];
    let multipath = matches!(run.line.does, Does::Multipath(_));
    if run.arm.needs_namespaces() {
        let carried = transfer::on_real_packets(run, &paths, ["real.warm-up", "real.time"])?;
        let mut samples = run.point(carried.goodput);
        if multipath {
            let all = carried.paths.iter().sum();
            samples.push(run.sample(&throughput_of(run.line.name), all));
        }
        return Ok(samples);
    }
    let ends = Ends {
        buffer: Some(knobs.whole("buffer")),
        options: &[("congestion", knobs.word("congestion"))],
        ..Ends::default()
    };
    let mut simulation = sim::simulation(run, &paths, ends, 1)?;
    let time = sim::span(knobs.get("time"));
    simulation.run_until(Instant::ZERO + time);
    let mut samples = run.point(sim::megabits(read_by_server(&simulation), time));
    if multipath {
        let sent = simulation.hosts()[0]
            .interfaces()
            .iter()
            .map(|interface| interface.counters.sent_payload);
        let rate = sim::megabits(sent.sum(), time);
        samples.push(run.sample(&throughput_of(run.line.name), rate));
    }
    Ok(samples)
}

/// Looks at the memory in one run.
const LOOKS: u64 = 200;

fn receiver_of(line: &str) -> String {
    format!("{line}, receiver")
}

/// What each end holds, on average.
fn memory(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let knobs = run.knobs;
    let paths = [sim::path(knobs, "wifi"), sim::path(knobs, "3g")];
    let ends = Ends {
        buffer: Some(knobs.whole("buffer")),
        options: &[("congestion", knobs.word("congestion"))],
        ..Ends::default()
    };
    let mut simulation = sim::simulation(run, &paths, ends, 1)?;
    let time = sim::span(knobs.get("time"));
    let mut held = [0.0, 0.0];
    for look in 1..=LOOKS {
        simulation.run_until(Instant::ZERO + time.ratio(look, LOOKS));
        // What the sender may not forget, and what the receiver's queues take: it holds pages, not bytes.
        let counts: [fn(&ConnInfo) -> f64; 2] =
            [|info| f64::from(info.send_queue), |info| info.memory as f64];
        for ((host, held), count) in simulation.hosts().iter().zip(&mut held).zip(counts) {
            let conn = host.endpoints().first().map(|end| end.conn);
            let info = conn.and_then(|conn| host.stack.info(conn).ok());
            *held += info.map_or(0.0, |info| count(&info)) / LOOKS as f64 / 1e3;
        }
    }
    let mut samples = run.point(held[0]);
    samples.push(run.sample(&receiver_of(run.line.name), held[1]));
    Ok(samples)
}

fn above_tcp(seen: &Seen<'_>) -> Vec<Finding> {
    super::never_below_tcp(seen, TCP_WIFI, "TCP over WiFi")
}

/// Rate of both paths of the paper that counts as filled, in Mbit/s, and the buffer that has to do for it, in kB.
const FILLED: (f64, f64) = (9.0, 400.0);
/// Where the paper's regular Multipath TCP fills them, in kB.
const MEGABYTE: f64 = 1_000.0;

fn regular(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        let tcp = (super::tcp_of(arm), TCP_WIFI);
        let ratio = seen.across((arm, PLAIN), tcp);
        if let Some(small) = ratio.and_then(|ratio| ratio.within(0.0, 400.0)) {
            let [x, least] = small.least();
            let seen = format!("down to {least:.2} times, at {x} kB");
            let statement = "regular Multipath TCP falls below TCP over WiFi with 400 kB or less";
            // Less than that is chance.
            all.push(Finding::new(arm, statement, seen, least < 0.99));
        }
        if let Some(most) = seen.at(arm, PLAIN, MEGABYTE) {
            let statement = "regular Multipath TCP fills both paths with a megabyte";
            let found = format!("{most:.2} Mbit/s");
            all.push(Finding::new(arm, statement, found, most >= FILLED.0));
        }
        let small = seen.line(arm, DEFAULT);
        let small = small.and_then(|line| range(&line.within(0.0, FILLED.1)));
        if let Some((_, most)) = small {
            let seen = format!("{most:.2} Mbit/s");
            let statement = "the default settings reach 9 of the 10 Mbit/s with 400 kB or less";
            all.push(Finding::new(arm, statement, seen, most >= FILLED.0));
        }
    }
    all.extend(above_tcp(seen));
    all.extend(super::never_below_the_kernel(seen));
    all
}

fn doubled(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        let Some(ratio) = seen.across((arm, DEFAULT), (super::tcp_of(arm), TCP_WIFI)) else {
            continue;
        };
        for (buffer, times) in [(100.0, 1.25), (200.0, 1.5), (500.0, 1.8)] {
            if let Some(there) = ratio.within(buffer, buffer) {
                let statement = format!("{times} times TCP over WiFi with {buffer} kB");
                all.push(Finding::reaches(arm, &statement, &there, times, "kB"));
            }
        }
    }
    all.extend(above_tcp(seen));
    all.extend(super::never_below_the_kernel(seen));
    all
}

fn opportunistic(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        let tcp = (super::tcp_of(arm), TCP_WIFI);
        if let Some(ratio) = seen.across((arm, OPPORTUNISTIC_ONLY), tcp) {
            let statement = "with M1 the goodput is nowhere below 0.9 times that of TCP over WiFi";
            all.push(Finding::never_below(arm, statement, &ratio, 0.9, "kB"));
        }
        let throughput = throughput_of(OPPORTUNISTIC_ONLY);
        if let Some(ratio) = seen.ratio(arm, &throughput, OPPORTUNISTIC_ONLY) {
            let statement = "the throughput is somewhere 5 % higher than the goodput";
            all.push(Finding::reaches(arm, statement, &ratio, 1.05, "kB"));
        }
    }
    all.extend(above_tcp(seen));
    all
}

fn penalising(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        if let Some(ratio) = seen.across((arm, BOTH), (super::tcp_of(arm), TCP_WIFI)) {
            let statement = "with M1 and M2 always at least TCP over WiFi";
            all.push(Finding::not_below(arm, statement, &ratio, "kB"));
        }
    }
    all.extend(above_tcp(seen));
    all
}

/// What the paper says of memory in section 4.2, sentence by sentence, where the buffer is large.
fn held(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        let with_a_megabyte = |one: &str, other: &str| {
            let ratio = seen.ratio(arm, one, other)?;
            ratio.within(MEGABYTE, f64::MAX)
        };
        let mut judge = |one: &str, other: &str, statement: &str, holds: fn(f64) -> bool| {
            if let Some(ratio) = with_a_megabyte(one, other) {
                let [x, times] = ratio.most();
                let seen = format!("{times:.2} times, at {x} kB");
                all.push(Finding::new(arm, statement, seen, holds(times)));
            }
        };
        judge(
            TCP_3G,
            TCP_WIFI,
            "the sender of TCP over 3G holds more than that of TCP over WiFi",
            |times| times > 1.0,
        );
        judge(
            TUNED,
            TCP_3G,
            "the sender of Multipath TCP holds more than that of TCP over 3G",
            |times| times > 1.0,
        );
        judge(
            CAPPED,
            TUNED,
            "capping halves what the sender of Multipath TCP holds (0.55 at most)",
            |times| times <= 0.55,
        );
        for name in [TCP_WIFI, TCP_3G] {
            let statement = format!("{name}: the receiver holds little (a tenth of the sender)");
            judge(&receiver_of(name), name, &statement, |times| times <= 0.1);
        }
        judge(
            &receiver_of(TUNED),
            TUNED,
            "the receiver of Multipath TCP holds at least two thirds of what its sender does",
            |times| times >= 0.66,
        );
        let tuned = seen.line(arm, TUNED);
        if let Some((_, most)) = tuned.and_then(|line| range(&line.within(MEGABYTE, f64::MAX))) {
            let statement = "Multipath TCP uses up to 500 kB when the buffer permits it";
            let found = format!("{most:.0} kB");
            all.push(Finding::new(
                arm,
                statement,
                found,
                (250.0..=750.0).contains(&most),
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    fn series(arm: Arm, name: &str, values: [f64; 3]) -> Series {
        let xs = [50.0, 400.0, 1000.0];
        Series {
            arm,
            name: name.to_owned(),
            points: xs.into_iter().zip(values).map(|(x, y)| [x, y]).collect(),
        }
    }

    #[test]
    fn the_papers_own_shape_is_found_right() {
        let mut all = vec![
            series(Arm::Sim, TCP_WIFI, [7.5, 7.6, 7.6]),
            series(Arm::Sim, PLAIN, [7.5, 6.0, 9.3]),
            series(Arm::Sim, DEFAULT, [7.6, 9.1, 9.4]),
        ];
        let held = |all: &[Series]| {
            let found = regular(&Seen::of(all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!(held(&all), [true; 4]);
        // Real packets beside the kernel's, which has TCP for both.
        all.push(series(Arm::Real, DEFAULT, [7.0, 8.5, 9.0]));
        all.push(series(Arm::Kernel, TCP_WIFI, [7.7, 7.7, 7.7]));
        all.push(series(Arm::Kernel, PLAIN, [3.8, 8.0, 9.4]));
        let found = regular(&Seen::of(&all));
        let broken: Vec<&str> = found
            .iter()
            .filter(|f| !f.holds)
            .map(|f| f.seen.as_str())
            .collect();
        assert_eq!(broken.len(), 3, "{broken:?}");
        assert!(broken[0].contains("8.50 Mbit/s") && broken[1].contains("0.91 times, at 50 kB"));
        assert!(broken[2].contains("0.96 times, at 1000 kB"));
    }

    #[test]
    fn nothing_is_said_of_small_buffers_without_any() {
        let large = [Series::of(
            Arm::Sim,
            DEFAULT,
            &[[500.0, 9.4], [1000.0, 9.4]],
        )];
        assert_eq!(regular(&Seen::of(&large)), []);
    }

    #[test]
    fn memory_and_throughput_are_held_against_the_paper() {
        let receiver = |name: &str, values| series(Arm::Sim, &receiver_of(name), values);
        let paper = [
            series(Arm::Sim, TCP_WIFI, [40.0, 60.0, 60.0]),
            receiver(TCP_WIFI, [1.0, 1.0, 1.0]),
            series(Arm::Sim, TCP_3G, [50.0, 300.0, 300.0]),
            receiver(TCP_3G, [1.0, 2.0, 2.0]),
            series(Arm::Sim, TUNED, [50.0, 350.0, 500.0]),
            receiver(TUNED, [40.0, 280.0, 350.0]),
            series(Arm::Sim, CAPPED, [50.0, 240.0, 240.0]),
        ];
        let judged = |all: &[Series]| -> Vec<bool> {
            held(&Seen::of(all)).iter().map(|f| f.holds).collect()
        };
        assert_eq!(judged(&paper), [true; 7]);
        // As much with a small buffer and half with a middling one is no half with a large one.
        let contrary = [
            series(Arm::Sim, TCP_WIFI, [40.0, 200.0, 300.0]),
            receiver(TCP_WIFI, [1.0, 1.0, 60.0]),
            series(Arm::Sim, TCP_3G, [50.0, 300.0, 290.0]),
            receiver(TCP_3G, [1.0, 2.0, 90.0]),
            series(Arm::Sim, TUNED, [50.0, 100.0, 200.0]),
            receiver(TUNED, [40.0, 280.0, 35.0]),
            series(Arm::Sim, CAPPED, [50.0, 40.0, 190.0]),
        ];
        assert_eq!(judged(&contrary), [false; 7]);
        let small = [
            Series::of(Arm::Sim, TUNED, &[[50.0, 50.0]]),
            Series::of(Arm::Sim, CAPPED, &[[50.0, 50.0]]),
        ];
        assert_eq!(judged(&small), [false; 0]);
        let wasteful = [
            series(Arm::Sim, TCP_WIFI, [7.5, 7.5, 7.5]),
            series(Arm::Sim, OPPORTUNISTIC_ONLY, [7.3, 7.5, 9.0]),
            series(
                Arm::Sim,
                &throughput_of(OPPORTUNISTIC_ONLY),
                [9.0, 9.0, 9.2],
            ),
        ];
        assert!(opportunistic(&Seen::of(&wasteful)).iter().all(|f| f.holds));
        assert!(
            !penalising(&Seen::of(&[
                series(Arm::Sim, TCP_WIFI, [7.5, 7.5, 7.5]),
                series(Arm::Sim, BOTH, [7.5, 5.0, 7.5]),
            ]))[0]
                .holds
        );
    }
}
