//! Ends subflows whose NAT binding has expired, by a RST with MP_TCPRST (RFC 8684 section 3.6).
//!
//! Such a NAT drops the peer's packets and the RST that would end the subflow. The path works, as a later subflow shows, so the
//! unresponsive one is not kept for a quarter of an hour: each is probed every second, and each pause adds one more. Must never end a
//! subflow whose path is not known to work.

use manypath_tcp::time::{Duration, Instant};

use crate::api::SubflowEnd;
use crate::conn::dss::reset_reason::unacceptable_performance;
use crate::conn::send::flight::Flight;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// How long a subflow is probed without an answer. A path that recovers answers the next probe, so within a second or two.
const PATIENCE: Duration = Duration::from_secs(10);

impl Subflows {
    fn is_nat_expired(&self, i: SubflowIdx, now: Instant) -> bool {
        let old = &self[i];
        let Some(since) = old.liveness.stale_since.filter(|_| old.carries_data()) else {
            return false;
        };
        // The newer subflow came up while the old one was stale; whether it is stale itself by now does not matter, for it may be
        // so before it carries data.
        let proves = |new: &Subflow| {
            new.stats.opened > since && new.was_up() && new.carries_data() && same_path(old, new)
        };
        now.since(since) >= PATIENCE && self.iter().any(proves)
    }
}

impl Flight<'_> {
    /// One more probe of a subflow went unanswered: it is reset if its path works nevertheless.
    pub(crate) fn nat_expired(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if !self.level.is_multipath() || !self.subflows.is_nat_expired(i, cx.now) {
            return;
        }
        let why = unacceptable_performance();
        cx.count.subflow_nat_expired += 1;
        self.reset_subflow(i, SubflowEnd::Replaced, why, cx);
    }
}

/// A NAT binding may change the peer's apparent address and ports, so the peer's own address ID is compared.
fn same_path(one: &Subflow, other: &Subflow) -> bool {
    let of = |sf: &Subflow| {
        let endpoint = &sf.endpoint;
        (
            endpoint.iface,
            endpoint.tuple.local.ip(),
            endpoint.remote_id,
        )
    };
    of(one) == of(other)
}
