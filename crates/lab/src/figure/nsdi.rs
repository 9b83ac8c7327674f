//! Figures 4 to 7 of NSDI 2012: goodput and memory against the configured buffer, and the delay that an application sees.

use manypath_tcp::time::{Duration, Instant};

use super::{Figure, Series};
use crate::parallel::{PathSpec, Talk, read_by_server};

/// Which figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// 4: WiFi and 3G; with these mechanisms.
    Wireless(&'static str),
    /// 5: memory.
    Memory,
    /// 6a: WiFi and a very weak 3G.
    Weak,
    /// 6b: 1 Gbit/s and 100 Mbit/s.
    Unequal,
    /// 6c: three equal links.
    Equal,
}

const GOODPUT: [&str; 2] = ["send and receive buffer (kB)", "Mbit/s"];

/// The figures.
pub(super) const FIGURES: &[Figure] = &[
    Figure {
        id: "nsdi-4a",
        title: "WiFi and 3G, regular Multipath TCP: goodput against the buffer",
        paper: "Regular Multipath TCP falls below TCP over WiFi (about 7.5 Mbit/s) for buffers under 400 kB and needs a megabyte to fill both paths.",
        axes: GOODPUT,
        logarithmic: false,
        kind: Kind::Wireless("none"),
    },
    Figure {
        id: "nsdi-4b",
        title: "WiFi and 3G, opportunistic retransmission: goodput and throughput against the buffer",
        paper: "With mechanism 1 the goodput is almost always that of TCP over WiFi or better; the throughput is higher, because 3G carries data a second time.",
        axes: GOODPUT,
        logarithmic: false,
        kind: Kind::Wireless("opportunistic"),
    },
    Figure {
        id: "nsdi-4c",
        title: "WiFi and 3G, opportunistic retransmission and penalising: goodput and throughput against the buffer",
        paper: "With mechanisms 1 and 2 Multipath TCP always outperforms or at least matches TCP over WiFi.",
        axes: GOODPUT,
        logarithmic: false,
        kind: Kind::Wireless("opportunistic,penalise"),
    },
    Figure {
        id: "nsdi-5",
        title: "WiFi and 3G: memory in flight at the sender against the buffer",
        paper: "Multipath TCP uses up to 500 kB when the buffer permits it; capping the window halves that when the buffer is large.",
        axes: ["send and receive buffer (kB)", "kB in flight"],
        logarithmic: false,
        kind: Kind::Memory,
    },
    Figure {
        id: "nsdi-6a",
        title: "WiFi and a 3G path of 50 kbit/s: goodput against the buffer",
        paper: "Around 200 kB mechanisms 1 and 2 bring ten times the goodput of regular Multipath TCP.",
        axes: GOODPUT,
        logarithmic: false,
        kind: Kind::Weak,
    },
    Figure {
        id: "nsdi-6b",
        title: "Links of 1 Gbit/s and 100 Mbit/s: goodput against the buffer",
        paper: "With mechanisms 1 and 2 both links are used with 250 kB; regular Multipath TCP stays below TCP over the faster link up to 2 MB.",
        axes: GOODPUT,
        logarithmic: true,
        kind: Kind::Unequal,
    },
    Figure {
        id: "nsdi-6c",
        title: "Three equal links of 1 Gbit/s: goodput against the buffer",
        paper: "Regular Multipath TCP and the mechanisms do equally well, whatever the buffer.",
        axes: GOODPUT,
        logarithmic: true,
        kind: Kind::Equal,
    },
];

const WIFI: PathSpec = path(8_000_000, 20_000, 80_000);
const THREE_G: PathSpec = path(2_000_000, 150_000, 500_000);
const WEAK_3G: PathSpec = path(50_000, 150_000, 12_500);

const fn path(rate: u64, rtt_us: u64, buffer: u64) -> PathSpec {
    PathSpec {
        rate,
        rtt_us,
        buffer,
        loss_ppm: 0,
    }
}

/// One run of one arm: a point, or two where the throughput counts as well.
#[derive(Debug, Clone)]
pub(super) struct Task {
    name: &'static str,
    paths: Vec<PathSpec>,
    plain_over: Option<usize>,
    mechanisms: &'static str,
    buffer_kb: u64,
    time: Duration,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Goodput,
    GoodputAndThroughput,
    Flight,
}

/// The runs of a figure.
pub(super) fn tasks(kind: Kind, quick: bool) -> Vec<Task> {
    use What::{Flight, Goodput, GoodputAndThroughput};
    let wireless: &[u64] = match quick {
        true => &[50, 200, 400, 1_000],
        false => &[50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 800, 1_000],
    };
    let wired: &[u64] = match quick {
        true => &[64, 250, 2_000],
        false => &[64, 128, 250, 500, 1_000, 2_000, 4_000],
    };
    let default = ("default", None, "default");
    let regular = ("regular", None, "none");
    let both = ("M1,2", None, "opportunistic,penalise");
    type Arm = (&'static str, Option<usize>, &'static str);
    let (paths, buffers, seconds, what, arms): (Vec<PathSpec>, _, u64, _, Vec<Arm>) = match kind {
        Kind::Wireless(mechanisms) => (
            vec![WIFI, THREE_G],
            wireless,
            60,
            GoodputAndThroughput,
            vec![
                ("TCP over WiFi", Some(0), "none"),
                ("TCP over 3G", Some(1), "none"),
                ("Multipath TCP", None, mechanisms),
                default,
            ],
        ),
        Kind::Memory => (
            vec![WIFI, THREE_G],
            wireless,
            60,
            Flight,
            vec![
                ("TCP over WiFi", Some(0), "none"),
                ("TCP over 3G", Some(1), "none"),
                both,
                ("M1,2,4", None, "opportunistic,penalise,cap"),
            ],
        ),
        Kind::Weak => (
            vec![WIFI, WEAK_3G],
            wireless,
            60,
            Goodput,
            vec![("TCP over WiFi", Some(0), "none"), regular, both, default],
        ),
        Kind::Unequal => (
            vec![
                path(1_000_000_000, 500, 250_000),
                path(100_000_000, 500, 250_000),
            ],
            wired,
            2,
            Goodput,
            vec![
                ("TCP over 1 Gbit/s", Some(0), "none"),
                regular,
                both,
                default,
            ],
        ),
        Kind::Equal => (
            vec![path(1_000_000_000, 500, 250_000); 3],
            wired,
            2,
            Goodput,
            vec![
                ("TCP over one link", Some(0), "none"),
                regular,
                both,
                default,
            ],
        ),
    };
    let time = Duration::from_millis(seconds * if quick { 500 } else { 1_000 });
    let mut all = Vec::new();
    for &(name, plain_over, mechanisms) in &arms {
        for &buffer_kb in buffers {
            all.push(Task {
                name,
                paths: paths.clone(),
                plain_over,
                mechanisms,
                buffer_kb,
                time,
                what,
            });
        }
    }
    all
}

impl Task {
    /// The points, with the names of their lines.
    pub(super) fn run(&self) -> Result<Vec<(String, [f64; 2])>, String> {
        let options = format!(
            "mechanisms = \"{}\", send-buffer = \"{1}KB\", recv-buffer = \"{1}KB\"",
            self.mechanisms, self.buffer_kb
        );
        let talk = Talk {
            paths: &self.paths,
            plain_over: self.plain_over,
            options: &options,
            app: "upload = \"100GB\"",
            seed: 1,
        };
        let mut simulation = talk.simulation().map_err(|error| error.to_string())?;
        let mut flight = 0.0;
        let steps = 100;
        for step in 1..=steps {
            simulation.run_until(Instant::ZERO + self.time.ratio(step, steps));
            let host = &simulation.hosts()[0];
            let conn = host.endpoints().first().map(|end| end.conn);
            let info = conn.and_then(|conn| host.stack.info(conn).ok());
            let bytes = info.map_or(0, |info| {
                info.subflows
                    .iter()
                    .map(|sf| u64::from(sf.tcp.inflight))
                    .sum::<u64>()
            });
            flight += bytes as f64 / steps as f64 / 1e3;
        }
        let x = self.buffer_kb as f64;
        let rate = |bytes: u64| bytes as f64 * 8.0 / self.time.as_micros() as f64;
        let goodput = (self.name.to_owned(), [x, rate(read_by_server(&simulation))]);
        Ok(match self.what {
            What::Goodput => vec![goodput],
            What::Flight => vec![(self.name.to_owned(), [x, flight])],
            What::GoodputAndThroughput if self.plain_over.is_some() => vec![goodput],
            What::GoodputAndThroughput => {
                let sent = simulation.hosts()[0]
                    .interfaces()
                    .iter()
                    .map(|i| i.counters.sent_payload);
                vec![
                    goodput,
                    (format!("{}, throughput", self.name), [x, rate(sent.sum())]),
                ]
            }
        })
    }
}

/// How the lines agree with the paper's.
pub(super) fn agreement(kind: Kind, series: &[Series]) -> String {
    let line = |name: &str| series.iter().find(|line| line.name == name);
    // The least and the largest of one line over another.
    let over = |name: &str, base: &str| {
        let (Some(one), Some(other)) = (line(name), line(base)) else {
            return (f64::NAN, f64::NAN);
        };
        let ratios = one
            .points
            .iter()
            .filter_map(|p| Some(p[1] / other.at(p[0])?.max(1e-9)));
        ratios.fold((f64::MAX, f64::MIN), |(low, high), r| {
            (low.min(r), high.max(r))
        })
    };
    match kind {
        Kind::Wireless(_) => {
            let (low, high) = over("Multipath TCP", "TCP over WiFi");
            let (least, _) = over("default", "TCP over WiFi");
            format!(
                "Multipath TCP gets from {low:.2} to {high:.2} times what TCP gets over WiFi; with the default settings at \
                 least {least:.2} times at every buffer."
            )
        }
        Kind::Memory => {
            let (low, _) = over("M1,2,4", "M1,2");
            format!(
                "Capping brings what is in flight down to {low:.2} of what it was, where that is most."
            )
        }
        Kind::Weak => {
            let ((_, both), (_, ours)) = (over("M1,2", "regular"), over("default", "regular"));
            let (least, _) = over("default", "TCP over WiFi");
            format!(
                "Mechanisms 1 and 2 bring up to {both:.1} times what regular Multipath TCP gets, the default settings up to \
                 {ours:.1} times, and never less than {least:.2} of TCP over WiFi."
            )
        }
        Kind::Unequal | Kind::Equal => {
            let base = if kind == Kind::Equal {
                "TCP over one link"
            } else {
                "TCP over 1 Gbit/s"
            };
            let ((low, high), (least, most)) = (over("regular", base), over("default", base));
            format!(
                "Regular Multipath TCP gets from {low:.2} to {high:.2} times what TCP gets over the fastest link, the default \
                 settings from {least:.2} to {most:.2} times."
            )
        }
    }
}
