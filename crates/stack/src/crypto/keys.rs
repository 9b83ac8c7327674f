//! What a key stands for: its token and initial data sequence number (RFC 8684 section 3.1).

use alloc::boxed::Box;

use manypath_wire::dsn::Dsn;
use manypath_wire::ids::{Key, Token};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// A key with everything that is derived from it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyMaterial {
    /// On the heap, so that a move leaves no copy behind; cleared when it is dropped.
    key: Box<Zeroizing<[u8; 8]>>,
    /// Names the connection in MP_JOIN.
    pub token: Token,
    /// Initial data sequence number: the SYN's; the first byte of data has the next one.
    pub idsn: Dsn,
}

impl KeyMaterial {
    /// The key itself, for what is computed from it and for the options that say it.
    pub fn key(&self) -> Key {
        Key(**self.key)
    }

    /// Hashes a key once and cuts both values out of the digest.
    pub fn derive(key: Key) -> Self {
        let digest: [u8; 32] = Sha256::digest(key.0).into();
        let [t0, t1, t2, t3, .., d0, d1, d2, d3, d4, d5, d6, d7] = digest;
        Self {
            key: Box::new(Zeroizing::new(key.0)),
            // rfc8684:C22: the most significant 32 bits
            token: Token(u32::from_be_bytes([t0, t1, t2, t3])),
            // rfc8684:C23: the least significant 64 bits
            idsn: Dsn::new(u64::from_be_bytes([d0, d1, d2, d3, d4, d5, d6, d7])),
        }
    }

    /// The data sequence number of the first byte of the stream: the SYN took the one before. // rfc8684:C33
    pub fn first_byte(&self) -> Dsn {
        self.idsn + 1
    }
}

/// Shows nothing of the key.
impl core::fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("KeyMaterial")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_and_idsn_of_known_keys() {
        // rfc8684:C22 rfc8684:C23 rfc8684:C33
        let cases = [
            (
                0x45ed_b502_d861_e7b1_u64,
                0x5bba_80d9,
                0x2266_a099_179e_2475,
                0x2266_a099_179e_2476,
            ),
            (
                0xdbb7_60db_1d55_e07b,
                0xc1f1_2b87,
                0xde99_9903_8d0a_29a1,
                0xde99_9903_8d0a_29a2,
            ),
        ];
        for (key, token, idsn, first) in cases {
            let derived = KeyMaterial::derive(Key(key.to_be_bytes()));
            assert_eq!(derived.token, Token(token));
            assert_eq!(derived.idsn, Dsn::new(idsn));
            assert_eq!(derived.first_byte(), Dsn::new(first));
        }
    }
}
