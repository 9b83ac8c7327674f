//! Our addresses on a link, and the way from each to the next hop.

use std::net::IpAddr;

/// One of our addresses on the link, and how to leave the link from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Our address.
    pub addr: IpAddr,
    /// Length of the on-link prefix, bits.
    pub prefix: u8,
    /// Where packets for other networks go.
    pub gateway: Option<IpAddr>,
    /// The address is ours alone: answer questions about it.
    pub owned: bool,
}

impl Link {
    fn on_link(&self, dst: IpAddr) -> bool {
        fn same(a: &[u8], b: &[u8], bits: u8) -> bool {
            let (whole, rest) = (usize::from(bits / 8), bits % 8);
            let mask = !(0xffu16 >> rest) as u8;
            a[..whole] == b[..whole] && (rest == 0 || (a[whole] ^ b[whole]) & mask == 0)
        }
        match (self.addr, dst) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(&a.octets(), &b.octets(), self.prefix.min(32)),
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                b.is_unicast_link_local() || same(&a.octets(), &b.octets(), self.prefix.min(128))
            }
            _ => false,
        }
    }

    /// The address means every host of the prefix (RFC 1122 section 3.2.1.3), which no connection has for its peer. Prefixes of 31
    /// bits and longer have none (RFC 3021).
    #[must_use]
    pub fn is_broadcast(&self, dst: IpAddr) -> bool {
        let IpAddr::V4(addr) = dst else { return false };
        let host = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
        self.prefix < 31 && self.on_link(dst) && u32::from(addr) & host == host
    }

    /// The neighbour to hand a packet for `dst` to: the destination itself on the link, otherwise the gateway. Without a
    /// gateway the destination is asked for directly, as on a link whose routers answer for what is behind them.
    #[must_use]
    pub fn next_hop(&self, dst: IpAddr) -> IpAddr {
        match self.gateway {
            Some(gateway) if !self.on_link(dst) => gateway,
            _ => dst,
        }
    }
}
