//! The data sequence space and its mappings onto subflows (RFC 8684 section 3.3).

pub(in crate::conn) mod mapping;
pub(in crate::conn) mod offset;
pub(in crate::conn) mod reset_reason;

use manypath_wire::dsn::Dsn;

use crate::conn::dss::offset::{Numbering, Offset};

/// How the two streams are numbered, and what protects the mappings.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(in crate::conn) tx: Option<Numbering>,
    pub(in crate::conn) rx: Option<Numbering>,
    /// Where the streams enter the data sequence space: behind what the SYNs carried. // rfc8684:O3
    pub(in crate::conn) tx_start: Offset,
    pub(in crate::conn) rx_start: Offset,
    /// Mappings have checksums. // rfc8684:C24
    pub(in crate::conn) checksum: bool,
    /// The peer's last mapping had a 64-bit DSN. // rfc8684:D19
    pub(in crate::conn) peer_long: bool,
}

impl Numbers {
    pub(in crate::conn) fn new(idsn: Option<Dsn>, checksum: bool) -> Self {
        Self {
            tx: idsn.map(Numbering::new),
            rx: None,
            tx_start: Offset::ZERO,
            rx_start: Offset::ZERO,
            checksum,
            peer_long: true,
        }
    }
}
