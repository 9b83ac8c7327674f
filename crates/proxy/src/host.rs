//! Sockets of the host's kernel: TCP and Multipath TCP.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
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

/// Connects to an address.
pub(crate) async fn connect(
    addr: SocketAddr,
    multipath: bool,
    congestion: Option<&str>,
) -> io::Result<TcpStream> {
    let socket = socket(addr, multipath, congestion)?;
    TcpSocket::from_std_stream(socket.into())
        .connect(addr)
        .await
}

/// Makes the next close a reset, so that the peer does not take a broken stream for a complete one.
pub(crate) fn reset_on_close(stream: &TcpStream) {
    // A socket on which this fails is closed already; there is nothing left to tell the peer.
    let _ = SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
}
