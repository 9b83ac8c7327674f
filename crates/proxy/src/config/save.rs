//! A limit that was changed by order, written into the configuration file: comments, order and everything else stay as they are.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::Path;

use manypath_control::wire::{LimitOf, LimitOrder};
use manypath_io::path::rate;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::check::read_file;
use crate::limits::{beside, ways};
use crate::units::exact_bytes;

/// Writes a limit into a file. Nothing is written that could not be read.
///
/// # Errors
/// What is wrong, and the file is as it was.
pub fn save(file: &Path, order: &LimitOrder) -> Result<(), String> {
    let told = |what: &str, error: &dyn std::fmt::Display| {
        format!(
            "the limit holds, and is not in {}: {what}{error}",
            file.display()
        )
    };
    // What a link leads to is changed, not the link.
    let file = fs::canonicalize(file).map_err(|error| told("", &error))?;
    let text = fs::read_to_string(&file).map_err(|error| told("", &error))?;
    let text = with_limit(&text, order).map_err(|why| told("", &why))?;
    let meta = fs::metadata(&file).map_err(|error| told("", &error))?;
    let next = &beside(&file, ".next");
    let write = || {
        let mut to = fs::File::create(next)?;
        to.set_permissions(meta.permissions())?;
        // Who is not root keeps its own.
        let _ = fchown(&to, Some(meta.uid()), Some(meta.gid()));
        to.write_all(text.as_bytes())?;
        to.sync_data()
    };
    let written = write().map_err(|error| error.to_string());
    let written = written.and_then(|()| read_file(next).map(drop).map_err(|f| f.to_string()));
    let written = written.and_then(|()| fs::rename(next, &file).map_err(|e| e.to_string()));
    written.map_err(|error| {
        // A part of it is of no use.
        let _ = fs::remove_file(next);
        told("", &error)
    })
}

/// The text of a configuration with a limit as it was ordered.
fn with_limit(text: &str, order: &LimitOrder) -> Result<String, String> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|e: toml_edit::TomlError| e.to_string())?;
    let (name, ways) = ways(order);
    let table: &mut dyn TableLike = match order.of {
        LimitOf::Class => class_of(&mut document, name)
            .ok_or_else(|| format!("it has no [[class]] that is called {name}"))?,
        LimitOf::Path => path_of(&mut document, name)?,
        LimitOf::Connection => return Err("a connection has no place in a file".to_owned()),
    };
    set(table, order, ways);
    Ok(document.to_string())
}

/// `[path.NAME]` that is known by addresses or has this interface, or a new one.
fn path_of<'d>(document: &'d mut DocumentMut, name: &str) -> Result<&'d mut dyn TableLike, String> {
    let odd = || "its [path] is no table".to_owned();
    let paths = document.entry("path").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let paths = paths.as_table_like_mut().ok_or_else(odd)?;
    let is_it = |(key, path): &(&str, &Item)| {
        let interface = path.get("interface").and_then(Item::as_str);
        interface.map_or(*key == name, |interface| interface == name)
    };
    let key = paths.iter().find(is_it).map(|(key, _)| key.to_owned());
    let key = key.unwrap_or_else(|| {
        let mut path = Table::new();
        path.insert("interface", toml_edit::value(name));
        paths.insert(name, Item::Table(path));
        name.to_owned()
    });
    let path = paths.get_mut(&key).and_then(Item::as_table_like_mut);
    path.ok_or_else(odd)
}

/// `[[class]]` of this name; one without a name is called by its number.
fn class_of<'d>(document: &'d mut DocumentMut, name: &str) -> Option<&'d mut dyn TableLike> {
    let classes = document.get_mut("class")?.as_array_of_tables_mut()?;
    let mut all = (1..).zip(classes.iter_mut());
    let called = |number: usize, class: &Table| match class.get("name") {
        Some(called) => called.as_str() == Some(name),
        None => format!("class{number}") == name,
    };
    let (_, class) = all.find(|(number, class)| called(*number, class))?;
    Some(class)
}

/// Sets `rate` for some ways, up and down; the other one stays.
fn set(table: &mut dyn TableLike, order: &LimitOrder, ways: [bool; 2]) {
    let old = table.get("rate");
    let of = |way: &str| match old {
        // One text is for both.
        Some(Item::Value(Value::String(both))) => Some(both.value().clone()),
        Some(rates) => rates.get(way).and_then(Item::as_str).map(str::to_owned),
        None => None,
    };
    let new = order.bits_per_second.map(rate::text);
    let [up, down] = [("up", ways[0]), ("down", ways[1])].map(|(way, is)| match is {
        true => new.clone(),
        false => of(way),
    });
    let burst = match (
        order.burst,
        new.is_some() && ways[0],
        old.and_then(|rate| rate.get("burst")),
    ) {
        (Some(bytes), true, _) if order.of == LimitOf::Path => {
            Some(Value::from(exact_bytes(bytes)))
        }
        // That of another rate says nothing of this one.
        (_, true, _) => None,
        (_, false, old) => old.and_then(Item::as_value).cloned(),
    };
    if up.is_none() && down.is_none() {
        table.remove("rate");
        return;
    }
    let value = match order.of == LimitOf::Class && up == down && burst.is_none() {
        true => Value::from(up.unwrap_or_default()),
        false => {
            let mut rates = InlineTable::new();
            let keys = [("up", up), ("down", down)];
            for (key, rate) in keys
                .into_iter()
                .filter_map(|(key, rate)| Some((key, rate?)))
            {
                rates.insert(key, Value::from(rate));
            }
            if let Some(mut burst) = burst {
                burst.decor_mut().clear();
                rates.insert("burst", burst);
            }
            Value::InlineTable(rates)
        }
    };
    // A comment behind the old one stays.
    let decor = old
        .and_then(Item::as_value)
        .map(|value| value.decor().clone());
    let mut item = toml_edit::value(value);
    if let (Some(decor), Some(value)) = (decor, item.as_value_mut()) {
        *value.decor_mut() = decor;
    }
    table.insert("rate", item);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(of: LimitOf, name: &str, bits: Option<u64>) -> LimitOrder {
        LimitOrder {
            of,
            name: name.to_owned(),
            bits_per_second: bits,
            burst: None,
        }
    }

    #[test]
    fn a_limit_is_written_where_it_belongs_and_everything_else_stays() {
        let path = |name: &str, bits| order(LimitOf::Path, name, bits);
        let class = |name: &str, bits| order(LimitOf::Class, name, bits);
        let five = Some(5_000_000);
        for (before, order, after) in [
            (
                "# ours\n[path.lte] # modem\ninterface = \"wwan0\"\nrate = \"20mbit\" # until May\nweight = 2\n",
                path("wwan0", five),
                "# ours\n[path.lte] # modem\ninterface = \"wwan0\"\nrate = { up = \"5mbit\", down = \"20mbit\" } # until May\nweight = 2\n",
            ),
            (
                "[path.lte]\ninterface = \"wwan0\"\nrate = { up = \"1mbit\", down = \"2mbit\", burst = \"9Ki\" }\n",
                path("wwan0", five),
                "[path.lte]\ninterface = \"wwan0\"\nrate = { up = \"5mbit\", down = \"2mbit\" }\n",
            ),
            (
                "[path.lte]\ninterface = \"wwan0\"\nrate = { up = \"1mbit\" }\n",
                path("wwan0", None),
                "[path.lte]\ninterface = \"wwan0\"\n",
            ),
            (
                "[path.lte]\ninterface = \"wwan0\"\nrate = { up = \"1mbit\", burst = \"9Ki\" }\n",
                path("wwan0/down", five),
                "[path.lte]\ninterface = \"wwan0\"\nrate = { up = \"1mbit\", down = \"5mbit\", burst = \"9Ki\" }\n",
            ),
            (
                "[path.lan]\nremote = \"10.0.0.0/8\"\nrate = \"1mbit\"\n",
                path("lan", five),
                "[path.lan]\nremote = \"10.0.0.0/8\"\nrate = { up = \"5mbit\", down = \"1mbit\" }\n",
            ),
            (
                "paths = \"routed\"\n",
                path("eth0", five),
                "paths = \"routed\"\n\n[path.eth0]\ninterface = \"eth0\"\nrate = { up = \"5mbit\" }\n",
            ),
            (
                "[[class]]\nname = \"a\"\nrate = \"1mbit\"\n\n[[class]]\nname = \"b\"\nrate = \"1mbit\"\n",
                class("b", five),
                "[[class]]\nname = \"a\"\nrate = \"1mbit\"\n\n[[class]]\nname = \"b\"\nrate = \"5mbit\"\n",
            ),
            (
                "[[class]]\nrate = \"1mbit\"\n",
                class("class1/down", five),
                "[[class]]\nrate = { up = \"1mbit\", down = \"5mbit\" }\n",
            ),
            (
                "[[class]]\nname = \"a\"\nrate = { down = \"1mbit\" }\nconnections = 5\n",
                class("a/down", None),
                "[[class]]\nname = \"a\"\nconnections = 5\n",
            ),
        ] {
            assert_eq!(
                with_limit(before, &order).as_deref(),
                Ok(after),
                "{order:?}"
            );
        }
        for (text, order, why) in [
            (
                "",
                order(LimitOf::Connection, "3.1", five),
                "no place in a file",
            ),
            ("", class("a", five), "no [[class]]"),
            ("path = 1\n", path("eth0", five), "no table"),
            ("[", path("eth0", five), "TOML parse error"),
        ] {
            let told = with_limit(text, &order).expect_err(why);
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_file_that_would_not_be_right_is_as_it_was() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("proxy.toml");
        let listen =
            "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\noutside = \"mptcp\"\n";
        let text =
            format!("{listen}[path.lan]\nremote = \"10.0.0.0/8\"\nrate = {{ up = \"1mbit\" }}\n");
        fs::write(&file, &text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("ours");
        let lan = |bits| order(LimitOf::Path, "lan", bits);
        // Without a rate the path would limit nothing.
        let told = save(&file, &lan(None)).expect_err("that is no file");
        assert!(told.contains("limits nothing"), "{told}");
        assert_eq!(fs::read_to_string(&file).expect("there"), text);
        save(&file, &lan(Some(2_000_000))).expect("that is one");
        let saved = fs::read_to_string(&file).expect("there");
        assert_eq!(saved, text.replace("1mbit", "2mbit"));
        let mode = fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 1);
    }
}
