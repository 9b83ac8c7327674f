//! The stack of this process, seen and steered from other processes.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use manypath_control::convert;
use manypath_control::report::{
    ConnReport, DeviceReport, HOST_REPAIRS, MemoryReport, Overview, PathReport,
};
use manypath_control::server::{Backend, News, Reloading};
use manypath_control::wire::{DecisionReport, LimitOf, LimitOrder};
use manypath_io::Host;
use manypath_io::device::{DeviceCounters, DeviceInfo};
use manypath_io::sys::unread::unread;
use manypath_stack::ids::ConnId;
use manypath_stack::pm::controllers::View;
use manypath_stack::{Command, Done, Path, PathManager, StackError};
use tokio::sync::mpsc;

use crate::config::reload::Asker;
use crate::limits::{Limiter, Refused, note};

/// A running stack, for a [control socket](manypath_control::server::Server).
#[derive(Clone, Debug)]
pub struct Live {
    host: Host,
    limiter: Limiter,
}

impl Live {
    /// A stack without limits but those that are ordered.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self::limited(host, Limiter::default())
    }

    /// A stack with these limits.
    #[must_use]
    pub fn limited(host: Host, limiter: Limiter) -> Self {
        Self { host, limiter }
    }
}

impl Backend for Live {
    fn overview(&self) -> Overview {
        let Self { host, limiter } = self;
        let (used, limit) = host.memory();
        let memory = MemoryReport {
            used: used as u64,
            limit: limit as u64,
        };
        let owned = |(name, count): (&str, u64)| (name.to_owned(), count);
        Overview {
            config: None,
            paths: paths(host),
            devices: host.devices().into_iter().map(device).collect(),
            memory,
            counters: host
                .counters()
                .iter()
                .chain([(HOST_REPAIRS, host.repairs())])
                .map(owned)
                .collect(),
            limits: limiter.reports(Some(host)),
            classes: Vec::new(),
            quotas: Vec::new(),
        }
    }

    fn connections(&self) -> Vec<ConnReport> {
        let known = self.host.conns().into_iter();
        let mut all: Vec<_> = known.filter_map(|id| self.connection(id)).collect();
        all.sort_by_key(|conn| std::cmp::Reverse(conn.age_us));
        all
    }

    fn connection(&self, id: ConnId) -> Option<ConnReport> {
        let info = self.host.conn_info(id)?;
        let name = |iface| self.host.iface_name(iface);
        Some(convert::connection(&info, self.host.now(), &name))
    }

    fn view(&self, id: ConnId) -> Option<View> {
        self.host.conn_info(id).map(|info| View::from(&info))
    }

    fn decisions(&self, id: ConnId) -> Option<Vec<DecisionReport>> {
        let (decisions, now) = (self.host.decisions(id)?, self.host.now());
        let told = decisions.iter().map(|d| convert::decision(d, now));
        Some(told.collect())
    }

    fn policy(&self, id: ConnId) -> Option<PathManager> {
        self.host.conn_info(id).map(|info| info.path_manager)
    }

    fn command(&self, id: ConnId, command: Command) -> Result<Done, StackError> {
        self.host.command(id, command)
    }

    fn limit(&self, asked: &LimitOrder) -> Result<(), Refused> {
        self.limiter.obey(Some(&self.host), asked)
    }

    fn news(&self) -> News {
        let (events, lost) = self.host.path_events();
        let limits = self.limiter.listen(Arc::clone(&lost));
        News {
            events,
            limits,
            lost,
        }
    }

    fn now_us(&self) -> u64 {
        self.host.now().as_micros()
    }

    fn unread(&self, socket: BorrowedFd<'_>) -> Option<usize> {
        unread(socket).ok()
    }
}

/// A process with a configuration, and with our stack or without.
#[derive(Debug)]
pub struct Configured {
    live: Option<Live>,
    asker: Asker,
    limiter: Limiter,
    /// The configuration file.
    file: Option<PathBuf>,
    began: Instant,
}

impl Configured {
    /// Asks through `asker` when it is asked to read its configuration anew.
    #[must_use]
    pub fn new(stack: Option<Host>, asker: Asker, limiter: Limiter, file: Option<PathBuf>) -> Self {
        Self {
            live: stack.map(|host| Live::limited(host, limiter.clone())),
            limiter,
            asker,
            file,
            began: Instant::now(),
        }
    }
}

impl Backend for Configured {
    fn overview(&self) -> Overview {
        let host = self.live.as_ref().map(|live| &live.host);
        let mut of_stack = self.live.as_ref().map(Live::overview).unwrap_or_default();
        note(&self.limiter.standings(), &mut of_stack.paths);
        Overview {
            config: self.file.as_ref().map(|file| file.display().to_string()),
            limits: self.limiter.reports(host),
            classes: self.limiter.classes(),
            quotas: self.limiter.quotas(),
            ..of_stack
        }
    }

    fn connections(&self) -> Vec<ConnReport> {
        self.live
            .as_ref()
            .map(Live::connections)
            .unwrap_or_default()
    }

    fn connection(&self, id: ConnId) -> Option<ConnReport> {
        self.live.as_ref()?.connection(id)
    }

    fn view(&self, id: ConnId) -> Option<View> {
        self.live.as_ref()?.view(id)
    }

    fn decisions(&self, id: ConnId) -> Option<Vec<DecisionReport>> {
        self.live.as_ref()?.decisions(id)
    }

    fn policy(&self, id: ConnId) -> Option<PathManager> {
        self.live.as_ref()?.policy(id)
    }

    fn command(&self, id: ConnId, command: Command) -> Result<Done, StackError> {
        match &self.live {
            Some(live) => live.command(id, command),
            None => Err(StackError::NoSuchHandle),
        }
    }

    fn news(&self) -> News {
        match &self.live {
            Some(live) => live.news(),
            // Nothing ever happens to connections where there is no stack.
            None => {
                let lost = Arc::new(AtomicU64::new(0));
                News {
                    events: mpsc::channel(1).1,
                    limits: self.limiter.listen(Arc::clone(&lost)),
                    lost,
                }
            }
        }
    }

    fn now_us(&self) -> u64 {
        match &self.live {
            Some(live) => live.now_us(),
            None => u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX),
        }
    }

    fn limit(&self, asked: &LimitOrder) -> Result<(), Refused> {
        let host = self.live.as_ref().map(|live| &live.host);
        self.limiter.obey(host, asked)
    }

    fn reset_quota(&self, of: LimitOf, name: &str) -> Result<(), Refused> {
        let host = self.live.as_ref().map(|live| &live.host);
        self.limiter.reset_quota(host, of, name)
    }

    fn reload(&self) -> Option<Reloading> {
        let asker = self.asker.clone();
        Some(Box::pin(async move { asker.reload().await }))
    }

    fn unread(&self, socket: BorrowedFd<'_>) -> Option<usize> {
        unread(socket).ok()
    }
}

/// The paths that are there or were named. An address that the host has no more, and that nobody named, is none: where addresses
/// are temporary (RFC 8981) there is a new one every day.
fn paths(host: &Host) -> Vec<PathReport> {
    let report = |path: Path, missing: Option<String>| PathReport {
        iface: host
            .iface_name(path.iface)
            .unwrap_or_else(|| path.iface.0.to_string()),
        address: Some(path.addr),
        up: missing.is_none(),
        backup: path.backup,
        mtu: path.mtu,
        missing,
        ..PathReport::default()
    };
    let there = host.paths().into_iter().map(|path| report(path, None));
    let stalled = host.stalled().into_iter();
    let stalled = stalled.map(|(path, why)| report(path, Some(why)));
    let mut paths: Vec<PathReport> = there.chain(stalled).collect();
    for missing in host.missing() {
        // Another address of it is there, or it was named twice.
        if !paths.iter().any(|path| path.iface == missing.iface()) {
            paths.push(PathReport {
                iface: missing.iface().to_owned(),
                missing: Some(missing.to_string()),
                ..PathReport::default()
            });
        }
    }
    paths
}

fn device((info, counters): (DeviceInfo, DeviceCounters)) -> DeviceReport {
    let DeviceCounters {
        sent,
        sent_bytes,
        drop_queue,
        drop_refused,
        drop_no_route,
        drop_unreachable,
        missed,
        parked,
    } = counters;
    let counters = [
        ("sent", sent),
        ("sent_bytes", sent_bytes),
        ("drop_queue", drop_queue),
        ("drop_refused", drop_refused),
        ("drop_no_route", drop_no_route),
        ("drop_unreachable", drop_unreachable),
        ("missed", missed),
        ("parked", parked),
    ];
    DeviceReport {
        iface: info.name,
        tun: info.is_tun,
        counters: counters
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
    }
}
