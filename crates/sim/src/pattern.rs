//! What applications send: bytes that follow from their position, so that a reader can check each one.

/// A pseudo-random stream. Two streams, or two positions of one, have nothing in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    seed: u32,
}

const WORD: usize = 4;
/// Bytes that are made at a time for a comparison.
const BLOCK: usize = 512;

impl Pattern {
    /// The stream with this name.
    #[must_use]
    pub fn new(name: u64) -> Self {
        let mixed = name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            seed: (mixed >> 32) as u32 | 1,
        }
    }

    fn word(self, index: u32) -> [u8; WORD] {
        // Enough to make neighbours differ everywhere, and little enough to be made several words at a time.
        let word = (index ^ self.seed).wrapping_mul(0x9e37_79b1);
        (word ^ (word >> 15)).to_le_bytes()
    }

    /// Writes the bytes from `position` on.
    pub fn fill(self, position: u64, out: &mut [u8]) {
        let lead = (position % WORD as u64) as usize;
        let mut index = (position / WORD as u64) as u32;
        let mut rest = out;
        if lead > 0 {
            let word = self.word(index);
            let count = (WORD - lead).min(rest.len());
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&word[lead..lead + count]);
            rest = tail;
            index = index.wrapping_add(1);
        }
        let mut words = rest.chunks_exact_mut(WORD);
        for place in &mut words {
            place.copy_from_slice(&self.word(index));
            index = index.wrapping_add(1);
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&self.word(index)[..tail.len()]);
    }

    /// The position of the first byte that is not what it should be.
    #[must_use]
    pub fn first_difference(self, position: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; BLOCK];
        let mut at = position;
        for block in bytes.chunks(BLOCK) {
            let expected = &mut expected[..block.len()];
            self.fill(at, expected);
            if expected != block {
                let same = expected.iter().zip(block).take_while(|(a, b)| a == b);
                return Some(at + same.count() as u64);
            }
            at += block.len() as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_is_a_piece_of_the_whole() {
        let (pattern, mut whole) = (Pattern::new(5), [0; 2000]);
        pattern.fill(1_000_001, &mut whole);
        for (from, to) in [(0, 0), (0, 1), (1, 3), (2, 9), (7, 1999), (1003, 1004)] {
            let mut piece = vec![0; to - from];
            pattern.fill(1_000_001 + from as u64, &mut piece);
            assert_eq!(piece, whole[from..to]);
            assert_eq!(
                pattern.first_difference(1_000_001 + from as u64, &piece),
                None
            );
        }
    }

    #[test]
    fn a_wrong_byte_is_found_and_a_wrong_place_is_wrong() {
        let (pattern, mut bytes) = (Pattern::new(5), [0; 2000]);
        pattern.fill(77, &mut bytes);
        assert!(pattern.first_difference(78, &bytes).is_some());
        assert!(pattern.first_difference(77 + (1 << 20), &bytes).is_some());
        assert!(Pattern::new(6).first_difference(77, &bytes).is_some());
        bytes[1234] ^= 1;
        assert_eq!(pattern.first_difference(77, &bytes), Some(77 + 1234));
    }
}
