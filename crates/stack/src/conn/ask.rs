//! Bytes without a mapping where there are or were other subflows: they need not be the next part of the stream.
//!
//! Where options pass on another subflow, that one carries the data. Else the peer is asked by MP_FAIL, and says by an
//! infinite mapping where the stream goes on (RFC 8684 section 3.7); if no option passes any more, what it sends shows that.
//! Owns the question. Must never count a byte of which the place is not certain.

use alloc::vec::Vec;

use super::fallback::{Standing, WayDown, way_down};
use super::ingest::interference;
use super::unmapped::SHORT_WAIT;
use super::{Conn, Cx};
use crate::api::{FallbackCause, ProtocolLevel, SubflowEnd};

/// The fewest equal bytes that can be a repetition.
const FEWEST: usize = 16;

/// Where among held bytes a segment begins a repetition of them: at a start, as a peer would that goes back to one of the
/// Data ACKs, `back` bytes before the first held byte. Gives both; each byte that is there twice must be the same. Pure.
pub(crate) fn repetitions(
    held: &[u8],
    starts: &[u64],
    back: impl Iterator<Item = u64> + Clone,
) -> impl Iterator<Item = (u64, u64)> {
    let begun = starts.iter().copied().filter(|start| *start > 0);
    let places = begun.flat_map(move |start| back.clone().map(move |back| (start, back)));
    places.filter(|(start, back)| {
        let at = usize::try_from(start + back).unwrap_or(usize::MAX);
        held.get(at..).is_some_and(|again| {
            let len = again.len().min(*start as usize);
            len >= FEWEST && again[..len] == held[..len]
        })
    })
}

impl Conn {
    /// As `settle_unmapped` where there are or were other subflows: what comes on this one need not be the stream.
    pub(super) fn settle_beside(&mut self, i: usize, lost: usize, cx: &mut Cx<'_>) {
        let mapped = self.subflows[i].data_came_mapped;
        let patience = self.patience(i);
        let (others, at) = (self.others(i), self.recv.next());
        let Some(held) = &mut self.subflows[i].unexplained else {
            return;
        };
        let standing = Standing {
            others,
            waited: cx.now.since(held.since) >= patience,
            straight: false,
        };
        match way_down(standing) {
            WayDown::Reset => {
                self.subflows[i].unexplained = None;
                self.withhold_no_more();
                self.unmapped(i, lost, cx);
                if !mapped {
                    // Nor did anything come with one before. // rfc8684:B3
                    self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx);
                }
            }
            WayDown::Wait => held.until = cx.now + SHORT_WAIT.0,
            WayDown::GoOn | WayDown::Again if held.asked => {
                if !self.follows_repetition(i, cx) {
                    self.subflows[i].unexplained = None;
                    self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx);
                }
            }
            WayDown::GoOn | WayDown::Again => {
                // Nobody but the peer knows what of it is missing here. Its infinite mapping says where it begins.
                held.asked = true;
                held.until = cx.now + patience.times(2);
                // The others' resets may come there later than this.
                held.tell = Some(cx.now + SHORT_WAIT.0);
                let cause = FallbackCause::OptionsLost;
                self.lattice.descend(ProtocolLevel::NoMoreJoins, cause);
                for other in (0..self.subflows.len()).filter(|other| *other != i) {
                    self.reset_subflow(other, SubflowEnd::OptionsLost, interference(), cx);
                }
                self.say_fail(i, at, cx);
            }
        }
    }

    /// No option passes any more, and the peer has begun again all the same: what it sends shows where, if that can only be
    /// one place. True if so. // rfc8684:B9
    pub(crate) fn follows_repetition(&mut self, i: usize, cx: &mut Cx<'_>) -> bool {
        let at = self.recv.next();
        let Some(held) = self.subflows[i].unexplained.as_ref().filter(|h| h.asked) else {
            return false;
        };
        let mut places: Vec<_> = {
            let back = self.recent_acks.iter().map(|ack| at.since(ack));
            let found = repetitions(&held.bytes, &held.starts, back);
            found.map(|(start, back)| start + back).collect()
        };
        places.sort_unstable();
        places.dedup();
        // Wherever it began, all that counts is where the stream goes on.
        let [on] = places[..] else {
            return false;
        };
        self.peer_again = Some((held.ssn + on as u32, 0));
        self.follow_again(i, cx);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_is_found_wherever_the_peer_goes_back_to() {
        let stream: Vec<u8> = (0..2000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        // Held from 500 on; then the peer begins again at 480, which it takes for the last Data ACK.
        let mut held = stream[500..1000].to_vec();
        held.extend_from_slice(&stream[480..900]);
        let starts = [0, 300, 500];
        let found = |held: &[u8], starts: &[u64], back: &[u64]| {
            repetitions(held, starts, back.iter().copied()).collect::<Vec<_>>()
        };
        assert_eq!(found(&held, &starts, &[0, 20, 100]), [(500, 20)]);
        assert_eq!(found(&held, &starts, &[0, 100]), []);
        assert_eq!(found(&held[..500], &starts[..2], &[0, 20]), []);
        assert_eq!(found(b"short", &[0, 2], &[0]), []);
        // One byte that differs, however late.
        held[850] ^= 1;
        assert_eq!(found(&held, &starts, &[0, 20, 100]), []);
    }
}
