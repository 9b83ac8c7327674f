//! DSS (RFC 8684 section 3.3): data acknowledgement, data sequence mapping and DATA_FIN.

use super::{Subtype, emit_head};
use crate::cursor::{NoRoom, Reader, Writer};
use crate::dsn::Dsn;
use crate::seq::Ssn;

const ACK_PRESENT: u8 = 0x01;
const ACK_LONG: u8 = 0x02;
const MAP_PRESENT: u8 = 0x04;
const MAP_LONG: u8 = 0x08;
const DATA_FIN: u8 = 0x10;

/// The option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Dss {
    /// The next data sequence number the sender expects, if told.
    pub data_ack: Option<DataAck>,
    /// Which subflow bytes are which data bytes, if told.
    pub mapping: Option<Mapping>,
    /// The mapping's last octet is the end of the stream (rfc8684:F1). Means nothing without a mapping, and is read as
    /// false then.
    pub data_fin: bool,
}

/// A data acknowledgement in one of its two widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataAck {
    /// The low 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

/// A mapping's first data sequence number in one of its two widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapDsn {
    /// The low 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

/// One range of subflow bytes and the data bytes they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The data sequence number of the first byte.
    pub dsn: MapDsn,
    /// The subflow sequence number of the first byte; 0 when only a DATA_FIN is mapped (rfc8684:F2).
    pub ssn: Ssn,
    /// Octets mapped, a DATA_FIN included; 0 means "from here on for ever" (rfc8684:D18).
    pub len: u16,
    /// The checksum over the mapped bytes, if one is there.
    pub checksum: Option<u16>,
}

impl DataAck {
    /// The whole number, given one that is near it (rfc8684:D14, D16).
    #[must_use]
    pub const fn expand(self, near: Dsn) -> Dsn {
        match self {
            Self::Short(low) => Dsn::expand(low, near),
            Self::Long(whole) => Dsn::new(whole),
        }
    }
}

impl MapDsn {
    /// The whole number, given one that is near it (rfc8684:D14, D16).
    #[must_use]
    pub const fn expand(self, near: Dsn) -> Dsn {
        match self {
            Self::Short(low) => Dsn::expand(low, near),
            Self::Long(whole) => Dsn::new(whole),
        }
    }
}

impl Mapping {
    /// The mapping holds for everything from its start: fallback (rfc8684:D18).
    #[must_use]
    pub const fn is_infinite(&self) -> bool {
        self.len == 0
    }
}

impl Dss {
    pub(super) fn parse(option: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(option);
        reader.take(3)?;
        // rfc8684:D1: the reserved bits are ignored, and so are a and m without A and M.
        let flags = reader.u8()?;
        let has = |bit: u8| flags & bit != 0;
        let data_ack = match (has(ACK_PRESENT), has(ACK_LONG)) {
            (false, _) => None,
            (true, false) => Some(DataAck::Short(reader.u32()?)),
            (true, true) => Some(DataAck::Long(reader.u64()?)),
        };
        let mapping = match (has(MAP_PRESENT), has(MAP_LONG)) {
            (false, _) => None,
            (true, long) => {
                let dsn = if long {
                    MapDsn::Long(reader.u64()?)
                } else {
                    MapDsn::Short(reader.u32()?)
                };
                let (ssn, len) = (Ssn::new(reader.u32()?), reader.u16()?);
                // The flags do not say whether a checksum follows; two more bytes do.
                let checksum = reader.u16();
                Some(Mapping {
                    dsn,
                    ssn,
                    len,
                    checksum,
                })
            }
        };
        // rfc8684:G5
        (reader.remaining() == 0).then_some(Self {
            data_ack,
            mapping,
            data_fin: has(DATA_FIN) && mapping.is_some(),
        })
    }

    /// Bytes on the wire, 4 to 28.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        let ack = match self.data_ack {
            None => 0,
            Some(DataAck::Short(_)) => 4,
            Some(DataAck::Long(_)) => 8,
        };
        let map = match self.mapping {
            None => 0,
            Some(Mapping {
                dsn,
                ssn: _,
                len: _,
                checksum,
            }) => {
                let dsn = match dsn {
                    MapDsn::Short(_) => 4,
                    MapDsn::Long(_) => 8,
                };
                let checksum = if checksum.is_some() { 2 } else { 0 };
                dsn + 4 + 2 + checksum
            }
        };
        4 + ack + map
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        // rfc8684:D1: reserved bits are zero.
        emit_head(w, self.wire_len(), Subtype::Dss, 0)?;
        let ack_bits = match self.data_ack {
            None => 0,
            Some(DataAck::Short(_)) => ACK_PRESENT,
            Some(DataAck::Long(_)) => ACK_PRESENT | ACK_LONG,
        };
        let map_bits = match self.mapping.map(|mapping| mapping.dsn) {
            None => 0,
            Some(MapDsn::Short(_)) => MAP_PRESENT,
            Some(MapDsn::Long(_)) => MAP_PRESENT | MAP_LONG,
        };
        let fin = if self.data_fin && self.mapping.is_some() {
            DATA_FIN
        } else {
            0
        };
        w.u8(ack_bits | map_bits | fin)?;
        match self.data_ack {
            None => {}
            Some(DataAck::Short(low)) => w.u32(low)?,
            Some(DataAck::Long(whole)) => w.u64(whole)?,
        }
        let Some(Mapping {
            dsn,
            ssn,
            len,
            checksum,
        }) = self.mapping
        else {
            return Ok(());
        };
        match dsn {
            MapDsn::Short(low) => w.u32(low)?,
            MapDsn::Long(whole) => w.u64(whole)?,
        }
        w.u32(ssn.get())?;
        w.u16(len)?;
        checksum.map_or(Ok(()), |checksum| w.u16(checksum))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::MptcpOption;
    use super::super::tests::{golden, only_these_lengths};
    use super::*;
    use crate::tcp::header::Flags;
    use proptest::prelude::*;

    pub(crate) fn any_dss() -> impl Strategy<Value = Dss> {
        let ack = prop_oneof![
            any::<u32>().prop_map(DataAck::Short),
            any::<u64>().prop_map(DataAck::Long)
        ];
        let dsn = prop_oneof![
            any::<u32>().prop_map(MapDsn::Short),
            any::<u64>().prop_map(MapDsn::Long)
        ];
        let mapping = (dsn, any::<u32>(), any::<u16>(), any::<Option<u16>>()).prop_map(
            |(dsn, ssn, len, checksum)| Mapping {
                dsn,
                ssn: Ssn::new(ssn),
                len,
                checksum,
            },
        );
        (
            proptest::option::of(ack),
            proptest::option::of(mapping),
            any::<bool>(),
        )
            .prop_map(|(data_ack, mapping, fin)| Dss {
                data_ack,
                mapping,
                data_fin: fin && mapping.is_some(),
            })
    }

    #[test]
    fn golden_vectors() {
        golden(
            MptcpOption::Dss(Dss {
                data_ack: Some(DataAck::Short(0x0102_0304)),
                ..Dss::default()
            }),
            &[30, 8, 0x20, 0x01, 1, 2, 3, 4],
        );
        golden(
            MptcpOption::Dss(Dss {
                data_ack: Some(DataAck::Long(0x0102_0304_0506_0708)),
                ..Dss::default()
            }),
            &[30, 12, 0x20, 0x03, 1, 2, 3, 4, 5, 6, 7, 8],
        );
        // Everything there can be: 28 bytes. rfc8684:D9
        golden(
            MptcpOption::Dss(Dss {
                data_ack: Some(DataAck::Long(0x0102_0304_0506_0708)),
                mapping: Some(Mapping {
                    dsn: MapDsn::Long(0x1122_3344_5566_7788),
                    ssn: Ssn::new(1),
                    len: 11,
                    checksum: Some(0x58d8),
                }),
                data_fin: false,
            }),
            &[
                30, 28, 0x20, 0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66,
                0x77, 0x88, 0, 0, 0, 1, 0, 11, 0x58, 0xd8,
            ],
        );
        // A DATA_FIN alone. rfc8684:F2
        golden(
            MptcpOption::Dss(Dss {
                data_ack: None,
                mapping: Some(Mapping {
                    dsn: MapDsn::Short(9),
                    ssn: Ssn::new(0),
                    len: 1,
                    checksum: None,
                }),
                data_fin: true,
            }),
            &[30, 14, 0x20, 0x14, 0, 0, 0, 9, 0, 0, 0, 0, 0, 1],
        );
    }

    #[test]
    fn the_length_must_agree_with_the_flags() {
        // rfc8684:G5 rfc8684:D1
        for (flags, lengths) in [
            (0x00, &[4][..]),
            (0x02, &[4]), // a without A
            (0x08, &[4]), // m without M
            (0x01, &[8]),
            (0x03, &[12]),
            (0x04, &[14, 16]),
            (0x0c, &[18, 20]),
            (0x05, &[18, 20]),
            (0x0f, &[26, 28]),
        ] {
            only_these_lengths(&[30, 4, 0x20, flags], Flags::ACK, lengths);
        }
    }

    #[test]
    fn reserved_bits_and_a_fin_without_mapping_are_ignored() {
        // rfc8684:D1
        let parsed = Dss::parse(&[30, 8, 0x2f, 0xf1, 0, 0, 0, 1]);
        assert_eq!(
            parsed,
            Some(Dss {
                data_ack: Some(DataAck::Short(1)),
                ..Dss::default()
            })
        );
    }

    #[test]
    fn short_forms_expand_near_what_is_expected() {
        // rfc8684:D14 rfc8684:D16
        let near = Dsn::new(0x1_ffff_ffff);
        assert_eq!(DataAck::Short(1).expand(near), Dsn::new(0x2_0000_0001));
        assert_eq!(
            MapDsn::Short(0xffff_fff0).expand(near),
            Dsn::new(0x1_ffff_fff0)
        );
        assert_eq!(DataAck::Long(5).expand(near), Dsn::new(5));
        assert_eq!(MapDsn::Long(5).expand(near), Dsn::new(5));
    }

    #[test]
    fn length_zero_is_infinite() {
        // rfc8684:D18
        let mapping = Mapping {
            dsn: MapDsn::Short(0),
            ssn: Ssn::new(1),
            len: 0,
            checksum: Some(0),
        };
        assert!(mapping.is_infinite());
        assert!(!Mapping { len: 1, ..mapping }.is_infinite());
    }
}
