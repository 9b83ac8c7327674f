//! What is wrong in a configuration file, with line and column.

use std::fmt;
use std::path::{Path, PathBuf};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Everything that is wrong in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The file.
    pub file: PathBuf,
    /// In the order of their places; at least one.
    pub faults: Vec<Fault>,
}

impl Faults {
    /// A file of which nothing can be read.
    #[must_use]
    pub fn of_file(file: &Path, message: String) -> Self {
        let fault = Fault {
            line: 0,
            column: 0,
            message,
        };
        Self {
            file: file.to_owned(),
            faults: vec![fault],
        }
    }
}

impl fmt::Display for Faults {
    /// One line for each, as compilers write them: `FILE:LINE:COLUMN: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            match fault.line {
                0 => write!(f, "{file}: {}", fault.message)?,
                line => write!(f, "{file}:{line}:{}: {}", fault.column, fault.message)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Line and column, both from 1, of a byte of a text.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (line, before[start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        let text = "a = 1\nü = 2\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 4), (1, 5));
        assert_eq!(place(text, 6), (2, 1));
        assert_eq!(place(text, 9), (2, 3), "ü is one column");
        assert_eq!(place(text, 500), (3, 1));
    }
}
