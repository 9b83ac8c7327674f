//! Ctrl-C while something long runs: it is told, and leaves in good order.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs `work`, which looks now and then whether it is to stop. Without a hook a signal ends us at once, as it always does.
pub(crate) fn stoppable<T>(work: impl FnOnce(&AtomicBool) -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let hooks: Vec<_> = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM]
        .into_iter()
        .filter_map(|signal| signal_hook::flag::register(signal, Arc::clone(&stop)).ok())
        .collect();
    let done = work(&stop);
    for hook in hooks {
        signal_hook::low_level::unregister(hook);
    }
    done
}
