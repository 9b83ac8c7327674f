//! A path that the guard lets rest is tried again now and then.
//!
//! The guard judges a path by what was seen of it, and of one that rests nothing is seen: a path that was slow once, behind the
//! data of somebody else, would rest for as long as the connection lives. What was seen ten seconds ago counts no more. The
//! subflow then gets a copy of what others have in flight, for which nobody waits, and is like a new one from then on, whose round
//! trip that copy tells. One that rests again was not worth it, and waits twice as long for the next time.

use manypath_tcp::time::{Duration, Instant};

use crate::conn::pull::path_view::Duplicate;
use crate::conn::subflow::Subflow;
use crate::conn::{Conn, Cx};

/// As long as what a path carries is remembered at most.
const RESTED: Duration = Duration::from_secs(10);

/// How often that doubles: a path is tried every eighty seconds at least.
const DOUBLINGS: u32 = 3;

/// Time between looks for subflows that rest.
const LOOK: Duration = Duration::from_secs(1);

/// How long one rests that was tried so often. Pure.
fn long_enough(reprobes: u32) -> Duration {
    RESTED.times(1 << reprobes.min(DOUBLINGS))
}

/// It could carry data, and has carried none for long.
fn has_rested(sf: &Subflow, now: Instant) -> bool {
    let enough = |span| span >= long_enough(sf.reprobes);
    sf.answers() && !sf.is_backup() && sf.tcp.rests(now).is_some_and(enough)
}

impl Conn {
    /// What to copy to a subflow that rests, if one has rested long enough while the others were busy.
    pub(in crate::conn) fn next_reprobe(&mut self, cx: &Cx<'_>) -> Option<Duplicate> {
        if !self.schedule.looks_for_rest(cx.now, LOOK) || self.subflows.len() < 2 {
            return None;
        }
        if !self.is_guarded() || !self.fallback.is_multipath() || !self.send.is_busy() {
            return None;
        }
        let rested = |sf: &Subflow| has_rested(sf, cx.now);
        let i = self.subflows.iter().position(rested)?;
        let part = self.duplicate_for(i)?;
        let sf = &mut self.subflows[i];
        sf.tcp.forget_path();
        sf.reprobes = sf.reprobes.saturating_add(1);
        let on = sf.id();
        self.refresh_sample(i);
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
    fn each_trial_in_vain_makes_the_next_one_wait_longer() {
        let seconds =
            [0, 1, 2, 3, 4, 1_000].map(|reprobes| long_enough(reprobes).as_millis() / 1_000);
        assert_eq!(seconds, [10, 20, 40, 80, 80, 80]);
    }
}
