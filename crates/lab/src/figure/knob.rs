//! What can be changed about a figure: its parameters with their units, as `--set` and `--sweep` write them.

use std::fmt;
use std::ops::RangeInclusive;

use manypath_tcp::cc::Algorithm;

/// What a number is in. Values are kept in the first unit named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; drawn in kB.
    Bytes,
    /// Bits a second; drawn in Mbit/s.
    Rate,
    /// Seconds; drawn in ms.
    Time,
    /// Per cent.
    Percent,
    /// A number of something.
    Count,
    /// No number: the name of a congestion control algorithm.
    Congestion,
}

impl Unit {
    /// Spellings with their factors, the same as in scenarios. Rates, times and shares have no bare numbers: nobody who writes 20
    /// means 20 bit/s or 20 s, and 0.05 is 5 % for one and 0.05 % for another.
    const fn spellings(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Bytes => &[
                ("", 1.0),
                ("b", 1.0),
                ("k", 1e3),
                ("kb", 1e3),
                ("m", 1e6),
                ("mb", 1e6),
                ("g", 1e9),
                ("gb", 1e9),
                ("ki", 1024.0),
                ("kib", 1024.0),
                ("mi", 1_048_576.0),
                ("mib", 1_048_576.0),
            ],
            Self::Rate => &[
                ("bit", 1.0),
                ("bit/s", 1.0),
                ("kbit", 1e3),
                ("kbit/s", 1e3),
                ("mbit", 1e6),
                ("mbit/s", 1e6),
                ("gbit", 1e9),
                ("gbit/s", 1e9),
            ],
            Self::Time => &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6)],
            Self::Percent => &[("%", 1.0)],
            Self::Count => &[("", 1.0), ("k", 1e3), ("m", 1e6)],
            Self::Congestion => &[],
        }
    }

    /// The least value that is not nothing, and the largest. Beyond them computers have no time, no memory, or no numbers for
    /// what was asked for.
    const fn bounds(self) -> RangeInclusive<f64> {
        match self {
            Self::Bytes => 1.0..=1e10,
            Self::Rate => 1e3..=1e11,
            Self::Time => 1e-6..=86_400.0,
            Self::Percent => 1e-4..=100.0,
            Self::Count | Self::Congestion => 1.0..=1e9,
        }
    }

    /// A value as one would write it: in whole numbers of a unit if it can be, and in few letters.
    fn written(self, value: f64) -> String {
        if self == Self::Percent {
            return format!("{value}%");
        }
        let all = self.spellings().iter();
        let all = all.map(|(unit, factor)| format!("{}{unit}", value / factor));
        // What is written must be read as the same, to the last bit.
        let same = all.filter(|text| self.parse(text) == Some(value));
        same.min_by_key(|text| (text.contains('.'), text.len()))
            .unwrap_or_else(|| value.to_string())
    }

    /// What a value is divided by to be drawn.
    #[must_use]
    pub const fn scale(self) -> f64 {
        match self {
            Self::Bytes => 1e3,
            Self::Rate => 1e6,
            Self::Time => 1e-3,
            Self::Percent | Self::Count | Self::Congestion => 1.0,
        }
    }

    /// What drawn values are in.
    #[must_use]
    pub const fn drawn(self) -> &'static str {
        match self {
            Self::Bytes => "kB",
            Self::Rate => "Mbit/s",
            Self::Time => "ms",
            Self::Percent => "%",
            Self::Count | Self::Congestion => "",
        }
    }

    /// Reads a value. Upper and lower case are the same: nobody means millibits.
    fn parse(self, text: &str) -> Option<f64> {
        let text = text.trim().to_ascii_lowercase();
        let digits = text
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let (number, unit) = text.split_at(digits);
        let number = number.parse::<f64>().ok()?;
        let spelled = self
            .spellings()
            .iter()
            .find(|(name, _)| *name == unit.trim());
        // Nothing is nothing in any unit.
        let nothing = number == 0.0 && unit.is_empty();
        let factor = spelled.map(|(_, factor)| *factor);
        let factor = factor.or(nothing.then_some(1.0))?;
        let value = number * factor;
        let whole = self != Self::Count || value.fract() == 0.0;
        (value.is_finite() && whole).then_some(value)
    }
}

/// A parameter of a figure as the figure declares it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knob {
    /// How it is named: `buffer`, `wifi.rate`.
    pub name: &'static str,
    /// What it is in.
    pub unit: Unit,
    /// What it is unless somebody says otherwise, as one would write it.
    pub value: &'static str,
    /// What it is with `--quick`.
    pub quick: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Zero of it makes sense.
    pub or_none: bool,
    /// All of it makes sense, of per cents.
    pub or_all: bool,
    /// It says how long or how often something is measured, not what: the figure's statements are about any value of it.
    pub measures: bool,
    /// How many paths have it, of rates.
    pub paths: u32,
}

impl Knob {
    /// A parameter.
    #[must_use]
    pub const fn new(
        name: &'static str,
        unit: Unit,
        value: &'static str,
        about: &'static str,
    ) -> Self {
        Self {
            name,
            unit,
            value,
            quick: value,
            about,
            or_none: matches!(unit, Unit::Percent),
            or_all: false,
            measures: false,
            paths: 1,
        }
    }

    /// The same, and zero makes sense.
    #[must_use]
    pub const fn or_none(self) -> Self {
        Self {
            or_none: true,
            ..self
        }
    }

    /// The same, and all of it makes sense.
    #[must_use]
    pub const fn or_all(self) -> Self {
        Self {
            or_all: true,
            ..self
        }
    }

    /// The same, and it only says how long or how often something is measured.
    #[must_use]
    pub const fn measures(self) -> Self {
        Self {
            measures: true,
            ..self
        }
    }

    /// The same, and so many paths have this rate each.
    #[must_use]
    pub const fn each_of(self, paths: u32) -> Self {
        Self { paths, ..self }
    }

    /// Reads a number for it: none of nothing is ever sent, and no loss of everything is survived.
    fn number(&self, text: &str) -> Option<f64> {
        let number = self.unit.parse(text)?;
        let fits = match number == 0.0 {
            true => self.or_none,
            false => self.unit.bounds().contains(&number),
        };
        let all = self.unit == Unit::Percent && number >= 100.0 && !self.or_all;
        (fits && !all).then_some(number)
    }

    /// The same with another value for `--quick`.
    #[must_use]
    pub const fn quick(self, quick: &'static str) -> Self {
        Self { quick, ..self }
    }

    /// Name and unit as the label of an axis.
    #[must_use]
    pub fn label(&self) -> String {
        match self.unit.drawn() {
            "" => self.about.to_owned(),
            unit => format!("{} ({unit})", self.about),
        }
    }
}

/// What is wrong with `--set` or `--sweep`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KnobError {
    /// Not of the form.
    #[error("'{0}' is not of the form NAME=VALUE")]
    Form(String),
    /// The figure has no such parameter.
    #[error("{figure} has no parameter '{name}'; it has {known}")]
    Unknown {
        /// The figure.
        figure: &'static str,
        /// The name.
        name: String,
        /// What there is.
        known: String,
    },
    /// Not a value of its kind.
    #[error("'{text}' is no value for {name}, which is {example} by default{}", units(.unit))]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was written.
        text: String,
        /// What one could write.
        example: &'static str,
        /// What it is in.
        unit: Unit,
    },
    /// Two values for one run.
    #[error(
        "{name} has one value: give --set {name}=VALUE once, or several values with --sweep {name}=A,B"
    )]
    Twice {
        /// The parameter.
        name: String,
    },
    /// What lies on the horizontal axis has no single value.
    #[error(
        "{name} is the horizontal axis here: give its points with --sweep {name}=A..B or {name}=A,B,C"
    )]
    Axis {
        /// The parameter.
        name: &'static str,
    },
    /// The figure's horizontal axis is what is measured.
    #[error("{0} shows a distribution: nothing can be swept, only set")]
    Distribution(&'static str),
    /// Too few for a range, or more than anybody looks at.
    #[error("a range has {least} to {most} points, not '{text}'", least = POINTS.start(), most = POINTS.end())]
    Points {
        /// What was written.
        text: String,
    },
    /// Words have no order.
    #[error("{0} is not a number: set it, or sweep over a list of numbers of another one")]
    Words(&'static str),
}

/// A parameter's value.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(f64),
    Word(String),
}

/// All parameters of a run with their values.
#[derive(Debug, Clone, PartialEq)]
pub struct Knobs(Vec<(Knob, Value)>);

impl Knobs {
    /// The declared values.
    ///
    /// # Panics
    /// When a figure declares what it cannot read itself; a test reads all of them.
    #[must_use]
    pub fn of(declared: &[Knob]) -> Self {
        Self::of_speed(declared, false)
    }

    /// The declared values, those for `--quick` if it is.
    pub(super) fn of_speed(declared: &[Knob], quick: bool) -> Self {
        let value = |knob: &Knob| {
            let text = if quick { knob.quick } else { knob.value };
            match knob.unit {
                Unit::Congestion => Value::Word(text.to_owned()),
                _ => Value::Number(knob.number(text).expect("declared values are tested")),
            }
        };
        Self(declared.iter().map(|knob| (*knob, value(knob))).collect())
    }

    /// A number in its first unit (bytes, bits a second, seconds, per cent).
    ///
    /// # Panics
    /// When the figure asks for what it did not declare: a fault of the figure that its first run shows.
    #[must_use]
    pub fn get(&self, name: &str) -> f64 {
        match self.0.iter().find(|(knob, _)| knob.name == name) {
            Some((_, Value::Number(number))) => *number,
            _ => panic!("the figure declares no number '{name}'"),
        }
    }

    /// A number over what the figure declares for it.
    ///
    /// # Panics
    /// As [`Knobs::get`].
    #[must_use]
    pub fn scale(&self, name: &str) -> f64 {
        let declared: Vec<Knob> = self.0.iter().map(|(knob, _)| *knob).collect();
        self.get(name) / Self::of(&declared).get(name)
    }

    /// The same as a whole number.
    #[must_use]
    pub fn whole(&self, name: &str) -> u64 {
        self.get(name).max(0.0).round() as u64
    }

    /// Bits a second of all paths together, one way.
    pub(super) fn rates(&self) -> f64 {
        let rate = |(knob, value): &(Knob, Value)| match value {
            Value::Number(number) if knob.unit == Unit::Rate => number * f64::from(knob.paths),
            Value::Number(_) | Value::Word(_) => 0.0,
        };
        self.0.iter().map(rate).sum()
    }

    /// `wifi.rate=8mbit wifi.rtt=20ms`: as `--set` takes them, without the one on the horizontal axis.
    pub(super) fn written(&self, axis: Option<&str>) -> String {
        let others = self.0.iter().filter(|(knob, _)| Some(knob.name) != axis);
        let words = others.map(|(knob, value)| match value {
            Value::Number(number) => format!("{}={}", knob.name, knob.unit.written(*number)),
            Value::Word(word) => format!("{}={word}", knob.name),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// A name.
    ///
    /// # Panics
    /// As [`Knobs::get`].
    #[must_use]
    pub fn word(&self, name: &str) -> &str {
        match self.0.iter().find(|(knob, _)| knob.name == name) {
            Some((_, Value::Word(word))) => word,
            _ => panic!("the figure declares no name '{name}'"),
        }
    }

    /// Changes one by its name, to a number in its first unit. Unknown names stay unknown.
    pub(super) fn put(&mut self, name: &str, number: f64) {
        if let Some((_, value)) = self.0.iter_mut().find(|(knob, _)| knob.name == name) {
            *value = Value::Number(number);
        }
    }

    /// Carries out one `--set NAME=VALUE`.
    pub(super) fn set(&mut self, figure: &'static str, words: &str) -> Result<(), KnobError> {
        let (name, text) = words
            .split_once('=')
            .ok_or_else(|| KnobError::Form(words.to_owned()))?;
        let known = self.names();
        let (knob, value) = self
            .0
            .iter_mut()
            .find(|(knob, _)| knob.name == name)
            .ok_or(KnobError::Unknown {
                figure,
                name: name.to_owned(),
                known,
            })?;
        *value = match knob.unit {
            Unit::Congestion => {
                let known = text.parse::<Algorithm>().is_ok();
                let name = known.then(|| text.to_owned());
                Value::Word(name.ok_or_else(|| unreadable(knob, text))?)
            }
            _ => Value::Number(knob.number(text).ok_or_else(|| unreadable(knob, text))?),
        };
        Ok(())
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(knob, _)| knob.name).collect();
        names.join(", ")
    }
}

impl fmt::Display for Knobs {
    /// `buffer=50000 wifi.rate=8000000`: what a run is known by.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (knob, value)) in self.0.iter().enumerate() {
            let space = if n > 0 { " " } else { "" };
            match value {
                Value::Number(number) => write!(f, "{space}{}={number}", knob.name)?,
                Value::Word(word) => write!(f, "{space}{}={word}", knob.name)?,
            }
        }
        Ok(())
    }
}

fn unreadable(knob: &Knob, text: &str) -> KnobError {
    KnobError::Value {
        name: knob.name,
        text: text.to_owned(),
        example: knob.value,
        unit: knob.unit,
    }
}

/// What one can write, for the end of an error.
fn units(unit: &Unit) -> String {
    let names = match unit {
        Unit::Bytes => {
            "a number of bytes up to 10g, with k, m or g (1000), or ki or mi (1024)".to_owned()
        }
        Unit::Rate => "a number with bit, kbit, mbit or gbit, from 1kbit to 100gbit".to_owned(),
        Unit::Time => "a number with s, ms or us, from 1us to a day".to_owned(),
        Unit::Percent => {
            "a number with %, as in 5% or 0.05%, of 0 to less than 100 for losses".to_owned()
        }
        Unit::Count => "a whole number up to 1000m".to_owned(),
        Unit::Congestion => {
            let names = Algorithm::ALL.iter().map(ToString::to_string);
            names.collect::<Vec<_>>().join(", ")
        }
    };
    format!("; it takes {names}")
}

/// Points of a range without a number of points.
const STEPS: usize = 8;
const POINTS: RangeInclusive<usize> = 2..=1_000;

/// Reads `--sweep NAME=A..B`, `NAME=A..B:POINTS` or `NAME=A,B,C`: the parameter and its values in its first unit. A range
/// whose ends are ten times apart or more is divided by equal ratios, others by equal differences.
pub(super) fn sweep(
    figure: &'static str,
    declared: &'static [Knob],
    words: &str,
) -> Result<(&'static Knob, Vec<f64>), KnobError> {
    let (name, text) = words
        .split_once('=')
        .ok_or_else(|| KnobError::Form(words.to_owned()))?;
    let knob = declared.iter().find(|knob| knob.name == name);
    let knob = knob.ok_or_else(|| KnobError::Unknown {
        figure,
        name: name.to_owned(),
        known: Knobs::of(declared).names(),
    })?;
    if knob.unit == Unit::Congestion {
        return Err(KnobError::Words(knob.name));
    }
    let read = |text: &str| {
        let value = knob.number(text);
        value.ok_or_else(|| unreadable(knob, text))
    };
    let Some((low, rest)) = text.split_once("..") else {
        let values: Result<Vec<f64>, _> = text.split(',').map(read).collect();
        return Ok((knob, values?));
    };
    let (high, steps) = match rest.split_once(':') {
        Some((high, steps)) => {
            let count = steps.parse().ok().filter(|count| POINTS.contains(count));
            (
                high,
                count.ok_or_else(|| KnobError::Points {
                    text: steps.to_owned(),
                })?,
            )
        }
        None => (rest, STEPS),
    };
    let mut values = range(read(low)?, read(high)?, steps);
    if knob.unit == Unit::Count {
        values.iter_mut().for_each(|value| *value = value.round());
        values.dedup();
    }
    Ok((knob, values))
}

fn range(low: f64, high: f64, steps: usize) -> Vec<f64> {
    let last = steps - 1;
    let part = |n: usize| n as f64 / last as f64;
    let by_ratio = low > 0.0 && high / low >= 10.0;
    (0..=last)
        .map(|n| match by_ratio {
            // Three digits are as much as anybody reads off an axis.
            true if n > 0 && n < last => round(low * (high / low).powf(part(n))),
            _ if n == last => high,
            _ => low + (high - low) * part(n),
        })
        .collect()
}

fn round(value: f64) -> f64 {
    let digit = 10_f64.powf(value.abs().log10().floor() - 2.0);
    (value / digit).round() * digit
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Knob] = &[
        Knob::new("buffer", Unit::Bytes, "200k", "socket buffers"),
        Knob::new("wifi.rate", Unit::Rate, "8mbit", "rate of WiFi"),
        Knob::new("rtt", Unit::Time, "20ms", "round trip"),
        Knob::new(
            "congestion",
            Unit::Congestion,
            "cubic",
            "congestion control",
        ),
        Knob::new("loss", Unit::Percent, "1%", "packets lost"),
    ];

    #[test]
    fn values_are_read_in_their_units() {
        let mut knobs = Knobs::of(DECLARED);
        for words in ["wifi.rate=20Mbit", "rtt=1.5s", "congestion=lia"] {
            knobs.set("x", words).expect(words);
        }
        assert_eq!(
            knobs.to_string(),
            "buffer=200000 wifi.rate=20000000 rtt=1.5 congestion=lia loss=1"
        );
        assert_eq!(
            (knobs.whole("buffer"), knobs.word("congestion")),
            (200_000, "lia")
        );
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let mut knobs = Knobs::of(DECLARED);
        let told = |words: &str| {
            let mut knobs = knobs.clone();
            knobs.set("x", words).expect_err(words).to_string()
        };
        assert!(told("speed=1").contains("it has buffer, wifi.rate"));
        assert!(told("rtt=1 parsec").contains("20ms by default"));
        assert!(told("rtt").contains("NAME=VALUE"));
        assert!(told("wifi.rate=0").contains("8mbit by default"));
        assert!(told("congestion=foo").contains("cubic by default"));
        assert!(told("loss=100%").contains("no value for loss"));
        // A share, or per cent? Who writes it says which.
        let told = told("loss=0.05");
        assert!(told.contains("5% or 0.05%"), "{told}");
        assert!(knobs.set("x", "loss=0").is_ok());
        knobs.put("rtt", 1.0);
        assert_eq!(knobs.get("rtt"), 1.0);
    }

    #[test]
    fn what_no_computer_can_do_is_refused() {
        let knobs = Knobs::of(DECLARED);
        for words in [
            "wifi.rate=0.4bit",
            "wifi.rate=1000gbit",
            "rtt=0.1us",
            "rtt=86401s",
            "buffer=0.5",
            "buffer=11g",
            "loss=0.00001%",
        ] {
            let told = knobs.clone().set("x", words).expect_err(words).to_string();
            assert!(told.contains("is no value for"), "{told}");
        }
        for words in [
            "wifi.rate=1kbit",
            "wifi.rate=100gbit",
            "rtt=1us",
            "rtt=86400s",
        ] {
            knobs.clone().set("x", words).expect(words);
        }
        let runs = Knob::new("runs", Unit::Count, "5", "runs");
        assert_eq!(
            (runs.number("1000m"), runs.number("1001m")),
            (Some(1e9), None)
        );
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut knobs = Knobs::of(DECLARED);
        assert_eq!(
            knobs.written(Some("buffer")),
            "wifi.rate=8mbit rtt=20ms congestion=cubic loss=1%"
        );
        let time = |seconds: f64| Unit::Time.written(seconds);
        assert_eq!([60.0, 0.15, 0.0].map(time), ["60s", "150ms", "0s"]);
        for words in [
            "buffer=1460",
            "buffer=64ki",
            "wifi.rate=50kbit",
            "wifi.rate=1.5gbit",
            "wifi.rate=3.27mbit",
            "rtt=400us",
            "rtt=0.05ms",
            "rtt=9s",
            "rtt=1.333333333us",
            "loss=0.3%",
            "loss=0",
        ] {
            knobs.set("x", words).expect(words);
            let mut again = Knobs::of(DECLARED);
            for written in knobs.written(None).split(' ') {
                again.set("x", written).expect(written);
            }
            assert_eq!(again, knobs, "{words}: {}", knobs.written(None));
        }
    }

    #[test]
    fn rates_are_those_of_all_paths() {
        let mut all = DECLARED.to_vec();
        all.push(Knob::new("rate", Unit::Rate, "5mbit", "rate of each path").each_of(4));
        assert_eq!(Knobs::of(&all).rates(), 28e6);
    }

    #[test]
    fn a_sweep_is_a_range_or_a_list() {
        let values = |words: &str| sweep("x", DECLARED, words).map(|(knob, v)| (knob.name, v));
        assert_eq!(
            values("buffer=50k,1m"),
            Ok(("buffer", vec![50_000.0, 1_000_000.0]))
        );
        assert_eq!(values("rtt=10ms..40ms:4").map(|v| v.1.len()), Ok(4));
        for wrong in ["rtt=10ms..40ms:1", "rtt=10ms..40ms:100000000"] {
            let told = values(wrong).expect_err(wrong).to_string();
            assert!(told.contains("2 to 1000 points"), "{told}");
        }
        let (_, many) = values("buffer=50k..1m").expect("a range");
        assert_eq!((many.len(), many[0], many[7]), (8, 50_000.0, 1_000_000.0));
        assert!(many.windows(2).all(|two| two[1] / two[0] < 1.6));
        assert!(values("congestion=reno,lia").is_err() && values("buffer=x..y").is_err());
        assert!(values("nothing=1..2").is_err());
    }
}
