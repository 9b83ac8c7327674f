//! What waits to be written to the clients of a control socket, each one's own and all of it together.
//!
//! A reader may be slow, hostile or stopped. What waits for it has a bound, and so has what waits for all of them: beyond it
//! events are counted instead of kept, and each reader is told how many it did not get.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;

use crate::wire::{Answer, EventReport, Filter};

/// Bytes of lines that may wait for a reader; events beyond them are left out and counted.
const MOST_QUEUED: usize = 16 << 20;
/// Bytes of lines that may wait for all readers together. Lines that wait for several count once.
const MOST_IN_ALL: usize = 64 << 20;
/// Bytes that may wait for a reader even then.
const ALWAYS: usize = 64 << 10;
/// Bytes that wait for all readers together beyond which `list` is refused.
const MOST_REPLIES: usize = 256 << 20;
/// Bytes of waiting lines beyond which samples are left out.
const SAMPLES_UNTIL: usize = 256 << 10;
/// Bytes of waiting lines beyond which no more requests of that reader are served.
const REPLIES_UNTIL: usize = 1 << 20;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is never left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes lines, and knows how many bytes of them are held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<AtomicUsize>);

/// A line, which several readers may wait for.
#[derive(Debug)]
pub(crate) struct Line {
    text: Box<str>,
    held: Arc<AtomicUsize>,
}

impl Store {
    fn line(&self, text: String) -> Arc<Line> {
        self.0.fetch_add(text.len(), Ordering::Relaxed);
        Arc::new(Line {
            text: text.into(),
            held: Arc::clone(&self.0),
        })
    }

    /// The line of an event.
    pub(crate) fn event(&self, event: &EventReport) -> Arc<Line> {
        // Plain data of ours always has a JSON form.
        self.line(serde_json::to_string(event).unwrap_or_default() + "\n")
    }

    fn held(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.held.fetch_sub(self.text.len(), Ordering::Relaxed);
    }
}

/// Whether one more event may wait for a reader for whom so many bytes wait, of so many in all.
fn may_wait(own: usize, all: usize) -> bool {
    own < ALWAYS || (own < MOST_QUEUED && all < MOST_IN_ALL)
}

/// The way to one client, and what waits to be written to it.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The process at the other end.
    pub(crate) pid: Option<u32>,
    store: Store,
    queue: Mutex<Queue>,
    /// The session's own task writes what does not go at once.
    pub(crate) write: OwnedWriteHalf,
    /// There is something to write, or it is over.
    pub(crate) ready: Notify,
    /// Lines were written.
    pub(crate) written: Notify,
    /// The subscription changed.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    lines: VecDeque<Arc<Line>>,
    bytes: usize,
    /// Lines that were taken are still being written: whatever comes now comes after them.
    taken: bool,
    /// It is over when everything is written.
    finishing: bool,
    filter: Option<Filter>,
    lost: Lost,
}

/// What a reader did not get and was not told of yet, up to which event.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    samples: u64,
    events: u64,
    seq: u64,
    at_us: u64,
}

impl Lost {
    /// The event that tells it.
    fn told(self) -> Option<EventReport> {
        (self.samples + self.events > 0).then(|| EventReport {
            event: "lost".to_owned(),
            seq: self.seq,
            at_us: self.at_us,
            samples: (self.samples > 0).then_some(self.samples),
            events: (self.events > 0).then_some(self.events),
            ..EventReport::default()
        })
    }
}

impl Queue {
    fn push(&mut self, line: Arc<Line>) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
    }

    /// Tells what was lost before anything else is told.
    fn tell_lost(&mut self, store: &Store) {
        if let Some(told) = std::mem::take(&mut self.lost).told() {
            self.push(store.event(&told));
        }
    }
}

/// Lines that are being written.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    text: Vec<u8>,
    /// A long one, which counts as held until it is written.
    line: Option<Arc<Line>>,
}

impl Batch {
    pub(crate) fn bytes(&self) -> &[u8] {
        let line = self.line.as_ref();
        line.map_or(&self.text, |line| line.text.as_bytes())
    }
}

/// When a line is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// By whoever has it, without waking anybody in between: a controller waits for it.
    AtOnce,
    /// Together with those that follow.
    Together,
}

impl Outbox {
    pub(crate) fn new(write: OwnedWriteHalf, store: Store) -> Self {
        let peer = write.as_ref().peer_cred().ok();
        let pid = peer.and_then(|peer| u32::try_from(peer.pid()?).ok());
        Self {
            pid,
            store,
            queue: Mutex::default(),
            write,
            ready: Notify::new(),
            written: Notify::new(),
            changed: Notify::new(),
        }
    }

    /// Whether an event may wait; one that may not is counted, and told of before the next one.
    pub(crate) fn has_room(&self, event: &EventReport) -> bool {
        let mut queue = lock(&self.queue);
        if may_wait(queue.bytes, self.store.held()) {
            return true;
        }
        let lost = &mut queue.lost;
        lost.events += 1;
        (lost.seq, lost.at_us) = (event.seq, event.at_us);
        false
    }

    pub(crate) fn push(&self, line: &Arc<Line>, pace: Pace) {
        let mut queue = lock(&self.queue);
        queue.tell_lost(&self.store);
        let mut rest = Arc::clone(line);
        if pace == Pace::AtOnce && queue.lines.is_empty() && !queue.taken {
            // The session's task finds out about whatever does not go well here.
            let written = self.write.try_write(line.text.as_bytes()).unwrap_or(0);
            if written == line.text.len() {
                return;
            }
            rest = self.store.line(line.text[written..].to_owned());
        }
        queue.push(rest);
        drop(queue);
        self.ready.notify_one();
    }

    /// Adds a reply.
    pub(crate) fn reply(&self, answer: &Answer) {
        if let Ok(text) = serde_json::to_string(answer) {
            lock(&self.queue).push(self.store.line(text + "\n"));
            self.ready.notify_one();
        }
    }

    /// Adds a sample unless the reader is slow; it is told of what is left out before the next one.
    pub(crate) fn sample(&self, event: EventReport) {
        let mut queue = lock(&self.queue);
        (queue.lost.seq, queue.lost.at_us) = (event.seq, event.at_us);
        if queue.bytes > SAMPLES_UNTIL || !may_wait(queue.bytes, self.store.held()) {
            queue.lost.samples += 1;
            return;
        }
        queue.tell_lost(&self.store);
        queue.push(self.store.event(&event));
        drop(queue);
        self.ready.notify_one();
    }

    /// There is room for samples.
    pub(crate) fn takes_samples(&self) -> bool {
        lock(&self.queue).bytes <= SAMPLES_UNTIL
    }

    /// Samples that were not even taken.
    pub(crate) fn miss(&self, samples: u64) {
        lock(&self.queue).lost.samples += samples;
    }

    /// Takes the lines that wait, up to this many bytes, or one longer line.
    pub(crate) fn take(&self, most: usize) -> Batch {
        let mut queue = lock(&self.queue);
        if queue.lines.is_empty() && queue.lost.events > 0 {
            // Nothing else may happen for a long time.
            queue.tell_lost(&self.store);
        }
        // Who takes has written what was taken before.
        queue.taken = !queue.lines.is_empty();
        let mut batch = Batch::default();
        while let Some(line) = queue.lines.front() {
            let length = line.text.len();
            if !batch.text.is_empty() && batch.text.len() + length > most {
                break;
            }
            let Some(line) = queue.lines.pop_front() else {
                break;
            };
            queue.bytes -= length;
            if length > most {
                batch.line = Some(line);
                break;
            }
            batch.text.extend_from_slice(line.text.as_bytes());
        }
        batch
    }

    /// So much waits that no more requests are to be served.
    pub(crate) fn is_crowded(&self) -> bool {
        let queue = lock(&self.queue);
        queue.bytes > REPLIES_UNTIL || (queue.bytes > 0 && self.store.held() > MOST_IN_ALL)
    }

    /// So much waits for all clients together that no long replies are to be added.
    pub(crate) fn is_flooded(&self) -> bool {
        self.store.held() > MOST_REPLIES
    }

    /// How often it wants samples, and of which connection.
    pub(crate) fn sampling(&self) -> Option<(u64, Option<String>)> {
        let queue = lock(&self.queue);
        let filter = queue.filter.as_ref()?;
        filter
            .sample_ms
            .map(|ms| (ms.max(10), filter.connection.clone()))
    }

    /// What it wants to hear from now on.
    pub(crate) fn subscribe(&self, filter: Option<Filter>) {
        lock(&self.queue).filter = filter;
        self.changed.notify_one();
    }

    /// Nothing more will be asked.
    pub(crate) fn finish(&self) {
        lock(&self.queue).finishing = true;
        self.ready.notify_one();
    }

    pub(crate) fn is_finishing(&self) -> bool {
        lock(&self.queue).finishing
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        lock(&self.queue).filter.is_some()
    }

    pub(crate) fn wants(&self, event: &EventReport) -> Option<Form> {
        let queue = lock(&self.queue);
        let filter = queue.filter.as_ref()?;
        // Whoever acts causes decisions: they are for those who ask for them.
        let by_default = filter.events.is_empty() && event.event != "decision";
        let named = by_default || filter.events.contains(&event.event);
        let concerns = match (&filter.connection, &event.connection) {
            (Some(wanted), Some(this)) => wanted == this,
            // Addresses of the host concern every connection.
            (None, _) | (Some(_), None) => true,
        };
        let form = match (filter.with_view, filter.with_sample) {
            (true, _) => Form::WithView,
            (false, true) => Form::WithSample,
            (false, false) => Form::Short,
        };
        (named && concerns).then_some(form)
    }
}

/// How a subscriber wants its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// What happened.
    Short,
    /// And the connection as it is then.
    WithSample,
    /// And what controllers see of it.
    WithView,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_for_each_and_for_all() {
        // (of this reader, of all, whether one more may wait)
        for (own, all, may) in [
            (0, 0, true),
            (MOST_QUEUED - 1, MOST_QUEUED, true),
            (MOST_QUEUED, MOST_QUEUED, false),
            (ALWAYS, MOST_IN_ALL, false),
            (ALWAYS - 1, MOST_IN_ALL, true),
            (0, usize::MAX, true),
        ] {
            assert_eq!(may_wait(own, all), may, "{own} of {all}");
        }
    }

    #[test]
    fn a_line_that_several_wait_for_counts_once() {
        let store = Store::default();
        let line = store.line("x".repeat(100));
        let other = Arc::clone(&line);
        assert_eq!(store.held(), 100);
        drop(line);
        assert_eq!(store.held(), 100);
        drop(other);
        assert_eq!(store.held(), 0);
    }
}
