//! What figures of processor time have in common, whichever paper asks: how much of them is measured, and of which link.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use manypath_stack::api::ReceiveAlgorithm;

use super::process::{Bench, Cost};
use super::{Arm, Does, Knob, Line, Run, Unit};

/// How much is measured.
pub(super) const PACKETS: Knob =
    Knob::new("packets", Unit::Count, "200000", "data packets of a run")
        .quick("30000")
        .measures();
/// How often.
pub(super) const RUNS: Knob = Knob::new(
    "runs",
    Unit::Count,
    "15",
    "runs of which the cheapest counts",
)
.quick("9")
.measures();

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

/// One subflow over one link of 1 Gbit/s, with segments of this size, which must fit an IP packet.
pub(super) fn bench(run: &Run<'_>, mss: u64) -> Result<Bench, String> {
    let mtu = u16::try_from(mss + HEADERS);
    Ok(Bench {
        mtu: mtu.map_err(|_| format!("no IP packet holds a segment of {mss} bytes"))?,
        receive: ReceiveAlgorithm::default(),
        packets: run.knobs.whole("packets") as usize,
        ..GAUGE
    })
}

/// The same for a few segments of Ethernet.
const GAUGE: Bench = Bench {
    links: 1,
    rate: 1_000_000_000,
    rtt_us: 400,
    queue: 1_000_000,
    subflows: 1,
    plain: false,
    mtu: 1500,
    checksum: false,
    receive: ReceiveAlgorithm::AllShortcuts,
    packets: 5_000,
};

/// A host here has no more addresses.
const MOST_SUBFLOWS: u64 = 64;

/// So many subflows over no more than so many links.
pub(super) fn with_subflows(bench: Bench, subflows: u64, links: usize) -> Result<Bench, String> {
    if subflows > MOST_SUBFLOWS {
        return Err(format!("{MOST_SUBFLOWS} subflows at most, not {subflows}"));
    }
    let subflows = subflows.max(1) as usize;
    Ok(Bench {
        links: subflows.min(links),
        subflows,
        ..bench
    })
}

/// The cheapest of some runs, by one of their values. They all do the same, so what the others cost more was somebody else's: on a
/// virtual processor whose core another one shares it is often half as much again, for seconds. Runs in such a time do not
/// count, as long as there are others.
pub(super) fn cheapest(
    run: &Run<'_>,
    bench: Bench,
    value: fn(&Cost) -> f64,
) -> Result<Cost, String> {
    let patience = Instant::now() + PATIENCE;
    let (mut cheapest, mut counted) = (bench.run()?, 0);
    let mut before = is_quiet()?;
    while counted < run.knobs.whole("runs") {
        run.go_on()?;
        let cost = bench.run()?;
        if value(&cost) < value(&cheapest) {
            cheapest = cost;
        }
        let after = is_quiet()?;
        if before && after || Instant::now() > patience {
            counted += 1;
            before = after;
        } else {
            std::thread::sleep(PAUSE);
            before = is_quiet()?;
        }
    }
    Ok(cheapest)
}

/// How long a point waits for its processor.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// How long it takes to know what the same costs when nobody disturbs.
const GAUGED: Duration = Duration::from_secs(3);
/// What costs no more than this over the least was not disturbed.
const DISTURBED: f64 = 1.1;

/// The same few segments cost now what they cost at the quickest, in nanoseconds a segment: the least of what was seen since
/// the program began, three seconds at least.
fn is_quiet() -> Result<bool, String> {
    static LEAST: Mutex<Option<f64>> = Mutex::new(None);
    let gauge = || GAUGE.run().map(|cost| cost.sender + cost.receiver);
    let mut least = LEAST.lock().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + least.map_or(GAUGED, |_| Duration::ZERO);
    loop {
        let now = gauge()?;
        let known = least.map_or(now, |least: f64| least.min(now));
        *least = Some(known);
        if Instant::now() >= until {
            return Ok(now <= known * DISTURBED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subflows_are_as_many_as_asked_for() {
        let of =
            |subflows| with_subflows(GAUGE, subflows, 2).map(|bench| (bench.subflows, bench.links));
        assert_eq!((of(0), of(1), of(8)), (Ok((1, 1)), Ok((1, 1)), Ok((8, 2))));
        assert!(of(65).is_err());
    }
}
