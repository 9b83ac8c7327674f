//! A number of subflows between the first pair of addresses, told apart by their source ports.

use manypath_tcp::time::Instant;
use manypath_wire::ids::AddrId;

use super::{Plan, full_mesh};
use crate::pm::Reason;
use crate::pm::ledger::Ledger;

/// One more subflow, if there are fewer than `count` between the first subflow's addresses. While one of those is gone, or nothing
/// works between them, what is left serves, for without any subflow the connection would end. What was made then stays.
pub(super) fn plan(ledger: &Ledger, now: Instant, count: u8) -> Plan {
    let mut plan = Plan::default();
    let local = ledger
        .locals()
        .iter()
        .find(|local| local.id == AddrId(0) && local.is_up());
    let remote = ledger
        .remotes()
        .iter()
        .find(|remote| remote.addr == ledger.first_remote());
    let Some((local, remote)) = local.zip(remote) else {
        return full_mesh::plan(ledger, now);
    };
    if !ledger.has_working() {
        plan = full_mesh::plan(ledger, now);
    }
    if plan.todo.is_none() && ledger.between(local.id, remote.addr) < usize::from(count) {
        plan.want(ledger, now, local, remote, Reason::CountWanted(count));
    }
    plan
}
