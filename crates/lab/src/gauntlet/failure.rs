//! A failing seed for people: cut down, written as a scenario that replays it, with its packets.

use std::path::{Path, PathBuf};

use manypath_sim::gauntlet::{self, Fault};
use manypath_sim::scenario::Scenario;
use serde::Serialize;

use super::GauntletError;

/// Runs that cutting one seed down may take.
const RUNS: usize = 600;
/// Lines of a trace that are told; the file has them all.
const LINES: usize = 40;

/// A seed that failed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FailingSeed {
    /// The seed.
    pub seed: u64,
    /// One word for the kind of fault.
    pub kind: &'static str,
    /// What is wrong.
    pub fault: String,
    /// What is wrong with the scenario that it was cut down to.
    pub shrunk_fault: Option<String>,
    /// That scenario as a file.
    pub scenario: Option<String>,
    /// Its first packets, one a line.
    pub packets: Vec<String>,
    /// Where the scenario is; the capture beside it ends in `.pcapng`, the lines of all packets in `.txt`.
    pub file: Option<PathBuf>,
}

impl FailingSeed {
    /// Only what went wrong.
    pub(super) fn bare(seed: u64, fault: &Fault) -> Self {
        Self {
            seed,
            kind: fault.kind(),
            fault: fault.to_string(),
            shrunk_fault: None,
            scenario: None,
            packets: Vec::new(),
            file: None,
        }
    }

    /// Cuts the scenario down to the least that still has the same kind of fault and writes that to `folder`.
    pub(super) fn shrunk(
        seed: u64,
        fault: &Fault,
        scenario: &Scenario,
        folder: &Path,
    ) -> Result<Self, GauntletError> {
        let fault_of = |scenario: &Scenario| gauntlet::fault_again(scenario, fault);
        let same = |scenario: &Scenario| {
            fault_of(scenario).is_some_and(|other| other.kind() == fault.kind())
        };
        let small = gauntlet::shrink(scenario, same, RUNS);
        let text = small.to_toml().map_err(|error| GauntletError::Plan {
            seed,
            what: error.to_string(),
        })?;
        let trace = gauntlet::trace(&small).unwrap_or_default();
        let file = folder.join(format!("gauntlet-{seed}.toml"));
        write(folder, &file, text.as_bytes())?;
        write(folder, &file.with_extension("pcapng"), &trace.capture)?;
        let lines = trace.lines.join("\n") + "\n";
        write(folder, &file.with_extension("txt"), lines.as_bytes())?;
        Ok(Self {
            shrunk_fault: fault_of(&small).map(|fault| fault.to_string()),
            scenario: Some(text),
            packets: trace.lines.into_iter().take(LINES).collect(),
            file: Some(file),
            ..Self::bare(seed, fault)
        })
    }
}

fn write(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), GauntletError> {
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|source| GauntletError::File {
            path: path.to_owned(),
            source,
        })
}

impl std::fmt::Display for FailingSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.fault)?;
        let (Some(scenario), Some(file)) = (&self.scenario, &self.file) else {
            return Ok(());
        };
        writeln!(f, "  cut down to {} :", file.display())?;
        if let Some(fault) = &self.shrunk_fault {
            writeln!(f, "  {fault}")?;
        }
        for line in scenario.lines() {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "  its first packets, as sent and as received:")?;
        for line in &self.packets {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "  replay: manypath lab sim {}", file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_tcp::time::Duration;

    #[test]
    fn a_failing_seed_is_written_down_so_that_it_fails_again() {
        let folder = tempfile::tempdir().unwrap();
        // Not a fault of the stack: a scenario whose limit no run can keep.
        let mut scenario = gauntlet::plan(1);
        scenario.expect.like_tcp = true;
        let late = Fault::Late {
            tcp: Duration::ZERO,
            ours: Duration::ZERO,
        };
        let failing = FailingSeed::shrunk(1, &late, &scenario, folder.path()).unwrap();
        let file = failing.file.clone().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(Scenario::parse(&text).unwrap(), scenario, "nothing to cut");
        let lines = std::fs::read_to_string(file.with_extension("txt")).unwrap();
        assert!(lines.lines().count() > 3 && !failing.packets.is_empty());
        assert!(file.with_extension("pcapng").metadata().unwrap().len() > 100);
        assert!(failing.to_string().contains("replay: manypath lab sim"));
    }
}
