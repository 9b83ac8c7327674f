//! The rules that keep the host's kernel out of our connections, and its address translation.
//!
//! What a table holds is decided by pure functions ([`guard_table`], [`translation_table`]); a [`Firewall`] keeps one table in
//! force. Where the kernel can (Linux 5.12), the table belongs to this process: nobody else can flush it, and it goes with the
//! process. Elsewhere news of foreign changes has it looked at ([`Firewall::repair`]).

use crate::nft::expr::{End, Rule};
use crate::nft::message::{
    Attributes, Command, Family, attribute, attribute_number, attribute_text,
};
use crate::nft::socket::Nft;
pub use crate::nft::socket::NoFirewall;
use crate::nft::table::{self, Chain, Hook, Table, Tuple, set_name};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An address whose frames a packet socket of ours answers, so that the kernel must not see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The interface's name.
    pub iface: String,
    /// The address.
    pub addr: IpAddr,
    /// What of the address is ours; `None`: all of it.
    pub share: Option<Share>,
}

/// What is ours of an address that the host has, too. Everything else of it stays the host's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Ports that we listen on: all that arrives for them.
    pub listen: Vec<u16>,
    /// Ports of connections that we open: those four-tuples that are given to [`Firewall::open`], and MP_JOIN, by which a
    /// peer adds a subflow to such a connection. A program of the host that uses one of these ports goes on undisturbed.
    pub own: Vec<RangeInclusive<u16>>,
}

/// Translation between an address of ours behind a TUN device and an address of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Our address behind the TUN device.
    pub(crate) inside: IpAddr,
    /// The interface its packets leave by.
    pub(crate) iface: String,
    /// The host's address there.
    pub(crate) outside: IpAddr,
    /// Ports of `outside` that are ours to listen on.
    pub(crate) listen: Vec<u16>,
}

/// The table for packet devices: one chain for each device, and one for what is not seen there.
///
/// The drop is at the device's ingress: packet sockets have their copy by then, connection tracking remembers nothing, and a
/// bridge that shows frames to the host's firewall (br_netfilter) does so before the frame has come to the bridge's own device,
/// where the packet socket is. A rule in prerouting would take it away there.
///
/// Fragments have no ports there but the first, and if that alone were dropped the others would fill the kernel's queue of fragments,
/// which the host's own traffic needs, too. So they all pass, as packets with extension headers do. Of IPv4 they are dropped where
/// the kernel delivers to the host, which is behind its putting them together, and before connection tracking confirms what it
/// saw. Of IPv6 the kernel does that and looks at extension headers behind all hooks: there the reset is dropped by which its TCP
/// would answer.
pub(crate) fn guard_table(name: &str, guards: &[Guard]) -> Table {
    let shared: Vec<&Guard> = guards.iter().filter(|g| g.share.is_some()).collect();
    let chain = |name: &str, hook, rules| Chain {
        name: name.to_owned(),
        hook,
        rules,
    };
    let mut chains = ingress_chains(guards, Stage::Ingress);
    if !shared.is_empty() {
        let rules = guard_rules(&shared, Stage::Input);
        chains.push(chain("input", Hook::Input, rules));
        chains.push(chain("output", Hook::Output, reset_rules(&shared)));
    }
    Table {
        family: Family::Inet,
        name: name.to_owned(),
        tuples: true,
        chains,
    }
}

/// The same where the kernel has no table that can hold both (before Linux 5.10): fragments are the kernel's there.
pub(crate) fn guard_table_of_devices(name: &str, guards: &[Guard]) -> Table {
    Table {
        family: Family::Netdev,
        name: name.to_owned(),
        tuples: true,
        chains: ingress_chains(guards, Stage::Only),
    }
}

/// Where a rule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// At the device, with another look at the input.
    Ingress,
    /// At the input: by which device it came is asked as well.
    Input,
    /// At the device alone.
    Only,
}

fn ingress_chains(guards: &[Guard], stage: Stage) -> Vec<Chain> {
    let mut of: BTreeMap<&str, Vec<&Guard>> = BTreeMap::new();
    for guard in guards {
        of.entry(&guard.iface).or_default().push(guard);
    }
    let chain = |(n, (iface, guards)): (usize, (&&str, &Vec<&Guard>))| Chain {
        name: format!("guard{n}"),
        hook: Hook::Ingress((*iface).to_owned()),
        rules: guard_rules(guards, stage),
    };
    of.iter().enumerate().map(chain).collect()
}

fn guard_rules(guards: &[&Guard], stage: Stage) -> Vec<Rule> {
    let mut rules = Vec::new();
    for ipv6 in [false, true] {
        let of = || guards.iter().filter(|g| g.addr.is_ipv6() == ipv6);
        let tcp = |rule: Rule| match stage {
            Stage::Input if !ipv6 => rule.tcp(),
            Stage::Only => rule.tcp(),
            Stage::Ingress | Stage::Input => rule.plain_tcp(ipv6),
        };
        let family = || match stage {
            Stage::Only => Rule::default().ethertype(ipv6),
            Stage::Ingress | Stage::Input => Rule::default().family(ipv6),
        };
        // Most packets belong to connections that exist.
        if of().any(|g| g.share.is_some()) {
            let rule = tcp(family());
            rules.push(rule.four_tuple_in(set_name(ipv6), ipv6, End::Source).drop());
        }
        for guard in of() {
            let mut to = family();
            if stage == Stage::Input {
                to = to.incoming(&guard.iface);
            }
            let to = to.address(End::Destination, guard.addr);
            let Some(share) = &guard.share else {
                rules.push(to.drop());
                continue;
            };
            for &port in &share.listen {
                rules.push(tcp(to.clone()).port(port, port).drop());
            }
            for own in &share.own {
                let rule = tcp(to.clone()).port(*own.start(), *own.end());
                rules.push(rule.joins().drop());
            }
        }
    }
    rules
}

/// Resets of the host's kernel for segments that it has seen behind IPv6 headers. Those that answer an MP_JOIN do not say so; they
/// pass.
fn reset_rules(guards: &[&Guard]) -> Vec<Rule> {
    let reset = || Rule::default().family(true).tcp().resets();
    let of_tuple = reset().four_tuple_in(set_name(true), true, End::Destination);
    let mut rules = vec![of_tuple.drop()];
    for guard in guards.iter().filter(|guard| guard.addr.is_ipv6()) {
        let ports = guard.share.iter().flat_map(|share| &share.listen);
        rules.extend(ports.map(|&port| {
            let from = reset().address(End::Source, guard.addr);
            from.source_port(port).drop()
        }));
    }
    rules
}

/// The table for TUN devices.
///
/// Inwards goes what comes by an interface of a path, whichever address it is for (RFC 1122 section 3.3.4.2). What comes from
/// elsewhere, as from a container by its bridge, stays with the kernel: the answers would leave by the path.
pub(crate) fn translation_table(name: &str, list: &[Translation]) -> Table {
    let ifaces: BTreeSet<&String> = list.iter().map(|t| &t.iface).collect();
    let mut outward = Vec::new();
    let mut inward = Vec::new();
    for t in list {
        let family = || Rule::default().family(t.inside.is_ipv6());
        outward.push(
            family()
                .address(End::Source, t.inside)
                .outgoing(&t.iface)
                .translate(End::Source, t.outside),
        );
        for port in &t.listen {
            inward.extend(ifaces.iter().map(|iface| {
                family()
                    .incoming(iface)
                    .address(End::Destination, t.outside)
                    .tcp()
                    .port(*port, *port)
                    .translate(End::Destination, t.inside)
            }));
        }
    }
    let mut chains = vec![Chain {
        name: "outward".to_owned(),
        hook: Hook::TranslateOut,
        rules: outward,
    }];
    if !inward.is_empty() {
        chains.push(Chain {
            name: "inward".to_owned(),
            hook: Hook::TranslateIn,
            rules: inward,
        });
    }
    Table {
        family: Family::Inet,
        name: name.to_owned(),
        tuples: false,
        chains,
    }
}

/// One table of ours in force. Clones are the same table.
#[derive(Debug, Clone)]
pub struct Firewall(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    nft: Nft,
    /// Whether the table is the process's own.
    owned: bool,
    /// `None` before the first load and after the end.
    table: Option<Table>,
    shares: Vec<(IpAddr, Share)>,
    tuples: BTreeSet<Tuple>,
    /// How many tuples are worth another look.
    look_at: usize,
}

/// Tuples below this number are not looked through.
const FEW: usize = 256;

impl Firewall {
    /// Nothing is in force yet. `owned`: let the table belong to this process where the kernel can.
    ///
    /// # Errors
    /// `Unsupported` ([`NoFirewall`]) where the kernel has no nf_tables; those of the socket.
    pub(crate) fn new(owned: bool) -> io::Result<Self> {
        Ok(Firewall(Arc::new(Mutex::new(State {
            nft: Nft::open()?,
            owned,
            table: None,
            shares: Vec::new(),
            tuples: BTreeSet::new(),
            look_at: FEW,
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The kernel changes all or nothing, and what should be there is written down first.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn guard(&self, name: &str, guards: &[Guard]) -> io::Result<()> {
        let mut state = self.lock();
        state.shares = guards
            .iter()
            .filter_map(|g| Some((g.addr, g.share.clone()?)))
            .collect();
        let loaded = state.load(guard_table(name, guards));
        match loaded {
            Err(e) if is_unknown(&e) => state.load(guard_table_of_devices(name, guards)),
            other => other,
        }
    }

    pub(crate) fn translate(&self, name: &str, list: &[Translation]) -> io::Result<()> {
        self.load(translation_table(name, list))
    }

    /// Puts a table in force, in place of the one before.
    pub(crate) fn load(&self, table: Table) -> io::Result<()> {
        self.lock().load(table)
    }

    /// Whether the kernel must be told of each connection from this local end ([`Firewall::open`]).
    #[must_use]
    pub fn wants(&self, local: SocketAddr) -> bool {
        let state = self.lock();
        let mut shares = state.shares.iter().filter(|(addr, _)| *addr == local.ip());
        shares.any(|(_, share)| !share.listen.contains(&local.port()))
    }

    /// Keeps the kernel from answering what arrives for these connections (local end, remote end). To be called before the
    /// first segment is sent.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_ADMIN`; those of the kernel.
    pub fn open(&self, tuples: &[(SocketAddr, SocketAddr)]) -> io::Result<()> {
        let mut state = self.lock();
        let new: Vec<Tuple> = tuples
            .iter()
            .map(|&(local, remote)| Tuple { local, remote })
            .filter(|tuple| !state.tuples.contains(tuple))
            .collect();
        state.tuples.extend(&new);
        match state.change(Command::NewSetElem, &new) {
            // Somebody took the table away.
            Err(e) if e.kind() == io::ErrorKind::NotFound => state.reload(),
            other => other,
        }
    }

    /// Whether so many connections were told that a look at those that ended is worth it.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        let state = self.lock();
        state.tuples.len() >= state.look_at
    }

    /// Gives the connections back to the kernel that `lives` (local end, remote end) does not know any more.
    ///
    /// # Errors
    /// As [`Firewall::open`]; they are looked at again next time.
    pub fn retain(&self, lives: impl Fn(SocketAddr, SocketAddr) -> bool) -> io::Result<()> {
        let mut state = self.lock();
        let gone: Vec<Tuple> = state
            .tuples
            .iter()
            .filter(|t| !lives(t.local, t.remote))
            .copied()
            .collect();
        state.look_at = FEW.max(2 * (state.tuples.len() - gone.len()));
        if gone.is_empty() {
            return Ok(());
        }
        state.change(Command::DelSetElem, &gone)?;
        for tuple in &gone {
            state.tuples.remove(tuple);
        }
        Ok(())
    }

    /// Puts the table back if somebody took it or a part of it away. Answers whether that was so.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn repair(&self) -> io::Result<bool> {
        let mut state = self.lock();
        if state.is_whole()? {
            return Ok(false);
        }
        state.reload().map(|()| true)
    }

    /// Takes the table away, for good.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        if let Some(table) = state.table.take() {
            // The table of a process is gone with its socket at the latest.
            let _ = state.nft.delete(table.family, &table.name);
        }
    }

    /// Whether others can change the table.
    pub(crate) fn is_exposed(&self) -> bool {
        let state = self.lock();
        state.table.is_some() && !state.owned
    }
}

impl State {
    fn load(&mut self, table: Table) -> io::Result<()> {
        let before = self.table.replace(table);
        let result = self.reload();
        if result.is_err() {
            // The kernel has kept the one before.
            self.table = before;
        }
        result
    }

    fn reload(&mut self) -> io::Result<()> {
        let Some(table) = &self.table else {
            return Ok(());
        };
        let tuples: Vec<Tuple> = self.tuples.iter().copied().collect();
        let mut number = self.nft.number;
        let mut result = commit_all(
            &mut self.nft,
            table.replace(&mut number, self.owned, &tuples),
        );
        if self.owned && result.as_ref().is_err_and(is_unknown) {
            // Linux before 5.12.
            let again = table.replace(&mut number, false, &tuples);
            result = commit_all(&mut self.nft, again);
            self.owned = result.is_err();
        }
        self.nft.number = number;
        result
    }

    fn change(&mut self, how: Command, tuples: &[Tuple]) -> io::Result<()> {
        let Some(table) = self.table.as_ref().filter(|t| t.tuples) else {
            return Ok(());
        };
        let mut number = self.nft.number;
        let result = commit_all(&mut self.nft, table.change(&mut number, how, tuples));
        self.nft.number = number;
        result
    }

    fn is_whole(&mut self) -> io::Result<bool> {
        let Some(table) = &self.table else {
            return Ok(true);
        };
        let named = Attributes::default().text(1, &table.name);
        let rules = self.nft.dump(Command::GetRule, table.family, &named);
        // Older kernels do not choose: they tell every rule of the family.
        let ours = |attributes: &[u8]| attribute_text(attributes, 1).as_ref() == Some(&table.name);
        match rules {
            Ok(rules) => Ok(rules.iter().filter(|(_, r)| ours(r)).count() == table.rules()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// The kernel is too old for what it was told.
fn is_unknown(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
    )
}

fn commit_all(nft: &mut Nft, batches: Vec<crate::nft::message::Batch>) -> io::Result<()> {
    batches.into_iter().try_for_each(|batch| nft.commit(batch))
}

/// Deletes a table of a process that is gone; one that does not exist is no error.
pub(crate) fn delete(name: &str) -> io::Result<()> {
    let mut nft = Nft::open()?;
    for family in [Family::Netdev, Family::Inet] {
        match nft.delete(family, name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

impl Nft {
    fn delete(&mut self, family: Family, name: &str) -> io::Result<()> {
        let batch = table::delete(self.number, family, name);
        self.number = self.number.wrapping_add(16);
        self.commit(batch)
    }
}

/// A chain of the host as the kernel tells it, if it drops what is forwarded unless a rule of its own accepts it: an accepting
/// rule in a table of ours does not help, as each chain decides for itself.
fn dropping_chain(family: u8, chain: &[u8]) -> Option<String> {
    /// `NF_INET_FORWARD`.
    const FORWARD: u32 = 2;
    let family = match family {
        1 => "inet",
        2 => "ip",
        10 => "ip6",
        _ => return None,
    };
    let hook = attribute(chain, 4)?;
    let drops = attribute_number(hook, 1) == Some(FORWARD) && attribute_number(chain, 5) == Some(0);
    let (table, name) = (attribute_text(chain, 1)?, attribute_text(chain, 3)?);
    drops.then(|| format!("{family} {table} {name}"))
}

/// The firewall chains of the host that drop what is forwarded unless a rule of theirs accepts it, as `FAMILY TABLE CHAIN`.
/// Container engines put one up. What a TUN device carries is forwarded. Empty where the rules cannot be read.
#[must_use]
pub fn forwarding_is_dropped() -> Vec<String> {
    let chains = Nft::open().and_then(|mut nft| {
        nft.dump(
            Command::GetChain,
            Family::Unspecified,
            &Attributes::default(),
        )
    });
    chains
        .unwrap_or_default()
        .iter()
        .filter_map(|(family, chain)| dropping_chain(*family, chain))
        .collect()
}
