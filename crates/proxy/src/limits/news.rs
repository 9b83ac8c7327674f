//! What happens to limits, for the log and for those who listen on the control socket.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use manypath_control::report::{LimitReport, PathReport, QuotaReport};
use manypath_control::wire::{EventReport, LimitOf};
use manypath_io::path::rate;
use tokio::sync::mpsc;
use tracing::info;

use super::spells::{Found, Spells};
use super::standing::Standing;

/// Events that wait for the control socket, which takes them as they come.
const WAITING: usize = 256;

/// How often limits are asked what they hold back.
const LOOK: Duration = Duration::from_secs(1);

/// Who listens, and how many events did not fit.
type Listener = (mpsc::Sender<EventReport>, Arc<AtomicU64>);

#[derive(Debug, Default)]
struct State {
    listener: Option<Listener>,
    /// The limits of paths and classes that were told last.
    limits: BTreeMap<(LimitOf, String), (u64, u64)>,
    spells: Spells,
    looked: Option<Instant>,
}

impl State {
    fn tell(&self, event: &str, report: EventReport) {
        let Some((to, lost)) = &self.listener else {
            return;
        };
        let event = event.to_owned();
        if to.try_send(EventReport { event, ..report }).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn tell_limit(&self, event: &str, limit: LimitReport) {
        let of_connection = limit.of == LimitOf::Connection;
        let report = EventReport {
            connection: of_connection.then(|| limit.name.clone()),
            limit: Some(Box::new(limit)),
            ..EventReport::default()
        };
        self.tell(event, report);
    }
}

/// Where it is told.
#[derive(Debug, Default)]
pub(super) struct News(Mutex<State>);

impl News {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All events from now on; what did not fit is added to `lost`.
    pub(super) fn listen(&self, lost: Arc<AtomicU64>) -> mpsc::Receiver<EventReport> {
        let (to, events) = mpsc::channel(WAITING);
        self.state().listener = Some((to, lost));
        events
    }

    /// A limit was set, changed or, without `bits_per_second`, ended; that it is as it was is no news.
    pub(super) fn limit(&self, of: LimitOf, name: &str, bits_per_second: Option<u64>, burst: u64) {
        let mut state = self.state();
        // Connections have no end here, and are limited by order alone.
        if of != LimitOf::Connection {
            let key = (of, name.to_owned());
            let before = match bits_per_second {
                Some(bits) => state.limits.insert(key, (bits, burst)),
                None => state.limits.remove(&key),
            };
            if before == bits_per_second.map(|bits| (bits, burst)) {
                return;
            }
        }
        let what = of.name();
        match bits_per_second {
            Some(bits) => info!("the limit of {what} {name} is {}", rate::text(bits)),
            None => info!("{what} {name} has no limit any more"),
        }
        state.tell_limit(
            "limit",
            LimitReport {
                of,
                name: name.to_owned(),
                bits_per_second: bits_per_second.unwrap_or(0),
                burst,
                ..LimitReport::default()
            },
        );
    }

    /// Looks at what limits hold back, if it is time, and says when to look again; `None`: there are no limits.
    pub(super) fn look(&self, limits: impl FnOnce() -> Vec<LimitReport>) -> Option<Duration> {
        let now = Instant::now();
        let since = self.state().looked.map(|looked| now - looked);
        if let Some(since) = since.filter(|since| *since < LOOK) {
            return Some(LOOK - since);
        }
        let limits = limits();
        let mut state = self.state();
        state.looked = Some(now);
        for found in state.spells.look(&limits, since.unwrap_or(LOOK)) {
            match found {
                Found::Begins(limit) => {
                    let (of, name) = (limit.of.name(), &limit.name);
                    let at = rate::text(limit.bits_per_second);
                    info!("the limit of {of} {name}, {at}, begins to hold back");
                    state.tell_limit("limit_held", limit);
                }
                Found::Holds(limit) => state.tell_limit("limit_held", limit),
                Found::Ends { of, name, held } => {
                    let (of, time) = (of.name(), Duration::from_micros(held.us));
                    let elsewhere = held.elsewhere;
                    info!(
                        "the limit of {of} {name} holds nothing back any more: for {time:.1?} something waited for it, and {elsewhere} bytes went by other paths meanwhile"
                    );
                }
            }
        }
        (!limits.is_empty()).then_some(LOOK)
    }

    /// A quota is used up, or counts anew.
    pub(super) fn quota(&self, quota: QuotaReport) {
        let event = if quota.spent {
            "quota_spent"
        } else {
            "quota_reset"
        };
        let report = EventReport {
            quota: Some(Box::new(quota)),
            ..EventReport::default()
        };
        self.state().tell(event, report);
    }

    /// A path is used more or less than it was.
    pub(super) fn path(&self, standing: &Standing) {
        let Standing {
            interface,
            priority,
            reason,
        } = standing;
        let priority = priority.name();
        match reason {
            Some(reason) => info!("path {interface} is used: {priority} ({reason})"),
            None => info!("path {interface} is used: {priority}"),
        }
        let path = PathReport {
            iface: interface.clone(),
            priority: Some(priority.to_owned()),
            reason: reason.clone(),
            ..PathReport::default()
        };
        let report = EventReport {
            path: Some(Box::new(path)),
            ..EventReport::default()
        };
        self.state().tell("path_priority", report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listened(tell: impl FnOnce(&News)) -> Vec<EventReport> {
        let news = News::default();
        let mut events = news.listen(Arc::default());
        tell(&news);
        std::iter::from_fn(|| events.try_recv().ok()).collect()
    }

    #[test]
    fn a_limit_is_told_when_it_is_another_than_before() {
        let told = listened(|news| {
            for bits in [Some(8), Some(8), Some(9), None, None, Some(9)] {
                news.limit(LimitOf::Path, "wwan0", bits, 1500);
            }
            news.limit(LimitOf::Connection, "3.1", Some(8), 1500);
        });
        let bits = |event: &EventReport| event.limit.as_ref().map(|limit| limit.bits_per_second);
        let found: Vec<_> = told.iter().filter_map(bits).collect();
        assert_eq!(found, [8, 9, 0, 9, 8]);
        assert!(told.iter().all(|event| event.event == "limit"));
        assert_eq!(told[4].connection.as_deref(), Some("3.1"));
        assert_eq!(told[3].connection, None);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (news, lost) = (News::default(), Arc::<AtomicU64>::default());
        let events = news.listen(Arc::clone(&lost));
        for bits in 1..=300 {
            news.limit(LimitOf::Path, "wwan0", Some(bits), 1500);
        }
        assert_eq!(events.len(), WAITING);
        assert_eq!(lost.load(Ordering::Relaxed), 300 - WAITING as u64);
    }

    #[test]
    fn limits_are_asked_once_a_second_at_most() {
        let held = |us| {
            vec![LimitReport {
                held_us: us,
                ..LimitReport::default()
            }]
        };
        let told = listened(|news| {
            assert_eq!(news.look(|| held(1)), Some(LOOK));
            let again = news.look(|| panic!("it is asked again at once"));
            assert!(again.is_some_and(|again| again <= LOOK));
        });
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].event, "limit_held");
    }
}
