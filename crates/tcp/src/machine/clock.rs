//! The sending half of timestamps: a millisecond clock with a secret offset (RFC 7323 sections 4.1 and 5.4).

use crate::recovery::rtt::Echo;
use crate::time::{Duration, Instant};

/// The clock's tick: the finest that RFC 7323 section 5.4 allows.
const TICK: Duration = Duration::from_millis(1);

/// Turns instants into timestamp values and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct StampClock {
    offset: u32,
}

impl StampClock {
    pub(super) fn new(offset: u32) -> Self {
        StampClock { offset }
    }

    /// The value to send at `now`.
    pub(super) fn value(&self, now: Instant) -> u32 {
        // The clock wraps; only differences count.
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// Reads an echo; `None` for one that we cannot have sent.
    pub(super) fn echo(&self, now: Instant, ecr: u32) -> Option<Echo> {
        let age = self.value(now).wrapping_sub(ecr);
        let ticks = now.as_millis().checked_sub(u64::from(age))?;
        let began = Instant::from_millis(ticks);
        (age < 1 << 31).then(|| Echo {
            before: began + TICK,
            rtt: now.since(began),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_come_back_as_the_tick_they_left_in() {
        let clock = StampClock::new(u32::MAX - 5);
        let sent = Instant::from_micros(1_500_300);
        let now = sent + Duration::from_micros(20_900);
        let echo = clock.echo(now, clock.value(sent));
        assert_eq!(
            echo,
            Some(Echo {
                before: Instant::from_millis(1501),
                rtt: Duration::from_micros(21_200)
            })
        );
        assert_eq!(clock.echo(now, clock.value(now).wrapping_add(1)), None);
        assert_eq!(
            clock.echo(
                Instant::from_millis(3),
                clock.value(Instant::ZERO).wrapping_sub(1)
            ),
            None
        );
    }
}
