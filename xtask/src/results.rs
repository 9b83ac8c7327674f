//! Runs test programs, and notes what each of their tests came to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::workspace::root;

/// What a test came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It passed.
    Holds = 0,
    /// It said that it cannot be run here.
    Skipped = 1,
    /// It failed.
    Fails = 3,
}

/// Tests by their names within their programs. Of two of one name, the worse counts.
pub(crate) type Results = BTreeMap<String, Outcome>;

/// Follows what test programs print with `--show-output`.
#[derive(Debug, Default)]
struct Reader {
    results: Results,
    /// What passing tests have printed is shown at the moment.
    successes: bool,
    /// Whose.
    of: Option<String>,
}

impl Reader {
    fn note(&mut self, name: &str, outcome: Outcome) {
        let known = self.results.entry(name.to_owned()).or_insert(outcome);
        if outcome as u8 > *known as u8 {
            *known = outcome;
        }
    }

    /// Takes a line, and answers whether somebody wants to see it.
    fn line(&mut self, line: &str) -> bool {
        if let Some((name, word)) = line
            .strip_prefix("test ")
            .and_then(|l| l.split_once(" ... "))
        {
            let outcome = match word {
                "ok" => Outcome::Holds,
                word if word.starts_with("ignored") => Outcome::Skipped,
                _ => Outcome::Fails,
            };
            self.note(name, outcome);
            return outcome == Outcome::Fails;
        }
        match line {
            "successes:" => self.successes = true,
            "failures:" => self.successes = false,
            _ if line.starts_with("test result:") => self.successes = false,
            _ => {}
        }
        if !self.successes {
            return !(line.is_empty() || line.starts_with("running "));
        }
        if let Some(of) = line
            .strip_prefix("---- ")
            .and_then(|l| l.strip_suffix(" stdout ----"))
        {
            self.of = Some(of.to_owned());
        } else if line.starts_with("skipped: ") {
            if let Some(name) = self.of.clone() {
                self.note(&name, Outcome::Skipped);
            }
        }
        false
    }
}

/// Runs `cargo` with these arguments and hands these to the test programs. Answers whether all passed, and what each came to. What
/// concerns failures is shown as it comes.
pub(crate) fn run(cargo: &[&str], programs: &[&str]) -> Result<(bool, Results), String> {
    let mut child = Command::new("cargo")
        .current_dir(root())
        .args(cargo)
        .arg("--quiet")
        .args(["--", "--show-output", "--format=pretty"])
        .args(programs)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    let mut reader = Reader::default();
    let lines = child.stdout.take().map(BufReader::new);
    for line in lines.into_iter().flat_map(BufRead::lines) {
        // A program may print bytes that are no text.
        let Ok(line) = line else { continue };
        if reader.line(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(|e| format!("cargo: {e}"))?;
    Ok((status.success(), reader.results))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_what_test_programs_print() {
        let text = "\nrunning 4 tests\ntest a::x ... ok\ntest a::y ... ok\ntest z ... ignored, why\ntest b ... FAILED\n\
            \nsuccesses:\n\n---- a::y stdout ----\nskipped: no permission\nmore\n\n\nsuccesses:\n    a::x\n    a::y\n\
            \nfailures:\n\n---- b stdout ----\nskipped: is no word here\npanicked\n\nfailures:\n    b\n\
            \ntest result: FAILED. 2 passed\n";
        let mut reader = Reader::default();
        let shown: Vec<&str> = text.lines().filter(|line| reader.line(line)).collect();
        let of = |name: &str| reader.results.get(name).copied();
        assert_eq!(of("a::x"), Some(Outcome::Holds));
        assert_eq!(of("a::y"), Some(Outcome::Skipped));
        assert_eq!(of("z"), Some(Outcome::Skipped));
        assert_eq!(of("b"), Some(Outcome::Fails));
        assert_eq!(shown[0], "test b ... FAILED");
        assert!(shown.contains(&"panicked") && !shown.contains(&"more"));
        assert_eq!(shown.last(), Some(&"test result: FAILED. 2 passed"));
    }
}
