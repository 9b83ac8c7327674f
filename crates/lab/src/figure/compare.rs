//! What verdicts are made with: the lines that came out, and how one lies to another.

use serde::{Deserialize, Serialize};

use super::{Arm, Knobs, Series};

/// How many times another line still is not below it ([`Finding::not_below`]).
const NOT_BELOW: f64 = 0.975;

/// What came out about one statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What should be, by the paper or by what we promise.
    pub statement: String,
    /// What was seen, with its numbers.
    pub seen: String,
    /// It is so.
    pub holds: bool,
}

/// The lines that came out, and what they were made with.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    series: &'a [Series],
    knobs: Option<&'a Knobs>,
}

/// Two lines where both have a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// Places with the first line's value over the second's.
    points: Vec<[f64; 2]>,
}

impl<'a> Seen<'a> {
    /// These lines.
    #[must_use]
    pub const fn of(series: &'a [Series]) -> Self {
        Self {
            series,
            knobs: None,
        }
    }

    /// Made with these parameters.
    #[must_use]
    pub const fn with(self, knobs: &'a Knobs) -> Self {
        Self {
            knobs: Some(knobs),
            ..self
        }
    }

    /// How many times as large as declared a parameter was.
    #[must_use]
    pub fn scale(&self, name: &str) -> f64 {
        self.knobs.map_or(1.0, |knobs| knobs.scale(name))
    }

    /// The arms on which anything came out.
    pub fn arms(&self) -> impl Iterator<Item = Arm> + use<'a> {
        let series = self.series;
        Arm::ALL
            .into_iter()
            .filter(move |arm| series.iter().any(|line| line.arm == *arm))
    }

    /// A line.
    #[must_use]
    pub fn line(&self, arm: Arm, name: &str) -> Option<&'a Series> {
        self.series
            .iter()
            .find(|line| line.arm == arm && line.name == name)
    }

    /// A line's value at a place.
    #[must_use]
    pub fn at(&self, arm: Arm, name: &str, x: f64) -> Option<f64> {
        self.line(arm, name)?.at(x)
    }

    /// One line over another, the same arm.
    #[must_use]
    pub fn ratio(&self, arm: Arm, one: &str, other: &str) -> Option<Ratio> {
        self.across((arm, one), (arm, other))
    }

    /// One line over another, on any arms. Nothing if they have no place in common at which the other has anything.
    #[must_use]
    pub fn across(&self, one: (Arm, &str), other: (Arm, &str)) -> Option<Ratio> {
        self.over(one, |x| self.at(other.0, other.1, x))
    }

    /// A line over what there is to compare it with at each place.
    #[must_use]
    pub fn over(&self, one: (Arm, &str), other: impl Fn(f64) -> Option<f64>) -> Option<Ratio> {
        let ratio = |point: &[f64; 2]| {
            let below = other(point[0]).filter(|value| *value > 0.0)?;
            Some([point[0], point[1] / below])
        };
        let line = self.line(one.0, one.1)?;
        let points: Vec<[f64; 2]> = line.points.iter().filter_map(ratio).collect();
        (!points.is_empty()).then_some(Ratio { points })
    }
}

impl Ratio {
    /// The least, and where.
    #[must_use]
    pub fn least(&self) -> [f64; 2] {
        let least = self.points.iter().min_by(|a, b| a[1].total_cmp(&b[1]));
        *least.expect("a ratio has a point")
    }

    /// The largest, and where.
    #[must_use]
    pub fn most(&self) -> [f64; 2] {
        let most = self.points.iter().max_by(|a, b| a[1].total_cmp(&b[1]));
        *most.expect("a ratio has a point")
    }

    /// Only places from `low` to `high`.
    #[must_use]
    pub fn within(&self, low: f64, high: f64) -> Option<Self> {
        let points = within(&self.points, low, high);
        (!points.is_empty()).then_some(Self { points })
    }
}

impl Series {
    /// Its points from `low` to `high`: statements about a part of the axis look at no more.
    #[must_use]
    pub(super) fn within(&self, low: f64, high: f64) -> Vec<[f64; 2]> {
        within(&self.points, low, high)
    }
}

fn within(points: &[[f64; 2]], low: f64, high: f64) -> Vec<[f64; 2]> {
    let inside = |point: &&[f64; 2]| (low..=high).contains(&point[0]);
    points.iter().filter(inside).copied().collect()
}

/// The least and the largest value; none without points.
#[must_use]
pub(super) fn range(points: &[[f64; 2]]) -> Option<(f64, f64)> {
    let ys = || points.iter().map(|point| point[1]);
    Some((ys().reduce(f64::min)?, ys().reduce(f64::max)?))
}

/// The value that so many in a hundred of a distribution do not exceed. The line's points are places and their parts.
#[must_use]
pub(super) fn percentile(line: &Series, percent: f64) -> f64 {
    let whole: f64 = line.points.iter().map(|point| point[1]).sum();
    let mut sum = 0.0;
    for [x, part] in &line.points {
        sum += part;
        if sum >= whole * percent / 100.0 {
            return *x;
        }
    }
    line.points.last().map_or(f64::NAN, |point| point[0])
}

impl Finding {
    /// A statement on one arm.
    #[must_use]
    pub fn new(arm: Arm, statement: &str, seen: String, holds: bool) -> Self {
        Self {
            statement: statement.to_owned(),
            seen: format!("{seen} ({})", arm.title()),
            holds,
        }
    }

    /// A line is nowhere below so much of another.
    #[must_use]
    pub fn never_below(arm: Arm, statement: &str, ratio: &Ratio, bound: f64, unit: &str) -> Self {
        let [x, least] = ratio.least();
        let seen = format!("at least {least:.2} times, at {x} {unit}");
        Self::new(arm, statement, seen, least >= bound)
    }

    /// A line is nowhere below another. The options of Multipath TCP take 2 % of each segment, and a run has a packet more or
    /// less: the statement says how exactly this is meant.
    #[must_use]
    pub fn not_below(arm: Arm, statement: &str, ratio: &Ratio, unit: &str) -> Self {
        let percent = 100.0 * (1.0 - NOT_BELOW);
        let statement = format!("{statement}, to {percent:.1} %");
        Self::never_below(arm, &statement, ratio, NOT_BELOW, unit)
    }

    /// A line is somewhere so many times another.
    #[must_use]
    pub fn reaches(arm: Arm, statement: &str, ratio: &Ratio, bound: f64, unit: &str) -> Self {
        let [x, most] = ratio.most();
        let seen = format!("up to {most:.2} times, at {x} {unit}");
        Self::new(arm, statement, seen, most >= bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arm: Arm, name: &str, points: &[[f64; 2]]) -> Series {
        Series::of(arm, name, points)
    }

    #[test]
    fn lines_are_compared_where_both_have_values() {
        let series = [
            line(Arm::Sim, "a", &[[1.0, 2.0], [2.0, 9.0], [3.0, 4.0]]),
            line(Arm::Sim, "b", &[[1.0, 4.0], [2.0, 3.0]]),
            line(Arm::Kernel, "a", &[[1.0, 1.0]]),
        ];
        let seen = Seen::of(&series);
        let ratio = seen.ratio(Arm::Sim, "a", "b").expect("two places");
        assert_eq!((ratio.least(), ratio.most()), ([1.0, 0.5], [2.0, 3.0]));
        assert_eq!(ratio.within(1.5, 9.0).expect("one place").least()[1], 3.0);
        assert_eq!(ratio.within(5.0, 9.0), None);
        let kernel = seen.across((Arm::Sim, "a"), (Arm::Kernel, "a"));
        assert_eq!(kernel.expect("one place").least(), [1.0, 2.0]);
        assert_eq!(seen.ratio(Arm::Kernel, "a", "b"), None);
        assert_eq!(seen.arms().collect::<Vec<_>>(), [Arm::Sim, Arm::Kernel]);
        assert_eq!(series[0].within(2.0, 9.0), [[2.0, 9.0], [3.0, 4.0]]);
        assert_eq!(range(&series[0].points), Some((2.0, 9.0)));
        assert_eq!(range(&series[0].within(4.0, 9.0)), None);
        let parts = line(Arm::Sim, "d", &[[10.0, 50.0], [20.0, 44.0], [30.0, 6.0]]);
        assert_eq!(
            [50.0, 90.0, 95.0].map(|p| percentile(&parts, p)),
            [10.0, 20.0, 30.0]
        );
        let good = Finding::never_below(Arm::Sim, "a is never below b", &ratio, 1.0, "kB");
        assert!(!good.holds && good.seen.contains("0.50 times, at 1 kB"));
        let near = Finding::not_below(Arm::Sim, "a is not below b", &ratio, "kB");
        assert_eq!(near.statement, "a is not below b, to 2.5 %");
        assert!(Finding::reaches(Arm::Sim, "a reaches three times b", &ratio, 3.0, "kB").holds);
    }
}
