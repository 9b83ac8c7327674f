//! Mean windows under deterministic loss, where every path drops one segment in `1/p`: the response functions and the
//! tables that are published for them.

use manypath_tcp::cc::{AckSample, Algorithm, Congestion, GroupView, PathSample};
use manypath_tcp::time::{Duration, Instant};

const MSS: u32 = 1_000;
/// Reductions of each path before the measurement begins, and while it lasts.
const SETTLED: u64 = 20;
const MEASURED: u64 = 20;

/// One path: its controller, and what it has carried since its last loss.
struct Path {
    congestion: Congestion,
    since_loss: u64,
    acked_total: u64,
}

impl Path {
    /// Begins in congestion avoidance with `cwnd` bytes.
    fn new(algorithm: Algorithm, cwnd: u32) -> Path {
        let mut congestion = Congestion::new(algorithm, MSS, 10);
        congestion.set_cwnd(cwnd);
        congestion.cap_to(cwnd);
        Path {
            congestion,
            since_loss: 0,
            acked_total: 0,
        }
    }

    fn sample(&self, rtt: Duration) -> PathSample {
        PathSample {
            cwnd: self.congestion.cwnd(),
            srtt: rtt,
            mss: MSS,
            usable: true,
            interloss: self.congestion.interloss(),
        }
    }

    /// An acknowledgement of `acked` bytes out of a full window.
    fn acknowledge(&mut self, acked: u32, now: Instant, rtt: Duration, group: &GroupView<'_>) {
        let cwnd = self.congestion.cwnd();
        self.acked_total += u64::from(acked);
        let ack = AckSample {
            now,
            acked,
            inflight_before: cwnd,
            inflight_after: cwnd.saturating_sub(acked),
            max_inflight: cwnd,
            cwnd_limited: true,
            rtt: Some(rtt),
            srtt: rtt,
            min_rtt: rtt,
            acked_total: self.acked_total,
            sent_total: self.acked_total + u64::from(cwnd),
            delivered_total: self.acked_total,
            lost: 0,
            rate: None,
            rate_app_limited: false,
        };
        self.congestion.observe(&ack, false);
        self.congestion.on_ack(&ack, group);
    }

    /// One segment is lost, and the recovery from it over.
    fn lose(&mut self, now: Instant) {
        let cwnd = self.congestion.cwnd();
        self.congestion.on_loss(now, cwnd);
        self.congestion.on_recovered();
        self.since_loss = 0;
    }
}

/// The mean sum of the windows of `paths` equal paths in segments, where each loses one segment in `every`. All begin with
/// an equal part of `begin` segments.
fn mean_window(algorithm: Algorithm, paths: u32, every: u64, rtt: Duration, begin: f64) -> f64 {
    let begin = (begin * f64::from(MSS)) as u32 / paths;
    let mut all: Vec<Path> = (0..paths).map(|_| Path::new(algorithm, begin)).collect();
    let period = every * u64::from(MSS);
    // They do not lose at the same time.
    for (n, path) in all.iter_mut().enumerate() {
        path.since_loss = period * n as u64 / u64::from(paths);
    }
    let mut now = Instant::from_secs(1);
    let (mut reductions, mut sum, mut rounds) = (0, 0.0, 0u64);
    while reductions < (SETTLED + MEASURED) * u64::from(paths) {
        // A round trip: every window is acknowledged once, in at most sixteen pieces.
        let windows: Vec<u32> = all.iter().map(|path| path.congestion.cwnd()).collect();
        if reductions >= SETTLED * u64::from(paths) {
            sum += windows.iter().map(|&cwnd| f64::from(cwnd)).sum::<f64>();
            rounds += 1;
        }
        for step in 0..16u64 {
            for (me, &window) in windows.iter().enumerate() {
                let samples: Vec<PathSample> = all.iter().map(|path| path.sample(rtt)).collect();
                let group = GroupView {
                    paths: &samples,
                    me,
                };
                let path = &mut all[me];
                path.acknowledge(window / 16, now, rtt, &group);
                path.since_loss += u64::from(window / 16);
                if path.since_loss >= period {
                    path.lose(now);
                    reductions += 1;
                }
            }
            now += Duration::from_nanos(rtt.as_nanos() / 16 + u64::from(step == 15));
        }
    }
    sum / rounds as f64 / f64::from(MSS)
}

fn assert_near(what: &str, mean: f64, published: f64, tolerance: f64) {
    assert!(
        (mean / published - 1.0).abs() < tolerance,
        "{what}: {mean:.1} segments, published {published:.1}"
    );
}

/// RFC 9438, tables 1 (round trip of 0.1 s) and 2 (0.01 s): columns of Reno and of CUBIC. The model behind CUBIC's has the
/// window return to exactly where it was reduced. One that falls short of that by a segment gives up room (section 4.7),
/// and from below the curve is so flat that a thousand losses later the window is still on its way: hence the tenth.
#[test]
fn reno_and_cubic_have_the_windows_of_rfc_9438() {
    for (rtt_ms, every, reno, cubic) in [
        (100, 1_000, 38.0, 38.0),
        (100, 10_000, 120.0, 187.0),
        (100, 100_000, 379.0, 1_054.0),
        (100, 1_000_000, 1_200.0, 5_926.0),
        (10, 1_000, 38.0, 38.0),
        (10, 10_000, 120.0, 120.0),
        (10, 100_000, 379.0, 379.0),
        (10, 1_000_000, 1_200.0, 1_200.0),
    ] {
        let rtt = Duration::from_millis(rtt_ms);
        for (algorithm, published) in [(Algorithm::Reno, reno), (Algorithm::Cubic, cubic)] {
            let mean = mean_window(algorithm, 1, every, rtt, published);
            let what = format!("{algorithm}, {rtt_ms} ms, one in {every}");
            assert_near(&what, mean, published, 0.10);
        }
    }
}

/// On paths that are equal in everything the windows of a coupled connection make up one of TCP's, `sqrt(3/2)/sqrt(p)`
/// (RFC 6356 section 3 for LIA, the fixed points of OLIA and BALIA). BALIA's takes the paths for unequal while one
/// has just lost and another has not, which brings it some percent more.
#[test]
fn coupled_windows_make_up_one_of_tcp() {
    let rtt = Duration::from_millis(50);
    let every = 100_000;
    let published = (1.5 * every as f64).sqrt();
    for (algorithm, tolerance) in [
        (Algorithm::Lia, 0.05),
        (Algorithm::Olia, 0.05),
        (Algorithm::Balia, 0.10),
    ] {
        for paths in [1, 2, 3, 8] {
            let mean = mean_window(algorithm, paths, every, rtt, published);
            let what = format!("{algorithm}, {paths} paths, one in {every}");
            assert_near(&what, mean, published, tolerance);
        }
    }
}
