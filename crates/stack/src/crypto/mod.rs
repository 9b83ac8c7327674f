//! The keyed and unkeyed hashes of the protocol, and everything random.
//!
//! Owns: what is derived from a key, the authentication codes of MP_JOIN and ADD_ADDR, the generator that every random
//! number of a stack comes from, and initial sequence numbers. Must never see a packet, and never print a key. Keys and secrets that are kept are cleared when
//! they are dropped, and so is what hashes them; siphasher's states and values on the stack are not.

pub mod cookie;
pub mod early;
pub mod isn;
pub mod keypool;
pub mod keys;
pub mod mac;
pub mod rng;

use alloc::boxed::Box;
use core::net::SocketAddr;

use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

/// A secret of one stack for keyed hashes of addresses and ports.
pub(crate) struct HashKey(Box<Zeroizing<[u64; 2]>>);

impl HashKey {
    /// Draws a fresh secret.
    pub(crate) fn draw(rng: &mut rng::Rng) -> Self {
        Self(Box::new(Zeroizing::new([rng.next_u64(), rng.next_u64()])))
    }

    /// A hasher that starts from this secret.
    pub(crate) fn hasher(&self) -> SipHasher24 {
        let [k0, k1] = **self.0;
        SipHasher24::new_with_keys(k0, k1)
    }
}

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey")
    }
}

/// Feeds an address without the flow label and scope, so that one peer always hashes alike.
pub(crate) fn hash_ip(hasher: &mut impl core::hash::Hasher, ip: core::net::IpAddr) {
    match ip {
        core::net::IpAddr::V4(ip) => hasher.write(&ip.octets()),
        core::net::IpAddr::V6(ip) => hasher.write(&ip.octets()),
    }
}

/// Feeds an address and its port; see [`hash_ip`].
pub(crate) fn hash_addr(hasher: &mut impl core::hash::Hasher, addr: SocketAddr) {
    hash_ip(hasher, addr.ip());
    hasher.write(&addr.port().to_be_bytes());
}
