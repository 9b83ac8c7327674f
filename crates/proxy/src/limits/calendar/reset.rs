//! When periods of quotas begin.
//!
//! A period begins at a time of the clock of its zone. Where that clock leaps over the time, it begins by as much later; where it shows the time
//! twice, at the first: every period begins once.

use std::fmt;

use jiff::civil::Date;
use jiff::{Span, Timestamp};
use serde::{Serialize, Serializer};

use super::{DAYS, Zone, read_day, read_minutes, time_of};

/// How long a quota is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From one time of day to the next.
    Day,
    /// From one weekday to the next.
    Week,
    /// From one day of the month to the next.
    Month,
}

impl Period {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: &str) -> Result<Self, String> {
        match text {
            "day" => Ok(Self::Day),
            "week" => Ok(Self::Week),
            "month" => Ok(Self::Month),
            _ => Err(format!("'{text}' is none of day, week, month")),
        }
    }
}

/// When periods begin: `00:00`, `mon 00:00`, `1st 00:00`, with a zone or in that of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    period: Period,
    /// Of the month, from 1, or of the week, from Monday as 0. A month that has no such day has its last one.
    day: u8,
    minutes: u16,
    zone: Zone,
}

impl Reset {
    /// Midnight, of the first day, in the zone of the host.
    #[must_use]
    pub fn usual(period: Period) -> Self {
        Self {
            period,
            day: u8::from(period == Period::Month),
            minutes: 0,
            zone: Zone::of_host(),
        }
    }

    /// Reads when periods begin.
    ///
    /// # Errors
    /// It is not for such a period, or says nothing.
    pub fn read(period: Period, text: &str) -> Result<Self, String> {
        let wrong = || {
            let example = match period {
                Period::Day => "06:00 Europe/Brussels",
                Period::Week => "mon 06:00 Europe/Brussels",
                Period::Month => "1st 06:00 Europe/Brussels",
            };
            let period = period.name();
            format!("'{text}' says not when a {period} begins: write for example \"{example}\"")
        };
        let mut words = text.split_whitespace();
        let day = match period {
            Period::Day => 0,
            Period::Week => words.next().and_then(read_day).ok_or_else(wrong)?,
            Period::Month => words.next().and_then(read_ordinal).ok_or_else(wrong)?,
        };
        let minutes = words.next().and_then(|text| read_minutes(text, 1439));
        let minutes = minutes.ok_or_else(wrong)?;
        let zone = match words.next() {
            Some(name) => Zone::named(name)?,
            None => Zone::of_host(),
        };
        if words.next().is_some() {
            return Err(wrong());
        }
        Ok(Self {
            period,
            day,
            minutes,
            zone,
        })
    }

    /// How long it is for.
    #[must_use]
    pub fn period(&self) -> Period {
        self.period
    }

    /// Days on which periods may begin, around the date that the zone has now, in their order.
    fn days(&self, today: Date) -> Vec<Date> {
        let plus = |days: i64| today.saturating_add(Span::new().days(days));
        match self.period {
            Period::Day => (-2..=2).map(plus).collect(),
            Period::Week => {
                let weekday = i64::from(today.weekday().to_monday_zero_offset());
                let this = i64::from(self.day) - weekday;
                [-14, -7, 0, 7, 14].map(|days| plus(this + days)).into()
            }
            Period::Month => {
                let first = today.first_of_month();
                let month = |months: i64| {
                    let first = first.saturating_add(Span::new().months(months));
                    let day = i8::try_from(self.day).unwrap_or(1);
                    let day = day.min(first.days_in_month());
                    first.with().day(day).build().unwrap_or(first)
                };
                (-2..=2).map(month).collect()
            }
        }
    }

    fn beginnings(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let today = self.zone.0.to_datetime(now).date();
        let begin = |day: Date| {
            let at = day.to_datetime(time_of(self.minutes));
            self.zone.0.to_ambiguous_timestamp(at).compatible().ok()
        };
        self.days(today).into_iter().filter_map(begin)
    }

    /// When the period began that is now.
    #[must_use]
    pub fn began(&self, now: Timestamp) -> Timestamp {
        let begun = self.beginnings(now).filter(|at| *at <= now);
        begun.max().unwrap_or(Timestamp::MIN)
    }

    /// What the clock of the zone shows at a time, as `2026-12-01 00:00 Europe/Brussels`.
    #[must_use]
    pub fn clock_at(&self, at: Timestamp) -> String {
        let shown = self.zone.0.to_datetime(at);
        format!("{} {} {}", shown.date(), shown.strftime("%H:%M"), self.zone)
    }

    /// When the next one begins.
    #[must_use]
    pub fn next(&self, now: Timestamp) -> Timestamp {
        let to_come = self.beginnings(now).filter(|at| *at > now);
        to_come.min().unwrap_or(Timestamp::MAX)
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            Period::Day => {}
            Period::Week => write!(f, "{} ", DAYS[usize::from(self.day) % 7])?,
            Period::Month => write!(f, "{}{} ", self.day, suffix(self.day))?,
        }
        let (hour, minute) = (self.minutes / 60, self.minutes % 60);
        write!(f, "{hour:02}:{minute:02} {}", self.zone)
    }
}

impl Serialize for Reset {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

fn suffix(day: u8) -> &'static str {
    match (day % 10, day / 10) {
        (1, tens) if tens != 1 => "st",
        (2, tens) if tens != 1 => "nd",
        (3, tens) if tens != 1 => "rd",
        _ => "th",
    }
}

/// `1st` to `31st`.
fn read_ordinal(text: &str) -> Option<u8> {
    let digits = text
        .len()
        .checked_sub(2)
        .filter(|n| text.is_char_boundary(*n))?;
    let (number, end) = text.split_at(digits);
    let plain = !number.starts_with('0') && number.bytes().all(|b| b.is_ascii_digit());
    let day: u8 = number.parse().ok().filter(|_| plain)?;
    ((1..=31).contains(&day) && end == suffix(day)).then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect(text)
    }

    fn reset(period: Period, text: &str) -> Reset {
        Reset::read(period, text).expect(text)
    }

    #[test]
    fn what_is_read_is_shown() {
        for (period, text) in [
            (Period::Day, "00:00 UTC"),
            (Period::Day, "06:30 Europe/Brussels"),
            (Period::Week, "sun 23:59 UTC"),
            (Period::Month, "1st 00:00 Europe/Brussels"),
            (Period::Month, "2nd 00:00 UTC"),
            (Period::Month, "13th 00:00 UTC"),
            (Period::Month, "23rd 00:00 UTC"),
            (Period::Month, "31st 12:00 UTC"),
        ] {
            assert_eq!(reset(period, text).to_string(), text);
        }
        let of_host = Reset::read(Period::Month, "1st 00:00").expect("the zone of the host");
        assert_eq!(of_host, Reset::usual(Period::Month));
        for (period, wrong) in [
            (Period::Day, ""),
            (Period::Day, "mon 00:00"),
            (Period::Day, "24:00"),
            (Period::Day, "00:00 UTC UTC"),
            (Period::Day, "00:00 Nowhere"),
            (Period::Week, "00:00"),
            (Period::Week, "monday 00:00"),
            (Period::Month, "0th 00:00"),
            (Period::Month, "32nd 00:00"),
            (Period::Month, "1th 00:00"),
            (Period::Month, "11st 00:00"),
            (Period::Month, "01st 00:00"),
            (Period::Month, "-1st 00:00"),
            (Period::Month, "1 00:00"),
            (Period::Month, "é 00:00"),
        ] {
            assert!(Reset::read(period, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn periods_begin_when_their_zone_says() {
        use Period::{Day, Month, Week};
        for (period, text, now, began, next) in [
            // A minute before and the moment itself.
            (
                Month,
                "1st 00:00 UTC",
                "2026-11-30T23:59:59Z",
                "2026-11-01T00:00Z",
                "2026-12-01T00:00Z",
            ),
            (
                Month,
                "1st 00:00 UTC",
                "2026-12-01T00:00:00Z",
                "2026-12-01T00:00Z",
                "2027-01-01T00:00Z",
            ),
            // An hour earlier in winter, two in summer.
            (
                Month,
                "1st 00:00 Europe/Brussels",
                "2026-11-30T22:59Z",
                "2026-10-31T23:00Z",
                "2026-11-30T23:00Z",
            ),
            (
                Month,
                "1st 00:00 Europe/Brussels",
                "2026-07-15T00:00Z",
                "2026-06-30T22:00Z",
                "2026-07-31T22:00Z",
            ),
            // Months that have no such day, and leap years.
            (
                Month,
                "31st 12:00 UTC",
                "2026-02-15T00:00Z",
                "2026-01-31T12:00Z",
                "2026-02-28T12:00Z",
            ),
            (
                Month,
                "31st 12:00 UTC",
                "2028-02-29T13:00Z",
                "2028-02-29T12:00Z",
                "2028-03-31T12:00Z",
            ),
            (
                Month,
                "30th 00:00 UTC",
                "2026-03-01T00:00Z",
                "2026-02-28T00:00Z",
                "2026-03-30T00:00Z",
            ),
            // The clock leaps from 02:00 to 03:00: what begins at 02:30 begins at 03:30 of the new time.
            (
                Day,
                "02:30 Europe/Brussels",
                "2026-03-29T00:59Z",
                "2026-03-28T01:30Z",
                "2026-03-29T01:30Z",
            ),
            (
                Day,
                "02:30 Europe/Brussels",
                "2026-03-29T01:30Z",
                "2026-03-29T01:30Z",
                "2026-03-30T00:30Z",
            ),
            // It shows 02:30 twice: a day begins at the first, and once.
            (
                Day,
                "02:30 Europe/Brussels",
                "2026-10-25T00:29Z",
                "2026-10-24T00:30Z",
                "2026-10-25T00:30Z",
            ),
            (
                Day,
                "02:30 Europe/Brussels",
                "2026-10-25T01:31Z",
                "2026-10-25T00:30Z",
                "2026-10-26T01:30Z",
            ),
            // A day that a zone has left out.
            (
                Day,
                "12:00 Pacific/Apia",
                "2011-12-29T23:00Z",
                "2011-12-29T22:00Z",
                "2011-12-30T22:00Z",
            ),
            (
                Week,
                "mon 06:00 UTC",
                "2026-11-30T05:59Z",
                "2026-11-23T06:00Z",
                "2026-11-30T06:00Z",
            ),
            (
                Week,
                "mon 06:00 UTC",
                "2026-11-30T06:00Z",
                "2026-11-30T06:00Z",
                "2026-12-07T06:00Z",
            ),
            (
                Week,
                "sun 00:00 America/New_York",
                "2026-11-01T12:00Z",
                "2026-11-01T04:00Z",
                "2026-11-08T05:00Z",
            ),
        ] {
            let (reset, now) = (reset(period, text), at(&full(now)));
            assert_eq!(reset.began(now), at(&full(began)), "{text} at {now}");
            assert_eq!(reset.next(now), at(&full(next)), "{text} at {now}");
        }
    }

    /// With seconds.
    fn full(text: &str) -> String {
        match text.len() {
            17 => text.replace('Z', ":00Z"),
            _ => text.to_owned(),
        }
    }

    #[test]
    fn every_period_follows_the_one_before_for_ten_years() {
        for (period, text, shortest, longest) in [
            (Period::Day, "02:30 Europe/Brussels", 23, 25),
            (Period::Day, "00:00 America/Havana", 23, 25),
            (Period::Week, "sun 02:30 Europe/Brussels", 167, 169),
            (
                Period::Month,
                "31st 23:59 Australia/Lord_Howe",
                27 * 24,
                32 * 24,
            ),
        ] {
            let reset = reset(period, text);
            let (mut now, end) = (at("2020-01-01T00:00:00Z"), at("2030-01-01T00:00:00Z"));
            while now < end {
                let next = reset.next(now);
                assert_eq!(reset.began(next), next, "{text} at {now}");
                let just_before = Timestamp::from_second(next.as_second() - 1).expect("near");
                assert_eq!(reset.next(just_before), next);
                let hours = (next.as_second() - reset.began(now).as_second()) / 3600;
                assert!(
                    (shortest..=longest).contains(&hours),
                    "{text} at {now}: {hours}"
                );
                now = next;
            }
        }
    }
}
