//! Reprobes a path that the guarded scheduler leaves idle.
//!
//! The guard judges a path by its measurements, and an idle path yields none: one that was slow once, behind data of other hosts, would
//! stay idle for the life of the connection. Measurements older than ten seconds no longer count. The subflow then gets a duplicate of what
//! others have in flight, for which nothing waits; from then on it is treated as a new one, with the RTT of that duplicate. If it stays
//! idle again, the path was not worth it, and the next reprobe waits twice as long.

use manypath_tcp::time::{Duration, Instant};

use crate::api::ConnOptions;
use crate::conn::pull::path_view::Duplicate;
use crate::conn::pull::path_view::Schedule;
use crate::conn::send::flight::Flight;
use crate::conn::subflow::Subflow;
use crate::conn::types::Cx;

/// The longest time for which a path's rate is remembered.
const RESTED: Duration = Duration::from_secs(10);

/// How often that doubles: a path is reprobed every eighty seconds at least.
const DOUBLINGS: u32 = 3;

/// Interval between searches for idle subflows.
pub(in crate::conn) const LOOK: Duration = Duration::from_secs(1);

/// Idle time before the next reprobe, after so many. Pure.
fn long_enough(reprobes: u32) -> Duration {
    RESTED.times(1 << reprobes.min(DOUBLINGS))
}

/// It could carry data, and has been idle for long.
fn is_long_idle(sf: &Subflow, now: Instant) -> bool {
    let enough = |span| span >= long_enough(sf.reinjection.reprobes);
    sf.is_active() && !sf.is_backup() && sf.tcp.rests(now).is_some_and(enough)
}

impl Schedule {
    /// What to duplicate on an idle subflow, if one has been idle long enough while the others were busy. Asked once per [`LOOK`].
    pub(in crate::conn) fn next_reprobe(
        &mut self,
        flight: &mut Flight<'_>,
        opts: &ConnOptions,
        cx: &Cx<'_>,
    ) -> Option<Duplicate> {
        if flight.subflows.len() < 2 {
            return None;
        }
        if !opts.is_guarded() || !flight.level.is_multipath() || !flight.send.is_busy() {
            return None;
        }
        let rested = |sf: &Subflow| is_long_idle(sf, cx.now);
        let i = flight.subflows.position(rested)?;
        let part = flight.subflows.duplicate_for(flight.send, i)?;
        let sf = &mut flight.subflows[i];
        sf.tcp.forget_path();
        sf.reinjection.reprobes = sf.reinjection.reprobes.saturating_add(1);
        let on = sf.id();
        flight.subflows.refresh_sample(i);
        Some(Duplicate {
            on,
            at: part.start,
            bytes: part.end.since(part.start),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reprobe_doubles_the_wait_for_the_next_one() {
        let seconds =
            [0, 1, 2, 3, 4, 1_000].map(|reprobes| long_enough(reprobes).as_millis() / 1_000);
        assert_eq!(seconds, [10, 20, 40, 80, 80, 80]);
    }
}
