//! Holds a class to its rate where streams are the host's: what is written waits for its time.
//!
//! Each writer books its place behind those that came before it, so that all get the same share. Bytes of the stream count, since the host's
//! packets are not seen here.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// What may leave at once after a pause.
const BURST: Duration = Duration::from_millis(20);
/// Bounds of what is booked at one time, bytes.
const LEAST: u64 = 536;
const MOST: u64 = 64 << 10;
/// A writer that waits looks this often whether the rate has changed.
const LOOK: Duration = Duration::from_millis(100);

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Booking {
    bytes: u64,
    at: Instant,
    /// Of the rate that it was booked at.
    version: u64,
}

/// The line of one rate. Pure: time comes in.
#[derive(Debug)]
struct Line {
    bits_per_second: u64,
    /// When the last one that has booked has been served.
    free_at: Instant,
    version: u64,
    held: Duration,
    waits: u64,
}

impl Line {
    fn time_of(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(self.bits_per_second.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4))
    }

    /// Books what `want` bytes may have at one time.
    fn book(&mut self, now: Instant, want: u64) -> Booking {
        let in_burst = u128::from(self.bits_per_second) * BURST.as_millis() / 8000;
        let most = u64::try_from(in_burst).unwrap_or(MOST).clamp(LEAST, MOST);
        let bytes = want.min(most);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let begin = self.free_at.max(earliest);
        let end = begin.checked_add(self.time_of(bytes)).unwrap_or(begin);
        self.free_at = end;
        let at = begin.max(now);
        if at > now {
            self.held += at - now;
            self.waits += 1;
        }
        Booking {
            bytes,
            at,
            version: self.version,
        }
    }
}

/// A rate that streams share; none: they are not held back.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    line: Mutex<Option<Line>>,
    /// Bytes that its streams have written, with a rate or without.
    written: AtomicU64,
}

/// What a pace does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaceState {
    pub(crate) bits_per_second: u64,
    pub(crate) held: Duration,
    pub(crate) waits: u64,
}

impl Pace {
    fn line(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that its streams have written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Changes the rate. Who waits finds out within [`LOOK`].
    pub(crate) fn set(&self, bits_per_second: Option<u64>) {
        let mut line = self.line();
        let before = line.take();
        if before.as_ref().map(|line| line.bits_per_second) == bits_per_second {
            *line = before;
            return;
        }
        *line = bits_per_second.map(|bits_per_second| Line {
            bits_per_second,
            free_at: Instant::now(),
            version: before.as_ref().map_or(0, |line| line.version) + 1,
            held: before.as_ref().map_or(Duration::ZERO, |line| line.held),
            waits: before.as_ref().map_or(0, |line| line.waits),
        });
    }

    pub(crate) fn state(&self) -> Option<PaceState> {
        self.line().as_ref().map(|line| PaceState {
            bits_per_second: line.bits_per_second,
            held: line.held,
            waits: line.waits,
        })
    }

    fn book(&self, now: Instant, want: usize) -> Option<Booking> {
        let mut line = self.line();
        line.as_mut().map(|line| line.book(now, want as u64))
    }

    fn is_of(&self, booking: &Booking) -> bool {
        let line = self.line();
        line.as_ref()
            .is_some_and(|line| line.version == booking.version)
    }
}

/// Which pace a stream keeps, for who classifies it while others write to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rein(Arc<Mutex<Option<Arc<Pace>>>>);

impl Rein {
    /// The stream keeps this pace from now on.
    pub(crate) fn keep(&self, pace: Option<Arc<Pace>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    fn pace(&self) -> Option<Arc<Pace>> {
        let pace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pace.clone()
    }
}

/// A stream's place in the line of its pace.
#[derive(Debug, Default)]
pub(crate) struct Paced {
    pub(crate) rein: Rein,
    /// Bytes that may be written now.
    granted: usize,
    booked: Option<Booking>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    /// How many of `want` bytes may be written now.
    pub(crate) fn poll_grant(&mut self, cx: &mut Context<'_>, want: usize) -> Poll<usize> {
        if want == 0 {
            return Poll::Ready(0);
        }
        loop {
            if self.granted > 0 {
                return Poll::Ready(want.min(self.granted));
            }
            let Some(pace) = self.rein.pace() else {
                self.booked = None;
                return Poll::Ready(want);
            };
            if let Some(wait) = &mut self.wait {
                ready!(wait.as_mut().poll(cx));
                self.wait = None;
            }
            let now = Instant::now();
            let booked = self.booked.take().filter(|booked| pace.is_of(booked));
            let Some(booking) = booked.or_else(|| pace.book(now, want)) else {
                return Poll::Ready(want);
            };
            if booking.at <= now {
                self.granted = usize::try_from(booking.bytes).unwrap_or(usize::MAX);
            } else {
                self.booked = Some(booking);
                self.wait = Some(Box::pin(sleep_until(booking.at.min(now + LOOK))));
            }
        }
    }

    /// So many bytes were written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.granted = self.granted.saturating_sub(bytes);
        if let Some(pace) = self.rein.pace() {
            pace.written.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bits_per_second: u64, now: Instant) -> Line {
        Line {
            bits_per_second,
            free_at: now,
            version: 1,
            held: Duration::ZERO,
            waits: 0,
        }
    }

    #[tokio::test]
    async fn what_is_booked_is_the_rate_times_the_time_and_one_burst() {
        let start = Instant::now();
        for rate in [1_000, 64_000, 10_000_000, 10_000_000_000_u64] {
            let (mut line, mut now, mut sent) = (line(rate, start), start, 0_u64);
            for _ in 0..1000 {
                let booking = line.book(now, 16 << 10);
                now = now.max(booking.at);
                sent += booking.bytes;
                let allowed = (now - start + BURST).as_secs_f64() * rate as f64 / 8.0;
                let packet = booking.bytes as f64;
                assert!(
                    sent as f64 <= allowed + packet,
                    "{rate}: {sent} of {allowed}"
                );
                let due = (now - start).as_secs_f64() * rate as f64 / 8.0;
                assert!(sent as f64 >= due * 0.98, "{rate}: {sent} of {due}");
            }
        }
    }

    #[tokio::test]
    async fn no_rate_overflows() {
        let start = Instant::now();
        for rate in [0, 1, u64::MAX] {
            let mut line = line(rate, start);
            for _ in 0..100 {
                assert!(line.book(start, usize::MAX as u64).bytes <= MOST);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_at_a_slow_rate_goes_on_at_once_when_that_is_lifted() {
        let pace = Arc::new(Pace::default());
        pace.set(Some(8));
        let mut paced = Paced::default();
        paced.rein.keep(Some(Arc::clone(&pace)));
        let first = std::future::poll_fn(|cx| paced.poll_grant(cx, 1000)).await;
        paced.wrote(first);
        let begin = Instant::now();
        let lift = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            pace.set(None);
        };
        let next = std::future::poll_fn(|cx| paced.poll_grant(cx, 1000));
        let ((), next) = tokio::join!(lift, next);
        assert_eq!(next, 1000);
        assert!(begin.elapsed() <= Duration::from_millis(1200));
    }

    #[tokio::test(start_paused = true)]
    async fn sixty_four_writers_get_the_same_share() {
        let pace = Arc::new(Pace::default());
        pace.set(Some(1_000_000));
        let writers = (0..64).map(|_| {
            let mut paced = Paced::default();
            paced.rein.keep(Some(Arc::clone(&pace)));
            tokio::spawn(async move {
                let (begin, mut sent) = (Instant::now(), 0);
                while begin.elapsed() < Duration::from_secs(60) {
                    let n = std::future::poll_fn(|cx| paced.poll_grant(cx, 16_384)).await;
                    paced.wrote(n);
                    sent += n;
                }
                sent
            })
        });
        let mut all = Vec::new();
        for writer in writers.collect::<Vec<_>>() {
            all.push(writer.await.expect("it ends"));
        }
        let (least, most) = (all.iter().min(), all.iter().max());
        let ratio = *least.expect("64") as f64 / *most.expect("64") as f64;
        assert!(ratio > 0.9, "{ratio}");
        let sum: usize = all.iter().sum();
        assert!(sum <= 7_500_000 + 65 * 2500, "{sum}");
    }
}
