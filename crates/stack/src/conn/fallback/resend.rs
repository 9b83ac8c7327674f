//! Fallback with several subflows: one is left, and data without Data ACK is resent on it (RFC 8684 section 3.7).
//!
//! The infinite mapping shows where that begins. Owns both sides of it. Must never deliver a byte twice.

use core::ops::Range;

use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::Mapping;

use crate::conn::dss::Numbers;
use crate::conn::dss::offset::Offset;
use crate::conn::fallback::Fallback;
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::held_unmapped::HeldUnmapped;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SegmentCx, SubflowIdx};

/// The second place of a subflow, SSN and stream position, lies no further on in the stream than the first one and the SSNs between them
/// allow. Pure.
fn continues(from: (Ssn, Offset), to: (Ssn, Offset)) -> bool {
    match to.0.before(from.0) {
        true => to.1 + u64::from(from.0.since(to.0)) <= from.1,
        false => to.1 <= from.1 + u64::from(to.0.since(from.0)),
    }
}

/// Index of this SSN in bytes that begin with `ssn`, or the nearer end of them. Pure.
fn place(number: Ssn, ssn: Ssn, bytes: &[u8]) -> usize {
    match number.after(ssn) {
        true => (number.since(ssn) as usize).min(bytes.len()),
        false => 0,
    }
}

impl Subflows {
    /// Holds bytes from here on until the peer's mapping places them.
    pub(in crate::conn) fn query_from_here(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let until = cx.now + self.patience(i).times(2);
        let sf = &mut self[i];
        sf.unmapped.on_mapping();
        sf.unmapped.held = Some(HeldUnmapped::queried_about(
            sf.tcp.rcv_nxt_ssn(),
            cx.now,
            until,
        ));
    }

    /// Holds bytes that may come until the peer's infinite mapping places them: a peer unaware of the fallback keeps sending mappings, and
    /// not every piece carries one.
    pub(in crate::conn) fn query_if_needed(&mut self, i: SubflowIdx, cx: &Cx<'_>) {
        let sf = &mut self[i];
        if sf.unmapped.held.is_none() && !sf.closing.peer_finished {
            let held = HeldUnmapped::queried_if_needed(sf.tcp.rcv_nxt_ssn(), cx.now);
            sf.unmapped.held = Some(held);
        }
    }

    /// These SSNs repeat old data. The peer repeats in order, so whatever lies between two such ranges is old, too.
    pub(in crate::conn) fn note_retransmitted(&mut self, i: SubflowIdx, part: Range<Ssn>) {
        let known = &mut self[i].unmapped.retransmitted_after_fallback;
        match known {
            Some(known) if part.end.after(known.end) => known.end = part.end,
            Some(_) => {}
            None => *known = Some(part),
        }
    }

    /// In-order bytes without those that a mapping marks as repeated, in whatever pieces: a middlebox may have joined them with new ones,
    /// before or behind.
    pub(in crate::conn) fn without_repeated<'a>(
        &mut self,
        i: SubflowIdx,
        ssn: Ssn,
        bytes: &'a [u8],
    ) -> (&'a [u8], Option<(Ssn, &'a [u8])>) {
        let sf = &mut self[i];
        let Some(known) = &sf.unmapped.retransmitted_after_fallback else {
            return (bytes, None);
        };
        let (begin, end) = (place(known.start, ssn, bytes), place(known.end, ssn, bytes));
        if end == bytes.len() {
            return (&bytes[..begin], None);
        }
        // SSNs wrap around.
        sf.unmapped.retransmitted_after_fallback = None;
        (&bytes[..begin], Some((ssn + end as u32, &bytes[end..])))
    }
}

impl ReceiveQueue {
    /// The stream position at which a mapping of the peer begins.
    pub(in crate::conn) fn position_of(
        &self,
        numbers: &Numbers,
        mapping: &Mapping,
    ) -> Option<Offset> {
        let numbers = numbers.rx?;
        numbers.place(mapping.dsn, self.next())
    }
}

impl Fallback {
    /// The part of in-order bytes after fallback that is new.
    pub(in crate::conn) fn new_part<'a>(&mut self, ssn: Ssn, bytes: &'a [u8]) -> &'a [u8] {
        let Some((from, known)) = &mut self.resend.by_peer else {
            return bytes;
        };
        let before = if ssn.before(*from) {
            from.since(ssn) as usize
        } else {
            0
        };
        let reached = before < bytes.len();
        let bytes = &bytes[before.min(bytes.len())..];
        let again = bytes.len().min(*known as usize);
        *known -= again as u64;
        if reached && *known == 0 {
            // SSNs wrap around.
            self.resend.by_peer = None;
        }
        &bytes[again..]
    }

    pub(in crate::conn) fn rewinds_to_data_ack(
        &mut self,
        send: &mut SendQueue,
        subflows: &Subflows,
        i: SubflowIdx,
    ) {
        let from = subflows[i].tcp.snd_nxt_ssn();
        self.resend.from = Some(from);
        self.resend.infinite_from = Some((from, send.una()));
        send.rewind();
    }

    /// From the SSN of an infinite mapping on, the subflow is the stream from its position on. Some of that may be here, and what precedes
    /// the SSN may not be the stream: data of another subflow that was reinjected here, or what was in flight when the peer began to
    /// resend everything. Then from this SSN on, and so many bytes of it are here. // rfc8684:B9,D18
    pub(crate) fn resend_of_peer(
        &self,
        numbers: &Numbers,
        recv: &ReceiveQueue,
        subflows: &Subflows,
        i: SubflowIdx,
        mapping: &Mapping,
        segment: SegmentCx,
    ) -> Option<(Ssn, u64)> {
        let (next, sf) = (recv.next(), &subflows[i]);
        let at = recv.position_of(numbers, mapping);
        let at = at.filter(|at| *at <= next && self.resend.by_peer.is_none())?;
        // A rewriting middlebox shifts SSNs against those in mappings: then the resend begins with this segment. The failed mapping lies before its SSN and starts no earlier than its position: the peer does not continue
        // there.
        if let Some(checksum_failure) = self.checksum_failure.filter(|f| f.subflow() == sf.id()) {
            let here = segment.ssn;
            let here = here.filter(|_| sf.evidence.mapping_edge.ends_before(mapping.ssn))?;
            let begins = checksum_failure.begins_here(mapping.ssn, here);
            return begins.then(|| (here, next - at));
        }
        let held = sf.unmapped.held.as_ref().map(HeldUnmapped::ssn);
        let came = held.or(segment.delivered);
        let came = came.unwrap_or(sf.tcp.rcv_nxt_ssn());
        let later = mapping.ssn.after(came) || mapping.ssn == came && at < next;
        // Or it continues, and another subflow delivered some of these bytes first.
        let here = at + u64::from(came.since(mapping.ssn));
        if later {
            Some((mapping.ssn, next - at))
        } else if subflows.joined && sf.unmapped.held.is_some() && here < next {
            Some((came, next - here))
        } else {
            None
        }
    }

    /// By the peer's infinite mapping, bytes between what arrived and its SSN belong elsewhere, or were never sent: to read on there would
    /// leave a hole. Bytes held of a failed mapping, of an incomplete one or without any count as arrived. // rfc8684:B9,B11,D18
    pub(in crate::conn) fn skips_something(
        &self,
        numbers: &Numbers,
        recv: &ReceiveQueue,
        subflows: &Subflows,
        i: SubflowIdx,
        mapping: &Mapping,
        segment: SegmentCx,
    ) -> bool {
        let (next, sf) = (recv.next(), &subflows[i]);
        let Some(at) = recv.position_of(numbers, mapping) else {
            return false;
        };
        let failure = self.checksum_failure;
        let failed = failure
            .filter(|f| f.subflow() == sf.id())
            .map(|f| f.begin());
        let partial = || sf.maps.rx.partial().filter(|m| m.checksum.is_some());
        let held = || sf.unmapped.held.as_ref().map(|held| (held.ssn(), next));
        // A FIN takes a subflow number and no position.
        let end = sf.tcp.rcv_nxt_ssn() - u32::from(sf.tcp.fin_received());
        let here = || segment.delivered.unwrap_or(end);
        let known = failed
            .or_else(|| partial().map(|m| (m.ssn, m.at)))
            .or_else(held)
            .unwrap_or_else(|| (here(), next));
        if continues(known, (mapping.ssn, at)) {
            return false;
        }
        // A middlebox that changes lengths shifts our SSNs against those in mappings. Where all that was mapped is here, these tell; and
        // what begins with bytes that are here, after other subflows carried some, is shifted rather than behind a hole.
        let told = sf
            .evidence
            .mapping_edge
            .end()
            .filter(|(_, upto)| *upto <= next);
        let shifted = told.is_some_and(|edge| continues(edge, (mapping.ssn, at)));
        let is_here = at <= next && subflows.joined && !sf.was_queried();
        !shifted && !is_here
    }

    /// After fallback what a subflow acknowledges is acknowledged, once it has sent what the peer lacks again. // rfc8684:B13
    pub(in crate::conn) fn on_subflow_acked(
        &mut self,
        subflows: &mut Subflows,
        send: &mut SendQueue,
        i: SubflowIdx,
    ) {
        self.withheld_answered(subflows, i);
        let una = subflows[i].tcp.snd_una_ssn();
        let counts = self.resend.from.is_none_or(|from| !una.before(from));
        if counts {
            let upto = subflows[i].maps.tx.first_unacked(una);
            send.subflow_acked(upto.unwrap_or_else(|| send.next()));
        }
        // Sequence numbers wrap.
        self.resend.from.take_if(|from| una.after(*from));
    }
}

#[cfg(test)]
mod tests;
