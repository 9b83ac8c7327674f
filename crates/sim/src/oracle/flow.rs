//! The rules of TCP, for one subflow as one host sees it.

use manypath_wire::seq::SeqNum;

use super::Verdict;
use crate::summary::Summary;

/// So many SYN/ACKs at least are sent before a handshake is forgotten.
const SYN_ACKS_IN_VAIN: u8 = 3;

/// What one end of a subflow has said and heard.
#[derive(Debug, Default)]
pub(crate) struct FlowWatch {
    /// Our initial sequence number, once our SYN was sent.
    pub(crate) isn: Option<SeqNum>,
    /// The peer's, once its SYN arrived.
    pub(crate) irs: Option<SeqNum>,
    /// How often our SYN was sent.
    syns: u8,
    own_scale: Option<u8>,
    peer_scale: Option<u8>,
    /// After the highest number that we sent.
    sent_end: Option<SeqNum>,
    /// Our FIN's number.
    fin: Option<SeqNum>,
    /// After the highest number that arrived.
    received_end: Option<SeqNum>,
    /// Our last acknowledgement.
    acked: Option<SeqNum>,
    /// The peer's highest acknowledgement.
    pub(crate) peer_acked: Option<SeqNum>,
    /// The right edge that we offered, the furthest ever.
    offered: Option<SeqNum>,
    /// The right edge that the peer offered, the furthest ever.
    peer_offered: Option<SeqNum>,
    /// The connection, once it is known to be part of one.
    pub(crate) conn: Option<usize>,
    /// Mappings that we declared, oldest first, for what the peer has not acknowledged.
    pub(crate) maps: super::conn::Maps,
    /// The host lost its address meanwhile, or ended it by a reset.
    pub(crate) gone: bool,
    /// Its address went for a while, or a reset came: the host may know it still, or answer a SYN that it has seen before with
    /// another number.
    pub(crate) unsure: bool,
    /// An infinite mapping was sent, or received with new data, or Multipath TCP was given up on it.
    pub(crate) infinite: bool,
    /// It opened its connection.
    pub(crate) is_first: bool,
    /// A DSS has arrived on it.
    pub(crate) speaks_dss: bool,
    /// A SYN that arrived with another number while this subflow was known. The host may have forgotten the subflow
    /// without a word (its address was withdrawn); then it answers this SYN, and a new one begins.
    pub(crate) rival: Option<Box<Summary>>,
}

impl FlowWatch {
    /// A SYN of ours that does not belong to this subflow but begins another with its addresses and ports.
    pub(crate) fn is_another(&self, syn: &Summary) -> bool {
        self.isn.is_some_and(|isn| isn != syn.seq) && !syn.flags.ack()
    }

    /// A SYN/ACK of ours with another number, where nobody answered those before: a host forgets what it repeated in vain, and the
    /// next SYN begins anew (RFC 9293 section 3.8.3, R2 for SYN segments).
    pub(crate) fn is_begun_anew(&self, syn_ack: &Summary) -> bool {
        let in_vain = self.syns >= SYN_ACKS_IN_VAIN && self.peer_acked.is_none();
        in_vain && syn_ack.flags.ack() && self.isn.is_some_and(|isn| isn != syn_ack.seq)
    }

    /// What the peer's SYN said, and nothing of ours.
    pub(crate) fn anew(&self) -> Self {
        Self {
            irs: self.irs,
            peer_scale: self.peer_scale,
            received_end: self.received_end,
            peer_offered: self.peer_offered,
            conn: self.conn,
            ..Self::default()
        }
    }

    /// Bytes that the peer lets us send from the first byte on, as known after the handshake.
    pub(crate) fn peer_room(&self) -> u64 {
        match (self.peer_offered, self.isn) {
            (Some(edge), Some(isn)) => u64::from(edge.since(isn + 1)),
            _ => 0,
        }
    }

    /// A packet that arrives with bytes all of which we have acknowledged already, or without any before them as a keep-alive is: an
    /// unacceptable segment (RFC 9293 section 3.10.7.4).
    pub(crate) fn repeats(&self, packet: &Summary) -> bool {
        let here = |acked| match packet.payload {
            0 => packet.seq.before(acked),
            _ => packet.payload_end().before_eq(acked),
        };
        self.acked.is_some_and(here)
    }

    /// What a window field of ours, or of the peer's, means in bytes.
    pub(crate) fn window(&self, packet: &Summary, ours: bool) -> u32 {
        let shift = match (packet.flags.syn(), self.own_scale, self.peer_scale) {
            (false, Some(own), Some(peer)) => (if ours { own } else { peer }).min(14),
            _ => 0,
        };
        u32::from(packet.window) << shift
    }

    /// The smallest step in which our window can move: scaling rounds it down (RFC 7323 section 2.4).
    pub(crate) fn own_unit(&self) -> u32 {
        match (self.own_scale, self.peer_scale) {
            (Some(own), Some(_)) => 1 << own.min(14),
            _ => 1,
        }
    }

    /// Checks a packet that we send and remembers it.
    pub(crate) fn sent(&mut self, packet: &Summary) -> Verdict {
        if packet.flags.syn() {
            if self.isn.is_some_and(|isn| isn != packet.seq) {
                return Err(format!(
                    "{} changes its initial sequence number",
                    own(packet)
                ));
            }
            self.isn = Some(packet.seq);
            self.syns = self.syns.saturating_add(1);
            self.own_scale = packet.scale;
        }
        self.check_sequence(packet)?;
        self.check_peer_window(packet)?;
        if packet.flags.fin() {
            self.fin = Some(packet.payload_end());
        }
        let end = packet.end();
        self.sent_end = Some(self.sent_end.map_or(end, |known| known.max(end)));
        if packet.flags.ack() {
            self.check_acknowledgement(packet)?;
        }
        Ok(())
    }

    /// We send from what we sent before, without holes, and nothing after our FIN.
    fn check_sequence(&self, packet: &Summary) -> Verdict {
        let Some(sent_end) = self.sent_end else {
            return Ok(());
        };
        let empty = packet.end() == packet.seq;
        if packet.seq.after(sent_end) {
            return Err(format!(
                "{} leaves a hole: sends from {} although it sent only up to {sent_end}",
                own(packet),
                packet.seq
            ));
        }
        match self.fin {
            Some(fin) if packet.payload_end().after(fin) && !empty => Err(format!(
                "{} sends up to {} although its FIN was at {fin}",
                own(packet),
                packet.payload_end()
            )),
            Some(fin) if packet.flags.fin() && packet.payload_end() != fin => Err(format!(
                "{} moves its FIN from {fin} to {}",
                own(packet),
                packet.payload_end()
            )),
            _ => Ok(()),
        }
    }

    /// We keep within what the peer offered; one byte beyond may ask whether it has room again.
    fn check_peer_window(&self, packet: &Summary) -> Verdict {
        if packet.payload == 0 || packet.flags.syn() {
            return Ok(());
        }
        // rfc8684:W7
        let Some(edge) = self.peer_offered else {
            return Err(format!(
                "{} sends data before the peer answered",
                own(packet)
            ));
        };
        let probe = packet.payload == 1;
        if packet.payload_end().after(edge + u32::from(probe)) {
            return Err(format!(
                "{} sends {} bytes up to {} beyond the peer's right edge {edge}",
                own(packet),
                packet.payload,
                packet.payload_end()
            ));
        }
        Ok(())
    }

    /// We acknowledge only what arrived, never less than before, and never take offered room back.
    fn check_acknowledgement(&mut self, packet: &Summary) -> Verdict {
        let ack = packet.ack;
        match self.received_end {
            Some(end) if ack.after(end) => {
                return Err(format!(
                    "{} acknowledges {ack}, only {end} arrived",
                    own(packet)
                ));
            }
            None => {
                return Err(format!(
                    "{} acknowledges {ack}, nothing arrived",
                    own(packet)
                ));
            }
            Some(_) => {}
        }
        if let Some(before) = self.acked.filter(|before| ack.before(*before)) {
            return Err(format!(
                "{} takes an acknowledgement back: {before}, then {ack}",
                own(packet)
            ));
        }
        self.acked = Some(ack);
        let edge = ack + self.window(packet, true);
        // In Multipath TCP the window counts from the Data ACK; what arrives on other subflows may use it up.
        let own_window = self.conn.is_none() || self.infinite;
        let unit = self.own_unit() - 1;
        let taken_back = |before: &SeqNum| own_window && edge.before(*before - unit);
        if let Some(before) = self.offered.filter(taken_back) {
            return Err(format!(
                "{} moves its right edge left: {before}, then {edge} ({} bytes)",
                own(packet),
                before.since(edge)
            ));
        }
        // What was offered before the fall does not bind after it: only then does the window count from this acknowledgement.
        let most = self.offered.filter(|_| own_window);
        self.offered = Some(most.map_or(edge, |before| before.max(edge)));
        Ok(())
    }

    /// Remembers a packet that arrived.
    pub(crate) fn received(&mut self, packet: &Summary) {
        if packet.flags.syn() {
            self.irs = Some(packet.seq);
            self.peer_scale = packet.scale;
        }
        let end = packet.end();
        self.received_end = Some(self.received_end.map_or(end, |known| known.max(end)));
        if !packet.flags.ack() {
            return;
        }
        // An acknowledgement of what we never sent tells nothing.
        if self.sent_end.is_none_or(|sent| packet.ack.after(sent)) {
            return;
        }
        let edge = packet.ack + self.window(packet, false);
        self.peer_offered = Some(self.peer_offered.map_or(edge, |before| before.max(edge)));
        let acked = self
            .peer_acked
            .map_or(packet.ack, |before| before.max(packet.ack));
        self.peer_acked = Some(acked);
        if let Some(isn) = self.isn {
            self.maps.forget_before(isn, acked);
        }
    }
}

/// How a violation names the subflow of a packet that we sent.
pub(super) fn own(packet: &Summary) -> impl core::fmt::Display {
    packet.tuple.reversed()
}
