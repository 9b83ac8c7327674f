//! Where the infinite mapping begins after a checksum failure, and which subflow may continue (RFC 8684 section 3.7).

use super::*;
use crate::api::FallbackCause;
use crate::conn::fallback::HeldOrder;
use crate::conn::subflow::liveness::Uplink;
use crate::conn::tests::{Bench, at};
use crate::ids::SubflowId;

const FIRST: SubflowIdx = SubflowIdx::FIRST;

fn failure() -> ChecksumFailure {
    ChecksumFailure {
        subflow: SubflowId(0),
        at: at(100),
        ssn: Ssn::new(101),
        held: 10,
        bare: false,
        mapped_at: None,
        order: HeldOrder::Unknown,
        since: Instant::from_secs(1),
        again_at: Instant::from_secs(1),
        sent: 1,
        peer_alive: false,
        answered: false,
    }
}

#[test]
fn an_infinite_mapping_begins_with_its_segment_unless_unmapped_pieces_precede_it() {
    // rfc8684:B9
    // The segment that held bytes came with, and the last one with a mapping; the mapping's SSN and its segment's.
    for (name, began, mapped_at, said, here, begins) in [
        (
            "the bytes came mapped",
            Some(111),
            Some(111),
            121,
            481,
            true,
        ),
        (
            "an unshifted piece without a mapping",
            Some(111),
            None,
            121,
            121,
            true,
        ),
        (
            "a shifted piece without a mapping",
            Some(111),
            None,
            121,
            481,
            false,
        ),
        ("the bytes filled a hole", None, None, 121, 481, true),
    ] {
        let before = ChecksumFailure {
            mapped_at: mapped_at.map(Ssn::new),
            ..failure()
        };
        let held = before.with(10, began.map(Ssn::new));
        assert_eq!(held.end(), at(120), "{name}");
        let found = held.begins_here(Ssn::new(said), Ssn::new(here));
        assert_eq!(found, begins, "{name}");
    }
}

#[test]
fn a_mapping_that_does_not_continue_the_failed_one_shows_that_held_bytes_are_not_the_stream() {
    // rfc8684:B9,B11
    for (name, ssn, position, order) in [
        ("the failed one again", 101, 100, HeldOrder::Unknown),
        ("what follows it", 111, 110, HeldOrder::Unknown),
        ("older data behind it", 111, 90, HeldOrder::Other),
        (
            "data of another subflow left out",
            111,
            150,
            HeldOrder::Other,
        ),
        ("retransmitted from before", 91, 90, HeldOrder::Unknown),
    ] {
        let mut found = failure();
        found.note_mapping(Ssn::new(ssn), at(position));
        assert_eq!(found.held_order(), order, "{name}");
        found.note_infinite(Ssn::new(111), at(110));
        let expected = match order {
            HeldOrder::Other => HeldOrder::Other,
            _ => HeldOrder::Stream,
        };
        assert_eq!(
            found.held_order(),
            expected,
            "{name}, and an infinite mapping"
        );
    }
}

#[test]
fn a_subflow_is_left_when_no_other_one_responds() {
    // The other subflow; alone, left, certainly alone.
    type Change = fn(&mut Subflow, Instant);
    let rows: [(&str, Change, [bool; 3]); 5] = [
        ("works", |_, _| {}, [false; 3]),
        (
            "stale",
            |sf, now| sf.liveness.stale_since = Some(now),
            [false, true, false],
        ),
        (
            "without carrier",
            |sf, _| sf.liveness.uplink = Uplink::Stalled,
            [false, true, false],
        ),
        (
            "being reset",
            |sf, _| {
                sf.closing.reset(SubflowEnd::OptionsLost, None);
            },
            [true, true, false],
        ),
        (
            "finished by us",
            |sf, _| sf.closing.finish = true,
            [false, true, false],
        ),
    ];
    for (name, change, expected) in rows {
        let mut bench = Bench::new(2, true);
        let now = bench.now;
        change(&mut bench.conn.subflows[SubflowIdx(1)], now);
        let conn = &bench.conn.subflows;
        let found = [
            conn.is_alone(FIRST),
            conn.is_last_usable(FIRST),
            conn.is_certainly_alone(FIRST),
        ];
        assert_eq!(found, expected, "{name}");
    }
    assert!(Bench::new(1, true).conn.subflows.is_certainly_alone(FIRST));
}

#[test]
fn a_join_in_progress_is_waited_for_until_its_third_ack_was_repeated_in_vain() {
    for (repeats, awaits) in [
        (0, true),
        (PROOFS_IN_VAIN - 1, true),
        (PROOFS_IN_VAIN, false),
    ] {
        let mut bench = Bench::new(2, true);
        let now = bench.now;
        bench.conn.subflows[SubflowIdx(1)].handshake.state = HandshakeState::JoinAck {
            proof: [0; 20],
            sent_at: None,
            repeat_at: now,
            repeats,
        };
        assert_eq!(
            bench.conn.subflows.awaits_pre_established(),
            awaits,
            "{repeats}"
        );
        assert!(bench.conn.subflows.has_pre_established());
    }
}

#[test]
fn the_peer_gets_an_infinite_mapping_where_data_is_in_flight_or_there_were_other_subflows() {
    for (subflows, sent, level) in [
        (1, 0, ProtocolLevel::PlainTcp),
        (1, 10, ProtocolLevel::InfiniteMapping),
        (2, 0, ProtocolLevel::InfiniteMapping),
    ] {
        let mut bench = Bench::new(subflows, true);
        bench.write(10, sent);
        assert_eq!(
            bench.conn.subflows.level_of_answer(&bench.conn.send),
            level,
            "{subflows} {sent}"
        );
    }
}

#[test]
fn only_a_subflow_in_stream_order_continues_as_tcp() {
    // rfc8684:B4,B11
    type Change = fn(&mut Conn, SubflowIdx);
    let rows: [(&str, Change, bool); 4] = [
        ("in order", |_, _| {}, true),
        (
            "unmapped bytes were dropped",
            |conn, i| conn.subflows[i].unmapped.bytes = 1,
            false,
        ),
        (
            "a mapping was discarded",
            |conn, i| conn.subflows[i].unmapped.discarded_mapping = true,
            false,
        ),
        (
            "what is in flight is elsewhere",
            |conn, _| {
                assert_eq!(conn.send.write_with(10, |_| {}), 10);
                conn.send.sent(10);
            },
            false,
        ),
    ];
    for (name, change, continues) in rows {
        let mut bench = Bench::new(1, true);
        change(&mut bench.conn, FIRST);
        bench.with(|conn, cx| {
            conn.fall_back(
                FIRST,
                Event::OnlySubflowWithoutOptions {
                    cause: FallbackCause::OptionsLost,
                },
                cx,
            )
        });
        assert_eq!(!bench.conn.level.is_multipath(), continues, "{name}");
        let reset = bench.conn.subflows[FIRST].closing.reset_with.is_some();
        assert_eq!(reset, !continues, "{name}");
    }
}
