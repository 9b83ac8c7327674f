//! `manypath demo`: an unmodified client and an unmodified server, two paths, and a cut in the middle.
//!
//! A stock web server stands at the far end of two emulated paths, and a stock `curl` downloads a file from it: with `manypath
//! forward` at both ends, at the client's end alone (the web server is on the kernel's Multipath TCP), with the kernel's
//! Multipath TCP at both ends, and over plain TCP on each path alone. In every run the fast path is cut for some seconds after the same share
//! of the file. Nothing here needs root, and nothing is left behind.

mod chart;
mod folder;
mod page;
mod relay;
mod report;
mod show;
mod simulated;
mod stretch;
mod transfer;
pub(crate) mod web;

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::interrupt;
use crate::kernel;
use crate::netns::{self, NetNs, NetNsError, Process};
use crate::testbed::{TestPath, Testbed};
pub(crate) use chart::escape;
use folder::Folder;
pub use report::{Arm, Cut, PathReport, Report, RunReport, Sample};
pub use show::Show;
use transfer::{Job, Route};

/// What the demo shall do. The defaults are those of the command.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A smaller file and a shorter cut: half a minute instead of a minute and a half.
    pub quick: bool,
    /// Where the page goes; `manypath-demo.html` in the current directory if absent.
    pub out: Option<PathBuf>,
    /// How progress is shown while it runs.
    pub show: Show,
    /// The program that has the `forward` command; this very program if absent.
    pub program: Option<PathBuf>,
}

/// Why the demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The private network could not be built.
    #[error(transparent)]
    Network(#[from] NetNsError),
    /// Somebody pressed Ctrl-C. Everything has been taken down.
    #[error("interrupted")]
    Interrupted,
    /// A file could not be written or read.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program that takes part did not do its work.
    #[error("{program}: {message}")]
    Program {
        /// Which one.
        program: String,
        /// What went wrong, in its own words where it has any.
        message: String,
    },
    /// A download did not end in time.
    #[error(
        "the download over {over} did not end within {seconds} seconds ({bytes} bytes arrived)"
    )]
    TooSlow {
        /// Which of the downloads.
        over: String,
        /// How long we waited.
        seconds: u64,
        /// How far it came.
        bytes: u64,
    },
}

/// Sizes and times of one showing.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Bytes of the file.
    size: u64,
    /// The fast path is cut when this many bytes have arrived.
    cut_after: u64,
    /// And for this long.
    cut_for: Duration,
}

impl Plan {
    fn new(quick: bool) -> Self {
        let (size, cut_for) = if quick {
            (3_000_000, Duration::from_secs(3))
        } else {
            (8_000_000, Duration::from_secs(4))
        };
        Self {
            size,
            cut_after: size * 2 / 5,
            cut_for,
        }
    }

    /// When a run over paths of this many bits per second together is given up: generously late, but bounded.
    fn limit(&self, rate: u64) -> Duration {
        Duration::from_secs(15 + self.size * 8 * 3 / rate.max(1)) + self.cut_for * 3
    }
}

/// The two paths: a wireless LAN and a mobile network, as in the papers (NSDI 2012, section 4).
fn paths() -> Vec<TestPath> {
    let ms = manypath_tcp::time::Duration::from_millis;
    vec![
        TestPath::symmetric("wifi", 8_000_000, ms(20), ms(80)),
        TestPath::symmetric("mobile", 2_000_000, ms(150), ms(2_000)),
    ]
}

/// As kernels have it by default. A kernel that repeats data with checksums, as the web server's does when the path is cut,
/// may divide by zero and lock the socket for ever (Linux 6.18, `tcp_tso_segs` below `mptcp_worker`).
const CHECKSUM: bool = false;

/// The name of the download that the others are held against.
const BOTH_OURS: &str = "both ends manypath";
/// Where the web server listens.
const WEB_PORT: u16 = 8080;
/// Runs the demo to its end; [`write_page`] makes the page of its result. If need be, this process is replaced by one in a user namespace of its
/// own, with the same arguments: call it before doing anything that must not be done twice. Where namespaces are
/// forbidden the simulator takes their place, and [`Report::arm`] says why.
///
/// # Errors
/// See [`DemoError`]; whatever it is, nothing is left behind.
pub fn run(options: &Options) -> Result<Report, DemoError> {
    try_page(options)?;
    if let Err(error) = netns::acquire() {
        let reason = error.into_reason()?;
        return simulated::run(Plan::new(options.quick), &reason);
    }
    interrupt::stoppable(|stop| real(options, stop))
}

/// Where the page of these options goes.
fn page_path(options: &Options) -> PathBuf {
    options
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("manypath-demo.html"))
}

/// Finds out before the long work whether the page can be written after it.
fn try_page(options: &Options) -> Result<(), DemoError> {
    let path = page_path(options);
    let existed = path.exists();
    match std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
    {
        Ok(_) if existed => {}
        // An empty file would be taken for a result.
        Ok(_) => std::fs::remove_file(&path).unwrap_or_default(),
        Err(source) => return Err(DemoError::File { path, source }),
    }
    Ok(())
}

/// Writes the page of a result, and says where it is. Apart from [`run`], so that a full disk does not cost the result.
///
/// # Errors
/// [`DemoError::File`].
pub fn write_page(options: &Options, report: &Report) -> Result<PathBuf, DemoError> {
    let path = page_path(options);
    match std::fs::write(&path, page::html(report)) {
        Ok(()) => Ok(path),
        Err(source) => Err(DemoError::File { path, source }),
    }
}

/// The demo with real packets.
fn real(options: &Options, stop: &AtomicBool) -> Result<Report, DemoError> {
    let plan = Plan::new(options.quick);
    let parent = std::env::temp_dir();
    let folder = Folder::new(&parent).map_err(|source| DemoError::File {
        path: parent,
        source,
    })?;
    let sha256 = write_file(&folder.path().join("file.bin"), plan.size)?;

    let bed = Testbed::new("demo", &paths(), "cubic", 1)?;
    kernel::prepare(&bed.server, CHECKSUM)?;
    let web = web::start(
        &bed.server,
        folder.path(),
        WEB_PORT,
        web::Transport::Multipath,
    )?;
    let before = kernel::Counters::read(&bed.server).unwrap_or_default();

    let mut runs = Vec::new();
    let mut download = |route: Route| -> Result<(), DemoError> {
        let job = Job {
            plan,
            route,
            sha256: &sha256,
            show: options.show,
        };
        let run = transfer::run(&bed, &job, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Err(DemoError::Interrupted);
        }
        runs.push(run);
        Ok(())
    };
    let program = program(options)?;
    relay::both_ends(&bed, &program, || download(Route::BothOurs))?;
    relay::client_end(&bed, &program, || download(Route::OursToKernel))?;
    // Without it no stock client speaks the kernel's Multipath TCP; the other downloads do not need it.
    let mptcpize = installed("mptcpize");
    if mptcpize {
        prepare_kernel_client(&bed)?;
        download(Route::BothKernel)?;
    }
    let grown = kernel::Counters::read(&bed.server)
        .unwrap_or_default()
        .since(&before);
    for path in 0..bed.paths().len() {
        download(Route::Tcp { path })?;
    }
    let counters = grown
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("MPTcpExt")?.to_owned(), value)))
        .collect();
    Ok(Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arm: Arm::Real {
            server: format!("{}, once behind manypath forward", web.describe()),
            client: client(mptcpize),
            kernel: kernel_release(),
        },
        bytes: plan.size,
        sha256: Some(sha256),
        paths: bed.paths().iter().map(PathReport::of).collect(),
        cut_path: 0,
        cut_seconds: plan.cut_for.as_secs_f64(),
        runs,
        kernel_counters: counters,
    })
}

fn client(mptcpize: bool) -> String {
    let kernel = if mptcpize {
        ", then under mptcpize"
    } else {
        " (no download with the kernel's Multipath TCP at both ends: mptcpize is not installed)"
    };
    format!("an unmodified curl, behind manypath forward{kernel}")
}

/// Whether a program can be started.
fn installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// The program that has the `forward` command.
fn program(options: &Options) -> Result<PathBuf, DemoError> {
    match &options.program {
        Some(path) => Ok(path.clone()),
        None => std::env::current_exe().map_err(|source| DemoError::File {
            path: PathBuf::from("/proc/self/exe"),
            source,
        }),
    }
}

fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "Linux".to_owned(), |s| format!("Linux {}", s.trim()))
}

/// The kernel's own client makes one subflow per address that it is told of.
fn prepare_kernel_client(bed: &Testbed) -> Result<(), DemoError> {
    kernel::prepare(&bed.client, CHECKSUM)?;
    for (index, path) in bed.paths().iter().enumerate().skip(1) {
        let address = Testbed::client_address(index);
        bed.client.ip([format!(
            "mptcp endpoint add {address} dev {} subflow",
            path.name
        )])?;
    }
    Ok(())
}

/// Writes a file that does not compress and is the same every time; returns its SHA-256 as hexadecimal digits.
fn write_file(path: &std::path::Path, size: u64) -> Result<String, DemoError> {
    use io::Write;
    let failed = |source| DemoError::File {
        path: path.to_owned(),
        source,
    };
    let mut file = io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    let mut hash = Sha256::new();
    let mut left = size;
    let mut block = Sha256::digest(b"manypath demo");
    while left > 0 {
        let part = &block[..block.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        file.write_all(part).map_err(failed)?;
        hash.update(part);
        left -= part.len() as u64;
        block = Sha256::digest(block);
    }
    file.flush().map_err(failed)?;
    Ok(hex(&hash.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Waits until somebody listens on a port of a namespace, without connecting to it.
fn await_listener(
    ns: &NetNs,
    port: u16,
    program: &str,
    process: &mut Process,
    log: &std::path::Path,
) -> Result<(), DemoError> {
    let end = Instant::now() + Duration::from_secs(10);
    let failed = |message: String| {
        explain(
            DemoError::Program {
                program: program.to_owned(),
                message,
            },
            log,
        )
    };
    loop {
        if let Ok(Some(status)) = process.child().try_wait() {
            return Err(failed(format!("ended at once ({status})")));
        }
        if ns.listens(port) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(failed(format!(
                "does not listen on port {port} after 10 seconds"
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Adds the last words of a program to an error that it may have caused.
fn explain(error: DemoError, log: &std::path::Path) -> DemoError {
    let DemoError::Program { program, message } = error else {
        return error;
    };
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    let words: Vec<&str> = last.into_iter().rev().collect();
    let message = if words.is_empty() {
        message
    } else {
        format!("{message}: {}", words.join(" / "))
    };
    DemoError::Program { program, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_the_same_every_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("f");
        let first = write_file(&path, 1_000).expect("writable");
        assert_eq!(std::fs::metadata(&path).expect("written").len(), 1_000);
        assert_eq!(
            first,
            hex(&Sha256::digest(std::fs::read(&path).expect("written")))
        );
        assert_eq!(first, write_file(&path, 1_000).expect("writable"));
    }

    #[test]
    fn all_runs_together_stay_below_two_minutes_when_nothing_goes_wrong() {
        let plan = Plan::new(false);
        let seconds: f64 = [10e6, 10e6, 10e6, 8e6, 2e6]
            .iter()
            .map(|rate| plan.size as f64 * 8.0 / (rate * 0.94))
            .sum();
        assert!(
            seconds + 5.0 * plan.cut_for.as_secs_f64() + 10.0 < 105.0,
            "{seconds}"
        );
    }
}
