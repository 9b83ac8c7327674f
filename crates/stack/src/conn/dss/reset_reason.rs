//! Reasons of MP_TCPRST (RFC 8684 section 3.6).

use manypath_wire::tcp::mptcp::{MptcpOption, Reset, ResetReason};

/// The MP_TCPRST reason for options lost on the path.
pub(crate) fn interference() -> Option<MptcpOption> {
    Some(MptcpOption::Reset(Reset {
        transient: false,
        reason: ResetReason::MiddleboxInterference,
    }))
}
