//! Sockets of the kernel, made inside a namespace and used from anywhere.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::time::Duration;

use manypath_lab::netns::NetNs;
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, Socket, Type};

/// What the kernel speaks on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// Multipath TCP, where the other side does too.
    Mptcp,
    /// TCP and nothing else.
    Tcp,
}

/// A socket that hangs ends the test instead of holding it for ever.
const STUCK: Duration = Duration::from_secs(60);

fn socket(addr: SocketAddr, speaks: Speaks) -> io::Result<Socket> {
    let protocol = match speaks {
        Speaks::Mptcp => Protocol::MPTCP,
        Speaks::Tcp => Protocol::TCP,
    };
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(protocol))?;
    // The same on every machine, whatever its default is. Subflows inherit it.
    socket.set_tcp_congestion(b"cubic")?;
    socket.set_read_timeout(Some(STUCK))?;
    socket.set_write_timeout(Some(STUCK))?;
    Ok(socket)
}

/// A listener that is gone when it is dropped. Closing it would not do: a program that another test is about to start has
/// copies of all of our sockets until it executes, and the port would stay taken for that long.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Deref for Listener {
    type Target = TcpListener;

    fn deref(&self) -> &TcpListener {
        &self.0
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It fails only where it listens no more.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// Listens in a namespace.
///
/// # Panics
/// When the address is not there or taken.
#[must_use]
pub fn listen(ns: &NetNs, addr: SocketAddr, speaks: Speaks) -> Listener {
    ns.run(move || {
        let socket = socket(addr, speaks)?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(4096)?;
        io::Result::Ok(Listener(socket.into()))
    })
    .unwrap_or_else(|error| panic!("the kernel listens at {addr}: {error}"))
}

/// The next connection of a listener, with the same limits as any other.
///
/// # Errors
/// Those of `accept`; `TimedOut` after `STUCK`.
pub fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(STUCK))?;
    stream.set_write_timeout(Some(STUCK))?;
    Ok(stream)
}

/// Connects from a namespace.
///
/// # Errors
/// What the kernel reports.
pub fn connect(ns: &NetNs, addr: SocketAddr, speaks: Speaks) -> io::Result<TcpStream> {
    ns.run(move || socket(addr, speaks)).and_then(|socket| {
        socket.connect(&addr.into())?;
        Ok(socket.into())
    })
}

/// Linux, `include/linux/socket.h`: connect and send in one call, along with the SYN where the server has given a cookie.
pub(crate) const MSG_FASTOPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);

/// Connects from a namespace by TCP Fast Open, which has to be switched on there.
///
/// # Errors
/// What the kernel reports; `WriteZero` when it does not take all of `early`.
pub fn connect_early(ns: &NetNs, addr: SocketAddr, early: &[u8]) -> io::Result<TcpStream> {
    let socket = ns.run(move || socket(addr, Speaks::Mptcp))?;
    let taken = rustix::net::sendto(&socket, early, MSG_FASTOPEN, &addr)?;
    if taken != early.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(socket.into())
}

/// Sockets of a namespace that are still to be connected, by whom does not wait for them. They do not block.
///
/// # Panics
/// When so many are not to be had.
#[must_use]
pub fn sockets(ns: &NetNs, addr: SocketAddr, speaks: Speaks, count: usize) -> Vec<TcpStream> {
    ns.run(move || {
        let one = || {
            let socket = socket(addr, speaks)?;
            socket.set_nonblocking(true)?;
            io::Result::Ok(socket.into())
        };
        (0..count).map(|_| one()).collect::<io::Result<Vec<_>>>()
    })
    .expect("the system has so many sockets")
}

/// A port of the namespace that nobody listens on now.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port(ns: &NetNs) -> u16 {
    listen(ns, SocketAddr::from(([127, 0, 0, 1], 0)), Speaks::Tcp)
        .local_addr()
        .expect("it is bound")
        .port()
}
