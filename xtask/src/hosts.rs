//! `cargo xtask hosts`: what hosts and paths do to connections, with which attachment that is tested, and whether it holds.
//!
//! Owns the table `docs/hosts.md`. Results are what the test programs themselves report; who skipped its test does not hold.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

use crate::check::Findings;
use crate::results::{self, Outcome, Results};
use crate::source::Source;
use crate::workspace::root;

const SITUATIONS: &str = include_str!("../data/hosts.toml");
const PAGE: &str = "docs/hosts.md";
const COLUMNS: [&str; 3] = ["packet", "tun", "other"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    situation: Vec<Situation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Situation {
    issue: String,
    what: String,
    #[serde(default)]
    packet: Cell,
    #[serde(default)]
    tun: Cell,
    #[serde(default)]
    other: Cell,
}

/// A situation with an attachment.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Cell {
    /// The tests of it, as the test program calls them.
    Tests(Vec<String>),
    /// Why there are none.
    Without(String),
}

impl Default for Cell {
    fn default() -> Self {
        Self::Tests(Vec::new())
    }
}

impl Situation {
    fn cells(&self) -> [&Cell; 3] {
        [&self.packet, &self.tun, &self.other]
    }
}

impl Cell {
    fn tests(&self) -> &[String] {
        match self {
            Self::Tests(tests) => tests,
            Self::Without(_) => &[],
        }
    }

    fn word(&self, results: &Results) -> &'static str {
        let outcomes = self.tests().iter().map(|name| results.get(name));
        // The worst of them.
        match outcomes.max_by_key(|outcome| outcome.map_or(2, |o| *o as u8)) {
            None => "-",
            Some(None) => "not run",
            Some(Some(Outcome::Holds)) => "holds",
            Some(Some(Outcome::Skipped)) => "skipped",
            Some(Some(Outcome::Fails)) => "FAILS",
        }
    }
}

fn load() -> Result<Vec<Situation>, String> {
    let file: File = toml::from_str(SITUATIONS).map_err(|e| format!("hosts.toml: {e}"))?;
    Ok(file.situation)
}

/// The page, which says with which tests.
fn page(situations: &[Situation]) -> String {
    let mut out = String::from(
        "# Situations\n\n\
         What hosts and paths do to connections, and the tests of it with packet sockets, with a TUN device, and without either (in \
         the simulator, of single parts, of the host's own TCP). `cargo xtask hosts` runs them and says which hold; `make test` says it \
         at its end. This page is made of `xtask/data/hosts.toml` by `cargo xtask hosts --write`.\n\n\
         | issue | situation | packet sockets | TUN device | neither |\n|---|---|---|---|---|\n",
    );
    for situation in situations {
        let _ = write!(out, "| {} | {} |", situation.issue, situation.what);
        for cell in situation.cells() {
            let text = match cell {
                Cell::Without(why) => why.clone(),
                Cell::Tests(tests) => {
                    let quoted = tests.iter().map(|name| format!("`{name}`"));
                    quoted.collect::<Vec<_>>().join("<br>")
                }
            };
            let _ = write!(out, " {text} |");
        }
        out.push('\n');
    }
    out
}

/// The step of `check`: each test that is named exists, no cell is forgotten, and the page is the table's.
pub(crate) fn findings(sources: &[Source]) -> Result<Findings, String> {
    let situations = load()?;
    let mut found = Findings::default();
    let mut known: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for source in sources {
        source.for_each_ident(&mut |name, line| {
            if source.is_test(line) {
                known.entry(name.to_owned()).or_default().push(&source.path);
            }
        });
    }
    for situation in &situations {
        let what = &situation.what;
        let named = situation.cells().into_iter().flat_map(Cell::tests);
        for test in named {
            let mut parts: Vec<&str> = test.split("::").filter(|part| *part != "tests").collect();
            let name = parts.pop().unwrap_or_default();
            let place = parts.pop().unwrap_or_default();
            let files = known.get(name).into_iter().flatten();
            if !files.into_iter().any(|path| path.contains(place)) {
                found.error(format!("'{what}': there is no test {test}"));
            }
        }
        let empty = |cell: &Cell| matches!(cell, Cell::Tests(tests) if tests.is_empty());
        let of_devices = [&situation.packet, &situation.tun];
        if of_devices.iter().any(|c| empty(c)) && empty(&situation.other) {
            found.error(format!(
                "'{what}': neither a test nor a reason for each attachment"
            ));
        }
    }
    let there = std::fs::read_to_string(root().join(PAGE)).unwrap_or_default();
    if there != page(&situations) {
        found.error(format!(
            "{PAGE} is not what xtask/data/hosts.toml says; `cargo xtask hosts --write` makes it"
        ));
    }
    found.note = Some(format!("{} situations", situations.len()));
    Ok(found)
}

/// The table, with what tests have come to.
pub(crate) fn table(results: &Results) -> Result<String, String> {
    let situations = load()?;
    let width = situations.iter().map(|s| s.what.len()).max().unwrap_or(0);
    let mut out = format!("{:<15} {:<width$}", "issue", "situation");
    for column in COLUMNS {
        let _ = write!(out, " {column:<8}");
    }
    out.push('\n');
    for situation in &situations {
        let _ = write!(out, "{:<15} {:<width$}", situation.issue, situation.what);
        for cell in situation.cells() {
            let _ = write!(out, " {:<8}", cell.word(results));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    Ok(out)
}

/// The command: runs the tests of the table, or makes the page.
pub(crate) fn run(args: &[String]) -> Result<bool, String> {
    let situations = load()?;
    match args {
        [] => {}
        [word] if word == "--write" => {
            let made = std::fs::write(root().join(PAGE), page(&situations));
            return made.map(|()| true).map_err(|e| format!("{PAGE}: {e}"));
        }
        other => return Err(format!("hosts does not know '{}'", other.join(" "))),
    }
    let cells = situations.iter().flat_map(|s| s.cells());
    let names: Vec<&str> = cells.flat_map(|c| c.tests()).map(String::as_str).collect();
    let mut words = vec!["--exact"];
    words.extend(&names);
    let (passed, results) = results::run(&["test", "--workspace", "--lib", "--tests"], &words)?;
    print!("{}", table(&results)?);
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_as_good_as_its_worst_test() {
        let results: Results = [
            ("a", Outcome::Holds),
            ("b", Outcome::Skipped),
            ("c", Outcome::Fails),
        ]
        .map(|(name, outcome)| (name.to_owned(), outcome))
        .into();
        let word = |names: &[&str]| {
            Cell::Tests(names.iter().map(|n| (*n).to_owned()).collect()).word(&results)
        };
        assert_eq!(word(&[]), "-");
        assert_eq!(word(&["a"]), "holds");
        assert_eq!(word(&["a", "b"]), "skipped");
        assert_eq!(word(&["a", "x"]), "not run");
        assert_eq!(word(&["a", "b", "c"]), "FAILS");
    }
}
