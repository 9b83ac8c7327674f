//! What applications send: bytes that follow from their position, so that a reader can check each one.

/// A pseudo-random stream. Two streams, or two positions of one, have nothing in common.
///
/// It is one table of random bytes over and over, each copy masked with a number of its own that follows from the
/// stream's name and the copy's place. That is as cheap to make and to check as a copy of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    name: u64,
}

const WORD: usize = 8;
/// Bytes of the table: small enough to stay in the processor's nearest cache.
const BLOCK: usize = 16 << 10;

static TABLE: [u8; BLOCK] = table();

const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ (number >> 29)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

const fn table() -> [u8; BLOCK] {
    let mut table = [0; BLOCK];
    let mut at = 0;
    while at < BLOCK {
        let word = mix(at as u64 + 1).to_le_bytes();
        let mut byte = 0;
        while byte < WORD {
            table[at + byte] = word[byte];
            byte += 1;
        }
        at += WORD;
    }
    table
}

impl Pattern {
    /// The stream with this name.
    #[must_use]
    pub const fn new(name: u64) -> Self {
        Self { name: mix(name) }
    }

    /// The piece of the stream from `position` on that lies in one copy of the table, at most `len` bytes, and the mask
    /// of its first eight bytes and every eight that follow.
    fn piece(self, position: u64, len: usize) -> (&'static [u8], u64) {
        let from = (position % BLOCK as u64) as usize;
        let mask = mix(self.name ^ (position / BLOCK as u64));
        let shift = (from % WORD * 8) as u32;
        (
            &TABLE[from..(from + len).min(BLOCK)],
            mask.rotate_right(shift),
        )
    }

    /// Writes the bytes from `position` on.
    pub fn fill(self, position: u64, out: &mut [u8]) {
        let mut at = 0;
        while at < out.len() {
            let (piece, mask) = self.piece(position + at as u64, out.len() - at);
            apply(mask, piece, &mut out[at..at + piece.len()]);
            at += piece.len();
        }
    }

    /// The position of the first byte that is not what it should be.
    #[must_use]
    pub fn first_difference(self, position: u64, bytes: &[u8]) -> Option<u64> {
        let mut at = 0;
        while at < bytes.len() {
            let (piece, mask) = self.piece(position + at as u64, bytes.len() - at);
            let found = &bytes[at..at + piece.len()];
            if differs(mask, piece, found) {
                let mut expected = vec![0; piece.len()];
                apply(mask, piece, &mut expected);
                let right = expected.iter().zip(found).take_while(|(a, b)| a == b);
                return Some(position + (at + right.count()) as u64);
            }
            at += piece.len();
        }
        None
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// Writes `piece` masked to `out`, which is as long.
fn apply(mask: u64, piece: &[u8], out: &mut [u8]) {
    let whole = piece.len() - piece.len() % WORD;
    let (piece, tail) = piece.split_at(whole);
    let (out, tail_out) = out.split_at_mut(whole);
    for (place, bytes) in out.chunks_exact_mut(WORD).zip(piece.chunks_exact(WORD)) {
        place.copy_from_slice(&(word(bytes) ^ mask).to_le_bytes());
    }
    tail_out.copy_from_slice(&(word(tail) ^ mask).to_le_bytes()[..tail.len()]);
}

/// `found`, which is as long, is not `piece` masked.
fn differs(mask: u64, piece: &[u8], found: &[u8]) -> bool {
    let whole = piece.len() - piece.len() % WORD;
    let (piece, tail) = piece.split_at(whole);
    let (found, tail_found) = found.split_at(whole);
    let mut difference = 0;
    for (expected, bytes) in piece.chunks_exact(WORD).zip(found.chunks_exact(WORD)) {
        difference |= word(expected) ^ mask ^ word(bytes);
    }
    // The mask of the tail reaches beyond it.
    let kept = if tail.is_empty() {
        0
    } else {
        u64::MAX >> (64 - 8 * tail.len())
    };
    difference |= (word(tail) ^ mask ^ word(tail_found)) & kept;
    difference != 0
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
        let (pattern, mut bytes) = (Pattern::new(5), [0; 40_000]);
        pattern.fill(77, &mut bytes);
        assert!(pattern.first_difference(78, &bytes).is_some());
        assert!(pattern.first_difference(77 + (1 << 20), &bytes).is_some());
        assert!(Pattern::new(6).first_difference(77, &bytes).is_some());
        assert_eq!(pattern.first_difference(77, &bytes), None);
        for wrong in [0, 1234, 39_999] {
            bytes[wrong] ^= 1;
            assert_eq!(
                pattern.first_difference(77, &bytes),
                Some(77 + wrong as u64)
            );
            bytes[wrong] ^= 1;
        }
    }
}
