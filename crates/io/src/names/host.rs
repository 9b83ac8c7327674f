//! The host's own resolver, on few threads.
//!
//! getaddrinfo(3) cannot be given up: a name whose servers are silent keeps a thread for half a minute, whoever still waits for it.
//! Without a bound of its own such names would take every thread that may block, and passwords and files would wait behind them.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use tokio::sync::Semaphore;

/// Names that are asked for at one time.
const AT_ONCE: usize = 32;

/// Names that are asked for or wait for that.
const MOST: usize = 256;

/// Asks for a bounded number of names.
#[derive(Debug)]
pub(super) struct HostResolver {
    turns: Semaphore,
    room: Semaphore,
}

impl HostResolver {
    pub(super) const fn new() -> Self {
        Self {
            turns: Semaphore::const_new(AT_ONCE),
            room: Semaphore::const_new(MOST),
        }
    }

    /// The addresses of a name, at least one, each once.
    pub(super) async fn ask(&'static self, host: &str) -> io::Result<Vec<IpAddr>> {
        let asked = host.to_owned();
        let found = self.run(move || (asked, 0).to_socket_addrs()).await?;
        let mut seen = HashSet::new();
        let addrs = found
            .map(|addr| addr.ip())
            .filter(|addr| seen.insert(*addr));
        let addrs: Vec<IpAddr> = addrs.collect();
        match addrs.is_empty() {
            true => Err(io::Error::new(io::ErrorKind::NotFound, "it has no address")),
            false => Ok(addrs),
        }
    }

    /// Runs a question when it has its turn, which it keeps until it is done, also when nobody waits for it any more.
    async fn run<T: Send + 'static>(
        &'static self,
        question: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let Ok(room) = self.room.try_acquire() else {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{MOST} names wait for the host's resolver already"),
            ));
        };
        let turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let task = move || {
            let answer = question();
            drop((turn, room));
            answer
        };
        let done = tokio::task::spawn_blocking(task).await;
        done.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn questions_that_nobody_waits_for_any_more_keep_their_turns_and_others_are_refused() {
        let resolver: &'static HostResolver = Box::leak(Box::new(HostResolver::new()));
        let (answer, answered) = mpsc::channel::<()>();
        let answered: &'static std::sync::Mutex<_> = Box::leak(Box::new(answered.into()));
        let silent = move || {
            let _ = answered.lock().expect("no panic").recv();
            Ok(())
        };
        let mut asked: Vec<_> = (0..MOST)
            .map(|_| tokio::spawn(resolver.run(silent)))
            .collect();
        while resolver.room.available_permits() > 0 || resolver.turns.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let error = resolver.run(|| Ok(())).await.expect_err("there is no room");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        // Those who wait give up; of what they asked for a part is on its way.
        for task in asked.drain(..) {
            task.abort();
            let _ = task.await;
        }
        assert_eq!(resolver.turns.available_permits(), 0);
        assert_eq!(resolver.room.available_permits(), MOST - AT_ONCE);
        // Other work that blocks has its threads meanwhile.
        let other = tokio::task::spawn_blocking(|| 7).await.expect("a thread");
        assert_eq!(other, 7);
        drop(answer);
        resolver.run(|| Ok(())).await.expect("there is room again");
    }
}
