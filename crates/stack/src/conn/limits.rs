//! Memory accounting of a connection, the part of it that the peer controls, how large the receive window becomes, and whether the
//! connection makes progress.
//!
//! Owns the bounds of the connection as a whole: out-of-order payload and mappings are granted to all
//! subflows together, so that a peer must never gain anything by opening more of them.

use manypath_tcp::machine::reassembly_grant;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::segment::Segment;

use crate::api::ConnOptions;
use crate::conn::Conn;
use crate::conn::dss::mapping::RxMaps;
use crate::conn::handshake::Handshake;
use crate::conn::life::Life;
use crate::conn::recv::autotune::{Arrivals, SHORTEST, first_window, grown};
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::ids::SubflowId;

/// The least rate that counts as progress, in bytes a second: half of what a modem of 1998 carried. One tiny acknowledgement
/// now and then does not count.
pub(crate) const LEAST_RATE: u64 = 4096;
/// Time over which rates are measured.
const PERIOD: Duration = Duration::from_secs(1);

/// Progress of a connection and its rate: bytes that the application has read and that the peer has acknowledged for the
/// first time. What merely arrived does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advance {
    total: u64,
    /// When any byte last counted.
    moved_at: Instant,
    /// Until when it kept the least rate.
    kept_at: Instant,
    /// The total at the beginning of the measured period, and its time.
    mark: u64,
    marked_at: Instant,
    /// Bytes a second in the last whole period.
    rate: u64,
}

impl Advance {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            total: 0,
            moved_at: now,
            kept_at: now,
            mark: 0,
            marked_at: now,
            rate: 0,
        }
    }

    /// Records the bytes counted since the beginning. An idle connection has nothing to make progress with.
    fn note(&mut self, total: u64, idle: bool, now: Instant) {
        if total != self.total {
            (self.total, self.moved_at) = (total, now);
        }
        if now.since(self.marked_at) >= PERIOD {
            self.rate = self.rate_at(now);
            if self.rate >= LEAST_RATE {
                self.kept_at = now;
            }
            (self.mark, self.marked_at) = (total, now);
        }
        if idle {
            (self.moved_at, self.kept_at) = (now, now);
        }
    }

    /// Bytes a second.
    fn rate_at(&self, now: Instant) -> u64 {
        let (bytes, time) = (self.total - self.mark, now.since(self.marked_at));
        if time < PERIOD {
            self.rate.max(bytes)
        } else {
            bytes.saturating_mul(1000) / time.as_millis().max(1)
        }
    }

    /// It keeps the least rate that counts.
    fn keeps_rate(&self, now: Instant) -> bool {
        self.rate_at(now) >= LEAST_RATE
    }
}

/// What limits the memory of a connection.
#[derive(Debug)]
pub(crate) struct Limits {
    /// When the queues are checked for idle memory.
    pub(in crate::conn) memory_check: Option<Instant>,
    /// Progress and its rate.
    pub(in crate::conn) advance: Advance,
    /// Payload that arrived lately, for the size of the receive window.
    pub(in crate::conn) arrivals: Arrivals,
    /// It does not wait to be accepted.
    pub(in crate::conn) accepted: bool,
    /// Limit of the receive window while others need memory, too.
    pub(in crate::conn) window_permitted: u32,
}

impl Limits {
    pub(in crate::conn) fn new(now: Instant) -> Self {
        Self {
            memory_check: None,
            advance: Advance::new(now),
            arrivals: Arrivals::new(now),
            accepted: true,
            window_permitted: u32::MAX,
        }
    }

    /// Bytes a second that the application reads and the peer acknowledges for the first time.
    pub(crate) fn rate_of_advance(&self, now: Instant) -> u64 {
        self.advance.rate_at(now)
    }

    /// It keeps the least rate that counts as progress.
    pub(crate) fn keeps_rate(&self, now: Instant) -> bool {
        self.advance.keeps_rate(now)
    }

    /// Sets the limit of the receive window in bytes.
    pub(crate) fn permit_window(&mut self, bytes: u32) {
        self.window_permitted = bytes;
    }

    /// Begins with no larger window than is permitted. None was advertised yet.
    pub(crate) fn heed_permitted_window(&self, recv: &mut ReceiveQueue) {
        recv.restrict(self.window_permitted);
    }

    /// It is not accepted yet: until then it advertises a small window.
    pub(crate) fn restrict_window(&mut self, recv: &mut ReceiveQueue, bytes: u32) {
        self.accepted = false;
        recv.restrict(bytes);
    }

    /// The application accepted it.
    pub(crate) fn lift_restriction(&mut self, opts: &ConnOptions, recv: &mut ReceiveQueue) {
        self.accepted = true;
        let first = first_window(opts).min(self.window_permitted);
        recv.set_capacity(first.max(recv.capacity()));
    }

    /// Payload arrived on some subflow.
    pub(crate) fn note_arrival(
        &mut self,
        recv: &mut ReceiveQueue,
        subflows: &Subflows,
        opts: &ConnOptions,
        bytes: usize,
        cx: &mut Cx<'_>,
    ) {
        let most = opts.recv_buffer;
        if !opts.mechanisms.autotune || recv.capacity() >= most {
            return;
        }
        self.arrivals.bytes += bytes as u64;
        let interval = cx.now.since(self.arrivals.since);
        if interval < SHORTEST || interval < subflows.round_trips().min().unwrap_or(SHORTEST) {
            return;
        }
        let longest = subflows.round_trips().max().unwrap_or(Duration::ZERO);
        let now = recv.capacity();
        // Until the application accepts the connection its window stays small.
        let wanted = match self.accepted {
            true => grown(now, self.arrivals.bytes, interval, longest, most),
            false => now,
        };
        let size = wanted.min(self.window_permitted).max(now);
        cx.count.recv_buffer_limited += u64::from(size < wanted);
        if size > now {
            recv.set_capacity(size);
            cx.count.recv_buffer_grown += 1;
        }
        self.arrivals = Arrivals::new(cx.now);
    }
}

impl Subflows {
    fn reassembly(&self) -> usize {
        let each = self.iter().map(|sf| sf.tcp.reassembly_memory());
        each.sum()
    }

    /// Gives a subflow what is left of the memory for out-of-order payload, which all of them share. What is held above them
    /// uses the same window.
    pub(crate) fn share_reassembly(
        &mut self,
        opts: &ConnOptions,
        recv: &ReceiveQueue,
        i: SubflowIdx,
    ) {
        let own = self[i].tcp.reassembly_memory();
        let others = self.reassembly() - own;
        let window = recv.spare().min(opts.recv_buffer);
        let grant = reassembly_grant(window).saturating_sub(others);
        self[i].tcp.grant_reassembly(grant);
    }

    /// How many more mappings may wait for their bytes on a subflow. Its equal part is reserved for each subflow.
    pub(crate) fn mapping_room(&self, i: SubflowIdx) -> usize {
        let part = (RxMaps::MOST / SubflowId::LIMIT).saturating_sub(self[i].maps.rx.len());
        if part > 0 {
            return part;
        }
        let waiting: usize = self.iter().map(|sf| sf.maps.rx.len()).sum();
        RxMaps::MOST.saturating_sub(waiting)
    }
}

impl ReceiveQueue {
    /// Bytes of the receive window when everything was read.
    pub(crate) fn recv_window_size(&self) -> u32 {
        self.capacity()
    }

    /// Bytes that a peer makes us hold: out of order on its subflows and above them, or not read by the application.
    pub(crate) fn held_with(&self, subflows: &Subflows) -> usize {
        self.held() + subflows.reassembly()
    }

    /// Bytes that the peer may send at once beyond what is held, since a window was advertised for them.
    pub(crate) fn promised(&self, life: &Life, subflows: &Subflows) -> usize {
        match life.released || self.finished() {
            true => 0,
            false => (self.open() as usize).saturating_sub(subflows.reassembly()),
        }
    }
}

impl Handshake {
    /// The SYN is the one that opened it, and its handshake continues.
    pub(crate) fn was_opened_by(&self, subflows: &Subflows, seg: &Segment<'_>) -> bool {
        let first = subflows.first().filter(|_| !self.is_established());
        first.is_some_and(|sf| sf.tcp.irs() == seg.header.seq)
    }
}

impl Conn {
    /// Bytes of memory in all. Untouched parts of large buffers, which cost an operating system nothing, do not count.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.send.memory() + self.recv.memory() + self.subflows.memory()
    }

    /// Records its progress.
    pub(crate) fn note_advance(&mut self, at: Instant) {
        let total = self.recv.bytes_read() + self.send.una().0;
        let idle =
            self.handshake.is_established() && self.send.queued() == 0 && self.recv.held() == 0;
        self.limits.advance.note(total, idle, at);
    }

    /// Since when it has been holding memory or a place in a queue without progress: the peer does not finish its
    /// handshake, does not take what was written (its window is closed, or it is unresponsive) or leaves a hole open, or the
    /// application does not read. `None` for an idle connection. One that is `modest`, which holds no more than a share, makes
    /// progress with every byte, however slowly; any other has to keep the least rate.
    pub(crate) fn stuck_since(&self, modest: bool, now: Instant) -> Option<Instant> {
        let waits = !self.handshake.is_established()
            || self.send.queued() > 0
            || self.recv.held_with(&self.subflows) > 0
            || self.subflows.is_empty();
        let advance = &self.limits.advance;
        waits.then(|| {
            if modest {
                advance.moved_at
            } else if advance.keeps_rate(now) {
                now
            } else {
                advance.kept_at
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_secs(100) + Duration::from_millis(ms)
    }

    #[test]
    fn progress_is_what_moves_at_the_least_rate() {
        // Bytes moved each time, milliseconds between; whether that is progress after 10 seconds.
        for (bytes, pause, keeps) in [
            (0, 100, false),
            (1, 10, false),
            (1, 450, false),
            (536, 450, false),
            (1460, 450, false),
            (1460, 300, true),
            (41, 10, true),
            (40, 10, false),
            (8192, 2000, true),
            (8191, 2000, false),
        ] {
            let mut advance = Advance::new(at(0));
            let mut total = 0;
            for turn in 1..=10_000 / pause {
                total += bytes;
                advance.note(total, false, at(turn * pause));
            }
            let now = at(10_000 / pause * pause);
            assert_eq!(advance.keeps_rate(now), keeps, "{bytes} in {pause} ms");
            let since = if keeps {
                now.since(advance.kept_at)
            } else {
                Duration::ZERO
            };
            assert!(since <= PERIOD + Duration::from_millis(pause));
            assert_eq!(advance.kept_at > at(0), keeps);
            assert_eq!(advance.moved_at > at(0), bytes > 0);
        }
    }

    #[test]
    fn progress_of_an_idle_connection_is_due_from_the_next_data_on() {
        let mut advance = Advance::new(at(0));
        advance.note(500, true, at(60_000));
        advance.note(500, false, at(60_010));
        assert_eq!(
            (advance.moved_at, advance.kept_at),
            (at(60_000), at(60_000))
        );
    }
}
