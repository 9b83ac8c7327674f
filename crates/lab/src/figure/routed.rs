//! Two hosts on real packets whose routers have parallel paths between them, and choose one for each flow.
//!
//! The routers are the kernel's. By a hash: a route with as many next hops as there are paths, and its hash over ports. In turn: each
//! new flow is marked with the number of the path that is next, and a route for each mark. The client has one interface. Its
//! kernel makes no second subflow from one address, so it has an address for each further one.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use super::ends::{CONGESTION, Client};
use super::real::{bed, failed};
use super::{Arm, Run};
use crate::netns::{NetNs, NetNsError};
use crate::parallel::PathSpec;
use crate::testbed::Testbed;

/// The server.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 1);
/// The address of our client, which the client's kernel does not have.
const OURS: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 100);
/// What the hosts reach everything by.
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 78, 1, 254);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 254);

/// How the client's router chooses a path for a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    /// By a hash of addresses and ports.
    Hash,
    /// Each takes the next path.
    InTurn,
}

/// Two hosts, and the routers between which the paths lie.
pub(super) struct Network {
    // The hosts go before the routers.
    pub(super) client: NetNs,
    pub(super) server: NetNs,
    /// Client and server of this are the routers.
    pub(super) routers: Testbed,
}

impl Network {
    /// `addresses` are those of the client's kernel.
    pub(super) fn new(paths: &[PathSpec], spread: Spread, addresses: u64) -> Result<Self, String> {
        let routers = bed(paths, CONGESTION)?;
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
        client
            .ip((1..=addresses).map(|n| format!("addr add {}/24 dev lan", kernels(n))))
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
        if spread == Spread::InTurn {
            take_turns(&routers)?;
        }
        Ok(Self {
            client,
            server,
            routers,
        })
    }

    /// The client of a run's arm: the kernel with so many subflows, or our relay with these options.
    pub(super) fn client(
        &self,
        run: &Run<'_>,
        subflows: u64,
        options: &[&str],
    ) -> Result<Client<'_>, String> {
        match run.arm {
            Arm::Kernel => {
                let further = (2..=subflows).map(|n| format!("{} dev lan", kernels(n)));
                Client::kernel(&self.client, kernels(1), further)
            }
            Arm::Real => {
                let way = format!("lan={OURS},gateway={NEAR}");
                let way = ["--path".to_owned(), way];
                Client::relay(run, &self.client, SERVER, &way, options)
            }
            Arm::Sim | Arm::Process => Err(format!("{} has no real packets", run.arm)),
        }
    }
}

/// Paths of these delays one way, in milliseconds, each with this rate and a tenth of a second of buffer, as in the simulator.
pub(super) fn paths<const N: usize>(delays_ms: [u32; N], rate: u64) -> [PathSpec; N] {
    delays_ms.map(|delay| PathSpec {
        rate,
        rtt_us: u64::from(delay) * 2000,
        buffer: rate / 80,
        loss_ppm: 0,
    })
}

/// An address of the client's kernel, counted from 1.
fn kernels(number: u64) -> IpAddr {
    Ipv4Addr::new(10, 78, 1, u8::try_from(number).unwrap_or(u8::MAX)).into()
}

/// Lets flows from the client take the paths in turn.
fn take_turns(routers: &Testbed) -> Result<(), String> {
    let count = routers.paths().len();
    let mut command = Command::new("nft");
    command.arg(format!(
        "table ip turns {{ chain turns {{ type filter hook prerouting priority mangle; \
         iifname lan ct state new ct mark set numgen inc mod {count} offset 1; \
         iifname lan meta mark set ct mark; }}; }}"
    ));
    let output = routers.client.output(command).map_err(failed("nft"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("nft: {}", said.trim()));
    }
    let paths = routers.paths().iter().zip(1..);
    let lines = paths.flat_map(|(path, number)| {
        let hop = format!("via 10.77.{number}.2 dev {}", path.name);
        [
            format!("route add 10.78.2.0/24 {hop} table {number}"),
            format!("rule add fwmark {number} table {number} priority {number}"),
        ]
    });
    routers.client.ip(lines).map_err(failed("ip"))
}
