//! How many connections a class may have at one time, and how many may begin in a time.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};

use crate::serve::Refusal;

/// The most that is counted.
const MOST: u64 = 10_000_000;

/// So many connections may begin in a time; after a pause that many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRate {
    count: u64,
    period: Duration,
}

impl ConnectionRate {
    /// The time of one connection.
    fn each(&self) -> Duration {
        let nanos = self.period.as_nanos() / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl FromStr for ConnectionRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no rate of connections, 1 to {MOST} in a second, a minute or an hour: 20/s, 100/m, 1000/h"
            )
        };
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let plain = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse::<u64>().ok().filter(|_| plain);
        let count = count.filter(|count| (1..=MOST).contains(count));
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(wrong()),
        };
        Ok(Self {
            count: count.ok_or_else(wrong)?,
            period: Duration::from_secs(seconds),
        })
    }
}

impl std::fmt::Display for ConnectionRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.period.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

impl Serialize for ConnectionRate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// How many connections a class may have, and begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Admission {
    /// At one time.
    pub connections: Option<u64>,
    /// In a time.
    pub connection_rate: Option<ConnectionRate>,
}

/// Who is in. Pure: time comes in.
#[derive(Debug, Default)]
struct Count {
    admission: Admission,
    /// Nobody is let in whatever places there are.
    closed: bool,
    taken: u64,
    /// When a connection that begins now would have come had all come evenly.
    due: Option<Instant>,
    refused: u64,
}

impl Count {
    fn admit(&mut self, now: Instant) -> Result<(), Refusal> {
        if self.closed {
            self.refused += 1;
            return Err(Refusal::ClassQuota);
        }
        let full = |most: u64| self.taken >= most;
        if self.admission.connections.is_some_and(full) {
            self.refused += 1;
            return Err(Refusal::ClassFull);
        }
        if let Some(rate) = self.admission.connection_rate {
            let each = rate.each();
            let due = self.due.map_or(now, |due| due.max(now));
            if due + each > now + rate.period {
                self.refused += 1;
                return Err(Refusal::ClassRate);
            }
            self.due = Some(due + each);
        }
        self.taken += 1;
        Ok(())
    }
}

/// The places of a class.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<Count>);

impl Seats {
    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other bounds from now on; what is beyond them goes on.
    pub(crate) fn set(&self, admission: Admission) {
        let mut count = self.count();
        if count.admission.connection_rate != admission.connection_rate {
            count.due = None;
        }
        count.admission = admission;
    }

    /// Lets nobody in any more, or again.
    pub(crate) fn close(&self, closed: bool) {
        self.count().closed = closed;
    }

    /// A place for a connection that begins.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Seat, Refusal> {
        self.count().admit(Instant::now())?;
        Ok(Seat(Arc::clone(self)))
    }

    /// Bounds, connections that are in, and how many were refused.
    pub(crate) fn state(&self) -> (Admission, u64, u64) {
        let count = self.count();
        (count.admission, count.taken, count.refused)
    }
}

/// A connection's place in a class; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Seats>);

impl Seat {
    pub(crate) fn is_of(&self, seats: &Arc<Seats>) -> bool {
        Arc::ptr_eq(&self.0, seats)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.count().taken -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_connections_are_read_as_they_are_written() {
        for text in ["1/s", "20/s", "100/m", "10000000/h"] {
            let rate: ConnectionRate = text.parse().expect(text);
            assert_eq!(rate.to_string(), text);
        }
        for wrong in [
            "",
            "20",
            "20/",
            "/s",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "NaN/s",
            "20/d",
            "10000001/s",
            "18446744073709551616/s",
            "20 /s",
            "20/s/s",
        ] {
            assert!(wrong.parse::<ConnectionRate>().is_err(), "{wrong}");
        }
    }

    fn count(connections: Option<u64>, rate: Option<&str>) -> Count {
        let admission = Admission {
            connections,
            connection_rate: rate.map(|rate| rate.parse().expect(rate)),
        };
        Count {
            admission,
            ..Count::default()
        }
    }

    #[test]
    fn as_many_begin_as_the_rate_has_and_no_more() {
        let start = Instant::now();
        for (rate, period, most) in [("20/s", 1, 20), ("60/m", 60, 60), ("1/h", 3600, 1)] {
            let mut count = count(None, Some(rate));
            let at_once = (0..1000).filter(|_| count.admit(start).is_ok());
            assert_eq!(at_once.count(), most, "{rate}");
            // Asked for often, as many in each further period, to within one.
            let mut begun = 0;
            for step in 1..=5000 {
                let now = start + Duration::from_secs(period) * step / 1000;
                begun += usize::from(count.admit(now).is_ok());
            }
            assert!(
                (5 * most - 1..=5 * most).contains(&begun),
                "{rate}: {begun}"
            );
            assert!(count.refused > 0);
        }
    }

    #[test]
    fn the_highest_rate_overflows_nothing() {
        let mut count = count(Some(u64::MAX), Some("10000000/s"));
        let now = Instant::now();
        assert!((0..1000).all(|_| count.admit(now).is_ok()));
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_is_over() {
        let seats = Arc::new(Seats::default());
        let most = |connections| Admission {
            connections: Some(connections),
            connection_rate: None,
        };
        seats.set(most(2));
        let (first, _second) = (seats.admit(), seats.admit());
        assert_eq!(seats.admit().err(), Some(Refusal::ClassFull));
        drop(first);
        let _third = seats.admit().expect("free again");
        seats.set(most(1));
        assert!(seats.admit().is_err(), "what is beyond goes on");
        assert_eq!(seats.state(), (most(1), 2, 2));
        seats.set(Admission::default());
        assert!(seats.admit().is_ok(), "no bound is left");
        seats.close(true);
        assert_eq!(seats.admit().err(), Some(Refusal::ClassQuota));
        seats.close(false);
        assert!(seats.admit().is_ok());
    }
}
