extern crate std;

use std::net::SocketAddr;
use std::vec::Vec;

use super::*;

fn message(tlvs: &[Tlv<'_>]) -> Vec<u8> {
    let mut out = [0xaa; MAX_LEN];
    let n = emit(tlvs, &mut out).expect("it fits");
    out[..n].to_vec()
}

/// The TLVs write these bytes, and these bytes read as the TLVs.
fn golden(tlvs: &[Tlv<'_>], bytes: &[u8]) {
    assert_eq!(message(tlvs), bytes);
    let Ok(Parsed::Whole(read)) = read(bytes) else {
        panic!("{bytes:?} is no message");
    };
    assert_eq!(read.as_bytes(), bytes);
    assert_eq!(read.tlvs().collect::<Vec<_>>(), tlvs);
}

fn remote(text: &str) -> SocketAddr {
    text.parse().expect("a literal")
}

#[test]
fn golden_vectors() {
    golden(&[], &[1, 1, 0x22, 0x63]);
    golden(&[Tlv::Info], &[1, 2, 0x22, 0x63, 1, 1, 0, 0]);
    golden(
        &[Tlv::Connect(Connect::to(remote("192.0.2.1:80")))],
        &[
            1, 6, 0x22, 0x63, 10, 5, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1,
        ],
    );
    let v6 = Connect::to(remote("[2001:db8::2]:443"));
    golden(
        &[Tlv::Cookie(&[1, 2, 3, 4]), Tlv::Connect(v6)],
        &[
            1, 8, 0x22, 0x63, 22, 2, 0, 0, 1, 2, 3, 4, 10, 5, 1, 187, 0x20, 1, 0xd, 0xb8, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 2,
        ],
    );
    golden(
        &[Tlv::ExtendedTcpHeader(&[2, 4, 5, 0xb4])],
        &[1, 3, 0x22, 0x63, 20, 2, 0, 0, 2, 4, 5, 0xb4],
    );
    golden(
        &[Tlv::SupportedTcpExtensions(Kinds(&[4, 8, 30, 34]))],
        &[1, 3, 0x22, 0x63, 21, 2, 0, 0, 4, 8, 30, 34],
    );
}

#[test]
fn golden_vectors_of_errors() {
    use ConvertError as E;
    let cases: [(E<'_>, &[u8]); 11] = [
        (E::UnsupportedVersion(&[1]), &[30, 1, 0, 1]),
        (
            E::MalformedMessage(&[1, 1, 0x22, 0x63]),
            &[30, 2, 1, 0, 1, 1, 0x22, 0x63],
        ),
        (
            E::UnsupportedMessage(&[1, 2, 3, 4]),
            &[30, 2, 2, 0, 1, 2, 3, 4],
        ),
        (E::MissingCookie(&[9, 8, 7, 6]), &[30, 2, 3, 0, 9, 8, 7, 6]),
        (E::NotAuthorized, &[30, 1, 32, 0]),
        (E::UnsupportedTcpOption(&[29]), &[30, 1, 33, 29]),
        (E::ResourceExceeded, &[30, 1, 64, 0]),
        (E::NetworkFailure { wait: 5 }, &[30, 1, 65, 5]),
        (E::ConnectionReset, &[30, 1, 96, 0]),
        (E::DestinationUnreachable { icmp: 1 }, &[30, 1, 97, 1]),
        (
            E::Unknown {
                code: 200,
                value: &[7],
            },
            &[30, 1, 200, 7],
        ),
    ];
    for (error, tlv) in cases {
        let words = u8::try_from(1 + tlv.len() / 4).expect("small");
        let bytes = [&[1, words, 0x22, 0x63], tlv].concat();
        golden(&[Tlv::Error(error)], &bytes);
    }
}

#[test]
fn values_are_padded_with_zeros() {
    let bytes = message(&[Tlv::SupportedTcpExtensions(Kinds(&[30]))]);
    assert_eq!(bytes, [1, 3, 0x22, 0x63, 21, 2, 0, 0, 30, 0, 0, 0]);
    let Ok(Parsed::Whole(read)) = read(&bytes) else {
        panic!("no message");
    };
    let Some(Tlv::SupportedTcpExtensions(kinds)) = read.tlvs().next() else {
        panic!("not what was written");
    };
    assert!(kinds.has(30) && !kinds.has(0) && !kinds.has(8));
}

#[test]
fn options_of_an_extended_connect() {
    let options = ConnectOptions::parse(&[30, 2, 34, 4, 0xca, 0xfe]).expect("well-formed");
    let connect = Connect {
        options,
        ..Connect::to(remote("192.0.2.1:80"))
    };
    let bytes = message(&[Tlv::Connect(connect)]);
    assert_eq!(bytes[1], 8, "padded to whole words");
    let Ok(Parsed::Whole(read)) = read(&bytes) else {
        panic!("no message");
    };
    let Some(Tlv::Connect(connect)) = read.tlvs().next() else {
        panic!("no Connect");
    };
    assert_eq!(connect.remote(), remote("192.0.2.1:80"));
    let options: Vec<_> = connect.options.iter().map(|o| (o.kind, o.value)).collect();
    assert_eq!(options, [(30, &[][..]), (34, &[0xca, 0xfe][..])]);
    for bad in [
        &[30][..],
        &[30, 1],
        &[30, 0, 0, 0],
        &[30, 5, 0, 0],
        &[30, 0xff],
    ] {
        assert_eq!(ConnectOptions::parse(bad), None, "{bad:?}");
    }
    assert!(ConnectOptions::parse(&[0, 0, 0, 0]).is_some_and(|o| o.iter().next().is_none()));
}

#[test]
fn every_beginning_is_short_and_what_follows_is_not_looked_at() {
    let cookie = [7; 16];
    let whole = message(&[
        Tlv::Cookie(&cookie),
        Tlv::Connect(Connect::to(remote("192.0.2.1:80"))),
    ]);
    for n in 0..whole.len() {
        assert_eq!(read(&whole[..n]), Ok(Parsed::Short), "{n}");
    }
    let with_data = [&whole[..], b"GET / HTTP/1.1"].concat();
    let Ok(Parsed::Whole(read)) = read(&with_data) else {
        panic!("no message");
    };
    assert_eq!(read.as_bytes(), whole);
}

#[test]
fn lengths_that_trap_are_told() {
    use BadMessage as Bad;
    let cases: [(&[u8], Bad); 12] = [
        (&[1, 0, 0x22, 0x63], Bad::NoLength),
        (&[1, 0, 0x22, 0x63, 10, 5], Bad::NoLength),
        (&[1, 2, 0x22, 0x63, 10, 0], Bad::TlvTooShort(10)),
        (&[1, 255, 0x22, 0x63, 10, 0], Bad::TlvTooShort(10)),
        (&[1, 2, 0x22, 0x63, 10, 1, 0, 80], Bad::TlvTooShort(10)),
        (&[1, 2, 0x22, 0x63, 1, 2], Bad::TlvTooLong(1)),
        (&[1, 6, 0x22, 0x63, 10, 0x7f], Bad::TlvTooLong(10)),
        (&[1, 6, 0x22, 0x63, 10, 0x80], Bad::TlvTooLong(10)),
        (&[1, 255, 0x22, 0x63, 10, 0xff], Bad::TlvTooLong(10)),
        (&[2, 2, 0x22, 0x63], Bad::Version(2)),
        (&[1, 2, 0x22, 0x64], Bad::Magic),
        (b"GET / HTTP/1.1\r\n", Bad::Magic),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(read(bytes), Err(wanted), "{bytes:?}");
    }
    for length in [0x7f, 0x80, 0xfe] {
        let half = [1, 255, 0x22, 0x63, 10, length, 0, 80];
        assert_eq!(read(&half), Ok(Parsed::Short), "{length}");
    }
}

#[test]
fn a_second_tlv_of_a_type_is_malformed() {
    for (kind, words, value) in [(1, 1, 2), (10, 5, 18), (20, 1, 2), (22, 2, 6), (200, 1, 2)] {
        let mut tlv = std::vec![kind, words];
        tlv.resize(2 + value, 0);
        let bytes = [&[1, 1 + 2 * words, 0x22, 0x63], &tlv[..], &tlv].concat();
        assert_eq!(read(&bytes), Err(BadMessage::Repeated(kind)));
    }
}

#[test]
fn an_unknown_type_is_handed_out() {
    let bytes = [1, 3, 0x22, 0x63, 192, 2, 1, 2, 3, 4, 5, 6];
    let value = &[1, 2, 3, 4, 5, 6];
    golden(&[Tlv::Unknown { kind: 192, value }], &bytes);
}

#[test]
fn what_is_too_long_is_not_written() {
    let mut out = [0; MAX_LEN + 8];
    let most = Tlv::Cookie(&[1; MAX_LEN - 8]);
    assert_eq!(emit(&[most], &mut out), Ok(MAX_LEN));
    assert_eq!(emit(&[most, Tlv::Info], &mut out), Err(NoRoom));
    assert_eq!(emit(&[Tlv::Cookie(&[1; MAX_LEN])], &mut out), Err(NoRoom));
    assert_eq!(emit(&[Tlv::Info], &mut out[..7]), Err(NoRoom));
    assert_eq!(emit(&[], &mut out[..3]), Err(NoRoom));
}

#[test]
fn limits_of_addresses_are_written_and_read() {
    let entries: [(core::net::IpAddr, u64); 2] = [
        ("192.0.2.1".parse().expect("a literal"), 10_000_000),
        ("2001:db8::2".parse().expect("a literal"), u64::MAX),
    ];
    let mut room = [0; size_of::<LimitsBuffer>()];
    let limits = Limits::write(entries, &mut room).expect("there are some");
    let mut bytes = std::vec![1, 14, 0x22, 0x63, 192, 13, 0, 0];
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
    bytes.extend([0, 0, 0, 0, 0, 0x98, 0x96, 0x80]);
    bytes.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    bytes.extend([0xff; 8]);
    golden(&[Tlv::Limits(limits)], &bytes);
    assert!(limits.entries().eq(entries));
    let mut room = [0; size_of::<LimitsBuffer>()];
    assert_eq!(Limits::write([], &mut room), None);
    let many = std::iter::repeat_n(entries[0], 100);
    let mut room = [0; size_of::<LimitsBuffer>()];
    let limits = Limits::write(many, &mut room).expect("there are some");
    assert_eq!(limits.entries().count(), MOST_LIMITS);
}

#[test]
fn a_private_type_of_another_form_is_unknown() {
    for value in [
        &[0, 0][..],
        &[0, 0, 1, 2, 3, 4],
        &[0; 22],
        &[0; 30],
        &[1; 26],
    ] {
        let words = u8::try_from((2 + value.len()) / 4).expect("short");
        let bytes = [&[1, 1 + words, 0x22, 0x63, 192, words], value].concat();
        golden(&[Tlv::Unknown { kind: 192, value }], &bytes);
    }
}
