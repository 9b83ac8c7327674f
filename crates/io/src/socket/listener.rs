//! Accepting connections.

use super::error;
use super::handle::Handle;
use super::stream::MpStream;
use crate::host::Host;
use manypath_stack::ids::ListenerId;
use manypath_stack::{ConnOptions, ListenOptions};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};

/// A port on which connections are accepted, used like tokio's `TcpListener`. Peers without Multipath TCP get plain TCP. Programs of
/// this host reach it by a [`LocalListener`](crate::LocalListener).
#[derive(Debug)]
pub struct MpListener {
    host: Host,
    id: ListenerId,
    addr: SocketAddr,
    options: ConnOptions,
}

impl MpListener {
    /// Listens on an address and port with the host's options; an unspecified address means every path. Where the
    /// stack shares an address with the host, the port is taken away from the host. Port 0 means any that is free, which
    /// [`MpListener::local_addr`] names.
    ///
    /// # Errors
    /// `AddrNotAvailable` when no path has that address, `AddrInUse` when stack or host have a listener there; where
    /// addresses are shared, what the change of the firewall reports.
    pub fn bind(host: &Host, addr: SocketAddr) -> io::Result<Self> {
        Self::bind_with(host, addr, host.backlog(), host.accept_options().clone())
    }

    /// Listens with options of its own, and room for `backlog` connections that are not accepted yet.
    ///
    /// # Errors
    /// Those of [`MpListener::bind`].
    pub fn bind_with(
        host: &Host,
        addr: SocketAddr,
        backlog: usize,
        options: ConnOptions,
    ) -> io::Result<Self> {
        let ip = addr.ip().to_canonical();
        if !ip.is_unspecified() && !host.has_address(ip) {
            let text = format!("no path has the address {ip}");
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
        }
        let listen = |addr| {
            host.claim_port(addr)?;
            let wanted = ListenOptions {
                addr,
                backlog,
                conn: options.clone(),
            };
            let mut session = host.shared().session();
            let id = session.inner().stack.listen(wanted);
            id.map_err(error::of_call)
        };
        let (id, addr) = match addr.port() {
            0 => any_port(|port| {
                let addr = SocketAddr::new(addr.ip(), port);
                Ok((listen(addr)?, addr))
            })?,
            _ => (listen(addr)?, addr),
        };
        Ok(MpListener {
            host: host.clone(),
            id,
            addr,
            options,
        })
    }

    /// Whether from now on a SYN with payload is not answered before [`MpStream::answer_syn`]: its connection is accepted at once, and the first
    /// bytes can be read. Of all listeners of a stack so many are held as
    /// [`StackConfig::max_early`](manypath_stack::StackConfig::max_early) says; further ones are answered at once, without their payload.
    ///
    /// # Errors
    /// None while the listener exists.
    pub fn hold_syns(&self, on: bool) -> io::Result<()> {
        let mut session = self.host.shared().session();
        let held = session.inner().stack.hold_syns(self.id, on);
        held.map_err(error::of_call)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// None today; the shape is tokio's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// `ConnectionAborted` when the connection ended before it could be handed over; go on accepting.
    pub async fn accept(&self) -> io::Result<(MpStream, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// The same for hand-written futures.
    pub fn poll_accept(&self, cx: &mut Cx<'_>) -> Poll<io::Result<(MpStream, SocketAddr)>> {
        let id = {
            let mut session = self.host.shared().session();
            let inner = session.inner();
            match inner.stack.accept(self.id) {
                Some(id) => {
                    inner.wakers.follow(id, true);
                    id
                }
                None => {
                    inner.wakers.wait_accept(self.id, cx.waker());
                    return Poll::Pending;
                }
            }
        };
        let ended = |e: io::Error| io::Error::new(io::ErrorKind::ConnectionAborted, e);
        let handle = Handle::new(self.host.clone(), id, self.options.clone()).map_err(ended)?;
        let remote = handle.remote;
        Poll::Ready(Ok((MpStream::from_handle(Arc::new(handle)), remote)))
    }
}

/// Tries dynamic ports (RFC 6335 section 6) until one is free; the highest are those that connections leave from.
fn any_port<T>(mut listen: impl FnMut(u16) -> io::Result<T>) -> io::Result<T> {
    const TRIES: usize = 100;
    const FIRST: u16 = 49_152;
    const COUNT: u16 = 15_000;
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..TRIES {
        let mut random = [0; 2];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        match listen(FIRST + u16::from_ne_bytes(random) % COUNT) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            result => return result,
        }
    }
    Err(last)
}

impl Drop for MpListener {
    fn drop(&mut self) {
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        drop(inner.wakers.forget_listener(self.id));
        let _ = inner.stack.close_listener(now, self.id);
        session.pump();
    }
}
