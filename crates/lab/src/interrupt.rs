//! Ctrl-C, or the request to end, while something long runs: it is told, and leaves in good order.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

/// SIGTERM was among the signals.
static TERMINATED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Runs `work`, which looks now and then whether it is to stop; a second signal ends us at once. Without a hook a signal ends us at once, as it always does.
pub(crate) fn stoppable<T>(work: impl FnOnce(&AtomicBool) -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    // The second one does not wait for what is being done. It comes before the first is noted.
    let at_once = [SIGINT, SIGTERM].into_iter().filter_map(|signal| {
        let status = 128 + signal;
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&stop)).ok()
    });
    let mut hooks: Vec<_> = at_once.collect();
    let noted = [(SIGINT, &stop), (SIGTERM, &stop), (SIGTERM, &*TERMINATED)];
    hooks.extend(
        noted.into_iter().filter_map(|(signal, flag)| {
            signal_hook::flag::register(signal, Arc::clone(flag)).ok()
        }),
    );
    // It may do without the words.
    hooks.extend(said().unwrap_or_default());
    let done = work(&stop);
    for hook in hooks {
        signal_hook::low_level::unregister(hook);
    }
    done
}

/// Lets a thread say at the first signal what happens now. It ends with the hooks.
fn said() -> io::Result<Vec<SigId>> {
    let (tell, hear) = UnixStream::pair()?;
    std::thread::Builder::new()
        .name("signal".to_owned())
        .spawn(move || say_once(hear, io::stderr(), io::stderr().is_terminal()))?;
    [SIGINT, SIGTERM]
        .into_iter()
        .map(|signal| signal_hook::low_level::pipe::register(signal, tell.try_clone()?))
        .collect()
}

/// Says it when a byte comes, if one does. On a terminal the line there is one already, of progress and `^C`.
fn say_once(mut hear: impl Read, mut to: impl Write, is_terminal: bool) {
    const STOPPING: &str =
        "manypath: stopping as soon as what goes on now is done; a second Ctrl-C ends it at once";
    if hear.read_exact(&mut [0]).is_ok() {
        let start = if is_terminal { "\n" } else { "" };
        // Nobody may read there any more.
        let _ = writeln!(to, "{start}{STOPPING}");
    }
}

/// What was stopped was so by SIGTERM, not by Ctrl-C.
#[must_use]
pub fn was_terminated() -> bool {
    TERMINATED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_signal_does_is_said_once_and_never_without_one() {
        let said = |signals: &[u8], is_terminal| {
            let mut said = Vec::new();
            say_once(signals, &mut said, is_terminal);
            String::from_utf8(said).expect("words")
        };
        assert_eq!(said(b"", false), "");
        let once = said(b"XX", false);
        assert!(once.contains("a second Ctrl-C ends it at once") && once.lines().count() == 1);
        assert_eq!(said(b"X", true), format!("\n{once}"));
    }
}
