//! `cargo xtask compliance`: which rows of RFC 8684 are obeyed in code and proved by a test.
//!
//! A row is cited in a comment as `rfc8684:B6` or `rfc8684:B6,B7`. Where the comment stands decides what it
//! counts as: test code, or code.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::Findings;
use crate::source::{self, Source};
use crate::workspace::root;

const MARK: &str = "rfc8684:";
const ROWS: &str = include_str!("../data/rfc8684.toml");
const EXCEPTIONS: &str = "docs/compliance-exceptions.toml";

/// The command line of `compliance`.
#[derive(Debug, Default)]
pub(crate) struct Options {
    strict: bool,
    missing: bool,
    json: bool,
}

impl Options {
    /// Reads the arguments after `compliance`.
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        for arg in args {
            match arg.as_str() {
                "--strict" => options.strict = true,
                "--missing" => options.missing = true,
                "--json" => options.json = true,
                other => return Err(format!("compliance does not know '{other}'")),
            }
        }
        Ok(options)
    }
}

#[derive(Debug, Deserialize)]
struct RowFile {
    row: Vec<Row>,
}

/// One rule of the standard.
#[derive(Debug, Clone, Deserialize)]
struct Row {
    id: String,
    level: String,
    section: String,
    rule: String,
    core: bool,
}

#[derive(Debug, Default, Deserialize)]
struct ExceptionFile {
    #[serde(default)]
    exception: Vec<Exception>,
}

/// A rule that is deliberately not obeyed, or not testable, and why.
#[derive(Debug, Clone, Deserialize)]
struct Exception {
    id: String,
    reason: String,
}

/// A row with what was found for it.
#[derive(Debug, Serialize)]
struct Status {
    id: String,
    level: String,
    section: String,
    rule: String,
    core: bool,
    code: Vec<String>,
    tests: Vec<String>,
    exception: Option<String>,
}

impl Status {
    fn complete(&self) -> bool {
        self.exception.is_some() || (!self.code.is_empty() && !self.tests.is_empty())
    }
}

#[derive(Debug)]
struct Report {
    rows: Vec<Status>,
    /// Citations and exceptions that cannot be right.
    mistakes: Vec<String>,
}

/// The rows cited in one line, as written.
fn citations(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(MARK) {
        rest = &rest[at + MARK.len()..];
        let mut list = rest;
        loop {
            let len = list.bytes().take_while(u8::is_ascii_alphanumeric).count();
            if len == 0 {
                break;
            }
            out.push(list[..len].to_owned());
            let after = &list[len..];
            let Some(next) = after.strip_prefix(',') else {
                break;
            };
            let next = next.trim_start();
            // In prose a comma may also end the citation: only what looks like a row goes on with it.
            let upper = next.bytes().take_while(u8::is_ascii_uppercase).count();
            if upper == 0 || !next[upper..].starts_with(|c: char| c.is_ascii_digit()) {
                break;
            }
            list = next;
        }
    }
    out
}

fn report(sources: &[Source]) -> Result<Report, String> {
    let rows: RowFile =
        toml::from_str(ROWS).map_err(|e| format!("xtask/data/rfc8684.toml: {e}"))?;
    let exceptions: ExceptionFile = match std::fs::read_to_string(root().join(EXCEPTIONS)) {
        Ok(text) => toml::from_str(&text).map_err(|e| format!("{EXCEPTIONS}: {e}"))?,
        Err(_) => ExceptionFile::default(),
    };
    Ok(collect(rows.row, exceptions.exception, sources))
}

fn collect(rows: Vec<Row>, exceptions: Vec<Exception>, sources: &[Source]) -> Report {
    let mut mistakes = Vec::new();
    let mut code: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut tests: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // The checker's own texts speak about citations without being any.
    for source in sources.iter().filter(|s| !s.path.starts_with("xtask/")) {
        for (number, line) in source.text.lines().enumerate().map(|(i, l)| (i + 1, l)) {
            for id in citations(line) {
                let place = format!("{}:{number}", source.path);
                if !rows.iter().any(|r| r.id == id) {
                    mistakes.push(format!("{place}: no row {id} in RFC 8684's list"));
                } else if source.is_test(number) {
                    tests.entry(id).or_default().push(place);
                } else {
                    code.entry(id).or_default().push(place);
                }
            }
        }
    }
    for exception in &exceptions {
        if !rows.iter().any(|r| r.id == exception.id) {
            mistakes.push(format!("{EXCEPTIONS}: no row {}", exception.id));
        }
        if exception.reason.trim().is_empty() {
            mistakes.push(format!("{EXCEPTIONS}: {} has no reason", exception.id));
        }
    }
    let rows = rows
        .into_iter()
        .map(|row| Status {
            code: code.remove(&row.id).unwrap_or_default(),
            tests: tests.remove(&row.id).unwrap_or_default(),
            exception: exceptions
                .iter()
                .find(|e| e.id == row.id)
                .map(|e| e.reason.clone()),
            id: row.id,
            level: row.level,
            section: row.section,
            rule: row.rule,
            core: row.core,
        })
        .collect();
    Report { rows, mistakes }
}

/// For `check`: mistakes and incomplete rows are errors.
pub(crate) fn findings(sources: &[Source]) -> Result<Findings, String> {
    let report = report(sources)?;
    let mut found = Findings {
        errors: report.mistakes,
        ..Findings::default()
    };
    let (mut all, mut done) = (0, 0);
    for row in &report.rows {
        all += 1;
        if row.complete() {
            done += 1;
        } else {
            found.error(format!("{} lacks {}: {}", row.id, lacks(row), row.rule));
        }
    }
    found.note = Some(format!("{done} of {all}"));
    Ok(found)
}

fn lacks(row: &Status) -> &'static str {
    match (row.code.is_empty(), row.tests.is_empty()) {
        (true, true) => "code and a test",
        (true, false) => "code",
        (false, true) => "a test",
        (false, false) => "nothing",
    }
}

/// Prints the table and says whether the core is complete (with `strict`) and the citations are right.
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    let report = report(&source::load()?)?;
    if options.json {
        let text = serde_json::to_string_pretty(&report.rows).map_err(|e| e.to_string())?;
        println!("{text}");
    } else {
        print_table(&report, options.missing);
    }
    let core_complete = report.rows.iter().filter(|r| r.core).all(Status::complete);
    Ok(report.mistakes.is_empty() && (core_complete || !options.strict))
}

fn print_table(report: &Report, missing: bool) {
    println!(
        "{:<4} {:<4} {:>4} {:>5}  {:<12} rule",
        "row", "core", "code", "tests", "section"
    );
    for row in report.rows.iter().filter(|r| !missing || !r.complete()) {
        let core = if row.core { "core" } else { "" };
        println!(
            "{:<4} {:<4} {:>4} {:>5}  {:<12} {}: {}",
            row.id,
            core,
            row.code.len(),
            row.tests.len(),
            row.section,
            row.level,
            row.rule
        );
        if let Some(reason) = &row.exception {
            println!("     exception: {reason}");
        }
    }
    for (name, core_only) in [("core rows", true), ("all rows", false)] {
        let rows: Vec<&Status> = report
            .rows
            .iter()
            .filter(|r| r.core || !core_only)
            .collect();
        let count = |f: &dyn Fn(&Status) -> bool| rows.iter().filter(|r| f(r)).count();
        println!(
            "{name}: {} of {} complete ({} with code, {} with a test, {} exceptions)",
            count(&|r| r.complete()),
            rows.len(),
            count(&|r| !r.code.is_empty()),
            count(&|r| !r.tests.is_empty()),
            count(&|r| r.exception.is_some()),
        );
    }
    let open: Vec<&str> = report
        .rows
        .iter()
        .filter(|r| r.core && !r.complete())
        .map(|r| r.id.as_str())
        .collect();
    if !open.is_empty() {
        println!("core rows that lack something: {}", open.join(" "));
    }
    for mistake in &report.mistakes {
        println!("error: {mistake}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::from_text;

    #[test]
    fn the_list_has_all_rows() {
        let rows: RowFile = toml::from_str(ROWS).expect("the list is TOML");
        assert_eq!(rows.row.len(), 176);
        assert_eq!(rows.row.iter().filter(|r| r.core).count(), 92);
    }

    #[test]
    fn citations_end_where_the_prose_begins() {
        assert_eq!(citations("// rfc8684:B6"), ["B6"]);
        assert_eq!(
            citations("// rfc8684:B6,B7, C21: why, not how"),
            ["B6", "B7", "C21"]
        );
        assert_eq!(
            citations("// rfc8684:D1 and rfc8684:D2, Data ACK"),
            ["D1", "D2"]
        );
        assert!(citations("// rfc 8684, section 3").is_empty());
    }

    #[test]
    fn code_and_tests_are_counted_apart_and_mistakes_are_found() {
        let text = "// rfc8684:G1\nfn f() {}\n#[cfg(test)]\nmod tests {\n // rfc8684:G1,G99\n fn g() {}\n}\n";
        let rows: RowFile = toml::from_str(ROWS).expect("the list is TOML");
        let report = collect(
            rows.row,
            Vec::new(),
            &[from_text("crates/tcp/src/a.rs", text)],
        );
        let g1 = report.rows.iter().find(|r| r.id == "G1").expect("row");
        assert_eq!((g1.code.len(), g1.tests.len()), (1, 1));
        assert!(g1.complete());
        assert_eq!(report.mistakes.len(), 1);
    }
}
