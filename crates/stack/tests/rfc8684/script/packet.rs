//! Segments as values: what the stack sent, and what the peer shall send.

use manypath_testkit::{header, packet_patched};
use manypath_wire::ids::{FourTuple, Mss};
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::layout::{Wanted, fit};
use manypath_wire::tcp::mptcp::{Capable, Dss, Join, Mapping, MptcpOption, ResetReason};
use manypath_wire::tcp::options::Options;

use super::Flow;

/// Offset of the TCP header in an IPv4 packet without IP options.
const TCP_AT: usize = 20;

/// A segment that the stack sent.
#[derive(Clone, Debug)]
pub(crate) struct Seg {
    pub(crate) tuple: FourTuple,
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Options,
    pub(crate) payload: Vec<u8>,
    /// The whole packet.
    pub(crate) bytes: Vec<u8>,
}

impl Seg {
    pub(crate) fn of(seg: &Segment<'_>, bytes: &[u8]) -> Self {
        Self {
            tuple: seg.tuple.reversed(),
            seq: seg.header.seq,
            ack: seg.header.ack,
            flags: seg.header.flags,
            window: seg.header.window,
            urgent: seg.header.urgent,
            options: seg.options,
            payload: seg.payload.to_vec(),
            bytes: bytes.to_vec(),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.syn()) + u32::from(self.flags.fin())
    }

    pub(crate) fn is_syn(&self) -> bool {
        self.flags.syn() && !self.flags.ack()
    }

    pub(crate) fn is_syn_ack(&self) -> bool {
        self.flags.syn() && self.flags.ack()
    }

    pub(crate) fn is_rst(&self) -> bool {
        self.flags.rst()
    }

    pub(crate) fn is_fin(&self) -> bool {
        self.flags.fin()
    }

    /// An acknowledgement without payload, SYN, FIN or RST.
    pub(crate) fn is_bare(&self) -> bool {
        self.len() == 0 && !self.is_rst()
    }

    pub(crate) fn has_data(&self) -> bool {
        !self.payload.is_empty()
    }

    pub(crate) fn dss(&self) -> Option<&Dss> {
        self.options.mptcp.dss()
    }

    pub(crate) fn mapping(&self) -> Option<Mapping> {
        self.dss().and_then(|dss| dss.mapping)
    }

    pub(crate) fn is_data_fin(&self) -> bool {
        self.dss().is_some_and(|dss| dss.data_fin)
    }

    pub(crate) fn capable(&self) -> Option<&Capable> {
        self.options.mptcp.capable()
    }

    pub(crate) fn join(&self) -> Option<&Join> {
        self.options.mptcp.join()
    }

    pub(crate) fn reason(&self) -> Option<ResetReason> {
        self.options.mptcp.reset().map(|reset| reset.reason)
    }

    /// No Multipath TCP option at all.
    pub(crate) fn is_plain(&self) -> bool {
        self.options.mptcp.is_empty()
    }

    /// The bytes of its first Multipath TCP option with this subtype.
    pub(crate) fn raw_option(&self, subtype: u8) -> Option<&[u8]> {
        let tcp = &self.bytes[TCP_AT..];
        let mut rest = &tcp[20..usize::from(tcp[12] >> 4) * 4];
        while let Some(&kind) = rest.first() {
            let len = match kind {
                0 => return None,
                1 => 1,
                _ => usize::from(rest[1]),
            };
            if kind == 30 && rest[2] >> 4 == subtype {
                return Some(&rest[..len]);
            }
            rest = &rest[len..];
        }
        None
    }
}

/// A segment that the peer shall send.
#[derive(Clone)]
pub(crate) struct Pkt {
    pub(crate) flags: Flags,
    /// The flow's next number if absent.
    pub(crate) seq: Option<SeqNum>,
    /// Everything the stack sent if absent.
    pub(crate) ack: Option<SeqNum>,
    pub(crate) window: Option<u16>,
    pub(crate) options: Options,
    pub(crate) payload: Vec<u8>,
    /// Changes the TCP header and options before they are summed.
    patch: Option<fn(&mut [u8])>,
}

/// A bare acknowledgement.
pub(crate) fn ack() -> Pkt {
    Pkt {
        flags: Flags::ACK,
        seq: None,
        ack: None,
        window: None,
        options: Options::EMPTY,
        payload: Vec::new(),
        patch: None,
    }
}

/// A SYN with an MSS.
pub(crate) fn syn() -> Pkt {
    let mut pkt = ack();
    pkt.flags = Flags::SYN;
    pkt.options.mss = Some(Mss(1460));
    pkt
}

/// A SYN/ACK with an MSS.
pub(crate) fn syn_ack() -> Pkt {
    let mut pkt = syn();
    pkt.flags = Flags::SYN | Flags::ACK;
    pkt
}

/// A FIN.
pub(crate) fn fin() -> Pkt {
    let mut pkt = ack();
    pkt.flags = Flags::FIN | Flags::ACK;
    pkt
}

/// A RST at the number that the stack expects.
pub(crate) fn rst() -> Pkt {
    let mut pkt = ack();
    pkt.flags = Flags::RST | Flags::ACK;
    pkt
}

/// Payload.
pub(crate) fn data(bytes: &[u8]) -> Pkt {
    let mut pkt = ack();
    pkt.payload = bytes.to_vec();
    pkt
}

impl Pkt {
    pub(crate) fn opt(mut self, option: MptcpOption) -> Self {
        assert!(self.options.mptcp.push(option), "too many options");
        self
    }

    pub(crate) fn seq(mut self, seq: SeqNum) -> Self {
        self.seq = Some(seq);
        self
    }

    pub(crate) fn acking(mut self, ack: SeqNum) -> Self {
        self.ack = Some(ack);
        self
    }

    pub(crate) fn patch(mut self, patch: fn(&mut [u8])) -> Self {
        self.patch = Some(patch);
        self
    }

    pub(crate) fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags.syn()) + u32::from(self.flags.fin())
    }

    pub(crate) fn write(&self, flow: &Flow) -> Vec<u8> {
        let wanted = Wanted {
            options: self.options,
            ..Wanted::default()
        };
        let fitted = fit(&wanted, 40);
        assert!(fitted.left_out().is_empty(), "the script's options fit");
        let tuple = flow.tuple.reversed();
        let ack = match self.flags.ack() {
            true => self.ack.unwrap_or(flow.rcv),
            false => SeqNum::new(0),
        };
        let (seq, window) = (
            self.seq.unwrap_or(flow.nxt),
            self.window.unwrap_or(flow.window),
        );
        let header = header(self.flags, seq, ack, window);
        let patch = self.patch.unwrap_or(|_| {});
        packet_patched(&tuple, header, &fitted, &self.payload, patch)
    }
}
