//! What the fuzzer decides, byte by byte; zeros when it has nothing more to say.

/// The rest of an input.
pub(crate) struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub(crate) fn half(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// A number below `count`, which is not zero.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// A distance, most often none, else a short one, seldom any.
    pub(crate) fn near(&mut self) -> u32 {
        match self.byte() {
            0..128 => 0,
            128..160 => u32::from(self.byte()),
            160..192 => u32::from(self.byte()).wrapping_neg(),
            192..248 => u32::from(self.half()),
            _ => u32::from(self.half()) << 16 | u32::from(self.half()),
        }
    }

    /// The same for 64-bit numbers.
    pub(crate) fn near_long(&mut self) -> u64 {
        let low = self.near();
        match low {
            0 => 0,
            // The sign of what is short, and now and then something in the upper half.
            _ if low & 0x7 == 0x7 => u64::from(low) << 32 | u64::from(self.near()),
            _ => i64::from(low.cast_signed()).cast_unsigned(),
        }
    }
}
