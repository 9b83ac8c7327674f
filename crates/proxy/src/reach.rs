//! How sockets of the host's kernel reach a name or an address, and what was learnt of that.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use manypath_io::names::Names;
use manypath_io::race::memory::{Candidate, Memory, Way};
use manypath_io::race::race;

/// Names as the host's routes find them, and addresses that did not answer lately.
#[derive(Debug)]
pub struct Reach {
    pub(crate) names: Names,
    memory: Mutex<Memory>,
    began: Instant,
}

impl Default for Reach {
    fn default() -> Self {
        Self {
            names: Names::default(),
            memory: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl Reach {
    /// Connects to the first of the addresses that answers (RFC 8305). The kernel chooses the way to each.
    ///
    /// # Errors
    /// That of the attempt that says most.
    pub(crate) async fn connect<T, F>(
        &self,
        remotes: &[SocketAddr],
        mut start: impl FnMut(SocketAddr) -> F,
    ) -> io::Result<T>
    where
        F: Future<Output = io::Result<T>> + Send,
    {
        let any = |local: IpAddr| Way {
            local,
            backup: false,
        };
        let ways = [
            any(Ipv4Addr::UNSPECIFIED.into()),
            any(Ipv6Addr::UNSPECIFIED.into()),
        ];
        let candidates: Vec<Candidate> = self.memory().plan(self.began.elapsed(), &ways, remotes);
        let delays: Vec<Duration> = candidates.iter().map(|c| c.delay).collect();
        let outcome = race(&delays, |i| {
            let attempt: Pin<Box<dyn Future<Output = io::Result<T>> + Send + '_>> =
                Box::pin(start(candidates[i].remote));
            attempt
        })
        .await;
        self.memory()
            .learn(self.began.elapsed(), &candidates, &outcome.fates);
        outcome.result.map(|(_, stream)| stream)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // What is kept is only what was learnt; half of it is as good.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
