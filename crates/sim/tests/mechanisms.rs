//! What the mechanisms of NSDI 2012 section 4.2 do to a transfer, each switched on beside nothing else: WiFi (8 Mbit/s,
//! 20 ms, buffer of 80 ms) and 3G (150 ms, buffer of two seconds), as in the paper's figures 4 and 6a.

use manypath_sim::networks::Multihomed;
use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_stack::api::ConnInfo;
use manypath_tcp::time::{Duration, Instant};

/// What a minute of sending came to.
struct Seen {
    /// Megabits a second at the reading application.
    goodput: f64,
    /// Megabits a second on both paths, repetitions included.
    throughput: f64,
    /// The sender, at the end.
    sender: ConnInfo,
    /// Mean of what the sender keeps because it is under way, in bytes.
    flight: u64,
    /// Most bytes that waited before the 3G path.
    queue: u64,
    /// The sender's counters, and the receiver's.
    counters: [Vec<(&'static str, u64)>; 2],
}

impl Seen {
    fn of(&self, end: usize, name: &str) -> u64 {
        let found = self.counters[end].iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, value)| *value)
    }

    fn count(&self, name: &str) -> u64 {
        self.of(0, name)
    }

    fn received(&self, name: &str) -> u64 {
        self.of(1, name)
    }

    /// The longest smoothed round trip of the sender's subflows.
    fn slowest(&self) -> Duration {
        let round_trips = self.sender.subflows.iter().filter_map(|sf| sf.tcp.srtt);
        round_trips.max().expect("a subflow was measured")
    }
}

/// Sends for a minute over WiFi and a 3G path of so many kilobits a second; `options` are those of both ends.
fn wifi_and_3g(kbit: u64, options: &str) -> Seen {
    switching(kbit, options, "")
}

/// As [`wifi_and_3g`], with other options from the twentieth second on.
fn switching(kbit: u64, options: &str, later: &str) -> Seen {
    let cellular = format!("rate = \"{kbit}kbit/s\"\ndelay = \"75ms\"\nbuffer = \"2s\"");
    let network = Multihomed {
        head: "title = \"mechanisms\"",
        paths: &[
            (
                "wifi",
                "rate = \"8Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"80ms\"",
            ),
            ("3g", &cellular),
        ],
        access: "rate = \"10Gbit/s\"",
        rest: &format!(
            "[[app]]\nname = \"bulk\"\nclient = \"client\"\nserver = \"server\"\nupload = \"10GB\"\n\
             options = {{ {options} }}\n\
             [[event]]\ndo = \"set-options\"\nat = \"20s\"\napp = \"bulk\"\noptions = {{ {later} }}\n"
        ),
    };
    let scenario = Scenario::parse(&network.text()).expect("the test writes well-formed scenarios");
    let mut sim = Simulation::new(scenario, RunOptions::default()).expect("and sensible ones");
    let (mut flight, end) = (0, Instant::from_secs(60));
    let info = |sim: &Simulation| {
        let host = &sim.hosts()[0];
        host.stack.info(host.endpoints()[0].conn)
    };
    let mut now = Instant::ZERO;
    while now < end {
        now += Duration::from_millis(100);
        sim.run_until(now);
        let subflows = info(&sim).map_or(Vec::new(), |info| info.subflows);
        flight += subflows
            .iter()
            .map(|sf| u64::from(sf.tcp.congestion.inflight))
            .sum::<u64>()
            / 600;
    }
    let host = &sim.hosts()[0];
    let counters = [0, 1].map(|n| sim.hosts()[n].stack.counters().iter().collect());
    let sent: u64 = host
        .interfaces()
        .iter()
        .map(|i| i.counters.sent_payload)
        .sum();
    let sender = info(&sim).expect("the transfer outlasts the test");
    let read = sim.hosts()[1].endpoints()[0].record.read;
    let queue = sim.report().links[1].out.deepest;
    Seen {
        goodput: read as f64 * 8.0 / 60e6,
        throughput: sent as f64 * 8.0 / 60e6,
        sender,
        flight,
        queue,
        counters,
    }
}

fn with(kbit: u64, buffer: &str, mechanisms: &str) -> Seen {
    wifi_and_3g(
        kbit,
        &format!(
            "mechanisms = \"{mechanisms}\", send-buffer = \"{buffer}\", recv-buffer = \"{buffer}\""
        ),
    )
}

#[test]
fn repeating_the_trailing_edge_keeps_the_fast_path_busy() {
    // NSDI 2012 figure 6a: around 200 kB, a multiple of what regular Multipath TCP gets.
    let (regular, m1) = (
        with(50, "200KB", "none"),
        with(50, "200KB", "opportunistic"),
    );
    assert!(regular.goodput < 1.5, "{}", regular.goodput);
    assert!(
        m1.goodput > 4.0 * regular.goodput,
        "{} and {}",
        regular.goodput,
        m1.goodput
    );
    assert_eq!(regular.count("opportunistic_bytes"), 0);
    assert!(m1.count("opportunistic_bytes") > 0);
    // A path that falls silent is another reason to send data elsewhere.
    assert!(m1.count("opportunistic_bytes") <= m1.sender.bytes_reinjected);
}

#[test]
fn penalising_saves_what_repeating_wastes() {
    // NSDI 2012 figures 4b and 4c: the gap between goodput and throughput closes.
    let m1 = with(2_000, "200KB", "opportunistic");
    let both = with(2_000, "200KB", "opportunistic,penalise");
    assert_eq!(m1.count("subflow_penalised"), 0);
    assert!(both.count("subflow_penalised") > 0);
    let waste = |seen: &Seen| seen.throughput - seen.goodput;
    assert!(
        waste(&both) < waste(&m1),
        "{} and {}",
        waste(&m1),
        waste(&both)
    );
    assert!(
        both.goodput > 0.97 * m1.goodput,
        "{} and {}",
        m1.goodput,
        both.goodput
    );
}

#[test]
fn capping_halves_the_memory_where_the_network_buffers_much() {
    // NSDI 2012 figure 5: with a large buffer configured, half the memory at the sender, and the same goodput.
    let (free, capped) = (with(2_000, "2MB", "none"), with(2_000, "2MB", "cap"));
    assert!(
        2 * capped.flight < free.flight,
        "{} and {}",
        free.flight,
        capped.flight
    );
    assert!(
        capped.goodput > 0.97 * free.goodput,
        "{} and {}",
        free.goodput,
        capped.goodput
    );
    // Two seconds of 2 Mbit/s are 500 kB.
    assert!(
        free.queue > 400_000 && 2 * capped.queue < free.queue,
        "{} and {}",
        free.queue,
        capped.queue
    );
}

/// Sends so many seconds over a path of 2 Mbit/s and 150 ms, with a buffer of two seconds. The goodput in megabits a second, and
/// the most bytes that were in flight after the first twenty seconds.
fn over_3g_alone(congestion: &str, mechanisms: &str, seconds: u64) -> (f64, u32) {
    let text = format!(
        "title = \"one path\"\n\
         [[host]]\nname = \"client\"\ninterface = [{{ name = \"3g\", addresses = [\"10.2.0.2\"] }}]\n\
         [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.9.0.1\"] }}]\n\
         [[link]]\nname = \"3g\"\nends = [\"client.3g\", \"server.eth0\"]\nrate = \"2Mbit/s\"\ndelay = \"75ms\"\n\
         buffer = \"2s\"\n\
         [[app]]\nname = \"bulk\"\nclient = \"client\"\nserver = \"server\"\nupload = \"10GB\"\n\
         options = {{ congestion = \"{congestion}\", mechanisms = \"{mechanisms}\", send-buffer = \"2MB\", \
         recv-buffer = \"2MB\" }}\n"
    );
    let scenario = Scenario::parse(&text).expect("the test writes well-formed scenarios");
    let mut sim = Simulation::new(scenario, RunOptions::default()).expect("and sensible ones");
    let (mut now, mut most) = (Instant::ZERO, 0);
    while now < Instant::from_secs(seconds) {
        now += Duration::from_millis(50);
        sim.run_until(now);
        let host = &sim.hosts()[0];
        let info = host.stack.info(host.endpoints()[0].conn);
        let subflows = info.map_or(Vec::new(), |info| info.subflows);
        if now > Instant::from_secs(20) {
            most = subflows
                .iter()
                .map(|sf| sf.tcp.congestion.inflight)
                .fold(most, u32::max);
        }
    }
    let read = sim.hosts()[1].endpoints()[0].record.read;
    (read as f64 * 8.0 / 1e6 / seconds as f64, most)
}

#[test]
fn a_capped_path_stays_busy_and_its_queue_short_with_every_algorithm() {
    // The two others keep no queue that could be capped.
    for congestion in ["reno", "cubic", "lia", "olia", "balia"] {
        let (free, _) = over_3g_alone(congestion, "none", 60);
        let (capped, most) = over_3g_alone(congestion, "cap", 60);
        assert!(capped >= 0.97 * free, "{congestion}: {capped} and {free}");
        // Twice the 37.5 kB that the path holds, and what the smoothed round trip is late by.
        assert!(most <= 86_250, "{congestion}: {most} bytes in flight");
    }
}

#[test]
fn a_capped_queue_is_not_taken_for_the_path() {
    // The shortest round trip is remembered for five minutes at most, and what fills the queue does not show it.
    for congestion in ["reno", "cubic"] {
        let (capped, most) = over_3g_alone(congestion, "cap", 700);
        assert!(capped >= 0.97 * 1.89, "{congestion}: {capped}");
        // A window that grows comes from below: the smoothed round trip is eight round trips late, each of a segment.
        assert!(most <= 93_750, "{congestion}: {most} bytes in flight");
    }
}

#[test]
fn the_guard_keeps_the_window_from_filling() {
    let (m12, guarded) = (
        with(50, "200KB", "opportunistic,penalise"),
        with(50, "200KB", "opportunistic,penalise,guard"),
    );
    let repeated = |seen: &Seen| seen.count("opportunistic_bytes");
    assert!(
        repeated(&guarded) < repeated(&m12),
        "{} and {}",
        repeated(&m12),
        repeated(&guarded)
    );
    assert!(
        guarded.goodput > 0.95 * 7.7,
        "TCP over WiFi gets 7.7: {}",
        guarded.goodput
    );
}

#[test]
fn with_the_default_settings_no_buffer_is_worse_than_wifi_alone() {
    // NSDI 2012 figure 4c, and the mission's network: TCP over WiFi gets 7.7 Mbit/s.
    for (buffer, least) in [
        ("50KB", 7.5),
        ("100KB", 7.5),
        ("200KB", 7.5),
        ("400KB", 8.5),
        ("1MB", 9.0),
    ] {
        let seen = with(2_000, buffer, "default");
        assert!(seen.goodput > least, "{buffer}: {}", seen.goodput);
    }
}

#[test]
fn buffers_grow_to_what_the_paths_call_for() {
    // NSDI 2012 section 4.2, mechanism 3: 10 Mbit/s over the 3G path's round trip, twice that, and as much for growth. The
    // window never shrinks, so the second that its queue had before it was capped still shows.
    let (tuned, fixed) = (
        with(2_000, "32MB", "autotune,cap"),
        with(2_000, "32MB", "cap"),
    );
    let window = |seen: &Seen| seen.sender.peer_window + u64::from(seen.sender.send_queue);
    assert!(window(&fixed) > 32_000_000, "{}", window(&fixed));
    assert!(window(&tuned) < 6_000_000, "{}", window(&tuned));
    assert!(window(&tuned) > 3_000_000, "{}", window(&tuned));
    assert_eq!(fixed.received("recv_buffer_grown"), 0);
    assert!(tuned.received("recv_buffer_grown") > 0);
    assert!(
        tuned.goodput > 0.98 * fixed.goodput,
        "{} and {}",
        fixed.goodput,
        tuned.goodput
    );
    // The configured buffer is the largest.
    let small = with(2_000, "300KB", "autotune");
    assert!(window(&small) <= 2 * 300_000, "{}", window(&small));
}

#[test]
fn each_of_them_is_switched_on_and_off_while_data_flows() {
    const BUFFERS: &str = "send-buffer = \"200KB\", recv-buffer = \"200KB\"";
    let run = |first: &str, later: &str| {
        let first = format!("mechanisms = \"{first}\", {BUFFERS}");
        switching(2_000, &first, &format!("mechanisms = \"{later}\""))
    };
    for (mechanism, counter) in [
        ("opportunistic", "opportunistic_bytes"),
        ("penalise", "subflow_penalised"),
    ] {
        let (never, always) = (run("none", "none"), run(mechanism, mechanism));
        let (on, off) = (run("none", mechanism), run(mechanism, "none"));
        let count = |seen: &Seen| seen.count(counter);
        assert_eq!(count(&never), 0, "{mechanism}");
        assert!(0 < count(&on), "{mechanism}");
        assert!(0 < count(&off), "{mechanism}");
        assert!(
            count(&off) < count(&always),
            "{mechanism}: {} and {}",
            count(&off),
            count(&always)
        );
    }
    // The guard: less is repeated where the window does not fill. How much that is depends on when it is switched, up and down.
    let (without, with) = ("opportunistic,penalise", "opportunistic,penalise,guard");
    let repeated = |first, later| run(first, later).count("opportunistic_bytes");
    let (never, always) = (repeated(without, without), repeated(with, with));
    for part in [repeated(without, with), repeated(with, without)] {
        assert!(part < never && part != always, "{always} {part} {never}");
    }
    assert!(always < never, "{always} {never}");
    // Autotuning: without it the window is the configured one.
    let window = |first: &str, later: &str| {
        let first =
            format!("mechanisms = \"{first}\", send-buffer = \"32MB\", recv-buffer = \"32MB\"");
        let later = format!("mechanisms = \"{later}\"");
        switching(2_000, &first, &later).sender.peer_window
    };
    let (tuned, not) = (
        window("autotune,cap", "autotune,cap"),
        window("autotune,cap", "cap"),
    );
    assert!(tuned < not / 2, "{tuned} and {not}");
    // The cap: at the end the round trip is short although the queue was long, or the other way round.
    let large = |first: &str, later: &str| {
        let seen = switching(
            2_000,
            &format!("mechanisms = \"{first}\""),
            &format!("mechanisms = \"{later}\""),
        );
        seen.slowest()
    };
    let (capped, not) = (large("none", "cap"), large("cap", "none"));
    assert!(capped < Duration::from_millis(350), "{capped}");
    assert!(not > Duration::from_millis(700), "{not}");
}

#[test]
fn scheduler_and_controller_are_changed_while_data_flows() {
    let run = |later: &str| {
        switching(
            2_000,
            "mechanisms = \"none\", send-buffer = \"300KB\"",
            later,
        )
    };
    let (same, blest) = (run(""), run("scheduler = \"blest\""));
    assert_eq!(same.count("scheduler_waited"), 0);
    assert!(blest.count("scheduler_waited") > 0);
    let vegas = run("congestion = \"wvegas\"");
    // CUBIC's queue goes up and down, and this is one moment of it.
    assert!(
        vegas.slowest().times(3) < same.slowest().times(2),
        "{} and {}",
        vegas.slowest(),
        same.slowest()
    );
}
