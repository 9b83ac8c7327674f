//! Hours of the week: `mon-fri 08:00-18:00`.

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::{DAYS, Zone, read_day, read_minutes};

/// Hours of some days of the week. Where they end no later than they begin, they end on the next day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Days on which they begin, Monday first.
    days: [bool; 7],
    from: u16,
    to: u16,
    zone: Zone,
}

impl Hours {
    /// Reads `mon-fri 08:00-18:00 Europe/Brussels`, `sat,sun 00:00-24:00`, `22:00-06:00`; without days every day, without a zone that of the host.
    ///
    /// # Errors
    /// They are none.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' are no hours of the week: write for example \"mon-fri 08:00-18:00 Europe/Brussels\", \"sat,sun 00:00-24:00\" or \"22:00-06:00\""
            )
        };
        let mut words = text.split_whitespace().peekable();
        let begins_with_day = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
        let days = match words.next_if(begins_with_day) {
            Some(days) => read_days(days).ok_or_else(wrong)?,
            None => [true; 7],
        };
        let (from, to) = words
            .next()
            .and_then(|h| h.split_once('-'))
            .ok_or_else(wrong)?;
        let from = read_minutes(from, 1439).ok_or_else(wrong)?;
        let to = read_minutes(to, 1440).ok_or_else(wrong)?;
        let zone = match words.next() {
            Some(name) => Zone::named(name)?,
            None => Zone::of_host(),
        };
        if words.next().is_some() || from == to {
            return Err(wrong());
        }
        Ok(Self {
            days,
            from,
            to,
            zone,
        })
    }

    /// Whether it is one of them now, by the clock of the zone.
    #[must_use]
    pub fn hold(&self, now: Timestamp) -> bool {
        let here = self.zone.0.to_datetime(now);
        let today = usize::try_from(here.weekday().to_monday_zero_offset()).unwrap_or(0);
        let part = |n: i8| u16::try_from(n).unwrap_or(0);
        let minutes = part(here.hour()) * 60 + part(here.minute());
        let yesterday = (today + 6) % 7;
        match self.from < self.to {
            true => self.days[today] && (self.from..self.to).contains(&minutes),
            false => {
                let since_yesterday = self.days[yesterday] && minutes < self.to;
                self.days[today] && minutes >= self.from || since_yesterday
            }
        }
    }
}

/// `mon`, `mon-fri`, `fri-mon`, `mon,wed-fri`.
fn read_days(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (usize::from(read_day(first)?), usize::from(read_day(last)?));
        let mut day = first;
        loop {
            days[day] = true;
            if day == last {
                break;
            }
            day = (day + 1) % 7;
        }
    }
    Some(days)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days != [true; 7] {
            let named = DAYS.iter().zip(self.days).filter(|(_, is)| *is);
            let names: Vec<&str> = named.map(|(name, _)| *name).collect();
            write!(f, "{} ", names.join(","))?;
        }
        let (from, to) = (self.from, self.to);
        let (hours, zone) = ((from / 60, from % 60, to / 60, to % 60), &self.zone);
        write!(
            f,
            "{:02}:{:02}-{:02}:{:02} {zone}",
            hours.0, hours.1, hours.2, hours.3
        )
    }
}

impl Serialize for Hours {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_read_and_shown() {
        for (text, shown) in [
            (
                "mon-fri 08:00-18:00 UTC",
                "mon,tue,wed,thu,fri 08:00-18:00 UTC",
            ),
            ("fri-mon 08:00-18:00 UTC", "mon,fri,sat,sun 08:00-18:00 UTC"),
            ("mon,wed-thu 00:00-24:00 UTC", "mon,wed,thu 00:00-24:00 UTC"),
            ("22:00-06:00 Europe/Brussels", "22:00-06:00 Europe/Brussels"),
            ("mon-sun 22:00-06:00 UTC", "22:00-06:00 UTC"),
        ] {
            assert_eq!(Hours::read(text).expect(text).to_string(), shown);
        }
        for wrong in [
            "",
            "mon-fri",
            "08:00",
            "08:00-08:00",
            "8-18",
            "24:00-06:00",
            "08:00-24:01",
            "mon-frx 08:00-18:00",
            "mon- 08:00-18:00",
            ",mon 08:00-18:00",
            "mon 08:00-18:00 Nowhere",
            "mon 08:00-18:00 UTC more",
            "08:00-18:00 mon-fri",
            "08:00--18:00",
        ] {
            assert!(Hours::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hours_hold_by_the_clock_of_their_zone() {
        for (text, now, hold) in [
            // 30 November 2026 is a Monday.
            ("mon-fri 08:00-18:00 UTC", "2026-11-30T07:59:59Z", false),
            ("mon-fri 08:00-18:00 UTC", "2026-11-30T08:00:00Z", true),
            ("mon-fri 08:00-18:00 UTC", "2026-11-30T17:59:59Z", true),
            ("mon-fri 08:00-18:00 UTC", "2026-11-30T18:00:00Z", false),
            ("mon-fri 08:00-18:00 UTC", "2026-11-29T12:00:00Z", false),
            // In Brussels it is an hour later in winter and two in summer.
            (
                "mon-fri 08:00-18:00 Europe/Brussels",
                "2026-11-30T07:00:00Z",
                true,
            ),
            (
                "mon-fri 08:00-18:00 Europe/Brussels",
                "2026-07-06T06:00:00Z",
                true,
            ),
            (
                "mon-fri 08:00-18:00 Europe/Brussels",
                "2026-07-06T16:00:00Z",
                false,
            ),
            // Over midnight they belong to the day on which they begin.
            ("fri 22:00-06:00 UTC", "2026-11-27T23:00:00Z", true),
            ("fri 22:00-06:00 UTC", "2026-11-28T05:59:59Z", true),
            ("fri 22:00-06:00 UTC", "2026-11-28T06:00:00Z", false),
            ("fri 22:00-06:00 UTC", "2026-11-27T05:00:00Z", false),
            ("sun 22:00-06:00 UTC", "2026-11-30T01:00:00Z", true),
            ("sat,sun 00:00-24:00 UTC", "2026-11-29T23:59:59Z", true),
            // The hour that is left out, and the one that comes twice.
            ("02:00-03:00 Europe/Brussels", "2026-03-29T00:59:59Z", false),
            ("02:00-03:00 Europe/Brussels", "2026-03-29T01:00:00Z", false),
            ("02:00-03:00 Europe/Brussels", "2026-10-25T00:30:00Z", true),
            ("02:00-03:00 Europe/Brussels", "2026-10-25T01:30:00Z", true),
        ] {
            let now: Timestamp = now.parse().expect(now);
            let hours = Hours::read(text).expect(text);
            assert_eq!(hours.hold(now), hold, "{text} at {now}");
        }
    }
}
