//! As many subflows as are allowed, by us or at the peer.

use super::*;

fn is_silent(subflow: u8) -> Event {
    Event::Silence {
        subflow: SubflowId(subflow),
        silent: true,
    }
}

fn allowing(subflows: u16) -> Bench {
    Bench::limited(Limits {
        subflows,
        ..Limits::default()
    })
}

fn three_paths(subflows: u16) -> Bench {
    let mut bench = allowing(subflows);
    bench.cell_up();
    bench.tell(Event::LocalUp {
        iface: IfaceId(3),
        addr: ip("10.2.0.1"),
        backup: false,
    });
    bench.tell(Event::Ready);
    bench.settle();
    bench
}

#[test]
fn one_join_exceeds_max_subflows_beside_an_unresponsive_subflow() {
    let mut bench = three_paths(2);
    bench.tell(is_silent(0));
    assert_eq!(bench.opened(), ["10.2.0.1 > 192.0.2.1:80"]);
    bench.tell(is_silent(1));
    assert_eq!(bench.act(), [], "one at a time");
}

#[test]
fn a_backup_does_not_replace_an_unresponsive_subflow_while_another_works() {
    let mut bench = three_paths(2);
    bench.tell(Event::LocalDown {
        iface: IfaceId(3),
        addr: ip("10.2.0.1"),
    });
    bench.tell(Event::LocalUp {
        iface: IfaceId(3),
        addr: ip("10.2.0.1"),
        backup: true,
    });
    bench.tell(is_silent(0));
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.1:80"]);
    bench.end(SubflowId(2), SubflowEnd::TimedOut);
    assert_eq!(bench.act(), []);
    bench.tell(is_silent(1));
    assert_eq!(bench.opened(), ["10.2.0.1 > 192.0.2.1:80"]);
}

#[test]
fn a_backup_at_max_subflows_gives_way_to_a_regular_path() {
    let mut bench = allowing(1);
    bench.tell(Event::LocalUp {
        iface: CELL,
        addr: ip("10.1.0.1"),
        backup: true,
    });
    bench.tell(Event::Ready);
    assert_eq!(bench.act(), [], "the first one works");
    bench.tell(is_silent(0));
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    let subflow = SubflowId(1);
    bench.tell(Event::Up { subflow });
    bench.end(SubflowId(0), SubflowEnd::TimedOut);
    bench.wait(Duration::from_secs(2));
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.1:80"]);
}

#[test]
fn an_unanswered_join_gives_way_to_an_untried_path() {
    let mut bench = three_paths(1);
    bench.end(SubflowId(0), SubflowEnd::AddressGone);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    bench.wait(Duration::from_millis(2_999));
    assert_eq!(bench.act(), []);
    assert_eq!(
        bench.manager.deadline(),
        Some(bench.now + Duration::from_millis(1))
    );
    bench.wait(Duration::from_millis(1));
    let subflow = SubflowId(1);
    assert_eq!(bench.act(), [Action::Remove { subflow }]);
    bench.end(subflow, SubflowEnd::AddressGone);
    assert_eq!(bench.opened(), ["10.2.0.1 > 192.0.2.1:80"]);
    bench.wait(Duration::from_secs(60));
    assert_eq!(bench.act(), [], "all were tried");
}

#[test]
fn the_only_subflow_stays_although_it_is_unresponsive() {
    let mut bench = allowing(1);
    bench.cell_up();
    bench.tell(Event::Ready);
    bench.tell(is_silent(0));
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    assert_eq!(bench.act(), []);
}

#[test]
fn a_lost_address_is_withdrawn_when_a_subflow_can_carry_it() {
    // rfc8684:A16
    let mut bench = Bench::new(Policy::FullMesh);
    bench.tell(Event::Ready);
    bench.tell(Event::LocalDown {
        iface: WIFI,
        addr: ip("10.0.0.1"),
    });
    assert_eq!(bench.act(), [], "the only one waits for its address");
    bench.cell_up();
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    let subflow = SubflowId(1);
    bench.tell(Event::Up { subflow });
    let subflow = SubflowId(0);
    let withdraw = Action::Withdraw { id: AddrId(0) };
    assert_eq!(bench.act(), [withdraw, Action::Remove { subflow }]);
}

#[test]
fn a_link_without_carrier_ends_and_withdraws_nothing() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.act();
    let subflow = SubflowId(1);
    bench.tell(Event::Up { subflow });
    let (iface, addr) = (WIFI, ip("10.0.0.1"));
    bench.tell(Event::LocalStalled { iface, addr });
    assert_eq!(bench.act(), []);
    // Gone for good while the other one works.
    bench.tell(Event::LocalDown { iface, addr });
    let subflow = SubflowId(0);
    let withdraw = Action::Withdraw { id: AddrId(0) };
    assert_eq!(bench.act(), [withdraw, Action::Remove { subflow }]);
}

#[test]
fn a_passive_address_keeps_its_subflows_and_opens_none() {
    let mut bench = Bench::new(Policy::FullMesh);
    bench.tell(Event::Ready);
    let (iface, addr) = (CELL, ip("10.1.0.1"));
    bench.tell(Event::LocalPassive { iface, addr });
    assert_eq!(bench.act(), []);
    let (iface, addr) = (WIFI, ip("10.0.0.1"));
    bench.tell(Event::LocalPassive { iface, addr });
    assert_eq!(bench.act(), []);
    bench.cell_up();
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn a_join_that_was_refused_for_good_is_made_again_where_nothing_else_works() {
    // rfc8684:T4
    let refusal = SubflowEnd::ResetByPeer {
        reason: Some(ResetReason::AdministrativelyProhibited),
        transient: false,
    };
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.act();
    bench.end(SubflowId(1), refusal);
    bench.wait(Duration::from_secs(3600));
    assert_eq!(bench.act(), [], "the other one works");
    assert_eq!(bench.last_reason(), Some(Reason::GivenUp { end: refusal }));
    bench.end(SubflowId(0), SubflowEnd::Administrative);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    bench.end(SubflowId(2), refusal);
    bench.wait(Duration::from_secs(1));
    assert_eq!(bench.act(), [], "later and later");
    bench.wait(Duration::from_secs(2));
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn a_subflow_that_the_peer_finished_is_made_again_where_nothing_else_works() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    assert_eq!(bench.opened().len(), 1);
    bench.tell(Event::Up {
        subflow: SubflowId(1),
    });
    bench.end(SubflowId(0), SubflowEnd::Finished);
    bench.wait(Duration::from_secs(3600));
    assert_eq!(bench.act(), [], "the other one works");
    bench.end(SubflowId(1), SubflowEnd::TimedOut);
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.1:80"]);
}

#[test]
fn a_peer_at_its_limit_is_not_retried_for_ever() {
    // rfc8684:T3
    let refusal = SubflowEnd::ResetByPeer {
        reason: Some(ResetReason::LackOfResources),
        transient: true,
    };
    let mut bench = Bench::new(Policy::FullMesh);
    for (iface, local) in [(2, "10.1.0.1"), (3, "10.2.0.1")] {
        bench.tell(Event::LocalUp {
            iface: IfaceId(iface),
            addr: ip(local),
            backup: false,
        });
    }
    bench.tell(Event::Ready);
    assert_eq!(bench.opened().len(), 2);
    let subflow = SubflowId(1);
    bench.tell(Event::Up { subflow });
    for (subflow, pause) in [(2, 7), (3, 13)] {
        bench.end(SubflowId(subflow), refusal);
        bench.wait(Duration::from_secs(pause));
        assert_eq!(bench.opened(), ["10.2.0.1 > 192.0.2.1:80"]);
    }
    bench.end(SubflowId(4), refusal);
    bench.wait(Duration::from_secs(3600));
    assert_eq!(bench.opened(), [""; 0], "others work");
    bench.end(subflow, SubflowEnd::Finished);
    assert_eq!(
        bench.opened(),
        ["10.2.0.1 > 192.0.2.1:80"],
        "a place is free"
    );
    bench.end(SubflowId(5), refusal);
    bench.wait(Duration::from_secs(3600));
    assert_eq!(bench.opened(), [""; 0], "once");
    bench.tell(Event::LocalDown {
        iface: IfaceId(3),
        addr: ip("10.2.0.1"),
    });
    bench.tell(Event::LocalUp {
        iface: IfaceId(3),
        addr: ip("10.2.0.1"),
        backup: false,
    });
    assert_eq!(
        bench.opened(),
        ["10.2.0.1 > 192.0.2.1:80"],
        "its address is fresh"
    );
}
