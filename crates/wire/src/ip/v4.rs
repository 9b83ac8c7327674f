//! The IPv4 header (RFC 791).

use core::net::{IpAddr, Ipv4Addr};

use super::{Ecn, IpError, IpMeta, Joined};
use crate::checksum::Sum;
use crate::cursor::{NoRoom, Reader, Writer};

/// Bytes of the header this program writes, and of the shortest one it reads.
pub const HEADER_LEN: usize = 20;
/// Offset of the header checksum.
const CHECKSUM_AT: usize = 10;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// The header's fields as they stand, whether or not the whole packet is there.
pub(super) struct Fields {
    pub(super) meta: IpMeta,
    pub(super) identification: u16,
    fragment: u16,
}

impl Fields {
    /// One piece of a larger packet.
    pub(super) const fn is_fragment(&self) -> bool {
        self.fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// A piece that does not hold the upper layer's first bytes.
    pub(super) const fn is_later_fragment(&self) -> bool {
        self.fragment & FRAGMENT_OFFSET != 0
    }

    /// Where the piece belongs, bytes.
    pub(super) const fn offset(&self) -> usize {
        (self.fragment & FRAGMENT_OFFSET) as usize * 8
    }

    /// Further pieces follow.
    pub(super) const fn more(&self) -> bool {
        self.fragment & MORE_FRAGMENTS != 0
    }
}

/// Reads the fixed fields and checks only the header's own lengths.
pub(super) fn fields(packet: &[u8], joined: Joined) -> Result<Fields, IpError> {
    let (version_and_length, mut fields) = read(packet).ok_or(IpError::Truncated)?;
    if fields.meta.total_len == 0 && joined == Joined::Yes {
        fields.meta.total_len = packet.len();
    }
    let header_len = fields.meta.header_len;
    if version_and_length >> 4 != 4 || header_len < HEADER_LEN || fields.meta.total_len < header_len
    {
        return Err(IpError::Length);
    }
    Ok(fields)
}

fn read(packet: &[u8]) -> Option<(u8, Fields)> {
    // A slice of known length lets the compiler drop every further check.
    let mut reader = Reader::new(packet.first_chunk::<HEADER_LEN>()?);
    let version_and_length = reader.u8()?;
    let traffic_class = reader.u8()?;
    let total_len = usize::from(reader.u16()?);
    let identification = reader.u16()?;
    let fragment = reader.u16()?;
    let (ttl, protocol, _checksum) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let src = IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?));
    let dst = IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?));
    let header_len = usize::from(version_and_length & 0x0f) * 4;
    let ecn = Ecn::from_bits(traffic_class);
    let meta = IpMeta {
        src,
        dst,
        protocol,
        ttl,
        ecn,
        total_len,
        header_len,
    };
    let fields = Fields {
        meta,
        identification,
        fragment,
    };
    Some((version_and_length, fields))
}

/// Reads and checks a header, of a fragment as well. Options are skipped.
pub(super) fn checked(packet: &[u8], joined: Joined) -> Result<Fields, IpError> {
    let fields = fields(packet, joined)?;
    let header = packet
        .get(..fields.meta.header_len)
        .ok_or(IpError::Truncated)?;
    // Nearly all have no options.
    let sum = match <&[u8; HEADER_LEN]>::try_from(header) {
        Ok(plain) => Sum::of_words(plain),
        Err(_) => Sum::of(header),
    };
    if !sum.is_valid() {
        return Err(IpError::Checksum);
    }
    Ok(fields)
}

/// Reads and checks the header of a whole packet.
pub(super) fn parse(packet: &[u8], joined: Joined) -> Result<IpMeta, IpError> {
    let fields = checked(packet, joined)?;
    if fields.is_fragment() {
        return Err(IpError::Fragment);
    }
    Ok(fields.meta)
}

/// Makes a fragment's header, options included, the one of the whole packet of `total_len` bytes.
pub(super) fn make_whole(header: &mut [u8], ecn: Ecn, total_len: u16) -> Result<(), NoRoom> {
    let class = header.get(1).ok_or(NoRoom)? & !0b11 | ecn.bits();
    let mut w = Writer::new(header.get_mut(1..8).ok_or(NoRoom)?);
    w.u8(class)?;
    w.u16(total_len)?;
    w.u16(0)?;
    w.u16(0)?;
    write_checksum(header)
}

pub(super) fn write_checksum(header: &mut [u8]) -> Result<(), NoRoom> {
    let field = CHECKSUM_AT..CHECKSUM_AT + 2;
    header.get_mut(field.clone()).ok_or(NoRoom)?.fill(0);
    let checksum = Sum::of(header).finish();
    let field = header.get_mut(field).ok_or(NoRoom)?;
    field.copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Writes a header without options for a packet of `total_len` bytes: not to be fragmented, and with identification
/// zero, as a packet that is never fragmented may have (RFC 6864 section 4.1).
pub fn emit(
    header: &mut [u8; HEADER_LEN],
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: u8,
    ttl: u8,
    ecn: Ecn,
    total_len: u16,
) {
    let written = write(
        &mut Writer::new(header),
        src,
        dst,
        protocol,
        ttl,
        ecn,
        total_len,
    );
    debug_assert!(written.is_ok(), "the fields are exactly 20 bytes");
    let checksum = Sum::of_words(header).finish();
    header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn write(
    w: &mut Writer<'_>,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: u8,
    ttl: u8,
    ecn: Ecn,
    total_len: u16,
) -> Result<(), NoRoom> {
    w.u8(0x40 | (HEADER_LEN / 4) as u8)?;
    w.u8(ecn.bits())?;
    w.u16(total_len)?;
    w.u16(0)?;
    w.u16(DONT_FRAGMENT)?;
    w.u8(ttl)?;
    w.u8(protocol)?;
    w.u16(0)?;
    w.put(&src.octets())?;
    w.put(&dst.octets())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use alloc::vec;
    use alloc::vec::Vec;

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let len = (HEADER_LEN + payload.len()) as u16;
        emit(
            bytes.first_chunk_mut().unwrap(),
            src,
            dst,
            6,
            64,
            Ecn::Ect0,
            len,
        );
        bytes.extend(payload);
        bytes
    }

    /// Changes the header and makes its checksum right again.
    fn patched(at: usize, value: u16) -> Vec<u8> {
        let mut bytes = packet(&[1, 2, 3, 4]);
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        let checksum = Sum::of(&bytes[..HEADER_LEN]).finish();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    #[test]
    fn a_known_header_checksum() {
        // The header of RFC 1071 style textbooks: 172.16.10.99 to 172.16.10.12, checksum b1e6.
        let header = [
            0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06, 0xb1, 0xe6, 0xac, 0x10,
            0x0a, 0x63, 0xac, 0x10, 0x0a, 0x0c,
        ];
        assert!(Sum::of(&header).is_valid());
    }

    #[test]
    fn what_is_written_is_read() {
        let (meta, body) = ip::parse(&packet(&[1, 2, 3]))
            .map(|(m, b)| (m, b.to_vec()))
            .unwrap();
        assert_eq!(body, [1, 2, 3]);
        assert_eq!(
            meta,
            IpMeta {
                src: IpAddr::from([10, 0, 0, 1]),
                dst: IpAddr::from([10, 0, 0, 2]),
                protocol: 6,
                ttl: 64,
                ecn: Ecn::Ect0,
                total_len: 23,
                header_len: 20,
            }
        );
    }

    #[test]
    fn padding_of_the_link_is_not_payload() {
        let mut bytes = packet(&[1, 2, 3]);
        bytes.resize(46, 0xee);
        assert_eq!(ip::parse(&bytes).unwrap().1, [1, 2, 3]);
    }

    #[test]
    fn fragments_are_told_apart_from_damage() {
        assert_eq!(ip::parse(&patched(6, 0x2000)), Err(IpError::Fragment));
        assert_eq!(ip::parse(&patched(6, 0x0001)), Err(IpError::Fragment));
        assert!(ip::parse(&patched(6, 0x4000)).is_ok());
        assert!(ip::parse(&patched(6, 0x0000)).is_ok());
        let mut damaged = packet(&[]);
        damaged[15] ^= 1;
        assert_eq!(ip::parse(&damaged), Err(IpError::Checksum));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(ip::parse(&patched(0, 0x4400)), Err(IpError::Length));
        assert_eq!(ip::parse(&patched(2, 19)), Err(IpError::Length));
        assert_eq!(ip::parse(&patched(2, 25)), Err(IpError::Truncated));
        assert_eq!(ip::parse(&packet(&[])[..19]), Err(IpError::Truncated));
    }

    #[test]
    fn options_are_skipped() {
        let mut bytes = packet(&[]);
        bytes.extend([1, 1, 1, 0, 9, 9]);
        bytes[0] = 0x46;
        bytes[3] = 26;
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        let checksum = Sum::of(&bytes[..24]).finish();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        let (meta, body) = ip::parse(&bytes).unwrap();
        assert_eq!((meta.header_len, body), (24, &[9u8, 9][..]));
    }
}
