//! The scoreboard against a model that keeps one record a byte, and its single rules.

use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use super::*;

const MSS: u32 = 1_000;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn seq(n: u32) -> SeqNum {
    SeqNum::new(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn ack_at(now: u64, ack: u32, sack: &[(u32, u32)]) -> (Instant, SeqNum, Vec<(SeqNum, SeqNum)>) {
    (
        at(now),
        seq(ack),
        sack.iter()
            .map(|&(start, end)| (seq(start), seq(end)))
            .collect(),
    )
}

/// `count` segments sent 1 ms apart from time 0 on, numbers from 0.
fn stream(count: u32) -> Flight {
    let mut flight = Flight::new(seq(0), MSS);
    for n in 0..count {
        flight.sent_new(at(u64::from(n)), MSS, Control::default());
    }
    flight
}

fn take(flight: &mut Flight, now: u64, ack: u32, sack: &[(u32, u32)]) -> AckReport {
    let (now, ack, sack) = ack_at(now, ack, sack);
    flight.on_ack(&AckInfo {
        now,
        ack,
        sack: &sack,
        echo_before: None,
        min_rtt: Duration::ZERO,
    })
}

#[test]
fn cumulative_and_selective_reports_are_counted_once() {
    let mut flight = stream(10);
    let report = take(&mut flight, 100, 2_000, &[(4_000, 6_000)]);
    assert_eq!(
        (report.acked, report.newly_sacked, report.delivered),
        (2_000, 2_000, 4_000)
    );
    assert_eq!(
        (flight.pipe(), flight.sacked(), flight.outstanding()),
        (6_000, 2_000, 8_000)
    );
    let report = take(&mut flight, 101, 6_000, &[]);
    assert_eq!((report.acked, report.delivered), (4_000, 2_000));
    assert_eq!(
        (flight.pipe(), flight.sacked(), flight.sacked_runs()),
        (4_000, 0, 0)
    );
}

#[test]
fn new_data_of_one_instant_is_one_entry_up_to_a_burst() {
    let mut flight = Flight::new(seq(0), MSS);
    for _ in 0..70 {
        flight.sent_new(at(1), MSS, Control::default());
    }
    assert_eq!(
        flight.entries().map(|entry| entry.len).collect::<Vec<_>>(),
        [65_000, 5_000]
    );
    flight.sent_new(
        at(2),
        1,
        Control {
            syn: false,
            fin: true,
        },
    );
    assert_eq!(flight.entries().len(), 3);
}

#[test]
fn syn_and_fin_are_reported_and_stay_at_their_ends() {
    let mut flight = Flight::new(seq(u32::MAX), MSS);
    flight.sent_new(
        at(0),
        1,
        Control {
            syn: true,
            fin: false,
        },
    );
    let report = take(&mut flight, 50, 0, &[]);
    assert!(report.control.syn && !report.control.fin);
    flight.sent_new(
        at(60),
        3_001,
        Control {
            syn: false,
            fin: true,
        },
    );
    let report = take(&mut flight, 100, 1_000, &[]);
    assert!(!report.control.fin);
    assert_eq!(
        flight.tail(MSS),
        Some(Retransmit {
            seq: seq(2_000),
            len: 1_001,
            control: Control {
                syn: false,
                fin: true
            }
        })
    );
    flight.mark_any(|_| true);
    let lost = flight.next_lost(MSS).unwrap();
    assert_eq!(
        (lost.seq, lost.len, lost.control.fin),
        (seq(1_000), 1_000, false)
    );
    assert!(take(&mut flight, 200, 3_001, &[]).control.fin);
    assert!(flight.is_empty());
}

#[test]
fn round_trips_obey_karn() {
    let mut flight = stream(4);
    let report = take(&mut flight, 100, 2_000, &[]);
    assert_eq!(
        (report.rtt, report.latest_rtt),
        (Some(ms(100)), Some(ms(99)))
    );
    flight.mark_head(MSS);
    flight.sent_again(at(150), seq(2_000), MSS);
    let report = take(&mut flight, 200, 4_000, &[]);
    assert_eq!(
        (report.rtt, report.latest_rtt, report.retransmitted_acked),
        (None, None, true)
    );
    // What was selectively acknowledged at the same time was sent once.
    let mut flight = stream(4);
    flight.sent_again(at(50), seq(0), MSS);
    let report = take(&mut flight, 100, 1_000, &[(3_000, 4_000)]);
    assert_eq!(report.rtt, Some(ms(97)));
}

#[test]
fn the_newest_delivery_is_never_an_ambiguous_retransmission() {
    for (echo, min_rtt, expected) in [
        (None, 0, Some(50)),
        // The echo proves that the original arrived.
        (Some(at(50)), 0, None),
        (Some(at(51)), 0, Some(50)),
        // Back faster than any round trip was.
        (None, 60, None),
    ] {
        let mut flight = stream(1);
        flight.sent_again(at(50), seq(0), MSS);
        let info = AckInfo {
            now: at(100),
            ack: seq(1_000),
            sack: &[],
            echo_before: echo,
            min_rtt: ms(min_rtt),
        };
        let report = flight.on_ack(&info);
        assert_eq!(report.newest.map(|newest| newest.sent_at), expected.map(at));
    }
}

#[test]
fn above_a_hole_an_old_echo_does_not_make_a_retransmission_ambiguous() {
    // RFC 7323 section 4.3: the echo is that of the last segment in order, here of the first.
    for (min_rtt, expected) in [(0, Some(50)), (60, None)] {
        let mut flight = stream(3);
        flight.sent_again(at(50), seq(2_000), MSS);
        let info = AckInfo {
            now: at(100),
            ack: seq(1_000),
            sack: &[(seq(2_000), seq(3_000))],
            echo_before: Some(at(1)),
            min_rtt: ms(min_rtt),
        };
        let newest = flight.on_ack(&info).newest.map(|newest| newest.sent_at);
        let first = Some(at(0));
        assert_eq!(newest, expected.map(at).or(first));
    }
}

#[test]
fn a_duplicate_report_tells_that_the_retransmission_arrived() {
    let head = Some((0, 1_000));
    // RFC 2883: whether the report comes with the acknowledgement or after it.
    for (name, with, after, min_rtt, expected) in [
        ("no report", None, None, 10, [None, None]),
        ("with it", head, None, 10, [Some(50), None]),
        ("after it", None, head, 10, [None, Some(50)]),
        ("once", head, head, 10, [Some(50), None]),
        ("part of it", None, Some((0, 1)), 10, [None, Some(50)]),
        ("of another", None, Some((1_000, 2_000)), 10, [None, None]),
        ("the network doubled it", head, None, 40, [None, None]),
        ("and then it arrived", head, head, 40, [None, Some(50)]),
    ] {
        let mut flight = stream(4);
        flight.sent_again(at(50), seq(0), MSS);
        let mut take = |now: u64, report: Option<(u32, u32)>| {
            let (now, ack, sack) = ack_at(now, 2_000, report.as_slice());
            let report = flight.on_ack(&AckInfo {
                now,
                ack,
                sack: &sack,
                echo_before: Some(at(2)),
                min_rtt: ms(min_rtt),
            });
            report.proven.map(|proven| {
                assert_eq!(proven.end, seq(1_000), "{name}");
                assert_eq!(proven.rtt, now.since(at(50)), "{name}");
                proven.sent_at
            })
        };
        let found = [take(65, with), take(95, after)];
        assert_eq!(found, expected.map(|sent| sent.map(at)), "{name}");
    }
}

#[test]
fn late_originals_are_reordering_and_retransmissions_are_not() {
    let mut flight = stream(6);
    assert!(!take(&mut flight, 100, 1_000, &[(2_000, 3_000)]).reordered);
    assert!(take(&mut flight, 101, 3_000, &[]).reordered);
    assert!(!take(&mut flight, 102, 3_000, &[(5_000, 6_000)]).reordered);
    flight.sent_again(at(103), seq(3_000), MSS);
    assert!(!take(&mut flight, 150, 4_000, &[(5_000, 6_000)]).reordered);
    // Two new blocks in one report, the higher first as receivers send them, are no reordering.
    let mut flight = stream(6);
    assert!(!take(&mut flight, 100, 0, &[(4_000, 5_000), (1_000, 2_000)]).reordered);
}

#[test]
fn duplicates_are_recognised_below_the_acknowledgement_and_within_the_second_block() {
    // RFC 2883 section 4.
    for (sack, expected) in [
        (vec![(1_000, 2_000)], Some((1_000, 2_000))),
        (vec![(4_000, 5_000), (4_000, 7_000)], Some((4_000, 5_000))),
        (vec![(4_000, 5_000)], None),
        (vec![(4_000, 5_000), (6_000, 7_000)], None),
        (vec![(2_000, 1_000)], None),
        (vec![(1_000, 4_000)], None),
        (vec![], None),
    ] {
        let mut flight = stream(10);
        let report = take(&mut flight, 100, 3_000, &sack);
        assert_eq!(
            report.dsack,
            expected.map(|(start, end)| (seq(start), seq(end))),
            "{sack:?}"
        );
    }
}

#[test]
fn lost_neighbours_are_sent_again_in_one_burst() {
    let mut flight = stream(6);
    take(&mut flight, 100, 0, &[(3_000, 4_000)]);
    flight.mark_any(|_| true);
    assert_eq!((flight.pipe(), flight.lost()), (0, 5_000));
    let first = flight.next_lost(65_536).unwrap();
    assert_eq!((first.seq, first.len), (seq(0), 3_000));
    flight.sent_again(at(110), seq(0), 2_000);
    let second = flight.next_lost(65_536).unwrap();
    assert_eq!((second.seq, second.len), (seq(2_000), 1_000));
    flight.sent_again(at(111), second.seq, second.len);
    let third = flight.next_lost(1_500).unwrap();
    assert_eq!((third.seq, third.len), (seq(4_000), 1_500));
    assert_eq!((flight.pipe(), flight.lost()), (3_000, 2_000));
    // Lost again, before what still waits.
    flight.mark_any(|entry| entry.seq == seq(2_000));
    assert_eq!(flight.next_lost(65_536).unwrap().seq, seq(2_000));
    flight.unmark_lost();
    assert_eq!((flight.pipe(), flight.next_lost(65_536)), (5_000, None));
}

#[test]
fn losses_are_counted_within_bounds() {
    let mut flight = stream(4);
    flight.mark_any(|entry| entry.seq != seq(1_000));
    for (start, end, expected) in [
        (0, 4_000, 3_000),
        (500, 2_500, 1_000),
        (1_000, 2_000, 0),
        (3_000, 9_000, 1_000),
        (2_000, 2_000, 0),
    ] {
        let lost = flight.lost_between(seq(start), seq(end));
        assert_eq!(lost, expected, "{start}..{end}");
    }
}

#[test]
fn reneging_is_seen_and_forgotten() {
    let mut flight = stream(4);
    take(&mut flight, 100, 0, &[(1_000, 3_000)]);
    assert!(!flight.reneged());
    take(&mut flight, 101, 1_000, &[]);
    assert!(
        flight.reneged(),
        "the byte after the acknowledgement was reported as held"
    );
    flight.forget_sacks();
    assert_eq!(
        (flight.pipe(), flight.sacked(), flight.reneged()),
        (3_000, 0, false)
    );
}

#[test]
fn without_sack_the_head_alone_is_inferred_lost() {
    let mut flight = Flight::new(seq(0), MSS);
    flight.sent_new(at(0), 5_500, Control::default());
    assert_eq!(flight.mark_head(MSS), 1_000);
    assert_eq!(flight.mark_head(MSS), 0, "once");
    assert_eq!((flight.lost(), flight.pipe()), (1_000, 4_500));
}

#[test]
fn a_peer_that_reports_single_bytes_does_not_cut_the_flight_to_dust() {
    let mut flight = Flight::new(seq(0), MSS);
    for n in 0..50 {
        flight.sent_new(at(n), 65_536, Control::default());
    }
    let window = flight.outstanding();
    for n in 0..100_000u32 {
        let start = (n.wrapping_mul(48_271) % (window - 2)) | 1;
        take(&mut flight, 1_000, 0, &[(start, start + 1)]);
    }
    assert!(
        flight.entries().len() < 7_000,
        "{} entries",
        flight.entries().len()
    );
    assert!(flight.counts_agree());
}

/// What one byte of the model knows.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Byte {
    state: State,
    sent_at: Instant,
    transmissions: u16,
}

#[derive(Clone, Debug)]
enum Op {
    Send(u32),
    Ack {
        advance: u32,
        blocks: Vec<(u32, u32)>,
    },
    Again {
        from: u32,
        len: u32,
    },
    AgainLost(u32),
    Condemn {
        older_than: u64,
    },
    Head,
    Unmark,
    Forget,
}

fn op() -> impl Strategy<Value = Op> {
    let block = || (0u32..200, 0u32..60);
    prop_oneof![
        4 => (1u32..80).prop_map(Op::Send),
        4 => (prop_oneof![2 => Just(0u32), 1 => 0u32..120], prop::collection::vec(block(), 0..5))
            .prop_map(|(advance, blocks)| Op::Ack { advance, blocks }),
        1 => (0u32..200, 1u32..60).prop_map(|(from, len)| Op::Again { from, len }),
        2 => (1u32..60).prop_map(Op::AgainLost),
        2 => (0u64..40).prop_map(|older_than| Op::Condemn { older_than }),
        1 => Just(Op::Head),
        1 => Just(Op::Unmark),
        1 => Just(Op::Forget),
    ]
}

/// The naive scoreboard: bytes from `una` on.
#[derive(Default)]
struct Model {
    bytes: VecDeque<Byte>,
}

impl Model {
    fn count(&self, state: State) -> u32 {
        self.bytes.iter().filter(|byte| byte.state == state).count() as u32
    }

    fn ack(&mut self, advance: u32, blocks: &[(u32, u32)]) -> u32 {
        let mut delivered = 0;
        for byte in self.bytes.drain(..advance as usize) {
            delivered += u32::from(byte.state != State::Sacked);
        }
        for &(start, len) in blocks {
            // Blocks that reach beyond what was sent are refused as a whole.
            let (start, end) = (
                i64::from(start) - i64::from(advance),
                i64::from(start + len) - i64::from(advance),
            );
            if end > self.bytes.len() as i64 {
                continue;
            }
            for n in start.max(0)..end.max(0) {
                let byte = &mut self.bytes[n as usize];
                delivered += u32::from(byte.state != State::Sacked);
                byte.state = State::Sacked;
            }
        }
        delivered
    }

    fn again(&mut self, now: Instant, from: u32, len: u32) {
        for byte in self.bytes.iter_mut().skip(from as usize).take(len as usize) {
            if byte.state != State::Sacked {
                *byte = Byte {
                    state: State::InFlight,
                    sent_at: now,
                    transmissions: byte.transmissions + 1,
                };
            }
        }
    }

    fn first_lost(&self) -> Option<usize> {
        self.bytes.iter().position(|byte| byte.state == State::Lost)
    }
}

fn agree(flight: &Flight, model: &Model) -> Result<(), TestCaseError> {
    prop_assert!(flight.counts_agree());
    prop_assert_eq!(flight.outstanding() as usize, model.bytes.len());
    prop_assert_eq!(flight.pipe(), model.count(State::InFlight));
    prop_assert_eq!(flight.sacked(), model.count(State::Sacked));
    prop_assert_eq!(flight.lost(), model.count(State::Lost));
    let mut model_bytes = model.bytes.iter();
    for entry in flight.entries() {
        for _ in 0..entry.len {
            let byte = model_bytes.next().unwrap();
            prop_assert_eq!(entry.state, byte.state);
            if entry.state != State::Sacked {
                prop_assert_eq!(
                    (entry.sent_at, entry.transmissions),
                    (byte.sent_at, byte.transmissions)
                );
            }
        }
    }
    let next = flight
        .next_lost(20)
        .map(|lost| (lost.seq.since(flight.una()) as usize, lost.len as usize));
    let expected = model.first_lost().map(|first| {
        let run = model
            .bytes
            .iter()
            .skip(first)
            .take(20)
            .take_while(|byte| byte.state == State::Lost)
            .count();
        (first, run)
    });
    prop_assert_eq!(next, expected);
    let adjacent = flight.entries().zip(flight.entries().skip(1));
    for (a, b) in adjacent {
        prop_assert!(
            a.state != State::Sacked || b.state != State::Sacked,
            "held neighbours are merged"
        );
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_scoreboard_is_its_model(isn: u32, ops in prop::collection::vec(op(), 1..60)) {
        let isn = seq(isn);
        let mut flight = Flight::new(isn, 10);
        let mut model = Model::default();
        for (step, op) in ops.into_iter().enumerate() {
            let now = at(step as u64);
            match op {
                Op::Send(len) => {
                    flight.sent_new(now, len, Control::default());
                    let byte = Byte { state: State::InFlight, sent_at: now, transmissions: 1 };
                    model.bytes.extend(core::iter::repeat_n(byte, len as usize));
                }
                Op::Ack { advance, blocks } => {
                    let advance = advance.min(flight.outstanding());
                    let una = flight.una();
                    let sack: Vec<_> = blocks.iter().map(|&(start, len)| (una + start, una + start + len)).collect();
                    let info = AckInfo { now, ack: una + advance, sack: &sack, echo_before: None, min_rtt: Duration::ZERO };
                    let report = flight.on_ack(&info);
                    prop_assert_eq!(report.acked, advance);
                    prop_assert_eq!(report.delivered, model.ack(advance, &blocks[..blocks.len().min(4)]));
                }
                Op::Again { from, len } => {
                    let len = len.min(flight.outstanding().saturating_sub(from));
                    flight.sent_again(now, flight.una() + from, len);
                    model.again(now, from, len);
                }
                Op::AgainLost(max) => {
                    if let Some(lost) = flight.next_lost(max) {
                        model.again(now, lost.seq.since(flight.una()), lost.len);
                        flight.sent_again(now, lost.seq, lost.len);
                    }
                }
                Op::Condemn { older_than } => {
                    let old = |sent_at: Instant| sent_at < at(older_than);
                    flight.mark_any(|entry| old(entry.sent_at));
                    for byte in model.bytes.iter_mut().filter(|byte| byte.state == State::InFlight && old(byte.sent_at)) {
                        byte.state = State::Lost;
                    }
                }
                Op::Head => {
                    flight.mark_head(10);
                    let head = flight.head().map_or(0, |head| head.len.min(10));
                    for byte in model.bytes.iter_mut().take(head as usize).filter(|byte| byte.state == State::InFlight) {
                        byte.state = State::Lost;
                    }
                }
                Op::Unmark => {
                    flight.unmark_lost();
                    for byte in model.bytes.iter_mut().filter(|byte| byte.state == State::Lost) {
                        byte.state = State::InFlight;
                    }
                }
                Op::Forget => {
                    flight.forget_sacks();
                    // A merged range keeps its youngest transmission; the model takes it from the entries.
                    let mut entries = flight.entries().flat_map(|entry| core::iter::repeat_n(*entry, entry.len as usize));
                    for byte in &mut model.bytes {
                        let entry = entries.next().unwrap();
                        if byte.state == State::Sacked {
                            *byte = Byte { state: State::InFlight, sent_at: entry.sent_at, transmissions: entry.transmissions };
                        }
                    }
                }
            }
            agree(&flight, &model)?;
        }
    }

    /// What lies behind everything delivered, lost or sent again was sent after it: the short walk finds all that is overtaken.
    #[test]
    fn the_short_walk_misses_nothing(ops in prop::collection::vec(op(), 1..60)) {
        let mut flight = Flight::new(seq(7), 10);
        let mut newest: Option<Newest> = None;
        for (step, op) in ops.into_iter().enumerate() {
            let now = at(step as u64);
            match op {
                Op::Send(len) => flight.sent_new(now, len, Control::default()),
                Op::Ack { advance, blocks } => {
                    let una = flight.una();
                    let sack: Vec<_> = blocks.iter().map(|&(start, len)| (una + start, una + start + len)).collect();
                    let ack = una + advance.min(flight.outstanding());
                    let info = AckInfo { now, ack, sack: &sack, echo_before: None, min_rtt: Duration::ZERO };
                    let found = flight.on_ack(&info).newest;
                    if found.is_some_and(|found| newest.is_none_or(|old| found.is_after(&old))) {
                        newest = found;
                    }
                }
                _ => if let Some(lost) = flight.next_lost(30) {
                    flight.sent_again(now, lost.seq, lost.len);
                },
            }
            let Some(newest) = newest else { continue };
            let overtaken = |entry: &Entry| newest.is_after(&Newest { sent_at: entry.sent_at, end: entry.end(), rtt: Duration::ZERO });
            let (mut short, mut long) = (flight.clone(), flight.clone());
            prop_assert_eq!(short.mark_overtaken(newest.sent_at, overtaken), long.mark_any(overtaken));
            flight = short;
        }
    }
}
