//! Who may send next.

use manypath_tcp::time::Instant;

use super::Stack;
use crate::api::{IfaceId, Slots, Transmit};
use crate::conn::{Cx, Progress};
use crate::shape::ShapedSlots;

/// Packets that one connection may write before the next one has its turn.
const TURN: usize = 8;
/// Packets that one call may write.
const CALL: usize = 64;
/// Turns beyond the first that connections get in one call for what their last one has set in motion.
const AGAIN: usize = 16;
/// Keys made in one idle moment.
const KEYS_AT_ONCE: usize = 4;

/// How a connection's turn ended.
enum Turn {
    /// It has more.
    More,
    /// It had nothing left, and what was settled then gave it more: it was not asked for that yet.
    Again,
    /// It has nothing left.
    Done,
    /// It waits for room in a device.
    Blocked(IfaceId),
}

impl Stack {
    /// Writes packets into the driver's slots: a bounded number for each call.
    pub fn poll_transmit(&mut self, now: Instant, slots: &mut dyn Slots) -> Transmit {
        self.tick(now);
        while let Some(slot) = self.shaper.call(self.now) {
            if self.conns.at(slot).is_some() {
                self.give_turn(slot);
            } else {
                self.shaper.turn_over(slot, self.now);
            }
        }
        self.transmit(slots)
    }

    fn transmit(&mut self, slots: &mut dyn Slots) -> Transmit {
        let mut sent = 0;
        let mut blocked = None;
        while sent < CALL {
            let replied = match self.shaper.is_idle() {
                true => self.replies.transmit(slots),
                false => {
                    let shaper = &mut self.shaper;
                    let mut shaped = ShapedSlots::of_nobody(&mut *slots, shaper, self.now);
                    self.replies.transmit(&mut shaped)
                }
            };
            match replied {
                Ok(true) => {
                    sent += 1;
                    self.counters.packets_out += 1;
                }
                Ok(false) => break,
                Err(iface) => {
                    blocked = Some(iface);
                    break;
                }
            }
        }
        // Each connection in the queue is looked at once after it stopped making progress.
        let mut idle_turns = self.ready.len();
        let mut again = AGAIN;
        while sent < CALL && idle_turns > 0 {
            let Some(&slot) = self.ready.front() else {
                break;
            };
            let before = sent;
            let turn = self.turn(slot, slots, &mut sent);
            // Only now: an application's scheduler may panic in a turn, and the connection has its next one nevertheless.
            self.ready.pop_front();
            match turn {
                Turn::More => self.ready.push_back(slot),
                Turn::Again => {
                    self.ready.push_back(slot);
                    idle_turns += usize::from(again > 0);
                    again = again.saturating_sub(1);
                }
                Turn::Done => {
                    if let Some(entry) = self.conns.at_mut(slot) {
                        entry.ready = false;
                    }
                }
                Turn::Blocked(iface) => {
                    blocked = Some(iface);
                    self.ready.push_back(slot);
                }
            }
            idle_turns = if sent > before {
                self.ready.len()
            } else {
                idle_turns - 1
            };
        }
        if sent > 0 {
            return Transmit::Sent(sent);
        }
        if let Some(iface) = blocked {
            return Transmit::Blocked(iface);
        }
        self.make_keys();
        Transmit::Nothing
    }

    /// One turn of a connection. One that has to wait for tokens is done: it has its next turn when they are there.
    fn turn(&mut self, slot: u32, slots: &mut dyn Slots, sent: &mut usize) -> Turn {
        let turn = self.turn_within_limits(slot, slots, sent);
        if self.shaper.is_idle() {
            return turn;
        }
        self.shaper.turn_over(slot, self.now);
        match turn {
            Turn::Blocked(_) => self.shaper.full_device().map_or(Turn::Done, Turn::Blocked),
            other => other,
        }
    }

    fn turn_within_limits(&mut self, slot: u32, slots: &mut dyn Slots, sent: &mut usize) -> Turn {
        let mut turn = Turn::More;
        let before = *sent;
        let to_reconcile = self.reconcile_first(slot);
        {
            let Some(entry) = self.conns.at_mut(slot) else {
                return Turn::Done;
            };
            let mut cx = Cx::new(self.now, &mut self.counters, &mut self.rng);
            entry.conn.begin_poll();
            let mut shaped;
            let slots: &mut dyn Slots = match self.shaper.is_idle() {
                true => slots,
                false => {
                    let shaper = &mut self.shaper;
                    shaped = ShapedSlots::of(slot, &entry.shares, slots, shaper, self.now);
                    &mut shaped
                }
            };
            for _ in 0..TURN {
                match entry.conn.transmit(slots, &mut cx) {
                    Progress::Sent => *sent += 1,
                    Progress::Nothing => {
                        turn = Turn::Done;
                        break;
                    }
                    Progress::Blocked(iface) => {
                        turn = Turn::Blocked(iface);
                        break;
                    }
                }
            }
            if *sent == before && !to_reconcile {
                return turn;
            }
            if entry.conn.schedule.moved_in_turn() {
                if entry.conn.schedule.moved_more() {
                    entry.conn.subflows.mark_dirty();
                }
                entry.conn.reconcile(&mut cx);
                // What was just settled may have made something due; it keeps its place in the queue.
                if matches!(turn, Turn::Done) && entry.conn.wants_poll(cx.now) {
                    turn = Turn::More;
                }
            }
        }
        self.settle(slot);
        let to_reconcile = self.conns.at(slot).is_some_and(|entry| entry.to_reconcile);
        match turn {
            Turn::Done if to_reconcile => Turn::Again,
            other => other,
        }
    }

    /// Settles what was left to this turn; true if there was something. Subflows that the path manager wants come up before anything is
    /// sent, as they do where a timer finds the connection first.
    fn reconcile_first(&mut self, slot: u32) -> bool {
        let Some(entry) = self.conns.at_mut(slot) else {
            return false;
        };
        if !core::mem::take(&mut entry.to_reconcile) {
            return false;
        }
        let mut cx = Cx::new(self.now, &mut self.counters, &mut self.rng);
        entry.conn.reconcile(&mut cx);
        if entry.conn.paths.wants_subflow() {
            self.settle_wanted(slot);
        }
        true
    }

    /// Idle moments are for keys that will be needed. // rfc8684:C5,C6
    fn make_keys(&mut self) {
        if self.keys.wants_refill() {
            let demux = &self.demux;
            self.keys.refill(&mut self.rng, KEYS_AT_ONCE, |token| {
                demux.token(token).is_some()
            });
        }
    }
}
