//! Subflows that something on the path has forgotten.
//!
//! A NAT that forgot a subflow drops what the peer sends on it, and the reset that would end it. The path works, as another
//! subflow made since shows, and so the silent one is not waited for until it has been silent for a quarter of an hour: each would be
//! asked every second, and there is one more of them after each pause.

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::tcp::mptcp::{MptcpOption, Reset, ResetReason};

use crate::api::SubflowEnd;
use crate::conn::subflow::Subflow;
use crate::conn::{Conn, Cx};

/// How long one is asked in vain. A path that was dead and returns answers the next question, and so within a second or two.
const PATIENCE: Duration = Duration::from_secs(10);

impl Conn {
    /// A subflow was asked once more in vain: it ends if its path works all the same.
    pub(crate) fn nat_expired(&mut self, i: usize, cx: &mut Cx<'_>) {
        if !self.fallback.is_multipath() || !self.is_nat_expired(i, cx.now) {
            return;
        }
        let why = MptcpOption::Reset(Reset {
            transient: true,
            reason: ResetReason::UnacceptablePerformance,
        });
        cx.count.subflow_outlived += 1;
        self.reset_subflow(i, SubflowEnd::Replaced, Some(why), cx);
    }

    fn is_nat_expired(&self, i: usize, now: Instant) -> bool {
        let old = &self.subflows[i];
        let Some(since) = old.stale_since.filter(|_| old.carries_data()) else {
            return false;
        };
        // It came up while the other was asked in vain, whether or not it was forgotten in its turn: that may be before it carries
        // anything.
        let proves = |new: &Subflow| {
            new.opened > since && new.was_up() && new.carries_data() && same_path(old, new)
        };
        now.since(since) >= PATIENCE && self.subflows.iter().any(proves)
    }
}

/// The address by which a NAT lets the peer appear may have changed, and its ports; the identifier is that of its own address.
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
