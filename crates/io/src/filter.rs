//! The classic BPF program of a packet socket: only frames for us reach it.
//!
//! Owns the translation from "our addresses and ports" to instructions. Frames that the kernel does not deliver cost us
//! nothing, so everything that can be decided from fixed offsets is decided here. Fragments and packets with extension headers are
//! for the stack: which port they are for stands in the first piece alone, or at no fixed place.

use crate::neigh::{ETHERNET_LEN, EtherType};
use crate::sys::filter::Insn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// What to let through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Addresses that are ours alone, with all their ports.
    pub owned: Vec<IpAddr>,
    /// Addresses that we share with the host.
    pub shared: Vec<IpAddr>,
    /// Local TCP ports that are ours on shared addresses.
    pub ports: Vec<RangeInclusive<u16>>,
}

const LD_H_ABS: u16 = 0x28;
const LD_W_ABS: u16 = 0x20;
const LD_B_ABS: u16 = 0x30;
const LD_H_IND: u16 = 0x48;
const LDX_MSH: u16 = 0xb1;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const JGT: u16 = 0x25;
const JSET: u16 = 0x45;
const JA: u16 = 0x05;
const RET: u16 = 0x06;

const ETHERTYPE_AT: u32 = 12;
const PROTO_ICMP: u32 = 1;
const PROTO_TCP: u32 = 6;
const PROTO_ICMPV6: u32 = 58;
/// "More fragments" and the offset, in the fragment field of IPv4.
const FRAGMENTED: u32 = 0x3fff;
/// Headers of IPv6 behind which TCP may come: hop-by-hop options, routing, destination options, and fragment.
const EXTENSIONS: [u32; 3] = [0, 43, 60];
const FRAGMENT: u32 = 44;
const WHOLE: u32 = 0x0004_0000;

/// Where a jump goes; resolved when the program is complete. Classic BPF jumps forward only, and conditional ones at most
/// 255 instructions far, so conditions only skip the next instruction and long ways are unconditional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label(usize);

#[derive(Debug, Default)]
struct Program {
    code: Vec<Insn>,
    jumps: Vec<(usize, Label)>,
    places: Vec<Option<usize>>,
}

impl Program {
    fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.code.len());
    }

    fn push(&mut self, code: u16, k: u32) {
        self.code.push(Insn {
            code,
            jt: 0,
            jf: 0,
            k,
        });
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.push(JA, 0);
    }

    /// Goes to `to` if the condition holds, otherwise on.
    fn jump_if(&mut self, code: u16, k: u32, to: Label) {
        self.code.push(Insn {
            code,
            jt: 0,
            jf: 1,
            k,
        });
        self.jump(to);
    }

    /// Goes to `to` unless the condition holds.
    fn jump_unless(&mut self, code: u16, k: u32, to: Label) {
        self.code.push(Insn {
            code,
            jt: 1,
            jf: 0,
            k,
        });
        self.jump(to);
    }

    fn finish(mut self) -> Vec<Insn> {
        for (at, label) in &self.jumps {
            let target = self.places[label.0].expect("every label is placed before finish");
            self.code[*at].k = (target - at - 1) as u32;
        }
        self.code
    }
}

fn v4(addrs: &[IpAddr]) -> impl Iterator<Item = Ipv4Addr> {
    addrs.iter().filter_map(|addr| match addr {
        IpAddr::V4(addr) => Some(*addr),
        IpAddr::V6(_) => None,
    })
}

fn v6(addrs: &[IpAddr]) -> impl Iterator<Item = Ipv6Addr> {
    addrs.iter().filter_map(|addr| match addr {
        IpAddr::V6(addr) => Some(*addr),
        IpAddr::V4(_) => None,
    })
}

/// Where the kernel lets programs read what a packet is, as an Ethernet type (`SKF_AD_OFF + SKF_AD_PROTOCOL`).
const PROTOCOL_AT: u32 = 0xffff_f000;
/// Where the kernel lets programs read the index of the interface that a packet came by (`SKF_AD_OFF + SKF_AD_IFINDEX`).
const IFINDEX_AT: u32 = 0xffff_f008;

/// A program for any socket: nothing that arrives by one of these interfaces, everything else whole.
pub(crate) fn not_by(interfaces: &[u32]) -> Vec<Insn> {
    let mut p = Program::default();
    let reject = p.label();
    p.push(LD_W_ABS, IFINDEX_AT);
    for index in interfaces {
        p.jump_if(JEQ, *index, reject);
    }
    p.push(RET, WHOLE);
    p.place(reject);
    p.push(RET, 0);
    p.finish()
}

impl Filter {
    /// The program for Ethernet: 0 = not for us, otherwise the whole frame.
    pub(crate) fn compile(&self) -> Vec<Insn> {
        self.compile_at(ETHERNET_LEN as u32)
    }

    /// The same for links without a header, where packets begin with IP.
    pub(crate) fn compile_bare(&self) -> Vec<Insn> {
        self.compile_at(0)
    }

    /// With the IP header that far from the beginning.
    fn compile_at(&self, ip_at: u32) -> Vec<Insn> {
        let mut p = Program::default();
        let (accept, reject) = (p.label(), p.label());
        let v6 = p.label();
        if ip_at == 0 {
            p.push(LD_W_ABS, PROTOCOL_AT);
        } else {
            p.push(LD_H_ABS, ETHERTYPE_AT);
            p.jump_if(JEQ, u32::from(EtherType::ARP.0), accept);
        }
        p.jump_if(JEQ, u32::from(EtherType::IPV6.0), v6);
        p.jump_unless(JEQ, u32::from(EtherType::IPV4.0), reject);
        self.compile_v4(&mut p, ip_at, accept, reject);
        p.place(v6);
        self.compile_v6(&mut p, ip_at, accept, reject);
        p.place(accept);
        p.push(RET, WHOLE);
        p.place(reject);
        p.push(RET, 0);
        p.finish()
    }

    fn compile_v4(&self, p: &mut Program, ip_at: u32, accept: Label, reject: Label) {
        let (owned, shared) = (p.label(), p.label());
        p.push(LD_W_ABS, ip_at + 16);
        for (addrs, kind) in [(&self.owned, owned), (&self.shared, shared)] {
            for addr in v4(addrs) {
                p.jump_if(JEQ, u32::from(addr), kind);
            }
        }
        p.jump(reject);
        p.place(owned);
        p.push(LD_B_ABS, ip_at + 9);
        p.jump_if(JEQ, PROTO_ICMP, accept);
        p.jump_if(JEQ, PROTO_TCP, accept);
        p.jump(reject);
        p.place(shared);
        p.push(LD_B_ABS, ip_at + 9);
        p.jump_if(JEQ, PROTO_ICMP, accept);
        p.jump_unless(JEQ, PROTO_TCP, reject);
        p.push(LD_H_ABS, ip_at + 6);
        p.jump_if(JSET, FRAGMENTED, accept);
        p.push(LDX_MSH, ip_at);
        p.push(LD_H_IND, ip_at + 2);
        self.compile_ports(p, accept, reject);
    }

    fn compile_v6(&self, p: &mut Program, ip_at: u32, accept: Label, reject: Label) {
        let (shared, fragment) = (p.label(), p.label());
        p.push(LD_B_ABS, ip_at + 6);
        // Neighbour discovery goes to multicast groups and unicast alike; the cache checks it.
        p.jump_if(JEQ, PROTO_ICMPV6, accept);
        // Of what is for an address that is ours alone, the stack tells the sender if it does not know a header (RFC 8200
        // section 4).
        let owned = v6(&self.owned).map(|addr| (addr, accept));
        let all = owned.chain(v6(&self.shared).map(|addr| (addr, shared)));
        for (addr, kind) in all {
            let next = p.label();
            for (i, word) in addr.octets().chunks_exact(4).enumerate() {
                let value = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
                p.push(LD_W_ABS, ip_at + 24 + 4 * i as u32);
                p.jump_unless(JEQ, value, next);
            }
            p.jump(kind);
            p.place(next);
        }
        p.jump(reject);
        p.place(shared);
        p.push(LD_B_ABS, ip_at + 6);
        for extension in EXTENSIONS {
            p.jump_if(JEQ, extension, accept);
        }
        p.jump_if(JEQ, FRAGMENT, fragment);
        p.jump_unless(JEQ, PROTO_TCP, reject);
        p.push(LD_H_ABS, ip_at + 40 + 2);
        self.compile_ports(p, accept, reject);
        p.place(fragment);
        // What the fragment header says that follows.
        p.push(LD_B_ABS, ip_at + 40);
        for next in EXTENSIONS.into_iter().chain([PROTO_TCP]) {
            p.jump_if(JEQ, next, accept);
        }
        p.jump(reject);
    }

    /// With the destination port in the accumulator.
    fn compile_ports(&self, p: &mut Program, accept: Label, reject: Label) {
        for range in &self.ports {
            let next = p.label();
            p.jump_unless(JGE, u32::from(*range.start()), next);
            p.jump_if(JGT, u32::from(*range.end()), next);
            p.jump(accept);
            p.place(next);
        }
        p.jump(reject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference interpreter for the instructions we use, so the program is tested without a kernel.
    fn run(program: &[Insn], frame: &[u8]) -> u32 {
        let load = |at: usize, n: usize| -> Option<u32> {
            if at == PROTOCOL_AT as usize {
                let ethernet = if frame[0] >> 4 == 6 {
                    EtherType::IPV6
                } else {
                    EtherType::IPV4
                };
                return Some(ethernet.0.into());
            }
            frame
                .get(at..at + n)
                .map(|b| b.iter().fold(0, |v, b| v << 8 | u32::from(*b)))
        };
        let (mut a, mut x, mut pc) = (0u32, 0u32, 0usize);
        loop {
            let i = program[pc];
            pc += 1;
            let value = match i.code {
                LD_H_ABS => load(i.k as usize, 2),
                LD_W_ABS => load(i.k as usize, 4),
                LD_B_ABS => load(i.k as usize, 1),
                LD_H_IND => load((i.k + x) as usize, 2),
                LDX_MSH => {
                    match load(i.k as usize, 1) {
                        Some(b) => x = (b & 15) * 4,
                        None => return 0,
                    }
                    continue;
                }
                JA => {
                    pc += i.k as usize;
                    continue;
                }
                JEQ | JGE | JGT | JSET => {
                    let holds = match i.code {
                        JEQ => a == i.k,
                        JSET => a & i.k != 0,
                        JGE => a >= i.k,
                        _ => a > i.k,
                    };
                    pc += usize::from(if holds { i.jt } else { i.jf });
                    continue;
                }
                RET => return i.k,
                other => unreachable!("instruction {other:#x} is not used"),
            };
            match value {
                Some(v) => a = v,
                None => return 0,
            }
        }
    }

    fn v4(dst: [u8; 4], proto: u8, port: u16, options: usize) -> Vec<u8> {
        let mut f = vec![0; 14 + 20 + options + 20];
        f[12..14].copy_from_slice(&[8, 0]);
        f[14] = 0x45 + (options / 4) as u8;
        f[14 + 9] = proto;
        f[14 + 16..14 + 20].copy_from_slice(&dst);
        let at = 14 + 20 + options + 2;
        f[at..at + 2].copy_from_slice(&port.to_be_bytes());
        f
    }

    fn v6(dst: &str, proto: u8, port: u16) -> Vec<u8> {
        let mut f = vec![0; 14 + 40 + 20];
        f[12..14].copy_from_slice(&[0x86, 0xdd]);
        f[14 + 6] = proto;
        let dst: Ipv6Addr = dst.parse().expect("a literal");
        f[14 + 24..14 + 40].copy_from_slice(&dst.octets());
        f[14 + 42..14 + 44].copy_from_slice(&port.to_be_bytes());
        f
    }

    #[test]
    fn shared_address_delivers_only_our_ports() {
        let program = Filter {
            owned: vec![
                "10.0.0.9".parse().expect("a literal"),
                "fd00::9".parse().expect("a literal"),
            ],
            shared: vec![
                "10.0.0.1".parse().expect("a literal"),
                "10.0.0.2".parse().expect("a literal"),
                "fd00::5".parse().expect("a literal"),
                "fd00::7".parse().expect("a literal"),
            ],
            ports: vec![80..=80, 40000..=49999],
        }
        .compile();
        let yes = |f: &[u8]| run(&program, f) != 0;
        for port in [80, 40000, 45000, 49999] {
            assert!(yes(&v4([10, 0, 0, 2], 6, port, 0)));
            assert!(yes(&v4([10, 0, 0, 1], 6, port, 8)));
            assert!(yes(&v6("fd00::7", 6, port)));
        }
        for port in [79, 81, 39999, 50000, 0] {
            assert!(!yes(&v4([10, 0, 0, 2], 6, port, 0)));
            assert!(!yes(&v6("fd00::5", 6, port)));
        }
        for port in [80, 1, 50000] {
            assert!(
                yes(&v4([10, 0, 0, 9], 6, port, 0)),
                "all ports of what is ours alone"
            );
            assert!(yes(&v6("fd00::9", 6, port)));
        }
        assert!(!yes(&v4([10, 0, 0, 9], 17, 80, 0)));
        assert!(!yes(&v4([10, 0, 0, 3], 6, 80, 0)));
        assert!(!yes(&v6("fd00::6", 6, 80)));
        assert!(!yes(&v4([10, 0, 0, 1], 17, 80, 0)));
        assert!(yes(&v4([10, 0, 0, 1], 1, 0, 0)));
        assert!(yes(&v6("ff02::1:ff00:5", 58, 0)));
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!(yes(&arp));
        assert!(!yes(&arp[..13]));
    }

    #[test]
    fn fragments_and_extension_headers_are_for_the_stack() {
        let program = Filter {
            owned: vec!["fd00::9".parse().expect("a literal")],
            shared: vec![
                "10.0.0.1".parse().expect("a literal"),
                "fd00::5".parse().expect("a literal"),
            ],
            ports: vec![80..=80],
        }
        .compile();
        let yes = |f: &[u8]| run(&program, f) != 0;
        for (place, ours) in [(0x2000, true), (3, true), (0x4000, false), (0, false)] {
            let mut frame = v4([10, 0, 0, 1], 6, 7, 0);
            frame[20..22].copy_from_slice(&u16::to_be_bytes(place));
            assert_eq!(yes(&frame), ours, "{place:#x}");
            frame[23] = 17;
            assert!(!yes(&frame), "of UDP");
        }
        for next in [0, 43, 60] {
            assert!(yes(&v6("fd00::5", next, 7)));
            assert!(!yes(&v6("fd00::6", next, 7)));
        }
        for (next, ours) in [(6, true), (60, true), (17, false)] {
            let mut frame = v6("fd00::5", 44, 7);
            frame[54] = next;
            assert_eq!(yes(&frame), ours, "{next}");
        }
        for next in [17, 51] {
            assert!(yes(&v6("fd00::9", next, 7)));
            assert!(!yes(&v6("fd00::5", next, 7)));
        }
    }

    #[test]
    fn owned_address_delivers_every_port() {
        let program = Filter {
            owned: vec!["10.0.0.1".parse().expect("a literal")],
            ..Filter::default()
        }
        .compile();
        assert!(run(&program, &v4([10, 0, 0, 1], 6, 1, 0)) != 0);
        assert!(run(&program, &v4([10, 0, 0, 2], 6, 1, 0)) == 0);
    }

    #[test]
    fn without_a_link_header_it_is_the_same() {
        let filter = Filter {
            shared: vec![
                "10.0.0.2".parse().expect("a literal"),
                "fd00::7".parse().expect("a literal"),
            ],
            ports: vec![80..=80],
            ..Filter::default()
        };
        let (ethernet, bare) = (filter.compile(), filter.compile_bare());
        for frame in [
            v4([10, 0, 0, 2], 6, 80, 0),
            v4([10, 0, 0, 2], 6, 80, 8),
            v4([10, 0, 0, 2], 6, 81, 0),
            v4([10, 0, 0, 2], 1, 0, 0),
            v4([10, 0, 0, 3], 6, 80, 0),
            v6("fd00::7", 6, 80),
            v6("fd00::7", 6, 81),
            v6("fd00::8", 6, 80),
        ] {
            let mut packet = frame[ETHERNET_LEN..].to_vec();
            packet[0] |= if frame[12..14] == [8, 0] { 0x40 } else { 0x60 };
            assert_eq!(run(&bare, &packet), run(&ethernet, &frame));
        }
    }

    #[test]
    fn many_addresses_stay_within_the_jump_range() {
        let addrs = (0..200u32)
            .map(|i| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + i)))
            .chain((0..64u16).map(|i| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, i))))
            .collect();
        let program = Filter {
            owned: Vec::new(),
            shared: addrs,
            ports: vec![1000..=2000],
        }
        .compile();
        assert!(program.len() <= 4096, "the kernel's limit (BPF_MAXINSNS)");
        assert!(run(&program, &v4([10, 0, 0, 199], 6, 1500, 0)) != 0);
        assert!(run(&program, &v4([10, 0, 0, 200], 6, 1500, 0)) == 0);
        assert!(run(&program, &v6("fd00::3f", 6, 1500)) != 0);
    }
}
