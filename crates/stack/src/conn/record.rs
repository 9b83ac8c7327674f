//! The record of a restart: how it is written, and how it is found among bytes that no mapping covers. Pure.
//!
//! It is written in bytes that no text has, for boxes that rewrite payload look for text.

use alloc::vec::Vec;

use manypath_wire::dsn::Dsn;
use manypath_wire::seq::Ssn;

use crate::crypto::mac::{Keys, RestartCode, equal};

/// Bytes of a code, each half of a byte written as one.
const CODE: usize = 32;
/// Bytes of a number.
const NUMBER: usize = 16;
/// Bytes of a record.
pub(super) const RECORD: usize = CODE + NUMBER;
/// The part of a code that is looked for; the rest is compared in a time that says nothing about it.
const HEAD: usize = 8;
/// What half a byte is added to.
const NO_TEXT: u8 = 0x80;

/// What a record begins with: 128 bits that only the holders of both keys can compute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code([u8; CODE]);

impl Code {
    /// That of the holder of `keys.sender`.
    pub(super) fn of(keys: Keys) -> Self {
        Self(spell(&RestartCode::compute(keys).0))
    }

    /// The record that says a Data ACK.
    pub(super) fn record(&self, ack: Dsn) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let (code, number) = bytes.split_at_mut(CODE);
        code.copy_from_slice(&self.0);
        number.copy_from_slice(&spell::<NUMBER>(&ack.get().to_be_bytes()));
        bytes
    }

    /// What the first record among these bytes that begins with the code says, and where it ends.
    fn find(&self, bytes: &[u8]) -> Option<(Dsn, usize)> {
        let whole = bytes.windows(RECORD).enumerate();
        let records = whole.filter_map(|(at, part)| Some((at, part.first_chunk::<RECORD>()?)));
        let mut records = records.filter(|(_, record)| record[..HEAD] == self.0[..HEAD]);
        records.find_map(|(at, record)| {
            let (found, number) = record.split_first_chunk::<CODE>()?;
            let halves = number.iter().map(|byte| byte ^ NO_TEXT);
            let ack = halves.fold(Some(0), |ack, half| match half {
                ..16 => Some(ack? << 4 | u64::from(half)),
                _ => None,
            })?;
            equal(found, &self.0).then_some((Dsn::new(ack), at + RECORD))
        })
    }
}

/// Writes each half of these bytes as one, the upper half first.
fn spell<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    let mut out = [NO_TEXT; N];
    for (place, half) in out.iter_mut().zip(halves) {
        *place |= half;
    }
    out
}

/// What a subflow brought last that no mapping covers: the beginning of a record may be there.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    tail: Vec<u8>,
    next: Option<Ssn>,
}

impl Finder {
    /// Looks for a record that ends in these bytes, which lie at `ssn`. Gives what it says, and how many of the bytes are before
    /// its end.
    pub(super) fn look(&mut self, code: &Code, ssn: Ssn, bytes: &[u8]) -> Option<(Dsn, usize)> {
        if self.next != Some(ssn) {
            self.tail.clear();
        }
        self.next = Some(ssn + bytes.len() as u32);
        let before = self.tail.len();
        let seam = &bytes[..bytes.len().min(RECORD - 1)];
        self.tail.extend_from_slice(seam);
        let across = code.find(&self.tail).map(|(ack, end)| (ack, end - before));
        if seam.len() == RECORD - 1 {
            self.tail.clear();
            self.tail
                .extend_from_slice(&bytes[bytes.len() - seam.len()..]);
        }
        let kept = self.tail.len().min(RECORD - 1);
        self.tail.drain(..self.tail.len() - kept);
        across.or_else(|| code.find(bytes))
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.tail.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code that begins like itself more than once.
    const TWICE: Code = {
        let mut code = [0x87; CODE];
        code[CODE - 1] = 0x88;
        Code(code)
    };

    #[test]
    fn a_record_has_no_byte_of_a_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        let spelt: [u8; 512] = spell(&bytes);
        assert!(spelt.iter().all(|byte| (0x80..0x90).contains(byte)));
        assert_eq!(spelt[..4], [0x80, 0x80, 0x80, 0x81]);
        assert_eq!(spelt[510..], [0x8f, 0x8f]);
    }

    #[test]
    fn a_record_is_found_however_it_is_cut() {
        let start = Ssn::new(u32::MAX - 60);
        for code in [Code(core::array::from_fn(|n| n as u8 + 1)), TWICE] {
            let record = code.record(Dsn::new(77));
            let stream = [&[0x87; 100][..], &record, b"and what follows"].concat();
            for first in 1..stream.len() {
                for piece in [1, 7, 47, 48, 49, 1000] {
                    let mut finder = Finder::default();
                    let mut at = 0;
                    let mut found = None;
                    let head = [&stream[..first]].into_iter();
                    for part in head.chain(stream[first..].chunks(piece)) {
                        let end = finder.look(&code, start + at, part);
                        found = found.or(end.map(|(ack, end)| (ack, at as usize + end)));
                        at += part.len() as u32;
                        assert!(finder.tail.len() < RECORD);
                    }
                    assert_eq!(found, Some((Dsn::new(77), 148)), "{first} {piece}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_in_one_piece_is_no_record() {
        let bytes = TWICE.record(Dsn::new(5));
        let mut finder = Finder::default();
        assert_eq!(finder.look(&TWICE, Ssn::new(1), &bytes[..20]), None);
        assert_eq!(finder.look(&TWICE, Ssn::new(22), &bytes[20..]), None);
        for broken in [30, 47] {
            let mut other = bytes;
            other[broken] ^= 0x10;
            assert_eq!(finder.look(&TWICE, Ssn::new(100), &other), None);
        }
        assert_eq!(finder.look(&TWICE, Ssn::new(148), &bytes[..47]), None);
    }
}
