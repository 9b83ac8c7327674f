//! The signals that ask a command to end: noted from the first moment, so that whatever was changed on the host is put back.
//!
//! Every signal whose default action ends the process is caught, except those that report a fault of the process itself
//! (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS: its state cannot be trusted; the next start undoes what is left)
//! and SIGPIPE, which Rust programs ignore. A signal that was ignored when the process started stays ignored, as `nohup`
//! and shells without job control expect.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Code, Failure};

/// A signal that asked us to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal(u8);

impl Signal {
    /// The terminal went away.
    pub(crate) const HANGUP: Self = Self(1);
    /// Ctrl-C.
    pub(crate) const INTERRUPT: Self = Self(2);
    /// A polite request, as service managers send it.
    pub(crate) const TERMINATE: Self = Self(15);

    /// How a command ends that was in the middle of something.
    pub(crate) fn failure(self) -> Failure {
        let code = Code::Signal(self.0);
        match self {
            Self::HANGUP => Failure::new(code, "hung up (SIGHUP)"),
            Self::INTERRUPT => Failure::new(code, "interrupted"),
            Self::TERMINATE => Failure::new(code, "terminated"),
            Self(number) => {
                let name = NAMED.iter().find(|(known, _)| *known == number);
                let name = name.map_or_else(
                    || format!("signal {number}"),
                    |(_, name)| (*name).to_owned(),
                );
                Failure::new(code, format!("ended by {name}"))
            }
        }
    }
}

/// The caught signals below the real-time ones, by Linux's numbers (signal(7)).
const NAMED: [(u8, &str); 15] = [
    (15, "SIGTERM"),
    (2, "SIGINT"),
    (1, "SIGHUP"),
    (3, "SIGQUIT"),
    (10, "SIGUSR1"),
    (12, "SIGUSR2"),
    (14, "SIGALRM"),
    (16, "SIGSTKFLT"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (26, "SIGVTALRM"),
    (27, "SIGPROF"),
    (29, "SIGIO"),
    (30, "SIGPWR"),
    // The first real-time signal that the C library leaves to programs; the others follow it.
    (34, "SIGRTMIN"),
];

/// The last real-time signal.
const LAST: u8 = 64;

fn all() -> impl Iterator<Item = u8> {
    let last_named = NAMED[NAMED.len() - 1].0;
    NAMED
        .iter()
        .map(|(number, _)| *number)
        .chain(last_named + 1..=LAST)
}

/// The signals that the process was started to ignore, from the text of `/proc/PID/status`; bit n-1 is signal n.
fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// What was caught, in the order of [`all`].
static CAUGHT: OnceLock<Vec<(Signal, Arc<AtomicBool>)>> = OnceLock::new();

/// Notes the signals from now on. Comes first in `main`: until then a signal ends the process with nothing to put back. With
/// `reloads`, SIGHUP is no request to end: [`Hangups`] tells of it.
pub(crate) fn catch(reloads: bool) {
    // Without /proc nothing is known to be ignored; such a host has no kernel settings to change either.
    let ignored = ignored_in(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    CAUGHT.get_or_init(|| {
        if reloads {
            let hung_up = HUNG_UP.get_or_init(Arc::default);
            // If it cannot be caught it keeps its default action.
            let _ = signal_hook::flag::register(Signal::HANGUP.0.into(), Arc::clone(hung_up));
        }
        let wanted = all()
            .filter(|number| ignored & (1 << (number - 1)) == 0)
            .filter(|number| !(reloads && *number == Signal::HANGUP.0));
        wanted
            .filter_map(|number| {
                let flag = Arc::new(AtomicBool::new(false));
                // A signal that cannot be caught keeps its default action.
                signal_hook::flag::register(number.into(), Arc::clone(&flag)).ok()?;
                Some((Signal(number), flag))
            })
            .collect()
    });
}

/// Whether a SIGHUP has come that asks for a reload and that nobody has taken yet.
static HUNG_UP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// SIGHUPs that ask for a reload, those from before it was made included.
pub(crate) struct Hangups(Option<tokio::signal::unix::Signal>);

impl Hangups {
    /// Must be called within a runtime, and after [`catch`] with `reloads`.
    pub(crate) fn new() -> Self {
        Self(signal(SignalKind::hangup()).ok())
    }

    /// Waits for the next one; several that came meanwhile are one.
    pub(crate) async fn next(&mut self) {
        loop {
            let came = HUNG_UP
                .get()
                .is_some_and(|came| came.swap(false, Ordering::SeqCst));
            if came {
                return;
            }
            match &mut self.0 {
                Some(signal) => {
                    signal.recv().await;
                }
                None => std::future::pending().await,
            }
        }
    }
}

/// The signal that has come, if one has.
pub(crate) fn noted() -> Option<Signal> {
    let caught = CAUGHT.get()?;
    let came = caught.iter().find(|(_, flag)| flag.load(Ordering::SeqCst));
    came.map(|(signal, _)| *signal)
}

/// Waits for a signal that asks us to end; one that came since [`catch`] counts. Must be called within a runtime.
pub(crate) fn ending() -> impl Future<Output = Signal> {
    let caught = CAUGHT.get().into_iter().flatten();
    let mut wakers: Vec<_> = caught
        .filter_map(|(of, _)| signal(SignalKind::from_raw(of.0.into())).ok())
        .collect();
    poll_fn(move |cx| {
        // Registers with all of them first, so that none is missed between the look and the wait.
        for waker in &mut wakers {
            while let Poll::Ready(Some(())) = waker.poll_recv(cx) {}
        }
        noted().map_or(Poll::Pending, Poll::Ready)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_ignored_at_the_start_are_read_from_the_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001005\nSigCgt:\t0\n";
        assert_eq!(ignored_in(status), 0x1005);
        assert_eq!(ignored_in(""), 0);
    }

    #[test]
    fn every_signal_that_ends_a_process_is_caught_once_and_none_that_tells_of_a_fault() {
        let mut numbers: Vec<u8> = all().collect();
        numbers.sort_unstable();
        // signal(7): 4 ILL, 5 TRAP, 6 ABRT, 7 BUS, 8 FPE, 9 KILL, 11 SEGV, 13 PIPE, 31 SYS; 17 to 23 and 28 do not end a
        // process; 32 and 33 belong to the C library.
        let others = [
            4, 5, 6, 7, 8, 9, 11, 13, 17, 18, 19, 20, 21, 22, 23, 28, 31, 32, 33,
        ];
        let wanted: Vec<u8> = (1..=64).filter(|n| !others.contains(n)).collect();
        assert_eq!(numbers, wanted);
    }

    #[test]
    fn a_signal_is_told_by_its_name() {
        let said = |number| Signal(number).failure().to_string();
        assert_eq!(said(3), "ended by SIGQUIT");
        assert_eq!(said(40), "ended by signal 40");
        assert_eq!(Signal::INTERRUPT.failure().to_string(), "interrupted");
    }
}
