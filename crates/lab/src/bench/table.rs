//! The benchmark's table: every figure beside the kernel's, as a ratio.

use std::fmt::Write;

use super::{Arm, Cell, Condition, Measured, Report};

/// One measurement in one line.
pub(super) fn line(arm: Arm, condition: Condition, measured: &Measured) -> String {
    let word = |on| if on { "on" } else { "off" };
    format!(
        "{:<15} paths {} offload {:<3} checksum {:<3}  {:7.2} Gbit/s  {:6.3} CPU s/GB{}",
        arm.name(),
        condition.paths,
        word(condition.offload),
        word(condition.checksum),
        measured.goodput / 1e9,
        measured.cpu_per_gb,
        if measured.strangers > 0.0 {
            format!("  (others used {:.2} s)", measured.strangers)
        } else {
            String::new()
        }
    )
}

impl Report {
    /// The table for people. Goodput ratios above 1 and processor ratios below 1 are better than the kernel.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "Linux {}, {} processors; medians; ratios to the kernel's TCP (one path) and Multipath TCP (same condition)\n\
             paths offload checksum  arm               Gbit/s   /TCP  /MPTCP   CPU s/GB   /TCP  /MPTCP\n",
            self.kernel, self.processors
        );
        let word = |on| if on { "on" } else { "off" };
        let mut previous = None;
        for cell in &self.cells {
            if previous.is_some_and(|condition| condition != cell.condition) {
                text.push('\n');
            }
            previous = Some(cell.condition);
            // Writing to a String cannot fail, here and below.
            let _ = write!(
                text,
                "{:<5} {:<7} {:<8}  {:<15}",
                cell.condition.paths,
                word(cell.condition.offload),
                word(cell.condition.checksum),
                cell.arm.name()
            );
            let Some(median) = cell.median() else {
                let _ = writeln!(
                    text,
                    "  -  {}",
                    cell.failure.as_deref().unwrap_or("not measured")
                );
                continue;
            };
            let _ = writeln!(
                text,
                " {:8.2} {} {}   {:8.3} {} {}",
                median.goodput / 1e9,
                self.ratio(cell, Arm::KernelTcp, |m| m.goodput),
                self.ratio(cell, Arm::KernelMptcp, |m| m.goodput),
                median.cpu_per_gb,
                self.ratio(cell, Arm::KernelTcp, |m| m.cpu_per_gb),
                self.ratio(cell, Arm::KernelMptcp, |m| m.cpu_per_gb)
            );
        }
        for line in &self.skipped {
            let _ = writeln!(text, "not measured: {line}");
        }
        if let Some(noise) = self.noise() {
            let _ = writeln!(
                text,
                "other programs used up to {noise:.2} processor seconds in one measurement: repeat on a quiet machine"
            );
        }
        text
    }

    /// A figure as a multiple of the kernel's in the matching cell.
    fn ratio(&self, cell: &Cell, base: Arm, pick: fn(&Measured) -> f64) -> String {
        let wanted = match base {
            Arm::KernelTcp => Condition {
                paths: 1,
                checksum: false,
                ..cell.condition
            },
            _ => cell.condition,
        };
        let base = self
            .cells
            .iter()
            .find(|other| other.arm == base && other.condition == wanted);
        match base.and_then(Cell::median).zip(cell.median()) {
            Some((base, own)) if pick(&base) > 0.0 => format!("{:6.2}", pick(&own) / pick(&base)),
            _ => "     -".to_owned(),
        }
    }

    /// The most that strangers used in one measurement, if it is worth a word.
    fn noise(&self) -> Option<f64> {
        let most = self
            .cells
            .iter()
            .flat_map(|cell| &cell.runs)
            .map(|run| run.strangers)
            .fold(0.0, f64::max);
        (most > 0.1).then_some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::cells;
    use super::*;

    #[test]
    fn ratios_are_to_the_matching_cell() {
        let mut report = Report {
            version: String::new(),
            kernel: "6".to_owned(),
            processors: 2,
            cells: cells(&Arm::ALL),
            skipped: vec!["x".to_owned()],
        };
        for cell in &mut report.cells {
            let goodput = match cell.arm {
                Arm::KernelTcp => 10e9,
                Arm::KernelMptcp => 5e9,
                Arm::Ours | Arm::OursSends | Arm::OursReceives => 6e9,
            };
            cell.runs.push(Measured {
                goodput,
                cpu_per_gb: goodput / 1e10,
                strangers: 0.0,
            });
        }
        let text = report.table();
        let ours: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("ours -> ours"))
            .collect();
        assert_eq!(ours.len(), 8);
        assert!(
            ours.iter().all(|line| line.contains("0.60   1.20")),
            "{text}"
        );
        assert!(text.contains("not measured: x") && !text.contains("quiet machine"));
        report.cells[0].runs[0].strangers = 1.0;
        assert!(report.table().contains("quiet machine"));
    }
}
