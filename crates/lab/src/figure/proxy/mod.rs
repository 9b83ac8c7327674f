//! Figures of "Multipath TCP Proxy: Unshackling Network Nodes from Today's End-to-End Connection Principle", WWIC 2016.
//!
//! A client with Ethernet and Wi-Fi downloads from a server that speaks only TCP, through a proxy. What is drawn is what each path
//! brings to the client over time, in IP bytes. Ours is `manypath proxy` between `manypath forward` and the server, the kernel's is
//! squid on its Multipath TCP, of which tc limits the Ethernet as in the paper; in the simulator our stack is client and proxy, and
//! the server is where the proxy is. Plain TCP goes past the proxy. The paper does not give rates and round trips: ours are such
//! that twice the sum of the rates times the longest round trip is the 0.48 MB that it does give.

mod conversion;
mod judge;
mod packets;
mod simulated;

use super::{Across, Arm, Axis, Does, Figure, Knob, Line, Load, Paper, Run, Sample, Unit, sim};
use crate::parallel::PathSpec;

/// The figures, in the paper's order.
pub(super) const FIGURES: &[Figure] = &[
    TCP,
    MULTIPATH,
    NARROW,
    WIDE,
    SMALL_MTU,
    CAPPED,
    CAPPED_AGAIN,
    CAPPED_LONG,
    conversion::FIGURE,
];

const ETHERNET: &str = "Ethernet";
const WIFI: &str = "Wi-Fi";
const BOTH: &str = "both paths";
const TCP_ETHERNET: &str = "TCP over Ethernet";
const TCP_WIFI: &str = "TCP over Wi-Fi";
const WITH_ROOM: &str = "both paths, 0.72 MB";
const WITH_LARGE: &str = "both paths, MTU 1500";
const UNCAPPED: &str = "both paths, no limit";

/// The values of which the figures change one.
const BUFFER: &str = "720k";
const MTU: &str = "1500";
const CAP_MBIT: f64 = 5.0;

const ALL: &[Arm] = &[Arm::Sim, Arm::Real, Arm::Kernel];
/// Plain TCP on real packets is the kernel's.
const TCPS: &[Arm] = &[Arm::Sim, Arm::Kernel];

/// A download through the proxy over both paths.
const THROUGH: Line = line(BOTH, ALL, Does::Own("first"));
/// The second of two, when all that the first one set up is there.
const AGAIN: Line = line(BOTH, ALL, Does::Own("again"));
const ON_ETHERNET: Line = line(TCP_ETHERNET, TCPS, Does::Tcp(0));
const ON_WIFI: Line = line(TCP_WIFI, TCPS, Does::Tcp(1));

/// The same without what the figure changes.
const fn usual(name: &'static str) -> Line {
    line(name, ALL, Does::Own("usual"))
}

const fn line(name: &'static str, arms: &'static [Arm], does: Does) -> Line {
    Line { name, arms, does }
}

/// The parameters of a figure.
const fn knobs(
    buffer: &'static str,
    mtu: &'static str,
    cap: &'static str,
    size: &'static str,
    quick: &'static str,
) -> [Knob; 13] {
    [
        Knob::new("ethernet.rate", Unit::Rate, "30mbit", "rate of Ethernet"),
        Knob::new("ethernet.rtt", Unit::Time, "10ms", "round trip of Ethernet").or_none(),
        Knob::new(
            "ethernet.buffer",
            Unit::Time,
            "50ms",
            "network buffer of Ethernet",
        ),
        Knob::new("ethernet.loss", Unit::Percent, "0", "loss on Ethernet"),
        Knob::new("wifi.rate", Unit::Rate, "10mbit", "rate of Wi-Fi"),
        Knob::new("wifi.rtt", Unit::Time, "48ms", "round trip of Wi-Fi").or_none(),
        Knob::new(
            "wifi.buffer",
            Unit::Time,
            "100ms",
            "network buffer of Wi-Fi",
        ),
        Knob::new("wifi.loss", Unit::Percent, "0", "loss on Wi-Fi"),
        Knob::new(
            "buffer",
            Unit::Bytes,
            buffer,
            "receive buffer of the client",
        ),
        Knob::new("mtu", Unit::Count, mtu, "MTU of both paths, in bytes"),
        Knob::new(
            "cap",
            Unit::Rate,
            cap,
            "limit of what the proxy sends by Ethernet",
        )
        .or_none(),
        Knob::new("size", Unit::Bytes, size, "size of the file").quick(quick),
        Knob::new(
            "step",
            Unit::Time,
            "500ms",
            "time of which a point is the mean",
        )
        .quick("250ms")
        .measures(),
    ]
}

const PLAIN: [Knob; 13] = knobs(BUFFER, MTU, "0", "50m", "12m");
const NARROW_BUFFER: [Knob; 13] = knobs("180k", MTU, "0", "50m", "12m");
const SMALL: [Knob; 13] = knobs(BUFFER, "1000", "0", "50m", "12m");
const CAP: [Knob; 13] = knobs(BUFFER, MTU, "5mbit", "5m", "5m");
const LONG_CAP: [Knob; 13] = knobs(BUFFER, MTU, "5mbit", "200m", "15m");

const fn figure(
    id: &'static str,
    source: &'static str,
    title: &'static str,
    knobs: &'static [Knob],
    says: &'static str,
) -> Figure {
    Figure {
        id,
        source,
        title,
        paper: Paper { says, lines: &[] },
        knobs,
        x: Across::Measured(Axis::linear("time (s)")),
        y: Axis::linear("arriving at the client (Mbit/s)"),
        lines: &[THROUGH, ON_ETHERNET],
        load: Load::Light,
        run: rates,
        verdict: judge::no_less_than_tcp,
    }
}

/// Figure 2.
const TCP: Figure = Figure {
    lines: &[ON_ETHERNET, ON_WIFI],
    verdict: judge::fills,
    ..figure(
        "proxy-2",
        "Multipath TCP Proxy, figure 2",
        "Plain TCP from the server, past the proxy, over each path",
        &PLAIN,
        "Without the proxy the client falls back to one connection of plain TCP, over the wired or over the wireless path.",
    )
};

/// Figure 3.
const MULTIPATH: Figure = Figure {
    verdict: judge::shares,
    ..figure(
        "proxy-3",
        "Multipath TCP Proxy, figure 3",
        "Multipath TCP to the proxy: what each path brings",
        &PLAIN,
        "Most of the packets come over Ethernet; Wi-Fi remains almost fully underutilized. The whole is no less than plain TCP.",
    )
};

/// Figure 4(a).
const NARROW: Figure = Figure {
    lines: &[THROUGH, usual(WITH_ROOM), ON_ETHERNET],
    verdict: judge::narrow,
    ..figure(
        "proxy-4a",
        "Multipath TCP Proxy, figure 4(a)",
        "A receive buffer of 0.18 MB: what each path brings",
        &NARROW_BUFFER,
        "A buffer below the 0.48 MB that are required leads to retransmissions and to less service.",
    )
};

/// Figure 4(b).
const WIDE: Figure = Figure {
    lines: &[THROUGH, ON_ETHERNET, ON_WIFI],
    verdict: judge::wide,
    ..figure(
        "proxy-4b",
        "Multipath TCP Proxy, figure 4(b)",
        "A receive buffer of 0.72 MB: what each path brings",
        &PLAIN,
        "Ethernet is stable, and Wi-Fi has a satisfactory rate as well.",
    )
};

/// Figure 5.
const SMALL_MTU: Figure = Figure {
    lines: &[THROUGH, usual(WITH_LARGE), ON_ETHERNET],
    verdict: judge::small_mtu,
    ..figure(
        "proxy-5",
        "Multipath TCP Proxy, figure 5",
        "An MTU of 1000 bytes: what each path brings",
        &SMALL,
        "More packets are to be handled and put in order: packets are dropped, and the whole becomes unstable, more so than with plain \
         TCP.",
    )
};

/// Figure 6(a).
const CAPPED: Figure = Figure {
    lines: &[THROUGH, ON_WIFI],
    verdict: judge::capped_at_once,
    ..figure(
        "proxy-6a",
        "Multipath TCP Proxy, figure 6(a)",
        "Ethernet limited at the proxy: the first download of 5 MB",
        &CAP,
        "The limit is put up when the connection has two subflows, and comes late for a small file. (Ours is to hold from the first \
         byte on, and the whole to be at least 0.95 of the limit and Wi-Fi together.)",
    )
};

/// Figure 6(b).
const CAPPED_AGAIN: Figure = Figure {
    lines: &[AGAIN, ON_WIFI],
    verdict: judge::capped,
    ..figure(
        "proxy-6b",
        "Multipath TCP Proxy, figure 6(b)",
        "Ethernet limited at the proxy: the same download again",
        &CAP,
        "The limit is there already, and the transfer obeys it from the beginning.",
    )
};

/// Figure 7.
const CAPPED_LONG: Figure = Figure {
    lines: &[THROUGH, usual(UNCAPPED), ON_WIFI],
    verdict: judge::capped_long,
    ..figure(
        "proxy-7",
        "Multipath TCP Proxy, figure 7",
        "Ethernet limited at the proxy: a download of 200 MB",
        &LONG_CAP,
        "Data moves to Wi-Fi, which carries more than without the limit. The whole is slightly less than without, and still more than \
         plain TCP.",
    )
};

/// A download to make.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Job {
    /// Ethernet and Wi-Fi.
    paths: [PathSpec; 2],
    /// Plain TCP past the proxy over this one alone.
    plain_over: Option<usize>,
    /// The client's receive buffer.
    buffer: u64,
    mtu: u64,
    /// Bits a second that the proxy may send by Ethernet.
    cap: Option<u64>,
    size: u64,
    /// The second of two counts.
    again: bool,
    /// Seconds of which a point is the mean.
    step: f64,
}

impl Job {
    fn of(run: &Run<'_>) -> Self {
        let knobs = run.knobs;
        let usual = run.line.does == Does::Own("usual");
        let cap = knobs.whole("cap");
        let job = Self {
            paths: ["ethernet", "wifi"].map(|name| sim::path(knobs, name)),
            plain_over: match run.line.does {
                Does::Tcp(path) => Some(path),
                Does::Multipath(_) | Does::Own(_) => None,
            },
            buffer: knobs.whole("buffer"),
            mtu: knobs.whole("mtu"),
            cap: (cap > 0).then_some(cap),
            size: knobs.whole("size"),
            again: run.line.does == Does::Own("again"),
            step: knobs.get("step"),
        };
        match usual {
            true => Self {
                buffer: 720_000,
                mtu: 1500,
                cap: None,
                ..job
            },
            false => job,
        }
    }

    /// A download that is slower than this has failed: a quarter of what one path carries, or the limit.
    fn limit(&self) -> f64 {
        let rate = match self.plain_over {
            Some(path) => self.paths[path].rate,
            None => self.paths[0].rate.min(self.paths[1].rate),
        };
        10.0 + 4.0 * self.size as f64 * 8.0 / rate as f64
    }
}

/// What each path brought to the client within a time that ended then, in bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rates {
    at: f64,
    paths: [f64; 2],
}

fn rates(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let job = Job::of(run);
    let all = match run.arm {
        Arm::Sim | Arm::Process => simulated::download(&job)?,
        Arm::Real | Arm::Kernel => packets::download(run, &job)?,
    };
    Ok(samples(run.line, &all))
}

/// The whole as the line's own points; of what the figure is about each path as well.
fn samples(line: Line, all: &[Rates]) -> Vec<Sample> {
    let point = |name: &str, at, rate: f64| Sample {
        line: name.to_owned(),
        at: [at, rate / 1e6],
    };
    let each = line.name == BOTH;
    all.iter()
        .flat_map(|&Rates { at, paths }| {
            let own = point(line.name, at, paths[0] + paths[1]);
            let parts = [(ETHERNET, paths[0]), (WIFI, paths[1])];
            let parts = parts.into_iter().filter(|_| each);
            std::iter::once(own).chain(parts.map(move |(name, rate)| point(name, at, rate)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::super::Knobs;
    use super::*;

    fn run_of<'a>(figure: &Figure, line: Line, knobs: &'a Knobs, stop: &'a AtomicBool) -> Run<'a> {
        Run {
            arm: Arm::Sim,
            line,
            knobs,
            x: 0.0,
            quick: true,
            one_network: true,
            program: Path::new(figure.id),
            stop,
        }
    }

    #[test]
    fn the_usual_line_changes_back_what_the_figure_changes() {
        let stop = AtomicBool::new(false);
        let downloads = FIGURES.iter().filter(|figure| figure.id != "proxy-table-1");
        for figure in downloads {
            let knobs = Knobs::of(figure.knobs);
            for line in figure.lines {
                let job = Job::of(&run_of(figure, *line, &knobs, &stop));
                let (id, name) = (figure.id, line.name);
                let usual = job.buffer == 720_000 && job.mtu == 1500 && job.cap.is_none();
                let changed = ["proxy-4a", "proxy-5", "proxy-6a", "proxy-6b", "proxy-7"];
                let is_usual = !changed.contains(&id) || line.does == Does::Own("usual");
                assert_eq!(usual, is_usual, "{id}: {name}: {job:?}");
                assert_eq!(job.plain_over.is_some(), name.starts_with("TCP"), "{id}");
            }
        }
    }

    #[test]
    fn twice_the_rates_times_the_longest_round_trip_is_what_the_paper_requires() {
        let knobs = Knobs::of(&PLAIN);
        let rates = knobs.get("ethernet.rate") + knobs.get("wifi.rate");
        let required = 2.0 * rates / 8.0 * knobs.get("wifi.rtt");
        assert_eq!(required, 480_000.0);
    }

    #[test]
    fn each_path_is_drawn_of_what_the_figure_is_about() {
        let all = [Rates {
            at: 0.5,
            paths: [3e6, 1e6],
        }];
        let of = |line| -> Vec<(String, f64)> {
            let samples = samples(line, &all).into_iter();
            samples.map(|s| (s.line, s.at[1])).collect()
        };
        let point = |name: &str, rate| (name.to_owned(), rate);
        let three = [point(BOTH, 4.0), point(ETHERNET, 3.0), point(WIFI, 1.0)];
        assert_eq!(of(THROUGH), three);
        assert_eq!(of(usual(UNCAPPED)), [point(UNCAPPED, 4.0)]);
    }
}
