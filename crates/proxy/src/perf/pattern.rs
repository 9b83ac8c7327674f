//! Data to send: cheap to make, different at every place, the same for the same seed.

/// Bytes per block; each block carries its number, so that blocks cannot be swapped unseen.
const BLOCK: usize = 256 * 1024;

/// An endless stream of data.
#[derive(Debug)]
pub(crate) struct Pattern {
    block: Vec<u8>,
    number: u64,
    at: usize,
}

impl Pattern {
    /// The stream of that seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        let mut block = Vec::with_capacity(BLOCK);
        while block.len() < BLOCK {
            // A multiplicative congruential step with a mixed output: noise that does not compress.
            state = state
                .wrapping_mul(0x5851_F42D_4C95_7F2D)
                .wrapping_add(0x1405_7B7E_F767_814F);
            let word = (state ^ (state >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            block.extend_from_slice(&word.to_le_bytes());
        }
        block[..8].fill(0);
        Self {
            block,
            number: 0,
            at: 0,
        }
    }

    /// The next bytes, at most `limit` and at least one (for a limit above zero). They stay next until [`Self::advance`].
    pub(crate) fn next(&self, limit: u64) -> &[u8] {
        let rest = &self.block[self.at..];
        let len = usize::try_from(limit).unwrap_or(usize::MAX).min(rest.len());
        &rest[..len]
    }

    /// Goes on behind `len` of the bytes that [`Self::next`] gave.
    pub(crate) fn advance(&mut self, len: usize) {
        self.at += len;
        if self.at >= self.block.len() {
            self.at = 0;
            self.number += 1;
            self.block[..8].copy_from_slice(&self.number.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(seed: u64, total: usize, step: u64) -> Vec<u8> {
        let mut pattern = Pattern::new(seed);
        let mut out = Vec::new();
        while out.len() < total {
            let next = pattern.next(step.min((total - out.len()) as u64)).to_vec();
            pattern.advance(next.len());
            out.extend(next);
        }
        out
    }

    #[test]
    fn steps_do_not_change_the_stream_and_seeds_do() {
        let len = 2 * BLOCK + 1000;
        assert!(take(1, len, 1 << 20) == take(1, len, 777));
        assert!(take(1, 100, 100) != take(2, 100, 100));
    }

    #[test]
    fn no_block_is_like_another() {
        let data = take(1, 3 * BLOCK, 1 << 20);
        assert!(data[..BLOCK] != data[BLOCK..2 * BLOCK]);
        assert!(data[BLOCK..2 * BLOCK] != data[2 * BLOCK..]);
    }
}
