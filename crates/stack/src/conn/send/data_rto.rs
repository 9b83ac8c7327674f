//! The data-level retransmission timer (RFC 8684 section 3.3.6). Owns the deadline, never what is resent.

use manypath_tcp::time::{Duration, Instant};

use crate::conn::dss::offset::Offset;

/// Longest interval between data-level retransmissions: the least that RFC 6298 (2.5) permits as a maximum of the time-out.
const LONGEST: Duration = Duration::from_secs(60);

/// What is outstanding at data level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outstanding {
    /// Nothing.
    Nothing,
    /// Data or a DATA_FIN without Data ACK.
    Data,
    /// Only a closed window blocks data.
    Window,
}

/// Times the resending of what subflows cannot know to be missing (RFC 8684 section 3.3.6). // rfc8684:R3
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DataTimer {
    at: Option<Instant>,
    /// When it was last started.
    began: Option<Instant>,
    /// When it was first started since the last new Data ACK.
    since: Option<Instant>,
    backoffs: u8,
    window: bool,
    /// End of the last data-level retransmission, while the peer does not have it.
    pub(in crate::conn) retransmitted_to: Option<Offset>,
}

impl DataTimer {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// When it was last started.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began
    }

    /// Since when what is outstanding has no new Data ACK.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.since
    }

    /// It expired since the last new Data ACK.
    pub(crate) fn has_expired(&self) -> bool {
        self.backoffs > 0
    }

    /// It expired more than once since the last new Data ACK.
    pub(crate) fn repeats(&self) -> bool {
        self.backoffs > 1
    }

    /// It expired more than twice since that ACK.
    pub(crate) fn repeats_in_vain(&self) -> bool {
        self.backoffs > 2
    }

    /// Stops the timer if nothing is outstanding. True if it has to be started: see [`start`](Self::start).
    pub(crate) fn follow(&mut self, outstanding: Outstanding) -> bool {
        match outstanding {
            Outstanding::Nothing => {
                self.progress();
                false
            }
            Outstanding::Data | Outstanding::Window => {
                let window = outstanding == Outstanding::Window;
                let other = core::mem::replace(&mut self.window, window) != window;
                self.at.is_none() || other
            }
        }
    }

    /// Starts a time-out from now, doubled for each one that expired before.
    pub(crate) fn start(&mut self, now: Instant, rto: Duration) {
        self.at = Some(now + backed_off(rto, self.backoffs));
        self.began = Some(now);
        self.since.get_or_insert(now);
    }

    /// As [`start`](Self::start), if that is earlier than the current deadline.
    pub(crate) fn start_at_latest(&mut self, now: Instant, rto: Duration) {
        let due = now + backed_off(rto, self.backoffs);
        self.at = self.at.map(|at| at.min(due));
    }

    /// A new Data ACK arrived.
    pub(crate) fn progress(&mut self) {
        (self.at, self.since) = (None, None);
        self.backoffs = 0;
    }

    /// The peer's window opened.
    pub(crate) fn window_opened(&mut self) {
        if self.window {
            self.progress();
        }
    }
    /// It is due. True if a time-out has passed since it was started, by the current RTO; the next one is then twice as long.
    pub(crate) fn fire(&mut self, now: Instant, rto: Duration) -> bool {
        let began = self.began.unwrap_or(now);
        let due = began + backed_off(rto, self.backoffs);
        if due > now {
            self.at = Some(due);
            return false;
        }
        self.at = None;
        self.backoffs = self.backoffs.saturating_add(1);
        true
    }

    pub(crate) fn stop(&mut self) {
        self.at = None;
    }
}

fn backed_off(rto: Duration, backoffs: u8) -> Duration {
    Duration::from_nanos(rto.as_nanos().saturating_mul(1 << backoffs.min(16))).min(LONGEST.max(rto))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs_double_until_a_new_data_ack() {
        // rfc8684:R3
        let rto = Duration::from_millis(100);
        let mut t = DataTimer::default();
        let start = Instant::from_secs(1);
        assert!(t.follow(Outstanding::Data));
        t.start(start, rto);
        assert!(!t.follow(Outstanding::Data), "it runs already");
        assert_eq!(t.deadline(), Some(start + rto));
        assert!(t.deadline().is_none_or(|at| at > start));
        let first = start + rto;
        assert!(
            t.deadline().is_some_and(|at| at <= first)
                && t.fire(first, rto)
                && t.follow(Outstanding::Data)
        );
        t.start(first, rto);
        assert_eq!(t.deadline(), Some(first + rto + rto));
        t.progress();
        assert!(t.follow(Outstanding::Data));
        t.start(first, rto);
        assert_eq!(t.deadline(), Some(first + rto));
        assert!(!t.follow(Outstanding::Nothing));
        assert_eq!(t.deadline(), None);
        t.start(first, rto);
        assert!(t.follow(Outstanding::Window), "it waits for something else");
    }

    #[test]
    fn an_expiry_is_judged_by_the_current_rto_since_the_start() {
        // rfc8684:R3
        let (short, long) = (Duration::from_millis(100), Duration::from_millis(250));
        let start = Instant::from_secs(1);
        let mut t = DataTimer::default();
        t.start(start, short);
        assert!(!t.fire(start + short, long), "put off");
        assert_eq!(t.deadline(), Some(start + long));
        // The RTO has become short again.
        t.start_at_latest(start + short, short);
        assert_eq!(t.deadline(), Some(start + short + short));
        t.start_at_latest(start + short + short, short);
        assert_eq!(t.deadline(), Some(start + short + short), "never later");
        assert!(t.fire(start + short + short, short) && t.has_expired());
    }
}
