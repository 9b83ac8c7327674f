//! The receive window: how much is offered, and when a better offer is worth a segment of its own
//! (RFC 9293 section 3.8.6.2.2).

use manypath_wire::seq::SeqNum;
use manypath_wire::window::WindowScale;

/// The window as the peer knows it, and as the caller wishes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvWindow {
    /// First number that no offer has covered. Never moves left.
    edge: SeqNum,
    /// Where the newest offer ended: what the peer goes by.
    told: SeqNum,
    /// What the caller can take now, from the next expected byte.
    wish: u32,
    /// The largest window that will ever be offered.
    largest: u32,
    scale: WindowScale,
    /// Several subflows share one window that somebody above keeps: it is told as it is, from wherever each of
    /// them stands, so this subflow's own right edge may well move left.
    shared: bool,
    /// What our own SYN offered, when the peer's numbers were not known.
    in_syn: u16,
}

impl RecvWindow {
    pub(crate) fn new(next: SeqNum, largest: u32, scale: WindowScale) -> Self {
        RecvWindow {
            edge: next,
            told: next,
            wish: largest,
            largest,
            scale,
            shared: false,
            in_syn: 0,
        }
    }

    /// Begins over at the peer's first number with the scale that was negotiated.
    pub(crate) fn restart(&mut self, next: SeqNum, scale: WindowScale) {
        self.edge = next + u32::from(self.in_syn);
        self.told = self.edge;
        self.scale = scale;
    }

    pub(crate) fn scale(&self) -> WindowScale {
        self.scale
    }

    pub(crate) fn set_wish(&mut self, bytes: u32) {
        self.wish = bytes.min(self.largest);
        self.shared = false;
    }

    pub(crate) fn set_shared(&mut self, bytes: u32) {
        self.wish = bytes.min(self.largest);
        self.shared = true;
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Bytes the peer may still send of what was offered.
    pub(crate) fn open(&self, next: SeqNum) -> u32 {
        if self.edge.after(next) {
            self.edge.since(next)
        } else {
            0
        }
    }

    /// The field of a segment that is not a SYN. `step` is the smallest gain worth telling: one segment.
    pub(crate) fn field(&self, next: SeqNum, step: u32) -> u16 {
        if self.shared {
            return self.scale.compress_up(self.wish);
        }
        let open = self.open(next);
        let kept = self.scale.compress_up(open);
        // RFC 9293 3.8.6.2.2: the right edge stays until it can move by a segment or half the buffer.
        let worth = step.min(self.largest / 2).max(1);
        if self.wish >= open.saturating_add(worth) {
            self.scale.compress(self.wish).max(kept)
        } else {
            kept
        }
    }

    /// The field of a SYN or SYN+ACK, which is never scaled (RFC 7323 section 2.2).
    pub(crate) fn syn_field(&self, next: SeqNum) -> u16 {
        let told = WindowScale::NONE.compress(self.open(next));
        WindowScale::NONE
            .compress(self.wish)
            .max(self.in_syn)
            .max(told)
    }

    /// A SYN or SYN+ACK left.
    pub(crate) fn offered_in_syn(&mut self, next: SeqNum) {
        self.in_syn = self.syn_field(next);
    }

    /// A segment with `bytes` of window left for `next`.
    pub(crate) fn offered(&mut self, next: SeqNum, bytes: u32) {
        self.told = next + bytes;
        self.edge = self.edge.max(self.told);
    }

    /// The window grew so much that the peer should be told without waiting for another reason: to twice what it
    /// has, by at least one segment (or half the buffer).
    pub(crate) fn update_due(&self, next: SeqNum, step: u32) -> bool {
        // A shared window may have been told smaller than before, so only the newest word counts.
        let open = match self.shared {
            true if self.told.after(next) => self.told.since(next),
            true => 0,
            false => self.open(next),
        };
        // Nearly always there is nothing to gain: at most a unit by rounding, and no doubling.
        if self.wish <= open && self.scale.unit() <= open {
            return false;
        }
        let offer = self.scale.expand(self.field(next, step));
        offer > open
            && offer >= open.saturating_mul(2)
            && offer - open >= step.saturating_mul(2).min(self.largest / 2).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_edge_never_moves_left() {
        let next = SeqNum::new(1000);
        let mut w = RecvWindow::new(next, 1 << 20, WindowScale::for_window(1 << 20));
        w.offered(next, w.scale().expand(w.field(next, 1460)));
        let edge = next + w.open(next);
        w.set_wish(0);
        let later = next + 5000;
        let field = w.field(later, 1460);
        assert!((later + w.scale().expand(field)).after_eq(edge));
        assert!((later + w.scale().expand(field)).since(edge) < w.scale().unit());
    }

    #[test]
    fn small_gains_are_not_told() {
        // RFC 9293 3.8.6.2.2
        let next = SeqNum::new(1);
        let mut w = RecvWindow::new(next, 60_000, WindowScale::NONE);
        w.offered(next, 60_000);
        w.set_wish(0);
        let next = next + 60_000;
        assert_eq!(w.field(next, 1460), 0);
        w.set_wish(1000);
        assert_eq!(w.field(next, 1460), 0);
        assert!(!w.update_due(next, 1460));
        w.set_wish(2000);
        assert_eq!(w.field(next, 1460), 2000);
        assert!(!w.update_due(next, 1460));
        w.set_wish(2920);
        assert!(w.update_due(next, 1460));
    }

    #[test]
    fn a_small_buffer_counts_by_halves() {
        let next = SeqNum::new(1);
        let mut w = RecvWindow::new(next, 1000, WindowScale::NONE);
        w.offered(next, 1000);
        w.set_wish(400);
        let next = next + 1000;
        assert_eq!(w.field(next, 1460), 0);
        w.set_wish(500);
        assert_eq!(w.field(next, 1460), 500);
        assert!(w.update_due(next, 1460));
    }
}
