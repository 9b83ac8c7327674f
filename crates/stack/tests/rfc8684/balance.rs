//! Whether a connection stays one of Multipath TCP is in the balance: bytes wait for a mapping, and the peer may be falling already.

use manypath_stack::{FallbackCause, ProtocolLevel};
use manypath_wire::tcp::mptcp::{Dss, MptcpOption};

use crate::fallback::options_lost;
use crate::script::packet::{Seg, ack, data, rst};
use crate::script::plain_options;
use crate::script::session::Session;

fn says_fail(seg: &Seg) -> bool {
    seg.options.mptcp.fail().is_some()
}

#[test]
fn mp_fail_for_held_bytes_is_repeated_until_answered() {
    // rfc8684:B4,B5,B9,G2: one acknowledgement may be lost, and no more than two go in a row only for an option
    let mut s = Session::accepted();
    s.send(0, 0, b"mapped ");
    assert_eq!(s.read(), b"mapped ");
    s.w.drain(0);
    s.w.inject(0, &data(b"without"));
    let mut fails = 0;
    for _ in 0..20 {
        s.w.advance_ms(10);
        fails += s.w.drain(0).iter().filter(|seg| says_fail(seg)).count();
    }
    assert_eq!(s.read(), b"");
    assert_eq!(fails, 2, "{}", s.w.log());
    s.w.advance_ms(2_000);
    assert_eq!(s.read(), b"without");
    assert_eq!(s.info().fallback, Some(FallbackCause::OptionsLost));
}

#[test]
fn no_join_is_begun_while_unmapped_bytes_are_held() {
    // rfc8684:J1,T4: a refusal is for good
    let mut s = Session::accepted_with(2, plain_options());
    s.send(0, 0, b"whole ");
    // The last piece has the option of the whole segment.
    let option = s.dss(Some(s.map(0, 6, b"in pieces")));
    s.w.inject(0, &data(b"in pie"));
    let other = s.w.dial(1, 4001, 80);
    let syn = s.join_syn(7, false);
    s.w.inject(other, &syn);
    s.w.quiet(other);
    s.w.inject(0, &data(b"ces").opt(option));
    assert_eq!(s.read(), b"whole in pieces");
    let first = s.w.flows[other].nxt - 1;
    s.w.inject(other, &syn.seq(first));
    s.w.expect(other, "SYN/ACK", |seg| seg.is_syn_ack());
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn the_fin_has_the_infinite_mapping_when_the_final_byte_was_lost() {
    // rfc8684:B4,B13
    let mut s = Session::called();
    s.write(b"request");
    s.received = 7;
    s.ack(0);
    s.send(0, 0, b"answer");
    assert_eq!(s.read(), b"answer");
    // Acknowledgements lose their options; data would not.
    s.write(b"more");
    s.w.inject(0, &ack());
    s.w.advance_ms(3_000);
    assert_eq!(
        s.info().fallback,
        Some(FallbackCause::OptionsLost),
        "{}",
        s.w.log()
    );
    s.w.drain(0);
    s.shutdown();
    let fins = |seen: Vec<Seg>| -> Vec<bool> {
        let fins = seen.into_iter().filter(Seg::is_fin);
        fins.map(|seg| seg.mapping().is_some_and(|map| map.is_infinite()))
            .collect()
    };
    s.w.advance_ms(5_000);
    let fins = fins(s.w.drain(0));
    assert!(
        fins.len() > 1 && fins.iter().all(|says| *says),
        "{fins:?}\n{}",
        s.w.log()
    );
}

#[test]
fn a_resend_from_the_data_ack_queries_the_peers_mapping() {
    // rfc8684:B9,B11,D18: the peer may not have heard, and go on with another part of its stream
    let mut s = Session::accepted_with(2, plain_options());
    s.send(0, 0, b"request");
    assert_eq!(s.read(), b"request");
    let other = s.join_in(1, 5, false);
    // Both carry some of the answer, so that the numbers of neither are the stream's.
    s.write(&[b'.'; 40_000]);
    assert!(s.w.drain(other).iter().any(Seg::has_data), "{}", s.w.log());
    s.w.drain(0);
    s.w.inject(other, &rst());
    // Acknowledgements have lost their options.
    s.w.inject(0, &ack());
    assert!(s.info().fallback.is_some(), "{}", s.w.log());
    // What the reset subflow was to bring comes later than this.
    s.send(0, 14, b"what follows");
    assert_eq!(s.read(), b"", "{}", s.w.log());
}

#[test]
fn retransmissions_after_fallback_are_recognised_however_segmented() {
    // rfc8684:R3,B4: the peer has not heard that we fell, and misses Data ACKs
    for (joined, divided) in [(true, false), (false, true)] {
        let mut s = options_lost();
        // It says again, as new bytes of the subflow, what came mapped, and goes on without mappings.
        let again = MptcpOption::Dss(Dss {
            data_ack: None,
            mapping: Some(s.map(0, 0, b"mapped ")),
            data_fin: false,
        });
        if joined {
            s.w.inject(0, &data(b"mapped and new").opt(again));
        } else if divided {
            let behind = s.w.flows[0].nxt + 3;
            s.w.inject(0, &data(b"ped and new").seq(behind));
            s.w.inject(0, &data(b"map").opt(again));
        }
        assert_eq!(s.read(), b"and new", "{}", s.w.log());
    }
}
