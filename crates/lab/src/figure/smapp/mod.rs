//! Figures of "SMAPP: Towards Smart Multipath TCP-enabled APPlications", CoNEXT 2015.

mod backup;
mod delay;
mod hashed;
mod link;
mod refresh;
mod streaming;
mod upload;

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_tcp::time::{Duration, Instant};

use super::{Figure, Knobs, Sample};

/// The figures, in the paper's order.
pub(super) const FIGURES: &[Figure] = &[
    backup::PROGRESS,
    backup::GAPS,
    streaming::FIGURE,
    refresh::FIGURE,
    delay::FIGURE,
];

/// A scenario before its first event.
pub(super) fn simulation(text: &str, seed: u64) -> Result<Simulation, String> {
    let scenario = Scenario::parse(text).map_err(|error| error.to_string())?;
    let options = RunOptions {
        seed: Some(seed),
        ..RunOptions::default()
    };
    Simulation::new(scenario, options).map_err(|error| error.to_string())
}

/// One way over each path, in microseconds.
fn delay_us(knobs: &Knobs) -> u64 {
    (knobs.get("delay") * 1e6).round() as u64
}

/// Bytes that the server's first application has read, every so often until an end.
fn progress(simulation: &mut Simulation, every: Duration, end: Instant) -> Vec<(Instant, u64)> {
    let mut all = Vec::new();
    while simulation.now() < end {
        let now = simulation.now() + every;
        simulation.run_until(now);
        let ends = simulation.hosts()[1].endpoints();
        all.push((now, ends.first().map_or(0, |end| end.record.read)));
    }
    all
}

/// A cumulative distribution: for each value, how many in a hundred are no larger.
pub(super) fn distribution(line: &str, mut values: Vec<f64>) -> Vec<Sample> {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let steps = values.iter().zip(1..);
    steps
        .map(|(value, below)| Sample {
            line: line.to_owned(),
            at: [*value, 100.0 * f64::from(below) / count],
        })
        .collect()
}

/// The value that so many in a hundred of a cumulative distribution do not exceed.
pub(super) fn quantile(points: &[[f64; 2]], percent: f64) -> Option<f64> {
    let reached = points.iter().find(|point| point[1] >= percent);
    reached.or(points.last()).map(|point| point[0])
}

#[cfg(test)]
mod tests {
    use manypath_sim::networks::two_paths;

    use super::*;

    #[test]
    fn a_path_is_as_long_in_the_simulator_as_somebody_says() {
        for figure in [&backup::PROGRESS, &streaming::FIGURE] {
            let mut knobs = Knobs::of(figure.knobs);
            assert_eq!(delay_us(&knobs), 10_000);
            knobs.set(figure.id, "delay=0.5ms").expect("a time");
            assert_eq!(delay_us(&knobs), 500);
        }
        let text = two_paths(1_000_000, 500, "", "");
        assert_eq!(text.matches("delay = \"500us\"").count(), 2);
    }

    #[test]
    fn distributions_rise_to_a_hundred() {
        let points: Vec<[f64; 2]> = distribution("x", vec![3.0, 1.0, 2.0, 2.5])
            .iter()
            .map(|sample| sample.at)
            .collect();
        assert_eq!(
            points,
            [[1.0, 25.0], [2.0, 50.0], [2.5, 75.0], [3.0, 100.0]]
        );
        assert_eq!(quantile(&points, 50.0), Some(2.0));
        assert_eq!(quantile(&points, 95.0), Some(3.0));
        assert_eq!(quantile(&[], 50.0), None);
    }
}
