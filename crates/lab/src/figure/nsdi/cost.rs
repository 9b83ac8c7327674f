//! Figures 3 and 8: what checksums and receive algorithms cost.

use manypath_stack::api::ReceiveAlgorithm;

use super::super::cost::{PACKETS, RUNS, bench, cheapest, line, with_subflows};
use super::super::process::{Bench, Cost};
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Load, Paper, Run, Sample, Seen, Unit,
};

const WITHOUT: &str = "Multipath TCP without checksums";
const WITH: &str = "Multipath TCP with checksums";

/// Figure 3.
pub(super) const CHECKSUM: Figure = Figure {
    id: "nsdi-3",
    source: "NSDI 2012, figure 3",
    title: "What one core at each end can carry with and without checksums over the data, against the segment size",
    paper: Paper {
        says: "With the segment size of Ethernet the cost of each packet is the limit. The larger the segments, the less that \
               matters; with jumbo frames the checksums, which are computed in software, take 30 % of the goodput.",
        lines: &[],
    },
    knobs: &[
        Knob::new("mss", Unit::Bytes, "1460", "maximum segment size"),
        PACKETS,
        RUNS,
    ],
    x: Across::Knob {
        name: "mss",
        quick: "1460,4460,8960",
        full: "540,1460,2960,4460,5960,7460,8960",
        logarithmic: false,
    },
    y: Axis::linear("Gbit/s"),
    lines: &[
        line(WITHOUT, Does::Own("")),
        line(WITH, Does::Own("checksum")),
    ],
    load: Load::Heavy,
    run: checksum,
    verdict: a_third_at_most,
};

fn checksum(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let bench = Bench {
        rate: 10_000_000_000,
        rtt_us: 100,
        checksum: run.line.does == Does::Own("checksum"),
        receive: ReceiveAlgorithm::AllShortcuts,
        ..bench(run, run.knobs.whole("mss"))?
    };
    Ok(run.point(cheapest(run, bench, Cost::slower)?.gigabits()))
}

fn a_third_at_most(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    let Some(ratio) = seen.ratio(Arm::Process, WITH, WITHOUT) else {
        return all;
    };
    if let Some(jumbo) = ratio.within(8.0, 9.1) {
        let statement = "with jumbo frames checksums cost no more than the 30 % of the paper";
        all.push(Finding::never_below(
            Arm::Process,
            statement,
            &jumbo,
            0.7,
            "kB",
        ));
    }
    if let Some(line) = seen.line(Arm::Process, WITHOUT)
        && let (Some(ethernet), Some(jumbo)) = (line.at(1.46), line.within(8.0, 9.1).last())
    {
        all.push(Finding::new(
            Arm::Process,
            "the cost of each segment matters less with jumbo frames: they carry more than 1.5 times what those of Ethernet do",
            format!("{ethernet:.1} and {:.1} Gbit/s", jumbo[1]),
            jumbo[1] > 1.5 * ethernet,
        ));
    }
    all
}

const TCP: &str = "TCP, one connection";
const LIST: &str = "list (regular)";
const TREE: &str = "tree";
const SHORTCUTS: &str = "shortcuts";
const ALL_SHORTCUTS: &str = "all shortcuts";

/// Segments that fill frames of Ethernet.
const ETHERNET: u64 = 1460;

/// Figure 8.
pub(super) const RECEIVE: Figure = Figure {
    id: "nsdi-8",
    source: "NSDI 2012, figure 8",
    title: "What it costs to receive a segment by each algorithm, with 1, 2 and 8 subflows over two links of 1 Gbit/s",
    paper: Paper {
        says: "A tree reduces the load of the processor, shortcuts and all shortcuts reduce it more: from 42 to 30 % with 8 \
               subflows, and from 25 to 20 % with 2. The shortcuts are right for 80 % of the segments.",
        lines: &[],
    },
    knobs: &[
        Knob::new("subflows", Unit::Count, "2", "subflows"),
        Knob::new("rate", Unit::Rate, "1gbit", "rate of each link"),
        Knob::new("rtt", Unit::Time, "400us", "round trip").or_none(),
        Knob::new("queue", Unit::Bytes, "1m", "buffer before each link"),
        PACKETS,
        RUNS,
    ],
    x: Across::Knob {
        name: "subflows",
        quick: "1,2,8",
        full: "1,2,4,8",
        logarithmic: false,
    },
    y: Axis::linear("ns for a received segment"),
    lines: &[
        line(TCP, Does::Tcp(0)),
        line(LIST, Does::Own("list")),
        line(TREE, Does::Own("tree")),
        line(SHORTCUTS, Does::Own("shortcuts")),
        line(ALL_SHORTCUTS, Does::Own("all-shortcuts")),
    ],
    load: Load::Heavy,
    run: receive,
    verdict: shortcuts_help,
};

fn receive(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let (plain, algorithm) = match run.line.does {
        Does::Own(name) => (false, name.parse::<ReceiveAlgorithm>()),
        // One connection over one link, whatever the axis says: what several of them cost each is the same.
        Does::Tcp(_) | Does::Multipath(_) => (true, Ok(ReceiveAlgorithm::default())),
    };
    let subflows = match plain {
        true => 1,
        false => run.knobs.whole("subflows"),
    };
    let bench = Bench {
        rate: run.knobs.whole("rate"),
        rtt_us: (run.knobs.get("rtt") * 1e6) as u64,
        queue: run.knobs.whole("queue"),
        plain,
        receive: algorithm.map_err(|error| error.to_string())?,
        ..with_subflows(bench(run, ETHERNET)?, subflows, 2)?
    };
    Ok(run.point(cheapest(run, bench, |cost| cost.receiver)?.receiver))
}

fn shortcuts_help(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for (subflows, paper) in [(2.0, 20.0 / 25.0), (8.0, 30.0 / 42.0)] {
        let ratio = seen.ratio(Arm::Process, ALL_SHORTCUTS, LIST);
        if let Some(ratio) = ratio.and_then(|ratio| ratio.within(subflows, subflows)) {
            let [_, here] = ratio.least();
            all.push(Finding::new(
                Arm::Process,
                &format!("all shortcuts are cheaper than the list with {subflows} subflows ({paper:.2} of its load in the paper)"),
                format!("{here:.2} of its cost"),
                here < 1.0,
            ));
        }
    }
    for (few, whose) in [
        (1.0, "one, over one link"),
        (2.0, "two, over the same two links"),
    ] {
        let cost = |subflows: f64| seen.at(Arm::Process, ALL_SHORTCUTS, subflows);
        if let (Some(little), Some(eight)) = (cost(few), cost(8.0)) {
            let ratio = eight / little.max(1e-9);
            all.push(Finding::new(
                Arm::Process,
                &format!("with all shortcuts a segment costs no more than 1.2 times as much with 8 subflows over two links as with {whose}"),
                format!("{ratio:.2} times"),
                ratio <= 1.2,
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
        Series::of(Arm::Process, name, points)
    }

    #[test]
    fn the_papers_shapes_are_found_right_and_others_are_not() {
        let costs = |with: f64| {
            let all = [
                series(WITHOUT, &[[1.46, 20.0], [8.96, 60.0]]),
                series(WITH, &[[1.46, 18.0], [8.96, with]]),
            ];
            let found = a_third_at_most(&Seen::of(&all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!(costs(45.0), [true, true]);
        assert_eq!(costs(30.0), [false, true]);
        // One size is neither larger nor smaller than itself.
        let one = [WITHOUT, WITH].map(|name| series(name, &[[1.46, 20.0]]));
        assert_eq!(a_third_at_most(&Seen::of(&one)), []);
        let receive = |eight: f64| {
            let all = [
                series(LIST, &[[1.0, 300.0], [2.0, 400.0], [8.0, 900.0]]),
                series(ALL_SHORTCUTS, &[[1.0, 300.0], [2.0, 310.0], [8.0, eight]]),
            ];
            let found = shortcuts_help(&Seen::of(&all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!(receive(350.0), [true, true, true, true]);
        assert_eq!(receive(365.0), [true, true, false, true]);
        assert_eq!(receive(950.0), [true, false, false, false]);
    }
}
