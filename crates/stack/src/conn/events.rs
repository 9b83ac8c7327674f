//! Events that wait for the application, and what it was told last.

use alloc::collections::VecDeque;

use crate::api::EventKind;

/// Events for the application.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(in crate::conn) outbox: VecDeque<EventKind>,
    pub(in crate::conn) readable_reported: bool,
    /// The application was informed that the peer has everything.
    pub(in crate::conn) delivered_reported: bool,
    /// A write did not fit, and the application was not told since that there is room.
    pub(in crate::conn) write_blocked: bool,
}
