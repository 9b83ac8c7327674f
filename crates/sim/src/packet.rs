//! Packets on the virtual wire and the pool that their buffers come from and return to.

use crate::summary::Summary;

/// One IP packet.
#[derive(Debug, Default)]
pub struct Packet {
    bytes: Vec<u8>,
    /// What the bytes say, when somebody has already read them and nobody has changed them since.
    summary: Option<Summary>,
    link: [u8; LINK_HEADER],
}

/// Room for the header of a link layer, an Ethernet one.
pub const LINK_HEADER: usize = 14;

impl Packet {
    /// The IP packet.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The IP packet, to be changed.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.summary = None;
        &mut self.bytes
    }

    /// The IP packet, for a change that its summary does not tell: hop limit, ECN mark.
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// There is no packet in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The header of the link layer that a real packet came with. It is carried along and counts nowhere; all zero if
    /// there was none.
    #[must_use]
    pub fn link_header(&self) -> &[u8; LINK_HEADER] {
        &self.link
    }

    /// Notes the header of the link layer.
    pub fn set_link_header(&mut self, header: [u8; LINK_HEADER]) {
        self.link = header;
    }

    /// What the packet says, if known.
    #[must_use]
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Notes what the packet says.
    pub fn set_summary(&mut self, summary: Summary) {
        self.summary = Some(summary);
    }
}

/// Buffers that wait to be used again: once a simulation is warm, a packet costs no allocation.
#[derive(Debug, Default)]
pub struct Pool {
    // Boxed, so that a packet moves through queues as one pointer, and the box is used again with its buffer.
    #[expect(clippy::vec_box)]
    free: Vec<Box<Packet>>,
    made: usize,
}

/// Room for a packet of the usual MTU; larger ones let their buffer grow once and keep it.
const USUAL: usize = 2048;

impl Pool {
    /// An empty packet.
    pub fn take(&mut self) -> Box<Packet> {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            Box::new(Packet {
                bytes: Vec::with_capacity(USUAL),
                summary: None,
                link: [0; LINK_HEADER],
            })
        })
    }

    /// A packet with these bytes.
    pub fn copy_of(&mut self, bytes: &[u8]) -> Box<Packet> {
        let mut packet = self.take();
        packet.bytes.extend_from_slice(bytes);
        packet
    }

    /// A second copy of a packet.
    pub fn duplicate(&mut self, packet: &Packet) -> Box<Packet> {
        let mut copy = self.copy_of(&packet.bytes);
        copy.summary.clone_from(&packet.summary);
        copy.link = packet.link;
        copy
    }

    /// A packet is over; its buffer may be used again.
    pub fn give(&mut self, mut packet: Box<Packet>) {
        packet.bytes.clear();
        packet.summary = None;
        packet.link = [0; LINK_HEADER];
        self.free.push(packet);
    }

    /// Buffers ever made: the largest number of packets alive at one time.
    #[must_use]
    pub fn made(&self) -> usize {
        self.made
    }

    /// Buffers that somebody holds now.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.made - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let mut pool = Pool::default();
        for _ in 0..10 {
            let first = pool.copy_of(b"abc");
            let second = pool.duplicate(&first);
            assert_eq!(second.bytes(), b"abc");
            assert_eq!(pool.in_use(), 2);
            pool.give(first);
            pool.give(second);
        }
        assert_eq!((pool.made(), pool.in_use()), (2, 0));
        assert!(pool.take().is_empty());
    }
}
