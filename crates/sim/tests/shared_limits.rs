//! Limits of connections and of classes in simulated time: set, changed and taken away while connections run.

use std::num::NonZeroU16;

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_stack::{ClassId, IfaceId, LimitState, RateLimit, Stack};
use manypath_tcp::time::{Duration, Instant};

/// Largest packet, bytes.
const MTU: u16 = 1500;

/// Uploads over two paths of 100 Mbit/s and 10 ms that never end.
struct Upload {
    simulation: Simulation,
}

impl Upload {
    /// So many connections at a time.
    fn new(connections: u32) -> Self {
        let text = format!(
            "title = \"Limits\"\nlimit = \"300s\"\n\
             [[host]]\nname = \"client\"\n\
             interface = [{{ name = \"a\", addresses = [\"10.0.1.1\"], offload = \"64KB\" }}, \
             {{ name = \"b\", addresses = [\"10.0.2.1\"], offload = \"64KB\" }}]\n\
             [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.0.0.1\"] }}]\n\
             [[router]]\nname = \"internet\"\n\
             [[link]]\nname = \"a\"\nends = [\"client.a\", \"internet\"]\nrate = \"100Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"80ms\"\n\
             [[link]]\nname = \"b\"\nends = [\"client.b\", \"internet\"]\nrate = \"100Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"80ms\"\n\
             [[link]]\nname = \"access\"\nends = [\"internet\", \"server.eth0\"]\nrate = \"1Gbit/s\"\n\
             [[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\nupload = \"2GB\"\nconnections = {connections}\n"
        );
        let scenario = Scenario::parse(&text).expect("the scenario is well-formed");
        let simulation = Simulation::new(scenario, RunOptions::default());
        let mut simulation = simulation.expect("the scenario makes sense");
        // The SYNs are on their way.
        simulation.run_until(Instant::ZERO + Duration::from_millis(1));
        Self { simulation }
    }

    fn client<R>(&mut self, f: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        self.simulation.act("client", f).expect("the client")
    }

    /// Runs for so long, and gives the bits that passed both paths meanwhile, as IP packets.
    fn bits_in(&mut self, time: Duration) -> f64 {
        let before = self.sent();
        let until = self.simulation.now() + time;
        self.simulation.run_until(until);
        (self.sent() - before) as f64 * 8.0
    }

    /// Bits of payload that left the client in so long.
    fn payload_in(&mut self, time: Duration) -> f64 {
        let payload = |upload: &Self| -> u64 {
            let interfaces = upload.simulation.hosts()[0].interfaces().iter();
            interfaces.map(|i| i.counters.sent_payload).sum()
        };
        let before = payload(self);
        let until = self.simulation.now() + time;
        self.simulation.run_until(until);
        (payload(self) - before) as f64 * 8.0
    }

    /// Bytes that passed both paths.
    fn sent(&self) -> u64 {
        let links = self.simulation.report().links;
        let paths = links.iter().filter(|link| link.name != "access");
        paths.map(|link| link.out.delivered_bytes).sum()
    }

    /// Bytes acknowledged of each connection, as the client has it.
    fn acked(&mut self) -> Vec<u64> {
        self.client(|stack, _| {
            let conns = stack.conns();
            let infos = conns.into_iter().filter_map(|id| stack.info(id).ok());
            infos.map(|info| info.bytes_acked).collect()
        })
    }

    fn limit_connection(&mut self, rate: Option<u64>) {
        self.client(|stack, now| {
            let id = stack.conns()[0];
            let limit = rate.map(|rate| RateLimit::new(rate, MTU));
            stack.limit_connection(now, id, limit).expect("it is there");
        });
    }

    fn limit_class(&mut self, class: u32, rate: Option<u64>) {
        let limit = rate.map(|rate| RateLimit::new(rate, MTU));
        self.client(|stack, now| stack.limit_class(now, ClassId(class), limit));
    }

    /// Puts the connections into classes, by their order.
    fn classify(&mut self, class_of: impl Fn(usize) -> u32) {
        self.client(|stack, now| {
            for (i, id) in stack.conns().into_iter().enumerate() {
                let classes = [Some(ClassId(class_of(i))), None];
                stack.classify(now, id, classes).expect("it is there");
            }
        });
    }

    fn class(&mut self, class: u32) -> LimitState {
        let state = self.client(|stack, _| stack.class_limit(ClassId(class)));
        state.expect("it has a limit")
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Within 2 % below the rate, and never above it and one burst.
fn assert_holds(bits: f64, rate: u64, seconds: f64) {
    let burst = RateLimit::new(rate, MTU).burst as f64 * 8.0;
    let due = rate as f64 * seconds;
    assert!(bits <= due + burst, "{bits} bits of {due} and {burst}");
    assert!(bits >= 0.98 * due, "{bits} bits of {due}");
}

#[test]
fn a_connection_over_two_paths_has_one_limit_from_its_first_byte_on() {
    let mut upload = Upload::new(1);
    upload.limit_connection(Some(50_000_000));
    // The handshake and slow start use less, never more.
    assert!(upload.bits_in(SECOND) <= 50e6 + 1e6);
    for _ in 0..3 {
        let bits = upload.bits_in(SECOND);
        assert_holds(bits, 50_000_000, 1.0);
    }
}

#[test]
fn a_limit_that_is_changed_holds_at_once_and_ends_at_once() {
    let mut upload = Upload::new(1);
    assert!(upload.bits_in(Duration::from_secs(2)) > 200e6);
    upload.limit_connection(Some(20_000_000));
    // What waits in the network passes first.
    let _ = upload.bits_in(Duration::from_millis(200));
    assert_holds(upload.bits_in(SECOND), 20_000_000, 1.0);
    upload.limit_connection(Some(2_000_000));
    let bits = upload.payload_in(Duration::from_millis(200));
    assert!(bits <= 400e3 + 40e3, "{bits} in 200 ms");
    assert_holds(upload.bits_in(SECOND), 2_000_000, 1.0);
    upload.limit_connection(None);
    let _ = upload.bits_in(Duration::from_secs(2));
    let bits = upload.bits_in(SECOND);
    assert!(bits > 150e6, "{bits} without a limit");
}

#[test]
fn a_class_divides_its_rate_among_its_connections_evenly() {
    for connections in [1, 8, 64] {
        let mut upload = Upload::new(connections);
        upload.limit_class(7, Some(10_000_000));
        upload.classify(|_| 7);
        let _ = upload.bits_in(Duration::from_secs(2));
        let before = upload.acked();
        let bits = upload.bits_in(Duration::from_secs(10));
        assert_holds(bits, 10_000_000, 10.0);
        let after = upload.acked();
        assert_eq!(after.len(), connections as usize, "none has ended");
        let each = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before);
        let (least, most) = (each.clone().min(), each.max());
        let ratio = least.unwrap_or(0) as f64 / most.unwrap_or(1) as f64;
        assert!(ratio >= 0.3, "{connections} connections: {ratio}");
    }
}

#[test]
fn connections_of_another_class_are_not_held_back() {
    let mut upload = Upload::new(2);
    upload.limit_class(1, Some(1_000_000));
    upload.classify(|i| i as u32);
    let _ = upload.bits_in(SECOND);
    let before = upload.acked();
    let _ = upload.bits_in(Duration::from_secs(2));
    let after = upload.acked();
    let megabits: Vec<f64> = after
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) as f64 * 8.0 / 1e6)
        .collect();
    assert!(megabits[0] > 300.0, "{megabits:?}");
    assert!(megabits[1] < 2.1, "{megabits:?}");
}

#[test]
fn path_class_and_connection_hold_together() {
    let mut upload = Upload::new(4);
    upload.client(|stack, now| {
        let limit = |rate| Some(RateLimit::new(rate, MTU));
        stack.limit_path(now, IfaceId(0), limit(8_000_000));
        stack.limit_path(now, IfaceId(1), limit(8_000_000));
        let first = stack.conns()[0];
        stack
            .limit_connection(now, first, limit(500_000))
            .expect("it is there");
    });
    upload.limit_class(0, Some(4_000_000));
    upload.classify(|i| (i / 2) as u32);
    let _ = upload.bits_in(Duration::from_secs(2));
    let before = upload.acked();
    let bits = upload.bits_in(Duration::from_secs(5));
    // The paths are full, and nobody waits for who may not.
    assert_holds(bits, 16_000_000, 5.0);
    let after = upload.acked();
    let rates: Vec<f64> = after
        .iter()
        .zip(before)
        .map(|(after, before)| (after - before) as f64 * 8.0 / 5e6)
        .collect();
    assert!(rates[0] < 0.51 && rates[0] > 0.4, "{rates:?}");
    assert!(rates[0] + rates[1] < 4.1 && rates[1] > 2.5, "{rates:?}");
    assert!(rates[2] > 3.0 && rates[3] > 3.0, "{rates:?}");
}

#[test]
fn weights_of_classes_divide_a_limited_path_while_both_want_it() {
    for (connections, classes, share) in [(4, [0, 0, 1, 1], 0.75), (4, [0, 1, 1, 1], 0.75)] {
        let mut upload = Upload::new(connections);
        upload.client(|stack, now| {
            for iface in [0, 1] {
                let limit = RateLimit::new(8_000_000, MTU);
                stack.limit_path(now, IfaceId(iface), Some(limit));
            }
            for (class, weight) in [(0, 3), (1, 1)] {
                stack.weigh(now, ClassId(class), NonZeroU16::new(weight));
            }
        });
        upload.classify(|i| classes[i]);
        let _ = upload.bits_in(Duration::from_secs(3));
        let before = upload.acked();
        let bits = upload.bits_in(Duration::from_secs(10));
        assert_holds(bits, 16_000_000, 10.0);
        let after = upload.acked();
        let of = |class| {
            let all = after.iter().zip(&before).zip(classes);
            let of_it = all.filter(|(_, of)| *of == class);
            of_it
                .map(|((after, before), _)| after - before)
                .sum::<u64>() as f64
        };
        let found = of(0) / (of(0) + of(1));
        assert!((found - share).abs() < 0.05, "{classes:?}: {found}");
    }
}

#[test]
fn what_a_limit_holds_back_is_told() {
    let mut upload = Upload::new(1);
    upload.limit_class(3, Some(5_000_000));
    upload.classify(|_| 3);
    let _ = upload.bits_in(SECOND);
    let (before, _) = (upload.class(3), upload.bits_in(SECOND));
    let after = upload.class(3);
    assert_eq!(after.limit, RateLimit::new(5_000_000, MTU));
    let held = after.held.time - before.held.time;
    // It sends as soon as there are tokens, and waits for the next.
    assert!(held > Duration::from_millis(900), "{held:?}");
    assert!(after.held.times > before.held.times);
    assert!(after.waiting <= 1 && after.tokens <= after.limit.burst as i64);
}

#[test]
fn what_went_by_another_path_for_a_limit_is_told() {
    let mut upload = Upload::new(1);
    let elsewhere = |upload: &mut Upload, iface| {
        let state = upload.client(|stack, _| stack.path_limit(IfaceId(iface)));
        state.expect("a limit is set").held.elsewhere
    };
    upload.client(|stack, now| {
        let limit = |rate| Some(RateLimit::new(rate, MTU));
        stack.limit_path(now, IfaceId(0), limit(5_000_000));
        stack.limit_path(now, IfaceId(1), limit(u64::MAX));
    });
    let _ = upload.bits_in(SECOND);
    let before = elsewhere(&mut upload, 0);
    let bits = upload.bits_in(Duration::from_secs(2));
    let bytes = (elsewhere(&mut upload, 0) - before) as f64;
    let other = (bits - 10e6) / 8.0;
    assert!(other > 15e6, "{other}: the other path carries the rest");
    // At times data waits for neither.
    assert!(
        bytes > other * 0.9 && bytes < other * 1.02,
        "{bytes} of {other}"
    );
    assert_eq!(elsewhere(&mut upload, 1), 0, "nothing waits for the other");
}

#[test]
fn tiny_limits_neither_panic_nor_let_more_through() {
    for rate in [0, 1, 8_000] {
        let mut upload = Upload::new(1);
        upload.limit_class(1, Some(rate));
        upload.classify(|_| 1);
        let bits = upload.bits_in(Duration::from_secs(20));
        let burst = 3.0 * f64::from(MTU) * 8.0;
        // The handshake and acknowledgements do not wait.
        assert!(bits <= rate as f64 * 20.0 + burst + 8e3, "{rate}: {bits}");
        upload.limit_class(1, Some(u64::MAX));
        let bits = upload.bits_in(Duration::from_secs(4));
        assert!(bits > 100e6, "{rate}: {bits} afterwards");
    }
}
