//! Waiting for a condition, with a deadline that ends the test loudly.

use std::time::{Duration, Instant};

/// How long anything may take that has no reason to take long. Generous: the machine may be busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Looks again and again until `look` brings something.
///
/// # Panics
/// When that has not happened within [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    wait_until(what, || look().ok_or("nothing"))
}

/// The same for a `look` that tells what it sees as long as it is not yet what is wanted.
///
/// # Panics
/// When it is not within [`PATIENCE`], with what was seen last.
pub fn wait_until<T, E: std::fmt::Debug>(what: &str, mut look: impl FnMut() -> Result<T, E>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(
                Instant::now() < end,
                "waited {} s in vain for {what}; seen last: {seen:?}",
                PATIENCE.as_secs()
            ),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same for tasks: lets others run until `holds`.
///
/// # Panics
/// When that is not so within [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        let patience = PATIENCE.as_secs();
        assert!(
            Instant::now() < end,
            "waited {patience} s in vain for {what}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
