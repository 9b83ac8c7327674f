//! What the other subflows show about options on their paths (RFC 8684 section 3.7).

use super::*;
use crate::api::SubflowEnd;
use crate::conn::HandshakeState;
use crate::conn::subflow::Subflow;
use crate::conn::tests::Bench;

const FIRST: SubflowIdx = SubflowIdx::FIRST;
const JOINED: SubflowIdx = SubflowIdx(1);

#[test]
fn another_subflow_is_evidence_by_what_passed_on_it() {
    // rfc8684:B3,B4
    type Change = fn(&mut Subflow, Instant);
    let rows: [(&str, Change, Others); 7] = [
        ("nothing was sent on it", |_, _| {}, Others::Unproven),
        (
            "data came mapped",
            |sf, _| sf.evidence.data_came_mapped = true,
            Others::Proven,
        ),
        (
            "its data has a Data ACK",
            |sf, _| sf.evidence.data_was_acked = true,
            Others::Proven,
        ),
        (
            "data came mapped, and it is stale",
            |sf, now| {
                sf.evidence.data_came_mapped = true;
                sf.liveness.stale_since = Some(now);
            },
            Others::Silent,
        ),
        (
            "options stopped there as well",
            |sf, _| {
                sf.evidence.data_came_mapped = true;
                sf.evidence.option_loss.acks = 1;
            },
            Others::Unproven,
        ),
        (
            "it is being reset",
            |sf, _| {
                sf.evidence.data_came_mapped = true;
                sf.closing.reset(SubflowEnd::OptionsLost, None);
            },
            Others::None,
        ),
        (
            "its third ACK is unanswered",
            |sf, now| {
                sf.handshake.state = HandshakeState::JoinAck {
                    proof: [0; 20],
                    sent_at: None,
                    repeat_at: now,
                    repeats: 0,
                };
            },
            Others::Unproven,
        ),
    ];
    for (name, change, expected) in rows {
        let mut bench = Bench::new(2, true);
        let now = bench.now;
        change(&mut bench.conn.subflows[JOINED], now);
        assert_eq!(bench.conn.subflows.others(FIRST), expected, "{name}");
    }
    assert_eq!(
        Bench::new(1, true).conn.subflows.others(FIRST),
        Others::None
    );
}

/// Both ends must keep the same one.
#[test]
fn of_two_subflows_that_lost_options_the_first_is_kept() {
    let mut bench = Bench::new(2, true);
    for sf in &mut bench.conn.subflows {
        sf.evidence.data_came_mapped = true;
        sf.evidence.option_loss.acks = 1;
    }
    assert_eq!(bench.conn.subflows.others(FIRST), Others::Unproven);
    assert_eq!(bench.conn.subflows.others(JOINED), Others::Proven);
}

/// One row for each kind of path on which options stop in mid-connection.
#[test]
fn options_that_stop_reset_a_subflow_or_end_multipath() {
    // rfc8684:B3,B4,B9
    type Change = fn(&mut Bench);
    let waited: Change = |bench| {
        let long_ago = Instant::from_secs(1);
        bench.conn.subflows[JOINED].evidence.option_loss.since = Some(long_ago);
    };
    // Subflows, and the one on which options stop; why it ends, if it does; whether it is still Multipath TCP.
    type Row = (
        &'static str,
        u8,
        SubflowIdx,
        Change,
        Option<SubflowEnd>,
        bool,
    );
    let rows: [Row; 4] = [
        ("the only path", 1, FIRST, |_| {}, None, false),
        (
            "a path beside a clean one",
            2,
            JOINED,
            |bench| bench.conn.subflows[FIRST].evidence.data_came_mapped = true,
            Some(SubflowEnd::OptionsLost),
            true,
        ),
        (
            "a path beside one that showed nothing yet",
            2,
            JOINED,
            |_| {},
            None,
            true,
        ),
        (
            "the same, and it had time to",
            2,
            JOINED,
            waited,
            None,
            false,
        ),
    ];
    for (name, subflows, i, change, end, multipath) in rows {
        let mut bench = Bench::new(subflows, true);
        change(&mut bench);
        bench.with(|conn, cx| conn.options_stopped(i, FallbackCause::OptionsLost, cx));
        assert_eq!(bench.conn.subflows[i].closing.end, end, "{name}");
        assert_eq!(bench.conn.level.is_multipath(), multipath, "{name}");
    }
}
