//! One transfer in the simulator, for the figures.

use manypath_sim::Simulation;
use manypath_tcp::time::Duration;

use super::{Does, Knobs, Run};
use crate::parallel::{PathSpec, Talk};

/// Sockets at both ends, whoever talks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ends<'a> {
    /// Bytes of the send and of the receive buffer; nothing for what the stack has by itself.
    pub(super) buffer: Option<u64>,
    /// More options, by the names that scenarios and the command share.
    pub(super) options: &'a [(&'a str, &'a str)],
    /// What is sent, in the words of a scenario; as much as the time allows if empty.
    pub(super) app: &'a str,
}

/// A path whose parameters are named `NAME.rate`, `NAME.rtt`, `NAME.buffer` (a time that it lasts when full) and
/// `NAME.loss`.
pub(super) fn path(knobs: &Knobs, name: &str) -> PathSpec {
    let of = |what: &str| knobs.get(&format!("{name}.{what}"));
    let rate = of("rate");
    PathSpec {
        rate: rate as u64,
        rtt_us: (of("rtt") * 1e6) as u64,
        // Less than a few packets no device has.
        buffer: ((rate / 8.0 * of("buffer")) as u64).max(6_000),
        loss_ppm: (of("loss") * 1e4) as u32,
    }
}

/// The transfer of a run before its first event.
pub(super) fn simulation(
    run: &Run<'_>,
    paths: &[PathSpec],
    ends: Ends<'_>,
    seed: u64,
) -> Result<Simulation, String> {
    let own: &[(&str, &str)] = match run.line.does {
        Does::Multipath(options) => options,
        Does::Tcp(_) => &[("mechanisms", "none")],
        Does::Own(_) => &[],
    };
    let mut words: Vec<String> = own
        .iter()
        .chain(ends.options)
        .map(|(name, value)| format!("{name} = \"{value}\""))
        .collect();
    if let Some(bytes) = ends.buffer {
        words.push(format!(
            "send-buffer = \"{bytes}B\", recv-buffer = \"{bytes}B\""
        ));
    }
    let talk = Talk {
        paths,
        plain_over: match run.line.does {
            Does::Tcp(path) => Some(path),
            Does::Multipath(_) | Does::Own(_) => None,
        },
        options: &words.join(", "),
        app: if ends.app.is_empty() {
            "upload = \"100GB\""
        } else {
            ends.app
        },
        seed,
    };
    talk.simulation().map_err(|error| error.to_string())
}

/// Seconds as the simulator counts them.
pub(super) fn span(seconds: f64) -> Duration {
    Duration::from_micros((seconds * 1e6) as u64)
}

/// Mbit/s of so many bytes in a time.
pub(super) fn megabits(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / time.as_micros().max(1) as f64
}
