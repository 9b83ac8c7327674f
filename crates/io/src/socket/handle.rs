//! What a stream and its halves share: one connection of one stack.

use super::gathered::Gathered;
use super::{Waiting, error};
use crate::host::Host;
use manypath_stack::ids::{ConnId, SubflowId};
use manypath_stack::{ConnInfo, ConnOptions, ConnState, ReadOutcome, Readiness, StackError};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Cx, Poll, Waker};
use std::time::Duration;
use tokio::io::ReadBuf;

/// Whether what is read is still there afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// No.
    Take,
    /// Yes.
    Peek,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept are settings, each changed as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that the application holds; dropping it closes the connection in order.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) host: Host,
    pub(crate) id: ConnId,
    options: Mutex<ConnOptions>,
    linger: Mutex<Option<Duration>>,
    error_taken: AtomicBool,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

impl Handle {
    pub(crate) fn new(host: Host, id: ConnId, options: ConnOptions) -> io::Result<Self> {
        let info = {
            let mut session = host.shared().session();
            let inner = session.inner();
            let info = inner.stack.info(id);
            match (&info, inner.wakers.conn(id)) {
                // It may have ended between its establishment and its acceptance; nobody was told then.
                (Ok(info), Some(waiting)) => waiting.closed = waiting.closed.or(info.closed),
                (Err(_), _) => inner.wakers.forget(id),
                (Ok(_), None) => {}
            }
            info
        }
        .map_err(error::of_call)?;
        Ok(Handle {
            host,
            id,
            options: Mutex::new(options),
            linger: Mutex::default(),
            error_taken: AtomicBool::new(false),
            local: info.local,
            remote: info.remote,
        })
    }

    pub(crate) fn info(&self) -> io::Result<ConnInfo> {
        let mut session = self.host.shared().session();
        let inner = session.inner();
        inner.stack.info(self.id).map_err(error::of_call)
    }

    /// The error that the end of the connection left, if it ended badly.
    fn ended(waiting: Option<&mut super::Waiting>) -> Option<io::Error> {
        waiting.and_then(|w| w.closed).and_then(error::of_close)
    }

    /// What a call gives that found nothing to do: it waits, where it brought a waker, or ends as the connection did.
    fn wait<T>(
        &self,
        waiting: Option<&mut Waiting>,
        place: fn(&mut Waiting) -> &mut Option<Waker>,
        waker: Option<&Waker>,
        finished: io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let Some(waiting) = waiting else {
            return Poll::Ready(Err(error::of_call(StackError::NoSuchHandle)));
        };
        match (waiting.closed, waker) {
            (Some(cause), _) => Poll::Ready(error::of_close(cause).map_or(finished, Err)),
            (None, Some(waker)) => {
                *place(waiting) = Some(waker.clone());
                Poll::Pending
            }
            (None, None) => Poll::Ready(Err(io::ErrorKind::WouldBlock.into())),
        }
    }

    /// Reads, or looks at what a read would give. `waker` is woken when there is something; without one the call does not wait.
    pub(crate) fn read(
        &self,
        waker: Option<&Waker>,
        out: &mut [u8],
        how: Reading,
    ) -> Poll<io::Result<usize>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        let read = match how {
            Reading::Take => inner.stack.read(now, self.id, out),
            Reading::Peek => inner.stack.peek(self.id, out),
        };
        match read {
            Ok(ReadOutcome::Data(count)) => {
                if how == Reading::Take {
                    // Reading opens the window, which the peer may have to be told.
                    session.pump();
                }
                Poll::Ready(Ok(count))
            }
            Ok(ReadOutcome::End) => Poll::Ready(Ok(0)),
            Ok(ReadOutcome::Empty) => {
                let waiting = inner.wakers.conn(self.id);
                self.wait(waiting, |waiting| &mut waiting.read, waker, Ok(0))
            }
            Err(e) => {
                let ended = Self::ended(inner.wakers.conn(self.id));
                Poll::Ready(Err(ended.unwrap_or_else(|| error::of_call(e))))
            }
        }
    }

    pub(crate) fn poll_read(&self, cx: &mut Cx<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = self.read(Some(cx.waker()), out.initialize_unfilled(), Reading::Take);
        read.map_ok(|count| out.advance(count))
    }

    /// Writes from several buffers, in order. `waker` is woken when there is room; without one the call does not wait.
    pub(crate) fn write(
        &self,
        waker: Option<&Waker>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total = parts.iter().map(|part| part.len()).sum();
        if total == 0 {
            return Poll::Ready(Ok(0));
        }
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        let mut gathered = Gathered::new(parts);
        let written = inner
            .stack
            .write_with(now, self.id, total, |place| gathered.fill(place));
        match written {
            Ok(0) => {
                let waiting = inner.wakers.conn(self.id);
                let finished = Err(io::ErrorKind::BrokenPipe.into());
                self.wait(waiting, |waiting| &mut waiting.write, waker, finished)
            }
            Ok(count) => {
                if inner.stack.may_gather_writes(self.id) {
                    session.pump_late();
                } else {
                    session.pump();
                }
                Poll::Ready(Ok(count))
            }
            Err(e) => {
                let ended = Self::ended(inner.wakers.conn(self.id));
                Poll::Ready(Err(ended.unwrap_or_else(|| error::of_call(e))))
            }
        }
    }

    /// Waits until a read, or a write, would do something. Any number of tasks may wait.
    pub(crate) async fn ready(&self, wanted: fn(Readiness) -> bool) -> io::Result<()> {
        loop {
            let ready = {
                let mut session = self.host.shared().session();
                let inner = session.inner();
                let state = inner.stack.readiness(self.id);
                let waiting = inner.wakers.conn(self.id);
                let (Ok(state), Some(waiting)) = (state, waiting) else {
                    return Err(error::of_call(StackError::NoSuchHandle));
                };
                if wanted(state) || waiting.closed.is_some() {
                    return Ok(());
                }
                // Under the lock, so that no event falls between the look and the wait.
                let ready = Arc::clone(waiting.ready.get_or_insert_default());
                ready.notified_owned()
            };
            ready.await;
        }
    }

    /// Why the connection ended, if it ended badly; said once.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        let mut session = self.host.shared().session();
        let error = Self::ended(session.inner().wakers.conn(self.id))?;
        let taken = self.error_taken.swap(true, Ordering::Relaxed);
        (!taken).then_some(error)
    }

    /// How long what was written may take to be acknowledged once nobody holds the connection; zero resets it, `None` sets no limit.
    pub(crate) fn set_linger(&self, limit: Option<Duration>) {
        *lock(&self.linger) = limit;
    }

    pub(crate) fn linger(&self) -> Option<Duration> {
        *lock(&self.linger)
    }

    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        self.act(|stack, now, id| stack.shutdown_write(now, id))
    }

    /// Until the peer has acknowledged everything, our end of stream included. What it says meanwhile is read and dropped, so that it
    /// is not kept from reading by writes of its own that do not fit.
    pub(crate) fn poll_close(&self, cx: &mut Cx<'_>) -> Poll<io::Result<()>> {
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        let mut waste = [0; 4096];
        while let Ok(ReadOutcome::Data(_)) = inner.stack.read(now, self.id, &mut waste) {}
        let state = inner.stack.info(self.id).map(|info| info.state);
        let done = matches!(state, Ok(ConnState::FinWait2 | ConnState::TimeWait));
        let result = match inner.wakers.conn(self.id) {
            _ if done => Poll::Ready(Ok(())),
            None => Poll::Ready(Err(error::of_call(StackError::NoSuchHandle))),
            Some(waiting) => match waiting.closed {
                Some(cause) => Poll::Ready(error::of_close(cause).map_or(Ok(()), Err)),
                None => {
                    waiting.read = Some(cx.waker().clone());
                    waiting.close = Some(cx.waker().clone());
                    Poll::Pending
                }
            },
        };
        // Reading opens the window, which the peer may have to be told.
        session.pump();
        result
    }

    /// Bytes that the peer has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.info().map_or(0, |info| info.bytes_acked)
    }

    pub(crate) fn abort(&self) -> io::Result<()> {
        self.act(|stack, now, id| stack.abort(now, id))
    }

    /// Does something with the connection and pumps.
    pub(crate) fn act<R>(
        &self,
        f: impl FnOnce(
            &mut manypath_stack::Stack,
            manypath_tcp::time::Instant,
            ConnId,
        ) -> Result<R, StackError>,
    ) -> io::Result<R> {
        let shared = self.host.shared();
        let result = shared.act(|stack, now| f(stack, now, self.id));
        result.map_err(error::of_call)
    }

    pub(crate) fn options(&self) -> ConnOptions {
        lock(&self.options).clone()
    }

    pub(crate) fn set_options(&self, change: impl FnOnce(&mut ConnOptions)) -> io::Result<()> {
        let mut options = lock(&self.options);
        let mut wanted = options.clone();
        change(&mut wanted);
        self.act(|stack, now, id| stack.set_options(now, id, &wanted))?;
        *options = wanted;
        Ok(())
    }

    pub(crate) fn add_subflow(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        backup: bool,
    ) -> io::Result<SubflowId> {
        self.act(|stack, now, id| stack.create_subflow(now, id, local, remote, backup))
    }
}

/// Waits for the peer to acknowledge everything, for `limit` at most, and resets the connection then.
async fn end_within(handle: Handle, limit: Duration) {
    // Why a connection that is over ended does not matter any more.
    let _ = handle.shutdown_write();
    let closing = poll_fn(|cx| handle.poll_close(cx));
    if tokio::time::timeout(limit, closing).await.is_err() {
        let _ = handle.abort();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        match (self.linger(), tokio::runtime::Handle::try_current()) {
            (Some(Duration::ZERO), _) => {
                // It may be over already.
                let _ = self.abort();
            }
            (Some(limit), Ok(runtime)) => {
                runtime.spawn(end_within(
                    Handle {
                        host: self.host.clone(),
                        id: self.id,
                        options: Mutex::new(self.options()),
                        linger: Mutex::default(),
                        error_taken: AtomicBool::new(true),
                        local: self.local,
                        remote: self.remote,
                    },
                    limit,
                ));
                return;
            }
            (Some(_), Err(_)) | (None, _) => {}
        }
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        inner.wakers.forget(self.id);
        // After an abort the handle is gone already.
        let _ = inner.stack.close(now, self.id);
        session.pump();
    }
}
