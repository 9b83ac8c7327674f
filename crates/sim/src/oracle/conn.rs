//! The rules of RFC 8684's data level, for one connection as one host sees it.

use std::collections::VecDeque;

use manypath_wire::dsn::Dsn;
use manypath_wire::seq::{SeqNum, Ssn};
use manypath_wire::tcp::mptcp::{CapableKeys, MapDsn, Mapping};

use super::Verdict;
use super::flow::{FlowWatch, own};
use crate::summary::Summary;

/// A range of subflow bytes whose data sequence numbers lie at a constant distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Map {
    start: Ssn,
    end: Ssn,
    dsn: Dsn,
}

impl Map {
    /// The data sequence number that belongs to `ssn`, near the range.
    fn dsn_at(&self, ssn: Ssn) -> Dsn {
        Dsn::new(
            self.dsn
                .get()
                .wrapping_add_signed(i64::from(ssn.diff(self.start))),
        )
    }
}

/// Mappings declared on one subflow, in order of their subflow numbers and without overlaps. Neighbours that continue
/// each other are one.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    list: VecDeque<Map>,
}

impl Maps {
    /// The first of those that end behind `ssn`.
    fn locate(&self, ssn: Ssn) -> usize {
        // Nearly always it is about the newest.
        match self.list.back() {
            Some(last) if last.start.before_eq(ssn) => {
                self.list.len() - usize::from(ssn.before(last.end))
            }
            _ => self.list.partition_point(|known| known.end.before_eq(ssn)),
        }
    }

    /// Adds a mapping; the error tells what it contradicts.
    fn declare(&mut self, map: Map) -> Result<(), String> {
        let mut at = self.locate(map.start);
        let mut from = map.start;
        while let Some(known) = self.list.get(at).copied() {
            if map.end.before_eq(known.start) {
                break;
            }
            if known.dsn_at(map.start) != map.dsn {
                return Err(format!(
                    "subflow byte {} was data byte {}, now it is {}",
                    map.start,
                    known.dsn_at(map.start),
                    map.dsn
                ));
            }
            at += self.insert(at, from, known.start, &map);
            from = known.end;
            at += 1;
        }
        self.insert(at, from, map.end, &map);
        Ok(())
    }

    /// Notes a part of a mapping, if it is any, in front of the one at `at`. Says how many the list has become longer.
    fn insert(&mut self, at: usize, from: Ssn, to: Ssn, map: &Map) -> usize {
        if to.before_eq(from) {
            return 0;
        }
        let part = Map {
            start: from,
            end: to,
            dsn: map.dsn_at(from),
        };
        let before = at.checked_sub(1).and_then(|at| self.list.get_mut(at));
        match before {
            Some(known) if known.end == from && known.dsn_at(from) == part.dsn => {
                known.end = to;
                0
            }
            _ => {
                self.list.insert(at, part);
                1
            }
        }
    }

    /// The data sequence number after the payload that ends at `end`, if the whole of it is mapped.
    fn end_of(&self, start: Ssn, end: Ssn) -> Option<Dsn> {
        let mut from = start;
        for map in self.list.range(self.locate(start)..) {
            if from.before(map.start) {
                break;
            }
            if end.before_eq(map.end) {
                return Some(map.dsn_at(end));
            }
            from = map.end;
        }
        None
    }

    /// Forgets what the peer has acknowledged.
    pub(crate) fn forget_before(&mut self, isn: SeqNum, acked: SeqNum) {
        let acked = Ssn::of(acked, isn);
        while self
            .list
            .front()
            .is_some_and(|map| map.end.before_eq(acked))
        {
            self.list.pop_front();
        }
    }
}

/// What one end of a connection has said and heard at data level.
#[derive(Debug)]
pub(crate) struct ConnWatch {
    /// Our first data byte.
    first: Dsn,
    /// The peer's.
    peer_first: Dsn,
    /// After the highest data byte that we mapped.
    mapped_end: Dsn,
    /// Our DATA_FIN's number.
    data_fin: Option<Dsn>,
    /// Our last Data ACK.
    acked: Dsn,
    /// The right edge that we offered, the furthest ever.
    offered: Option<Dsn>,
    /// The largest unit in which a window of ours was told: one subflow rounds what another one does not.
    unit: u64,
    /// After the highest data byte (or DATA_FIN) that the peer mapped.
    received_end: Dsn,
    /// The right edge that the peer offered, the furthest ever.
    peer_offered: Dsn,
    peer_acked: Dsn,
    /// One end has given Multipath TCP up: the data level has no rules any more.
    fell_back: bool,
    /// Bytes that arrived on the first subflow without a mapping of their own.
    unmapped: u64,
}

impl ConnWatch {
    /// A connection with these initial numbers; `room`: bytes that the peer offered in the handshake.
    pub(crate) fn new(own_idsn: Dsn, peer_idsn: Dsn, room: u64) -> Self {
        let (first, peer_first) = (own_idsn + 1, peer_idsn + 1);
        Self {
            first,
            peer_first,
            mapped_end: first,
            data_fin: None,
            acked: peer_first,
            offered: None,
            unit: 1,
            received_end: peer_first,
            peer_offered: first + room,
            peer_acked: first,
            fell_back: false,
            unmapped: 0,
        }
    }

    /// Checks a packet that we send on one of its subflows and remembers it.
    pub(crate) fn sent(&mut self, flow: &mut FlowWatch, packet: &Summary) -> Verdict {
        if let Some(map) = mapping_of(packet, self.first) {
            if map.is_infinite() {
                flow.infinite = true;
                self.fell_back = true;
            } else if flow.infinite {
                return Err(format!(
                    "{} maps data after an infinite mapping",
                    own(packet)
                ));
            } else {
                let data_fin = packet.dss.is_some_and(|dss| dss.data_fin);
                self.check_mapping(flow, packet, &map, data_fin)?;
            }
        }
        // Of what was sent with options nothing was acknowledged at data level: it is tried without (RFC 8684 section 3.7).
        let nothing_arrived = self.peer_acked == self.first;
        let bare = packet.payload > 0 && packet.dss.is_none() && packet.capable.is_none();
        self.fell_back |= flow.is_first && bare && nothing_arrived;
        // Who says MP_FAIL and goes on is on its way down to TCP.
        self.fell_back |= packet.fails;
        if self.fell_back || flow.infinite {
            return Ok(());
        }
        self.check_payload(flow, packet)?;
        self.check_data_ack(flow, packet)
    }

    /// A mapping never changes, lies within the stream, and nothing follows the DATA_FIN.
    fn check_mapping(
        &mut self,
        flow: &mut FlowWatch,
        packet: &Summary,
        map: &Mapping,
        data_fin: bool,
    ) -> Verdict {
        let dsn = map.dsn.expand(self.mapped_end);
        let end = dsn + u64::from(map.len);
        if dsn.before(self.first) {
            return Err(format!(
                "{} maps data byte {dsn}, the first one is {}",
                own(packet),
                self.first
            ));
        }
        // rfc8684:F1
        let data_end = if data_fin { end - 1 } else { end };
        if data_fin {
            if self.data_fin.is_some_and(|known| known != data_end) {
                return Err(format!("{} moves its DATA_FIN to {data_end}", own(packet)));
            }
            if self.mapped_end.after(end) {
                return Err(format!(
                    "{} puts its DATA_FIN at {data_end}, but mapped up to {}",
                    own(packet),
                    self.mapped_end
                ));
            }
            self.data_fin = Some(data_end);
        } else if self.data_fin.is_some_and(|fin| data_end.after(fin)) {
            return Err(format!("{} maps data after its DATA_FIN", own(packet)));
        }
        self.mapped_end = self.mapped_end.max(end);
        let len = data_end.since(dsn) as u32;
        if len == 0 {
            return Ok(());
        }
        // rfc8684:D5
        let declared = flow.maps.declare(Map {
            start: map.ssn,
            end: map.ssn + len,
            dsn,
        });
        declared.map_err(|why| format!("{} changes a mapping: {why}", own(packet)))
    }

    /// Payload is mapped and stays within what the peer offered; one byte beyond may probe.
    fn check_payload(&self, flow: &FlowWatch, packet: &Summary) -> Verdict {
        let (Some(isn), true) = (flow.isn, packet.payload > 0) else {
            return Ok(());
        };
        let start = Ssn::of(packet.payload_start(), isn);
        let end = start + packet.payload;
        let Some(dsn_end) = flow.maps.end_of(start, end) else {
            // What the peer has acknowledged is forgotten; a needless retransmission of it is no sin.
            let old = flow
                .peer_acked
                .is_some_and(|acked| packet.seq.before(acked));
            return if old {
                Ok(())
            } else {
                Err(format!(
                    "{} sends bytes {start} to {end} unmapped",
                    own(packet)
                ))
            };
        };
        // rfc8684:W2
        let probe = u64::from(packet.payload == 1);
        if dsn_end.after(self.peer_offered + probe) {
            return Err(format!(
                "{} sends data up to {dsn_end}, {} bytes beyond the peer's right edge {}",
                own(packet),
                dsn_end.since(self.peer_offered),
                self.peer_offered
            ));
        }
        Ok(())
    }

    /// A Data ACK never runs ahead of what arrived nor back, and the window that goes with it never shrinks.
    fn check_data_ack(&mut self, flow: &FlowWatch, packet: &Summary) -> Verdict {
        let Some(data_ack) = packet.dss.and_then(|dss| dss.data_ack) else {
            return Ok(());
        };
        let ack = data_ack.expand(self.acked);
        if ack.after(self.received_end + self.unmapped) {
            return Err(format!(
                "{} acknowledges data up to {ack}, only {} was mapped by the peer",
                own(packet),
                self.received_end
            ));
        }
        if ack.before(self.acked) {
            return Err(format!(
                "{} takes a Data ACK back: {}, then {ack}",
                own(packet),
                self.acked
            ));
        }
        self.acked = ack;
        // rfc8684:W1
        let edge = ack + u64::from(flow.window(packet, true));
        self.unit = self.unit.max(u64::from(flow.own_unit()));
        let unit = self.unit - 1;
        // A subflow that lost its window scale in the handshake cannot say more than 64 KB.
        let most = packet.window == u16::MAX;
        let taken_back = |before: &Dsn| !most && edge.before(*before - unit);
        if let Some(before) = self.offered.filter(taken_back) {
            return Err(format!(
                "{} moves the data level's right edge left: {before}, then {edge} ({} bytes)",
                own(packet),
                before.since(edge)
            ));
        }
        self.offered = Some(self.offered.map_or(edge, |before| before.max(edge)));
        Ok(())
    }

    /// Remembers a packet that arrived on one of its subflows.
    pub(crate) fn received(&mut self, flow: &mut FlowWatch, packet: &Summary) {
        flow.speaks_dss |= packet.dss.is_some();
        let past_handshake = packet.payload > 0
            || flow
                .peer_acked
                .is_some_and(|acked| flow.isn.is_some_and(|isn| acked.after(isn + 1)));
        // A first subflow on which no data level shows up falls back to TCP without a word (RFC 8684 section 3.7).
        let silent = flow.is_first && past_handshake && packet.dss.is_none() && !flow.speaks_dss;
        if packet.fails || silent {
            self.fell_back = true;
        }
        let map = mapping_of(packet, self.peer_first);
        let mapped = map.map_or(0, |map| u32::from(map.len));
        if packet.payload > mapped && flow.is_first {
            // A host that falls back because of it takes it for the next bytes of the stream, and may acknowledge it.
            self.unmapped += u64::from(packet.payload - mapped);
            self.fell_back |= packet.dss.is_none();
        }
        if let Some(map) = map {
            if map.is_infinite() {
                // With bytes that are here already it may be overheard: TCP drops those, and so Linux knows nothing of it.
                flow.infinite |= !flow.repeats(packet);
                self.fell_back = true;
            } else {
                let end = map.dsn.expand(self.received_end) + u64::from(map.len);
                self.received_end = self.received_end.max(end);
            }
        }
        if let Some(data_ack) = packet.dss.and_then(|dss| dss.data_ack) {
            let ack = data_ack.expand(self.peer_acked);
            // An acknowledgement of what we never mapped tells nothing.
            if ack.before_eq(self.mapped_end) {
                let edge = ack + u64::from(flow.window(packet, false));
                self.peer_offered = self.peer_offered.max(edge);
                self.peer_acked = self.peer_acked.max(ack);
            }
        }
    }
}

/// The mapping in a segment: of its DSS, or of an MP_CAPABLE with data, which maps the stream's first bytes.
fn mapping_of(packet: &Summary, first: Dsn) -> Option<Mapping> {
    if let Some(map) = packet.dss.and_then(|dss| dss.mapping) {
        return Some(map);
    }
    match packet.capable?.keys {
        // rfc8684:C11
        CapableKeys::Data { len, checksum, .. } => Some(Mapping {
            dsn: MapDsn::Long(first.get()),
            ssn: Ssn::new(1),
            len,
            checksum,
        }),
        CapableKeys::Syn | CapableKeys::SynAck { .. } | CapableKeys::Ack { .. } => None,
    }
}
