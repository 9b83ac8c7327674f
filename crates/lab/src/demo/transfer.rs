//! One download by `curl`, watched from outside.

use std::io::Read;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::report::{Cut, PathReport, RunReport, Sample};
use super::show::{Moment, Show, View};
use super::{BOTH_OURS, DemoError, Plan, WEB_PORT, hex, relay};
use crate::testbed::{SERVER, TestPath, Testbed};

/// What carries the download.
#[derive(Debug, Clone, Copy)]
pub(super) enum Route {
    /// `manypath forward` at both ends.
    BothOurs,
    /// `manypath forward` at the client's end, the kernel's Multipath TCP at the server's.
    OursToKernel,
    /// The kernel's Multipath TCP at both ends.
    BothKernel,
    /// Plain TCP over one path.
    Tcp { path: usize },
}

/// One download to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) plan: Plan,
    pub(super) route: Route,
    /// What the file's hash must be.
    pub(super) sha256: &'a str,
    pub(super) show: Show,
}

/// The path that is cut.
const FAST: usize = 0;
/// How often the world is looked at.
const TICK: Duration = Duration::from_millis(25);
/// Length of one sample of the rates.
const SAMPLE: Duration = Duration::from_millis(250);

impl Job<'_> {
    fn name(&self, bed: &Testbed) -> String {
        match self.route {
            Route::BothOurs => BOTH_OURS.to_owned(),
            Route::OursToKernel => "manypath, from a kernel server".to_owned(),
            Route::BothKernel => "both ends kernel".to_owned(),
            Route::Tcp { path } => format!("TCP, {} alone", bed.paths()[path].name),
        }
    }

    fn command(&self) -> Command {
        let curl = [
            "--silent",
            "--show-error",
            "--fail",
            "--no-buffer",
            "--noproxy",
            "*",
            "--output",
            "-",
        ];
        let mut command = Command::new("curl");
        match self.route {
            Route::BothOurs | Route::OursToKernel => {
                command
                    .args(curl)
                    .arg(format!("http://127.0.0.1:{}/file.bin", relay::PORT));
            }
            Route::BothKernel => {
                command = Command::new("mptcpize");
                command
                    .args(["run", "curl"])
                    .args(curl)
                    .arg(format!("http://{SERVER}:{WEB_PORT}/file.bin"));
            }
            Route::Tcp { path } => {
                command
                    .args(curl)
                    .arg("--interface")
                    .arg(Testbed::client_address(path).to_string());
                command.arg(format!("http://{SERVER}:{WEB_PORT}/file.bin"));
            }
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn limit(&self, bed: &Testbed) -> Duration {
        self.plan.limit(match self.route {
            Route::BothOurs | Route::OursToKernel | Route::BothKernel => {
                bed.paths().iter().map(rate).max().unwrap_or(1)
            }
            Route::Tcp { path } => rate(&bed.paths()[path]),
        })
    }
}

/// Bits per second towards the client.
fn rate(path: &TestPath) -> u64 {
    path.down.rate.as_bytes_per_sec().saturating_mul(8)
}

/// What the thread that reads the client's output found.
struct Received {
    sha256: String,
    bytes: u64,
    longest_stall: Duration,
    last: Instant,
}

fn receive(
    mut from: ChildStdout,
    progress: &AtomicU64,
    start: Instant,
) -> std::io::Result<Received> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 65_536];
    let mut received = Received {
        sha256: String::new(),
        bytes: 0,
        longest_stall: Duration::ZERO,
        last: start,
    };
    loop {
        let len = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        if received.bytes > 0 {
            received.longest_stall = received.longest_stall.max(now - received.last);
        }
        received.last = now;
        received.bytes += len as u64;
        progress.store(received.bytes, Ordering::Relaxed);
        hash.update(&chunk[..len]);
    }
    received.sha256 = hex(&hash.finalize());
    Ok(received)
}

/// Does one download, cutting the fast path on the way. The path is whole again when this returns.
pub(super) fn run(bed: &Testbed, job: &Job<'_>, stop: &AtomicBool) -> Result<RunReport, DemoError> {
    let name = job.name(bed);
    drain(bed, stop);
    let failed = |message: String| DemoError::Program {
        program: "curl".to_owned(),
        message,
    };
    let reports: Vec<PathReport> = bed.paths().iter().map(PathReport::of).collect();
    let mut view = View::new(job.show, &name, job.plan.size, &reports);
    let mut watch = Watch::new(bed, job.plan);
    let mut client = bed.client.spawn(job.command())?;
    let (Some(output), Some(errors)) = (client.child().stdout.take(), client.child().stderr.take())
    else {
        return Err(failed("has no output".to_owned()));
    };
    let progress = Arc::new(AtomicU64::new(0));
    let (shared, start) = (Arc::clone(&progress), watch.start);
    let reader = std::thread::spawn(move || receive(output, &shared, start));
    let limit = job.limit(bed);
    while !reader.is_finished() {
        if stop.load(Ordering::Relaxed) {
            return Err(DemoError::Interrupted);
        }
        let bytes = progress.load(Ordering::Relaxed);
        if watch.start.elapsed() > limit {
            return Err(DemoError::TooSlow {
                over: name,
                seconds: limit.as_secs(),
                bytes,
            });
        }
        watch.look(bytes, &mut view);
        std::thread::sleep(TICK);
    }
    let received = reader
        .join()
        .map_err(|_| failed("its reader panicked".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let status = client
        .child()
        .wait()
        .map_err(|error| failed(error.to_string()))?;
    if stop.load(Ordering::Relaxed) {
        return Err(DemoError::Interrupted);
    }
    if !status.success() {
        let mut said = String::new();
        // What it said is a courtesy; its status alone is an error already.
        let _ = { errors }.read_to_string(&mut said);
        return Err(failed(format!("{name}: {} ({status})", said.trim())));
    }
    let seconds = (received.last - watch.start).as_secs_f64();
    view.finish(seconds);
    let (path_bytes, cut, samples) = watch.end(seconds);
    let over = match job.route {
        Route::BothOurs | Route::OursToKernel | Route::BothKernel => {
            (0..bed.paths().len()).collect()
        }
        Route::Tcp { path } => vec![path],
    };
    Ok(RunReport {
        name,
        over,
        seconds,
        goodput: received.bytes as f64 * 8.0 / seconds.max(1e-9),
        longest_stall: received.longest_stall.as_secs_f64(),
        intact: received.bytes == job.plan.size && received.sha256 == job.sha256,
        path_bytes,
        cut,
        samples,
    })
}

/// What a server had already sent when its client went away still fills the buffers: the next download waits until
/// the paths have been silent for a while, or for as long as the deepest buffer can take.
fn drain(bed: &Testbed, stop: &AtomicBool) {
    let (quiet, limit) = (Duration::from_millis(300), Duration::from_secs(4));
    let begin = Instant::now();
    let (mut last, mut since) = (bed.delivered(), begin);
    while since.elapsed() < quiet && begin.elapsed() < limit && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(TICK);
        let now = bed.delivered();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

/// Counts, samples and cuts while a download runs; makes the path whole when it goes.
struct Watch<'a> {
    bed: &'a Testbed,
    plan: Plan,
    start: Instant,
    /// Bytes of each path before the download.
    first: Vec<u64>,
    /// And at the last sample.
    last: Vec<u64>,
    sampled: Instant,
    samples: Vec<Sample>,
    cut_at: Option<Instant>,
    joined_at: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(bed: &'a Testbed, plan: Plan) -> Self {
        let first = bed.delivered();
        let start = Instant::now();
        Self {
            bed,
            plan,
            start,
            last: first.clone(),
            first,
            sampled: start,
            samples: Vec::new(),
            cut_at: None,
            joined_at: None,
        }
    }

    fn look(&mut self, bytes: u64, view: &mut View) {
        let now = Instant::now();
        match (self.cut_at, self.joined_at) {
            (None, _) if bytes >= self.plan.cut_after => {
                self.bed.emulator().set_up(FAST, false);
                self.cut_at = Some(now);
            }
            (Some(cut), None) if now - cut >= self.plan.cut_for => self.join(),
            _ => {}
        }
        if now - self.sampled < SAMPLE {
            return;
        }
        let rates = self.sample(now);
        let cut = (self.cut_at.is_some() && self.joined_at.is_none()).then_some(FAST);
        view.update(Moment {
            seconds: (now - self.start).as_secs_f64(),
            bytes,
            rates: &rates,
            cut,
        });
    }

    fn sample(&mut self, now: Instant) -> Vec<f64> {
        let current = self.bed.delivered();
        let seconds = (now - self.sampled).as_secs_f64().max(1e-9);
        let rates: Vec<f64> = current
            .iter()
            .zip(&self.last)
            .map(|(now, then)| (now - then) as f64 * 8.0 / seconds)
            .collect();
        self.samples.push(Sample {
            at: (now - self.start).as_secs_f64(),
            rates: rates.clone(),
        });
        self.last = current;
        self.sampled = now;
        rates
    }

    fn join(&mut self) {
        self.bed.emulator().set_up(FAST, true);
        self.joined_at = Some(Instant::now());
    }

    fn end(mut self, seconds: f64) -> (Vec<u64>, Option<Cut>, Vec<Sample>) {
        self.sample(Instant::now());
        if self.cut_at.is_some() && self.joined_at.is_none() {
            self.join();
        }
        let since = |at: Option<Instant>| Some((at? - self.start).as_secs_f64());
        let cut = since(self.cut_at)
            .zip(since(self.joined_at))
            .map(|(from, to)| Cut {
                from,
                to: to.min(seconds),
            });
        let bytes = self
            .last
            .iter()
            .zip(&self.first)
            .map(|(now, then)| now - then)
            .collect();
        (bytes, cut, std::mem::take(&mut self.samples))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.cut_at.is_some() && self.joined_at.is_none() {
            self.join();
        }
    }
}
