//! What all listeners of one process share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::Semaphore;
use tracing::warn;

use crate::request::Client;
use crate::serve::{Observer, Policy};
use crate::sockets::Sockets;

/// Descriptors that connections leave to everything else (the resolver, paths that come, the control socket): a quarter of the
/// limit of open files, at most so many.
const FILES_LEFT: u64 = 64;

/// Passwords that are checked at one time: each takes a processor for a while, and some memory.
const CHECKS: usize = 2;

/// What all listeners of one process share.
pub(crate) struct Shared {
    pub(crate) sockets: Sockets,
    pub(crate) observer: Arc<dyn Observer>,
    /// Descriptors that connections may take.
    pub(crate) files: Option<Arc<Semaphore>>,
    /// Our name in `Via`: no other process has it.
    pub(crate) pseudonym: Arc<str>,
    policy: RwLock<Arc<Policy>>,
    /// Ports on which we listen, and how often.
    ports: Mutex<BTreeMap<u16, usize>>,
    checks: Semaphore,
}

impl Shared {
    pub(crate) fn new(sockets: Sockets, observer: Arc<dyn Observer>, policy: Arc<Policy>) -> Self {
        let files = manypath_io::free_files().map(|files| {
            let spare = FILES_LEFT.min(files.most / 4);
            let free = usize::try_from(files.free.saturating_sub(spare)).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(free.clamp(2, Semaphore::MAX_PERMITS)))
        });
        Self {
            sockets,
            observer,
            files,
            pseudonym: pseudonym().into(),
            policy: RwLock::new(policy),
            ports: Mutex::default(),
            checks: Semaphore::new(CHECKS),
        }
    }

    /// The newest policy.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&policy)
    }

    pub(crate) fn set_policy(&self, policy: Arc<Policy>) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Whether one of our listeners has this port.
    pub(crate) fn listens_on(&self, port: u16) -> bool {
        self.ports().contains_key(&port)
    }

    fn ports(&self) -> MutexGuard<'_, BTreeMap<u16, usize>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the password is that of this user of the client's listener. A few are looked at at one time, on threads that may block.
    pub(crate) async fn authenticate(
        &self,
        policy: &Arc<Policy>,
        client: &Client,
        user: &str,
        password: &[u8],
    ) -> bool {
        // The semaphore is never closed.
        let Ok(_turn) = self.checks.acquire().await else {
            return false;
        };
        let (policy, user, password) = (Arc::clone(policy), user.to_owned(), password.to_vec());
        let listener = Arc::clone(&client.listener);
        let check = move || policy.authenticate(&listener, &user, &password);
        match tokio::task::spawn_blocking(check).await {
            Ok(right) => right,
            Err(error) => {
                warn!(%error, "a password could not be checked");
                false
            }
        }
    }
}

/// A port on which we listen, as long as this is held.
pub(crate) struct Port(Arc<Shared>, u16);

impl Port {
    pub(crate) fn note(shared: &Arc<Shared>, port: u16) -> Self {
        *shared.ports().entry(port).or_default() += 1;
        Self(Arc::clone(shared), port)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let mut ports = self.0.ports();
        if let Some(count) = ports.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                ports.remove(&self.1);
            }
        }
    }
}

/// `manypath-` and a number that no other process has had: a request with it in `Via` has come back to us (RFC 9110 section 7.6.3).
fn pseudonym() -> String {
    use std::hash::{BuildHasher, RandomState};
    let number = RandomState::new().hash_one(std::process::id());
    format!("manypath-{number:016x}")
}
