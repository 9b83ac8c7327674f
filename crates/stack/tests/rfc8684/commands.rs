//! What controllers ask for, on the wire: commands in the words of Linux's `mptcp_pm` family.

use std::net::IpAddr;

use manypath_stack::{
    Command, ConnOptions, Done, Ending, EventKind, NewSubflow, PathManager, StackError, SubflowEnd,
};
use manypath_wire::ids::AddrId;
use manypath_wire::tcp::mptcp::{Join, MptcpOption, ResetReason};

use crate::script::packet::ack;
use crate::script::session::Session;
use crate::script::{ours, plain_options, theirs};

fn led() -> ConnOptions {
    ConnOptions {
        path_manager: PathManager::Userspace,
        ..plain_options()
    }
}

fn order(s: &mut Session, command: Command) -> Result<Done, StackError> {
    let (now, conn) = (s.w.now, s.conn);
    let done = s.w.stack.command(now, conn, command);
    s.w.flush();
    done
}

fn create(wanted: NewSubflow) -> Command {
    Command::Create(wanted)
}

#[test]
fn a_subflow_requested_early_is_created_once_mptcp_is_confirmed() {
    // rfc8684:C15
    let mut s = Session::greeted(3, led());
    s.w.drain(0);
    let wanted = NewSubflow {
        local: Some(ours(2)),
        ..NewSubflow::default()
    };
    assert!(!s.info().may_join && s.info().may_create);
    assert_eq!(order(&mut s, create(wanted)), Ok(Done::Done));
    s.w.advance_ms(5000);
    assert_eq!(s.info().subflows.len(), 1, "not before it may");
    s.ack(0);
    let (_, syn) = s.w.answer();
    assert_eq!(
        (syn.tuple.local.ip(), syn.join().is_some()),
        (ours(2), true)
    );
}

#[test]
fn a_subflow_is_made_from_any_part_of_a_four_tuple() {
    let mut s = Session::called_with(3, led());
    let first = s.w.flows[0].tuple;
    let cases: [(NewSubflow, IpAddr, Option<u16>, IpAddr, u16); 4] = [
        // Nothing given: between the first addresses, from another port.
        (
            NewSubflow::default(),
            ours(0),
            None,
            theirs(0),
            first.remote.port(),
        ),
        (
            NewSubflow {
                local: Some(ours(1)),
                ..NewSubflow::default()
            },
            ours(1),
            Some(first.local.port()),
            theirs(0),
            first.remote.port(),
        ),
        (
            NewSubflow {
                local: Some(ours(2)),
                local_port: Some(50_123),
                remote: Some(theirs(4)),
                remote_port: Some(8080),
                ..NewSubflow::default()
            },
            ours(2),
            Some(50_123),
            theirs(4),
            8080,
        ),
        (
            NewSubflow {
                remote: Some(theirs(5)),
                ..NewSubflow::default()
            },
            ours(0),
            None,
            theirs(5),
            first.remote.port(),
        ),
    ];
    for (wanted, local, port, remote, remote_port) in cases {
        let done = order(&mut s, create(wanted));
        assert!(matches!(done, Ok(Done::Subflow(_))), "{done:?}");
        let (_, syn) = s.w.answer();
        assert_eq!(syn.tuple.local.ip(), local, "{wanted}");
        assert_eq!(
            (syn.tuple.remote.ip(), syn.tuple.remote.port()),
            (remote, remote_port)
        );
        match port {
            Some(port) => assert_eq!(syn.tuple.local.port(), port),
            None => assert_ne!(syn.tuple.local, first.local),
        }
    }
}

#[test]
fn each_of_our_attempts_has_a_nonce_of_its_own() {
    // rfc8684:J2
    let mut s = Session::called_with(1, led());
    let mut nonces = Vec::new();
    for _ in 0..6 {
        let done = order(&mut s, create(NewSubflow::default()));
        assert!(matches!(done, Ok(Done::Subflow(_))), "{done:?}");
        let (_, syn) = s.w.answer();
        let Some(&Join::Syn { nonce, .. }) = syn.join() else {
            s.w.fail("no MP_JOIN");
        };
        nonces.push(nonce.0);
    }
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), 6);
}

#[test]
fn a_subflow_that_is_not_up_yet_ends_at_once() {
    for ending in [Ending::Fin, Ending::Reset] {
        let mut s = Session::called_with(2, led());
        let wanted = NewSubflow {
            local: Some(ours(1)),
            ..NewSubflow::default()
        };
        let Ok(Done::Subflow(subflow)) = order(&mut s, create(wanted)) else {
            panic!("it may be made");
        };
        let (flow, _) = s.w.answer();
        let destroy = Command::Destroy { subflow, ending };
        assert_eq!(order(&mut s, destroy), Ok(Done::Done));
        assert_eq!(s.info().subflows.len(), 1);
        s.w.drain(flow);
        s.w.advance_ms(5_000);
        assert!(s.w.drain(flow).is_empty(), "its SYN is not repeated");
    }
}

#[test]
fn impossible_commands_are_refused() {
    let mut s = Session::called_with(1, led());
    let taken = NewSubflow {
        local_port: Some(s.w.flows[0].tuple.local.port()),
        ..NewSubflow::default()
    };
    assert_eq!(order(&mut s, create(taken)), Err(StackError::NoPorts));
    let foreign = NewSubflow {
        local: Some(ours(9)),
        ..NewSubflow::default()
    };
    assert_eq!(order(&mut s, create(foreign)), Err(StackError::NoPath));
    let ourselves = NewSubflow {
        remote: Some(ours(0)),
        ..NewSubflow::default()
    };
    assert_eq!(order(&mut s, create(ourselves)), Err(StackError::NoPath));
    let subflow = manypath_stack::ids::SubflowId(77);
    for command in [
        Command::Destroy {
            subflow,
            ending: Ending::Fin,
        },
        Command::Destroy {
            subflow,
            ending: Ending::Reset,
        },
        Command::SetBackup {
            subflow,
            backup: true,
        },
        Command::Withdraw { id: AddrId(77) },
    ] {
        assert_eq!(
            order(&mut s, command),
            Err(StackError::NoSuchHandle),
            "{command}"
        );
    }
    let limits = Command::SetLimits {
        subflows: Some(1),
        add_addr_accepted: None,
    };
    assert_eq!(order(&mut s, limits), Ok(Done::Done));
    let more = create(NewSubflow::default());
    assert_eq!(order(&mut s, more), Err(StackError::TooMany));
}

#[test]
fn a_subflow_is_closed_by_fin_or_by_a_reset_with_its_reason() {
    // rfc8684:A21,T1
    let mut s = Session::called_with(3, led());
    let mut join = |number: u8| {
        let done = order(
            &mut s,
            create(NewSubflow {
                local: Some(ours(number)),
                ..NewSubflow::default()
            }),
        );
        let Ok(Done::Subflow(subflow)) = done else {
            panic!("{done:?}");
        };
        let (flow, syn) = s.w.answer();
        let answer = s.join_answer(&syn, number, false);
        s.w.inject(flow, &answer);
        s.w.inject(flow, &ack());
        (flow, subflow)
    };
    let (by_fin, by_reset) = (join(1), join(2));
    s.w.drain(by_fin.0);
    s.w.drain(by_reset.0);
    let fin = Command::Destroy {
        subflow: by_fin.1,
        ending: Ending::Fin,
    };
    assert_eq!(order(&mut s, fin), Ok(Done::Done));
    s.w.find(by_fin.0, "a FIN", |seg| seg.flags.fin());
    let reset = Command::Destroy {
        subflow: by_reset.1,
        ending: Ending::Reset,
    };
    assert_eq!(order(&mut s, reset), Ok(Done::Done));
    let seg = s.w.find(by_reset.0, "a reset", |seg| seg.flags.rst());
    let said = seg.options.mptcp.iter().find_map(|option| match option {
        MptcpOption::Reset(reset) => Some((reset.transient, reset.reason)),
        _ => None,
    });
    assert_eq!(said, Some((true, ResetReason::UnacceptablePerformance)));
    assert!(s.w.happened(|e| matches!(e,
        EventKind::SubflowDown { subflow, end: SubflowEnd::Administrative, .. } if *subflow == by_reset.1)));
}

#[test]
fn priorities_and_addresses_are_sent_on_request() {
    // rfc8684:P2,A1,A16
    let mut s = Session::called_with(2, led());
    let subflow = s.info().subflows[0].id;
    let backup = Command::SetBackup {
        subflow,
        backup: true,
    };
    assert_eq!(order(&mut s, backup), Ok(Done::Done));
    let prio = |o: &MptcpOption| matches!(o, MptcpOption::Prio(prio) if prio.backup);
    s.w.find(0, "MP_PRIO", |seg| seg.options.mptcp.iter().any(prio));
    s.w.inject(0, &ack());
    let announce = Command::Announce {
        addr: ours(1),
        port: Some(8080),
    };
    let Ok(Done::Address(id)) = order(&mut s, announce) else {
        panic!("the address is one of ours");
    };
    let add = s.w.find(0, "ADD_ADDR", |seg| {
        seg.options.mptcp.add_addrs().next().is_some()
    });
    let add = add
        .options
        .mptcp
        .add_addrs()
        .next()
        .copied()
        .expect("just found");
    assert_eq!((add.addr, add.addr_id, add.port), (ours(1), id, Some(8080)));
    s.w.inject(0, &ack().opt(MptcpOption::AddAddr(add.to_echo())));
    assert_eq!(order(&mut s, Command::Withdraw { id }), Ok(Done::Done));
    // No third acknowledgement in a row for options alone before a time-out has passed. // rfc8684:G2
    s.w.advance_ms(1_000);
    let gone = |o: &MptcpOption| matches!(o, MptcpOption::RemoveAddr(_));
    s.w.find(0, "REMOVE_ADDR", |seg| seg.options.mptcp.iter().any(gone));
}

#[test]
fn a_new_policy_takes_over_and_is_logged_with_its_origin() {
    let mut s = Session::called_with(2, led());
    s.w.advance_ms(1_000);
    assert_eq!(s.working(), 1, "nobody asked for more");
    let mesh = Command::SetPolicy(PathManager::FullMesh);
    assert_eq!(order(&mut s, mesh), Ok(Done::Done));
    let (_, syn) = s.w.answer();
    assert_eq!(syn.tuple.local.ip(), ours(1));
    let log = s.w.stack.decisions(s.conn).expect("a connection");
    let words: Vec<String> = log.iter().map(ToString::to_string).collect();
    assert_eq!(words[0], "let fullmesh decide: on request");
    assert!(words[1].starts_with("create 10."), "{words:?}");
    let destroy = Command::Destroy {
        subflow: manypath_stack::ids::SubflowId(77),
        ending: Ending::Fin,
    };
    assert_eq!(order(&mut s, destroy), Err(StackError::NoSuchHandle));
    let log = s.w.stack.decisions(s.conn).expect("a connection");
    let last = log.last().expect("a decision").to_string();
    assert!(last.ends_with(": on request, and refused"), "{last}");
}

#[test]
fn a_controller_receives_the_events_of_a_new_connection() {
    let s = Session::called_with(1, led());
    assert!(s.w.happened(|e| matches!(e, EventKind::Created { token: Some(_), .. })));
    assert!(s.w.happened(|e| *e == EventKind::JoinsAllowed));
    assert!(s.w.happened(|e| matches!(e, EventKind::LocalUp { .. })));
}
