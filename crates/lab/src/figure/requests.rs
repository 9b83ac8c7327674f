//! Short connections on real packets: one request on each, so many at one time, by `manypath perf` at both ends, over our
//! stack or over the kernel's sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::real::{PATIENCE, PORT, bed, failed, kept_up, of_the_kernel, prepare_kernels};
use super::{Arm, Does, Run};
use crate::parallel::PathSpec;
use crate::relay::End;
use crate::spoken::Spoken;
use crate::testbed::{SERVER, Testbed};

/// What to ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requests<'a> {
    pub(super) paths: &'a [PathSpec],
    pub(super) congestion: &'a str,
    /// Bytes of an answer.
    pub(super) size: u64,
    /// Connections in all.
    pub(super) count: u64,
    /// Connections at one time.
    pub(super) clients: u64,
}

/// Requests a second.
pub(super) fn rate(run: &Run<'_>, requests: Requests<'_>) -> Result<f64, String> {
    let bed = bed(requests.paths, requests.congestion)?;
    let (proto, at) = match (run.arm, run.line.does) {
        (Arm::Real, _) => (
            "mptcp",
            SocketAddr::new(Testbed::own_server_address(0), PORT),
        ),
        (_, Does::Tcp(_)) => ("tcp", SocketAddr::from((SERVER, PORT))),
        _ => ("kernel-mptcp", SocketAddr::from((SERVER, PORT))),
    };
    let ours = run.arm == Arm::Real;
    if !ours {
        prepare_kernels(&bed)?;
    }
    let command = |words: &[&str], paths: Vec<String>| {
        let mut command = Command::new(run.program);
        command.arg("perf").args(words).args(["--proto", proto]);
        if ours {
            command.args(["--checksum", "off", "--congestion", requests.congestion]);
            command.args(paths);
        } else {
            command.args(["--host-congestion", of_the_kernel(requests.congestion)]);
        }
        command
    };
    // The kernel's listener takes joins at any address only if it is bound to none.
    let listen = match ours {
        true => at,
        false => SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)),
    };
    let mut serve = command(
        &["serve", "--listen", &listen.to_string()],
        End::Server.paths(&bed),
    );
    serve.stdout(Stdio::null());
    let mut server = Spoken::start(&bed.server, serve).map_err(failed("perf serve"))?;
    server
        .says("serving at", PATIENCE)
        .map_err(failed("perf serve did not start"))?;
    let [size, count, clients] =
        [requests.size, requests.count, requests.clients].map(|number| number.to_string());
    let mut send = command(&["send", &at.to_string()], End::Client.paths(&bed));
    send.args(["--requests", "1", "--request-size", "100", "--json"]);
    send.args([
        "--response-size",
        &size,
        "--connections",
        &count,
        "--parallel",
        &clients,
    ]);
    let output = bed.client.output(send).map_err(failed("perf send"))?;
    kept_up(&bed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told: Told = serde_json::from_str(text.trim()).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().last().unwrap_or_default();
        format!("perf send: {last} ({error})")
    })?;
    told.rate(requests.count)
}

/// What `perf send --json` prints, as far as it counts here.
#[derive(Debug, Deserialize)]
struct Told {
    connections: u64,
    seconds: f64,
    failures: std::collections::BTreeMap<String, u64>,
}

impl Told {
    /// Requests a second, if nearly all of so many were answered.
    fn rate(&self, wanted: u64) -> Result<f64, String> {
        if self.connections * 100 < wanted * 99 {
            return Err(format!(
                "{} of {wanted} connections: {:?}",
                self.connections, self.failures
            ));
        }
        Ok(self.connections as f64 / self.seconds.max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_connections_are_no_fast_ones() {
        let told = |connections| Told {
            connections,
            seconds: 2.0,
            failures: std::iter::once(("timed out".to_owned(), 200 - connections)).collect(),
        };
        assert_eq!(told(199).rate(200), Ok(99.5));
        assert!(
            told(100)
                .rate(200)
                .is_err_and(|why| why.contains("timed out"))
        );
    }
}
