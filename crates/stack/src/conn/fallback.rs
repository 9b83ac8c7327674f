//! The way down from Multipath TCP to TCP (RFC 8684 section 3.7): a lattice that is only ever descended.
//!
//! Owns the level of a connection and why it fell. Must never go up. // rfc8684:B16

use crate::api::{FallbackCause, ProtocolLevel};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lattice {
    level: ProtocolLevel,
    cause: Option<FallbackCause>,
    /// One infinite mapping is owed to the peer on the next new data. // rfc8684:B4
    infinite_due: bool,
}

impl Lattice {
    pub(crate) fn new(multipath: bool) -> Self {
        if multipath {
            return Self {
                level: ProtocolLevel::Multipath,
                cause: None,
                infinite_due: false,
            };
        }
        Self {
            level: ProtocolLevel::PlainTcp,
            cause: Some(FallbackCause::NotWanted),
            infinite_due: false,
        }
    }

    pub(crate) fn level(&self) -> ProtocolLevel {
        self.level
    }

    pub(crate) fn cause(&self) -> Option<FallbackCause> {
        self.cause
    }

    /// Mappings, Data ACKs and the other options are in use.
    pub(crate) fn speaks_multipath(&self) -> bool {
        self.level <= ProtocolLevel::NoMoreJoins
    }

    /// New subflows may be made or accepted.
    pub(crate) fn may_join(&self) -> bool {
        self.level == ProtocolLevel::Multipath
    }

    /// The next new data has to say that the mapping is infinite.
    pub(crate) fn infinite_due(&self) -> bool {
        self.infinite_due
    }

    /// The infinite mapping is on the wire: from here on it is plain TCP.
    pub(crate) fn infinite_sent(&mut self) {
        self.infinite_due = false;
        self.level = self.level.max(ProtocolLevel::PlainTcp);
    }

    /// Goes down to `level`; false when it was there or lower already. // rfc8684:B16
    pub(crate) fn descend(&mut self, level: ProtocolLevel, cause: FallbackCause) -> bool {
        if level <= self.level {
            return false;
        }
        self.level = level;
        self.cause = Some(cause);
        self.infinite_due = level == ProtocolLevel::InfiniteMapping;
        true
    }
}

/// What to do when data of ours was acknowledged, or data came in, without a DSS while the peer still had to
/// prove that options pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unproven {
    /// The only subflow: go on as TCP. // rfc8684:B4
    FallBack,
    /// Whether it is an additional one turns out within a round trip.
    Wait,
    /// An additional subflow: reset it. // rfc8684:B3
    ResetSubflow,
}

/// The rule for a subflow whose first exchange carried no DSS. `proving`: a proof for another subflow is under way, which
/// the peer may have taken up.
pub(crate) fn without_dss(first_subflow: bool, others_exist: bool, proving: bool) -> Unproven {
    match (first_subflow, others_exist, proving) {
        (true, false, false) => Unproven::FallBack,
        (true, false, true) => Unproven::Wait,
        (false, _, _) | (_, true, _) => Unproven::ResetSubflow,
    }
}

/// How a subflow stands on which options stopped passing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Another subflow carries data.
    pub(crate) others: bool,
    /// A proof for another subflow is under way, which the peer may have taken up.
    pub(crate) proving: bool,
    /// What it has in flight continues what was acknowledged at data level, in order and once.
    pub(crate) straight: bool,
}

/// The way on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WayDown {
    /// Another subflow carries the data. // rfc8684:B3
    Reset,
    /// Whether there is another turns out within a round trip.
    Wait,
    /// It goes on as TCP. // rfc8684:B4
    GoOn,
    /// It goes on as TCP with everything that has no Data ACK, once more. // rfc8684:B9
    Again,
}

/// The rule for a subflow on which options stopped passing. Pure.
pub(crate) fn way_down(standing: Standing) -> WayDown {
    match standing {
        Standing { others: true, .. } => WayDown::Reset,
        Standing { proving: true, .. } => WayDown::Wait,
        Standing { straight: true, .. } => WayDown::GoOn,
        Standing { .. } => WayDown::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lattice_only_goes_down() {
        // rfc8684:B16
        let mut l = Lattice::new(true);
        assert!(l.may_join() && l.speaks_multipath());
        assert!(l.descend(ProtocolLevel::NoMoreJoins, FallbackCause::PeerFailed));
        assert!(!l.may_join() && l.speaks_multipath());
        assert!(l.descend(ProtocolLevel::InfiniteMapping, FallbackCause::Checksum));
        assert!(!l.descend(ProtocolLevel::NoMoreJoins, FallbackCause::PeerWithout));
        assert!(!l.descend(ProtocolLevel::InfiniteMapping, FallbackCause::PeerWithout));
        assert_eq!(l.cause(), Some(FallbackCause::Checksum));
        assert!(l.infinite_due());
        l.infinite_sent();
        assert_eq!(l.level(), ProtocolLevel::PlainTcp);
        assert!(!l.infinite_due());
    }

    #[test]
    fn only_the_first_and_only_subflow_may_fall_back() {
        // rfc8684:B3,B4
        assert_eq!(without_dss(true, false, false), Unproven::FallBack);
        assert_eq!(without_dss(true, false, true), Unproven::Wait);
        for proving in [false, true] {
            assert_eq!(without_dss(true, true, proving), Unproven::ResetSubflow);
            assert_eq!(without_dss(false, true, proving), Unproven::ResetSubflow);
            assert_eq!(without_dss(false, false, proving), Unproven::ResetSubflow);
        }
    }

    #[test]
    fn one_subflow_is_left_and_goes_on_from_the_last_data_ack() {
        // rfc8684:B3,B4,B9
        let ways = [
            (true, true, true, WayDown::Reset),
            (true, false, false, WayDown::Reset),
            (false, true, true, WayDown::Wait),
            (false, false, true, WayDown::GoOn),
            (false, false, false, WayDown::Again),
        ];
        for (others, proving, straight, way) in ways {
            let standing = Standing {
                others,
                proving,
                straight,
            };
            assert_eq!(way_down(standing), way, "{standing:?}");
        }
    }
}
