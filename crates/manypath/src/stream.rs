//! A connection.

use crate::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::{Congestion, Host, Info, PathEvents, PathManager, Scheduler, SubflowId, info, options};
use manypath_stack::{Command, ConnOptions};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection, used as tokio's `TcpStream` is.
///
/// Where the peer, or something on the way, does not know Multipath TCP, it is a plain TCP connection ([`MpStream::is_multipath`]).
///
/// # How it ends
/// Dropping it closes it: what was written is still delivered, as long as the process and its [`Host`] live. Before a program ends,
/// [`MpStream::close`] waits until the peer has everything, and says whether that came about. `shutdown` closes our direction only,
/// and does not wait.
#[derive(Debug)]
pub struct MpStream {
    inner: manypath_io::MpStream,
    host: Host,
}

impl MpStream {
    pub(crate) fn new(inner: manypath_io::MpStream, host: &Host) -> Self {
        let host = host.clone();
        MpStream { inner, host }
    }

    pub(crate) fn id(&self) -> manypath_stack::ids::ConnId {
        self.inner.id()
    }

    /// The host that it belongs to.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The peer's address of the first subflow, even after that is gone (RFC 6897 section 4.2).
    ///
    /// # Errors
    /// None; the shape is tokio's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// Our address of the first subflow, even after that is gone.
    ///
    /// # Errors
    /// None; the shape is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Whether Multipath TCP is in use, and not TCP.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over and forgotten.
    pub fn is_multipath(&self) -> io::Result<bool> {
        self.inner.is_multipath()
    }

    /// Everything there is to know about the connection and its subflows.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over and forgotten.
    pub fn info(&self) -> io::Result<Info> {
        Ok(info::of(self.inner.host(), self.inner.info()?))
    }

    /// What happens to the paths of this connection from now on.
    #[must_use]
    pub fn path_events(&self) -> PathEvents {
        PathEvents(self.inner.path_events())
    }

    /// Waits for bytes and copies the first of them without taking them; zero is the end of the stream.
    ///
    /// # Errors
    /// What ended the connection, such as `ConnectionReset`.
    pub async fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        self.inner.peek(out).await
    }

    /// The same for hand-written futures. One task at a time reads or peeks: the last one that asked is woken.
    pub fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_peek(cx, out)
    }

    /// Waits until a read would give bytes, the end of the stream, or an error. Any number of tasks may wait.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over and forgotten.
    pub async fn readable(&self) -> io::Result<()> {
        self.inner.readable().await
    }

    /// Waits until a write would take bytes, or fail. Any number of tasks may wait.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over and forgotten.
    pub async fn writable(&self) -> io::Result<()> {
        self.inner.writable().await
    }

    /// Reads what has arrived, without waiting; zero is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` while nothing has; what ended the connection.
    pub fn try_read(&self, out: &mut [u8]) -> io::Result<usize> {
        self.inner.try_read(out)
    }

    /// Writes what there is room for, without waiting.
    ///
    /// # Errors
    /// `WouldBlock` while there is none; `BrokenPipe` after `shutdown`; what ended the connection.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.try_write(bytes)
    }

    /// The same from several buffers, in order.
    ///
    /// # Errors
    /// Those of [`MpStream::try_write`].
    pub fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.inner.try_write_vectored(parts)
    }

    /// The error that ended the connection, once (`SO_ERROR`).
    ///
    /// # Errors
    /// None; the shape is tokio's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.inner.take_error())
    }

    /// What happens to unacknowledged bytes when the stream is dropped (`SO_LINGER`). `None`, the default: they are delivered. Zero:
    /// they are lost and the peer sees a reset. Otherwise the peer has so long, and then sees a reset. The drop never waits.
    ///
    /// # Errors
    /// None; the shape is tokio's.
    pub fn set_linger(&self, limit: Option<Duration>) -> io::Result<()> {
        self.inner.set_linger(limit);
        Ok(())
    }

    /// What [`MpStream::set_linger`] has set.
    ///
    /// # Errors
    /// None; the shape is tokio's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.inner.linger())
    }

    /// Sends small writes at once (true), or gathers them (false).
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.inner.set_nodelay(on)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    /// None; the shape is tokio's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.nodelay()
    }

    fn set(&self, change: impl FnOnce(&mut ConnOptions)) -> io::Result<()> {
        self.inner.set_options(change)
    }

    /// Has another scheduler choose the subflow of the next data.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_scheduler(&self, scheduler: Scheduler) -> io::Result<()> {
        self.set(|o| o.scheduler = scheduler)
    }

    /// Changes the congestion control of all subflows, which keep their windows.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_congestion(&self, congestion: Congestion) -> io::Result<()> {
        self.set(|o| o.congestion = congestion)
    }

    /// Has another policy decide which subflows there are. Those that exist stay.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over, `BrokenPipe` over plain TCP.
    pub fn set_path_manager(&self, manager: PathManager) -> io::Result<()> {
        self.inner
            .command(Command::SetPolicy(manager.0))
            .map(|_done| ())
    }

    /// Asks a peer that was silent for so long whether it is there; `None`: never.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_keepalive(&self, idle: Option<Duration>) -> io::Result<()> {
        self.set(|o| o.keepalive = idle.map(options::keepalive))
    }

    /// Gives the connection up when data stays unacknowledged for so long (RFC 5482).
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_user_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set(|o| o.user_timeout = limit.map(Into::into))
    }

    /// The most subflows at one time from now on. Those that exist stay.
    ///
    /// # Errors
    /// `NotConnected` when the connection is over.
    pub fn set_max_subflows(&self, count: u16) -> io::Result<()> {
        self.set(|o| o.max_subflows = count)
    }

    /// Makes a subflow from an address of ours to an address of the peer; with `backup`, both ends are to use it only when nothing
    /// better is left.
    ///
    /// # Errors
    /// `NetworkUnreachable` if `local` is no path, `AddrNotAvailable` without a free port, `BrokenPipe` if the connection cannot have
    /// more subflows, or not yet: after connecting, the peer has to have acknowledged something first (RFC 8684 section 3.1), so exchange a
    /// byte before.
    pub fn add_subflow(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        backup: bool,
    ) -> io::Result<SubflowId> {
        self.inner.add_subflow(local, remote, backup)
    }

    /// Ends one subflow; the connection goes on.
    ///
    /// # Errors
    /// `NotConnected` when there is no such subflow.
    pub fn remove_subflow(&self, subflow: SubflowId) -> io::Result<()> {
        self.inner.remove_subflow(subflow)
    }

    /// Has both ends use a subflow only when nothing better is left, or no longer.
    ///
    /// # Errors
    /// `NotConnected` when there is no such subflow.
    pub fn set_backup(&self, subflow: SubflowId, backup: bool) -> io::Result<()> {
        self.inner.set_backup(subflow, backup)
    }

    /// Uses more of our addresses (`TCP_MULTIPATH_ADD` of RFC 6897): the side that connected joins from each, the other side
    /// announces them.
    ///
    /// # Errors
    /// Those of [`MpStream::add_subflow`], at the first address that cannot be used; those before it are in use.
    pub fn add_addresses(&self, local: &[IpAddr]) -> io::Result<()> {
        self.inner.add_addresses(local)
    }

    /// Uses some of our addresses no more (`TCP_MULTIPATH_REMOVE`).
    ///
    /// # Errors
    /// `BrokenPipe` if no subflow would be left, `NotConnected` when the connection is over.
    pub fn remove_addresses(&self, local: &[IpAddr]) -> io::Result<()> {
        self.inner.remove_addresses(local)
    }

    /// Ends the stream in order and waits until the peer has acknowledged everything that was written. What the peer still says is
    /// dropped and answered with a reset, as by TCP: read to the end first where it must not see one. Given up (in `select!`), it is as dropping the stream.
    ///
    /// # Errors
    /// `TimedOut` after a minute in which the peer acknowledged nothing; what ended the connection before everything was
    /// acknowledged, such as `ConnectionReset`.
    pub async fn close(self) -> io::Result<()> {
        self.inner.close().await
    }

    /// Ends the connection at once: unsent data is lost, and the peer sees a reset.
    ///
    /// # Errors
    /// `NotConnected` when it is over already.
    pub fn abort(self) -> io::Result<()> {
        self.inner.abort()
    }

    /// Lends the two directions out, to be used at the same time in one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        let stream: &Self = self;
        (ReadHalf(stream), WriteHalf(stream))
    }

    /// Divides the stream into halves that can live in different tasks.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        let read = OwnedReadHalf {
            stream: Arc::clone(&stream),
        };
        (read, OwnedWriteHalf::new(stream))
    }

    pub(crate) fn read_shared(
        &self,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner.poll_read_shared(cx, out)
    }

    pub(crate) fn write_shared(
        &self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_write_shared(cx, parts)
    }

    pub(crate) fn shutdown_shared(&self) -> io::Result<()> {
        self.inner.shutdown_write()
    }
}

impl AsyncRead for MpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.read_shared(cx, out)
    }
}

impl AsyncWrite for MpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write_shared(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_shared(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A write is on its way when it returns; there is nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_shared())
    }
}
