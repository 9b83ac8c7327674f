//! Received bytes whose subflow-level acknowledgement is withheld on purpose.
//!
//! Where options stop passing mid-connection with one subflow, a peer that has not noticed misses its Data ACKs. With everything
//! acknowledged at subflow level and nothing at data level, it resends everything from the last Data ACK on as new bytes of the subflow
//! (RFC 8684 section 3.3.6; Linux does), and as we take the subflow's bytes for the stream by then, its data would arrive twice. But a
//! subflow that still waits for an acknowledgement retransmits what it waits for, under the same sequence numbers. So a few of the last
//! bytes stay unacknowledged until the peer has certainly fallen back, too: it acknowledges data sent after our fallback, signals its own,
//! or finishes the subflow.
//!
//! Owns when that begins and ends. Must never withhold an acknowledgement so long that the peer gives up.

use core::num::NonZeroU32;

use manypath_wire::segment::Segment;

use crate::conn::fallback::{Fallback, Withheld};
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// Bytes withheld: less than one segment, because the peer retransmits them while it has nothing new, and after an RTO sends what follows
/// only when part of a segment is acknowledged.
const BYTES: u32 = 512;

/// How much of `bytes` is withheld if the peer sends segments of `len` bytes. Pure.
fn fewer_than(len: usize, bytes: u32) -> u32 {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    match len < bytes {
        true => (len / 2).max(1),
        false => bytes,
    }
}

/// Retransmissions of the same bytes after which some are acknowledged: the peer's retransmission timer restarts, long before it gives up
/// (RFC 9293 section 3.8.3). With the usual doubling from 200 ms that is once in 50 s; but soon for the first bytes, as a peer that
/// retransmits them may have lost what follows, and sends that only when they are acknowledged. On a path whose queue is full it may lose
/// it more than once.
const REPEATS: [u8; 7] = [1, 1, 1, 1, 2, 4, 8];

/// At least so many bytes are acknowledged by halves.
const MANY: u32 = 64;

/// What is still withheld after some was acknowledged. The first time that is half, as a peer whose window is one segment after its RTO
/// (RFC 5681 section 3.1) counts bytes: acknowledged bytes are added to the window and subtracted from those in flight, and only so much
/// makes room for one segment of what follows, which may be lost, and more than once. Then it is a byte at a time, or a peer with nothing
/// more to send would soon have everything acknowledged. Pure.
fn after_giving(bytes: u32, given: usize) -> u32 {
    match given == 0 || bytes >= MANY {
        true => bytes / 2,
        false => bytes.saturating_sub(1),
    }
    .max(1)
}

/// Partial acknowledgements, counted also with one byte left, before that byte is acknowledged: an interactive peer sent no more.
const GIVEN_BEFORE_ALL: usize = 2;

/// Consecutive RTOs of ours that the peer answers without acknowledging the data, after which it is known to withhold as well.
const ANSWERED_TIMEOUTS: u8 = 2;

impl Fallback {
    /// The peer may not know that its mappings are lost; `len` bytes came without.
    pub(crate) fn withhold(
        &mut self,
        subflows: &mut Subflows,
        i: SubflowIdx,
        len: usize,
        cx: &mut Cx<'_>,
    ) {
        let subflow = subflows[i].id();
        if self.withheld.is_none_or(|held| held.subflow != subflow) {
            cx.count.ack_withheld += 1;
            self.withheld = Some(Withheld {
                subflow,
                bytes: BYTES,
                repeats: 0,
                given: 0,
                fell: None,
            });
        }
        self.withhold_anew(subflows, i, len);
    }

    /// `len` new bytes came: the peer made progress, and as many of these are withheld as of the first ones.
    pub(in crate::conn) fn withhold_anew(
        &mut self,
        subflows: &mut Subflows,
        i: SubflowIdx,
        len: usize,
    ) {
        let sf = &mut subflows[i];
        let held = self.withheld.as_mut();
        if let Some(held) = held.filter(|held| held.subflow == sf.id() && len > 0) {
            held.bytes = fewer_than(len, BYTES);
            (held.repeats, held.given) = (0, 0);
            sf.tcp.withhold(NonZeroU32::new(held.bytes));
        }
    }

    /// Acknowledges everything again.
    pub(crate) fn withhold_no_more(&mut self, subflows: &mut Subflows) {
        let held = self.withheld.take();
        if let Some(i) = held.and_then(|held| subflows.find(held.subflow)) {
            subflows[i].tcp.withhold(None);
        }
    }

    /// We fell back: the first acknowledgement of what we send from now on shows that the peer did.
    pub(crate) fn withholds_until_answered(&mut self, subflows: &Subflows, i: SubflowIdx) {
        let next = subflows[i].tcp.snd_nxt_ssn();
        if let Some(held) = &mut self.withheld {
            held.fell.get_or_insert(next);
        }
    }

    /// Data of ours was acknowledged.
    pub(crate) fn withheld_answered(&mut self, subflows: &mut Subflows, i: SubflowIdx) {
        let una = subflows[i].tcp.snd_una_ssn();
        let fell = self.withheld.and_then(|held| held.fell);
        if fell.is_some_and(|fell| una.after(fell)) {
            self.withhold_no_more(subflows);
        }
    }

    /// Our RTO expired, `timeouts` in a row. A peer that keeps responding and acknowledges nothing withholds, too: it has fallen back
    /// itself, and if each end waited for the other, neither would ever find out.
    pub(crate) fn withheld_unanswered(
        &mut self,
        subflows: &mut Subflows,
        i: SubflowIdx,
        timeouts: u8,
        cx: &Cx<'_>,
    ) {
        let sf = &subflows[i];
        let fell = self.withheld.is_some_and(|held| held.fell.is_some());
        let answers = cx.now.since(sf.liveness.receiver_probe.last_received()) < sf.tcp.rto();
        if fell && answers && timeouts >= ANSWERED_TIMEOUTS {
            self.withhold_no_more(subflows);
        }
    }

    /// The peer retransmits what is withheld, as it should.
    pub(crate) fn withheld_again(
        &mut self,
        subflows: &mut Subflows,
        i: SubflowIdx,
        seg: &Segment<'_>,
    ) {
        let sf = &mut subflows[i];
        let Some(held) = self
            .withheld
            .as_mut()
            .filter(|held| held.subflow == sf.id())
        else {
            return;
        };
        if seg.payload.is_empty() || !sf.tcp.repeats_withheld(seg) {
            return;
        }
        let fewer = fewer_than(seg.payload.len(), held.bytes);
        if fewer < held.bytes {
            held.bytes = fewer;
            sf.tcp.withhold(NonZeroU32::new(fewer));
            return;
        }
        held.repeats += 1;
        if held.repeats >= REPEATS[held.given.min(REPEATS.len() - 1)] {
            held.repeats = 0;
            held.bytes = after_giving(held.bytes, held.given);
            held.given += 1;
            sf.tcp.withhold(NonZeroU32::new(held.bytes));
            if held.bytes == 1 && held.given > GIVEN_BEFORE_ALL {
                self.withhold_no_more(subflows);
            }
        }
    }

    /// The last segment had options: the peer does not know that this data came without, and gets its acknowledgement only when it does.
    pub(in crate::conn) fn stop_withholding(&mut self, subflows: &mut Subflows, i: SubflowIdx) {
        let evidence = &subflows[i].evidence;
        if !evidence.data_came_mapped && evidence.option_loss.is_ongoing() {
            self.withhold_no_more(subflows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_amounts_are_acknowledged_by_halves() {
        for (bytes, given, expected) in [
            (512, 0, 256),
            (256, 1, 128),
            (64, 3, 32),
            (32, 4, 31),
            (50, 0, 25),
            (25, 1, 24),
            (3, 0, 1),
            (1, 0, 1),
            (2, 5, 1),
            (1, 5, 1),
        ] {
            assert_eq!(after_giving(bytes, given), expected, "{bytes} {given}");
        }
    }

    #[test]
    fn small_segments_are_acknowledged_in_part() {
        for (len, bytes, expected) in [
            (1400, 512, 512),
            (512, 512, 512),
            (468, 512, 234),
            (1, 512, 1),
            (1, 1, 1),
            (100, 234, 50),
        ] {
            assert_eq!(fewer_than(len, bytes), expected, "{len} {bytes}");
        }
    }
}
