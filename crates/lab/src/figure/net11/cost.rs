//! Figure 8 and the processor load at the end of section 5.2: segment sizes, and one to eight subflows.

use super::super::cost::{PACKETS, RUNS, bench, cheapest, line, with_subflows};
use super::super::process::{Bench, Cost};
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};

const TCP: &str = "TCP, one link";
const ONE: &str = "Multipath TCP, one link";
const TWO: &str = "Multipath TCP, two links";

/// Of how many links a line is; none is plain TCP over one.
const fn links(name: &'static str, links: &'static str) -> Line {
    line(name, Does::Own(links))
}

/// Figure 8.
pub(super) const MSS: Figure = Figure {
    id: "net11-8",
    source: "NETWORKING 2011, figure 8",
    title: "What one core at each end can carry, against the segment size",
    paper: Paper {
        says: "With 1400 bytes, Multipath TCP fills one link of 1 Gbit/s and a part of a second one; with 4500 bytes it fills both. \
               Segmentation offload is not used.",
        lines: &[],
    },
    knobs: &[
        Knob::new("mss", Unit::Bytes, "1400", "maximum segment size"),
        PACKETS,
        RUNS,
    ],
    x: Across::Knob {
        name: "mss",
        quick: "1400,4500,8900",
        full: "500,1000,1400,3000,4500,6000,7500,8900",
        logarithmic: false,
    },
    y: Axis::linear("Gbit/s"),
    lines: &[links(TCP, "0"), links(ONE, "1"), links(TWO, "2")],
    load: Load::Heavy,
    run: mss,
    verdict: fills_both,
};

const SENDER: &str = "sender";
const RECEIVER: &str = "receiver";

/// The processor load with one to eight subflows.
pub(super) const SUBFLOWS: Figure = Figure {
    id: "net11-cpu",
    source: "NETWORKING 2011, section 5.2",
    title: "What a segment costs with 1 to 8 subflows over one link of 1 Gbit/s",
    paper: Paper {
        says: "Going from 1 to 8 subflows has no significant impact on the load, although the scheduler runs for each segment. \
               The receiver is busier than the sender, for it puts segments back in order.",
        lines: &[],
    },
    knobs: &[
        Knob::new("subflows", Unit::Count, "1", "subflows"),
        Knob::new("mss", Unit::Bytes, "1400", "maximum segment size"),
        PACKETS,
        RUNS,
    ],
    x: Across::Knob {
        name: "subflows",
        quick: "1,2,4,8",
        full: "1,2,3,4,5,6,7,8",
        logarithmic: false,
    },
    y: Axis::linear("ns for a segment"),
    lines: &[line("both ends", Does::Multipath(&[]))],
    load: Load::Heavy,
    run: subflows,
    verdict: no_impact,
};

fn mss(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let links = match run.line.does {
        Does::Own(links) => links.parse::<u64>().unwrap_or(0),
        Does::Tcp(_) | Does::Multipath(_) => 0,
    };
    let bench = Bench {
        plain: links == 0,
        ..with_subflows(bench(run, run.knobs.whole("mss"))?, links, 2)?
    };
    Ok(run.point(cheapest(run, bench, Cost::slower)?.gigabits()))
}

fn subflows(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let one = bench(run, run.knobs.whole("mss"))?;
    let bench = with_subflows(one, run.knobs.whole("subflows"), 1)?;
    let cost = cheapest(run, bench, |cost| cost.sender + cost.receiver)?;
    Ok(vec![
        run.sample(SENDER, cost.sender),
        run.sample(RECEIVER, cost.receiver),
    ])
}

fn fills_both(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    if let Some(line) = seen.line(Arm::Process, TWO) {
        for (from, wanted) in [(1.4, 1.0), (4.5, 2.0)] {
            let rates = line.points.iter().filter(|point| point[0] >= from);
            let least = rates.map(|point| point[1]).fold(f64::MAX, f64::min);
            if least < f64::MAX {
                all.push(Finding::new(
                    Arm::Process,
                    &format!("from {from} kB on a core at each end carries more than {wanted} Gbit/s over two links"),
                    format!("at least {least:.1} Gbit/s"),
                    least > wanted,
                ));
            }
        }
    }
    all
}

fn no_impact(seen: &Seen<'_>) -> Vec<Finding> {
    let both =
        |x: f64| Some(seen.at(Arm::Process, SENDER, x)? + seen.at(Arm::Process, RECEIVER, x)?);
    let (Some(one), Some(eight)) = (both(1.0), both(8.0)) else {
        return Vec::new();
    };
    let ratio = eight / one.max(1e-9);
    vec![Finding::new(
        Arm::Process,
        "from 1 to 8 subflows the cost of a segment grows by a fifth at most",
        format!("{ratio:.2} times"),
        ratio <= 1.2,
    )]
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    fn series(name: &str, points: &[[f64; 2]]) -> Series {
        Series::of(Arm::Process, name, points)
    }

    #[test]
    fn costs_are_held_against_the_paper() {
        let held = |eight: f64| {
            let all = [
                series(SENDER, &[[1.0, 300.0], [8.0, 310.0]]),
                series(RECEIVER, &[[1.0, 400.0], [8.0, eight]]),
            ];
            no_impact(&Seen::of(&all))[0].holds
        };
        assert!(held(420.0) && !held(600.0));
        let two = [series(TWO, &[[1.4, 9.0], [4.5, 1.9]])];
        let found = fills_both(&Seen::of(&two));
        assert_eq!(
            found.iter().map(|f| f.holds).collect::<Vec<_>>(),
            [true, false]
        );
    }
}
