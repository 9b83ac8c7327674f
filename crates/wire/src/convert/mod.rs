//! The messages of the 0-RTT TCP Convert Protocol (RFC 8803 section 6): what a client says to a Transport Converter in front of its
//! data, and what the converter says in front of the server's.
//!
//! A message is `version u8 | total u8 | magic u16` and TLVs; lengths count 32-bit words. [`read`] takes the first bytes of a stream,
//! as many as there are; [`emit`] writes a whole message. A message has 1,020 bytes at most, so nothing is kept or allocated.

mod connect;
mod error;
mod limits;
mod tlv;

pub use connect::{Connect, ConnectOptions, SynOption};
pub use error::{Code, ConvertError};
pub use limits::{Limits, LimitsBuffer, MOST_LIMITS};
pub use tlv::{Kinds, Tlv, Type};

use crate::cursor::{NoRoom, Writer};

/// The version of RFC 8803.
pub const VERSION: u8 = 1;

/// The magic number (section 6.1), which tells a message from a client's data.
pub const MAGIC: u16 = 0x2263;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 4;

/// Bytes of the longest message: 255 words.
pub const MAX_LEN: usize = 255 * WORD;

/// Bytes of the unit in which lengths are counted.
pub(crate) const WORD: usize = 4;

/// What the first bytes of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The beginning of a message: more bytes are needed.
    Short,
    /// A message; data of the connection may follow it.
    Whole(Message<'a>),
}

/// Why bytes are no message that can be answered with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMessage {
    /// The magic number is another one.
    Magic,
    /// A version other than 1, which it is.
    Version(u8),
    /// The total length is zero: less than the header itself. The connection is reset.
    NoLength,
    /// A TLV says that it has no length, or less than its fixed part.
    TlvTooShort(u8),
    /// A TLV is longer than what is left of the message.
    TlvTooLong(u8),
    /// A TLV is there twice, which section 6.2.1 does not allow.
    Repeated(u8),
    /// A TCP option in a Connect TLV has a length below two, or reaches past the TLV.
    SynOption,
}

/// A message whose TLVs are all well-formed, each there once. One without any says that a connection without options has come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// The message, header included.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its TLVs, in their order.
    pub fn tlvs(&self) -> impl Iterator<Item = Tlv<'a>> + use<'a> {
        let mut rest = self.bytes.get(HEADER_LEN..).unwrap_or(&[]);
        core::iter::from_fn(move || {
            // What `read` has judged already.
            let (raw, tail) = split(rest)?;
            rest = tail;
            Tlv::parse(raw).ok()
        })
    }
}

/// Reads the message with which `bytes` begin. A mistake is told as soon as it shows, so that nobody waits for the rest of a message
/// that cannot become good.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8]) -> Result<Parsed<'_>, BadMessage> {
    let Some((&[version, total, high, low], rest)) = bytes.split_first_chunk() else {
        return Ok(Parsed::Short);
    };
    if u16::from_be_bytes([high, low]) != MAGIC {
        return Err(BadMessage::Magic);
    }
    if version != VERSION {
        return Err(BadMessage::Version(version));
    }
    let total = usize::from(total) * WORD;
    let Some(mut left) = total.checked_sub(HEADER_LEN) else {
        return Err(BadMessage::NoLength);
    };
    let mut seen = [0u64; 4];
    let mut rest = rest;
    while left > 0 {
        let Some(&[kind, words]) = rest.first_chunk() else {
            return Ok(Parsed::Short);
        };
        let length = usize::from(words) * WORD;
        if length == 0 {
            return Err(BadMessage::TlvTooShort(kind));
        }
        if length > left {
            return Err(BadMessage::TlvTooLong(kind));
        }
        let (word, bit) = (usize::from(kind >> 6), 1 << (kind & 63));
        if seen[word] & bit != 0 {
            return Err(BadMessage::Repeated(kind));
        }
        seen[word] |= bit;
        let Some((raw, tail)) = rest.split_at_checked(length) else {
            return Ok(Parsed::Short);
        };
        Tlv::parse(raw)?;
        left -= length;
        rest = tail;
    }
    let length = bytes.len() - rest.len();
    Ok(Parsed::Whole(Message {
        bytes: &bytes[..length],
    }))
}

/// The first TLV of some bytes, and what is behind it; `None` at their end, and where its length is wrong.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let words = *bytes.get(1)?;
    bytes
        .split_at_checked(usize::from(words) * WORD)
        .filter(|_| words > 0)
}

/// Writes a message of these TLVs, and says how many bytes it has.
///
/// # Errors
/// It does not fit: neither into `out` nor, with more than 255 words, into any message.
pub fn emit(tlvs: &[Tlv<'_>], out: &mut [u8]) -> Result<usize, NoRoom> {
    let most = out.len().min(MAX_LEN);
    let (head, body) = out[..most]
        .split_first_chunk_mut::<HEADER_LEN>()
        .ok_or(NoRoom)?;
    let mut w = Writer::new(body);
    for tlv in tlvs {
        tlv.emit(&mut w)?;
    }
    let length = HEADER_LEN + w.written();
    let words = u8::try_from(length / WORD).map_err(|_| NoRoom)?;
    let [high, low] = MAGIC.to_be_bytes();
    *head = [VERSION, words, high, low];
    Ok(length)
}

#[cfg(test)]
mod tests;
