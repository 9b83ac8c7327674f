//! What every command that talks to the network needs: a log, a runtime, signals.

use std::future::Future;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;
use crate::lines::{Log, Outlet};
use crate::signals::ending;

/// Whether nothing but errors is wanted.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Says on standard error how things go, unless only errors are wanted.
pub(crate) fn say(line: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        say_always(line);
    }
}

/// Writes a line on standard error. Nobody may read there any more; that must not end what the command does.
pub(crate) fn say_always(line: &str) {
    let _ = Outlet::Error.write(format!("{line}\n").as_bytes());
}

/// Sends the log to standard error. `MANYPATH_LOG` (such as `info,manypath_io=trace`) overrides the flags.
pub(crate) fn start_log(verbose: u8, quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
    let level = match (quiet, verbose) {
        (true, _) => Level::ERROR,
        (false, 0) => Level::WARN,
        (false, 1) => Level::INFO,
        (false, 2) => Level::DEBUG,
        (false, _) => Level::TRACE,
    };
    let by_flags = Targets::new().with_default(level);
    let (filter, mistake) = match std::env::var("MANYPATH_LOG").map(|text| text.parse()) {
        Ok(Ok(filter)) => (filter, None),
        Ok(Err(error)) => (by_flags, Some(error)),
        Err(_) => (by_flags, None),
    };
    let mut lines = fmt::layer()
        .with_writer(|| Log)
        .with_target(false)
        // It would tell of a broken standard error there, and panic over it.
        .log_internal_errors(false);
    if !std::io::stderr().is_terminal() {
        // Files and journals are no place for colours. On a terminal, NO_COLOR decides.
        lines.set_ansi(false);
    }
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    if let Some(error) = mistake {
        tracing::warn!(%error, "MANYPATH_LOG is not understood");
    }
}

/// Takes as many files as this process may have.
pub(crate) fn raise_limits() {
    if let Err(error) = manypath_io::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// What a command does first that may carry many connections: it takes as many files as it may have, and keeps only the
/// privileges that networks need. Comes before any thread: they would keep theirs.
pub(crate) fn prepare_process() {
    raise_limits();
    if let Err(error) = manypath_io::limit_privileges() {
        tracing::warn!(%error, "cannot give up the privileges that are not needed");
    }
}

/// Runs a command's future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::from_io(format!("cannot start: {e}"), e.kind()))?;
    let result = runtime.block_on(future);
    // Tasks that still run hold sockets whose guards must be dropped before the process ends.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}

/// Runs a future unless a signal comes first; whatever it holds is dropped, and so taken down, before this returns.
pub(crate) async fn unless_stopped<T>(
    future: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        result = future => result,
        signal = ending() => Err(signal.failure()),
    }
}
