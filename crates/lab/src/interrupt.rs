//! Ctrl-C, or the request to end, while something long runs: it is told, and leaves in good order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

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
