//! What our stack counts, for the metrics.

use std::collections::BTreeMap;
use std::fmt;

use manypath_control::report::HOST_REPAIRS;
use manypath_control::server::Backend;
use manypath_io::Host;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::limits::{Limiter, note};
use crate::live::Live;

/// Asks a running stack when it is asked itself.
#[derive(Debug)]
pub struct OfStack {
    /// The stack.
    pub host: Host,
    /// What takes paths out.
    pub limiter: Limiter,
}

impl Collector for OfStack {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Self { host, limiter } = self;
        let (used, limit) = host.memory();
        let gauges = [
            (
                "manypath_stack_memory_bytes",
                "Memory that connections of our stack hold.",
                used,
            ),
            (
                "manypath_stack_memory_limit_bytes",
                "Memory that connections of our stack may hold.",
                limit,
            ),
            (
                "manypath_stack_connections_open",
                "Connections that our stack has.",
                host.conns().len(),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as f64);
            let kind = gauge.metric_type();
            gauge.encode(to.encode_descriptor(name, help, None, kind)?)?;
        }
        let live = Live::limited(host.clone(), limiter.clone());
        let mut overview = live.overview();
        note(&limiter.standings(), &mut overview.paths);
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = to.encode_descriptor(
            "manypath_stack_events",
            "What our stack and the host's set-up decided how often; docs/limits.md says what each is.",
            None,
            kind,
        )?;
        let names = overview.counters.iter();
        for (name, count) in names.filter(|(name, _)| name.as_str() != HOST_REPAIRS) {
            let counter = ConstCounter::new(*count);
            counter.encode(family.encode_family(&[("event", name.as_str())])?)?;
        }
        // Of several addresses of one interface one that works is enough.
        let mut paths: BTreeMap<&str, bool> = BTreeMap::new();
        for path in &overview.paths {
            *paths.entry(&path.iface).or_default() |= path.up;
        }
        let kind = ConstGauge::new(0i64).metric_type();
        let help = "Whether a path can be used, by its interface.";
        let mut family = to.encode_descriptor("manypath_path_up", help, None, kind)?;
        for (path, up) in paths {
            let gauge = ConstGauge::new(i64::from(up));
            gauge.encode(family.encode_family(&[("path", path)])?)?;
        }
        Ok(())
    }
}
