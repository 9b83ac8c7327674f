//! Our stack as an end of a transfer: `manypath forward` between a local TCP connection and the network.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::CONGESTION;
use super::arm::Failure;
use crate::netns::Process;
use crate::relay::{End, NotStarted, forward};
use crate::testbed::Testbed;

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
    let ends = [format!("tcp:{}", local()), format!("mptcp:{remote}")];
    start(bed, End::Client, program, &ends, &[])
}

/// A relay in front of a server that listens at [`local`], with further options.
pub(crate) fn for_server(
    bed: &Testbed,
    program: &Path,
    port: u16,
    options: &[&str],
) -> Result<Process, Failure> {
    let ends = [
        format!("mptcp:{}", served_at(port)),
        format!("tcp:{}", local()),
    ];
    start(bed, End::Server, program, &ends, options)
}

fn start(
    bed: &Testbed,
    end: End,
    program: &Path,
    [listen, to]: &[String; 2],
    options: &[&str],
) -> Result<Process, Failure> {
    let usual = ["--checksum", "off", "--congestion", CONGESTION];
    let options = [&usual, options].concat();
    let relay = forward(
        end.ns(bed),
        program,
        [listen, to],
        &end.paths(bed),
        &options,
    );
    match relay {
        Ok(relay) => Ok(relay.into_process()),
        Err(NotStarted::Network(error)) => Err(error.into()),
        Err(said) => Err(Failure::Arm(said.to_string())),
    }
}
