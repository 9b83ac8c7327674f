//! What happens to the paths of a connection.

use crate::SubflowId;
use manypath_stack::{self as stack, EventKind};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Something happened to the paths of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathEvent {
    /// A subflow carries data from now on.
    SubflowUp {
        /// Its number.
        subflow: SubflowId,
        /// Our address and port.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
        /// Either end wants it to be used only when nothing better is left.
        backup: bool,
    },
    /// A subflow ended.
    SubflowDown {
        /// Its number.
        subflow: SubflowId,
        /// Our address and port.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
        /// Why.
        cause: Cause,
    },
    /// A retransmission timeout: the path of a subflow does not answer at present.
    Timeout {
        /// Its number.
        subflow: SubflowId,
        /// The timeout that applies now.
        rto: Duration,
        /// How often it has expired in a row. Each time doubles it, unless nothing was under way.
        backoffs: u8,
    },
    /// Multipath TCP was given up, wholly or in part (RFC 8684 section 3.7).
    FellBack {
        /// Why.
        cause: Cause,
    },
    /// The peer announced an address.
    AddressAnnounced {
        /// The address.
        addr: IpAddr,
        /// Its port, where one was given.
        port: Option<u16>,
    },
    /// The peer changed the priority of a subflow (MP_PRIO).
    PriorityChanged {
        /// Its number.
        subflow: SubflowId,
        /// To be used only when nothing better is left.
        backup: bool,
    },
    /// An address of ours can be used.
    LocalUp {
        /// The address.
        addr: IpAddr,
    },
    /// An address of ours is gone, or the link under it: what leaves from it waits. Its subflows are down only once the peer or a timeout
    /// says so, and go on if it is back before.
    LocalDown {
        /// The address.
        addr: IpAddr,
    },
    /// The connection is over; the last event.
    Closed {
        /// Why.
        cause: Cause,
    },
}

/// Why something ended, in words that can be shown and searched for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cause(&'static str);

impl Cause {
    /// The words; those of one cause stay the same.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

fn of_subflow(end: stack::SubflowEnd) -> Cause {
    use stack::SubflowEnd as End;
    Cause(match end {
        End::Finished => "finished",
        End::ResetByPeer { .. } => "reset by the peer",
        End::Refused => "refused by the peer",
        End::TimedOut => "timed out",
        End::Unreachable => "unreachable",
        End::Administrative => "removed here",
        End::AddressGone => "an address is gone",
        End::Replaced => "replaced by another subflow",
        End::Checksum => "the payload was changed on the way",
        End::BadHmac => "the peer could not prove that it has the keys",
        End::OptionsLost => "options were removed on the way",
        End::ProtocolError => "the peer broke the protocol",
        End::ConnectionClosed => "the connection is over",
    })
}

fn of_fallback(cause: stack::FallbackCause) -> Cause {
    use stack::FallbackCause as Why;
    Cause(match cause {
        Why::NotWanted => "plain TCP was asked for",
        Why::PeerWithout => "the peer or the path has no Multipath TCP",
        Why::ThirdAckWithout | Why::FirstDataWithout | Why::OptionsLost => {
            "options were removed on the way"
        }
        Why::Checksum => "the payload was changed on the way",
        Why::PeerFailed => "the peer found the payload changed",
        Why::PeerInfinite => "the peer fell back",
    })
}

fn of_close(cause: stack::CloseCause) -> Cause {
    use stack::CloseCause as Why;
    Cause(match cause {
        Why::Finished => "finished",
        Why::Refused => "refused by the peer",
        Why::ResetByPeer => "reset by the peer",
        Why::Aborted => "aborted here",
        Why::TimedOut => "timed out",
        Why::Unreachable => "unreachable",
        Why::NoSubflow => "no path came back in time",
    })
}

/// What an application is told of it; `None` for what only concerns the stack.
fn of(kind: EventKind) -> Option<PathEvent> {
    Some(match kind {
        EventKind::SubflowUp {
            subflow,
            tuple,
            backup,
            ..
        } => PathEvent::SubflowUp {
            subflow,
            local: tuple.local,
            remote: tuple.remote,
            backup,
        },
        EventKind::SubflowDown {
            subflow,
            tuple,
            end,
        } => PathEvent::SubflowDown {
            subflow,
            local: tuple.local,
            remote: tuple.remote,
            cause: of_subflow(end),
        },
        EventKind::Timeout {
            subflow,
            rto,
            backoffs,
            ..
        } => PathEvent::Timeout {
            subflow,
            rto: rto.into(),
            backoffs,
        },
        EventKind::FellBack(cause) => PathEvent::FellBack {
            cause: of_fallback(cause),
        },
        EventKind::AddressAnnounced { addr, port, .. } => {
            PathEvent::AddressAnnounced { addr, port }
        }
        EventKind::PriorityChanged { subflow, backup } => {
            PathEvent::PriorityChanged { subflow, backup }
        }
        EventKind::LocalUp { addr, .. } => PathEvent::LocalUp { addr },
        EventKind::LocalDown { addr, .. } => PathEvent::LocalDown { addr },
        EventKind::Closed(cause) => PathEvent::Closed {
            cause: of_close(cause),
        },
        EventKind::Acceptable(_)
        | EventKind::Established
        | EventKind::Unreachable
        | EventKind::Readable
        | EventKind::Writable
        | EventKind::Delivered
        | EventKind::Opening { .. }
        | EventKind::Created { .. }
        | EventKind::JoinsAllowed
        | EventKind::AddressWithdrawn { .. }
        | EventKind::Decided { .. } => return None,
    })
}

/// The events of one connection's paths, from [`MpStream::path_events`](crate::MpStream::path_events).
#[derive(Debug)]
pub struct PathEvents(pub(crate) manypath_io::PathEvents);

impl PathEvents {
    /// The next one; `None` after [`PathEvent::Closed`]. It may be given up (in `select!`) and called again.
    pub async fn next(&mut self) -> Option<PathEvent> {
        loop {
            let event = self.0.next().await?;
            if let Some(event) = of(event.kind) {
                return Some(event);
            }
        }
    }
}
