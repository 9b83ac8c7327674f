//! What every policy does: follow addresses that go away, on either side, and priorities that change.

use super::Plan;
use crate::pm::ledger::{Ledger, Use};
use crate::pm::{Action, Reason};

/// The first piece of upkeep that is due. The withdrawal goes first, so that it can still leave by another subflow
/// before those of the lost address are reset.
pub(super) fn plan(ledger: &Ledger) -> Option<Plan> {
    // It waits for a subflow that can carry it: nothing repeats it, and the peer would count on the address for good.
    let carries = ledger.has_working();
    let withdraw = ledger
        .locals()
        .iter()
        .find(|local| local.withdraw && carries);
    if let Some(local) = withdraw {
        return Some(Plan::act(
            Action::Withdraw { id: local.id },
            Reason::LocalAddressGone,
        )); // rfc8684:A16
    }
    for live in ledger.live().iter().filter(|live| !live.leaving) {
        let gone = ledger
            .locals()
            .iter()
            .any(|local| local.id == live.local_id && local.state == Use::Gone);
        let subflow = live.subflow;
        // The only one may go on when its address is back, as a TCP connection does.
        if gone && carries {
            return Some(Plan::act(
                Action::Remove { subflow },
                Reason::LocalAddressGone,
            )); // rfc8684:A19
        }
        if live.probe {
            // No keepalive tests a handshake, whose last ACK may still arrive from an address that is gone: the peer, which has
            // nothing there any more, counts on the subflow that carried its REMOVE_ADDR.
            let action = match live.up {
                None if carries => Action::Remove { subflow },
                _ => Action::Probe { subflow },
            };
            return Some(Plan::act(action, Reason::PeerWithdrew)); // rfc8684:A17
        }
        if let (Some(backup), true) = (live.tell_priority, live.up.is_some()) {
            return Some(Plan::act(
                Action::Prioritise { subflow, backup },
                Reason::PriorityChanged,
            ));
        }
    }
    None
}
