//! Which paths there are: what the user names, what the host has, and what changes.
//!
//! Owns the words of `--path` and the pure step from a [`Snapshot`] of the host to a list of [`HostPath`]s.

pub mod rate;
mod role;
mod wanted;

use crate::neigh::Mac;
use crate::netlink::{Address, Interface, Snapshot};
pub use role::Role;
pub(crate) use role::follow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
pub use wanted::Wanted;

/// The least MTU of a path, bytes: IPv4 and TCP headers, all of TCP's options (40 bytes, which Multipath TCP fills) and a little
/// payload. Linux lets an interface have 68 (RFC 791), where not even the SYN/ACK of a handshake fits.
pub const MTU_MIN: u32 = 128;

/// What the user says of one path: `IFACE[=ADDR[/PREFIX]][,backup][,gateway=ADDR][,rate=RATE]`.
///
/// ```
/// use manypath_io::path::PathSpec;
/// let spec: PathSpec = "wlan0=192.0.2.7/24,backup,gateway=192.0.2.1".parse()?;
/// assert_eq!(spec.iface, "wlan0");
/// assert!(spec.backup);
/// assert_eq!(spec.to_string(), "wlan0=192.0.2.7/24,backup,gateway=192.0.2.1");
/// # Ok::<(), manypath_io::path::PathSpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSpec {
    /// The interface's name.
    pub iface: String,
    /// The address. Without it every address of the interface is listened on, and one of each family, which is a path, is what
    /// subflows are opened from: those of one link share its bottleneck, however many there are (RFC 8981).
    pub addr: Option<IpAddr>,
    /// Length of the on-link prefix, for an address that the host itself does not have.
    pub prefix: Option<u8>,
    /// Use it only when nothing better is left.
    pub backup: bool,
    /// The router, where the host's routes do not name one.
    pub gateway: Option<IpAddr>,
    /// What may leave by its interface at most, in bits of IP packets a second.
    pub rate: Option<u64>,
}

/// What is wrong with a path as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSpecError {
    /// Nothing before the first `=` or `,`, or a name no interface can have.
    Interface(String),
    /// Not an IP address.
    Address(String),
    /// Not a prefix length of the address's family.
    Prefix(String),
    /// Not a number with the unit bit, kbit, mbit or gbit, or zero.
    Rate(String),
    /// None of `backup`, `gateway=ADDR` and `rate=RATE`.
    Word(String),
    /// The gateway is of the other address family.
    Family,
}

impl fmt::Display for PathSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(s) => write!(f, "{s:?} is not the name of an interface"),
            Self::Address(s) => write!(f, "{s:?} is not an IP address"),
            Self::Prefix(s) => write!(f, "{s:?} is not a prefix length"),
            Self::Rate(s) => write!(
                f,
                "{s:?} is not a rate above zero with the unit bit, kbit, mbit or gbit (5mbit)"
            ),
            Self::Word(s) => write!(
                f,
                "{s:?} is not \"backup\", \"gateway=ADDR\" or \"rate=RATE\""
            ),
            Self::Family => f.write_str("address and gateway are not of one family"),
        }
    }
}

impl std::error::Error for PathSpecError {}

impl FromStr for PathSpec {
    type Err = PathSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (iface, addr) = match head.split_once('=') {
            Some((iface, addr)) => (iface, Some(addr)),
            None => (head, None),
        };
        let fits = (1..=15).contains(&iface.len())
            && !iface.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
            && iface != "."
            && iface != "..";
        if !fits {
            return Err(PathSpecError::Interface(iface.to_owned()));
        }
        let ip = |s: &str| IpAddr::from_str(s).map_err(|_| PathSpecError::Address(s.to_owned()));
        let mut prefix = None;
        let addr = match addr.map(|a| a.split_once('/').map_or((a, None), |(a, p)| (a, Some(p)))) {
            None => None,
            Some((addr, bits)) => {
                let addr = ip(addr)?;
                let most = if addr.is_ipv6() { 128 } else { 32 };
                if let Some(bits) = bits {
                    let value: Option<u8> = bits.parse().ok().filter(|b| *b <= most);
                    prefix = Some(value.ok_or_else(|| PathSpecError::Prefix(bits.to_owned()))?);
                }
                Some(addr)
            }
        };
        let mut spec = PathSpec {
            iface: iface.to_owned(),
            addr,
            prefix,
            backup: false,
            gateway: None,
            rate: None,
        };
        for part in parts {
            match part.split_once('=') {
                None if part == "backup" => spec.backup = true,
                Some(("gateway", value)) => spec.gateway = Some(ip(value)?),
                Some(("rate", value)) => {
                    let bits = rate::parse(value);
                    spec.rate = Some(bits.ok_or_else(|| PathSpecError::Rate(value.to_owned()))?);
                }
                _ => return Err(PathSpecError::Word(part.to_owned())),
            }
        }
        match (spec.addr, spec.gateway) {
            (Some(a), Some(g)) if a.is_ipv6() != g.is_ipv6() => Err(PathSpecError::Family),
            _ => Ok(spec),
        }
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iface)?;
        if let Some(addr) = self.addr {
            write!(f, "={addr}")?;
            if let Some(prefix) = self.prefix {
                write!(f, "/{prefix}")?;
            }
        }
        if self.backup {
            f.write_str(",backup")?;
        }
        if let Some(gateway) = self.gateway {
            write!(f, ",gateway={gateway}")?;
        }
        if let Some(bits) = self.rate {
            write!(f, ",rate={}", rate::text(bits))?;
        }
        Ok(())
    }
}

/// The interfaces by the names that the user knows, for as long as the kernel has them: one that gets another name is the same still
/// (ip-link(8)), unless another one takes the name.
#[derive(Debug, Default)]
pub(crate) struct Renames(BTreeMap<String, u32>);

impl Renames {
    /// The paths that are wanted, by the names that the interfaces have now.
    pub(crate) fn follow(&mut self, specs: &[PathSpec], host: &Snapshot) -> Vec<PathSpec> {
        let mut now = |spec: &PathSpec| PathSpec {
            iface: self.name_now(&spec.iface, host),
            ..spec.clone()
        };
        specs.iter().map(&mut now).collect()
    }

    /// The name that an interface has now.
    fn name_now(&mut self, name: &str, host: &Snapshot) -> String {
        let known = self.0.get(name).copied();
        let by_index = || host.interfaces.iter().find(|i| Some(i.index) == known);
        match host.interface(name).or_else(by_index) {
            Some(interface) => {
                self.0.insert(name.to_owned(), interface.index);
                interface.name.clone()
            }
            None => name.to_owned(),
        }
    }
}

/// One usable path of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPath {
    /// The interface's index.
    pub index: u32,
    /// The interface's name.
    pub iface: String,
    /// The interface's hardware address, where it is an Ethernet.
    pub mac: Option<Mac>,
    /// The link carries IP packets and nothing else ([`Interface::bare`]).
    pub bare: bool,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// The local address.
    pub addr: IpAddr,
    /// Length of its on-link prefix, bits.
    pub prefix: u8,
    /// The router towards other networks.
    pub gateway: Option<IpAddr>,
    /// Use it only when nothing better is left.
    pub backup: bool,
    /// What may leave by its interface at most, in bits of IP packets a second.
    pub rate: Option<u64>,
    /// The host itself does not have the address: it is ours alone.
    pub owned: bool,
    /// What it is used for.
    pub role: Role,
}

/// Whether who listens at `at` does so on this address.
pub(crate) fn covers(at: SocketAddr, addr: IpAddr) -> bool {
    at.ip() == addr || at.ip().is_unspecified() && (at.is_ipv6() || addr.is_ipv4())
}

/// Why a path that the user named is not there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// There is no interface of that name.
    Interface(String),
    /// The interface is switched off or has no carrier.
    Down(String),
    /// It has no usable address.
    Address(String),
    /// Its packets are too small.
    Mtu(String),
}

impl Missing {
    /// The interface's name.
    #[must_use]
    pub fn iface(&self) -> &str {
        let (Self::Interface(name) | Self::Down(name) | Self::Address(name) | Self::Mtu(name)) =
            self;
        name
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "there is no interface {name}"),
            Self::Down(name) => write!(f, "the interface {name} is down"),
            Self::Address(name) => write!(f, "the interface {name} has no usable address"),
            Self::Mtu(name) => write!(
                f,
                "the MTU of the interface {name} is smaller than {MTU_MIN} bytes, which the options of Multipath TCP need"
            ),
        }
    }
}

/// The paths that exist now, in the order of preference: as they are named. Without `specs` the addresses of every interface with a
/// default route, by its metric.
#[must_use]
pub fn select(specs: &[PathSpec], host: &Snapshot) -> (Vec<HostPath>, Vec<Missing>) {
    let mut paths: Vec<HostPath> = Vec::new();
    let mut missing = Vec::new();
    if specs.is_empty() {
        let fits = |i: &&Interface| i.up && !i.loopback && i.mtu >= MTU_MIN;
        for interface in host.interfaces.iter().filter(fits) {
            let routed = |a: &Address| host.is_routed(interface.index, a.addr);
            let families = [false, true].into_iter();
            paths.extend(families.flat_map(|ipv6| of_family(interface, host, ipv6, routed)));
        }
        // As the kernel prefers their routes.
        paths.sort_by_key(|p| host.metric(p.index, p.addr));
    }
    for spec in specs {
        let Some(interface) = host.interface(&spec.iface) else {
            missing.push(Missing::Interface(spec.iface.clone()));
            continue;
        };
        if !interface.up {
            missing.push(Missing::Down(spec.iface.clone()));
            continue;
        }
        if interface.mtu < MTU_MIN {
            missing.push(Missing::Mtu(spec.iface.clone()));
            continue;
        }
        let before = paths.len();
        paths.extend(named(spec, interface, host).into_iter().map(|p| {
            HostPath {
                backup: spec.backup,
                rate: spec.rate,
                gateway: spec
                    .gateway
                    .filter(|g| g.is_ipv6() == p.addr.is_ipv6())
                    .or(p.gateway),
                ..p
            }
        }));
        if paths.len() == before {
            missing.push(Missing::Address(spec.iface.clone()));
        }
    }
    (paths, missing)
}

/// The addresses of one family on an interface: one is opened from, the others only take what comes.
fn of_family(
    interface: &Interface,
    host: &Snapshot,
    ipv6: bool,
    fits: impl Fn(&Address) -> bool,
) -> Vec<HostPath> {
    let all = || addresses(interface, host).filter(|a| a.addr.is_ipv6() == ipv6 && fits(a));
    let preferred = all().find(|a| !a.deprecated).or_else(|| all().next());
    let opens = |a: &Address| preferred.is_some_and(|best| best.addr == a.addr);
    let paths = all().map(|a| HostPath {
        role: if opens(a) { Role::Opens } else { Role::Accepts },
        ..path(interface, host, a.addr, a.prefix)
    });
    paths.collect()
}

fn addresses<'a>(interface: &Interface, host: &'a Snapshot) -> impl Iterator<Item = &'a Address> {
    let index = interface.index;
    host.addresses
        .iter()
        .filter(move |a| a.index == index && a.global && a.usable)
}

fn path(interface: &Interface, host: &Snapshot, addr: IpAddr, prefix: u8) -> HostPath {
    HostPath {
        index: interface.index,
        iface: interface.name.clone(),
        mac: interface.mac,
        bare: interface.bare,
        mtu: u16::try_from(interface.mtu).unwrap_or(u16::MAX),
        addr,
        prefix,
        gateway: host.gateway(interface.index, addr),
        backup: false,
        rate: None,
        owned: false,
        role: Role::Opens,
    }
}

fn named(spec: &PathSpec, interface: &Interface, host: &Snapshot) -> Vec<HostPath> {
    let Some(wanted) = spec.addr else {
        return [false, true]
            .into_iter()
            .flat_map(|ipv6| of_family(interface, host, ipv6, |_| true))
            .collect();
    };
    let here = host
        .addresses
        .iter()
        .find(|a| a.index == interface.index && a.addr == wanted);
    match here {
        Some(a) if a.usable => vec![path(interface, host, wanted, a.prefix)],
        Some(_) => Vec::new(),
        // The host has it on another interface (a weak host may use it here), or not at all.
        None => {
            let elsewhere = host.addresses.iter().any(|a| a.addr == wanted);
            let usual = if wanted.is_ipv6() { 64 } else { 24 };
            let prefix = spec.prefix.unwrap_or_else(|| {
                addresses(interface, host)
                    .find(|a| a.addr.is_ipv6() == wanted.is_ipv6())
                    .map_or(usual, |a| a.prefix)
            });
            vec![HostPath {
                owned: !elsewhere,
                ..path(interface, host, wanted, prefix)
            }]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Address, DefaultRoute, Way};

    fn ip(s: &str) -> IpAddr {
        s.parse().expect("a literal address")
    }

    fn host() -> Snapshot {
        let interface = |index: u32, name: &str, up: bool| Interface {
            index,
            name: name.to_owned(),
            mac: Some(Mac([2, 0, 0, 0, 0, index as u8])),
            bare: false,
            mtu: 1500,
            up,
            loopback: name == "lo",
        };
        let address = |index, addr: &str, usable| Address {
            index,
            addr: ip(addr),
            prefix: if addr.contains(':') { 64 } else { 24 },
            global: !addr.starts_with("fe80"),
            usable,
            deprecated: false,
        };
        Snapshot {
            interfaces: vec![
                interface(1, "lo", true),
                interface(2, "eth0", true),
                interface(3, "wlan0", true),
                interface(4, "eth1", false),
            ],
            addresses: vec![
                address(1, "127.0.0.1", true),
                address(2, "10.0.0.2", true),
                address(2, "10.0.0.3", true),
                address(2, "fd00::2", true),
                address(2, "fe80::2", true),
                address(3, "10.1.0.2", true),
                address(3, "fd01::2", false),
            ],
            defaults: vec![DefaultRoute {
                index: 2,
                ipv6: false,
                gateway: Some(ip("10.0.0.1")),
                metric: 0,
            }],
            routes: Vec::new(),
            ways: Vec::new(),
        }
    }

    fn addrs(specs: &[&str]) -> (Vec<String>, Vec<Missing>) {
        let specs: Vec<PathSpec> = specs
            .iter()
            .map(|s| s.parse().expect("a good spec"))
            .collect();
        let (paths, missing) = select(&specs, &host());
        let texts = paths
            .iter()
            .map(|p| {
                format!(
                    "{}={}/{}{}{}",
                    p.iface,
                    p.addr,
                    p.prefix,
                    p.gateway.map_or(String::new(), |g| format!(" via {g}")),
                    match (p.owned, p.role) {
                        (true, _) => " owned",
                        (false, Role::Opens) => "",
                        (false, Role::Accepts) => " accepts",
                        (false, Role::Stalled) => " stalled",
                    }
                )
            })
            .collect();
        (texts, missing)
    }

    #[test]
    fn specs_round_trip() {
        for text in [
            "eth0",
            "eth0=10.0.0.1",
            "eth0=10.0.0.1/24,backup",
            "eth0,gateway=10.0.0.1",
            "wwan0,backup,rate=1500kbit",
            "wlan0=fd00::1/64,backup,gateway=fe80::1",
        ] {
            let spec: PathSpec = text.parse().expect("a good spec");
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn bad_specs_say_what_is_wrong() {
        let error = |s: &str| s.parse::<PathSpec>().expect_err("a bad spec");
        assert!(matches!(error(""), PathSpecError::Interface(_)));
        assert!(matches!(error("=10.0.0.1"), PathSpecError::Interface(_)));
        assert!(matches!(
            error("averylonginterfacename"),
            PathSpecError::Interface(_)
        ));
        assert!(matches!(error("eth0=10.0.0"), PathSpecError::Address(_)));
        assert!(matches!(
            error("eth0=10.0.0.1/33"),
            PathSpecError::Prefix(_)
        ));
        assert!(matches!(error("eth0,slow"), PathSpecError::Word(_)));
        assert!(matches!(error("eth0,gateway=x"), PathSpecError::Address(_)));
        assert_eq!(
            error("eth0=10.0.0.1,gateway=fe80::1"),
            PathSpecError::Family
        );
    }

    #[test]
    fn default_choice_follows_default_routes() {
        let (paths, missing) = addrs(&[]);
        assert_eq!(
            paths,
            [
                "eth0=10.0.0.2/24 via 10.0.0.1",
                "eth0=10.0.0.3/24 via 10.0.0.1 accepts"
            ]
        );
        assert!(missing.is_empty());
    }

    #[test]
    fn default_choice_goes_by_metric_and_by_the_tables_that_rules_choose() {
        let mut host = host();
        host.defaults = [(2, 900), (3, 200)]
            .map(|(index, metric)| DefaultRoute {
                index,
                ipv6: false,
                gateway: None,
                metric,
            })
            .to_vec();
        let order = |host: &Snapshot| -> Vec<String> {
            let (paths, _) = select(&[], host);
            let text = |p: &HostPath| match p.gateway {
                Some(gateway) => format!("{} via {gateway}", p.addr),
                None => p.addr.to_string(),
            };
            paths.iter().map(text).collect()
        };
        assert_eq!(order(&host), ["10.1.0.2", "10.0.0.2", "10.0.0.3"]);
        // `ip rule from 10.1.0.2` leads to a table with a default route; the main one has none by this interface.
        host.defaults.pop();
        let gateway = Some(ip("10.1.0.1"));
        host.ways.push((3, ip("10.1.0.2"), Way { gateway }));
        assert_eq!(
            order(&host),
            ["10.0.0.2", "10.0.0.3", "10.1.0.2 via 10.1.0.1"]
        );
    }

    #[test]
    fn named_paths() {
        let (paths, _) = addrs(&["eth0", "wlan0"]);
        assert_eq!(
            paths,
            [
                "eth0=10.0.0.2/24 via 10.0.0.1",
                "eth0=10.0.0.3/24 via 10.0.0.1 accepts",
                "eth0=fd00::2/64",
                "wlan0=10.1.0.2/24"
            ]
        );
        let (paths, _) = addrs(&[
            "wlan0,gateway=10.1.0.1",
            "eth0=10.0.0.77",
            "eth0=10.9.9.9/16",
        ]);
        assert_eq!(
            paths,
            [
                "wlan0=10.1.0.2/24 via 10.1.0.1",
                "eth0=10.0.0.77/24 via 10.0.0.1 owned",
                "eth0=10.9.9.9/16 via 10.0.0.1 owned"
            ]
        );
        let (paths, _) = addrs(&["eth0=10.1.0.2"]);
        assert_eq!(paths, ["eth0=10.1.0.2/24 via 10.0.0.1"]);
    }

    #[test]
    fn an_interface_is_the_same_by_another_name() {
        let specs: Vec<PathSpec> = vec!["eth0,backup".parse().expect("a good spec")];
        let mut renames = Renames::default();
        let mut host = host();
        let mut follow = |host: &Snapshot| renames.follow(&specs, host)[0].to_string();
        assert_eq!(follow(&host), "eth0,backup");
        host.interfaces[1].name = "uplink".to_owned();
        assert_eq!(follow(&host), "uplink,backup");
        // Another one with the name is the one that is meant, from then on.
        host.interfaces[2].name = "eth0".to_owned();
        assert_eq!(follow(&host), "eth0,backup");
        host.interfaces[2].name = "wlan9".to_owned();
        assert_eq!(follow(&host), "wlan9,backup");
        host.interfaces.remove(2);
        assert_eq!(follow(&host), "eth0,backup");
    }

    #[test]
    fn an_interface_whose_packets_are_too_small_is_no_path() {
        let mut host = host();
        host.interfaces[1].mtu = MTU_MIN - 1;
        let specs = ["eth0".parse().expect("a good spec")];
        let missing = vec![Missing::Mtu("eth0".into())];
        assert_eq!(select(&specs, &host), (Vec::new(), missing));
        assert_eq!(select(&[], &host), (Vec::new(), Vec::new()));
        host.interfaces[1].mtu = MTU_MIN;
        assert!(!select(&specs, &host).0.is_empty());
    }

    #[test]
    fn missing_paths_are_reported() {
        let (paths, missing) = addrs(&["eth7", "eth1", "wlan0=fd01::2"]);
        assert!(paths.is_empty());
        assert_eq!(
            missing,
            [
                Missing::Interface("eth7".into()),
                Missing::Down("eth1".into()),
                Missing::Address("wlan0".into())
            ]
        );
    }
}
