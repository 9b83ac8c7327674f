//! What a measurement tells while it runs and at its end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// Counters that move while a measurement runs; anybody may read them.
#[derive(Debug, Default)]
pub struct Progress {
    bytes: AtomicU64,
    rounds: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

impl Progress {
    /// Bytes of data so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Requests answered so far.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Connections that are done, failed ones included.
    pub fn connections(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Connections that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn count_bytes(&self, n: u64) {
        self.bytes.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn count_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_connection(&self, failed: bool) {
        self.done.fetch_add(1, Ordering::Relaxed);
        if failed {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What one connection brought.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes of data.
    pub bytes: u64,
    /// Time to connect.
    pub connect: Duration,
    /// From the first byte to the proof that the last one arrived.
    pub elapsed: Duration,
    /// SHA-256 of the data at our end, where wanted.
    pub sha256: Option<[u8; 32]>,
    /// Both ends saw the same bytes; `None` where the peer does not tell.
    pub same: Option<bool>,
}

/// What everything brought.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Connections that did what they should.
    pub connections: u64,
    /// Connections that failed, by reason.
    pub failures: BTreeMap<String, u64>,
    /// Bytes of data.
    pub bytes: u64,
    /// Seconds for all of it, connecting included.
    pub seconds: f64,
    /// Bits of data per second.
    pub bits_per_second: f64,
    /// SHA-256 of the data, of the last connection, in hexadecimal.
    pub sha256: Option<String>,
    /// Both ends saw the same bytes on every connection; absent where the peer does not tell.
    pub same: Option<bool>,
    /// Requests answered.
    pub requests: u64,
    /// Times to connect.
    pub connect_ms: Option<Spread>,
    /// Times from a request to its whole response.
    pub request_ms: Option<Spread>,
}

impl Summary {
    /// The amount is this one, if it is larger: what failed connections carried belongs to none of the outcomes.
    pub(super) fn count(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.bytes = bytes;
            self.bits_per_second = bytes as f64 * 8.0 / self.seconds.max(1e-9);
        }
    }
}

/// How times are spread, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The shortest.
    pub min: f64,
    /// Half are shorter.
    pub median: f64,
    /// Ninety-nine of a hundred are shorter.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    /// Of these times; `None` if there are none.
    pub fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort();
        let at = |part: f64| {
            // The index is below the length: part is at most 1.
            let index = ((times.len() - 1) as f64 * part).round() as usize;
            times[index].as_secs_f64() * 1e3
        };
        (!times.is_empty()).then(|| Self {
            min: at(0.0),
            median: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        })
    }
}

/// Gathers the outcomes of many connections.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    outcomes: Mutex<Vec<Outcome>>,
    failures: Mutex<BTreeMap<String, u64>>,
    rounds: Mutex<Vec<Duration>>,
}

impl Gathered {
    pub(super) fn add(&self, outcome: Outcome) {
        lock(&self.outcomes).push(outcome);
    }

    pub(super) fn fail(&self, reason: String) {
        *lock(&self.failures).entry(reason).or_default() += 1;
    }

    pub(super) fn add_rounds(&self, rounds: Vec<Duration>) {
        lock(&self.rounds).extend(rounds);
    }

    pub(super) fn summary(self, elapsed: Duration) -> Summary {
        let outcomes = self
            .outcomes
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let rounds = self
            .rounds
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let failures = self
            .failures
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let bytes: u64 = outcomes.iter().map(|o| o.bytes).sum();
        let seconds = elapsed.as_secs_f64();
        // One connection is measured from its first byte; several as a whole, connecting included.
        let measured = match outcomes.as_slice() {
            [one] => one.elapsed.as_secs_f64(),
            _ => seconds,
        };
        Summary {
            connections: outcomes.len() as u64,
            failures,
            bytes,
            seconds,
            bits_per_second: if measured > 0.0 {
                bytes as f64 * 8.0 / measured
            } else {
                0.0
            },
            sha256: outcomes
                .iter()
                .rev()
                .find_map(|o| o.sha256)
                .map(|hash| hex(&hash)),
            same: outcomes.iter().filter_map(|o| o.same).reduce(|a, b| a && b),
            requests: rounds.len() as u64,
            connect_ms: Spread::of(outcomes.iter().map(|o| o.connect).collect()),
            request_ms: Spread::of(rounds),
        }
    }
}

/// The values under these locks are whole after every step, so a panic elsewhere leaves them usable.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_times() {
        assert_eq!(Spread::of(Vec::new()), None);
        let times: Vec<Duration> = (1..=101).rev().map(Duration::from_millis).collect();
        let spread = Spread::of(times).expect("times");
        assert_eq!(
            (spread.min, spread.median, spread.p99, spread.max),
            (1.0, 51.0, 100.0, 101.0)
        );
    }
}
