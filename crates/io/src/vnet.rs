//! The virtio network header that goes before a packet and carries its offloads (virtio 1.2, section 5.1.6).
//!
//! Owns the 10 bytes and nothing else. All fields are in the host's byte order (the legacy form TUN and packet sockets use).

/// Length of the header, bytes.
pub const LEN: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;
/// Where the checksum lies in a TCP header, bytes (RFC 9293, section 3.1).
const TCP_CHECKSUM_OFFSET: u16 = 16;
/// Where the second byte of flags lies in a TCP header, and CWR in it (RFC 9293, section 3.1).
const TCP_FLAGS_OFFSET: usize = 13;
const TCP_CWR: u8 = 0x80;

/// What the device shall still do to an outgoing packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Payload bytes per segment when the packet is a burst to be split; 0 = send as it is.
    pub gso_size: u16,
    /// Length of the IP and TCP headers together, bytes.
    pub header_len: u16,
    /// Length of the IP header, bytes.
    pub l4_offset: u16,
    /// The packet is IPv6.
    pub ipv6: bool,
    /// The checksum field holds only the pseudo-header's sum; the device completes it.
    pub partial_checksum: bool,
}

impl Request {
    /// Writes the header for `packet` (from its IP header on), which lies `link` bytes (Ethernet header or none) after
    /// the virtio header.
    pub fn write(&self, out: &mut [u8; LEN], packet: &[u8], link: u16) {
        *out = [0; LEN];
        if self.partial_checksum || self.gso_size != 0 {
            out[0] = FLAG_NEEDS_CSUM;
            out[6..8].copy_from_slice(&(link + self.l4_offset).to_ne_bytes());
            out[8..10].copy_from_slice(&TCP_CHECKSUM_OFFSET.to_ne_bytes());
        }
        if self.gso_size != 0 {
            let cwr = packet
                .get(usize::from(self.l4_offset) + TCP_FLAGS_OFFSET)
                .is_some_and(|flags| flags & TCP_CWR != 0);
            out[1] = if self.ipv6 { GSO_TCPV6 } else { GSO_TCPV4 } | if cwr { GSO_ECN } else { 0 };
            out[2..4].copy_from_slice(&(link + self.header_len).to_ne_bytes());
            out[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        }
    }
}

/// What the device has already done to an incoming packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The transport checksum is right, or was never on a wire: do not verify it.
    pub checksum_ok: bool,
    /// The packet is several segments joined; payload bytes of each (the last may be shorter), 0 = one segment.
    pub gso_size: u16,
}

impl Report {
    /// Reads the header.
    #[must_use]
    pub fn parse(header: &[u8; LEN]) -> Self {
        let gso_size = u16::from_ne_bytes([header[4], header[5]]);
        Report {
            checksum_ok: header[0] & (FLAG_NEEDS_CSUM | FLAG_DATA_VALID) != 0,
            gso_size: if header[1] & !GSO_ECN == GSO_NONE {
                0
            } else {
                gso_size
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_packet_is_all_zero() {
        let mut out = [7; LEN];
        Request::default().write(&mut out, &[0x45; 40], 14);
        assert_eq!(out, [0; LEN]);
    }

    #[test]
    fn burst_names_offsets_from_the_frame() {
        let mut out = [0; LEN];
        let request = Request {
            gso_size: 1448,
            header_len: 52,
            l4_offset: 20,
            ipv6: false,
            partial_checksum: true,
        };
        let mut packet = [0u8; 100];
        request.write(&mut out, &packet, 14);
        assert_eq!(out[..2], [FLAG_NEEDS_CSUM, GSO_TCPV4]);
        assert_eq!(out[2..4], 66u16.to_ne_bytes());
        assert_eq!(out[4..6], 1448u16.to_ne_bytes());
        assert_eq!(out[6..8], 34u16.to_ne_bytes());
        assert_eq!(out[8..10], 16u16.to_ne_bytes());
        packet[33] = TCP_CWR;
        request.write(&mut out, &packet, 0);
        assert_eq!(out[1], GSO_TCPV4 | GSO_ECN);
    }

    #[test]
    fn report_trusts_either_flag() {
        for (flags, ok) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let mut header = [0; LEN];
            header[0] = flags;
            assert_eq!(Report::parse(&header).checksum_ok, ok);
        }
    }

    #[test]
    fn gso_size_counts_only_with_a_type() {
        let mut header = [0; LEN];
        header[4..6].copy_from_slice(&1000u16.to_ne_bytes());
        assert_eq!(Report::parse(&header).gso_size, 0);
        header[1] = GSO_TCPV6 | GSO_ECN;
        assert_eq!(Report::parse(&header).gso_size, 1000);
    }
}
