//! Bytes that are here and that are not acknowledged, on purpose.
//!
//! Where options stop passing in the middle of a connection with one subflow, a peer that has not noticed misses its Data
//! ACKs. With everything acknowledged below and nothing above, it says from the last Data ACK on everything once more, as
//! new bytes of the subflow (RFC 8684 section 3.3.6; Linux does), and for us, who take the subflow's bytes for the stream by
//! then, its data would come twice. But a subflow that still waits for an acknowledgement repeats what it waits for, and
//! that under the same numbers. So a few of the last bytes stay without until the peer has certainly fallen to TCP, too:
//! when it acknowledges data that we sent after our fall, when it says that it fell, or when it finishes the subflow.
//!
//! Owns when that begins and ends. Must never hold back an acknowledgement for so long that the peer gives up.

use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;

use crate::conn::{Conn, Cx};
use crate::ids::SubflowId;

/// Bytes that are withheld: less than one segment, for the peer repeats them while it has nothing new, and after a time-out sends
/// what follows only when some of a segment is acknowledged.
const BYTES: u32 = 512;

/// What is withheld of `bytes` from a peer that sends segments of `len` bytes. Pure.
fn fewer_than(len: usize, bytes: u32) -> u32 {
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    match len < bytes {
        true => (len / 2).max(1),
        false => bytes,
    }
}

/// Repetitions of the same bytes after which some of them are acknowledged: the peer's retransmission timer begins anew, long
/// before it gives up (RFC 9293 section 3.8.3). With the usual doubling from 200 ms that is once in 50 s; but soon for the
/// first bytes, for a peer that repeats them may have lost what follows, and sends that only when they are acknowledged. On a
/// path of which the queue is full it may lose it more than once.
const REPEATS: [u8; 7] = [1, 1, 1, 1, 2, 4, 8];

/// So many bytes are given by halves, again and again.
const MANY: u32 = 64;

/// What is still withheld after some was given. The first time that is half, for a peer whose window is one segment after its
/// time-out (RFC 5681 section 3.1) counts bytes: what is acknowledged is added to the window and taken off what is in flight, and
/// only so much makes room for one segment of what follows, which may be lost, and more than once. Then it is a byte at a time, or a
/// peer that has nothing more to send would have everything soon. Pure.
fn after_giving(bytes: u32, given: usize) -> u32 {
    match given == 0 || bytes >= MANY {
        true => bytes / 2,
        false => bytes.saturating_sub(1),
    }
    .max(1)
}

/// How often some was given, or there was but one byte left, before that one is given as well: who types has sent no more.
const GIVEN_BEFORE_ALL: usize = 2;

/// Time-outs in a row of ours, each of which the peer answers without acknowledging what it got, after which it is known to
/// withhold as well.
const ANSWERED_TIMEOUTS: u8 = 2;

/// What is withheld, and how often the peer has asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withheld {
    subflow: SubflowId,
    bytes: u32,
    repeats: u8,
    /// How often some of it was acknowledged after so many repetitions.
    given: usize,
    /// What we sent from here on, the peer takes without mappings.
    fell: Option<Ssn>,
}

impl Conn {
    /// The peer may not know that its mappings do not arrive; `len` bytes came without.
    pub(crate) fn withhold(&mut self, i: usize, len: usize, cx: &mut Cx<'_>) {
        let subflow = self.subflows[i].id();
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
        self.withhold_anew(i, len);
    }

    /// So many new bytes came: the peer got on, and of these as many are withheld as of the first ones.
    pub(in crate::conn) fn withhold_anew(&mut self, i: usize, len: usize) {
        let sf = &mut self.subflows[i];
        let held = self.withheld.as_mut();
        if let Some(held) = held.filter(|held| held.subflow == sf.id() && len > 0) {
            held.bytes = fewer_than(len, BYTES);
            (held.repeats, held.given) = (0, 0);
            sf.tcp.withhold(held.bytes);
        }
    }

    /// Everything is acknowledged again.
    pub(crate) fn withhold_no_more(&mut self) {
        let held = self.withheld.take();
        if let Some(i) = held.and_then(|held| self.position(held.subflow)) {
            self.subflows[i].tcp.withhold(0);
        }
    }

    /// We fell to TCP: the first acknowledgement of what we send from now on tells that the peer did.
    pub(crate) fn withholds_until_answered(&mut self, i: usize) {
        let next = self.subflows[i].tcp.snd_nxt_ssn();
        if let Some(held) = &mut self.withheld {
            held.fell.get_or_insert(next);
        }
    }

    /// Data of ours was acknowledged.
    pub(crate) fn withheld_answered(&mut self, i: usize) {
        let una = self.subflows[i].tcp.snd_una_ssn();
        let fell = self.withheld.and_then(|held| held.fell);
        if fell.is_some_and(|fell| una.after(fell)) {
            self.withhold_no_more();
        }
    }

    /// A time-out of ours, one of so many in a row. A peer that goes on answering and acknowledges nothing withholds, too: it
    /// has fallen itself, and if both waited for the other one, neither would ever hear.
    pub(crate) fn withheld_unanswered(&mut self, i: usize, timeouts: u8, cx: &Cx<'_>) {
        let sf = &self.subflows[i];
        let fell = self.withheld.is_some_and(|held| held.fell.is_some());
        let answers = cx.now.since(sf.receiver_probe.last_received()) < sf.tcp.rto();
        if fell && answers && timeouts >= ANSWERED_TIMEOUTS {
            self.withhold_no_more();
        }
    }

    /// The peer repeats what is withheld, as it should. True if so.
    pub(crate) fn withheld_again(&mut self, i: usize, seg: &Segment<'_>) -> bool {
        let sf = &mut self.subflows[i];
        let Some(held) = self
            .withheld
            .as_mut()
            .filter(|held| held.subflow == sf.id())
        else {
            return false;
        };
        if seg.payload.is_empty() || !sf.tcp.repeats_withheld(seg) {
            return false;
        }
        let fewer = fewer_than(seg.payload.len(), held.bytes);
        if fewer < held.bytes {
            held.bytes = fewer;
            sf.tcp.withhold(fewer);
            return true;
        }
        held.repeats += 1;
        if held.repeats >= REPEATS[held.given.min(REPEATS.len() - 1)] {
            held.repeats = 0;
            held.bytes = after_giving(held.bytes, held.given);
            held.given += 1;
            sf.tcp.withhold(held.bytes);
            if held.bytes == 1 && held.given > GIVEN_BEFORE_ALL {
                self.withhold_no_more();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_is_given_by_halves() {
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
