//! Limits as time passes: quotas are counted, what is due is done, and the counts are kept.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use manypath_control::report::QuotaReport;
use manypath_control::wire::{EventReport, LimitOf};
use manypath_io::Host;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::limiter::Limiter;
use super::order::Refused;
use super::standing::Standing;
use super::store;

/// How often the clock is looked at where there are schedules.
const CLOCK: Duration = Duration::from_secs(1);

impl Limiter {
    /// Counts, acts and keeps, for as long as it is polled.
    pub(crate) async fn keep(self, host: Option<Host>) {
        loop {
            let changed = self.0.changed.notified();
            let wait = self.turn(host.as_ref());
            let due = self.known().books.take_unsaved(false);
            if let Some((file, text)) = due {
                let write = move || store::write(&file, &text);
                let written = tokio::task::spawn_blocking(write).await;
                let written = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
                self.known().books.saved(written);
            }
            match wait {
                // Whether it ended by a change or by the time makes no difference.
                Some(wait) => drop(timeout(wait, changed).await),
                None => changed.await,
            }
        }
    }

    /// Counts and acts once. `None`: nothing here depends on time.
    fn turn(&self, host: Option<&Host>) -> Option<Duration> {
        let now = Timestamp::now();
        let mut known = self.known();
        let carried = known.carried(host);
        let wait = known.books.look(&carried, now);
        let (turned, scheduled) = (known.books.take_turned(), known.has_schedules());
        let told = known.books.take_told(now);
        drop(known);
        for quota in told {
            self.0.news.quota(quota);
        }
        if turned || scheduled {
            self.act(host, now);
        }
        let look = self.0.news.look(|| self.reports(host));
        let asks = host.and_then(|host| self.ask_peers(host, Instant::now()));
        let waits = [wait, scheduled.then_some(CLOCK), look, asks];
        waits.into_iter().flatten().min()
    }

    /// What happens to limits from now on, for the control socket.
    pub(crate) fn listen(&self, lost: Arc<AtomicU64>) -> mpsc::Receiver<EventReport> {
        self.0.news.listen(lost)
    }

    /// Counts what was carried until now, and keeps it.
    pub(crate) fn close(&self, host: Option<&Host>) {
        self.turn(host);
        self.save_now();
    }

    fn save_now(&self) {
        let mut known = self.known();
        if let Some((file, text)) = known.books.take_unsaved(true) {
            let written = store::write(&file, &text);
            known.books.saved(written);
        }
    }

    /// Counts the quotas of a path or a class anew, which is kept before this returns.
    pub(crate) fn reset_quota(
        &self,
        host: Option<&Host>,
        of: LimitOf,
        name: &str,
    ) -> Result<(), Refused> {
        let mut known = self.known();
        if let Some(why) = known.books.kept_elsewhere() {
            return Err(("state", why));
        }
        let carried = known.carried(host);
        if !known.books.reset(of, name, &carried) {
            let of = of.name();
            return Err(("not_found", format!("no {of} {name} has a quota")));
        }
        let told = known.books.take_told(Timestamp::now());
        drop(known);
        for quota in told {
            self.0.news.quota(quota);
        }
        self.act(host, Timestamp::now());
        self.save_now();
        Ok(())
    }

    /// When each path of the configuration is used at present.
    pub(crate) fn standings(&self) -> Vec<Standing> {
        self.known().standings(Timestamp::now())
    }

    /// The quotas, and what was used of each.
    #[must_use]
    pub fn quotas(&self) -> Vec<QuotaReport> {
        self.known().books.reports(Timestamp::now())
    }
}
