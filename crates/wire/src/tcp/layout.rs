//! Fits the options a segment should carry into the 40 bytes that a header has for them.
//!
//! Options are taken by rank: what the segment cannot be understood without comes first, what can go on a later
//! segment comes last. The answer says what was left out, so that whoever wanted it can ask again.

use super::header::MAX_OPTIONS_LEN;
use super::mptcp::{Dss, MptcpOption, Subtype};
use super::options::{
    MSS_LEN, Options, SACK_PERMITTED_LEN, SackBlocks, TIMESTAMPS_LEN, WINDOW_SCALE_LEN,
};

/// What to prefer when data-level acknowledgements, SACK blocks and address signals do not all fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Prefer {
    /// DSS first, then SACK blocks; address signals wait for a segment with room (rfc8684:A14).
    #[default]
    Data,
    /// Address and priority signals first: for the separate ACK that exists to carry them.
    Signals,
}

/// The options a segment should carry, and what matters more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Everything that should go, SACK blocks with the most important first.
    pub options: Options,
    /// What matters more.
    pub prefer: Prefer,
}

/// A set of Multipath TCP option subtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SubtypeSet(u16);

impl SubtypeSet {
    /// Holds `subtype`.
    #[must_use]
    pub const fn contains(self, subtype: Subtype) -> bool {
        self.0 & (1 << subtype.number()) != 0
    }

    /// Holds nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn insert(&mut self, subtype: Subtype) {
        self.0 |= 1 << subtype.number();
    }
}

/// What was wanted and does not go with this segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// SACK blocks left out, counted from the end of the list.
    pub sack_blocks: u8,
    /// MSS, window scale or SACK-permitted.
    pub handshake: bool,
    /// The timestamps.
    pub timestamps: bool,
    /// The Fast Open cookie or request.
    pub fastopen: bool,
    /// The Data ACK of a DSS whose mapping goes.
    pub data_ack: bool,
    /// Multipath TCP options of these kinds, at least one of each.
    pub mptcp: SubtypeSet,
}

impl LeftOut {
    /// Everything wanted goes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Options that fit, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fitted {
    options: Options,
    len: u8,
    left_out: LeftOut,
}

impl Fitted {
    /// No option.
    pub const EMPTY: Self = Self {
        options: Options::EMPTY,
        len: 0,
        left_out: LeftOut {
            sack_blocks: 0,
            handshake: false,
            timestamps: false,
            fastopen: false,
            data_ack: false,
            mptcp: SubtypeSet(0),
        },
    };

    /// The options that go.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Bytes they take in the header, padding included: a multiple of 4, at most 40.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Nothing goes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What does not go.
    #[must_use]
    pub const fn left_out(&self) -> &LeftOut {
        &self.left_out
    }
}

/// Chooses which of the wanted options go into `limit` bytes (at most 40 count, and only whole words).
#[must_use]
pub fn fit(wanted: &Wanted, limit: usize) -> Fitted {
    let limit = limit.min(MAX_OPTIONS_LEN) & !3;
    let mut plan = Plan {
        got: Options::EMPTY,
        left_out: LeftOut::default(),
        room: limit,
    };
    if wanted.options.packed_len() <= limit {
        plan.got = wanted.options;
    } else {
        plan.choose(wanted);
    }
    plan.got.ignored = 0;
    Fitted {
        // At most `limit`, 40: packed options fit, and aligned ones are taken only if they do.
        len: plan.got.wire_len(limit) as u8,
        options: plan.got,
        left_out: plan.left_out,
    }
}

/// Options chosen so far. Packed lengths add up, so the room left is one number.
struct Plan {
    got: Options,
    left_out: LeftOut,
    room: usize,
}

/// When an option is taken; smaller goes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// State of the connection that has no other segment to go on.
    State,
    Data,
    Signal,
}

const fn rank(option: &MptcpOption) -> Rank {
    match option {
        MptcpOption::Capable(_)
        | MptcpOption::Join(_)
        | MptcpOption::Fail(_)
        | MptcpOption::FastClose(_)
        | MptcpOption::Reset(_) => Rank::State,
        MptcpOption::Dss(_) => Rank::Data,
        MptcpOption::AddAddr(_) | MptcpOption::RemoveAddr(_) | MptcpOption::Prio(_) => Rank::Signal,
    }
}

impl Plan {
    fn choose(&mut self, wanted: &Wanted) {
        let options = &wanted.options;
        self.take_handshake(options);
        // Once negotiated, timestamps belong on every segment but a reset (RFC 7323 section 3.2).
        if options.timestamps.is_some() {
            if self.reserve(TIMESTAMPS_LEN) {
                self.got.timestamps = options.timestamps;
            } else {
                self.left_out.timestamps = true;
            }
        }
        self.take_mptcp(options, Rank::State);
        if let Some(fastopen) = options.fastopen {
            // rfc8684:O2: the cookie yields; the connection can live without early data.
            if self.reserve(fastopen.wire_len()) {
                self.got.fastopen = Some(fastopen);
            } else {
                self.left_out.fastopen = true;
            }
        }
        match wanted.prefer {
            Prefer::Data => {
                // rfc8684:O1: the Data ACK goes first, SACK blocks take what is left.
                self.take_mptcp(options, Rank::Data);
                self.take_sack(&options.sack);
                self.take_mptcp(options, Rank::Signal);
            }
            Prefer::Signals => {
                // rfc8684:A14
                self.take_mptcp(options, Rank::Signal);
                self.take_mptcp(options, Rank::Data);
                self.take_sack(&options.sack);
            }
        }
    }

    fn reserve(&mut self, len: usize) -> bool {
        match self.room.checked_sub(len) {
            Some(room) => {
                self.room = room;
                true
            }
            None => false,
        }
    }

    fn take_handshake(&mut self, options: &Options) {
        if options.mss.is_some() {
            if self.reserve(MSS_LEN) {
                self.got.mss = options.mss;
            } else {
                self.left_out.handshake = true;
            }
        }
        if options.window_scale.is_some() {
            if self.reserve(WINDOW_SCALE_LEN) {
                self.got.window_scale = options.window_scale;
            } else {
                self.left_out.handshake = true;
            }
        }
        if options.sack_permitted {
            if self.reserve(SACK_PERMITTED_LEN) {
                self.got.sack_permitted = true;
            } else {
                self.left_out.handshake = true;
            }
        }
    }

    fn take_sack(&mut self, wanted: &SackBlocks) {
        // rfc8684:O1: fewer blocks rather than none.
        let fitting = (0..=wanted.len())
            .rev()
            .find(|&blocks| SackBlocks::wire_len(blocks) <= self.room)
            .unwrap_or(0);
        self.got.sack = *wanted;
        self.got.sack.truncate(fitting);
        self.room -= SackBlocks::wire_len(fitting);
        // At most 4.
        self.left_out.sack_blocks = (wanted.len() - fitting) as u8;
    }

    fn take_mptcp(&mut self, wanted: &Options, which: Rank) {
        for option in wanted.mptcp.iter().filter(|option| rank(option) == which) {
            if self.take_one(*option) {
                continue;
            }
            // Data without a mapping is lost to the peer, so a Data ACK that does not fit beside it waits.
            if let MptcpOption::Dss(
                dss @ Dss {
                    data_ack: Some(_),
                    mapping: Some(_),
                    data_fin: _,
                },
            ) = option
            {
                if self.take_one(MptcpOption::Dss(Dss {
                    data_ack: None,
                    ..*dss
                })) {
                    self.left_out.data_ack = true;
                    continue;
                }
            }
            self.left_out.mptcp.insert(option.subtype());
        }
    }

    fn take_one(&mut self, option: MptcpOption) -> bool {
        // The wanted list has the same capacity, so a push that has room in bytes always has a place.
        option.wire_len() <= self.room
            && self.got.mptcp.push(option)
            && self.reserve(option.wire_len())
    }
}
