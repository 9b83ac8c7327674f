//! A listener whose address the host does not have yet: it waits for that, and is an ordinary one then.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use crate::endpoint::{Endpoint, Proto};
use crate::sockets::Sockets;
use crate::stream::Listener;

type Opening = Pin<Box<dyn Future<Output = Result<Listener, Error>> + Send>>;

/// A listener that is still to be opened.
pub struct Later {
    sockets: Sockets,
    on: Endpoint,
    backend: Option<Endpoint>,
    at: SocketAddr,
    opening: Option<Opening>,
    /// See [`Listener::hold_syns`].
    holds_syns: AtomicBool,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Later").field(&self.on).finish()
    }
}

impl Later {
    /// One at an address, not at a name: it says itself where it will be. A port that is to be found is not known before.
    pub(crate) fn new(
        sockets: &Sockets,
        on: &Endpoint,
        backend: Option<&Endpoint>,
    ) -> Option<Self> {
        let addr = on.at.host().parse().ok()?;
        Some(Self {
            sockets: sockets.clone(),
            on: on.clone(),
            backend: backend.cloned(),
            at: SocketAddr::new(addr, on.at.port()),
            opening: None,
            holds_syns: AtomicBool::new(false),
        })
    }

    /// Where it will listen.
    pub(crate) fn address(&self) -> SocketAddr {
        self.at
    }

    /// Whose TCP it will be.
    pub(crate) fn proto(&self) -> Proto {
        self.on.proto
    }

    /// Whether it will hold SYNs.
    pub(crate) fn hold_syns(&self, on: bool) {
        self.holds_syns.store(on, Ordering::Relaxed);
    }

    /// Waits until the address is there. Nothing is lost if it is given up; after an error it begins anew.
    ///
    /// # Errors
    /// The address is in use, for example.
    pub(crate) async fn open(&mut self) -> io::Result<Listener> {
        let opening = self.opening.get_or_insert_with(|| {
            let (sockets, on) = (self.sockets.clone(), self.on.clone());
            let backend = self.backend.clone();
            Box::pin(async move { sockets.listen_in_time(&on, backend.as_ref()).await })
        });
        let opened = opening.await;
        self.opening = None;
        let listener = opened.map_err(|error| error.source)?;
        listener.hold_syns(self.holds_syns.load(Ordering::Relaxed));
        Ok(listener)
    }
}
