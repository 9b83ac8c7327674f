//! The peer's window as the sender knows it (RFC 9293 section 3.10.7.4, "SND.WND").

use manypath_wire::seq::SeqNum;
use manypath_wire::window::WindowScale;

/// The send window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWindow {
    bytes: u32,
    /// Sequence and acknowledgement number of the segment that updated it last (SND.WL1, SND.WL2).
    from_seq: SeqNum,
    from_ack: SeqNum,
    /// The largest window seen: an estimate of the peer's buffer (RFC 9293 section 3.8.6.2.1).
    largest: u32,
    scale: WindowScale,
}

impl SendWindow {
    pub(crate) fn new() -> Self {
        SendWindow {
            bytes: 0,
            from_seq: SeqNum::new(0),
            from_ack: SeqNum::new(0),
            largest: 0,
            scale: WindowScale::NONE,
        }
    }

    /// The window of the peer's SYN or SYN+ACK, which is not scaled; later ones are by `scale`.
    pub(crate) fn begin(&mut self, field: u16, seq: SeqNum, ack: SeqNum, scale: WindowScale) {
        self.bytes = u32::from(field);
        self.largest = self.bytes;
        self.from_seq = seq;
        self.from_ack = ack;
        self.scale = scale;
    }

    /// Bytes from the first unacknowledged one.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(crate) fn largest(&self) -> u32 {
        self.largest
    }

    /// Takes the window of an acceptable segment unless a newer segment has told another; `una` is the first
    /// unacknowledged number before the segment. True when the right edge moved right.
    pub(crate) fn update(&mut self, una: SeqNum, seq: SeqNum, ack: SeqNum, field: u16) -> bool {
        let newer =
            self.from_seq.before(seq) || (self.from_seq == seq && self.from_ack.before_eq(ack));
        // Reordered in one direction only: an acknowledgement that advances counts even with an older sequence number,
        // else a lost segment of the peer would freeze the window that its later ones carry.
        if !newer && !ack.after(una) {
            return false;
        }
        let old_edge = una + self.bytes;
        let bytes = self.scale.expand(field);
        self.bytes = bytes;
        self.largest = self.largest.max(bytes);
        self.from_seq = seq;
        self.from_ack = ack;
        (ack + bytes).after(old_edge)
    }
}
