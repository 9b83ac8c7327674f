mod paper;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use manypath_tcp::time::Duration;
use manypath_wire::ids::{AddrId, FourTuple};

use super::*;
use crate::api::{PathFinder, SmartBackup, SubflowEnd, SubflowOrigin};

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("test address")
}

fn subflow(id: u8, local: &str) -> SubflowView {
    SubflowView {
        id: SubflowId(id),
        local: addr(local),
        remote: addr("192.0.2.1:80"),
        established: true,
        backup: false,
        srtt: Some(Duration::from_millis(20)),
        rto: Duration::from_millis(220),
        backoffs: 0,
        stale: false,
        steady: true,
        pacing_rate: 1_000_000,
        acked: 0,
        retransmitted: 0,
    }
}

/// A connection from 10.0.0.1 with 10.1.0.1 to spare, and a controller of it.
struct Bench {
    controller: Controller,
    view: View,
    now: Instant,
}

impl Bench {
    fn new(policy: &str) -> Self {
        let policy = policy.parse().expect("a policy");
        let local = |text: &str, backup| LocalView {
            addr: text.parse().expect("test address"),
            backup,
        };
        Self {
            controller: Controller::remote(policy, 1).expect("a controller"),
            view: View {
                may_join: true,
                may_create: true,
                written: 1_000_000,
                acked: 0,
                subflows: Vec::from([subflow(0, "10.0.0.1:5000")]),
                locals: Vec::from([local("10.0.0.1", false), local("10.1.0.1", true)]),
                remotes: Vec::from([addr("192.0.2.1:80")]),
            },
            now: Instant::from_secs(10),
        }
    }

    /// What is ordered, in words.
    fn tell(&mut self, event: Option<EventKind>) -> Vec<String> {
        let orders = self.controller.react(self.now, event.as_ref(), &self.view);
        let commands = orders.into_iter().filter_map(|order| order.command);
        commands.map(|command| format!("{command}")).collect()
    }

    fn wait(&mut self, ms: u64) -> Vec<String> {
        self.now += Duration::from_millis(ms);
        match self.controller.deadline() {
            Some(due) if due <= self.now => self.tell(None),
            _ => Vec::new(),
        }
    }

    fn timeout(&mut self, subflow: u8, rto: u64) -> Vec<String> {
        let end = SocketAddr::from(([10, 0, 0, 1], 5_000));
        self.tell(Some(EventKind::Timeout {
            subflow: SubflowId(subflow),
            tuple: FourTuple::new(end, end),
            rto: Duration::from_millis(rto),
            backoffs: 1,
        }))
    }

    fn ended(&mut self, id: u8, end: SubflowEnd) -> Vec<String> {
        let gone = self.view.subflows.iter().position(|sf| sf.id.0 == id);
        let gone = self.view.subflows.remove(gone.expect("it lives"));
        self.tell(Some(EventKind::SubflowDown {
            subflow: gone.id,
            tuple: FourTuple::new(gone.local, gone.remote),
            end,
        }))
    }

    fn up(&mut self, id: u8, local: &str) -> Vec<String> {
        let new = subflow(id, local);
        self.view.subflows.push(new);
        self.tell(Some(EventKind::SubflowUp {
            subflow: new.id,
            tuple: FourTuple::new(new.local, new.remote),
            iface: crate::api::IfaceId(0),
            local_id: AddrId(id),
            remote_id: AddrId(0),
            origin: SubflowOrigin::Command,
            backup: false,
        }))
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_backup_waits_for_trouble_moves_and_comes_back() {
    let mut bench = Bench::new("smart-backup");
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), NOTHING);
    bench.wait(200);
    assert_eq!(bench.timeout(0, 400), NOTHING, "below the threshold");
    // 200 ms had passed when the timer expired: the rest of the second.
    assert_eq!(bench.wait(799), NOTHING);
    assert_eq!(bench.wait(1), ["create 10.1.0.1 -> *"]);
    assert_eq!(bench.up(1, "10.1.0.1:5000"), ["reset subflow 0"]);
    assert_eq!(bench.ended(0, SubflowEnd::Administrative), NOTHING);
    // Ten seconds later the primary is tried again, and disappoints.
    assert_eq!(bench.wait(10_000), ["create 10.0.0.1 -> *"]);
    bench.up(2, "10.0.0.1:5001");
    assert_eq!(bench.timeout(2, 400), ["reset subflow 2"]);
    bench.ended(2, SubflowEnd::Administrative);
    // Twice as long now; this time it is well for three seconds.
    assert_eq!(bench.wait(19_999), NOTHING);
    assert_eq!(bench.wait(1), ["create 10.0.0.1 -> *"]);
    bench.up(3, "10.0.0.1:5002");
    assert_eq!(bench.wait(2_999), NOTHING);
    assert_eq!(bench.wait(1), ["close subflow 1"]);
}

#[test]
fn a_time_out_beyond_the_threshold_needs_no_more_waiting() {
    let mut bench = Bench::new("smart-backup:threshold=500ms");
    bench.tell(Some(EventKind::JoinsAllowed));
    assert_eq!(bench.timeout(0, 501), ["create 10.1.0.1 -> *"]);
}

#[test]
fn time_outs_again_and_again_are_trouble_although_data_moves() {
    let mut bench = Bench::new("smart-backup");
    bench.tell(Some(EventKind::JoinsAllowed));
    for _ in 0..2 {
        assert_eq!(bench.timeout(0, 400), NOTHING);
        bench.view.acked += 1_400;
        assert_eq!(bench.wait(900), NOTHING);
    }
    assert_eq!(bench.timeout(0, 400), ["create 10.1.0.1 -> *"]);
}

#[test]
fn without_another_path_a_backup_stays() {
    let mut bench = Bench::new("smart-backup");
    bench.view.locals.truncate(1);
    bench.tell(Some(EventKind::JoinsAllowed));
    assert_eq!(bench.timeout(0, 3_000), NOTHING);
}

#[test]
fn a_stream_gets_a_second_subflow_only_when_a_block_is_late() {
    let mut bench = Bench::new("streaming");
    (bench.view.written, bench.view.acked) = (65_536, 0);
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), NOTHING);
    bench.view.acked = 32_768;
    assert_eq!(bench.wait(500), NOTHING, "half of it is through");
    bench.view.acked = 65_536;
    bench.wait(500);
    bench.view.written = 2 * 65_536;
    bench.wait(50);
    bench.view.acked = 65_536 + 32_767;
    assert_eq!(bench.wait(500), ["create 10.1.0.1 -> *"]);
    // The first one repeated a tenth of what it sent: what it holds of the block is not waited for.
    bench.view.subflows[0].acked = 90_000;
    bench.view.subflows[0].retransmitted = 10_000;
    assert_eq!(bench.up(1, "10.1.0.1:5000"), ["reset subflow 0"]);
}

#[test]
fn a_stream_gets_a_second_subflow_when_a_block_stops_short_of_its_end() {
    let mut bench = Bench::new("streaming");
    bench.view.written = 65_536;
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), NOTHING);
    bench.view.acked = 64_000;
    assert_eq!(bench.wait(500), NOTHING, "nearly all of it is through");
    bench.view.acked = 65_000;
    assert_eq!(bench.wait(250), NOTHING, "as much came as is missing");
    assert_eq!(bench.wait(125), ["create 10.1.0.1 -> *"]);
}

/// The next block of a stream, of which each subflow carries as much and repeats so many bytes: what is ordered half-way.
fn block(bench: &mut Bench, repeated: &[u64]) -> Vec<String> {
    bench.view.written += 65_536;
    bench.wait(50);
    bench.view.acked += 65_536;
    let each = 65_536 / bench.view.subflows.len() as u64;
    for (sf, repeated) in bench.view.subflows.iter_mut().zip(repeated) {
        sf.acked += each;
        sf.retransmitted += repeated;
    }
    let ordered = bench.wait(500);
    bench.wait(450);
    bench.wait(0);
    ordered
}

/// A stream that nothing was written of yet.
fn stream() -> Bench {
    let mut bench = Bench::new("streaming");
    bench.view.written = 0;
    bench.tell(Some(EventKind::JoinsAllowed));
    bench
}

#[test]
fn a_stream_leaves_a_path_that_repeats_much_of_two_blocks_in_a_row() {
    let mut bench = stream();
    // Slow start overshoots; much later the path becomes a bad one.
    let repeated = [10_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4_000, 1_400, 4_000];
    for bytes in repeated {
        assert_eq!(block(&mut bench, &[bytes]), NOTHING);
    }
    assert_eq!(block(&mut bench, &[4_000]), ["create 10.1.0.1 -> *"]);
    assert_eq!(bench.up(1, "10.1.0.1:5000"), NOTHING, "it has to show");
    assert_eq!(block(&mut bench, &[4_000, 0]), ["reset subflow 0"]);
    bench.ended(0, SubflowEnd::Administrative);
    // The other one is no better: nobody goes back and forth, until the first is needed.
    for _ in 0..4 {
        assert_eq!(block(&mut bench, &[6_000]), NOTHING);
    }
    assert_eq!(bench.timeout(1, 400), ["create 10.0.0.1 -> *"]);
    assert_eq!(bench.up(2, "10.0.0.1:5001"), ["reset subflow 1"]);
    bench.ended(1, SubflowEnd::Administrative);
    assert_eq!(bench.timeout(2, 400), ["create 10.1.0.1 -> *"]);
    assert_eq!(bench.up(3, "10.1.0.1:5001"), NOTHING);
    for _ in 0..4 {
        assert_eq!(block(&mut bench, &[20_000, 0]), NOTHING, "both are used");
    }
    for _ in 0..60 {
        block(&mut bench, &[0, 0]);
    }
    block(&mut bench, &[4_000, 0]);
    assert_eq!(block(&mut bench, &[4_000, 0]), ["reset subflow 2"]);
}

#[test]
fn a_stream_keeps_both_subflows_when_they_lose_alike_or_only_once() {
    let mut bench = stream();
    bench.up(1, "10.1.0.1:5000");
    for _ in 0..4 {
        assert_eq!(block(&mut bench, &[4_000, 2_000]), NOTHING);
    }
    for _ in 0..4 {
        assert_eq!(block(&mut bench, &[0, 0]), NOTHING);
    }
    assert_eq!(block(&mut bench, &[20_000, 0]), NOTHING);
    assert_eq!(block(&mut bench, &[1_400, 0]), NOTHING, "one segment");
}

#[test]
fn a_writer_that_is_quicker_than_its_blocks_need_be_is_looked_at() {
    let mut bench = stream();
    let mut ordered = Vec::new();
    for _ in 0..20 {
        bench.view.written += 65_536;
        bench.view.acked += 65_536;
        bench.view.subflows[0].acked += 65_536;
        bench.view.subflows[0].retransmitted += 20_000;
        for _ in 0..9 {
            ordered.extend(bench.wait(50));
        }
    }
    assert!(ordered.contains(&String::from("create 10.1.0.1 -> *")));
}

#[test]
fn a_small_last_block_is_not_late() {
    let mut bench = Bench::new("streaming");
    bench.view.written = 1_000;
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), NOTHING);
    bench.view.acked = 1_000;
    assert_eq!(bench.wait(500), NOTHING);
}

#[test]
fn a_stream_closes_a_subflow_whose_time_out_passes_the_bound() {
    let mut bench = Bench::new("streaming");
    bench.up(1, "10.1.0.1:5000");
    assert_eq!(bench.timeout(0, 900), NOTHING);
    assert_eq!(bench.timeout(0, 1_001), ["reset subflow 0"]);
}

#[test]
fn refresh_replaces_the_slowest_unless_all_are_alike() {
    let mut bench = Bench::new("refresh:subflows=3");
    let more = ["create * -> *"; 2];
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), more);
    bench.up(1, "10.0.0.1:5001");
    bench.up(2, "10.0.0.1:5002");
    for (sf, acked) in bench.view.subflows.iter_mut().zip([8, 4, 8]) {
        sf.acked += acked * 1_000_000;
    }
    assert_eq!(bench.wait(2_500), ["create * -> *", "close subflow 1"]);
    bench.ended(1, SubflowEnd::Administrative);
    bench.now += Duration::from_millis(1_500);
    bench.up(3, "10.0.0.1:5003");
    for (sf, acked) in bench.view.subflows.iter_mut().zip([8, 8, 1]) {
        sf.acked += acked * 1_000_000;
    }
    assert_eq!(bench.wait(1_000), NOTHING, "the new one had no chance yet");
    for sf in &mut bench.view.subflows {
        sf.acked += 8_000_000;
    }
    assert_eq!(bench.wait(2_500), NOTHING, "all alike");
}

/// Looks of PathFinder, a round trip apart, at these rates in units of 50 KB a second; how many subflows it asks for.
fn finder(bench: &mut Bench, rates: &[u64]) -> usize {
    let mut asked = 0;
    for rate in rates {
        let share = rate * 1_000 / bench.view.subflows.len() as u64;
        for sf in &mut bench.view.subflows {
            sf.acked += share;
        }
        asked += bench.wait(20).len();
    }
    asked
}

#[test]
fn pathfinder_follows_algorithm_1() {
    // Throughputs seen after the first steady state (100), and whether gamma round trips of them open a subflow.
    let cases: [(u8, &[u64], usize); 7] = [
        (0, &[120, 120], 0),
        (0, &[121], 1),
        (2, &[121, 121], 0),
        (2, &[121, 121, 121], 1),
        (2, &[121, 119, 119], 0), // the average counts
        (2, &[140, 110, 113], 1),
        (2, &[100, 100, 130, 130, 130], 1), // the probe begins when the rate rises
    ];
    for (gamma, rates, expected) in cases {
        let mut bench = Bench::new(&format!("pathfinder:beta=20,gamma={gamma}"));
        bench.tell(Some(EventKind::JoinsAllowed));
        assert_eq!(finder(&mut bench, &[100]), 1, "line 5");
        // The new subflow is in steady state; a look before there is a rate.
        bench.view.subflows.push(subflow(1, "10.0.0.1:5001"));
        assert_eq!(finder(&mut bench, &[100]), 0);
        assert_eq!(
            finder(&mut bench, rates),
            expected,
            "gamma {gamma}: {rates:?}"
        );
    }
}

#[test]
fn pathfinder_compares_nothing_before_steady_state_and_knows_its_limit() {
    let mut bench = Bench::new("pathfinder:most=2");
    bench.view.subflows[0].steady = false;
    bench.tell(Some(EventKind::JoinsAllowed));
    assert_eq!(finder(&mut bench, &[100; 10]), 0);
    bench.view.subflows[0].steady = true;
    assert_eq!(finder(&mut bench, &[100; 3]), 1);
    bench.view.subflows.push(subflow(1, "10.0.0.1:5001"));
    assert_eq!(finder(&mut bench, &[200; 20]), 0);
}

#[test]
fn an_adapting_pathfinder_is_quick_when_it_is_clear_and_patient_when_it_is_not() {
    let start = || {
        let own = PathManager::PathFinder(PathFinder::default());
        let mut bench = Bench::new(&format!("{own}"));
        bench.tell(Some(EventKind::JoinsAllowed));
        assert_eq!(finder(&mut bench, &[1_000]), 1);
        bench.view.subflows.push(subflow(1, "10.0.0.1:5001"));
        assert_eq!(finder(&mut bench, &[1_000]), 0);
        bench
    };
    assert_eq!(finder(&mut start(), &[2_000]), 1, "twice as much");
    assert_eq!(finder(&mut start(), &[1_500]), 0, "half as much again");
    assert_eq!(finder(&mut start(), &[1_500, 1_500]), 1);
    assert_eq!(finder(&mut start(), &[1_600, 800, 2_100, 700]), 0);
    assert_eq!(finder(&mut start(), &[1_000; 60]), 0);
}

#[test]
fn an_adapting_pathfinder_waits_for_steady_state_in_quarters_of_a_round_trip() {
    for (gamma, pause) in [("auto", 5), ("0", 20)] {
        let mut bench = Bench::new(&format!("pathfinder:beta=20,gamma={gamma}"));
        bench.view.subflows[0].steady = false;
        bench.tell(Some(EventKind::JoinsAllowed));
        let due = bench.controller.deadline();
        assert_eq!(due, Some(bench.now + Duration::from_millis(pause)));
    }
}

#[test]
fn a_full_mesh_outside_re_creates_by_cause() {
    let mut bench = Bench::new("fullmesh");
    let create = ["create 10.1.0.1 -> 192.0.2.1 port 80 as backup"];
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), create);
    bench.up(1, "10.1.0.1:5000");
    assert_eq!(bench.ended(1, SubflowEnd::TimedOut), NOTHING);
    assert_eq!(bench.wait(999), NOTHING);
    assert_eq!(bench.wait(251), create);
    bench.up(2, "10.1.0.1:5001");
    assert_eq!(bench.ended(2, SubflowEnd::ProtocolError), NOTHING);
    assert_eq!(bench.wait(3_600_000), NOTHING, "for ever");
}

#[test]
fn a_full_mesh_outside_tries_again_what_could_not_be_made() {
    let mut bench = Bench::new("fullmesh");
    bench.tell(Some(EventKind::JoinsAllowed));
    let wanted = NewSubflow {
        local: Some("10.1.0.1".parse().expect("address")),
        remote: Some("192.0.2.1".parse().expect("address")),
        ..NewSubflow::default()
    };
    bench.controller.refused(bench.now, &wanted);
    bench.tell(Some(EventKind::JoinsAllowed));
    assert_eq!(bench.wait(5_000).len(), 1);
}

#[test]
fn policies_that_only_count_addresses_have_no_controller_inside() {
    for policy in ["passive", "fullmesh", "ndiffports=2", "userspace"] {
        assert!(
            Controller::of(policy.parse().expect("a policy")).is_none(),
            "{policy}"
        );
    }
    assert!(Controller::of(PathManager::SmartBackup(SmartBackup::default())).is_some());
}

/// What is ordered when the only address and its subflow go, and when the address returns.
fn only_address_goes(policy: &str) -> (Bench, Vec<String>) {
    let mut bench = Bench::new(policy);
    bench.view.locals.truncate(1);
    bench.tell(Some(EventKind::JoinsAllowed));
    bench.view.subflows.truncate(1);
    let (iface, address) = (crate::api::IfaceId(0), bench.view.locals.remove(0));
    let addr = address.addr;
    assert_eq!(bench.ended(0, SubflowEnd::AddressGone), NOTHING, "{policy}");
    assert_eq!(
        bench.tell(Some(EventKind::LocalDown { iface, addr })),
        NOTHING
    );
    bench.wait(400);
    bench.view.locals.push(address);
    let backup = false;
    let ordered = bench.tell(Some(EventKind::LocalUp {
        iface,
        addr,
        backup,
    }));
    (bench, ordered)
}

#[test]
fn every_controller_makes_a_subflow_when_none_is_left() {
    for policy in ["smart-backup", "streaming", "pathfinder"] {
        let (mut bench, ordered) = only_address_goes(policy);
        assert_eq!(
            ordered,
            ["create 10.0.0.1 -> 192.0.2.1 port 80"],
            "{policy}"
        );
        bench.up(1, "10.0.0.1:5001");
        bench.view.written = bench.view.acked;
        bench.view.subflows[0].steady = false;
        for _ in 0..20 {
            assert_eq!(bench.wait(1_000), NOTHING, "{policy}: it is there");
        }
    }
}

#[test]
fn joins_that_fail_at_once_are_tried_again_later_and_later() {
    let mut bench = Bench::new("pathfinder");
    bench.view.locals.truncate(1);
    bench.tell(Some(EventKind::JoinsAllowed));
    assert_eq!(bench.ended(0, SubflowEnd::TimedOut).len(), 1);
    let (mut pauses, mut waited) = (Vec::new(), 0);
    while pauses.len() < 7 {
        waited += 100;
        if !bench.wait(100).is_empty() {
            pauses.push(waited);
            waited = 0;
        }
    }
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 3_200, 3_200]);
    bench.view.may_join = false;
    for _ in 0..100 {
        assert_eq!(bench.wait(100), NOTHING, "nor are joins that may not be");
    }
}

#[test]
fn what_was_refused_for_good_is_left_alone() {
    let mut bench = Bench::new("pathfinder");
    bench.tell(Some(EventKind::JoinsAllowed));
    let other = ["create 10.1.0.1 -> 192.0.2.1 port 80 as backup"];
    assert_eq!(bench.ended(0, SubflowEnd::ProtocolError), other);
    bench.view.locals.truncate(1);
    for _ in 0..100 {
        assert_eq!(bench.wait(100), NOTHING);
    }
}

#[test]
fn a_join_under_way_is_waited_for_and_then_others_are_tried() {
    let mut bench = Bench::new("pathfinder");
    bench.tell(Some(EventKind::JoinsAllowed));
    let backup = SubflowView {
        established: false,
        ..subflow(1, "10.1.0.1:5000")
    };
    bench.view.subflows.push(backup);
    assert_eq!(bench.ended(0, SubflowEnd::TimedOut), NOTHING);
    assert_eq!(bench.wait(999), NOTHING);
    assert_eq!(bench.wait(1), ["create 10.0.0.1 -> 192.0.2.1 port 80"]);
}

#[test]
fn policies_of_one_path_use_another_when_all_of_theirs_are_unresponsive() {
    for (policy, backoffs, others) in [("pathfinder", 2, 1), ("refresh", 0, 1), ("refresh", 1, 0)] {
        let mut bench = Bench::new(policy);
        bench.tell(Some(EventKind::JoinsAllowed));
        (
            bench.view.subflows[0].stale,
            bench.view.subflows[0].backoffs,
        ) = (true, backoffs);
        let ordered = bench.timeout(0, 200);
        assert_eq!(ordered.len(), others, "{policy}: {ordered:?}");
        assert!(ordered.iter().all(|order| order.contains("10.1.0.1")));
    }
}

#[test]
fn a_backup_does_not_leave_what_it_cannot_leave_for_anything() {
    let mut bench = Bench::new("smart-backup");
    bench.view.may_join = false;
    assert_eq!(bench.timeout(0, 3_000), NOTHING, "no join may follow");
    bench.view.may_join = true;
    assert_eq!(bench.timeout(0, 3_000), ["create 10.1.0.1 -> *"]);
    bench.ended(0, SubflowEnd::TimedOut);
    // The other one never comes up; the primary is not well, but it is something.
    bench.view.subflows.push(SubflowView {
        established: false,
        ..subflow(1, "10.1.0.1:5000")
    });
    bench.up(2, "10.0.0.1:5001");
    assert_eq!(bench.wait(10_000), NOTHING, "it is there already");
    assert_eq!(bench.timeout(2, 400), NOTHING);
    bench.view.subflows[1].backoffs = 1;
    assert_eq!(bench.wait(3_000), NOTHING, "nor is it judged");
    // Without a join under way there, one is begun; when it comes up, the primary is judged.
    bench.view.subflows.remove(0);
    assert_eq!(bench.timeout(2, 1_001), ["create 10.1.0.1 -> *"]);
    bench.up(3, "10.1.0.1:5002");
    assert_eq!(bench.timeout(2, 400), ["reset subflow 2"]);
}

#[test]
fn a_backup_that_reads_moves_when_nothing_answers_and_something_else_does() {
    let mut bench = Bench::new("smart-backup");
    bench.tell(Some(EventKind::JoinsAllowed));
    bench.view.acked = bench.view.written;
    bench.view.subflows[0].stale = true;
    assert_eq!(bench.timeout(0, 200), ["create 10.1.0.1 -> *"]);
    // The join fails, and so does the next.
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let mut waited = 0;
        while bench.wait(500) == NOTHING {
            waited += 500;
        }
        pauses.push((waited + 500) / 1_000);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 64]);
    assert_eq!(bench.up(1, "10.1.0.1:5000"), ["reset subflow 0"]);
}

#[test]
fn a_backup_whose_primary_answers_before_the_other_stays() {
    let mut bench = Bench::new("smart-backup");
    bench.tell(Some(EventKind::JoinsAllowed));
    bench.view.acked = bench.view.written;
    bench.view.subflows[0].stale = true;
    assert_eq!(bench.timeout(0, 200), ["create 10.1.0.1 -> *"]);
    bench.view.subflows[0].stale = false;
    assert_eq!(bench.wait(5_000), NOTHING);
    assert_eq!(bench.wait(60_000), NOTHING);
    // Nor is it left for a join that comes late: the other is, after the probation.
    bench.view.subflows[0].stale = true;
    assert_eq!(bench.timeout(0, 200), ["create 10.1.0.1 -> *"]);
    bench.view.subflows[0].stale = false;
    bench.now += Duration::from_secs(3);
    assert_eq!(bench.up(1, "10.1.0.1:5000"), NOTHING);
    assert_eq!(bench.wait(3_000), ["close subflow 1"]);
}

#[test]
fn an_unanswered_join_is_retried_when_no_subflow_is_left() {
    let mut bench = Bench::new("smart-backup");
    bench.view.locals.truncate(1);
    bench.tell(Some(EventKind::JoinsAllowed));
    let create = "create 10.0.0.1 -> 192.0.2.1 port 80";
    assert_eq!(bench.ended(0, SubflowEnd::TimedOut), [create]);
    bench.view.subflows.push(SubflowView {
        established: false,
        ..subflow(1, "10.0.0.1:5001")
    });
    assert_eq!(bench.wait(500), NOTHING);
    assert_eq!(bench.wait(3_199), NOTHING, "as if for its answer");
    assert_eq!(bench.wait(1), ["reset subflow 1", create]);
}

/// One that waited for a moment that had passed kept a processor busy and let nothing happen.
#[test]
fn no_controller_waits_for_what_has_passed() {
    for policy in [
        "smart-backup",
        "streaming",
        "refresh",
        "pathfinder",
        "full-mesh",
        "ndiffports:2",
    ] {
        let mut bench = Bench::new(policy);
        bench.tell(Some(EventKind::JoinsAllowed));
        bench.wait(100);
        (bench.view.may_join, bench.view.may_create) = (false, false);
        for _ in 0..100 {
            let Some(due) = bench.controller.deadline() else {
                break;
            };
            bench.now = bench.now.max(due);
            bench.tell(None);
            let next = bench.controller.deadline();
            assert!(next.is_none_or(|at| at > bench.now), "{policy}");
        }
    }
}
