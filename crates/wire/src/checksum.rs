//! The Internet checksum (RFC 1071) as a sum that can be built in pieces, and the data-level checksum of RFC 8684.
//!
//! One's complement addition does not care about order or grouping, so a payload is summed once, while it is copied or
//! verified, and the result is used for the TCP checksum and for the DSS checksum alike.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::dsn::Dsn;
use crate::seq::Ssn;

/// Bytes summed before the sum is folded: 65,536 words, whose upper or lower halves come to less than 2^32.
const BLOCK: usize = 1 << 18;
/// Bytes copied before they are summed: few enough to be read back from the nearest cache.
const COPY_BLOCK: usize = 4096;
/// Below this length vectors cost more than they gain.
const SHORT: usize = 128;

/// A one's complement sum in the making. Remembers whether an odd number of bytes went in, so that pieces of any
/// length can follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Sum of 16-bit words as they lie in memory, folded on reading: one's complement addition commutes with swapping bytes
    /// (RFC 1071 section 2). Each addition adds at most 2^33, so 2^31 of them fit.
    total: u64,
    /// An odd number of bytes was added so far: the next byte is the low half of a word.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Self = Self {
        total: 0,
        odd: false,
    };

    /// The sum of `bytes`, beginning at an even offset.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut sum = Self::ZERO;
        sum.add_bytes(bytes);
        sum
    }

    /// Adds bytes that follow all that was added before.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add_words(sum_words(bytes), bytes.len() % 2 == 1);
    }

    /// The sum of a header whose length is known beforehand: whole words of four bytes.
    #[must_use]
    #[inline]
    pub(crate) fn of_words<const N: usize>(bytes: &[u8; N]) -> Self {
        const { assert!(N.is_multiple_of(4), "headers are whole words of four bytes") };
        let words = bytes.as_chunks::<4>().0.iter();
        let words = words.map(|word| u64::from(u32::from_ne_bytes(*word)));
        Self {
            total: words.sum(),
            odd: false,
        }
    }

    /// Adds two bytes, most significant first.
    pub const fn add_u16(&mut self, value: u16) {
        self.add_words(value.to_be() as u64, false);
    }

    /// Adds four bytes, most significant first.
    pub const fn add_u32(&mut self, value: u32) {
        self.add_words(value.to_be() as u64, false);
    }

    /// Adds eight bytes, most significant first.
    pub const fn add_u64(&mut self, value: u64) {
        self.add_words(value.to_be(), false);
    }

    /// Adds the sum of other bytes. `at_odd` says that those bytes begin at an odd offset of the whole.
    pub const fn combine(&mut self, other: Self, at_odd: bool) {
        self.odd = at_odd;
        self.add_words(other.total, other.odd);
    }

    /// Adds the sum of bytes that follow all that was added before.
    pub const fn append(&mut self, other: Self) {
        self.combine(other, self.odd);
    }

    /// Whether an odd number of bytes was added.
    #[must_use]
    pub const fn is_odd(self) -> bool {
        self.odd
    }

    /// The sum in 16 bits, not complemented: what a device wants in the checksum field when it completes the sum
    /// itself.
    #[must_use]
    pub const fn fold(self) -> u16 {
        u16::from_be(fold64(self.total))
    }

    /// The checksum: the complement of the sum.
    #[must_use]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }

    /// The bytes summed, their checksum field included, are undamaged.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.finish() == 0
    }

    /// Adds words in memory order, of bytes that begin at an even offset of their own.
    const fn add_words(&mut self, words: u64, last_is_odd: bool) {
        self.total += if self.odd {
            fold64(words).swap_bytes() as u64
        } else {
            (words & 0xffff_ffff) + (words >> 32)
        };
        self.odd ^= last_is_odd;
    }
}

/// Brings a sum of 16-bit words into 16 bits by adding the carries back in.
const fn fold64(total: u64) -> u16 {
    let sum = (total & 0xffff_ffff) + (total >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// Sums a few bytes in native order, the last word padded with zero: not folded but by its own carries.
fn sum_short(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    let mut total = 0_u64;
    let mut add = |word: u64| {
        let (sum, carry) = total.overflowing_add(word);
        total = sum + u64::from(carry);
    };
    for part in words {
        let mut word = [0; 8];
        word.copy_from_slice(part);
        add(u64::from_ne_bytes(word));
    }
    // Headers are whole words of four bytes.
    let (word, rest) = match rest.split_first_chunk::<4>() {
        Some((word, rest)) => (u32::from_ne_bytes(*word), rest),
        None => (0, rest),
    };
    add(u64::from(word));
    add(u64::from(last_word(rest)));
    total
}

/// Fewer than four bytes, padded with zero.
fn last_word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(match *bytes {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    })
}

/// The sum, in native order and not folded, of at most [`BLOCK`] bytes, the last word padded with zero.
///
/// The loop keeps the wrapping sum of all 32-bit words and the exact sum of their upper halves; the exact sum of the lower
/// halves is the difference. That is one instruction fewer for each vector than adding both halves, and nothing but plain
/// arithmetic, which a compiler turns into vectors.
fn sum_block(block: &[u8]) -> u64 {
    if block.len() < SHORT {
        return sum_short(block);
    }
    let words = block.chunks_exact(4);
    let last = last_word(words.remainder());
    let (mut all, mut high) = (0_u32, 0_u32);
    for part in words {
        let mut word = [0; 4];
        word.copy_from_slice(part);
        let word = u32::from_ne_bytes(word);
        all = all.wrapping_add(word);
        // Exact for a block; wrapping spares a check that could never fail.
        high = high.wrapping_add(word >> 16);
    }
    let low = all.wrapping_sub(high << 16);
    u64::from(low) + u64::from(high) + u64::from(last)
}

/// The sum, in memory order and not folded, of bytes that begin at an even offset.
fn sum_words(bytes: &[u8]) -> u64 {
    if bytes.len() <= BLOCK {
        return sum_block(bytes);
    }
    // BLOCK is even, so every block begins at an even offset and only the last one has an odd tail. Fewer than 2^44
    // blocks fit into memory, so their sum does not overflow when each is folded.
    bytes
        .chunks(BLOCK)
        .map(|block| u64::from(fold64(sum_block(block))))
        .sum()
}

/// The sum of `bytes`, beginning at an even offset.
#[must_use]
pub fn sum(bytes: &[u8]) -> Sum {
    Sum::of(bytes)
}

/// Copies `src` to `dst` and sums it, fetching each byte from memory once.
///
/// The copy goes ahead by a few kilobytes, whose source the sum then finds in the nearest cache: both run at their own
/// full speed, which one loop doing both does not reach.
///
/// # Panics
/// If the slices differ in length, which only the caller can cause.
#[must_use]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> Sum {
    assert_eq!(
        dst.len(),
        src.len(),
        "copy_and_sum needs slices of equal length"
    );
    let mut total = 0u64;
    for (dst, src) in dst.chunks_mut(COPY_BLOCK).zip(src.chunks(COPY_BLOCK)) {
        dst.copy_from_slice(src);
        // COPY_BLOCK is even, as BLOCK is for `sum_words`.
        total += u64::from(fold64(sum_block(src)));
    }
    let mut sum = Sum::ZERO;
    sum.add_words(total, src.len() % 2 == 1);
    sum
}

/// The TCP pseudo-header over IPv4 (RFC 9293 section 3.1). `len` counts TCP header, options and payload.
#[must_use]
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::ZERO;
    sum.add_u32(src.to_bits());
    sum.add_u32(dst.to_bits());
    sum.add_u16(u16::from(protocol));
    sum.add_u32(len);
    sum
}

/// The pseudo-header over IPv6 (RFC 8200 section 8.1). `len` counts the upper layer's header and payload.
#[must_use]
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::ZERO;
    for part in [src.to_bits(), dst.to_bits()] {
        sum.add_u64((part >> 64) as u64);
        sum.add_u64(part as u64);
    }
    sum.add_u32(len);
    sum.add_u16(u16::from(protocol));
    sum
}

/// The data-level checksum of one mapping: always over the 64-bit number, whatever the wire carries (RFC 8684 section
/// 3.3.1). `payload` is the sum of the mapping's bytes from an even offset; a DATA_FIN adds no byte to it.
#[must_use]
pub fn dss(dsn: Dsn, ssn: Ssn, len: u16, payload: Sum) -> u16 {
    // rfc8684:D9
    let mut sum = Sum::ZERO;
    sum.add_u64(dsn.get());
    sum.add_u32(ssn.get());
    sum.add_u16(len);
    // The checksum field itself counts as zero.
    sum.append(payload);
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// RFC 1071 word by word, to compare with.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// 0 and 0xffff are the same number in one's complement.
    fn same(a: u16, b: u16) -> bool {
        a % 0xffff == b % 0xffff
    }

    #[test]
    fn the_golden_dss_checksum() {
        // rfc8684:D9
        let payload = Sum::of(b"hello mptcp");
        assert_eq!(
            dss(Dsn::new(0x1122_3344_5566_7788), Ssn::new(1), 11, payload),
            0x58d8
        );
    }

    #[test]
    fn a_data_fin_alone_sums_the_pseudo_header_only() {
        // rfc8684:F2
        let alone = dss(Dsn::new(1), Ssn::new(0), 1, Sum::ZERO);
        assert_eq!(alone, !2);
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::of(&bytes).fold(), 0xddf2);
        assert_eq!(Sum::of(&bytes).finish(), !0xddf2);
    }

    #[test]
    fn a_long_run_of_ones_does_not_overflow() {
        let bytes = vec![0xff; 3 * BLOCK + 5];
        assert!(same(sum(&bytes).fold(), reference(&bytes)));
        let mut copy = vec![0; bytes.len()];
        assert!(same(
            copy_and_sum(&mut copy, &bytes).fold(),
            reference(&bytes)
        ));
        assert_eq!(copy, bytes);
    }

    #[test]
    fn the_largest_total_folds() {
        assert_eq!(fold64(u64::MAX), 0xffff);
        assert_eq!(fold64(0), 0);
        assert_eq!(fold64(0x1_0000), 1);
    }

    proptest! {
        #[test]
        fn agrees_with_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..1000)) {
            prop_assert!(same(Sum::of(&bytes).fold(), reference(&bytes)));
        }

        #[test]
        fn pieces_of_any_length_make_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            cuts in proptest::collection::vec(0usize..300, 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let (mut sum, mut combined, mut start) = (Sum::ZERO, Sum::ZERO, 0);
            for end in cuts {
                sum.add_bytes(&bytes[start..end]);
                combined.combine(Sum::of(&bytes[start..end]), start % 2 == 1);
                start = end;
            }
            prop_assert!(same(sum.fold(), reference(&bytes)));
            prop_assert!(same(combined.fold(), reference(&bytes)));
            prop_assert_eq!(sum.is_odd(), bytes.len() % 2 == 1);
            prop_assert_eq!(combined.is_odd(), sum.is_odd());
        }

        #[test]
        fn copying_copies_and_sums(bytes in proptest::collection::vec(any::<u8>(), 0..10_000)) {
            let mut copy = vec![0; bytes.len()];
            let sum = copy_and_sum(&mut copy, &bytes);
            prop_assert_eq!(&copy, &bytes);
            prop_assert_eq!(sum.fold(), Sum::of(&bytes).fold());
            prop_assert_eq!(sum.is_odd(), bytes.len() % 2 == 1);
        }

        #[test]
        fn integers_sum_like_their_bytes(prefix: bool, a: u16, b: u32, c: u64) {
            let mut by_value = Sum::ZERO;
            let mut bytes = Vec::new();
            if prefix {
                by_value.add_bytes(&[9]);
                bytes.push(9);
            }
            by_value.add_u16(a);
            by_value.add_u32(b);
            by_value.add_u64(c);
            bytes.extend(a.to_be_bytes());
            bytes.extend(b.to_be_bytes());
            bytes.extend(c.to_be_bytes());
            prop_assert!(same(by_value.fold(), reference(&bytes)));
        }

        #[test]
        fn a_finished_packet_is_valid(mut bytes in proptest::collection::vec(any::<u8>(), 2..100)) {
            bytes[0] = 0;
            bytes[1] = 0;
            let check = Sum::of(&bytes).finish();
            bytes[..2].copy_from_slice(&check.to_be_bytes());
            prop_assert!(Sum::of(&bytes).is_valid());
        }
    }
}
