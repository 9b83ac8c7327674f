//! A peer that is deaf to the end of a stream, as Linux 6.18 is: it notes a DATA_FIN that comes with data it already has, does not
//! act on it, and ignores each lone one that follows. The FIN of a subflow makes it look again, but not one that has a mapping.
//!
//! Owns what stands between the network and the host's stack, which has no such habit. Must never hold back payload.

use manypath_wire::dsn::Dsn;
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{DataAck, Dss, MapDsn, Mapping, MptcpOption};
use manypath_wire::tcp::options::MptcpOptions;

use crate::summary::Summary;

/// What became of the peer's DATA_FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Nothing, and a lone one may find it busy.
    Not { busy: bool },
    /// It is noted, with its place, and not acted on.
    Noted(MapDsn),
    /// A FIN made it look: everything counts from here on.
    Looked,
}

/// The habit of one host, whose only connection it is for.
#[derive(Debug)]
pub struct DeafToOldEnd {
    heard: Heard,
    /// The low half of the Data ACK that the host said last.
    acked: Option<u32>,
}

impl DeafToOldEnd {
    /// A host that acts on a lone DATA_FIN which comes first; or one that is `busy` with the data then, and notes it like others.
    #[must_use]
    pub const fn new(busy: bool) -> Self {
        Self {
            heard: Heard::Not { busy },
            acked: None,
        }
    }

    /// The host sends something.
    pub fn sent(&mut self, summary: &Summary) {
        self.acked = match summary.dss.and_then(|dss| dss.data_ack) {
            Some(DataAck::Long(ack)) => Some(Dsn::new(ack).low32()),
            Some(DataAck::Short(ack)) => Some(ack),
            None => self.acked,
        };
    }

    /// A segment as the host's connection sees it. Checksums of mappings must be off: a mapping that loses its DATA_FIN has
    /// another one.
    #[must_use]
    pub fn filter<'s>(&mut self, segment: &Segment<'s>) -> Segment<'s> {
        let mut seen = *segment;
        let Some((dss, mapping)) = end_of(segment) else {
            if let (Heard::Noted(dsn), true) = (self.heard, segment.header.flags.fin()) {
                self.heard = Heard::Looked;
                seen.options.mptcp = with_dss(&segment.options.mptcp, data_fin_at(dsn));
            }
            return seen;
        };
        let old = self.is_old(&mapping);
        self.heard = match self.heard {
            Heard::Looked => Heard::Looked,
            Heard::Noted(dsn) => Heard::Noted(dsn),
            Heard::Not { .. } if mapping.len > 1 && old => Heard::Noted(end_in(&mapping)),
            // With new data it counts, and by itself once the host has time.
            Heard::Not { .. } if mapping.len > 1 => Heard::Looked,
            Heard::Not { busy: false } => Heard::Looked,
            Heard::Not { busy: true } => Heard::Noted(end_in(&mapping)),
        };
        if self.heard != Heard::Looked {
            let len = mapping.len - 1;
            let left = Dss {
                data_fin: false,
                mapping: (len > 0).then_some(Mapping { len, ..mapping }),
                ..dss
            };
            seen.options.mptcp = with_dss(&segment.options.mptcp, left);
        }
        seen
    }

    /// Everything before the DATA_FIN has the host's Data ACK.
    fn is_old(&self, mapping: &Mapping) -> bool {
        let end = match end_in(mapping) {
            MapDsn::Long(dsn) => Dsn::new(dsn).low32(),
            MapDsn::Short(dsn) => dsn,
        };
        self.acked
            .is_some_and(|acked| acked.wrapping_sub(end) <= u32::MAX / 2)
    }
}

/// The place of the DATA_FIN that a mapping ends with.
fn end_in(mapping: &Mapping) -> MapDsn {
    let before = mapping.len - 1;
    match mapping.dsn {
        MapDsn::Long(dsn) => MapDsn::Long(dsn.wrapping_add(before.into())),
        MapDsn::Short(dsn) => MapDsn::Short(dsn.wrapping_add(before.into())),
    }
}

/// A DATA_FIN by itself.
fn data_fin_at(dsn: MapDsn) -> Dss {
    Dss {
        data_ack: None,
        mapping: Some(Mapping {
            dsn,
            ssn: Ssn::new(0),
            len: 1,
            checksum: None,
        }),
        data_fin: true,
    }
}

/// The DATA_FIN of a segment.
fn end_of(segment: &Segment<'_>) -> Option<(Dss, Mapping)> {
    let dss = *segment.options.mptcp.dss()?;
    let mapping = dss.mapping.filter(|m| dss.data_fin && m.len > 0)?;
    Some((dss, mapping))
}

/// The same options with another DSS.
fn with_dss(options: &MptcpOptions, dss: Dss) -> MptcpOptions {
    let mut list = MptcpOptions::default();
    for option in options.iter() {
        let kept = match option {
            MptcpOption::Dss(_) => MptcpOption::Dss(dss),
            other => *other,
        };
        let taken = list.push(kept);
        debug_assert!(taken, "it had room for as many");
    }
    list
}
