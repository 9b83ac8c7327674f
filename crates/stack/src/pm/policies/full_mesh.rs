//! One subflow for each pair of a local address and an address of the peer; lost ones come back.

use manypath_tcp::time::Instant;

use super::Plan;
use crate::pm::Reason;
use crate::pm::ledger::{Ledger, Local, Remote};

/// The first pair without a subflow that may have one. While nothing works, or no place is free, one that was not tried yet is first:
/// there may be only one place, and where a path fell silent it is the others that may work.
pub(super) fn plan(ledger: &Ledger, now: Instant) -> Plan {
    if !ledger.has_working() || ledger.is_full() {
        let plan = plan_of(ledger, now, |local, remote| {
            ledger.is_untried(local, remote)
        });
        if plan.todo.is_some() {
            return plan;
        }
    }
    plan_of(ledger, now, |_, _| true)
}

fn plan_of(ledger: &Ledger, now: Instant, fits: impl Fn(&Local, &Remote) -> bool) -> Plan {
    let mut plan = Plan::default();
    for local in ledger.locals().iter().filter(|local| local.is_up()) {
        for remote in ledger.remotes() {
            let same_family = local.addr.is_ipv4() == remote.addr.is_ipv4();
            let missing = ledger.between(local.id, remote.addr) == 0;
            if remote.is_connectable()
                && same_family
                && missing
                && fits(local, remote)
                && plan.want(ledger, now, local, remote, Reason::PairWanted)
            {
                return plan;
            }
        }
    }
    plan
}
