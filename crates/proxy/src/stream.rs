//! One type for the streams and listeners of every implementation.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use manypath_io::sys::queue;
use manypath_io::{LocalListener, MpListener, MpStream};
use manypath_stack::{CloseCause, ProtocolLevel};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use crate::carried::{CarriedBy, PathAccount};
use crate::endpoint::Proto;
use crate::host;
use crate::later::Later;
use crate::limits::{Bridle, Paced};

/// A connected stream.
#[derive(Debug)]
pub enum Stream {
    /// Of the host's kernel, TCP or Multipath TCP.
    Host(HostStream),
    /// Of our stack.
    Ours(MpStream),
}

/// A stream of the host, and the pace that it keeps.
#[derive(Debug)]
pub struct HostStream {
    tcp: TcpStream,
    paced: Paced,
}

impl std::ops::Deref for HostStream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.tcp
    }
}

impl From<TcpStream> for Stream {
    fn from(tcp: TcpStream) -> Self {
        let paced = Paced::default();
        Self::Host(HostStream { tcp, paced })
    }
}

impl Stream {
    /// The peer's address.
    ///
    /// # Errors
    /// The stream is broken already.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Host(stream) => stream.peer_addr(),
            Self::Ours(stream) => stream.peer_addr(),
        }
    }

    /// Our own address.
    ///
    /// # Errors
    /// The stream is broken already.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Host(stream) => stream.local_addr(),
            Self::Ours(stream) => stream.local_addr(),
        }
    }

    /// Puts it into classes while others write to it.
    pub(crate) fn bridle(&self) -> Bridle {
        match self {
            Self::Host(stream) => Bridle::Host(stream.paced.rein.clone()),
            Self::Ours(stream) => Bridle::Ours(stream.host().clone(), stream.id()),
        }
    }

    /// A look at what each path of our stack has carried, which works while the stream itself is lent out; `None` for a stream of
    /// the host.
    #[must_use]
    pub fn account(&self) -> Option<PathAccount> {
        match self {
            Self::Host(_) => None,
            Self::Ours(stream) => Some(PathAccount::of(stream)),
        }
    }

    /// What each path of our stack has carried so far; empty for a stream of the host.
    #[must_use]
    pub fn paths(&self) -> Vec<CarriedBy> {
        let account = self.account();
        account.map_or(Vec::new(), |account| account.paths())
    }

    /// Sends what is written at once instead of waiting for more.
    ///
    /// # Errors
    /// The stream is broken already.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Host(stream) => stream.set_nodelay(on),
            Self::Ours(stream) => stream.set_nodelay(on),
        }
    }

    /// Whether the peer is a program of this host: then all clients of the host have its address.
    #[must_use]
    pub fn is_from_this_host(&self) -> bool {
        match self {
            Self::Host(stream) => stream
                .local_addr()
                .and_then(|local| Ok(local.ip() == stream.peer_addr()?.ip()))
                .unwrap_or(false),
            Self::Ours(_) => false,
        }
    }

    /// Asks a peer that has been silent for so long whether it is still there, and ends the connection when it does not
    /// answer (RFC 9293 section 3.8.4): nine probes, an eighth of that time apart, 1 s at least and 75 s at most.
    ///
    /// # Errors
    /// The stream is broken already.
    pub fn set_keepalive(&self, idle: Duration) -> io::Result<()> {
        match self {
            Self::Host(stream) => host::set_keepalive(stream, idle),
            Self::Ours(stream) => stream.set_options(|options| {
                options.keepalive = Some(host::keepalive(idle));
            }),
        }
    }

    /// Whether the peer's SYN waits for [`Stream::answer_syn`]; never one of the host's.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Ours(stream) => stream.is_held(),
        }
    }

    /// Answers the peer's SYN where that waits for it; see [`MpStream::answer_syn`].
    pub fn answer_syn(&self, proven: bool) {
        if let Self::Ours(stream) = self {
            // A connection that is over needs no answer.
            let _ = stream.answer_syn(proven);
        }
    }

    /// Where the peer's connection was going before the firewall turned it to us; `None` where it did not, or for a stream of our stack.
    #[must_use]
    pub fn original_destination(&self) -> Option<SocketAddr> {
        match self {
            Self::Host(stream) => host::original_destination(stream),
            Self::Ours(_) => None,
        }
    }

    /// Waits until the peer has acknowledged our SYN; see [`MpStream::proven`].
    ///
    /// # Errors
    /// The connection ended before.
    pub async fn proven(&self) -> io::Result<()> {
        match self {
            Self::Host(_) => Ok(()),
            Self::Ours(stream) => stream.proven().await,
        }
    }

    /// Whether the peer speaks Multipath TCP, as far as that is known: for streams of our stack.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Ours(stream) => {
                let info = stream.host().conn_info(stream.id());
                info.is_some_and(|info| info.level == ProtocolLevel::Multipath)
            }
        }
    }

    /// A look at what this stream has still on its way, which works while the stream itself is lent out.
    #[must_use]
    pub fn outgoing(&self) -> Outgoing {
        Outgoing(match self {
            Self::Host(stream) => {
                // That it cannot be had, for want of descriptors, is no reason to fail.
                let socket = stream.as_fd().try_clone_to_owned().ok();
                Box::new(move || queue::unacknowledged(socket.as_ref()?.as_fd()).ok())
            }
            Self::Ours(stream) => {
                let (host, id) = (stream.host().clone(), stream.id());
                Box::new(move || Some(host.conn_info(id)?.send_queue.into()))
            }
        })
    }

    /// Bytes written and not acknowledged by the peer; `None` where that is not to be known.
    #[must_use]
    pub fn unacknowledged(&self) -> Option<u64> {
        match self {
            Self::Host(stream) => queue::unacknowledged(stream.as_fd()).ok(),
            Self::Ours(stream) => {
                let info = stream.host().conn_info(stream.id())?;
                Some(info.send_queue.into())
            }
        }
    }

    /// Whether the stream is broken, by a reset for example, as far as that is known without reading or writing. No error is
    /// taken from the socket.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        match self {
            Self::Host(stream) => {
                let ready = pin!(stream.ready(Interest::ERROR));
                let mut cx = Context::from_waker(Waker::noop());
                matches!(ready.poll(&mut cx), Poll::Ready(Ok(ready)) if ready.is_error())
            }
            Self::Ours(stream) => {
                let info = stream.host().conn_info(stream.id());
                let closed = info.map(|info| info.closed);
                !matches!(closed, Some(None | Some(CloseCause::Finished)))
            }
        }
    }

    /// Whether an end of file that is read after a write has failed like this was sent by the peer.
    ///
    /// The host's kernel reports a reset once, and to a write if that comes first; then it reads as ended. A broken pipe says
    /// that the peer's FIN had come before its reset. Our stack tells a reset to every call.
    #[must_use]
    pub fn end_is_certain_after(&self, error: &io::Error) -> bool {
        match self {
            Self::Host(_) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Ours(_) => true,
        }
    }

    /// Whether the host ends its stream by a reset when nobody holds it any more, whatever became of the process. Streams of our
    /// stack end with it.
    pub fn reset_on_close(&self, on: bool) {
        match self {
            Self::Host(stream) => host::reset_on_close(stream, on),
            Self::Ours(_) => {}
        }
    }

    /// Ends the stream so that the peer sees an error and not a regular end.
    pub fn abort(self) {
        match self {
            Self::Host(stream) => host::reset_on_close(&stream, true),
            Self::Ours(stream) => {
                // A connection that is over already needs no reset.
                let _ = stream.abort();
            }
        }
    }
}

/// What a relay needs of a stream.
pub(crate) trait Leg: AsyncRead + AsyncWrite + Unpin {
    /// See [`Stream::unacknowledged`].
    fn unacknowledged(&self) -> Option<u64>;
    /// See [`Stream::is_broken`].
    fn is_broken(&self) -> bool;
    /// See [`Stream::end_is_certain_after`].
    fn end_is_certain_after(&self, error: &io::Error) -> bool;
    /// See [`Stream::reset_on_close`].
    fn reset_on_close(&self, on: bool);
    /// See [`Stream::abort`].
    fn abort(self);
    /// See [`Stream::paths`].
    fn paths(&self) -> Vec<CarriedBy> {
        Vec::new()
    }
}

impl Leg for Stream {
    fn unacknowledged(&self) -> Option<u64> {
        self.unacknowledged()
    }

    fn is_broken(&self) -> bool {
        self.is_broken()
    }

    fn end_is_certain_after(&self, error: &io::Error) -> bool {
        self.end_is_certain_after(error)
    }

    fn reset_on_close(&self, on: bool) {
        self.reset_on_close(on);
    }

    fn abort(self) {
        self.abort();
    }

    fn paths(&self) -> Vec<CarriedBy> {
        self.paths()
    }
}

/// What a stream has on its way. It keeps a descriptor of the host's open.
pub struct Outgoing(Box<dyn Fn() -> Option<u64> + Send + Sync>);

impl Outgoing {
    /// Bytes written and not acknowledged by the peer; `None` where that is not to be known.
    #[must_use]
    pub fn waiting(&self) -> Option<u64> {
        (self.0)()
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Outgoing").field(&self.waiting()).finish()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Host(stream) => Pin::new(&mut stream.tcp).poll_read(cx, buf),
            Self::Ours(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Host(HostStream { tcp, paced }) => {
                let most = ready!(paced.poll_grant(cx, buf.len()));
                let written = ready!(Pin::new(tcp).poll_write(cx, &buf[..most]))?;
                paced.wrote(written);
                Poll::Ready(Ok(written))
            }
            Self::Ours(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Host(stream) => Pin::new(&mut stream.tcp).poll_flush(cx),
            Self::Ours(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Host(stream) => Pin::new(&mut stream.tcp).poll_shutdown(cx),
            Self::Ours(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Where streams come in.
#[derive(Debug)]
pub enum Listener {
    /// Of the host's kernel.
    Host(TcpListener),
    /// Of our stack.
    Ours {
        /// For what comes by a path.
        paths: Box<MpListener>,
        /// For the host's own programs, and what comes by interfaces that are no paths.
        local: Option<Box<LocalListener>>,
    },
    /// One whose address is not there yet.
    Later(Box<Later>),
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// What the implementation reports: a connection that died in the queue, or no descriptors left.
    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Host(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::from(stream), peer))
            }
            Self::Ours { paths, local: None } => {
                let (stream, peer) = paths.accept().await?;
                Ok((Stream::Ours(stream), peer))
            }
            Self::Ours {
                paths,
                local: Some(local),
            } => tokio::select! {
                accepted = paths.accept() => accepted.map(|(s, peer)| (Stream::Ours(s), peer)),
                accepted = local.accept() => accepted.map(|(s, peer)| (Stream::from(s), peer)),
            },
            Self::Later(later) => {
                *self = later.open().await?;
                Box::pin(self.accept()).await
            }
        }
    }

    /// Whether it is one of our stack.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Ours { .. } => true,
            Self::Later(later) => later.proto() == Proto::Mptcp,
        }
    }

    /// Takes what the firewall's `tproxy` hands over. Without the privilege for it `redirect` works all the same, which the log says.
    pub fn take_any_destination(&self) {
        if let Self::Host(listener) = self
            && let Err(error) = host::take_any_destination(listener)
        {
            tracing::warn!(%error, "the firewall's `tproxy` does not reach us without CAP_NET_ADMIN; `redirect` does");
        }
    }

    /// Whether SYNs that bring payload wait for [`Stream::answer_syn`]: those of our stack can, where they come by a path.
    pub fn hold_syns(&self, on: bool) {
        match self {
            Self::Host(_) => {}
            Self::Ours { paths, .. } => {
                // It exists as long as this does.
                let _ = paths.hold_syns(on);
            }
            Self::Later(later) => later.hold_syns(on),
        }
    }

    /// Whether each of its connections takes a descriptor of this process.
    #[must_use]
    pub fn takes_files(&self) -> bool {
        !self.is_ours()
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// The listener is broken already.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Host(listener) => listener.local_addr(),
            Self::Ours { paths, .. } => paths.local_addr(),
            Self::Later(later) => Ok(later.address()),
        }
    }
}
