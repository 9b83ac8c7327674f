//! Figure 11: short connections, one after the other.

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_tcp::time::Instant;

use super::super::requests::{self, Requests};
use super::super::sim::span;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use super::CONGESTION;
use crate::parallel::PathSpec;

const ONE_LINK: &str = "TCP, one link";
const BONDED: &str = "TCP, two links bonded";
const MULTIPATH: &str = "Multipath TCP, two links";

const fn line(name: &'static str, arms: &'static [Arm], does: Does) -> Line {
    Line { name, arms, does }
}

/// Figure 11.
pub(super) const FIGURE: Figure = Figure {
    id: "nsdi-11",
    source: "NSDI 2012, figure 11",
    title: "100 clients that fetch files one after the other over two links: requests a second against the size",
    paper: Paper {
        says: "From 100 kB on Multipath TCP doubles the requests of TCP over one link; below 30 kB it serves fewer, for its second \
               subflow costs more than it gains. Bonding, which gives each new connection to the next link, does very well \
               where files are small; above 150 kB Multipath TCP is slightly ahead.",
        lines: &[],
    },
    knobs: &[
        Knob::new("size", Unit::Bytes, "100k", "size of a file"),
        // A tenth of the paper's, which the emulator keeps up with.
        Knob::new("rate", Unit::Rate, "100mbit", "rate of each link"),
        Knob::new("rtt", Unit::Time, "1ms", "round trip").or_none(),
        Knob::new("queue", Unit::Bytes, "300k", "buffer before each link"),
        Knob::new("clients", Unit::Count, "100", "clients"),
        CONGESTION,
        Knob::new("warm-up", Unit::Time, "1s", "time before the measurement")
            .or_none()
            .measures(),
        Knob::new("time", Unit::Time, "10s", "length of a measurement")
            .quick("3s")
            .measures(),
    ],
    x: Across::Knob {
        name: "size",
        quick: "30k,100k,300k",
        full: "10k,20k,30k,50k,70k,100k,150k,200k,300k",
        logarithmic: true,
    },
    y: Axis::linear("requests a second"),
    lines: &[
        line(ONE_LINK, &[Arm::Sim, Arm::Kernel], Does::Tcp(0)),
        line(BONDED, &[Arm::Sim], Does::Own("bonded")),
        line(
            MULTIPATH,
            &[Arm::Sim, Arm::Real, Arm::Kernel],
            Does::Multipath(&[]),
        ),
    ],
    load: Load::Heavy,
    run,
    verdict,
};

fn scenario(run: &Run<'_>) -> String {
    let knobs = run.knobs;
    let link = format!(
        "rate = \"{}bit/s\"\ndelay = \"{}us\"\nbuffer = \"{}B\"\n",
        knobs.whole("rate"),
        (knobs.get("rtt") * 5e5) as u64,
        knobs.whole("queue")
    );
    // Bonding has one address behind a router that gives each new flow to the next link; otherwise each link has its own.
    let (interfaces, links, plain) = match run.line.does {
        Does::Multipath(_) => (
            "{ name = \"a\", addresses = [\"10.1.0.2\"] }, { name = \"b\", addresses = [\"10.2.0.2\"] }",
            format!(
                "[[link]]\nname = \"a\"\nends = [\"client.a\", \"right\"]\n{link}\
                 [[link]]\nname = \"b\"\nends = [\"client.b\", \"right\"]\n{link}"
            ),
            "",
        ),
        Does::Tcp(_) => (
            "{ name = \"a\", addresses = [\"10.1.0.2\"] }",
            format!("[[link]]\nname = \"a\"\nends = [\"client.a\", \"right\"]\n{link}"),
            ", plain-tcp = true",
        ),
        Does::Own(_) => (
            "{ name = \"a\", addresses = [\"10.1.0.2\"] }",
            format!(
                "[[router]]\nname = \"left\"\nspread = \"round-robin\"\n\
                 [[link]]\nname = \"near\"\nends = [\"client.a\", \"left\"]\nrate = \"10Gbit/s\"\n\
                 [[link]]\nname = \"a\"\nends = [\"left\", \"right\"]\n{link}\
                 [[link]]\nname = \"b\"\nends = [\"left\", \"right\"]\n{link}"
            ),
            ", plain-tcp = true",
        ),
    };
    format!(
        "title = \"requests\"\n\
         [[host]]\nname = \"client\"\ninterface = [{interfaces}]\n\
         [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.9.0.1\"] }}]\n\
         [[router]]\nname = \"right\"\nspread = \"round-robin\"\n{links}\
         [[link]]\nname = \"access\"\nends = [\"right\", \"server.eth0\"]\nrate = \"10Gbit/s\"\n\
         [[app]]\nname = \"fetch\"\nclient = \"client\"\nserver = \"server\"\nconnections = 1000000\n\
         parallel = {clients}\nspacing = \"200us\"\nrequest = \"100B\"\nresponse = \"{size}B\"\nrounds = 1\n\
         options = {{ congestion = \"{congestion}\"{plain} }}\n",
        clients = knobs.whole("clients").max(1),
        size = knobs.whole("size").max(1),
        congestion = knobs.word("congestion"),
    )
}

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    if run.arm.needs_namespaces() {
        return on_real_packets(run);
    }
    let scenario = Scenario::parse(&scenario(run)).map_err(|error| error.to_string())?;
    let mut simulation =
        Simulation::new(scenario, RunOptions::default()).map_err(|error| error.to_string())?;
    let from = Instant::ZERO + span(run.knobs.get("warm-up"));
    let to = from + span(run.knobs.get("time"));
    simulation.run_until(to);
    let ends = simulation.hosts()[0].endpoints().iter();
    let served = ends.filter(|end| end.record.whole.is_some_and(|at| at > from && at <= to));
    Ok(run.point(served.count() as f64 / run.knobs.get("time").max(1e-9)))
}

/// As many requests as both links carry in the time, at most.
fn on_real_packets(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let knobs = run.knobs;
    let size = knobs.whole("size").max(1);
    let link = PathSpec {
        rate: knobs.whole("rate"),
        rtt_us: (knobs.get("rtt") * 1e6) as u64,
        buffer: knobs.whole("queue"),
        loss_ppm: 0,
    };
    let fit = 2.0 * knobs.get("rate") / 8.0 / size as f64 * knobs.get("time");
    let clients = knobs.whole("clients").max(1);
    let rate = requests::rate(
        run,
        Requests {
            paths: &[link; 2],
            congestion: knobs.word("congestion"),
            size,
            count: (fit as u64).max(clients * 2),
            clients,
        },
    )?;
    Ok(run.point(rate))
}

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in seen.arms() {
        let over = |other: &str, low: f64, high: f64| {
            let ratio = seen.across((arm, MULTIPATH), (super::tcp_of(arm), other))?;
            ratio.within(low, high)
        };
        if let Some(large) = over(ONE_LINK, 100.0, f64::MAX) {
            let statement = "from 100 kB on Multipath TCP doubles the requests of one link";
            all.push(Finding::never_below(arm, statement, &large, 1.8, "kB"));
        }
        if let Some(large) = over(BONDED, 150.0, f64::MAX) {
            let statement = "above 150 kB Multipath TCP serves no less than bonding";
            all.push(Finding::not_below(arm, statement, &large, "kB"));
        }
        if let Some(small) = over(BONDED, 0.0, 30.0) {
            let [x, least] = small.least();
            let seen = format!("{least:.2} times bonding's, at {x} kB");
            let statement = "where files are small bonding is ahead";
            all.push(Finding::new(arm, statement, seen, least < 1.0));
        }
    }
    all.extend(beside_the_kernel(seen));
    all
}

/// Both speak Multipath TCP over the same links.
fn beside_the_kernel(seen: &Seen<'_>) -> Option<Finding> {
    let arm = Arm::Real;
    let ratio = seen.across((arm, MULTIPATH), (Arm::Kernel, MULTIPATH))?;
    let statement = "Multipath TCP serves no fewer requests than the kernel's";
    Some(Finding::not_below(arm, statement, &ratio, "kB"))
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn the_papers_shape_is_found_right_and_others_are_not() {
        let series = |name: &str, values: [f64; 3]| Series {
            arm: Arm::Sim,
            name: name.to_owned(),
            points: [10.0, 100.0, 300.0]
                .into_iter()
                .zip(values)
                .map(|(x, y)| [x, y])
                .collect(),
        };
        let held = |large: f64| {
            let all = [
                series(ONE_LINK, [1000.0, 115.0, 40.0]),
                series(BONDED, [2000.0, 230.0, 78.0]),
                series(MULTIPATH, [900.0, 228.0, large]),
            ];
            let found = verdict(&Seen::of(&all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!(held(80.0), [true, true, true]);
        assert_eq!(held(60.0), [false, false, true]);
    }

    #[test]
    fn real_packets_are_held_against_the_kernels() {
        let held = |ours: f64| {
            let all = [
                Series::of(Arm::Real, MULTIPATH, &[[30.0, 600.0], [100.0, ours]]),
                Series::of(Arm::Kernel, MULTIPATH, &[[30.0, 500.0], [100.0, 201.7]]),
            ];
            let found = verdict(&Seen::of(&all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!((held(200.0), held(191.9)), (vec![true], vec![false]));
    }
}
