//! Commands of controllers that wait, and the log of what was decided.

use crate::api::NewSubflow;
use crate::conn::paths::Paths;
use crate::conn::types::Cx;
use crate::pm::{self, Reason, Verdict};

impl Paths {
    /// The connection is fully established: subflows requested before are made now.
    pub(crate) fn release_early_commands(&mut self) {
        let early = core::mem::take(&mut self.controller.early);
        let orders = early.into_iter().map(crate::api::Command::Create);
        self.controller.orders.extend(orders);
    }

    /// The next command of the controller.
    pub(crate) fn poll_command(&mut self) -> Option<crate::api::Command> {
        self.controller.orders.pop_front()
    }

    /// Writes into the decision log.
    pub(crate) fn note_decision(&mut self, verdict: Verdict, reason: Reason, cx: &Cx<'_>) {
        if let Some(manager) = &mut self.manager {
            manager.note(cx.now, verdict, reason);
        }
    }

    /// A subflow that the controller requested could not be made.
    pub(crate) fn command_refused(
        &mut self,
        wanted: &NewSubflow,
        why: pm::NotCreated,
        cx: &Cx<'_>,
    ) {
        if let Some(controller) = &mut self.controller.controller {
            controller.refused(cx.now, wanted);
        }
        self.note_decision(Verdict::Leave, Reason::NotCreated(why), cx);
    }
}
