//! Table 1: how long what stands in between keeps a SYN, and data.
//!
//! Three hosts in a row, the middle one with a relay, joined by veth pairs that are as fast as the machine. One connection after the
//! other, each with one exchange of a thousand bytes that is counted. Times are those of the kernels of both ends for each packet, so
//! that the way over the two veth pairs is in them; how much that is, is what packets take that the middle only routes.

mod exchange;
mod hosts;

use std::time::Instant;

use super::super::real::PATIENCE;
use super::super::smapp::{distribution, quantile};
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, PaperLine, Run, Sample,
    Seen, Unit,
};
use hosts::{Hosts, Relay};

/// Table 1.
pub(super) const FIGURE: Figure = Figure {
    id: "proxy-table-1",
    source: "Multipath TCP Proxy, table 1",
    title: "How long a proxy keeps a SYN and the answer to it, and data and the answer to it",
    paper: Paper {
        says: "A proxy in user space takes 7.8 and 0.7 ms for the SYN and its answer, 15.3 and 8.1 ms for data and its answer. \
               (Ours is to take less than 0.1 ms for the SYN at the median.)",
        lines: &[
            PaperLine {
                name: "squid: connecting",
                points: &[[PAPER_SYN, 50.0]],
            },
            PaperLine {
                name: "squid: data",
                points: &[[PAPER_DATA, 50.0]],
            },
        ],
    },
    knobs: &[Knob::new("rounds", Unit::Count, "2000", "connections")
        .quick("200")
        .measures()],
    x: Across::Measured(Axis::logarithmic("us within the proxy, there and back")),
    y: Axis::linear("% of the connections"),
    lines: &[
        line("converter", OURS),
        line("CONNECT", OURS),
        line("forward", OURS),
        line("squid", KERNELS),
        line("HAProxy", KERNELS),
        line("routed", KERNELS),
    ],
    load: Load::Heavy,
    run,
    verdict,
};

/// Sums of what the paper has for both directions, in microseconds.
const PAPER_SYN: f64 = 8514.6;
const PAPER_DATA: f64 = 23_395.6;
/// What is wanted of ours for the SYN, in microseconds.
const WANTED: f64 = 100.0;

/// Connections that are not counted, at least.
const WARM: u32 = 50;

const OURS: &[Arm] = &[Arm::Real];
const KERNELS: &[Arm] = &[Arm::Kernel];

const fn line(name: &'static str, arms: &'static [Arm]) -> Line {
    Line {
        name,
        arms,
        does: Does::Own(name),
    }
}

fn connecting(relay: &str) -> String {
    format!("{relay}: connecting")
}

fn data(relay: &str) -> String {
    format!("{relay}: data")
}

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let Does::Own(name) = run.line.does else {
        return Err(format!("{} is not a relay", run.line.name));
    };
    let mut hosts = Hosts::new(Relay::named(name)?, run.program)?;
    let (mut connects, mut exchanges) = (Vec::new(), Vec::new());
    let rounds = run.knobs.whole("rounds");
    warm_up(run, &mut hosts)?;
    let mut unseen = 0;
    for _ in 0..rounds {
        run.go_on()?;
        match hosts.exchange()? {
            Some(delays) => {
                connects.push(delays.connecting);
                exchanges.push(delays.data);
            }
            None => unseen += 1,
        }
    }
    hosts.end();
    if unseen * 100 > rounds {
        return Err(format!(
            "{unseen} of {rounds} connections were not carried as they should be"
        ));
    }
    Ok([
        distribution(&connecting(name), connects),
        distribution(&data(name), exchanges),
    ]
    .concat())
}

/// Connections that are not counted, until caches are full and the kernel takes the time of packets, as it does a while after it is
/// asked to.
fn warm_up(run: &Run<'_>, hosts: &mut Hosts) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    let mut rounds = 0;
    while hosts.exchange()?.is_none() || rounds < WARM {
        run.go_on()?;
        rounds += 1;
        if Instant::now() > end {
            return Err("no connection is carried as it should be".to_owned());
        }
    }
    Ok(())
}

/// The medians of a relay for connecting and for data.
fn medians(seen: &Seen<'_>, arm: Arm, relay: &str) -> Option<[f64; 2]> {
    let median = |name: &str| quantile(&seen.line(arm, name)?.points, 50.0);
    Some([median(&connecting(relay))?, median(&data(relay))?])
}

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some([syn, _]) = medians(seen, Arm::Real, "converter") {
        let statement = "ours keeps a SYN and its answer for less than 100 us at the median";
        let shown = format!("{syn:.0} us");
        all.push(Finding::new(Arm::Real, statement, shown, syn < WANTED));
    }
    for line in FIGURE.lines {
        let (arm, name) = (line.arms[0], line.name);
        let Some([syn, data]) = medians(seen, arm, name) else {
            continue;
        };
        let statement = format!("{name} takes less than the paper's proxy: 8,515 and 23,396 us");
        let shown = format!("SYN {syn:.0}, data {data:.0} us");
        let holds = syn < PAPER_SYN && data < PAPER_DATA;
        all.push(Finding::new(arm, &statement, shown, holds));
    }
    for (ours, peer) in [("CONNECT", "squid"), ("forward", "HAProxy")] {
        let Some((own, theirs)) =
            medians(seen, Arm::Real, ours).zip(medians(seen, Arm::Kernel, peer))
        else {
            continue;
        };
        for (n, what) in ["a SYN", "data"].into_iter().enumerate() {
            let statement = format!("ours ({ours}) keeps {what} no longer than {peer}");
            let shown = format!("{:.0} and {:.0} us", own[n], theirs[n]);
            all.push(Finding::new(
                Arm::Real,
                &statement,
                shown,
                own[n] <= theirs[n],
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn medians_are_held_against_what_is_wanted_the_paper_and_the_peer() {
        let series = |arm, name: String, us: f64| {
            Series::of(
                arm,
                &name,
                &[[us - 1.0, 25.0], [us, 50.0], [us * 9.0, 100.0]],
            )
        };
        let of = |arm, relay: &str, syn, exchange| {
            [
                series(arm, connecting(relay), syn),
                series(arm, data(relay), exchange),
            ]
        };
        for (syn, holds) in [(99.0, true), (150.0, false)] {
            let all = [
                of(Arm::Real, "converter", syn, 40.0),
                of(Arm::Real, "CONNECT", syn, 40.0),
                of(Arm::Kernel, "squid", 120.0, 60.0),
            ];
            let found = verdict(&Seen::of(&all.concat()));
            let found: Vec<bool> = found.iter().map(|finding| finding.holds).collect();
            assert_eq!(found, [holds, true, true, true, holds, true]);
        }
    }
}
