//! What passed on a subflow, and what follows when options stop passing.
//!
//! Owns the record of a subflow. The decision is [`way_down`]'s. Must never change what was recorded by guessing.

use manypath_tcp::time::Instant;
use manypath_wire::seq::Ssn;

use super::fallback::{Standing, WayDown, way_down};
use super::ingest::interference;
use super::offset::Offset;
use super::{Conn, Cx};
use crate::api::{FallbackCause, SubflowEnd};

/// Segments without options in a row, among acknowledgements that advance, that make a rule.
const BARE: u8 = 3;

/// What a subflow shows about options that do not pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bareness {
    /// The peer spoke without options since it last did with some.
    pub(super) heard: bool,
    pub(super) acks: u8,
    pub(super) since: Option<Instant>,
    pub(super) repeats: u8,
    pub(super) repeated: Option<Instant>,
}

/// How far the peer's mappings on a subflow went, in its own numbers, which nothing on the way changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    ends: Option<(Ssn, Offset)>,
}

impl Told {
    /// A mapping came.
    pub(crate) fn note(&mut self, ssn: Ssn, at: Offset, len: u16) {
        let (end, upto) = (ssn + u32::from(len), at + u64::from(len));
        let (last, most) = self.ends.unwrap_or((end, upto));
        let last = if end.after(last) { end } else { last };
        self.ends = Some((last, most.max(upto)));
    }

    /// A mapping says again, as new bytes of the subflow, what was said before.
    pub(super) fn repeats(&self, ssn: Ssn, at: Offset, len: u16) -> bool {
        let again = |(last, most)| !ssn.before(last) && at + u64::from(len) <= most;
        self.ends.is_some_and(again)
    }

    /// Bytes from this number on were never mapped; `behind`, or others before them.
    pub(crate) fn ends_before(&self, ssn: Ssn, behind: bool) -> bool {
        self.ends
            .is_some_and(|(last, _)| ssn.after(last) || ssn == last && behind)
    }
}

impl Conn {
    /// A subflow acknowledges, and what it brings has no options any more: neither do Data ACKs come. // rfc8684:B5
    pub(crate) fn note_bare_ack(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        sf.bareness.acks = sf.bareness.acks.saturating_add(1);
        let since = *sf.bareness.since.get_or_insert(cx.now);
        if sf.bareness.acks >= BARE && cx.now.since(since) >= sf.tcp.rto() {
            self.options_stopped(i, cx);
        }
    }

    /// Options do not pass any more on a subflow.
    pub(crate) fn options_stopped(&mut self, i: usize, cx: &mut Cx<'_>) {
        let standing = Standing {
            others: self.has_other(i),
            proving: self.is_proving(),
            straight: self.is_straight(i),
        };
        match way_down(standing) {
            WayDown::Reset => self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx),
            WayDown::Wait => {}
            WayDown::GoOn => self.fall_to_infinite(i, FallbackCause::OptionsLost, cx),
            WayDown::Again => self.begin_again(i, FallbackCause::OptionsLost, cx),
        }
    }

    /// A segment without options came.
    pub(crate) fn heard_bare(&mut self, i: usize) {
        self.subflows[i].bareness.heard = true;
    }

    /// Nothing was acknowledged at data level for long, and what the peer sent meanwhile came without options: not the data
    /// is missing but the Data ACKs, and to send it again would be to say it twice; or the DATA_FIN is, which no data
    /// carries. True if the connection went down.
    // rfc8684:B5,R3
    pub(crate) fn falls_for_want_of_data_acks(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.lattice.speaks_multipath() {
            return false;
        }
        let una = self.send.una();
        let bare = |i: usize| {
            let sf = &self.subflows[i];
            let part = sf.swallowed.as_ref();
            let swallowed = part.is_some_and(|part| part.contains(&una));
            // Where there were others, what is missing may have gone with them.
            let only = self.is_alone(i) && self.is_straight(i);
            sf.bareness.heard && sf.carries_data() && (swallowed || only)
        };
        if let Some(i) = (0..self.subflows.len()).find(|i| bare(*i)) {
            self.options_stopped(i, cx);
        }
        !self.lattice.speaks_multipath()
    }

    /// Options pass.
    pub(crate) fn options_pass(&mut self, i: usize) {
        self.subflows[i].bareness = Bareness::default();
    }
}
