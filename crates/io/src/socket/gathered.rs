//! A write from several buffers.

use std::io::IoSlice;

/// What is left of several buffers, to be copied out in order.
pub(super) struct Gathered<'a> {
    parts: std::slice::Iter<'a, IoSlice<'a>>,
    /// The rest of the part that has begun.
    rest: &'a [u8],
}

impl<'a> Gathered<'a> {
    pub(super) fn new(parts: &'a [IoSlice<'a>]) -> Self {
        Gathered {
            parts: parts.iter(),
            rest: &[],
        }
    }

    /// Fills `place` with the next bytes; what they do not fill stays as it is.
    pub(super) fn fill(&mut self, mut place: &mut [u8]) {
        while !place.is_empty() {
            if self.rest.is_empty() {
                match self.parts.next() {
                    Some(part) => self.rest = part,
                    None => return,
                }
                continue;
            }
            let count = place.len().min(self.rest.len());
            let (now, later) = place.split_at_mut(count);
            let (bytes, rest) = self.rest.split_at(count);
            now.copy_from_slice(bytes);
            (place, self.rest) = (later, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_out_in_order_whatever_the_places_are_like() {
        let parts = ["", "ab", "", "cdefg", "h"].map(|text| IoSlice::new(text.as_bytes()));
        for size in 1..=9 {
            let mut gathered = Gathered::new(&parts);
            let mut all = Vec::new();
            for from in (0..8).step_by(size) {
                let mut place = vec![b'.'; size.min(8 - from)];
                gathered.fill(&mut place);
                all.extend(place);
            }
            assert_eq!(all, b"abcdefgh", "{size}");
        }
    }
}
