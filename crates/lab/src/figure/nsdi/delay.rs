//! Figure 7: how long a block takes from one application to the other.

use manypath_tcp::time::{Duration, Instant};

use super::super::compare::percentile;
use super::super::sim::{self, Ends};
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use super::{BOTH, CONGESTION, DEFAULT, M12, NONE, REGULAR, TCP_3G, TCP_WIFI, WIRELESS};
use crate::parallel::read_by_server;

const fn line(name: &'static str, does: Does) -> Line {
    Line {
        name,
        arms: &[Arm::Sim],
        does,
    }
}

/// Figure 7.
pub(super) const FIGURE: Figure = Figure {
    id: "nsdi-7",
    source: "NSDI 2012, figure 7",
    title: "WiFi and 3G with buffers of 200 kB: how long blocks of 8 kB take from one application to the other",
    paper: Paper {
        says: "Mechanisms 1 and 2 avoid the larger delays of regular Multipath TCP. The delay over TCP over WiFi is even greater \
               than with them, for 200 kB are more buffer than TCP needs there, and data waits in it.",
        lines: &[],
    },
    knobs: &KNOBS,
    x: Across::Measured(Axis::linear("delay (ms)")),
    y: Axis::linear("% of the blocks"),
    lines: &[
        line(TCP_WIFI, Does::Tcp(0)),
        line(TCP_3G, Does::Tcp(1)),
        line(REGULAR, Does::Multipath(&[NONE])),
        line(BOTH, Does::Multipath(&[M12])),
        line(DEFAULT, Does::Multipath(&[])),
    ],
    load: Load::Light,
    run,
    verdict,
};

const KNOBS: [Knob; 12] = {
    let [a, b, c, d, e, f, g, h, i, _, time, _, _] = WIRELESS;
    let block = Knob::new("block", Unit::Bytes, "8192", "size of a block");
    [a, b, c, d, e, f, g, h, i, CONGESTION, block, time]
};

/// How often it is looked what was written and read.
const LOOK: Duration = Duration::from_millis(1);
/// Width of a bin in milliseconds.
const BIN: f64 = 10.0;
/// Blocks of the beginning that do not count: slow start is over after them.
const WARM_UP: Duration = Duration::from_secs(3);

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let knobs = run.knobs;
    let paths = [sim::path(knobs, "wifi"), sim::path(knobs, "3g")];
    let ends = Ends {
        buffer: Some(knobs.whole("buffer")),
        options: &[("congestion", knobs.word("congestion"))],
        ..Ends::default()
    };
    let mut simulation = sim::simulation(run, &paths, ends, 1)?;
    let end = Instant::ZERO + sim::span(knobs.get("time"));
    let mut log = Blocks::new(knobs.whole("block").max(1));
    while simulation.now() < end {
        let now = simulation.now() + LOOK;
        simulation.run_until(now);
        let host = &simulation.hosts()[0];
        let conn = host.endpoints().first().map(|end| end.conn);
        let info = conn.and_then(|conn| host.stack.info(conn).ok());
        let written = info.map_or(0, |info| info.bytes_written);
        log.look(now, written, read_by_server(&simulation));
    }
    Ok(histogram(run.line.name, log.counted()?))
}

/// When blocks were begun, and how long they took.
struct Blocks {
    size: u64,
    begun: Vec<Instant>,
    whole: usize,
    /// In milliseconds.
    delays: Vec<f64>,
}

impl Blocks {
    fn new(size: u64) -> Self {
        Self {
            size,
            begun: Vec::new(),
            whole: 0,
            delays: Vec::new(),
        }
    }

    /// The delays of blocks that count; without any nothing was measured.
    fn counted(&self) -> Result<&[f64], String> {
        match self.delays.as_slice() {
            [] => Err(format!(
                "no block that was begun after {} s, before which none counts, was read: --set time=VALUE longer",
                WARM_UP.as_micros() / 1_000_000
            )),
            delays => Ok(delays),
        }
    }

    /// So much is written and read by now. A block is stamped when its first byte is taken, and there when its last one
    /// is read.
    fn look(&mut self, now: Instant, written: u64, read: u64) {
        while self.begun.len() as u64 * self.size < written {
            self.begun.push(now);
        }
        while (self.whole as u64 + 1) * self.size <= read {
            if let Some(begun) = self.begun.get(self.whole)
                && *begun > Instant::ZERO + WARM_UP
            {
                self.delays.push(now.since(*begun).as_micros() as f64 / 1e3);
            }
            self.whole += 1;
        }
    }
}

fn histogram(line: &str, delays: &[f64]) -> Vec<Sample> {
    let most = delays.iter().copied().fold(0.0, f64::max);
    let mut bins = vec![0_u32; (most / BIN) as usize + 2];
    for delay in delays {
        bins[(delay / BIN) as usize] += 1;
    }
    let count = delays.len() as f64;
    let bins = bins.iter().enumerate();
    bins.map(|(n, blocks)| Sample {
        line: line.to_owned(),
        at: [(n as f64 + 0.5) * BIN, 100.0 * f64::from(*blocks) / count],
    })
    .collect()
}

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        let late = |name: &str| Some(percentile(seen.line(arm, name)?, 95.0));
        let mut hold = |statement: &str, pair: [Option<f64>; 2], fits: fn(f64, f64) -> bool| {
            if let [Some(one), Some(other)] = pair {
                let seen = format!("{one:.0} and {other:.0} ms");
                all.push(Finding::new(arm, statement, seen, fits(one, other)));
            }
        };
        let (no_more, less) = (|one, other| one <= other, |one, other| one < other);
        let statement = "the 95th percentile of the default settings is not above TCP over WiFi's";
        hold(statement, [late(DEFAULT), late(TCP_WIFI)], no_more);
        let statement =
            "M1 and M2 avoid the larger delays of regular Multipath TCP (95th percentiles)";
        hold(statement, [late(BOTH), late(REGULAR)], less);
        let statement =
            "with M1 and M2 the delay is less than over TCP over WiFi (95th percentiles)";
        hold(statement, [late(BOTH), late(TCP_WIFI)], less);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn blocks_are_timed_from_their_first_byte_written_to_their_last_one_read() {
        let mut blocks = Blocks::new(100);
        let at = |ms| Instant::ZERO + WARM_UP + Duration::from_millis(ms);
        blocks.look(at(1), 150, 0);
        blocks.look(at(5), 200, 99);
        blocks.look(at(9), 201, 200);
        assert_eq!(blocks.delays, [8.0, 8.0]);
        blocks.look(at(20), 300, 300);
        assert_eq!(blocks.delays[2], 11.0);
        let samples = histogram("x", &[5.0, 6.0, 20.0, 29.9]);
        let parts: Vec<f64> = samples.iter().map(|sample| sample.at[1]).collect();
        assert_eq!(parts, [50.0, 0.0, 50.0, 0.0]);
    }

    #[test]
    fn without_blocks_that_count_there_are_no_delays() {
        let mut blocks = Blocks::new(100);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        blocks.look(at(1), 100, 0);
        blocks.look(at(9), 200, 100);
        let why = blocks.counted().expect_err("it is the beginning");
        assert!(
            why.contains("after 3 s") && why.contains("--set time="),
            "{why}"
        );
    }

    #[test]
    fn percentiles_are_held_against_the_paper() {
        let delays = |name: &str, last: f64| Series {
            arm: Arm::Sim,
            name: name.to_owned(),
            points: vec![[10.0, 50.0], [last, 50.0]],
        };
        let held = |ours: f64| {
            let all = [
                delays(TCP_WIFI, 210.0),
                delays(REGULAR, 900.0),
                delays(BOTH, 190.0),
                delays(DEFAULT, ours),
            ];
            let found = verdict(&Seen::of(&all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!(held(200.0), [true, true, true]);
        assert_eq!(held(250.0), [false, true, true]);
    }
}
