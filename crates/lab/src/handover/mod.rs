//! A path dies silently in the middle of a transfer and returns: `manypath lab handover`.
//!
//! Two emulated paths, one bulk transfer over both. The faster path swallows everything for ten seconds; no interface
//! goes down and nobody is told. What counts is the longest time that the reader waited for a byte, and how long the
//! path, once it works again, stood idle. Every pair of stacks runs in the same network, one after the other: ours and
//! the kernel's, as client and as server, sending and receiving; and ours at both ends in the simulator.

pub(crate) mod arm;
pub(crate) mod relay;
mod simulated;
mod table;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::netns::{self, NetNsError};
use crate::testbed::TestPath;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The program that has the `forward` command; this very program if absent.
    pub program: Option<PathBuf>,
    /// With real packets only our client and the kernel's server, both ways.
    pub quick: bool,
    /// Whether every result is told on standard error as it comes.
    pub verbose: bool,
}

/// Why nothing could be shown.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The private network could not be built.
    #[error(transparent)]
    Network(#[from] NetNsError),
    /// Our own program could not be found.
    #[error("cannot find our own program: {0}")]
    Program(io::Error),
    /// The simulator did not take the scenario.
    #[error("the simulation: {0}")]
    Simulation(String),
}

/// Whose stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// Ours.
    Manypath,
    /// The host kernel's.
    Kernel,
}

/// An end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The one that connected and made the subflows.
    Client,
    /// The other.
    Server,
}

/// Who takes part in one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cast {
    /// Whose stack connects.
    pub client: Stack,
    /// Whose stack listens.
    pub server: Stack,
    /// Which end sends.
    pub sender: End,
}

impl Cast {
    /// Every pair of stacks, both ways.
    const ALL: [Self; 8] = {
        const fn cast(client: Stack, server: Stack, sender: End) -> Cast {
            Cast {
                client,
                server,
                sender,
            }
        }
        use Stack::{Kernel, Manypath};
        [
            cast(Manypath, Manypath, End::Client),
            cast(Manypath, Manypath, End::Server),
            cast(Manypath, Kernel, End::Client),
            cast(Kernel, Manypath, End::Server),
            cast(Manypath, Kernel, End::Server),
            cast(Kernel, Manypath, End::Client),
            cast(Kernel, Kernel, End::Client),
            cast(Kernel, Kernel, End::Server),
        ]
    };

    /// The pairs that a shorter look takes.
    const QUICK: [Self; 2] = [Self::ALL[2], Self::ALL[4]];

    /// Whose stack sends and whose receives.
    #[must_use]
    pub const fn ends(self) -> (Stack, Stack) {
        match self.sender {
            End::Client => (self.client, self.server),
            End::Server => (self.server, self.client),
        }
    }
}

/// What one transfer was like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Bits a second before the path failed.
    pub before: f64,
    /// Longest time without a byte for the reader, from the failure to two seconds after its end, in seconds.
    pub stall: f64,
    /// From the path's return until it had carried again what it carries in a tenth of a second, in seconds; absent if
    /// it had not when the watch ended.
    pub failback: Option<f64>,
    /// Bits a second from one to three seconds after the return.
    pub after: f64,
}

/// One transfer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Who took part.
    pub cast: Cast,
    /// Virtual packets in virtual time.
    pub simulated: bool,
    /// What came out.
    pub measured: Option<Measured>,
    /// Or why nothing did.
    pub failure: Option<String>,
}

/// A path of the network.
#[derive(Debug, Clone, Serialize)]
pub struct PathReport {
    /// Its name.
    pub name: String,
    /// Bits a second each way.
    pub rate: u64,
    /// Round trip without queues in seconds.
    pub round_trip: f64,
}

/// Everything.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Our version.
    pub version: String,
    /// The kernel's.
    pub kernel: String,
    /// The paths; the first one fails.
    pub paths: Vec<PathReport>,
    /// For how many seconds.
    pub outage: f64,
    /// Why there are no real packets, where there are none.
    pub forbidden: Option<String>,
    /// The transfers.
    pub rows: Vec<Row>,
}

/// Before the failure.
const WARM_UP: Duration = Duration::from_secs(3);
/// The failure.
const OUTAGE: Duration = Duration::from_secs(10);
/// How long the returned path is watched at most, and at least.
const WATCH: Duration = Duration::from_secs(20);
const LEAST_WATCH: Duration = Duration::from_millis(3_200);
/// The congestion control of every kernel socket and of our stack.
const CONGESTION: &str = "cubic";
/// The path that fails.
const FAILING: usize = 0;

/// A wireless LAN and a mobile network with sensible buffers.
fn paths() -> Vec<TestPath> {
    let ms = manypath_tcp::time::Duration::from_millis;
    vec![
        TestPath::symmetric("wifi", 20_000_000, ms(20), ms(60)),
        TestPath::symmetric("lte", 10_000_000, ms(60), ms(100)),
    ]
}

/// Bits a second of a path, as long as it is not changed.
fn rate(path: &TestPath) -> u64 {
    path.up.rate.as_bytes_per_sec().saturating_mul(8)
}

/// What a path that is back has to carry before it counts: a tenth of a second's worth.
fn enough(path: &TestPath) -> u64 {
    rate(path) / 8 / 10
}

/// Runs every transfer; about three minutes. It may replace this process, see [`netns::acquire`]. Where namespaces are
/// forbidden only the simulated transfers run, and the report says why.
///
/// # Errors
/// See [`HandoverError`]. A transfer that fails is a [`Row::failure`].
pub fn run(options: &Options) -> Result<Report, HandoverError> {
    let forbidden = match netns::acquire() {
        Err(error) => Some(error.into_reason()?),
        Ok(()) => None,
    };
    let program = match &options.program {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(HandoverError::Program)?,
    };
    let paths = paths();
    let mut rows = Vec::new();
    let mut push = |row: Row| {
        if options.verbose {
            eprintln!("{}", table::line(&row));
        }
        rows.push(row);
    };
    for sender in [End::Client, End::Server] {
        push(simulated::row(&paths, sender)?);
    }
    if forbidden.is_none() {
        let casts: &[Cast] = if options.quick {
            &Cast::QUICK
        } else {
            &Cast::ALL
        };
        for &cast in casts {
            push(match arm::run(&paths, cast, &program) {
                Ok(measured) => Row {
                    cast,
                    simulated: false,
                    measured: Some(measured),
                    failure: None,
                },
                Err(arm::Failure::Arm(why)) => Row {
                    cast,
                    simulated: false,
                    measured: None,
                    failure: Some(why),
                },
                Err(arm::Failure::Network(error)) => return Err(error.into()),
            });
        }
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: crate::kernel::release(),
        paths: paths
            .iter()
            .map(|path| PathReport {
                name: path.name.clone(),
                rate: rate(path),
                round_trip: (path.up.delay.as_nanos() + path.down.delay.as_nanos()) as f64 / 1e9,
            })
            .collect(),
        outage: OUTAGE.as_secs_f64(),
        forbidden,
        rows,
    })
}
