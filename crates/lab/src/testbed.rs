//! The network of most experiments: a client and a server joined by several emulated paths.
//!
//! The server has one address, as most have, reachable over every path; the client has one address a path and sends what
//! bears that address out of that path. Interfaces have the same names at both ends.
//!
//! ```text
//!            10.77.1.1  wifi ---- emulated ---- wifi  10.77.1.2
//!   client                                                      server 10.77.0.1
//!            10.77.2.1  lte  ---- emulated ---- lte   10.77.2.2
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use manypath_tcp::time::Duration;
use manypath_tcp::units::Rate;

use crate::emulator::{Buffer, Emulator, LineConfig, MakeBoxes, PathSpec, Way};
use crate::netns::{NetNs, NetNsError};

/// One path between client and server.
#[derive(Clone)]
pub struct TestPath {
    /// Name of the interface at both ends; at most 10 letters, so that the emulator's own fit beside it.
    pub name: String,
    /// From the client to the server.
    pub up: LineConfig,
    /// From the server to the client.
    pub down: LineConfig,
    /// Middleboxes near the client, if there are any.
    pub boxes: Option<MakeBoxes>,
    /// Middleboxes near the server.
    pub far_boxes: Option<MakeBoxes>,
}

impl std::fmt::Debug for TestPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestPath")
            .field("name", &self.name)
            .field("up", &self.up)
            .field("down", &self.down)
            .field("boxes", &self.boxes.is_some())
            .field("far_boxes", &self.far_boxes.is_some())
            .finish()
    }
}

impl TestPath {
    /// A path that is the same both ways: bits per second, round trip without queueing, time that a full buffer lasts.
    #[must_use]
    pub fn symmetric(name: &str, rate: u64, round_trip: Duration, buffer: Duration) -> Self {
        let line = LineConfig {
            rate: Rate::from_bits_per_sec(rate),
            delay: Duration::from_nanos(round_trip.as_nanos() / 2),
            buffer: Buffer::Time(buffer),
            ..LineConfig::default()
        };
        Self {
            name: name.to_owned(),
            up: line.clone(),
            down: line,
            boxes: None,
            far_boxes: None,
        }
    }
}

/// A client and a server and the emulated paths between them; everything goes with this guard.
#[derive(Debug)]
pub struct Testbed {
    // The order matters: the emulator stops before the namespaces that its interfaces live in.
    emulator: Emulator,
    /// Where the client's programs run.
    pub client: NetNs,
    /// Where the server's programs run.
    pub server: NetNs,
    middle: NetNs,
    paths: Vec<TestPath>,
}

/// The same client and server, joined by veth pairs alone: as fast as the machine can.
#[derive(Debug)]
pub struct Pair {
    /// Where the client's programs run.
    pub client: NetNs,
    /// Where the server's programs run.
    pub server: NetNs,
    interfaces: Vec<String>,
}

/// The server's address over every path.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's IPv6 address over every path.
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);

impl Pair {
    /// Builds the network. The interfaces have these names at both ends; the kernels use the congestion control
    /// `congestion`.
    ///
    /// # Errors
    /// When namespaces are forbidden or `ip` refuses.
    pub fn new(name: &str, interfaces: &[&str], congestion: &str) -> Result<Self, NetNsError> {
        let (client, server) = ends(name)?;
        for (number, interface) in (1_u8..).zip(interfaces) {
            client.veth(interface, &server, interface)?;
            address(&client, &server, number, interface, congestion)?;
        }
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        Ok(Self {
            client,
            server,
            interfaces,
        })
    }

    /// Names of the interfaces, the same at both ends.
    #[must_use]
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// Takes segmentation and its reverse away from every interface, or gives them back.
    ///
    /// # Errors
    /// When `ethtool` is missing or refuses.
    pub fn set_offload(&self, on: bool) -> Result<(), NetNsError> {
        let word = if on { "on" } else { "off" };
        for ns in [&self.client, &self.server] {
            for interface in &self.interfaces {
                let mut command = Command::new("ethtool");
                command.args(["-K", interface, "tso", word, "gso", word, "gro", word]);
                let output = ns.output(command)?;
                if !output.status.success() {
                    return Err(NetNsError::Command {
                        command: format!("ethtool -K {interface} tso {word} gso {word} gro {word}"),
                        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The two namespaces of the ends, with nothing between them yet.
fn ends(name: &str) -> Result<(NetNs, NetNs), NetNsError> {
    let client = NetNs::new(&format!("{name}-c"))?;
    let server = NetNs::new(&format!("{name}-s"))?;
    for ns in [&client, &server] {
        // Addresses are usable at once instead of after a second of duplicate detection; packets that come over one
        // path for the address of another are welcome; each connection begins without the memory of the one before.
        for (key, value) in [
            ("net.ipv6.conf.default.accept_dad", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.tcp_no_metrics_save", "1"),
        ] {
            ns.sysctl(key, value)?;
        }
    }
    server.ip([
        format!("addr add {SERVER}/32 dev lo"),
        format!("addr add {SERVER6}/128 dev lo"),
    ])?;
    Ok((client, server))
}

/// Gives the two ends of a path their addresses and routes.
fn address(
    client: &NetNs,
    server: &NetNs,
    number: u8,
    interface: &str,
    congestion: &str,
) -> Result<(), NetNsError> {
    client.ip(addresses(number, interface, 1))?;
    server.ip(addresses(number, interface, 2))?;
    let (from, gateway) = (format!("10.77.{number}.1"), format!("10.77.{number}.2"));
    client.ip(client_routes(
        number, interface, &from, &gateway, congestion,
    ))?;
    let (from, gateway) = (format!("fd77:{number}::1"), format!("fd77:{number}::2"));
    client.ip6(client_routes(
        number, interface, &from, &gateway, congestion,
    ))?;
    server.ip([
        format!("route change 10.77.{number}.0/24 dev {interface} congctl {congestion}"),
        format!("route replace fd77:{number}::/64 dev {interface} congctl {congestion}"),
    ])
}

impl Testbed {
    /// Builds the network and starts the paths. `name` appears in thread names and messages. The kernels at both ends
    /// use the congestion control `congestion`, `cubic` for example. The same seed loses the same packets.
    ///
    /// # Errors
    /// When namespaces are forbidden or `ip` refuses.
    pub fn new(
        name: &str,
        paths: &[TestPath],
        congestion: &str,
        seed: u64,
    ) -> Result<Self, NetNsError> {
        let (client, server) = ends(name)?;
        let middle = NetNs::new(&format!("{name}-m"))?;
        // The middle only carries: it must not speak on the wires itself.
        middle.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
        let mut emulated = Vec::new();
        for (number, path) in (1_u8..).zip(paths) {
            let (near, far) = (format!("{}-c", path.name), format!("{}-s", path.name));
            client.veth(&path.name, &middle, &near)?;
            server.veth(&path.name, &middle, &far)?;
            address(&client, &server, number, &path.name, congestion)?;
            emulated.push(PathSpec {
                first: near,
                second: far,
                out: path.up.clone(),
                back: path.down.clone(),
                boxes: path.boxes.clone(),
                far_boxes: path.far_boxes.clone(),
            });
        }
        let emulator = Emulator::start(&middle, &emulated, seed)?;
        Ok(Self {
            emulator,
            client,
            server,
            middle,
            paths: paths.to_vec(),
        })
    }

    /// The paths, to cut them, change them and count what they carry. Their order is that of [`Testbed::paths`].
    #[must_use]
    pub fn emulator(&self) -> &Emulator {
        &self.emulator
    }

    /// Bytes that each path has brought to the client so far.
    pub(crate) fn delivered(&self) -> Vec<u64> {
        let counters = self.emulator.counters();
        counters
            .iter()
            .map(|path| path.line(Way::In).delivered_bytes)
            .collect()
    }

    /// The paths as they were asked for.
    #[must_use]
    pub fn paths(&self) -> &[TestPath] {
        &self.paths
    }

    /// The namespace between the two ends, where a capture sees every packet of every path.
    #[must_use]
    pub fn middle(&self) -> &NetNs {
        &self.middle
    }

    /// The client's address on a path, counted from zero.
    #[must_use]
    pub fn client_address(path: usize) -> IpAddr {
        Ipv4Addr::new(10, 77, number(path), 1).into()
    }

    /// An address on a path that belongs to nobody, for a stack that answers for itself.
    #[must_use]
    pub fn own_address(path: usize) -> IpAddr {
        Ipv4Addr::new(10, 77, number(path), 10).into()
    }

    /// The same at the server's end of a path.
    #[must_use]
    pub fn own_server_address(path: usize) -> IpAddr {
        Ipv4Addr::new(10, 77, number(path), 20).into()
    }

    /// The server's address on a path, which is the client's gateway there.
    #[must_use]
    pub fn gateway(path: usize) -> IpAddr {
        Ipv4Addr::new(10, 77, number(path), 2).into()
    }
}

fn number(path: usize) -> u8 {
    u8::try_from(path + 1).unwrap_or(u8::MAX)
}

/// Routes of the client over one path: a default in the main table, which prefers the paths in their order, and one in a
/// table of its own for what bears this path's address. The routes name the congestion control: a namespace may not
/// choose its default freely, and programs that were not written for it cannot ask.
fn client_routes(
    number: u8,
    name: &str,
    from: &str,
    gateway: &str,
    congestion: &str,
) -> Vec<String> {
    let table = 100 + u32::from(number);
    let route = format!("route add default via {gateway} dev {name} congctl {congestion}");
    vec![
        format!("{route} metric {table}"),
        format!("{route} table {table}"),
        format!("rule add from {from} table {table} priority {table}"),
    ]
}

fn addresses(number: u8, name: &str, end: u8) -> Vec<String> {
    vec![
        format!("addr add 10.77.{number}.{end}/24 dev {name}"),
        format!("addr add fd77:{number}::{end}/64 dev {name} nodad"),
    ]
}
