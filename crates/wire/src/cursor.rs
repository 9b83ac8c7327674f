//! The only offset arithmetic of the crate: a reader that cannot run past its end and a writer that cannot overflow.

/// What a [`Writer`] answers when its buffer is full. Nothing of the refused value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Takes big-endian values from the front of a byte slice. Every read that does not fit answers `None` and takes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not yet taken.
    #[must_use]
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not yet taken, without taking them.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(count)?;
        self.rest = tail;
        Some(head)
    }

    /// Takes the next `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    /// Takes one byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]: [u8; 1]| byte)
    }

    /// Takes a big-endian 16-bit value.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a big-endian 32-bit value.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a big-endian 64-bit value.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Puts big-endian values into a caller's buffer from its front.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
    written: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `bytes`.
    #[must_use]
    #[inline]
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            rest: bytes,
            written: 0,
        }
    }

    /// Bytes written so far.
    #[must_use]
    #[inline]
    pub const fn written(&self) -> usize {
        self.written
    }

    /// Bytes that still fit.
    #[must_use]
    #[inline]
    pub const fn room(&self) -> usize {
        self.rest.len()
    }

    /// Appends `bytes`, all or nothing.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.next(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    /// The next bytes to write to.
    #[inline]
    fn next(&mut self, count: usize) -> Result<&'a mut [u8], NoRoom> {
        if count > self.rest.len() {
            return Err(NoRoom);
        }
        let (next, rest) = core::mem::take(&mut self.rest).split_at_mut(count);
        self.rest = rest;
        self.written += count;
        Ok(next)
    }

    /// Appends one byte.
    #[inline]
    pub fn u8(&mut self, value: u8) -> Result<(), NoRoom> {
        self.put(&[value])
    }

    /// Appends a big-endian 16-bit value.
    #[inline]
    pub fn u16(&mut self, value: u16) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// Appends a big-endian 32-bit value.
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// Appends a big-endian 64-bit value.
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_past_the_end_takes_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u16(), Some(0x0102));
        assert_eq!(reader.u16(), None);
        assert_eq!(reader.take(2), None);
        assert_eq!(reader.remaining(), 1);
        assert_eq!(reader.rest(), &[3]);
        assert_eq!(reader.u8(), Some(3));
        assert_eq!(reader.u8(), None);
    }

    #[test]
    fn writing_past_the_end_writes_nothing() {
        let mut buffer = [0u8; 5];
        let mut writer = Writer::new(&mut buffer);
        assert_eq!(writer.u32(0x0102_0304), Ok(()));
        assert_eq!(writer.u16(0xffff), Err(NoRoom));
        assert_eq!(writer.room(), 1);
        assert_eq!(writer.u8(5), Ok(()));
        assert_eq!(writer.u8(6), Err(NoRoom));
        assert_eq!(writer.written(), 5);
        assert_eq!(buffer, [1, 2, 3, 4, 5]);
    }
}
