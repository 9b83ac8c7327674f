//! Authentication codes of MP_JOIN (RFC 8684 section 3.2) and ADD_ADDR (section 3.4.1): HMAC-SHA256 (RFC 2104, 6234).
//!
//! Every code here is keyed with *the sender's own key first, then its peer's*, whoever opened the connection.

use core::net::IpAddr;

use hmac::{Hmac, KeyInit as _, Mac as _};
use manypath_wire::ids::{AddrId, Key, Nonce};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// The two keys of a connection in the order in which the sender of a code uses them.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The key of whoever sends the code.
    pub sender: Key,
    /// The key of whoever checks it.
    pub receiver: Key,
}

impl Keys {
    /// The same keys for codes that travel the other way.
    pub fn reversed(self) -> Self {
        Self {
            sender: self.receiver,
            receiver: self.sender,
        }
    }

    fn hmac(&self) -> Hmac<Sha256> {
        let mut key = zeroize::Zeroizing::new([0; 16]);
        key[..8].copy_from_slice(&self.sender.0);
        key[8..].copy_from_slice(&self.receiver.0);
        // Invariant: HMAC takes a key of any length (RFC 2104 section 2), so this cannot fail.
        Hmac::<Sha256>::new_from_slice(&*key).expect("HMAC accepts keys of every length")
    }
}

/// The full code that one end of a join proves itself with.
#[derive(Clone, Copy, Debug)]
pub struct JoinMac([u8; 32]);

impl JoinMac {
    /// The code for a join with these nonces, the sender's own first. // rfc8684:J9
    pub fn compute(keys: Keys, own: Nonce, peer: Nonce) -> Self {
        let mut mac = keys.hmac();
        mac.update(&own.0.to_be_bytes());
        mac.update(&peer.0.to_be_bytes());
        Self(mac.finalize().into_bytes().into())
    }

    /// The leftmost 64 bits: what the SYN/ACK carries. // rfc8684:J7
    pub fn syn_ack(&self) -> [u8; 8] {
        leftmost(&self.0)
    }

    /// The leftmost 160 bits: what the third packet carries. // rfc8684:J9
    pub fn ack(&self) -> [u8; 20] {
        leftmost(&self.0)
    }
}

/// The code of an address announcement: the rightmost 64 bits. // rfc8684:A6
///
/// An absent port counts as two zero octets.
pub fn add_addr(keys: Keys, id: AddrId, addr: IpAddr, port: Option<u16>) -> [u8; 8] {
    let mut mac = keys.hmac();
    mac.update(&[id.0]);
    match addr {
        IpAddr::V4(addr) => mac.update(&addr.octets()),
        IpAddr::V6(addr) => mac.update(&addr.octets()),
    }
    mac.update(&port.unwrap_or(0).to_be_bytes());
    let full: [u8; 32] = mac.finalize().into_bytes().into();
    let [.., a, b, c, d, e, f, g, h] = full;
    [a, b, c, d, e, f, g, h]
}

/// Compares two codes in a time that does not depend on where they differ.
pub fn equal<const N: usize>(a: &[u8; N], b: &[u8; N]) -> bool {
    a.ct_eq(b).into()
}

fn leftmost<const N: usize>(full: &[u8; 32]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&full[..N]);
    out
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const KEY_A: Key = Key(0xdbb7_60db_1d55_e07b_u64.to_be_bytes());
    const KEY_B: Key = Key(0x45ed_b502_d861_e7b1_u64.to_be_bytes());
    const FROM_A: Keys = Keys {
        sender: KEY_A,
        receiver: KEY_B,
    };

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let mut out = [0; N];
        for (at, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16)
                .expect("test vector is hexadecimal");
        }
        out
    }

    #[test]
    fn join_codes_of_both_ends() {
        // rfc8684:J9 rfc8684:J7
        let (nonce_a, nonce_b) = (Nonce(0x0102_0304), Nonce(0x0a0b_0c0d));
        let a = JoinMac::compute(FROM_A, nonce_a, nonce_b);
        assert_eq!(a.ack(), hex("92f3af8168c2899d2710f39d513eed498cd17d7b"));
        let b = JoinMac::compute(FROM_A.reversed(), nonce_b, nonce_a);
        assert_eq!(b.syn_ack(), hex("aed70db7bad374b9"));
    }

    #[test]
    fn announcement_codes() {
        // rfc8684:A6
        let v4 = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(
            add_addr(FROM_A, AddrId(2), v4, None),
            hex("8e623f9cbb0e6711")
        );
        assert_eq!(
            add_addr(FROM_A, AddrId(2), v4, Some(8080)),
            hex("3fc070fe3ff1d767")
        );
        let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
        assert_eq!(
            add_addr(FROM_A.reversed(), AddrId(3), v6, None),
            hex("42a65741d4a026f0")
        );
    }

    #[test]
    fn comparison_sees_every_bit() {
        let code = [0x5a; 8];
        assert!(equal(&code, &code));
        for bit in 0..64 {
            let mut other = code;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!equal(&code, &other));
        }
    }
}
