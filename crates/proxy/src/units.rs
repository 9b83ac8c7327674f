//! Amounts of bytes and time as people write and read them, on command lines and in files.

use std::time::Duration;

/// Reads `500M`, `64Ki`, `1.5G`, `1000`; decimal prefixes, with an `i` binary ones. A `B` at the end is allowed, and upper and lower
/// case are the same, as for figures and scenarios.
///
/// # Errors
/// It is no amount, or more than 64 bits hold.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no amount of bytes; write for example 500M, 64Ki or 1000");
    let number_len = text
        .bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .count();
    let (number, unit) = text.split_at(number_len);
    let unit = unit.to_ascii_lowercase();
    let factor: u64 = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => 1,
        "k" => 1000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    // Above 2^63 the result would be meaningless; below it the cast is exact enough for an amount with a fraction.
    if (0.0..9.2e18).contains(&value) {
        Ok(value as u64)
    } else {
        Err(wrong())
    }
}

/// Reads `10s`, `500ms`, `2m`, `1h`, `2h4m`, `10`; without a unit, seconds.
///
/// # Errors
/// It is no time.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    // Hours and minutes may stand before smaller units.
    for unit in ['h', 'm'] {
        if let Some((large, rest)) = text.split_once(unit) {
            let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
            if is_number(large) && is_number(rest) && !large.contains(|c: char| c.is_alphabetic()) {
                let (large, rest) = (parse_one(&text[..=large.len()])?, parse_duration(rest)?);
                return large
                    .checked_add(rest)
                    .ok_or_else(|| format!("'{text}' is too long"));
            }
        }
    }
    parse_one(text)
}

fn parse_one(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no time; write for example 10s, 500ms, 2m or 2h4m");
    let number_len = text
        .bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .count();
    let (number, unit) = text.split_at(number_len);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * factor;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Reads a time between two things that repeat: as [`parse_duration`], but not zero, which would never rest.
///
/// # Errors
/// It is no time, or none at all.
pub fn parse_period(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        period => Ok(period),
    }
}

/// A time, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(pub Option<Duration>);

/// Reads a time as [`parse_period`] does, or `off`.
///
/// # Errors
/// It is neither.
pub fn parse_period_or_off(text: &str) -> Result<Patience, String> {
    match text {
        "off" => Ok(Patience(None)),
        text => parse_period(text).map(|period| Patience(Some(period))),
    }
}

fn scaled(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 5] = ["", "k", "M", "G", "T"];
    let mut value = value;
    let mut at = 0;
    while value >= 999.5 && at + 1 < PREFIXES.len() {
        value /= 1000.0;
        at += 1;
    }
    let digits = if at == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {}{unit}", PREFIXES[at])
}

/// A time as [`parse_duration`] reads it: `2h4m`, `10s`, `500ms`; to the microsecond.
#[must_use]
pub fn span(time: Duration) -> String {
    let micros = time.as_micros();
    let units = [
        ("h", 3_600_000_000),
        ("m", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
        ("us", 1),
    ];
    let mut rest = micros;
    let mut text = String::new();
    for (i, (unit, size)) in units.into_iter().enumerate() {
        // Hours and minutes may stand before a smaller unit, and one unit ends it.
        let exact = rest % size == 0;
        if rest >= size && (exact || i < 2) {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
        if rest == 0 {
            break;
        }
    }
    match text.is_empty() {
        true => "0s".to_owned(),
        false => text,
    }
}

/// An amount as [`parse_bytes`] reads it, without loss: `64Ki`, `1000`.
#[must_use]
pub fn exact_bytes(value: u64) -> String {
    let units = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    let whole = units
        .into_iter()
        .find(|(_, size)| value >= *size && value % size == 0);
    match whole {
        Some((unit, size)) => format!("{}{unit}", value / size),
        None => value.to_string(),
    }
}

/// `1.23 MB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    scaled(value as f64, "B")
}

/// `1.23 Gbit/s`.
#[must_use]
pub fn bits_per_second(value: f64) -> String {
    scaled(value, "bit/s")
}

/// Microseconds as `12.3 ms`.
#[must_use]
pub fn micros(value: u64) -> String {
    match value {
        0..1000 => format!("{value} us"),
        1000..10_000 => format!("{:.2} ms", value as f64 / 1e3),
        10_000..100_000 => format!("{:.1} ms", value as f64 / 1e3),
        100_000..1_000_000 => format!("{} ms", value / 1000),
        1_000_000..60_000_000 => format!("{:.1} s", value as f64 / 1e6),
        60_000_000..3_600_000_000 => {
            format!("{} min {} s", value / 60_000_000, value / 1_000_000 % 60)
        }
        _ => format!(
            "{} h {} min",
            value / 3_600_000_000,
            value / 60_000_000 % 60
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read() {
        for (text, value) in [
            ("1000", 1000),
            ("64K", 64_000),
            ("64Ki", 65_536),
            ("1.5MB", 1_500_000),
            ("2GiB", 2 << 30),
            ("64ki", 65_536),
            ("5mb", 5_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(value));
        }
        for text in ["", "x", "-1", "1.2.3", "5 M", "99999999999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h4m"), Ok(Duration::from_secs(7440)));
        assert_eq!(parse_duration("1h2m3s"), Ok(Duration::from_secs(3723)));
        for text in ["2h4x", "h4m", "m", "2h-4m", "1x2m3"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_period_or_off("off"), Ok(Patience(None)));
        assert_eq!(
            parse_period_or_off("2h").map(|p| p.0),
            Ok(Some(Duration::from_secs(7200)))
        );
        assert!(parse_period_or_off("0").is_err() && parse_period_or_off("on").is_err());
        assert!(parse_period("0ms").is_err() && parse_period("1ms").is_ok());
        assert!(parse_duration("s").is_err() && parse_duration("1d").is_err());
    }

    #[test]
    fn what_is_written_exactly_reads_back() {
        for text in [
            "10s", "2h4m", "500ms", "1h", "1m30s", "1500ms", "7us", "90h",
        ] {
            let time = parse_duration(text).expect(text);
            assert_eq!(span(time), text);
        }
        assert_eq!(span(Duration::ZERO), "0s");
        for text in ["64Ki", "3Gi", "1000", "0", "1025"] {
            assert_eq!(exact_bytes(parse_bytes(text).expect(text)), text);
        }
    }

    #[test]
    fn amounts_are_written() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234_567), "1.23 MB");
        assert_eq!(bits_per_second(12_340_000.0), "12.3 Mbit/s");
        assert_eq!(micros(12_345), "12.3 ms");
        assert_eq!(micros(61_000_000), "1 min 1 s");
    }
}
