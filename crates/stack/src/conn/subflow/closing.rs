//! How one subflow ends: by FIN, or by a RST with or without MP_TCPRST (RFC 8684 sections 3.3.3 and 3.6).

use manypath_tcp::time::Instant;
use manypath_wire::tcp::mptcp::MptcpOption;

use crate::api::SubflowEnd;

/// The option that a RST carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Explanation(pub(crate) Option<MptcpOption>);

/// How far the end of a subflow has come.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Send FIN when all that was mapped is sent.
    pub(crate) finish: bool,
    /// The peer sent its FIN.
    pub(crate) peer_finished: bool,
    /// Until when that is not answered: the peer may have fallen back, and the evidence may be late.
    pub(in crate::conn) fin_waits: Option<Instant>,
    /// It is being reset, with this option.
    pub(crate) reset_with: Option<Explanation>,
    /// The cause to report when it is gone.
    pub(crate) end: Option<SubflowEnd>,
}

impl Closing {
    /// Begins a reset, with the option that explains it. False if one is on its way.
    pub(crate) fn reset(&mut self, end: SubflowEnd, why: Option<MptcpOption>) -> bool {
        if self.reset_with.is_some() {
            return false;
        }
        self.reset_with = Some(Explanation(why));
        self.end.get_or_insert(end);
        true
    }

    /// Either end closes it, or it is being reset.
    pub(crate) fn has_begun(&self) -> bool {
        self.reset_with.is_some() || self.finish || self.peer_finished
    }
}
