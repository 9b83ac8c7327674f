//! Two machines move real bytes through a bad network, and every byte arrives.

mod common;

use common::net::{End, Link, Net, pattern};
use common::{at, ms};
use manypath_tcp::cc::Algorithm;
use manypath_tcp::machine::{Config, CongestionConfig, State, TcpOptions, Timeouts};
use manypath_tcp::time::Instant;

fn ends(bytes: [usize; 2], link: Link, cfg: &Config, seed: u64) -> Net {
    let isn = seed as u32;
    let a = End::new(
        cfg.clone(),
        (u32::MAX - 5000).wrapping_add(isn),
        pattern(bytes[0], seed),
        link,
    );
    let b = End::new(
        cfg.clone(),
        isn.wrapping_mul(77),
        pattern(bytes[1], seed + 1),
        link,
    );
    Net::new(a, b, seed)
}

#[test]
fn both_directions_over_a_good_network() {
    let mut net = ends([300_000, 200_000], Link::default(), &Config::default(), 1);
    net.connect(0);
    assert!(
        net.run(at(20_000)),
        "{:?} {:?}",
        net.ends[0].state(),
        net.ends[1].state()
    );
    net.check_streams();
    for end in &net.ends {
        let info = end.machine.as_ref().map(|m| m.info()).expect("opened");
        assert_eq!(info.counters.sent.bytes_retrans, 0);
        assert_eq!(info.counters.recovery.timeouts, 0);
    }
}

#[test]
fn bursts_with_a_bottleneck_fill_it() {
    let link = Link {
        rate: 1_250_000,
        queue: ms(60),
        ..Link::default()
    };
    let mut net = ends([5_000_000, 0], link, &Config::default(), 2);
    for end in &mut net.ends {
        end.max_burst = 65_535;
        end.option_space = 20;
    }
    net.connect(0);
    assert!(net.run(at(60_000)));
    net.check_streams();
    let seconds = net.now.since(Instant::from_secs(1)).as_millis();
    assert!(seconds < 5_500, "5 MB at 10 Mbit/s took {seconds} ms");
}

#[test]
fn losses_duplicates_and_reordering_change_no_byte() {
    for seed in 0..60 {
        let link = Link {
            loss: 10 + 5 * (seed % 8),
            duplicate: 20,
            reorder: if seed % 2 == 0 { 100 } else { 0 },
            rate: if seed % 3 == 0 { 500_000 } else { 0 },
            ..Link::default()
        };
        let cfg = Config {
            nagle: seed % 3 != 0,
            options: TcpOptions {
                timestamps: seed % 4 != 1,
                sack: seed % 5 != 2,
                window_scaling: seed % 7 != 3,
                ..TcpOptions::default()
            },
            congestion: CongestionConfig {
                ecn: seed % 2 == 1,
                pacing: seed % 3 != 1,
                algorithm: [Algorithm::Reno, Algorithm::Cubic, Algorithm::Lia][(seed % 3) as usize],
                ..CongestionConfig::default()
            },
            ..Config::default()
        };
        let mut net = ends([150_000, 60_000], link, &cfg, seed);
        net.ends[0].max_burst = if seed % 2 == 0 { 1 } else { 20_000 };
        net.connect(0);
        assert!(
            net.run(at(600_000)),
            "seed {seed}: {:?} {:?} got {} and {}",
            net.ends[0].state(),
            net.ends[1].state(),
            net.ends[0].rx.len(),
            net.ends[1].rx.len()
        );
        net.check_streams();
    }
}

#[test]
fn a_slow_reader_is_never_overrun() {
    for seed in 0..10 {
        let cfg = Config {
            recv_window: 20_000,
            ..Config::default()
        };
        let link = Link {
            loss: if seed % 2 == 0 { 0 } else { 20 },
            ..Link::default()
        };
        let mut net = ends([200_000, 0], link, &cfg, seed);
        net.ends[1].read_rate = 30;
        net.ends[0].max_burst = if seed % 3 == 0 { 65_535 } else { 1 };
        net.connect(0);
        assert!(
            net.run(at(300_000)),
            "seed {seed} got {}",
            net.ends[1].rx.len()
        );
        net.check_streams();
    }
}

#[test]
fn a_reader_that_stops_for_minutes_is_probed_and_waited_for() {
    let cfg = Config {
        recv_window: 20_000,
        timeouts: Timeouts {
            give_up: manypath_tcp::time::Duration::from_secs(10),
            ..Timeouts::default()
        },
        ..Config::default()
    };
    let mut net = ends([100_000, 0], Link::default(), &cfg, 4);
    net.ends[1].read_rate = 0;
    net.connect(0);
    assert!(!net.run(at(300_000)));
    let probes = net.ends[0]
        .machine
        .as_ref()
        .expect("open")
        .counters()
        .sent
        .window_probes;
    assert!((5..30).contains(&probes), "{probes} probes in five minutes");
    assert_eq!(net.ends[0].state(), State::CloseWait);
    net.ends[1].read_rate = 1000;
    net.ends[1].read_at = net.now;
    assert!(net.run(at(400_000)));
    net.check_streams();
}

#[test]
fn simultaneous_open_and_close() {
    // RFC 9293 3.5 figure 8 and 3.6 figure 13
    let mut net = ends([5_000, 6_000], Link::default(), &Config::default(), 5);
    net.connect(0);
    net.connect(1);
    assert!(
        net.run(at(30_000)),
        "{:?} {:?}",
        net.ends[0].state(),
        net.ends[1].state()
    );
    net.check_streams();
    assert!(net.run_until(at(30_000), |n| {
        n.ends.iter().all(|e| e.state() == State::TimeWait)
    }));
    assert!(net.run_until(at(120_000), |n| {
        n.ends.iter().all(|e| e.state() == State::Closed)
    }));
}

#[test]
fn half_close_lets_the_other_direction_go_on() {
    let mut net = ends([1_000, 500_000], Link::default(), &Config::default(), 6);
    net.connect(0);
    assert!(net.run(at(60_000)));
    net.check_streams();
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let link = Link {
            loss: 30,
            duplicate: 30,
            reorder: 100,
            rate: 1_000_000,
            ..Link::default()
        };
        let mut net = ends([200_000, 50_000], link, &Config::default(), seed);
        net.connect(0);
        assert!(net.run(at(600_000)));
        let sent: Vec<_> = net.ends.iter().map(|e| e.sent.clone()).collect();
        (net.now, sent)
    };
    assert_eq!(run(9), run(9));
    assert_ne!(run(9).0, run(10).0);
}

#[test]
fn a_dead_network_ends_the_connection() {
    let cfg = Config {
        timeouts: Timeouts {
            give_up: manypath_tcp::time::Duration::from_secs(10),
            ..Timeouts::default()
        },
        ..Config::default()
    };
    let mut net = ends(
        [1_000_000, 0],
        Link {
            rate: 1_000_000,
            ..Link::default()
        },
        &cfg,
        7,
    );
    net.connect(0);
    assert!(net.run_until(at(10_000), |n| n.ends[1].rx.len() > 100_000));
    net.drop = Box::new(|_, _| true);
    assert!(net.run_until(at(600_000), |n| n.ends[0].dead.is_some()));
    assert_eq!(net.ends[0].state(), State::Closed);
    assert_eq!(
        net.ends[0].machine.as_ref().and_then(|m| m.deadline()),
        None
    );
}

#[test]
fn requests_and_answers_do_not_wait_for_timers() {
    let link = Link {
        delay: manypath_tcp::time::Duration::from_micros(20),
        ..Link::default()
    };
    let mut net = ends([0, 0], link, &Config::default(), 12);
    net.ends[0].cfg.nagle = false;
    for end in &mut net.ends {
        end.close = false;
        end.max_burst = 65_535;
    }
    net.connect(0);
    let mut slowest = manypath_tcp::time::Duration::ZERO;
    for i in 1..=200 {
        let start = net.now;
        net.ends[0].tx.extend_from_slice(&[1; 100]);
        net.flush(0);
        assert!(net.run_until(at(60_000), |n| n.ends[1].rx.len() == 100 * i));
        net.ends[1].tx.extend_from_slice(&[2; 5000]);
        net.flush(1);
        assert!(net.run_until(at(60_000), |n| n.ends[0].rx.len() == 5000 * i));
        slowest = slowest.max(net.now.since(start));
    }
    assert!(slowest < ms(1), "{slowest:?}");
}

#[test]
fn heavy_loss_does_not_teach_a_round_trip_of_minutes() {
    // Lost acknowledgements, timestamps and no SACK: the echo of a segment sent again must be that of the repetition.
    let link = Link {
        loss: 220,
        duplicate: 20,
        ..Link::default()
    };
    for seed in 0..12 {
        let cfg = Config {
            options: TcpOptions {
                sack: seed % 2 == 0,
                ..TcpOptions::default()
            },
            congestion: CongestionConfig {
                pacing: false,
                ..CongestionConfig::default()
            },
            ..Config::default()
        };
        let mut net = ends([150_000, 60_000], link, &cfg, seed);
        net.connect(0);
        assert!(net.run(at(300_000)), "seed {seed}");
        net.check_streams();
        for end in &net.ends {
            let srtt = end.machine.as_ref().and_then(|m| m.srtt());
            assert!(srtt.is_some_and(|t| t < ms(2000)), "seed {seed}: {srtt:?}");
        }
    }
}
