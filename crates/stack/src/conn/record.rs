//! The record of a restart: how it is written, and how it is found among bytes that no mapping covers. Pure.
//!
//! It is written in bytes that no text has, for boxes that rewrite payload look for text. And it says the same twice, for
//! something that damages payload may be why it is sent: either half does. Besides where the stream goes on it says what its
//! sender read since the first one, for then nothing but subflows vouched for that.

use alloc::vec::Vec;

use manypath_wire::dsn::Dsn;
use manypath_wire::seq::Ssn;

use super::digest::Digest;
use crate::crypto::mac::{Keys, RestartCode, equal};

/// Bytes of a code, each half of a byte written as one.
const CODE: usize = 24;
/// Bytes of a check of what it says: half a record counts, so damage has to show in either.
const CHECK: usize = 8;
/// Bytes of a number.
const NUMBER: usize = 16;
/// Bytes of one half.
const HALF: usize = CODE + CHECK + 2 * NUMBER;
/// Bytes of a record.
pub(super) const RECORD: usize = 2 * HALF;
/// The part of a code that is looked for; the rest is compared in a time that says nothing about it.
const HEAD: usize = 8;
/// What half a byte is added to.
const NO_TEXT: u8 = 0x80;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Its sender has everything before this.
    pub(super) ack: Dsn,
    /// What it read since the first record that it got.
    pub(super) digest: u64,
}

/// What the halves of a record begin with: 96 bits each that only the holders of both keys can compute.
#[derive(Debug)]
pub(super) struct Code([[u8; CODE]; 2]);

impl Code {
    /// That of the holder of `keys.sender`.
    pub(super) fn of(keys: Keys) -> Self {
        let whole = RestartCode::compute(keys).0;
        let (first, second) = whole.split_at(whole.len() / 2);
        let code = |half: &[u8]| spell(&half[..CODE / 2]);
        Self([code(first), code(second)])
    }

    /// The record that says this.
    pub(super) fn record(&self, what: Said) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let numbers =
            [what.ack.get(), what.digest].map(|number| spell::<NUMBER>(&number.to_be_bytes()));
        for (half, code) in bytes.chunks_exact_mut(HALF).zip(&self.0) {
            half[..CODE].copy_from_slice(code);
            half[CODE..][..CHECK].copy_from_slice(&check(code, numbers.as_flattened()));
            half[CODE + CHECK..].copy_from_slice(numbers.as_flattened());
        }
        bytes
    }

    /// What a record says of which one half is among these bytes, and where it ends, be that behind them.
    fn find(&self, bytes: &[u8]) -> Option<(Said, usize)> {
        let [first, second] = &self.0;
        let all = bytes.windows(HALF).enumerate();
        let mut halves = all.filter_map(|(at, part)| Some((at, part.first_chunk::<HALF>()?)));
        halves.find_map(|(at, half)| match &half[..HEAD] {
            head if *head == first[..HEAD] => Some((said(first, half)?, at + RECORD)),
            head if *head == second[..HEAD] => Some((said(second, half)?, at + HALF)),
            _ => None,
        })
    }
}

/// What half a record says, if it begins with this code and is whole.
fn said(code: &[u8; CODE], half: &[u8; HALF]) -> Option<Said> {
    let (found, rest) = half.split_first_chunk::<CODE>()?;
    let (sum, numbers) = rest.split_first_chunk::<CHECK>()?;
    if *sum != check(code, numbers) {
        return None;
    }
    let (ack, digest) = numbers.split_first_chunk::<NUMBER>()?;
    let what = Said {
        ack: Dsn::new(read(ack)?),
        digest: read(digest)?,
    };
    equal(found, code).then_some(what)
}

/// The check of numbers as they are written behind a code.
fn check(code: &[u8; CODE], numbers: &[u8]) -> [u8; CHECK] {
    let mut digest = Digest::default();
    digest.feed(code);
    digest.feed(numbers);
    let whole = digest.value();
    spell(&((whole ^ whole >> 32) as u32).to_be_bytes())
}

/// The number that is spelt here.
fn read(spelt: &[u8]) -> Option<u64> {
    let mut nibbles = spelt.iter().map(|byte| byte ^ NO_TEXT);
    nibbles.try_fold(0, |number, nibble| match nibble {
        ..16 => Some(number << 4 | u64::from(nibble)),
        _ => None,
    })
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
    /// Looks for a record of which a half ends in these bytes, which lie at `ssn`. Gives what it says, and how many bytes from
    /// there on are before its end.
    pub(super) fn look(&mut self, code: &Code, ssn: Ssn, bytes: &[u8]) -> Option<(Said, usize)> {
        if self.next != Some(ssn) {
            self.tail.clear();
        }
        self.next = Some(ssn + bytes.len() as u32);
        let before = self.tail.len();
        let seam = &bytes[..bytes.len().min(HALF - 1)];
        self.tail.extend_from_slice(seam);
        let across = code
            .find(&self.tail)
            .map(|(what, end)| (what, end - before));
        if seam.len() == HALF - 1 {
            self.tail.clear();
            self.tail
                .extend_from_slice(&bytes[bytes.len() - seam.len()..]);
        }
        let kept = self.tail.len().min(HALF - 1);
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

    /// Codes that begin like themselves more than once.
    const TWICE: Code = {
        let (mut first, mut second) = ([0x87; CODE], [0x87; CODE]);
        first[CODE - 1] = 0x88;
        second[CODE - 1] = 0x89;
        Code([first, second])
    };
    const PLAIN: Code = Code([[1; CODE], [2; CODE]]);

    #[test]
    fn a_record_has_no_byte_of_a_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        let spelt: [u8; 512] = spell(&bytes);
        assert!(spelt.iter().all(|byte| (0x80..0x90).contains(byte)));
        assert_eq!(spelt[..4], [0x80, 0x80, 0x80, 0x81]);
        assert_eq!(spelt[510..], [0x8f, 0x8f]);
    }

    const fn says(ack: u64, digest: u64) -> Said {
        let ack = Dsn::new(ack);
        Said { ack, digest }
    }

    /// What is found first in a stream that comes in pieces, and at which byte of it the record is over.
    fn found_in(code: &Code, pieces: &[&[u8]]) -> Option<(Said, usize)> {
        let start = Ssn::new(u32::MAX - 60);
        let (mut finder, mut at) = (Finder::default(), 0);
        let mut found = None;
        for piece in pieces {
            let end = finder.look(code, start + at as u32, piece);
            found = found.or(end.map(|(ack, end)| (ack, at + end)));
            at += piece.len();
            assert!(finder.tail.len() < HALF);
        }
        found
    }

    #[test]
    fn a_record_is_found_however_it_is_cut() {
        for code in [PLAIN, TWICE] {
            let record = code.record(says(77, u64::MAX - 3));
            let stream = [&[0x87; 100][..], &record, b"and what follows"].concat();
            for first in 1..stream.len() {
                for size in [1, 7, HALF - 1, HALF, HALF + 1, 1000] {
                    let mut pieces = alloc::vec![&stream[..first]];
                    pieces.extend(stream[first..].chunks(size));
                    let found = found_in(&code, &pieces);
                    assert_eq!(
                        found,
                        Some((says(77, u64::MAX - 3), 100 + RECORD)),
                        "{first} {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn either_half_is_enough() {
        for damaged in 0..RECORD {
            let mut record = PLAIN.record(says(u64::MAX - 5, 6));
            record[damaged] ^= 1 << (damaged % 8);
            let found = found_in(&PLAIN, &[&record, b"data"]);
            assert_eq!(found, Some((says(u64::MAX - 5, 6), RECORD)), "{damaged}");
        }
    }

    #[test]
    fn what_is_not_in_one_piece_is_no_record() {
        let bytes = PLAIN.record(says(5, 7));
        let mut finder = Finder::default();
        assert_eq!(finder.look(&PLAIN, Ssn::new(1), &bytes[..20]), None);
        assert_eq!(finder.look(&PLAIN, Ssn::new(22), &bytes[20..HALF]), None);
        let rest = &bytes[HALF..RECORD - 1];
        assert_eq!(finder.look(&PLAIN, Ssn::new(100), rest), None);
        let mut other = bytes;
        (other[30], other[RECORD - 6]) = (0, 0);
        assert_eq!(finder.look(&PLAIN, Ssn::new(1000), &other), None);
    }
}
