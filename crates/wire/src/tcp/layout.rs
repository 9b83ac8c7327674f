//! Fits the options a segment should carry into the 40 bytes that a header has for them.
//!
//! Options are taken by rank: what the segment cannot be understood without comes first, what can go on a later
//! segment comes last. The answer says what was left out, so that whoever wanted it can ask again.

use super::header::MAX_OPTIONS_LEN;
use super::mptcp::{Dss, MptcpOption, Subtype};
use super::options::{
    MSS_LEN, Options, SACK_PERMITTED_LEN, SackBlocks, TIMESTAMPS_LEN, WINDOW_SCALE_LEN,
};
use crate::cursor::NoRoom;

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
    packed: bool,
    left_out: LeftOut,
}

impl Fitted {
    /// No option.
    pub const EMPTY: Self = Self {
        options: Options::EMPTY,
        len: 0,
        packed: false,
        left_out: LeftOut {
            sack_blocks: 0,
            handshake: false,
            timestamps: false,
            fastopen: false,
            data_ack: false,
            mptcp: SubtypeSet(0),
        },
    };

    /// Takes what `want` writes into an empty list and leaves out what does not fit into `limit` bytes (at most 40 count,
    /// and only whole words). In place, because the value is large to move.
    pub fn fill(&mut self, limit: usize, want: impl FnOnce(&mut Options) -> Prefer) {
        debug_assert!(self.is_empty(), "what is in the list already would stay");
        let prefer = want(&mut self.options);
        let limit = limit.min(MAX_OPTIONS_LEN) & !3;
        let (mut len, mut aligned) = self.options.layout(limit);
        if len > limit {
            let mut plan = Plan {
                got: Options::EMPTY,
                left_out: LeftOut::default(),
                room: limit,
            };
            plan.choose(&self.options, prefer);
            (self.options, self.left_out) = (plan.got, plan.left_out);
            (len, aligned) = self.options.layout(limit);
        }
        self.options.ignored = 0;
        // At most `limit`, 40: packed options fit, and aligned ones are taken only if they do.
        (self.len, self.packed) = (len as u8, !aligned);
    }

    /// Gives the data-level mapping its checksum, which is known only once the payload was summed. The mapping was wanted
    /// with some checksum, so its length stays.
    pub fn set_checksum(&mut self, checksum: u16) {
        self.options.mptcp.set_checksum(checksum);
    }

    /// The options that go.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Writes them and their padding over the whole of `area`, which is as long as they are.
    pub(crate) fn emit(&self, area: &mut [u8]) -> Result<(), NoRoom> {
        self.options.emit_as(area, !self.packed)
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
    let mut fitted = Fitted::EMPTY;
    fitted.fill(limit, |options| {
        *options = wanted.options;
        wanted.prefer
    });
    fitted
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
        MptcpOption::AddAddr(_)
        | MptcpOption::RemoveAddr(_)
        | MptcpOption::Prio(_)
        | MptcpOption::Private(_) => Rank::Signal,
    }
}

impl Plan {
    fn choose(&mut self, options: &Options, prefer: Prefer) {
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
        match prefer {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsn::Dsn;
    use crate::ids::{AddrId, Key, Mss};
    use crate::seq::{SeqNum, Ssn};
    use crate::tcp::mptcp::{
        AddAddr, Capable, CapableKeys, DataAck, Fail, MapDsn, Mapping, Prio, Reset, ResetReason,
    };
    use crate::tcp::options::tests::any_options;
    use crate::tcp::options::{FastOpen, Timestamps};
    use alloc::vec;
    use core::net::IpAddr;
    use proptest::prelude::*;

    const CLOCK: Option<Timestamps> = Some(Timestamps { val: 1, ecr: 2 });

    fn blocks(count: u32) -> SackBlocks {
        (0..count)
            .map(|n| (SeqNum::new(10 * n), SeqNum::new(10 * n + 5)))
            .collect()
    }

    fn dss(ack: bool, map: bool) -> MptcpOption {
        MptcpOption::Dss(Dss {
            data_ack: ack.then_some(DataAck::Long(7)),
            mapping: map.then_some(Mapping {
                dsn: MapDsn::Long(9),
                ssn: Ssn::new(1),
                len: 100,
                checksum: Some(0),
            }),
            data_fin: false,
        })
    }

    fn add_addr(v6: bool, port: bool) -> MptcpOption {
        MptcpOption::AddAddr(AddAddr {
            echo: false,
            addr_id: AddrId(1),
            addr: if v6 {
                IpAddr::from([1u16; 8])
            } else {
                IpAddr::from([10, 0, 0, 1])
            },
            port: port.then_some(80),
            hmac: Some([5; 8]),
        })
    }

    fn wanted(options: Options, mptcp: &[MptcpOption], prefer: Prefer) -> Wanted {
        Wanted {
            options: Options {
                mptcp: mptcp.iter().copied().collect(),
                ..options
            },
            prefer,
        }
    }

    fn timed(mptcp: &[MptcpOption], sack: SackBlocks, prefer: Prefer) -> Fitted {
        fit(
            &wanted(
                Options {
                    timestamps: CLOCK,
                    sack,
                    ..Options::EMPTY
                },
                mptcp,
                prefer,
            ),
            40,
        )
    }

    #[test]
    fn a_full_dss_fits_beside_timestamps_exactly() {
        // rfc8684:O1
        let fitted = timed(&[dss(true, true)], SackBlocks::EMPTY, Prefer::Data);
        assert_eq!(fitted.len(), 40);
        assert!(fitted.left_out().is_empty());
    }

    #[test]
    fn sack_blocks_shrink_so_that_the_data_ack_goes() {
        // rfc8684:O1
        let fitted = timed(&[dss(true, false)], blocks(4), Prefer::Data);
        assert_eq!(
            fitted.options().mptcp.dss().and_then(|dss| dss.data_ack),
            Some(DataAck::Long(7))
        );
        assert_eq!(fitted.options().sack, blocks(2));
        assert_eq!(fitted.left_out().sack_blocks, 2);
        assert_eq!(fitted.len(), 40);
        // Without a Data ACK three blocks fit beside timestamps.
        let plain = timed(&[], blocks(4), Prefer::Data);
        assert_eq!(
            (plain.options().sack.len(), plain.left_out().sack_blocks),
            (3, 1)
        );
        // Alone, a duplicate above the acknowledged number would be read as a run that arrived (RFC 2883 section 4).
        let number = SeqNum::new;
        let duplicate = [(number(20), number(30)), (number(10), number(40))];
        let both = |mptcp| timed(mptcp, duplicate.into_iter().collect(), Prefer::Data);
        assert_eq!(both(&[]).options().sack.as_slice(), duplicate);
        let mut one: SackBlocks = duplicate.into_iter().collect();
        one.truncate(1);
        assert_eq!(one.as_slice(), &duplicate[1..]);
        // Beside a full mapping none does.
        let full = timed(&[dss(true, true)], blocks(3), Prefer::Data);
        assert_eq!(
            (full.options().sack.len(), full.left_out().sack_blocks),
            (0, 3)
        );
    }

    #[test]
    fn a_long_announcement_needs_a_segment_of_its_own() {
        // rfc8684:O1 rfc8684:A14: 30 bytes and timestamps fill the header, and then only without padding.
        let alone = timed(&[add_addr(true, true)], SackBlocks::EMPTY, Prefer::Data);
        assert_eq!((alone.len(), alone.left_out().is_empty()), (40, true));
        let beside = timed(
            &[dss(true, false), add_addr(true, true)],
            SackBlocks::EMPTY,
            Prefer::Data,
        );
        assert!(beside.left_out().mptcp.contains(Subtype::AddAddr));
        assert!(!beside.left_out().mptcp.contains(Subtype::Dss));
        let preferred = timed(
            &[dss(true, false), add_addr(true, true)],
            blocks(1),
            Prefer::Signals,
        );
        assert!(preferred.left_out().mptcp.contains(Subtype::Dss));
        assert!(!preferred.left_out().mptcp.contains(Subtype::AddAddr));
        assert_eq!(preferred.left_out().sack_blocks, 1);
    }

    #[test]
    fn a_short_announcement_goes_beside_a_data_ack() {
        // rfc8684:A14
        let fitted = timed(
            &[dss(true, false), add_addr(false, false)],
            SackBlocks::EMPTY,
            Prefer::Data,
        );
        assert_eq!((fitted.len(), fitted.left_out().is_empty()), (40, true));
    }

    #[test]
    fn a_mapping_goes_without_its_data_ack_rather_than_not_at_all() {
        let wanted = wanted(
            Options {
                timestamps: CLOCK,
                ..Options::EMPTY
            },
            &[
                MptcpOption::Fail(Fail { dsn: Dsn::new(1) }),
                dss(true, true),
            ],
            Prefer::Data,
        );
        // 10 of timestamps and 12 of MP_FAIL leave 18: not even the mapping.
        let fitted = fit(&wanted, 40);
        assert!(fitted.left_out().mptcp.contains(Subtype::Dss) && !fitted.left_out().data_ack);
        // Without timestamps 28 are left: everything.
        let mut without = wanted;
        without.options.timestamps = None;
        assert!(fit(&without, 40).left_out().is_empty());
        // With 36 bytes the mapping alone goes.
        let fitted = fit(&without, 36);
        assert!(fitted.left_out().data_ack && fitted.left_out().mptcp.is_empty());
        assert!(
            fitted
                .options()
                .mptcp
                .dss()
                .is_some_and(|dss| dss.mapping.is_some() && dss.data_ack.is_none())
        );
    }

    #[test]
    fn a_long_cookie_yields_to_mp_capable() {
        // rfc8684:O2
        let syn = |cookie: usize| {
            let options = Options {
                mss: Some(Mss(1460)),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps: CLOCK,
                fastopen: FastOpen::new(&[1; 16][..cookie]),
                ..Options::EMPTY
            };
            let capable = MptcpOption::Capable(Capable::v1(true, CapableKeys::Syn));
            fit(&wanted(options, &[capable], Prefer::Data), 40)
        };
        let long = syn(16);
        assert!(long.left_out().fastopen && long.options().fastopen.is_none());
        assert!(long.options().mptcp.capable().is_some());
        let short = syn(8);
        assert!(short.left_out().is_empty());
        assert!(short.options().fastopen.is_some() && short.options().mptcp.capable().is_some());
    }

    #[test]
    fn a_reset_carries_its_reason_first() {
        let reset = MptcpOption::Reset(Reset {
            transient: false,
            reason: ResetReason::MptcpSpecific,
        });
        let close = MptcpOption::FastClose(crate::tcp::mptcp::FastClose { key: Key([1; 8]) });
        let fitted = timed(
            &[dss(true, false), close, reset],
            SackBlocks::EMPTY,
            Prefer::Data,
        );
        assert!(fitted.left_out().is_empty());
        let fitted = timed(
            &[dss(true, true), close, reset],
            SackBlocks::EMPTY,
            Prefer::Signals,
        );
        assert!(fitted.left_out().mptcp.contains(Subtype::Dss));
        assert!(
            fitted.options().mptcp.reset().is_some()
                && fitted.options().mptcp.fastclose().is_some()
        );
    }

    #[test]
    fn a_limit_counts_in_whole_words_up_to_forty() {
        let prio = wanted(
            Options::EMPTY,
            &[MptcpOption::Prio(Prio { backup: true })],
            Prefer::Data,
        );
        assert!(fit(&prio, 3).is_empty());
        assert!(fit(&prio, 3).left_out().mptcp.contains(Subtype::Prio));
        assert_eq!(fit(&prio, 4).len(), 4);
        let large = wanted(
            Options {
                sack: blocks(4),
                ..Options::EMPTY
            },
            &[add_addr(true, true), dss(true, true)],
            Prefer::Data,
        );
        assert!(fit(&large, 1000).len() <= 40);
        assert_eq!(fit(&Wanted::default(), 40), Fitted::EMPTY);
    }

    proptest! {
        #[test]
        fn what_fits_can_be_written_and_the_rest_is_told(
            (options, flags) in any_options(), limit in 0usize..=44, signals: bool,
        ) {
            let prefer = if signals { Prefer::Signals } else { Prefer::Data };
            let fitted = fit(&Wanted { options, prefer }, limit);
            prop_assert!(fitted.len() <= limit.min(40));
            let mut area = vec![0; fitted.len()];
            prop_assert_eq!(fitted.options().emit(&mut area), Ok(()));
            prop_assert_eq!(Options::parse(&area, flags), Ok(*fitted.options()));
            prop_assert_eq!(fitted.left_out().is_empty(), *fitted.options() == options);
            prop_assert_eq!(
                fitted.options().sack.len() + usize::from(fitted.left_out().sack_blocks),
                options.sack.len()
            );
            for option in options.mptcp.iter() {
                let goes = fitted.options().mptcp.iter().any(|got| got.subtype() == option.subtype());
                prop_assert!(goes || fitted.left_out().mptcp.contains(option.subtype()));
            }
        }
    }
}
