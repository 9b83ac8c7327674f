//! The passive end that lets its peer know every address it can be reached at.

use super::Plan;
use crate::pm::ledger::{Announced, Ledger};
use crate::pm::{Action, Reason};

/// The first local address that the peer does not know, private ones included: two hosts may share a private network
/// beside the public one. // rfc8684:A10
pub(super) fn plan(ledger: &Ledger) -> Plan {
    let unknown = ledger.locals().iter().find(|local| {
        // The first subflow's address needs no announcement while the peer talks to it, nor one that it joined.
        local.is_up() && !local.known && local.announced == Announced::No
    });
    unknown.map_or_else(Plan::default, |local| {
        let announce = Action::Announce {
            id: local.id,
            addr: local.addr,
            port: None,
        };
        Plan::act(announce, Reason::LocalAddressNew)
    })
}
