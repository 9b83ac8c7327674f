//! What stands in a Cookie TLV between two manypaths (RFC 8803 section 6.2.7): `token | nonce | proof`.
//!
//! The converter makes the token for the client's address; who shows it has that address. With a pre-shared key the client adds a
//! nonce and a proof over all of its message, so that nobody without the key can use the converter, or a message of
//! somebody else's with another target. This is authorisation, no encryption.

use std::path::Path;
use std::{fmt, fs, io};

use hmac::{Hmac, KeyInit as _, Mac as _};
use manypath_wire::convert::{MAX_LEN, Tlv, emit};
use sha2::Sha256;

/// Bytes of a converter's token.
pub const TOKEN_LEN: usize = 20;

/// Bytes of a client's nonce.
pub const NONCE_LEN: usize = 8;

/// Bytes of a client's proof.
pub const PROOF_LEN: usize = 16;

/// A secret that clients and their converter share.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl fmt::Debug for Key {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// The shortest key, in bytes.
    pub const SHORTEST: usize = 16;

    /// The longest key, in bytes.
    pub const LONGEST: usize = 4096;

    /// A key of these bytes; spaces and line ends around them do not count.
    ///
    /// # Errors
    /// `InvalidData` for fewer than [`Key::SHORTEST`] bytes or more than [`Key::LONGEST`].
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        let bytes = bytes.trim_ascii();
        match (Self::SHORTEST..=Self::LONGEST).contains(&bytes.len()) {
            true => Ok(Self(bytes.to_vec())),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "a key of {} bytes, and not of {} to {}: `head -c 32 /dev/urandom | base64` makes one",
                    bytes.len(),
                    Self::SHORTEST,
                    Self::LONGEST
                ),
            )),
        }
    }

    /// Reads a key from a file.
    ///
    /// # Errors
    /// The file cannot be read, or [`Key::new`] refuses what is in it.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = fs::File::open(path)?;
        let mut bytes = Vec::new();
        let most = Self::LONGEST as u64 + 64;
        io::Read::read_to_end(&mut io::Read::take(file, most), &mut bytes)?;
        Self::new(&bytes)
    }

    /// The code over a token, a nonce and the TLVs of a message without its Cookie.
    fn code(&self, token: &[u8], nonce: &[u8], tlvs: &[Tlv<'_>]) -> Hmac<Sha256> {
        let mut message = [0; MAX_LEN];
        // What is too long to be written is no message either.
        let length = emit(tlvs, &mut message).unwrap_or(0);
        // Invariant: HMAC takes a key of any length (RFC 2104 section 2).
        let mut code = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length");
        code.update(b"manypath convert 1");
        code.update(token);
        code.update(nonce);
        code.update(&message[..length]);
        code
    }

    /// The cookie of a client that has this key.
    #[must_use]
    pub fn cookie(&self, token: &[u8], nonce: [u8; NONCE_LEN], tlvs: &[Tlv<'_>]) -> Vec<u8> {
        let proof = self.code(token, &nonce, tlvs).finalize().into_bytes();
        [token, &nonce, &proof[..PROOF_LEN]].concat()
    }

    /// Whether what stands behind the token of a cookie proves that its client has this key.
    #[must_use]
    pub fn proves(&self, token: &[u8], rest: &[u8], tlvs: &[Tlv<'_>]) -> bool {
        let Some((nonce, rest)) = rest.split_at_checked(NONCE_LEN) else {
            return false;
        };
        let Some(proof) = rest.get(..PROOF_LEN) else {
            return false;
        };
        let code = self.code(token, nonce, tlvs);
        code.verify_truncated_left(proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_wire::convert::Connect;

    #[test]
    fn a_proof_is_good_for_its_key_its_token_and_its_message_alone() {
        let key = Key::new(b" sixteen bytes at least\n").expect("long enough");
        let other = Key::new(b"sixteen bytes at leasT").expect("long enough");
        let connect = |to: &str| Tlv::Connect(Connect::to(to.parse().expect("a literal")));
        let message = [connect("192.0.2.1:80")];
        let cookie = key.cookie(&[7; TOKEN_LEN], [1; NONCE_LEN], &message);
        assert_eq!(cookie.len(), TOKEN_LEN + NONCE_LEN + PROOF_LEN);
        assert_eq!(cookie.len() % 4, 0, "whole words");
        let (token, rest) = cookie.split_at(TOKEN_LEN);
        assert!(key.proves(token, rest, &message));
        assert!(!other.proves(token, rest, &message));
        assert!(!key.proves(&[8; TOKEN_LEN], rest, &message));
        assert!(!key.proves(token, rest, &[connect("192.0.2.2:80")]));
        assert!(!key.proves(token, &rest[1..], &message));
        for n in 0..rest.len() {
            assert!(!key.proves(token, &rest[..n], &message), "{n}");
        }
    }

    #[test]
    fn short_keys_are_refused_and_no_key_is_printed() {
        assert!(Key::new(b"fifteen bytes..").is_err());
        assert!(Key::new(&[b'k'; Key::LONGEST + 1]).is_err());
        let key = Key::new(b"sixteen bytes...").expect("long enough");
        assert_eq!(format!("{key:?}"), "Key");
    }
}
