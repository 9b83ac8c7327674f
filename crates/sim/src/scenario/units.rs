//! Quantities as people write them: "20ms", "8Mbit/s", "64KB", "1%".

use core::fmt;
use core::str::FromStr;

use manypath_tcp::time::Duration;
use manypath_tcp::units::Rate;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::rng::Chance;

/// A quantity that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no {what}; an example: \"{example}\"{}", spellings(.what))]
pub struct BadQuantity {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// What one can write, for the end of an error.
fn spellings(what: &str) -> &'static str {
    match what {
        "time" => "; it takes a number with s, ms, us or ns",
        "rate" => {
            "; it takes a number with bit/s, kbit/s, Mbit/s or Gbit/s (or without /s), or unlimited"
        }
        "size" => {
            "; it takes a number of bytes, with K, M or G (1000), or Ki, Mi or Gi (1024), and B if you like"
        }
        "percentage" => "; it takes a number with %, as in 5% or 0.05%",
        _ => "; it takes what a size or a time takes",
    }
}

/// A number with a unit out of a table of (unit, factor). Decimal fractions are allowed.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    // Upper and lower case are the same, as for figures: nobody means millibits.
    let mut known = units.iter();
    let (_, factor) = known.find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let whole: u64 = whole.parse().ok()?;
    // Twelve digits after the point are more than any unit here can show.
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?.min(13))?;
    if scale > 1_000_000_000_000 {
        return None;
    }
    let fraction: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let part = fraction * u128::from(*factor) / scale;
    whole
        .checked_mul(*factor)?
        .checked_add(u64::try_from(part).ok()?)
}

/// The number with the largest unit that leaves no remainder.
fn shown(number: u64, units: &[(&str, u64)]) -> String {
    let whole = |(_, factor): &&(&str, u64)| number % factor == 0;
    match units.iter().rev().find(whole) {
        Some((unit, factor)) if number > 0 => format!("{}{unit}", number / factor),
        _ => format!("{number}{}", units.first().map_or("", |(unit, _)| unit)),
    }
}

/// Declares a quantity: a wrapper that is read from a string, and written as one that means the same.
macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal, $example:literal, $read:expr, $write:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub $inner);

        impl FromStr for $name {
            type Err = BadQuantity;
            fn from_str(text: &str) -> Result<Self, BadQuantity> {
                let read: fn(&str) -> Option<$inner> = $read;
                read(text).map(Self).ok_or_else(|| BadQuantity {
                    text: text.to_owned(),
                    what: $what,
                    example: $example,
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let write: fn($inner) -> String = $write;
                f.write_str(&write(self.0))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a ", $what, " such as \"", $example, "\""))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                from.deserialize_str(Visitor)
            }
        }
    };
}

const TIMES: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];
const RATES: [(&str, u64); 4] = [
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
];

/// Spellings beside those that are written, the same as for figures.
const MORE_RATES: [(&str, u64); 8] = [
    ("bit/s", 1),
    ("bit", 1),
    ("kbit/s", 1_000),
    ("kbit", 1_000),
    ("Mbit/s", 1_000_000),
    ("Mbit", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Gbit", 1_000_000_000),
];
const SIZES: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("K", 1_000),
    ("KB", 1_000),
    ("M", 1_000_000),
    ("MB", 1_000_000),
    ("G", 1_000_000_000),
    ("GB", 1_000_000_000),
    ("Ki", 1 << 10),
    ("KiB", 1 << 10),
    ("Mi", 1 << 20),
    ("MiB", 1 << 20),
    ("Gi", 1 << 30),
    ("GiB", 1 << 30),
];

quantity!(
    /// A span of time.
    Span(Duration), "time", "20ms",
    |text| quantity(text, &TIMES).map(Duration::from_nanos),
    |span| shown(span.as_nanos(), &TIMES)
);

quantity!(
    /// A rate, written in bits.
    Speed(Rate), "rate", "8Mbit/s",
    |text| {
        if text.trim() == "unlimited" {
            return Some(Rate::MAX);
        }
        let bits = quantity(text, &MORE_RATES)?;
        (bits >= 8).then(|| Rate::from_bits_per_sec(bits))
    },
    |rate| match rate {
        Rate::MAX => "unlimited".to_owned(),
        rate => shown(rate.as_bytes_per_sec().saturating_mul(8), &RATES),
    }
);

quantity!(
    /// A number of bytes.
    Size(u64), "size", "64KB",
    |text| quantity(text, &SIZES),
    |size| shown(size, &[("", 1), ("KB", 1_000), ("MB", 1_000_000)])
);

quantity!(
    /// A probability, written in percent.
    Percent(Chance), "percentage", "1%",
    |text| {
        let units = [("%", 10_000)];
        let ppm = quantity(text, &units)?;
        u32::try_from(ppm).ok().filter(|ppm| *ppm <= 1_000_000).map(Chance::ppm)
    },
    |chance| {
        let ppm = chance.as_ppm();
        let fraction = format!("{:04}", ppm % 10_000);
        match fraction.trim_end_matches('0') {
            "" => format!("{}%", ppm / 10_000),
            fraction => format!("{}.{fraction}%", ppm / 10_000),
        }
    }
);

/// A buffer: bytes, or how long the line takes to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// In bytes.
    Bytes(u64),
    /// In time at the line's rate.
    Time(Duration),
}

impl FromStr for Depth {
    type Err = BadQuantity;
    fn from_str(text: &str) -> Result<Self, BadQuantity> {
        let size = text.parse::<Size>().map(|size| Self::Bytes(size.0));
        size.or_else(|_| text.parse::<Span>().map(|span| Self::Time(span.0)))
            .map_err(|_| BadQuantity {
                text: text.to_owned(),
                what: "size or time",
                example: "80ms",
            })
    }
}

impl Serialize for Depth {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes(bytes) => Size(*bytes).serialize(to),
            Self::Time(time) => Span(*time).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Depth {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_mean_what_they_say() {
        assert_eq!("20ms".parse(), Ok(Span(Duration::from_millis(20))));
        assert_eq!("1.5 s".parse(), Ok(Span(Duration::from_millis(1500))));
        assert_eq!(
            "8Mbit/s".parse(),
            Ok(Speed(Rate::from_bits_per_sec(8_000_000)))
        );
        assert_eq!("unlimited".parse(), Ok(Speed(Rate::MAX)));
        assert_eq!("1_000".parse(), Ok(Size(1000)));
        assert_eq!("1.5MiB".parse(), Ok(Size(3 << 19)));
        assert_eq!("0.1%".parse(), Ok(Percent(Chance::ppm(1000))));
        assert_eq!("80ms".parse(), Ok(Depth::Time(Duration::from_millis(80))));
        assert_eq!("64KB".parse(), Ok(Depth::Bytes(64_000)));
    }

    #[test]
    fn what_is_written_means_what_was_read() {
        for text in ["0ns", "1ns", "1500ms", "20s"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["8bit/s", "1504kbit/s", "2Gbit/s", "unlimited"] {
            assert_eq!(text.parse::<Speed>().unwrap().to_string(), text);
        }
        for text in ["0", "1001", "64KB", "3MB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        for ppm in [0, 1, 99, 100, 3_333, 10_000, 123_456, 999_999, 1_000_000] {
            let percent = Percent(Chance::ppm(ppm));
            assert_eq!(percent.to_string().parse(), Ok(percent));
        }
        assert_eq!(Percent(Chance::ppm(12_300)).to_string(), "1.23%");
    }

    /// Who has learnt the words of one part of the laboratory knows those of the others.
    #[test]
    fn figures_scenarios_and_commands_spell_alike() {
        for text in ["8mbit", "8Mbit", "8mbit/s", "8000kbit"] {
            assert_eq!(text.parse(), Ok(Speed(Rate::from_bits_per_sec(8_000_000))));
        }
        for text in ["64k", "64KB", "64kb", "64000"] {
            assert_eq!(text.parse(), Ok(Size(64_000)), "{text}");
        }
        for text in ["64ki", "64KiB"] {
            assert_eq!(text.parse(), Ok(Size(65_536)), "{text}");
        }
        // A share or per cent? Who writes it says which.
        let told = "0.05".parse::<Percent>().unwrap_err().to_string();
        assert!(told.contains("5% or 0.05%"), "{told}");
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in [
            "",
            "ms",
            "20",
            "20 parsecs",
            "-1ms",
            "1.2.3ms",
            "1.00000000000001s",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert!("0bit/s".parse::<Speed>().is_err());
        assert!("101%".parse::<Percent>().is_err());
        assert!("99999999999999999999".parse::<Size>().is_err());
        let error = "fast".parse::<Speed>().unwrap_err().to_string();
        assert!(
            error.contains("\"fast\"") && error.contains("8Mbit/s"),
            "{error}"
        );
    }
}
