//! Log lines that would come with every connection or every attempt, said at most once a while.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets one line through in each period and counts those that it holds back.
#[derive(Debug)]
pub(crate) struct Seldom {
    period: Duration,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    said: Option<Instant>,
    held_back: u64,
}

impl Seldom {
    /// One line in each `period`.
    pub(crate) const fn every(period: Duration) -> Self {
        Self {
            period,
            state: Mutex::new(State {
                said: None,
                held_back: 0,
            }),
        }
    }

    /// Whether a line may be said at this time; `Some` tells how many were held back since the last one.
    pub(crate) fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rests = |said| now.saturating_duration_since(said) < self.period;
        if state.said.is_some_and(rests) {
            state.held_back += 1;
            return None;
        }
        let held_back = state.held_back;
        *state = State {
            said: Some(now),
            held_back: 0,
        };
        Some(held_back)
    }
}

/// Lines that were held back, at the end of the next one.
pub(crate) struct Others(pub(crate) u64);

impl std::fmt::Display for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, " (and {n} times more since the last such line)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_each_period_which_counts_the_others() {
        let seldom = Seldom::every(Duration::from_secs(1));
        let start = Instant::now();
        let at = |ms| seldom.due(start + Duration::from_millis(ms));
        assert_eq!(at(0), Some(0));
        assert_eq!((at(1), at(500), at(999)), (None, None, None));
        assert_eq!(at(1000), Some(3));
        assert_eq!(at(1001), None);
        assert_eq!(at(5000), Some(1));
    }
}
