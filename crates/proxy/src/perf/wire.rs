//! The measuring protocol: a header that says what is to come, the data, and a trailer that proves it.
//!
//! Client to server: a [`Header`] of 40 bytes. Then, by its [`Kind`]:
//!
//! - `Send`: the client's data and an end of file; the server answers with a [`Trailer`] of what it received.
//! - `Receive`: the server's data, its [`Trailer`] and an end of file.
//! - `Requests`: any number of rounds of a request and a response of the sizes in the header.
//!
//! All numbers are in network byte order. A server that reads something else than a header takes the stream for plain
//! data and discards it, so that any TCP client can send to it.

/// First bytes of every header; no text protocol begins with it.
pub const MAGIC: [u8; 8] = *b"\0mpperf1";

/// What the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data from the client to the server.
    Send,
    /// Data from the server to the client.
    Receive,
    /// Requests and responses.
    Requests,
}

/// What the client says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is to come.
    pub kind: Kind,
    /// Both ends hash the data with SHA-256.
    pub hash: bool,
    /// Seed of the data.
    pub seed: u64,
    /// Bytes of data; zero: no limit.
    pub bytes: u64,
    /// Milliseconds for which data is sent; zero: no limit.
    pub millis: u32,
    /// Bytes of a request.
    pub request: u32,
    /// Bytes of a response.
    pub response: u32,
}

/// Why something is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAHeader {
    /// It does not begin like one: plain data.
    Plain,
    /// A header of a kind that this version does not know.
    Unknown,
}

impl Header {
    /// Its length in bytes.
    pub const LEN: usize = 40;

    const HASH: u8 = 1;

    /// The bytes on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&MAGIC);
        out[8] = match self.kind {
            Kind::Send => 1,
            Kind::Receive => 2,
            Kind::Requests => 3,
        };
        out[9] = if self.hash { Self::HASH } else { 0 };
        out[12..20].copy_from_slice(&self.seed.to_be_bytes());
        out[20..28].copy_from_slice(&self.bytes.to_be_bytes());
        out[28..32].copy_from_slice(&self.millis.to_be_bytes());
        out[32..36].copy_from_slice(&self.request.to_be_bytes());
        out[36..40].copy_from_slice(&self.response.to_be_bytes());
        out
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, NotAHeader> {
        if bytes[..8] != MAGIC {
            return Err(NotAHeader::Plain);
        }
        let kind = match bytes[8] {
            1 => Kind::Send,
            2 => Kind::Receive,
            3 => Kind::Requests,
            _ => return Err(NotAHeader::Unknown),
        };
        Ok(Self {
            kind,
            hash: bytes[9] & Self::HASH != 0,
            seed: u64_at(bytes, 12),
            bytes: u64_at(bytes, 20),
            millis: u32_at(bytes, 28),
            request: u32_at(bytes, 32),
            response: u32_at(bytes, 36),
        })
    }
}

/// What one end says about the data that it sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes of data.
    pub bytes: u64,
    /// Microseconds from the first to the last of them.
    pub micros: u64,
    /// Their SHA-256; all zero where no hash was wanted.
    pub sha256: [u8; 32],
}

impl Trailer {
    /// Its length in bytes.
    pub const LEN: usize = 48;

    /// The bytes on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.bytes.to_be_bytes());
        out[8..16].copy_from_slice(&self.micros.to_be_bytes());
        out[16..].copy_from_slice(&self.sha256);
        out
    }

    /// Reads a trailer.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(&bytes[16..]);
        Self {
            bytes: u64_at(bytes, 0),
            micros: u64_at(bytes, 8),
            sha256,
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_trailers_read_back() {
        for kind in [Kind::Send, Kind::Receive, Kind::Requests] {
            let header = Header {
                kind,
                hash: kind != Kind::Send,
                seed: 0x0102_0304_0506_0708,
                bytes: u64::MAX,
                millis: 7,
                request: 8,
                response: u32::MAX,
            };
            assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }
        let trailer = Trailer {
            bytes: 1 << 40,
            micros: 3,
            sha256: [9; 32],
        };
        assert_eq!(Trailer::parse(&trailer.to_bytes()), trailer);
    }

    #[test]
    fn other_data_is_told_apart() {
        let mut bytes = [b'G'; Header::LEN];
        assert_eq!(Header::parse(&bytes), Err(NotAHeader::Plain));
        bytes[..8].copy_from_slice(&MAGIC);
        assert_eq!(Header::parse(&bytes), Err(NotAHeader::Unknown));
    }
}
