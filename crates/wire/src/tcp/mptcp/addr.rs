//! ADD_ADDR and REMOVE_ADDR (RFC 8684 section 3.4).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Subtype, emit_head};
use crate::cursor::{NoRoom, Reader, Writer};
use crate::ids::AddrId;
use crate::tcp::header::MAX_OPTIONS_LEN;

const ECHO: u8 = 0x01;
const HMAC_LEN: usize = 8;

/// ADD_ADDR: one more address of the sender, or the echo that confirms one (rfc8684:A9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddAddr {
    /// The receiver of an ADD_ADDR sends it back. Set exactly when `hmac` is absent.
    pub echo: bool,
    /// The announcing host's number for the address (rfc8684:A2).
    pub addr_id: AddrId,
    /// The address.
    pub addr: IpAddr,
    /// The port to connect to, if it is not the port of the subflow that carries the option (rfc8684:A5).
    pub port: Option<u16>,
    /// The rightmost 64 bits of the HMAC (rfc8684:A6); an echo has none.
    pub hmac: Option<[u8; HMAC_LEN]>,
}

impl AddAddr {
    pub(super) fn parse(option: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(option);
        reader.take(2)?;
        // rfc8684:A8: the other three bits are ignored.
        let echo = reader.u8()? & ECHO != 0;
        let addr_id = AddrId(reader.u8()?);
        let hmac_len = if echo { 0 } else { HMAC_LEN };
        // rfc8684:G5: the length says which address and whether a port is there.
        let (v6, with_port) = match option.len().checked_sub(hmac_len)? {
            8 => (false, false),
            10 => (false, true),
            20 => (true, false),
            22 => (true, true),
            _ => return None,
        };
        let addr = if v6 {
            IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?))
        } else {
            IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?))
        };
        let port = if with_port { Some(reader.u16()?) } else { None };
        Some(Self {
            echo,
            addr_id,
            addr,
            port,
            hmac: reader.array(),
        })
    }

    /// Bytes on the wire: 16, 18, 28 or 30, and 8 fewer for an echo.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        let addr = match self.addr {
            IpAddr::V4(_) => 4,
            IpAddr::V6(_) => 16,
        };
        let port = if self.port.is_some() { 2 } else { 0 };
        let hmac = if self.hmac.is_some() { HMAC_LEN } else { 0 };
        4 + addr + port + hmac
    }

    /// The echo that confirms this announcement (rfc8684:A9).
    #[must_use]
    pub const fn to_echo(&self) -> Self {
        Self {
            echo: true,
            addr_id: self.addr_id,
            addr: self.addr,
            port: self.port,
            hmac: None,
        }
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        // rfc8684:A8: the other three bits are zero.
        emit_head(
            w,
            self.wire_len(),
            Subtype::AddAddr,
            u8::from(self.echo) * ECHO,
        )?;
        w.u8(self.addr_id.0)?;
        match self.addr {
            IpAddr::V4(addr) => w.put(&addr.octets())?,
            IpAddr::V6(addr) => w.put(&addr.octets())?,
        }
        if let Some(port) = self.port {
            w.u16(port)?;
        }
        self.hmac.map_or(Ok(()), |hmac| w.put(&hmac))
    }
}

/// A short list of address identifiers: as many as one option can carry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AddrIds {
    len: u8,
    /// Unused places are zero, so that equal lists are equal values.
    ids: [AddrId; Self::CAPACITY],
}

impl AddrIds {
    /// The option's three bytes and this many identifiers fill a header's option space.
    pub const CAPACITY: usize = MAX_OPTIONS_LEN - 3;
    /// No identifier.
    pub const EMPTY: Self = Self {
        len: 0,
        ids: [AddrId(0); Self::CAPACITY],
    };

    /// Appends an identifier; false when the list is full.
    #[must_use]
    pub fn push(&mut self, id: AddrId) -> bool {
        let Some(place) = self.ids.get_mut(usize::from(self.len)) else {
            return false;
        };
        *place = id;
        self.len += 1;
        true
    }

    /// The identifiers, in wire order.
    #[must_use]
    pub fn as_slice(&self) -> &[AddrId] {
        &self.ids[..usize::from(self.len)]
    }
}

impl FromIterator<AddrId> for AddrIds {
    /// Takes as many as fit.
    fn from_iter<I: IntoIterator<Item = AddrId>>(ids: I) -> Self {
        let mut list = Self::EMPTY;
        for id in ids {
            if !list.push(id) {
                break;
            }
        }
        list
    }
}

impl core::fmt::Debug for AddrIds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// REMOVE_ADDR: addresses that can no longer be used. At least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoveAddr {
    /// The announcing host's numbers.
    pub ids: AddrIds,
}

impl RemoveAddr {
    pub(super) fn parse(option: &[u8]) -> Option<Self> {
        let ids = option.get(3..)?;
        // rfc8684:G5
        if ids.is_empty() || ids.len() > AddrIds::CAPACITY {
            return None;
        }
        Some(Self {
            ids: ids.iter().copied().map(AddrId).collect(),
        })
    }

    /// Bytes on the wire: 3 and one for each identifier.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        3 + self.ids.len as usize
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        emit_head(w, self.wire_len(), Subtype::RemoveAddr, 0)?;
        self.ids.as_slice().iter().try_for_each(|id| w.u8(id.0))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::MptcpOption;
    use super::super::tests::{golden, only_these_lengths};
    use super::*;
    use crate::tcp::header::Flags;
    use proptest::prelude::*;

    pub(crate) fn any_add() -> impl Strategy<Value = AddAddr> {
        any::<(u8, IpAddr, Option<u16>, Option<[u8; 8]>)>().prop_map(|(id, addr, port, hmac)| {
            AddAddr {
                echo: hmac.is_none(),
                addr_id: AddrId(id),
                addr,
                port,
                hmac,
            }
        })
    }

    pub(crate) fn any_remove() -> impl Strategy<Value = RemoveAddr> {
        proptest::collection::vec(any::<u8>(), 1..=AddrIds::CAPACITY).prop_map(|ids| RemoveAddr {
            ids: ids.into_iter().map(AddrId).collect(),
        })
    }

    #[test]
    fn golden_vectors() {
        // rfc8684:A8 rfc8684:A9; the HMACs are those of the checklist's keys.
        let add = AddAddr {
            echo: false,
            addr_id: AddrId(2),
            addr: IpAddr::from([10, 1, 2, 3]),
            port: None,
            hmac: Some([0x8e, 0x62, 0x3f, 0x9c, 0xbb, 0x0e, 0x67, 0x11]),
        };
        golden(
            MptcpOption::AddAddr(add),
            &[
                30, 16, 0x30, 2, 10, 1, 2, 3, 0x8e, 0x62, 0x3f, 0x9c, 0xbb, 0x0e, 0x67, 0x11,
            ],
        );
        golden(
            MptcpOption::AddAddr(add.to_echo()),
            &[30, 8, 0x31, 2, 10, 1, 2, 3],
        );
        let with_port = AddAddr {
            port: Some(8080),
            hmac: Some([0x3f, 0xc0, 0x70, 0xfe, 0x3f, 0xf1, 0xd7, 0x67]),
            ..add
        };
        golden(
            MptcpOption::AddAddr(with_port),
            &[
                30, 18, 0x30, 2, 10, 1, 2, 3, 0x1f, 0x90, 0x3f, 0xc0, 0x70, 0xfe, 0x3f, 0xf1, 0xd7,
                0x67,
            ],
        );
        golden(
            MptcpOption::AddAddr(with_port.to_echo()),
            &[30, 10, 0x31, 2, 10, 1, 2, 3, 0x1f, 0x90],
        );
        let v6 = AddAddr {
            addr_id: AddrId(3),
            addr: IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
            hmac: Some([0x42, 0xa6, 0x57, 0x41, 0xd4, 0xa0, 0x26, 0xf0]),
            ..add
        };
        golden(
            MptcpOption::AddAddr(v6),
            &[
                30, 28, 0x30, 3, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x42,
                0xa6, 0x57, 0x41, 0xd4, 0xa0, 0x26, 0xf0,
            ],
        );
        golden(
            MptcpOption::RemoveAddr(RemoveAddr {
                ids: [AddrId(1), AddrId(7)].into_iter().collect(),
            }),
            &[30, 5, 0x40, 1, 7],
        );
    }

    #[test]
    fn only_the_lengths_of_the_standard_count() {
        // rfc8684:G5
        only_these_lengths(&[30, 4, 0x30, 1], Flags::ACK, &[16, 18, 28, 30]);
        only_these_lengths(&[30, 4, 0x31, 1], Flags::ACK, &[8, 10, 20, 22]);
        only_these_lengths(
            &[30, 4, 0x40, 1],
            Flags::ACK,
            &(4..=40).collect::<alloc::vec::Vec<_>>(),
        );
    }

    #[test]
    fn reserved_bits_are_ignored_on_receipt() {
        // rfc8684:A8
        let clean = [30, 8, 0x31, 2, 10, 1, 2, 3];
        let mut dirty = clean;
        dirty[2] |= 0x0e;
        assert_eq!(
            MptcpOption::parse(&dirty, Flags::ACK),
            MptcpOption::parse(&clean, Flags::ACK)
        );
    }

    #[test]
    fn a_full_list_takes_no_more() {
        let mut ids: AddrIds = (0..=255).map(AddrId).collect();
        assert_eq!(ids.as_slice().len(), AddrIds::CAPACITY);
        assert!(!ids.push(AddrId(1)));
        assert_eq!(RemoveAddr { ids }.wire_len(), 40);
    }
}
