//! What the demo found out, as plain data, and as a table for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write;

use manypath_tcp::time::Duration;
use serde::Serialize;

use crate::emulator::Buffer;
use crate::testbed::TestPath;

/// Everything that was measured; `serde_json` of it is the output of `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// Real packets or simulated ones.
    pub arm: Arm,
    /// Size of the file.
    pub bytes: u64,
    /// Its SHA-256, hexadecimal; in the simulator there is no file, and every byte is compared instead.
    pub sha256: Option<String>,
    /// The paths, in the order of every list below.
    pub paths: Vec<PathReport>,
    /// Which path was cut.
    pub cut_path: usize,
    /// For how long, in seconds.
    pub cut_seconds: f64,
    /// The downloads: over all paths first.
    pub runs: Vec<RunReport>,
    /// How the Multipath TCP counters of the server's kernel grew during the downloads over Multipath TCP.
    pub kernel_counters: BTreeMap<String, u64>,
}

/// What the packets were.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Arm {
    /// Real packets between network namespaces.
    Real {
        /// The web server and what it runs on.
        server: String,
        /// The program that downloaded.
        client: String,
        /// The kernel's release.
        kernel: String,
    },
    /// Our stack at both ends in the simulator.
    Simulated {
        /// Why there were no real packets.
        reason: String,
    },
}

/// A path as it was set up.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// Its interface.
    pub name: String,
    /// Bits per second towards the client.
    pub rate: u64,
    /// Round trip without queueing, in milliseconds.
    pub round_trip_ms: f64,
    /// Time that a full buffer takes to drain, in milliseconds.
    pub buffer_ms: f64,
}

impl PathReport {
    pub(super) fn of(path: &TestPath) -> Self {
        let rate = path.down.rate;
        let buffer_ms = match path.down.buffer {
            Buffer::Time(time) => milliseconds(time),
            Buffer::Bytes(bytes) => milliseconds(rate.time_for(bytes)),
            Buffer::Unlimited => f64::INFINITY,
        };
        Self {
            name: path.name.clone(),
            rate: rate.as_bytes_per_sec().saturating_mul(8),
            round_trip_ms: milliseconds(path.up.delay + path.down.delay),
            buffer_ms,
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// One download.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// What carried it, for people.
    pub name: String,
    /// The paths that it could use, by their numbers.
    pub over: Vec<usize>,
    /// From the start of the client to the last byte, in seconds.
    pub seconds: f64,
    /// Bits of the file per second.
    pub goodput: f64,
    /// The longest time without a new byte after the first one, in seconds.
    pub longest_stall: f64,
    /// Whether the bytes that arrived are those of the file.
    pub intact: bool,
    /// Bytes of IP packets that each path brought to the client.
    pub path_bytes: Vec<u64>,
    /// When the fast path was cut, if this download lasted that long.
    pub cut: Option<Cut>,
    /// How it went over time.
    pub samples: Vec<Sample>,
}

/// A cut as it happened, in seconds since the start of the download.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cut {
    /// When the path stopped carrying packets.
    pub from: f64,
    /// When it carried them again.
    pub to: f64,
}

/// One interval of a download.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// End of the interval, seconds since the start.
    pub at: f64,
    /// Bits per second that each path carried to the client in it, whole IP packets.
    pub rates: Vec<f64>,
}

impl Report {
    /// The download over all paths with our stack.
    #[must_use]
    pub fn ours(&self) -> Option<&RunReport> {
        self.runs.first()
    }

    /// Whether every download brought the very bytes of the file.
    #[must_use]
    pub fn intact(&self) -> bool {
        self.runs.iter().all(|run| run.intact)
    }

    /// How many times as fast as TCP on the best path our download was.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        let ours = self.ours()?;
        let best = self.alone().map(|run| run.goodput).fold(0.0, f64::max);
        (best > 0.0).then(|| ours.goodput / best)
    }

    /// The downloads over one path alone.
    fn alone(&self) -> impl Iterator<Item = &RunReport> {
        self.runs.iter().filter(|run| run.over.len() == 1)
    }

    /// A table for people, with a closing line.
    #[must_use]
    pub fn table(&self) -> String {
        let mut head =
            vec!["download of".to_owned() + &format!(" {:.1} MB over", self.bytes as f64 / 1e6)];
        head.extend(["seconds", "Mbit/s", "longest stall"].map(str::to_owned));
        head.extend(self.paths.iter().map(|path| format!("over {}", path.name)));
        head.push(
            if self.sha256.is_some() {
                "SHA-256"
            } else {
                "bytes"
            }
            .to_owned(),
        );
        let mut rows = vec![head];
        for run in &self.runs {
            let total = run.path_bytes.iter().sum::<u64>().max(1) as f64;
            let mut row = vec![
                run.name.clone(),
                format!("{:.1}", run.seconds),
                format!("{:.2}", run.goodput / 1e6),
                format!("{:.2} s", run.longest_stall),
            ];
            row.extend(
                run.path_bytes
                    .iter()
                    .map(|bytes| format!("{:.0} %", *bytes as f64 * 100.0 / total)),
            );
            row.push(if run.intact { "equal" } else { "DIFFERENT" }.to_owned());
            rows.push(row);
        }
        let mut text = match &self.arm {
            Arm::Real { .. } => String::new(),
            Arm::Simulated { reason } => format!("Simulated, because {reason}.\n\n"),
        };
        text += &align(&rows);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{}", self.conclusion());
        text
    }

    /// What the numbers say, in one sentence or two.
    #[must_use]
    pub fn conclusion(&self) -> String {
        let Some(ours) = self.ours() else {
            return String::new();
        };
        let name = self
            .paths
            .get(self.cut_path)
            .map_or("the fast path", |path| path.name.as_str());
        let mut text = format!(
            "{name} carried nothing for {:.0} s. With {} the download took {:.1} s and stood still for {:.1} s at most",
            self.cut_seconds, ours.name, ours.seconds, ours.longest_stall
        );
        if let Some(cut) = self.alone().find(|run| run.over == [self.cut_path]) {
            let _ = write!(
                text,
                "; with {}, {:.1} s and {:.1} s",
                cut.name, cut.seconds, cut.longest_stall
            );
        }
        text.push('.');
        if let Some(gain) = self.gain() {
            let _ = write!(
                text,
                " That is {gain:.2} times the speed of TCP on the best path."
            );
        }
        if !self.intact() {
            text += " SOME BYTES DIFFER: this is an error.";
        }
        text
    }
}

/// Columns as wide as they must be; the first to the left, the others to the right.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            })
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::demo) fn example() -> Report {
        let run = |name: &str, seconds: f64, rates: [f64; 2]| RunReport {
            name: name.to_owned(),
            over: (0..2).filter(|path| rates[*path] > 0.0).collect(),
            seconds,
            goodput: 1e6 * 8.0 / seconds,
            longest_stall: 0.25,
            intact: true,
            path_bytes: rates
                .iter()
                .map(|rate| (rate * seconds / 8.0) as u64)
                .collect(),
            cut: Some(Cut { from: 0.5, to: 0.9 }),
            samples: (1..=4)
                .map(|n| Sample {
                    at: seconds * f64::from(n) / 4.0,
                    rates: rates.to_vec(),
                })
                .collect(),
        };
        let path = |name: &str, rate, round_trip_ms, buffer_ms| PathReport {
            name: name.to_owned(),
            rate,
            round_trip_ms,
            buffer_ms,
        };
        Report {
            version: "0".to_owned(),
            arm: Arm::Real {
                server: "a <server>".to_owned(),
                client: "curl".to_owned(),
                kernel: "Linux".to_owned(),
            },
            bytes: 1_000_000,
            sha256: Some("00".repeat(32)),
            paths: vec![
                path("wifi", 8_000_000, 20.0, 80.0),
                path("mobile", 2_000_000, 150.0, 2000.0),
            ],
            cut_path: 0,
            cut_seconds: 0.4,
            runs: vec![
                run("Multipath TCP", 1.0, [6e6, 2e6]),
                run("TCP, wifi", 1.25, [6.4e6, 0.0]),
                run("TCP, mobile", 4.0, [0.0, 2e6]),
            ],
            kernel_counters: BTreeMap::new(),
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_run_and_names_a_difference() {
        let mut report = example();
        let table = report.table();
        assert_eq!(table.lines().count(), 6, "{table}");
        assert!(
            table.contains("75 %") && table.contains("1.25 times the speed"),
            "{table}"
        );
        assert!(!table.contains("DIFFER"));
        report.runs[1].intact = false;
        assert!(
            report.table().contains("DIFFERENT") && report.table().contains("this is an error")
        );
    }

    #[test]
    fn the_report_becomes_json() {
        let text = serde_json::to_string(&example()).expect("plain data");
        assert!(
            text.contains("\"kind\":\"real\"") && text.contains("\"longest_stall\":0.25"),
            "{text}"
        );
    }
}
