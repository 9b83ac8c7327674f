//! Waiting without sleeping, for a bounded time. A processor that was halted takes tens of microseconds to come back, and a
//! thread that slept has to be chosen again; one that keeps looking sees what comes at once. It costs the processor meanwhile.

use std::pin::pin;
use std::time::{Duration, Instant};

/// Somebody else ran for so long when the processor was offered: it is not idle, and whoever sleeps is served sooner than
/// whoever competes.
const CROWDED: Duration = Duration::from_micros(100);
/// How long it is not tried again then.
const RELUCTANCE: Duration = Duration::from_secs(1);

/// Looks for things without sleeping, where that helps.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    /// For so long at a time; zero for never.
    pub(crate) bound: Duration,
    not_before: Option<Instant>,
}

impl Lookout {
    /// Waits for `wanted`, and looks for it all the time at first.
    pub(crate) async fn wait_for<F: Future>(&mut self, wanted: F) -> F::Output {
        let mut wanted = pin!(wanted);
        tokio::select! {
            biased;
            found = &mut wanted => return found,
            () = self.stay_awake(|| false) => {}
        }
        wanted.await
    }

    /// Keeps this thread's runtime from sleeping: sockets, devices and tasks have their turns as always. Ends when the time is
    /// over, when `done`, or when others need the processor.
    pub(crate) async fn stay_awake(&mut self, done: impl Fn() -> bool) {
        let begun = Instant::now();
        if self.bound.is_zero() || self.not_before.is_some_and(|at| begun < at) {
            return;
        }
        let mut before = begun;
        while before - begun < self.bound && !done() {
            // The runtime looks at its sockets before it comes back here.
            tokio::task::yield_now().await;
            let offered = Instant::now();
            std::thread::yield_now();
            before = Instant::now();
            if before - offered >= CROWDED {
                self.not_before = Some(before + RELUCTANCE);
                return;
            }
        }
    }
}
