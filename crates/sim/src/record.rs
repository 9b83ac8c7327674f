//! What a run leaves behind to be compared: a hash over every delivery, and, on demand, a packet capture.

use std::borrow::Cow;
use std::io::Write;

use manypath_tcp::time::Instant;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use twox_hash::XxHash3_64;

/// A hash over times, places, lengths and first bytes, in order. Two runs with equal hashes delivered the same packets at
/// the same times. It finds differences; it does not protect against somebody who wants a collision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Digest(u64);

/// An odd constant without structure, to spread the state before the next item enters.
const SPREAD: u64 = 0xd6e8_feb8_6659_fd93;

/// Bytes of a packet that are hashed: all of its headers with the checksum over the rest, and a beginning of that.
const HASHED: usize = 128;

impl Digest {
    /// Adds a delivery at a place (any number that names it).
    pub fn add(&mut self, time: Instant, place: u64, bytes: &[u8]) {
        let item = XxHash3_64::oneshot(&bytes[..bytes.len().min(HASHED)]);
        let sized = (place << 32) ^ bytes.len() as u64;
        for part in [time.as_nanos(), sized, item] {
            let mixed = u128::from(self.0 ^ part).wrapping_mul(u128::from(SPREAD));
            // The product's halves are joined so that no bit of the state is lost; the rotation tells parts apart.
            self.0 = ((mixed >> 64) as u64 ^ mixed as u64).rotate_left(23) ^ SPREAD;
        }
    }

    /// The hash.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A packet capture in pcapng format: one interface for each end of each link, times in nanoseconds.
pub struct Capture {
    writer: PcapNgWriter<Box<dyn Write + Send>>,
    error: Option<CaptureError>,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}

impl Capture {
    /// Starts a capture of the named interfaces.
    pub fn new<'n>(
        to: Box<dyn Write + Send>,
        interfaces: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, CaptureError> {
        let mut writer = PcapNgWriter::new(to)?;
        for name in interfaces {
            writer.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: 0,
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                    InterfaceDescriptionOption::IfTsResol(9),
                ],
            })?;
        }
        Ok(Self {
            writer,
            error: None,
        })
    }

    /// Adds a packet. After an error (a full disk) nothing more is written, and `finish` tells.
    pub fn add(&mut self, time: Instant, interface: u32, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: std::time::Duration::from_nanos(time.as_nanos()),
            original_len: bytes.len() as u32,
            data: Cow::Borrowed(bytes),
            options: Vec::new(),
        };
        if let Err(error) = self.writer.write_pcapng_block(block) {
            self.error = Some(CaptureError::from(error));
        }
    }

    /// Ends the capture and says whether all of it was written.
    pub fn finish(mut self) -> Result<(), CaptureError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let flushed = self.writer.get_mut().flush();
        flushed.map_err(|error| CaptureError(error.to_string()))
    }
}

/// The capture could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the packet capture could not be written: {0}")]
pub struct CaptureError(String);

impl From<PcapError> for CaptureError {
    fn from(error: PcapError) -> Self {
        match error {
            // The crate's own words for it speak of reading.
            PcapError::IoError(source) => Self(source.to_string()),
            error => Self(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::sync::{Arc, Mutex};

    #[test]
    fn every_part_of_a_delivery_counts() {
        let digest = |items: &[(u64, u64, &[u8])]| {
            let mut digest = Digest::default();
            for (time, place, bytes) in items {
                digest.add(Instant::from_nanos(*time), *place, bytes);
            }
            digest
        };
        let base = digest(&[(1, 2, b"a"), (3, 4, b"b")]);
        assert_eq!(base, digest(&[(1, 2, b"a"), (3, 4, b"b")]));
        for other in [
            digest(&[(2, 1, b"a"), (3, 4, b"b")]),
            digest(&[(3, 4, b"b"), (1, 2, b"a")]),
            digest(&[(1, 2, b"a"), (3, 4, b"c")]),
            digest(&[(1, 2, b"a")]),
            digest(&[(1, 2, &[0; 200]), (3, 4, b"b")]),
            digest(&[(1, 2, &[0; 201]), (3, 4, b"b")]),
        ] {
            assert_ne!(base, other);
        }
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no writer panics").write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_capture_can_be_read_back() {
        let file = Shared::default();
        let mut capture = Capture::new(Box::new(file.clone()), ["a", "b"]).unwrap();
        capture.add(Instant::from_nanos(1_000_000_007), 1, b"packet");
        capture.finish().unwrap();
        let bytes = file.0.lock().unwrap().clone();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                packets.push((
                    packet.timestamp.as_nanos(),
                    packet.interface_id,
                    packet.data.to_vec(),
                ));
            }
        }
        assert_eq!(packets, [(1_000_000_007, 1, b"packet".to_vec())]);
    }

    /// A disk that is full from the beginning.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told_in_the_words_of_the_system() {
        let error = Capture::new(Box::new(Full), ["a"])
            .err()
            .map(|e| e.to_string());
        let system = std::io::Error::from(std::io::ErrorKind::StorageFull).to_string();
        assert!(error.is_some_and(|text| text.ends_with(&system)));
    }
}
