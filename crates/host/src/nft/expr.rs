//! What rules are made of. Every load goes to the first register unless said otherwise.

use super::message::Attributes;
use std::net::IpAddr;

const META_PROTOCOL: u32 = 1;
const META_MARK: u32 = 3;
const META_IIFNAME: u32 = 6;
const META_OIFNAME: u32 = 7;
const META_NFPROTO: u32 = 15;
const META_L4PROTO: u32 = 16;
const BASE_NETWORK: u32 = 1;
const BASE_TRANSPORT: u32 = 2;
/// `NFT_REG_1`: sixteen bytes.
const REGISTER: u32 = 1;
/// `NFT_REG32_00`: the same bytes in words of four.
const WORDS: u32 = 8;
const IFNAMSIZ: usize = 16;
const TCP: u8 = 6;
/// The kind of the Multipath TCP option, and what the first half of its third byte says of joins (RFC 8684 section 3.2).
const OPTION_MPTCP: u8 = 30;
const MP_JOIN: u8 = 1 << 4;

const EQ: u32 = 0;
const NEQ: u32 = 1;
const LTE: u32 = 3;
const GTE: u32 = 5;

/// `NF_DROP` and `NF_ACCEPT`.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// One rule: its expressions in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule(Attributes);

/// Which end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

impl Rule {
    fn push(self, name: &str, data: Attributes) -> Self {
        let element = Attributes::default().text(1, name).nested(2, data);
        Rule(self.0.nested(1, element))
    }

    /// The expressions as an attribute's content.
    pub(crate) fn into_attributes(self) -> Attributes {
        self.0
    }

    fn meta(self, key: u32) -> Self {
        self.push(
            "meta",
            Attributes::default().number(1, REGISTER).number(2, key),
        )
    }

    fn payload(self, register: u32, base: u32, offset: u32, length: u32) -> Self {
        let data = Attributes::default()
            .number(1, register)
            .number(2, base)
            .number(3, offset)
            .number(4, length);
        self.push("payload", data)
    }

    fn compare(self, how: u32, value: &[u8]) -> Self {
        let data = Attributes::default()
            .number(1, REGISTER)
            .number(2, how)
            .nested(3, Attributes::default().bytes(1, value));
        self.push("cmp", data)
    }

    /// In a netdev table: the packet is of this family.
    pub(crate) fn ethertype(self, ipv6: bool) -> Self {
        let kind: u16 = if ipv6 { 0x86dd } else { 0x0800 };
        self.meta(META_PROTOCOL).compare(EQ, &kind.to_be_bytes())
    }

    /// In an inet table: the packet is of this family.
    pub(crate) fn family(self, ipv6: bool) -> Self {
        let kind: u8 = if ipv6 { 10 } else { 2 };
        self.meta(META_NFPROTO).compare(EQ, &[kind])
    }

    /// It came by this interface.
    pub(crate) fn incoming(self, name: &str) -> Self {
        self.meta(META_IIFNAME).compare(EQ, &interface(name))
    }

    /// It leaves by this interface.
    pub(crate) fn outgoing(self, name: &str) -> Self {
        self.meta(META_OIFNAME).compare(EQ, &interface(name))
    }

    /// An address of it; the family has been asked for already.
    pub(crate) fn address(self, end: End, addr: IpAddr) -> Self {
        let (offset, length) = address_at(end, addr.is_ipv6());
        let rule = self.payload(REGISTER, BASE_NETWORK, offset, length);
        match addr {
            IpAddr::V4(a) => rule.compare(EQ, &a.octets()),
            IpAddr::V6(a) => rule.compare(EQ, &a.octets()),
        }
    }

    /// It is TCP. Later fragments, which carry no ports, do not match what follows.
    pub(crate) fn tcp(self) -> Self {
        self.meta(META_L4PROTO).compare(EQ, &[TCP])
    }

    /// Its destination port; that it is TCP has been asked for already.
    pub(crate) fn port(self, low: u16, high: u16) -> Self {
        let rule = self.payload(REGISTER, BASE_TRANSPORT, 2, 2);
        if low == high {
            return rule.compare(EQ, &low.to_be_bytes());
        }
        rule.compare(GTE, &low.to_be_bytes())
            .compare(LTE, &high.to_be_bytes())
    }

    /// TCP follows the IP header directly, and all of it is there: no fragment, and no IPv6 extension header. Elsewhere a rule
    /// would have to look for the ports at no fixed place, and the kernel has still to say what is wrong with those headers.
    pub(crate) fn plain_tcp(self, ipv6: bool) -> Self {
        /// "More fragments" and the offset, in the fragment field of IPv4.
        const FRAGMENTED: [u8; 2] = [0x3f, 0xff];
        if ipv6 {
            return self
                .payload(REGISTER, BASE_NETWORK, 6, 1)
                .compare(EQ, &[TCP])
                .tcp();
        }
        self.payload(REGISTER, BASE_NETWORK, 6, 2)
            .masked(&FRAGMENTED)
            .compare(EQ, &[0, 0])
            .tcp()
    }

    /// What was loaded, without the bits outside of `mask`.
    fn masked(self, mask: &[u8]) -> Self {
        let value = |bytes: &[u8]| Attributes::default().bytes(1, bytes);
        let data = Attributes::default()
            .number(1, REGISTER)
            .number(2, REGISTER)
            .number(3, mask.len() as u32)
            .nested(4, value(mask))
            .nested(5, value(&vec![0; mask.len()]));
        self.push("bitwise", data)
    }

    /// It is a reset; that it is TCP has been asked for already.
    pub(crate) fn resets(self) -> Self {
        const RST: [u8; 1] = [4];
        self.payload(REGISTER, BASE_TRANSPORT, 13, 1)
            .masked(&RST)
            .compare(EQ, &RST)
    }

    /// Its source port; that it is TCP has been asked for already.
    pub(crate) fn source_port(self, port: u16) -> Self {
        self.payload(REGISTER, BASE_TRANSPORT, 0, 2)
            .compare(EQ, &port.to_be_bytes())
    }

    /// It carries MP_JOIN.
    pub(crate) fn joins(self) -> Self {
        /// `NFT_EXTHDR_OP_TCPOPT`.
        const TCP_OPTION: u32 = 1;
        let option = Attributes::default()
            .number(1, REGISTER)
            .bytes(2, &[OPTION_MPTCP])
            .number(3, 2)
            .number(4, 1)
            .number(6, TCP_OPTION);
        self.push("exthdr", option)
            .masked(&[0xf0])
            .compare(EQ, &[MP_JOIN])
    }

    /// Its four-tuple (the remote end, its port, the local end, its port) is in the set. `remote` says which end that is.
    pub(crate) fn four_tuple_in(self, set: &str, ipv6: bool, remote: End) -> Self {
        let words = if ipv6 { 4 } else { 1 };
        let (source, destination) = ((End::Source, 0), (End::Destination, 2));
        let ((far, far_port), (near, near_port)) = match remote {
            End::Source => (source, destination),
            End::Destination => (destination, source),
        };
        let (far, length) = address_at(far, ipv6);
        let (near, _) = address_at(near, ipv6);
        self.payload(WORDS, BASE_NETWORK, far, length)
            .payload(WORDS + words, BASE_TRANSPORT, far_port, 2)
            .payload(WORDS + words + 1, BASE_NETWORK, near, length)
            .payload(WORDS + 2 * words + 1, BASE_TRANSPORT, near_port, 2)
            .push(
                "lookup",
                Attributes::default().text(1, set).number(2, WORDS),
            )
    }

    /// An address of it is in this network; the family has been asked for already.
    pub(crate) fn network(self, end: End, addr: IpAddr, prefix: u8) -> Self {
        let (offset, length) = address_at(end, addr.is_ipv6());
        let mask = match addr {
            IpAddr::V4(_) => leading_ones(prefix).to_be_bytes()[..4].to_vec(),
            IpAddr::V6(_) => leading_ones(prefix).to_be_bytes().to_vec(),
        };
        let bytes = match addr {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        let network: Vec<u8> = bytes.iter().zip(&mask).map(|(a, m)| a & m).collect();
        self.payload(REGISTER, BASE_NETWORK, offset, length)
            .masked(&mask)
            .compare(EQ, &network)
    }

    /// It is for no address of this host.
    pub(crate) fn passes_through(self) -> Self {
        /// `NFTA_FIB_F_DADDR`, `NFT_FIB_RESULT_ADDRTYPE`, and `RTN_LOCAL`.
        const DESTINATION: u32 = 2;
        const TYPE: u32 = 3;
        const LOCAL: u32 = 2;
        let fib = Attributes::default()
            .number(1, REGISTER)
            .number(2, TYPE)
            .number(3, DESTINATION);
        self.push("fib", fib).compare(NEQ, &LOCAL.to_ne_bytes())
    }

    /// A connection of this host whose own end is an address that the host does not have (`IP_TRANSPARENT`). Listeners on every address do
    /// not count: each port of theirs would be taken for all hosts (Linux 5.10).
    pub(crate) fn of_foreign_socket(self) -> Self {
        const TRANSPARENT: u32 = 0;
        const WILDCARD: u32 = 2;
        let socket = |key| Attributes::default().number(1, key).number(2, REGISTER);
        self.push("socket", socket(WILDCARD))
            .compare(EQ, &[0])
            .push("socket", socket(TRANSPARENT))
            .compare(EQ, &[1])
    }

    /// Its connection goes to this port of the address by which it came (REDIRECT).
    pub(crate) fn redirect(self, port: u16) -> Self {
        /// `NF_NAT_RANGE_PROTO_SPECIFIED`.
        const PORT: u32 = 2;
        let redirect = Attributes::default()
            .number(1, REGISTER)
            .number(2, REGISTER)
            .number(3, PORT);
        self.load(&port.to_be_bytes()).push("redir", redirect)
    }

    /// It goes to the connection that it belongs to, or to who listens on this port of the host and takes any destination (TPROXY). The
    /// rule ends here where there is neither.
    pub(crate) fn hand_to(self, port: u16) -> Self {
        // Of both families.
        let tproxy = Attributes::default().number(1, 0).number(3, REGISTER);
        self.load(&port.to_be_bytes()).push("tproxy", tproxy)
    }

    /// It gets this mark, and goes on.
    pub(crate) fn mark(self, mark: u32) -> Self {
        let set = Attributes::default()
            .number(2, META_MARK)
            .number(3, REGISTER);
        self.load(&mark.to_ne_bytes()).push("meta", set)
    }

    fn load(self, value: &[u8]) -> Self {
        let value = Attributes::default().bytes(1, value);
        self.push(
            "immediate",
            Attributes::default().number(1, REGISTER).nested(2, value),
        )
    }

    /// It is dropped.
    pub(crate) fn drop(self) -> Self {
        self.verdict(DROP)
    }

    /// No later rule of the chain is asked.
    pub(crate) fn accept(self) -> Self {
        self.verdict(ACCEPT)
    }

    fn verdict(self, verdict: u32) -> Self {
        let verdict = Attributes::default().nested(2, Attributes::default().number(1, verdict));
        self.push(
            "immediate",
            Attributes::default().number(1, 0).nested(2, verdict),
        )
    }

    /// This end of it is translated to `addr`.
    pub(crate) fn translate(self, end: End, addr: IpAddr) -> Self {
        let octets = match addr {
            IpAddr::V4(a) => a.octets().to_vec(),
            IpAddr::V6(a) => a.octets().to_vec(),
        };
        let (kind, family) = (
            u32::from(end == End::Destination),
            if addr.is_ipv6() { 10 } else { 2 },
        );
        let nat = Attributes::default()
            .number(1, kind)
            .number(2, family)
            .number(3, REGISTER);
        self.load(&octets).push("nat", nat)
    }
}

fn address_at(end: End, ipv6: bool) -> (u32, u32) {
    match (end, ipv6) {
        (End::Source, false) => (12, 4),
        (End::Destination, false) => (16, 4),
        (End::Source, true) => (8, 16),
        (End::Destination, true) => (24, 16),
    }
}

/// A number of 128 bits whose first ones are set.
fn leading_ones(count: u8) -> u128 {
    u128::MAX
        .checked_shl(128 - u32::from(count.min(128)))
        .unwrap_or_default()
}

/// A name as the kernel keeps it: cut, filled with zeros.
fn interface(name: &str) -> [u8; IFNAMSIZ] {
    let mut bytes = [0; IFNAMSIZ];
    for (to, from) in bytes.iter_mut().take(IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from;
    }
    bytes
}
