//! Our end of a connection: `manypath forward` as a process of its own, between the stack and a socket on loopback.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::watch::Seen;
use crate::netns::{NetNs, NetNsError};
use crate::spoken::Spoken;

/// How long it may take to start, on a machine that is busy with other cells.
const PATIENCE: Duration = Duration::from_secs(15);

/// A running relay.
pub(super) struct Relay(Spoken);

/// What a relay is started with.
pub(super) struct Wanted<'a> {
    pub(super) program: &'a Path,
    /// Where the process can be asked.
    pub(super) runtime: &'a Path,
    pub(super) listen: String,
    pub(super) to: String,
    /// Words of `--path`.
    pub(super) paths: Vec<String>,
    /// Multipath TCP's own checksum.
    pub(super) checksum: bool,
}

impl Relay {
    /// Starts it in a namespace. The answer within says why it is not to be had.
    pub(super) fn start(
        ns: &NetNs,
        wanted: &Wanted<'_>,
    ) -> Result<Result<Self, String>, NetNsError> {
        let mut command = Command::new(wanted.program);
        command.args(["forward", "--listen", &wanted.listen, "--to", &wanted.to]);
        for path in &wanted.paths {
            command.args(["--path", path]);
        }
        let checksum = if wanted.checksum { "on" } else { "off" };
        command
            .args(["--checksum", checksum])
            .args(["--congestion", super::CONGESTION])
            .args(["--host-congestion", super::CONGESTION])
            .env("XDG_RUNTIME_DIR", wanted.runtime)
            .stdout(Stdio::null());
        let mut relay = Spoken::start(ns, command)?;
        Ok(match relay.says("goes to", PATIENCE) {
            Ok(()) => Ok(Self(relay)),
            Err(last) => Err(format!("forward did not start: {last}")),
        })
    }

    /// What our stack says of its only connection; nothing if there is none, or more than one.
    pub(super) fn seen(&mut self, program: &Path, runtime: &Path) -> Option<Seen> {
        let output = Command::new(program)
            .args([
                "status",
                "--json",
                "--pid",
                &self.0.child().id().to_string(),
            ])
            .env("XDG_RUNTIME_DIR", runtime)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        seen(&serde_json::from_slice(&output.stdout).ok()?)
    }

    /// A complaint of the relay that no network excuses.
    pub(super) fn complaint(&self) -> Option<String> {
        self.0.words().find(|line| line.contains("panicked"))
    }
}

/// Takes what is of interest out of the JSON of `status`.
fn seen(status: &Value) -> Option<Seen> {
    let connections = status.get("processes")?.get(0)?.get("connections")?;
    // A join whose option a box removed is a half-open TCP connection to the server, for as long as it repeats its SYN/ACK.
    let mut open = connections
        .as_array()?
        .iter()
        .filter(|connection| connection["state"] != "opening");
    let (Some(connection), None) = (open.next(), open.next()) else {
        return None;
    };
    let up = |subflow: &&Value| subflow["phase"] == "established";
    let address = |subflow: &Value, key: &str| -> Option<IpAddr> {
        let address: SocketAddr = subflow[key].as_str()?.parse().ok()?;
        Some(address.ip())
    };
    let subflows = connection["subflows"].as_array()?.iter().filter(up);
    Some(Seen {
        // A connection that takes no more joins still maps its data.
        fallback: !matches!(
            connection["level"].as_str(),
            Some("multipath" | "no-more-joins")
        ),
        subflows: subflows
            .filter_map(|subflow| Some([address(subflow, "local")?, address(subflow, "remote")?]))
            .collect(),
    })
}

/// The address as one side of a relay has it on the command line.
pub(super) fn endpoint(protocol: &str, at: SocketAddr) -> String {
    format!("{protocol}:{at}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_connection_is_found_in_the_status() {
        let status = |level: &str, phases: &[&str]| {
            let subflow =
                |phase| json!({"phase": phase, "local": "10.0.0.1:7", "remote": "10.0.0.2:8"});
            let subflows: Vec<Value> = phases.iter().map(subflow).collect();
            json!({"processes": [{"connections": [{"level": level, "subflows": subflows}]}]})
        };
        let two = seen(&status(
            "multipath",
            &["established", "handshake", "established"],
        ));
        let two = two.expect("there is one connection");
        assert!(!two.fallback);
        let ends = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        assert_eq!(two.subflows, [ends; 2]);
        let plain = status("plain-tcp", &["established"]);
        assert!(seen(&plain).is_some_and(|seen| seen.fallback));
        assert_eq!(seen(&json!({"processes": []})), None);
        assert_eq!(seen(&json!({"processes": [{"connections": []}]})), None);
    }
}
