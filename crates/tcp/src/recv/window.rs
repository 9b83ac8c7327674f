//! The receive window: how much is offered, and when a better offer is worth a segment of its own
//! (RFC 9293 section 3.8.6.2.2).

use manypath_wire::seq::SeqNum;
use manypath_wire::window::WindowScale;

/// The window as the peer knows it, and as the caller wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWindow {
    /// First number that no offer has covered. Never moves left.
    edge: SeqNum,
    /// Where the newest offer ended: what the peer goes by.
    advertised: SeqNum,
    /// What the caller can take now, from the next expected byte.
    desired: u32,
    /// The largest window that will ever be offered.
    largest: u32,
    scale: WindowScale,
    /// Several subflows share one window that the connection keeps: it is advertised as it is, from wherever each of
    /// them stands, so this subflow's own right edge may well move left.
    shared: bool,
    /// What our own SYN offered, when the peer's numbers were not known.
    in_syn: u16,
}

impl RecvWindow {
    pub(crate) fn new(next: SeqNum, largest: u32, scale: WindowScale) -> Self {
        RecvWindow {
            edge: next,
            advertised: next,
            desired: largest,
            largest,
            scale,
            shared: false,
            in_syn: 0,
        }
    }

    /// Begins over at the peer's first number with the scale that was negotiated.
    pub(crate) fn restart(&mut self, next: SeqNum, scale: WindowScale) {
        self.edge = next + u32::from(self.in_syn);
        self.advertised = self.edge;
        self.scale = scale;
    }

    pub(crate) fn scale(&self) -> WindowScale {
        self.scale
    }

    pub(crate) fn set_desired(&mut self, bytes: u32) {
        self.desired = bytes.min(self.largest);
        self.shared = false;
    }

    pub(crate) fn set_shared(&mut self, bytes: u32) {
        self.desired = bytes.min(self.largest);
        self.shared = true;
    }

    /// Bytes the peer may still send of what was offered.
    pub(crate) fn open(&self, next: SeqNum) -> u32 {
        if self.edge.after(next) {
            self.edge.since(next)
        } else {
            0
        }
    }

    /// The field of a segment that is not a SYN and acknowledges `from`, which is `next` or lies before it. `step` is the
    /// smallest gain worth telling: one segment.
    pub(crate) fn field(&self, from: SeqNum, next: SeqNum, step: u32) -> u16 {
        if self.shared {
            // Shared by subflows, it counts from the Data ACK and is passed on as it is.
            return self.scale.compress_up(self.desired);
        }
        let open = self.open(next);
        // Without room the edge may be beyond it already.
        let desired = match self.desired {
            0 => 0,
            room => room.saturating_add(next.since(from)),
        };
        let kept = self.kept(self.open(from), desired);
        // RFC 9293 3.8.6.2.2: the right edge stays until it can move by a segment or half the buffer.
        let worth = step.min(self.largest / 2).max(1);
        if self.desired >= open.saturating_add(worth) {
            self.scale.compress(desired).max(kept)
        } else {
            kept
        }
    }

    /// The field that leaves the right edge where it is, `open` bytes away. Where it lies between two units, rounding up moves
    /// it right, on each advertisement a little more, so that is done only within the unit in which the room of `desired` bytes
    /// ends. Beyond that the field is rounded down; RFC 7323 section 2.4 allows both. What was advertised before is accepted
    /// either way, since the edge itself stays.
    fn kept(&self, open: u32, desired: u32) -> u16 {
        let up = self.scale.compress_up(open);
        if up <= self.scale.compress_up(desired) {
            up
        } else {
            self.scale.compress(open)
        }
    }

    /// Accepts at most `most` bytes from `next` on, whatever was advertised. A subflow that shared its window may hold the
    /// peer to a right edge that the connection's window has long left behind (RFC 8684 section 3.3.1).
    pub(crate) fn confine(&mut self, next: SeqNum, most: u32) {
        if self.open(next) > most {
            self.edge = next + most;
            self.advertised = if self.advertised.after(self.edge) {
                self.edge
            } else {
                self.advertised
            };
        }
    }

    /// The field of a SYN or SYN+ACK, which is never scaled (RFC 7323 section 2.2).
    pub(crate) fn syn_field(&self, next: SeqNum) -> u16 {
        let advertised = WindowScale::NONE.compress(self.open(next));
        WindowScale::NONE
            .compress(self.desired)
            .max(self.in_syn)
            .max(advertised)
    }

    /// A SYN or SYN+ACK left.
    pub(crate) fn offered_in_syn(&mut self, next: SeqNum) {
        self.in_syn = self.syn_field(next);
    }

    /// A segment with `bytes` of window left for `next`.
    pub(crate) fn offered(&mut self, next: SeqNum, bytes: u32) {
        self.advertised = next + bytes;
        self.edge = self.edge.max(self.advertised);
    }

    /// The window grew so much that the peer should learn it without waiting for another reason: to twice what it
    /// has, by at least one segment (or half the buffer).
    pub(crate) fn update_due(&self, next: SeqNum, step: u32) -> bool {
        // A shared window may have been advertised smaller than before, so only the newest value counts.
        let open = match self.shared {
            true if self.advertised.after(next) => self.advertised.since(next),
            true => 0,
            false => self.open(next),
        };
        // Nearly always there is nothing to gain: at most a unit by rounding, and no doubling.
        if self.desired <= open && self.scale.unit() <= open {
            return false;
        }
        let offer = self.scale.expand(self.field(next, next, step));
        offer > open
            && offer >= open.saturating_mul(2)
            && offer - open >= step.saturating_mul(2).min(self.largest / 2).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_rounded_up_within_the_unit_in_which_the_room_ends_and_down_beyond() {
        // RFC 7323 section 2.4. Units of 32 bytes; the edge is 100,000 bytes after the first number.
        let next = SeqNum::new(1000);
        for (arrived, desired, field) in [
            // The edge lies on a boundary, whatever the room is.
            (3200, 96_800, 3025),
            (3200, 0, 3025),
            // Between two units, and what is not read leaves room to the edge: up.
            (3201, 96_799, 3025),
            (3201, 96_769, 3025),
            // The room ends below that unit: down.
            (3201, 96_768, 3024),
            (3201, 0, 3024),
            (99_999, 1, 1),
            (99_999, 0, 0),
            (100_000, 0, 0),
        ] {
            let mut w = RecvWindow::new(next, 1 << 20, WindowScale::for_window(1 << 20));
            assert_eq!(w.scale().unit(), 32);
            w.offered(next, 100_000);
            w.set_desired(desired);
            let later = next + arrived;
            assert_eq!(w.field(later, later, 1460), field, "{arrived} {desired}");
            w.offered(later, w.scale().expand(field));
            assert!(w.open(next) >= 100_000, "what was advertised is accepted");
            assert!(w.open(later) < desired.max(100_000 - arrived) + 32);
        }
    }

    #[test]
    fn what_a_shared_window_promised_is_confined_once() {
        let next = SeqNum::new(u32::MAX - 5);
        let mut w = RecvWindow::new(next, 1 << 20, WindowScale::NONE);
        w.offered(next, 60_000);
        w.confine(next, 70_000);
        assert_eq!(w.open(next), 60_000);
        w.confine(next, 500);
        assert_eq!(w.open(next), 500);
        w.set_desired(0);
        assert_eq!(w.field(next, next, 1460), 500);
    }

    #[test]
    fn small_gains_are_not_advertised() {
        // RFC 9293 3.8.6.2.2
        let next = SeqNum::new(1);
        let mut w = RecvWindow::new(next, 60_000, WindowScale::NONE);
        w.offered(next, 60_000);
        w.set_desired(0);
        let next = next + 60_000;
        assert_eq!(w.field(next, next, 1460), 0);
        w.set_desired(1000);
        assert_eq!(w.field(next, next, 1460), 0);
        assert!(!w.update_due(next, 1460));
        w.set_desired(2000);
        assert_eq!(w.field(next, next, 1460), 2000);
        assert!(!w.update_due(next, 1460));
        w.set_desired(2920);
        assert!(w.update_due(next, 1460));
    }

    #[test]
    fn a_small_buffer_counts_by_halves() {
        let next = SeqNum::new(1);
        let mut w = RecvWindow::new(next, 1000, WindowScale::NONE);
        w.offered(next, 1000);
        w.set_desired(400);
        let next = next + 1000;
        assert_eq!(w.field(next, next, 1460), 0);
        w.set_desired(500);
        assert_eq!(w.field(next, next, 1460), 500);
        assert!(w.update_due(next, 1460));
    }
}
