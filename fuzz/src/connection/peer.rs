//! What the peer knows: keys, numbers, subflows, and how to say each thing as it should be said.

use std::net::{IpAddr, SocketAddr};

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::crypto::mac::{JoinMac, Keys};
use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{ConnOptions, ConnectOptions, ListenOptions, Stack};
use manypath_tcp::time::Instant;
use manypath_testkit::{addr, header, packet};
use manypath_wire::checksum::Sum;
use manypath_wire::dsn::Dsn;
use manypath_wire::ids::{AddrId, FourTuple, Key, Mss, Nonce, Token};
use manypath_wire::segment::Segment;
use manypath_wire::seq::{SeqNum, Ssn};
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::layout::{Fitted, Prefer, Wanted, fit};
use manypath_wire::tcp::mptcp::{Capable, CapableKeys, DataAck, Dss, Join, MptcpOption};
use manypath_wire::tcp::options::Options;

/// The server's port on either side.
pub(super) const PORT: u16 = 80;
/// The peer's key and nonce.
const KEY: Key = Key([0xdb, 0xb7, 0x60, 0xdb, 0x1d, 0x55, 0xe0, 0x7b]);
const NONCE: Nonce = Nonce(0x0102_0304);
/// Subflows that the peer keeps in mind.
const MOST_FLOWS: usize = 12;

/// The stack's address on a path.
pub(super) fn ours(path: u8) -> IpAddr {
    addr(1, path)
}

/// The peer's address and a port on a path.
pub(super) fn theirs(path: u8, port: u16) -> SocketAddr {
    SocketAddr::new(addr(2, path), port)
}

/// Byte number `at` of the peer's stream.
pub(super) fn pattern(at: u64) -> u8 {
    // The top byte of a product; the rest does not matter.
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// The peer's end of a subflow.
pub(super) struct Flow {
    /// As the stack sees it.
    pub(super) tuple: FourTuple,
    pub(super) path: u8,
    pub(super) isn: SeqNum,
    /// The stack's initial number.
    pub(super) irs: SeqNum,
    /// The peer's next number, and the stack's.
    pub(super) nxt: SeqNum,
    pub(super) rcv: SeqNum,
    /// The stack's SYN or SYN/ACK, as far as joins need it.
    join: Option<Join>,
    /// Which numbers have carried which part of the stream.
    carried: Vec<Carried>,
}

/// Numbers of a subflow, and how far before them the bytes are that they carried.
struct Carried {
    from: SeqNum,
    len: u32,
    shift: u64,
}

impl Flow {
    /// Notes which part of the stream a segment carries. False if the same numbers have carried another one: of such a
    /// subflow nobody can say what it delivers.
    pub(super) fn carries(&mut self, from: SeqNum, len: u32, at: u64) -> bool {
        let place = |number: SeqNum| u64::from(number.since(self.isn));
        let shift = at.wrapping_sub(place(from));
        let meets = |other: &Carried| {
            from.diff(other.from + other.len) < 0 && other.from.diff(from + len) < 0
        };
        let same = self
            .carried
            .iter()
            .all(|other| !meets(other) || other.shift == shift);
        self.carried.push(Carried { from, len, shift });
        same
    }
}

/// A host that speaks to the stack.
pub(super) struct Peer {
    pub(super) flows: Vec<Flow>,
    pub(super) own: KeyMaterial,
    /// The stack's.
    pub(super) other: Option<KeyMaterial>,
    pub(super) checksum: bool,
    /// The next byte of the peer's stream, and of the stack's that it has not acknowledged.
    pub(super) next: u64,
    pub(super) heard: u64,
    /// Everything so far was mapped as it should be.
    pub(super) honest: bool,
    calls: u16,
    /// SYNs of the stack that wait for an answer.
    syns: Vec<usize>,
}

impl Peer {
    pub(super) fn new(checksum: bool) -> Self {
        Self {
            flows: Vec::new(),
            own: KeyMaterial::derive(KEY),
            other: None,
            checksum,
            next: 0,
            heard: 0,
            honest: true,
            calls: 0,
            syns: Vec::new(),
        }
    }

    pub(super) fn listen(&mut self, stack: &mut Stack, conn: ConnOptions) -> ListenerId {
        let addr = SocketAddr::from(([0, 0, 0, 0], PORT));
        let opts = ListenOptions {
            addr,
            backlog: 8,
            conn,
        };
        stack.listen(opts).expect("the port is free")
    }

    pub(super) fn connect(&mut self, stack: &mut Stack, now: Instant, conn: ConnOptions) -> ConnId {
        let opts = ConnectOptions {
            remote: theirs(0, PORT),
            local: None,
            conn,
        };
        stack.connect(now, opts).expect("a path leads there")
    }

    /// The stack's numbers; the peer's own before it knows them, which are as good as any.
    fn other(&self) -> &KeyMaterial {
        self.other.as_ref().unwrap_or(&self.own)
    }

    /// The number of a byte of the stack's stream.
    pub(super) fn other_dsn(&self, at: u64) -> Dsn {
        self.other().first_byte() + at
    }

    /// The number of a byte of the peer's stream.
    pub(super) fn own_dsn(&self, at: u64) -> Dsn {
        self.own.first_byte() + at
    }

    /// The stack's key first.
    pub(super) fn keys(&self) -> Keys {
        Keys {
            sender: self.other().key(),
            receiver: self.own.key(),
        }
    }

    pub(super) fn token(&self) -> Token {
        self.other().token
    }

    fn capable(&self, keys: CapableKeys) -> MptcpOption {
        MptcpOption::Capable(Capable::v1(self.checksum, keys))
    }

    fn add_flow(&mut self, tuple: FourTuple, path: u8) -> usize {
        let isn = SeqNum::new(0xffff_fe00) + u32::from(self.calls) * 7;
        self.calls += 1;
        if self.flows.len() == MOST_FLOWS {
            self.flows.remove(1);
            self.syns.retain(|at| *at != 1);
            for at in self.syns.iter_mut().filter(|at| **at > 1) {
                *at -= 1;
            }
        }
        self.flows.push(Flow {
            tuple,
            path,
            isn,
            irs: SeqNum::new(0),
            nxt: isn,
            rcv: SeqNum::new(0),
            join: None,
            carried: Vec::new(),
        });
        self.flows.len() - 1
    }

    fn dial(&mut self, path: u8) -> usize {
        let from = theirs(path, 4000 + self.calls);
        self.add_flow(
            FourTuple::new(SocketAddr::new(ours(path), PORT), from),
            path,
        )
    }

    /// The first SYN.
    pub(super) fn call(&mut self) -> Vec<u8> {
        let flow = self.dial(0);
        let options = syn_options(self.capable(CapableKeys::Syn));
        self.write(flow, Flags::SYN, options, &[])
    }

    /// The third packet.
    pub(super) fn third(&mut self) -> Vec<u8> {
        let keys = CapableKeys::Ack {
            sender: KEY,
            receiver: self.other().key(),
        };
        let options = with(self.capable(keys));
        self.write(0, Flags::ACK, options, &[])
    }

    /// The answer to the first SYN of the stack.
    pub(super) fn answer_call(&mut self) -> Option<Vec<u8>> {
        let flow = self.syns.pop()?;
        let options = syn_options(self.capable(CapableKeys::SynAck { sender: KEY }));
        Some(self.write(flow, Flags::SYN | Flags::ACK, options, &[]))
    }

    /// An acknowledgement of everything.
    pub(super) fn data_ack(&mut self, flow: usize) -> Vec<u8> {
        let dss = Dss {
            data_ack: Some(DataAck::Long(self.other_dsn(self.heard).get())),
            mapping: None,
            data_fin: false,
        };
        self.write(flow, Flags::ACK, with(MptcpOption::Dss(dss)), &[])
    }

    /// A SYN that joins.
    pub(super) fn join(&mut self, path: u8, wrong: u8) -> Option<(usize, Vec<u8>)> {
        self.other.as_ref()?;
        let token = match wrong & 0xf {
            0xf => Token(self.token().0 ^ 1),
            _ => self.token(),
        };
        let flow = self.dial(path);
        let join = Join::Syn {
            backup: wrong & 0x40 != 0,
            addr_id: AddrId(wrong & 7),
            token,
            nonce: NONCE,
        };
        let options = syn_options(MptcpOption::Join(join));
        Some((flow, self.write(flow, Flags::SYN, options, &[])))
    }

    /// The third packet of a join that the stack answered.
    pub(super) fn join_third(&mut self, flow: usize, wrong: bool) -> Option<Vec<u8>> {
        let Some(Join::SynAck { nonce, .. }) = self.flows[flow].join else {
            return None;
        };
        let mut hmac = JoinMac::compute(self.keys().reversed(), NONCE, nonce).ack();
        hmac[19] ^= u8::from(wrong);
        let options = with(MptcpOption::Join(Join::Ack { hmac }));
        Some(self.write(flow, Flags::ACK, options, &[]))
    }

    /// The answer to a join of the stack.
    pub(super) fn answer_join(&mut self, wrong: u8) -> Option<(usize, Vec<u8>)> {
        let flow = self.syns.pop()?;
        let options = match self.flows[flow].join {
            Some(Join::Syn { nonce, .. }) => {
                let mac = JoinMac::compute(self.keys().reversed(), NONCE, nonce);
                let mut hmac = mac.syn_ack();
                hmac[7] ^= u8::from(wrong & 0xf == 0xf);
                let join = Join::SynAck {
                    backup: wrong & 0x40 != 0,
                    addr_id: AddrId(wrong & 7),
                    hmac,
                    nonce: NONCE,
                };
                syn_options(MptcpOption::Join(join))
            }
            _ => Options {
                mss: Some(Mss(1400)),
                ..Options::EMPTY
            },
        };
        let flags = Flags::SYN | Flags::ACK;
        Some((flow, self.write(flow, flags, options, &[])))
    }

    /// What a router says of a segment of the stack, in front of the first bytes of that.
    pub(super) fn icmp(&self, flow: usize, near: u32, mtu: u16) -> Vec<u8> {
        let flow = &self.flows[flow];
        let (from, to) = (flow.tuple.local, flow.tuple.remote);
        let octets = |addr: SocketAddr| match addr.ip() {
            IpAddr::V4(v4) => v4.octets(),
            IpAddr::V6(_) => [0; 4],
        };
        let ip = |protocol: u8, len: u8, src: [u8; 4], dst: [u8; 4]| {
            let mut out = vec![0x45, 0, 0, len, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            out.extend(src);
            out.extend(dst);
            let sum = Sum::of(&out).finish().to_be_bytes();
            out[10..12].copy_from_slice(&sum);
            out
        };
        // Even sizes say that something is too large, odd ones that nobody is there.
        let code = if mtu & 1 == 0 { 4 } else { 1 };
        let mut message = vec![3, code, 0, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend(ip(6, 60, octets(from), octets(to)));
        message.extend(from.port().to_be_bytes());
        message.extend(to.port().to_be_bytes());
        message.extend((flow.rcv + near).get().to_be_bytes());
        let sum = Sum::of(&message).finish().to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        let mut packet = ip(1, 20 + message.len() as u8, [10, 9, 9, 9], octets(from));
        packet.extend(message);
        packet
    }

    /// Looks at a segment of the stack.
    pub(super) fn hear(&mut self, seg: &Segment<'_>) {
        if !seg.payload.is_empty() && seg.options.mptcp.is_empty() {
            // It has fallen to TCP, and takes what comes in the subflow's order, whatever the mappings say.
            self.honest = false;
        }
        let tuple = seg.tuple.reversed();
        let (syn, ack) = (seg.header.flags.syn(), seg.header.flags.ack());
        let known = self.flows.iter().position(|flow| flow.tuple == tuple);
        let at = match (known, tuple.local.ip()) {
            (Some(at), _) => at,
            (None, IpAddr::V4(v4)) if syn && !ack => self.add_flow(tuple, v4.octets()[2]),
            (None, _) => return,
        };
        if let Some(CapableKeys::SynAck { sender } | CapableKeys::Ack { sender, .. }) =
            seg.options.mptcp.capable().map(|capable| capable.keys)
        {
            self.other
                .get_or_insert_with(|| KeyMaterial::derive(sender));
        }
        let len = seg.payload.len() as u32 + u32::from(syn) + u32::from(seg.header.flags.fin());
        let flow = &mut self.flows[at];
        if syn {
            (flow.irs, flow.rcv) = (seg.header.seq, seg.header.seq + 1);
            flow.join = seg.options.mptcp.join().copied();
            if !ack && !self.syns.contains(&at) {
                self.syns.push(at);
            }
        } else if seg.header.seq == flow.rcv {
            flow.rcv += len;
        }
        if let Some(mapping) = seg.options.mptcp.dss().and_then(|dss| dss.mapping) {
            let from = mapping.dsn.expand(self.other_dsn(self.heard));
            let end = from.since(self.other_dsn(0)) + u64::from(mapping.len);
            self.heard = self.heard.max(end);
        }
    }

    /// The subflow number of the next byte of a flow.
    pub(super) fn ssn(&self, flow: usize) -> Ssn {
        Ssn::of(self.flows[flow].nxt, self.flows[flow].isn)
    }

    /// A segment with the next numbers.
    fn write(&mut self, at: usize, flags: Flags, options: Options, payload: &[u8]) -> Vec<u8> {
        let flow = &mut self.flows[at];
        let (seq, ack) = (flow.nxt, flow.rcv);
        flow.nxt += u32::from(flags.syn()) + payload.len() as u32;
        self.write_at(at, (seq, ack), (flags, 60_000), options, payload)
    }

    /// A segment with any numbers.
    pub(super) fn write_at(
        &self,
        at: usize,
        (seq, ack): (SeqNum, SeqNum),
        (flags, window): (Flags, u16),
        options: Options,
        payload: &[u8],
    ) -> Vec<u8> {
        let tuple = self.flows[at].tuple.reversed();
        let ack = if flags.ack() { ack } else { SeqNum::new(0) };
        let header = header(flags, seq, ack, window);
        packet(&tuple, header, &fitting(options), payload)
    }
}

/// Those options for which a header has room.
pub(super) fn fitting(options: Options) -> Fitted {
    let wanted = Wanted {
        options,
        prefer: Prefer::Signals,
    };
    fit(&wanted, 40)
}

fn with(option: MptcpOption) -> Options {
    let mut options = Options::EMPTY;
    assert!(options.mptcp.push(option), "it is the only one");
    options
}

fn syn_options(option: MptcpOption) -> Options {
    Options {
        mss: Some(Mss(1400)),
        window_scale: Some(3),
        sack_permitted: true,
        ..with(option)
    }
}
