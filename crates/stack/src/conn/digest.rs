//! What a stream was like, in 64 bits. Pure.
//!
//! A connection that fell to TCP has no checksums any more. Where it goes on on another subflow, whether both ends speak of the same
//! bytes has to be certain: something on the way may have made more or less of them.

/// Words are spread over all bits by this: an odd number whose bits look random (the golden ratio's).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes of a word.
const WORD: usize = 8;

/// A digest of bytes that come in pieces, whatever the pieces are. It finds what changes by chance, not what somebody means to hide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    words: u64,
    /// The last bytes, which are no whole word yet.
    rest: u64,
    len: u64,
}

impl Digest {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        let into = (self.len % WORD as u64) as usize;
        self.len = self.len.wrapping_add(bytes.len() as u64);
        if into > 0 {
            let (first, others) = bytes.split_at(bytes.len().min(WORD - into));
            self.begin(into, first);
            if into + first.len() == WORD {
                self.fold(self.rest);
                self.rest = 0;
            }
            bytes = others;
        }
        let mut words = bytes.chunks_exact(WORD);
        for word in &mut words {
            self.fold(word.try_into().map_or(0, u64::from_le_bytes));
        }
        self.begin(0, words.remainder());
    }

    /// Puts bytes into a word of which there are so many already.
    fn begin(&mut self, into: usize, bytes: &[u8]) {
        for (at, byte) in (into..).zip(bytes) {
            self.rest |= u64::from(*byte) << (8 * at);
        }
    }

    fn fold(&mut self, word: u64) {
        self.words = (self.words ^ word).wrapping_mul(SPREAD).rotate_left(29);
    }

    pub(super) fn value(&self) -> u64 {
        let mut all = *self;
        all.fold(self.rest);
        all.fold(self.len);
        all.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]]) -> u64 {
        let mut digest = Digest::default();
        pieces.iter().for_each(|piece| digest.feed(piece));
        digest.value()
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes: alloc::vec::Vec<u8> = (0..200u8).map(|n| n.wrapping_mul(37)).collect();
        for first in 0..30 {
            for second in first..60 {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(of(&pieces), of(&[&bytes]), "{first} {second}");
            }
        }
    }

    #[test]
    fn whatever_differs_shows() {
        let bytes = [7; 41];
        let other = |at: usize, by: u8| {
            let mut bytes = bytes;
            bytes[at] ^= by;
            of(&[&bytes])
        };
        for at in 0..bytes.len() {
            assert_ne!(other(at, 1), of(&[&bytes]), "{at}");
            assert_ne!(of(&[&bytes[..at]]), of(&[&bytes]), "{at}");
        }
        assert_ne!(of(&[&[0; 8]]), of(&[&[0; 16]]));
        assert_ne!(of(&[&[0]]), of(&[&[]]));
    }
}
