//! Mappings and Data ACKs: sections 3.3.1 and 3.3.2.

use manypath_stack::{ConnOptions, SubflowEnd};
use manypath_wire::checksum::{self, Sum};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{DataAck, Dss, MapDsn, Mapping, MptcpOption, ResetReason};

use crate::script::packet::{Seg, ack, data};
use crate::script::session::{PORT, Session};
use crate::script::{plain_options, without_checksums};

fn long(map: &Mapping) -> bool {
    matches!(map.dsn, MapDsn::Long(_))
}

#[test]
fn mappings_are_absolute_on_one_side_and_relative_on_the_other() {
    // rfc8684:D7,D9,D10,D13,D15,C33
    let mut s = Session::called();
    s.write(b"hello");
    let first = s.w.expect(0, "data", |s| s.has_data());
    s.received = 5;
    s.ack(0);
    s.write(b" world");
    let second = s.w.find(0, "more data", |s| s.has_data());
    for (seg, at, ssn) in [(&first, 0, 1), (&second, 5, 6)] {
        let map = seg.mapping().expect("a mapping");
        let expected = s.map_of_own(at, Ssn::new(ssn), &seg.payload);
        assert_eq!(map, expected, "number, place, length, checksum");
        assert!(long(&map));
        assert_eq!(seg.urgent, 0);
        assert!(!seg.flags.contains(manypath_wire::tcp::header::Flags::URG));
        // Reserved bits are zero: flags M, m, A, a.
        let raw = seg.raw_option(2).map(|o| (o[2], o[3]));
        assert_eq!(raw, Some((0x20, 0x0f)));
    }
}

#[test]
fn the_checksum_covers_the_whole_number_even_where_half_of_it_is_sent() {
    // rfc8684:D9,D15
    let mut s = Session::called_with(
        1,
        ConnOptions {
            long_dsn: false,
            ..plain_options()
        },
    );
    s.write(b"odd");
    let seg = s.w.expect(0, "data", |s| s.has_data());
    let map = seg.mapping().expect("a mapping");
    assert!(!long(&map), "a slow path needs 32 bits only");
    let sum = checksum::dss(s.own_dsn(0), Ssn::new(1), 3, Sum::of(b"odd"));
    assert_eq!(map.checksum, Some(sum));
}

#[test]
fn numbers_of_64_bits_are_sent_where_32_could_wrap_in_flight() {
    // rfc8684:D15
    let mut s = Session::fast(ConnOptions {
        long_dsn: false,
        ..plain_options()
    });
    // A few round trips of a millisecond later the congestion window lets more than 18 MB/s go.
    for _ in 0..5 {
        s.write(&[1; 100_000]);
        s.w.drain(0);
        for _ in 0..10 {
            s.received = s.sent_by_stack();
            s.ack(0);
        }
    }
    s.w.drain(0);
    s.write(&[1; 100]);
    let seg = s.w.find(0, "data", |s| s.has_data());
    assert!(long(&seg.mapping().expect("a mapping")), "{}", s.w.log());
}

#[test]
fn reserved_bits_and_lone_width_flags_do_not_matter() {
    // rfc8684:D1
    let mut s = Session::accepted();
    // The reserved bits of the subtype byte and above flag F; no timestamps, so the DSS begins the options.
    let pkt = s.segment(0, 0, b"abc").patch(|tcp| {
        assert_eq!(tcp[20], 30);
        tcp[22] |= 0x0f;
        tcp[23] |= 0xe0;
    });
    s.w.inject(0, &pkt);
    assert_eq!(s.read(), b"abc");
    // Flag m without M beside a Data ACK, and flag a without A beside a mapping.
    let lone_m = ack().opt(s.dss(None)).patch(|tcp| tcp[23] |= 0x08);
    s.w.inject(0, &lone_m);
    let map = s.map(0, 3, b"def");
    let only_map = MptcpOption::Dss(Dss {
        data_ack: None,
        mapping: Some(map),
        data_fin: false,
    });
    let lone_a = data(b"def").opt(only_map).patch(|tcp| tcp[23] |= 0x02);
    s.w.inject(0, &lone_a);
    assert_eq!(s.read(), b"def");
    assert_eq!(s.w.count().option_mptcp_malformed, 0);
}

fn closed_for_checksum(mut s: Session, flow: usize, pkt: crate::script::packet::Pkt) {
    s.w.inject(flow, &pkt);
    let reset = s.w.find(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::MptcpSpecific));
    assert_eq!(s.read(), b"", "such data does not count");
    let end = s.info().ended.last().map(|e| e.end);
    assert_eq!(end, Some(SubflowEnd::ProtocolError));
}

#[test]
fn a_checksum_that_was_not_agreed_closes_the_subflow() {
    // rfc8684:D2
    let mut s = Session::accepted_with(1, without_checksums());
    s.checksum = true;
    let pkt = s.segment(0, 0, b"abc");
    closed_for_checksum(s, 0, pkt);
}

#[test]
fn a_checksum_that_is_missing_closes_the_subflow() {
    // rfc8684:D3
    let mut s = Session::accepted();
    s.checksum = false;
    let pkt = s.segment(0, 0, b"abc");
    closed_for_checksum(s, 0, pkt);
    // On the first data with MP_CAPABLE, too.
    let mut s = Session::accepted();
    s.checksum = false;
    let keys = manypath_wire::tcp::mptcp::CapableKeys::Data {
        sender: s.peer.key(),
        receiver: s.own.key(),
        len: 3,
        checksum: None,
    };
    let pkt = data(b"abc").opt(crate::script::session::capable(true, keys));
    closed_for_checksum(s, 0, pkt);
}

#[test]
fn a_mapping_stays_as_it_was_first_declared() {
    // rfc8684:D5,G6
    let mut s = Session::accepted_with(1, without_checksums());
    let whole = s.map(0, 0, b"abcdef");
    let first = data(b"abc").opt(s.dss(Some(whole)));
    s.w.inject(0, &first);
    // The second half comes with another opinion about where it belongs.
    let moved = Mapping {
        dsn: MapDsn::Long(s.peer_dsn(100).get()),
        ..whole
    };
    let second = data(b"def").opt(s.dss(Some(moved)));
    s.w.inject(0, &second);
    assert_eq!(s.read(), b"abcdef");
    assert_eq!(s.w.count().dss_mapping_invalid, 1);
}

#[test]
fn the_same_data_may_come_by_another_subflow_and_the_first_copy_counts() {
    // rfc8684:D5,D6
    for opts in [plain_options(), without_checksums()] {
        let mut s = Session::accepted_with(2, opts);
        let other = s.join_in(1, 5, false);
        s.send(0, 3, b"second");
        s.send(other, 0, b"onetwo");
        assert_eq!(s.read(), b"onesecond");
        s.send(other, 0, b"ONESECOND");
        assert_eq!(s.read(), b"");
        s.send(0, 9, b"third");
        assert_eq!(s.read(), b"third");
    }
}

#[test]
fn unmapped_data_is_acknowledged_at_subflow_level_only() {
    // rfc8684:D11,D12,B5
    let mut s = Session::accepted();
    // Options pass beside data; without any such sign the first data would mean TCP.
    s.send(0, 0, b"first");
    assert_eq!(s.read(), b"first");
    s.w.find(0, "its acknowledgement", |reply| reply.is_bare());
    s.w.inject(0, &data(&[b'?'; 1200]));
    let nxt = s.w.flows[0].nxt;
    // The last bytes wait: this may have been the last option that passed.
    let reply = s.w.expect(0, "an acknowledgement", |s| s.is_bare());
    assert_eq!(reply.ack, nxt - 512);
    assert_eq!(s.acked(&reply), Some(5));
    assert_eq!(s.read(), b"");
    // Mapped data goes on as before; what had no mapping is missing until it is sent again.
    s.send(0, 5, b"mapped");
    assert_eq!(s.read(), b"mapped");
    let nxt = s.w.flows[0].nxt;
    s.w.find(0, "everything acknowledged", |s| s.ack == nxt);
}

#[test]
fn a_window_without_a_mapping_breaks_a_subflow_that_is_not_the_only_one() {
    // rfc8684:D12,B5
    let mut s = Session::accepted_with(2, plain_options());
    s.send(0, 0, b"first");
    let other = s.join_in(1, 7, false);
    for _ in 0..70 {
        s.w.inject(other, &data(&[7; 1000]));
    }
    let reset = s.w.find(other, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::MiddleboxInterference));
    assert_eq!(s.read(), b"first");
}

#[test]
fn urgent_data_of_the_peer_is_data() {
    // rfc8684:D10
    let mut s = Session::accepted();
    let mut pkt = s.segment(0, 0, b"urgent").patch(|tcp| tcp[19] = 3);
    pkt.flags |= manypath_wire::tcp::header::Flags::URG;
    s.w.inject(0, &pkt);
    assert_eq!(s.read(), b"urgent");
}

#[test]
fn a_mapping_may_cover_several_segments() {
    // rfc8684:D17
    let mut s = Session::accepted();
    let map = s.map(0, 0, b"abcdefghi");
    let first = data(b"abc").opt(s.dss(Some(map)));
    s.w.inject(0, &first);
    assert_eq!(s.read(), b"", "nothing counts before the checksum is seen");
    s.w.inject(0, &data(b"def"));
    s.w.inject(0, &data(b"ghi"));
    assert_eq!(s.read(), b"abcdefghi");
}

fn short(map: Mapping) -> Mapping {
    let dsn = match map.dsn {
        MapDsn::Long(dsn) => MapDsn::Short(dsn as u32),
        short @ MapDsn::Short(_) => short,
    };
    Mapping { dsn, ..map }
}

#[test]
fn both_widths_are_understood_and_answered() {
    // rfc8684:D14,D16,D19
    let mut s = Session::accepted();
    s.send(0, 0, b"long");
    let reply = s.w.expect(0, "a Data ACK", |s| s.is_bare());
    let whole = reply.dss().and_then(|d| d.data_ack);
    assert_eq!(whole, Some(DataAck::Long(s.peer_dsn(4).get())));
    let map = short(s.map(0, 4, b"short"));
    let pkt = data(b"short").opt(s.dss(Some(map)));
    s.w.inject(0, &pkt);
    assert_eq!(s.read(), b"longshort");
    let reply = s.w.find(0, "a Data ACK", |s| s.is_bare());
    assert_eq!(s.acked(&reply), Some(9));
    // Short Data ACKs, and long ones, of the peer.
    s.write(b"one");
    s.w.find(0, "data", |s| s.has_data());
    let short_ack = MptcpOption::Dss(Dss {
        data_ack: Some(DataAck::Short(s.own_dsn(3).low32())),
        ..Dss::default()
    });
    s.w.inject(0, &ack().opt(short_ack));
    assert_eq!(s.info().bytes_acked, 3);
    s.write(b"two");
    s.received = 6;
    s.ack(0);
    assert_eq!(s.info().bytes_acked, 6);
}

#[test]
fn a_short_number_behind_the_last_one_is_no_wrap() {
    // rfc8684:D16
    let mut s = Session::accepted_with(1, without_checksums());
    s.send(0, 0, b"abcdef");
    assert_eq!(s.read(), b"abcdef");
    // A reordered copy with half a number, and a Data ACK that is older than the last.
    let map = short(s.map(0, 2, b"cdef"));
    let pkt = data(b"cdef").opt(s.dss(Some(map)));
    s.w.inject(0, &pkt);
    s.write(b"data");
    s.received = 4;
    s.ack(0);
    let old = MptcpOption::Dss(Dss {
        data_ack: Some(DataAck::Short(s.own_dsn(1).low32())),
        ..Dss::default()
    });
    s.w.inject(0, &ack().opt(old));
    assert_eq!(s.info().bytes_acked, 4);
    assert_eq!(s.w.count().beyond_window_bytes, 0);
    assert_eq!(s.w.count().data_ack_invalid, 0);
    s.send(0, 6, b"more");
    assert_eq!(s.read(), b"more");
}

#[test]
fn a_subflow_acknowledgement_is_no_data_ack() {
    // rfc8684:D21,D24
    let mut s = Session::called();
    s.write(b"0123456789");
    s.w.find(0, "data", |s| s.has_data());
    // Acknowledged below, not above: a proxy on the way, for instance.
    s.ack(0);
    assert_eq!(s.info().bytes_acked, 0);
    assert_eq!(s.info().send_queue, 10);
    // Nobody else has it, so it goes again in the end, with a mapping of its own. // rfc8684:R3,D5
    s.w.advance_ms(5000);
    let again = s.w.find(0, "the data again", |s| s.has_data());
    let map = again.mapping().expect("a mapping");
    assert_eq!((s.position(&map), map.ssn), (0, Ssn::new(11)));
    s.received = 10;
    s.ack(0);
    assert_eq!(s.info().bytes_acked, 10);
}

#[test]
fn what_follows_a_repeated_part_that_was_missing_is_repeated_at_once() {
    // rfc8684:R3
    const ALL: usize = 100_000;
    let mut s = Session::fast(plain_options());
    s.write(&[7; ALL]);
    // The subflow acknowledges all of it, the connection nothing.
    let arrives = |s: &mut Session| {
        let mut furthest = 0;
        loop {
            let segments = s.w.drain(0);
            let mapped = segments.iter().filter(|seg| seg.has_data());
            let mapped: Vec<_> = mapped.filter_map(Seg::mapping).collect();
            if mapped.is_empty() {
                return furthest;
            }
            let ends = mapped
                .iter()
                .map(|map| s.position(map) + u64::from(map.len));
            furthest = ends.max().unwrap_or(0).max(furthest);
            s.ack(0);
        }
    };
    assert_eq!(arrives(&mut s), ALL as u64);
    s.w.advance_ms(500);
    let first = arrives(&mut s);
    assert!(first < ALL as u64, "not all of it may be missing");
    s.received = first;
    s.ack(0);
    let rest = arrives(&mut s);
    assert_eq!(rest, ALL as u64);
    s.received = rest;
    s.ack(0);
    assert_eq!(s.info().bytes_acked, rest);
}

#[test]
fn a_slow_path_on_which_nothing_is_does_not_delay_what_is_missing() {
    // rfc8684:R3
    const ROUND_TRIP: u64 = 900;
    let mut s = Session::accepted_with(2, plain_options());
    let slow = s.w.dial(1, 4002, PORT);
    let syn = s.join_syn(2, false);
    s.w.inject(slow, &syn);
    let answer = s.w.expect(slow, "SYN/ACK", Seg::is_syn_ack);
    s.w.advance_ms(ROUND_TRIP);
    let third = s.join_ack(&answer);
    s.w.inject(slow, &third);
    s.w.drain(slow);
    assert_eq!(s.working(), 2);

    s.write(b"swallowed");
    s.w.find(0, "data", |s| s.has_data());
    // The subflow acknowledges it, the connection does not.
    s.ack(0);
    s.w.quiet(0);
    s.w.advance_ms(ROUND_TRIP);
    let again = s.w.find(0, "the data again", |s| s.has_data());
    let map = again.mapping().expect("a mapping");
    assert_eq!(s.position(&map), 0);
}

#[test]
fn segments_without_a_data_ack_are_fine() {
    // rfc8684:D23
    let mut s = Session::called();
    s.write(b"abc");
    s.w.find(0, "data", |s| s.has_data());
    let map = s.map(0, 0, b"reply");
    let only_map = MptcpOption::Dss(Dss {
        data_ack: None,
        mapping: Some(map),
        data_fin: false,
    });
    s.w.inject(0, &data(b"reply").opt(only_map));
    assert_eq!(s.read(), b"reply");
    s.w.inject(0, &ack());
    assert_eq!(s.working(), 1);
    assert_eq!(s.info().bytes_acked, 0);
    // And the stack's own acknowledgement has one wherever it advances.
    s.w.find(0, "a Data ACK", |seg| {
        seg.dss().is_some_and(|dss| dss.data_ack.is_some())
    });
}

#[test]
fn first_data_without_a_mapping_falls_back_even_after_an_option_without_data() {
    // rfc8684:B2,B4
    let mut s = Session::accepted();
    s.w.inject(0, &data(b"plain"));
    s.w.advance_ms(200);
    assert_eq!(s.read(), b"plain");
    assert_eq!(s.w.count().fallback_first_data, 1);
}
