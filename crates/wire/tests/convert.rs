//! Properties of the Convert Protocol's messages (RFC 8803): whatever bytes come, and however they are cut.

use std::net::{Ipv6Addr, SocketAddr};

use manypath_wire::convert::{
    BadMessage, Connect, ConvertError, Kinds, MAX_LEN, Parsed, Tlv, emit, read,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Any bytes, more often such that begin as messages do.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just(1u8),
        Just(10),
        Just(20),
        Just(21),
        Just(22),
        Just(30),
        any::<u8>()
    ];
    let words = prop_oneof![0u8..8, Just(0x7f), Just(0x80), Just(0xff)];
    let tlv = (kind, words, vec(any::<u8>(), 0..40));
    let tlv = tlv.prop_map(|(kind, words, value)| [vec![kind, words], value].concat());
    let message = (any::<u8>(), vec(tlv, 0..5));
    let message =
        message.prop_map(|(total, tlvs)| [vec![1, total, 0x22, 0x63], tlvs.concat()].concat());
    prop_oneof![message, vec(any::<u8>(), 0..64)]
}

/// Padding that is no part of the value: values are whole words.
fn words(least: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<[u8; 4]>(), least..20).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_judged_alike_however_they_are_cut(bytes in hostile()) {
        let mut first = None;
        for n in 0..=bytes.len() {
            match (read(&bytes[..n]), first) {
                (Ok(Parsed::Short), None) => {}
                (Ok(Parsed::Short), Some(_)) => prop_assert!(false, "{n}: short again"),
                (judged, None) => first = Some(judged.map(|_| ())),
                // Once a message is whole or bad, more bytes change nothing.
                (judged, Some(known)) => prop_assert_eq!(judged.map(|_| ()), known),
            }
        }
        if let Ok(Parsed::Whole(message)) = read(&bytes) {
            let length = message.as_bytes().len();
            prop_assert_eq!(length, usize::from(bytes[1]) * 4);
            let tlvs: Vec<Tlv<'_>> = message.tlvs().collect();
            let mut out = [0; MAX_LEN];
            let n = emit(&tlvs, &mut out).expect("what was read can be written");
            let Ok(Parsed::Whole(again)) = read(&out[..n]) else {
                return Err(TestCaseError::fail("what was written does not read"));
            };
            prop_assert_eq!(again.tlvs().collect::<Vec<_>>(), tlvs);
        }
    }

    #[test]
    fn what_is_written_reads_back(
        cookie in words(1), kinds in words(1), header in words(1), addr: u128, port: u16, echo in words(0), seconds: u8,
    ) {
        let remote = SocketAddr::new(Ipv6Addr::from(addr).into(), port);
        let tlvs = [
            Tlv::Info,
            Tlv::Cookie(&cookie),
            Tlv::Connect(Connect::to(remote)),
            Tlv::SupportedTcpExtensions(Kinds(&kinds)),
            Tlv::ExtendedTcpHeader(&header),
            Tlv::Error(match seconds {
                0..100 => ConvertError::MalformedMessage(&echo),
                _ => ConvertError::NetworkFailure { wait: seconds },
            }),
        ];
        let mut out = [0; MAX_LEN];
        let n = emit(&tlvs, &mut out).expect("it fits");
        let Ok(Parsed::Whole(message)) = read(&out[..n]) else {
            return Err(TestCaseError::fail("no message"));
        };
        prop_assert_eq!(message.tlvs().collect::<Vec<_>>(), tlvs);
        let repeated = [&[1, 4, 0x22, 0x63][..], &[1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0]].concat();
        prop_assert_eq!(read(&repeated), Err(BadMessage::Repeated(1)));
    }
}
