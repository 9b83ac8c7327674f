//! Events that wait for the application, and what it was told last.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::api::EventKind;

/// Events for the application.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(in crate::conn) outbox: VecDeque<EventKind>,
    /// Those that the controller inside the connection has not processed yet, where there is one.
    for_controller: Option<Vec<EventKind>>,
    pub(in crate::conn) readable_reported: bool,
    /// The application was informed that the peer has everything.
    pub(in crate::conn) delivered_reported: bool,
    /// A write did not fit, and the application was not told since that there is room.
    pub(in crate::conn) write_blocked: bool,
}

impl Events {
    /// Reports data once, until the application has read all, if the connection is `established`.
    pub(in crate::conn) fn report_readable(&mut self, established: bool) {
        if established && !self.readable_reported {
            self.readable_reported = true;
            self.push(EventKind::Readable);
        }
    }

    /// An event for the application, and for a controller.
    pub(in crate::conn) fn push(&mut self, kind: EventKind) {
        self.push_to_controller(&kind);
        self.outbox.push_back(kind);
    }

    /// The controller gets exactly the events that one outside would get.
    pub(in crate::conn) fn push_to_controller(&mut self, event: &EventKind) {
        if let Some(pending) = &mut self.for_controller
            && event.name().is_some()
        {
            pending.push(*event);
        }
    }

    /// Whether there is a controller inside the connection from now on.
    pub(in crate::conn) fn set_controller(&mut self, present: bool) {
        self.for_controller = present.then(Vec::new);
    }

    pub(in crate::conn) fn controller_has_some(&self) -> bool {
        self.for_controller
            .as_ref()
            .is_some_and(|all| !all.is_empty())
    }

    pub(in crate::conn) fn take_for_controller(&mut self) -> Vec<EventKind> {
        self.for_controller
            .as_mut()
            .map_or_else(Vec::new, core::mem::take)
    }
}
