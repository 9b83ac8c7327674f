//! A TUN device behind the kernel's own address translation: each path is an address in a small network of the device's own, a policy
//! rule sends it out by its interface, and the kernel gives it the interface's address there.
//!
//! Works over any kind of interface the kernel has, and needs no guard: the host's addresses stay the host's.

use crate::Setup;
use crate::firewall::Translation;
use crate::interface::Interface;
use crate::netlink::{self, Route, Rule};
use crate::sysctl::Setting;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Policy rules before the main table's (32766), after the local one's (0).
const PRIORITY: u32 = 7000;
/// Routing tables of ours are numbered from here: far from the 0-255 that people use.
const TABLES: u32 = 7_000_000;
/// Addresses in the device's own network; the first is the host's.
const INSIDE_MAX: u32 = 200;
/// Paths that are gone and whose inside addresses are kept for their return.
const PAST_MAX: usize = 32;
/// The main routing table.
const MAIN: u32 = 254;
/// That of the routes which Linux makes for the networks of IPv6 addresses (`IP6_RT_PRIO_ADDRCONF`).
const KERNEL_METRIC: u32 = 256;
/// How many networks there are to choose from.
const NETWORKS: std::ops::RangeInclusive<u8> = 0..=255;

/// The device's own networks: part of the block for tests between networks (RFC 2544), which nobody routes, and a unique
/// local one (RFC 4193).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Networks {
    /// A /24.
    pub v4: Ipv4Addr,
    /// A /64.
    pub v6: Ipv6Addr,
}

impl Networks {
    /// Of this number.
    fn of(number: u8) -> Self {
        Networks {
            v4: Ipv4Addr::new(198, 18, number, 0),
            v6: Ipv6Addr::new(0xfd6d, 0x616e, 0x7970, number.into(), 0, 0, 0, 0),
        }
    }

    fn holds(&self, addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(a) => u32::from(a) >> 8 == u32::from(self.v4) >> 8,
            IpAddr::V6(a) => u128::from(a) >> 64 == u128::from(self.v6) >> 64,
        }
    }

    /// The number of networks that no address of the host is in and no other process of ours has `taken`.
    pub(crate) fn choose(host: &[IpAddr], taken: &[u8]) -> Option<u8> {
        NETWORKS.into_iter().find(|number| {
            !taken.contains(number) && !host.iter().any(|addr| Networks::of(*number).holds(*addr))
        })
    }

    fn inside(&self, ipv6: bool, number: u32) -> IpAddr {
        if ipv6 {
            IpAddr::V6((u128::from(self.v6) + u128::from(number)).into())
        } else {
            IpAddr::V4((u32::from(self.v4) + number).into())
        }
    }
}

/// A path of the host, as far as routing cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// The interface's index.
    pub index: u32,
    /// The interface's name.
    pub iface: String,
    /// The host's address there.
    pub addr: IpAddr,
    /// The router towards other networks.
    pub gateway: Option<IpAddr>,
    /// The link works. While it does not, its routes are left as they are.
    pub passes: bool,
    /// The networks on the link, of the address's family: an address and the length of its prefix.
    pub networks: Vec<(IpAddr, u8)>,
    /// Other networks of the family that the host reaches by routers on the link: an address, the length of its prefix, the
    /// router.
    pub beyond: Vec<(IpAddr, u8, IpAddr)>,
}

/// A path and the address by which the stack calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    /// The stack's address, in the device's own network.
    pub inside: IpAddr,
    /// The host's path behind it.
    pub path: Uplink,
}

/// The kernel's side of a TUN device with address translation.
#[derive(Debug)]
pub struct Nat {
    tun: String,
    tun_index: u32,
    /// The index of the first device, which makes the numbers of the routing tables unique on the host.
    number: u32,
    networks: Networks,
    listen: Vec<u16>,
    paths: Vec<Inside>,
    /// Those that went, each with its place in the device's network: connections of an address that is put back go on, so it gets
    /// the same inside address.
    past: Vec<(Uplink, u32)>,
    used: u32,
    /// What leads the packets of each inside address, by its table.
    routes: BTreeMap<u32, Routing>,
}

/// The routes of an inside address, and the rule that sends its packets to them.
#[derive(Debug, Clone)]
struct Routing {
    rule: Rule,
    routes: Vec<Route>,
}

impl Nat {
    /// Puts the device up and gives the host its address there. `listen` are ports on the host's addresses that belong to the
    /// stack from now on; `host` all addresses of the host.
    ///
    /// # Errors
    /// Those of the kernel; what was changed is undone by `setup`, or goes with the device.
    pub fn new(
        tun: &str,
        tun_index: u32,
        mtu: u16,
        listen: Vec<u16>,
        setup: &mut Setup,
        host: &[IpAddr],
    ) -> io::Result<Self> {
        let networks = Networks::of(setup.reserve_network(host)?);
        let nat = Nat {
            tun: tun.to_owned(),
            tun_index,
            number: tun_index,
            networks,
            listen,
            paths: Vec::new(),
            past: Vec::new(),
            used: 1,
            routes: BTreeMap::new(),
        };
        nat.switch_on(mtu)?;
        Ok(nat)
    }

    /// Puts the device up with this MTU (bytes), and gives the host its addresses there, which may have gone when it was down.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn switch_on(&self, mtu: u16) -> io::Result<()> {
        netlink::set_link(self.tun_index, mtu)?;
        netlink::add_address(self.tun_index, self.networks.inside(false, 1), 24)?;
        // A host without IPv6 has no use for the other one.
        let _ = netlink::add_address(self.tun_index, self.networks.inside(true, 1), 64);
        Ok(())
    }

    /// Goes on with another device in the place of one that is gone. Inside addresses, rules and routes stay, and with them the
    /// connections: the kernel's translation does not depend on the device.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn replace_device(
        &mut self,
        setup: &mut Setup,
        tun: &str,
        tun_index: u32,
        mtu: u16,
    ) -> io::Result<()> {
        (self.tun, self.tun_index) = (tun.to_owned(), tun_index);
        self.switch_on(mtu)?;
        for path in self.paths.iter().map(|p| &p.path) {
            forward(setup, self.tun_index, path.index, path.addr.is_ipv6())?;
        }
        self.translate(setup)
    }

    /// The host's addresses on the device.
    #[must_use]
    pub fn addresses(&self) -> [IpAddr; 2] {
        [false, true].map(|ipv6| self.networks.inside(ipv6, 1))
    }

    /// The route to the device's own network, which the kernel makes with its address.
    fn device_route(&self, ipv6: bool) -> Route {
        let addr = self.networks.inside(ipv6, 1);
        let prefix = if ipv6 { 64 } else { 24 };
        Route {
            to: network(addr, prefix),
            prefix,
            index: self.tun_index,
            gateway: None,
            table: MAIN,
            metric: if ipv6 { KERNEL_METRIC } else { 0 },
        }
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.tun
    }

    /// The device's index.
    #[must_use]
    pub fn device_index(&self) -> u32 {
        self.tun_index
    }

    /// Puts back the rules and routes of the paths that somebody took away. Answers them in words.
    ///
    /// # Errors
    /// Those of the kernel: the others are tried all the same.
    pub fn repair(&self) -> (Vec<String>, io::Result<()>) {
        let mut restored = Vec::new();
        let mut result = Ok(());
        // What a link without carrier lost comes back with the link.
        let waits = |routing: &&Routing| {
            let of = |p: &&Inside| p.inside == routing.rule.from;
            self.paths.iter().find(of).is_some_and(|p| !p.path.passes)
        };
        for ipv6 in [false, true] {
            let route = self.device_route(ipv6);
            // While the device is off or has no address there is none to be had; the one who looks after it is told, too.
            if netlink::add_missing_route(&route).is_ok() {
                restored.push(format!("the route to {} by {}", route.to, self.tun));
            }
        }
        for routing in self.routes.values().filter(|routing| !waits(routing)) {
            let rule = &routing.rule;
            let mut note = |done: io::Result<()>, what: String| match done {
                Ok(()) => restored.push(what),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => result = Err(e),
            };
            let text = format!("the rule from {} lookup {}", rule.from, rule.table);
            note(netlink::add_rule(rule), text);
            for route in &routing.routes {
                let text = format!(
                    "the route to {}/{} in table {}",
                    route.to, route.prefix, route.table
                );
                note(netlink::add_missing_route(route), text);
            }
        }
        (restored, result)
    }

    /// Whether a port on the host's addresses is ours.
    #[must_use]
    pub fn listens(&self, port: u16) -> bool {
        self.listen.contains(&port)
    }

    /// Makes a port on the host's addresses ours, from the next [`Nat::set_paths`] on.
    pub fn listen(&mut self, port: u16) {
        if !self.listens(port) {
            self.listen.push(port);
        }
    }

    /// The paths now in force.
    #[must_use]
    pub fn paths(&self) -> &[Inside] {
        &self.paths
    }

    /// Makes `wanted` the paths. A path that stays or returns keeps its inside address, and so do its connections, whatever router it has
    /// now; the rule and the routes of one that goes are taken away.
    ///
    /// # Errors
    /// The first of the kernel's: paths that cannot be had are left out, the others are tried all the same.
    pub fn set_paths(&mut self, setup: &mut Setup, wanted: &[Uplink]) -> io::Result<()> {
        let (stay, go): (Vec<Inside>, Vec<Inside>) = std::mem::take(&mut self.paths)
            .into_iter()
            .partition(|p| wanted.iter().any(|path| same(path, &p.path)));
        self.paths = stay;
        for gone in go {
            let number = self.unroute(setup, gone.inside);
            self.past.extend(number.map(|number| (gone.path, number)));
        }
        self.past.drain(..self.past.len().saturating_sub(PAST_MAX));
        let mut result = Ok(());
        for path in wanted {
            let known = self.paths.iter().position(|p| same(&p.path, path));
            let done = match known {
                Some(n) if self.paths[n].path == *path => Ok(()),
                Some(n) => self.reroute(n, path),
                None => self.add(setup, path),
            };
            result = result.and(done);
        }
        self.translate(setup).and(result)
    }

    fn translate(&self, setup: &mut Setup) -> io::Result<()> {
        let list: Vec<Translation> = self
            .paths
            .iter()
            .map(|p| Translation {
                inside: p.inside,
                iface: p.path.iface.clone(),
                outside: p.path.addr,
                listen: self.listen.clone(),
            })
            .collect();
        setup.translate(&list)
    }

    /// Routes one more path, by an inside address that none has.
    fn add(&mut self, setup: &mut Setup, path: &Uplink) -> io::Result<()> {
        let ipv6 = path.addr.is_ipv6();
        let past = self.past.iter().position(|(gone, _)| same(gone, path));
        let number = match past {
            Some(at) => self.past.remove(at).1,
            None => self.free_number(),
        };
        let inside = self.networks.inside(ipv6, number);
        let added = Inside {
            inside,
            path: path.clone(),
        };
        if let Err(e) = self.route(setup, &added, self.table(number)) {
            self.unroute(setup, inside);
            return Err(e);
        }
        self.paths.push(added);
        Ok(())
    }

    /// A place in the device's network that no path has, nor one that may return.
    fn free_number(&mut self) -> u32 {
        loop {
            // Long-lived processes on restless networks come round; no two live paths share an address.
            self.used = if self.used >= INSIDE_MAX {
                2
            } else {
                self.used + 1
            };
            let kept = self.past.iter().any(|(_, number)| *number == self.used);
            if !kept && !self.routes.contains_key(&self.table(self.used)) {
                return self.used;
            }
        }
    }

    /// The routing table of an inside address.
    fn table(&self, number: u32) -> u32 {
        TABLES + self.number * 256 + number
    }

    fn route(&mut self, setup: &mut Setup, added: &Inside, table: u32) -> io::Result<()> {
        let path = &added.path;
        let ipv6 = path.addr.is_ipv6();
        forward(setup, self.tun_index, path.index, ipv6)?;
        setup.route_table(table)?;
        netlink::flush_table(table)?;
        let routing = Routing {
            rule: Rule {
                from: added.inside,
                table,
                priority: PRIORITY,
            },
            routes: routes(path, table),
        };
        // It is known before it is made: what of it is there when something fails can be taken away again.
        self.routes.insert(table, routing.clone());
        let there = add_routes(routing.routes, path)?;
        if let Some(routing) = self.routes.get_mut(&table) {
            routing.routes = there;
        }
        setup.add_rule(&routing.rule)
    }

    /// Gives a path that stays the routes that it has now. The new ones come before the old ones go: without any, the main table
    /// would lead packets out by some other interface, with their inside address.
    fn reroute(&mut self, n: usize, path: &Uplink) -> io::Result<()> {
        if !path.passes {
            self.paths[n].path = path.clone();
            return Ok(());
        }
        let inside = self.paths[n].inside;
        let mut all = self.routes.iter_mut();
        if let Some((table, routing)) = all.find(|(_, r)| r.rule.from == inside) {
            let new = add_routes(routes(path, *table), path)?;
            let goes = |old: &&Route| !new.iter().any(|n| (n.to, n.prefix) == (old.to, old.prefix));
            for old in routing.routes.iter().filter(goes) {
                // The kernel may have taken it away with its network.
                let _ = netlink::delete_route(old);
            }
            routing.routes = new;
        }
        self.paths[n].path = path.clone();
        Ok(())
    }

    /// Takes away what led the packets of an inside address, and answers its place in the device's network.
    fn unroute(&mut self, setup: &mut Setup, inside: IpAddr) -> Option<u32> {
        let of = |(_, routing): &(&u32, &Routing)| routing.rule.from == inside;
        let (&table, _) = self.routes.iter().find(of)?;
        if let Some(routing) = self.routes.remove(&table) {
            setup.remove_rule(&routing.rule, table);
        }
        Some(table - self.table(0))
    }
}

/// Both are of one address of the host.
fn same(a: &Uplink, b: &Uplink) -> bool {
    (a.index, a.addr) == (b.index, b.addr)
}

/// How the packets of a path leave: what is on its link directly, all else by its router.
fn routes(path: &Uplink, table: u32) -> Vec<Route> {
    let on_link = path.networks.iter().map(|&(addr, prefix)| Route {
        to: network(addr, prefix),
        prefix,
        index: path.index,
        gateway: None,
        table,
        metric: 0,
    });
    let any: IpAddr = if path.addr.is_ipv6() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let beyond = path.beyond.iter().map(|&(to, prefix, gateway)| Route {
        to,
        prefix,
        index: path.index,
        gateway: Some(gateway),
        table,
        metric: 0,
    });
    on_link
        .chain([Route {
            to: any,
            prefix: 0,
            index: path.index,
            gateway: path.gateway,
            table,
            metric: 0,
        }])
        .chain(beyond)
        .collect()
}

/// Adds the routes, and answers those that are there now. A network that the kernel takes no route to is not reached by this path;
/// without what is on the link and the default route there is none.
fn add_routes(routes: Vec<Route>, path: &Uplink) -> io::Result<Vec<Route>> {
    let needed = routes.len() - path.beyond.len();
    let mut there = Vec::with_capacity(routes.len());
    for (n, route) in routes.into_iter().enumerate() {
        match netlink::add_route(&route) {
            Ok(()) => there.push(route),
            Err(e) if n < needed => return Err(e),
            Err(_) => {}
        }
    }
    Ok(there)
}

/// Lets packets pass between the device and the interface: for IPv4 just between the two; IPv6 knows forwarding only for the
/// whole host.
fn forward(setup: &mut Setup, tun: u32, uplink: u32, ipv6: bool) -> io::Result<()> {
    let interface = |index| {
        let gone = || io::Error::new(io::ErrorKind::NotFound, "the interface is gone");
        Interface::of(index)?.ok_or_else(gone)
    };
    let uplink = interface(uplink)?;
    setup.forget_gone_interfaces();
    if !ipv6 {
        let tun = interface(tun)?;
        setup.set_sysctl(Setting::of(&tun, "ipv4", "forwarding"), "1")?;
        return setup.set_sysctl(Setting::of(&uplink, "ipv4", "forwarding"), "1");
    }
    let all = Setting::host("net/ipv6/conf/all/forwarding");
    let untouched = all.read()? != "1";
    let interfaces = Interface::all()?;
    let of = |name: &str| -> Vec<Setting> {
        let each = interfaces.iter().map(|one| Setting::of(one, "ipv6", name));
        let default = Setting::host(&format!("net/ipv6/conf/default/{name}"));
        each.chain([default]).collect()
    };
    // An interface that listens to router advertisements loses the routes that it has from them when forwarding begins, if it is not to
    // go on listening. All of them get that word, and those to come: the host's other networks are to stay as they are.
    for advertisements in of("accept_ra") {
        let listens = advertisements.read();
        if listens.is_ok_and(|value| value == "1" || value == "2") {
            setup.set_sysctl_once(&advertisements, "2")?;
        }
    }
    // The one for all overwrites that of each.
    setup.note_overwritten(&of("forwarding"), untouched)?;
    setup.set_sysctl(all, "1")
}

fn network(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(prefix.min(32)))
                .unwrap_or(0);
            IpAddr::V4((u32::from(a) & mask).into())
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(prefix.min(128)))
                .unwrap_or(0);
            IpAddr::V6((u128::from(a) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(s: &str) -> IpAddr {
        s.parse().expect("a literal address")
    }

    #[test]
    fn networks_avoid_the_hosts_own_and_those_of_other_processes() {
        let first = Networks::of(Networks::choose(&[], &[]).expect("an empty host"));
        assert_eq!(first.inside(false, 2), ip("198.18.0.2"));
        assert_eq!(first.inside(true, 2), ip("fd6d:616e:7970::2"));
        assert_eq!(Networks::choose(&[ip("198.18.0.77")], &[]), Some(1));
        assert_eq!(Networks::choose(&[ip("fd6d:616e:7970::1")], &[]), Some(1));
        assert_eq!(Networks::choose(&[ip("198.18.1.1")], &[0]), Some(2));
        let all: Vec<u8> = NETWORKS.collect();
        assert_eq!(Networks::choose(&[], &all), None);
        let second = Networks::of(1);
        assert_eq!(second.inside(false, 2), ip("198.18.1.2"));
        assert_eq!(second.inside(true, 2), ip("fd6d:616e:7970:1::2"));
    }

    #[test]
    fn prefixes_are_cut() {
        assert_eq!(network(ip("10.1.2.3"), 24), ip("10.1.2.0"));
        assert_eq!(network(ip("10.1.2.3"), 0), ip("0.0.0.0"));
        assert_eq!(network(ip("10.1.2.3"), 32), ip("10.1.2.3"));
        assert_eq!(network(ip("fd00::1:2"), 64), ip("fd00::"));
    }
}
