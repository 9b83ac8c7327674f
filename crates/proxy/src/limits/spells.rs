//! Times in which a limit holds something back, from the totals that it counts. Pure: looks come in.

use std::collections::BTreeMap;
use std::time::Duration;

use manypath_control::report::LimitReport;
use manypath_control::wire::LimitOf;

/// A limit that has held nothing back for so long holds nothing back any more.
const REST: Duration = Duration::from_secs(10);

/// What a limit has held back since some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) us: u64,
    /// Bytes that went by other paths meanwhile.
    pub(super) elsewhere: u64,
}

impl Held {
    fn of(limit: &LimitReport) -> Self {
        Self {
            us: limit.held_us,
            elsewhere: limit.elsewhere_bytes,
        }
    }

    /// Totals begin anew where the limit was set anew.
    fn since(self, before: Self) -> Self {
        match self.us >= before.us {
            true => Self {
                us: self.us - before.us,
                elsewhere: self.elsewhere.saturating_sub(before.elsewhere),
            },
            false => self,
        }
    }
}

/// What a look at a limit has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It holds back, which it did not for a while.
    Begins(LimitReport),
    /// It went on holding back since the last look.
    Holds(LimitReport),
    /// It holds back no more; what it did in all of the time.
    Ends {
        of: LimitOf,
        name: String,
        held: Held,
    },
}

#[derive(Clone, Copy, Debug)]
struct Spell {
    /// The totals when it began.
    before: Held,
    /// How long it has held nothing back.
    rests: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    last: Held,
    spell: Option<Spell>,
}

/// All limits of a process, as they were when they were looked at last.
#[derive(Debug, Default)]
pub(super) struct Spells(BTreeMap<(LimitOf, String), Known>);

impl Spells {
    /// Looks at all limits; `since`: how long after the last look.
    pub(super) fn look(&mut self, limits: &[LimitReport], since: Duration) -> Vec<Found> {
        let mut found = Vec::new();
        let mut before = std::mem::take(&mut self.0);
        for limit in limits {
            let key = (limit.of, limit.name.clone());
            let now = Held::of(limit);
            // What it held back before the first look counts as well.
            let mut known = before.remove(&key).unwrap_or(Known {
                last: Held::default(),
                spell: None,
            });
            let holds = now.since(known.last).us > 0;
            let last = std::mem::replace(&mut known.last, now);
            match (&mut known.spell, holds) {
                (None, false) => {}
                (None, true) => {
                    let before = if now.us >= last.us {
                        last
                    } else {
                        Held::default()
                    };
                    let rests = Duration::ZERO;
                    known.spell = Some(Spell { before, rests });
                    found.push(Found::Begins(limit.clone()));
                }
                (Some(spell), true) => {
                    spell.rests = Duration::ZERO;
                    found.push(Found::Holds(limit.clone()));
                }
                (Some(spell), false) => {
                    spell.rests += since;
                    if spell.rests >= REST {
                        let held = now.since(spell.before);
                        known.spell = None;
                        let (of, name) = key.clone();
                        found.push(Found::Ends { of, name, held });
                    }
                }
            }
            self.0.insert(key, known);
        }
        // Those that are gone hold nothing back.
        for ((of, name), known) in before {
            if let Some(spell) = known.spell {
                let held = known.last.since(spell.before);
                found.push(Found::Ends { of, name, held });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit(held_us: u64, elsewhere_bytes: u64) -> LimitReport {
        LimitReport {
            of: LimitOf::Path,
            name: "wwan0".into(),
            held_us,
            elsewhere_bytes,
            ..LimitReport::default()
        }
    }

    fn ends(us: u64, elsewhere: u64) -> Found {
        Found::Ends {
            of: LimitOf::Path,
            name: "wwan0".into(),
            held: Held { us, elsewhere },
        }
    }

    #[test]
    fn a_spell_begins_goes_on_over_short_rests_and_ends_with_what_it_held_back() {
        let mut spells = Spells::default();
        let mut look = |us, elsewhere| spells.look(&[limit(us, elsewhere)], SECOND);
        assert_eq!(look(0, 0), []);
        assert_eq!(look(700, 50), [Found::Begins(limit(700, 50))]);
        assert_eq!(look(900, 60), [Found::Holds(limit(900, 60))]);
        for _ in 0..5 {
            assert_eq!(look(900, 60), []);
        }
        assert_eq!(look(1000, 80), [Found::Holds(limit(1000, 80))]);
        for _ in 0..9 {
            assert_eq!(look(1000, 80), []);
        }
        assert_eq!(look(1000, 80), [ends(1000, 80)]);
        assert_eq!(look(1000, 80), []);
        assert_eq!(look(1001, 80), [Found::Begins(limit(1001, 80))]);
        for _ in 0..9 {
            look(1001, 80);
        }
        assert_eq!(look(1001, 80), [ends(1, 0)]);
    }

    #[test]
    fn one_that_is_removed_or_set_anew_ends_or_counts_anew() {
        let mut spells = Spells::default();
        spells.look(&[limit(500, 7)], SECOND);
        assert_eq!(spells.look(&[], SECOND), [ends(500, 7)]);
        assert_eq!(spells.look(&[], SECOND), []);
        spells.look(&[limit(300, 0)], SECOND);
        // Removed and set between two looks.
        assert_eq!(
            spells.look(&[limit(20, 3)], SECOND),
            [Found::Holds(limit(20, 3))]
        );
    }
}
