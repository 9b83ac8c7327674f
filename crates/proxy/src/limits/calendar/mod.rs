//! The calendar of limits: when a period of a quota begins, and which hours of the week a schedule means. Pure: the time comes in.

mod reset;
mod week;

use std::fmt;

use jiff::civil::Time;
use jiff::tz::TimeZone;

pub use reset::{Period, Reset};
pub use week::Hours;

/// A time zone by its name in the IANA database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// That of the host.
    fn of_host() -> Self {
        Self(TimeZone::system())
    }

    /// By its name.
    fn named(name: &str) -> Result<Self, String> {
        // What the library takes besides, a name of another case for example, stays out of what is shown.
        let known = TimeZone::get(name).ok();
        let known = known.filter(|zone| zone.iana_name().is_some() || name == "UTC");
        known.map(Self).ok_or_else(|| {
            format!("'{name}' is no time zone, as Europe/Brussels, America/New_York or UTC")
        })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.iana_name().unwrap_or("UTC"))
    }
}

/// `08:00`; a day ends at `24:00`, which only `last` takes.
fn read_minutes(text: &str, last: u16) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !two_digits(hour) || !two_digits(minute) {
        return None;
    }
    let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= last).then_some(minutes)
}

fn time_of(minutes: u16) -> Time {
    let part = |n: u16| i8::try_from(n).unwrap_or(0);
    Time::new(part(minutes / 60), part(minutes % 60), 0, 0).unwrap_or(Time::MIN)
}

/// Days of the week as they are written, from Monday on.
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

fn read_day(text: &str) -> Option<u8> {
    let at = DAYS.iter().position(|day| *day == text)?;
    u8::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_day_are_read() {
        for (text, minutes) in [
            ("00:00", Some(0)),
            ("08:05", Some(485)),
            ("23:59", Some(1439)),
            ("24:00", Some(1440)),
            ("24:01", None),
            ("8:00", None),
            ("08:60", None),
            ("-1:00", None),
            ("08", None),
            ("", None),
        ] {
            assert_eq!(read_minutes(text, 1440), minutes, "{text}");
        }
        assert_eq!(read_minutes("24:00", 1439), None);
    }

    #[test]
    fn zones_are_those_of_the_database() {
        for name in ["UTC", "Europe/Brussels", "America/St_Johns"] {
            assert_eq!(Zone::named(name).expect(name).to_string(), name);
        }
        for wrong in [
            "",
            "Brussels",
            "Europe/Atlantis",
            "+01:00",
            "CET-1",
            "/etc/passwd",
            "../x",
        ] {
            assert!(Zone::named(wrong).is_err(), "{wrong}");
        }
    }
}
