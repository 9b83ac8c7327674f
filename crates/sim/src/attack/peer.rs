//! A peer made by hand: it speaks just enough Multipath TCP to get in, keeps all numbers in the open, and sends
//! whatever an attack wants. It repeats nothing and answers nothing by itself.

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::crypto::mac::{JoinMac, Keys};
use manypath_wire::checksum::{self, Sum};
use manypath_wire::emit::{self, Checksum, Outgoing};
use manypath_wire::ids::{AddrId, FourTuple, Key, Mss, Nonce};
use manypath_wire::ip::Ecn;
use manypath_wire::segment::Segment;
use manypath_wire::seq::{SeqNum, Ssn};
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::layout::{Wanted, fit};
use manypath_wire::tcp::mptcp::{
    Capable, CapableKeys, DataAck, Dss, Join, MapDsn, Mapping, MptcpOption,
};
use manypath_wire::tcp::options::Options;

/// A segment before it is written.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Flags.
    pub flags: Flags,
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgement.
    pub ack: SeqNum,
    /// The window field as it is.
    pub window: u16,
    /// Options.
    pub options: Options,
}

impl Shape {
    /// A segment without options.
    #[must_use]
    pub fn new(flags: Flags, seq: SeqNum, ack: SeqNum) -> Self {
        Self {
            flags,
            seq,
            ack,
            window: u16::MAX,
            options: Options::EMPTY,
        }
    }

    /// With one more Multipath TCP option, if there is room for it.
    #[must_use]
    pub fn with(mut self, option: MptcpOption) -> Self {
        let taken = self.options.mptcp.push(option);
        debug_assert!(taken, "attacks use few options");
        self
    }

    /// The IP packet, checksums right.
    #[must_use]
    pub fn packet(&self, tuple: &FourTuple, payload: &[u8]) -> Vec<u8> {
        let wanted = Wanted {
            options: self.options,
            ..Wanted::default()
        };
        let fitted = fit(&wanted, 40);
        let header = Header {
            src_port: tuple.local.port(),
            dst_port: tuple.remote.port(),
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: 0,
        };
        let out = Outgoing {
            tuple: *tuple,
            ecn: Ecn::NotEct,
            hop_limit: 64,
            header,
            options: &fitted,
        };
        let at = emit::header_len(tuple, &fitted);
        let mut bytes = vec![0; at + payload.len()];
        bytes[at..].copy_from_slice(payload);
        let written = emit::headers(&mut bytes, &out, payload.len())
            .and_then(|_| emit::finish(&mut bytes, Sum::of(payload), Checksum::Full));
        debug_assert_eq!(written, Ok(()), "the buffer was made for it");
        bytes
    }
}

/// A SYN that offers Multipath TCP.
#[must_use]
pub fn capable_syn(tuple: &FourTuple, isn: SeqNum, mss: u16) -> Vec<u8> {
    syn(isn, mss)
        .with(MptcpOption::Capable(Capable::v1(true, CapableKeys::Syn)))
        .packet(tuple, &[])
}

/// A SYN that offers none.
#[must_use]
pub fn plain_syn(tuple: &FourTuple, isn: SeqNum, mss: u16) -> Vec<u8> {
    syn(isn, mss).packet(tuple, &[])
}

fn syn(isn: SeqNum, mss: u16) -> Shape {
    let mut shape = Shape::new(Flags::SYN, isn, SeqNum::new(0));
    shape.options.mss = Some(Mss(mss));
    shape.options.window_scale = Some(SCALE);
    shape.options.sack_permitted = true;
    shape
}

/// The shift of the windows that peers tell.
pub const SCALE: u8 = 8;

/// How far a subflow of a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// Its SYN is on the way.
    Opening,
    /// It can send data.
    Open,
    /// It was reset.
    Gone,
}

/// What a segment of the server meant to a peer.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// Packets that complete its handshake.
    pub replies: Vec<Vec<u8>>,
    /// It can send data from now on.
    pub opened: bool,
    /// Payload bytes that arrived next in order.
    pub bytes: u32,
}

/// One subflow of a peer.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Our addresses, local first.
    pub tuple: FourTuple,
    /// Where it stands.
    pub stand: Stand,
    isn: SeqNum,
    irs: SeqNum,
    /// Our next sequence number.
    pub next: SeqNum,
    /// The server's next sequence number.
    pub expected: SeqNum,
    /// The window field that it tells.
    pub window: u16,
    /// Its MSS option.
    pub mss: u16,
    keys: Option<Keys>,
    own: Key,
    /// Position of its next byte in the stream.
    pub position: u64,
    /// Bytes of the server's stream that it says to have.
    pub taken: u64,
    /// A join: our nonce.
    nonce: Option<Nonce>,
}

impl Peer {
    /// A peer that wants a connection of its own; the key makes it another one each time.
    #[must_use]
    pub fn new(tuple: FourTuple, key: u64, isn: u32) -> Self {
        let isn = SeqNum::new(isn);
        Self {
            tuple,
            stand: Stand::Opening,
            isn,
            irs: SeqNum::new(0),
            next: isn,
            expected: SeqNum::new(0),
            window: u16::MAX,
            mss: 1460,
            keys: None,
            own: Key(key.to_be_bytes()),
            position: 0,
            taken: 0,
            nonce: None,
        }
    }

    /// A further subflow of a peer's connection.
    #[must_use]
    pub fn join(&self, tuple: FourTuple, nonce: u32, isn: u32) -> Self {
        Self {
            keys: self.keys,
            own: self.own,
            nonce: Some(Nonce(nonce)),
            ..Self::new(tuple, 0, isn)
        }
    }

    /// Both keys, its own first, once they are exchanged.
    #[must_use]
    pub fn keys(&self) -> Option<Keys> {
        self.keys
    }

    /// Its SYN.
    pub fn open(&mut self, addr_id: u8) -> Vec<u8> {
        self.next = self.isn + 1;
        match (self.nonce, self.keys) {
            (Some(nonce), Some(keys)) => syn(self.isn, self.mss)
                .with(MptcpOption::Join(Join::Syn {
                    backup: false,
                    addr_id: AddrId(addr_id),
                    token: KeyMaterial::derive(keys.receiver).token,
                    nonce,
                }))
                .packet(&self.tuple, &[]),
            _ => capable_syn(&self.tuple, self.isn, self.mss),
        }
    }

    /// A segment of the server for it.
    pub fn hear(&mut self, seg: &Segment<'_>) -> Heard {
        let mut heard = Heard::default();
        if seg.header.flags.rst() {
            self.stand = Stand::Gone;
            return heard;
        }
        if seg.header.flags.syn() {
            if self.stand == Stand::Opening {
                self.irs = seg.header.seq;
                self.expected = self.irs + 1;
                self.answer(seg, &mut heard);
            }
            return heard;
        }
        if seg.header.seq == self.expected {
            heard.bytes = seg.payload.len() as u32;
            self.expected += heard.bytes + u32::from(seg.header.flags.fin());
            self.taken += u64::from(heard.bytes);
        }
        heard
    }

    fn answer(&mut self, seg: &Segment<'_>, heard: &mut Heard) {
        let option = match self.nonce {
            None => self.third_of_first(seg),
            Some(nonce) => self.third_of_join(nonce, seg),
        };
        self.stand = Stand::Open;
        heard.opened = true;
        let mut shape = Shape::new(Flags::ACK, self.next, self.expected);
        shape.window = self.window;
        let shape = option.map_or(shape, |option| shape.with(option));
        heard.replies.push(shape.packet(&self.tuple, &[]));
    }

    fn third_of_first(&mut self, seg: &Segment<'_>) -> Option<MptcpOption> {
        let CapableKeys::SynAck { sender } = seg.options.mptcp.capable()?.keys else {
            return None;
        };
        self.keys = Some(Keys {
            sender: self.own,
            receiver: sender,
        });
        Some(MptcpOption::Capable(Capable::v1(
            true,
            CapableKeys::Ack {
                sender: self.own,
                receiver: sender,
            },
        )))
    }

    fn third_of_join(&self, nonce: Nonce, seg: &Segment<'_>) -> Option<MptcpOption> {
        let Some(Join::SynAck { nonce: theirs, .. }) = seg.options.mptcp.join() else {
            return None;
        };
        let hmac = JoinMac::compute(self.keys?, nonce, *theirs).ack();
        Some(MptcpOption::Join(Join::Ack { hmac }))
    }

    /// The number of our stream's byte at `position` on the wire.
    #[must_use]
    pub fn dsn(&self, position: u64) -> u64 {
        (KeyMaterial::derive(self.own).first_byte() + position).get()
    }

    /// The Data ACK for everything that it says to have.
    #[must_use]
    pub fn data_ack(&self) -> Option<DataAck> {
        let server = KeyMaterial::derive(self.keys?.receiver);
        Some(DataAck::Long((server.first_byte() + self.taken).get()))
    }

    /// An acknowledgement of `expected` with a Data ACK.
    #[must_use]
    pub fn ack(&self) -> Shape {
        let mut shape = Shape::new(Flags::ACK, self.next, self.expected);
        shape.window = self.window;
        match self.data_ack() {
            Some(ack) => shape.with(MptcpOption::Dss(Dss {
                data_ack: Some(ack),
                mapping: None,
                data_fin: false,
            })),
            None => shape,
        }
    }

    /// A mapping of bytes that start at `position` of the stream and `ahead` bytes behind our next number on this subflow.
    #[must_use]
    pub fn mapping(&self, ahead: u32, position: u64, bytes: &[u8]) -> Mapping {
        let ssn = Ssn::of(self.next + ahead, self.isn);
        let dsn = self.dsn(position);
        let len = bytes.len() as u16;
        let sum = checksum::dss(manypath_wire::dsn::Dsn::new(dsn), ssn, len, Sum::of(bytes));
        Mapping {
            dsn: MapDsn::Long(dsn),
            ssn,
            len,
            checksum: Some(sum),
        }
    }

    /// Data `ahead` bytes behind our next number, mapped to `position`. Nothing is noted as sent.
    #[must_use]
    pub fn data(&self, ahead: u32, position: u64, bytes: &[u8]) -> Vec<u8> {
        let mut shape = Shape::new(Flags::ACK, self.next + ahead, self.expected);
        shape.window = self.window;
        let dss = Dss {
            data_ack: self.data_ack(),
            mapping: Some(self.mapping(ahead, position, bytes)),
            data_fin: false,
        };
        shape.with(MptcpOption::Dss(dss)).packet(&self.tuple, bytes)
    }

    /// The next bytes of the stream, in order.
    pub fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let packet = self.data(0, self.position, bytes);
        self.next += bytes.len() as u32;
        self.position += bytes.len() as u64;
        packet
    }
}
