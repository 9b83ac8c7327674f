//! Events between the stack's values and the plain data of the protocol, both ways: a controller in another process gets
//! exactly what one inside the stack gets.

use manypath_stack::api::{
    CloseCause, Event, EventKind, FallbackCause, IfaceId, Role, SubflowEnd, SubflowOrigin,
};
use manypath_stack::ids::SubflowId;
use manypath_tcp::time::Duration;
use manypath_wire::ids::{AddrId, FourTuple};
use manypath_wire::tcp::mptcp::ResetReason;

use crate::wire::EventReport;

/// How an ended subflow is called, and the `errno` of Linux that says about the same.
const ENDS: &[(SubflowEnd, &str, i32)] = &[
    (SubflowEnd::Finished, "finished", 0),
    (SubflowEnd::Refused, "refused", 111),
    (SubflowEnd::TimedOut, "timed_out", 110),
    (SubflowEnd::Unreachable, "unreachable", 113),
    (SubflowEnd::Administrative, "administrative", 0),
    (SubflowEnd::AddressGone, "address_gone", 99),
    (SubflowEnd::Replaced, "replaced", 0),
    (SubflowEnd::Checksum, "checksum", 74),
    (SubflowEnd::BadHmac, "bad_hmac", 13),
    (SubflowEnd::OptionsLost, "options_lost", 95),
    (SubflowEnd::ProtocolError, "protocol_error", 71),
    (SubflowEnd::ConnectionClosed, "connection_closed", 0),
];

const RESET_BY_PEER: (&str, i32) = ("reset_by_peer", 104);

const CLOSES: &[(CloseCause, &str, i32)] = &[
    (CloseCause::Finished, "finished", 0),
    (CloseCause::Refused, "refused", 111),
    (CloseCause::ResetByPeer, "reset_by_peer", 104),
    (CloseCause::Aborted, "aborted", 103),
    (CloseCause::TimedOut, "timed_out", 110),
    (CloseCause::Unreachable, "unreachable", 113),
    (CloseCause::NoSubflow, "no_subflow", 110),
];

const FALLBACKS: &[(FallbackCause, &str)] = &[
    (FallbackCause::NotWanted, "not_wanted"),
    (FallbackCause::PeerWithout, "peer_without"),
    (FallbackCause::ThirdAckWithout, "third_ack_without"),
    (FallbackCause::FirstDataWithout, "first_data_without"),
    (FallbackCause::OptionsLost, "options_lost"),
    (FallbackCause::Checksum, "checksum"),
    (FallbackCause::PeerFailed, "peer_failed"),
    (FallbackCause::PeerInfinite, "peer_infinite"),
];

const ORIGINS: &[(SubflowOrigin, &str)] = &[
    (SubflowOrigin::First, "first"),
    (SubflowOrigin::PathManager, "path_manager"),
    (SubflowOrigin::Recreated, "recreated"),
    (SubflowOrigin::Command, "command"),
    (SubflowOrigin::Peer, "peer"),
];

/// An event of the stack as a line; `None` for what does not concern controllers.
pub fn report(event: &Event, seq: u64) -> Option<EventReport> {
    let mut out = EventReport {
        event: event.kind.name()?.to_owned(),
        seq,
        at_us: event.at.as_micros(),
        connection: event.conn.map(|id| id.to_string()),
        ..EventReport::default()
    };
    match event.kind {
        EventKind::Opening { tuple, token } => {
            out.server_side = Some(false);
            ends_of(&mut out, &tuple);
            out.token = token.map(|token| token.to_string());
        }
        EventKind::Created { role, tuple, token } => {
            out.server_side = Some(role == Role::Responder);
            ends_of(&mut out, &tuple);
            out.token = token.map(|token| token.to_string());
        }
        EventKind::Closed(cause) => {
            let found = CLOSES.iter().find(|(known, ..)| *known == cause);
            out.cause = found.map(|(_, name, _)| (*name).to_owned());
            out.error = found.map(|(.., error)| *error);
        }
        EventKind::FellBack(cause) => {
            let found = FALLBACKS.iter().find(|(known, _)| *known == cause);
            out.cause = found.map(|(_, name)| (*name).to_owned());
        }
        EventKind::SubflowUp {
            subflow,
            tuple,
            iface: _,
            local_id,
            remote_id,
            origin,
            backup,
        } => {
            out.subflow = Some(u32::from(subflow.0));
            ends_of(&mut out, &tuple);
            (out.local_id, out.remote_id) = (Some(local_id.0), Some(remote_id.0));
            let found = ORIGINS.iter().find(|(known, _)| *known == origin);
            out.origin = found.map(|(_, name)| (*name).to_owned());
            out.backup = Some(backup);
        }
        EventKind::SubflowDown {
            subflow,
            tuple,
            end,
        } => {
            out.subflow = Some(u32::from(subflow.0));
            ends_of(&mut out, &tuple);
            let (cause, error) = end_name(end);
            (out.cause, out.error) = (Some(cause.to_owned()), Some(error));
            if let SubflowEnd::ResetByPeer { reason, transient } = end {
                out.reset_reason = reason.map(ResetReason::code);
                out.transient = Some(transient);
            }
        }
        EventKind::AddressAnnounced { id, addr, port } => {
            out.remote_id = Some(id.0);
            (out.address, out.port) = (Some(addr), port);
        }
        EventKind::AddressWithdrawn { id } => out.remote_id = Some(id.0),
        EventKind::PriorityChanged { subflow, backup } => {
            out.subflow = Some(u32::from(subflow.0));
            out.backup = Some(backup);
        }
        EventKind::Timeout {
            subflow,
            tuple,
            rto,
            backoffs,
        } => {
            out.subflow = Some(u32::from(subflow.0));
            ends_of(&mut out, &tuple);
            (out.rto_us, out.backoffs) = (Some(rto.as_micros()), Some(backoffs));
        }
        EventKind::LocalUp {
            iface: _,
            addr,
            backup,
        } => {
            out.address = Some(addr);
            out.backup = Some(backup);
        }
        EventKind::LocalDown { iface: _, addr } => out.address = Some(addr),
        EventKind::JoinsAllowed
        | EventKind::Decided { .. }
        | EventKind::Acceptable(_)
        | EventKind::Established
        | EventKind::Unreachable
        | EventKind::Readable
        | EventKind::Writable
        | EventKind::Delivered => {}
    }
    Some(out)
}

fn ends_of(out: &mut EventReport, tuple: &FourTuple) {
    (out.local, out.remote) = (Some(tuple.local), Some(tuple.remote));
}

fn end_name(end: SubflowEnd) -> (&'static str, i32) {
    let found = ENDS.iter().find(|(known, ..)| *known == end);
    found.map_or(RESET_BY_PEER, |(_, name, error)| (name, *error))
}

/// An event as the stack's value, for a controller that runs here; `None` where something is missing or unknown.
pub fn kind(report: &EventReport) -> Option<EventKind> {
    let subflow = || u8::try_from(report.subflow?).ok().map(SubflowId);
    let tuple = || Some(FourTuple::new(report.local?, report.remote?));
    // Interfaces have no numbers here; addresses tell them apart.
    let iface = IfaceId(0);
    Some(match report.event.as_str() {
        "opening" => EventKind::Opening {
            tuple: tuple()?,
            token: None,
        },
        "created" => EventKind::Created {
            role: match report.server_side? {
                true => Role::Responder,
                false => Role::Initiator,
            },
            tuple: tuple()?,
            token: None,
        },
        "established" => EventKind::JoinsAllowed,
        "closed" => {
            let cause = report.cause.as_deref()?;
            EventKind::Closed(CLOSES.iter().find(|(_, name, _)| *name == cause)?.0)
        }
        "fallback" => {
            let cause = report.cause.as_deref()?;
            EventKind::FellBack(FALLBACKS.iter().find(|(_, name)| *name == cause)?.0)
        }
        "sub_established" => EventKind::SubflowUp {
            subflow: subflow()?,
            tuple: tuple()?,
            iface,
            local_id: AddrId(report.local_id?),
            remote_id: AddrId(report.remote_id?),
            origin: ORIGINS
                .iter()
                .find(|(_, name)| Some(*name) == report.origin.as_deref())
                .map_or(SubflowOrigin::Peer, |(origin, _)| *origin),
            backup: report.backup.unwrap_or(false),
        },
        "sub_closed" => EventKind::SubflowDown {
            subflow: subflow()?,
            tuple: tuple()?,
            end: end_of(report)?,
        },
        "sub_priority" => EventKind::PriorityChanged {
            subflow: subflow()?,
            backup: report.backup?,
        },
        "announced" => EventKind::AddressAnnounced {
            id: AddrId(report.remote_id?),
            addr: report.address?,
            port: report.port,
        },
        "removed" => EventKind::AddressWithdrawn {
            id: AddrId(report.remote_id?),
        },
        "timeout" => EventKind::Timeout {
            subflow: subflow()?,
            tuple: tuple()?,
            rto: Duration::from_micros(report.rto_us?),
            backoffs: report.backoffs?,
        },
        "new_local_addr" => EventKind::LocalUp {
            iface,
            addr: report.address?,
            backup: report.backup.unwrap_or(false),
        },
        "del_local_addr" => EventKind::LocalDown {
            iface,
            addr: report.address?,
        },
        _ => return None,
    })
}

fn end_of(report: &EventReport) -> Option<SubflowEnd> {
    let cause = report.cause.as_deref()?;
    if cause == RESET_BY_PEER.0 {
        return Some(SubflowEnd::ResetByPeer {
            reason: report.reset_reason.map(ResetReason::from_code),
            transient: report.transient.unwrap_or(false),
        });
    }
    ENDS.iter()
        .find(|(_, name, _)| *name == cause)
        .map(|(end, ..)| *end)
}

/// Events to try things with.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    /// One of each kind that controllers hear of, and of each cause.
    pub(crate) fn every_kind() -> Vec<EventKind> {
        let tuple = FourTuple::new(
            "10.0.0.1:5000".parse().expect("address"),
            "192.0.2.1:80".parse().expect("address"),
        );
        let subflow = SubflowId(3);
        let iface = IfaceId(0);
        let addr = "10.1.0.1".parse().expect("address");
        let mut all = vec![
            EventKind::Opening { tuple, token: None },
            EventKind::Created {
                role: Role::Responder,
                tuple,
                token: None,
            },
            EventKind::JoinsAllowed,
            EventKind::SubflowUp {
                subflow,
                tuple,
                iface,
                local_id: AddrId(1),
                remote_id: AddrId(2),
                origin: SubflowOrigin::Recreated,
                backup: true,
            },
            EventKind::SubflowDown {
                subflow,
                tuple,
                end: SubflowEnd::ResetByPeer {
                    reason: Some(ResetReason::LackOfResources),
                    transient: true,
                },
            },
            EventKind::AddressAnnounced {
                id: AddrId(4),
                addr,
                port: Some(8080),
            },
            EventKind::AddressWithdrawn { id: AddrId(4) },
            EventKind::PriorityChanged {
                subflow,
                backup: true,
            },
            EventKind::Timeout {
                subflow,
                tuple,
                rto: Duration::from_millis(400),
                backoffs: 1,
            },
            EventKind::LocalUp {
                iface,
                addr,
                backup: true,
            },
            EventKind::LocalDown { iface, addr },
        ];
        all.extend(CLOSES.iter().map(|(cause, ..)| EventKind::Closed(*cause)));
        all.extend(
            FALLBACKS
                .iter()
                .map(|(cause, _)| EventKind::FellBack(*cause)),
        );
        all.extend(ENDS.iter().map(|(end, ..)| EventKind::SubflowDown {
            subflow,
            tuple,
            end: *end,
        }));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_tcp::time::Instant;

    #[test]
    fn what_a_controller_outside_hears_is_what_one_inside_hears() {
        for original in samples::every_kind() {
            let event = Event {
                at: Instant::from_secs(1),
                conn: None,
                kind: original,
            };
            let line = serde_json::to_string(&report(&event, 1).expect("it has a name"));
            let read = serde_json::from_str(&line.expect("JSON")).expect("it is read");
            assert_eq!(kind(&read), Some(original));
        }
        let data = Event {
            at: Instant::from_secs(1),
            conn: None,
            kind: EventKind::Readable,
        };
        assert_eq!(report(&data, 1), None);
    }
}
