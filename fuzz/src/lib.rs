//! What must hold for any bytes: nothing panics, and what was understood can be written and read back unchanged.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod control;
mod convert;
mod neighbours;
mod openings;
mod perf;
mod script;
mod stack;
mod subflow;
mod users;

use manypath_wire::checksum::Sum;
use manypath_wire::cursor::Writer;
use manypath_wire::emit::{self, Checksum, Outgoing};
use manypath_wire::ip::icmp::{self, Complaint};
use manypath_wire::ip::{self, IpError, Joined, fragment, v6};
use manypath_wire::segment::{Segment, Verify};
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::layout::{self, Prefer, Wanted};
use manypath_wire::tcp::mptcp::{self, MptcpOption};
use manypath_wire::tcp::options::Options;
use manypath_wire::{describe, tcp};

pub use config::config;
pub use connection::connection;
pub use control::control;
pub use convert::convert;
pub use neighbours::neighbours;
pub use openings::openings;
pub use perf::perf;
pub use stack::stack;
pub use subflow::subflow;
pub use users::users;

/// Options with room for the largest header.
const MAX_OPTIONS: usize = 40;

/// A whole IP packet.
pub fn segment(packet: &[u8]) {
    // Both must hold up; only the second gets past a checksum that a fuzzer cannot guess.
    let _ = Segment::parse(packet, Verify::Full);
    let _ = describe::packet(packet);
    headers(packet);
    let Ok(segment) = Segment::parse(packet, Verify::Trusted) else {
        return;
    };
    let _ = describe::segment(&segment);
    let fitted = layout::fit(
        &Wanted {
            options: segment.options,
            prefer: Prefer::Data,
        },
        MAX_OPTIONS,
    );
    let out = Outgoing {
        tuple: segment.tuple.reversed(),
        ecn: segment.ip.ecn,
        hop_limit: 64,
        header: segment.header,
        options: &fitted,
    };
    let mut buf = vec![0; emit::header_len(&out.tuple, &fitted) + segment.payload.len()];
    let Ok(at) = emit::headers(&mut buf, &out, segment.payload.len()) else {
        return;
    };
    buf[at..].copy_from_slice(segment.payload);
    emit::finish(&mut buf, Sum::of(segment.payload), Checksum::Full)
        .expect("headers were just written");
    let again = Segment::parse(&buf, Verify::Full).expect("what we write can be read");
    assert_eq!(again.tuple, segment.tuple);
    assert_eq!(again.header.seq, segment.header.seq);
    assert_eq!(again.header.flags, segment.header.flags);
    assert_eq!(again.payload, segment.payload);
    assert_eq!(
        again.options,
        Options {
            ignored: 0,
            ..*fitted.options()
        }
    );
}

/// A list of TCP options behind a byte of flags.
pub fn options(data: &[u8]) {
    let Some((&flags, list)) = data.split_first() else {
        return;
    };
    let list = &list[..list.len().min(MAX_OPTIONS)];
    let flags = Flags::from_bits(flags);
    let Ok(options) = Options::parse(list, flags) else {
        return;
    };
    for prefer in [Prefer::Data, Prefer::Signals] {
        for limit in (0..=MAX_OPTIONS).step_by(4) {
            let fitted = layout::fit(&Wanted { options, prefer }, limit);
            assert!(fitted.len() <= limit);
            let mut area = [0; MAX_OPTIONS];
            let area = &mut area[..fitted.len()];
            fitted
                .options()
                .emit(area)
                .expect("what fits can be written");
            let again = Options::parse(area, flags).expect("what we write can be read");
            assert_eq!(
                again,
                Options {
                    ignored: 0,
                    ..*fitted.options()
                }
            );
        }
    }
}

/// The headers of a packet that may be a piece of a larger one, joined by the device, or wrong in a way that is told.
fn headers(packet: &[u8]) {
    if let Ok((meta, body)) = ip::parse_as(packet, Joined::Yes) {
        assert_eq!(meta.total_len, meta.header_len + body.len());
    }
    if let Ok(piece) = fragment::read(packet) {
        assert_eq!(ip::parse(packet), Err(IpError::Fragment));
        let pieces = [piece.payload].into_iter();
        let joined = fragment::join(piece.head, piece.ecn, pieces);
        let joined = joined.expect("no longer than the piece");
        assert_eq!(ip::ends(&joined), Some((piece.key.src, piece.key.dst)));
    }
    let mut complaints = vec![Complaint::Incomplete];
    complaints.extend(v6::unknown_protocol(packet).map(Complaint::Problem));
    if let Err(IpError::ExtensionHeader(Some(problem))) = ip::parse(packet) {
        complaints.push(Complaint::Problem(problem));
    }
    for complaint in complaints {
        if let Some(error) = icmp::complain(packet, complaint) {
            let (meta, body) = ip::parse(&error).expect("what we write can be read");
            assert!(icmp::parse(&meta, body).is_err(), "no subflow acts on it");
            assert!(error.len() <= 1280);
        }
    }
}

/// One Multipath TCP option: a byte with the segment's flags, then the option from its subtype on. It is as long as it is.
pub fn mptcp(data: &[u8]) {
    let Some((&flags, body)) = data.split_first() else {
        return;
    };
    let mut option = vec![mptcp::KIND, 0];
    option.extend_from_slice(&body[..body.len().min(MAX_OPTIONS - 2)]);
    // At most 40 bytes, see above.
    option[1] = option.len() as u8;
    let flags = Flags::from_bits(flags);
    let Some(value) = MptcpOption::parse(&option, flags) else {
        return;
    };
    assert_eq!(value.subtype().number(), option[2] >> 4);
    let mut buf = vec![0; value.wire_len()];
    value
        .emit(&mut Writer::new(&mut buf))
        .expect("the option has the length it says");
    assert_eq!(MptcpOption::parse(&buf, flags), Some(value));
}

/// An ICMP message of either IP version: a byte that chooses, then the message.
pub fn icmp(data: &[u8]) {
    let Some((&version, message)) = data.split_first() else {
        return;
    };
    let mut packet = header(version & 1 == 1, message.len());
    packet.extend_from_slice(message);
    let Ok((meta, _)) = ip::parse(&packet) else {
        return;
    };
    // As it is, and with a checksum that lets it through.
    let _ = icmp::parse(&meta, message);
    let mut message = message.to_vec();
    if let Some(field) = message.get_mut(2..4) {
        field.fill(0);
        let mut sum = Sum::of(&message);
        if version & 1 == 1 {
            sum.add_bytes(&packet[8..40]);
            // The message is part of a packet whose length has 16 bits.
            sum.add_u16(message.len() as u16);
            sum.add_u16(u16::from(meta.protocol));
        }
        message[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
    if let Ok(error) = icmp::parse(&meta, &message) {
        assert_ne!(meta.protocol, tcp::PROTOCOL);
        let _ = error.is_hard();
    }
}

/// The header of an ICMP packet with a body of that length, as far as it fits.
fn header(v6: bool, len: usize) -> Vec<u8> {
    if v6 {
        let len = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        let mut out = vec![0x60, 0, 0, 0, len[0], len[1], 58, 64];
        out.extend([0xfd; 32]);
        out
    } else {
        let total = u16::try_from(len + 20).unwrap_or(u16::MAX).to_be_bytes();
        let mut out = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 1, 0, 0];
        out.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = Sum::of(&out).finish().to_be_bytes();
        out[10..12].copy_from_slice(&sum);
        out
    }
}
