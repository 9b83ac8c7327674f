//! Ctrl-C, or the request to end, while something long runs: it is told, and leaves in good order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};

/// SIGTERM was among the signals.
static TERMINATED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Runs `work`, which looks now and then whether it is to stop. Without a hook a signal ends us at once, as it always does.
pub(crate) fn stoppable<T>(work: impl FnOnce(&AtomicBool) -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let hooks: Vec<_> = [(SIGINT, &stop), (SIGTERM, &stop), (SIGTERM, &*TERMINATED)]
        .into_iter()
        .filter_map(|(signal, flag)| signal_hook::flag::register(signal, Arc::clone(flag)).ok())
        .collect();
    let done = work(&stop);
    for hook in hooks {
        signal_hook::low_level::unregister(hook);
    }
    done
}

/// What was stopped was so by SIGTERM, not by Ctrl-C.
#[must_use]
pub fn was_terminated() -> bool {
    TERMINATED.load(Ordering::Relaxed)
}
