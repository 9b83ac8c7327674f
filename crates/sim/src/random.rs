//! Random networks with random applications on them: what nobody thought of. A seed becomes a scenario file, so that
//! what went wrong can be looked at, cut down and kept.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::Report;
use crate::rng::{Chance, Rng};
use crate::scenario::{Scenario, ScenarioError};
use crate::simulation::{RunOptions, Simulation};

/// A seed whose run was not good.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The scenario file.
    pub text: String,
    /// What went wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {}:\n{}\n{}", self.seed, self.text, self.what)
    }
}

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Packets that all hosts sent.
    pub segments: u64,
    /// The runs that were not good, by rising seed.
    pub failures: Vec<Failure>,
}

/// Runs the scenario of one seed.
pub fn run(seed: u64, options: RunOptions) -> Result<Report, ScenarioError> {
    let scenario = Scenario::parse(&text(seed))?;
    Ok(Simulation::new(scenario, options)?.finish())
}

/// Runs all seeds of a range on some threads. Every tenth is run a second time with needless calls of the stack's
/// timers, and must leave the same record.
#[must_use]
pub fn run_many(seeds: Range<u64>, threads: usize) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut summary = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return summary;
            }
            summary.runs += 1;
            match run_checked(seed) {
                Ok(segments) => summary.segments += segments,
                Err(what) => summary.failures.push(Failure {
                    seed,
                    text: text(seed),
                    what,
                }),
            }
        }
    };
    let mut total = Summary::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            // A panic in a worker is a finding of its own; it goes on to whoever asked.
            let part = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            total.runs += part.runs;
            total.segments += part.segments;
            total.failures.extend(part.failures);
        }
    });
    total.failures.sort_by_key(|failure| failure.seed);
    total
}

fn run_checked(seed: u64) -> Result<u64, String> {
    let one = |spurious_timeouts| {
        let options = RunOptions {
            spurious_timeouts,
            ..RunOptions::default()
        };
        let run = || run(seed, options);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
            Ok(report) => report.map_err(|error| error.to_string()),
            Err(panic) => Err(format!("panic: {}", panic_text(&*panic))),
        }
    };
    let report = one(false)?;
    if !report.is_good() {
        return Err(report.to_string());
    }
    if seed % 10 == 0 {
        let again = one(true)?;
        if again.hash != report.hash {
            return Err(format!(
                "a second run left {} instead of {}",
                again.hash, report.hash
            ));
        }
    }
    Ok(report.segments)
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("?")
}

/// The scenario file of a seed.
#[must_use]
pub fn text(seed: u64) -> String {
    Author {
        rng: Rng::stream(seed, 0x5ce9_a210),
        text: String::new(),
        seed,
    }
    .write()
}

/// One path of a random network.
struct PathPlan {
    ipv6: bool,
    rate: u64,
    delay_ms: u64,
    mtu: u64,
}

struct Author {
    rng: Rng,
    text: String,
    seed: u64,
}

impl Author {
    fn percent(&mut self, percent: u32) -> bool {
        self.rng.chance(Chance::ppm(percent * 10_000))
    }

    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn write(mut self) -> String {
        let seed = self.seed;
        self.line(format!(
            "title = \"random {seed}\"\nseed = {seed}\nlimit = \"900s\"\n"
        ));
        let count = self.rng.between(1, 4);
        let paths: Vec<PathPlan> = (0..count).map(|_| self.path()).collect();
        let routed = self.percent(50);
        self.hosts(&paths, routed);
        for (index, path) in paths.iter().enumerate() {
            self.link(index, path, routed);
        }
        if routed {
            self.line("[[router]]\nname = \"r\"\n");
            self.line("[[link]]\nname = \"access\"\nends = [\"r\", \"server.i0\"]\nrate = \"1Gbit/s\"\ndelay = \"1ms\"\n");
        }
        let total: u64 = paths.iter().map(|path| path.rate).sum();
        self.app(total, &paths);
        self.events(&paths);
        self.text
    }

    fn path(&mut self) -> PathPlan {
        PathPlan {
            ipv6: self.percent(40),
            rate: self.rng.log_between(300_000, 100_000_000),
            delay_ms: self.rng.log_between(1, 120),
            mtu: if self.percent(20) {
                self.rng.between(1280, 1500)
            } else {
                1500
            },
        }
    }

    fn address(path: usize, ipv6: bool, host: usize) -> String {
        match ipv6 {
            true => format!("fd00:{}::{host}", path + 1),
            false => format!("10.{}.0.{host}", path + 1),
        }
    }

    fn hosts(&mut self, paths: &[PathPlan], routed: bool) {
        for (name, number) in [("client", 2), ("server", 1)] {
            self.line(format!("[[host]]\nname = \"{name}\""));
            let extra = self.card();
            if routed && number == 1 {
                let mut addresses = Vec::new();
                for ipv6 in [false, true] {
                    if paths.iter().any(|path| path.ipv6 == ipv6) {
                        addresses.push(format!("\"{}\"", Self::address(90, ipv6, 1)));
                    }
                }
                let addresses = addresses.join(", ");
                self.line(format!(
                    "[[host.interface]]\nname = \"i0\"\naddresses = [{addresses}]\n{extra}"
                ));
                continue;
            }
            for (index, path) in paths.iter().enumerate() {
                let address = Self::address(index, path.ipv6, number);
                let backup = index > 0 && number == 2 && self.percent(10);
                let mtu = path.mtu;
                self.line(format!(
                    "[[host.interface]]\nname = \"i{index}\"\naddresses = [\"{address}\"]\nmtu = {mtu}\nbackup = {backup}\n{extra}"
                ));
            }
        }
    }

    /// What a host's network cards can do.
    fn card(&mut self) -> String {
        let mut extra = String::new();
        if self.percent(50) {
            let burst = self.rng.log_between(3_000, 65_000);
            let _ = writeln!(extra, "offload = \"{burst}\"");
            if self.percent(40) {
                let wait = self.rng.log_between(1, 300);
                let _ = writeln!(extra, "coalesce = \"{wait}us\"");
            }
        }
        if self.percent(20) {
            let queue = self.rng.log_between(3_000, 100_000);
            let _ = writeln!(extra, "device-queue = \"{queue}\"");
        }
        extra
    }

    fn link(&mut self, index: usize, path: &PathPlan, routed: bool) {
        let far = if routed {
            "r".to_owned()
        } else {
            format!("server.i{index}")
        };
        let PathPlan {
            rate,
            delay_ms,
            mtu,
            ..
        } = path;
        self.line(format!(
            "[[link]]\nname = \"l{index}\"\nends = [\"client.i{index}\", \"{far}\"]\nrate = \"{rate}bit/s\"\ndelay = \"{delay_ms}ms\"\nmtu = {mtu}"
        ));
        if self.percent(50) {
            let buffer = self.rng.log_between(20, 800);
            self.line(format!("buffer = \"{buffer}ms\""));
        } else {
            let buffer = self.rng.log_between(6_000, 500_000);
            self.line(format!("buffer = \"{buffer}\""));
        }
        match self.rng.below(4) {
            0 => {
                let ppm = self.rng.log_between(100, 30_000);
                self.line(format!("loss = \"{}%\"", ppm as f64 / 10_000.0));
            }
            1 => {
                let worsen = self.rng.log_between(100, 10_000) as f64 / 10_000.0;
                let recover = self.rng.between(50, 90);
                self.line(format!(
                    "loss = {{ kind = \"gilbert-elliott\", worsen = \"{worsen}%\", recover = \"{recover}%\" }}"
                ));
            }
            _ => {}
        }
        if self.percent(25) {
            let chance = self.rng.log_between(100, 20_000) as f64 / 10_000.0;
            let extra = self.rng.log_between(1, 30);
            self.line(format!(
                "reorder = {{ chance = \"{chance}%\", extra = \"{extra}ms\" }}"
            ));
        }
        if self.percent(20) {
            let chance = self.rng.log_between(100, 10_000) as f64 / 10_000.0;
            self.line(format!("duplicate = \"{chance}%\""));
        }
        if self.percent(15) {
            let above = self.rng.log_between(3_000, 100_000);
            self.line(format!("mark-above = \"{above}\""));
        }
        if self.percent(20) {
            let start = self.rng.between(0, 8_000);
            let end = start + self.rng.log_between(100, 4_000);
            self.line(format!("outages = [[\"{start}ms\", \"{end}ms\"]]"));
        }
        if self.percent(8) {
            let phases = ["syn", "syn-ack", "third-ack", "data"];
            let phase = phases[self.rng.below(4) as usize];
            self.line(format!(
                "[[link.box]]\nkind = \"strip\"\nphases = [\"{phase}\"]"
            ));
        }
        self.line("");
    }

    fn app(&mut self, total_rate: u64, paths: &[PathPlan]) {
        self.line("[[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"");
        // A path is as good as its loss and delay let it be; a few seconds at a tenth of the rate come to an end.
        let most = (total_rate / 8 * 4).clamp(20_000, 3_000_000);
        let slowest = paths.iter().map(|path| path.delay_ms).max().unwrap_or(1);
        match self.rng.below(5) {
            0 => {
                let bytes = self.rng.log_between(1, most);
                self.line(format!("download = \"{bytes}\""));
            }
            1 => {
                let bytes = self.rng.log_between(1, most);
                self.line(format!("upload = \"{bytes}\""));
            }
            2 => {
                let (up, down) = (self.rng.log_between(1, most), self.rng.log_between(1, most));
                self.line(format!("upload = \"{up}\"\ndownload = \"{down}\""));
            }
            3 => {
                let rounds = self.rng.between(1, 4_000 / (slowest + 20));
                let request = self.rng.log_between(1, 2_000);
                let response = self.rng.log_between(1, (most / rounds).max(2));
                self.line(format!(
                    "rounds = {rounds}\nrequest = \"{request}\"\nresponse = \"{response}\""
                ));
            }
            _ => {
                let burst = self.rng.log_between(100, 100_000);
                let bytes = (burst * self.rng.between(1, 20)).min(most);
                let pause = self.rng.log_between(1, 500);
                self.line(format!(
                    "upload = \"{bytes}\"\ndownload = \"{burst}\"\nburst = \"{burst}\"\npause = \"{pause}ms\""
                ));
            }
        }
        if self.percent(20) {
            let rate = self.rng.between(total_rate / 20, total_rate).max(200_000);
            let who = if self.percent(50) { "client" } else { "server" };
            self.line(format!("{who}-reads = \"{rate}bit/s\""));
        }
        if self.percent(25) {
            let connections = self.rng.between(2, 5);
            let spacing = self.rng.log_between(1, 1_000);
            self.line(format!(
                "connections = {connections}\nspacing = \"{spacing}ms\""
            ));
        }
        if self.percent(30) {
            self.line("close = \"after-both\"");
        }
        for key in ["options", "client-options", "server-options"] {
            self.options(key);
        }
        self.line("");
    }

    fn options(&mut self, key: &str) {
        let mut words = Vec::new();
        match key {
            "options" => {
                let algorithm = ["cubic", "reno", "lia"][self.rng.below(3) as usize];
                words.push(format!("congestion = \"{algorithm}\""));
                words.push(format!("ecn = {}", self.percent(30)));
                words.push(format!("long-dsn = {}", self.percent(60)));
                // Of an option that is gone: without this draw each seed would mean another network.
                self.percent(60);
                words.push(format!("nodelay = {}", self.percent(50)));
            }
            _ => {
                words.push(format!("checksum = {}", self.percent(70)));
                words.push(format!("pacing = {}", self.percent(70)));
                words.push(format!("plain-tcp = {}", self.percent(4)));
                if self.percent(50) {
                    let receive = self.rng.log_between(20_000, 2_000_000);
                    words.push(format!("recv-buffer = \"{receive}\""));
                    let send = self.rng.log_between(receive, 4_000_000);
                    words.push(format!("send-buffer = \"{send}\""));
                }
                if key == "client-options" && self.percent(30) {
                    let count = self.rng.between(2, 5);
                    words.push(format!("path-manager = \"ndiffports:{count}\""));
                }
            }
        }
        self.line(format!("{key} = {{ {} }}", words.join(", ")));
    }

    fn events(&mut self, paths: &[PathPlan]) {
        // The first path stays: a connection that is not yet fully established cannot move (RFC 8684 section 3.2).
        if paths.len() > 1 && self.percent(20) {
            let index = self.rng.between(1, paths.len() as u64 - 1) as usize;
            let address = Self::address(index, paths[index].ipv6, 2);
            let gone = self.rng.between(500, 4_000);
            let back = gone + self.rng.log_between(10, 3_000);
            for (what, at) in [("remove-address", gone), ("add-address", back)] {
                self.line(format!(
                    "[[event]]\ndo = \"{what}\"\nat = \"{at}ms\"\ninterface = \"client.i{index}\"\naddress = \"{address}\"\n"
                ));
            }
        }
        if self.percent(20) {
            let index = self.rng.below(paths.len() as u64);
            let at = self.rng.between(100, 5_000);
            let rate = self.rng.log_between(300_000, 100_000_000);
            let delay = self.rng.log_between(1, 150);
            self.line(format!(
                "[[event]]\ndo = \"change\"\nat = \"{at}ms\"\nlink = \"l{index}\"\nrate = \"{rate}bit/s\"\ndelay = \"{delay}ms\"\n"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_a_scenario_that_can_be_built() {
        for seed in 0..2_000 {
            let text = text(seed);
            let scenario = Scenario::parse(&text).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
            let built = Simulation::new(scenario, RunOptions::default());
            assert!(built.is_ok(), "{seed}: {}\n{text}", built.err().unwrap());
        }
    }
}
