//! MP_TCPRST options and their reasons (RFC 8684 section 3.6).

use manypath_wire::tcp::mptcp::{MptcpOption, Reset, ResetReason};

fn option(transient: bool, reason: ResetReason) -> Option<MptcpOption> {
    Some(MptcpOption::Reset(Reset { transient, reason }))
}

/// Options were lost on the path.
pub(in crate::conn) fn interference() -> Option<MptcpOption> {
    option(false, ResetReason::MiddleboxInterference)
}

/// An error in a join itself. // rfc8684:J16
pub(in crate::conn) fn mptcp_specific() -> Option<MptcpOption> {
    option(false, ResetReason::MptcpSpecific)
}

/// Another subflow does better, or is to.
pub(in crate::conn) fn unacceptable_performance() -> Option<MptcpOption> {
    option(true, ResetReason::UnacceptablePerformance)
}

/// There may be room later. // rfc8684:T3
pub(in crate::conn) fn lack_of_resources() -> Option<MptcpOption> {
    option(true, ResetReason::LackOfResources)
}
