//! Limits of what is sent, by path and by connection.

use crate::{Host, MpStream};
use manypath_stack::{IfaceId, LimitState, Limited, RateLimit};
use std::io;
use std::time::Duration;

/// Packets are taken to be no longer than this for the usual burst, bytes.
const MTU: u16 = 1500;

/// A limit of what is sent: never more than the rate times the time and one burst, in bytes of IP packets.
///
/// A path that has to wait is one without room: data goes by another path at once, nothing queues and nothing is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit(RateLimit);

impl Limit {
    /// So many bits a second; with zero nothing leaves but acknowledgements and other packets of at most 120 bytes. After a pause 20 ms
    /// of it may leave at once, three packets at least.
    #[must_use]
    pub fn bits_per_second(bits: u64) -> Self {
        Limit(RateLimit::new(bits, MTU))
    }

    /// So many bytes may leave at once after a pause. Larger packets leave when that much is there.
    #[must_use]
    pub fn burst(self, bytes: u64) -> Self {
        let limit = RateLimit {
            burst: bytes.max(1),
            ..self.0
        };
        Limit(limit)
    }
}

/// A limit in force, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitInfo {
    /// The limit.
    pub limit: Limit,
    /// Bytes that may leave now; below zero after acknowledgements, which do not wait.
    pub tokens: i64,
    /// Bytes that have left since it was set.
    pub sent: u64,
    /// For how long something has waited for it.
    pub held: Duration,
    /// Connections that wait for it now.
    pub waiting: usize,
    /// Bytes of packets that went by other paths while connections waited for it; of a path alone.
    pub elsewhere: u64,
}

impl From<LimitState> for LimitInfo {
    fn from(state: LimitState) -> Self {
        LimitInfo {
            limit: Limit(state.limit),
            tokens: state.tokens,
            sent: state.sent,
            held: Duration::from_micros(state.held.time.as_micros()),
            waiting: state.waiting,
            elsewhere: state.held.elsewhere,
        }
    }
}

impl Host {
    fn interface(&self, name: &str) -> io::Result<IfaceId> {
        let stalled = self.inner.stalled().into_iter().map(|(path, _)| path);
        let mut paths = self.inner.paths().into_iter().chain(stalled);
        let named = |iface| self.inner.iface_name(iface).is_some_and(|is| is == name);
        let found = paths.find(|path| named(path.iface));
        found.map(|path| path.iface).ok_or_else(|| {
            let text = format!("no path leaves by an interface {name}");
            io::Error::new(io::ErrorKind::NotFound, text)
        })
    }

    /// Limits what leaves by an interface, all connections together, from the next packet on; `None`: not any more. Behind a TUN device all
    /// paths share one interface.
    ///
    /// # Errors
    /// `NotFound` where no path leaves by such an interface.
    pub fn limit_path(&self, interface: &str, limit: Option<Limit>) -> io::Result<()> {
        let what = Limited::Path(self.interface(interface)?);
        let limit = limit.map(|Limit(limit)| limit);
        self.inner.limit(what, limit).map_err(io::Error::other)
    }

    /// The limit of an interface, and what it does; `None` where it has none.
    ///
    /// # Errors
    /// `NotFound` where no path leaves by such an interface.
    pub fn path_limit(&self, interface: &str) -> io::Result<Option<LimitInfo>> {
        let what = Limited::Path(self.interface(interface)?);
        Ok(self.inner.limit_of(what).map(LimitInfo::from))
    }
}

impl MpStream {
    fn limited(&self) -> Limited {
        Limited::Connection(self.id())
    }

    /// Limits what this connection sends, over all of its paths together, from the next packet on; `None`: not any more.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_limit(&self, limit: Option<Limit>) -> io::Result<()> {
        let limit = limit.map(|Limit(limit)| limit);
        let set = self.host().inner.limit(self.limited(), limit);
        set.map_err(|_| io::ErrorKind::NotConnected.into())
    }

    /// The limit of this connection, and what it does; `None` where it has none.
    #[must_use]
    pub fn limit(&self) -> Option<LimitInfo> {
        self.host()
            .inner
            .limit_of(self.limited())
            .map(LimitInfo::from)
    }
}
