//! What figures of processor time have in common, whichever paper asks: how much of them is measured, and of which link.

use manypath_stack::api::ReceiveAlgorithm;

use super::process::{Bench, Cost};
use super::{Arm, Does, Knob, Line, Run, Unit};

/// How much is measured.
pub(super) const PACKETS: Knob =
    Knob::new("packets", Unit::Count, "200000", "data packets of a run").quick("30000");
/// How often.
pub(super) const RUNS: Knob = Knob::new(
    "runs",
    Unit::Count,
    "15",
    "runs of which the cheapest counts",
)
.quick("9");

/// Bytes of IPv4 and TCP headers without options; what a segment carries with its options is called its size.
const HEADERS: u64 = 40;

/// A line of measurements in one process.
pub(super) const fn line(name: &'static str, does: Does) -> Line {
    Line {
        name,
        arms: &[Arm::Process],
        does,
    }
}

/// One subflow over one link of 1 Gbit/s, with segments of this size.
pub(super) fn bench(run: &Run<'_>, mss: u64) -> Bench {
    Bench {
        links: 1,
        rate: 1_000_000_000,
        rtt_us: 400,
        queue: 1_000_000,
        subflows: 1,
        plain: false,
        mtu: u16::try_from(mss + HEADERS).unwrap_or(u16::MAX),
        checksum: false,
        receive: ReceiveAlgorithm::default(),
        packets: run.knobs.whole("packets") as usize,
    }
}

/// So many subflows over no more than so many links.
pub(super) fn with_subflows(bench: Bench, subflows: u64, links: usize) -> Bench {
    let subflows = subflows.clamp(1, 64) as usize;
    Bench {
        links: subflows.min(links),
        subflows,
        ..bench
    }
}

/// The cheapest of some runs, by one of their values. They all do the same, so what the others cost more was somebody else's: on a
/// virtual processor whose core another one shares it is often half as much again, for seconds.
pub(super) fn cheapest(
    run: &Run<'_>,
    bench: Bench,
    value: fn(&Cost) -> f64,
) -> Result<Cost, String> {
    let mut cheapest = bench.run()?;
    for _ in 1..run.knobs.whole("runs") {
        let cost = bench.run()?;
        if value(&cost) < value(&cheapest) {
            cheapest = cost;
        }
    }
    Ok(cheapest)
}
