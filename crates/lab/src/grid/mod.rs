//! Hundreds of networks, and on each the question whether Multipath TCP is slower than TCP on its best path.
//!
//! TCP on each path alone sends for twenty to sixty seconds; what the best one delivers in that time is what Multipath TCP
//! has to deliver. Whatever Multipath TCP is run with, that TCP has its default settings, CUBIC among them, and the network's
//! own socket buffers. Goodput is the steady one: on both sides the first eight of the longest round trips are left out, in which
//! a connection that happens to begin on its worst path has to wait for it before it may make subflows on the others
//! (RFC 8684 section 3.2), and slow start fills the paths; the end, where the last byte may come over a slow path, is not.
//! What it comes to with the beginning is told beside it. All of it happens again, with other losses, until the mean ratio is known
//! to a few hundredths.

mod load;
mod network;
mod table;

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use manypath_sim::scenario::OptionsSpec;
use manypath_stack::api::ConnOptions;
use manypath_stack::sched::Scheduler;
use manypath_tcp::cc::Algorithm;
use manypath_tcp::time::{Duration, Instant};
use serde::Serialize;

pub use load::Load;
pub use network::{AUTOTUNED, Network};

use self::table::NEVER_BELOW;
use crate::interrupt;
use crate::parallel::{Talk, on_all_cores, run_until_done};

/// Seconds that TCP sends at least and at most.
const SPAN: Range<f64> = 20.0..60.0;
/// Bytes after which the span on the fastest path need not be longer.
const ENOUGH: f64 = 40e6;
/// Longest round trips that make up the beginning: the first handshake, the first data, and a join (RFC 8684 section 3.2)
/// take three and a half, the first data over it a half, and slow start on it doubles ten segments four times in the others.
const BEGINNING: u64 = 8;
/// Times that networks are run at least and at most: until the ratio is known well enough.
const REPEATED: Range<u64> = 3..24;
/// The standard error of the ratio to TCP on the best path that is good enough.
const SURE: f64 = 0.015;
/// So far above what is promised one run says it, where no path loses at random.
const CLEAR: f64 = 0.1;
/// Multipath TCP is given up when it takes so many times what TCP took.
const PATIENCE: u64 = 8;

/// What Multipath TCP is run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Variant {
    /// Its name in tables.
    pub name: String,
    /// Options of both ends, in the words of a scenario.
    pub options: String,
}

impl Variant {
    /// What the stack does unless somebody chooses, with the congestion control of the TCP it is compared with.
    #[must_use]
    pub fn default_settings() -> Self {
        Self {
            name: "default".to_owned(),
            options: String::new(),
        }
    }
}

impl Variant {
    /// Settings in the words of a scenario's options, `key=value` with spaces between them, which also name them. An error says
    /// what is wrong with them.
    pub fn parse(words: &str) -> Result<Self, String> {
        let mut options = Vec::new();
        for word in words.split_whitespace() {
            let pair = word.split_once('=');
            let (key, value) = pair.ok_or_else(|| format!("'{word}' is no key=value"))?;
            let plain = value.parse::<i64>().is_ok() || value == "true" || value == "false";
            options.push(match plain {
                true => format!("{key} = {value}"),
                false => format!("{key} = \"{value}\""),
            });
        }
        if options.is_empty() {
            return Err("there are no options".to_owned());
        }
        let spec: OptionsSpec = toml::from_str(&options.join("\n"))
            .map_err(|error: toml::de::Error| error.message().to_owned())?;
        spec.apply(&mut ConnOptions::default())
            .map_err(|error| error.to_string())?;
        let name = words.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Self {
            name: name.replace(',', "+"),
            options: options.join(", "),
        })
    }

    /// Every scheduler and congestion control that is not the default, and Multipath TCP without mechanisms.
    #[must_use]
    pub fn others() -> Vec<Self> {
        let schedulers = Scheduler::ALL
            .iter()
            .filter(|s| **s != Scheduler::default());
        let schedulers = schedulers.map(|scheduler| format!("scheduler={scheduler}"));
        let controllers = Algorithm::ALL.iter().filter(|a| **a != Algorithm::Cubic);
        let controllers = controllers.map(|name| format!("congestion={name}"));
        let mechanisms = [
            "none",
            "opportunistic,penalise",
            "opportunistic,penalise,autotune,cap,guard",
        ];
        let mechanisms = mechanisms.map(|names| format!("mechanisms={names}"));
        schedulers
            .chain(controllers)
            .chain(mechanisms)
            .filter_map(|words| Self::parse(&words).ok())
            .collect()
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which networks.
    pub seeds: Range<u64>,
    /// What the applications do.
    pub load: Load,
    /// With which settings.
    pub variants: Vec<Variant>,
    /// Threads; by default one for each processor.
    pub jobs: Option<NonZero<usize>>,
}

/// What came out on one network.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The network.
    pub network: Network,
    /// Bits a second of TCP on each path, the beginning left out.
    pub tcp: Vec<f64>,
    /// Bits a second of each variant, the beginning left out.
    pub ours: Vec<f64>,
    /// Bits a second of TCP on the path that is the best one so, beginning included.
    pub tcp_whole: f64,
    /// Bits a second of each variant, beginning included.
    pub ours_whole: Vec<f64>,
    /// How many times it was run.
    pub runs: usize,
}

impl Row {
    /// TCP on the best path.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.tcp.iter().copied().fold(0.0, f64::max)
    }

    /// TCP on all paths at once, each with buffers of its own.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.tcp.iter().sum()
    }

    /// A variant's goodput over that of TCP on the best path.
    #[must_use]
    pub fn ratio(&self, variant: usize) -> f64 {
        self.ours[variant] / self.best().max(1.0)
    }

    /// The same for whole transfers, beginning included.
    #[must_use]
    pub fn whole_ratio(&self, variant: usize) -> f64 {
        self.ours_whole[variant] / self.tcp_whole.max(1.0)
    }

    /// A variant's goodput over the sum.
    #[must_use]
    pub fn share(&self, variant: usize) -> f64 {
        self.ours[variant] / self.sum().max(1.0)
    }
}

/// All networks.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What the applications did.
    pub load: Load,
    /// The variants, in the order of each row.
    pub variants: Vec<Variant>,
    /// The networks that were run, by rising number.
    pub rows: Vec<Row>,
    /// Somebody stopped it before the last one.
    pub interrupted: bool,
}

/// A network does not fit the simulator: a fault of the grid.
#[derive(Debug, thiserror::Error)]
#[error("network {seed}: {what}")]
pub struct GridError {
    /// Its number.
    pub seed: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Runs the networks. Ctrl-C stops it, and what was done so far is reported.
pub fn run(options: &Options, told: impl Fn(&Row) + Sync) -> Result<Report, GridError> {
    interrupt::stoppable(|stop| run_until(options, stop, &told))
}

fn run_until(
    options: &Options,
    stop: &AtomicBool,
    told: &(impl Fn(&Row) + Sync),
) -> Result<Report, GridError> {
    let count = usize::try_from(options.seeds.end - options.seeds.start).unwrap_or(usize::MAX);
    let rows = on_all_cores(count, options.jobs, stop, |n| {
        let seed = options.seeds.start + n as u64;
        let row = measure(&Network::draw(seed), options);
        if let Ok(row) = &row {
            told(row);
        }
        row.map_err(|what| GridError { seed, what })
    });
    Ok(Report {
        load: options.load,
        variants: options.variants.clone(),
        rows: rows.into_iter().collect::<Result<_, _>>()?,
        interrupted: stop.load(Ordering::Relaxed),
    })
}

/// How long TCP sends on a network after the beginning: long enough to say something, and no longer than a fast path needs
/// for that.
fn span(network: &Network) -> Duration {
    let fastest = network.paths.iter().map(|path| path.rate).max();
    let seconds = ENOUGH * 8.0 / fastest.unwrap_or(1) as f64;
    Duration::from_millis((seconds.clamp(SPAN.start, SPAN.end) * 1e3) as u64)
}

/// The beginning that steady goodput leaves out.
fn beginning(network: &Network) -> Duration {
    let longest = network.paths.iter().map(|path| path.rtt_us).max();
    Duration::from_micros(BEGINNING * longest.unwrap_or(0))
}

/// What a talk came to.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    /// Bytes by the end of the beginning, and in all.
    early: u64,
    all: u64,
    /// Seconds to the end.
    seconds: f64,
}

impl Sent {
    /// Bits a second after the beginning; in all, where nothing was left for then.
    fn steady(&self, beginning: Duration) -> f64 {
        let beginning = beginning.as_micros() as f64 / 1e6;
        if self.all <= self.early || self.seconds <= beginning {
            return self.whole();
        }
        (self.all - self.early) as f64 * 8.0 / (self.seconds - beginning)
    }

    /// Bits a second from the first SYN on.
    fn whole(&self) -> f64 {
        self.all as f64 * 8.0 / self.seconds.max(1e-6)
    }
}

/// What one run of everything came to.
struct Once {
    tcp: Vec<Sent>,
    ours: Vec<Sent>,
}

fn measure(network: &Network, options: &Options) -> Result<Row, String> {
    let (load, variants) = (options.load, &options.variants);
    let mut runs = Vec::new();
    while !is_enough(network, &runs) {
        let seed = network.seed * REPEATED.end + runs.len() as u64;
        let tcp = (0..network.paths.len())
            .map(|path| tcp_alone(network, load, path, seed))
            .collect::<Result<Vec<Sent>, _>>()?;
        let bytes = tcp.iter().map(|sent| sent.all).max().unwrap_or(0).max(1);
        let ours = variants
            .iter()
            .map(|variant| multipath(network, load, variant, bytes, seed))
            .collect::<Result<Vec<Sent>, _>>()?;
        runs.push(Once { tcp, ours });
    }
    Ok(row(network, &runs))
}

/// What some runs come to together. Pure.
fn row(network: &Network, runs: &[Once]) -> Row {
    let beginning = beginning(network);
    let steady = |sent: &Sent| sent.steady(beginning);
    // Which path is the best one is for all runs to say: each by itself would take the one that was luckiest.
    let tcp_whole = means(runs, |once| &once.tcp, Sent::whole);
    Row {
        network: network.clone(),
        tcp: means(runs, |once| &once.tcp, steady),
        ours: means(runs, |once| &once.ours, steady),
        tcp_whole: tcp_whole.into_iter().fold(0.0, f64::max),
        ours_whole: means(runs, |once| &once.ours, Sent::whole),
        runs: runs.len(),
    }
}

/// The rate of each TCP, or of each variant, over the runs. Pure.
fn means(runs: &[Once], of: fn(&Once) -> &[Sent], rate: impl Fn(&Sent) -> f64) -> Vec<f64> {
    let count = runs.first().map_or(0, |once| of(once).len());
    let sum = |n: usize| runs.iter().map(|once| rate(&of(once)[n])).sum::<f64>();
    (0..count).map(|n| sum(n) / runs.len() as f64).collect()
}

/// Until the first variant's ratio to the best TCP is known: single losses on long paths decide about much of a run, and which
/// packet a full queue drops depends on microseconds. Where it is close to what is promised, which side it is on is for all runs
/// to say.
fn is_enough(network: &Network, runs: &[Once]) -> bool {
    let count = runs.len() as u64;
    if count == 0 {
        return false;
    }
    if count >= REPEATED.end {
        return true;
    }
    let all = row(network, runs);
    let above = all.ratio(0) - NEVER_BELOW;
    if count < REPEATED.start {
        return network.is_clean() && above > CLEAR;
    }
    let beginning = beginning(network);
    let best = (0..all.tcp.len()).max_by(|a, b| all.tcp[*a].total_cmp(&all.tcp[*b]));
    let ratio = |once: &Once| {
        let tcp = best.map_or(0.0, |best| once.tcp[best].steady(beginning));
        once.ours[0].steady(beginning) / tcp.max(1.0)
    };
    let ratios: Vec<f64> = runs.iter().map(ratio).collect();
    above.abs() > SURE && standard_error(&ratios) <= SURE
}

/// Of the mean of some values. Pure.
fn standard_error(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

/// The network's socket buffers as options, but for those that `chosen` names.
fn buffers(network: &Network, chosen: &str) -> Vec<String> {
    let Some(bytes) = network.buffer else {
        return Vec::new();
    };
    let keys = ["send-buffer", "recv-buffer"];
    let open = keys.iter().filter(|key| !chosen.contains(**key));
    open.map(|key| format!("{key} = \"{bytes}B\"")).collect()
}

fn seconds(span: Duration) -> f64 {
    span.as_micros() as f64 / 1e6
}

/// What TCP on one path delivers.
fn tcp_alone(network: &Network, load: Load, path: usize, seed: u64) -> Result<Sent, String> {
    let talk = Talk {
        paths: &network.paths,
        plain_over: Some(path),
        options: &buffers(network, "").join(", "),
        app: &load.without_end(network),
        seed,
    };
    let mut simulation = talk.simulation().map_err(|error| error.to_string())?;
    let beginning = beginning(network);
    simulation.run_until(Instant::ZERO + beginning);
    let early = load.read(&simulation);
    let end = beginning + span(network);
    simulation.run_until(Instant::ZERO + end);
    Ok(Sent {
        early,
        all: load.read(&simulation),
        seconds: seconds(end),
    })
}

/// What Multipath TCP does with so many bytes.
fn multipath(
    network: &Network,
    load: Load,
    variant: &Variant,
    bytes: u64,
    seed: u64,
) -> Result<Sent, String> {
    let (app, bytes) = load.of(network, bytes);
    let mut words = buffers(network, &variant.options);
    words.push(variant.options.clone());
    words.retain(|word| !word.is_empty());
    let talk = Talk {
        paths: &network.paths,
        plain_over: None,
        options: &words.join(", "),
        app: &app,
        seed,
    };
    let mut simulation = talk.simulation().map_err(|error| error.to_string())?;
    let beginning = beginning(network);
    simulation.run_until(Instant::ZERO + beginning);
    let early = load.read(&simulation);
    let limit = Instant::ZERO + beginning + span(network).times(PATIENCE);
    let done = run_until_done(&mut simulation, |at| load.read(at) >= bytes, limit);
    Ok(Sent {
        early,
        all: load.read(&simulation),
        seconds: seconds(done.unwrap_or(limit).since(Instant::ZERO)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_written_as_scenarios_write_them() {
        let variant = Variant::parse("mechanisms=cap,guard  max-subflows=4").expect("two options");
        assert_eq!(variant.name, "mechanisms=cap+guard max-subflows=4");
        assert_eq!(
            variant.options,
            "mechanisms = \"cap,guard\", max-subflows = 4"
        );
        for (words, wrong) in [
            ("blest", "no key=value"),
            (" ", "no options"),
            ("nosuch=1", "nosuch"),
            ("scheduler=best", "lowest-rtt"),
            ("recv-buffer=100bk", "100bk"),
        ] {
            let error = Variant::parse(words).expect_err(words);
            assert!(error.contains(wrong), "{words}: {error}");
        }
    }

    #[test]
    fn every_scheduler_and_controller_is_among_the_others() {
        let others = Variant::others();
        let names: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
        assert!(Scheduler::ALL.len() + Algorithm::ALL.len() - 2 <= names.len());
        for name in ["scheduler=ecf", "congestion=wvegas", "congestion=bbr"] {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn steady_goodput_leaves_the_beginning_out() {
        let sent = Sent {
            early: 1_000,
            all: 11_000,
            seconds: 12.0,
        };
        assert_eq!(sent.steady(Duration::from_secs(2)), 8_000.0);
        assert_eq!(sent.whole(), 88_000.0 / 12.0);
        // Done before the beginning was over.
        assert_eq!(sent.steady(Duration::from_secs(20)), sent.whole());
    }

    /// Mbit/s from the first SYN on.
    fn sent(megabits: f64) -> Sent {
        Sent {
            early: 0,
            all: (megabits / 8.0 * 1e6) as u64,
            seconds: 1.0,
        }
    }

    #[test]
    fn the_best_path_is_the_best_of_all_runs_and_of_none_the_luckiest() {
        let once = |tcp: [f64; 2]| Once {
            tcp: tcp.map(sent).into(),
            ours: vec![sent(1.5)],
        };
        let row = row(&Network::draw(0), &[once([2.0, 0.0]), once([1.0, 2.0])]);
        assert_eq!(row.tcp_whole, 1.5e6);
        assert_eq!(row.whole_ratio(0), 1.0);
        assert_eq!(row.runs, 2);
    }

    fn runs_of(ratios: &[f64]) -> Vec<Once> {
        let once = |ratio: &f64| Once {
            tcp: vec![sent(0.5), sent(1.0)],
            ours: vec![sent(*ratio)],
        };
        ratios.iter().map(once).collect()
    }

    #[test]
    fn a_network_is_run_until_its_ratio_is_known() {
        let numbered = (0..).map(Network::draw);
        let (clean, lossy): (Vec<Network>, Vec<Network>) =
            numbered.take(50).partition(Network::is_clean);
        let enough = |ratios: &[f64]| is_enough(&lossy[0], &runs_of(ratios));
        assert!(!is_enough(&clean[0], &[]));
        assert!(is_enough(&clean[0], &runs_of(&[1.3])));
        assert!(!enough(&[1.0, 1.0]), "three runs at least");
        assert!(enough(&[1.0, 1.01, 1.02]));
        assert!(!enough(&[1.0, 1.1, 1.2]));
        assert!(enough(&[0.90, 0.91, 0.90]));
        assert!(!enough(&[0.93, 0.94, 0.95]), "on which side?");
        let wild: Vec<f64> = (0..24).map(|n| f64::from(n % 2)).collect();
        assert!(!enough(&wild[1..]));
        assert!(enough(&wild), "no more than that");
    }

    #[test]
    fn the_standard_error_of_a_mean() {
        // A deviation of 1 from three values.
        assert!((standard_error(&[1.0, 2.0, 3.0]) - (1.0_f64 / 3.0).sqrt()).abs() < 1e-9);
        assert_eq!(standard_error(&[2.0, 2.0, 2.0]), 0.0);
    }
}
