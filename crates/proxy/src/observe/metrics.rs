//! What is counted, in base units, with labels that neither clients nor connections can make more of.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeLabelSet, prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::access::side;
use super::process::Process;
use crate::serve::observer::{Ended, Failure, PathBytes, Refusal};

/// Paths that have counters of their own; those that come later count as `other`.
const MOST_PATHS: usize = 64;

/// Upper bounds of times until a target answers, in seconds: a link of a data centre to a satellite that repeats a SYN.
const CONNECT: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0, 30.0,
];

/// Upper bounds of how long something is carried, in seconds: a request to a day.
const DURATION: [f64; 11] = [
    0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21_600.0, 86_400.0,
];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfListener {
    listener: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WithReason {
    listener: Arc<str>,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfEnd {
    listener: Arc<str>,
    opening: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfBytes {
    listener: Arc<str>,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfAnswer {
    listener: Arc<str>,
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPath {
    path: Arc<str>,
    side: &'static str,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfReload {
    result: &'static str,
}

type Counters<L> = Family<L, Counter>;
type Histograms = Family<OfListener, Histogram, fn() -> Histogram>;

/// All counters of a process.
pub struct Metrics {
    registry: Registry,
    accepted: Counters<OfListener>,
    open: Family<OfListener, Gauge>,
    refused: Counters<WithReason>,
    failed: Counters<WithReason>,
    connect: Histograms,
    ended: Counters<OfEnd>,
    duration: Histograms,
    bytes: Counters<OfBytes>,
    answers: Counters<OfAnswer>,
    path_bytes: Counters<OfPath>,
    /// The paths that have counters of their own.
    paths: Mutex<BTreeSet<Arc<str>>>,
    lines_lost: Counter,
    reloads: Counters<OfReload>,
    last_reload: Gauge,
    last_success: Gauge<f64, AtomicU64>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Counters at zero. `more` tells what others count, at the moment when it is asked for.
    #[must_use]
    pub fn new(more: Vec<Box<dyn Collector>>) -> Self {
        let mut all = Self {
            registry: Registry::default(),
            accepted: Family::default(),
            open: Family::default(),
            refused: Family::default(),
            failed: Family::default(),
            connect: Family::new_with_constructor(|| Histogram::new(CONNECT)),
            ended: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION)),
            bytes: Family::default(),
            answers: Family::default(),
            path_bytes: Family::default(),
            paths: Mutex::default(),
            lines_lost: Counter::default(),
            reloads: Family::default(),
            last_reload: Gauge::default(),
            last_success: Gauge::default(),
        };
        all.register();
        for collector in more {
            all.registry.register_collector(collector);
        }
        // Both are there from the start, so that their rates are.
        for result in ["success", "failure"] {
            let _ = all.reloads.get_or_create(&OfReload { result });
        }
        all.put_in_force();
        all
    }

    /// Names and helps. The library adds `_total` to counters, and a full stop to helps.
    fn register(&mut self) {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        self.registry
            .register("manypath_build", "Which manypath this is", build);
        let proxy = self.registry.sub_registry_with_prefix("manypath_proxy");
        proxy.register(
            "connections",
            "Connections that were accepted",
            self.accepted.clone(),
        );
        proxy.register(
            "connections_open",
            "Connections that were accepted and are not over",
            self.open.clone(),
        );
        proxy.register(
            "refused",
            "Clients and requests that were refused, by the reason",
            self.refused.clone(),
        );
        proxy.register(
            "target_failures",
            "Targets that were not reached, by the reason",
            self.failed.clone(),
        );
        proxy.register(
            "connect_seconds",
            "Time from a request until its target was connected",
            self.connect.clone(),
        );
        proxy.register(
            "carried",
            "Tunnels, associations and HTTP exchanges that are over, by the way in which they ended",
            self.ended.clone(),
        );
        proxy.register(
            "carried_seconds",
            "Time from a request until what was carried for it was over",
            self.duration.clone(),
        );
        proxy.register(
            "carried_bytes",
            "Bytes that were carried to targets (forth) and to clients (back), counted when what they belong to is over",
            self.bytes.clone(),
        );
        proxy.register(
            "http_answers",
            "Answers to HTTP requests in absolute form, by the class of their status",
            self.answers.clone(),
        );
        proxy.register(
            "path_bytes",
            "Stream bytes by path, of connections to clients (inside) and to targets (outside), counted when they are over",
            self.path_bytes.clone(),
        );
        proxy.register(
            "access_log_lines_lost",
            "Lines of the access log that found no room",
            self.lines_lost.clone(),
        );
        let config = self.registry.sub_registry_with_prefix("manypath_config");
        config.register(
            "reloads",
            "Reloads of the configuration, by their result",
            self.reloads.clone(),
        );
        config.register(
            "last_reload_successful",
            "Whether the last reload was put in force (1) or the configuration before it stays (0)",
            self.last_reload.clone(),
        );
        config.register(
            "last_reload_success_timestamp_seconds",
            "When the configuration in force was put in force, since 1970",
            self.last_success.clone(),
        );
        self.registry.register_collector(Box::new(Process));
    }

    /// The text of Prometheus (0.0.4), or OpenMetrics.
    ///
    /// # Errors
    /// Only of a collector.
    pub fn text(&self, open_metrics: bool) -> Result<String, fmt::Error> {
        let mut all = String::new();
        match open_metrics {
            true => text::encode(&mut all, &self.registry)?,
            false => prometheus_text::encode(&mut all, &self.registry)?,
        }
        Ok(all)
    }

    pub(super) fn accepted(&self, listener: &Arc<str>) {
        let of = of(listener);
        self.accepted.get_or_create(&of).inc();
        self.open.get_or_create(&of).inc();
    }

    pub(super) fn closed(&self, listener: &Arc<str>) {
        self.open.get_or_create(&of(listener)).dec();
    }

    pub(super) fn refused(&self, listener: &Arc<str>, why: Refusal) {
        let of = WithReason {
            listener: Arc::clone(listener),
            reason: why.name(),
        };
        self.refused.get_or_create(&of).inc();
    }

    pub(super) fn failed(&self, listener: &Arc<str>, why: Failure) {
        let of = WithReason {
            listener: Arc::clone(listener),
            reason: why.name(),
        };
        self.failed.get_or_create(&of).inc();
    }

    pub(super) fn connected(&self, listener: &Arc<str>, after: Duration) {
        let histogram = self.connect.get_or_create(&of(listener));
        histogram.observe(after.as_secs_f64());
    }

    pub(super) fn ended(&self, listener: &Arc<str>, ended: &Ended) {
        let end = OfEnd {
            listener: Arc::clone(listener),
            opening: ended.request.way.name(),
            result: ended.how.name(),
        };
        self.ended.get_or_create(&end).inc();
        let lasted = ended.lasted.as_secs_f64();
        self.duration.get_or_create(&of(listener)).observe(lasted);
        for (direction, bytes) in [("forth", ended.forth), ("back", ended.back)] {
            let of = OfBytes {
                listener: Arc::clone(listener),
                direction,
            };
            self.bytes.get_or_create(&of).inc_by(bytes);
        }
        if let Some((_, status)) = &ended.http {
            let of = OfAnswer {
                listener: Arc::clone(listener),
                code: class(*status),
            };
            self.answers.get_or_create(&of).inc();
        }
        for bytes in &ended.paths {
            self.path(bytes);
        }
    }

    fn path(&self, bytes: &PathBytes) {
        let path = self.path_label(&bytes.path);
        for (direction, count) in [("sent", bytes.sent), ("received", bytes.received)] {
            let of = OfPath {
                path: Arc::clone(&path),
                side: side(bytes),
                direction,
            };
            self.path_bytes.get_or_create(&of).inc_by(count);
        }
    }

    /// An interface's name, or `other`: on a host whose interfaces come and go there is a new name every minute.
    fn path_label(&self, path: &Arc<str>) -> Arc<str> {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        if !paths.contains(path) {
            if paths.len() >= MOST_PATHS {
                return "other".into();
            }
            paths.insert(Arc::clone(path));
        }
        Arc::clone(path)
    }

    pub(super) fn log_line_lost(&self) {
        self.lines_lost.inc();
    }

    /// A configuration is in force from now on.
    fn put_in_force(&self) {
        self.last_reload.set(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.last_success.set(now.unwrap_or_default().as_secs_f64());
    }

    /// A reload has been tried.
    pub fn reloaded(&self, success: bool) {
        let result = match success {
            true => "success",
            false => "failure",
        };
        self.reloads.get_or_create(&OfReload { result }).inc();
        match success {
            true => self.put_in_force(),
            false => {
                self.last_reload.set(0);
            }
        }
    }
}

fn of(listener: &Arc<str>) -> OfListener {
    OfListener {
        listener: Arc::clone(listener),
    }
}

fn class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_beyond_a_bound_are_counted_together() {
        let metrics = Metrics::new(Vec::new());
        for i in 0..MOST_PATHS + 10 {
            metrics.path(&PathBytes {
                path: format!("tun{i}").into(),
                inside: true,
                sent: 1,
                received: 0,
            });
        }
        let text = metrics.text(false).expect("text");
        let lines = text
            .lines()
            .filter(|line| line.starts_with("manypath_proxy_path_bytes_total{"));
        assert_eq!(lines.count(), 2 * (MOST_PATHS + 1));
        assert!(
            text.contains(r#"path_bytes_total{path="other",side="inside",direction="sent"} 10"#),
            "{text}"
        );
    }

    #[test]
    fn a_reload_that_fails_is_told_and_keeps_the_time_of_the_last_good_one() {
        let metrics = Metrics::new(Vec::new());
        let before = metrics.last_success.get();
        metrics.reloaded(false);
        assert_eq!(
            (metrics.last_reload.get(), metrics.last_success.get()),
            (0, before)
        );
        metrics.reloaded(true);
        assert_eq!(metrics.last_reload.get(), 1);
        assert!(metrics.last_success.get() >= before);
        let text = metrics.text(false).expect("text");
        assert!(
            text.contains("manypath_config_reloads_total{result=\"failure\"} 1\n"),
            "{text}"
        );
    }
}
