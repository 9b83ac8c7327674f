//! Waiting for a condition, with a deadline that ends the test loudly.

use std::time::{Duration, Instant};

/// How long anything may take that has no reason to take long. Generous: the machine may be busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Looks again and again until `look` brings something.
///
/// # Panics
/// When that has not happened within [`PATIENCE`].
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, look)
}

/// The same with a patience of its own.
///
/// # Panics
/// When nothing came within `patience`.
pub fn wait_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < end,
            "waited {} s in vain for {what}",
            patience.as_secs()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
