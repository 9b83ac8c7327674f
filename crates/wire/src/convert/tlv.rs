//! TLVs (RFC 8803 section 6.2): `type u8 | length u8 | value`, the length in 32-bit words with type and length included, the value
//! padded with zeros.

use super::connect::Connect;
use super::error::ConvertError;
use super::limits::Limits;
use super::{BadMessage, WORD};
use crate::cursor::{NoRoom, Writer};

/// The type of a TLV (section 6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// Asks which TCP extensions the converter supports.
    Info = 1,
    /// Asks for a connection.
    Connect = 10,
    /// The options of the server's SYN/ACK.
    ExtendedTcpHeader = 20,
    /// The TCP extensions that the converter supports.
    SupportedTcpExtensions = 21,
    /// What the converter gave the client, or what says who the client is.
    Cookie = 22,
    /// Why there is no connection.
    Error = 30,
    /// Of the private range: what a client may be sent by each of its addresses.
    Limits = 192,
}

/// A TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tlv<'a> {
    /// Section 6.2.3.
    Info,
    /// Section 6.2.5.
    Connect(Connect<'a>),
    /// Section 6.2.6: TCP options as they are in the server's SYN/ACK, zeros behind them.
    ExtendedTcpHeader(&'a [u8]),
    /// Section 6.2.4.
    SupportedTcpExtensions(Kinds<'a>),
    /// Section 6.2.7. Zeros that fill the last word cannot be told from the cookie's own.
    Cookie(&'a [u8]),
    /// Section 6.2.8.
    Error(ConvertError<'a>),
    /// Of the private range, between two of ours.
    Limits(Limits<'a>),
    /// A type that RFC 8803 does not define, or one of the private range that is not ours.
    Unknown {
        /// The type.
        kind: u8,
        /// What is behind type and length.
        value: &'a [u8],
    },
}

/// Kinds of TCP options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds<'a>(pub &'a [u8]);

impl Kinds<'_> {
    /// Whether an option is among them. Zero is padding.
    #[must_use]
    pub fn has(&self, kind: u8) -> bool {
        kind != 0 && self.0.contains(&kind)
    }
}

impl<'a> Tlv<'a> {
    /// The type's number.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Info => Type::Info as u8,
            Self::Connect(_) => Type::Connect as u8,
            Self::ExtendedTcpHeader(_) => Type::ExtendedTcpHeader as u8,
            Self::SupportedTcpExtensions(_) => Type::SupportedTcpExtensions as u8,
            Self::Cookie(_) => Type::Cookie as u8,
            Self::Error(_) => Type::Error as u8,
            Self::Limits(_) => Type::Limits as u8,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Reads one TLV of exactly these bytes, a whole number of words and one at least.
    pub(super) fn parse(raw: &'a [u8]) -> Result<Self, BadMessage> {
        let Some((&[kind, _, a, b], rest)) = raw.split_first_chunk() else {
            return Err(BadMessage::TlvTooShort(raw.first().copied().unwrap_or(0)));
        };
        Ok(match kind {
            1 => Self::Info,
            10 => Self::Connect(Connect::parse(u16::from_be_bytes([a, b]), rest)?),
            20 => Self::ExtendedTcpHeader(rest),
            21 => Self::SupportedTcpExtensions(Kinds(rest)),
            22 => Self::Cookie(rest),
            30 => Self::Error(ConvertError::parse(a, &raw[3..])),
            _ => {
                let value = &raw[2..];
                let limits = Limits::parse(rest).filter(|_| (kind, a, b) == (192, 0, 0));
                limits.map_or(Self::Unknown { kind, value }, Self::Limits)
            }
        })
    }

    /// Writes the TLV, zeros to the end of its last word included.
    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let kind = self.kind();
        match self {
            Self::Info => put(w, kind, &[&[0, 0]]),
            Self::Connect(connect) => {
                let (port, addr) = (connect.port.to_be_bytes(), connect.addr.octets());
                put(w, kind, &[&port, &addr, connect.options.as_bytes()])
            }
            Self::ExtendedTcpHeader(bytes)
            | Self::SupportedTcpExtensions(Kinds(bytes))
            | Self::Cookie(bytes) => put(w, kind, &[&[0, 0], bytes]),
            Self::Limits(limits) => put(w, kind, &[&[0, 0], limits.as_bytes()]),
            Self::Error(error) => {
                let (code, value) = error.parts();
                put(w, kind, &[&[code], value.fixed(), value.rest()])
            }
            Self::Unknown { value, .. } => put(w, kind, &[value]),
        }
    }
}

/// Writes type, length, the parts of the value, and zeros.
fn put(w: &mut Writer<'_>, kind: u8, parts: &[&[u8]]) -> Result<(), NoRoom> {
    let bytes = 2 + parts.iter().map(|part| part.len()).sum::<usize>();
    let words = u8::try_from(bytes.div_ceil(WORD)).map_err(|_| NoRoom)?;
    let length = usize::from(words) * WORD;
    if w.room() < length {
        return Err(NoRoom);
    }
    w.put(&[kind, words])?;
    for part in parts {
        w.put(part)?;
    }
    w.put(&[0; WORD][..length - bytes])
}
