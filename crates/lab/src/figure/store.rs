//! Finished runs on the disk, so that a figure that was stopped goes on where it was.
//!
//! One line of JSON a run in `ID.runs.jsonl`, written when the run ends. Runs of another build of the program do not count:
//! they may come out differently.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use serde::{Deserialize, Serialize};

use super::plan::Planned;
use super::{FigureError, Sample};

/// A finished run.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    build: String,
    run: String,
    samples: Vec<Sample>,
}

/// The finished runs of one figure.
#[derive(Debug)]
pub(super) struct Store {
    build: String,
    done: BTreeMap<String, Vec<Sample>>,
    /// Where new ones go, and as what errors name it; nothing without a folder.
    file: Option<(PathBuf, Mutex<File>)>,
    /// It was said that they cannot be kept.
    told: Once,
}

impl Store {
    /// Nothing is kept.
    pub(super) fn nowhere() -> Self {
        Self {
            build: String::new(),
            done: BTreeMap::new(),
            file: None,
            told: Once::new(),
        }
    }

    /// What is kept in a folder about a figure. With `fresh` it is not used, and what is run again takes its place.
    pub(super) fn open(
        folder: &Path,
        id: &str,
        build: &str,
        fresh: bool,
    ) -> Result<Self, FigureError> {
        let path = folder.join(format!("{id}.runs.jsonl"));
        if folder.exists() && !folder.is_dir() {
            return Err(FigureError::NoFolder(folder.to_owned()));
        }
        let failed = |source| FigureError::File {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let mut done = BTreeMap::new();
        if !fresh && let Ok(text) = std::fs::read_to_string(&path) {
            // A line that was being written when the program was killed is not one.
            let records = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            for record in records.filter(|record: &Record| record.build == build) {
                done.insert(record.run, record.samples);
            }
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(failed)?;
        Ok(Self {
            build: build.to_owned(),
            done,
            file: Some((path, Mutex::new(file))),
            told: Once::new(),
        })
    }

    /// What a run gave, if it is finished.
    pub(super) fn finished(&self, run: &str) -> Option<Vec<Sample>> {
        self.done.get(run).cloned()
    }

    /// Keeps a run. A full disk only loses the keeping, which is told once.
    pub(super) fn keep(&self, run: String, samples: &[Sample]) {
        let Some((path, file)) = &self.file else {
            return;
        };
        let record = Record {
            build: self.build.clone(),
            run,
            samples: samples.to_vec(),
        };
        if let Ok(line) = serde_json::to_string(&record) {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            // In front of it a new line as well: the one before may have been cut short.
            if let Err(error) = file.write_all(format!("\n{line}\n").as_bytes()) {
                let path = path.display();
                self.told.call_once(|| {
                    // Nobody may read there any more; that must not end the runs.
                    let _ = writeln!(
                        std::io::stderr(),
                        "manypath: cannot keep finished runs in {path}: {error}"
                    );
                });
            }
        }
    }
}

/// What a run is kept as. One whose packets the kernel carries belongs to the release of the kernel as well.
pub(super) fn kept_as(run: &Planned, kernel: &str) -> String {
    match run.arm.needs_namespaces() {
        true => format!("{} | Linux {kernel}", run.key()),
        false => run.key(),
    }
}

/// What tells this build of the program from others.
pub(super) fn build(program: &Path) -> String {
    let facts = std::fs::metadata(program).ok();
    let changed = facts.as_ref().and_then(|facts| facts.modified().ok());
    let changed = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    format!(
        "{} {} {}",
        env!("CARGO_PKG_VERSION"),
        facts.map_or(0, |facts| facts.len()),
        changed.map_or(0, |since| since.as_secs())
    )
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    #[test]
    fn a_file_is_no_folder() {
        let file = tempfile::NamedTempFile::new().expect("a place for temporary files");
        let error = Store::open(file.path(), "x", "one", false).expect_err("it is a file");
        assert!(error.to_string().contains("is no folder"), "{error}");
    }

    #[test]
    fn what_the_kernel_carried_belongs_to_its_release() {
        let figure = super::super::find("nsdi-4a").expect("it is there");
        let plan = plan::of(figure, &plan::Request::default()).expect("nothing is asked for");
        for run in &plan.runs {
            let [one, other] = ["6.1", "6.18"].map(|release| kept_as(run, release));
            assert_eq!(one != other, run.arm.needs_namespaces(), "{one}");
        }
        assert!(!crate::kernel::release().is_empty());
    }

    #[test]
    fn what_is_kept_is_found_by_the_same_build_alone() {
        let folder = tempfile::tempdir().expect("a place for temporary files");
        let samples = vec![Sample {
            line: "ours".to_owned(),
            at: [50.0, 7.5],
        }];
        let open = |build: &str, fresh| {
            Store::open(folder.path(), "x", build, fresh).expect("a folder of our own")
        };
        let store = open("one", false);
        assert_eq!(store.finished("a"), None);
        store.keep("a".to_owned(), &samples);
        // Cut short, as by a kill.
        let path = folder.path().join("x.runs.jsonl");
        let mut file = OpenOptions::new()
            .append(true)
            .open(path)
            .expect("it is there");
        file.write_all(b"{\"build\":\"one\",\"ru").expect("room");
        open("one", false).keep("b".to_owned(), &samples);
        let again = open("one", false);
        assert_eq!(again.finished("a"), Some(samples.clone()));
        assert_eq!(again.finished("b"), Some(samples.clone()));
        assert_eq!(open("two", false).finished("a"), None);
        // Made again, one takes the place of the old one; the others stay.
        let fresh = open("one", true);
        assert_eq!(fresh.finished("a"), None);
        fresh.keep("a".to_owned(), &[]);
        let again = open("one", false);
        assert_eq!(again.finished("a"), Some(Vec::new()));
        assert_eq!(again.finished("b"), Some(samples));
    }
}
