//! `manypath forward` at one end of the paths or at both.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::{CHECKSUM, DemoError, WEB_PORT};
use crate::relay::{End, NotStarted, forward};
use crate::spoken::Spoken;
use crate::testbed::{SERVER, Testbed};

/// Where curl finds the relay, on the client's own loopback.
pub(super) const PORT: u16 = 8000;
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
    let ends = [
        format!("mptcp:{served}"),
        format!("tcp:127.0.0.1:{WEB_PORT}"),
    ];
    let server = Relay::start(bed, program, End::Server, &ends)?;
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
    let ends = [format!("tcp:127.0.0.1:{PORT}"), format!("mptcp:{to}")];
    Relay::start(bed, program, End::Client, &ends)
}

/// A relay at work.
struct Relay(Spoken);

impl Relay {
    /// Starts it and waits until it listens.
    fn start(
        bed: &Testbed,
        program: &Path,
        end: End,
        [listen, to]: &[String; 2],
    ) -> Result<Self, DemoError> {
        let checksum = ["--checksum", if CHECKSUM { "on" } else { "off" }];
        let relay = forward(
            end.ns(bed),
            program,
            [listen, to],
            &end.paths(bed),
            &checksum,
        );
        relay.map(Self).map_err(|error| match error {
            NotStarted::Network(error) => error.into(),
            NotStarted::Said(last) => DemoError::Program {
                program: format!("manypath forward at the {}", end.name()),
                message: format!("did not start: {last}"),
            },
        })
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
