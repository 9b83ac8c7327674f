//! Our end of a measurement: `manypath perf` as a process of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bulk::Received;
use super::{Bench, CONGESTION, Failure, PATIENCE, PORT, arm};
use crate::netns::NetNs;
use crate::spoken::Spoken;
use crate::testbed::Testbed;

/// Our stack's own address at the server's first interface: the kernel has the others.
pub(super) fn served_at() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, 1, 20))
}

#[derive(Clone, Copy)]
pub(super) enum Role {
    Serve,
    Send { plain: bool, to: IpAddr },
}

/// A running `manypath perf`.
pub(super) struct Ours {
    process: Spoken,
    output: Option<JoinHandle<String>>,
}

impl Ours {
    pub(super) fn start(bench: &Bench<'_>, ns: &NetNs, role: Role) -> Result<Self, Failure> {
        let mut command = Command::new(bench.program);
        command.arg("perf");
        match role {
            Role::Serve => {
                command.args([
                    "serve",
                    "--listen",
                    &format!("{}:{PORT}", served_at()),
                    "--connections",
                    "1",
                ]);
            }
            Role::Send { plain, to } => {
                let time = format!("{}ms", bench.time.as_millis());
                command.args(["send", &format!("{to}:{PORT}"), "--time", &time]);
                command.args(plain.then_some("--plain"));
            }
        }
        command.args(["--proto", "mptcp", "--congestion", CONGESTION, "--json"]);
        for (index, interface) in bench.pair.interfaces().iter().enumerate() {
            let path = match role {
                Role::Serve => format!(
                    "{interface}=10.77.{}.20,gateway={}",
                    index + 1,
                    Testbed::client_address(index)
                ),
                Role::Send { .. } => {
                    format!(
                        "{interface}={},gateway={}",
                        Testbed::own_address(index),
                        Testbed::gateway(index)
                    )
                }
            };
            command.args(["--path", &path]);
        }
        // Bursts of ours stay on without offloads too: the kernel cuts them in front of the device then, as it does with
        // its own.
        let checksum = if bench.condition.checksum {
            "on"
        } else {
            "off"
        };
        command.args(["--checksum", checksum, "--offload", "on"]);
        command.stdout(Stdio::piped());
        let mut process = Spoken::start(ns, command)?;
        let stdout = process
            .child()
            .stdout
            .take()
            .expect("it was asked to be a pipe");
        let output = std::thread::spawn(move || io::read_to_string(stdout).unwrap_or_default());
        Ok(Self {
            process,
            output: Some(output),
        })
    }

    pub(super) fn id(&mut self) -> u32 {
        self.process.child().id()
    }

    /// Waits until it says that it serves.
    pub(super) fn ready(&mut self) -> Result<(), Failure> {
        let ready = self.process.says("serving at", PATIENCE);
        ready.map_err(|last| Failure::Arm(format!("perf serve did not start: {last}")))
    }

    /// Waits for its end and takes the result from its JSON.
    pub(super) fn result(&mut self, deadline: Instant) -> Result<Received, Failure> {
        let status = loop {
            match self.process.child().try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                Ok(None) => return Err(Failure::Arm("perf send did not end".to_owned())),
                Err(error) => return Err(arm("wait for perf")(error)),
            }
        };
        if !status.success() {
            let last = self.process.last_words();
            return Err(Failure::Arm(format!("perf send: {last} ({status})")));
        }
        let output = self
            .output
            .take()
            .map(JoinHandle::join)
            .and_then(Result::ok)
            .unwrap_or_default();
        summary(&output)
            .ok_or_else(|| Failure::Arm(format!("perf send printed no result: {output:.200}")))
    }
}

/// Bytes and time out of the JSON that `perf send` prints, wherever in it they stand.
fn summary(output: &str) -> Option<Received> {
    fn find<'v>(value: &'v serde_json::Value, key: &str) -> Option<&'v serde_json::Value> {
        value.get(key).or_else(|| {
            value
                .as_object()?
                .values()
                .find_map(|inner| find(inner, key))
        })
    }
    let value: serde_json::Value = serde_json::from_str(output).ok()?;
    let bytes = find(&value, "bytes")?.as_u64()?;
    let rate = find(&value, "bits_per_second")?.as_f64()?;
    let seconds = bytes as f64 * 8.0 / rate;
    seconds.is_finite().then(|| Received {
        bytes,
        time: Duration::from_secs_f64(seconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_found_in_the_json() {
        let text = r#"{"title": "x", "summary": {"bytes": 1000, "bits_per_second": 4000.0}}"#;
        assert_eq!(
            summary(text),
            Some(Received {
                bytes: 1000,
                time: Duration::from_secs(2)
            })
        );
        assert_eq!(summary("{}"), None);
        assert_eq!(summary(r#"{"bytes": 0, "bits_per_second": 0.0}"#), None);
    }
}
