//! The values of plain TCP options that are more than a number.

use crate::seq::SeqNum;

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// The sender's clock, in ticks only the sender understands.
    pub val: u32,
    /// The receiver's clock as the sender last saw it; means nothing without ACK.
    pub ecr: u32,
}

/// Up to four blocks of received data (RFC 2018); each begins at its first number and ends before its second.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    len: u8,
    /// Unused places are zero, so that equal lists are equal values.
    blocks: [(SeqNum, SeqNum); Self::CAPACITY],
}

impl SackBlocks {
    /// As many as fit into a header without any other option.
    pub const CAPACITY: usize = 4;
    /// No block.
    pub const EMPTY: Self = {
        let zero = SeqNum::new(0);
        Self {
            len: 0,
            blocks: [(zero, zero); Self::CAPACITY],
        }
    };

    /// Appends a block; false when the list is full.
    #[must_use]
    pub fn push(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *place = (start, end);
        self.len += 1;
        true
    }

    /// Keeps the first `count` blocks, which are the most recent ones. A duplicate above the acknowledged number needs the second block,
    /// which contains it, to be told from a run that arrived: where only one is kept, it is that one (RFC 2883 section 4).
    pub fn truncate(&mut self, count: usize) {
        let mut kept = Self::EMPTY;
        let skipped = match self.as_slice() {
            [first, second, ..] => {
                let inside = first.0.after_eq(second.0) && first.1.before_eq(second.1);
                usize::from(count == 1 && inside)
            }
            _ => 0,
        };
        let blocks = self.as_slice().iter().skip(skipped);
        for (place, block) in kept.blocks.iter_mut().zip(blocks).take(count) {
            *place = *block;
            kept.len += 1;
        }
        *self = kept;
    }

    /// The blocks in wire order.
    #[must_use]
    pub fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        &self.blocks[..usize::from(self.len)]
    }

    /// The blocks in wire order.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> + '_ {
        self.as_slice().iter().copied()
    }

    /// How many blocks there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// There is no block.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the option for `blocks` blocks, kind and length included; no block, no option.
    pub(crate) const fn wire_len(blocks: usize) -> usize {
        if blocks == 0 { 0 } else { 2 + 8 * blocks }
    }
}

impl FromIterator<(SeqNum, SeqNum)> for SackBlocks {
    /// Takes as many as fit.
    fn from_iter<I: IntoIterator<Item = (SeqNum, SeqNum)>>(blocks: I) -> Self {
        let mut list = Self::EMPTY;
        for (start, end) in blocks {
            if !list.push(start, end) {
                break;
            }
        }
        list
    }
}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// The TCP Fast Open option (RFC 7413 section 4.1.1): a request (no cookie) or a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpen {
    len: u8,
    /// Unused places are zero, so that equal cookies are equal values.
    cookie: [u8; Self::MAX_COOKIE],
}

impl FastOpen {
    /// Bytes of the longest cookie.
    pub const MAX_COOKIE: usize = 16;
    /// A request for a cookie.
    pub const REQUEST: Self = Self {
        len: 0,
        cookie: [0; Self::MAX_COOKIE],
    };

    /// A cookie of 4 to 16 bytes, an even number of them; or no bytes at all, the request.
    #[must_use]
    pub fn new(cookie: &[u8]) -> Option<Self> {
        if !matches!(cookie.len(), 0 | 4..=Self::MAX_COOKIE) || cookie.len() % 2 != 0 {
            return None;
        }
        let mut value = Self::REQUEST;
        value
            .cookie
            .get_mut(..cookie.len())?
            .copy_from_slice(cookie);
        value.len = cookie.len() as u8;
        Some(value)
    }

    /// The cookie; empty for a request.
    #[must_use]
    pub fn cookie(&self) -> &[u8] {
        &self.cookie[..usize::from(self.len)]
    }

    pub(crate) const fn wire_len(&self) -> usize {
        2 + self.len as usize
    }
}
