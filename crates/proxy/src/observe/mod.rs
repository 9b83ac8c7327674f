//! What is told of serving: metrics, health, and the access log.

pub mod access;
mod clock;
pub mod limits;
pub mod metrics;
mod process;
pub mod serve;
pub mod sink;
pub mod stack;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use crate::request::Request;
use crate::serve::observer::{Ended, Failure, Observer, Refusal};
use access::{Event, Line};
use metrics::Metrics;
use sink::Sink;

/// Counts everything that serving tells, and writes it to the access log.
#[derive(Debug)]
pub struct Observatory {
    metrics: Arc<Metrics>,
    log: RwLock<Option<Arc<Sink>>>,
    accepted: AtomicU64,
    closed: AtomicU64,
}

impl Observatory {
    /// Counts into `metrics`; without a log so far.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            log: RwLock::default(),
            accepted: AtomicU64::new(0),
            closed: AtomicU64::new(0),
        }
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Connections that were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that are there now.
    #[must_use]
    pub fn open(&self) -> u64 {
        let closed = self.closed.load(Ordering::Relaxed);
        self.accepted().saturating_sub(closed)
    }

    /// Lines go there from now on; what the log before has still to write is written.
    pub fn log_to(&self, sink: Option<Sink>) {
        let mut log = self.log.write().unwrap_or_else(|e| e.into_inner());
        let before = std::mem::replace(&mut *log, sink.map(Arc::new));
        drop(log);
        // What is left is written to a disk that may be slow: nobody waits for that, neither for the lock nor for this thread.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(before))),
            Err(_) => drop(before),
        }
    }

    /// The access log in use.
    #[must_use]
    pub fn log(&self) -> Option<Arc<Sink>> {
        self.log.read().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn write(&self, line: &Line<'_>) {
        let Some(log) = self.log() else { return };
        if !log.write(line) {
            self.metrics.log_line_lost();
        }
    }
}

impl Observer for Observatory {
    fn accepted(&self, listener: &Arc<str>, _peer: SocketAddr) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.metrics.accepted(listener);
    }

    fn closed(&self, listener: &Arc<str>) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        self.metrics.closed(listener);
    }

    fn refused(
        &self,
        listener: &Arc<str>,
        client: SocketAddr,
        request: Option<&Request>,
        why: Refusal,
    ) {
        self.metrics.refused(listener, why);
        self.write(&Line {
            time: SystemTime::now(),
            listener,
            client,
            request,
            event: Event::Refused(why),
        });
    }

    fn failed(&self, listener: &Arc<str>, request: &Request, why: Failure) {
        self.metrics.failed(listener, why);
        self.write(&Line {
            time: SystemTime::now(),
            listener,
            client: request.client.address,
            request: Some(request),
            event: Event::Failed(why),
        });
    }

    fn connected(&self, listener: &Arc<str>, _request: &Request, after: Duration) {
        self.metrics.connected(listener, after);
    }

    fn ended(&self, listener: &Arc<str>, ended: &Ended) {
        self.metrics.ended(listener, ended);
        self.write(&Line {
            time: SystemTime::now(),
            listener,
            client: ended.request.client.address,
            request: Some(&ended.request),
            event: Event::Ended(ended),
        });
    }
}
