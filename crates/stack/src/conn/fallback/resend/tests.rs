//! Which of the bytes after a fallback are new (RFC 8684 section 3.7).

use super::*;
use crate::conn::tests::Bench;

const FIRST: SubflowIdx = SubflowIdx::FIRST;

#[test]
fn a_number_has_its_place_in_bytes_or_at_their_nearer_end() {
    for (number, ssn, index) in [
        (10, 10, 0),
        (12, 10, 2),
        (14, 10, 4),
        (20, 10, 4),
        (5, 10, 0),
    ] {
        let found = place(Ssn::new(number), Ssn::new(ssn), b"abcd");
        assert_eq!(found, index, "{number}");
    }
    assert_eq!(
        place(Ssn::new(1), Ssn::new(u32::MAX), b"abcd"),
        2,
        "wrapped"
    );
}

#[test]
fn a_peer_that_resends_has_what_is_here_skipped() {
    // rfc8684:B9,D18
    // Resent from this SSN on, of which so many bytes are here; segments, and what of them is new.
    type Row<'a> = (&'a str, u32, u64, &'a [(u32, &'a str, &'a str)]);
    let rows: &[Row<'_>] = &[
        ("nothing is here", 5, 0, &[(5, "abc", "abc")]),
        (
            "in flight before",
            5,
            0,
            &[(1, "wxyz", ""), (5, "abc", "abc")],
        ),
        (
            "in one segment with it",
            5,
            0,
            &[(3, "yzab", "ab"), (7, "c", "c")],
        ),
        ("some is here", 5, 2, &[(5, "abc", "c"), (8, "d", "d")]),
        (
            "all of a segment is here",
            5,
            5,
            &[(5, "abc", ""), (8, "def", "f")],
        ),
        ("both", 5, 1, &[(3, "yzab", "b")]),
    ];
    for (name, from, known, segments) in rows {
        let mut bench = Bench::new(1, true);
        bench.conn.fallback.resend.by_peer = Some((Ssn::new(*from), *known));
        for (ssn, bytes, new) in *segments {
            let found = bench
                .conn
                .fallback
                .new_part(Ssn::new(*ssn), bytes.as_bytes());
            assert_eq!(found, new.as_bytes(), "{name}: {ssn}");
        }
        assert_eq!(bench.conn.fallback.resend.by_peer, None, "{name}");
    }
}

#[test]
fn retransmissions_of_a_peer_unaware_of_our_fallback_are_cut_out() {
    // rfc8684:R3
    // SSNs known to repeat; a segment; what of it is new, before and behind them.
    for (name, known, ssn, before, behind) in [
        ("all of it", 3..7, 3, "", None),
        ("none of it", 9..12, 3, "abcd", None),
        ("its end", 5..9, 3, "ab", None),
        ("its beginning", 1..5, 3, "", Some((5, "cd"))),
        ("its middle", 4..6, 3, "a", Some((6, "d"))),
        ("what is past", 1..3, 3, "", Some((3, "abcd"))),
    ] {
        let mut bench = Bench::new(1, true);
        let known = Ssn::new(known.start)..Ssn::new(known.end);
        bench.conn.subflows.note_retransmitted(FIRST, known);
        let found = bench
            .conn
            .subflows
            .without_repeated(FIRST, Ssn::new(ssn), b"abcd");
        let behind = behind.map(|(ssn, bytes)| (Ssn::new(ssn), bytes.as_bytes()));
        assert_eq!(found, (before.as_bytes(), behind), "{name}");
    }
}

#[test]
fn what_lies_between_two_retransmissions_is_old_too() {
    let mut bench = Bench::new(1, true);
    for part in [1..3, 6..8, 4..5] {
        bench
            .conn
            .subflows
            .note_retransmitted(FIRST, Ssn::new(part.start)..Ssn::new(part.end));
    }
    let known = &bench.conn.subflows[FIRST]
        .unmapped
        .retransmitted_after_fallback;
    assert_eq!(*known, Some(Ssn::new(1)..Ssn::new(8)));
}

#[test]
fn an_infinite_mapping_continues_what_is_here_or_skips_something() {
    // rfc8684:B9,B11,D18
    // SSN 6 is position 5: where the infinite mapping begins, and whether something is missing before it.
    for (name, ssn, position, skips) in [
        ("right there", 6, 5, false),
        ("before", 1, 0, false),
        ("bytes that are still to come", 106, 105, false),
        ("repeats old data as new bytes", 6, 2, false),
        ("one byte on", 6, 6, true),
        ("far on", 6, 1 << 40, true),
        ("ahead, and one byte on", 106, 106, true),
        ("behind, and one byte on", 1, 1, true),
    ] {
        let mapping = |bench: &Bench| Mapping {
            dsn: manypath_wire::tcp::mptcp::MapDsn::Long(
                bench
                    .conn
                    .numbers
                    .rx
                    .expect("keys are exchanged")
                    .dsn(Offset(position))
                    .get(),
            ),
            ssn: Ssn::new(ssn),
            len: 0,
            checksum: None,
        };
        let at_six = SegmentCx {
            ssn: Some(Ssn::new(6)),
            delivered: Some(Ssn::new(6)),
        };
        let mut bench = Bench::new(1, true);
        bench.receive(b"hello");
        let option = mapping(&bench);
        let conn = &bench.conn;
        let (numbers, recv, subflows) = (&conn.numbers, &conn.recv, &conn.subflows);
        let found = conn
            .fallback
            .skips_something(numbers, recv, subflows, FIRST, &option, at_six);
        assert_eq!(found, skips, "{name}");
    }
}
