//! One subflow for each pair of a local address and an address of the peer; lost ones come back.

use alloc::vec::Vec;

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

/// The first thing to do about pairs without a subflow that `fits` chooses. An uplink that carries nothing comes before a second subflow over one
/// that does: where there are fewer places than pairs, they go to as many uplinks as there are.
fn plan_of(ledger: &Ledger, now: Instant, fits: impl Fn(&Local, &Remote) -> bool) -> Plan {
    let mut missing: Vec<(&Local, &Remote)> = Vec::new();
    for local in ledger.locals().iter().filter(|local| local.is_up()) {
        let wanted = |remote: &&Remote| {
            local.addr.is_ipv4() == remote.addr.is_ipv4()
                && ledger.between(local.id, remote.addr) == 0
                && fits(local, remote)
        };
        missing.extend(
            ledger
                .destinations()
                .filter(wanted)
                .map(|remote| (local, remote)),
        );
    }
    // Stable: of the same uplink the peer's first address, which is known to work, stays first.
    missing.sort_by_key(|(local, _)| ledger.from(local.id));
    let mut plan = Plan::default();
    for (local, remote) in missing {
        if plan.want(ledger, now, local, remote, Reason::PairWanted) {
            break;
        }
    }
    plan
}
