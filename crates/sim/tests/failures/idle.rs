//! Failures that nobody notices while nothing is sent, and outages that are longer than any number of time-outs.

use manypath_tcp::time::{Duration, Instant};

use crate::bench::{Bench, Line, Setup, Way};
use crate::{PAIRS, WAYS};

const A: Line = PAIRS[2].0;
const B: Line = PAIRS[2].1;

fn word(way: Way) -> &'static str {
    match way {
        Way::Up => "upload",
        Way::Down => "download",
    }
}

/// A NAT forgets a connection that was idle and drops its packets, resets it, or takes it for a new one. The paths are
/// those of a telephone that writes now and then: what it writes arrives all the same.
#[test]
fn an_expired_nat_binding_costs_two_retransmission_timeouts() {
    for unknown in ["drop", "reset", "remap"] {
        for way in WAYS {
            let boxes = format!("{{ kind = \"nat\", idle = \"30s\", unknown = \"{unknown}\" }}");
            let app = format!(
                "{} = \"80KB\"\nburst = \"20KB\"\npause = \"40s\"",
                word(way)
            );
            let setup = Setup {
                boxes: &boxes,
                app: Some(&app),
                ..Setup::default()
            };
            let mut bench = Bench::new(A, B, way, setup);
            // Each burst is there a second after it was written, whatever became of the subflow.
            for burst in 0..4_u64 {
                bench
                    .sim
                    .run_until(Instant::from_millis(40_000 * burst + 1_000 + 500 * burst));
                assert_eq!(
                    bench.read(),
                    20_000 * (burst + 1),
                    "{unknown} {way:?} {burst}: {:?}",
                    bench.sender()
                );
            }
            let report = bench.sim.report();
            assert!(report.violations.is_empty(), "{:?}", report.violations);
        }
    }
}

/// Twenty minutes are more than any subflow is given, but the connection has another path.
#[test]
fn a_long_outage_ends_neither_the_connection_nor_its_probes() {
    for way in WAYS {
        let app = format!(
            "{} = \"20MB\"\nburst = \"100KB\"\npause = \"10s\"",
            word(way)
        );
        let setup = Setup {
            outages: &[(5.0, 1_205.0)],
            app: Some(&app),
            ..Setup::default()
        };
        let mut bench = Bench::new(A, B, way, setup);
        bench.sim.run_until(Instant::from_secs(1_205));
        assert!(bench.read() > 100_000 * 115, "{way:?} {}", bench.read());
        let carried = |bench: &Bench| {
            let over_a = bench.over_a();
            over_a.iter().map(|sf| sf.bytes_sent).sum::<u64>()
        };
        let before = carried(&bench);
        // The pause between two rounds of joins is a minute and a quarter at most, and a burst comes every ten seconds.
        let latest = Instant::from_secs(1_205) + Duration::from_secs(90);
        bench.sim.run_until(latest);
        assert!(carried(&bench) > before, "{way:?} {:?}", bench.sender());
    }
}
