//! What a relay does next, decided from what happened at its two streams so far. No socket and no clock in here.
//!
//! A stream breaks in two ways: reading fails, or writing does. After the second, what its peer had said before may still be
//! there to read, an answer that came early for example, so it is read to its end. From the first break on the other stream
//! gets what is left for it, a FIN only if the broken stream's peer had sent one, and what it still says is read and dropped,
//! for closing a socket with unread bytes makes the host send a RST, which may take the answer from its reader (RFC 9112
//! section 9.6).

use std::time::Duration;

/// After a break: how long the other stream may take none of the bytes that are left for it.
pub(super) const STUCK: Duration = Duration::from_secs(30);

/// After a break and an end in order: how long the peer may be silent before its stream is reset.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// After a break and an end in order: how long at most a peer that goes on sending is listened to.
pub(super) const LINGER: Duration = Duration::from_secs(30);

/// One of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    First,
    Second,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// What happened at one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Bytes were read that the other stream is to get.
    Data,
    /// The end of file was read.
    End,
    /// Reading failed.
    Broken,
    /// All that was held for this stream was written to it.
    Written,
    /// The other stream's end was passed on to this one.
    Shut,
    /// Writing failed. Whether an end of file that is read after that is one: a host's socket reports a reset once, to whoever
    /// calls first, and reads as ended from then on.
    Refused { end_is_certain: bool },
}

/// What to do with the direction that starts at one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read, to pass it on.
    Read,
    /// Write what is held.
    Write,
    /// Pass the end on.
    Shut,
    /// Read and throw away, as nobody takes it any more.
    Drop,
    /// Nothing is left to be done.
    Rest,
}

/// Where the whole stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Both streams work.
    Carrying,
    /// Both directions have ended in order.
    Finished,
    /// One stream is broken, and `left` gets what is left for it before it is reset.
    Ending {
        left: Side,
        /// All of that is written, the FIN too if there was one.
        settled: bool,
        /// There was a FIN.
        in_order: bool,
        /// The stream's own peer has sent its FIN.
        ended: bool,
    },
    /// Both are broken.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Open,
    Ended,
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Open,
    Shut,
    Broken,
}

/// What is known of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    reading: Reading,
    writing: Writing,
    /// An end of file would be no end.
    doubtful: bool,
    /// Bytes were read from it that are not yet written to the other.
    held: bool,
}

impl End {
    const NEW: Self = Self {
        reading: Reading::Open,
        writing: Writing::Open,
        doubtful: false,
        held: false,
    };
}

/// What is known of both streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Course {
    first: End,
    second: End,
}

impl Course {
    pub(super) const NEW: Self = Self {
        first: End::NEW,
        second: End::NEW,
    };

    fn end(&self, side: Side) -> &End {
        match side {
            Side::First => &self.first,
            Side::Second => &self.second,
        }
    }

    fn end_mut(&mut self, side: Side) -> &mut End {
        match side {
            Side::First => &mut self.first,
            Side::Second => &mut self.second,
        }
    }

    /// Which streams are broken, the first and the second.
    pub(super) fn broken(&self) -> [bool; 2] {
        [self.first, self.second].map(|end| end.writing == Writing::Broken)
    }

    /// Whether one of the directions has ended.
    pub(super) fn is_half_closed(&self) -> bool {
        let ended = |end: &End| end.reading != Reading::Open;
        ended(&self.first) || ended(&self.second)
    }

    /// Notes what happened at a stream.
    pub(super) fn note(&mut self, side: Side, event: Event) {
        let end = self.end_mut(side);
        match event {
            Event::Data => end.held = true,
            Event::End if end.doubtful => self.break_off(side),
            Event::End => end.reading = Reading::Ended,
            Event::Broken => self.break_off(side),
            Event::Written => self.end_mut(side.other()).held = false,
            Event::Shut => end.writing = Writing::Shut,
            Event::Refused { end_is_certain } => {
                end.writing = Writing::Broken;
                end.doubtful = !end_is_certain;
                self.end_mut(side.other()).held = false;
            }
        }
    }

    /// Neither reads nor writes any more.
    fn break_off(&mut self, side: Side) {
        let end = self.end_mut(side);
        (end.reading, end.writing) = (Reading::Broken, Writing::Broken);
        self.end_mut(side.other()).held = false;
    }

    /// What to do with what comes from a stream.
    pub(super) fn step(&self, from: Side) -> Step {
        let (from, to) = (self.end(from), self.end(from.other()));
        match (from.reading, to.writing) {
            (_, Writing::Open) if from.held => Step::Write,
            (Reading::Open, Writing::Open) => Step::Read,
            (Reading::Open, Writing::Broken) => Step::Drop,
            (Reading::Ended, Writing::Open) => Step::Shut,
            _ => Step::Rest,
        }
    }

    pub(super) fn stage(&self) -> Stage {
        let left = match self.broken() {
            [true, true] => return Stage::Over,
            [true, false] => Side::Second,
            [false, true] => Side::First,
            [false, false] => {
                let done =
                    |end: &End| end.reading == Reading::Ended && end.writing == Writing::Shut;
                return match done(&self.first) && done(&self.second) {
                    true => Stage::Finished,
                    false => Stage::Carrying,
                };
            }
        };
        let (broken, other) = (self.end(left.other()), self.end(left));
        let in_order = broken.reading == Reading::Ended;
        let passed_on = match broken.reading {
            Reading::Open => false,
            Reading::Ended => other.writing == Writing::Shut,
            Reading::Broken => true,
        };
        Stage::Ending {
            left,
            settled: passed_on && !broken.held,
            in_order,
            ended: other.reading == Reading::Ended,
        }
    }
}

/// How the stream that is left gets on after the other's break.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Its peer has not acknowledged all that was written.
    pub(super) unacknowledged: bool,
    /// Since its peer last took something.
    pub(super) stuck: Duration,
    /// Since its peer last said something, or took something.
    pub(super) quiet: Duration,
    /// Since its peer had everything.
    pub(super) since_all: Duration,
}

/// How the stream that is left is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// By plain closing: both of its directions have ended in order.
    Close,
    /// By a reset.
    Abort,
}

/// Whether the time of a stream that is left after the other's break has come.
pub(super) fn farewell(
    settled: bool,
    in_order: bool,
    ended: bool,
    progress: Progress,
) -> Option<Farewell> {
    if settled && in_order && ended {
        return Some(Farewell::Close);
    }
    let over = if !settled || progress.unacknowledged {
        // A reset takes what is on its way along.
        progress.stuck >= STUCK
    } else {
        !in_order || progress.quiet >= QUIET || progress.since_all >= LINGER
    };
    over.then_some(Farewell::Abort)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Event::{Broken, Data, End, Refused, Shut, Written};
    use Side::{First, Second};

    fn after(events: &[(Side, Event)]) -> Course {
        let mut course = Course::NEW;
        for &(side, event) in events {
            course.note(side, event);
        }
        course
    }

    fn ending(left: Side, settled: bool, in_order: bool, ended: bool) -> Stage {
        Stage::Ending {
            left,
            settled,
            in_order,
            ended,
        }
    }

    #[test]
    fn an_end_is_passed_on_behind_the_bytes_and_both_make_a_finish() {
        let course = after(&[(First, Data)]);
        assert_eq!(course.step(First), Step::Write);
        let course = after(&[(First, Data), (Second, Written), (First, End)]);
        assert_eq!(
            (course.step(First), course.step(Second)),
            (Step::Shut, Step::Read)
        );
        let course = after(&[(First, End), (Second, Shut)]);
        assert_eq!(
            (course.step(First), course.stage()),
            (Step::Rest, Stage::Carrying)
        );
        let course = after(&[(First, End), (Second, Shut), (Second, End), (First, Shut)]);
        assert_eq!(course.stage(), Stage::Finished);
    }

    #[test]
    fn an_early_answer_is_read_after_its_server_refuses_more() {
        let certain = Refused {
            end_is_certain: true,
        };
        let course = after(&[(First, Data), (Second, certain)]);
        assert_eq!(
            (course.step(First), course.step(Second)),
            (Step::Drop, Step::Read)
        );
        assert_eq!(course.stage(), ending(First, false, false, false));
        let course = after(&[
            (Second, certain),
            (Second, Data),
            (First, Written),
            (Second, End),
        ]);
        assert_eq!(course.step(Second), Step::Shut);
        let course = after(&[(Second, certain), (Second, End), (First, Shut)]);
        assert_eq!(course.stage(), ending(First, true, true, false));
        let course = after(&[
            (Second, certain),
            (Second, End),
            (First, Shut),
            (First, End),
        ]);
        assert_eq!(course.stage(), ending(First, true, true, true));
    }

    #[test]
    fn an_end_after_a_reset_that_another_call_was_told_of_is_none() {
        let doubtful = Refused {
            end_is_certain: false,
        };
        let course = after(&[(Second, doubtful), (Second, End)]);
        assert_eq!(course.step(Second), Step::Rest);
        assert_eq!(course.stage(), ending(First, true, false, false));
    }

    #[test]
    fn a_reset_waits_for_what_was_read_before_it() {
        let course = after(&[(First, Data), (First, Broken)]);
        assert_eq!(
            (course.step(First), course.step(Second)),
            (Step::Write, Step::Drop)
        );
        assert_eq!(course.stage(), ending(Second, false, false, false));
        let course = after(&[(First, Data), (First, Broken), (Second, Written)]);
        assert_eq!(course.stage(), ending(Second, true, false, false));
        let course = after(&[(First, Broken), (Second, Broken)]);
        assert_eq!(course.stage(), Stage::Over);
    }

    #[test]
    fn a_close_waits_while_the_other_side_can_still_receive() {
        let new = Progress::default();
        let unacknowledged = Progress {
            unacknowledged: true,
            ..new
        };
        let stuck = Progress {
            stuck: STUCK,
            ..unacknowledged
        };
        let quiet = Progress {
            quiet: QUIET,
            ..new
        };
        let long = Progress {
            since_all: LINGER,
            ..new
        };
        let abort = Some(Farewell::Abort);
        for (settled, in_order, ended, progress, wanted) in [
            // Cut off: as soon as all is acknowledged, or nobody takes it.
            (true, false, false, new, abort),
            (true, false, true, new, abort),
            (true, false, false, unacknowledged, None),
            (true, false, false, stuck, abort),
            (false, false, false, quiet, None),
            (false, true, true, stuck, abort),
            // Ended in order: when the peer ends, too, or has had its time.
            (true, true, true, unacknowledged, Some(Farewell::Close)),
            (true, true, false, new, None),
            (true, true, false, quiet, abort),
            (true, true, false, long, abort),
            (true, true, false, unacknowledged, None),
        ] {
            assert_eq!(
                farewell(settled, in_order, ended, progress),
                wanted,
                "{settled} {in_order} {ended} {progress:?}"
            );
        }
    }
}
