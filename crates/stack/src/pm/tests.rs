mod max_subflows;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use manypath_wire::tcp::mptcp::ResetReason;

use super::ledger::{Announced, Source};
use super::*;

const WIFI: IfaceId = IfaceId(1);
const CELL: IfaceId = IfaceId(2);
const TIMED_OUT: SubflowEnd = SubflowEnd::TimedOut;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("test address")
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("test address")
}

/// A manager with a clock, playing the connection that does what it is told.
struct Bench {
    manager: Manager,
    rng: Rng,
    now: Instant,
    next_subflow: u8,
}

impl Bench {
    fn new(policy: Policy) -> Self {
        Self::with(Config {
            open_wait: Duration::ZERO,
            ..Config::new(policy)
        })
    }

    /// A full mesh within these limits.
    fn limited(limits: Limits) -> Self {
        Self::with(Config {
            open_wait: Duration::ZERO,
            limits,
            ..Config::new(Policy::FullMesh)
        })
    }

    fn with(config: Config) -> Self {
        Self::between(config, "10.0.0.1", "192.0.2.1:80")
    }

    /// The same between other addresses.
    fn between(config: Config, local: &str, remote: &str) -> Self {
        let first = First {
            iface: WIFI,
            local: SocketAddr::new(ip(local), 50_000),
            remote: addr(remote),
            backup: false,
        };
        let mut bench = Self {
            manager: Manager::new(config, first),
            rng: Rng::new([5; 32]),
            now: Instant::from_secs(100),
            next_subflow: 1,
        };
        bench.tell(Event::Opening {
            subflow: SubflowId(0),
            local_id: AddrId(0),
            local: first.local,
            remote_id: AddrId(0),
            remote: first.remote,
            origin: SubflowOrigin::First,
        });
        bench.tell(Event::Up {
            subflow: SubflowId(0),
        });
        bench.tell(Event::LocalUp {
            iface: WIFI,
            addr: first.local.ip(),
            backup: false,
        });
        bench
    }

    /// The same with a second local address, established and settled.
    fn two_paths(policy: Policy) -> Self {
        let mut bench = Self::new(policy);
        bench.cell_up();
        bench.tell(Event::Ready);
        bench
    }

    fn cell_up(&mut self) -> Noted {
        self.tell(Event::LocalUp {
            iface: CELL,
            addr: ip("10.1.0.1"),
            backup: false,
        })
    }

    fn tell(&mut self, event: Event) -> Noted {
        self.manager.handle(self.now, event, &mut self.rng)
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    fn advertise(&mut self, id: u8, remote: &str, port: Option<u16>) -> Noted {
        self.tell(Event::Advertised {
            id: AddrId(id),
            addr: ip(remote),
            port,
            carried_port: 80,
        })
    }

    /// All actions of this moment; the subflows asked for are opened, but not established.
    fn act(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = self.manager.poll(self.now) {
            if let Action::Create(create) = action {
                let subflow = SubflowId(self.next_subflow);
                self.next_subflow += 1;
                self.tell(Event::Opening {
                    subflow,
                    local_id: create.local_id,
                    local: SocketAddr::new(create.local, 50_000 + u16::from(subflow.0)),
                    remote_id: create.remote_id,
                    remote: create.remote,
                    origin: create.origin,
                });
            }
            actions.push(action);
            assert!(actions.len() < 200, "the manager never comes to rest");
        }
        actions
    }

    /// The same in words: `local > remote` for each subflow opened.
    fn opened(&mut self) -> Vec<String> {
        let pairs = self.act().into_iter().filter_map(|action| match action {
            Action::Create(create) => Some(alloc::format!("{} > {}", create.local, create.remote)),
            _ => None,
        });
        pairs.collect()
    }

    /// Opens what is due and establishes it; the number of the last subflow.
    fn settle(&mut self) -> SubflowId {
        let from = self.next_subflow;
        self.act();
        for subflow in from..self.next_subflow {
            self.tell(Event::Up {
                subflow: SubflowId(subflow),
            });
        }
        SubflowId(self.next_subflow - 1)
    }

    fn end(&mut self, subflow: SubflowId, end: SubflowEnd) {
        assert_eq!(
            self.tell(Event::Ended {
                subflow,
                end,
                carried: Carried::Nothing,
            }),
            Noted::Accepted
        );
    }

    fn last_reason(&self) -> Option<Reason> {
        self.manager
            .log()
            .next_back()
            .map(|decision| decision.reason)
    }
}

#[test]
fn nothing_is_opened_before_the_connection_is_established() {
    // rfc8684:C15
    let mut bench = Bench::new(Policy::FullMesh);
    bench.cell_up();
    assert_eq!(bench.act(), []);
    assert_eq!(bench.manager.deadline(), None);
    bench.tell(Event::Ready);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    assert_eq!(bench.act(), [], "asked for once");
}

#[test]
fn full_mesh_joins_every_pair_of_one_family() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.tell(Event::LocalUp {
        iface: CELL,
        addr: ip("2001:db8:1::1"),
        backup: true,
    });
    assert_eq!(bench.advertise(1, "192.0.2.9", None), Noted::Accepted);
    assert_eq!(
        bench.advertise(2, "2001:db8::9", Some(8080)),
        Noted::Accepted
    );
    let expected = [
        "10.1.0.1 > 192.0.2.1:80",
        "2001:db8:1::1 > [2001:db8::9]:8080",
        "10.0.0.1 > 192.0.2.9:80", // rfc8684:A5: the port of the subflow that carried the announcement
        "10.1.0.1 > 192.0.2.9:80",
    ];
    assert_eq!(bench.opened(), expected);
}

#[test]
fn where_places_are_few_each_uplink_has_a_subflow_before_one_has_two() {
    let mut bench = Bench::limited(Limits {
        subflows: 2,
        ..Limits::default()
    });
    bench.cell_up();
    // Known before anything is opened, as from a server with two addresses.
    bench.advertise(1, "192.0.2.9", None);
    bench.tell(Event::Ready);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn local_addresses_have_unique_identifiers_and_the_first_has_zero() {
    // rfc8684:J3 rfc8684:A2
    let mut bench = Bench::two_paths(Policy::FullMesh);
    assert_eq!(
        bench.manager.local_id(WIFI, ip("10.0.0.1")),
        Some(AddrId(0))
    );
    assert_eq!(
        bench.manager.local_id(CELL, ip("10.1.0.1")),
        Some(AddrId(1))
    );
    assert_eq!(
        bench.manager.local_id(CELL, ip("10.1.0.2")),
        Some(AddrId(2))
    );
    assert_eq!(
        bench.manager.local_id(CELL, ip("10.1.0.1")),
        Some(AddrId(1))
    );
    for n in 3..=255u32 {
        assert!(
            bench
                .manager
                .local_id(CELL, IpAddr::from(n.to_be_bytes()))
                .is_some()
        );
    }
    assert_eq!(bench.manager.local_id(CELL, ip("10.9.9.9")), None);
}

#[test]
fn an_identifier_comes_back_with_its_address() {
    // rfc8684:A13
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.settle();
    bench.tell(Event::LocalDown {
        iface: CELL,
        addr: ip("10.1.0.1"),
    });
    bench.act();
    bench.tell(Event::LocalUp {
        iface: CELL,
        addr: ip("10.1.0.7"),
        backup: false,
    });
    assert_eq!(
        bench.manager.local_id(CELL, ip("10.1.0.7")),
        Some(AddrId(2))
    );
    assert_eq!(
        bench.manager.local_id(CELL, ip("10.1.0.1")),
        Some(AddrId(1))
    );
}

#[test]
fn a_lost_address_is_withdrawn_first_and_then_its_subflows_end() {
    // rfc8684:A16 rfc8684:A19
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let joined = bench.settle();
    bench.tell(Event::LocalDown {
        iface: CELL,
        addr: ip("10.1.0.1"),
    });
    assert_eq!(
        bench.act(),
        [
            Action::Withdraw { id: AddrId(1) },
            Action::Remove { subflow: joined }
        ]
    );
    bench.end(joined, SubflowEnd::AddressGone);
    assert_eq!(bench.act(), []);
    assert_eq!(
        bench.tell(Event::LocalDown {
            iface: CELL,
            addr: ip("10.1.0.1")
        }),
        Noted::Ignored
    );
    // The address comes back: so does the subflow, at once.
    bench.cell_up();
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn an_address_never_announced_is_not_removed() {
    let mut bench = Bench::two_paths(Policy::Passive);
    bench.tell(Event::LocalDown {
        iface: CELL,
        addr: ip("10.1.0.1"),
    });
    assert_eq!(bench.act(), []);
}

#[test]
fn a_priority_change_is_sent_for_each_subflow() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let joined = bench.settle();
    bench.tell(Event::LocalUp {
        iface: CELL,
        addr: ip("10.1.0.1"),
        backup: true,
    });
    assert_eq!(
        bench.act(),
        [Action::Prioritise {
            subflow: joined,
            backup: true
        }]
    );
    bench.tell(Event::LocalUp {
        iface: CELL,
        addr: ip("10.1.0.1"),
        backup: true,
    });
    assert_eq!(bench.act(), []);
}

#[test]
fn a_lost_subflow_comes_back_after_growing_pauses() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        let subflow = bench.settle();
        bench.end(subflow, TIMED_OUT);
        assert_eq!(bench.act(), [], "not at once");
        let until = bench.manager.deadline().expect("a time to come back");
        let (least, most) = (
            Duration::from_secs(pause),
            Duration::from_millis(pause * 1250),
        );
        assert!(
            until >= bench.now + least && until <= bench.now + most,
            "{pause} s: {until:?}"
        );
        assert_eq!(
            bench.last_reason(),
            Some(Reason::BackingOff {
                end: TIMED_OUT,
                until
            })
        );
        // Exact: nothing a nanosecond before, progress at the deadline.
        assert_eq!(
            bench
                .manager
                .poll(Instant::from_nanos(until.as_nanos() - 1)),
            None
        );
        bench.now = until;
    }
    let subflow = bench.settle();
    let reason = bench.last_reason();
    assert_eq!(
        reason,
        Some(Reason::LostBefore {
            end: TIMED_OUT,
            failures: 8
        })
    );
    let live = bench
        .manager
        .ledger()
        .live()
        .iter()
        .find(|live| live.subflow == subflow);
    assert_eq!(live.map(|live| live.origin), Some(SubflowOrigin::Recreated));
    // Once it lived long, the next loss starts with the short pause again.
    bench.wait(Duration::from_secs(30));
    bench.end(subflow, TIMED_OUT);
    bench.act();
    assert!(
        bench
            .manager
            .deadline()
            .is_some_and(|until| until <= bench.now + Duration::from_millis(1250))
    );
}

#[test]
fn while_nothing_works_no_pause_is_long() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    for _ in 0..8 {
        let subflow = bench.settle();
        bench.end(subflow, TIMED_OUT);
        bench.act();
        bench.now = bench.manager.deadline().expect("a time to come back");
    }
    let subflow = bench.settle();
    bench.end(subflow, TIMED_OUT);
    bench.act();
    let pause = |bench: &Bench| bench.manager.deadline().map(|until| until.since(bench.now));
    assert!(pause(&bench) >= Some(Duration::from_secs(60)));
    bench.end(SubflowId(0), TIMED_OUT);
    bench.act();
    assert!(pause(&bench) <= Some(Duration::from_secs(4)));
    // Nor are attempts in vain made more often.
    let (until, mut attempts) = (bench.now + Duration::from_secs(60), 0);
    while bench.now < until {
        bench.now = bench.manager.deadline().expect("a time to come back");
        let from = bench.next_subflow;
        bench.act();
        for subflow in from..bench.next_subflow {
            bench.end(SubflowId(subflow), TIMED_OUT);
            attempts += 1;
        }
        bench.act();
    }
    assert!((30..=40).contains(&attempts), "{attempts} by two paths");
}

#[test]
fn a_subflow_that_carried_data_for_seconds_was_no_failure() {
    for (carried, lived, short) in [
        (Carried::Nothing, 4, false),
        (Carried::Something, 4, true),
        (Carried::Something, 3, false),
        (Carried::Nothing, 30, true),
    ] {
        let mut bench = Bench::two_paths(Policy::FullMesh);
        for _ in 0..8 {
            let subflow = bench.settle();
            bench.end(subflow, TIMED_OUT);
            bench.act();
            bench.now = bench.manager.deadline().expect("a time to come back");
        }
        let subflow = bench.settle();
        bench.wait(Duration::from_secs(lived));
        let end = TIMED_OUT;
        bench.tell(Event::Ended {
            subflow,
            end,
            carried,
        });
        bench.act();
        let until = bench.manager.deadline().expect("a time to come back");
        let soon = until <= bench.now + Duration::from_secs(2);
        assert_eq!(soon, short, "{carried:?} {lived} s: {until:?}");
    }
}

#[test]
fn a_path_that_never_answered_is_left_alone_until_it_is_refreshed() {
    // rfc8684:H6 rfc8684:A11
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let hour = Duration::from_secs(3600);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    bench.end(SubflowId(1), TIMED_OUT);
    assert_eq!(bench.act(), []);
    assert_eq!(
        bench.last_reason(),
        Some(Reason::GivenUp { end: TIMED_OUT })
    );
    bench.wait(hour);
    assert_eq!((bench.manager.deadline(), bench.act()), (None, Vec::new()));
    // News of the same state of the interface is no refresh, its return is.
    bench.cell_up();
    assert_eq!(bench.act(), []);
    bench.tell(Event::LocalDown {
        iface: CELL,
        addr: ip("10.1.0.1"),
    });
    bench.cell_up();
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    bench.end(SubflowId(2), TIMED_OUT);
    assert_eq!(bench.act(), []);
    // A fresh announcement of the address is one, too.
    assert_eq!(bench.advertise(0, "192.0.2.1", None), Noted::Accepted);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn a_join_is_made_beside_an_unresponsive_subflow() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let subflow = bench.settle();
    let silence = |silent| Event::Silence { subflow, silent };
    assert_eq!(bench.tell(silence(false)), Noted::Ignored);
    assert_eq!(bench.tell(silence(true)), Noted::Accepted);
    assert_eq!(bench.tell(silence(true)), Noted::Ignored);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
    assert_eq!(bench.last_reason(), Some(Reason::Silent));
    assert_eq!(bench.act(), [], "one is enough");
    let twin = SubflowId(bench.next_subflow - 1);
    let origin = |bench: &Bench| {
        let live = bench.manager.ledger().live().iter();
        live.filter(|live| live.subflow == twin)
            .map(|live| live.origin)
            .next()
    };
    assert_eq!(origin(&bench), Some(SubflowOrigin::Recreated));
    // The peer wants no further subflow: that says nothing about the time after the silent one.
    bench.end(twin, SubflowEnd::Refused);
    assert_eq!(bench.act(), []);
    let until = bench.now + Duration::from_secs(10);
    assert_eq!(bench.manager.deadline(), Some(until));
    assert_eq!(bench.tell(silence(false)), Noted::Accepted);
    bench.now = until;
    assert_eq!(bench.act(), [], "it answers: nothing is missing");
}

#[test]
fn a_rejoin_without_answer_is_tried_again() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let subflow = bench.settle();
    bench.end(subflow, TIMED_OUT);
    for _ in 0..3 {
        assert_eq!(bench.act(), []);
        bench.now = bench.manager.deadline().expect("a time to come back");
        assert_eq!(bench.opened().len(), 1);
        let silent = SubflowId(bench.next_subflow - 1);
        bench.end(silent, TIMED_OUT);
    }
}

#[test]
fn where_every_subflow_was_changed_on_the_way_one_alone_is_made_again() {
    // rfc8684:B4
    let mut bench = Bench::new(Policy::Ndiffports(4));
    bench.tell(Event::Ready);
    assert_eq!(bench.settle(), SubflowId(3));
    for subflow in 0..4 {
        bench.end(SubflowId(subflow), SubflowEnd::Checksum);
    }
    bench.wait(Duration::from_secs(1));
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.1:80"]);
    bench.wait(Duration::from_secs(10));
    assert_eq!(bench.act(), [], "beside one in its handshake");
    let alone = SubflowId(4);
    bench.tell(Event::Up { subflow: alone });
    bench.wait(Duration::from_secs(10));
    assert_eq!(bench.act(), [], "beside one that works, not soon");
    bench.end(alone, SubflowEnd::Checksum);
    bench.wait(Duration::from_secs(10));
    assert_eq!(bench.opened().len(), 1);
}

#[test]
fn a_lasting_refusal_is_for_ever() {
    // rfc8684:T4
    let refusal = SubflowEnd::ResetByPeer {
        reason: Some(ResetReason::AdministrativelyProhibited),
        transient: false,
    };
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let subflow = bench.settle();
    bench.end(subflow, refusal);
    assert_eq!(bench.act(), []);
    bench.tell(Event::LocalDown {
        iface: CELL,
        addr: ip("10.1.0.1"),
    });
    bench.cell_up();
    bench.advertise(0, "192.0.2.1", None);
    bench.wait(Duration::from_secs(3600));
    assert_eq!(bench.opened(), [""; 0]);
    assert_eq!(bench.last_reason(), Some(Reason::GivenUp { end: refusal }));
}

#[test]
fn a_passing_refusal_is_waited_out() {
    // rfc8684:T3
    let refusal = SubflowEnd::ResetByPeer {
        reason: Some(ResetReason::LackOfResources),
        transient: true,
    };
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.act();
    bench.end(SubflowId(1), refusal);
    assert_eq!(bench.act(), []);
    bench.wait(Duration::from_secs(4));
    assert_eq!(bench.act(), []);
    bench.wait(Duration::from_secs(3));
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn the_peer_can_forbid_its_first_address_and_port() {
    // rfc8684:C19
    let mut bench = Bench::new(Policy::FullMesh);
    bench.cell_up();
    bench.tell(Event::PeerForbidsFirstAddress);
    bench.tell(Event::Ready);
    assert_eq!(bench.act(), []);
    assert_eq!(bench.last_reason(), Some(Reason::PeerForbids));
    bench.advertise(1, "192.0.2.9", None);
    bench.advertise(2, "192.0.2.1", Some(8080));
    let expected = [
        "10.1.0.1 > 192.0.2.9:80",
        "10.0.0.1 > 192.0.2.9:80",
        "10.1.0.1 > 192.0.2.1:8080",
        "10.0.0.1 > 192.0.2.1:8080",
    ];
    assert_eq!(bench.opened(), expected);
    let mut ports = Bench::new(Policy::Ndiffports(4));
    ports.tell(Event::PeerForbidsFirstAddress);
    ports.tell(Event::Ready);
    assert_eq!(ports.act(), []);
}

#[test]
fn an_identifier_keeps_its_address_until_it_is_removed() {
    // rfc8684:A12 rfc8684:A13 rfc8684:A3
    let mut bench = Bench::two_paths(Policy::Passive);
    assert_eq!(bench.advertise(1, "192.0.2.9", None), Noted::Accepted);
    assert_eq!(bench.advertise(1, "192.0.2.8", None), Noted::Ignored);
    assert_eq!(bench.advertise(0, "192.0.2.8", None), Noted::Ignored);
    assert_eq!(bench.advertise(1, "192.0.2.9", Some(443)), Noted::Accepted);
    let known = |bench: &Bench| {
        let remotes = bench.manager.ledger().remotes();
        remotes
            .iter()
            .map(|remote| (remote.id.0, remote.addr.to_string()))
            .collect::<Vec<_>>()
    };
    let expected = [
        (0, "192.0.2.1:80".to_string()),
        (1, "192.0.2.9:443".to_string()),
    ];
    assert_eq!(known(&bench), expected);
    assert_eq!(
        bench.tell(Event::Withdrawn { id: AddrId(1) }),
        Noted::Accepted
    );
    assert_eq!(bench.advertise(1, "192.0.2.8", None), Noted::Accepted);
    assert_eq!(known(&bench)[1], (1, "192.0.2.8:80".to_string()));
}

#[test]
fn a_new_port_of_a_known_address_is_tried() {
    // rfc8684:A12
    let mut bench = Bench::new(Policy::FullMesh);
    bench.tell(Event::Ready);
    bench.advertise(1, "192.0.2.9", Some(80));
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.9:80"]);
    bench.end(SubflowId(1), SubflowEnd::Refused);
    assert_eq!(bench.act(), []);
    bench.advertise(1, "192.0.2.9", Some(443));
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.9:443"]);
}

#[test]
fn a_removal_is_tested_and_stops_new_subflows() {
    // rfc8684:A17 rfc8684:A20
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.advertise(1, "192.0.2.9", None);
    bench.settle();
    assert_eq!(
        bench.tell(Event::Withdrawn { id: AddrId(77) }),
        Noted::Ignored
    );
    assert_eq!(bench.act(), []);
    assert_eq!(
        bench.tell(Event::Withdrawn { id: AddrId(1) }),
        Noted::Accepted
    );
    let probes = [
        Action::Probe {
            subflow: SubflowId(2),
        },
        Action::Probe {
            subflow: SubflowId(3),
        },
    ];
    assert_eq!(bench.act(), probes);
    bench.end(SubflowId(2), SubflowEnd::AddressGone);
    bench.wait(Duration::from_secs(3600));
    assert_eq!(bench.act(), []);
}

#[test]
fn a_withdrawn_address_is_tried_again_where_nothing_else_works() {
    // rfc8684:A17
    let mut bench = Bench::new(Policy::FullMesh);
    bench.tell(Event::Ready);
    bench.advertise(1, "192.0.2.9", None);
    let second = bench.settle();
    bench.tell(Event::Withdrawn { id: AddrId(1) });
    bench.end(second, SubflowEnd::AddressGone);
    bench.wait(Duration::from_secs(3600));
    assert_eq!(bench.opened(), [""; 0], "the first works");
    bench.tell(Event::Silence {
        subflow: SubflowId(0),
        silent: true,
    });
    let both = ["10.0.0.1 > 192.0.2.1:80", "10.0.0.1 > 192.0.2.9:80"];
    assert_eq!(bench.opened(), both);
}

#[test]
fn a_handshake_with_a_withdrawn_address_ends_where_another_subflow_works() {
    // rfc8684:A17
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.settle();
    bench.advertise(1, "192.0.2.9", None);
    assert_eq!(bench.opened().len(), 2);
    assert_eq!(
        bench.tell(Event::Withdrawn { id: AddrId(1) }),
        Noted::Accepted
    );
    let removed = [2, 3].map(|id| Action::Remove {
        subflow: SubflowId(id),
    });
    assert_eq!(bench.act(), removed);
}

#[test]
fn addresses_that_lead_nowhere_or_to_ourselves_are_ignored() {
    // rfc8684:S3
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let bad = [
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "127.0.0.1",
        "10.1.0.1",
        "::",
        "ff02::1",
        "::1",
        "169.254.169.254",
        "fe80::1",
    ];
    for address in bad {
        assert_eq!(
            bench.advertise(9, address, None),
            Noted::Ignored,
            "{address}"
        );
    }
    assert_eq!(bench.advertise(9, "192.0.2.9", Some(0)), Noted::Ignored);
}

#[test]
fn an_address_of_a_link_is_reached_by_that_link_alone() {
    let config = Config {
        open_wait: Duration::ZERO,
        ..Config::new(Policy::FullMesh)
    };
    let mut bench = Bench::between(config, "fd00::1", "[fe80::1]:80");
    bench.tell(Event::LocalUp {
        iface: CELL,
        addr: ip("fd01::1"),
        backup: false,
    });
    bench.tell(Event::Ready);
    assert_eq!(bench.opened(), [""; 0]);
    assert_eq!(bench.last_reason(), Some(Reason::OtherLink));
}

#[test]
fn reaction_to_announcements_is_bounded() {
    // rfc8684:S3
    let mut bench = Bench::new(Policy::FullMesh);
    bench.tell(Event::Ready);
    let accepted = (1..=40u8)
        .filter(|id| {
            bench.advertise(*id, &alloc::format!("192.0.2.1{id:02}"), None) == Noted::Accepted
        })
        .count();
    assert_eq!(accepted, 15, "one of the sixteen is the first subflow's");
    assert_eq!(bench.opened().len(), 8, "joins that wait for an answer");
    assert_eq!(bench.last_reason(), Some(Reason::TooManyPending));
    // A peer that sends us to ever new ports of somebody who never answers.
    let mut sent = 8;
    for port in 1..200u16 {
        let pending: Vec<_> = bench
            .manager
            .ledger()
            .live()
            .iter()
            .map(|live| live.subflow)
            .collect();
        for subflow in pending
            .into_iter()
            .filter(|subflow| *subflow != SubflowId(0))
        {
            bench.end(subflow, TIMED_OUT);
        }
        bench.next_subflow = 1;
        bench.advertise(1, "192.0.2.101", Some(port));
        sent += bench.opened().len();
    }
    assert_eq!(sent, 64);
    assert!(
        bench
            .manager
            .log()
            .any(|decision| decision.reason == Reason::BudgetSpent)
    );
}

#[test]
fn an_address_that_proves_itself_costs_nothing() {
    let mut bench = Bench::limited(Limits {
        unproven: 1,
        ..Limits::default()
    });
    bench.cell_up();
    bench.tell(Event::Ready);
    bench.advertise(1, "192.0.2.9", None);
    assert_eq!(
        bench.opened(),
        ["10.1.0.1 > 192.0.2.1:80", "10.0.0.1 > 192.0.2.9:80"]
    );
    assert_eq!(bench.last_reason(), Some(Reason::BudgetSpent));
    bench.tell(Event::Up {
        subflow: SubflowId(2),
    });
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.9:80"]);
}

#[test]
fn ndiffports_keeps_its_number_of_subflows() {
    let mut bench = Bench::two_paths(Policy::Ndiffports(4));
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.1:80"; 3]);
    for subflow in 1..=3 {
        bench.tell(Event::Up {
            subflow: SubflowId(subflow),
        });
    }
    assert_eq!(bench.act(), []);
    // Three that fall to one fault count as one failure.
    for subflow in 1..=3 {
        bench.end(SubflowId(subflow), TIMED_OUT);
    }
    assert_eq!(bench.act(), []);
    bench.wait(Duration::from_millis(1250));
    assert_eq!(bench.opened().len(), 3);
    assert_eq!(
        bench.last_reason(),
        Some(Reason::LostBefore {
            end: TIMED_OUT,
            failures: 1
        })
    );
}

#[test]
fn ndiffports_takes_what_is_left_when_its_address_goes() {
    let mut bench = Bench::two_paths(Policy::Ndiffports(2));
    assert_eq!(bench.opened(), ["10.0.0.1 > 192.0.2.1:80"]);
    bench.tell(Event::Up {
        subflow: SubflowId(1),
    });
    bench.tell(Event::LocalDown {
        iface: WIFI,
        addr: ip("10.0.0.1"),
    });
    for subflow in 0..=1 {
        bench.end(SubflowId(subflow), SubflowEnd::AddressGone);
    }
    let opened = bench.opened();
    assert!(
        opened.iter().any(|pair| pair == "10.1.0.1 > 192.0.2.1:80"),
        "{opened:?}"
    );
}

#[test]
fn sixty_four_subflows_are_possible_and_no_more() {
    let mut bench = Bench::two_paths(Policy::Ndiffports(100));
    assert_eq!(bench.opened().len(), 63);
    assert_eq!(bench.last_reason(), Some(Reason::TooManySubflows));
    assert_eq!(bench.manager.deadline(), None);
}

#[test]
fn a_server_announces_what_its_peer_does_not_know() {
    let mut bench = Bench::new(Policy::Server);
    bench.cell_up();
    assert_eq!(bench.act(), []);
    bench.tell(Event::Ready);
    let announce = Action::Announce {
        id: AddrId(1),
        addr: ip("10.1.0.1"),
        port: None,
    };
    assert_eq!(bench.act(), [announce]);
    assert_eq!(bench.tell(Event::Echoed { id: AddrId(1) }), Noted::Accepted);
    assert_eq!(bench.tell(Event::Echoed { id: AddrId(1) }), Noted::Ignored);
    assert_eq!(
        bench.manager.ledger().locals()[1].announced,
        Announced::Echoed
    );
    bench.tell(Event::LocalDown {
        iface: CELL,
        addr: ip("10.1.0.1"),
    });
    assert_eq!(bench.act(), [Action::Withdraw { id: AddrId(1) }]);
    bench.cell_up();
    // The withdrawal may come late, and must not hit it. // rfc8684:A13
    let again = Action::Announce {
        id: AddrId(2),
        addr: ip("10.1.0.1"),
        port: None,
    };
    assert_eq!(bench.act(), [again]);
}

#[test]
fn an_address_that_comes_back_before_its_withdrawal_left_is_not_withdrawn() {
    let mut bench = Bench::two_paths(Policy::Server);
    bench.act();
    bench.tell(Event::LocalDown {
        iface: CELL,
        addr: ip("10.1.0.1"),
    });
    bench.cell_up();
    assert_eq!(bench.act(), []);
}

#[test]
fn an_identifier_learnt_by_a_join_is_kept() {
    // rfc8684:A3 rfc8684:J4
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.settle();
    bench.tell(Event::Opening {
        subflow: SubflowId(9),
        local_id: AddrId(0),
        local: addr("10.0.0.1:80"),
        remote_id: AddrId(6),
        remote: addr("198.51.100.7:40000"),
        origin: SubflowOrigin::Peer,
    });
    assert!(
        !bench
            .manager
            .ledger()
            .remotes()
            .iter()
            .any(|remote| remote.id == AddrId(6)),
        "not proven"
    );
    bench.tell(Event::Up {
        subflow: SubflowId(9),
    });
    let remotes = bench.manager.ledger().remotes();
    let learnt = remotes
        .iter()
        .find(|remote| remote.id == AddrId(6))
        .map(|remote| remote.source);
    assert_eq!(learnt, Some(Source::Joined));
    assert_eq!(
        bench.act(),
        [],
        "where it joined from is no place to connect to"
    );
    assert_eq!(
        bench.tell(Event::Withdrawn { id: AddrId(6) }),
        Noted::Accepted
    );
    assert_eq!(
        bench.act(),
        [Action::Probe {
            subflow: SubflowId(9)
        }]
    );
}

#[test]
fn the_first_join_waits_a_random_moment() {
    // rfc8684:H3,H4
    let open_wait = Duration::from_millis(500);
    let mut waits = Vec::new();
    for seed in 0..8 {
        let mut bench = Bench::with(Config {
            open_wait,
            ..Config::new(Policy::FullMesh)
        });
        bench.rng = Rng::new([seed; 32]);
        bench.cell_up();
        bench.tell(Event::Ready);
        assert_eq!(bench.act(), []);
        let until = bench.manager.deadline().expect("the wait ends");
        assert!(until <= bench.now + open_wait);
        waits.push(until);
        bench.now = until;
        assert_eq!(bench.opened().len(), 1);
    }
    waits.sort_unstable();
    waits.dedup();
    assert_eq!(waits.len(), 8);
}

#[test]
fn a_want_of_ports_is_no_verdict_on_the_path() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    let Some(Action::Create(create)) = bench.manager.poll(bench.now) else {
        panic!("the second path is wanted");
    };
    bench.tell(Event::CreateFailed {
        create,
        why: NotCreated::NoPort,
    });
    assert_eq!(bench.act(), []);
    bench.now = bench.manager.deadline().expect("it is tried again");
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn nothing_is_made_after_the_end() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    bench.tell(Event::Stop);
    assert_eq!((bench.act(), bench.manager.deadline()), (Vec::new(), None));
}

#[test]
fn a_policy_can_change_on_the_way() {
    let mut bench = Bench::two_paths(Policy::Passive);
    assert_eq!(bench.act(), []);
    bench.manager.set_policy(Policy::FullMesh);
    assert_eq!(bench.opened(), ["10.1.0.1 > 192.0.2.1:80"]);
}

#[test]
fn the_log_is_bounded_and_can_be_read() {
    let mut bench = Bench::two_paths(Policy::FullMesh);
    for _ in 0..100 {
        let subflow = bench.settle();
        bench.end(subflow, TIMED_OUT);
        bench.act();
        bench.now = bench.manager.deadline().expect("it comes back");
    }
    assert_eq!(bench.manager.log().len(), Manager::LOG);
    let lines: Vec<_> = bench.manager.log().map(ToString::to_string).collect();
    assert!(lines.iter().any(|line| {
        line.starts_with("create 10.1.0.1 -> 192.0.2.1:80: the last one was lost (no answer)")
    }));
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("no subflow 10.1.0.1 -> 192.0.2.1:80: "))
    );
}
