//! What a converter answers. Pure.

use std::net::{IpAddr, SocketAddr};

use manypath_wire::convert::{BadMessage, ConvertError, MAX_LEN, Tlv, VERSION, emit};

use crate::serve::{Failure, Refusal};
use crate::target::connect::Unreached;
use crate::target::guard::Special;

/// Bytes of a message that an error can echo: what an Error TLV has left behind its own first word.
const ECHO: usize = MAX_LEN - 8;

/// A message of these TLVs.
pub(super) fn message(tlvs: &[Tlv<'_>]) -> Vec<u8> {
    let mut out = [0; MAX_LEN];
    // Invariant: everything that is answered has its bounds, an echo by `echo`.
    let n = emit(tlvs, &mut out).unwrap_or(0);
    out[..n].to_vec()
}

pub(super) fn error(error: ConvertError<'_>) -> Vec<u8> {
    message(&[Tlv::Error(error)])
}

/// So much of what a client has sent as an error can echo.
pub(super) fn echo(bytes: &[u8]) -> &[u8] {
    // The length says what is the message's and what the client's data, as far as it can be believed.
    let total = bytes.get(1).map_or(0, |words| usize::from(*words) * 4);
    let length = total.clamp(4, ECHO).min(bytes.len());
    &bytes[..length]
}

/// The answer to a message that cannot be read; `None` where the connection is reset instead.
pub(super) fn to_bad(bad: BadMessage, bytes: &[u8]) -> Option<Vec<u8>> {
    Some(error(match bad {
        BadMessage::NoLength => return None,
        BadMessage::Version(_) => ConvertError::UnsupportedVersion(&[VERSION]),
        BadMessage::Magic
        | BadMessage::TlvTooShort(_)
        | BadMessage::TlvTooLong(_)
        | BadMessage::Repeated(_)
        | BadMessage::SynOption => ConvertError::MalformedMessage(echo(bytes)),
    }))
}

/// The answer for a target that was not reached. `bytes` is the message that asked for it.
pub(super) fn to_unreached(why: &Unreached, target: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    error(match why {
        Unreached::Refused(Refusal::Address) if is_no_server(target.ip()) => {
            ConvertError::MalformedMessage(echo(bytes))
        }
        Unreached::Refused(Refusal::ClassFull | Refusal::ClassRate | Refusal::ClassQuota) => {
            ConvertError::ResourceExceeded
        }
        Unreached::NeedsUser | Unreached::Refused(_) => ConvertError::NotAuthorized,
        Unreached::Failed(failure, _) => match failure {
            Failure::Refused => ConvertError::ConnectionReset,
            // RFC 792 and RFC 4443 section 3.1: no route.
            Failure::NetworkUnreachable => ConvertError::DestinationUnreachable { icmp: 0 },
            Failure::HostUnreachable => ConvertError::DestinationUnreachable {
                icmp: match target.ip() {
                    IpAddr::V4(_) => 1,
                    IpAddr::V6(_) => 3,
                },
            },
            Failure::NoResources => ConvertError::ResourceExceeded,
            Failure::TimedOut
            | Failure::NameNotFound
            | Failure::NameTimedOut
            | Failure::BadAnswer
            | Failure::Certificate
            | Failure::Tls
            | Failure::TlsAlert
            | Failure::Other => ConvertError::NetworkFailure { wait: 0 },
        },
    })
}

/// Addresses that no Connect may have, whatever the rules say (RFC 8803 section 6.2.5): multicast and broadcast.
pub(super) fn is_for_many(target: SocketAddr) -> bool {
    match target.ip() {
        IpAddr::V4(addr) => addr.is_multicast() || addr.is_broadcast(),
        IpAddr::V6(addr) => addr.is_multicast(),
    }
}

/// Addresses that no Connect may have unless a rule allows them: loopback, what is reserved, and the unspecified one.
fn is_no_server(addr: IpAddr) -> bool {
    matches!(
        Special::of(addr, |_| false),
        Some(Special::Multicast | Special::Reserved | Special::Loopback | Special::Unspecified)
    )
}

/// TCP options that an extended Connect may name to no effect: those that every SYN has, or that are no option at all (RFC 8803
/// section 6.2.5).
pub(super) fn is_ignored(kind: u8) -> bool {
    matches!(kind, 0..=3 | 5)
}

/// Kinds of options that connections to servers have: selective acknowledgements and timestamps always, Multipath TCP and Fast Open
/// where the outside speaks them.
pub(super) fn supported(multipath: bool, fast_open: bool) -> Vec<u8> {
    const SACK_PERMITTED: u8 = 4;
    const TIMESTAMPS: u8 = 8;
    const MULTIPATH: u8 = 30;
    const FAST_OPEN: u8 = 34;
    let mut kinds = vec![SACK_PERMITTED, TIMESTAMPS];
    kinds.extend(multipath.then_some(MULTIPATH));
    kinds.extend(fast_open.then_some(FAST_OPEN));
    kinds
}

/// The options of the server's SYN/ACK, as far as they are known: MP_CAPABLE of version 1 with HMAC-SHA256, in its form without a key, which is
/// the connection's secret.
pub(super) fn server_options(multipath: bool) -> &'static [u8] {
    match multipath {
        true => &[30, 4, 0x01, 0x01],
        false => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_wire::convert::{Parsed, read};

    fn code(bytes: &[u8]) -> u8 {
        let Ok(Parsed::Whole(message)) = read(bytes) else {
            panic!("no message: {bytes:?}");
        };
        match message.tlvs().next() {
            Some(Tlv::Error(error)) => error.code(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_failure_has_its_error() {
        let io = || std::io::ErrorKind::Other.into();
        let v4: SocketAddr = "192.0.2.1:80".parse().expect("a literal");
        let v6: SocketAddr = "[2001:db8::1]:80".parse().expect("a literal");
        let told = |failure, to| to_unreached(&Unreached::Failed(failure, io()), to, &[]);
        assert_eq!(code(&told(Failure::Refused, v4)), 96);
        assert_eq!(code(&told(Failure::NoResources, v4)), 64);
        assert_eq!(code(&told(Failure::TimedOut, v4)), 65);
        assert_eq!(told(Failure::NetworkUnreachable, v4)[4..], [30, 1, 97, 0]);
        assert_eq!(told(Failure::HostUnreachable, v4)[4..], [30, 1, 97, 1]);
        assert_eq!(told(Failure::HostUnreachable, v6)[4..], [30, 1, 97, 3]);
        let refused = |why, to: &str| {
            let to = to.parse().expect("a literal");
            code(&to_unreached(
                &Unreached::Refused(why),
                to,
                &[1, 6, 0x22, 0x63],
            ))
        };
        assert_eq!(refused(Refusal::Rule, "192.0.2.1:80"), 32);
        assert_eq!(refused(Refusal::Loop, "127.0.0.1:80"), 32);
        assert_eq!(refused(Refusal::Address, "192.0.2.1:80"), 32, "our own");
        for to in [
            "127.0.0.1:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "[ff02::1]:80",
        ] {
            assert_eq!(refused(Refusal::Address, to), 1, "{to}");
        }
    }

    #[test]
    fn an_echo_has_no_more_than_the_message_and_what_fits() {
        let message = [1, 2, 0x22, 0x63, 1, 0, 0, 0, b'G', b'E', b'T'];
        assert_eq!(echo(&message), &message[..8]);
        let long = [255; 4096];
        let told = to_bad(BadMessage::Magic, &long).expect("an answer");
        assert_eq!((told.len(), code(&told)), (MAX_LEN, 1));
        assert_eq!(to_bad(BadMessage::NoLength, &[1, 0]), None);
        let version = to_bad(BadMessage::Version(2), &[2]).expect("an answer");
        assert_eq!(version, [1, 2, 0x22, 0x63, 30, 1, 0, 1]);
    }
}
