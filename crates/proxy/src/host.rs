//! Sockets of the host's kernel: TCP and Multipath TCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manypath_tcp::machine::Keepalive;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

fn socket(addr: SocketAddr, multipath: bool, congestion: Option<&str>) -> io::Result<Socket> {
    let protocol = if multipath {
        Protocol::MPTCP
    } else {
        Protocol::TCP
    };
    let socket =
        Socket::new(Domain::for_address(addr), Type::STREAM, Some(protocol)).map_err(|error| {
            if multipath {
                no_multipath(error)
            } else {
                error
            }
        })?;
    socket.set_nonblocking(true)?;
    // An urgent byte is a byte of the stream (RFC 6093 section 6). What is accepted has it from its listener. The kernel's
    // Multipath TCP has no urgent data and may refuse.
    let _ = socket.set_out_of_band_inline(true);
    if let Some(name) = congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("the kernel has no congestion control '{name}' for us: {e}"),
            )
        })?;
    }
    Ok(socket)
}

/// The congestion controls that the kernel offers, if it has none of that name; one in a module is loaded if it may be.
#[must_use]
pub fn congestion_controls_without(name: &str) -> Option<String> {
    let any = |domain| Socket::new(domain, Type::STREAM, Some(Protocol::TCP));
    let socket = any(Domain::IPV4).or_else(|_| any(Domain::IPV6)).ok()?;
    match socket.set_tcp_congestion(name.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let list = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let there = std::fs::read_to_string(list).unwrap_or_default();
            Some(there.trim().to_owned())
        }
        // Any other trouble is told where it matters.
        Ok(()) | Err(_) => None,
    }
}

/// Where a connection was going before `redirect` changed it: connection tracking knows.
pub(crate) fn original_destination(stream: &TcpStream) -> Option<SocketAddr> {
    let socket = SockRef::from(stream);
    let local = stream.local_addr().ok()?;
    let found = match local.ip().to_canonical().is_ipv4() {
        true => socket.original_dst_v4(),
        false => socket.original_dst_v6(),
    };
    found.ok()?.as_socket()
}

/// Lets a listener take what `tproxy` hands over, whose destination is no address of this host.
///
/// # Errors
/// CAP_NET_ADMIN is missing.
pub(crate) fn take_any_destination(listener: &TcpListener) -> io::Result<()> {
    let socket = SockRef::from(listener);
    match listener.local_addr()?.is_ipv4() {
        true => socket.set_ip_transparent_v4(true),
        false => socket.set_ip_transparent_v6(true),
    }
}

/// Says what the error code of a kernel without Multipath TCP means.
fn no_multipath(error: io::Error) -> io::Error {
    // ENOPROTOOPT: switched off by sysctl; EPROTONOSUPPORT: not built in.
    const ENOPROTOOPT: i32 = 92;
    const EPROTONOSUPPORT: i32 = 93;
    match error.raw_os_error() {
        Some(ENOPROTOOPT) => io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel's Multipath TCP is switched off; run: sysctl net.mptcp.enabled=1",
        ),
        Some(EPROTONOSUPPORT) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel is built without Multipath TCP",
        ),
        _ => error,
    }
}

/// Listens on an address.
pub(crate) fn listen(
    addr: SocketAddr,
    multipath: bool,
    congestion: Option<&str>,
) -> io::Result<TcpListener> {
    let socket = socket(addr, multipath, congestion)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Connects to an address, from an address that need not be one of this host where `from` names one.
pub(crate) async fn connect(
    addr: SocketAddr,
    multipath: bool,
    congestion: Option<&str>,
    from: Option<IpAddr>,
) -> io::Result<TcpStream> {
    let socket = socket(addr, multipath, congestion)?;
    if let Some(from) = from {
        let transparent = match from.is_ipv4() {
            true => socket.set_ip_transparent_v4(true),
            false => socket.set_ip_transparent_v6(true),
        };
        let bound = transparent.and_then(|()| socket.bind(&SocketAddr::new(from, 0).into()));
        bound.map_err(|e| {
            let text = format!("cannot connect from the client's address {from}: {e}");
            io::Error::new(e.kind(), text)
        })?;
    }
    TcpSocket::from_std_stream(socket.into())
        .connect(addr)
        .await
}

/// How a peer is asked that has been silent for `idle`. With two hours, as RFC 1122 section 4.2.3.6 wants it by default, this is
/// what Linux does by default.
pub(crate) fn keepalive(idle: Duration) -> Keepalive {
    let interval = (idle / 8).clamp(Duration::from_secs(1), Duration::from_secs(75));
    let time = |t: Duration| {
        manypath_tcp::time::Duration::from_nanos(u64::try_from(t.as_nanos()).unwrap_or(u64::MAX))
    };
    Keepalive {
        idle: time(idle),
        interval: time(interval),
        ..Keepalive::default()
    }
}

/// Has the kernel ask a silent peer in the same way. Its times are whole seconds.
pub(crate) fn set_keepalive(stream: &TcpStream, idle: Duration) -> io::Result<()> {
    let how = keepalive(idle);
    let seconds = |t: manypath_tcp::time::Duration| {
        // The kernel takes 32,767 s at most.
        Duration::from_secs(t.as_nanos().div_ceil(1_000_000_000).clamp(1, 32_767))
    };
    SockRef::from(stream).set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(seconds(how.idle))
            .with_interval(seconds(how.interval))
            .with_retries(how.count.into()),
    )
}

/// Makes the next close a reset, so that the peer does not take a broken stream for a complete one, or an ordinary one again.
pub(crate) fn reset_on_close(stream: &TcpStream, on: bool) {
    // A socket on which this fails is closed already; there is nothing left to tell the peer.
    let _ = SockRef::from(stream).set_linger(on.then_some(Duration::ZERO));
}
