//! The simplest bulk sender and receiver over the kernel's sockets: blocking calls with large buffers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::netns::{NetNs, NetNsError};

/// Bytes of one call. Larger ones gain nothing, smaller ones cost calls.
const CHUNK: usize = 256 * 1024;

/// Which of the kernel's transports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Mptcp,
}

fn socket(transport: Transport, congestion: &str) -> io::Result<Socket> {
    let protocol = match transport {
        Transport::Tcp => Protocol::TCP,
        Transport::Mptcp => Protocol::MPTCP,
    };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
    socket.set_tcp_congestion(congestion.as_bytes())?;
    Ok(socket)
}

/// What a receiver saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    /// From the first byte to the last.
    pub(crate) time: Duration,
}

/// Listens in a namespace at a port of every address.
pub(crate) fn listen(
    ns: &NetNs,
    transport: Transport,
    congestion: &str,
    port: u16,
) -> io::Result<TcpListener> {
    let congestion = congestion.to_owned();
    ns.run(move || {
        let socket = socket(transport, &congestion)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
        socket.listen(1)?;
        Ok(socket.into())
    })
}

/// Takes one connection and reads it to its end, giving up when nothing comes for `patience`.
pub(crate) fn receive(
    ns: &NetNs,
    listener: TcpListener,
    patience: Duration,
) -> Result<JoinHandle<io::Result<Received>>, NetNsError> {
    ns.thread("bulk-receiver", move || {
        let mut stream = accept(&listener, patience)?;
        stream.set_read_timeout(Some(patience))?;
        let mut chunk = vec![0; CHUNK];
        let mut received = Received {
            bytes: 0,
            time: Duration::ZERO,
        };
        let mut first = None;
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return Ok(received),
                Ok(len) => {
                    let now = Instant::now();
                    received.bytes += len as u64;
                    received.time = now - *first.get_or_insert(now);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    })
}

/// Waits for a caller, but no longer than `patience`.
pub(crate) fn accept(listener: &TcpListener, patience: Duration) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + patience;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Connects and sends for a time, then closes.
pub(crate) fn send(
    ns: &NetNs,
    transport: Transport,
    congestion: &str,
    to: SocketAddr,
    time: Duration,
) -> Result<JoinHandle<io::Result<u64>>, NetNsError> {
    let congestion = congestion.to_owned();
    ns.thread("bulk-sender", move || {
        let socket = socket(transport, &congestion)?;
        socket.connect_timeout(&to.into(), Duration::from_secs(5))?;
        // A peer that stops reading must not hold up the end.
        socket.set_write_timeout(Some(time + Duration::from_secs(5)))?;
        let mut stream: TcpStream = socket.into();
        let chunk = vec![0x5a; CHUNK];
        let end = Instant::now() + time;
        let mut bytes = 0;
        while Instant::now() < end {
            bytes += stream.write(&chunk)? as u64;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        // Wait for the other end to have read it all: its close is the sign.
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut rest = [0; 64];
        while matches!(stream.read(&mut rest), Ok(len) if len > 0) {}
        Ok(bytes)
    })
}
