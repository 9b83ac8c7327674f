//! Why a call was refused.

use core::fmt;

/// Why the stack refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackError {
    /// The handle names nothing (any more).
    NoSuchHandle,
    /// Another listener or connection has this address and port.
    AddressInUse,
    /// No connection can go to or from such an address: unspecified, a group, broadcast or reserved (RFC 9293 section 3.9.2.3).
    BadAddress,
    /// No local address of the right family can be used.
    NoPath,
    /// Every local port towards that destination is taken.
    NoPorts,
    /// A limit of the stack's configuration was reached.
    TooMany,
    /// The call does not fit the connection's state, for example a write after the write side was shut down.
    InvalidState,
    /// The connection is not established yet.
    NotConnected,
    /// The peer reset or fast-closed the connection, or we aborted it.
    Reset,
    /// The peer refused the connection.
    Refused,
    /// The peer stopped answering.
    TimedOut,
    /// The network says that the peer cannot be reached.
    Unreachable,
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchHandle => "no such connection or listener",
            Self::AddressInUse => "the address and port are in use",
            Self::BadAddress => {
                "nobody can be reached there: the address is unspecified, multicast, broadcast or reserved, or the port is 0"
            }
            Self::NoPath => "no local address can reach that destination",
            Self::NoPorts => {
                "none of the local ports that may be used is free towards that destination"
            }
            Self::TooMany => "a configured limit was reached",
            Self::InvalidState => "the connection's state does not allow it",
            Self::NotConnected => "the connection is not established",
            Self::Reset => "the connection was reset",
            Self::Refused => "the peer refused the connection",
            Self::TimedOut => "the peer does not answer",
            Self::Unreachable => "the peer is unreachable",
        })
    }
}

impl core::error::Error for StackError {}
