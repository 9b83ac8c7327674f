//! The file in which quotas are counted.
//!
//! It is replaced as a whole, and the one before is kept beside it, so that one of the two is whole at any moment: what was counted in the last second
//! may be lost, and nothing else.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::quota::Used;

/// What is written here.
const VERSION: u32 = 1;
/// The longest file that is read, bytes.
const LONGEST: u64 = 1 << 20;
/// Counts of quotas that are kept, those that no configuration has any more among them.
const MOST: usize = 1000;

/// What was used of each quota, by the quota's key.
pub(super) type Counts = BTreeMap<String, Used>;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    quotas: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    quota: String,
    /// Seconds since 1970.
    began: i64,
    bytes: u64,
}

/// Why a file was not read.
#[derive(Debug, PartialEq, Eq)]
enum Bad {
    Missing,
    Unreadable(String),
}

/// Beside a file: the one before, for instance, or the next one while it is written.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

/// What was counted, and what has to be told of the file.
pub(super) fn read(path: &Path) -> (Counts, Vec<String>) {
    let (shown, before) = (path.display(), beside(path, ".before"));
    let why = match read_one(path) {
        Ok(counts) => return (counts, Vec::new()),
        Err(Bad::Missing) => None,
        Err(Bad::Unreadable(why)) => Some(why),
    };
    if let Some(why) = &why {
        // It may be wanted, and is not written over.
        let aside = beside(path, ".unreadable");
        let moved = std::fs::rename(path, &aside);
        let moved = moved.map_or_else(
            |_| String::new(),
            |()| format!(", and is kept as {}", aside.display()),
        );
        let told = format!("the file of quotas {shown} cannot be read: {why}{moved}");
        match read_one(&before) {
            Ok(counts) => {
                let goes_on = "counting goes on from the one before, which is a second older";
                return (counts, vec![format!("{told}; {goes_on}")]);
            }
            Err(_) => {
                let anew = "every quota counts from zero: `manypath status` shows them";
                return (Counts::new(), vec![format!("{told}; {anew}")]);
            }
        }
    }
    // Ended between the two renames.
    (read_one(&before).unwrap_or_default(), Vec::new())
}

fn read_one(path: &Path) -> Result<Counts, Bad> {
    let unreadable = |error: &dyn std::fmt::Display| Bad::Unreadable(error.to_string());
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Bad::Missing),
        Err(error) => return Err(unreadable(&error)),
    };
    if !meta.is_file() || meta.len() > LONGEST {
        return Err(unreadable(&"it is no file of quotas"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    parse(&text).map_err(|why| unreadable(&why))
}

fn parse(text: &str) -> Result<Counts, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let found: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if found.version != VERSION {
        let of = found.version;
        return Err(format!(
            "it is of version {of}, and this program reads version {VERSION}"
        ));
    }
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let entries = document.quotas.into_iter().take(MOST);
    let read = entries.map(|entry| {
        let began = Timestamp::from_second(entry.began).map_err(|error| error.to_string())?;
        let bytes = entry.bytes;
        Ok((entry.quota, Used { began, bytes }))
    });
    read.collect()
}

/// As it is written. Of too many, those that began last stay.
pub(super) fn text(counts: &Counts) -> String {
    let mut quotas: Vec<Entry> = counts
        .iter()
        .map(|(quota, used)| Entry {
            quota: quota.clone(),
            began: used.began.as_second(),
            bytes: used.bytes,
        })
        .collect();
    quotas.sort_by_key(|entry| std::cmp::Reverse(entry.began));
    quotas.truncate(MOST);
    let document = Document {
        version: VERSION,
        quotas,
    };
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// Replaces the file.
///
/// # Errors
/// It cannot be: it is as it was then.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let next = beside(path, ".next");
    let written = write_whole(&next, text);
    if let Err(error) = written {
        // A part of it would take up what little room there is.
        let _ = std::fs::remove_file(&next);
        return Err(error);
    }
    match std::fs::rename(path, beside(path, ".before")) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    std::fs::rename(&next, path)
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(bytes: u64) -> Counts {
        let began = Timestamp::from_second(1_793_000_000).expect("a time");
        [("path lte month".to_owned(), Used { began, bytes })].into()
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("quotas.json");
        (folder, path)
    }

    #[test]
    fn what_is_written_is_read() {
        let (_folder, path) = place();
        assert_eq!(read(&path), (Counts::new(), Vec::new()), "a first start");
        for bytes in [1, 2, u64::MAX] {
            write(&path, &text(&counts(bytes))).expect("a folder of ours");
            assert_eq!(read(&path), (counts(bytes), Vec::new()));
        }
    }

    #[test]
    fn a_file_that_is_cut_anywhere_is_told_and_the_one_before_goes_on() {
        let (_folder, path) = place();
        write(&path, &text(&counts(1))).expect("written");
        let whole = text(&counts(2));
        for at in 0..whole.trim_end().len() {
            write(&path, &text(&counts(1))).expect("written");
            write(&path, &whole).expect("written");
            std::fs::write(&path, &whole[..at]).expect("written");
            let (found, told) = read(&path);
            assert_eq!(found, counts(1), "cut at {at}");
            assert!(told[0].contains("cannot be read"), "{told:?}");
            assert!(beside(&path, ".unreadable").exists());
        }
    }

    #[test]
    fn a_file_of_another_version_is_told_and_kept_aside() {
        let (_folder, path) = place();
        let other = "{\"version\":2,\"amounts\":{}}";
        std::fs::write(&path, other).expect("written");
        let (found, told) = read(&path);
        assert!(found.is_empty());
        assert!(
            told[0].contains("version 2") && told[0].contains("from zero"),
            "{told:?}"
        );
        let aside = std::fs::read_to_string(beside(&path, ".unreadable"));
        assert_eq!(aside.expect("kept"), other);
    }

    #[test]
    fn one_that_was_ended_between_two_renames_has_lost_nothing_but_the_last_second() {
        let (_folder, path) = place();
        write(&path, &text(&counts(1))).expect("written");
        std::fs::rename(&path, beside(&path, ".before")).expect("renamed");
        std::fs::write(beside(&path, ".next"), "{").expect("written");
        assert_eq!(read(&path), (counts(1), Vec::new()));
        write(&path, &text(&counts(3))).expect("written");
        assert_eq!(read(&path).0, counts(3));
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_a_full_disk_changes_nothing() {
        let (folder, path) = place();
        assert!(write(&folder.path().join("no/quotas.json"), "x").is_err());
        write(&path, &text(&counts(1))).expect("written");
        // A device that is always full takes the place of the next one.
        std::os::unix::fs::symlink("/dev/full", beside(&path, ".next")).expect("a link");
        let error = write(&path, &text(&counts(2))).expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!(read(&path), (counts(1), Vec::new()));
    }

    #[test]
    fn no_more_counts_are_kept_than_have_a_bound() {
        let began = |n: i64| Timestamp::from_second(n).expect("a time");
        let all = (0..2000).map(|n| {
            let used = Used {
                began: began(n),
                bytes: 1,
            };
            (n.to_string(), used)
        });
        let kept = parse(&text(&all.collect())).expect("well-formed");
        assert_eq!(kept.len(), MOST);
        assert!(kept.contains_key("1999") && !kept.contains_key("0"));
    }
}
