//! The smart controllers of SMAPP (sections 4.2 to 4.4, figure 2) and PathFinder, by their effect on the papers' networks.

use manypath_sim::networks::{Spread, parallel_paths, two_paths};
use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_tcp::time::{Duration, Instant};

fn simulation(text: &str, seed: u64) -> Simulation {
    let scenario = Scenario::parse(text).expect("the scenario is well-formed");
    let options = RunOptions {
        seed: Some(seed),
        ..RunOptions::default()
    };
    Simulation::new(scenario, options).expect("the scenario makes sense")
}

fn seconds(count: u64) -> Instant {
    Instant::from_secs(count)
}

/// What the server had read at the ends of intervals of this length.
fn progress(simulation: &mut Simulation, every: Duration, until: Instant) -> Vec<(Instant, u64)> {
    let mut at = Instant::ZERO;
    let mut all = Vec::new();
    while at < until {
        at += every;
        simulation.run_until(at);
        let read = simulation.hosts()[1]
            .endpoints()
            .first()
            .map_or(0, |endpoint| endpoint.record.read);
        all.push((at, read));
    }
    all
}

/// The longest time without progress after `from`.
fn longest_gap(progress: &[(Instant, u64)], from: Instant) -> Duration {
    let mut longest = Duration::ZERO;
    let mut last = (from, 0);
    for &(at, read) in progress.iter().filter(|(at, _)| *at >= from) {
        if read > last.1 {
            longest = longest.max(at.since(last.0));
            last = (at, read);
        }
    }
    longest
}

/// SMAPP figure 2a: 30 % loss on the primary after a second.
#[test]
fn a_smart_backup_moves_within_its_threshold() {
    let mut gaps = Vec::new();
    for seed in 0..30 {
        let text = two_paths(
            10_000_000,
            10_000,
            "[[event]]\ndo = \"change\"\nat = \"1s\"\nlink = \"wifi\"\nloss = \"30%\"\n",
            "[[app]]\nname = \"file\"\nclient = \"client\"\nserver = \"server\"\nupload = \"40MB\"\n\
             client-options = { path-manager = \"smart-backup\" }\n",
        );
        let mut simulation = simulation(&text, seed);
        let progress = progress(&mut simulation, Duration::from_millis(5), seconds(9));
        let gap = longest_gap(&progress, seconds(1));
        let moved = simulation.hosts()[0].interfaces()[1].counters.sent_payload;
        println!("seed {seed}: gap {gap:?}, moved {moved}");
        assert!(moved > 1_000_000, "seed {seed} never moved");
        gaps.push(gap);
    }
    let worst = gaps.iter().max().expect("thirty runs");
    assert!(*worst < Duration::from_millis(1_500), "{worst:?}");
}

/// The delays of the blocks of a stream of 64 KiB a second, in milliseconds, in order of length.
fn block_delays(policy: &str, loss: u32, blocks: u64, seed: u64) -> Vec<u64> {
    let text = two_paths(
        5_000_000,
        10_000,
        &format!(
            "[[event]]\ndo = \"change\"\nat = \"100ms\"\nlink = \"wifi\"\nloss = \"{loss}%\"\n"
        ),
        &format!(
            "[[app]]\nname = \"blocks\"\nclient = \"client\"\nserver = \"server\"\nupload = \"{}\"\nburst = \"64KiB\"\npause = \"1s\"\nclient-options = {{ path-manager = \"{policy}\" }}",
            blocks * 65_536
        ),
    );
    let mut simulation = simulation(&text, seed);
    let until = seconds(blocks + 60);
    let progress = progress(&mut simulation, Duration::from_millis(2), until);
    let mut delays = Vec::new();
    // The first block leaves when the connection is established, 20 ms after the start.
    let start = Duration::from_millis(20);
    for block in 0..blocks {
        let begun = Instant::from_secs(block) + start;
        let whole = (block + 1) * 65_536;
        let here = progress.iter().find(|(_, read)| *read >= whole);
        let (at, _) = here.expect("every block arrives");
        delays.push(at.since(begun).as_millis());
    }
    delays.sort_unstable();
    delays
}

/// SMAPP figure 2b.
#[test]
fn smart_streaming_keeps_blocks_in_time() {
    let (mut late, mut all) = (0, 0);
    for loss in [10, 20, 30, 40] {
        let mut by_policy = Vec::new();
        for policy in ["streaming", "fullmesh"] {
            let mut delays = Vec::new();
            for seed in 0..3 {
                delays.extend(block_delays(policy, loss, 100, seed));
            }
            delays.sort_unstable();
            let of = |part: usize| delays[(delays.len() * part / 1000).min(delays.len() - 1)];
            println!(
                "loss {loss} %, {policy}: median {} ms, 95 % {} ms, 99.9 % {} ms, worst {} ms",
                of(500),
                of(950),
                of(999),
                of(1000)
            );
            if policy == "streaming" {
                late += delays.iter().filter(|delay| **delay > 1_000).count();
                all += delays.len();
            }
            by_policy.push(of(950));
        }
        assert!(by_policy[0] <= by_policy[1], "{by_policy:?}");
    }
    assert!(late * 1000 <= all, "{late} of {all} blocks are late");
}

/// How long the upload of the only application took, in seconds.
fn duration_of_upload(text: &str, seed: u64) -> f64 {
    let mut simulation = simulation(text, seed);
    simulation.run();
    let record = &simulation.hosts()[1].endpoints()[0].record;
    let whole = record.whole.expect("the upload arrives");
    whole.since(Instant::ZERO).as_micros() as f64 / 1e6
}

/// A path that one end calls a backup rests in both directions while the other one works. // rfc8684:P1
#[test]
fn a_backup_carries_neither_what_its_owner_sends_nor_what_comes() {
    for way in ["upload", "download"] {
        let app = format!(
            "[[app]]\nname = \"file\"\nclient = \"client\"\nserver = \"server\"\n{way} = \"2MB\"\n"
        );
        let text = two_paths(10_000_000, 10_000, "", &app).replace(
            "addresses = [\"10.2.0.2\"]",
            "addresses = [\"10.2.0.2\"], backup = true",
        );
        let mut simulation = simulation(&text, 1);
        simulation.run();
        let report = simulation.report();
        let sent = |name: &str| {
            let link = report.links.iter().find(|link| link.name == name);
            let link = link.expect("a link");
            link.out.delivered + link.back.delivered
        };
        assert!(sent("wifi") > 1_400, "{way}: {report}");
        assert!((1..50).contains(&sent("cell")), "{way}: {report}");
    }
}

/// SMAPP figure 2c: 100 MB over four paths of 8 Mbit/s. The bound is 27.8 s in the paper, headers included.
#[test]
fn refresh_comes_to_use_all_paths() {
    let mut medians = Vec::new();
    for (policy, runs) in [("refresh", 9), ("ndiffports:5", 5)] {
        let apps = format!(
            "[[app]]\nname = \"file\"\nclient = \"client\"\nserver = \"server\"\nupload = \"100MB\"\n\
             client-options = {{ path-manager = \"{policy}\" }}\n"
        );
        let text = parallel_paths(&[10, 20, 30, 40], 8_000_000, Spread::Hash, &apps);
        let mut times: Vec<f64> = (0..runs)
            .map(|seed| duration_of_upload(&text, seed))
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{policy}: {times:.1?}");
        medians.push(times[times.len() / 2]);
    }
    assert!(medians[0] <= 27.8 * 1.1, "{medians:?}");
    assert!(medians[0] <= medians[1], "{medians:?}");
}

/// Bytes read after a time in seconds and the subflows at the end, over three equal paths, for each connection.
fn found_paths(policy: &str, connections: u32, seed: u64, time: u64) -> (Vec<u64>, Vec<usize>) {
    let apps = format!(
        "[[app]]\nname = \"file\"\nclient = \"client\"\nserver = \"server\"\nupload = \"1GB\"\nconnections = {connections}\n\
         options = {{ congestion = \"lia\" }}\nclient-options = {{ path-manager = \"{policy}\" }}\n"
    );
    let text = parallel_paths(&[10, 12, 14], 8_000_000, Spread::InTurn, &apps);
    let mut simulation = simulation(&text, seed);
    simulation.run_until(seconds(time));
    let read = simulation.hosts()[1]
        .endpoints()
        .iter()
        .map(|e| e.record.read);
    let stack = &simulation.hosts()[0].stack;
    let subflows = stack
        .conns()
        .into_iter()
        .map(|id| stack.info(id).expect("a connection").subflows.len());
    (read.collect(), subflows.collect())
}

/// PathFinder figures 4 and 6 at one connection, beta 20: four subflows for three paths, as fast as three given by hand.
#[test]
fn pathfinder_finds_three_paths() {
    let (by_hand, _) = found_paths("ndiffports:3", 1, 1, 120);
    let mut best = 0;
    for gamma in ["0", "1", "2", "4", "8", "auto"] {
        let policy = format!("pathfinder:beta=20,gamma={gamma}");
        let (read, subflows) = found_paths(&policy, 1, 1, 120);
        println!("gamma {gamma}: {read:?} of {by_hand:?}, {subflows:?} subflows");
        assert_eq!(subflows, [4], "gamma {gamma}");
        assert!(
            read[0] * 100 >= by_hand[0] * 95,
            "gamma {gamma}: {read:?} of {by_hand:?}"
        );
        if gamma == "auto" {
            assert!(read[0] >= best, "{read:?} of {best}");
        }
        best = best.max(read[0]);
    }
}

/// PathFinder figure 4 at five connections: the variant that adapts itself overestimates less than the fixed gammas.
#[test]
fn an_adapting_pathfinder_overestimates_less() {
    let mean = |policy: &str| {
        let runs: Vec<usize> = (0..2)
            .flat_map(|seed| found_paths(policy, 5, seed, 60).1)
            .collect();
        runs.iter().sum::<usize>() as f64 / runs.len() as f64
    };
    let adapting = mean("pathfinder:beta=20");
    for gamma in [0, 8] {
        let fixed = mean(&format!("pathfinder:beta=20,gamma={gamma}"));
        println!("five connections: gamma {gamma}: {fixed:.1} subflows, adapting {adapting:.1}");
        assert!(adapting <= fixed + 0.5, "{adapting} against {fixed}");
    }
}
