//! What the benchmark measures and what it found, as plain data.

use serde::Serialize;

/// Whose implementation stands at which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The kernel's TCP at both ends.
    KernelTcp,
    /// The kernel's Multipath TCP at both ends.
    KernelMptcp,
    /// Ours sends to the kernel's Multipath TCP.
    OursSends,
    /// The kernel's Multipath TCP sends to ours.
    OursReceives,
    /// Ours at both ends.
    Ours,
}

impl Arm {
    /// Every arm, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::KernelTcp,
        Self::KernelMptcp,
        Self::OursSends,
        Self::OursReceives,
        Self::Ours,
    ];

    /// Its name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelTcp => "kernel TCP",
            Self::KernelMptcp => "kernel MPTCP",
            Self::OursSends => "ours -> kernel",
            Self::OursReceives => "kernel -> ours",
            Self::Ours => "ours -> ours",
        }
    }
}

/// Conditions of one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Condition {
    /// Veth pairs, and with them subflows.
    pub paths: u8,
    /// Segmentation offload and its reverse.
    pub offload: bool,
    /// The checksum of Multipath TCP's own.
    pub checksum: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Payload bits per second.
    pub goodput: f64,
    /// Processor seconds per 10^9 payload bytes: both ends, the kernel and its interrupts.
    pub cpu_per_gb: f64,
    /// Processor seconds that other programs used meanwhile: above zero, the machine was not quiet.
    pub strangers: f64,
}

/// All that was measured of one arm in one condition.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The arm.
    pub arm: Arm,
    /// The condition; for TCP, which has no checksum of the kind, it is without.
    pub condition: Condition,
    /// One entry a round that succeeded.
    pub runs: Vec<Measured>,
    /// Why a round did not succeed, the last reason if several.
    pub failure: Option<String>,
}

impl Cell {
    /// The medians of the runs.
    #[must_use]
    pub fn median(&self) -> Option<Measured> {
        let of = |pick: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = self.runs.iter().map(pick).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        Some(Measured {
            goodput: of(|m| m.goodput)?,
            cpu_per_gb: of(|m| m.cpu_per_gb)?,
            strangers: of(|m| m.strangers)?,
        })
    }
}

/// The whole benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processors of this machine.
    pub processors: usize,
    /// Every cell, ordered by condition and arm.
    pub cells: Vec<Cell>,
    /// What could not be measured at all, and why.
    pub skipped: Vec<String>,
}

/// The cells in the order in which they are measured and shown.
pub(super) fn cells(arms: &[Arm]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for paths in [1, 2] {
        for offload in [true, false] {
            for checksum in [false, true] {
                for arm in arms {
                    if *arm == Arm::KernelTcp && (checksum || paths > 1) {
                        continue;
                    }
                    let condition = Condition {
                        paths,
                        offload,
                        checksum,
                    };
                    cells.push(Cell {
                        arm: *arm,
                        condition,
                        runs: Vec::new(),
                        failure: None,
                    });
                }
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_is_measured_once_for_each_state_of_the_offloads() {
        let all = cells(&Arm::ALL);
        assert_eq!(
            all.iter().filter(|cell| cell.arm == Arm::KernelTcp).count(),
            2
        );
        assert_eq!(all.len(), 2 + 4 * 8);
    }

    #[test]
    fn a_cell_tells_its_median() {
        let run = |goodput| Measured {
            goodput,
            cpu_per_gb: 10.0 - goodput,
            strangers: 0.0,
        };
        let condition = Condition {
            paths: 1,
            offload: true,
            checksum: false,
        };
        let mut cell = Cell {
            arm: Arm::Ours,
            condition,
            runs: [3.0, 1.0, 2.0].map(run).to_vec(),
            failure: None,
        };
        let median = cell.median().expect("three runs");
        assert_eq!((median.goodput, median.cpu_per_gb), (2.0, 8.0));
        cell.runs.clear();
        assert_eq!(cell.median(), None);
    }
}
