//! The table as plain data: boxes, where they stand, who speaks through them, and what came of it.

use std::time::Duration;

use serde::Serialize;

/// Whose Multipath TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// The Linux kernel's.
    Kernel,
    /// Ours.
    Ours,
}

/// Who speaks: a column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The kernel's TCP at both ends, the measure of what the path still carries.
    Tcp,
    /// The kernel at both ends.
    Kernel,
    /// The kernel connects, ours listens.
    OursServes,
    /// Ours connects, the kernel listens.
    OursConnects,
    /// Ours at both ends.
    Ours,
}

impl Arm {
    /// Every arm, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::Tcp,
        Self::Kernel,
        Self::OursServes,
        Self::OursConnects,
        Self::Ours,
    ];

    /// The heading of its column: client, then server.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Kernel => "kernel > kernel",
            Self::OursServes => "kernel > ours",
            Self::OursConnects => "ours > kernel",
            Self::Ours => "ours > ours",
        }
    }

    /// Client and server; nothing for TCP.
    #[must_use]
    pub fn ends(self) -> Option<[Stack; 2]> {
        match self {
            Self::Tcp => None,
            Self::Kernel => Some([Stack::Kernel, Stack::Kernel]),
            Self::OursServes => Some([Stack::Kernel, Stack::Ours]),
            Self::OursConnects => Some([Stack::Ours, Stack::Kernel]),
            Self::Ours => Some([Stack::Ours, Stack::Ours]),
        }
    }

    /// Ours takes part.
    #[must_use]
    pub fn is_ours(self) -> bool {
        self.ends().is_some_and(|ends| ends.contains(&Stack::Ours))
    }
}

/// Which path the box is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The only one.
    Only,
    /// The first of two: where the connection begins.
    First,
    /// The second of two: where a subflow joins.
    Second,
}

impl Place {
    /// Every place, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Only, Self::First, Self::Second];

    /// In the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Only => "only path",
            Self::First => "1st of 2",
            Self::Second => "2nd of 2",
        }
    }

    /// Paths that there are.
    #[must_use]
    pub fn paths(self) -> usize {
        match self {
            Self::Only => 1,
            Self::First | Self::Second => 2,
        }
    }

    /// The path with the box, from 0.
    #[must_use]
    pub fn path(self) -> usize {
        match self {
            Self::Only | Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// What came of it. The order is from good to bad.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "why")]
pub enum Outcome {
    /// Everything arrived; all subflows were there at the end.
    Intact,
    /// Everything arrived; it was Multipath TCP to the end, with fewer subflows than there are paths.
    SubflowLost,
    /// Everything arrived, over what had become TCP.
    FellBack,
    /// Something did not arrive, arrived wrong, or did not end; and why.
    Failed(String),
}

impl Outcome {
    /// How bad it is.
    #[must_use]
    pub fn rank(&self) -> u8 {
        match self {
            Self::Intact => 0,
            Self::SubflowLost => 1,
            Self::FellBack => 2,
            Self::Failed(_) => 3,
        }
    }

    /// Everything arrived.
    #[must_use]
    pub fn delivered(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Who.
    pub arm: Arm,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The longest time that a reader waited for the next byte, from the attempt to connect on, in seconds.
    pub stall: f64,
    /// From the attempt to connect to the end, in seconds.
    pub time: f64,
    /// Packets that the box changed, ended, held back or made.
    pub touched: u64,
    /// What came of it in the other runs, where ours and the kernel's seem to differ and both were run more often: this one
    /// is their median.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Outcome>,
    /// The applications saw payload that the box had rewritten, as with TCP.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rewritten: bool,
}

/// A box at a place: a row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The case's name.
    #[serde(rename = "box")]
    pub name: String,
    /// The boxes with their parameters, nearest to the client first.
    pub chain: Vec<manypath_sim::scenario::PlacedBox>,
    /// Where.
    pub place: Place,
    /// What came of it, in the order of [`Arm::ALL`]; TCP has no second path.
    pub cells: Vec<Cell>,
}

/// A stall that is longer than the kernel's by this much and by this factor counts.
const STALL: (f64, f64) = (0.5, 2.0);

impl Row {
    /// The cell of an arm.
    #[must_use]
    pub fn cell(&self, arm: Arm) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.arm == arm)
    }

    /// Takes further runs of one of its cells: the median of all stays, and remembers what the others came to.
    pub(super) fn take_median(&mut self, again: Vec<Cell>) {
        let arm = again.first().map(|cell| cell.arm);
        let Some(cell) = self.cells.iter_mut().find(|cell| Some(cell.arm) == arm) else {
            return;
        };
        let mut runs = again;
        runs.push(cell.clone());
        runs.sort_by_key(|cell| (cell.outcome.rank(), (cell.stall * 1000.0) as u64));
        let mut median = runs.remove(runs.len() / 2);
        median.others = runs.into_iter().map(|run| run.outcome).collect();
        *cell = median;
    }

    /// The arms of ours that did worse than the kernel with itself.
    #[must_use]
    pub fn worse(&self) -> Vec<Arm> {
        let Some(kernel) = self.cell(Arm::Kernel) else {
            return Vec::new();
        };
        let worse = |cell: &&Cell| {
            let longer = cell.stall > kernel.stall + STALL.0 && cell.stall > kernel.stall * STALL.1;
            // Who did not meet the box did not do well by it.
            let comparable = kernel.touched > 0 || cell.touched == 0;
            cell.arm.is_ours()
                && comparable
                && (cell.outcome.rank() > kernel.outcome.rank()
                    || (cell.outcome.delivered() && kernel.outcome.delivered() && longer))
        };
        self.cells
            .iter()
            .filter(worse)
            .map(|cell| cell.arm)
            .collect()
    }

    /// The kernel with itself fails and ours with itself does not.
    #[must_use]
    pub fn better(&self) -> bool {
        let delivered = |arm| self.cell(arm).map(|cell| cell.outcome.delivered());
        delivered(Arm::Kernel) == Some(false) && delivered(Arm::Ours) == Some(true)
    }
}

/// The whole table.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Bytes each way.
    pub bytes: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// The rows, those of one box together.
    pub rows: Vec<Row>,
}

impl Report {
    /// Ours is nowhere worse than the kernel.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(|row| row.worse().is_empty())
    }
}

/// Seconds for the report.
pub(super) fn seconds(time: Duration) -> f64 {
    // Milliseconds are enough, and easier to read in JSON.
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::boxes) fn row(place: Place, cells: &[(Arm, Outcome, f64)]) -> Row {
        Row {
            name: "strip".to_owned(),
            chain: Vec::new(),
            place,
            cells: cells
                .iter()
                .map(|(arm, outcome, stall)| Cell {
                    arm: *arm,
                    outcome: outcome.clone(),
                    stall: *stall,
                    time: 1.0,
                    touched: 3,
                    others: Vec::new(),
                    rewritten: false,
                })
                .collect(),
        }
    }

    #[test]
    fn worse_is_a_worse_outcome_or_a_much_longer_stall() {
        let failed = || Outcome::Failed("reset".to_owned());
        let judged = |kernel: (Outcome, f64), ours: (Outcome, f64)| {
            let row = row(
                Place::Only,
                &[
                    (Arm::Tcp, Outcome::Intact, 0.0),
                    (Arm::Kernel, kernel.0, kernel.1),
                    (Arm::Ours, ours.0, ours.1),
                ],
            );
            (!row.worse().is_empty(), row.better())
        };
        use Outcome::{FellBack, Intact, SubflowLost};
        assert_eq!(judged((Intact, 0.1), (Intact, 0.5)), (false, false));
        assert_eq!(judged((Intact, 0.1), (Intact, 0.7)), (true, false));
        assert_eq!(judged((Intact, 3.0), (Intact, 4.0)), (false, false));
        assert_eq!(judged((Intact, 0.1), (SubflowLost, 0.1)), (true, false));
        assert_eq!(judged((FellBack, 0.1), (SubflowLost, 0.1)), (false, false));
        assert_eq!(judged((failed(), 0.1), (FellBack, 9.0)), (false, true));
        assert_eq!(judged((failed(), 0.1), (failed(), 9.0)), (false, false));
        assert_eq!(judged((FellBack, 0.1), (failed(), 0.1)), (true, false));
    }

    #[test]
    fn the_median_of_all_runs_counts() {
        let mut one = row(Place::Only, &[(Arm::Ours, Outcome::FellBack, 0.2)]);
        let run = |outcome, stall| {
            row(Place::Only, &[(Arm::Ours, outcome, stall)])
                .cells
                .remove(0)
        };
        one.take_median(Vec::new());
        assert_eq!(one.cells[0].others, []);
        let again = [
            run(Outcome::Intact, 0.9),
            run(Outcome::FellBack, 0.3),
            run(Outcome::Failed("reset".to_owned()), 0.1),
            run(Outcome::FellBack, 0.4),
        ];
        one.take_median(again.to_vec());
        assert_eq!(one.cells[0].outcome, Outcome::FellBack);
        assert_eq!(one.cells[0].stall, 0.3);
        assert_eq!(one.cells[0].others.len(), 4);
        assert!(one.cells[0].others.contains(&Outcome::Intact));
    }

    #[test]
    fn a_box_that_the_kernel_did_not_meet_is_no_measure() {
        let mut one = row(
            Place::Second,
            &[
                (Arm::Kernel, Outcome::Intact, 0.1),
                (Arm::Ours, Outcome::SubflowLost, 0.1),
            ],
        );
        assert_eq!(one.worse(), [Arm::Ours]);
        one.cells[0].touched = 0;
        assert!(one.worse().is_empty());
    }
}
