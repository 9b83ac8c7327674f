//! A connection.

use super::handle::Handle;
use super::open::{Request, open};
use super::split::{self, OwnedReadHalf, OwnedWriteHalf};
use crate::host::Host;
use manypath_stack::api::meant;
use manypath_stack::ids::{ConnId, SubflowId};
use manypath_stack::{Command, ConnInfo, ConnOptions, Done};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long [`MpStream::close`] waits without an acknowledgement.
const STANDSTILL: Duration = Duration::from_secs(60);

/// A Multipath TCP connection, used like tokio's `TcpStream`.
///
/// Where the peer or a middlebox does not know Multipath TCP, it is a plain TCP connection; [`MpStream::info`] says which. Dropping
/// it closes it in order: what was written is still delivered, as long as the [`Host`] lives (and for a while after that:
/// [`Builder::linger`](crate::Builder::linger)). [`MpStream::close`] waits for it, and says whether it was.
///
/// ```
/// use manypath_io::{Host, MpListener, MpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// // Two stacks in one process, joined by a cable in memory.
/// let (client, server) = Host::memory_pair()?;
/// let listener = MpListener::bind(&server, "10.0.0.2:80".parse().unwrap())?;
/// let echo = tokio::spawn(async move {
///     let (mut stream, _peer) = listener.accept().await?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text).await?;
///     stream.write_all(text.to_uppercase().as_bytes()).await?;
///     stream.close().await // when this returns, the peer has it all
/// });
/// let mut stream = MpStream::connect(&client, "10.0.0.2:80".parse().unwrap()).await?;
/// stream.write_all(b"hello").await?;
/// stream.shutdown().await?; // half-close: we can still read
/// let mut answer = String::new();
/// stream.read_to_string(&mut answer).await?;
/// assert_eq!(answer, "HELLO");
/// stream.close().await?;
/// echo.await.unwrap()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MpStream {
    pub(super) handle: Arc<Handle>,
}

/// How to open a connection: what tokio calls a `TcpSocket`.
#[derive(Debug, Clone)]
pub struct Connect {
    host: Host,
    local: Option<IpAddr>,
    options: ConnOptions,
}

impl Connect {
    /// Starts with the host's options for connections.
    #[must_use]
    pub fn new(host: &Host) -> Self {
        Connect {
            host: host.clone(),
            local: None,
            options: host.conn_options().clone(),
        }
    }

    /// The first subflow leaves from this address.
    #[must_use]
    pub fn from(mut self, local: IpAddr) -> Self {
        self.local = Some(local.to_canonical());
        self
    }

    /// Replaces all options.
    #[must_use]
    pub fn options(mut self, options: ConnOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes some options.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ConnOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Opens the connection.
    ///
    /// # Errors
    /// `NetworkUnreachable` without a path of the right family, `HostUnreachable` for a loopback address, `AddrNotAvailable`
    /// without a free port, `ConnectionRefused`, `TimedOut`, `HostUnreachable` as with TCP.
    pub async fn connect(self, remote: SocketAddr) -> io::Result<MpStream> {
        self.connect_with(remote, &[])
            .await
            .map(|(stream, _)| stream)
    }

    /// Opens the connection and writes its first bytes before the SYN leaves, so that with
    /// [`fast_open`](ConnOptions::fast_open) and a cookie of the peer they go along with it. Says how many of them were
    /// taken; fewer than all only if they fill the send buffer.
    ///
    /// # Errors
    /// Those of [`Connect::connect`].
    pub async fn connect_with(
        self,
        remote: SocketAddr,
        early: &[u8],
    ) -> io::Result<(MpStream, usize)> {
        self.connect_any(&[remote], early).await
    }

    /// Opens the connection to the first of a peer's addresses that answers, which are given in the order of preference, by the first
    /// path that works: SYNs race over paths and addresses (RFC 8305). Paths come in the order of [`Host::paths`], backup paths
    /// last, and what did not work lately behind the others. The first SYN alone takes early bytes along, and one SYN/ACK alone is
    /// acknowledged, so the peer accepts one connection.
    ///
    /// # Errors
    /// Those of [`Connect::connect`]; `ConnectionRefused` if no attempt succeeded and at least one was refused.
    pub async fn connect_any(
        self,
        remotes: &[SocketAddr],
        early: &[u8],
    ) -> io::Result<(MpStream, usize)> {
        let Connect {
            host,
            local,
            options,
        } = self;
        let outside = |remote: &SocketAddr| !remote.ip().is_loopback();
        let outside: Vec<SocketAddr> = remotes.iter().copied().map(meant).filter(outside).collect();
        if outside.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::HostUnreachable,
                "the paths of our stack lead away from this host, and a loopback address is on it: reach it by an ordinary TCP socket",
            ));
        }
        let request = Request {
            host: &host,
            local,
            options: &options,
            remotes: &outside,
            early,
        };
        let (handle, taken) = open(request).await?;
        let stream = MpStream {
            handle: Arc::new(handle),
        };
        Ok((stream, taken))
    }
}

impl MpStream {
    /// Opens a connection with the host's options. See [`Connect`] for others.
    ///
    /// # Errors
    /// Those of [`Connect::connect`].
    pub async fn connect(host: &Host, remote: SocketAddr) -> io::Result<Self> {
        Connect::new(host).connect(remote).await
    }

    pub(super) fn from_handle(handle: Arc<Handle>) -> Self {
        MpStream { handle }
    }

    /// The peer of the first subflow, even after that is gone. // rfc8684:S2
    ///
    /// # Errors
    /// None today; the shape is tokio's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.handle.remote)
    }

    /// Our address of the first subflow, even after that is gone.
    ///
    /// # Errors
    /// None today; the shape is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.handle.local)
    }

    /// The stack's name for the connection.
    #[must_use]
    pub fn id(&self) -> ConnId {
        self.handle.id
    }

    /// The stack it belongs to.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.handle.host
    }

    /// Everything there is to know about the connection and its subflows.
    ///
    /// # Errors
    /// `NotConnected` when the stack has forgotten it.
    pub fn info(&self) -> io::Result<ConnInfo> {
        self.handle.info()
    }

    /// Sends small writes at once (true) or gathers them (false, Nagle's algorithm).
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.handle.set_options(|o| o.nodelay = nodelay)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    /// None today; the shape is tokio's.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.handle.options().nodelay)
    }

    /// The options in force.
    #[must_use]
    pub fn options(&self) -> ConnOptions {
        self.handle.options()
    }

    /// Changes what can be changed on a living connection: scheduler, congestion control, mechanisms, receive algorithm, buffers,
    /// no-delay, keepalive, user time-out, limits.
    ///
    /// ```no_run
    /// # fn f(stream: &manypath_io::MpStream) -> std::io::Result<()> {
    /// stream.set_options(|o| o.max_subflows = 4)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_options(&self, change: impl FnOnce(&mut ConnOptions)) -> io::Result<()> {
        self.handle.set_options(change)
    }

    /// Adds a subflow from a local address to an address of the peer.
    ///
    /// # Errors
    /// `NetworkUnreachable` if `local` is no path, `AddrNotAvailable` without a free port, `BrokenPipe` if the connection
    /// cannot have more subflows (it fell back to TCP, or is closing).
    pub fn add_subflow(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        backup: bool,
    ) -> io::Result<SubflowId> {
        self.handle.add_subflow(local, remote, backup)
    }

    /// Carries out any command that a controller of paths can give: a subflow from any part of a four-tuple, an address
    /// announced or withdrawn, other limits, another policy.
    ///
    /// ```no_run
    /// # fn f(stream: &manypath_io::MpStream) -> std::io::Result<()> {
    /// use manypath_stack::{Command, PathManager};
    /// stream.command(Command::SetPolicy(PathManager::Ndiffports(4)))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `NotConnected` when the connection, subflow or address is gone, `NetworkUnreachable` if our address is no path,
    /// `AddrNotAvailable` without a free port, `BrokenPipe` if the connection's state forbids it.
    pub fn command(&self, command: Command) -> io::Result<Done> {
        self.handle
            .act(|stack, now, id| stack.command(now, id, command))
    }

    /// Ends one subflow; the connection goes on.
    ///
    /// # Errors
    /// `NotConnected` when there is no such subflow.
    pub fn remove_subflow(&self, subflow: SubflowId) -> io::Result<()> {
        self.handle
            .act(|stack, now, id| stack.remove_subflow(now, id, subflow))
    }

    /// Lets both ends use a subflow only when nothing better is left, or no longer.
    ///
    /// # Errors
    /// `NotConnected` when there is no such subflow.
    pub fn set_backup(&self, subflow: SubflowId, backup: bool) -> io::Result<()> {
        self.handle
            .act(|stack, now, id| stack.set_backup(now, id, subflow, backup))
    }

    /// Ends the stream in order and waits until the peer has acknowledged everything that was written, so that a process may
    /// end after it. What the peer still says is read and dropped. Cancelling it is as dropping the stream.
    ///
    /// `shutdown` (of tokio's `AsyncWriteExt`) does not wait: its caller may still want to read.
    ///
    /// # Errors
    /// `TimedOut` after a minute in which the peer acknowledged nothing; what ended the connection before everything was
    /// acknowledged, such as `ConnectionReset`.
    pub async fn close(self) -> io::Result<()> {
        // A connection that is over has nothing to close; why it is over comes next.
        let _ = self.handle.shutdown_write();
        loop {
            let before = self.handle.acknowledged();
            let closing = poll_fn(|cx| self.handle.poll_close(cx));
            match tokio::time::timeout(STANDSTILL, closing).await {
                Ok(result) => return result,
                Err(_) if self.handle.acknowledged() > before => {}
                Err(_) => {
                    let text = "the peer acknowledges nothing of what was written last";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
            }
        }
    }

    /// Whether the peer's SYN waits for [`MpStream::answer_syn`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        let mut session = self.handle.host.shared().session();
        session.inner().stack.is_held(self.handle.id)
    }

    /// Answers the peer's SYN, where that waits for it ([`MpListener::hold_syns`](super::MpListener::hold_syns)); [`MpStream::abort`] refuses
    /// it. A peer that is `proven` to have the address that it says gets what is written before it acknowledges the answer; to
    /// another one, which may have said somebody else's, nothing is sent but the answer.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn answer_syn(&self, proven: bool) -> io::Result<()> {
        self.handle
            .act(|stack, now, id| stack.answer_syn(now, id, proven))
    }

    /// Waits until the peer has acknowledged the answer to its SYN, where that was held: then it has the address that it says. At once for
    /// every other connection.
    ///
    /// # Errors
    /// `ConnectionAborted` when the connection ended before.
    pub async fn proven(&self) -> io::Result<()> {
        poll_fn(|cx| {
            let mut session = self.handle.host.shared().session();
            let inner = session.inner();
            if !inner.stack.is_early(self.handle.id) {
                return Poll::Ready(Ok(()));
            }
            match inner.wakers.conn(self.handle.id) {
                Some(waiting) if waiting.closed.is_none() => {
                    waiting.open = Some(cx.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
            }
        })
        .await
    }

    /// Ends the connection at once; unsent data is lost and the peer is told.
    ///
    /// # Errors
    /// `NotConnected` when it is over already.
    pub fn abort(self) -> io::Result<()> {
        self.handle.abort()
    }

    /// Divides the stream into halves that can live in different tasks.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::split(self.handle)
    }
}

impl AsyncRead for MpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.handle.poll_read(cx, out)
    }
}

impl AsyncWrite for MpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Cx<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.handle.write(Some(cx.waker()), &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Cx<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.handle.write(Some(cx.waker()), parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        // A write is on its way when it returns; there is nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.handle.shutdown_write())
    }
}
