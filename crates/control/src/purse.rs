//! How much memory the lines that a client reads may take. Who asks need not be the one who answers: root asks everybody.
//!
//! JSON grows when it is read: two bytes of `{}` may become a report of several hundred. So a line is measured, without reading
//! its values, before it is made into any.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What lines of one session, or of all processes of another user together, may take. 65,536 connections with two subflows each
/// take 1.6 GB while they are read.
pub(crate) const OWN: u64 = 2 << 30;

/// The same for those of another user: a process with 20,000 connections.
pub(crate) const FOREIGN: u64 = 512 << 20;

/// What an object or list costs when it becomes a value of ours, in bytes: a connection with its empty lists.
const CONTAINER: u64 = 768;

/// What a member of one costs while it is sorted.
const VALUE: u64 = 64;

/// Objects within objects. A sample within an event has five.
const DEPTH: u32 = 32;

/// Bytes that may still be taken. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Purse(Arc<AtomicU64>);

impl Purse {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// There are not so many left.
    pub(crate) fn take(&self, bytes: u64) -> io::Result<()> {
        let rest = |left: u64| left.checked_sub(bytes);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        let refused = |_| invalid("it says more than there is memory for: ask it as its own user");
        taken.map(|_| ()).map_err(refused)
    }

    /// Gives them back.
    pub(crate) fn give(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// What the values of a line will cost beside its bytes.
///
/// # Errors
/// Something lies too deep within something else.
pub(crate) fn cost(line: &[u8]) -> io::Result<u64> {
    let (mut cost, mut depth, mut deepest) = (0_u64, 0_u32, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in line {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'{' | b'[' => {
                cost += CONTAINER;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => cost += VALUE,
            _ => {}
        }
    }
    if deepest > DEPTH {
        return Err(invalid("objects within more than 32 objects"));
    }
    Ok(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_small_objects_grow_to_is_counted_before_they_are_read() {
        assert_eq!(cost(br#"{"a":"{[,\"{"}"#).expect("flat"), CONTAINER + VALUE);
        let many = format!("[{}]", vec!["{}"; 1_000_000].join(","));
        let grown = cost(many.as_bytes()).expect("flat");
        assert!(grown > 700_000_000, "{grown}");
        assert!(Purse::new(FOREIGN).take(grown).is_err());
        let deep = |n: usize| [vec![b'['; n], vec![b']'; n]].concat();
        assert!(cost(&deep(32)).is_ok() && cost(&deep(33)).is_err());
    }

    #[test]
    fn clones_share_one_purse() {
        let purse = Purse::new(10);
        purse.clone().take(8).expect("there is enough");
        assert!(purse.take(3).is_err());
        purse.give(8);
        assert!(purse.take(10).is_ok());
    }
}
