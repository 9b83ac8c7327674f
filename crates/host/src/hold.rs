//! Keeping a port from the programs of the host without listening on it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Binds the port on the host without listening, so that no program of the host can take it meanwhile.
///
/// # Errors
/// `AddrInUse` when one has it already.
pub fn hold_port(addr: SocketAddr) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
    let family = if addr.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Without sharing first: two that share, as another process of ours would, may both bind.
    if bind(&socket, &addr).is_ok() {
        return Ok(socket);
    }
    // Remains of earlier connections of the host do not matter; a listener does.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &addr).map_err(|e| {
        let e = io::Error::from(e);
        if e.kind() == io::ErrorKind::AddrInUse {
            io::Error::new(
                e.kind(),
                format!("{addr} is in use by a program of this host"),
            )
        } else {
            e
        }
    })?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_held_port_is_refused_to_others() {
        let held = hold_port(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let addr = SocketAddr::try_from(rustix::net::getsockname(&held).unwrap()).unwrap();
        let kind = |result: io::Result<OwnedFd>| result.err().map(|e| e.kind());
        assert_eq!(kind(hold_port(addr)), Some(io::ErrorKind::AddrInUse));
        assert!(TcpListener::bind(addr).is_err());
        drop(held);
        assert_eq!(kind(hold_port(addr)), None);
    }

    #[test]
    fn remains_of_connections_do_not_hold_a_port() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(addr).unwrap();
        // The end that closes first keeps the port in TIME-WAIT.
        drop(listener.accept().unwrap());
        drop(listener);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        drop(client);
        assert!(hold_port(addr).is_ok());
    }
}
