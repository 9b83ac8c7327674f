//! The table for people.

use std::fmt::Write;

use super::model::{Arm, Cell, Outcome, Report, Row};

/// Width of a cell.
const WIDE: usize = 17;

impl Report {
    /// The table: a row for each box and place, a column for each pair of client and server.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "Linux {}, real packets; {} bytes up, then down; what came of it, and the longest wait for a byte\n",
            self.kernel, self.bytes
        );
        let heads = Arm::ALL.map(|arm| format!("{:<WIDE$}", arm.name()));
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            text,
            "  {:<22} {:<10} {}",
            "box",
            "where",
            heads.concat().trim_end()
        );
        let mut previous = None;
        for row in &self.rows {
            if previous.is_some_and(|name| name != &row.name) {
                text.push('\n');
            }
            previous = Some(&row.name);
            text.push_str(&line(row));
            text.push('\n');
        }
        text.push('\n');
        for row in &self.rows {
            for cell in &row.cells {
                if let Outcome::Failed(why) = &cell.outcome {
                    let _ = writeln!(
                        text,
                        "failed: {}, {}, {}: {why}",
                        row.name,
                        row.place.name(),
                        cell.arm.name()
                    );
                }
            }
        }
        for (row, cell) in self
            .rows
            .iter()
            .flat_map(|row| row.cells.iter().map(move |c| (row, c)))
        {
            let mut all: Vec<_> = cell.others.iter().chain([&cell.outcome]).collect();
            all.sort_by_key(|outcome| outcome.rank());
            if all.iter().any(|other| other.rank() != cell.outcome.rank()) {
                let words: Vec<_> = all.into_iter().map(word).collect();
                let _ = writeln!(
                    text,
                    "runs differ: {}, {}, {}: {}",
                    row.name,
                    row.place.name(),
                    cell.arm.name(),
                    words.join(", ")
                );
            }
        }
        for row in &self.rows {
            // TCP has no options of ours to meet.
            let idle = row
                .cells
                .iter()
                .filter(|cell| cell.touched == 0 && cell.arm != Arm::Tcp);
            let idle: Vec<_> = idle.map(|cell| cell.arm.name()).collect();
            if !idle.is_empty() {
                let _ = writeln!(
                    text,
                    "the box met nothing: {}, {}: {}",
                    row.name,
                    row.place.name(),
                    idle.join("; ")
                );
            }
        }
        text.push_str(&self.verdict());
        text
    }

    /// The last lines: where we are better than the kernel, and where worse.
    fn verdict(&self) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| row.better()) {
            let _ = writeln!(
                text,
                "+ {}, {}: the kernel fails, ours passes",
                row.name,
                row.place.name()
            );
        }
        for row in &self.rows {
            for arm in row.worse() {
                let _ = writeln!(
                    text,
                    "! {}, {}: {} is worse than the kernel with itself",
                    row.name,
                    row.place.name(),
                    arm.name()
                );
            }
        }
        if self.is_good() {
            text.push_str("Nowhere is ours worse than the kernel's.\n");
        }
        text
    }
}

/// One row.
pub(super) fn line(row: &Row) -> String {
    let mark = match (row.worse().is_empty(), row.better()) {
        (false, _) => '!',
        (true, true) => '+',
        (true, false) => ' ',
    };
    let cells =
        Arm::ALL.map(|arm| format!("{:<WIDE$}", row.cell(arm).map_or_else(String::new, cell)));
    let text = format!(
        "{mark} {:<22} {:<10} {}",
        row.name,
        row.place.name(),
        cells.concat()
    );
    text.trim_end().to_owned()
}

/// What came of a run, in a word or two.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Intact => "intact",
        Outcome::SubflowLost => "one lost",
        Outcome::FellBack => "fell back",
        Outcome::Failed(_) => "FAILED",
    }
}

fn cell(cell: &Cell) -> String {
    let word = word(&cell.outcome);
    let mark = if cell.rewritten { "*" } else { "" };
    format!("{word}{mark} {:.2}", cell.stall)
}

#[cfg(test)]
mod tests {
    use super::super::model::Place;
    use super::super::model::tests::row;
    use super::*;

    #[test]
    fn marks_and_reasons_are_shown() {
        let failed = Outcome::Failed("up: reset".to_owned());
        let mut report = Report {
            version: String::new(),
            kernel: "6".to_owned(),
            bytes: 5,
            seed: 1,
            rows: vec![
                row(
                    Place::Only,
                    &[
                        (Arm::Tcp, Outcome::Intact, 0.02),
                        (Arm::Kernel, failed, 0.1),
                        (Arm::Ours, Outcome::FellBack, 0.3),
                    ],
                ),
                row(Place::Second, &[(Arm::Kernel, Outcome::Intact, 0.1)]),
            ],
        };
        let text = report.table();
        assert!(text.contains("+ strip"), "{text}");
        assert!(text.contains("fell back 0.30"), "{text}");
        assert!(text.contains("failed: strip, only path, kernel > kernel: up: reset"));
        assert!(text.ends_with("Nowhere is ours worse than the kernel's.\n"));
        report.rows[1] = row(
            Place::Second,
            &[
                (Arm::Kernel, Outcome::Intact, 0.1),
                (Arm::OursServes, Outcome::FellBack, 0.1),
            ],
        );
        report.rows[1].cells[1].touched = 0;
        let text = report.table();
        assert!(text.contains("! strip"), "{text}");
        assert!(text.contains("kernel > ours is worse"), "{text}");
        assert!(
            text.contains("the box met nothing: strip, 2nd of 2: kernel > ours"),
            "{text}"
        );
        assert!(!text.contains("Nowhere"));
    }
}
