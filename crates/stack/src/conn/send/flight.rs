//! The subflows together with the data that they have in flight.
//!
//! A subflow that is reset, or whose path seems to have failed, leaves its data to the others (RFC 8684 section 3.3.6): whoever ends a
//! subflow needs both.

use crate::conn::level::Level;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::table::Subflows;

/// A view of the connection: its subflows, and the send queue that takes back what they have in flight.
pub(crate) struct Flight<'a> {
    pub(in crate::conn) subflows: &'a mut Subflows,
    pub(in crate::conn) send: &'a mut SendQueue,
    /// With plain TCP nothing can be reinjected.
    pub(in crate::conn) level: Level,
}

impl<'a> Flight<'a> {
    pub(in crate::conn) fn new(
        subflows: &'a mut Subflows,
        send: &'a mut SendQueue,
        level: Level,
    ) -> Self {
        Self {
            subflows,
            send,
            level,
        }
    }
}
