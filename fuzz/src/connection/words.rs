//! What the fuzzer has the peer say.

use std::net::SocketAddr;

use manypath_stack::crypto::mac;
use manypath_stack::{ConnOptions, PathManager};
use manypath_tcp::time::Duration;
use manypath_wire::checksum::{self, Sum};
use manypath_wire::ids::{AddrId, Key};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::mptcp::{
    AddAddr, AddrIds, Capable, CapableKeys, DataAck, Dss, Fail, FastClose, Join, MapDsn, Mapping,
    MptcpOption, Prio, RemoveAddr, Reset, ResetReason,
};
use manypath_wire::tcp::options::Options;

use super::peer::{Peer, fitting, pattern, theirs};
use crate::script::Script;

/// Subflows that the connection may have.
pub(super) const MOST_SUBFLOWS: usize = 6;
/// The largest payload of the peer.
const MOST_PAYLOAD: usize = 2500;

/// The connection's options.
pub(super) fn options(bits: u8, buffer: u32) -> ConnOptions {
    ConnOptions {
        checksum: bits & 1 == 0,
        path_manager: match bits >> 1 & 3 {
            0 => PathManager::FullMesh,
            1 => PathManager::Ndiffports(3),
            _ => PathManager::Passive,
        },
        long_dsn: bits & 8 == 0,
        nodelay: bits & 16 == 0,
        pacing: bits & 32 != 0,
        keepalive: (bits & 64 != 0).then(Default::default),
        user_timeout: (bits & 128 != 0).then_some(Duration::from_secs(20)),
        send_buffer: buffer,
        recv_buffer: buffer,
        max_subflows: MOST_SUBFLOWS as u16,
        ..ConnOptions::default()
    }
}

/// A segment on a flow: where it is, what it carries, and which options.
pub(super) fn segment(script: &mut Script<'_>, peer: &mut Peer, flow: usize) -> Vec<u8> {
    let shape = script.byte();
    let flags = match shape & 7 {
        0..7 => Flags::ACK,
        _ => Flags::from_bits(script.byte()),
    };
    let skew = script.near();
    let seq = peer.flows[flow].nxt + skew;
    let ack = peer.flows[flow].rcv + script.near();
    let window = if shape & 8 == 0 {
        60_000
    } else {
        script.half()
    };
    let ahead = script.near_long();
    let at = peer.next.wrapping_add(ahead);
    let len = match shape >> 4 & 3 {
        0 => 0,
        1 => 1 + usize::from(script.byte()),
        2 => 1400,
        _ => usize::from(script.half()) % MOST_PAYLOAD,
    };
    let payload: Vec<u8> = (0..len as u64)
        .map(|i| pattern(at.wrapping_add(i)))
        .collect();
    let ssn = peer.ssn(flow) + skew;
    let place = Place {
        at,
        ssn,
        payload: &payload,
        far: ahead > u64::from(u32::MAX),
    };
    let mut options = Options::EMPTY;
    let mut mapped = false;
    for _ in 0..1 + usize::from(shape >> 6) {
        let (option, right) = word(script, peer, &place);
        mapped |= right && options.mptcp.is_empty();
        let _ = options.mptcp.push(option);
        if shape & 0x40 == 0 {
            break;
        }
    }
    // Not all of them may have room.
    let fitted = fitting(options);
    let dss = fitted.options().mptcp.dss();
    mapped &= dss.is_some_and(|dss| dss.mapping.is_some());
    let before_the_stream = at > u64::MAX / 2;
    if flags != Flags::ACK || len > 0 && (!mapped || before_the_stream) {
        // A FIN or a SYN moves numbers; bytes without their own mapping, or with one that no stream has, may become the
        // stream.
        peer.honest = false;
    }
    if len > 0 && !peer.flows[flow].carries(seq, len as u32, at) {
        peer.honest = false;
    }
    if skew == 0 {
        peer.flows[flow].nxt += len as u32;
        if mapped && ahead == 0 {
            peer.next += len as u64;
        }
    }
    peer.write_at(flow, (seq, ack), (flags, window), options, &payload)
}

/// Where a segment's bytes are.
struct Place<'p> {
    at: u64,
    ssn: Ssn,
    payload: &'p [u8],
    far: bool,
}

/// One option, and whether it maps the payload as it should be.
fn word(script: &mut Script<'_>, peer: &mut Peer, place: &Place<'_>) -> (MptcpOption, bool) {
    let kind = script.byte();
    match kind {
        0..120 => return honest(script, peer, place, kind),
        120..170 => return (dss(script, peer, place), false),
        _ => {}
    }
    let option = match kind {
        ..185 => add_addr(script, peer),
        185..195 => {
            let mut ids = AddrIds::EMPTY;
            for _ in 0..1 + script.byte() % 4 {
                let _ = ids.push(AddrId(script.byte() & 15));
            }
            MptcpOption::RemoveAddr(RemoveAddr { ids })
        }
        195..205 => MptcpOption::Prio(Prio {
            backup: script.byte() & 1 != 0,
        }),
        205..222 => {
            // It may fall back by it, and then everything counts.
            peer.honest = false;
            let dsn = peer.other_dsn(peer.heard.wrapping_add(script.near_long()));
            MptcpOption::Fail(Fail { dsn })
        }
        222..228 => {
            peer.honest = false;
            let right = peer.keys().sender;
            let key = [right, Key([9; 8])][usize::from(script.byte() & 1)];
            MptcpOption::FastClose(FastClose { key })
        }
        228..234 => MptcpOption::Reset(Reset {
            transient: script.byte() & 1 != 0,
            reason: ResetReason::from_code(script.byte()),
        }),
        234..246 => {
            peer.honest = false;
            capable(script, peer, place)
        }
        246.. => MptcpOption::Join(Join::Ack {
            hmac: [script.byte(); 20],
        }),
    };
    (option, false)
}

/// A DSS that says the truth; with a large byte in the short form.
fn honest(
    script: &mut Script<'_>,
    peer: &mut Peer,
    place: &Place<'_>,
    kind: u8,
) -> (MptcpOption, bool) {
    let dsn = peer.own_dsn(place.at);
    let len = place.payload.len() as u16;
    let short = kind >= 100;
    let mapping = (len > 0).then(|| Mapping {
        dsn: if short {
            MapDsn::Short(dsn.low32())
        } else {
            MapDsn::Long(dsn.get())
        },
        ssn: place.ssn,
        len,
        checksum: peer
            .checksum
            .then(|| checksum::dss(dsn, place.ssn, len, Sum::of(place.payload))),
    });
    let beyond = u64::from(script.near());
    // Who acknowledges what was never sent counts something else than the stream, as if a box had made it longer.
    peer.honest &= beyond == 0;
    let heard = peer.heard.wrapping_add(beyond);
    let acked = peer.other_dsn(heard);
    let data_ack = Some(if short {
        DataAck::Short(acked.low32())
    } else {
        DataAck::Long(acked.get())
    });
    let right = !(short && place.far);
    let dss = Dss {
        data_ack,
        mapping,
        data_fin: false,
    };
    (MptcpOption::Dss(dss), right)
}

/// A DSS of which any part may be wrong.
fn dss(script: &mut Script<'_>, peer: &mut Peer, place: &Place<'_>) -> MptcpOption {
    peer.honest = false;
    let shape = script.byte();
    let dsn = peer.own_dsn(place.at.wrapping_add(script.near_long()));
    let ssn = match shape & 3 {
        0 => Ssn::new(0),
        _ => place.ssn + script.near(),
    };
    let fin = shape & 4 != 0;
    let len = (place.payload.len() as u16 + u16::from(fin)).wrapping_add(script.near() as u16);
    let right = checksum::dss(dsn, ssn, len, Sum::of(place.payload));
    let mapping = (shape & 8 == 0).then(|| Mapping {
        dsn: if shape & 16 == 0 {
            MapDsn::Long(dsn.get())
        } else {
            MapDsn::Short(dsn.low32())
        },
        ssn,
        len,
        checksum: match shape >> 5 & 3 {
            0 | 1 => peer.checksum.then_some(right),
            2 => Some(right ^ 0x55),
            _ => None,
        },
    });
    let acked = peer.other_dsn(peer.heard.wrapping_add(script.near_long()));
    MptcpOption::Dss(Dss {
        data_ack: (shape & 128 == 0).then(|| DataAck::Long(acked.get())),
        mapping,
        data_fin: fin && mapping.is_some(),
    })
}

fn add_addr(script: &mut Script<'_>, peer: &Peer) -> MptcpOption {
    let shape = script.byte();
    let (addr_id, at) = (AddrId(shape & 15), theirs(script.byte() % 5, 0).ip());
    let port = (shape & 16 != 0).then(|| script.half());
    let addr = match shape & 32 {
        0 => at,
        _ => SocketAddr::from(([0xfd00, 0, 0, 0, 0, 0, 0, 2], 0)).ip(),
    };
    let echo = shape & 64 != 0;
    let mut hmac = mac::add_addr(peer.keys().reversed(), addr_id, addr, port);
    hmac[0] ^= shape >> 7;
    MptcpOption::AddAddr(AddAddr {
        echo,
        addr_id,
        addr,
        port,
        hmac: (!echo).then_some(hmac),
    })
}

fn capable(script: &mut Script<'_>, peer: &Peer, place: &Place<'_>) -> MptcpOption {
    let (sender, receiver) = (peer.own.key(), peer.keys().sender);
    let shape = script.byte();
    let keys = match shape & 3 {
        0 => CapableKeys::Ack { sender, receiver },
        1 => CapableKeys::Ack {
            sender: receiver,
            receiver: sender,
        },
        _ => {
            let len = (place.payload.len() as u16).wrapping_add(script.near() as u16);
            let sum = Sum::of(place.payload);
            let checksum = checksum::dss(peer.own_dsn(0), Ssn::new(1), len, sum);
            CapableKeys::Data {
                sender,
                receiver,
                len,
                checksum: (peer.checksum == (shape & 4 == 0)).then_some(checksum),
            }
        }
    };
    MptcpOption::Capable(Capable::v1(shape & 8 == 0, keys))
}
