//! What the end of a subflow means for the next one between the same addresses.

use manypath_tcp::time::Duration;
use manypath_wire::tcp::mptcp::ResetReason;

use crate::api::SubflowEnd;

/// Whether and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At once: nothing speaks against it.
    Now,
    /// After this time, which grows with each failure in a row.
    After(Duration),
    /// Not before the local address or interface changed, or the peer announced its address afresh.
    // rfc8684:H6 rfc8684:A11
    WhenRefreshed,
    /// After this time, which grows as above, where no other subflow carries data: better than nothing. Else much later.
    AsLastResort(Duration),
    /// After this time, which grows as above, but only while no other subflow carries data. // rfc8684:T4
    OnlyAlone(Duration),
    /// Not on this connection, whatever changes. // rfc8684:T4
    Never,
}

/// What is known about the pair of addresses at the moment when its subflow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// This subflow had been established.
    pub established: bool,
    /// This or an earlier subflow here had been established.
    pub worked: bool,
    /// How many subflows here were lost before this one, in a row and each soon after it was made.
    pub failures: u8,
    /// This subflow carried more than a beginning.
    pub useful: bool,
    /// Another subflow worked when it ended.
    pub beside: bool,
}

impl History {
    /// The failures in a row, to which a subflow that carried much does not belong.
    fn unless_useful(self) -> u8 {
        if self.useful { 0 } else { self.failures }
    }
}

/// The longest time between two attempts, before it is randomised.
pub const LONGEST: Duration = Duration::from_secs(60);

/// The same while nothing else works: without any subflow the connection ends when its time is over.
pub const LONGEST_ALONE: Duration = Duration::from_millis(3_200);

/// So many refusals for want of a place are each followed by another join, whatever else works.
const REFUSALS: u8 = 2;

/// The first pause before a path that changes what it carries is used once more for want of another.
const LAST_RESORT: Duration = Duration::from_millis(50);

/// Decides from the cause and the history. Pure.
///
/// A path that answered once and then falls silent is a path in trouble: it is tried again with growing pauses, also
/// when an attempt in between finds no answer. A path that never answered is not tried again (RFC 8684 section 3.9.3),
/// and one on which the peer or a middlebox said no is not either.
pub fn after(end: SubflowEnd, history: History) -> Retry {
    let silence = |first| match (history.established, history.worked) {
        (true, _) | (false, true) => backed_off(first, history.failures),
        (false, false) => Retry::WhenRefreshed, // rfc8684:H6 rfc8684:A11
    };
    match end {
        SubflowEnd::TimedOut => silence(Duration::from_secs(1)),
        SubflowEnd::Unreachable => silence(Duration::from_secs(3)),
        // A peer that goes on being full would be asked for ever, and asks all its subflows each time. One more place is not worth
        // that while something works.
        SubflowEnd::ResetByPeer {
            reason: Some(ResetReason::LackOfResources),
            transient: true,
        } if !history.established && history.failures >= REFUSALS => {
            Retry::OnlyAlone(grown(Duration::from_secs(1), history.failures)) // rfc8684:T3
        }
        SubflowEnd::ResetByPeer {
            reason: Some(reason),
            transient: true,
        } => {
            backed_off(pause_of(reason), history.failures) // rfc8684:T3
        }
        // The peer says what our own stack says below, of the same box.
        SubflowEnd::ResetByPeer {
            reason: Some(ResetReason::MiddleboxInterference),
            transient: false,
        } if history.established => last_resort(history),
        // A peer whose places are all taken may say so (Linux does), and they may be those of dead subflows. To obey means the end
        // of the connection where there is nothing else.
        SubflowEnd::ResetByPeer {
            reason: Some(ResetReason::AdministrativelyProhibited),
            transient: false,
        } if !history.established => {
            Retry::OnlyAlone(grown(Duration::from_secs(1), history.failures))
        }
        SubflowEnd::ResetByPeer {
            reason: Some(_),
            transient: false,
        } => Retry::Never, // rfc8684:T4
        // A bare reset of a working subflow is more often a middlebox that forgot it than a refusal, and takes to a new one.
        SubflowEnd::ResetByPeer { reason: None, .. } if history.established => {
            match history.unless_useful().checked_sub(1) {
                None => Retry::After(Duration::ZERO),
                Some(before) => backed_off(Duration::from_secs(1), before),
            }
        }
        SubflowEnd::ResetByPeer { reason: None, .. } | SubflowEnd::Refused => Retry::WhenRefreshed,
        SubflowEnd::AddressGone | SubflowEnd::Replaced => Retry::Now,
        // The peer ended it in good order and goes on by another, which it likes better. Where that is gone this one is better than
        // none. A peer that ends the last one wants to end.
        SubflowEnd::Finished if history.established && history.beside => {
            Retry::OnlyAlone(grown(LAST_RESORT, history.unless_useful()))
        }
        SubflowEnd::Finished => Retry::WhenRefreshed,
        // The path changes options or payload. Another one may not; but it is of use where no other is left.
        SubflowEnd::OptionsLost if history.established => last_resort(history),
        SubflowEnd::OptionsLost => Retry::WhenRefreshed,
        // The first data may show it, before the subflow counts as established.
        SubflowEnd::Checksum => last_resort(history),
        SubflowEnd::Administrative
        | SubflowEnd::BadHmac
        | SubflowEnd::ProtocolError
        | SubflowEnd::ConnectionClosed => Retry::Never,
    }
}

/// Damage by chance: each new subflow brings the connection further.
fn last_resort(history: History) -> Retry {
    let pause = grown(LAST_RESORT, history.unless_useful());
    Retry::AsLastResort(pause.min(LONGEST_ALONE))
}

fn backed_off(first: Duration, failures: u8) -> Retry {
    Retry::After(grown(first, failures))
}

fn grown(first: Duration, failures: u8) -> Duration {
    first.times(1 << failures.min(16)).min(LONGEST)
}

/// How long the peer's own reason suggests to wait at first.
fn pause_of(reason: ResetReason) -> Duration {
    Duration::from_secs(match reason {
        ResetReason::TooMuchOutstandingData => 1,
        ResetReason::Unspecified | ResetReason::MptcpSpecific | ResetReason::Unassigned(_) => 2,
        ResetReason::LackOfResources => 5,
        ResetReason::MiddleboxInterference => 10,
        ResetReason::AdministrativelyProhibited | ResetReason::UnacceptablePerformance => 30,
    })
}

/// A few words for the decision log.
pub fn name(end: SubflowEnd) -> &'static str {
    match end {
        SubflowEnd::Finished => "the peer closed it",
        SubflowEnd::ResetByPeer { reason: None, .. } => "reset without a reason",
        SubflowEnd::ResetByPeer {
            reason: Some(_),
            transient: true,
        } => "reset for a passing reason",
        SubflowEnd::ResetByPeer {
            reason: Some(_),
            transient: false,
        } => "reset for a lasting reason",
        SubflowEnd::Refused => "refused",
        SubflowEnd::TimedOut => "no answer",
        SubflowEnd::Unreachable => "unreachable",
        SubflowEnd::Administrative => "removed on request",
        SubflowEnd::AddressGone => "address gone",
        SubflowEnd::Replaced => "replaced",
        SubflowEnd::Checksum => "payload changed on the way",
        SubflowEnd::BadHmac => "authentication failed",
        SubflowEnd::OptionsLost => "options removed on the way",
        SubflowEnd::ProtocolError => "protocol error",
        SubflowEnd::ConnectionClosed => "connection closed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER_WORKED: History = History {
        established: false,
        worked: false,
        failures: 0,
        useful: false,
        beside: false,
    };
    const WAS_UP: History = History {
        established: true,
        worked: true,
        failures: 0,
        useful: false,
        beside: false,
    };
    const BESIDE: History = History {
        beside: true,
        ..WAS_UP
    };
    const LOST_AGAIN: History = History {
        failures: 2,
        ..WAS_UP
    };
    const REJOIN_FAILED: History = History {
        established: false,
        worked: true,
        failures: 2,
        useful: false,
        beside: false,
    };

    fn reset(reason: ResetReason, transient: bool) -> SubflowEnd {
        SubflowEnd::ResetByPeer {
            reason: Some(reason),
            transient,
        }
    }

    const LOST_TWICE: History = History {
        failures: 2,
        ..WAS_UP
    };
    const LOST_LATE: History = History {
        useful: true,
        ..LOST_TWICE
    };

    fn last_resort(ms: u64) -> Retry {
        Retry::AsLastResort(Duration::from_millis(ms))
    }

    const BARE_RESET: SubflowEnd = SubflowEnd::ResetByPeer {
        reason: None,
        transient: false,
    };

    fn seconds(count: u64) -> Retry {
        Retry::After(Duration::from_secs(count))
    }

    #[test]
    fn each_cause_has_its_own_answer() {
        // rfc8684:T3 rfc8684:T4 rfc8684:H6 rfc8684:A11
        let cases = [
            (SubflowEnd::TimedOut, WAS_UP, seconds(1)),
            (SubflowEnd::TimedOut, NEVER_WORKED, Retry::WhenRefreshed),
            (SubflowEnd::TimedOut, REJOIN_FAILED, seconds(4)),
            (SubflowEnd::Unreachable, WAS_UP, seconds(3)),
            (SubflowEnd::Unreachable, NEVER_WORKED, Retry::WhenRefreshed),
            (SubflowEnd::Unreachable, REJOIN_FAILED, seconds(12)),
            (
                reset(ResetReason::LackOfResources, true),
                WAS_UP,
                seconds(5),
            ),
            (
                reset(ResetReason::LackOfResources, true),
                NEVER_WORKED,
                seconds(5),
            ),
            (
                reset(ResetReason::LackOfResources, true),
                REJOIN_FAILED,
                Retry::OnlyAlone(Duration::from_secs(4)),
            ),
            (
                reset(ResetReason::LackOfResources, true),
                LOST_AGAIN,
                seconds(20),
            ),
            (
                reset(ResetReason::LackOfResources, false),
                WAS_UP,
                Retry::Never,
            ),
            (
                reset(ResetReason::MiddleboxInterference, false),
                WAS_UP,
                last_resort(50),
            ),
            (
                reset(ResetReason::MiddleboxInterference, false),
                NEVER_WORKED,
                Retry::Never,
            ),
            (
                reset(ResetReason::AdministrativelyProhibited, false),
                NEVER_WORKED,
                Retry::OnlyAlone(Duration::from_secs(1)),
            ),
            (
                reset(ResetReason::AdministrativelyProhibited, false),
                REJOIN_FAILED,
                Retry::OnlyAlone(Duration::from_secs(4)),
            ),
            (
                reset(ResetReason::AdministrativelyProhibited, false),
                WAS_UP,
                Retry::Never,
            ),
            (
                reset(ResetReason::UnacceptablePerformance, true),
                REJOIN_FAILED,
                seconds(60),
            ),
            (BARE_RESET, WAS_UP, seconds(0)),
            (BARE_RESET, LOST_AGAIN, seconds(2)),
            (BARE_RESET, LOST_LATE, seconds(0)),
            (BARE_RESET, REJOIN_FAILED, Retry::WhenRefreshed),
            (SubflowEnd::Refused, NEVER_WORKED, Retry::WhenRefreshed),
            (
                SubflowEnd::Finished,
                BESIDE,
                Retry::OnlyAlone(Duration::from_millis(50)),
            ),
            (SubflowEnd::Finished, WAS_UP, Retry::WhenRefreshed),
            (SubflowEnd::AddressGone, WAS_UP, Retry::Now),
            (SubflowEnd::Replaced, NEVER_WORKED, Retry::Now),
            (SubflowEnd::Checksum, NEVER_WORKED, last_resort(50)),
            (SubflowEnd::Checksum, WAS_UP, last_resort(50)),
            (SubflowEnd::OptionsLost, LOST_TWICE, last_resort(200)),
            (SubflowEnd::Checksum, LOST_LATE, last_resort(50)),
            (SubflowEnd::OptionsLost, NEVER_WORKED, Retry::WhenRefreshed),
            (SubflowEnd::Administrative, WAS_UP, Retry::Never),
            (SubflowEnd::BadHmac, NEVER_WORKED, Retry::Never),
            (SubflowEnd::ProtocolError, WAS_UP, Retry::Never),
            (SubflowEnd::ConnectionClosed, WAS_UP, Retry::Never),
        ];
        for (end, history, expected) in cases {
            assert_eq!(after(end, history), expected, "{end:?} {history:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        let pauses: [Retry; 9] = core::array::from_fn(|n| {
            after(
                SubflowEnd::TimedOut,
                History {
                    failures: n as u8,
                    ..WAS_UP
                },
            )
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60].map(seconds));
        assert_eq!(
            after(
                SubflowEnd::TimedOut,
                History {
                    failures: u8::MAX,
                    ..WAS_UP
                }
            ),
            seconds(60)
        );
    }
}
