use std::fmt;
use std::io;

/// What was being done, and why it failed.
#[derive(Debug)]
pub struct Error {
    /// What was being done: `connect to tcp:192.0.2.1:80`.
    pub what: String,
    /// Why it failed; its kind tells who is to blame.
    pub source: io::Error,
}

impl Error {
    /// An error with its occasion.
    pub fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self {
            what: what.into(),
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.what, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
