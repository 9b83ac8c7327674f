//! The rules that turn connections which come by an interface to a listener of this host (REDIRECT and TPROXY).
//!
//! Pure: what is to be taken in, a table out. What is for an address of the host itself is never taken, nor is what the host sends: so
//! neither its own services nor the connections of who listens are turned to the listener.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::netlink::MarkRule;
use crate::nft::expr::{End, Rule};
use crate::nft::message::Family;
use crate::nft::table::{Chain, Hook, Table};

/// How a connection is turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Its destination becomes the host's address at the interface by which it comes; connection tracking knows the one before.
    Redirect,
    /// Its packets stay as they are; the listener has to take any destination (`IP_TRANSPARENT`).
    Tproxy,
}

/// Connections that are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// The interface by which they come.
    pub interface: String,
    /// Networks that they come from, as an address and the length of its prefix; without any, all.
    pub from: Vec<(IpAddr, u8)>,
    /// Ports that they go to; without any, all.
    pub ports: Vec<RangeInclusive<u16>>,
    /// How.
    pub turn: Turn,
    /// The port of the listener, which is on every address of the families.
    pub to: u16,
    /// Whether IPv6 is taken besides IPv4.
    pub ipv6: bool,
}

/// Policy rules before those of a TUN device (7000), after the local table's (0).
const PRIORITY: u32 = 6900;
/// Marks and routing tables are numbered from here: far from the numbers that people use.
const MARKS: u32 = 0x6d70_7900;
const TABLES: u32 = 6_900_000;
/// Processes that may take connections by TPROXY in one network namespace.
const MOST: u32 = 256;

/// The mark of packets that are handed to a listener, with what leads them here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u32);

impl Mark {
    /// One that nobody has.
    pub(crate) fn choose(taken: &[MarkRule]) -> Option<Self> {
        let is_free = |number: &u32| taken.iter().all(|rule| rule.mark != MARKS + number);
        (0..MOST).find(is_free).map(Mark)
    }

    /// The rule that leads marked packets to the table whose only route ends at this host.
    pub(crate) fn rule(self, ipv6: bool) -> MarkRule {
        MarkRule {
            ipv6,
            mark: self.value(),
            table: TABLES + self.0,
            priority: PRIORITY,
        }
    }

    fn value(self) -> u32 {
        MARKS + self.0
    }
}

/// The table that takes these. Each way that was ever used has its chain, by which connections that were taken before go on: the kernel
/// translates no packet without a chain for it, and packets of TPROXY have to be led to their sockets.
pub(crate) fn take_table(name: &str, takes: &[Take], redirects: bool, mark: Option<Mark>) -> Table {
    let by = |turn: Turn| takes.iter().filter(move |take| take.turn == turn);
    let mut chains = Vec::new();
    if redirects {
        let rules = by(Turn::Redirect).flat_map(|take| {
            let matches = matches_of(take).into_iter();
            matches.map(|rule| rule.redirect(take.to))
        });
        // No packet is of both families. Connection tracking ends with the last rule that needs it, and with it what was redirected.
        let never = Rule::default().family(false).family(true).redirect(0);
        chains.push(Chain {
            name: "redirect".to_owned(),
            hook: Hook::TranslateIn,
            rules: rules.chain([never]).collect(),
        });
    }
    if let Some(mark) = mark {
        // Whoever answers a client that we have bound to answers to an address that is not ours.
        let known = Rule::default().tcp().of_foreign_socket();
        let mut rules = vec![known.mark(mark.value()).accept()];
        rules.extend(by(Turn::Tproxy).flat_map(|take| {
            let matches = matches_of(take).into_iter();
            // Without a listener the rule ends before the mark, and the packet goes its way.
            matches.map(|rule| rule.hand_to(take.to).mark(mark.value()).accept())
        }));
        chains.push(Chain {
            name: "tproxy".to_owned(),
            hook: Hook::Arrival,
            rules,
        });
    }
    Table {
        family: Family::Inet,
        name: name.to_owned(),
        tuples: false,
        chains,
    }
}

/// What a connection has to be to be taken: any of these.
fn matches_of(take: &Take) -> Vec<Rule> {
    let mut rules = Vec::new();
    for ipv6 in [false, true] {
        if ipv6 && !take.ipv6 {
            continue;
        }
        let by_interface = || Rule::default().family(ipv6).incoming(&take.interface);
        let of_family = take.from.iter().filter(|(addr, _)| addr.is_ipv6() == ipv6);
        let from: Vec<Rule> = match take.from.is_empty() {
            true => vec![by_interface()],
            false => of_family
                .map(|(addr, prefix)| by_interface().network(End::Source, *addr, *prefix))
                .collect(),
        };
        for rule in from {
            let rule = rule.passes_through().tcp();
            match take.ports.is_empty() {
                true => rules.push(rule),
                false => rules.extend(take.ports.iter().map(|ports| {
                    let rule = rule.clone();
                    rule.port(*ports.start(), *ports.end())
                })),
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_chosen_among_those_that_nobody_has() {
        let first = Mark::choose(&[]).expect("one is free");
        let second = Mark::choose(&[first.rule(true)]).expect("one is free");
        assert_ne!(first, second);
        assert_ne!(first.rule(false).table, second.rule(false).table);
        let all: Vec<MarkRule> = (0..MOST).map(|n| Mark(n).rule(false)).collect();
        assert_eq!(Mark::choose(&all), None);
    }

    #[test]
    fn each_network_and_each_port_has_a_rule_of_its_family() {
        let take = |from: &[&str], ports: &[u16], ipv6| Take {
            interface: "lan0".into(),
            from: from
                .iter()
                .map(|addr| (addr.parse().expect("a literal"), 24))
                .collect(),
            ports: ports.iter().map(|port| *port..=*port).collect(),
            turn: Turn::Redirect,
            to: 1235,
            ipv6,
        };
        for (from, ports, ipv6, rules) in [
            (&[][..], &[][..], false, 1),
            (&[], &[], true, 2),
            (&[], &[80, 443], true, 4),
            (&["10.0.0.0", "10.0.1.0"], &[80, 443], true, 4),
            (&["10.0.0.0", "fd00::"], &[80], true, 2),
            (&["fd00::"], &[], false, 0),
        ] {
            let found = matches_of(&take(from, ports, ipv6));
            assert_eq!(found.len(), rules, "{from:?} {ports:?} {ipv6}");
        }
    }
}
