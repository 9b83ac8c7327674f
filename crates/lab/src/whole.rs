//! Files that are there whole or not at all.

use std::io;
use std::path::{Path, PathBuf};

/// Writes a file beside its place and then moves it there: a full disk, or the end of the program, leaves what was there before.
///
/// # Errors
/// When it cannot be written; then nothing is left beside it.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = beside(path);
    let written = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        // It is in nobody's way, should it stay.
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// Where it is written. Another process may write the same file at this time.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_or_stays_and_nothing_lies_beside_it() {
        let folder = tempfile::tempdir().expect("a place for temporary files");
        let path = folder.path().join("table.csv");
        for text in ["one", "two"] {
            write_whole(&path, text.as_bytes()).expect("a folder of our own");
            assert_eq!(std::fs::read_to_string(&path).expect("written"), text);
        }
        // As good as a full disk: nothing can be written where it would be.
        std::fs::create_dir(beside(&path)).expect("a folder of our own");
        assert!(write_whole(&path, b"three").is_err());
        std::fs::remove_dir(beside(&path)).expect("nothing is in it");
        assert_eq!(std::fs::read_to_string(&path).expect("written"), "two");
        // What cannot be moved to its place.
        let taken = folder.path().join("folder");
        std::fs::create_dir_all(taken.join("full")).expect("a folder of our own");
        assert!(write_whole(&taken, b"x").is_err());
        let count = std::fs::read_dir(folder.path())
            .expect("it is there")
            .count();
        assert_eq!(count, 2);
    }
}
