//! Where packets go: the transmit side of the sans-IO contract.

use core::net::IpAddr;

use super::path::IfaceId;

/// What the driver knows about a received packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxMeta {
    /// The device (or the loopback of a host) vouches for the TCP checksum.
    pub checksum_ok: bool,
    /// The device has joined several segments to this one. It may be longer than the length field of the IP header can say, which
    /// is zero then.
    pub joined: bool,
}

/// What the device has to know about a packet that was written into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxMeta {
    /// Length in bytes of the whole IP packet.
    pub len: usize,
    /// Payload bytes for each segment that the device makes; zero: send as it is.
    pub gso_size: u16,
    /// Bytes of IP and TCP header together.
    pub header_len: u16,
    /// Bytes of the IP header: where the TCP header starts.
    pub l4_offset: u16,
    /// An IPv6 packet.
    pub ipv6: bool,
    /// The TCP checksum field holds the pseudo-header sum only; the device completes it.
    pub partial_checksum: bool,
}

impl TxMeta {
    /// Bytes of IP packets that the network carries once the device has divided a burst: every segment repeats the headers.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        let (len, head) = (self.len as u64, u64::from(self.header_len));
        match u64::from(self.gso_size) {
            0 => len,
            each => {
                let segments = len.saturating_sub(head).div_ceil(each).max(1);
                len + (segments - 1) * head
            }
        }
    }
}

/// What a driver did with a packet whose payload it was shown, see [`Slots::gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// It is on its way: the payload may change from now on.
    Taken,
    /// There is no room now.
    Full,
    /// The driver needs a copy of this packet: write it into a slot.
    Declined,
}

/// Transmit buffers of the driver.
///
/// A slot is obtained before any state changes: with no slot, nothing is marked as sent.
pub trait Slots {
    /// A buffer of at least `room` bytes for a packet to leave by `iface`, or `None` when the device has no
    /// room now. A slot that is not committed is given out again.
    fn slot(&mut self, iface: IfaceId, room: usize) -> Option<&mut [u8]>;
    /// The next packet leads from one address to another. Devices take any packet; limits may not.
    fn lead(&mut self, local: IpAddr, remote: IpAddr) {
        let _ = (local, remote);
    }
    /// There was no slot for packets between the last addresses alone: others of the interface may have one.
    fn holds_one(&self) -> bool {
        false
    }
    /// Queues what was written into the last slot of `iface`.
    fn commit(&mut self, iface: IfaceId, meta: TxMeta);
    /// Whether the driver of `iface` can send large payload from where it lies, which spares a copy.
    fn gathers(&self, iface: IfaceId) -> bool {
        let _ = iface;
        false
    }
    /// Sends a packet whose payload lies elsewhere, in two pieces. It goes behind everything committed before;
    /// `meta.len` counts headers and payload.
    fn gather(
        &mut self,
        iface: IfaceId,
        meta: TxMeta,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) -> Gather {
        let _ = (iface, meta, headers, payload);
        Gather::Declined
    }
}

/// What one call of `poll_transmit` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// That many packets were written; call again.
    Sent(usize),
    /// There is something to send but no slot on this interface. Other interfaces were served first.
    Blocked(IfaceId),
    /// Nothing may leave now.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_of_a_burst_repeats_the_headers() {
        let bytes = |len, gso_size| {
            let meta = TxMeta {
                len,
                gso_size,
                header_len: 52,
                l4_offset: 20,
                ipv6: false,
                partial_checksum: false,
            };
            meta.wire_bytes()
        };
        assert_eq!(bytes(1500, 0), 1500);
        assert_eq!(bytes(52 + 3000, 1000), 3000 + 3 * 52);
        assert_eq!(bytes(52 + 3001, 1000), 3001 + 4 * 52);
        assert_eq!(bytes(52, 1000), 52);
    }
}
