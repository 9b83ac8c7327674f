//! One subflow for each pair of a local address and an address of the peer; lost ones come back.

use manypath_tcp::time::Instant;

use super::Plan;
use crate::pm::Reason;
use crate::pm::ledger::Ledger;

/// The first pair without a subflow that may have one.
pub(super) fn plan(ledger: &Ledger, now: Instant) -> Plan {
    let mut plan = Plan::default();
    for local in ledger.locals().iter().filter(|local| local.up) {
        for remote in ledger.remotes() {
            let same_family = local.addr.is_ipv4() == remote.addr.is_ipv4();
            let missing = ledger.between(local.id, remote.addr) == 0;
            if remote.is_connectable()
                && same_family
                && missing
                && plan.want(ledger, now, local, remote, Reason::PairWanted)
            {
                return plan;
            }
        }
    }
    plan
}
