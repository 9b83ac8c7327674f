//! `docs/convert.md` shows each message of the Convert Protocol: its bytes are those that are written and read.

use manypath_wire::convert::{
    Connect, ConnectOptions, ConvertError, Kinds, Limits, LimitsBuffer, MAX_LEN, Parsed, Tlv, emit,
    read,
};

/// The messages of the page: lines of bytes with their meaning behind two spaces.
fn shown() -> Vec<Vec<u8>> {
    let page = include_str!("../../../docs/convert.md");
    let mut messages = Vec::new();
    let mut message = Vec::new();
    for line in page.lines().chain([""]) {
        let Some(line) = line.strip_prefix("    ") else {
            if !message.is_empty() {
                messages.push(std::mem::take(&mut message));
            }
            continue;
        };
        let (bytes, meaning) = line.split_once("  ").expect("bytes and a meaning");
        assert!(!meaning.trim().is_empty(), "{line}");
        let bytes = bytes.split(' ');
        message.extend(bytes.map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")));
    }
    messages
}

#[test]
fn the_page_shows_each_message_as_it_is_written_and_read() {
    use ConvertError as E;
    let remote = |text: &str| text.parse::<std::net::SocketAddr>().expect("a literal");
    let v4 = Tlv::Connect(Connect::to(remote("192.0.2.1:80")));
    let mut extended = Connect::to(remote("[2001:db8::2]:443"));
    extended.options = ConnectOptions::parse(&[30, 2]).expect("well-formed");
    let token: Vec<u8> = [0, 0, 0, 0x2a].into_iter().chain(0x10..=0x1f).collect();
    let mut room = [0; size_of::<LimitsBuffer>()];
    let limited = [(remote("192.0.2.7:0").ip(), 10_000_000)];
    let limits = Limits::write(limited, &mut room).expect("there is one");
    let expected: Vec<Vec<Tlv<'_>>> = vec![
        vec![v4],
        vec![Tlv::Connect(extended)],
        vec![Tlv::Cookie(&token), v4],
        vec![Tlv::Cookie(&[]), v4],
        vec![Tlv::Limits(limits), v4],
        vec![Tlv::Info],
        vec![],
        vec![Tlv::ExtendedTcpHeader(&[30, 4, 1, 1])],
        vec![Tlv::SupportedTcpExtensions(Kinds(&[4, 8, 30]))],
        vec![Tlv::Error(E::UnsupportedVersion(&[1]))],
        vec![Tlv::Error(E::MalformedMessage(&[1, 2, 0x22, 0x64]))],
        vec![Tlv::Error(E::UnsupportedMessage(&[
            1, 2, 0x22, 0x63, 21, 1, 0, 0,
        ]))],
        vec![Tlv::Error(E::MissingCookie(&token))],
        vec![Tlv::Error(E::NotAuthorized)],
        vec![Tlv::Error(E::UnsupportedTcpOption(&[29]))],
        vec![Tlv::Error(E::ResourceExceeded)],
        vec![Tlv::Error(E::NetworkFailure { wait: 5 })],
        vec![Tlv::Error(E::ConnectionReset)],
        vec![Tlv::Error(E::DestinationUnreachable { icmp: 1 })],
    ];
    let shown = shown();
    assert_eq!(shown.len(), expected.len());
    for (bytes, tlvs) in shown.iter().zip(&expected) {
        let mut out = [0; MAX_LEN];
        let length = emit(tlvs, &mut out).expect("it fits");
        assert_eq!(&out[..length], bytes, "{tlvs:?}");
        let Ok(Parsed::Whole(message)) = read(bytes) else {
            panic!("{bytes:02x?} is no message");
        };
        // What is read has its padding, so that it is compared as it is written.
        let read: Vec<Tlv<'_>> = message.tlvs().collect();
        let length = emit(&read, &mut out).expect("it fits");
        assert_eq!((&out[..length], read.len()), (&bytes[..], tlvs.len()));
    }
}
