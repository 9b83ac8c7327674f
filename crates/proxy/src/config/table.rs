//! Reads tables of a TOML document so that everything wrong in it is told at once: each value with its place, each unknown key
//! with the nearest known one.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Fault, place};
use crate::units::{parse_bytes, parse_period};

/// What was found to be wrong so far, by its place in the text.
#[derive(Debug, Default)]
pub(super) struct Notes {
    faults: RefCell<Vec<(usize, String)>>,
}

impl Notes {
    /// Notes a fault at a byte of the text.
    pub(super) fn wrong(&self, at: usize, message: impl Into<String>) {
        self.faults.borrow_mut().push((at, message.into()));
    }

    /// Everything that was noted, in the order of the text.
    pub(super) fn into_faults(self, text: &str) -> Vec<Fault> {
        let mut faults = self.faults.into_inner();
        faults.sort();
        faults.dedup();
        let fault = |(at, message)| {
            let (line, column) = place(text, at);
            Fault {
                line,
                column,
                message,
            }
        };
        faults.into_iter().map(fault).collect()
    }
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

/// A table that is being read.
#[derive(Debug)]
pub(super) struct Table<'d> {
    notes: &'d Notes,
    /// As it stands in the file: `[limits]`.
    name: String,
    /// Where it begins.
    pub(super) at: usize,
    entries: &'d DeTable<'d>,
    /// Keys that were asked for: the known ones.
    known: RefCell<Vec<&'static str>>,
}

type Value<'d> = Spanned<DeValue<'d>>;

impl<'d> Table<'d> {
    /// The document itself.
    pub(super) fn document(notes: &'d Notes, document: &'d Spanned<DeTable<'d>>) -> Self {
        Self::new(notes, String::new(), 0, document.get_ref())
    }

    fn new(notes: &'d Notes, name: String, at: usize, entries: &'d DeTable<'d>) -> Self {
        Self {
            notes,
            name,
            at,
            entries,
            known: RefCell::default(),
        }
    }

    /// Notes a fault of this table.
    pub(super) fn wrong(&self, at: usize, message: impl Into<String>) {
        self.notes.wrong(at, message);
    }

    /// The value of a key, which is known from now on.
    fn value(&self, key: &'static str) -> Option<&'d Value<'d>> {
        self.known.borrow_mut().push(key);
        self.entries.get(key)
    }

    /// Notes that a value is of another kind than is wanted.
    fn not_a(&self, key: &str, value: &Value<'_>, wanted: &str) {
        let is = match value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let message = format!("`{key}` is {is}, and wants {wanted}");
        self.wrong(value.span().start, message);
    }

    /// Text that has to be read further; `wanted` is an example.
    pub(super) fn read<T, E: Display>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<At<T>> {
        let value = self.value(key)?;
        self.read_value(key, value, wanted, &read)
    }

    fn read_value<T, E: Display>(
        &self,
        key: &str,
        value: &Value<'_>,
        wanted: &str,
        read: &impl Fn(&str) -> Result<T, E>,
    ) -> Option<At<T>> {
        let at = value.span().start;
        let DeValue::String(text) = value.get_ref() else {
            self.not_a(key, value, wanted);
            return None;
        };
        match read(text) {
            Ok(value) => Some(At { value, at }),
            Err(error) => {
                self.wrong(at, format!("`{key}`: {error}"));
                None
            }
        }
    }

    /// One text, or a list of them.
    pub(super) fn list<T, E: Display>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let wanted = format!("{wanted}, or a list of such");
        let one = |value: &Value<'d>| self.read_value(key, value, &wanted, &read);
        self.each(key, |value| Some(one(value)?.value))
    }

    /// The values of a key, be it one or a list; a list without any is a mistake: it would mean "none" where a missing key
    /// means "all".
    fn each<T>(&self, key: &'static str, read: impl Fn(&'d Value<'d>) -> Option<T>) -> Vec<T> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => {
                let message = format!("`{key}` is an empty list: leave it out to mean any");
                self.wrong(value.span().start, message);
                Vec::new()
            }
            DeValue::Array(list) => list.iter().filter_map(read).collect(),
            _ => read(value).into_iter().collect(),
        }
    }

    /// Ports: a number, a range `"8000-8999"`, or a list of them.
    pub(super) fn ports(&self, key: &'static str) -> Vec<RangeInclusive<u16>> {
        const WANTED: &str = "a port, a range as \"8000-8999\", or a list of such";
        self.each(key, |value| match value.get_ref() {
            DeValue::Integer(_) => {
                let port = u16::try_from(self.integer(key, value, 1..=65535)?).ok()?;
                Some(port..=port)
            }
            _ => Some(self.read_value(key, value, WANTED, &read_ports)?.value),
        })
    }

    /// A number within bounds.
    pub(super) fn number(&self, key: &'static str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        self.integer(key, value, bounds)
    }

    fn integer(&self, key: &str, value: &Value<'_>, bounds: RangeInclusive<u64>) -> Option<u64> {
        let wanted = format!("a number from {} to {}", bounds.start(), bounds.end());
        let DeValue::Integer(number) = value.get_ref() else {
            self.not_a(key, value, &wanted);
            return None;
        };
        let read = i128::from_str_radix(number.as_str(), number.radix()).ok();
        let read = read.and_then(|n| u64::try_from(n).ok());
        let read = read.filter(|n| bounds.contains(n));
        if read.is_none() {
            let message = format!("`{key}` is {}, and wants {wanted}", number.as_str());
            self.wrong(value.span().start, message);
        }
        read
    }

    /// `true` or `false`.
    pub(super) fn switch(&self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let DeValue::Boolean(on) = value.get_ref() else {
            self.not_a(key, value, "true or false");
            return None;
        };
        Some(*on)
    }

    /// A time as `"10s"`, within bounds; `Some(None)` for `"off"`, where that is allowed.
    pub(super) fn time(
        &self,
        key: &'static str,
        bounds: RangeInclusive<Duration>,
        off: bool,
    ) -> Option<Option<Duration>> {
        let wanted = match off {
            true => "a time as \"10s\", or \"off\"",
            false => "a time as \"10s\"",
        };
        let read = |text: &str| match text {
            "off" if off => Ok(None),
            text => match parse_period(text)? {
                time if bounds.contains(&time) => Ok(Some(time)),
                _ => Err(format!(
                    "'{text}' is not from {:?} to {:?}",
                    bounds.start(),
                    bounds.end()
                )),
            },
        };
        Some(self.read(key, wanted, read)?.value)
    }

    /// An amount as `"64Ki"`, or a number of bytes, within bounds.
    pub(super) fn amount(&self, key: &'static str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        if let DeValue::Integer(_) = value.get_ref() {
            return self.integer(key, value, bounds);
        }
        let read = |text: &str| match parse_bytes(text)? {
            bytes if bounds.contains(&bytes) => Ok(bytes),
            _ => Err(format!(
                "'{text}' is not from {} to {} bytes",
                bounds.start(),
                bounds.end()
            )),
        };
        let read = self.read_value(key, value, "an amount as \"64Ki\"", &read)?;
        Some(read.value)
    }

    /// A file, by its whole path.
    pub(super) fn path(&self, key: &'static str) -> Option<At<PathBuf>> {
        self.read(key, "the path of a file", read_path)
    }

    /// A table within this one.
    pub(super) fn table(&self, key: &'static str) -> Option<Self> {
        let value = self.value(key)?;
        let DeValue::Table(entries) = value.get_ref() else {
            self.not_a(key, value, "a table");
            return None;
        };
        let name = match self.name.as_str() {
            "" => format!("[{key}]"),
            name => format!("`{key}` of {name}"),
        };
        Some(Self::new(self.notes, name, value.span().start, entries))
    }

    /// Whether the value of a key is a table.
    pub(super) fn is_table(&self, key: &str) -> bool {
        let value = self.entries.get(key);
        value.is_some_and(|value| matches!(value.get_ref(), DeValue::Table(_)))
    }

    /// The tables `[key.NAME]`, in the order of their names.
    pub(super) fn named_tables(&self, key: &'static str) -> Vec<(String, Self)> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let wanted = format!("tables: write [{key}.NAME]");
        let DeValue::Table(named) = value.get_ref() else {
            self.not_a(key, value, &wanted);
            return Vec::new();
        };
        let read = |(name, value): (&'d Spanned<_>, &'d Value<'d>)| {
            let name: &std::borrow::Cow<'_, str> = name.get_ref();
            let DeValue::Table(entries) = value.get_ref() else {
                self.not_a(&format!("{key}.{name}"), value, &wanted);
                return None;
            };
            let told = format!("[{key}.{name}]");
            let table = Self::new(self.notes, told, value.span().start, entries);
            Some((name.clone().into_owned(), table))
        };
        named.iter().filter_map(read).collect()
    }

    /// The tables `[[key]]`.
    pub(super) fn tables(&self, key: &'static str) -> Vec<Self> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let wanted = format!("tables: write [[{key}]]");
        let DeValue::Array(list) = value.get_ref() else {
            self.not_a(key, value, &wanted);
            return Vec::new();
        };
        let read = |value: &'d Value<'d>| {
            let DeValue::Table(entries) = value.get_ref() else {
                self.not_a(key, value, &wanted);
                return None;
            };
            let name = format!("[[{key}]]");
            Some(Self::new(self.notes, name, value.span().start, entries))
        };
        list.iter().filter_map(read).collect()
    }

    /// The table `key`, or the tables of its list.
    pub(super) fn one_or_more(&self, key: &'static str) -> Vec<Self> {
        let name = format!("`{key}` of {}", self.name);
        self.each(key, |value| {
            let DeValue::Table(entries) = value.get_ref() else {
                self.not_a(key, value, "a table, or a list of such");
                return None;
            };
            Some(Self::new(
                self.notes,
                name.clone(),
                value.span().start,
                entries,
            ))
        })
    }

    /// A key that must be there.
    pub(super) fn needed<T>(&self, key: &'static str, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.entries.contains_key(key) {
            self.wrong(self.at, format!("{} has no `{key}`", self.name));
        }
        value
    }

    /// Where a key's value stands, if it is there.
    pub(super) fn place_of(&self, key: &str) -> Option<usize> {
        self.entries.get(key).map(|value| value.span().start)
    }

    /// A key that is known and does not belong here.
    pub(super) fn refuse(&self, key: &'static str, why: &str) {
        if let Some(value) = self.value(key) {
            self.wrong(value.span().start, format!("`{key}` {why}"));
        }
    }

    /// Every key that nobody asked for is a mistake.
    pub(super) fn end(self) {
        let known = self.known.into_inner();
        for key in self.entries.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let place = match self.name.as_str() {
                "" => "the file".to_owned(),
                name => name.to_owned(),
            };
            let message = match nearest(name, &known) {
                Some(near) => format!("unknown key `{name}` in {place}: is `{near}` meant?"),
                None => format!(
                    "unknown key `{name}` in {place}: it has {}",
                    known.join(", ")
                ),
            };
            self.notes.wrong(key.span().start, message);
        }
    }
}

/// The known key that is most like a wrong one, if any is like it.
fn nearest(wrong: &str, known: &[&'static str]) -> Option<&'static str> {
    let plain = wrong.to_lowercase().replace('-', "_");
    let far = |key: &&'static str| strsim::damerau_levenshtein(&plain, key);
    // A third of the letters: `usres` is `users`, and `color` is nothing.
    let near = known.iter().copied().min_by_key(far)?;
    (far(&near) <= (plain.chars().count() / 3).max(1)).then_some(near)
}

/// A relative path would mean another file after the next start from elsewhere.
pub(super) fn read_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(format!(
            "'{text}' is not a whole path, which begins with a /"
        )),
    }
}

/// `80` or `8000-8999`.
fn read_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("'{text}' is no port or range of ports, as 443 or \"8000-8999\"");
    let one = |text: &str| {
        let port = text.trim().parse::<u16>().ok();
        port.filter(|port| *port != 0).ok_or_else(wrong)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (one(first)?, one(last)?);
    if first > last {
        return Err(wrong());
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_is_answered_by_the_nearest() {
        let known = ["users", "opening", "on", "proxy_protocol"];
        for (wrong, near) in [
            ("user", Some("users")),
            ("usres", Some("users")),
            ("Openning", Some("opening")),
            ("proxy-protocol", Some("proxy_protocol")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(nearest(wrong, &known), near, "{wrong}");
        }
    }

    #[test]
    fn ports_are_numbers_and_ranges() {
        assert_eq!(read_ports("443"), Ok(443..=443));
        assert_eq!(read_ports("8000-8999"), Ok(8000..=8999));
        for wrong in ["", "0", "0-5", "9-8", "65536", "a", "1-2-3", "-1"] {
            assert!(read_ports(wrong).is_err(), "{wrong}");
        }
    }
}
