//! Payload of the peer on its way to the application: by its mappings, or after fallback in the subflow's own order (RFC 8684 sections 3.3.1
//! and 3.7).
//!
//! Must never count a byte whose place in the stream is not known, nor one whose checksum is not verified yet.

use manypath_tcp::time::Instant;
use manypath_wire::checksum::{self, Sum};
use manypath_wire::seq::Ssn;

use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::mapping::RxMapping;
use crate::conn::dss::offset::Offset;
use crate::conn::events::Events;
use crate::conn::fallback::ChecksumFailure;
use crate::conn::fallback::Fallback;
use crate::conn::recv::queue::{Placed, ReceiveQueue};
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// What incoming payload concerns: the subflow that it came on, the receive queue, and what fallback knows of its place.
pub(crate) struct Incoming<'a> {
    pub(in crate::conn) subflows: &'a mut Subflows,
    pub(in crate::conn) recv: &'a mut ReceiveQueue,
    pub(in crate::conn) fallback: &'a mut Fallback,
    pub(in crate::conn) numbers: &'a Numbers,
    pub(in crate::conn) events: &'a mut Events,
    /// The application may be notified.
    pub(in crate::conn) established: bool,
}

impl Subflows {
    /// Other subflows that were unresponsive for a time-out: their partial mappings must not keep the same bytes from being taken
    /// elsewhere. Such a mapping no longer counts if its rest arrives after all. True if there was one.
    fn give_up_claims_of_silent(
        &mut self,
        recv: &mut ReceiveQueue,
        i: SubflowIdx,
        at: Offset,
        len: usize,
        now: Instant,
    ) -> bool {
        let mut any = false;
        for j in self.indices().filter(|j| *j != i) {
            let sf = &mut self[j];
            let (owner, silent_at) = (
                sf.id(),
                sf.liveness.receiver_probe.last_received() + sf.tcp.base_rto(),
            );
            let claims = recv.claims_any(owner, at..at + len as u64);
            if let Some(partial) = sf
                .maps
                .rx
                .partial_mut()
                .filter(|_| claims && now > silent_at)
            {
                partial.lost = true;
                recv.discard(owner);
                any = true;
            }
        }
        any
    }

    /// The subflow acknowledged the mapping, and it does not count. What is still missing of it cannot come from this subflow, which
    /// therefore cannot continue as the stream.
    fn was_dropped(&mut self, recv: &ReceiveQueue, i: SubflowIdx, m: &RxMapping) {
        self[i].unmapped.discarded_mapping |= m.at + u64::from(m.len) > recv.next();
    }
}

impl Numbers {
    /// The mapping's checksum matches its bytes. // rfc8684:D9
    fn is_intact(&self, m: &RxMapping) -> bool {
        self.rx.is_some_and(|numbers| {
            m.checksum == Some(checksum::dss(numbers.dsn(m.at), m.ssn, m.wire_len, m.sum))
        })
    }
}

impl Incoming<'_> {
    /// In-order bytes that a mapping covers, `into` bytes behind its start. `Err`: the mapping is complete, and its checksum does not match.
    pub(in crate::conn) fn take_mapped(
        &mut self,
        i: SubflowIdx,
        m: RxMapping,
        into: u32,
        bytes: &[u8],
        known: Option<Sum>,
        cx: &mut Cx<'_>,
    ) -> Result<(), RxMapping> {
        let at = m.at + u64::from(into);
        let sf = &mut self.subflows[i];
        sf.unmapped.on_mapping();
        if at + bytes.len() as u64 > self.recv.next() {
            sf.liveness.delivered_at = Some(cx.now);
        }
        sf.stats.bytes_received += bytes.len() as u64;
        let complete = into + bytes.len() as u32 == u32::from(m.len);
        if m.checksum.is_none() {
            let (placed, advanced) = self.recv.accept(Some(self.subflows[i].id()), at, bytes);
            placed.count(bytes.len(), cx.count);
            self.report_if(advanced);
            if complete {
                self.subflows[i].maps.rx.pop();
            }
            return Ok(());
        }
        let owner = self.subflows[i].id();
        let (mut placed, sum) = self.recv.place(owner, at, bytes, known);
        // On the copy: a read of what was just written waits until the payload's bytes have left the store buffer.
        let mut noted = m;
        noted.sum.append(sum);
        if placed == Placed::Contested {
            if complete && into == 0 && self.numbers.is_intact(&noted) {
                // Whole and verified: it need not wait for what may never come.
                self.subflows[i].maps.rx.pop();
                let (_, advanced) = self.recv.accept(Some(owner), at, bytes);
                self.report_if(advanced);
                return Ok(());
            }
            if !m.lost
                && self
                    .subflows
                    .give_up_claims_of_silent(self.recv, i, at, bytes.len(), cx.now)
            {
                placed = self.recv.place(owner, at, bytes, Some(sum)).0;
            }
        }
        placed.count(bytes.len(), cx.count);
        noted.lost |= placed != Placed::Stored;
        noted.incomplete |= into != u32::from(noted.taken);
        noted.taken += bytes.len() as u16;
        if complete {
            self.subflows[i].maps.rx.pop();
            return self.mapping_complete(i, noted);
        } else if let Some(known) = self.subflows[i].maps.rx.current(m.ssn + into) {
            *known = noted;
        }
        Ok(())
    }

    fn mapping_complete(&mut self, i: SubflowIdx, m: RxMapping) -> Result<(), RxMapping> {
        let owner = self.subflows[i].id();
        if m.incomplete {
            // Its beginning was consumed without it; what cannot be verified does not count. // rfc8684:B8
            self.recv.discard(owner);
            self.subflows.was_dropped(self.recv, i, &m);
            return Ok(());
        }
        if self.numbers.is_intact(&m) {
            if m.lost {
                self.recv.discard(owner);
                self.subflows.was_dropped(self.recv, i, &m);
            } else {
                let range = m.at..m.at + u64::from(m.len);
                let advanced = self.recv.verified(owner, range);
                self.report_if(advanced);
                let tcp = &mut self.subflows[i].tcp;
                if u32::from(m.len) > tcp.mss() {
                    // Several segments at once, whose Data ACK a small window may wait for (RFC 9293 section 3.8.6.3).
                    tcp.force_ack();
                }
            }
            return Ok(());
        }
        Err(m)
    }

    /// In-order bytes after fallback: they are the stream.
    pub(crate) fn take_plain(&mut self, i: SubflowIdx, ssn: Ssn, bytes: &[u8], cx: &mut Cx<'_>) {
        let (before, behind) = self.subflows.without_repeated(i, ssn, bytes);
        self.take_new(i, ssn, before, cx);
        if let Some((ssn, behind)) = behind {
            self.take_new(i, ssn, behind, cx);
        }
    }

    fn take_new(&mut self, i: SubflowIdx, ssn: Ssn, bytes: &[u8], cx: &mut Cx<'_>) {
        let bytes = self.fallback.new_part(ssn, bytes);
        self.fallback.withhold_anew(self.subflows, i, bytes.len());
        self.subflows[i].stats.bytes_received += bytes.len() as u64;
        // The subflow enforced its own window, which is this one.
        self.recv.advertised(self.recv.room());
        let (placed, advanced) = self.recv.accept(None, self.recv.next(), bytes);
        placed.count(bytes.len(), cx.count);
        self.report_if(advanced);
    }

    /// The peer's infinite mapping shows where it restarts or continues. The held bytes belong there; bytes received beyond come again.
    pub(in crate::conn) fn place_held(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.subflows[i].maps.rx.clear();
        self.recv.discard(self.subflows[i].id());
        self.recv.arrived.clear();
        if let Some(held) = self.subflows[i].unmapped.held.take() {
            let ssn = held.ssn();
            self.take_plain(i, ssn, &held.into_bytes(), cx);
        }
    }

    /// Counts bytes that waited for the rest of their mapping or for the answer to MP_FAIL; queried bytes count when the peer's infinite
    /// mapping places them.
    pub(in crate::conn) fn count_waiting(&mut self, i: SubflowIdx) {
        let owner = self.subflows[i].id();
        if self.subflows[i].was_queried() {
            return;
        }
        if let Some(held) = self.subflows[i].unmapped.held.take() {
            let bytes = held.into_bytes();
            let (_, advanced) = self.recv.accept(None, self.recv.next(), &bytes);
            self.report_if(advanced);
            return;
        }
        let waiting = match (
            self.fallback.checksum_failure.take(),
            self.subflows[i].maps.rx.partial(),
        ) {
            (Some(checksum_failure), _) => Some(checksum_failure.at()..checksum_failure.end()),
            (None, Some(m)) if m.checksum.is_some() && !m.lost && !m.incomplete => {
                Some(m.at..m.at + u64::from(m.taken))
            }
            (None, _) => None,
        };
        match waiting {
            Some(range) => {
                let advanced = self.recv.verified(owner, range);
                self.report_if(advanced);
            }
            None => self.recv.discard(owner),
        }
    }

    /// After fallback the FIN of the subflow ends the stream, behind bytes that await the peer's infinite mapping.
    pub(crate) fn ends_with_subflow(&mut self, i: SubflowIdx) {
        if !self.subflows[i].awaits_its_place() {
            self.recv.note_end(self.recv.next());
            self.report_readable();
        }
    }

    fn report_readable(&mut self) {
        self.events.report_readable(self.established);
    }

    /// So many more bytes can be read.
    fn report_if(&mut self, advanced: u64) {
        if advanced > 0 {
            self.report_readable();
        }
    }

    /// Holds bytes of the subflow whose checksum failed, in subflow order. False: there is no room for them.
    pub(in crate::conn) fn hold(
        &mut self,
        i: SubflowIdx,
        failure: ChecksumFailure,
        bytes: &[u8],
        cx: &mut Cx<'_>,
    ) -> bool {
        let (placed, _) = self
            .recv
            .place(failure.subflow(), failure.end(), bytes, None);
        placed.count(bytes.len(), cx.count);
        if placed == Placed::Stored {
            let more = failure.with(bytes.len() as u64, cx.segment.delivered);
            let again_at = cx.now + self.subflows[i].tcp.rto();
            self.fallback.checksum_failure = Some(more.awaits_more(again_at));
        }
        placed == Placed::Stored
    }
}

impl Conn {
    /// Its receiving side, for payload.
    pub(in crate::conn) fn incoming(&mut self) -> Incoming<'_> {
        Incoming {
            subflows: &mut self.subflows,
            recv: &mut self.recv,
            fallback: &mut self.fallback,
            numbers: &self.numbers,
            events: &mut self.events,
            established: self.handshake.is_established(),
        }
    }
}
