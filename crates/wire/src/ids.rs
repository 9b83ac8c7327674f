//! The small names of the protocol: keys, tokens, nonces, address identifiers and the four-tuple.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A connection's 32-bit name: the most significant 32 bits of the SHA-256 of a key (rfc8684:C22).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:08x})", self.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// One host's 64-bit secret of a connection, in network byte order (RFC 8684 section 3.1).
/// `Debug` shows nothing of it: whoever has both keys can join the connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub [u8; 8]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// The single-use random number of one MP_JOIN attempt (rfc8684:J2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub u32);

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({:08x})", self.0)
    }
}

/// A host's own number for one of its addresses within one connection; 0 is the address of the first subflow
/// (rfc8684:J3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AddrId(pub u8);

impl fmt::Display for AddrId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A maximum segment size in bytes, as the option carries it: TCP payload plus TCP options (RFC 9293 section 3.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mss(pub u16);

/// What names a subflow at this host: own address and port, the peer's address and port.
/// IPv6 flow label and scope are always zero, so that equal addresses are equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FourTuple {
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

impl FourTuple {
    /// No address and no port at either end.
    pub const UNSPECIFIED: Self = {
        let end = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self {
            local: end,
            remote: end,
        }
    };

    /// Names a subflow by its two ends; flow labels and scopes are dropped.
    #[must_use]
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local: SocketAddr::new(local.ip(), local.port()),
            remote: SocketAddr::new(remote.ip(), remote.port()),
        }
    }

    /// Names a subflow by addresses and ports.
    #[must_use]
    pub const fn of(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> Self {
        Self {
            local: SocketAddr::new(local, local_port),
            remote: SocketAddr::new(remote, remote_port),
        }
    }

    /// The same subflow as the peer sees it.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            local: self.remote,
            remote: self.local,
        }
    }

    /// Both ends are IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.local.is_ipv6() && self.remote.is_ipv6()
    }
}

/// Two words for IPv4. The derived hash writes tags, lengths and single bytes as well, and every packet is looked up by it.
impl Hash for FourTuple {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for end in [self.local, self.remote] {
            match end.ip() {
                IpAddr::V4(ip) => {
                    state.write_u64(u64::from(ip.to_bits()) << 16 | u64::from(end.port()));
                }
                IpAddr::V6(ip) => {
                    state.write_u128(ip.to_bits());
                    state.write_u16(end.port());
                }
            }
        }
    }
}

impl fmt::Display for FourTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <-> {}", self.local, self.remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use core::net::{Ipv6Addr, SocketAddrV6};

    #[test]
    fn a_key_never_reaches_a_log() {
        let shown = format!("{:?}", Key([0xab; 8]));
        assert!(!shown.contains("ab") && !shown.contains("171"), "{shown}");
    }

    #[test]
    fn scope_and_flow_label_do_not_divide_a_subflow() {
        let plain = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 0, 0));
        let scoped = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 7, 9));
        assert_ne!(plain, scoped);
        assert_eq!(FourTuple::new(plain, plain), FourTuple::new(scoped, scoped));
    }

    #[test]
    fn reversing_twice_changes_nothing() {
        let tuple = FourTuple::new(
            SocketAddr::from(([10, 0, 0, 1], 1)),
            SocketAddr::from(([10, 0, 0, 2], 2)),
        );
        assert_ne!(tuple.reversed(), tuple);
        assert_eq!(tuple.reversed().reversed(), tuple);
        assert!(!tuple.is_ipv6());
    }
}
