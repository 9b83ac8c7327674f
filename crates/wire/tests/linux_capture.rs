//! What Linux 6.18 puts on the wire, read, checked and written again byte for byte.
//!
//! Each capture holds two connections: one closed by DATA_FIN, one by fast close, with joins, announcements, a
//! priority change and removals between. The first runs over IPv4 with data-level checksums, the second over IPv6
//! without.

use std::collections::{BTreeMap, BTreeSet};

use manypath_wire::checksum::{self, Sum};
use manypath_wire::describe;
use manypath_wire::dsn::Dsn;
use manypath_wire::emit::{self, Checksum, Outgoing};
use manypath_wire::ids::FourTuple;
use manypath_wire::segment::{Segment, Verify};
use manypath_wire::seq::{SeqNum, Ssn};
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::layout::{Wanted, fit};
use manypath_wire::tcp::mptcp::{MapDsn, MptcpOption, Subtype};

const IPV4: &[u8] = include_bytes!("data/linux-6.18-ipv4-checksums.pcap");
const IPV6: &[u8] = include_bytes!("data/linux-6.18-ipv6.pcap");
const IPV4_LINES: &str = include_str!("data/linux-6.18-ipv4-checksums.txt");

/// The IP packets of a classic little-endian capture file without link headers.
fn packets(mut file: &[u8]) -> Vec<&[u8]> {
    const RAW_IP: u32 = 101;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    assert_eq!(word(file, 20), RAW_IP);
    file = &file[24..];
    let mut found = Vec::new();
    while !file.is_empty() {
        let len = word(file, 8) as usize;
        found.push(&file[16..16 + len]);
        file = &file[16 + len..];
    }
    found
}

fn segments(file: &[u8]) -> Vec<Segment<'_>> {
    packets(file)
        .into_iter()
        .map(|packet| Segment::parse(packet, Verify::Full).expect("Linux sends right packets"))
        .collect()
}

#[test]
fn everything_is_understood() {
    let mut kinds = BTreeSet::new();
    for file in [IPV4, IPV6] {
        let segments = segments(file);
        assert!(segments.len() > 60);
        for segment in &segments {
            assert_eq!(segment.options.ignored, 0, "{}", describe::segment(segment));
            kinds.extend(segment.options.mptcp.iter().map(MptcpOption::subtype));
        }
    }
    let expected = [
        Subtype::Capable,
        Subtype::Join,
        Subtype::Dss,
        Subtype::AddAddr,
        Subtype::RemoveAddr,
        Subtype::Prio,
        Subtype::FastClose,
        Subtype::Reset,
    ];
    assert_eq!(kinds, BTreeSet::from(expected));
}

#[test]
fn written_again_every_tcp_byte_is_the_same() {
    for packet in [packets(IPV4), packets(IPV6)].concat() {
        let segment = Segment::parse(packet, Verify::Full).expect("checked above");
        let fitted = fit(
            &Wanted {
                options: segment.options,
                ..Wanted::default()
            },
            40,
        );
        assert!(fitted.left_out().is_empty());
        let out = Outgoing {
            tuple: segment.tuple.reversed(),
            ecn: segment.ip.ecn,
            hop_limit: segment.ip.ttl,
            header: segment.header,
            options: &fitted,
        };
        let mut again = vec![0; emit::header_len(&out.tuple, &fitted)];
        emit::headers(&mut again, &out, segment.payload.len()).expect("the buffer fits");
        emit::finish(&mut again, segment.sum(), Checksum::Full).expect("headers are there");
        again.extend(segment.payload);
        let tcp = segment.ip.header_len;
        assert_eq!(again.len(), packet.len());
        assert_eq!(
            again[tcp..],
            packet[tcp..],
            "{}",
            describe::segment(&segment)
        );
        // Before it, Linux fills in an identification or a flow label, and with it the header checksum differs.
        let ignored = if segment.tuple.is_ipv6() { 1..4 } else { 4..12 };
        for at in (0..tcp).filter(|at| !ignored.contains(at)) {
            assert_eq!(again[at], packet[at], "byte {at} of the IP header");
        }
    }
}

/// The bytes of one direction of one subflow, by relative number.
#[derive(Default)]
struct Stream {
    isn: SeqNum,
    bytes: BTreeMap<u32, u8>,
}

#[test]
fn every_data_level_checksum_is_right() {
    // rfc8684:D9 rfc8684:F2
    let mut streams: BTreeMap<FourTuple, Stream> = BTreeMap::new();
    let segments = segments(IPV4);
    for segment in &segments {
        let stream = streams.entry(segment.tuple).or_default();
        if segment.header.flags.contains(Flags::SYN) {
            stream.isn = segment.header.seq;
        }
        let first = Ssn::of(segment.header.seq, stream.isn);
        for (offset, byte) in segment.payload.iter().enumerate() {
            stream.bytes.insert(first.get() + offset as u32, *byte);
        }
    }
    let mut mappings = BTreeSet::new();
    let mut fins = 0;
    for segment in &segments {
        let Some((dss, map)) = segment
            .options
            .mptcp
            .dss()
            .and_then(|dss| dss.mapping.map(|map| (dss, map)))
        else {
            continue;
        };
        let MapDsn::Long(dsn) = map.dsn else {
            panic!("Linux sends 64-bit numbers");
        };
        let octets = map.len - u16::from(dss.data_fin);
        fins += usize::from(dss.data_fin);
        let stream = &streams[&segment.tuple];
        let mapped: Vec<u8> = (0..u32::from(octets))
            .map(|n| stream.bytes[&(map.ssn + n).get()])
            .collect();
        let sum = checksum::dss(Dsn::new(dsn), map.ssn, map.len, Sum::of(&mapped));
        assert_eq!(map.checksum, Some(sum), "{}", describe::segment(segment));
        mappings.insert((segment.tuple, dsn));
    }
    assert!(mappings.len() >= 8, "{} mappings", mappings.len());
    assert!(fins >= 2, "{fins} DATA_FINs");
}

/// Run with `UPDATE_SNAPSHOTS=1` to write the lines anew, then review what changed.
#[test]
fn each_packet_has_its_line() {
    let lines: Vec<String> = packets(IPV4).into_iter().map(describe::packet).collect();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/linux-6.18-ipv4-checksums.txt"
        );
        std::fs::write(path, lines.join("\n") + "\n").expect("the source tree is writable");
        return;
    }
    for (line, expected) in lines.iter().zip(IPV4_LINES.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(lines.len(), IPV4_LINES.lines().count());
}
