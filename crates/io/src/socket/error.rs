//! The stack's errors in the words of the standard library.

use manypath_stack::{CloseCause, StackError};
use std::io::{Error, ErrorKind};

/// An error of a call.
pub(crate) fn of_call(error: StackError) -> Error {
    let kind = match error {
        StackError::NoSuchHandle | StackError::NotConnected => ErrorKind::NotConnected,
        StackError::AddressInUse => ErrorKind::AddrInUse,
        StackError::BadAddress => ErrorKind::InvalidInput,
        StackError::NoPath => ErrorKind::NetworkUnreachable,
        StackError::NoPorts => ErrorKind::AddrNotAvailable,
        StackError::TooMany => ErrorKind::QuotaExceeded,
        StackError::InvalidState => ErrorKind::BrokenPipe,
        StackError::Reset => ErrorKind::ConnectionReset,
        StackError::Refused => ErrorKind::ConnectionRefused,
        StackError::TimedOut => ErrorKind::TimedOut,
        StackError::Unreachable => ErrorKind::HostUnreachable,
    };
    Error::new(kind, error)
}

/// Why a connection is over; `None` when it ended in order.
pub(crate) fn of_close(cause: CloseCause) -> Option<Error> {
    let (kind, text) = match cause {
        CloseCause::Finished => return None,
        CloseCause::Refused => (
            ErrorKind::ConnectionRefused,
            "the peer refused the connection",
        ),
        CloseCause::ResetByPeer => (ErrorKind::ConnectionReset, "the peer reset the connection"),
        CloseCause::Aborted => (
            ErrorKind::ConnectionAborted,
            "the connection was aborted here",
        ),
        CloseCause::TimedOut => (ErrorKind::TimedOut, "the peer does not answer"),
        CloseCause::Unreachable => (ErrorKind::HostUnreachable, "the peer is unreachable"),
        CloseCause::NoSubflow => (
            ErrorKind::TimedOut,
            "the last path is gone and no other came up in time",
        ),
    };
    Some(Error::new(kind, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_programs_look_for() {
        assert_eq!(
            of_call(StackError::Reset).kind(),
            ErrorKind::ConnectionReset
        );
        assert_eq!(
            of_call(StackError::AddressInUse).kind(),
            ErrorKind::AddrInUse
        );
        assert!(of_close(CloseCause::Finished).is_none());
        for (cause, kind) in [
            (CloseCause::Refused, ErrorKind::ConnectionRefused),
            (CloseCause::ResetByPeer, ErrorKind::ConnectionReset),
            (CloseCause::TimedOut, ErrorKind::TimedOut),
        ] {
            assert_eq!(of_close(cause).map(|e| e.kind()), Some(kind));
        }
    }
}
