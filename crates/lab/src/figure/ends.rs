//! The ends of an upload on real packets: a server of the kernel, and a client that is our `manypath forward` or the kernel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::time::Timespec;
use socket2::Protocol;

use super::Run;
use super::real::{PATIENCE, PORT, failed, socket};
use crate::kernel;
use crate::netns::NetNs;
use crate::relay::forward;
use crate::spoken::Spoken;

/// The kernel's congestion control, which is ours by default.
pub(super) const CONGESTION: &str = "cubic";
/// Where our relay takes what is to go up.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5004);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;
/// A server ends when nobody has come for so long.
const WAIT: Timespec = Timespec {
    tv_sec: 15,
    tv_nsec: 0,
};

/// The server, at every address of its host.
pub(super) fn listen(server: &NetNs) -> Result<TcpListener, String> {
    kernel::prepare(server, false).map_err(failed("the server's kernel"))?;
    let listen = || {
        let socket = socket(Protocol::MPTCP, CONGESTION)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    let listener = server.run(listen);
    listener.map_err(failed::<std::io::Error>("listen"))
}

/// Answers each connection, one after the other, until nobody has come for a while.
pub(super) fn serve_each(
    ns: &NetNs,
    listener: TcpListener,
    mut answer: impl FnMut(TcpStream) -> std::io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let server = ns.thread("figure-server", move || {
        let calls = [PollFd::new(&listener, PollFlags::IN)];
        let next = || retry_on_intr(|| poll(&mut calls.clone(), Some(&WAIT)));
        while next().is_ok_and(|ready| ready > 0) {
            let served = listener.accept().and_then(|(stream, _)| answer(stream));
            // A client that goes away in the middle is none of the next one's business.
            served.unwrap_or_default();
        }
    });
    server.map(drop).map_err(failed("the server"))
}

/// A client, ready to connect.
pub(super) enum Client<'a> {
    /// The kernel of a host, from this address.
    Kernel(&'a NetNs, IpAddr),
    /// Our relay there, which lives as long as this.
    Relay(&'a NetNs, #[expect(dead_code, reason = "held")] Spoken),
}

impl<'a> Client<'a> {
    /// The kernel, whose connections begin at an address and get more subflows by these endpoints, as `ip mptcp` names them.
    pub(super) fn kernel(
        host: &'a NetNs,
        from: IpAddr,
        endpoints: impl IntoIterator<Item = String>,
    ) -> Result<Self, String> {
        kernel::prepare(host, false).map_err(failed("the client's kernel"))?;
        let lines = endpoints
            .into_iter()
            .map(|endpoint| format!("mptcp endpoint add {endpoint} subflow"));
        host.ip(lines).map_err(failed("ip"))?;
        Ok(Self::Kernel(host, from))
    }

    /// Our stack, over paths as the words of a command line, with more of its options.
    pub(super) fn relay(
        run: &Run<'_>,
        host: &'a NetNs,
        server: Ipv4Addr,
        paths: &[String],
        options: &[&str],
    ) -> Result<Self, String> {
        let (from, to) = (format!("tcp:{LOCAL}"), format!("mptcp:{server}:{PORT}"));
        let options = [&["--checksum", "off"], options].concat();
        let relay = forward(host, run.program, [&from, &to], paths, &options);
        let relay = relay.map_err(|error| error.to_string())?;
        Ok(Self::Relay(host, relay))
    }

    /// A connection to the server.
    pub(super) fn connect(&self, server: Ipv4Addr) -> Result<TcpStream, String> {
        let connected = match *self {
            Self::Kernel(host, from) => host.run(move || {
                let socket = socket(Protocol::MPTCP, CONGESTION)?;
                socket.bind(&SocketAddr::new(from, 0).into())?;
                socket.connect_timeout(&SocketAddr::from((server, PORT)).into(), PATIENCE)?;
                Ok(socket.into())
            }),
            Self::Relay(host, _) => host.run(|| TcpStream::connect_timeout(&LOCAL, PATIENCE)),
        };
        connected.map_err(failed::<std::io::Error>("connect"))
    }
}
