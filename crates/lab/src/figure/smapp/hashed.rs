//! A file on real packets over parallel paths of which a router chooses by a hash of addresses and ports: how long it takes.
//!
//! The routers are the kernel's, with a route of as many next hops as there are paths, and its hash over ports. The server is the
//! kernel's, too. The client has one interface: our `manypath forward`, or the kernel with an endpoint for each further
//! subflow, each of which has an address of its own, since the kernel makes no second subflow from one address.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use socket2::Protocol;

use super::super::real::{PATIENCE, PORT, bed, failed, kept_up, socket};
use super::super::{Arm, Run};
use crate::bench::accept;
use crate::kernel;
use crate::netns::{NetNs, NetNsError};
use crate::parallel::PathSpec;
use crate::spoken::Spoken;
use crate::testbed::Testbed;

/// Both ends' congestion control.
const CONGESTION: &str = "cubic";
/// Where our relay takes what is to go up.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5004);
/// The server.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 1);
/// The address of our client, which the client's kernel does not have.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 100);
/// What the hosts reach everything by.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 254);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 254);

/// A file to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct File<'a> {
    /// The parallel paths.
    pub(super) paths: &'a [PathSpec],
    /// Its bytes.
    pub(super) size: u64,
    /// How many subflows the connection is to have.
    pub(super) subflows: u64,
    /// The path manager of our client.
    pub(super) policy: &'a str,
    /// It may not take longer.
    pub(super) most: Duration,
}

/// Two hosts, and the routers between which the paths lie.
struct Network {
    // The hosts go before the routers.
    client: NetNs,
    server: NetNs,
    /// Client and server of this are the routers.
    routers: Testbed,
}

impl Network {
    fn new(file: File<'_>) -> Result<Self, String> {
        let routers = bed(file.paths, CONGESTION)?;
        let network = |error: NetNsError| error.to_string();
        let host = |router: &NetNs, end: &str| {
            let host = NetNs::new(&format!("{}-h", router.name())).map_err(network)?;
            host.veth("lan", router, "lan").map_err(network)?;
            host.sysctl("net.ipv4.tcp_no_metrics_save", "1")
                .map_err(network)?;
            router
                .ip([format!("addr add {end}.254/24 dev lan")])
                .map_err(network)?;
            Ok::<NetNs, String>(host)
        };
        let (client, server) = (
            host(&routers.client, "10.78.1")?,
            host(&routers.server, "10.78.2")?,
        );
        // A subflow of the kernel's client has an address of its own.
        let subflows = 1..=file.subflows;
        client
            .ip(subflows.map(|n| format!("addr add 10.78.1.{n}/24 dev lan")))
            .map_err(network)?;
        server
            .ip([format!("addr add {SERVER}/24 dev lan")])
            .map_err(network)?;
        for (host, router) in [(&client, NEAR), (&server, FAR)] {
            let route = format!("route add default via {router} congctl {CONGESTION}");
            host.ip([route]).map_err(network)?;
        }
        for (router, beyond, end) in [
            (&routers.client, "10.78.2.0/24", 2),
            (&routers.server, "10.78.1.0/24", 1),
        ] {
            for (key, value) in [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv4.fib_multipath_hash_policy", "1"),
            ] {
                router.sysctl(key, value).map_err(network)?;
            }
            let mut route = format!("route add {beyond}");
            for (path, number) in routers.paths().iter().zip(1..) {
                let hop = format!(" nexthop via 10.77.{number}.{end} dev {}", path.name);
                route.push_str(&hop);
            }
            router.ip([route]).map_err(network)?;
        }
        Ok(Self {
            client,
            server,
            routers,
        })
    }
}

/// Sends the file over a network of its own and gives the seconds from the connection to its last byte.
pub(super) fn seconds(run: &Run<'_>, file: File<'_>) -> Result<f64, String> {
    let network = Network::new(file)?;
    kernel::prepare(&network.server, false).map_err(failed("the server's kernel"))?;
    let listen = || {
        let socket = socket(Protocol::MPTCP, CONGESTION)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
        socket.listen(1)?;
        Ok(socket.into())
    };
    let listener: TcpListener = network
        .server
        .run(listen)
        .map_err(failed::<std::io::Error>("listen"))?;
    // The relay lives as long as the transfer.
    let (stream, _relay) = match run.arm {
        Arm::Kernel => (kernels(&network, file)?, None),
        Arm::Real => {
            let relay = relay(&network, run, file)?;
            let connect = || TcpStream::connect_timeout(&LOCAL, PATIENCE);
            let stream = network.client.run(connect).map_err(failed("connect"))?;
            (stream, Some(relay))
        }
        Arm::Sim | Arm::Process => return Err(format!("{} has no real packets", run.arm)),
    };
    let accepted = accept(&listener, PATIENCE).map_err(failed("accept"))?;
    let begun = Instant::now();
    let size = file.size;
    let writer = network
        .client
        .thread("figure-writer", move || write(stream, size))
        .map_err(failed("the writer"))?;
    read(accepted, size, begun + file.most).map_err(failed("read"))?;
    let time = begun.elapsed();
    let written = writer.join().map_err(|_| "the writer panicked")?;
    written.map_err(failed("write"))?;
    kept_up(&network.routers)?;
    Ok(time.as_secs_f64())
}

/// The kernel's client.
fn kernels(network: &Network, file: File<'_>) -> Result<TcpStream, String> {
    kernel::prepare(&network.client, false).map_err(failed("the client's kernel"))?;
    let further = (2..=file.subflows)
        .map(|number| format!("mptcp endpoint add 10.78.1.{number} dev lan subflow"));
    network.client.ip(further).map_err(failed("ip"))?;
    let connect = || {
        let socket = socket(Protocol::MPTCP, CONGESTION)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::new(10, 78, 1, 1), 0)).into())?;
        socket.connect_timeout(&SocketAddr::from((SERVER, PORT)).into(), PATIENCE)?;
        Ok(socket.into())
    };
    let connected = network.client.run(connect);
    connected.map_err(failed::<std::io::Error>("connect"))
}

/// Our client.
fn relay(network: &Network, run: &Run<'_>, file: File<'_>) -> Result<Spoken, String> {
    let mut command = Command::new(run.program);
    let (from, to) = (format!("tcp:{LOCAL}"), format!("mptcp:{SERVER}:{PORT}"));
    command.args(["forward", "--listen", &from, "--to", &to]);
    command.args(["--checksum", "off", "--path-manager", file.policy]);
    command.args(["--path", &format!("lan={OURS},gateway={NEAR}")]);
    command.stdout(Stdio::null());
    let mut relay = Spoken::start(&network.client, command).map_err(failed("forward"))?;
    relay
        .says(" goes to ", PATIENCE)
        .map_err(failed("forward did not start"))?;
    Ok(relay)
}

/// Writes so much and waits until the other end closes.
fn write(mut stream: TcpStream, mut size: u64) -> std::io::Result<()> {
    let chunk = vec![0x5a; 64 << 10];
    // A peer that stops reading without closing must not hold up the thread for ever.
    stream.set_write_timeout(Some(PATIENCE))?;
    while size > 0 {
        let part = chunk.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        stream.write_all(&chunk[..part])?;
        size -= part as u64;
    }
    // Its end is the peer's, which needs no word of ours.
    let _ = stream.read(&mut [0]);
    Ok(())
}

/// Reads so much, until a moment at most.
fn read(mut stream: TcpStream, size: u64, end: Instant) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut chunk = vec![0; 64 << 10];
    let mut read = 0;
    while read < size {
        if Instant::now() > end {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => read += len as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
