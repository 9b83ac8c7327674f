//! Writes IP and TCP headers in front of payload that the caller already placed.
//!
//! First [`header_len`] says where the payload goes, then the payload is copied there (and summed on the way), then
//! [`headers`] writes everything but the TCP checksum, and [`finish`] writes that.

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::cursor::Writer;
use crate::ids::FourTuple;
use crate::ip::{Ecn, v4, v6};
use crate::tcp;
use crate::tcp::header::{self, Header};
use crate::tcp::layout::Fitted;

/// Everything about an outgoing segment but its payload.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'o> {
    /// The subflow at the sender: `local` becomes the source, `remote` the destination.
    pub tuple: FourTuple,
    /// The congestion mark.
    pub ecn: Ecn,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// The fixed TCP fields. The ports written are those of `tuple`, so that the two cannot disagree.
    pub header: Header,
    /// The options, already fitted.
    pub options: &'o Fitted,
}

/// How the TCP checksum is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Complete.
    Full,
    /// The pseudo-header's sum only, not complemented: the device adds the rest.
    Partial,
}

/// Why headers cannot be written. All are the caller's mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The buffer is shorter than the headers (and, for [`finish`], does not hold headers).
    NoRoom,
    /// One end is IPv4, the other IPv6.
    MixedFamilies,
    /// The packet would be longer than the IP header's 16-bit length can say.
    TooLong,
}

/// Bytes of the IP header for a subflow.
#[must_use]
pub const fn ip_header_len(tuple: &FourTuple) -> usize {
    if tuple.is_ipv6() {
        v6::HEADER_LEN
    } else {
        v4::HEADER_LEN
    }
}

/// Bytes of all headers: where the payload begins.
#[must_use]
pub const fn header_len(tuple: &FourTuple, options: &Fitted) -> usize {
    ip_header_len(tuple) + header::MIN_LEN + options.len()
}

/// Writes IP and TCP headers to the front of `buf` for `payload_len` bytes behind them; answers the headers' length.
/// The TCP checksum is zero until [`finish`]. A packet that a device will cut into segments has the length of the
/// whole, so `payload_len` may exceed the path's MTU.
pub fn headers(buf: &mut [u8], out: &Outgoing<'_>, payload_len: usize) -> Result<usize, EmitError> {
    let tcp_len = header::MIN_LEN + out.options.len();
    let segment_len = tcp_len.checked_add(payload_len).ok_or(EmitError::TooLong)?;
    let fits = |len: usize| u16::try_from(len).map_err(|_| EmitError::TooLong);
    let tcp = match (out.tuple.local.ip(), out.tuple.remote.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let total = fits(segment_len.saturating_add(v4::HEADER_LEN))?;
            let (ip, tcp) = buf.split_first_chunk_mut().ok_or(EmitError::NoRoom)?;
            v4::emit(ip, src, dst, tcp::PROTOCOL, out.hop_limit, out.ecn, total);
            tcp
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let len = fits(segment_len)?;
            let (ip, tcp) = buf.split_first_chunk_mut().ok_or(EmitError::NoRoom)?;
            v6::emit(ip, src, dst, tcp::PROTOCOL, out.hop_limit, out.ecn, len);
            tcp
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            return Err(EmitError::MixedFamilies);
        }
    };
    let (fixed, rest) = tcp
        .split_at_mut_checked(header::MIN_LEN)
        .ok_or(EmitError::NoRoom)?;
    let area = rest.get_mut(..out.options.len()).ok_or(EmitError::NoRoom)?;
    let header = Header {
        src_port: out.tuple.local.port(),
        dst_port: out.tuple.remote.port(),
        ..out.header
    };
    header
        .emit(&mut Writer::new(fixed), out.options.len())
        .and_then(|()| out.options.emit(area))
        .map_err(|_| EmitError::NoRoom)?;
    Ok(header_len(&out.tuple, out.options))
}

/// Writes the TCP checksum into headers that [`headers`] wrote to the front of `buf`. `payload_sum` is the sum of all
/// bytes behind them and is not looked at for [`Checksum::Partial`]. The payload itself need not be in `buf`.
pub fn finish(buf: &mut [u8], payload_sum: Sum, checksum: Checksum) -> Result<(), EmitError> {
    let (ip_len, mut sum) = pseudo_of(buf).ok_or(EmitError::NoRoom)?;
    let tcp = buf.get_mut(ip_len..).ok_or(EmitError::NoRoom)?;
    let offset = tcp.get(12).ok_or(EmitError::NoRoom)?;
    let tcp_len = usize::from(offset >> 4) * 4;
    let header = tcp.get_mut(..tcp_len).ok_or(EmitError::NoRoom)?;
    let field = header::CHECKSUM_AT..header::CHECKSUM_AT + 2;
    header
        .get_mut(field.clone())
        .ok_or(EmitError::NoRoom)?
        .fill(0);
    let value = match checksum {
        Checksum::Full => {
            sum.add_bytes(header);
            sum.append(payload_sum);
            sum.finish()
        }
        Checksum::Partial => sum.fold(),
    };
    header[field].copy_from_slice(&value.to_be_bytes());
    Ok(())
}

/// Length of the IP header at the front of `buf` and the sum of the pseudo-header it implies.
fn pseudo_of(buf: &[u8]) -> Option<(usize, Sum)> {
    let (ip_len, mut sum, tcp_len) = match buf.first()? >> 4 {
        4 => {
            let total = u16::from_be_bytes([*buf.get(2)?, *buf.get(3)?]);
            let len = total.checked_sub(v4::HEADER_LEN as u16)?;
            let addresses = buf.get(12..)?.first_chunk::<8>()?;
            (v4::HEADER_LEN, Sum::of_words(addresses), len)
        }
        6 => {
            let len = u16::from_be_bytes([*buf.get(4)?, *buf.get(5)?]);
            let addresses = buf.get(8..)?.first_chunk::<32>()?;
            (v6::HEADER_LEN, Sum::of_words(addresses), len)
        }
        _ => return None,
    };
    // Both pseudo-headers are the addresses, the protocol and the length; only the order differs.
    sum.add_u16(u16::from(tcp::PROTOCOL));
    sum.add_u16(tcp_len);
    Some((ip_len, sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{pseudo_v4, pseudo_v6};
    use crate::segment::tests::{header, packet, tuple};
    use crate::segment::{Segment, Verify};
    use crate::tcp::header::Flags;
    use alloc::vec;

    fn out(tuple: FourTuple) -> Outgoing<'static> {
        const NONE: &Fitted = &Fitted::EMPTY;
        Outgoing {
            tuple,
            ecn: Ecn::NotEct,
            hop_limit: 64,
            header: header(Flags::ACK),
            options: NONE,
        }
    }

    #[test]
    fn a_golden_packet() {
        let bytes = packet(false, header(Flags::ACK), &Fitted::EMPTY, b"hi");
        assert_eq!(
            bytes,
            [
                0x45, 0x02, 0x00, 0x2a, 0x00, 0x00, 0x40, 0x00, 0x40, 0x06, 0x26, 0xca, 10, 0, 0,
                1, 10, 0, 0, 2, 0x03, 0xe8, 0x00, 0x50, 0x00, 0x00, 0x00, 0x64, 0x00, 0x00, 0x00,
                0xc8, 0x50, 0x10, 0x01, 0xf4, 0x2c, 0x0f, 0x00, 0x00, b'h', b'i',
            ]
        );
    }

    #[test]
    fn a_device_completes_a_partial_checksum() {
        for v6 in [false, true] {
            let tuple = tuple(v6);
            let payload = b"some payload";
            let len = header_len(&tuple, &Fitted::EMPTY);
            let mut bytes = vec![0; len];
            headers(&mut bytes, &out(tuple), payload.len()).unwrap();
            bytes.extend(payload);
            finish(&mut bytes, Sum::ZERO, Checksum::Partial).unwrap();
            let ip_len = ip_header_len(&tuple);
            let tcp_len = (20 + payload.len()) as u32;
            let pseudo = match (tuple.local.ip(), tuple.remote.ip()) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_v4(src, dst, 6, tcp_len),
                (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(src, dst, 6, tcp_len),
                _ => unreachable!("both ends have one family"),
            };
            let at = ip_len + header::CHECKSUM_AT;
            assert_eq!(bytes[at..at + 2], pseudo.fold().to_be_bytes());
            // What a device does: sum from the start of the TCP header, the field included, and complement.
            let complete = Sum::of(&bytes[ip_len..]).finish();
            bytes[at..at + 2].copy_from_slice(&complete.to_be_bytes());
            assert!(Segment::parse(&bytes, Verify::Full).is_ok());
        }
    }

    #[test]
    fn finishing_twice_gives_the_same() {
        let mut bytes = packet(true, header(Flags::ACK), &Fitted::EMPTY, b"odd");
        let once = bytes.clone();
        finish(&mut bytes, Sum::of(b"odd"), Checksum::Full).unwrap();
        assert_eq!(bytes, once);
    }

    #[test]
    fn the_payload_need_not_be_in_the_same_buffer() {
        let tuple = tuple(false);
        let mut front = vec![0; 40];
        headers(&mut front, &out(tuple), 3).unwrap();
        finish(&mut front, Sum::of(b"abc"), Checksum::Full).unwrap();
        front.extend(b"abc");
        assert!(Segment::parse(&front, Verify::Full).is_ok());
    }

    #[test]
    fn callers_mistakes_are_errors() {
        let v4 = out(tuple(false));
        let v6 = out(tuple(true));
        let mut buffer = [0u8; 100];
        for short in [0, 19, 39] {
            assert_eq!(
                headers(&mut buffer[..short], &v4, 0),
                Err(EmitError::NoRoom)
            );
        }
        assert_eq!(headers(&mut buffer[..59], &v6, 0), Err(EmitError::NoRoom));
        assert_eq!(headers(&mut buffer[..60], &v6, 0), Ok(60));
        assert_eq!(headers(&mut buffer, &v4, 65_535 - 40), Ok(40));
        assert_eq!(
            headers(&mut buffer, &v4, 65_535 - 39),
            Err(EmitError::TooLong)
        );
        assert_eq!(headers(&mut buffer, &v6, 65_535 - 20), Ok(60));
        assert_eq!(
            headers(&mut buffer, &v6, 65_535 - 19),
            Err(EmitError::TooLong)
        );
        assert_eq!(
            headers(&mut buffer, &v4, usize::MAX),
            Err(EmitError::TooLong)
        );
        let mixed = FourTuple {
            local: v4.tuple.local,
            remote: v6.tuple.remote,
        };
        assert_eq!(
            headers(&mut buffer, &out(mixed), 0),
            Err(EmitError::MixedFamilies)
        );
        for junk in [
            &mut [][..],
            &mut [0x45; 30],
            &mut [0x60; 50],
            &mut [0x00; 60],
        ] {
            assert_eq!(
                finish(junk, Sum::ZERO, Checksum::Full),
                Err(EmitError::NoRoom)
            );
        }
    }
}
