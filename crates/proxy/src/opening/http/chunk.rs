//! Chunked bodies (RFC 9112 section 7.1), read byte by byte in whatever pieces they come. Pure.
//!
//! Strict, as what stands between chunks is where two readers differ most: every line ends in CRLF, sizes are hexadecimal digits
//! alone, and extensions have no control characters.

/// The longest extension of one chunk. Nobody uses any.
const MOST_EXTENSION: usize = 256;

/// Digits of a size.
const MOST_DIGITS: u8 = 16;

/// What the first bytes of a piece are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Sizes, extensions and line ends.
    Framing(usize),
    /// Payload.
    Data(usize),
    /// Fields behind the last chunk, kept by the decoder.
    Trailers(usize),
}

/// The bytes are no chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChunk;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { size: u64, digits: u8 },
    Extension { size: u64, length: usize },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Trailers,
    Done,
}

/// Finds the end of a chunked body.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    trailers: Vec<u8>,
    most_trailers: usize,
}

impl Decoder {
    /// A body whose trailers have so many bytes at most.
    #[must_use]
    pub fn new(most_trailers: usize) -> Self {
        Self {
            state: State::Size { size: 0, digits: 0 },
            trailers: Vec::new(),
            most_trailers,
        }
    }

    /// Whether the body is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The trailer section, its empty line included, once the body is over.
    #[must_use]
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// What the next bytes are; at least one byte is taken of what is not empty, and none when the body is over.
    ///
    /// # Errors
    /// They are no chunks.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Piece, BadChunk> {
        match self.state {
            State::Done => return Ok(Piece::Framing(0)),
            State::Data { left } => {
                let n = (bytes.len() as u64).min(left);
                self.state = match left - n {
                    0 => State::DataCr,
                    left => State::Data { left },
                };
                // No more than the slice is long.
                return Ok(Piece::Data(usize::try_from(n).unwrap_or(bytes.len())));
            }
            State::Trailers => return self.trailer(bytes),
            _ => {}
        }
        for (at, &byte) in bytes.iter().enumerate() {
            self.state = self.framing(byte)?;
            if matches!(self.state, State::Data { .. } | State::Trailers) {
                return Ok(Piece::Framing(at + 1));
            }
        }
        Ok(Piece::Framing(bytes.len()))
    }

    /// One byte between the data of two chunks.
    fn framing(&self, byte: u8) -> Result<State, BadChunk> {
        match (self.state, byte) {
            (State::Size { digits: 1.., size }, b'\r') => Ok(State::SizeLf { size }),
            (State::Size { digits: 1.., size }, b';') => Ok(State::Extension { size, length: 0 }),
            (State::Size { size, digits }, _) => {
                let digit = char::from(byte).to_digit(16).ok_or(BadChunk)?;
                if digits >= MOST_DIGITS {
                    return Err(BadChunk);
                }
                let size = size.checked_mul(16).ok_or(BadChunk)?;
                Ok(State::Size {
                    size: size | u64::from(digit),
                    digits: digits + 1,
                })
            }
            (State::Extension { size, .. }, b'\r') => Ok(State::SizeLf { size }),
            (State::Extension { size, length }, b'\t' | b' '..=b'~' | 0x80..)
                if length < MOST_EXTENSION =>
            {
                let length = length + 1;
                Ok(State::Extension { size, length })
            }
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::Trailers),
            (State::SizeLf { size }, b'\n') => Ok(State::Data { left: size }),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { size: 0, digits: 0 }),
            _ => Err(BadChunk),
        }
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<Piece, BadChunk> {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.trailers.len() >= self.most_trailers {
                return Err(BadChunk);
            }
            self.trailers.push(byte);
            if self.trailers == b"\r\n" || self.trailers.ends_with(b"\r\n\r\n") {
                self.state = State::Done;
                return Ok(Piece::Trailers(at + 1));
            }
        }
        Ok(Piece::Trailers(bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payload, the trailers, and what is behind, fed in pieces of `step` bytes.
    fn decode(bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>, usize), BadChunk> {
        let mut decoder = Decoder::new(100);
        let (mut data, mut at) = (Vec::new(), 0);
        while !decoder.is_done() && at < bytes.len() {
            let piece = &bytes[at..(at + step).min(bytes.len())];
            at += match decoder.advance(piece)? {
                Piece::Framing(n) | Piece::Trailers(n) => n,
                Piece::Data(n) => {
                    data.extend(&piece[..n]);
                    n
                }
            };
        }
        match decoder.is_done() {
            true => Ok((data, decoder.trailers().to_vec(), bytes.len() - at)),
            false => Err(BadChunk),
        }
    }

    #[test]
    fn chunks_in_whatever_pieces_they_come() {
        let body = b"5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\nA: b\r\n\r\nGET";
        for step in 1..body.len() {
            let wanted = (b"hello0123456789".to_vec(), b"A: b\r\n\r\n".to_vec(), 3);
            assert_eq!(decode(body, step), Ok(wanted), "{step}");
        }
        assert_eq!(
            decode(b"0\r\n\r\n", 9),
            Ok((Vec::new(), b"\r\n".to_vec(), 0))
        );
    }

    #[test]
    fn what_two_readers_could_divide_differently_is_no_chunk() {
        for body in [
            &b"5\nhello\r\n0\r\n\r\n"[..],
            b"5;a\nhello\r\n0\r\n\r\n",
            b"5;a\rb\r\nhello\r\n0\r\n\r\n",
            b"5 \r\nhello\r\n0\r\n\r\n",
            b" 5\r\nhello\r\n0\r\n\r\n",
            b"0x5\r\nhello\r\n0\r\n\r\n",
            b"+5\r\nhello\r\n0\r\n\r\n",
            b"\r\nhello\r\n0\r\n\r\n",
            b";a\r\n\r\n",
            b"5\r\nhelloX\r\n0\r\n\r\n",
            b"5\r\nhello\n0\r\n\r\n",
            b"fffffffffffffffff\r\n",
            b"00000000000000005\r\nhello",
        ] {
            assert_eq!(
                decode(body, 7),
                Err(BadChunk),
                "{:?}",
                String::from_utf8_lossy(body)
            );
        }
        let long = [&b"5;"[..], &[b'a'; 300], b"\r\nhello\r\n0\r\n\r\n"].concat();
        assert_eq!(decode(&long, 50), Err(BadChunk));
        let bomb = [&b"0\r\n"[..], &b"A: b\r\n".repeat(50), b"\r\n"].concat();
        assert_eq!(decode(&bomb, 50), Err(BadChunk));
    }
}
