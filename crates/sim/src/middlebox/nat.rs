//! Network address translation: connections get an outside address and port, and are forgotten when they are silent.

use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::seq::SeqNum;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::edit::{Bare, Party, bare, readdress};
use super::flows::{FlowKey, Flows, USUAL_FLOWS};
use super::quoted::Quoted;
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::scenario::units::Span;
use crate::view::{ACK, RST, SYN, TcpView};

/// Outside ports are taken from here on.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 40_000;

/// What becomes of a packet whose connection is not known, or no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// It is dropped, and nobody is told.
    #[default]
    Drop,
    /// Its sender gets a reset.
    Reset,
    /// From the inside, it begins a new translation, as if it were the first of its connection; from the outside, it is
    /// dropped.
    Remap,
}

/// Parameters of [`Nat`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct NatSpec {
    /// A connection silent for so long is forgotten.
    pub idle: Span,
    /// What becomes of packets of unknown connections.
    pub unknown: Unknown,
    /// Packets that go this way come from the inside.
    pub inside: Way,
    /// Outside addresses, at most one of each family. A family without one keeps its addresses, and only ports change.
    pub addresses: Vec<IpAddr>,
}

impl Default for NatSpec {
    fn default() -> Self {
        Self {
            idle: Span(Duration::from_secs(60)),
            unknown: Unknown::Drop,
            inside: Way::Out,
            addresses: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    outside: SocketAddr,
    last: Instant,
}

/// Translates addresses and ports. A translation holds for one connection, not for all of an inside port.
#[derive(Debug)]
pub struct Nat {
    spec: NatSpec,
    /// Translations by their inside ends.
    mappings: Flows<Mapping>,
    /// The inside end by the outside one and the peer.
    inside: FxHashMap<(SocketAddr, SocketAddr), SocketAddr>,
    next_port: Option<u16>,
    touched: u64,
}

impl Nat {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: NatSpec) -> Self {
        Self {
            spec,
            mappings: Flows::new(USUAL_FLOWS),
            inside: FxHashMap::default(),
            next_port: None,
            touched: 0,
        }
    }

    fn forget(&mut self, key: &FlowKey) {
        if let Some(mapping) = self.mappings.remove(key) {
            self.inside.remove(&(mapping.outside, key.far));
        }
    }

    /// The translation of a connection, unless it was silent for too long.
    fn find(&mut self, key: &FlowKey, now: Instant) -> Option<SocketAddr> {
        let idle = self.spec.idle.0;
        let mapping = self.mappings.get(key)?;
        if now - mapping.last > idle {
            self.forget(key);
            return None;
        }
        mapping.last = now;
        Some(mapping.outside)
    }

    fn create(&mut self, key: FlowKey, desk: &mut Desk<'_>) -> SocketAddr {
        let start = || desk.rng.below(u64::from(PORTS)) as u16;
        let mut offset = self.next_port.unwrap_or_else(start);
        let family = |ip: &&IpAddr| ip.is_ipv4() == key.near.is_ipv4();
        let ip = self.spec.addresses.iter().find(family);
        let ip = ip.copied().unwrap_or(key.near.ip());
        // There are many more ports than translations, so one is free.
        let outside = loop {
            let port = FIRST_PORT + offset;
            offset = (offset + 1) % PORTS;
            let outside = SocketAddr::new(ip, port);
            if !self.inside.contains_key(&(outside, key.far)) {
                break outside;
            }
        };
        self.next_port = Some(offset);
        let mapping = Mapping {
            outside,
            last: desk.now,
        };
        if let Some((old, forgotten)) = self.mappings.insert(key, None, mapping) {
            self.inside.remove(&(forgotten.outside, old.far));
        }
        self.inside.insert((outside, key.far), key.near);
        outside
    }

    fn outwards(
        &mut self,
        way: Way,
        mut packet: Box<Packet>,
        view: &TcpView,
        key: FlowKey,
        desk: &mut Desk<'_>,
    ) {
        let begins = view.flags & (SYN | ACK) == SYN || self.spec.unknown == Unknown::Remap;
        let known = self.find(&key, desk.now);
        let outside = match known {
            Some(outside) => outside,
            None if begins && view.flags & RST == 0 => self.create(key, desk),
            None => return self.refuse(way, packet, view, desk),
        };
        readdress(packet.bytes_mut(), view.tcp, Party::Source, outside);
        view.fix_checksums(packet.bytes_mut());
        self.touched += 1;
        desk.forward(way, packet);
    }

    fn inwards(
        &mut self,
        way: Way,
        mut packet: Box<Packet>,
        view: &TcpView,
        outside: FlowKey,
        desk: &mut Desk<'_>,
    ) {
        let near = self.inside.get(&(outside.near, outside.far)).copied();
        let far = outside.far;
        let known = near.filter(|near| {
            let key = FlowKey { near: *near, far };
            self.find(&key, desk.now).is_some()
        });
        let Some(near) = known else {
            return self.refuse(way, packet, view, desk);
        };
        readdress(packet.bytes_mut(), view.tcp, Party::Destination, near);
        view.fix_checksums(packet.bytes_mut());
        self.touched += 1;
        desk.forward(way, packet);
    }

    fn refuse(&mut self, way: Way, packet: Box<Packet>, view: &TcpView, desk: &mut Desk<'_>) {
        self.touched += 1;
        if self.spec.unknown == Unknown::Reset && view.flags & RST == 0 {
            let bytes = packet.bytes();
            let end = SeqNum::new(view.seq(bytes)) + view.sequence_len();
            // RFC 9293 section 3.10.7.1: what a host without the connection would say.
            let numbers = match view.ack(bytes) {
                Some(ack) => Bare {
                    flags: RST,
                    seq: SeqNum::new(ack),
                    ack: SeqNum::new(0),
                    window: 0,
                },
                None => Bare {
                    flags: RST | ACK,
                    seq: SeqNum::new(0),
                    ack: end,
                    window: 0,
                },
            };
            if let Some(reset) = bare(desk.pool, bytes, view, true, numbers) {
                desk.forward(way.reversed(), reset);
            }
        }
        desk.drop(packet, "no translation");
    }

    /// An error from the outside about a packet that was translated.
    fn translate_error(&self, packet: &mut Packet) -> bool {
        let Some(quoted) = Quoted::of(packet.bytes()) else {
            return false;
        };
        let ends = (quoted.source, quoted.destination);
        let Some(near) = self.inside.get(&ends) else {
            return false;
        };
        quoted.set_source(packet.bytes_mut(), *near);
        true
    }
}

impl Middlebox for Nat {
    fn name(&self) -> &'static str {
        "nat"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let from_inside = way == self.spec.inside;
        let Some(view) = TcpView::of(packet.bytes()) else {
            if !from_inside && self.translate_error(&mut packet) {
                self.touched += 1;
            }
            return desk.forward(way, packet);
        };
        // In the key, `near` is always the inside.
        let seen_as = if from_inside { Way::Out } else { Way::In };
        match FlowKey::of(packet.bytes(), &view, seen_as) {
            Some(key) if from_inside => self.outwards(way, packet, &view, key, desk),
            Some(key) => self.inwards(way, packet, &view, key, desk),
            None => desk.forward(way, packet),
        }
    }

    fn touched(&self) -> u64 {
        self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::super::quoted::tests::{complaint, is_whole};
    use super::*;
    use crate::middlebox::bench::Bench;
    use crate::view::addresses;
    use crate::view::tests::{acking, packet, reversed};

    fn spec(unknown: Unknown) -> NatSpec {
        NatSpec {
            idle: Span(Duration::from_secs(10)),
            unknown,
            addresses: vec!["192.0.2.9".parse().unwrap(), "2001:db8::9".parse().unwrap()],
            ..NatSpec::default()
        }
    }

    fn source(bytes: &[u8]) -> SocketAddr {
        let view = TcpView::of(bytes).unwrap();
        let (source, _) = addresses(bytes).unwrap();
        SocketAddr::new(source, view.ports(bytes).0)
    }

    /// What the server sends to `to`, by hand.
    fn from_server(ipv6: bool, flags: u8, to: SocketAddr) -> Vec<u8> {
        let mut bytes = reversed(packet(ipv6, flags, 7, &[1; 4], b"data"));
        let view = TcpView::of(&bytes).unwrap();
        readdress(&mut bytes, view.tcp, Party::Destination, to);
        view.fix_checksums(&mut bytes);
        bytes
    }

    #[test]
    fn both_ways_are_translated_and_errors_too() {
        for (ipv6, outside_ip) in [(false, "192.0.2.9"), (true, "2001:db8::9")] {
            let mut bench = Bench::new(Nat::new(spec(Unknown::Drop)));
            let syn = packet(ipv6, SYN, 1, &[], b"");
            let out = bench.one(Way::Out, &syn).unwrap();
            let outside = source(&out);
            assert_eq!(outside.ip().to_string(), outside_ip);
            assert!(outside.port() >= FIRST_PORT);
            let again = bench.one(Way::Out, &packet(ipv6, ACK, 2, &[], b"x"));
            assert_eq!(source(&again.unwrap()), outside);
            let back = bench.one(Way::In, &from_server(ipv6, ACK, outside));
            let expected = reversed(packet(ipv6, ACK, 7, &[1; 4], b"data"));
            assert_eq!(back, Some(expected));
            // An error about what went out finds its way in.
            bench.expect_checksums = false;
            let error = bench.one(Way::In, &complaint(&out)).unwrap();
            assert!(is_whole(&error));
            assert_eq!(Quoted::of(&error).unwrap().source, source(&syn));
            assert_eq!(addresses(&error).unwrap().1, source(&syn).ip());
        }
    }

    #[test]
    fn other_connections_have_other_ports() {
        let mut bench = Bench::new(Nat::new(NatSpec::default()));
        let mut ports = std::collections::BTreeSet::new();
        for port in 0..2000u16 {
            let mut syn = packet(false, SYN, 1, &[], b"");
            crate::view::put_u16(&mut syn, 20, port);
            TcpView::of(&syn).unwrap().fix_checksums(&mut syn);
            let out = bench.one(Way::Out, &syn).unwrap();
            assert_eq!(addresses(&out), addresses(&syn));
            ports.insert(source(&out).port());
        }
        assert_eq!(ports.len(), 2000);
        // It forgets the oldest, with both directions.
        assert_eq!(bench.middlebox.mappings.len(), USUAL_FLOWS);
        assert_eq!(bench.middlebox.inside.len(), USUAL_FLOWS);
    }

    #[test]
    fn what_is_silent_too_long_is_forgotten() {
        for (unknown, inside, outside_answers) in [
            (Unknown::Drop, vec![], 0),
            (Unknown::Reset, vec![Way::In], 1),
            (Unknown::Remap, vec![Way::Out], 0),
        ] {
            let mut bench = Bench::new(Nat::new(spec(unknown)));
            let outside = source(
                &bench
                    .one(Way::Out, &packet(false, SYN, 1, &[], b""))
                    .unwrap(),
            );
            for seconds in [9, 18, 27] {
                bench.now = Instant::from_secs(seconds);
                assert!(
                    bench
                        .one(Way::In, &from_server(false, ACK, outside))
                        .is_some()
                );
            }
            bench.now = Instant::from_secs(38);
            let answers = bench.pass(Way::In, &from_server(false, ACK, outside));
            assert_eq!(answers.len(), outside_answers, "{unknown:?}");
            let data = acking(packet(false, ACK, 2, &[], b"data"), 55);
            let out = bench.pass(Way::Out, &data);
            let ways: Vec<Way> = out.iter().map(|(way, _)| *way).collect();
            assert_eq!(ways, inside, "{unknown:?}");
            match unknown {
                Unknown::Reset => {
                    let view = TcpView::of(&out[0].1).unwrap();
                    assert_eq!((view.flags, view.seq(&out[0].1)), (RST, 55));
                }
                Unknown::Remap => assert_ne!(source(&out[0].1), outside),
                Unknown::Drop => {}
            }
            // A SYN always begins again.
            assert!(
                bench
                    .one(Way::Out, &packet(false, SYN, 9, &[], b""))
                    .is_some()
            );
            assert_eq!(bench.kept(), 0);
        }
    }

    #[test]
    fn strangers_do_not_come_in_and_the_inside_may_be_the_far_side() {
        let mut bench = Bench::new(Nat::new(NatSpec {
            inside: Way::In,
            ..spec(Unknown::Reset)
        }));
        let out = bench.one(Way::In, &packet(true, SYN, 1, &[], b"")).unwrap();
        let reply = from_server(true, SYN | ACK, source(&out));
        assert!(bench.one(Way::Out, &reply).is_some());
        let stranger = packet(true, SYN, 5, &[], b"");
        let answer = bench.pass(Way::Out, &stranger);
        let view = TcpView::of(&answer[0].1).unwrap();
        assert_eq!(
            (answer.len(), answer[0].0, view.flags),
            (1, Way::In, RST | ACK)
        );
        assert_eq!(view.ack(&answer[0].1), Some(6));
    }
}
