//! A whole table, as the messages that put it into force.

use super::expr::Rule;
use super::message::{APPEND, Attributes, Batch, CREATE, Command, Family};
use std::net::{IpAddr, SocketAddr};

/// Elements of a set that one message holds: 512 of 52 bytes stay below the 64 KB of an attribute.
const ELEMENTS: usize = 512;
/// Elements of one batch: what a socket's buffer takes at one time.
const BATCH_ELEMENTS: usize = 2048;

/// `NFT_TABLE_F_OWNER` (Linux 5.12): the table belongs to the socket that made it. Nobody else can change or flush it, and it
/// goes when the socket is closed, however the process ends.
const OWNED: u32 = 2;

/// Types of nft(8), by which it shows the keys of sets.
const IPV4_ADDR: u32 = 7;
const IPV6_ADDR: u32 = 8;
const INET_SERVICE: u32 = 13;

/// A chain, by where in a packet's way it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hook {
    /// What a device receives, right after packet sockets have had their copy: before bridges, defragmentation and
    /// connection tracking.
    Ingress(String),
    /// What is for the host itself. Of IPv4, it is put together if it came in fragments.
    Input,
    /// What the host itself sends.
    Output,
    /// What comes by a device, once connection tracking knows it and before its destination is translated.
    Arrival,
    /// Translation of destinations.
    TranslateIn,
    /// Translation of sources.
    TranslateOut,
}

/// A chain with its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Its name within the table.
    pub(crate) name: String,
    /// Where it stands.
    pub(crate) hook: Hook,
    /// What it does.
    pub(crate) rules: Vec<Rule>,
}

/// A table of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its family.
    pub(crate) family: Family,
    /// Its name.
    pub(crate) name: String,
    /// Whether it has the sets of four-tuples.
    pub(crate) tuples: bool,
    /// Its chains.
    pub(crate) chains: Vec<Chain>,
}

/// The name of the set of four-tuples of a family.
pub(crate) fn set_name(ipv6: bool) -> &'static str {
    if ipv6 { "tuples6" } else { "tuples4" }
}

/// A connection's two ends as a packet that arrives has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tuple {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Tuple {
    /// The key in the set: each part fills whole words.
    fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(40);
        for end in [self.remote, self.local] {
            match end.ip() {
                IpAddr::V4(a) => key.extend_from_slice(&a.octets()),
                IpAddr::V6(a) => key.extend_from_slice(&a.octets()),
            }
            key.extend_from_slice(&end.port().to_be_bytes());
            key.extend_from_slice(&[0, 0]);
        }
        key
    }
}

impl Table {
    fn named(&self) -> Attributes {
        Attributes::default().text(1, &self.name)
    }

    /// The batches that make this table, in place of one of that name, with these four-tuples. The first holds all rules.
    pub(crate) fn replace(&self, number: &mut u32, owned: bool, tuples: &[Tuple]) -> Vec<Batch> {
        let mut batch = Batch::new(*number);
        let made = match owned {
            true => self.named().number(2, OWNED),
            false => self.named(),
        };
        // Declaring before deleting makes the deletion work whether or not the table exists.
        batch.push(Command::NewTable, CREATE, self.family, &made);
        batch.push(Command::DelTable, 0, self.family, &self.named());
        batch.push(Command::NewTable, CREATE, self.family, &made);
        if self.tuples {
            for ipv6 in [false, true] {
                batch.push(Command::NewSet, CREATE, self.family, &self.set(ipv6));
            }
        }
        for chain in &self.chains {
            batch.push(Command::NewChain, CREATE, self.family, &self.chain(chain));
            for rule in &chain.rules {
                let content = self
                    .named()
                    .text(2, &chain.name)
                    .nested(4, rule.clone().into_attributes());
                batch.push(Command::NewRule, CREATE | APPEND, self.family, &content);
            }
        }
        let now = tuples.len().min(BATCH_ELEMENTS);
        self.elements(&mut batch, Command::NewSetElem, &tuples[..now]);
        *number = number.wrapping_add(u32::from(u16::MAX));
        let mut all = vec![batch];
        all.extend(self.change(number, Command::NewSetElem, &tuples[now..]));
        all
    }

    /// The batches that add four-tuples ([`Command::NewSetElem`]; those that are there do not matter) or remove them
    /// ([`Command::DelSetElem`]).
    pub(crate) fn change(&self, number: &mut u32, how: Command, tuples: &[Tuple]) -> Vec<Batch> {
        tuples
            .chunks(BATCH_ELEMENTS)
            .map(|chunk| {
                let mut batch = Batch::new(*number);
                self.elements(&mut batch, how, chunk);
                *number = number.wrapping_add(u32::from(u16::MAX));
                batch
            })
            .collect()
    }

    /// How many rules it has.
    pub(crate) fn rules(&self) -> usize {
        self.chains.iter().map(|c| c.rules.len()).sum()
    }

    fn set(&self, ipv6: bool) -> Attributes {
        let (addr, length) = if ipv6 {
            (IPV6_ADDR, 40)
        } else {
            (IPV4_ADDR, 16)
        };
        // nft's notation for a key of several parts: six bits each.
        let kind = [addr, INET_SERVICE, addr, INET_SERVICE]
            .iter()
            .fold(0, |all, part| all << 6 | part);
        self.named()
            .text(2, set_name(ipv6))
            .number(3, 0)
            .number(4, kind)
            .number(5, length)
            .number(10, u32::from(ipv6) + 1)
    }

    fn elements(&self, batch: &mut Batch, how: Command, tuples: &[Tuple]) {
        let flags = if how == Command::NewSetElem {
            CREATE
        } else {
            0
        };
        for ipv6 in [false, true] {
            let of: Vec<&Tuple> = tuples
                .iter()
                .filter(|t| t.local.is_ipv6() == ipv6)
                .collect();
            for chunk in of.chunks(ELEMENTS) {
                let list = chunk.iter().fold(Attributes::default(), |list, tuple| {
                    let value = Attributes::default().bytes(1, &tuple.key());
                    list.nested(1, Attributes::default().nested(1, value))
                });
                let content = self.named().text(2, set_name(ipv6)).nested(3, list);
                batch.push(how, flags, self.family, &content);
            }
        }
    }

    fn chain(&self, chain: &Chain) -> Attributes {
        /// `NF_ACCEPT`.
        const ACCEPT: u32 = 1;
        /// `NF_INET_INGRESS` (Linux 5.10).
        const INET_INGRESS: u32 = 5;
        let (kind, number, priority, device): (_, u32, i32, _) = match &chain.hook {
            Hook::Ingress(device) if self.family == Family::Inet => {
                ("filter", INET_INGRESS, -400, Some(device))
            }
            Hook::Ingress(device) => ("filter", 0, -400, Some(device)),
            Hook::Input => ("filter", 1, -400, None),
            Hook::Output => ("filter", 3, -400, None),
            Hook::Arrival => ("filter", 0, -150, None),
            Hook::TranslateIn => ("nat", 0, -100, None),
            Hook::TranslateOut => ("nat", 4, 100, None),
        };
        let mut hook = Attributes::default()
            .number(1, number)
            .number(2, priority as u32);
        if let Some(device) = device {
            hook = hook.text(3, device);
        }
        self.named()
            .text(3, &chain.name)
            .nested(4, hook)
            .number(5, ACCEPT)
            .text(7, kind)
    }
}

/// What deletes a table.
pub(crate) fn delete(number: u32, family: Family, name: &str) -> Batch {
    let mut batch = Batch::new(number);
    batch.push(
        Command::DelTable,
        0,
        family,
        &Attributes::default().text(1, name),
    );
    batch
}
