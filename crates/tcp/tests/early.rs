//! TCP Fast Open (RFC 7413) as one subflow sees it.

mod common;

use common::script::{A, S, SA, Script};
use manypath_tcp::machine::{Kind, State};
use manypath_wire::tcp::options::FastOpen;

fn offering() -> Script {
    let mut s = Script::connecting(Script::config());
    let cookie = FastOpen::new(&[7; 8]).expect("eight bytes");
    s.m.offer_fast_open(cookie, 900);
    s
}

#[test]
fn a_syn_takes_along_what_fits_the_peers_segments() {
    let mut s = offering();
    s.write(5000);
    let syn = s.expect(Kind::Syn);
    assert_eq!(syn.plan.len, 860, "the peer's 900 bytes less all options");
    assert!(syn.options.fastopen.is_some());
    assert_eq!(
        s.m.snd_nxt().since(s.m.isn()),
        1,
        "nothing of it counts yet"
    );
}

#[test]
fn what_was_taken_with_the_syn_is_no_part_of_the_relative_numbers() {
    // rfc8684:O3,O4
    for taken in [0u32, 100, 860] {
        let mut s = offering();
        s.write(5000);
        s.expect(Kind::Syn);
        s.pass(30);
        let out = s.inject(0, SA, 1 + taken, &[]);
        assert!(out.established);
        assert_eq!(out.acked, taken);
        assert_eq!(s.m.early_taken(), taken);
        assert_eq!(s.m.state(), State::Established);
        assert_eq!(s.m.srtt().map(|t| t.as_millis()), Some(30));
        assert_eq!((s.m.snd_una_ssn().get(), s.m.snd_nxt_ssn().get()), (1, 1));
        assert!(!s.m.awaits_ack());
        let first = s.expect(Kind::Data);
        assert_eq!(first.seq(), 1 + taken);
        assert_eq!(first.plan.ssn.get(), 1);
    }
}

#[test]
fn more_than_was_sent_is_no_answer() {
    let mut s = offering();
    s.write(50);
    s.expect(Kind::Syn);
    assert!(!s.inject(0, SA, 52, &[]).established);
    assert!(!s.inject(0, SA, 0, &[]).established);
    assert!(s.inject(0, SA, 51, &[]).established);
}

#[test]
fn payload_of_a_syn_repeated_without_it_may_still_be_acknowledged() {
    let mut s = offering();
    s.write(50);
    s.expect(Kind::Syn);
    s.timeout();
    let again = s.expect(Kind::Syn);
    assert_eq!((again.plan.len, again.options.fastopen), (0, None));
    let out = s.inject(0, SA, 51, &[]);
    assert!(out.established && out.acked == 50);
    let ack = s.expect(Kind::Ack);
    assert_eq!((ack.seq(), ack.ack(), ack.header.flags), (51, 1, A));
}

#[test]
fn the_syn_ack_of_a_simultaneous_open_has_no_cookie_of_ours() {
    // RFC 7413 section 4.1.1: only what a server grants goes on a SYN+ACK.
    for option in [
        FastOpen::REQUEST,
        FastOpen::new(&[7; 8]).expect("eight bytes"),
    ] {
        let mut s = Script::connecting(Script::config());
        s.m.offer_fast_open(option, 900);
        s.write(50);
        assert_eq!(s.expect(Kind::Syn).options.fastopen, Some(option));
        s.inject(0, S, 0, &[]);
        assert_eq!(s.m.state(), State::SynReceived);
        assert_eq!(s.expect(Kind::SynAck).options.fastopen, None);
    }
}
