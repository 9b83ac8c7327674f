//! Errors that routers and hosts report about our segments (RFC 9293 section 3.9.2.2, RFC 5927).

use manypath_wire::ip::icmp;

use super::Machine;
use super::state::State;
use crate::recovery::pmtu::Report;
use crate::time::Instant;

/// What became of an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpOutcome {
    /// It quotes no segment that is in flight (RFC 5927 section 4.1), or means nothing here.
    Ignored,
    /// Segments are smaller from now on; what was too large is sent again.
    MtuReduced,
    /// A hard error before the connection existed: the attempt cannot succeed (RFC 5461 section 4.1). The machine is
    /// closed.
    Refused,
    /// The destination cannot be reached at present; for an open connection that is only a hint.
    Unreachable,
}

impl Machine {
    /// Takes an ICMP error about a segment of ours.
    pub fn on_icmp(&mut self, now: Instant, error: &icmp::Error) -> IcmpOutcome {
        self.tick(now);
        let (una, nxt) = (self.send.una(), self.send.nxt());
        if self.state == State::Closed || !(error.seq.after_eq(una) && error.seq.before(nxt)) {
            return IcmpOutcome::Ignored;
        }
        match error.kind {
            icmp::Kind::FragNeeded { mtu } => {
                let report = Report::read(mtu, error.tuple.is_ipv6(), self.own_options());
                let loss = &mut self.send.loss;
                if report.is_some_and(|report| loss.on_icmp_too_big(now, error.seq, report)) {
                    self.counters.recovery.mtu_reductions += 1;
                    IcmpOutcome::MtuReduced
                } else {
                    IcmpOutcome::Ignored
                }
            }
            icmp::Kind::Unreachable { .. } if error.is_hard() && self.state == State::SynSent => {
                self.forget();
                IcmpOutcome::Refused
            }
            icmp::Kind::Unreachable { .. } => IcmpOutcome::Unreachable,
            icmp::Kind::TtlExceeded => IcmpOutcome::Ignored,
        }
    }
}
