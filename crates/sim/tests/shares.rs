//! Which paths come first, and how new data is divided among those that compete for it, in simulated time.

use std::num::NonZeroU16;

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_stack::sched::Preference;
use manypath_stack::{IfaceId, RateLimit, Stack};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

/// Largest packet, bytes.
const MTU: u16 = 1500;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// An upload over three paths of 100 Mbit/s that never ends.
struct Upload(Simulation);

impl Upload {
    /// The paths have 10 ms each.
    fn new(wanted: [Preference; 3]) -> Self {
        Self::with(["10ms"; 3], "6MB", wanted)
    }

    fn with(delays: [&str; 3], receive_buffer: &str, wanted: [Preference; 3]) -> Self {
        let path = |name: &str, i: usize| {
            let delay = delays[i];
            format!(
                "[[link]]\nname = \"{name}\"\nends = [\"client.{name}\", \"internet\"]\nrate = \"100Mbit/s\"\ndelay = \"{delay}\"\nbuffer = \"80ms\"\n"
            )
        };
        let interface = |name: &str, n: u8| {
            format!("{{ name = \"{name}\", addresses = [\"10.0.{n}.1\"], offload = \"64KB\" }}")
        };
        let text = format!(
            "title = \"Shares\"\nlimit = \"300s\"\n\
             [[host]]\nname = \"client\"\ninterface = [{}, {}, {}]\n\
             [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.0.0.1\"] }}]\n\
             [[router]]\nname = \"internet\"\n{}{}{}\
             [[link]]\nname = \"access\"\nends = [\"internet\", \"server.eth0\"]\nrate = \"1Gbit/s\"\n\
             [[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\nupload = \"4GB\"\nserver-options = {{ recv-buffer = \"{receive_buffer}\" }}\n",
            interface("a", 1),
            interface("b", 2),
            interface("c", 3),
            path("a", 0),
            path("b", 1),
            path("c", 2),
        );
        let scenario = Scenario::parse(&text).expect("the scenario is well-formed");
        let simulation = Simulation::new(scenario, RunOptions::default());
        let mut upload = Self(simulation.expect("the scenario makes sense"));
        let wanted = (0..).map(IfaceId).zip(wanted);
        let wanted = wanted.collect();
        upload.client(|stack, now| stack.prefer(now, wanted));
        // The SYNs are on their way.
        upload.0.run_until(Instant::ZERO + Duration::from_millis(1));
        upload
    }

    fn client<R>(&mut self, f: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        self.0.act("client", f).expect("the client")
    }

    fn limit(&mut self, rate: Option<u64>) {
        let limit = rate.map(|rate| RateLimit::new(rate, MTU));
        self.client(|stack, now| {
            let id = stack.conns()[0];
            stack.limit_connection(now, id, limit).expect("it is there");
        });
    }

    fn limit_path(&mut self, n: u32, rate: u64) {
        let limit = Some(RateLimit::new(rate, MTU));
        self.client(|stack, now| stack.limit_path(now, IfaceId(n), limit));
    }

    /// Megabits a second on each path, over so long.
    fn rates_in(&mut self, time: Duration) -> [f64; 3] {
        let before = self.sent();
        let until = self.0.now() + time;
        self.0.run_until(until);
        let after = self.sent();
        let passed = time.as_micros() as f64 / 1e6;
        [0, 1, 2].map(|i| (after[i] - before[i]) as f64 * 8.0 / 1e6 / passed)
    }

    fn sent(&self) -> [u64; 3] {
        let links = self.0.report().links;
        ["a", "b", "c"].map(|name| {
            let link = links.iter().find(|link| link.name == name);
            link.expect("a link").out.delivered_bytes
        })
    }
}

fn weight(weight: u16) -> Preference {
    Preference {
        weight: NonZeroU16::new(weight),
        ..Preference::NONE
    }
}

const SECONDARY: Preference = Preference {
    secondary: true,
    ..Preference::NONE
};

#[test]
fn weights_divide_what_three_paths_could_carry_each() {
    let mut upload = Upload::new([weight(7), weight(2), weight(1)]);
    upload.limit(Some(20_000_000));
    let _ = upload.rates_in(seconds(1));
    let rates = upload.rates_in(seconds(10));
    for (rate, due) in rates.iter().zip([14.0, 4.0, 2.0]) {
        assert!((rate - due).abs() <= due * 0.05, "{rates:?}");
    }
}

/// The window of the quickest never grows nor is filled: what it could carry with it is not what it does.
#[test]
fn a_limit_keeps_no_slower_path_from_its_share_of_a_small_receive_window() {
    let mut upload = Upload::with(
        ["2ms", "10ms", "10ms"],
        "200KB",
        [weight(2), weight(1), weight(1)],
    );
    upload.limit(Some(4_000_000));
    let _ = upload.rates_in(seconds(1));
    let rates = upload.rates_in(seconds(10));
    for (rate, due) in rates.iter().zip([2.0, 1.0, 1.0]) {
        assert!((rate - due).abs() <= due * 0.05, "{rates:?}");
    }
}

#[test]
fn the_share_of_a_path_that_cannot_carry_it_goes_to_the_others() {
    let mut upload = Upload::new([weight(7), weight(2), weight(1)]);
    upload.limit_path(0, 1_000_000);
    upload.limit(Some(20_000_000));
    let _ = upload.rates_in(seconds(1));
    let rates = upload.rates_in(seconds(10));
    assert!(rates.iter().sum::<f64>() >= 0.98 * 20.0, "{rates:?}");
    for (rate, due) in rates[1..].iter().zip([19.0 * 2.0 / 3.0, 19.0 / 3.0]) {
        assert!((rate - due).abs() <= due * 0.08, "{rates:?}");
    }
    // Without a bound above them all are full.
    upload.limit(None);
    let _ = upload.rates_in(seconds(3));
    let rates = upload.rates_in(seconds(3));
    assert!(rates[1] > 85.0 && rates[2] > 85.0, "{rates:?}");
}

#[test]
fn a_secondary_path_carries_what_the_others_cannot() {
    let mut upload = Upload::new([Preference::NONE, SECONDARY, SECONDARY]);
    upload.limit(Some(20_000_000));
    let _ = upload.rates_in(seconds(2));
    let rates = upload.rates_in(seconds(5));
    assert!(rates[0] > 19.0, "{rates:?}");
    assert!(rates[1] + rates[2] < 0.4, "{rates:?}");
    upload.limit(None);
    let _ = upload.rates_in(seconds(3));
    let rates = upload.rates_in(seconds(3));
    assert!(rates.iter().all(|rate| *rate > 80.0), "{rates:?}");
    // One whose path has no tokens has no room either.
    upload.limit_path(0, 1_000_000);
    upload.limit(Some(20_000_000));
    let _ = upload.rates_in(seconds(2));
    let rates = upload.rates_in(seconds(3));
    assert!(rates.iter().sum::<f64>() > 19.0, "{rates:?}");
}

#[test]
fn an_overflow_is_used_from_when_the_others_carry_so_much() {
    let beyond = |megabits: u64| Preference {
        overflow: Some(Rate::from_bytes_per_sec(megabits * 125_000)),
        ..Preference::NONE
    };
    // The first one is full, and carries less than that.
    let mut upload = Upload::new([Preference::NONE, beyond(30), beyond(200)]);
    upload.limit_path(0, 20_000_000);
    let _ = upload.rates_in(seconds(3));
    let rates = upload.rates_in(seconds(5));
    assert!(rates[0] > 19.0, "{rates:?}");
    assert!(rates[1] + rates[2] < 0.8, "{rates:?}");
    // And more than that.
    upload.limit_path(0, 60_000_000);
    let _ = upload.rates_in(seconds(4));
    let rates = upload.rates_in(seconds(5));
    assert!(rates[0] > 57.0 && rates[1] > 80.0, "{rates:?}");
    assert!(rates[2] < 0.8, "{rates:?}");
}
