//! The option list of a TCP header: parsed into a value of fixed size, and written back.

mod list;
mod values;

pub use list::MptcpOptions;
pub use values::{FastOpen, SackBlocks, Timestamps};

use super::header::{Flags, MAX_OPTIONS_LEN};
use super::mptcp::{self, MptcpOption};
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
        options.read(bytes, flags)?;
        Ok(options)
    }

    /// Takes all options out, without writing over what they were: that is large.
    pub(crate) fn clear(&mut self) {
        self.mss = None;
        self.window_scale = None;
        self.sack_permitted = false;
        self.sack = SackBlocks::EMPTY;
        self.timestamps = None;
        self.fastopen = None;
        self.mptcp.clear();
        self.ignored = 0;
    }

    /// Reads option bytes into `self`, which has none so far: in place, because the value is large to move.
    pub(crate) fn read(&mut self, bytes: &[u8], flags: Flags) -> Result<(), OptionsError> {
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
                    if self.take(kind, option, flags).is_none() {
                        self.ignored = self.ignored.saturating_add(1);
                    }
                }
            }
        }
        Ok(())
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
        self.layout(limit).0
    }

    /// These bytes, and whether they are aligned.
    pub(crate) fn layout(&self, limit: usize) -> (usize, bool) {
        let aligned = self.aligned_len();
        if aligned <= limit.min(MAX_OPTIONS_LEN) {
            (aligned, true)
        } else {
            (self.packed_len().next_multiple_of(4), false)
        }
    }

    /// Writes the options and padding over the whole of `area`, which a header's data offset will cover.
    pub fn emit(&self, area: &mut [u8]) -> Result<(), NoRoom> {
        self.emit_as(area, self.aligned_len() <= area.len())
    }

    /// The same, when it is known whether they are to be aligned.
    pub(crate) fn emit_as(&self, area: &mut [u8], aligned: bool) -> Result<(), NoRoom> {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tcp::mptcp::tests::{any_option, flags_for};
    use crate::tcp::mptcp::{Capable, Dss, Prio};
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SYN: Flags = Flags::SYN;

    /// Any option list, and the flags under which it is right. Whether it fits a header is another question.
    pub(crate) fn any_options() -> impl Strategy<Value = (Options, Flags)> {
        let clocks = proptest::option::of(
            any::<(u32, u32)>().prop_map(|(val, ecr)| Timestamps { val, ecr }),
        );
        let blocks = proptest::collection::vec(any::<(u32, u32)>(), 0..=4).prop_map(|blocks| {
            blocks
                .into_iter()
                .map(|(start, end)| (SeqNum::new(start), SeqNum::new(end)))
                .collect::<SackBlocks>()
        });
        let cookie = proptest::option::of((0usize..=6).prop_map(|pairs| {
            let len = if pairs == 0 { 0 } else { 2 * pairs + 4 };
            FastOpen::new(&[7; FastOpen::MAX_COOKIE][..len]).expect("even, and 0 or 6 to 16")
        }));
        (
            any::<(Option<u16>, Option<u8>, bool, bool)>(),
            clocks,
            blocks,
            cookie,
            proptest::collection::vec(any_option(), 0..3),
        )
            .prop_map(
                |((mss, scale, permitted, syn), timestamps, sack, fastopen, mptcp)| {
                    let flags = match (syn, mptcp.first()) {
                        (_, Some(first)) => flags_for(first),
                        (true, None) => SYN,
                        (false, None) => Flags::ACK,
                    };
                    let syn = flags.syn();
                    let options = Options {
                        mss: mss.filter(|_| syn).map(Mss),
                        window_scale: scale.filter(|_| syn).map(|shift| shift % 15),
                        sack_permitted: permitted && syn,
                        sack,
                        timestamps,
                        fastopen: fastopen.filter(|_| syn),
                        mptcp: mptcp
                            .into_iter()
                            .filter(|option| flags_for(option) == flags)
                            .collect(),
                        ignored: 0,
                    };
                    (options, flags)
                },
            )
    }

    fn emitted(options: &Options) -> Vec<u8> {
        let mut area = vec![0; options.wire_len(MAX_OPTIONS_LEN)];
        options
            .emit(&mut area)
            .expect("the area has the length asked for");
        area
    }

    fn parse(bytes: &[u8]) -> Options {
        Options::parse(bytes, SYN).expect("well-formed")
    }

    #[test]
    fn the_options_of_an_ordinary_syn() {
        let options = Options {
            mss: Some(Mss(1460)),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps {
                val: 0x0102_0304,
                ecr: 0,
            }),
            mptcp: [MptcpOption::Capable(Capable::v1(
                true,
                mptcp::CapableKeys::Syn,
            ))]
            .into_iter()
            .collect(),
            ..Options::EMPTY
        };
        let bytes = [
            2, 4, 0x05, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7, 30, 4, 0x01, 0x81,
        ];
        assert_eq!(emitted(&options), bytes);
        assert_eq!(parse(&bytes), options);
    }

    #[test]
    fn alone_every_option_is_aligned() {
        let sack: SackBlocks = [(SeqNum::new(1), SeqNum::new(2))].into_iter().collect();
        let clock = Timestamps { val: 3, ecr: 4 };
        for (options, bytes) in [
            (
                Options {
                    sack_permitted: true,
                    ..Options::EMPTY
                },
                &[1, 1, 4, 2][..],
            ),
            (
                Options {
                    timestamps: Some(clock),
                    ..Options::EMPTY
                },
                &[1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4],
            ),
            (
                Options {
                    sack,
                    ..Options::EMPTY
                },
                &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            ),
            (
                Options {
                    fastopen: Some(FastOpen::REQUEST),
                    ..Options::EMPTY
                },
                &[1, 1, 34, 2],
            ),
            (
                Options {
                    mptcp: [MptcpOption::Prio(Prio { backup: true })]
                        .into_iter()
                        .collect(),
                    ..Options::EMPTY
                },
                &[30, 3, 0x51, 1],
            ),
        ] {
            assert_eq!(emitted(&options), bytes);
        }
        assert_eq!(emitted(&Options::EMPTY), []);
    }

    #[test]
    fn a_bad_length_is_an_error() {
        assert_eq!(
            Options::parse(&[2, 0, 0, 0], SYN),
            Err(OptionsError::TooShort)
        );
        assert_eq!(
            Options::parse(&[99, 1, 0, 0], SYN),
            Err(OptionsError::TooShort)
        );
        assert_eq!(
            Options::parse(&[1, 1, 1, 2], SYN),
            Err(OptionsError::Overrun)
        );
        assert_eq!(
            Options::parse(&[2, 5, 0, 0], SYN),
            Err(OptionsError::Overrun)
        );
    }

    #[test]
    fn what_stands_behind_the_end_does_not_count() {
        assert_eq!(
            parse(&[2, 4, 1, 0, 0, 9, 9, 9]),
            Options {
                mss: Some(Mss(256)),
                ..Options::EMPTY
            }
        );
        assert_eq!(parse(&[]), Options::EMPTY);
        assert_eq!(parse(&[1, 1, 1, 1]), Options::EMPTY);
    }

    #[test]
    fn options_of_a_wrong_length_are_absent_and_counted() {
        // rfc8684:G5
        for bytes in [
            &[2, 3, 5][..],
            &[3, 4, 5, 5],
            &[4, 3, 0],
            &[5, 2],
            &[5, 9, 0, 0, 0, 0, 0, 0, 0],
            &[8, 9, 0, 0, 0, 0, 0, 0, 0],
            &[34, 3, 0],
            &[30, 2],
            &[30, 5, 0x01, 0x81, 0],
            &[30, 4, 0x90, 0],
        ] {
            assert_eq!(
                parse(bytes),
                Options {
                    ignored: 1,
                    ..Options::EMPTY
                },
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn unknown_kinds_are_passed_over() {
        let bytes = [28, 4, 0, 1, 2, 4, 5, 0xb4];
        assert_eq!(
            parse(&bytes),
            Options {
                mss: Some(Mss(1460)),
                ..Options::EMPTY
            }
        );
    }

    #[test]
    fn options_of_the_handshake_count_only_there() {
        let bytes = [2, 4, 5, 0xb4, 3, 3, 7, 4, 2, 34, 2];
        let later = Options::parse(&bytes, Flags::ACK).unwrap();
        assert_eq!(
            later,
            Options {
                ignored: 4,
                ..Options::EMPTY
            }
        );
        assert_eq!(parse(&bytes).ignored, 0);
    }

    #[test]
    fn the_first_of_two_counts() {
        let twice = parse(&[2, 4, 5, 0xb4, 2, 4, 0, 1, 3, 3, 20, 3, 3, 1]);
        assert_eq!(
            (twice.mss, twice.window_scale, twice.ignored),
            (Some(Mss(1460)), Some(14), 2)
        );
    }

    #[test]
    fn duplicates_of_mptcp_options_are_tolerated() {
        // rfc8684:G6
        let prio = [30, 3, 0x51, 1].repeat(8);
        let options = Options::parse(&prio, Flags::ACK).unwrap();
        assert_eq!(options.mptcp.len(), MptcpOptions::CAPACITY);
        assert_eq!(options.ignored, 4);
        assert_eq!(options.mptcp.prio(), Some(Prio { backup: true }));
    }

    #[test]
    fn only_dss_is_no_signal() {
        // rfc8684:G1 rfc8684:A15
        let dss = MptcpOption::Dss(Dss::default());
        let prio = MptcpOption::Prio(Prio { backup: true });
        let list = |options: &[MptcpOption]| options.iter().copied().collect::<MptcpOptions>();
        assert!(!list(&[]).has_signal());
        assert!(!list(&[dss, dss]).has_signal());
        assert!(list(&[dss, prio]).has_signal());
    }

    #[test]
    fn cookies_have_the_lengths_of_the_standard() {
        for len in 0..=16 {
            let right = len == 0 || (len >= 4 && len % 2 == 0);
            assert_eq!(FastOpen::new(&[1; 16][..len]).is_some(), right, "{len}");
        }
        assert_eq!(FastOpen::new(&[1; 18]), None);
        assert_eq!(FastOpen::new(&[1, 2, 3, 4]).unwrap().cookie(), [1, 2, 3, 4]);
    }

    #[test]
    fn truncated_blocks_equal_fresh_ones() {
        let block = |n| (SeqNum::new(n), SeqNum::new(n + 1));
        let mut blocks: SackBlocks = [block(1), block(3), block(5)].into_iter().collect();
        blocks.truncate(1);
        assert_eq!(blocks, [block(1)].into_iter().collect());
        blocks.truncate(4);
        assert_eq!(blocks.len(), 1);
        blocks.truncate(0);
        assert!(blocks.is_empty());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read((options, flags) in any_options()) {
            let len = options.wire_len(MAX_OPTIONS_LEN);
            prop_assert_eq!(len % 4, 0);
            let mut area = vec![0; len];
            prop_assert_eq!(options.emit(&mut area), Ok(()));
            prop_assert_eq!(Options::parse(&area, flags), Ok(options));
            // A larger area is padded, a smaller one refused before anything is cut in half.
            area.extend([0; 8]);
            prop_assert_eq!(options.emit(&mut area), Ok(()));
            prop_assert_eq!(Options::parse(&area, flags), Ok(options));
            let packed = options.packed_len();
            if packed > 0 {
                prop_assert_eq!(options.emit(&mut area[..packed - 1]), Err(NoRoom));
                prop_assert_eq!(options.emit(&mut area[..packed]), Ok(()));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), flags: u8) {
            let _ = Options::parse(&bytes, Flags::from_bits(flags));
        }

        #[test]
        fn no_likely_bytes_panic(
            parts in proptest::collection::vec(
                (prop_oneof![Just(30u8), 0u8..10, Just(34u8)], 2usize..20, any::<u8>()), 0..6),
            flags: u8,
        ) {
            let bytes: Vec<u8> = parts.iter().flat_map(|&(kind, len, fill)| {
                let mut option = vec![fill; len];
                option[0] = kind;
                option[1] = len as u8;
                option
            }).collect();
            if let Ok(options) = Options::parse(&bytes, Flags::from_bits(flags)) {
                prop_assert!(options.packed_len() <= bytes.len());
            }
        }
    }
}
