//! Times as logs have them: RFC 3339, UTC, to the millisecond.

use std::time::{SystemTime, UNIX_EPOCH};

/// Days of 400 years of the Gregorian calendar.
const ERA: i64 = 146_097;

/// `2026-11-29T21:30:05.123Z`. Times before 1970 are shown as its beginning.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date(i64::try_from(seconds / 86_400).unwrap_or(i64::MAX / 2));
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970. Years are taken to begin in March, so that a leap day is the last of its year.
fn date(days: i64) -> (i64, i64, i64) {
    // From 1 March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // 153 days are five months of 31, 30, 31, 30, 31 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (era * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_of_leap_years_and_their_neighbours() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), wanted);
        }
        let time = UNIX_EPOCH + Duration::from_millis(1_005);
        assert_eq!(rfc3339(time), "1970-01-01T00:00:01.005Z");
    }
}
