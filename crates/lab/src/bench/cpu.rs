//! Processor time of an experiment: everything the machine did, less what strangers did.
//!
//! The work of a packet is done in three places: the program, the kernel on its behalf, and interrupts that run in
//! whatever context they hit. Only the machine's own totals hold all three, each moment once. What other programs used
//! meanwhile is subtracted, and told, because a busy machine also spoils caches and the goodput. When they used much, the
//! totals say little: then the time of the taking part processes stands alone, which leaves out the interrupts that hit
//! others.

use std::collections::BTreeMap;

/// Processor time seen at one moment, in clock ticks of 10 ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    busy: u64,
    ours: u64,
    strangers: BTreeMap<u32, Ticks>,
}

/// Processor time of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    own: u64,
    /// Of its children that have ended, whenever they used it.
    children: u64,
}

/// Processor time between two moments, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spent {
    /// By the experiment: both ends, the kernel, the interrupts.
    pub(super) ours: f64,
    /// By other programs, at most.
    pub(super) strangers: f64,
}

/// Ticks in a second, which Linux shows to programs on every machine (`USER_HZ`).
const HZ: f64 = 100.0;
/// Ticks of strangers above which the machine's totals are not trusted.
const NOISY: u64 = 15;

impl Snapshot {
    /// Looks at the machine. Processes in `ours` belong to the experiment.
    pub(super) fn take(ours: &[u32]) -> std::io::Result<Self> {
        let busy = busy(&std::fs::read_to_string("/proc/stat")?);
        let mut seen = Self {
            busy,
            ours: 0,
            strangers: BTreeMap::new(),
        };
        for entry in std::fs::read_dir("/proc")? {
            let Some(pid) = entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            // A process may end between the listing and the reading.
            let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
                continue;
            };
            let Some(ticks) = process(&text) else {
                continue;
            };
            if ours.contains(&pid) {
                seen.ours += ticks.own;
            } else {
                seen.strangers.insert(pid, ticks);
            }
        }
        Ok(seen)
    }

    pub(super) fn since(&self, earlier: &Self) -> Spent {
        let (mut own, mut most) = (0, 0);
        for (pid, now) in &self.strangers {
            let Some(then) = earlier.strangers.get(pid) else {
                most += now.own;
                continue;
            };
            own += now.own.saturating_sub(then.own);
            most += now.own.saturating_sub(then.own) + now.children.saturating_sub(then.children);
        }
        let ours = if most > NOISY {
            self.ours.saturating_sub(earlier.ours)
        } else {
            self.busy.saturating_sub(earlier.busy).saturating_sub(own)
        };
        Spent {
            ours: ours as f64 / HZ,
            strangers: most as f64 / HZ,
        }
    }
}

/// Ticks in which some processor was at work: user, nice, system, irq and softirq of the first line. While a host ran
/// others (steal), this machine did nothing.
fn busy(stat: &str) -> u64 {
    let fields = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .skip(1);
    fields
        .take(7)
        .enumerate()
        .filter(|(at, _)| !matches!(at, 3 | 4))
        .filter_map(|(_, n)| n.parse::<u64>().ok())
        .sum()
}

/// User and system ticks of a process; nothing for threads of the kernel, whose work belongs to the experiment.
fn process(stat: &str) -> Option<Ticks> {
    const KERNEL: u32 = 2;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let parent: u32 = fields.get(1)?.parse().ok()?;
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    (parent != KERNEL).then_some(())?;
    Some(Ticks {
        own: number(11)? + number(12)?,
        children: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_waiting_and_stolen_time_do_not_count() {
        assert_eq!(
            busy("cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 9 9 9 9 9 9 9 9 9 9\n"),
            31
        );
    }

    #[test]
    fn a_process_has_a_name_that_may_hold_anything() {
        let fields = "S 1 0 0 0 0 0 0 0 0 0 3 4 5 6 20 0";
        assert_eq!(
            process(&format!("7 (a) b (c) {fields}")),
            Some(Ticks {
                own: 7,
                children: 11
            })
        );
        assert_eq!(
            process("7 (ksoftirqd/0) S 2 0 0 0 0 0 0 0 0 0 3 4 5 6"),
            None
        );
    }

    fn at(busy: u64, ours: u64, strangers: &[(u32, u64, u64)]) -> Snapshot {
        let strangers = strangers.iter().map(|(pid, own, children)| {
            (
                *pid,
                Ticks {
                    own: *own,
                    children: *children,
                },
            )
        });
        Snapshot {
            busy,
            ours,
            strangers: strangers.collect(),
        }
    }

    #[test]
    fn on_a_quiet_machine_all_that_strangers_did_not_do_counts() {
        let spent =
            at(500, 290, &[(1, 60, 0), (3, 2, 0)]).since(&at(100, 0, &[(1, 50, 0), (2, 10, 0)]));
        assert_eq!(
            spent,
            Spent {
                ours: 3.9,
                strangers: 0.12
            }
        );
    }

    #[test]
    fn on_a_busy_machine_only_the_experiments_own_processes_count() {
        let spent = at(500, 290, &[(1, 50, 100)]).since(&at(100, 0, &[(1, 50, 0)]));
        assert_eq!(
            spent,
            Spent {
                ours: 2.9,
                strangers: 1.0
            }
        );
    }
}
