//! The protocol level of a connection, which only descends (RFC 8684 section 3.7): Multipath TCP, without further joins, an infinite
//! mapping, plain TCP. The decisions to descend are in `fallback`. // rfc8684:B16

use crate::api::{FallbackCause, ProtocolLevel};

/// What is in use, and why it is not Multipath TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    level: ProtocolLevel,
    cause: Option<FallbackCause>,
    /// One infinite mapping is due on the next new data. // rfc8684:B4
    infinite_due: bool,
}

impl Level {
    /// Multipath TCP, or plain TCP from the start where there is a cause for it.
    pub(crate) fn new(plain: Option<FallbackCause>) -> Self {
        Self {
            level: match plain {
                None => ProtocolLevel::Multipath,
                Some(_) => ProtocolLevel::PlainTcp,
            },
            cause: plain,
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
    pub(crate) fn is_multipath(&self) -> bool {
        self.level <= ProtocolLevel::NoMoreJoins
    }

    /// New subflows may be made or accepted.
    pub(crate) fn may_join(&self) -> bool {
        self.level == ProtocolLevel::Multipath
    }

    /// The next new data has to carry the infinite mapping.
    pub(crate) fn infinite_due(&self) -> bool {
        self.infinite_due
    }

    /// The infinite mapping was sent: from here on it is plain TCP.
    pub(crate) fn infinite_sent(&mut self) {
        self.infinite_due = false;
        self.level = self.level.max(ProtocolLevel::PlainTcp);
    }

    /// Descends to `level`; false if it was there or lower already. // rfc8684:B16
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_only_descends() {
        // rfc8684:B16
        let mut l = Level::new(None);
        assert!(l.may_join() && l.is_multipath());
        assert!(l.descend(ProtocolLevel::NoMoreJoins, FallbackCause::PeerFailed));
        assert!(!l.may_join() && l.is_multipath());
        assert!(l.descend(ProtocolLevel::InfiniteMapping, FallbackCause::Checksum));
        assert!(!l.descend(ProtocolLevel::NoMoreJoins, FallbackCause::PeerWithout));
        assert!(!l.descend(ProtocolLevel::InfiniteMapping, FallbackCause::PeerWithout));
        assert_eq!(l.cause(), Some(FallbackCause::Checksum));
        assert!(l.infinite_due());
        l.infinite_sent();
        assert_eq!(l.level(), ProtocolLevel::PlainTcp);
        assert!(!l.infinite_due());
    }
}
