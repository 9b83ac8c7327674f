//! Where a segment found no slot in this poll: to the scheduler these paths have no room, and data goes elsewhere.

use alloc::vec::Vec;

use crate::api::IfaceId;
use crate::ids::SubflowId;

/// What had no room in this poll.
#[derive(Debug, Default)]
pub(crate) struct NoRoom {
    /// Devices that became full.
    full: Vec<IfaceId>,
    /// Subflows whose limit has no tokens, though their device has room, and their device.
    held: Vec<(SubflowId, IfaceId)>,
    /// The subflow whose segment found no slot last.
    refused: Option<SubflowId>,
}

impl NoRoom {
    /// A poll begins: devices may have room again.
    pub(super) fn clear(&mut self) {
        self.full.clear();
        self.held.clear();
    }

    /// The device of a subflow became full, or its limit has no tokens.
    pub(in crate::conn) fn has(&self, subflow: SubflowId, device: IfaceId) -> bool {
        self.full.contains(&device) || self.held.contains(&(subflow, device))
    }

    /// A segment of a subflow found no slot.
    pub(in crate::conn) fn note_refused(&mut self, subflow: SubflowId) {
        self.refused = Some(subflow);
    }

    /// Marks the subflow that was refused last as held by its limit. True if it was not.
    pub(in crate::conn) fn note_held(&mut self, device: IfaceId) -> bool {
        let Some(subflow) = self.refused else {
            return false;
        };
        let news = !self.has(subflow, device);
        if news {
            self.held.push((subflow, device));
        }
        news
    }

    /// Marks a device full. True if it was not.
    pub(in crate::conn) fn note_full(&mut self, device: IfaceId) -> bool {
        let news = !self.full.contains(&device);
        if news {
            self.full.push(device);
        }
        news
    }

    /// A device that something waits for.
    pub(in crate::conn) fn device(&self) -> Option<IfaceId> {
        let held = self.held.last().map(|(_, device)| *device);
        self.full.last().copied().or(held)
    }
}
