//! The sending half of a subflow: what may leave now. What was lost is [`loss`]'s knowledge; what the peer can take, how
//! large segments should be and when to probe is decided here.

mod keepalive;
pub(crate) mod loss;
mod persist;
mod sws;
mod window;

use manypath_wire::seq::SeqNum;

pub use keepalive::Keepalive;
pub(crate) use keepalive::{Alarm, Prober};
pub(crate) use loss::LossRecovery;
pub(crate) use persist::Persist;
pub(crate) use sws::{Follows, Snapshot, Unacked, Wait, choose};
pub(crate) use window::SendWindow;

use crate::time::Instant;

/// The sending half.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) loss: LossRecovery,
    pub(crate) window: SendWindow,
    pub(crate) persist: Persist,
    /// Number of our FIN, once it was sent.
    pub(crate) fin: Option<SeqNum>,
    /// End of the last segment that was smaller than a full one (Minshall's refinement of Nagle's rule).
    small_end: Option<SeqNum>,
    /// Since when the oldest unacknowledged data, or the SYN, waits (RFC 5482).
    pub(crate) waiting_since: Option<Instant>,
    /// The next new data carries CWR (RFC 3168 section 6.1.2).
    pub(crate) cwr_due: bool,
}

impl Sender {
    pub(crate) fn new(loss: LossRecovery) -> Self {
        Sender {
            loss,
            window: SendWindow::new(),
            persist: Persist::default(),
            fin: None,
            small_end: None,
            waiting_since: None,
            cwr_due: false,
        }
    }

    pub(crate) fn una(&self) -> SeqNum {
        self.loss.flight().una()
    }

    pub(crate) fn nxt(&self) -> SeqNum {
        self.loss.flight().nxt()
    }

    /// Bytes that the peer's window still allows beyond what was sent.
    pub(crate) fn window_room(&self) -> u32 {
        let edge = self.una() + self.window.bytes();
        let nxt = self.nxt();
        if edge.after(nxt) { edge.since(nxt) } else { 0 }
    }

    /// What is unacknowledged, as Nagle's rule asks.
    pub(crate) fn unacked(&self) -> Unacked {
        match self.small_end {
            Some(end) if end.after(self.una()) => Unacked::Small,
            _ if self.loss.outstanding() => Unacked::Full,
            _ => Unacked::Nothing,
        }
    }

    /// New payload left; `full` says that it ended with a full segment.
    pub(crate) fn note_new(&mut self, now: Instant, end: SeqNum, full: bool) {
        if !full {
            self.small_end = Some(end);
        }
        self.waiting_since.get_or_insert(now);
    }

    /// The acknowledgement advanced.
    pub(crate) fn note_progress(&mut self, now: Instant) {
        if self.small_end.is_some_and(|end| end.before_eq(self.una())) {
            self.small_end = None;
        }
        self.waiting_since = self.loss.outstanding().then_some(now);
    }
}
