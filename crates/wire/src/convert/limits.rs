//! What a client may be sent by each of its addresses: a TLV of the private range (RFC 8803 section 6.2.1), between two of ours. Type 192, two zeros,
//! and entries of an address (IPv4 as ::ffff:a.b.c.d) and bits of IP packets a second, 128 and 64 bits; at zero the address has a limit together with the one before.

use core::net::IpAddr;

/// Bytes of an entry.
const ENTRY: usize = 24;

/// Entries of one TLV: as many as a client may have paths that are limited.
pub const MOST_LIMITS: usize = 16;

/// Room for all entries.
pub type LimitsBuffer = [u8; MOST_LIMITS * ENTRY];

/// The entries of the TLV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits<'a>(&'a [u8]);

impl<'a> Limits<'a> {
    /// Reads what is behind the two zeros; `None` where it is no whole number of entries, or too many.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let entries = bytes.len() / ENTRY;
        let fits = bytes.len() % ENTRY == 0 && (1..=MOST_LIMITS).contains(&entries);
        fits.then_some(Self(bytes))
    }

    /// Writes entries, [`MOST_LIMITS`] at most, in front of `out`; `None` where there are none.
    pub fn write(
        entries: impl IntoIterator<Item = (IpAddr, u64)>,
        out: &'a mut LimitsBuffer,
    ) -> Option<Self> {
        let mut length = 0;
        for ((addr, bits), entry) in entries.into_iter().zip(out.chunks_exact_mut(ENTRY)) {
            let addr = match addr {
                IpAddr::V4(addr) => addr.to_ipv6_mapped(),
                IpAddr::V6(addr) => addr,
            };
            let (to_addr, to_bits) = entry.split_at_mut(16);
            to_addr.copy_from_slice(&addr.octets());
            to_bits.copy_from_slice(&bits.to_be_bytes());
            length += ENTRY;
        }
        Self::parse(&out[..length])
    }

    /// As they are on the wire.
    pub(super) const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Addresses of the client, and bits a second that are to be sent there at most.
    pub fn entries(&self) -> impl Iterator<Item = (IpAddr, u64)> + use<'a> {
        self.0.chunks_exact(ENTRY).filter_map(|entry| {
            let (addr, bits) = entry.split_first_chunk::<16>()?;
            let bits = u64::from_be_bytes(bits.try_into().ok()?);
            Some((IpAddr::from(*addr).to_canonical(), bits))
        })
    }
}
