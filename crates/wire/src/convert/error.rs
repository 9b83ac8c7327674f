//! The Error TLV (RFC 8803 section 6.2.8): why there is no connection, `code u8 | value`.

/// The code of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    /// The version of the message is not one that the converter speaks.
    UnsupportedVersion = 0,
    /// The message cannot be read.
    MalformedMessage = 1,
    /// The message can be read and is none that a converter answers.
    UnsupportedMessage = 2,
    /// The client has to send the Cookie that is in the error.
    MissingCookie = 3,
    /// The client may not use the converter, or not for that.
    NotAuthorized = 32,
    /// The converter does not use such a TCP option.
    UnsupportedTcpOption = 33,
    /// The converter has as many connections as it may.
    ResourceExceeded = 64,
    /// The converter's network does not work.
    NetworkFailure = 65,
    /// The server refused or reset the connection.
    ConnectionReset = 96,
    /// The server is not reached.
    DestinationUnreachable = 97,
}

/// An error with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvertError<'a> {
    /// The versions that the converter speaks; zeros behind them are padding.
    UnsupportedVersion(&'a [u8]),
    /// The message as it came, or the beginning of it.
    MalformedMessage(&'a [u8]),
    /// The message as it came, or the beginning of it.
    UnsupportedMessage(&'a [u8]),
    /// The cookie to send.
    MissingCookie(&'a [u8]),
    /// Not allowed.
    NotAuthorized,
    /// Kinds of options that the converter does not use; zeros behind them are padding.
    UnsupportedTcpOption(&'a [u8]),
    /// No resources.
    ResourceExceeded,
    /// The converter's network does not work: seconds after which to try again, 0 for thirty or more.
    NetworkFailure {
        /// Those seconds.
        wait: u8,
    },
    /// The server refused or reset the connection.
    ConnectionReset,
    /// The server is not reached.
    DestinationUnreachable {
        /// The code of the ICMP or ICMPv6 message of unreachable destinations.
        icmp: u8,
    },
    /// A code that RFC 8803 does not define.
    Unknown {
        /// The code.
        code: u8,
        /// What is behind it.
        value: &'a [u8],
    },
}

/// A value in two parts, the first of which is a single byte.
pub(super) struct Value<'a> {
    fixed: Option<u8>,
    rest: &'a [u8],
}

impl<'a> Value<'a> {
    pub(super) fn fixed(&self) -> &[u8] {
        self.fixed.as_slice()
    }

    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> ConvertError<'a> {
    /// The code's number.
    #[must_use]
    pub const fn code(&self) -> u8 {
        let code = match self {
            Self::UnsupportedVersion(_) => Code::UnsupportedVersion,
            Self::MalformedMessage(_) => Code::MalformedMessage,
            Self::UnsupportedMessage(_) => Code::UnsupportedMessage,
            Self::MissingCookie(_) => Code::MissingCookie,
            Self::NotAuthorized => Code::NotAuthorized,
            Self::UnsupportedTcpOption(_) => Code::UnsupportedTcpOption,
            Self::ResourceExceeded => Code::ResourceExceeded,
            Self::NetworkFailure { .. } => Code::NetworkFailure,
            Self::ConnectionReset => Code::ConnectionReset,
            Self::DestinationUnreachable { .. } => Code::DestinationUnreachable,
            Self::Unknown { code, .. } => return *code,
        };
        code as u8
    }

    /// An error from its code and the bytes behind it, one at least.
    pub(super) fn parse(code: u8, value: &'a [u8]) -> Self {
        let (first, rest) = match value {
            [first, rest @ ..] => (*first, rest),
            [] => (0, value),
        };
        match code {
            0 => Self::UnsupportedVersion(value),
            1 => Self::MalformedMessage(rest),
            2 => Self::UnsupportedMessage(rest),
            3 => Self::MissingCookie(rest),
            32 => Self::NotAuthorized,
            33 => Self::UnsupportedTcpOption(value),
            64 => Self::ResourceExceeded,
            65 => Self::NetworkFailure { wait: first },
            96 => Self::ConnectionReset,
            97 => Self::DestinationUnreachable { icmp: first },
            _ => Self::Unknown { code, value },
        }
    }

    /// The code and the value.
    pub(super) const fn parts(&self) -> (u8, Value<'a>) {
        let (fixed, rest): (Option<u8>, &[u8]) = match self {
            Self::UnsupportedVersion(list) | Self::UnsupportedTcpOption(list) => (None, list),
            Self::MalformedMessage(bytes)
            | Self::UnsupportedMessage(bytes)
            | Self::MissingCookie(bytes) => (Some(0), bytes),
            Self::NotAuthorized | Self::ResourceExceeded | Self::ConnectionReset => (Some(0), &[]),
            Self::NetworkFailure { wait } => (Some(*wait), &[]),
            Self::DestinationUnreachable { icmp } => (Some(*icmp), &[]),
            Self::Unknown { value, .. } => (None, value),
        };
        (self.code(), Value { fixed, rest })
    }
}
