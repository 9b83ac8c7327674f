//! Quotas: how much may be carried in a day, a week or a month, what of it was, and what happens when it is used up. Pure: bytes and time come in.

use std::fmt;

use jiff::Timestamp;
use manypath_io::path::rate;
use serde::{Serialize, Serializer};

use super::calendar::Reset;
use super::path::Priority;
use crate::units::{exact_bytes, parse_bytes};

/// Which bytes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// All.
    #[default]
    Both,
    /// What is sent by a path, or to targets.
    Up,
    /// What comes by a path, or goes to clients.
    Down,
}

impl Count {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Up => "up",
            Self::Down => "down",
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: &str) -> Result<Self, String> {
        match text {
            "both" => Ok(Self::Both),
            "up" => Ok(Self::Up),
            "down" => Ok(Self::Down),
            _ => Err(format!("'{text}' is none of both, up, down")),
        }
    }
}

/// What happens to a path or a class whose quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The path is used when nothing better is left.
    Backup,
    /// The path is not used.
    Never,
    /// No more bits a second are sent than this.
    Rate(u64),
}

impl Then {
    /// Reads `backup`, `never` or `rate 256kbit`.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: &str) -> Result<Self, String> {
        let rate = || rate::parse(text.strip_prefix("rate ")?.trim());
        match text {
            "backup" => Ok(Self::Backup),
            "never" => Ok(Self::Never),
            _ => rate().map(Self::Rate).ok_or_else(|| {
                format!("'{text}' is none of backup, never, and a rate as \"rate 256kbit\"")
            }),
        }
    }
}

impl fmt::Display for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backup => f.write_str("backup"),
            Self::Never => f.write_str("never"),
            Self::Rate(bits) => write!(f, "rate {}", rate::text(*bits)),
        }
    }
}

impl Serialize for Then {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Reads an amount with its unit: `30GB`.
///
/// # Errors
/// It is none, or zero.
pub fn read_amount(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes == 0 {
        return Err(format!("'{text}' is nothing: the least amount is 1B"));
    }
    match text.ends_with(|c: char| c.is_ascii_digit()) {
        true => Err(format!(
            "'{text}' has no unit: write for example 30GB, 500MB or {text}B"
        )),
        false => Ok(bytes),
    }
}

/// As [`read_amount`] reads it.
fn amount_text(bytes: u64) -> String {
    let decimal = [
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
    ];
    let whole = decimal.iter().find(|(unit, _)| bytes % unit == 0);
    match whole {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{}B", exact_bytes(bytes)),
    }
}

/// A quota as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotaSpec {
    /// Bytes.
    pub amount: u64,
    /// When they are counted anew.
    pub reset: Reset,
    /// Which bytes count.
    pub count: Count,
    /// What happens when they are used up.
    pub then: Then,
}

impl QuotaSpec {
    /// What its count is kept under: another amount, or another consequence, goes on with the count.
    pub(super) fn key(&self, of: &str, name: &str) -> String {
        let (reset, count) = (&self.reset, self.count.name());
        format!("{of} {name} {} {reset} {count}", reset.period().name())
    }

    /// How much a period has: `30GB a month`.
    pub(super) fn what(&self) -> String {
        let (amount, period) = (amount_text(self.amount), self.reset.period().name());
        format!("{amount} a {period}")
    }
}

impl fmt::Display for QuotaSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}, ", self.what(), self.reset)?;
        if self.count != Count::Both {
            write!(f, "{} alone, ", self.count.name())?;
        }
        write!(f, "then {}", self.then)
    }
}

/// Bytes that were carried, up and down. They only rise, but begin anew where what counted them did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) up: u64,
    pub(super) down: u64,
}

impl Carried {
    fn since(self, before: Self) -> Self {
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            up: since(self.up, before.up),
            down: since(self.down, before.down),
        }
    }

    #[cfg(test)]
    fn and(self, other: Self) -> Self {
        Self {
            up: self.up.saturating_add(other.up),
            down: self.down.saturating_add(other.down),
        }
    }
}

/// What was used of a quota, as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// When the period began.
    pub(super) began: Timestamp,
    pub(super) bytes: u64,
}

/// What a look at a meter has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// The quota is used up since then.
    Spent,
    /// A new period has begun.
    Reset,
    /// The clock is before the period that is counted: it goes on until a later one begins.
    ClockWentBack,
}

/// The most that an interface is taken to carry in a second where a quota is nearly used up, bytes: 1 Gbit/s.
const FASTEST: u64 = 125_000_000;
/// Looks are no closer together, and no further apart, nanoseconds.
const CLOSEST: u64 = 2_000_000;
const FURTHEST: u64 = 1_000_000_000;

/// A quota in force.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    pub(super) spec: QuotaSpec,
    pub(super) used: Used,
    seen: Carried,
    went_back: bool,
}

impl Meter {
    /// Counts from here, or goes on where it was.
    pub(super) fn new(
        spec: QuotaSpec,
        kept: Option<Used>,
        carried: Carried,
        now: Timestamp,
    ) -> Self {
        let began = spec.reset.began(now);
        let kept = kept.filter(|kept| kept.began >= began);
        Self {
            spec,
            used: kept.unwrap_or(Used { began, bytes: 0 }),
            seen: carried,
            went_back: false,
        }
    }

    /// Another amount, or another consequence.
    pub(super) fn change(&mut self, spec: QuotaSpec) {
        self.spec = spec;
    }

    /// Counts what was carried since the last look.
    pub(super) fn look(&mut self, carried: Carried, now: Timestamp) -> Found {
        let was_spent = self.is_spent();
        let new = carried.since(self.seen);
        self.seen = carried;
        let began = self.spec.reset.began(now);
        let is_new = began > self.used.began;
        if is_new {
            self.used = Used { began, bytes: 0 };
        }
        let counted = match self.spec.count {
            Count::Both => new.up.saturating_add(new.down),
            Count::Up => new.up,
            Count::Down => new.down,
        };
        self.used.bytes = self.used.bytes.saturating_add(counted);
        let is_back = began < self.used.began;
        let went_back = std::mem::replace(&mut self.went_back, is_back);
        match (is_new, is_back && !went_back) {
            (true, _) => Found::Reset,
            (false, true) => Found::ClockWentBack,
            (false, false) if self.is_spent() && !was_spent => Found::Spent,
            (false, false) => Found::Nothing,
        }
    }

    /// Counts anew, in the same period.
    pub(super) fn reset(&mut self, carried: Carried) {
        self.used.bytes = 0;
        self.seen = carried;
    }

    /// When the next period begins, whatever the clock did.
    pub(super) fn resets_at(&self, now: Timestamp) -> Timestamp {
        self.spec.reset.next(now.max(self.used.began))
    }

    pub(super) fn is_spent(&self) -> bool {
        self.used.bytes >= self.spec.amount
    }

    /// After how many nanoseconds to look again, so that the amount is exceeded by a fortieth at most, and what is left is looked at several
    /// times.
    pub(super) fn look_again(&self) -> u64 {
        let left = self.spec.amount.saturating_sub(self.used.bytes);
        if left == 0 {
            return FURTHEST;
        }
        let bytes = u128::from(left / 2 + self.spec.amount / 40);
        let nanos = bytes * 1_000_000_000 / u128::from(FASTEST);
        u64::try_from(nanos)
            .unwrap_or(FURTHEST)
            .clamp(CLOSEST, FURTHEST)
    }
}

/// What quotas that are used up make of a path or a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ruling {
    pub(super) priority: Priority,
    pub(super) rate: Option<u64>,
}

impl Ruling {
    /// The strictest of all.
    pub(super) fn of<'a>(spent: impl Iterator<Item = &'a Then>) -> Self {
        spent.fold(Self::default(), |ruling, then| match then {
            Then::Backup => Self {
                priority: ruling.priority.max(Priority::Backup),
                ..ruling
            },
            Then::Never => Self {
                priority: Priority::Never,
                ..ruling
            },
            Then::Rate(bits) => Self {
                rate: Some(ruling.rate.map_or(*bits, |rate| rate.min(*bits))),
                ..ruling
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::calendar::Period;
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect(text)
    }

    fn spec(amount: u64, count: Count) -> QuotaSpec {
        QuotaSpec {
            amount,
            reset: Reset::read(Period::Month, "1st 00:00 Europe/Brussels").expect("right"),
            count,
            then: Then::Never,
        }
    }

    fn carried(up: u64, down: u64) -> Carried {
        Carried { up, down }
    }

    #[test]
    fn amounts_have_a_unit() {
        for (text, bytes) in [
            ("30GB", 30_000_000_000),
            ("1.5G", 1_500_000_000),
            ("64KiB", 65_536),
            ("1B", 1),
            ("18446744073709551615B", u64::MAX),
        ] {
            assert_eq!(read_amount(text), Ok(bytes), "{text}");
            assert_eq!(read_amount(&amount_text(bytes)), Ok(bytes), "{text}");
        }
        for wrong in [
            "",
            "0B",
            "0GB",
            "30",
            "-1GB",
            "NaNGB",
            "GB",
            "1e30B",
            "18446744073709551616B",
            "18446744073709551615GB",
            "30 GB",
            "30Gbit",
        ] {
            assert!(read_amount(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn consequences_are_read_as_they_are_written() {
        for text in ["backup", "never", "rate 256kbit"] {
            assert_eq!(Then::read(text).expect(text).to_string(), text);
        }
        for wrong in [
            "",
            "always",
            "rate",
            "rate 0bit",
            "rate 5",
            "256kbit",
            "rate -1bit",
        ] {
            assert!(Then::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_that_count_are_counted_until_the_amount_is_used_up() {
        let now = at("2026-11-15T00:00:00Z");
        for (count, spent_by) in [
            (Count::Both, carried(40, 60)),
            (Count::Up, carried(100, 0)),
            (Count::Down, carried(0, 100)),
        ] {
            let mut meter = Meter::new(spec(100, count), None, carried(7, 7), now);
            let at_once = carried(7, 7).and(spent_by);
            let almost = Carried {
                up: at_once.up.saturating_sub(1).max(7),
                down: at_once.down.saturating_sub(1).max(7),
            };
            assert_eq!(meter.look(almost, now), Found::Nothing, "{count:?}");
            assert_eq!(meter.look(at_once, now), Found::Spent, "{count:?}");
            assert_eq!(meter.look(at_once, now), Found::Nothing, "told once");
            assert_eq!(meter.used.bytes, 100);
        }
    }

    #[test]
    fn what_counts_may_begin_anew() {
        let now = at("2026-11-15T00:00:00Z");
        let mut meter = Meter::new(spec(100, Count::Both), None, carried(50, 0), now);
        meter.look(carried(60, 0), now);
        meter.look(carried(3, 0), now);
        assert_eq!(meter.used.bytes, 13);
    }

    #[test]
    fn a_period_begins_once_whatever_the_clock_does() {
        let mut meter = Meter::new(
            spec(100, Count::Both),
            None,
            carried(0, 0),
            at("2026-10-20T00:00:00Z"),
        );
        assert_eq!(
            meter.look(carried(100, 0), at("2026-10-31T22:59:59Z")),
            Found::Spent
        );
        // 1 November in Brussels, after the end of the summer time.
        assert_eq!(
            meter.look(carried(100, 0), at("2026-10-31T23:00:00Z")),
            Found::Reset
        );
        assert!(!meter.is_spent());
        meter.look(carried(200, 0), at("2026-11-01T00:00:00Z"));
        assert!(meter.is_spent());
        // Back over the reset, and forth again: no second amount in the same month.
        let back = at("2026-10-31T22:00:00Z");
        assert_eq!(meter.look(carried(200, 0), back), Found::ClockWentBack);
        assert_eq!(
            meter.look(carried(210, 0), back),
            Found::Nothing,
            "told once"
        );
        assert!(meter.is_spent());
        assert_eq!(
            meter.look(carried(210, 0), at("2026-11-02T00:00:00Z")),
            Found::Nothing
        );
        assert!(meter.is_spent());
        assert_eq!(meter.used.bytes, 110);
        // Months ahead, and back: what was begun early goes on.
        assert_eq!(
            meter.look(carried(210, 0), at("2027-03-05T00:00:00Z")),
            Found::Reset
        );
        meter.look(carried(300, 0), at("2027-03-05T00:00:00Z"));
        assert_eq!(
            meter.look(carried(315, 0), at("2026-11-02T00:00:00Z")),
            Found::ClockWentBack
        );
        assert!(meter.is_spent(), "{:?}", meter.used);
    }

    #[test]
    fn what_was_kept_goes_on_in_its_period_and_no_longer() {
        let kept = |began: &str| {
            Some(Used {
                began: at(began),
                bytes: 90,
            })
        };
        let now = at("2026-11-15T00:00:00Z");
        for (began, bytes) in [
            ("2026-10-31T23:00:00Z", 90),
            ("2026-09-30T22:00:00Z", 0),
            // By a clock that was ahead.
            ("2026-11-30T23:00:00Z", 90),
        ] {
            let meter = Meter::new(spec(100, Count::Both), kept(began), carried(0, 0), now);
            assert_eq!(meter.used.bytes, bytes, "{began}");
        }
    }

    #[test]
    fn a_quota_is_exceeded_by_less_than_a_twentieth_at_a_gigabit() {
        let now = at("2026-11-15T00:00:00Z");
        for amount in [20_000_000_u64, 100_000_000, 30_000_000_000] {
            let mut meter = Meter::new(spec(amount, Count::Both), None, carried(0, 0), now);
            let (mut sent, mut looks) = (0_u64, 0);
            while !meter.is_spent() {
                sent += u64::try_from(
                    u128::from(FASTEST) * u128::from(meter.look_again()) / 1_000_000_000,
                )
                .expect("a second of it");
                meter.look(carried(sent, 0), now);
                looks += 1;
            }
            assert!(sent <= amount + amount / 20, "{amount}: {sent}");
            assert!(looks < 500, "{amount}: {looks}");
            assert_eq!(meter.look_again(), FURTHEST);
        }
    }

    #[test]
    fn the_strictest_consequence_holds() {
        for (spent, priority, rate) in [
            (&[][..], Priority::Always, None),
            (&[Then::Backup], Priority::Backup, None),
            (&[Then::Never, Then::Backup], Priority::Never, None),
            (
                &[Then::Rate(8), Then::Rate(5), Then::Backup],
                Priority::Backup,
                Some(5),
            ),
        ] {
            assert_eq!(Ruling::of(spent.iter()), Ruling { priority, rate });
        }
    }
}
