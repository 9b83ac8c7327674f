//! What the packets of a failed run were: a capture, and one line for each packet that a host sent or received.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use manypath_wire::describe;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::Twin;
use crate::scenario::{Scenario, ScenarioError};
use crate::simulation::RunOptions;

/// The packets of a run as planned.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// All of them in pcapng format.
    pub capture: Vec<u8>,
    /// A line for each that a host sent or received: time, end of a link, packet.
    pub lines: Vec<String>,
}

/// A file in memory that the simulation writes and we keep.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Half a packet from a writer that panicked is still the best that there is.
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a scenario both ways and keeps the packets of the run as planned.
pub fn trace(scenario: &Scenario) -> Result<Trace, ScenarioError> {
    let file = Shared::default();
    let options = RunOptions {
        capture: Some(Box::new(file.clone())),
        ..RunOptions::default()
    };
    Twin::once(scenario, options)?;
    let capture = std::mem::take(&mut *file.0.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(Trace {
        lines: lines(&capture, scenario),
        capture,
    })
}

fn lines(capture: &[u8], scenario: &Scenario) -> Vec<String> {
    let Ok(mut reader) = PcapNgReader::new(capture) else {
        return Vec::new();
    };
    let (mut names, mut lines) = (Vec::new(), Vec::new());
    // A capture that ends in the middle of a packet, because its run panicked, tells as far as it goes.
    while let Some(Ok(block)) = reader.next_block() {
        match block {
            Block::InterfaceDescription(interface) => {
                let name = interface.options.iter().find_map(|option| match option {
                    pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption::IfName(name) => {
                        Some(name.to_string())
                    }
                    _ => None,
                });
                names.push(name.unwrap_or_default());
            }
            Block::EnhancedPacket(packet) => {
                let name = names.get(packet.interface_id as usize);
                let name = name.map_or("?", String::as_str);
                let node = name.split_once('@').map_or(name, |(node, _)| node);
                if scenario.hosts.iter().any(|host| host.name == node) {
                    lines.push(format!(
                        "{:.6} {name}: {}",
                        packet.timestamp.as_secs_f64(),
                        describe::packet(&packet.data)
                    ));
                }
            }
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gauntlet::plan;

    #[test]
    fn a_trace_tells_of_the_handshake() {
        let trace = trace(&plan(0)).unwrap();
        assert!(trace.lines.len() > 10 && trace.capture.len() > 1_000);
        let first = &trace.lines[0];
        assert!(first.starts_with("0.000000 client@"), "{first}");
    }
}
