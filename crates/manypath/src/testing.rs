//! Two hosts in one process, for the tests of applications: no privileges, no network.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let net = manypath::testing::pair(2)?; // joined by two cables
//! let listener = net.server.listen("10.0.1.2:80")?;
//! let (near, far) = tokio::join!(net.client.connect("10.0.1.2:80"), listener.accept());
//! let (mut near, (mut far, _peer)) = (near?, far?);
//! far.write_all(b"hello").await?;
//! near.read_exact(&mut [0; 5]).await?;
//! net.cut(1); // nothing passes on the first cable any more
//! far.write_all(b"world").await?;
//! near.read_exact(&mut [0; 5]).await?;
//! # Ok(())
//! # }
//! ```

use crate::{Host, HostBuilder};
use manypath_io::DeviceAddress;
use manypath_io::device::memory::{Cable, MemoryConfig, cable};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Two hosts, joined by cables in memory. On cable N (from 1) the client has 10.0.N.1 and fd00:N::1, the server 10.0.N.2 and
/// fd00:N::2.
#[derive(Debug)]
#[non_exhaustive]
pub struct Pair {
    /// One of them.
    pub client: Host,
    /// The other one.
    pub server: Host,
    cables: Vec<Cable>,
}

/// Two hosts, joined by so many cables, with the default options. Must be called within a tokio runtime with `enable_all()`; panics
/// otherwise.
///
/// The default, a full mesh, makes a subflow of each address of one end with each of the other of both families: eight over two cables,
/// of which the crossed ones leave by one cable and come by the other. [`PathManager::MANUAL`](crate::PathManager::MANUAL) and
/// [`MpStream::add_subflow`](crate::MpStream::add_subflow) make those that are wanted. Cables are as fast as the processor.
///
/// # Errors
/// Those of [`HostBuilder::build`].
pub fn pair(cables: u8) -> io::Result<Pair> {
    pair_of(cables, Host::builder(), Host::builder())
}

/// Two hosts, described by their builders.
///
/// # Errors
/// Those of [`HostBuilder::build`].
pub fn pair_of(cables: u8, client: HostBuilder, server: HostBuilder) -> io::Result<Pair> {
    let (mut client, mut server) = (client, server);
    let mut all = Vec::new();
    for number in 1..=cables {
        let iface = manypath_stack::IfaceId(number.into());
        let (near, far, between) = cable(MemoryConfig {
            ifaces: (iface, iface),
            ..MemoryConfig::default()
        });
        client = client.device(near, addresses(number, 1));
        server = server.device(far, addresses(number, 2));
        all.push(between);
    }
    Ok(Pair {
        client: client.build()?,
        server: server.build()?,
        cables: all,
    })
}

fn addresses(cable: u8, end: u8) -> Vec<DeviceAddress> {
    let v6 = Ipv6Addr::new(0xfd00, cable.into(), 0, 0, 0, 0, 0, end.into());
    vec![
        DeviceAddress::new(Ipv4Addr::new(10, 0, cable, end).into()),
        DeviceAddress::new(v6.into()),
    ]
}

impl Pair {
    /// Has everything lost on cable `number` (from 1) from now on; neither end is told.
    pub fn cut(&self, number: usize) {
        if let Some(cable) = number.checked_sub(1).and_then(|at| self.cables.get(at)) {
            cable.cut();
        }
    }

    /// Lets packets pass on cable `number` again.
    pub fn mend(&self, number: usize) {
        if let Some(cable) = number.checked_sub(1).and_then(|at| self.cables.get(at)) {
            cable.mend();
        }
    }
}
