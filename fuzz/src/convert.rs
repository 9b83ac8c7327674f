//! Messages of the Convert Protocol, in any cuts.

use manypath_wire::convert::{MAX_LEN, Parsed, emit, read};

/// A message is whole or bad once, whatever follows; what was read can be written, and reads back as the same.
pub fn convert(data: &[u8]) {
    let judged = (0..=data.len().min(MAX_LEN + 8)).map(|n| read(&data[..n]));
    let mut known = None;
    for one in judged {
        match (one, known) {
            (Ok(Parsed::Short), None) => {}
            (one, None) => known = Some(one),
            (one, Some(known)) => assert_eq!(one, known, "more bytes changed what was read"),
        }
    }
    let Some(Ok(Parsed::Whole(message))) = known else {
        return;
    };
    let tlvs: Vec<_> = message.tlvs().collect();
    let mut out = [0; MAX_LEN];
    let n = emit(&tlvs, &mut out).expect("what was read can be written");
    let Ok(Parsed::Whole(again)) = read(&out[..n]) else {
        panic!("what was written does not read");
    };
    assert!(again.tlvs().eq(tlvs), "it reads as something else");
}
