//! One transfer over parallel paths, on whichever arm.

use std::time::Duration;

use manypath_tcp::time::Instant;

use super::memo::Memo;
use super::real;
use super::sim::{self, Ends, megabits, span};
use super::{Arm, Knob, Run, Unit};
use crate::parallel::{PathSpec, read_by_server};

/// How long transfers on real packets last, and how much of their beginning does not count. In the simulator everything
/// counts, and time costs less.
pub(super) const REAL_TIME: Knob =
    Knob::new("real.time", Unit::Time, "30s", "length on real packets")
        .quick("7s")
        .measures();
/// See [`REAL_TIME`].
pub(super) const REAL_WARM_UP: Knob = Knob::new(
    "real.warm-up",
    Unit::Time,
    "5s",
    "beginning that does not count there",
)
.quick("2s")
.measures();

/// The transfers on real packets of this process.
static TRANSFERS: Memo<Result<real::Carried, String>> = Memo::new();

/// Which congestion control transfers have: the coupled one, which the papers of Multipath TCP have (NSDI 2012 refers to it, its default is
/// inferred; Networking 2011 describes it). The kernel has none that is coupled: see [`real::of_the_kernel`].
pub(super) const CONGESTION: Knob = Knob::new(
    "congestion",
    Unit::Congestion,
    "lia",
    "congestion control; the kernel has Reno for those that are coupled",
);

/// Mbit/s that the reader gets of a transfer with the parameters `buffer`, `congestion` and `time`.
pub(super) fn goodput(run: &Run<'_>, paths: &[PathSpec]) -> Result<f64, String> {
    if run.arm.needs_namespaces() {
        return Ok(on_real_packets(run, paths, ["real.warm-up", "real.time"])?.goodput);
    }
    let knobs = run.knobs;
    let ends = Ends {
        buffer: Some(knobs.whole("buffer")),
        options: &[("congestion", knobs.word("congestion"))],
        ..Ends::default()
    };
    let mut simulation = sim::simulation(run, paths, ends, 1)?;
    let time = span(knobs.get("time"));
    simulation.run_until(Instant::ZERO + time);
    Ok(megabits(read_by_server(&simulation), time))
}

/// A transfer on real packets, with the times of these two parameters.
pub(super) fn on_real_packets(
    run: &Run<'_>,
    paths: &[PathSpec],
    [warm_up, time]: [&str; 2],
) -> Result<real::Carried, String> {
    debug_assert!(matches!(run.arm, Arm::Real | Arm::Kernel));
    let knobs = run.knobs;
    let time_of = |name: &str| Duration::from_secs_f64(knobs.get(name));
    let transfer = real::Transfer {
        paths,
        buffer: knobs.whole("buffer"),
        congestion: knobs.word("congestion"),
        warm_up: time_of(warm_up),
        time: time_of(time),
    };
    // Figures 4(a) to 4(c) of NSDI 2012 have lines in common.
    let key = format!("{} {:?} {transfer:?}", run.arm, run.line.does);
    TRANSFERS.get(key, || real::transfer(run, transfer))
}
