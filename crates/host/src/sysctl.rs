//! Kernel settings below `/proc/sys/net`, set with the old value remembered.

use crate::journal::{Journal, Undo};
use std::fs;
use std::io;
use std::ops::RangeInclusive;

const RESERVED: &str = "net/ipv4/ip_local_reserved_ports";

fn read(key: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/sys/{key}")).map(|s| s.trim().to_owned())
}

fn write(key: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{key}"), format!("{value}\n")).map_err(|e| {
        io::Error::new(
            e.kind(),
            format!("the kernel setting {key} cannot be changed: {e}"),
        )
    })
}

/// Sets `key` to `value` (one word). If another live process of ours has changed it already, its old value is inherited, so that
/// whoever ends last restores it.
pub(super) fn set(journal: &mut Journal, key: &str, value: &str) -> io::Result<()> {
    let now = read(key)?;
    let inherited = journal.others()?.into_iter().find_map(|u| match u {
        Undo::Sysctl { key: k, before, .. } if k == key => Some(before),
        _ => None,
    });
    if now == value && inherited.is_none() {
        return Ok(());
    }
    journal.record(Undo::Sysctl {
        key: key.to_owned(),
        before: inherited.unwrap_or_else(|| now.clone()),
        ours: value.to_owned(),
    })?;
    if now == value {
        Ok(())
    } else {
        write(key, value)
    }
}

/// Undoes [`set`], unless somebody else has set another value since or another process still needs ours.
pub(super) fn restore(key: &str, before: &str, ours: &str, others: &[Undo]) -> io::Result<()> {
    let needed = others
        .iter()
        .any(|u| matches!(u, Undo::Sysctl { key: k, .. } if k == key));
    if needed || read(key)? != ours {
        return Ok(());
    }
    write(key, before)
}

type Ranges = Vec<RangeInclusive<u16>>;

fn parse_ranges(text: &str) -> Ranges {
    text.split(',')
        .filter_map(|part| {
            let (low, high) = part
                .trim()
                .split_once('-')
                .unwrap_or((part.trim(), part.trim()));
            Some(low.parse().ok()?..=high.parse().ok()?)
        })
        .collect()
}

fn format_ranges(ranges: &[RangeInclusive<u16>]) -> String {
    let texts: Vec<String> = ranges
        .iter()
        .map(|r| format!("{}-{}", r.start(), r.end()))
        .collect();
    texts.join(",")
}

fn without(ranges: &[RangeInclusive<u16>], low: u16, high: u16) -> Ranges {
    let mut left = Vec::new();
    for r in ranges {
        if *r.start() < low {
            left.push(*r.start()..=(*r.end()).min(low - 1));
        }
        if *r.end() > high {
            left.push((*r.start()).max(high + 1)..=*r.end());
        }
    }
    left
}

/// Ports outside what the host hands out by itself and what is reserved already: `count` of them, as high as possible.
pub(super) fn choose_ports(count: u16) -> io::Result<RangeInclusive<u16>> {
    let text = read("net/ipv4/ip_local_port_range")?;
    let mut numbers = text.split_whitespace().filter_map(|n| n.parse().ok());
    let ephemeral = numbers.next().unwrap_or(32768)..=numbers.next().unwrap_or(60999);
    let reserved = parse_ranges(&read(RESERVED)?);
    pick_ports(count, &ephemeral, &reserved).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AddrInUse,
            "no range of local ports is left for connections of our own",
        )
    })
}

/// Prefers ports that the host would never use for connections of its own; reserving makes the others safe too.
fn pick_ports(
    count: u16,
    ephemeral: &RangeInclusive<u16>,
    reserved: &[RangeInclusive<u16>],
) -> Option<RangeInclusive<u16>> {
    let free = |low: u16, high: u16, taken: &[RangeInclusive<u16>]| {
        taken.iter().all(|r| *r.end() < low || *r.start() > high)
    };
    let mut strict = reserved.to_vec();
    strict.push(ephemeral.clone());
    for taken in [&strict[..], reserved] {
        let mut high = u16::MAX;
        while high > 1024 + count {
            let low = high - (count - 1);
            if free(low, high, taken) {
                return Some(low..=high);
            }
            high = high.saturating_sub(64);
        }
    }
    None
}

/// Keeps the host from handing out `range` to connections of its own.
pub(super) fn reserve_ports(journal: &mut Journal, range: &RangeInclusive<u16>) -> io::Result<()> {
    let mut ranges = parse_ranges(&read(RESERVED)?);
    journal.record(Undo::ReservedPorts(*range.start(), *range.end()))?;
    ranges.push(range.clone());
    write(RESERVED, &format_ranges(&ranges))
}

/// Undoes [`reserve_ports`].
pub(super) fn release_ports(low: u16, high: u16) -> io::Result<()> {
    let ranges = parse_ranges(&read(RESERVED)?);
    write(RESERVED, &format_ranges(&without(&ranges, low, high)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_out() {
        let ranges = parse_ranges("80,1000-2000,40000-50000");
        assert_eq!(ranges, [80..=80, 1000..=2000, 40000..=50000]);
        assert_eq!(
            without(&ranges, 1500, 45000),
            [80..=80, 1000..=1499, 45001..=50000]
        );
        assert_eq!(without(&ranges, 80, 80), [1000..=2000, 40000..=50000]);
        assert!(parse_ranges("").is_empty());
        assert_eq!(format_ranges(&[1..=2, 3..=3]), "1-2,3-3");
    }

    #[test]
    fn ports_avoid_what_the_host_uses() {
        assert_eq!(pick_ports(4096, &(32768..=60999), &[]), Some(61440..=65535));
        let next = pick_ports(4096, &(32768..=60999), &[61440..=65535]).expect("room below");
        assert!(*next.end() < 32768);
        // Where everything belongs to the host's own range, a reserved part of it serves.
        assert_eq!(pick_ports(4096, &(1024..=65535), &[]), Some(61440..=65535));
        assert_eq!(pick_ports(60000, &(32768..=60999), &[20000..=40000]), None);
    }
}
