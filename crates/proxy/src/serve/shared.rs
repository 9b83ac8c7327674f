//! What all listeners of one process share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::opening::convert::Converter;
use crate::places::{Place, Places, Total};
use crate::request::Client;
use crate::serve::passwords::{Checked, Checks};
use crate::serve::{Observer, Policy, Refusal};
use crate::sockets::Sockets;
use crate::stream::Listener;
use crate::target::tls::Trust;

/// Descriptors that connections leave to everything else (the resolver, paths that come, the control socket): a quarter of the
/// limit of open files, at most so many.
const FILES_LEFT: u64 = 64;

/// Kibibytes of all large heads of requests; each takes what one may have.
const LARGE_HEADS: usize = 64 * 1024;

/// Targets that are being reached at one time, their names looked up included, and those of one client.
const MOST_OPENING: usize = 2048;
const MOST_OPENING_PER_CLIENT: usize = 512;

/// How long one more waits for a place.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What all listeners of one process share.
pub(crate) struct Shared {
    pub(crate) sockets: Sockets,
    pub(crate) observer: Arc<dyn Observer>,
    /// Descriptors that connections may take.
    pub(crate) files: Option<Arc<Semaphore>>,
    /// Our name in `Via`: no other process has it.
    pub(crate) pseudonym: Arc<str>,
    /// What the Convert Protocol keeps.
    pub(crate) converter: Converter,
    policy: RwLock<Arc<Policy>>,
    /// Whose certificates are believed.
    trust: RwLock<Trust>,
    /// Where we listen, and how often.
    ports: Mutex<BTreeMap<Listened, usize>>,
    checks: Arc<Checks>,
    /// Targets that are being reached.
    opening: Arc<Places>,
    /// Connections of all listeners.
    pub(crate) total: Arc<Total>,
    /// Kibibytes of requests' heads that are large.
    heads: Arc<Semaphore>,
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
            converter: Converter::default(),
            policy: RwLock::new(policy),
            trust: RwLock::default(),
            ports: Mutex::default(),
            checks: Arc::default(),
            heads: Arc::new(Semaphore::new(LARGE_HEADS)),
            total: Arc::new(Total::new(usize::MAX)),
            opening: Places::new(MOST_OPENING, MOST_OPENING_PER_CLIENT),
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

    /// Whose certificates are believed.
    pub(crate) fn trust(&self) -> Trust {
        let trust = self.trust.read();
        trust.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_trust(&self, trust: Trust) {
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) = trust;
    }

    /// Room for a head that may become as large as this, if there is any.
    pub(crate) fn takes_head(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).ok()?;
        let heads = Arc::clone(&self.heads);
        heads.try_acquire_many_owned(kibibytes).ok()
    }

    /// A place among the targets that are being reached, for one that a client has named. It is waited for, in the order in which they
    /// came: many clients that ask at the same moment are served one after the other.
    pub(crate) async fn opens(&self, client: &Client) -> Option<Place> {
        let reserved = tokio::time::timeout(LONGEST_WAIT, self.opening.reserve());
        self.opening
            .give(reserved.await.ok()??, Some(client.address))
    }

    /// The same, if there is one now.
    pub(crate) fn opens_now(&self, client: &Client) -> Option<Place> {
        let reserved = self.opening.try_reserve()?;
        self.opening.give(reserved, Some(client.address))
    }

    /// Whether one of our listeners has this port.
    pub(crate) fn listens_on(&self, port: u16) -> bool {
        self.ports()
            .keys()
            .any(|listened| listened.at.port() == port)
    }

    /// Whether one of our listeners is reached at this address, which is `of_this_host` or not.
    pub(crate) fn listens_at(&self, addr: SocketAddr, of_this_host: bool) -> bool {
        let ip = addr.ip().to_canonical();
        let takes = |listened: &Listened| {
            let on = listened.at.ip().to_canonical();
            let everywhere = on.is_unspecified() || ip.is_unspecified();
            on == ip || everywhere && of_this_host && !(listened.by_our_stack && ip.is_loopback())
        };
        let ports = self.ports();
        let mut same_port = ports
            .keys()
            .filter(|listened| listened.at.port() == addr.port());
        same_port.any(takes)
    }

    fn ports(&self) -> MutexGuard<'_, BTreeMap<Listened, usize>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the password is that of this user of the client's listener; why not, otherwise.
    pub(crate) async fn authenticate(
        &self,
        policy: &Arc<Policy>,
        client: &Client,
        user: &str,
        password: &[u8],
    ) -> Result<(), Refusal> {
        let known = || policy.knows(&client.listener, user, password);
        let listener = Arc::clone(&client.listener);
        let owned = (Arc::clone(policy), user.to_owned(), password.to_vec());
        let check = move || {
            let (policy, user, password) = owned;
            policy.authenticate(&listener, &user, &password)
        };
        match self.checks.ask(client.address.ip(), known, check).await {
            Checked::Right => Ok(()),
            Checked::Wrong => Err(Refusal::UserWrong),
            Checked::TooMany => Err(Refusal::UserBusy),
        }
    }
}

/// A place where we listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listened {
    at: SocketAddr,
    /// No loopback address leads to our stack: a server on the host's own TCP may have the port there.
    by_our_stack: bool,
}

/// Where we listen, as long as this is held.
pub(crate) struct Port(Arc<Shared>, Listened);

impl Port {
    pub(crate) fn note(shared: &Arc<Shared>, at: SocketAddr, listener: &Listener) -> Self {
        let by_our_stack = listener.is_ours();
        let listened = Listened { at, by_our_stack };
        *shared.ports().entry(listened).or_default() += 1;
        Self(Arc::clone(shared), listened)
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
