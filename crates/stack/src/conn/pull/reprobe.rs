//! Reprobes a path that the guarded scheduler leaves idle.
//!
//! The guard judges a path by its measurements, and an idle path yields none: one that was slow once, behind data of other hosts, would
//! stay idle for the life of the connection. Measurements older than ten seconds no longer count. The subflow then gets a duplicate of what
//! others have in flight, for which nothing waits; from then on it is treated as a new one, with the RTT of that duplicate. If it stays
//! idle again, the path was not worth it, and the next reprobe waits twice as long.

use manypath_tcp::time::{Duration, Instant};

use crate::conn::Conn;
use crate::conn::pull::path_view::Duplicate;
use crate::conn::pull::path_view::is_guarded;
use crate::conn::subflow::Subflow;
use crate::conn::types::Cx;

/// The longest time for which a path's rate is remembered.
const RESTED: Duration = Duration::from_secs(10);

/// How often that doubles: a path is reprobed every eighty seconds at least.
const DOUBLINGS: u32 = 3;

/// Interval between searches for idle subflows.
const LOOK: Duration = Duration::from_secs(1);

/// Idle time before the next reprobe, after so many. Pure.
fn long_enough(reprobes: u32) -> Duration {
    RESTED.times(1 << reprobes.min(DOUBLINGS))
}

/// It could carry data, and has been idle for long.
fn has_rested(sf: &Subflow, now: Instant) -> bool {
    let enough = |span| span >= long_enough(sf.reinjection.reprobes);
    sf.is_active() && !sf.is_backup() && sf.tcp.rests(now).is_some_and(enough)
}

impl Conn {
    /// What to duplicate on an idle subflow, if one has been idle long enough while the others were busy.
    pub(in crate::conn) fn next_reprobe(&mut self, cx: &Cx<'_>) -> Option<Duplicate> {
        if !self.schedule.looks_for_rest(cx.now, LOOK) || self.subflows.len() < 2 {
            return None;
        }
        if !is_guarded(&self.opts) || !self.level.is_multipath() || !self.send.is_busy() {
            return None;
        }
        let rested = |sf: &Subflow| has_rested(sf, cx.now);
        let i = self.subflows.position(rested)?;
        let part = self.subflows.duplicate_for(&self.send, i)?;
        let sf = &mut self.subflows[i];
        sf.tcp.forget_path();
        sf.reinjection.reprobes = sf.reinjection.reprobes.saturating_add(1);
        let on = sf.id();
        self.subflows.refresh_sample(i);
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
