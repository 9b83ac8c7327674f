//! A connection to a server, which carries one exchange after the other.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};

use super::halves::Halves;
use crate::buffered::Buffered;
use crate::carried::PathAccount;
use crate::maybe_tls::MaybeTls;
use crate::request::{Request, Target};
use crate::serve::shared::Shared;
use crate::target::connect::permits_again;
use crate::target::tls::Trust;

/// A connection to a server, for the next requests to the same one.
pub(super) struct Server {
    target: Target,
    /// By TLS, with a certificate that was believed so.
    tls: Option<Trust>,
    /// Whose requests it has carried: a server may know a user by its connection (NTLM, client certificates).
    user: Option<Arc<str>>,
    pub(super) reached: Option<SocketAddr>,
    pub(super) account: Option<PathAccount>,
    pub(super) halves: Halves<MaybeTls>,
}

impl Server {
    pub(super) fn new(asked: &Request, tls: Option<Trust>, stream: MaybeTls) -> Self {
        Self {
            target: asked.target.clone(),
            tls,
            user: asked.client.user.clone(),
            reached: stream.peer_addr().ok(),
            account: stream.account(),
            halves: Halves::new(Buffered::new(stream)),
        }
    }

    /// Whether it leads where a request wants to go, for the same user, would be opened now as it was then, and is still there.
    pub(super) fn serves(&mut self, shared: &Shared, asked: &Request, tls: Option<&Trust>) -> bool {
        let same_trust = match (&self.tls, tls) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let same = same_trust && self.target == asked.target && self.user == asked.client.user;
        let permitted = |addr| permits_again(shared, asked, addr);
        same && self.reached.is_some_and(permitted) && self.is_silent()
    }

    /// Whatever there is to read, an end, an error or bytes that nobody asked for, it is of no more use.
    fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        let mut room = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut self.halves.read).poll_read(&mut cx, &mut room);
        matches!(read, Poll::Pending)
    }
}
