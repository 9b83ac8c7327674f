//! When a password is checked. Hashes are slow on purpose, so whoever sends wrong ones must not keep others waiting.
//!
//! A password that was right before costs nothing. Others have a queue for each client, of which the first alone takes part in the
//! queue of all; a client whose passwords were wrong too often is not heard for a while.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tracing::warn;

use crate::places::Client;

/// Passwords that are checked at one time: each takes a processor for a while, and some memory.
const AT_ONCE: usize = 2;

/// Clients whose passwords are checked or wait for that.
const MOST_CLIENTS: usize = 256;

/// Passwords of one client that wait: a browser opens some connections at once.
const MOST_WAITING: usize = 64;

/// Wrong passwords that a client has in a row, and how long one more takes to come.
const FAILURES: u32 = 16;
const FORGIVEN_AFTER: Duration = Duration::from_secs(4);

/// Clients that are remembered; beyond that those are forgotten whose passwords nobody checks now.
const MOST_REMEMBERED: usize = 4096;

/// What came of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Right,
    Wrong,
    /// It was not looked at: too many were wrong lately, or too many wait.
    TooMany,
}

/// The wrong passwords of a client that are not forgiven yet.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    since: Instant,
}

impl Failures {
    fn left(self, now: Instant) -> u32 {
        let forgiven =
            now.saturating_duration_since(self.since).as_secs() / FORGIVEN_AFTER.as_secs();
        let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
        self.count.saturating_sub(forgiven)
    }

    fn one_more(&mut self, now: Instant) {
        let left = self.left(now);
        // What is on its way to be forgiven stays so.
        self.since = match left {
            0 => now,
            _ => self.since + FORGIVEN_AFTER * (self.count - left),
        };
        self.count = left + 1;
    }
}

struct Entry {
    failures: Failures,
    turn: Arc<Semaphore>,
    waiting: usize,
}

/// All passwords that are checked, or wait for that.
pub(super) struct Checks {
    turns: Arc<Semaphore>,
    /// For those that are first of their clients.
    room: Arc<Semaphore>,
    clients: Mutex<HashMap<Client, Entry>>,
}

impl Default for Checks {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            room: Arc::new(Semaphore::new(MOST_CLIENTS)),
            clients: Mutex::default(),
        }
    }
}

impl Checks {
    fn clients(&self) -> MutexGuard<'_, HashMap<Client, Entry>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks a password of a client. `known` tells at once of one that was right before; `check` blocks.
    pub(super) async fn ask(
        self: &Arc<Self>,
        client: IpAddr,
        known: impl Fn() -> bool,
        check: impl FnOnce() -> bool + Send + 'static,
    ) -> Checked {
        if known() {
            return Checked::Right;
        }
        let client = Client::at(client);
        let Some(waiting) = Waiting::enter(self, client) else {
            return Checked::TooMany;
        };
        // None of the semaphores is ever closed.
        let Ok(own) = Arc::clone(&waiting.turn).acquire_owned().await else {
            return Checked::TooMany;
        };
        // What came before may have been the same.
        if known() {
            return Checked::Right;
        }
        if self.is_exhausted(client) {
            return Checked::TooMany;
        }
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            return Checked::TooMany;
        };
        let Ok(turn) = Arc::clone(&self.turns).acquire_owned().await else {
            return Checked::TooMany;
        };
        // Nobody can stop a hash: it keeps its turns until it is done, also when the client has gone.
        let checks = Arc::clone(self);
        let task = move || {
            let right = check();
            if !right {
                checks.failed(client);
            }
            drop((turn, room, own, waiting));
            right
        };
        match tokio::task::spawn_blocking(task).await {
            Ok(true) => Checked::Right,
            Ok(false) => Checked::Wrong,
            Err(error) => {
                warn!(%error, "a password could not be checked");
                Checked::Wrong
            }
        }
    }

    fn is_exhausted(&self, client: Client) -> bool {
        let now = Instant::now();
        let clients = self.clients();
        let entry = clients.get(&client);
        entry.is_some_and(|entry| entry.failures.left(now) >= FAILURES)
    }

    fn failed(&self, client: Client) {
        if let Some(entry) = self.clients().get_mut(&client) {
            entry.failures.one_more(Instant::now());
        }
    }
}

/// One more password of a client, until this is dropped.
struct Waiting {
    checks: Arc<Checks>,
    client: Client,
    turn: Arc<Semaphore>,
}

impl Waiting {
    /// `None` if the client is not heard now.
    fn enter(checks: &Arc<Checks>, client: Client) -> Option<Self> {
        let now = Instant::now();
        let mut clients = checks.clients();
        if clients.len() >= MOST_REMEMBERED && !clients.contains_key(&client) {
            clients.retain(|_, entry| entry.waiting > 0);
        }
        let entry = clients.entry(client).or_insert_with(|| Entry {
            failures: Failures {
                count: 0,
                since: now,
            },
            turn: Arc::new(Semaphore::new(1)),
            waiting: 0,
        });
        if entry.waiting >= MOST_WAITING || entry.failures.left(now) >= FAILURES {
            return None;
        }
        entry.waiting += 1;
        let turn = Arc::clone(&entry.turn);
        drop(clients);
        Some(Self {
            checks: Arc::clone(checks),
            client,
            turn,
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut clients = self.checks.clients();
        if let Some(entry) = clients.get_mut(&self.client) {
            entry.waiting -= 1;
            if entry.waiting == 0 && entry.failures.left(Instant::now()) == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn ip(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    #[tokio::test]
    async fn wrong_passwords_of_one_client_do_not_delay_another_and_keep_their_turn_when_it_leaves()
    {
        let checks = Arc::new(Checks::default());
        let (finish, finished) = mpsc::channel::<()>();
        let finished = Arc::new(Mutex::new(finished));
        let mut asked = Vec::new();
        for _ in 0..MOST_WAITING {
            let (checks, finished) = (Arc::clone(&checks), Arc::clone(&finished));
            asked.push(tokio::spawn(async move {
                let hash = move || {
                    let _ = finished.lock().expect("no panic").recv();
                    false
                };
                checks.ask(ip(1), || false, hash).await
            }));
        }
        let waiting = || {
            let clients = checks.clients();
            clients.values().map(|entry| entry.waiting).sum::<usize>()
        };
        while waiting() < MOST_WAITING || checks.turns.available_permits() == AT_ONCE {
            tokio::task::yield_now().await;
        }
        let right = checks.ask(ip(2), || false, || true).await;
        assert_eq!(right, Checked::Right);
        let one_more = checks.ask(ip(1), || false, || true).await;
        assert_eq!(one_more, Checked::TooMany);
        for task in asked {
            task.abort();
            let _ = task.await;
        }
        assert_eq!(checks.turns.available_permits(), AT_ONCE - 1);
        drop(finish);
        // The next of the client waits for the hash that is under way.
        assert_eq!(checks.ask(ip(1), || false, || true).await, Checked::Right);
    }

    #[tokio::test]
    async fn a_client_with_many_wrong_passwords_is_not_heard_and_one_that_is_known_is() {
        let checks = Arc::new(Checks::default());
        let count = Arc::new(AtomicUsize::new(0));
        let wrong = || {
            let count = Arc::clone(&count);
            move || {
                count.fetch_add(1, Ordering::Relaxed);
                false
            }
        };
        for _ in 0..FAILURES {
            assert_eq!(checks.ask(ip(1), || false, wrong()).await, Checked::Wrong);
        }
        assert_eq!(checks.ask(ip(1), || false, wrong()).await, Checked::TooMany);
        assert_eq!(count.load(Ordering::Relaxed), FAILURES as usize);
        assert_eq!(checks.ask(ip(1), || true, wrong()).await, Checked::Right);
        assert_eq!(checks.ask(ip(2), || false, || true).await, Checked::Right);
        assert_eq!(checks.clients().len(), 1, "who was right is forgotten");
    }

    #[test]
    fn wrong_passwords_are_forgiven_one_by_one() {
        let start = Instant::now();
        let mut failures = Failures {
            count: 0,
            since: start,
        };
        (0..3).for_each(|_| failures.one_more(start));
        assert_eq!(failures.left(start + FORGIVEN_AFTER), 2);
        let later = start + FORGIVEN_AFTER * 3 / 2;
        failures.one_more(later);
        assert_eq!(failures.left(later), 3);
        assert_eq!(failures.left(start + FORGIVEN_AFTER * 2), 2);
        assert_eq!(failures.left(start + FORGIVEN_AFTER * 9), 0);
    }
}
