//! What a received mapping, Data ACK or DATA_FIN does to the streams (RFC 8684 section 3.3).

use super::*;
use crate::conn::fallback::unmapped::MOST_UNMAPPED;
use crate::conn::tests::{Bench, at};

const FIRST: SubflowIdx = SubflowIdx::FIRST;
const JOINED: SubflowIdx = SubflowIdx(1);

/// The next bytes of a subflow, from this SSN on.
fn take(bench: &mut Bench, i: SubflowIdx, ssn: u32, bytes: &[u8]) {
    let sum = Some(Sum::of(bytes));
    bench.with(|conn, cx| conn.take_payload(i, Ssn::new(ssn), bytes, sum, cx));
}

/// A mapping of bytes, whose checksum is right where there are checksums.
fn map(bench: &mut Bench, i: SubflowIdx, ssn: u32, position: u64, bytes: &[u8]) {
    let numbers = bench.conn.numbers.rx.expect("keys are exchanged");
    let (ssn, position, len) = (Ssn::new(ssn), at(position), bytes.len() as u16);
    let sum = || checksum::dss(numbers.dsn(position), ssn, len, Sum::of(bytes));
    let checksum = bench.conn.numbers.checksum.then(sum);
    let mapping = RxMapping::new(ssn, position, len, len, checksum);
    bench.with(|conn, cx| conn.subflows.note_mapping(&conn.opts, i, mapping, cx));
}

#[test]
fn payload_counts_where_its_mapping_places_it() {
    // rfc8684:D11,D17
    // Mappings (SSN, position, bytes), payload (SSN, bytes), and what can be read.
    type Row<'a> = (
        &'a str,
        &'a [(u32, u64, &'a str)],
        &'a [(u32, &'a str)],
        &'a str,
    );
    let rows: &[Row<'_>] = &[
        ("one segment", &[(1, 0, "abcd")], &[(1, "abcd")], "abcd"),
        (
            "a mapping over three segments",
            &[(1, 0, "abcdef")],
            &[(1, "ab"), (3, "cd"), (5, "ef")],
            "abcdef",
        ),
        (
            "two mappings in a coalesced segment",
            &[(1, 0, "abc"), (4, 3, "def")],
            &[(1, "abcdef")],
            "abcdef",
        ),
        (
            "mappings out of stream order",
            &[(1, 3, "def"), (4, 0, "abc")],
            &[(1, "def"), (4, "abc")],
            "abcdef",
        ),
        (
            "the same data twice",
            &[(1, 0, "abc"), (4, 0, "abc"), (7, 3, "d")],
            &[(1, "abc"), (4, "abc"), (7, "d")],
            "abcd",
        ),
        ("a hole in the stream", &[(1, 2, "cd")], &[(1, "cd")], ""),
    ];
    for checksum in [false, true] {
        for (name, mappings, payload, readable) in rows {
            let mut bench = Bench::new(1, checksum);
            for (ssn, position, bytes) in *mappings {
                map(&mut bench, FIRST, *ssn, *position, bytes.as_bytes());
            }
            for (ssn, bytes) in *payload {
                take(&mut bench, FIRST, *ssn, bytes.as_bytes());
            }
            assert_eq!(bench.read(), readable.as_bytes(), "{name}, {checksum}");
        }
    }
}

#[test]
fn with_checksums_nothing_counts_before_its_mapping_is_complete() {
    // rfc8684:D9
    for (checksum, early) in [(false, "ab"), (true, "")] {
        let mut bench = Bench::new(1, checksum);
        map(&mut bench, FIRST, 1, 0, b"abcd");
        take(&mut bench, FIRST, 1, b"ab");
        assert_eq!(bench.read(), early.as_bytes());
        take(&mut bench, FIRST, 3, b"cd");
        assert_eq!(bench.conn.recv.next(), at(4));
    }
}

#[test]
fn a_wrong_checksum_beside_another_subflow_resets_its_own() {
    // rfc8684:B8,B11
    let mut bench = Bench::new(2, true);
    map(&mut bench, JOINED, 1, 0, b"abcd");
    take(&mut bench, JOINED, 1, b"abXd");
    assert_eq!(bench.read(), b"");
    let ends = bench.conn.subflows.iter();
    let ends: alloc::vec::Vec<_> = ends.map(|sf| sf.closing.end).collect();
    assert_eq!(ends, [None, Some(SubflowEnd::Checksum)]);
    // The other one brings the same data.
    map(&mut bench, FIRST, 1, 0, b"abcd");
    take(&mut bench, FIRST, 1, b"abcd");
    assert_eq!(bench.read(), b"abcd");
}

#[test]
fn a_wrong_checksum_on_the_only_subflow_holds_its_bytes() {
    // rfc8684:B9
    let mut bench = Bench::new(1, true);
    map(&mut bench, FIRST, 1, 0, b"abcd");
    take(&mut bench, FIRST, 1, b"abXd");
    take(&mut bench, FIRST, 5, b"ef");
    assert_eq!(bench.read(), b"");
    assert_eq!(bench.conn.subflows[FIRST].closing.end, None);
    assert!(bench.conn.level.is_multipath());
    // The peer's MP_FAIL is the answer: the subflow's order is the stream's.
    let fail = manypath_wire::tcp::mptcp::Fail {
        dsn: bench
            .conn
            .numbers
            .tx
            .expect("keys are exchanged")
            .dsn(at(0)),
    };
    bench.with(|conn, cx| conn.on_mp_fail(FIRST, fail, cx));
    assert_eq!(bench.read(), b"abXdef");
    assert!(!bench.conn.level.is_multipath());
}

#[test]
fn a_mapping_that_contradicts_an_earlier_one_does_not_count() {
    // rfc8684:D5
    let mut bench = Bench::new(1, false);
    map(&mut bench, FIRST, 1, 0, b"abcd");
    map(&mut bench, FIRST, 1, 8, b"abcd");
    map(&mut bench, FIRST, 3, 2, b"cd");
    assert_eq!(bench.count.dss_mapping_invalid, 2);
    take(&mut bench, FIRST, 1, b"abcd");
    assert_eq!(bench.read(), b"abcd");
}

#[test]
fn a_data_ack_of_either_width_counts_up_to_what_was_sent() {
    // rfc8684:D14,D16,D24
    // Position, whether the number is of 64 bits; bytes left without Data ACK, whether it was refused.
    for (position, long, left, refused) in [
        (0, true, 100, false),
        (60, true, 40, false),
        (60, false, 40, false),
        (100, false, 0, false),
        (101, true, 100, true),
        (101, false, 100, true),
    ] {
        let mut bench = Bench::new(1, true);
        bench.write(150, 100);
        let numbers = bench.conn.numbers.tx.expect("keys are exchanged");
        let dsn = numbers.dsn(at(position)).get();
        let ack = match long {
            true => DataAck::Long(dsn),
            false => DataAck::Short(dsn as u32),
        };
        bench.with(|conn, cx| conn.on_data_ack(FIRST, ack, 500, cx));
        let send = &bench.conn.send;
        assert_eq!(send.next().since(send.una()), left, "{position} {long}");
        assert_eq!(bench.count.data_ack_invalid, u64::from(refused));
    }
}

#[test]
fn the_first_data_fin_says_where_the_stream_ends() {
    // rfc8684:F1,F2
    let mut bench = Bench::new(1, true);
    bench.receive(b"abcd");
    for (end, invalid, finished) in [(3, 1, false), (6, 1, false), (5, 2, false), (6, 2, false)] {
        bench.with(|conn, cx| conn.note_stream_end(FIRST, at(end), cx));
        assert_eq!(bench.count.dss_mapping_invalid, invalid, "{end}");
        assert_eq!(bench.conn.recv.finished(), finished);
    }
    bench.receive(b"ef");
    assert!(bench.conn.recv.finished());
}

#[test]
fn a_mapping_has_a_checksum_exactly_if_that_was_negotiated() {
    // rfc8684:D2,D3
    for (negotiated, present, agreed) in [
        (true, true, true),
        (false, false, true),
        (true, false, false),
        (false, true, false),
    ] {
        let mut bench = Bench::new(2, negotiated);
        let checksum = present.then_some(7);
        let numbers = bench.conn.numbers.rx.expect("keys are exchanged");
        let mapping = Mapping {
            dsn: MapDsn::Long(numbers.dsn(at(0)).get()),
            ssn: Ssn::new(1),
            len: 4,
            checksum,
        };
        bench.with(|conn, cx| conn.on_mapping(JOINED, &mapping, false, cx));
        let end = bench.conn.subflows[JOINED].closing.end;
        assert_eq!(end.is_none(), agreed, "{negotiated} {present}");
    }
}

/// So many unmapped bytes come on the joined subflow.
fn unmapped(bench: &mut Bench, bytes: usize) {
    bench.with(|conn, cx| conn.discard_unmapped(JOINED, bytes, cx));
}

#[test]
fn unmapped_bytes_reset_a_subflow_when_they_are_many() {
    // rfc8684:D12,B5
    let mut bench = Bench::new(2, false);
    unmapped(&mut bench, MOST_UNMAPPED as usize - 1);
    assert_eq!(bench.conn.subflows[JOINED].closing.end, None);
    unmapped(&mut bench, 1);
    let end = bench.conn.subflows[JOINED].closing.end;
    assert_eq!(end, Some(SubflowEnd::OptionsLost));
}
