//! Rates as users write them: `5mbit`, `1.5mbit`, `800kbit`, `2gbit/s`.

/// Bits a second, at least one. `None` where it is no rate: no unit, zero, negative, not a number, or beyond 2^64 - 1.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1,
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    // A unit has nine decimals at the most; what is beyond is less than a bit a second.
    let (shown, scale) = (part.get(..part.len().min(9))?, part.len().min(9));
    let tenths: u64 = shown.parse().ok()?;
    let scale = 10_u64.pow(u32::try_from(scale).ok()?);
    let part = u128::from(tenths) * u128::from(unit) / u128::from(scale);
    let bits = whole
        .checked_mul(unit)?
        .checked_add(u64::try_from(part).ok()?)?;
    (bits > 0).then_some(bits)
}

/// As [`parse`] reads it.
#[must_use]
pub fn text(bits: u64) -> String {
    for (unit, name) in [
        (1_000_000_000, "gbit"),
        (1_000_000, "mbit"),
        (1_000, "kbit"),
    ] {
        if bits % unit == 0 {
            return format!("{}{name}", bits / unit);
        }
    }
    format!("{bits}bit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_with_a_unit() {
        for (text, bits) in [
            ("1bit", 1),
            ("800kbit", 800_000),
            ("5mbit", 5_000_000),
            ("1.5Mbit/s", 1_500_000),
            ("0.0000000019gbit", 1),
            ("2gbit/s", 2_000_000_000),
            ("18446744073709551615bit", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(bits), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "",
            "5",
            "mbit",
            "0bit",
            "0.0mbit",
            "-1mbit",
            "+1mbit",
            "NaNbit",
            "1e30bit",
            "1,5mbit",
            ".mbit",
            "5.mbit",
            "5mb",
            "5 mbit",
            "18446744073709551616bit",
            "18446744073709551615gbit",
            "0.1bit",
            "1.2.3mbit",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_rate_is_written_as_it_is_read() {
        for bits in [1, 1_500_000, 2_000_000_000, 999, u64::MAX] {
            assert_eq!(parse(&text(bits)), Some(bits));
        }
    }
}
