//! What Linux knows of the process, under the names that every Prometheus client library has for it.

use std::fmt;
use std::fs;
use std::io;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads `/proc/self` when it is asked. What cannot be read is left out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(seconds) = processor_seconds() {
            let counter = ConstCounter::new(seconds);
            let help = "Processor time of the process, its user's and the system's.";
            let kind = counter.metric_type();
            counter.encode(to.encode_descriptor("process_cpu_seconds", help, None, kind)?)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Memory of the process that is in RAM.",
                kibibytes(&status, "VmRSS:"),
            ),
            (
                "process_virtual_memory_bytes",
                "Addresses of the process that are in use.",
                kibibytes(&status, "VmSize:"),
            ),
            ("process_open_fds", "Open descriptors.", open_files().ok()),
            (
                "process_max_fds",
                "Descriptors that the process may have.",
                manypath_io::free_files().map(|files| files.most as f64),
            ),
            (
                "process_threads",
                "Threads of the process.",
                number(&status, "Threads:"),
            ),
        ];
        for (name, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            let kind = gauge.metric_type();
            gauge.encode(to.encode_descriptor(name, help, None, kind)?)?;
        }
        Ok(())
    }
}

fn number(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kibibytes(status: &str, key: &str) -> Option<f64> {
    Some(number(status, key)? * 1024.0)
}

fn open_files() -> io::Result<f64> {
    // One of them is that of the reading.
    Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1) as f64)
}

/// The 14th and 15th fields of proc_pid_stat(5), in ticks, of which Linux shows a hundred a second to every program.
fn processor_seconds() -> Option<f64> {
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in brackets, which may have spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}
