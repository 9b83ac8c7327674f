//! What limits of paths and classes hold back, for the metrics. Those of single connections are in `manypath status`: a label for each would
//! have no bound.

use std::fmt;

use manypath_control::report::{ClassReport, LimitReport, QuotaReport};
use manypath_control::wire::LimitOf;
use manypath_io::Host;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::limits::Limiter;

/// Asks the limits of a running proxy when it is asked itself.
#[derive(Debug)]
pub struct OfLimits {
    /// Our stack, where there is one.
    pub host: Option<Host>,
    /// The classes.
    pub limiter: Limiter,
}

/// Name, help and value of a metric.
type Metric = (&'static str, &'static str, fn(&LimitReport) -> f64);

const GAUGES: [Metric; 2] = [
    (
        "manypath_limit_rate_bytes_per_second",
        "What a limit of a path or a class lets through.",
        |limit| limit.bits_per_second as f64 / 8.0,
    ),
    (
        "manypath_limit_waiting_connections",
        "Connections that wait for a limit now.",
        |limit| limit.waiting as f64,
    ),
];

const COUNTERS: [Metric; 3] = [
    (
        "manypath_limit_held_seconds",
        "For how long something waited for a limit.",
        |limit| limit.held_us as f64 / 1e6,
    ),
    (
        "manypath_limit_waits",
        "How often something began to wait for a limit.",
        |limit| limit.waits as f64,
    ),
    (
        "manypath_limit_elsewhere_bytes",
        "Bytes of packets that went by other paths while something waited for the limit of a path.",
        |limit| limit.elsewhere_bytes as f64,
    ),
];

/// One metric of all limits, each with its labels.
fn encode<M: EncodeMetric>(
    to: &mut DescriptorEncoder<'_>,
    (name, help, value): Metric,
    limits: &[([(&str, &str); 2], &LimitReport)],
    metric: impl Fn(f64) -> M,
) -> Result<(), fmt::Error> {
    let kind = metric(0.0).metric_type();
    let mut family = to.encode_descriptor(name, help, None, kind)?;
    for (labels, limit) in limits {
        metric(value(limit)).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

/// How many connections classes have, and refused.
fn encode_classes(
    to: &mut DescriptorEncoder<'_>,
    classes: &[ClassReport],
) -> Result<(), fmt::Error> {
    if classes.is_empty() {
        return Ok(());
    }
    let mut family = |name, help, value: &dyn Fn(&ClassReport) -> u64, counts: bool| {
        let kind = match counts {
            true => MetricType::Counter,
            false => MetricType::Gauge,
        };
        let mut family = to.encode_descriptor(name, help, None, kind)?;
        for class in classes {
            let labels = [("name", class.name.as_str())];
            let to = family.encode_family(&labels)?;
            match counts {
                true => ConstCounter::new(value(class)).encode(to)?,
                false => ConstGauge::new(value(class) as f64).encode(to)?,
            }
        }
        Ok(())
    };
    family(
        "manypath_class_connections",
        "Connections of a class that bounds them.",
        &|class| class.connections,
        false,
    )?;
    family(
        "manypath_class_refused_connections",
        "Connections that were refused as their class had, or had begun, as many as it may.",
        &|class| class.refused,
        true,
    )
}

type QuotaMetric = (&'static str, &'static str, fn(&QuotaReport) -> f64);

const QUOTAS: [QuotaMetric; 4] = [
    (
        "manypath_quota_bytes",
        "What may be carried in a period.",
        |quota| quota.amount as f64,
    ),
    (
        "manypath_quota_used_bytes",
        "What was carried of a quota in this period.",
        |quota| quota.used as f64,
    ),
    (
        "manypath_quota_reset_timestamp_seconds",
        "When the next period begins.",
        |quota| quota.resets_at as f64,
    ),
    (
        "manypath_quota_kept",
        "1 where the count is in its file, 0 while that cannot be written.",
        |quota| f64::from(u8::from(quota.kept)),
    ),
];

/// What was used of quotas.
fn encode_quotas(to: &mut DescriptorEncoder<'_>, quotas: &[QuotaReport]) -> Result<(), fmt::Error> {
    if quotas.is_empty() {
        return Ok(());
    }
    for (name, help, value) in QUOTAS {
        let mut family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for quota in quotas {
            let labels = [
                ("of", quota.of.name()),
                ("name", quota.name.as_str()),
                ("period", quota.period.as_str()),
                ("count", quota.count.as_str()),
            ];
            ConstGauge::new(value(quota)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

impl Collector for OfLimits {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let reports = self.limiter.reports(self.host.as_ref());
        let limits: Vec<([(&str, &str); 2], &LimitReport)> = reports
            .iter()
            .filter_map(|limit| {
                let of = match limit.of {
                    LimitOf::Path => "path",
                    LimitOf::Class => "class",
                    LimitOf::Connection => return None,
                };
                Some(([("of", of), ("name", limit.name.as_str())], limit))
            })
            .collect();
        encode_classes(&mut to, &self.limiter.classes())?;
        encode_quotas(&mut to, &self.limiter.quotas())?;
        if limits.is_empty() {
            return Ok(());
        }
        for gauge in GAUGES {
            encode(&mut to, gauge, &limits, ConstGauge::new)?;
        }
        for counter in COUNTERS {
            encode(&mut to, counter, &limits, ConstCounter::new)?;
        }
        Ok(())
    }
}
