//! The connection's own timers. Each is a moment or nothing; the earliest is the deadline.

use manypath_tcp::time::{Duration, Instant};

/// Longest wait between data-level repetitions.
const LONGEST: Duration = Duration::from_secs(60);

/// What is outstanding at data level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outstanding {
    /// Nothing.
    Nothing,
    /// Data or a DATA_FIN without Data ACK.
    Data,
    /// Only a closed window holds data back.
    Window,
}

/// Repeats at data level what the subflows cannot know to be missing (RFC 8684 section 3.3.6). // rfc8684:R3
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DataTimer {
    at: Option<Instant>,
    /// When it was started last.
    began: Option<Instant>,
    /// When it was started first since the peer acknowledged anything new.
    since: Option<Instant>,
    backoffs: u8,
    window: bool,
}

impl DataTimer {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.at
    }

    /// When it was started last.
    pub(crate) fn began(&self) -> Option<Instant> {
        self.began
    }

    /// Since when the peer has not acknowledged what is outstanding.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.since
    }

    /// It expired since the peer acknowledged anything new.
    pub(crate) fn has_expired(&self) -> bool {
        self.backoffs > 0
    }

    /// It expired more than once since the peer acknowledged anything new.
    pub(crate) fn repeats(&self) -> bool {
        self.backoffs > 1
    }

    /// It expired once more after that.
    pub(crate) fn repeats_in_vain(&self) -> bool {
        self.backoffs > 2
    }

    /// Stops the timer if it should not run. True if it should and does not: [`start`](Self::start) it.
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

    /// Waits for a time-out from now on, longer after each that passed in vain.
    pub(crate) fn start(&mut self, now: Instant, rto: Duration) {
        self.at = Some(now + backed_off(rto, self.backoffs));
        self.began = Some(now);
        self.since.get_or_insert(now);
    }

    /// As [`start`](Self::start), where that is sooner than it is due by now.
    pub(crate) fn start_at_latest(&mut self, now: Instant, rto: Duration) {
        let due = now + backed_off(rto, self.backoffs);
        self.at = self.at.map(|at| at.min(due));
    }

    /// The peer acknowledged something new.
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

    /// Its moment has come.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }

    /// It is due. True if a time-out has passed since it began, by what is known now; it then waits twice as long for the next
    /// time.
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
    fn waits_double_until_there_is_progress() {
        // rfc8684:R3
        let rto = Duration::from_millis(100);
        let mut t = DataTimer::default();
        let start = Instant::from_secs(1);
        assert!(t.follow(Outstanding::Data));
        t.start(start, rto);
        assert!(!t.follow(Outstanding::Data), "it runs already");
        assert_eq!(t.deadline(), Some(start + rto));
        assert!(!t.is_due(start));
        let first = start + rto;
        assert!(t.is_due(first) && t.fire(first, rto) && t.follow(Outstanding::Data));
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
    fn it_waits_from_its_beginning_by_what_is_known_when_it_is_due() {
        // rfc8684:R3
        let (short, long) = (Duration::from_millis(100), Duration::from_millis(250));
        let start = Instant::from_secs(1);
        let mut t = DataTimer::default();
        t.start(start, short);
        assert!(!t.fire(start + short, long), "put off");
        assert_eq!(t.deadline(), Some(start + long));
        // What was slow has arrived.
        t.start_at_latest(start + short, short);
        assert_eq!(t.deadline(), Some(start + short + short));
        t.start_at_latest(start + short + short, short);
        assert_eq!(t.deadline(), Some(start + short + short), "never later");
        assert!(t.fire(start + short + short, short) && t.has_expired());
    }
}
