//! Whether a loss was none, so that the reduction of the window is undone: F-RTO (RFC 5682), Eifel (RFC 3522, RFC 4015), duplicate
//! reports (RFC 3708).

use manypath_wire::seq::SeqNum;

use super::types::AckIn;
use crate::recovery::scoreboard::AckReport;
use crate::recovery::spurious::{Evidence, Frto, FrtoVerdict};

/// What an acknowledgement says about the last reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It may still turn out to be either.
    Open,
    /// It stands.
    Stands,
    /// It answered no loss. `after_recovery`: the recovery that it began is over.
    Spurious { after_recovery: bool },
}

/// The reduction that may be undone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    pub(super) frto: Frto,
    pub(super) evidence: Evidence,
}

impl Undo {
    /// Nothing is undone any more.
    pub(super) fn end(&mut self) {
        self.frto = Frto::Off;
        self.evidence.end();
    }

    /// `len` bytes of new data left.
    pub(super) fn on_new_data(&mut self, len: u32) {
        self.frto.on_new_data(len);
    }

    /// Something was sent again; `lost`: because it was marked lost. Then nothing new could be sent, and F-RTO cannot tell
    /// (RFC 5682 section 2.1 step 2).
    pub(super) fn on_retransmission(&mut self, lost: bool) {
        if self.frto.wants_new_data() && lost {
            self.frto = Frto::Off;
        }
    }

    /// Takes in an acknowledgement; `una` is the left edge after it.
    pub(super) fn on_ack(&mut self, ack: &AckIn<'_>, report: &AckReport, una: SeqNum) -> Judgement {
        let late = self.frto.on_ack(report, una, ack.duplicate, true) == FrtoVerdict::Spurious;
        let echo = ack.echo.map(|echo| echo.before);
        if late || self.evidence.on_ack(report, echo) {
            let after_recovery = self.evidence.is_after_recovery();
            return Judgement::Spurious { after_recovery };
        }
        match self.evidence.is_settled(una) {
            true => Judgement::Stands,
            false => Judgement::Open,
        }
    }

    /// The recovery is over, with `nxt` the first number never sent.
    pub(super) fn on_recovered(&mut self, nxt: SeqNum) {
        self.frto = Frto::Off;
        self.evidence.on_recovered(nxt);
    }
}
