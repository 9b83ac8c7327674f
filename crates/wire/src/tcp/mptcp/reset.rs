//! MP_TCPRST (RFC 8684 section 3.6): why one subflow is reset.

use core::fmt;

use super::{Subtype, emit_head};
use crate::cursor::{NoRoom, Writer};

const TRANSIENT: u8 = 0x01;

/// The option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Bit T: the cause may go away, so a new subflow may be tried later (rfc8684:T3). Not set: do not try again on
    /// this path (rfc8684:T4).
    pub transient: bool,
    /// The cause.
    pub reason: ResetReason,
}

/// Why a subflow is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// 0: none given.
    Unspecified,
    /// 1: the protocol's rules do not allow this subflow.
    MptcpSpecific,
    /// 2: too little memory or the like.
    LackOfResources,
    /// 3: policy.
    AdministrativelyProhibited,
    /// 4: too much data waits on the subflow.
    TooMuchOutstandingData,
    /// 5: the path is too slow or loses too much.
    UnacceptablePerformance,
    /// 6: something on the path changes the subflow.
    MiddleboxInterference,
    /// A code that RFC 8684 does not define (7 and above).
    Unassigned(u8),
}

impl ResetReason {
    /// The reason of a code on the wire.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Unspecified,
            1 => Self::MptcpSpecific,
            2 => Self::LackOfResources,
            3 => Self::AdministrativelyProhibited,
            4 => Self::TooMuchOutstandingData,
            5 => Self::UnacceptablePerformance,
            6 => Self::MiddleboxInterference,
            other => Self::Unassigned(other),
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Unspecified => 0,
            Self::MptcpSpecific => 1,
            Self::LackOfResources => 2,
            Self::AdministrativelyProhibited => 3,
            Self::TooMuchOutstandingData => 4,
            Self::UnacceptablePerformance => 5,
            Self::MiddleboxInterference => 6,
            Self::Unassigned(code) => code,
        }
    }
}

impl fmt::Display for ResetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unspecified => f.write_str("unspecified error"),
            Self::MptcpSpecific => f.write_str("MPTCP-specific error"),
            Self::LackOfResources => f.write_str("lack of resources"),
            Self::AdministrativelyProhibited => f.write_str("administratively prohibited"),
            Self::TooMuchOutstandingData => f.write_str("too much outstanding data"),
            Self::UnacceptablePerformance => f.write_str("unacceptable performance"),
            Self::MiddleboxInterference => f.write_str("middlebox interference"),
            Self::Unassigned(code) => write!(f, "reason {code}"),
        }
    }
}

impl Reset {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    pub(super) fn parse(option: &[u8]) -> Option<Self> {
        // rfc8684:G5 rfc8684:T2: bits U, V and W are ignored.
        let &[_, _, bits, reason] = option else {
            return None;
        };
        Some(Self {
            transient: bits & TRANSIENT != 0,
            reason: ResetReason::from_code(reason),
        })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        // rfc8684:T2: bits U, V and W are zero.
        emit_head(
            w,
            Self::LEN,
            Subtype::Reset,
            u8::from(self.transient) * TRANSIENT,
        )?;
        w.u8(self.reason.code())
    }
}

#[cfg(test)]
mod tests {
    use super::super::MptcpOption;
    use super::super::tests::{golden, only_these_lengths};
    use super::*;
    use crate::tcp::header::Flags;

    #[test]
    fn golden_vectors() {
        // rfc8684:T2
        golden(
            MptcpOption::Reset(Reset {
                transient: true,
                reason: ResetReason::MiddleboxInterference,
            }),
            &[30, 4, 0x81, 6],
        );
        golden(
            MptcpOption::Reset(Reset {
                transient: false,
                reason: ResetReason::MptcpSpecific,
            }),
            &[30, 4, 0x80, 1],
        );
    }

    #[test]
    fn the_undefined_flags_are_ignored() {
        // rfc8684:T2
        assert_eq!(
            Reset::parse(&[30, 4, 0x8f, 2]),
            Reset::parse(&[30, 4, 0x81, 2])
        );
    }

    #[test]
    fn every_code_survives() {
        for code in 0..=255 {
            assert_eq!(ResetReason::from_code(code).code(), code);
        }
    }

    #[test]
    fn only_one_length_counts() {
        // rfc8684:G5
        only_these_lengths(&[30, 4, 0x81, 0], Flags::RST, &[4]);
    }
}
