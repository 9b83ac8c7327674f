//! Packets on the virtual wire and the pool that their buffers come from and return to.

use core::ops::Range;

use manypath_wire::ip;
use manypath_wire::segment::{ParseError, Segment, Verify};

use crate::summary::Summary;

/// One IP packet.
#[derive(Debug)]
pub struct Packet {
    bytes: Vec<u8>,
    /// Somebody has already read the bytes and nobody has changed them since.
    is_read: bool,
    /// What they say, in that case.
    reading: Reading,
    link: [u8; LINK_HEADER],
}

/// A TCP segment as it was read once: by its sender's oracle, for its receiver as well.
#[derive(Clone, Debug)]
struct Reading {
    /// All but the payload.
    head: Segment<'static>,
    /// Where the payload is.
    payload: Range<usize>,
    /// What the oracles want to know of it.
    summary: Summary,
}

impl Reading {
    const EMPTY: Self = Self {
        head: Segment::EMPTY,
        payload: 0..0,
        summary: Summary::EMPTY,
    };

    /// In place, because the value is large to move.
    fn read(&mut self, packet: &[u8], verify: Verify) -> Result<(), ParseError> {
        let (meta, body) = ip::parse(packet)?;
        let payload = self.head.read_head(meta, body, verify)?.len();
        let end = self.head.ip.total_len;
        self.payload = end - payload..end;
        self.summary.read(&self.head, payload);
        Ok(())
    }
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
        self.is_read = false;
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

    /// The TCP segment in it, if somebody has read it and nobody has changed a byte since.
    #[must_use]
    #[inline]
    pub fn segment(&self) -> Option<Segment<'_>> {
        self.is_read.then(|| Segment {
            payload: &self.bytes[self.reading.payload.clone()],
            ..self.reading.head
        })
    }

    /// What the oracles want to know of that segment.
    #[must_use]
    #[inline]
    pub fn summary(&self) -> Option<&Summary> {
        self.is_read.then_some(&self.reading.summary)
    }

    /// Payload bytes of that segment.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.summary().map_or(0, |summary| summary.payload as usize)
    }

    /// Reads the TCP segment in it, unless somebody has. `Verify::Full` also checks its checksums.
    pub fn read(&mut self, verify: Verify) -> Result<(), ParseError> {
        if !self.is_read {
            self.reading.read(&self.bytes, verify)?;
            self.is_read = true;
        }
        Ok(())
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
        let mut packet = self.take_used();
        packet.bytes.clear();
        packet
    }

    /// A packet to be written over: what is in it belongs to nobody any more.
    pub fn take_used(&mut self) -> Box<Packet> {
        self.free.pop().unwrap_or_else(|| {
            self.made += 1;
            Box::new(Packet {
                bytes: Vec::with_capacity(USUAL),
                is_read: false,
                reading: Reading::EMPTY,
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
        if packet.is_read {
            copy.is_read = true;
            copy.reading.clone_from(&packet.reading);
        }
        copy.link = packet.link;
        copy
    }

    /// A packet is over; its buffer may be used again.
    pub fn give(&mut self, mut packet: Box<Packet>) {
        packet.is_read = false;
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
