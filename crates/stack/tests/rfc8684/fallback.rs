//! The way down to TCP: section 3.7.

use manypath_stack::{EventKind, FallbackCause, ProtocolLevel, ReadOutcome, SubflowEnd};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{Dss, MapDsn, Mapping, MptcpOption, ResetReason};

use crate::script::packet::{Seg, ack, data, fin, rst};
use crate::script::session::Session;
use crate::script::{plain_options, without_checksums};

fn failed(s: &Session, seg: &Seg) -> Option<u64> {
    let fail = seg.options.mptcp.fail()?;
    Some(fail.dsn.since(s.peer_dsn(0)))
}

/// An infinite mapping of the peer for bytes of its stream.
fn infinite(s: &Session, flow: usize, at: u64) -> MptcpOption {
    infinite_from(s, at, s.ssn(flow))
}

fn infinite_from(s: &Session, at: u64, ssn: Ssn) -> MptcpOption {
    MptcpOption::Dss(Dss {
        data_ack: None,
        mapping: Some(Mapping {
            dsn: MapDsn::Long(s.peer_dsn(at).get()),
            ssn,
            len: 0,
            checksum: Some(0),
        }),
        data_fin: false,
    })
}

fn is_infinite(seg: &Seg) -> bool {
    seg.mapping().is_some_and(|map| map.is_infinite())
}

#[test]
fn every_segment_has_a_mapping_until_one_is_acknowledged() {
    // rfc8684:B2
    let mut s = Session::accepted();
    s.write(&[1; 9000]);
    let sent = s.w.drain(0);
    assert!(sent.len() >= 6);
    for seg in &sent {
        let map = seg.mapping().expect("a mapping on each");
        let payload = seg.payload.len();
        let ssn = Ssn::of(seg.seq, s.w.flows[0].irs);
        assert_eq!((usize::from(map.len), map.ssn), (payload, ssn));
    }
    // Also on what is sent again.
    s.w.advance_ms(1000);
    let again = s.w.drain(0);
    assert!(again.iter().any(Seg::has_data));
    let mapped = again
        .iter()
        .filter(|s| s.has_data())
        .all(|s| s.mapping().is_some());
    s.w.check(mapped, "a mapping on each repetition");
}

#[test]
fn an_ack_without_options_on_the_first_subflow_falls_back() {
    // rfc8684:B2,B4,B13,B14,B16,D18
    let mut s = Session::greeted(1, plain_options());
    s.w.drain(0);
    s.write(b"first");
    s.w.drain(0);
    // Options are removed on the way to us.
    s.w.inject(0, &ack());
    let cause = FallbackCause::FirstDataWithout;
    assert!(s.w.happened(|e| *e == EventKind::FellBack(cause)));
    // What the subflow acknowledged is free, without any Data ACK.
    assert_eq!((s.info().bytes_acked, s.info().send_queue), (5, 0));
    s.w.drain(0);
    s.write(b"second");
    let seg =
        s.w.expect(0, "data with an infinite mapping", |s| s.has_data());
    let map = seg.mapping().expect("a mapping");
    assert!(map.is_infinite() && seg.dss().is_some_and(|d| d.data_ack.is_none()));
    // It counts from the first byte that was never Data-ACKed.
    assert_eq!(
        (s.position(&map), map.ssn, map.checksum),
        (0, Ssn::new(1), Some(0))
    );
    s.w.inject(0, &ack());
    let room = s.info().peer_window;
    s.write(b"third");
    s.w.expect(0, "plain data", |s| s.has_data() && s.is_plain());
    // The peer's window is the subflow's now.
    assert!(room < 1 << 30);
    assert_eq!(s.info().peer_window, room - 5);
    s.w.inject(0, &data(b"answer"));
    assert_eq!(s.read(), b"answer");
    // No way back: neither options nor joins are taken any more.
    let add = s.add_addr(7, 1, None);
    s.w.inject(0, &ack().opt(MptcpOption::AddAddr(add)));
    s.w.inject(0, &data(b" more").opt(s.dss(Some(s.map(0, 6, b" more")))));
    assert_eq!(s.read(), b" more");
    // A peer that still speaks of data hears once more that this is over.
    let over = |seg: &Seg| seg.is_plain() || seg.mapping().is_some_and(|map| map.is_infinite());
    let plain = s.w.drain(0).iter().all(over);
    s.w.check(plain, "no other option any more");
    let flow = s.w.dial(0, 4500, 80);
    let join = s.join_syn(5, false);
    s.w.inject(flow, &join);
    s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(s.info().level, ProtocolLevel::PlainTcp);
}

#[test]
fn data_without_options_on_the_first_subflow_falls_back() {
    // rfc8684:B4,C31
    let mut s = Session::greeted(1, plain_options());
    s.w.drain(0);
    s.w.inject(0, &data(b"plain"));
    s.w.advance_ms(200);
    assert_eq!(s.read(), b"plain");
    assert_eq!(s.info().fallback, Some(FallbackCause::FirstDataWithout));
    s.w.inject(0, &fin());
    let now = s.w.now;
    let end = s.w.stack.read(now, s.conn, &mut [0; 4]);
    assert_eq!(
        end,
        Ok(ReadOutcome::End),
        "a FIN is the end of the stream now"
    );
}

/// The stack has joined and sent its first data there, because the first subflow has no window; somebody acknowledges it
/// without options.
fn answered_by_somebody() -> (Session, usize) {
    let mut s = Session::called_with(2, plain_options());
    s.w.flows[0].window = 0;
    s.w.inject(0, &ack());
    let (other, syn) = s.open_out(1);
    let answer = s.join_answer(&syn, 9, false);
    s.w.inject(other, &answer);
    s.w.inject(other, &ack());
    s.w.drain(other);
    s.write(b"data");
    s.w.find(other, "data", |s| s.has_data());
    s.w.inject(other, &ack());
    s.w.quiet(other);
    (s, other)
}

#[test]
fn an_ack_without_options_on_a_joined_subflow_resets_it() {
    // rfc8684:B3,P1
    let (mut s, other) = answered_by_somebody();
    s.w.advance_ms(3000);
    let reset = s.w.find(other, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::MiddleboxInterference));
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
    // The data is not lost.
    s.w.flows[0].window = 60_000;
    s.ack(0);
    s.w.advance_ms(3000);
    s.w.find(0, "the data", |s| s.payload == b"data");
}

#[test]
fn a_split_segment_without_mapping_is_held_for_the_next() {
    // rfc8684:B3,D17
    for follows in [true, false] {
        let mut s = Session::accepted_with(2, plain_options());
        let other = s.join_in(1, 5, false);
        s.w.flows[0].window = 0;
        s.ack(0);
        s.write(b"data");
        s.w.find(other, "data", |s| s.has_data());
        let map = s.map(other, 0, b"two pieces");
        s.w.inject(other, &data(b"two "));
        let next = match follows {
            true => data(b"pieces").opt(s.dss(Some(map))),
            false => data(b"pieces"),
        };
        s.w.inject(other, &next);
        if follows {
            assert_eq!(s.read(), b"two pieces", "{}", s.w.log());
            assert_eq!(s.working(), 2);
        } else {
            s.w.advance_ms(300);
            let reset = s.w.find(other, "a reset", |s| s.is_rst());
            assert_eq!(reset.reason(), Some(ResetReason::MiddleboxInterference));
            assert_eq!(s.read(), b"");
        }
        assert_eq!(s.info().level, ProtocolLevel::Multipath);
    }
}

#[test]
fn held_bytes_of_a_joined_subflow_are_not_delivered_when_data_acks_are_missing() {
    // rfc8684:B5,D11
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, false);
    s.w.inject(0, &rst());
    s.write(b"data");
    s.w.find(other, "data", |s| s.has_data());
    s.received += 4;
    s.ack(other);
    s.write(b"more");
    s.w.find(other, "data", |s| s.has_data());
    // Both directions lose their options with data. Nobody here knows where this belongs.
    s.w.inject(other, &data(b"of another place"));
    s.w.advance_ms(5_000);
    assert_eq!(s.read(), b"", "{}", s.w.log());
    assert!(s.w.count().conn_rto > 0, "{}", s.w.log());
    assert!(
        s.info().level < ProtocolLevel::InfiniteMapping,
        "{}",
        s.w.log()
    );
}

#[test]
fn a_subflow_for_which_a_proxy_answers_is_a_backup() {
    // rfc8684:B3
    let (mut s, other) = answered_by_somebody();
    s.received += 4;
    s.ack(other);
    s.w.advance_ms(3000);
    s.w.quiet(other);
    assert_eq!(s.w.count().subflow_proxied, 1);
    assert_eq!(s.working(), 2);
    // With a window for both it carries nothing more.
    s.w.flows[0].window = 60_000;
    s.ack(0);
    s.write(b"more");
    s.w.find(0, "data", |s| s.payload == b"more");
    s.w.quiet(other);
    // Until it is the last.
    s.w.path_down(0);
    s.w.find(other, "the data", |s| s.payload == b"more");
}

#[test]
fn a_wrong_checksum_among_several_subflows_resets_its_subflow() {
    // rfc8684:B6,B8
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, false);
    s.send(0, 0, b"good");
    s.send_damaged(other, 4, b"evil");
    let reset = s.w.expect(other, "a reset with MP_FAIL", |s| s.is_rst());
    assert_eq!(failed(&s, &reset), Some(4), "where the mapping starts");
    assert_eq!(s.read(), b"good");
    assert_eq!(
        s.info().ended.last().map(|e| e.end),
        Some(SubflowEnd::Checksum)
    );
    // It comes again elsewhere.
    s.send(0, 4, b"fine");
    let reply = s.w.drain(0).pop().expect("an acknowledgement");
    assert_eq!(s.acked(&reply), Some(8));
    assert_eq!(s.read(), b"fine");
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn an_mp_fail_with_a_reset_reinjects_the_data() {
    // rfc8684:B6,B7,R4
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.w.flows[0].window = 0;
    s.w.inject(0, &ack());
    s.write(b"damaged");
    s.w.find(other, "data", |s| s.has_data());
    s.w.flows[0].window = 60_000;
    s.ack(0);
    s.w.drain(0);
    s.w.inject(other, &rst().opt(s.fail_at(0)));
    let again = s.w.find(0, "the data", |s| s.has_data());
    assert_eq!(again.payload, b"damaged");
    let map = again.mapping().expect("still mapped");
    assert_eq!(s.position(&map), 0);
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn a_wrong_checksum_on_the_only_subflow_sends_mp_fail_and_awaits_the_infinite_mapping() {
    // rfc8684:B8,B9,B10,B13,B14,B16
    let mut s = Session::accepted();
    s.send(0, 0, b"good ");
    assert_eq!(s.read(), b"good ");
    s.w.drain(0);
    s.send_damaged(0, 5, b"rewritten ");
    let nxt = s.w.flows[0].nxt;
    let told =
        s.w.expect(0, "MP_FAIL on an acknowledgement", |s| s.is_bare());
    assert_eq!(failed(&s, &told), Some(5));
    assert_eq!(
        (told.ack, s.acked(&told)),
        (nxt, Some(5)),
        "never Data-ACKed"
    );
    // What else was in flight, whatever it says of itself.
    s.send(0, 15, b"and more ");
    assert_eq!(s.read(), b"");
    // The answer: MP_FAIL, and an infinite mapping on the next new data.
    s.w.drain(0);
    let answer = ack().opt(s.fail_at(0));
    s.w.inject(0, &answer);
    let cause = FallbackCause::Checksum;
    assert!(s.w.happened(|e| *e == EventKind::FellBack(cause)));
    assert_eq!(s.read(), b"rewritten and more ");
    let pkt = data(b"as it comes").opt(infinite(&s, 0, 24));
    s.w.inject(0, &pkt);
    s.w.inject(0, &data(b", plain"));
    assert_eq!(s.read(), b"as it comes, plain");
    let fails = s.w.drain(0).iter().filter(|s| !s.is_plain()).count();
    assert_eq!(fails, 0, "the answer is not answered\n{}", s.w.log());
    // Our direction says so once, too.
    s.write(b"mine");
    s.w.expect(0, "an infinite mapping", |s| s.has_data() && is_infinite(s));
    s.write(b"too");
    s.w.expect(0, "plain data", |s| s.has_data() && s.is_plain());
}

#[test]
fn the_infinite_mapping_alone_answers_mp_fail() {
    // rfc8684:B9,B14,D18
    let mut s = Session::accepted();
    s.send_damaged(0, 0, b"rewritten ");
    let pkt = data(b"plain").opt(infinite(&s, 0, 10));
    s.w.inject(0, &pkt);
    assert_eq!(s.read(), b"rewritten plain");
    assert_eq!(s.info().level, ProtocolLevel::PlainTcp);
    let last = s.w.drain(0).pop().expect("an acknowledgement");
    assert!(last.is_plain(), "no Data ACK any more\n{}", s.w.log());
}

#[test]
fn an_infinite_mapping_counts_although_checksums_were_agreed_on() {
    // rfc8684:B4,D18,D3,B16
    let mut s = Session::accepted();
    s.send(0, 0, b"mapped ");
    // Half of a mapping is here when the peer gives up.
    let whole = s.map(0, 7, b"half and half");
    s.w.inject(0, &data(b"half ").opt(s.dss(Some(whole))));
    assert_eq!(s.read(), b"mapped ");
    let pkt = data(b"plain").opt(infinite(&s, 0, 12));
    s.w.inject(0, &pkt);
    assert_eq!(s.read(), b"half plain");
    assert_eq!(s.info().fallback, Some(FallbackCause::PeerInfinite));
    s.write(b"answer");
    s.w.find(0, "plain data", |s| s.has_data() && s.is_plain());
    s.w.inject(0, &fin());
    let now = s.w.now;
    let end = s.w.stack.read(now, s.conn, &mut [0; 4]);
    assert_eq!(end, Ok(ReadOutcome::End));
}

/// Options stop passing in mid-connection; the bytes that came since are told as the stream's.
pub(crate) fn options_lost() -> Session {
    let mut s = Session::accepted_with(1, without_checksums());
    s.send(0, 0, b"mapped ");
    assert_eq!(s.read(), b"mapped ");
    s.w.inject(0, &data(&[b'?'; 1200]));
    s.w.advance_ms(2000);
    assert_eq!(s.read(), [b'?'; 1200]);
    assert_eq!(s.info().fallback, Some(FallbackCause::OptionsLost));
    s
}

#[test]
fn the_last_bytes_stay_unacknowledged_until_the_peer_falls_back() {
    // rfc8684:B4,B5,R3
    let mut s = options_lost();
    let nxt = s.w.flows[0].nxt;
    let told = s.w.drain(0).pop().expect("an acknowledgement");
    assert_eq!(told.ack, nxt - 512);
    // More comes, and is acknowledged but for its end. It is in the application's hands.
    s.w.inject(0, &data(&[b'!'; 1000]));
    assert_eq!(s.read(), [b'!'; 1000]);
    let nxt = s.w.flows[0].nxt;
    s.w.find(0, "an acknowledgement", |seg| seg.ack == nxt - 512);
    // Data of ours without a mapping is what the peer cannot take for anything but TCP.
    s.write(b"answer");
    s.w.find(0, "the answer", |seg| seg.has_data());
    s.w.inject(0, &ack());
    s.w.find(0, "everything acknowledged", |seg| seg.ack == nxt);
    assert_eq!(s.w.count().ack_withheld, 1);
}

#[test]
fn withheld_acknowledgements_do_not_time_the_peer_out() {
    // rfc8684:B5 and RFC 9293 3.8.3
    let mut s = options_lost();
    s.w.drain(0);
    let nxt = s.w.flows[0].nxt;
    // The peer repeats all that it has no acknowledgement for, and gets half of it four times, and then a byte, ever slower.
    let mut una = nxt - 512;
    let mut given = Vec::new();
    for _ in 0..15 {
        let missing = nxt.since(una) as usize;
        s.w.inject(0, &data(&vec![b'?'; missing]).seq(una));
        let ack = s.w.drain(0).last().expect("an acknowledgement").ack;
        given.push(ack.since(una));
        una = ack;
    }
    assert_eq!(given, [256, 128, 64, 32, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    assert_eq!(s.read(), b"", "nothing twice");
    s.w.inject(0, &fin());
    s.w.find(0, "the acknowledgement of its end", |seg| {
        seg.ack == nxt + 1
    });
}

#[test]
fn a_join_in_progress_replaces_a_subflow_with_unanswered_mp_fail() {
    // rfc8684:B6,B8,B9
    let mut s = Session::accepted_with(2, plain_options());
    s.send(0, 0, b"good ");
    let other = s.w.dial(1, 4001, 80);
    let syn = s.join_syn(7, false);
    s.w.inject(other, &syn);
    let answer = s.w.expect(other, "SYN/ACK", |seg| seg.is_syn_ack());
    s.send_damaged(0, 5, b"rewritten");
    s.w.find(0, "MP_FAIL", |seg| seg.options.mptcp.fail().is_some());
    let proof = s.join_ack(&answer);
    s.w.inject(other, &proof);
    let reset = s.w.find(0, "a reset", Seg::is_rst);
    assert_eq!(failed(&s, &reset), Some(5));
    s.send(other, 5, b"as written");
    assert_eq!(s.read(), b"good as written");
    assert_eq!((s.info().level, s.working()), (ProtocolLevel::Multipath, 1));
}

#[test]
fn an_infinite_mapping_among_several_subflows_is_ignored() {
    // rfc8684:B15,D18
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, false);
    let pkt = data(b"which order?").opt(infinite(&s, 0, 0));
    s.w.inject(0, &pkt);
    assert_eq!(s.read(), b"");
    assert_eq!((s.info().level, s.working()), (ProtocolLevel::Multipath, 2));
    s.send(other, 0, b"this one");
    assert_eq!(s.read(), b"this one");
}

#[test]
fn an_mp_fail_on_the_only_subflow_is_answered_by_fallback() {
    // rfc8684:B9,B10,B13,B16
    let mut s = Session::called();
    s.write(b"known ");
    s.received = 6;
    s.ack(0);
    s.write(b"damaged ");
    s.w.drain(0);
    let flow = &s.w.flows[0];
    let (irs, start) = (flow.irs, flow.rcv);
    s.w.inject(0, &ack().opt(s.dss(None)).opt(s.fail_at(6)));
    let cause = FallbackCause::PeerFailed;
    assert!(s.w.happened(|e| *e == EventKind::FellBack(cause)));
    let answer = s.w.expect(0, "MP_FAIL in return", |s| s.is_bare());
    assert_eq!(failed(&s, &answer), Some(0));
    // The subflow's acknowledgement was for everything, and is the only one that counts.
    assert_eq!((s.info().bytes_acked, s.info().send_queue), (14, 0));
    s.write(b"new");
    let seg = s.w.expect(0, "an infinite mapping", |s| s.has_data());
    let map = seg.mapping().expect("a mapping");
    assert_eq!(seg.payload, b"new");
    assert!(map.is_infinite());
    // It counts from the first byte that was not Data-ACKed.
    assert_eq!((s.position(&map), map.ssn), (6, Ssn::new(7)));
    assert_eq!((seg.seq, map.checksum), (start, Some(0)));
    assert_eq!(Ssn::of(start, irs), Ssn::new(15));
    s.w.inject(0, &data(b"plain"));
    assert_eq!(s.read(), b"plain");
    // Our answer was lost: the peer asks again.
    s.w.drain(0);
    s.w.inject(0, &ack().opt(s.fail_at(6)));
    let again = s.w.expect(0, "MP_FAIL in return", |s| s.is_bare());
    assert!(failed(&s, &again).is_some());
    s.write(b"er");
    s.w.expect(0, "plain data", |s| s.has_data() && s.is_plain());
}

#[test]
fn an_mp_fail_is_repeated_and_in_the_end_resets() {
    // rfc8684:B8,B9,B11
    let mut s = Session::accepted();
    s.send_damaged(0, 0, b"rewritten");
    // It is there, speaks Multipath TCP, and does not answer.
    s.w.advance_ms(500);
    s.w.inject(0, &ack().opt(s.dss(None)));
    s.w.advance_ms(29_500);
    let sent = s.w.drain(0);
    let told = sent.iter().filter(|seg| failed(&s, seg) == Some(0)).count();
    assert!(told >= 3, "repeated\n{}", s.w.log());
    let last = sent.last().expect("something was sent");
    assert!(
        last.is_rst() && failed(&s, last) == Some(0),
        "{}",
        s.w.log()
    );
    assert_eq!(s.read(), b"", "what was held never counted");
    // Multipath TCP goes on where a subflow works: the same bytes again on a new one.
    let flow = s.join_in(0, 5, false);
    s.send(flow, 0, b"unchanged");
    assert_eq!(s.read(), b"unchanged");
}

#[test]
fn an_unanswered_mp_fail_falls_back() {
    // rfc8684:B9
    let mut s = Session::accepted();
    s.send_damaged(0, 0, b"rewritten");
    s.w.advance_ms(5_000);
    let cause = FallbackCause::Checksum;
    assert!(s.w.happened(|e| *e == EventKind::FellBack(cause)));
    assert_eq!(s.read(), b"rewritten");
    let sent = s.w.drain(0);
    let told = sent.iter().filter(|seg| failed(&s, seg) == Some(0)).count();
    assert!(told >= 3, "repeated\n{}", s.w.log());
}

#[test]
fn a_wrong_checksum_behind_a_hole_resets_the_only_subflow() {
    // rfc8684:B11,B8
    let mut s = Session::accepted();
    s.send_damaged(0, 100, b"beyond a hole");
    let reset = s.w.find(0, "a reset", |s| s.is_rst());
    assert_eq!(failed(&s, &reset), Some(100));
    assert_eq!(s.read(), b"");
    assert_eq!(s.info().closed, None);
}

#[test]
fn an_mp_fail_for_data_out_of_order_resends_from_the_data_ack() {
    // rfc8684:B9,B12
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    // Data goes on the other subflow, which dies, so that its data comes late on the first.
    s.w.flows[0].window = 0;
    s.w.inject(0, &ack());
    s.write(b"lost");
    s.w.find(other, "data", |s| s.has_data());
    s.w.flows[0].window = 60_000;
    s.ack(0);
    s.w.flows[other].window = 0;
    s.ack(other);
    s.write(b"later");
    s.w.find(0, "later data", |s| s.payload == b"later");
    s.w.inject(other, &rst());
    s.w.advance_ms(1500);
    s.w.find(0, "the lost data", |s| s.payload == b"lost");
    s.w.inject(0, &ack().opt(s.fail_at(0)));
    let infinite = |seg: &Seg| seg.mapping().is_some_and(|map| map.is_infinite());
    let again =
        s.w.find(0, "an infinite mapping", |s| s.has_data() && infinite(s));
    let map = again.mapping().expect("a mapping");
    assert_eq!(
        (s.position(&map), &again.payload[..]),
        (0, &b"lostlater"[..])
    );
    assert_eq!(map.ssn, Ssn::of(again.seq, s.w.flows[0].irs));
    // An acknowledgement of what came before says nothing.
    assert_eq!(s.info().bytes_acked, 0);
}

#[test]
fn bytes_after_mp_fail_are_held_for_the_infinite_mapping_once_there_were_other_subflows() {
    // rfc8684:B10,B14
    let fallen = || {
        let mut s = Session::called_with(2, plain_options());
        let other = s.join_out(1, 5, false);
        s.w.inject(other, &rst());
        s.w.advance_ms(50);
        s.write(b"damaged");
        s.w.find(0, "data", |s| s.has_data());
        s.w.inject(0, &ack().opt(s.fail_at(0)));
        let cause = FallbackCause::PeerFailed;
        assert!(s.w.happened(|e| *e == EventKind::FellBack(cause)));
        s.w.drain(0);
        s
    };
    // The peer heard the answer, and says so behind its data.
    let mut s = fallen();
    let here = infinite(&s, 0, 0);
    s.w.inject(0, &data(b"plain"));
    assert_eq!(s.read(), b"");
    s.w.advance_ms(300);
    s.w.find(0, "the question", |s| s.options.mptcp.fail().is_some());
    s.w.inject(0, &ack().opt(here));
    assert_eq!(s.read(), b"plain");
    s.w.inject(0, &data(b" again"));
    assert_eq!(s.read(), b" again");
    // It has nothing more to say than that it is done.
    let mut s = fallen();
    s.w.advance_ms(20_000);
    s.w.inject(0, &fin());
    let end = s.w.stack.read(s.w.now, s.conn, &mut [0; 8]);
    assert_eq!(end, Ok(ReadOutcome::End));
    // It did not hear the answer, nor anything that was asked: to guess would be to deliver its data in a wrong place.
    let mut s = fallen();
    s.w.inject(0, &data(b"mapped by a piece that is late"));
    s.w.advance_ms(20_000);
    assert_eq!(s.read(), b"");
    s.w.find(0, "a reset", |s| s.is_rst());
}

#[test]
fn an_unanswered_mp_fail_query_about_unmapped_bytes_resets() {
    // rfc8684:B9,B11
    for fails_there_too in [false, true] {
        let mut s = Session::called_with(2, plain_options());
        s.send(0, 0, b"mapped ");
        assert_eq!(s.read(), b"mapped ");
        // The proof is on its way: the peer may have another subflow by now.
        let (other, syn) = s.open_out(1);
        let answer = s.join_answer(&syn, 5, false);
        s.w.inject(other, &answer);
        s.w.inject(0, &data(b"unmapped"));
        s.w.advance_ms(1_000);
        s.w.find(0, "the question", |s| s.options.mptcp.fail().is_some());
        if fails_there_too {
            // We fall for that, and still lack the answer.
            s.w.inject(0, &ack().opt(s.fail_at(0)));
            let cause = FallbackCause::PeerFailed;
            assert!(s.w.happened(|e| *e == EventKind::FellBack(cause)));
        }
        s.w.advance_ms(20_000);
        assert_eq!(s.read(), b"");
        s.w.find(0, "a reset", Seg::is_rst);
    }
}

#[test]
fn mapped_data_before_the_answer_to_an_mp_fail_query_does_not_end_the_connection() {
    // rfc8684:B9,B14
    let mut s = Session::called_with(2, plain_options());
    let (other, syn) = s.open_out(1);
    let answer = s.join_answer(&syn, 5, false);
    s.w.inject(other, &answer);
    s.w.inject(0, &data(b"unmapped"));
    s.w.advance_ms(1_000);
    s.w.find(0, "the question", |s| s.options.mptcp.fail().is_some());
    let here = infinite_from(&s, 0, s.ssn(0) - 8);
    s.send(0, 8, b" mapped");
    assert_eq!(s.read(), b"", "only the answer places it");
    s.w.inject(0, &ack().opt(here));
    let read = s.read();
    assert_eq!(read, b"unmapped mapped", "{}", s.w.log());
    s.w.inject(0, &data(b" plain"));
    assert_eq!(s.read(), b" plain");
}

#[test]
fn bytes_behind_a_held_overflow_are_not_delivered_in_its_place() {
    // rfc8684:B9,B11
    let mut s = Session::called_with(2, plain_options());
    s.send(0, 0, b"mapped ");
    assert_eq!(s.read(), b"mapped ");
    let (other, syn) = s.open_out(1);
    let answer = s.join_answer(&syn, 5, false);
    s.w.inject(other, &answer);
    s.w.inject(0, &data(b"unmapped"));
    s.w.advance_ms(1_000);
    s.w.find(0, "the question", |s| s.options.mptcp.fail().is_some());
    s.w.inject(0, &ack().opt(s.fail_at(0)));
    for _ in 0..1_000 {
        s.w.inject(0, &data(&[7; 1_400]));
        if s.w.drain(0).iter().any(Seg::is_rst) {
            assert!(s.read().is_empty(), "read in the place of what was lost");
            return;
        }
    }
    s.w.fail("the question is open, and all of it was taken");
}

#[test]
fn a_close_after_fallback_is_a_fin() {
    // rfc8684:B13,B16
    let mut s = Session::called();
    s.write(b"bye");
    s.shutdown();
    s.w.drain(0);
    // The DATA_FIN was on its way when the peer said MP_FAIL.
    s.w.inject(0, &ack().opt(s.fail_at(0)));
    s.w.advance_ms(50);
    let fin_seg = s.w.find(0, "a FIN", |s| s.is_fin());
    assert!(fin_seg.dss().is_none());
    s.w.inject(0, &fin());
    assert!(
        s.w.happened(|e| matches!(e, EventKind::Closed(_))),
        "{}",
        s.w.log()
    );
}
