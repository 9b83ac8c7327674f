//! Retransmits the final byte with an infinite mapping when fallback happens after all data was sent (RFC 8684 section 3.7).
//!
//! The infinite mapping travels on new data, and there is none. A peer that received options to the last, because they were lost only on
//! the way from it to us or on segments without data, takes the FIN for that of a subflow and waits for the end of the stream. So the last
//! byte is retransmitted under its own number with the infinite mapping: a middlebox that leaves options on data passes it, and where
//! options are stripped, a retransmission without them shows that the FIN is not the first segment to lack them. TCP drops an old byte, and
//! a peer that reads its options learns what the FIN means.
//!
//! Owns when that is due. Must never send a byte that the peer could take for a new one.

use crate::api::FallbackCause;
use crate::conn::fallback::Fallback;
use crate::conn::level::Level;
use crate::conn::send::queue::FinState;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::table::Subflows;

/// The peer may not know of the fallback: else it signalled it itself.
pub(in crate::conn) fn peer_may_not_know(level: Level) -> bool {
    matches!(
        level.cause(),
        Some(FallbackCause::FirstDataWithout | FallbackCause::OptionsLost)
    )
}

impl Fallback {
    /// Whether the last byte has to signal the fallback, before the FIN. `known`: the peer's key is known. // rfc8684:B4,B13
    pub(in crate::conn) fn owes_final_byte(
        &self,
        subflows: &Subflows,
        send: &SendQueue,
        level: Level,
        known: bool,
    ) -> bool {
        let mut living = subflows.iter().filter(|sf| sf.closing.reset_with.is_none());
        let (Some(sf), None) = (living.next(), living.next()) else {
            return false;
        };
        let last = send.fin.state == FinState::Queued && send.all_sent();
        let arrived = sf.maps.tx.is_empty() && !sf.tcp.fin_sent() && send.knows_last_byte();
        let unsaid = level.infinite_due() && !(self.announce.infinite_sent || self.final_byte_sent);
        peer_may_not_know(level) && known && !subflows.joined && unsaid && last && arrived
    }
}
