//! Bytes without a mapping where there are or were other subflows: they need not be the next part of the stream.
//!
//! Where options pass on another subflow, that one carries the data. Else MP_FAIL queries the peer, and its infinite mapping shows where
//! the stream continues (RFC 8684 section 3.7). If no option passes any more, the subflow is reset. Owns the query. Must never count a byte
//! whose position is uncertain.

use crate::api::{FallbackCause, ProtocolLevel, SubflowEnd};
use crate::conn::dss::reset_reason::interference;
use crate::conn::fallback::unmapped::SHORT_WAIT;
use crate::conn::fallback::{FallbackAction, Standing, decide};
use crate::conn::types::SubflowIdx;
use crate::conn::{Conn, Cx};

impl Conn {
    /// As `settle_unmapped` where there are or were other subflows: bytes on this one need not be the stream.
    pub(in crate::conn) fn settle_with_others(
        &mut self,
        i: SubflowIdx,
        lost: usize,
        cx: &mut Cx<'_>,
    ) {
        let mapped = self.subflows[i].evidence.data_came_mapped;
        let patience = self.subflows.patience(i);
        let (others, at) = (self.subflows.others(i), self.recv.next());
        let proof_is_old = self.subflows.proof_is_old(i, others, cx.now);
        if !mapped && self.subflows[i].evidence.option_loss.awaits_option {
            // rfc8684:B3
            self.subflows[i].unmapped.held = None;
            self.subflows.reset_subflow(
                &mut self.send,
                self.level,
                i,
                SubflowEnd::OptionsLost,
                interference(),
                cx,
            );
            return;
        }
        let Some(held) = &mut self.subflows[i].unmapped.held else {
            return;
        };
        let standing = Standing {
            others,
            waited: cx.now.since(held.since) >= patience,
            straight: false,
        };
        match decide(standing) {
            FallbackAction::Reset if proof_is_old && !held.is_full => {
                held.until = cx.now + SHORT_WAIT.0;
                self.subflows.probe_others(i, cx);
            }
            FallbackAction::Reset => {
                self.subflows[i].unmapped.held = None;
                self.subflows[i].unmapped.since.get_or_insert(cx.now);
                self.fallback.withhold_no_more(&mut self.subflows);
                self.subflows
                    .unmapped(&mut self.send, self.level, i, lost, cx);
                if !mapped && self.level.is_multipath() {
                    // Nor did any mapping come before. // rfc8684:B3
                    self.subflows.reset_subflow(
                        &mut self.send,
                        self.level,
                        i,
                        SubflowEnd::OptionsLost,
                        interference(),
                        cx,
                    );
                }
            }
            FallbackAction::Wait => held.until = cx.now + SHORT_WAIT.0,
            FallbackAction::GoOn | FallbackAction::Again if held.queried => {
                // No option passes any more. To place the bytes by their content is a guess.
                self.subflows[i].unmapped.held = None;
                self.subflows.reset_subflow(
                    &mut self.send,
                    self.level,
                    i,
                    SubflowEnd::OptionsLost,
                    interference(),
                    cx,
                );
            }
            FallbackAction::GoOn | FallbackAction::Again => {
                // Only the peer knows what of it is missing here. Its infinite mapping shows where it begins.
                held.queried = true;
                held.until = cx.now + patience.times(2);
                // The others' RSTs may reach the peer after this.
                held.tell = Some(cx.now + SHORT_WAIT.0);
                let cause = FallbackCause::OptionsLost;
                self.level.descend(ProtocolLevel::NoMoreJoins, cause);
                for other in self.subflows.indices().filter(|other| *other != i) {
                    self.subflows.reset_subflow(
                        &mut self.send,
                        self.level,
                        other,
                        SubflowEnd::OptionsLost,
                        interference(),
                        cx,
                    );
                }
                self.subflows.send_mp_fail(&self.numbers, i, at, cx);
            }
        }
    }
}
