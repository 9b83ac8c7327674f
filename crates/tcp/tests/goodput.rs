//! How fast one subflow is, in virtual time: its share of the link and its waste on the networks of the papers, on a
//! long fat one and on lossy ones. The bounds are a little below what was measured; a change that crosses one is a
//! change of behaviour that somebody has to look at.

mod common;

use common::ms;
use common::net::{End, Link, Net, pattern};
use manypath_tcp::cc::Algorithm;
use manypath_tcp::machine::{Config, CongestionConfig};
use manypath_tcp::time::Duration;

/// One network and what is expected of it.
struct Case {
    name: &'static str,
    mbit: u64,
    one_way: u64,
    queue: u64,
    /// Lost packets in a thousand.
    loss: u64,
    bytes: usize,
    /// Least payload rate in percent of the link's.
    share: [u64; 2],
    /// Most payload sent again, in thousandths.
    waste: u64,
}

const CASES: [Case; 6] = [
    Case {
        name: "wifi",
        mbit: 8,
        one_way: 10,
        queue: 80,
        loss: 0,
        bytes: 4_000_000,
        share: [93, 94],
        waste: 8,
    },
    Case {
        name: "3g",
        mbit: 2,
        one_way: 75,
        queue: 2_000,
        loss: 0,
        bytes: 2_000_000,
        share: [89, 89],
        waste: 2,
    },
    Case {
        name: "lan",
        mbit: 100,
        one_way: 1,
        queue: 10,
        loss: 0,
        bytes: 8_000_000,
        share: [92, 92],
        waste: 28,
    },
    Case {
        name: "long and fat",
        mbit: 100,
        one_way: 50,
        queue: 100,
        loss: 0,
        bytes: 30_000_000,
        share: [72, 72],
        waste: 58,
    },
    Case {
        name: "shallow",
        mbit: 50,
        one_way: 20,
        queue: 5,
        loss: 0,
        bytes: 12_000_000,
        share: [68, 76],
        waste: 18,
    },
    Case {
        name: "lossy wifi",
        mbit: 8,
        one_way: 10,
        queue: 80,
        loss: 10,
        bytes: 4_000_000,
        share: [55, 62],
        waste: 20,
    },
];

fn run(case: &Case, cc: Algorithm, burst: u32) {
    let cfg = Config {
        recv_window: 16 << 20,
        congestion: CongestionConfig {
            algorithm: cc,
            ..CongestionConfig::default()
        },
        ..Config::default()
    };
    let link = Link {
        delay: ms(case.one_way),
        rate: case.mbit * 125_000,
        queue: ms(case.queue),
        loss: case.loss,
        ..Link::default()
    };
    let back = Link {
        delay: ms(case.one_way),
        ..Link::default()
    };
    let mut sender = End::new(cfg.clone(), 7, pattern(case.bytes, 1), link);
    sender.max_burst = burst;
    let mut net = Net::new(sender, End::new(cfg, 9, Vec::new(), back), 42);
    net.connect(0);
    let start = net.now;
    assert!(
        net.run(start + Duration::from_secs(600)),
        "{} ends",
        case.name
    );
    net.check_streams();
    let took = net.now.since(start).as_micros();
    let share = case.bytes as u64 * 800 / took / case.mbit;
    let counters = *net.ends[0]
        .machine
        .as_ref()
        .expect("it was opened")
        .counters();
    let waste = counters.sent.bytes_retrans * 1_000 / case.bytes as u64;
    let wanted = case.share[usize::from(cc == Algorithm::Cubic)];
    let told = format!(
        "{} {cc:?} bursts of {burst}: {share} % of the link, {waste} thousandths sent again, {} recoveries, {} timeouts",
        case.name, counters.recovery.recoveries, counters.recovery.timeouts
    );
    println!("{told}");
    assert!(share >= wanted && waste <= case.waste, "{told}");
    assert_eq!(counters.recovery.timeouts, 0, "{told}");
}

#[test]
fn segments_fill_the_link() {
    for case in &CASES {
        run(case, Algorithm::Reno, 1);
        run(case, Algorithm::Cubic, 1);
    }
}

#[test]
fn bursts_fill_it_as_well() {
    for case in &CASES {
        run(case, Algorithm::Cubic, 65_536);
    }
}
