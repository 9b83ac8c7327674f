//! Packets written by hand.

use manypath_wire::checksum::Sum;
use manypath_wire::emit::{self, Checksum, Outgoing};
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::Ecn;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::layout::Fitted;

/// The numbers of a segment. Its ports are those of the tuple that it is sent by.
#[must_use]
pub fn header(flags: Flags, seq: SeqNum, ack: SeqNum, window: u16) -> Header {
    Header {
        src_port: 0,
        dst_port: 0,
        seq,
        ack,
        flags,
        window,
        urgent: 0,
    }
}

/// The IP packet with a segment, checksums right.
#[must_use]
pub fn packet(tuple: &FourTuple, header: Header, options: &Fitted, payload: &[u8]) -> Vec<u8> {
    packet_patched(tuple, header, options, payload, |_| {})
}

/// As [`packet`], with a change of TCP header and options before they are summed.
#[must_use]
pub fn packet_patched(
    tuple: &FourTuple,
    header: Header,
    options: &Fitted,
    payload: &[u8],
    patch: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let out = Outgoing {
        tuple: *tuple,
        ecn: Ecn::NotEct,
        hop_limit: 64,
        header,
        options,
    };
    let headers = emit::header_len(tuple, options);
    let mut bytes = vec![0; headers];
    bytes.extend_from_slice(payload);
    emit::headers(&mut bytes, &out, payload.len()).expect("there is room");
    patch(&mut bytes[emit::ip_header_len(tuple)..headers]);
    emit::finish(&mut bytes, Sum::of(payload), Checksum::Full).expect("there is room");
    bytes
}

/// Takes the options of Multipath TCP out of an IPv4 packet, and leaves its checksum wrong.
pub fn strip_mptcp(packet: &mut [u8]) {
    const MPTCP: u8 = 30;
    let header = usize::from(packet[32] >> 4) * 4;
    let options = &mut packet[40..20 + header];
    let mut at = 0;
    while let Some(kind) = options.get(at).copied().filter(|kind| *kind != 0) {
        let len = match kind {
            1 => 1,
            _ => usize::from(options[at + 1]),
        };
        if kind == MPTCP {
            options[at..at + len].fill(1);
        }
        at += len;
    }
}
