//! What a reader may find where the network rewrites or damages payload: bytes that follow from what was sent and from
//! what the boxes on the way do, and nothing else.

use crate::middlebox::BoxSpec;
use crate::pattern::Pattern;

/// What the network may do to the bytes of streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alterations {
    /// What may be replaced, and by what. Each is looked for in what was sent, not in what another one wrote.
    rewrites: Vec<[Vec<u8>; 2]>,
    /// Any byte may be changed to another one.
    damages: bool,
}

impl Alterations {
    /// What these boxes may do.
    pub fn of<'b>(boxes: impl Iterator<Item = &'b BoxSpec>) -> Self {
        let mut all = Self::default();
        for spec in boxes {
            match spec {
                BoxSpec::Rewrite(spec) if !spec.find.is_empty() => {
                    let both = [&spec.find, &spec.replace].map(|text| text.as_bytes().to_vec());
                    all.rewrites.push(both);
                }
                BoxSpec::Corrupt(_) => all.damages = true,
                _ => {}
            }
        }
        all
    }

    /// The bytes arrive as they were sent.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.rewrites.is_empty() && !self.damages
    }
}

/// A way to explain what has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Explanation {
    /// How much of what was sent it explains.
    position: u64,
    /// Within a replacement: which, and how many of its bytes have been read.
    within: Option<(usize, usize)>,
    /// How many replacements it needs.
    replaced: u64,
}

/// The reading end of a stream.
#[derive(Debug)]
pub struct Reader {
    explanations: Vec<Explanation>,
    /// The furthest that any explanation reached, what vanished after it included.
    furthest: u64,
    damaged: u64,
    /// There were too many explanations to follow: whatever is read may have come about somehow.
    lost: bool,
    block: Block,
}

/// More explanations than this, or more that has vanished in a row, are not followed. Streams of an application have
/// little of both.
const MOST: usize = 256;

/// A piece of what was sent.
#[derive(Debug)]
struct Block {
    number: Option<(Pattern, u64)>,
    bytes: [u8; BLOCK as usize],
}

const BLOCK: u64 = 1024;

impl Block {
    fn byte(&mut self, pattern: Pattern, position: u64) -> u8 {
        let number = Some((pattern, position / BLOCK));
        if self.number != number {
            pattern.fill(position / BLOCK * BLOCK, &mut self.bytes);
            self.number = number;
        }
        self.bytes[(position % BLOCK) as usize]
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::at(0)
    }
}

impl Reader {
    /// A reader that has read everything before `position`.
    #[must_use]
    pub fn at(position: u64) -> Self {
        Self {
            explanations: vec![Explanation {
                position,
                within: None,
                replaced: 0,
            }],
            furthest: position,
            damaged: 0,
            lost: false,
            block: Block {
                number: None,
                bytes: [0; BLOCK as usize],
            },
        }
    }

    /// How much of what was sent has been read, as far as can be told.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.furthest
    }

    /// Replacements and damaged bytes that were read, at least.
    #[must_use]
    pub fn altered(&self) -> u64 {
        let replaced = self.explanations.iter().map(|e| e.replaced).min();
        self.damaged + replaced.unwrap_or(0)
    }

    /// Reads on. An error says what is wrong with the bytes; `end` is how many were or will be sent.
    pub fn read(
        &mut self,
        alterations: &Alterations,
        pattern: Pattern,
        end: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        if alterations.rewrites.is_empty() {
            return self.read_in_place(alterations, pattern, end, bytes);
        }
        if alterations.damages || self.lost {
            // Whatever is read may have come about somehow.
            self.damaged += bytes.len() as u64;
            self.furthest = end.min(self.furthest + bytes.len() as u64);
            return Ok(());
        }
        for byte in bytes {
            let explained = std::mem::take(&mut self.explanations);
            for explanation in &explained {
                self.explain(alterations, pattern, end, *byte, *explanation, 0);
            }
            if self.lost || self.explanations.len() > MOST {
                self.lost = true;
                self.furthest = self.furthest.max(self.reached(alterations, pattern, end));
                return Ok(());
            }
            if self.explanations.is_empty() {
                let at = explained.iter().map(|e| e.position).max().unwrap_or(0);
                self.explanations = explained;
                return Err(format!(
                    "byte {at} of the stream is neither what was sent nor what replaces it"
                ));
            }
        }
        self.furthest = self.furthest.max(self.reached(alterations, pattern, end));
        Ok(())
    }

    /// The furthest position that is explained, with what may have vanished after it.
    fn reached(&mut self, alterations: &Alterations, pattern: Pattern, end: u64) -> u64 {
        let mut at = self
            .explanations
            .iter()
            .map(|explanation| explanation.position)
            .max()
            .unwrap_or(0);
        loop {
            let mut vanishing = alterations
                .rewrites
                .iter()
                .filter(|[_, new]| new.is_empty());
            let next = vanishing.find_map(|[find, _]| {
                let mut sent = find.iter().zip(at..);
                let here = at + find.len() as u64 <= end
                    && sent.all(|(wanted, at)| self.block.byte(pattern, at) == *wanted);
                here.then_some(at + find.len() as u64)
            });
            match next {
                Some(next) => at = next,
                None => return at,
            }
        }
    }

    /// Reads bytes that are where they were sent, changed or not.
    fn read_in_place(
        &mut self,
        alterations: &Alterations,
        pattern: Pattern,
        end: u64,
        bytes: &[u8],
    ) -> Result<(), String> {
        let position = self.position();
        let after = position + bytes.len() as u64;
        if after > end {
            return Err(format!("more than the {end} bytes that were sent arrived"));
        }
        match pattern.first_difference(position, bytes) {
            None => {}
            Some(at) if !alterations.damages => {
                return Err(format!("byte {at} of the stream is not what was sent"));
            }
            Some(_) => {
                let mut sent = vec![0; bytes.len()];
                pattern.fill(position, &mut sent);
                let differing = sent.iter().zip(bytes).filter(|(sent, got)| sent != got);
                self.damaged += differing.count() as u64;
            }
        }
        for explanation in &mut self.explanations {
            explanation.position = after;
        }
        self.furthest = after;
        Ok(())
    }

    /// Adds the ways to go on from an explanation with one more byte.
    fn explain(
        &mut self,
        alterations: &Alterations,
        pattern: Pattern,
        end: u64,
        byte: u8,
        from: Explanation,
        vanished: usize,
    ) {
        if vanished > MOST {
            self.lost = true;
        }
        if self.lost {
            return;
        }
        let Explanation {
            position,
            within,
            replaced,
        } = from;
        if let Some((which, read)) = within {
            let [find, replace] = &alterations.rewrites[which];
            if replace[read] == byte {
                self.go_on(find.len(), replace.len(), from, which, read + 1);
            }
            return;
        }
        if position < end && self.block.byte(pattern, position) == byte {
            self.add(Explanation {
                position: position + 1,
                ..from
            });
        }
        for (which, [find, replace]) in alterations.rewrites.iter().enumerate() {
            let mut sent = find.iter().zip(position..end);
            let here = position + find.len() as u64 <= end
                && sent.all(|(wanted, at)| self.block.byte(pattern, at) == *wanted);
            match replace.first() {
                _ if !here => {}
                // Nothing is left of it: the byte must be explained by what follows.
                None => self.explain(
                    alterations,
                    pattern,
                    end,
                    byte,
                    Explanation {
                        position: position + find.len() as u64,
                        within: None,
                        replaced: replaced + 1,
                    },
                    vanished + 1,
                ),
                Some(first) if *first == byte => {
                    self.go_on(find.len(), replace.len(), from, which, 1);
                }
                Some(_) => {}
            }
        }
    }

    fn go_on(&mut self, find: usize, replace: usize, from: Explanation, which: usize, read: usize) {
        self.add(if read == replace {
            Explanation {
                position: from.position + find as u64,
                within: None,
                replaced: from.replaced + 1,
            }
        } else {
            Explanation {
                within: Some((which, read)),
                ..from
            }
        });
    }

    fn add(&mut self, new: Explanation) {
        let same =
            |known: &&mut Explanation| (known.position, known.within) == (new.position, new.within);
        match self.explanations.iter_mut().find(same) {
            Some(known) => known.replaced = known.replaced.min(new.replaced),
            None => self.explanations.push(new),
        }
    }

    /// The stream has ended: what was sent is explained to its end, perhaps by replacements with nothing.
    pub fn ended(
        &mut self,
        alterations: &Alterations,
        pattern: Pattern,
        end: u64,
    ) -> Result<(), String> {
        let at = self.furthest.max(self.reached(alterations, pattern, end));
        let known = |e: &Explanation| e.position == end && e.within.is_none();
        let anything = self.lost || alterations.damages && !alterations.rewrites.is_empty();
        if anything
            || self.explanations.iter().any(known)
            || self.reached(alterations, pattern, end) == end
        {
            self.furthest = end;
            return Ok(());
        }
        Err(format!("the stream ended after {at} of {end} bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::{CorruptSpec, RewriteSpec};

    const END: u64 = 5000;

    fn sent() -> (Pattern, Vec<u8>) {
        let pattern = Pattern::new(3);
        let mut bytes = vec![0; END as usize];
        pattern.fill(0, &mut bytes);
        (pattern, bytes)
    }

    fn rewriting(replace: &str) -> Alterations {
        let spec = RewriteSpec {
            find: "x".into(),
            replace: replace.into(),
            way: None,
        };
        Alterations::of([BoxSpec::Rewrite(spec)].iter())
    }

    /// What is read when the boxes act from `from` on.
    fn rewritten(bytes: &[u8], from: usize, replace: &str) -> Vec<u8> {
        let mut all = bytes[..from].to_vec();
        for byte in &bytes[from..] {
            match byte {
                b'x' => all.extend(replace.as_bytes()),
                byte => all.push(*byte),
            }
        }
        all
    }

    fn verdict(alterations: &Alterations, bytes: &[u8]) -> Result<(u64, u64), String> {
        let (pattern, _) = sent();
        let mut reader = Reader::default();
        for piece in bytes.chunks(700) {
            reader.read(alterations, pattern, END, piece)?;
        }
        reader.ended(alterations, pattern, END)?;
        Ok((reader.position(), reader.altered()))
    }

    #[test]
    fn what_was_sent_is_right_and_what_replaces_it_too() {
        let (_, bytes) = sent();
        let count = |from: usize| bytes[from..].iter().filter(|b| **b == b'x').count() as u64;
        assert!(count(0) > 5);
        for replace in ["", "y", "x", "xx", "<ex>"] {
            let alterations = rewriting(replace);
            assert_eq!(verdict(&alterations, &bytes), Ok((END, 0)), "{replace}");
            for from in [0, 2500] {
                let read = rewritten(&bytes, from, replace);
                let altered = if replace == "x" { 0 } else { count(from) };
                assert_eq!(
                    verdict(&alterations, &read),
                    Ok((END, altered)),
                    "{replace}"
                );
            }
        }
    }

    #[test]
    fn everything_else_is_wrong() {
        let (_, bytes) = sent();
        let plain = Alterations::default();
        assert!(plain.are_none());
        assert_eq!(verdict(&plain, &bytes), Ok((END, 0)));
        for alterations in [&plain, &rewriting("yy"), &rewriting("")] {
            let mut wrong = bytes.clone();
            wrong[1234] ^= 1;
            assert!(verdict(alterations, &wrong).is_err());
            assert!(verdict(alterations, &bytes[..4999]).is_err());
            assert!(verdict(alterations, &[bytes.as_slice(), b"y"].concat()).is_err());
            let twice = [&bytes[..100], &bytes[50..]].concat();
            assert!(verdict(alterations, &twice).is_err());
        }
    }

    #[test]
    fn what_is_both_damaged_and_rewritten_cannot_be_checked() {
        let mut alterations = rewriting("yy");
        alterations.damages = true;
        assert!(verdict(&alterations, &[7; 6000]).is_ok());
        assert!(verdict(&alterations, &[7; 10]).is_ok());
    }

    #[test]
    fn a_stream_that_can_be_explained_in_too_many_ways_ends_all_the_same() {
        let (_, bytes) = sent();
        let both = ["", "xx"].map(|replace| rewriting(replace).rewrites.remove(0));
        // Every byte may vanish, or become two.
        let rewrites = (0..=255u8).flat_map(|byte| both.clone().map(|[_, new]| [vec![byte], new]));
        let alterations = Alterations {
            rewrites: rewrites.collect(),
            damages: false,
        };
        assert!(verdict(&alterations, &[b'x'; 9000]).is_ok());
        assert_eq!(verdict(&alterations, &bytes).map(|(read, _)| read), Ok(END));
    }

    #[test]
    fn damage_is_counted_and_loses_nothing() {
        let (_, mut bytes) = sent();
        let alterations = Alterations::of([BoxSpec::Corrupt(CorruptSpec::default())].iter());
        assert_eq!(verdict(&alterations, &bytes), Ok((END, 0)));
        bytes[5] ^= 1;
        bytes[4000] ^= 9;
        assert_eq!(verdict(&alterations, &bytes), Ok((END, 2)));
        assert!(verdict(&alterations, &bytes[..4999]).is_err());
    }
}
