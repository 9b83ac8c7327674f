//! Our stack as an end of a transfer: `manypath forward` between a local TCP connection and the network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::CONGESTION;
use super::arm::Failure;
use crate::netns::{NetNs, Process};
use crate::spoken::Spoken;
use crate::testbed::Testbed;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where it is on the loopback, at either end.
const LOCAL_PORT: u16 = 8001;

/// The loopback end of a relay.
pub(crate) fn local() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, LOCAL_PORT))
}

/// Where a client finds our stack when it serves.
pub(crate) fn served_at(port: u16) -> SocketAddr {
    SocketAddr::new(Testbed::own_server_address(0), port)
}

/// A relay in front of a client: what connects to [`local`] reaches `remote` over every path.
pub(crate) fn for_client(
    bed: &Testbed,
    program: &Path,
    remote: SocketAddr,
) -> Result<Process, Failure> {
    let address = |path| (Testbed::own_address(path), Testbed::gateway(path));
    start(
        bed,
        &bed.client,
        program,
        &format!("tcp:{}", local()),
        &format!("mptcp:{remote}"),
        address,
        &[],
    )
}

/// A relay in front of a server that listens at [`local`], with further options.
pub(crate) fn for_server(
    bed: &Testbed,
    program: &Path,
    port: u16,
    options: &[String],
) -> Result<Process, Failure> {
    let address = |path| {
        (
            Testbed::own_server_address(path),
            Testbed::client_address(path),
        )
    };
    start(
        bed,
        &bed.server,
        program,
        &format!("mptcp:{}", served_at(port)),
        &format!("tcp:{}", local()),
        address,
        options,
    )
}

fn start(
    bed: &Testbed,
    ns: &NetNs,
    program: &Path,
    listen: &str,
    to: &str,
    address: impl Fn(usize) -> (IpAddr, IpAddr),
    options: &[String],
) -> Result<Process, Failure> {
    let mut command = Command::new(program);
    command.args(["forward", "--listen", listen, "--to", to]);
    command.args(["--checksum", "off"]);
    command.args(["--congestion", CONGESTION]);
    command.args(options);
    for (index, path) in bed.paths().iter().enumerate() {
        let (own, gateway) = address(index);
        command.args(["--path", &format!("{}={own},gateway={gateway}", path.name)]);
    }
    command.stdout(Stdio::null());
    let mut relay = Spoken::start(ns, command)?;
    match relay.says(" goes to ", PATIENCE) {
        Ok(()) => Ok(relay.into_process()),
        Err(last) => Err(Failure::Arm(format!("forward did not start: {last}"))),
    }
}
