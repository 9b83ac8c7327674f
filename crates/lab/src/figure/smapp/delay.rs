//! Figure 3: what a controller in a process of its own costs.

use std::process::Command;

use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use super::{distribution, link, quantile};

const IDLE: &str = "idle";
const LOADED: &str = "loaded";

/// Figure 3.
pub(super) const FIGURE: Figure = Figure {
    id: "smapp-3",
    source: "SMAPP, figure 3",
    title: "From the SYN of a connection to that of its second subflow, with one controller in the stack and beside it",
    paper: Paper {
        says: "A controller in user space takes 23 us more than one in the kernel on average. With other programs that keep \
               the processors busy both take longer, and the difference stays below 37 us.",
        lines: &[],
    },
    knobs: &[
        Knob::new("rounds", Unit::Count, "1000", "connections each way")
            .quick("200")
            .measures(),
        Knob::new(
            "rate",
            Unit::Rate,
            "1gbit",
            "rate of the link between the hosts",
        ),
        Knob::new("delay", Unit::Time, "0.05ms", "delay of the link, one way").or_none(),
        Knob::new("size", Unit::Bytes, "512kB", "what the server answers"),
    ],
    x: Across::Measured(Axis::logarithmic("us from SYN to SYN")),
    y: Axis::linear("% of the connections"),
    lines: &[line(IDLE), line(LOADED)],
    load: Load::Heavy,
    run,
    verdict,
};

const fn line(name: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Process, Arm::Real, Arm::Kernel],
        does: Does::Own(name),
    }
}

fn in_stack(load: &str) -> String {
    format!("{load}, in the stack")
}

fn beside(load: &str) -> String {
    format!("{load}, beside the process")
}

fn bare(load: &str) -> String {
    format!("{load}, a socket's round trip alone")
}

/// Both arms by turns, in a process of its own, which has a controller beside it. By turns with them, a message as long as an event
/// goes to a process that answers with as much as an order: what no controller beside the process can do without.
fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let mut command = Command::new(run.program);
    command.args(["lab", "delay"]);
    command.arg(format!("--rounds={}", run.knobs.whole("rounds")));
    if run.line.name == LOADED {
        command.arg("--loaded");
    }
    let output = match run.arm {
        Arm::Process => command.output().map_err(|error| error.to_string())?,
        Arm::Real => link::ours(run, command)?,
        Arm::Kernel => return kernels(run),
        Arm::Sim => return Err(format!("{} has no controller beside it", run.arm)),
    };
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let [within, outside, alone]: [Vec<f64>; 3] =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let mut samples = distribution(&in_stack(run.line.name), within);
    samples.extend(distribution(&beside(run.line.name), outside));
    samples.extend(distribution(&bare(run.line.name), alone));
    Ok(samples)
}

/// The kernel's path manager, and a controller of ours over netlink.
fn kernels(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let rounds = run.knobs.whole("rounds") as usize;
    let [within, outside] = link::kernels(run, rounds, run.line.name == LOADED)?;
    let mut samples = distribution(&in_stack(run.line.name), within);
    samples.extend(distribution(&beside(run.line.name), outside));
    Ok(samples)
}

/// What the paper measured, in microseconds.
const PAPER: [(&str, f64); 2] = [(IDLE, 25.0), (LOADED, 37.0)];

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let arms = [Arm::Process, Arm::Real, Arm::Kernel];
    let judge = |arm: Arm, (load, most): (&str, f64)| {
        let median = |name: &str| quantile(&seen.line(arm, name)?.points, 50.0);
        let (within, outside) = (median(&in_stack(load))?, median(&beside(load))?);
        let alone = median(&bare(load)).map_or(String::new(), |alone| {
            format!("; a socket's round trip alone {alone:.0} us")
        });
        let setting = match arm {
            Arm::Process => ", with nothing between the hosts",
            Arm::Sim | Arm::Real | Arm::Kernel => "",
        };
        Some(Finding::new(
            arm,
            &format!(
                "{load}{setting}, the controller beside the process takes less than {most} us more"
            ),
            format!("medians {within:.0} and {outside:.0} us{alone}"),
            outside - within < most,
        ))
    };
    let all = arms
        .into_iter()
        .flat_map(|arm| PAPER.map(|bound| (arm, bound)));
    all.filter_map(|(arm, bound)| judge(arm, bound)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn differences_of_medians_are_held_against_the_paper() {
        let series = |name: &str, median: f64| {
            Series::of(Arm::Process, name, &[[median, 50.0], [900.0, 100.0]])
        };
        for (more, holds) in [
            (24.0, [true, true]),
            (30.0, [false, true]),
            (40.0, [false, false]),
        ] {
            let all = [IDLE, LOADED].map(|load| {
                [
                    series(&in_stack(load), 50.0),
                    series(&beside(load), 50.0 + more),
                ]
            });
            let held: Vec<bool> = verdict(&Seen::of(&all.concat()))
                .iter()
                .map(|f| f.holds)
                .collect();
            assert_eq!(held, holds);
        }
    }
}
