//! `manypath forward` at one end of the paths or at both.
//!
//! Our stack gets addresses of its own beside the kernel's, so the kernel has nothing to do with its packets.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{CHECKSUM, DemoError, WEB_PORT};
use crate::netns::NetNs;
use crate::spoken::Spoken;
use crate::testbed::{SERVER, Testbed};

/// Where curl finds the relay, on the client's own loopback.
pub(super) const PORT: u16 = 8000;
/// How long a relay may take to start.
const START: Duration = Duration::from_secs(10);
/// Lines of its log that an error quotes.
const LAST: usize = 5;
/// How long a relay may take to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Does `download` while a relay stands before the client and another one before the web server.
pub(super) fn both_ends(
    bed: &Testbed,
    program: &Path,
    download: impl FnOnce() -> Result<(), DemoError>,
) -> Result<(), DemoError> {
    let served = SocketAddr::new(Testbed::own_server_address(0), WEB_PORT);
    let server = Relay::start(
        bed,
        program,
        &End {
            name: "server",
            ns: &bed.server,
            listen: format!("mptcp:{served}"),
            to: format!("tcp:127.0.0.1:{WEB_PORT}"),
            address: |path| {
                (
                    Testbed::own_server_address(path),
                    Testbed::client_address(path),
                )
            },
        },
    )?;
    let done = client(bed, program, served).and_then(|relay| relay.during(download));
    server.during(|| done)
}

/// Does `download` while a relay stands before the client; the web server is on the kernel's Multipath TCP.
pub(super) fn client_end(
    bed: &Testbed,
    program: &Path,
    download: impl FnOnce() -> Result<(), DemoError>,
) -> Result<(), DemoError> {
    client(bed, program, SocketAddr::new(SERVER.into(), WEB_PORT))?.during(download)
}

fn client(bed: &Testbed, program: &Path, to: SocketAddr) -> Result<Relay, DemoError> {
    Relay::start(
        bed,
        program,
        &End {
            name: "client",
            ns: &bed.client,
            listen: format!("tcp:127.0.0.1:{PORT}"),
            to: format!("mptcp:{to}"),
            address: |path| (Testbed::own_address(path), Testbed::gateway(path)),
        },
    )
}

/// Where a relay stands.
struct End<'a> {
    name: &'static str,
    ns: &'a NetNs,
    listen: String,
    to: String,
    /// Its own address on a path, and the gateway there.
    address: fn(usize) -> (IpAddr, IpAddr),
}

/// A relay at work.
struct Relay(Spoken);

impl Relay {
    /// Starts it and waits until it listens.
    fn start(bed: &Testbed, program: &Path, end: &End<'_>) -> Result<Self, DemoError> {
        let mut command = Command::new(program);
        command.args(["forward", "--listen", &end.listen, "--to", &end.to]);
        command.args(["--checksum", if CHECKSUM { "on" } else { "off" }]);
        for (index, path) in bed.paths().iter().enumerate() {
            let (own, gateway) = (end.address)(index);
            command.args(["--path", &format!("{}={own},gateway={gateway}", path.name)]);
        }
        command.stdout(Stdio::null());
        let mut relay = Spoken::start(end.ns, command)?;
        match relay.says(" goes to ", START) {
            Ok(()) => Ok(Self(relay)),
            Err(last) => Err(DemoError::Program {
                program: format!("manypath forward at the {}", end.name),
                message: format!("did not start: {last}"),
            }),
        }
    }

    /// Does `work`, then ends the relay in an orderly way: killed, it would leave notes and a socket behind.
    fn during(self, work: impl FnOnce() -> Result<(), DemoError>) -> Result<(), DemoError> {
        let done = work().map_err(|error| match error {
            DemoError::Program { program, message } => {
                let words: Vec<String> = self.0.words().collect();
                let last = words[words.len().saturating_sub(LAST)..].join(" / ");
                DemoError::Program {
                    program,
                    message: format!("{message}; manypath forward says: {last}"),
                }
            }
            other => other,
        });
        self.0.into_process().stop(PATIENCE);
        done
    }
}
