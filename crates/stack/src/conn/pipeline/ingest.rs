//! Takes a segment's MPTCP options, then its payload (RFC 8684 section 3.3).
//!
//! The subflow's TCP was first; nothing here changes TCP state but by forcing an ACK or a reset, and by fallback.

use manypath_tcp::machine::{Outcome, Verdict};
use manypath_wire::checksum::{self, Sum};
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{DataAck, Dss, MapDsn, Mapping, MptcpOption};

use crate::api::{ConnOptions, FallbackCause, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::mapping::{Noted, RxMapping};
use crate::conn::dss::offset::Offset;
use crate::conn::dss::reset_reason::mptcp_specific;
use crate::conn::fallback::decide::{Event, Others};
use crate::conn::handshake::mp_capable::{Proof, capable_of};
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

impl Subflows {
    /// Bytes are held that no mapping covers.
    fn holds_unmapped_bytes(&mut self, i: SubflowIdx) -> bool {
        let sf = &mut self[i];
        let held = sf.unmapped.held.as_ref();
        held.is_some_and(|held| sf.maps.rx.current(held.ssn()).is_none())
    }

    fn note_mapping(
        &mut self,
        opts: &ConnOptions,
        i: SubflowIdx,
        mapping: RxMapping,
        cx: &mut Cx<'_>,
    ) {
        let next = self[i].tcp.rcv_nxt_ssn();
        // `rcv_nxt` is already past this segment's in-order bytes, whose payload is not taken yet, so search from the segment's own start.
        let from = cx.segment.delivered.unwrap_or(next);
        self[i]
            .evidence
            .mapping_edge
            .note(mapping.ssn, mapping.at, mapping.len);
        let held = &self[i].unmapped.held;
        let held = held
            .as_ref()
            .map(crate::conn::subflow::held_unmapped::HeldUnmapped::ssn);
        let from = held.unwrap_or(from);
        // Data may be as far ahead as the window, and its mapping begins at most one mapping before it; a window that has shrunk since must
        // not refuse what was allowed.
        let reach = opts.recv_buffer.saturating_mul(2).max(1 << 20);
        let room = self.mapping_room(i);
        match self[i].maps.rx.note(mapping, from, reach, room) {
            Noted::New => {
                cx.count.dss_mapping += 1;
                self[i].evidence.mappings += 1;
            }
            Noted::Known => cx.count.dss_mapping_repeated += 1,
            Noted::Conflict | Noted::TooMany => cx.count.dss_mapping_invalid += 1,
        }
    }

    /// A FIN without options, like something before it, on the only subflow there ever was, with nothing missing: options that would show
    /// what it ends do not pass, at least not on segments without data. // rfc8684:B13
    fn is_in_stream_order(&self, send: &SendQueue, recv: &ReceiveQueue, i: SubflowIdx) -> bool {
        let sf = &self[i];
        self.is_whole_stream(recv, i) && sf.unmapped.held.is_none() && self.is_contiguous(send, i)
    }
}

impl Flight<'_> {
    /// A mapping came with a checksum that was not negotiated, or without the one that was. // rfc8684:D2,D3
    fn reset_for_checksum_presence(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        cx.count.dss_checksum_presence += 1;
        self.reset_subflow(i, SubflowEnd::ProtocolError, mptcp_specific(), cx);
    }
}

impl Numbers {
    /// A mapping has a checksum exactly if that was negotiated. // rfc8684:D2,D3
    fn has_checksum_as_agreed(&self, checksum: Option<u16>) -> bool {
        checksum.is_some() == self.checksum
    }
}

impl Conn {
    /// Takes the options of an acceptable segment. // rfc8684:G3
    pub(crate) fn take_options(
        &mut self,
        i: SubflowIdx,
        seg: &Segment<'_>,
        outcome: &Outcome,
        cx: &mut Cx<'_>,
    ) {
        if !self.level.is_multipath() || self.handshake.keys.remote.is_none() {
            if seg.options.mptcp.fail().is_some() {
                self.descent().on_mp_fail_repeated(i, cx);
            }
            // The peer aborted before it learned of our fallback. // rfc8684:Z3
            if let Some(close) = seg.options.mptcp.fastclose() {
                self.ending().on_fast_close(close.key, cx);
                return;
            }
            if let Some(dss) = seg.options.mptcp.dss() {
                self.on_dss_after_fallback(i, dss, cx);
            }
            if self.handshake.keys.remote.is_some() {
                self.fallback
                    .on_options(&self.numbers, &mut self.subflows, i, seg, cx);
            }
            return;
        }
        let mut dss = None;
        for option in seg.options.mptcp.iter() {
            match option {
                // Segmentation offload and middleboxes duplicate options; the first one counts. // rfc8684:G6
                MptcpOption::Dss(found) => dss = dss.or(Some(*found)),
                MptcpOption::AddAddr(add) if add.echo => self.paths.on_add_addr_echo(add, cx),
                MptcpOption::AddAddr(add) if self.handshake.keys.authenticate(add) => {
                    self.on_proof(i, Proof::Option, cx);
                    let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
                    self.paths.on_add_addr(flight, &mut self.events, i, add, cx);
                }
                MptcpOption::AddAddr(_) => cx.count.add_addr_bad_hmac += 1,
                MptcpOption::RemoveAddr(remove) => {
                    self.paths.on_remove_addr(&mut self.events, remove, cx)
                }
                MptcpOption::Prio(prio) => {
                    self.subflows.on_prio(&mut self.events, i, prio.backup, cx)
                }
                MptcpOption::Fail(fail) => self.on_mp_fail(i, *fail, cx),
                MptcpOption::FastClose(close) => self.ending().on_fast_close(close.key, cx),
                // The fourth packet was lost; the peer sends nothing before it. // rfc8684:J10,J11
                MptcpOption::Join(_)
                    if self.subflows[i].handshake.state == HandshakeState::Done =>
                {
                    self.subflows[i].tcp.force_ack();
                }
                MptcpOption::Reset(_) | MptcpOption::Capable(_) | MptcpOption::Join(_) => {}
                MptcpOption::Private(_) => {}
            }
        }
        if !self.level.is_multipath() {
            // One of them caused fallback, after which only the FIN ends the stream. // rfc8684:B13
            return;
        }
        let mapping = capable_of(seg)
            .filter(|_| self.subflows[i].is_first())
            .and_then(|capable| self.numbers.capable_mapping(capable));
        if let Some(mapping) = mapping {
            // It replaces a DSS. // rfc8684:C11
            self.subflows[i].evidence.data_came_mapped |= !seg.payload.is_empty();
            self.on_proof(i, Proof::Option, cx);
            if self.numbers.has_checksum_as_agreed(mapping.checksum) {
                self.subflows.note_mapping(&self.opts, i, mapping, cx);
            } else {
                self.flight().reset_for_checksum_presence(i, cx);
            }
        }
        let mapped = mapping.is_some() || dss.is_some_and(|dss| dss.mapping.is_some());
        self.subflows[i].evidence.data_came_mapped |= mapped && !seg.payload.is_empty();
        self.subflows[i].evidence.data_was_acked |= dss.is_some() && outcome.acked > 0;
        self.flight().takes_over(i, cx);
        if !seg.options.mptcp.is_empty() {
            self.subflows.options_pass(i);
        }
        match dss {
            Some(dss) => self.on_dss(i, &dss, seg.header.window, cx),
            // Any MPTCP option shows that options pass: an ADD_ADDR may leave no room for a DSS beside it.
            None if seg.options.mptcp.iter().next().is_none() => {
                self.on_segment_without_options(i, seg.payload.is_empty(), outcome, cx)
            }
            None => {}
        }
    }

    /// The peer acknowledged our data, or sent data, without any option of Multipath TCP. Before options were seen to pass in that direction
    /// this decides; later it counts as evidence. An option on a segment without data, such as a window update after the handshake, proves
    /// nothing: some middleboxes remove options from data only. `empty`: the segment has no payload.
    fn on_segment_without_options(
        &mut self,
        i: SubflowIdx,
        empty: bool,
        outcome: &Outcome,
        cx: &mut Cx<'_>,
    ) {
        let sf = &self.subflows[i];
        let blind = outcome.acked > 0 && !sf.evidence.data_was_acked;
        // A mapping may have arrived before its data, on a segment without.
        let unknown = sf.maps.rx.first().is_none();
        // A peer that has our keys does not close its only subflow without options. // rfc8684:B13
        let keys_only = matches!(
            sf.handshake.state,
            HandshakeState::CapableAck | HandshakeState::CapableKeys
        );
        let gone = outcome.arrival.fin && keys_only;
        let bare = (gone || outcome.arrival.in_order().is_some() && unknown)
            && !sf.evidence.data_came_mapped;
        if outcome.verdict != Verdict::Acceptable {
            return;
        }
        let bare_before = self.subflows[i].evidence.option_loss.was_seen();
        self.subflows.on_segment_without_options(&mut self.send, i);
        if outcome.arrival.fin
            && bare_before
            && self.subflows.is_in_stream_order(&self.send, &self.recv, i)
        {
            let cause = FallbackCause::OptionsLost;
            self.fall_back(i, Event::OnlySubflowWithoutOptions { cause }, cx);
            return;
        }
        if !(blind || bare) {
            if outcome.acked > 0 && self.subflows.note_ack_without_options(i, cx.now) {
                self.options_stopped(i, FallbackCause::OptionsLost, cx);
            }
            return;
        }
        let cause = FallbackCause::FirstDataWithout;
        let certain = blind || gone;
        match (self.subflows[i].is_first(), self.subflows.others(i)) {
            (true, _) if certain => self.options_stopped(i, cause, cx), // rfc8684:B4
            (true, Others::None) if self.handshake.dss_sent && self.subflows.len() == 1 => {}
            // The stream may have begun on another subflow. It is held until a mapping or the peer identifies it.
            (true, Others::None) if !self.subflows.is_certainly_alone(i) => {}
            // The peer has seen no option of ours since the handshake either, or it may soon use other subflows as well: the sooner both
            // fall back the better.
            (true, Others::None) => {
                self.fall_back(i, Event::OnlySubflowWithoutOptions { cause }, cx)
            }
            (false, _) if !bare => self.subflows.on_ack_without_data_ack(i, cx),
            // A part of a segment may have arrived without its option, which then follows.
            (false, _) if certain && !empty => {
                self.subflows[i].evidence.option_loss.awaits_option = true
            }
            // rfc8684:B3
            (false, _) if certain => self.fall_back(i, Event::JoinWithoutOptions, cx),
            _ => {}
        }
    }

    fn on_dss(&mut self, i: SubflowIdx, dss: &Dss, window: u16, cx: &mut Cx<'_>) {
        if self.numbers.proves_keys(dss.data_ack.is_some()) {
            self.on_proof(i, Proof::Option, cx);
        }
        if let Some(ack) = dss.data_ack {
            self.subflows[i].evidence.acked_by.on_data_ack();
            self.on_data_ack(i, ack, window, cx);
        }
        if let Some(mapping) = dss.mapping {
            self.on_mapping(i, &mapping, dss.data_fin, cx);
        }
    }

    fn on_data_ack(&mut self, i: SubflowIdx, ack: DataAck, window: u16, cx: &mut Cx<'_>) {
        let Some(numbers) = self.numbers.tx else {
            return;
        };
        // Either width is accepted. // rfc8684:D14,D16,D19
        let at = match ack {
            DataAck::Short(low) => numbers.offset32(low, self.send.una()),
            DataAck::Long(full) => {
                numbers.offset(manypath_wire::dsn::Dsn::new(full), self.send.una())
            }
        };
        let Some(at) = at else {
            cx.count.data_ack_invalid += 1;
            return;
        };
        // The window counts only with a Data ACK, and relative to it: the one of this very segment, not the subflow's current one, which an
        // older segment may have set. // rfc8684:D20,W2
        let window = u64::from(self.subflows[i].tcp.peer_window_of(window));
        let before = self.send.una();
        let done = self.send.data_ack(at, window);
        if done.impossible {
            cx.count.data_ack_invalid += 1;
            // It counts subflow bytes, and a middlebox adds to these: it proves no more than a missing Data ACK.
            if self.subflows.is_certainly_alone(i) {
                self.subflows[i].evidence.option_loss.note();
            }
            return;
        }
        if done.bytes > 0 || done.fin {
            self.subflows.dirty = true;
            cx.count.data_ack_advanced += 1;
            self.data_timer.progress();
            self.subflows
                .note_data_ack_delay(&self.send, &mut self.schedule, before, cx);
            let round_trip = self.subflows[i].round_trip();
            self.send
                .detect_lost_data_fin(cx.now, round_trip.ratio(3, 2));
            self.send
                .retransmit_next(&mut self.data_timer, &self.subflows);
            if self.opts.mechanisms.autotune {
                self.send.tune(self.subflows.send_buffer_needed());
            }
        }
        if done.window_grew {
            self.data_timer.window_opened();
        }
    }

    fn on_mapping(&mut self, i: SubflowIdx, mapping: &Mapping, data_fin: bool, cx: &mut Cx<'_>) {
        let Some(numbers) = self.numbers.rx else {
            return;
        };
        if mapping.is_infinite() {
            // rfc8684:D18,B14,B15
            self.on_infinite(i, mapping, cx);
            return;
        }
        if let Some(checksum_failure) = self.fallback.checksum_failure {
            if !self
                .subflows
                .works_beside_failing(i, &checksum_failure, cx.now)
            {
                self.fallback.remapped_while_failing(
                    &self.numbers,
                    &mut self.recv,
                    &mut self.subflows[i],
                    mapping,
                    data_fin,
                    cx.segment,
                );
                return;
            }
            // The failing one seemed the only one left, and is not.
            self.give_up_failed_subflow(cx);
        }
        let at = numbers.place(mapping.dsn, self.recv.next());
        self.numbers.peer_long = matches!(mapping.dsn, MapDsn::Long(_)); // rfc8684:D19
        if !self.numbers.has_checksum_as_agreed(mapping.checksum) {
            self.flight().reset_for_checksum_presence(i, cx);
            return;
        }
        let Some(at) = at else {
            cx.count.dss_mapping_invalid += 1;
            return;
        };
        let fin = u16::from(data_fin);
        if data_fin && mapping.ssn == Ssn::new(0) && mapping.len == 1 {
            // A DATA_FIN without data. // rfc8684:F2
            let expected = checksum::dss(numbers.dsn(at), mapping.ssn, 1, Sum::ZERO);
            if mapping.checksum.is_some_and(|sum| sum != expected) {
                let empty = RxMapping::new(mapping.ssn, at, 0, 1, mapping.checksum);
                self.on_checksum_failure(i, &empty, cx);
            } else {
                cx.count.data_fin_received += 1;
                self.note_stream_end(i, at, cx);
            }
            return;
        }
        let len = mapping.len - fin.min(mapping.len);
        // It may map held bytes, which then are not beyond the end.
        if len > 0 {
            self.subflows.note_mapping(
                &self.opts,
                i,
                RxMapping::new(mapping.ssn, at, len, mapping.len, mapping.checksum),
                cx,
            );
        }
        if data_fin {
            cx.count.data_fin_received += 1;
            self.note_stream_end(i, at + u64::from(len), cx);
        }
    }

    fn note_stream_end(&mut self, i: SubflowIdx, end: Offset, cx: &mut Cx<'_>) {
        let (was_known, was_finished) = (self.recv.knows_end(), self.recv.finished());
        if end == self.recv.next() && !was_known && self.subflows.holds_unmapped_bytes(i) {
            // The stream ends here, and yet more bytes arrived: a middlebox lengthens it.
            self.settle_unmapped(i, cx);
            if !self.level.is_multipath() {
                return;
            }
        }
        if !self.recv.note_end(end) {
            cx.count.dss_mapping_invalid += 1;
            return;
        }
        // A repeated DATA_FIN is acknowledged again, but only once everything before it has arrived. Two hosts that both miss data would
        // answer each other's DATA_FIN with their own without end.
        if self.recv.finished() || !was_known {
            self.subflows[i].tcp.force_ack();
        }
        self.subflows.dirty = true;
        if self.recv.finished() && !was_finished {
            self.events.report_readable(self.handshake.is_established());
        }
    }

    /// In-order payload of one subflow, in pieces as they come.
    pub(crate) fn take_payload(
        &mut self,
        i: SubflowIdx,
        ssn: Ssn,
        bytes: &[u8],
        sum: Option<Sum>,
        cx: &mut Cx<'_>,
    ) {
        if bytes.is_empty() || self.subflows[i].closing.reset_with.is_some() {
            return;
        }
        cx.count.bytes_in += bytes.len() as u64;
        self.limits
            .note_arrival(&mut self.recv, &self.subflows, &self.opts, bytes.len(), cx);
        if !self.level.is_multipath() && !self.subflows[i].was_queried() {
            self.incoming().take_plain(i, ssn, bytes, cx);
            return;
        }
        if !self.match_unmapped(i, cx) {
            self.hold_unmapped(i, ssn, bytes, cx);
            return;
        }
        if !self.level.is_multipath() {
            self.incoming().take_plain(i, ssn, bytes, cx);
            return;
        }
        let mut ssn = ssn;
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.subflows[i].closing.reset_with.is_some() {
                return;
            }
            if let Some(checksum_failure) = self.fallback.checksum_failure {
                match checksum_failure.subflow() == self.subflows[i].id() {
                    true => {
                        if !self.incoming().hold(i, checksum_failure, rest, cx) {
                            self.fall_back(i, Event::NotStored, cx);
                        }
                    }
                    // Held bytes are in the other one's order.
                    false => self.discard_unmapped(i, rest.len(), cx),
                }
                return;
            }
            let Some(mapping) = self.subflows[i].maps.rx.current(ssn).copied() else {
                if self
                    .fallback
                    .holds_unmapped(&self.recv, &self.subflows, i, cx.now)
                {
                    self.hold_unmapped(i, ssn, rest, cx);
                    return;
                }
                let gap = self.subflows[i]
                    .maps
                    .rx
                    .next_start()
                    .map_or(rest.len(), |next| {
                        (next.since(ssn) as usize).min(rest.len())
                    });
                self.discard_unmapped(i, gap, cx);
                ssn += gap as u32;
                rest = &rest[gap..];
                continue;
            };
            // However many segments the mapping spans, and whichever carried it. // rfc8684:D17
            let into = ssn.since(mapping.ssn);
            let n = rest.len().min((u32::from(mapping.len) - into) as usize);
            // The whole segment's sum is valid if one mapping covers the whole segment.
            let known = sum.filter(|_| n == bytes.len());
            let taken = self
                .incoming()
                .take_mapped(i, mapping, into, &rest[..n], known, cx);
            if let Err(failed) = taken {
                self.on_checksum_failure(i, &failed, cx);
            }
            ssn += n as u32;
            rest = &rest[n..];
        }
    }
}

#[cfg(test)]
mod tests;
