//! The decisions of fallback (RFC 8684 section 3.7), as one pure function: what is known of a subflow, and what happened, give what the
//! connection does. The effects are in `apply`.

use manypath_wire::seq::Ssn;

use crate::api::FallbackCause;
use crate::conn::dss::offset::Offset;

/// MP_FAILs sent before the subflow is given up.
pub(in crate::conn) const MOST_FAILS: u8 = 5;
/// MP_FAILs sent without any response before the connection continues as TCP.
pub(in crate::conn) const UNANSWERED_FAILS: u8 = 3;

/// What the other subflows show about options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Others {
    /// No other subflow carries data.
    None,
    /// Options were not seen to pass with data on any, or stopped as they did here; or a join's third ACK is unanswered, and the peer may
    /// have accepted it.
    Unproven,
    /// Options passed with data on one and were not seen to stop there, but it is potentially failed.
    Silent,
    /// Options pass with data on one.
    Proven,
}

/// Our data in flight on the subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It continues what was acknowledged at data level, in order and once.
    Contiguous,
    /// Something else is between.
    NotContiguous,
}

/// The peer's data on the subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// All of it is the next part of the stream.
    Whole,
    /// Some of what arrived last was acknowledged and discarded.
    Dropped,
    /// It is not the next part of the stream.
    Gaps,
}

/// Bytes that wait for a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// There are none.
    None,
    /// There never was another subflow: they are the next part of the stream.
    Stream,
    /// They may belong elsewhere.
    Elsewhere,
    /// The peer was queried by MP_FAIL where they belong.
    Queried,
}

/// A DSS checksum failed, and MP_FAIL was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    No,
    /// The peer has not answered.
    Unanswered,
    /// It answered by MP_FAIL; its infinite mapping will show where it continues.
    Answered,
    /// Its infinite mapping came, without data, and continues what is held.
    Continued,
}

/// What is known of a subflow. Where `left` holds, `others` is not [`Others::Proven`]; where `proving` holds, it is not [`Others::None`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) others: Others,
    pub(crate) sent: Sent,
    pub(crate) received: Received,
    pub(crate) held: Held,
    pub(crate) failing: Failing,
    /// It is the last usable subflow: the others never came up, are being reset or are potentially failed.
    pub(crate) left: bool,
    /// Another subflow came up once, so that the order of this one need not have been the stream's all the time.
    pub(crate) joined: bool,
    /// A join's third ACK is unanswered: the peer may have accepted it.
    pub(crate) proving: bool,
}

/// What is known of held bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The next mapping shows that they are not the next part of the stream.
    Contradicted,
    /// They repeat what came before.
    Repeated,
    Unknown,
}

/// Mappings on the subflow before the held bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// Data came with a mapping.
    Mapped,
    /// None did.
    Unmapped,
    /// None did, and the first data that we sent was acknowledged without options.
    UnmappedAnswer,
}

/// The time that the other subflows had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// They may still show whether options pass there.
    Short,
    /// They had time.
    Enough,
    /// They had time, but nothing was received lately on those where options passed: they may have failed unnoticed.
    OldProof,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Options do not pass on the subflow, or no longer.
    OptionsStopped { cause: FallbackCause, time: Time },
    /// Data, or a FIN, came without options on the only subflow there ever was.
    OnlySubflowWithoutOptions { cause: FallbackCause },
    /// No mapping came for held bytes in time, or something shows that none will.
    HeldDue {
        content: Content,
        first: First,
        time: Time,
    },
    /// A DSS checksum did not match. `contiguous`: everything before the mapping is here.
    ChecksumFailed { failed: Failed, contiguous: bool },
    /// The MP_FAIL that we sent `sent` times is not answered. `alive`: the peer sent something else since. `lost`: it sends no options.
    FailDue { sent: u8, alive: bool, lost: bool },
    /// The peer closed the subflow, and its order will be explained no more.
    FinWhileFailing,
    /// Another subflow came up, or recovered, while our MP_FAIL is unanswered.
    OtherWorks,
    /// What came since the checksum failed cannot be stored.
    NotStored,
    /// Bytes without a mapping were discarded: `many` since the last mapped one, or none came mapped for an RTO (`stopped`).
    Discarded { many: bool, stopped: bool },
    /// The first data of a joined subflow, or its answer, came without options.
    JoinWithoutOptions,
    /// The peer acknowledged data at subflow level and never at data level, while another subflow is usable.
    NoDataAck,
    /// After fallback, the peer's infinite mapping begins behind what arrived.
    Skips { next: Offset },
    /// The peer sent MP_FAIL, for data that was sent (`known`) or not.
    Fail { known: bool, next: Offset },
    /// The peer sent an infinite mapping.
    Infinite { place: Place, next: Offset },
}

/// A mapping whose checksum failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) at: Offset,
    pub(crate) ssn: Ssn,
    /// Bytes.
    pub(crate) len: u16,
}

/// Where an infinite mapping of the peer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where the peer's data continues.
    Continues,
    /// It came without data, and if SSNs were shifted, only a segment with data shows where it begins.
    WithoutData,
    /// Nobody can count which of the received bytes it repeats.
    Unknown,
    /// Bytes before it never came: to continue would leave a hole.
    Skips,
    /// It resends: what comes before the SSN is not the stream, and of the rest so many bytes are here.
    Resends { from: Ssn, known: u64 },
}

/// How the peer learns of a fallback, besides the infinite mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// Not at all: it knows.
    None,
    /// By MP_FAIL, until it is known to have fallen back, too.
    Unconfirmed,
    /// By MP_FAIL, which answers its own. // rfc8684:B10
    Answer,
}

/// What the connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing, or nothing yet.
    Keep,
    /// The option has no meaning now: it is counted and ignored.
    Ignore,
    /// Resets the subflow: another one carries its data, or the standard has no way on. // rfc8684:B3
    Reset,
    /// Resets the subflow with MP_FAIL, and drops its bytes that could not be verified. // rfc8684:B6,B11
    ResetWithFail { at: Offset },
    /// Reinjects data elsewhere, to see whether options pass there.
    TryOthers,
    /// Waits longer for a mapping of held bytes. `probe`: the others are probed meanwhile.
    WaitForMapping { probe: bool },
    /// Passes held bytes to the mappings known by now.
    MapHeld,
    /// Discards held bytes as unmapped ones, which the peer resends elsewhere; acknowledgements are withheld no more. `reset`: the subflow
    /// is reset then. // rfc8684:B3
    DiscardHeld { reset: bool },
    /// Resets the subflow, and discards held bytes with it.
    ResetHeld,
    /// Queries the peer by MP_FAIL where the held bytes belong, and resets the others. RFC 8684 section 3.7 has MP_FAIL for failed
    /// checksums; a peer answers it alike whatever the cause, by an infinite mapping, as Linux does on its only subflow.
    Query,
    /// Holds what comes in subflow order and sends MP_FAIL until it is answered. // rfc8684:B9
    AwaitAnswer(Failed),
    /// Sends MP_FAIL once more.
    RepeatFail,
    /// The peer received our MP_FAIL; its infinite mapping decides.
    NoteAnswer,
    /// Discards what is held since the checksum failed, and resets the subflow with MP_FAIL. // rfc8684:B8,B11
    ResetFailed,
    /// Continues as TCP behind an infinite mapping. // rfc8684:B4,B10
    Continue {
        cause: FallbackCause,
        report: Report,
    },
    /// Resends everything without Data ACK behind an infinite mapping. // rfc8684:B9
    Resend {
        cause: FallbackCause,
        report: Report,
    },
    /// Answers the peer's MP_FAIL by an infinite mapping alone.
    AnswerQuery,
    /// Continues as TCP where the peer does. // rfc8684:B14
    FollowPeer { cause: FallbackCause },
    /// Continues as TCP where the peer resends.
    FollowResend {
        cause: FallbackCause,
        from: Ssn,
        known: u64,
    },
}

/// The rule. Pure.
pub(crate) fn decide(facts: &Facts, event: Event) -> Action {
    match event {
        Event::OptionsStopped { cause, time } => on_options_stopped(facts, cause, time),
        Event::OnlySubflowWithoutOptions { cause } => continue_or_reset(facts, cause, Report::None),
        Event::HeldDue {
            content,
            first,
            time,
        } => on_held_due(facts, content, first, time),
        Event::ChecksumFailed { failed, contiguous } => {
            match facts.left && !facts.proving && contiguous {
                true => Action::AwaitAnswer(failed),
                false => Action::ResetWithFail { at: failed.at },
            }
        }
        Event::FailDue { sent, alive, lost } => on_fail_due(facts, sent, alive, lost),
        Event::FinWhileFailing => on_fin_while_failing(facts),
        Event::OtherWorks | Event::NotStored => Action::ResetFailed,
        Event::Discarded { many, stopped } => {
            match many || stopped && facts.others == Others::Proven {
                true => Action::Reset,
                false => Action::Keep,
            }
        }
        // rfc8684:B3
        Event::JoinWithoutOptions | Event::NoDataAck => Action::Reset,
        Event::Skips { next } => Action::ResetWithFail { at: next }, // rfc8684:B11
        Event::Fail { known, next } => on_fail(facts, known, next),
        Event::Infinite { place, next } => on_infinite(facts, place, next),
    }
}

/// The subflow's order is the stream's from here on, if it was so far.
fn continue_or_reset(facts: &Facts, cause: FallbackCause, report: Report) -> Action {
    match (facts.sent, facts.received) {
        (Sent::Contiguous, Received::Whole) => Action::Continue { cause, report },
        // Some received bytes were dropped or belong elsewhere, or sent ones do: this cannot be the stream.
        _ => Action::Reset,
    }
}

/// A peer that fell back as well, and had other subflows, goes on here or resends what it sent there. Its infinite mapping, which would say
/// so, does not come any more.
fn on_fin_while_failing(facts: &Facts) -> Action {
    match facts.joined && facts.failing == Failing::Answered {
        true => Action::Reset,
        false => continue_or_reset(facts, FallbackCause::Checksum, Report::None),
    }
}

/// Everything without Data ACK is resent, which needs received data to be the stream. What of that was dropped the peer has to resend.
fn resend_or_reset(facts: &Facts, cause: FallbackCause, report: Report) -> Action {
    match facts.received {
        Received::Whole | Received::Dropped => Action::Resend { cause, report },
        Received::Gaps => Action::Reset,
    }
}

fn on_options_stopped(facts: &Facts, cause: FallbackCause, time: Time) -> Action {
    // The peer's answer to a query decides about both directions.
    if facts.held == Held::Queried {
        return Action::Keep;
    }
    match (facts.others, time, facts.sent) {
        (Others::Proven, _, _) => Action::Reset,
        (Others::Unproven | Others::Silent, Time::Short, _) => Action::TryOthers,
        // Data in flight is not void, so what was dropped of the peer's cannot be asked for again.
        (_, _, Sent::Contiguous) => continue_or_reset(facts, cause, Report::None),
        (_, _, Sent::NotContiguous) => resend_or_reset(facts, cause, Report::None),
    }
}

fn on_held_due(facts: &Facts, content: Content, first: First, time: Time) -> Action {
    match (facts.held, content) {
        (Held::None, _) => return Action::Keep,
        (_, Content::Contradicted) => return Action::MapHeld,
        (Held::Stream, Content::Repeated) => return Action::ResetHeld,
        (Held::Stream, Content::Unknown) => {
            let cause = match first {
                First::Mapped => FallbackCause::OptionsLost,
                First::Unmapped | First::UnmappedAnswer => FallbackCause::FirstDataWithout,
            };
            return continue_or_reset(facts, cause, Report::Unconfirmed);
        }
        (Held::Elsewhere | Held::Queried, _) => {}
    }
    // rfc8684:B3
    if first == First::UnmappedAnswer {
        return Action::ResetHeld;
    }
    match (facts.others, time) {
        (Others::Proven, Time::OldProof) => Action::WaitForMapping { probe: true },
        (Others::Proven, Time::Short | Time::Enough) => Action::DiscardHeld {
            reset: first == First::Unmapped,
        },
        (Others::Unproven | Others::Silent, Time::Short) => Action::WaitForMapping { probe: false },
        // The standard knows no other way: the subflow is closed, and what the silent one carries waits for it or for its replacement.
        // rfc8684:B5,D12
        (Others::Silent, _) if facts.held != Held::Queried => Action::ResetHeld,
        // No option passes any more. To place the bytes by their content is a guess.
        _ if facts.held == Held::Queried => Action::ResetHeld,
        // Only the peer knows what of it is missing here. Its infinite mapping shows where it begins.
        _ => Action::Query,
    }
}

fn on_fail_due(facts: &Facts, sent: u8, alive: bool, lost: bool) -> Action {
    // The peer receives no options, or sends none any more, or is not received at all.
    let answered = matches!(facts.failing, Failing::Answered | Failing::Continued);
    let no_answer = sent > 0 && (lost && !facts.joined || answered);
    if no_answer || sent >= UNANSWERED_FAILS && !alive {
        continue_or_reset(facts, FallbackCause::Checksum, Report::None)
    } else if sent >= MOST_FAILS {
        Action::ResetFailed
    } else {
        Action::RepeatFail
    }
}

/// The peer could not verify our data, or answers our MP_FAIL. // rfc8684:B7,B10,B13
fn on_fail(facts: &Facts, known: bool, next: Offset) -> Action {
    if facts.held == Held::Queried {
        return Action::AnswerQuery;
    }
    match (facts.failing, facts.proving, facts.joined) {
        (Failing::No, ..) => {}
        // A peer that accepts the join continues there, and so do we.
        (_, true, _) => return Action::Keep,
        // It may continue here or restart here.
        (_, false, true) => return Action::NoteAnswer,
        // From here on bytes count in subflow order.
        (_, false, false) => {
            return continue_or_reset(facts, FallbackCause::Checksum, Report::None);
        }
    }
    // With a join's third ACK unanswered the peer may have another subflow by now, and sends a RST here if it has. The data it rejects may
    // have been acknowledged by the time this arrives.
    if !facts.left || facts.proving || !known {
        return Action::Ignore;
    }
    let (cause, report) = (FallbackCause::PeerFailed, Report::Answer);
    match (facts.received, facts.sent) {
        // Not in stream order. // rfc8684:B11
        (Received::Gaps, _) => Action::ResetWithFail { at: next },
        (_, Sent::NotContiguous) if !facts.joined => Action::ResetWithFail { at: next },
        (Received::Dropped, Sent::Contiguous) if !facts.joined => Action::Reset,
        (Received::Whole, Sent::Contiguous) => Action::Continue { cause, report },
        (Received::Dropped, _) | (_, Sent::NotContiguous) => Action::Resend { cause, report },
    }
}

/// From now on the peer's subflow order is the stream's order. // rfc8684:B14,B15,D18
fn on_infinite(facts: &Facts, place: Place, next: Offset) -> Action {
    let cause = match facts.failing {
        Failing::No => FallbackCause::PeerInfinite,
        Failing::Unanswered | Failing::Answered | Failing::Continued => FallbackCause::Checksum,
    };
    match place {
        Place::WithoutData => return Action::NoteAnswer,
        Place::Unknown => return Action::ResetFailed,
        Place::Resends { from, known } => return Action::FollowResend { cause, from, known },
        Place::Continues | Place::Skips => {}
    }
    match (facts.left, facts.received, facts.sent) {
        (false, ..) => Action::Ignore,
        (true, Received::Whole, Sent::Contiguous) if place == Place::Continues => {
            Action::FollowPeer { cause }
        }
        // Some of what it covers was dropped, or belongs elsewhere.
        (true, ..) => Action::ResetWithFail { at: next },
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const NEXT: Offset = Offset(9_000);
    const STOPPED: Event = Event::OptionsStopped {
        cause: FallbackCause::OptionsLost,
        time: Time::Enough,
    };

    /// The only subflow there ever was, with nothing wrong on it.
    const ALONE: Facts = Facts {
        others: Others::None,
        sent: Sent::Contiguous,
        received: Received::Whole,
        held: Held::None,
        failing: Failing::No,
        left: true,
        joined: false,
        proving: false,
    };

    /// One of two.
    const BESIDE: Facts = Facts {
        others: Others::Proven,
        left: false,
        joined: true,
        ..ALONE
    };

    fn continues(cause: FallbackCause, report: Report) -> Action {
        Action::Continue { cause, report }
    }

    fn resends(cause: FallbackCause, report: Report) -> Action {
        Action::Resend { cause, report }
    }

    #[track_caller]
    fn check(rows: &[(&str, Facts, Event, Action)]) {
        for (name, facts, event, action) in rows {
            assert_eq!(decide(facts, *event), *action, "{name}");
        }
    }

    #[test]
    fn a_subflow_that_loses_options_is_reset_beside_others_and_continues_alone() {
        // rfc8684:B3,B4,B9
        let cause = FallbackCause::OptionsLost;
        let early = Event::OptionsStopped {
            cause,
            time: Time::Short,
        };
        let unproven = Facts {
            others: Others::Unproven,
            ..BESIDE
        };
        let mixed = Facts {
            sent: Sent::NotContiguous,
            joined: true,
            ..ALONE
        };
        check(&[
            (
                "strips options on one of two paths",
                BESIDE,
                STOPPED,
                Action::Reset,
            ),
            ("the same at once", BESIDE, early, Action::Reset),
            (
                "strips, and the other path is new",
                unproven,
                early,
                Action::TryOthers,
            ),
            (
                "strips on both paths",
                unproven,
                STOPPED,
                continues(cause, Report::None),
            ),
            (
                "strips on the only path",
                ALONE,
                STOPPED,
                continues(cause, Report::None),
            ),
            (
                "strips on the last path, which carries a reinjection",
                mixed,
                STOPPED,
                resends(cause, Report::None),
            ),
            (
                "the same, and the peer's data has gaps, too",
                Facts {
                    received: Received::Gaps,
                    ..mixed
                },
                STOPPED,
                Action::Reset,
            ),
            (
                "strips after a mapping was dropped",
                Facts {
                    received: Received::Dropped,
                    ..ALONE
                },
                STOPPED,
                Action::Reset,
            ),
            (
                "the peer was queried",
                Facts {
                    held: Held::Queried,
                    ..ALONE
                },
                STOPPED,
                Action::Keep,
            ),
        ]);
    }

    #[test]
    fn held_bytes_are_the_stream_only_where_there_never_was_another_subflow() {
        // rfc8684:B4,B5,D12
        let due = |content, first, time| Event::HeldDue {
            content,
            first,
            time,
        };
        let held = |held, facts| Facts { held, ..facts };
        let (mapped, new) = (First::Mapped, Content::Unknown);
        let unproven = Facts {
            others: Others::Unproven,
            ..BESIDE
        };
        let silent = Facts {
            others: Others::Silent,
            ..BESIDE
        };
        check(&[
            (
                "cuts options from the first data on",
                held(Held::Stream, ALONE),
                due(new, First::Unmapped, Time::Short),
                continues(FallbackCause::FirstDataWithout, Report::Unconfirmed),
            ),
            (
                "cuts options in mid-connection",
                held(Held::Stream, ALONE),
                due(new, mapped, Time::Short),
                continues(FallbackCause::OptionsLost, Report::Unconfirmed),
            ),
            (
                "a peer that restarts from an old Data ACK",
                held(Held::Stream, ALONE),
                due(Content::Repeated, mapped, Time::Enough),
                Action::ResetHeld,
            ),
            (
                "splits segments and leaves the option on the last piece",
                held(Held::Stream, ALONE),
                due(Content::Contradicted, mapped, Time::Short),
                Action::MapHeld,
            ),
            (
                "loses a mapping beside a path that works",
                held(Held::Elsewhere, BESIDE),
                due(new, mapped, Time::Enough),
                Action::DiscardHeld { reset: false },
            ),
            (
                "strips on one path from its first data on",
                held(Held::Elsewhere, BESIDE),
                due(new, First::Unmapped, Time::Short),
                Action::DiscardHeld { reset: true },
            ),
            (
                "strips data and acknowledgements of a join",
                held(Held::Elsewhere, BESIDE),
                due(new, First::UnmappedAnswer, Time::Short),
                Action::ResetHeld,
            ),
            (
                "strips on one path while the other is silent",
                held(Held::Elsewhere, BESIDE),
                due(new, mapped, Time::OldProof),
                Action::WaitForMapping { probe: true },
            ),
            (
                "strips on both paths, so far",
                held(Held::Elsewhere, unproven),
                due(new, mapped, Time::Short),
                Action::WaitForMapping { probe: false },
            ),
            (
                "strips on both paths",
                held(Held::Elsewhere, unproven),
                due(new, mapped, Time::Enough),
                Action::Query,
            ),
            (
                "strips on a joined path while the first is silent",
                held(Held::Elsewhere, silent),
                due(new, First::Unmapped, Time::Short),
                Action::WaitForMapping { probe: false },
            ),
            (
                "the same for long",
                held(Held::Elsewhere, silent),
                due(new, First::Unmapped, Time::Enough),
                Action::ResetHeld,
            ),
            (
                "strips even the answer to the query",
                held(Held::Queried, unproven),
                due(new, mapped, Time::Enough),
                Action::ResetHeld,
            ),
            (
                "a mapping came",
                ALONE,
                due(new, mapped, Time::Enough),
                Action::Keep,
            ),
        ]);
    }

    #[test]
    fn a_checksum_failure_resets_the_subflow_beside_others_and_awaits_an_answer_alone() {
        // rfc8684:B6,B8,B9,B11
        let failed = Failed {
            at: NEXT,
            ssn: Ssn::new(77),
            len: 1_400,
        };
        let event = |contiguous| Event::ChecksumFailed { failed, contiguous };
        let reset = Action::ResetWithFail { at: NEXT };
        let proving = Facts {
            proving: true,
            ..ALONE
        };
        check(&[
            (
                "rewrites on the only path",
                ALONE,
                event(true),
                Action::AwaitAnswer(failed),
            ),
            ("rewrites on one of two paths", BESIDE, event(true), reset),
            (
                "rewrites while something is missing",
                ALONE,
                event(false),
                reset,
            ),
            (
                "rewrites while a join is being accepted",
                proving,
                event(true),
                reset,
            ),
        ]);
        let due = |sent, alive, lost| Event::FailDue { sent, alive, lost };
        let failing = Facts {
            failing: Failing::Unanswered,
            ..ALONE
        };
        let answered = Facts {
            failing: Failing::Answered,
            joined: true,
            ..ALONE
        };
        let plain = continues(FallbackCause::Checksum, Report::None);
        check(&[
            ("at once", failing, due(0, false, false), Action::RepeatFail),
            ("rewrites and strips", failing, due(1, true, true), plain),
            (
                "the peer is silent",
                failing,
                due(UNANSWERED_FAILS, false, false),
                plain,
            ),
            (
                "the peer sends",
                failing,
                due(UNANSWERED_FAILS, true, false),
                Action::RepeatFail,
            ),
            (
                "the peer never answers",
                failing,
                due(MOST_FAILS, true, false),
                Action::ResetFailed,
            ),
            (
                "its infinite mapping is lost",
                answered,
                due(1, true, false),
                plain,
            ),
            (
                "another path works",
                failing,
                Event::OtherWorks,
                Action::ResetFailed,
            ),
            ("the peer closes", failing, Event::FinWhileFailing, plain),
            (
                "a peer that had other subflows closes",
                Facts {
                    joined: true,
                    ..answered
                },
                Event::FinWhileFailing,
                Action::Reset,
            ),
            (
                "it closes, and its infinite mapping continues what is held",
                Facts {
                    joined: true,
                    failing: Failing::Continued,
                    ..answered
                },
                Event::FinWhileFailing,
                plain,
            ),
        ]);
    }

    #[test]
    fn mp_fail_is_answered_where_the_subflow_is_the_stream() {
        // rfc8684:B7,B10,B11
        let fail = |known| Event::Fail { known, next: NEXT };
        let cause = FallbackCause::PeerFailed;
        let failing = |facts| Facts {
            failing: Failing::Unanswered,
            ..facts
        };
        let last = Facts {
            joined: true,
            ..ALONE
        };
        let scattered = |facts| Facts {
            sent: Sent::NotContiguous,
            ..facts
        };
        let reset = Action::ResetWithFail { at: NEXT };
        check(&[
            (
                "rewrites our data",
                ALONE,
                fail(true),
                continues(cause, Report::Answer),
            ),
            (
                "data that was never sent",
                ALONE,
                fail(false),
                Action::Ignore,
            ),
            ("beside another path", BESIDE, fail(true), Action::Ignore),
            ("not in stream order", scattered(ALONE), fail(true), reset),
            (
                "the last of several",
                scattered(last),
                fail(true),
                resends(cause, Report::Answer),
            ),
            (
                "the peer's data has gaps",
                Facts {
                    received: Received::Gaps,
                    ..last
                },
                fail(true),
                reset,
            ),
            (
                "rewrites both directions",
                failing(ALONE),
                fail(true),
                continues(FallbackCause::Checksum, Report::None),
            ),
            (
                "the same on the last of several",
                failing(last),
                fail(true),
                Action::NoteAnswer,
            ),
            (
                "our join may have been accepted",
                Facts {
                    proving: true,
                    ..failing(ALONE)
                },
                fail(true),
                Action::Keep,
            ),
            (
                "we queried",
                Facts {
                    held: Held::Queried,
                    ..last
                },
                fail(true),
                Action::AnswerQuery,
            ),
        ]);
    }

    #[test]
    fn an_infinite_mapping_is_followed_where_nothing_is_missing() {
        // rfc8684:B14,B15,D18
        let infinite = |place| Event::Infinite { place, next: NEXT };
        let cause = FallbackCause::PeerInfinite;
        let resends = Place::Resends {
            from: Ssn::new(5),
            known: 3,
        };
        let failing = Facts {
            failing: Failing::Answered,
            joined: true,
            ..ALONE
        };
        check(&[
            (
                "the peer fell back",
                ALONE,
                infinite(Place::Continues),
                Action::FollowPeer { cause },
            ),
            (
                "another path works",
                BESIDE,
                infinite(Place::Continues),
                Action::Ignore,
            ),
            (
                "a mapping was dropped",
                Facts {
                    received: Received::Dropped,
                    ..ALONE
                },
                infinite(Place::Continues),
                Action::ResetWithFail { at: NEXT },
            ),
            (
                "the peer resends",
                ALONE,
                infinite(resends),
                Action::FollowResend {
                    cause,
                    from: Ssn::new(5),
                    known: 3,
                },
            ),
            (
                "without data",
                failing,
                infinite(Place::WithoutData),
                Action::NoteAnswer,
            ),
            (
                "rewritten to another length",
                failing,
                infinite(Place::Unknown),
                Action::ResetFailed,
            ),
        ]);
    }

    /// Over all facts, also impossible ones, and all events.
    fn each(mut visit: impl FnMut(Facts, Event)) {
        let bools = [false, true];
        let cause = FallbackCause::OptionsLost;
        let mut events = Vec::from([
            Event::OnlySubflowWithoutOptions { cause },
            Event::FinWhileFailing,
            Event::OtherWorks,
            Event::NotStored,
            Event::JoinWithoutOptions,
            Event::NoDataAck,
            Event::Skips { next: NEXT },
        ]);
        for time in [Time::Short, Time::Enough, Time::OldProof] {
            events.push(Event::OptionsStopped { cause, time });
            for content in [Content::Contradicted, Content::Repeated, Content::Unknown] {
                for first in [First::Mapped, First::Unmapped, First::UnmappedAnswer] {
                    events.push(Event::HeldDue {
                        content,
                        first,
                        time,
                    });
                }
            }
        }
        let failed = Failed {
            at: NEXT,
            ssn: Ssn::new(1),
            len: 1,
        };
        for known in bools {
            for stopped in bools {
                events.push(Event::Discarded {
                    many: known,
                    stopped,
                });
            }
            events.push(Event::ChecksumFailed {
                failed,
                contiguous: known,
            });
            events.push(Event::Fail { known, next: NEXT });
            for (sent, lost) in (0..=MOST_FAILS).flat_map(|sent| bools.map(|lost| (sent, lost))) {
                events.push(Event::FailDue {
                    sent,
                    alive: known,
                    lost,
                });
            }
        }
        let resends = Place::Resends {
            from: Ssn::new(1),
            known: 1,
        };
        for place in [
            Place::Continues,
            Place::WithoutData,
            Place::Unknown,
            resends,
        ] {
            events.push(Event::Infinite { place, next: NEXT });
        }
        for others in [
            Others::None,
            Others::Unproven,
            Others::Silent,
            Others::Proven,
        ] {
            for (sent, received) in [Sent::Contiguous, Sent::NotContiguous]
                .into_iter()
                .flat_map(|sent| {
                    [Received::Whole, Received::Dropped, Received::Gaps]
                        .map(|received| (sent, received))
                })
            {
                for held in [Held::None, Held::Stream, Held::Elsewhere, Held::Queried] {
                    for failing in [
                        Failing::No,
                        Failing::Unanswered,
                        Failing::Answered,
                        Failing::Continued,
                    ] {
                        for flags in 0..8 {
                            let facts = Facts {
                                others,
                                sent,
                                received,
                                held,
                                failing,
                                left: flags & 1 > 0,
                                joined: flags & 2 > 0,
                                proving: flags & 4 > 0,
                            };
                            for event in &events {
                                visit(facts, *event);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_fact_lets_a_subflow_continue_whose_order_is_not_the_streams() {
        let mut seen = 0_u32;
        each(|facts, event| {
            seen += 1;
            match decide(&facts, event) {
                Action::Continue { .. } => {
                    assert_eq!(facts.sent, Sent::Contiguous, "{facts:?} {event:?}");
                    assert_eq!(facts.received, Received::Whole, "{facts:?} {event:?}");
                }
                Action::FollowPeer { .. } => {
                    assert!(facts.left, "{facts:?} {event:?}");
                    assert_eq!(facts.received, Received::Whole, "{facts:?} {event:?}");
                }
                Action::Resend { .. } => {
                    assert_ne!(facts.received, Received::Gaps, "{facts:?} {event:?}");
                }
                _ => {}
            }
        });
        assert_eq!(seen, 4 * 6 * 4 * 4 * 8 * 73);
    }

    #[test]
    fn options_that_pass_elsewhere_never_end_multipath_tcp() {
        each(|facts, event| {
            let lost = matches!(event, Event::OptionsStopped { .. } | Event::HeldDue { .. });
            if lost && facts.others == Others::Proven && facts.held != Held::Stream {
                let action = decide(&facts, event);
                let stays = !matches!(action, Action::Continue { .. } | Action::Resend { .. });
                assert!(stays, "{facts:?} {event:?} {action:?}");
            }
        });
    }
}
