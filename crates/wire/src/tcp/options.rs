//! The option list of a TCP header: parsed into a value of fixed size, and written back.

use super::header::{Flags, MAX_OPTIONS_LEN};
use super::mptcp::{
    self, AddAddr, Capable, Dss, Fail, FastClose, Join, MptcpOption, Prio, RemoveAddr, Reset,
};
use crate::cursor::{NoRoom, Reader, Writer};
use crate::ids::Mss;
use crate::seq::SeqNum;
use crate::window::WindowScale;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FASTOPEN: u8 = 34;

/// Bytes of the options of fixed length, kind and length included.
pub(crate) const MSS_LEN: usize = 4;
pub(crate) const WINDOW_SCALE_LEN: usize = 3;
pub(crate) const SACK_PERMITTED_LEN: usize = 2;
pub(crate) const TIMESTAMPS_LEN: usize = 10;

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

    /// Keeps the first `count` blocks, which are the most recent ones.
    pub fn truncate(&mut self, count: usize) {
        let mut kept = Self::EMPTY;
        for (place, block) in kept.blocks.iter_mut().zip(self.as_slice()).take(count) {
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

/// The Multipath TCP options of one segment, in wire order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MptcpOptions {
    list: [Option<MptcpOption>; Self::CAPACITY],
}

impl MptcpOptions {
    /// More than a segment can usefully carry.
    pub const CAPACITY: usize = 6;
    /// No option.
    pub const EMPTY: Self = Self {
        list: [None; Self::CAPACITY],
    };

    /// Appends an option; false when the list is full.
    #[must_use]
    pub fn push(&mut self, option: MptcpOption) -> bool {
        match self.list.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(option);
                true
            }
            None => false,
        }
    }

    /// The options in wire order.
    pub fn iter(&self) -> impl Iterator<Item = &MptcpOption> {
        self.list.iter().flatten()
    }

    /// How many options there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// There is no option.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list[0].is_none()
    }

    /// There is an option other than DSS, so a duplicate ACK that carries it is no sign of congestion
    /// (rfc8684:G1).
    #[must_use]
    pub fn has_signal(&self) -> bool {
        // rfc8684:G1 rfc8684:A15
        self.iter()
            .any(|option| !matches!(option, MptcpOption::Dss(_)))
    }

    /// The first MP_CAPABLE.
    #[must_use]
    pub fn capable(&self) -> Option<&Capable> {
        self.iter().find_map(|option| match option {
            MptcpOption::Capable(capable) => Some(capable),
            _ => None,
        })
    }

    /// The first MP_JOIN.
    #[must_use]
    pub fn join(&self) -> Option<&Join> {
        self.iter().find_map(|option| match option {
            MptcpOption::Join(join) => Some(join),
            _ => None,
        })
    }

    /// The first DSS.
    #[must_use]
    pub fn dss(&self) -> Option<&Dss> {
        self.iter().find_map(|option| match option {
            MptcpOption::Dss(dss) => Some(dss),
            _ => None,
        })
    }

    /// Every ADD_ADDR, echoes included.
    pub fn add_addrs(&self) -> impl Iterator<Item = &AddAddr> {
        self.iter().filter_map(|option| match option {
            MptcpOption::AddAddr(add) => Some(add),
            _ => None,
        })
    }

    /// Every REMOVE_ADDR.
    pub fn remove_addrs(&self) -> impl Iterator<Item = &RemoveAddr> {
        self.iter().filter_map(|option| match option {
            MptcpOption::RemoveAddr(remove) => Some(remove),
            _ => None,
        })
    }

    /// The first MP_PRIO.
    #[must_use]
    pub fn prio(&self) -> Option<Prio> {
        self.iter().find_map(|option| match option {
            MptcpOption::Prio(prio) => Some(*prio),
            _ => None,
        })
    }

    /// The first MP_FAIL.
    #[must_use]
    pub fn fail(&self) -> Option<Fail> {
        self.iter().find_map(|option| match option {
            MptcpOption::Fail(fail) => Some(*fail),
            _ => None,
        })
    }

    /// The first MP_FASTCLOSE.
    #[must_use]
    pub fn fastclose(&self) -> Option<FastClose> {
        self.iter().find_map(|option| match option {
            MptcpOption::FastClose(close) => Some(*close),
            _ => None,
        })
    }

    /// The first MP_TCPRST.
    #[must_use]
    pub fn reset(&self) -> Option<Reset> {
        self.iter().find_map(|option| match option {
            MptcpOption::Reset(reset) => Some(*reset),
            _ => None,
        })
    }
}

impl Default for MptcpOptions {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl FromIterator<MptcpOption> for MptcpOptions {
    /// Takes as many as fit.
    fn from_iter<I: IntoIterator<Item = MptcpOption>>(options: I) -> Self {
        let mut list = Self::EMPTY;
        for option in options {
            if !list.push(option) {
                break;
            }
        }
        list
    }
}

impl core::fmt::Debug for MptcpOptions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// All options of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// The largest segment the sender can receive (SYN only).
    pub mss: Option<Mss>,
    /// The shift of the sender's window fields, at most 14 (SYN only, RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// The sender understands SACK blocks (SYN only, RFC 2018).
    pub sack_permitted: bool,
    /// What the sender received out of order.
    pub sack: SackBlocks,
    /// The sender's clock and the echo of ours.
    pub timestamps: Option<Timestamps>,
    /// TCP Fast Open (SYN only).
    pub fastopen: Option<FastOpen>,
    /// The Multipath TCP options.
    pub mptcp: MptcpOptions,
    /// Options that count as absent because of their length, their subtype, their place or their number
    /// (rfc8684:G5). Kinds this program does not know are not counted.
    pub ignored: u8,
}

/// Why an option list cannot be read: a length that makes every border behind it a guess (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// A length below 2.
    TooShort,
    /// An option that ends behind the header.
    Overrun,
}

impl Options {
    /// No option.
    pub const EMPTY: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        sack: SackBlocks::EMPTY,
        timestamps: None,
        fastopen: None,
        mptcp: MptcpOptions::EMPTY,
        ignored: 0,
    };

    /// Reads the option bytes of a header. `flags` are the header's: they decide which options may be there at all.
    pub fn parse(bytes: &[u8], flags: Flags) -> Result<Self, OptionsError> {
        let mut options = Self::EMPTY;
        let mut rest = bytes;
        while let Some((&kind, tail)) = rest.split_first() {
            match kind {
                END => break,
                NOP => rest = tail,
                _ => {
                    let len = usize::from(*tail.first().ok_or(OptionsError::Overrun)?);
                    if len < 2 {
                        return Err(OptionsError::TooShort);
                    }
                    let (option, behind) =
                        rest.split_at_checked(len).ok_or(OptionsError::Overrun)?;
                    rest = behind;
                    if options.take(kind, option, flags).is_none() {
                        options.ignored = options.ignored.saturating_add(1);
                    }
                }
            }
        }
        Ok(options)
    }

    /// Takes one whole option; `None` when it counts as absent. A second option of a kind that makes sense only once
    /// is absent too.
    fn take(&mut self, kind: u8, option: &[u8], flags: Flags) -> Option<()> {
        let mut body = Reader::new(option.get(2..)?);
        match kind {
            MSS if flags.syn() && self.mss.is_none() && option.len() == MSS_LEN => {
                self.mss = Some(Mss(body.u16()?));
            }
            WINDOW_SCALE
                if flags.syn()
                    && self.window_scale.is_none()
                    && option.len() == WINDOW_SCALE_LEN =>
            {
                self.window_scale = Some(WindowScale::new(body.u8()?).shift());
            }
            SACK_PERMITTED if flags.syn() && option.len() == SACK_PERMITTED_LEN => {
                self.sack_permitted = true;
            }
            SACK if self.sack.is_empty()
                && body.remaining() > 0
                && body.remaining() % 8 == 0
                && body.remaining() <= 8 * SackBlocks::CAPACITY =>
            {
                while body.remaining() > 0 {
                    let block = (SeqNum::new(body.u32()?), SeqNum::new(body.u32()?));
                    let _fits_by_the_guard = self.sack.push(block.0, block.1);
                }
            }
            TIMESTAMPS if self.timestamps.is_none() && option.len() == TIMESTAMPS_LEN => {
                self.timestamps = Some(Timestamps {
                    val: body.u32()?,
                    ecr: body.u32()?,
                });
            }
            FASTOPEN if flags.syn() && self.fastopen.is_none() => {
                self.fastopen = Some(FastOpen::new(body.rest())?);
            }
            mptcp::KIND => {
                let option = MptcpOption::parse(option, flags)?;
                return self.mptcp.push(option).then_some(());
            }
            MSS | WINDOW_SCALE | SACK_PERMITTED | SACK | TIMESTAMPS | FASTOPEN => return None,
            _unknown_kind => {}
        }
        Some(())
    }

    /// Bytes these options need without any padding between them.
    pub(crate) fn packed_len(&self) -> usize {
        let Self {
            mss,
            window_scale,
            sack_permitted,
            sack,
            timestamps,
            fastopen,
            mptcp,
            ignored: _,
        } = self;
        mss.map_or(0, |_| MSS_LEN)
            + window_scale.map_or(0, |_| WINDOW_SCALE_LEN)
            + if *sack_permitted {
                SACK_PERMITTED_LEN
            } else {
                0
            }
            + SackBlocks::wire_len(sack.len())
            + timestamps.map_or(0, |_| TIMESTAMPS_LEN)
            + fastopen.map_or(0, |fastopen| fastopen.wire_len())
            + mptcp.iter().map(MptcpOption::wire_len).sum::<usize>()
    }

    /// Bytes these options need when each begins so that its 32-bit fields are aligned, as most stacks send them.
    fn aligned_len(&self) -> usize {
        let Self {
            mss,
            window_scale,
            sack_permitted,
            sack,
            timestamps,
            fastopen,
            mptcp,
            ignored: _,
        } = self;
        let words = |len: usize| len.next_multiple_of(4);
        let clock = if *sack_permitted {
            SACK_PERMITTED_LEN
        } else {
            0
        } + timestamps.map_or(0, |_| TIMESTAMPS_LEN);
        mss.map_or(0, |_| MSS_LEN)
            + words(clock)
            + window_scale.map_or(0, |_| words(WINDOW_SCALE_LEN))
            + fastopen.map_or(0, |fastopen| words(fastopen.wire_len()))
            + words(SackBlocks::wire_len(sack.len()))
            + mptcp
                .iter()
                .map(|option| words(option.wire_len()))
                .sum::<usize>()
    }

    /// Bytes these options take in a header that has `limit` bytes for them: aligned if that fits, else packed. A
    /// multiple of 4; more than `limit` if they do not fit at all.
    #[must_use]
    pub fn wire_len(&self, limit: usize) -> usize {
        let aligned = self.aligned_len();
        if aligned <= limit.min(MAX_OPTIONS_LEN) {
            aligned
        } else {
            self.packed_len().next_multiple_of(4)
        }
    }

    /// Writes the options and padding over the whole of `area`, which a header's data offset will cover.
    pub fn emit(&self, area: &mut [u8]) -> Result<(), NoRoom> {
        let aligned = self.aligned_len() <= area.len();
        let mut w = Writer::new(area);
        let pad = |w: &mut Writer<'_>, count: usize| {
            (0..if aligned { count % 4 } else { 0 }).try_for_each(|_| w.u8(NOP))
        };
        if let Some(Mss(mss)) = self.mss {
            w.put(&[MSS, MSS_LEN as u8])?;
            w.u16(mss)?;
        }
        if self.sack_permitted != self.timestamps.is_some() {
            pad(&mut w, 2)?; // Either fills its words together with two bytes; both together need none.
        }
        if self.sack_permitted {
            w.put(&[SACK_PERMITTED, SACK_PERMITTED_LEN as u8])?;
        }
        if let Some(Timestamps { val, ecr }) = self.timestamps {
            w.put(&[TIMESTAMPS, TIMESTAMPS_LEN as u8])?;
            w.u32(val)?;
            w.u32(ecr)?;
        }
        if let Some(shift) = self.window_scale {
            pad(&mut w, 1)?;
            w.put(&[WINDOW_SCALE, WINDOW_SCALE_LEN as u8, shift])?;
        }
        if let Some(fastopen) = self.fastopen {
            pad(&mut w, 4 - fastopen.wire_len() % 4)?;
            // At most 18 bytes.
            w.put(&[FASTOPEN, fastopen.wire_len() as u8])?;
            w.put(fastopen.cookie())?;
        }
        if !self.sack.is_empty() {
            pad(&mut w, 2)?;
            // At most 34 bytes.
            w.put(&[SACK, SackBlocks::wire_len(self.sack.len()) as u8])?;
            for (start, end) in self.sack.iter() {
                w.u32(start.get())?;
                w.u32(end.get())?;
            }
        }
        for option in self.mptcp.iter() {
            option.emit(&mut w)?;
            pad(&mut w, 4 - option.wire_len() % 4)?;
        }
        (0..w.room()).try_for_each(|_| w.u8(NOP))
    }
}
