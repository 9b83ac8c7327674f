//! Parallel paths in the simulator: one client, one server, a path for each of the client's interfaces, and one transfer.
//!
//! What the grid and the figures of the papers run. Owns the words of the scenario; what a run means is theirs.

use std::fmt::Write as _;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use manypath_sim::scenario::{Scenario, ScenarioError};
use manypath_sim::{RunOptions, Simulation};
use manypath_tcp::time::{Duration, Instant};
use serde::Serialize;

/// One path, the same in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PathSpec {
    /// Bits a second.
    pub rate: u64,
    /// Round trip of the empty path in microseconds.
    pub rtt_us: u64,
    /// Bytes of the drop-tail buffer before the path.
    pub buffer: u64,
    /// Chance that a packet is lost, in parts per million.
    pub loss_ppm: u32,
}

impl PathSpec {
    /// Bandwidth-delay product in bytes.
    #[must_use]
    pub fn bdp(&self) -> u64 {
        self.rate / 8 * self.rtt_us / 1_000_000
    }
}

/// Who talks over which paths.
#[derive(Debug, Clone)]
pub struct Talk<'a> {
    /// The paths; all of them are there, whoever uses them.
    pub paths: &'a [PathSpec],
    /// Plain TCP over this path alone; otherwise Multipath TCP over all.
    pub plain_over: Option<usize>,
    /// Options of both ends, in the words of a scenario, as `key = value` with commas between them.
    pub options: &'a str,
    /// More words about the application, one `key = value` a line; what is to be sent, for instance.
    pub app: &'a str,
    /// Which losses happen.
    pub seed: u64,
}

impl Talk<'_> {
    /// The scenario.
    fn text(&self) -> String {
        let mut interfaces = Vec::new();
        let mut links = String::new();
        for (n, path) in self.paths.iter().enumerate() {
            interfaces.push(format!(
                "{{ name = \"p{n}\", addresses = [\"10.{}.0.2\"] }}",
                n + 1
            ));
            // Writing to a String cannot fail.
            let _ = write!(
                links,
                "[[link]]\nname = \"p{n}\"\nends = [\"client.p{n}\", \"internet\"]\nrate = \"{}bit/s\"\n\
                 delay = \"{}us\"\nbuffer = \"{}B\"\nloss = \"{}.{:04}%\"\n",
                path.rate,
                path.rtt_us / 2,
                path.buffer,
                path.loss_ppm / 10_000,
                path.loss_ppm % 10_000
            );
        }
        let (from, plain) = match self.plain_over {
            Some(path) => (
                format!("from = \"10.{}.0.2\"\n", path + 1),
                "plain-tcp = true",
            ),
            None => (String::new(), ""),
        };
        let words = [self.options, plain].map(str::to_owned);
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        format!(
            "title = \"parallel paths\"\n\
             [[host]]\nname = \"client\"\ninterface = [{}]\n\
             [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.99.0.1\"] }}]\n\
             [[router]]\nname = \"internet\"\n{links}\
             [[link]]\nname = \"access\"\nends = [\"internet\", \"server.eth0\"]\nrate = \"10Gbit/s\"\n\
             [[app]]\nname = \"talk\"\nclient = \"client\"\nserver = \"server\"\n{from}{}\n\
             options = {{ {} }}\n",
            interfaces.join(", "),
            self.app,
            words.join(", "),
        )
    }

    /// The simulation before its first event.
    pub fn simulation(&self) -> Result<Simulation, ScenarioError> {
        let options = RunOptions {
            seed: Some(self.seed),
            ..RunOptions::default()
        };
        Simulation::new(Scenario::parse(&self.text())?, options)
    }
}

/// Bytes that the server's application has read.
#[must_use]
pub fn read_by_server(simulation: &Simulation) -> u64 {
    read_on(simulation, 1)
}

/// Bytes that the client's application has read.
#[must_use]
pub fn read_by_client(simulation: &Simulation) -> u64 {
    read_on(simulation, 0)
}

fn read_on(simulation: &Simulation, host: usize) -> u64 {
    let ends = simulation.hosts()[host].endpoints();
    ends.first().map_or(0, |end| end.record.read)
}

/// Lets the talk go on until it is done, or until `limit`; says when that was.
pub fn run_until_done(
    simulation: &mut Simulation,
    is_done: impl Fn(&Simulation) -> bool,
    limit: Instant,
) -> Option<Instant> {
    /// Steps in which it is looked: short against any transfer that is worth measuring.
    const STEP: Duration = Duration::from_millis(5);
    let mut now = simulation.now();
    while now < limit {
        now += STEP;
        simulation.run_until(now);
        if is_done(simulation) {
            return Some(now);
        }
    }
    None
}

/// Does `work` for each number below `count` on so many threads, and gives the results in order; those that a stop came
/// before are missing.
pub fn on_all_cores<R: Send>(
    count: usize,
    jobs: Option<NonZero<usize>>,
    stop: &AtomicBool,
    work: impl Fn(usize) -> R + Sync,
) -> Vec<R> {
    let jobs = jobs
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let result = work(n);
                    // A thread that panicked loses its result only; the scope tells of the panic.
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((n, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathSpec = PathSpec {
        rate: 8_000_000,
        rtt_us: 20_000,
        buffer: 80_000,
        loss_ppm: 0,
    };

    #[test]
    fn tcp_alone_fills_its_path_and_both_fill_both() {
        assert_eq!(PATH.bdp(), 20_000);
        let paths = [
            PATH,
            PathSpec {
                rate: 4_000_000,
                ..PATH
            },
        ];
        let rate = |plain_over| {
            let talk = Talk {
                paths: &paths,
                plain_over,
                options: "congestion = \"cubic\"",
                app: "upload = \"1GB\"",
                seed: 1,
            };
            let mut simulation = talk.simulation().expect("a well-formed scenario");
            simulation.run_until(Instant::from_secs(10));
            read_by_server(&simulation) as f64 * 8.0 / 10.0 / 1e6
        };
        let (first, second, both) = (rate(Some(0)), rate(Some(1)), rate(None));
        assert!((7.0..8.0).contains(&first), "{first}");
        assert!((3.4..4.0).contains(&second), "{second}");
        assert!((10.0..12.0).contains(&both), "{both}");
    }

    #[test]
    fn results_come_in_order_and_a_stop_ends_the_work() {
        let stop = AtomicBool::new(false);
        let squares = on_all_cores(20, NonZero::new(3), &stop, |n| n * n);
        assert_eq!(squares, (0..20).map(|n| n * n).collect::<Vec<_>>());
        stop.store(true, Ordering::Relaxed);
        assert!(on_all_cores(20, None, &stop, |n| n).is_empty());
    }
}
