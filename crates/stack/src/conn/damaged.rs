//! Payload is damaged on the only subflow that answers, between hosts that know records.
//!
//! It may go on alone as TCP, damage and all, and then the others end for good. But a silent path is asked seldom after some
//! time-outs in a row, and may have begun to work again meanwhile. So the others are asked at once, and have a time-out for
//! their answer.
//!
//! Owns the pause between the finding and the way down. Must never count a byte of what was found.

use manypath_tcp::time::Instant;

use super::offset::Offset;
use super::{Conn, Cx};
use crate::api::FallbackCause;

/// A wrong checksum that nothing follows from yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damaged {
    /// Where the mapping starts that failed first.
    at: Offset,
    /// So long another subflow may answer.
    until: Instant,
}

impl Damaged {
    pub(crate) fn deadline(&self) -> Instant {
        self.until
    }
}

impl Conn {
    /// A DSS checksum did not match on a subflow. It ends if its data can come elsewhere, and goes on as TCP if nothing else
    /// answers. // rfc8684:B6,B8,B9
    pub(super) fn is_damaged(&mut self, i: usize, at: Offset, cx: &mut Cx<'_>) {
        self.recv.discard(self.subflows[i].id());
        if self.subflows[i].damaged.is_none() {
            if !self.may_go_on_damaged(i, cx.now) {
                self.fail_subflow(i, at, cx);
                return;
            }
            let until = self.ask_silent(i, cx);
            self.subflows[i].damaged = Some(Damaged { at, until });
        }
        self.settle_damaged(i, cx);
    }

    fn may_go_on_damaged(&self, i: usize, now: Instant) -> bool {
        self.is_left(i) && !self.awaits_proof() && self.is_worth_silent(i, now)
    }

    /// Asks all other subflows. Gives until when an answer may come.
    fn ask_silent(&mut self, i: usize, cx: &mut Cx<'_>) -> Instant {
        let mut until = cx.now;
        for j in 0..self.subflows.len() {
            if j != i && self.subflows[j].carries_data() {
                self.try_at_once(j, cx);
                let tcp = &mut self.subflows[j].tcp;
                tcp.probe_liveness(cx.now);
                until = until.max(cx.now + tcp.base_rto());
                cx.count.subflow_asked += 1;
            }
        }
        until
    }

    /// Decides about a subflow whose payload is damaged, when another one answers or none did in time.
    fn settle_damaged(&mut self, i: usize, cx: &mut Cx<'_>) {
        if self.subflows[i].damaged.is_none() {
            return;
        }
        let goes_on = self.may_go_on_damaged(i, cx.now);
        let over = |damaged: &mut Damaged| !goes_on || damaged.until <= cx.now;
        let Some(damaged) = self.subflows[i].damaged.take_if(over) else {
            return;
        };
        // Some of what failed may have come elsewhere meanwhile.
        let at = damaged.at.max(self.recv.next());
        if !self.lattice.speaks_multipath() || self.subflows[i].reset_with.is_some() {
            // It has gone down for another reason, or the subflow has.
        } else if goes_on {
            self.fall_by_record(i, FallbackCause::Checksum, cx);
            self.say_fail(i, at, cx);
        } else {
            self.fail_subflow(i, at, cx);
        }
    }

    /// Looks at subflows whose payload is damaged.
    pub(super) fn damaged_due(&mut self, cx: &mut Cx<'_>) {
        for i in 0..self.subflows.len() {
            self.settle_damaged(i, cx);
        }
    }
}
