//! What a stream and its halves share: one connection of one stack.

use super::error;
use crate::host::Host;
use manypath_stack::ids::{ConnId, SubflowId};
use manypath_stack::{ConnInfo, ConnOptions, ConnState, ReadOutcome, StackError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::task::{Context as Cx, Poll};
use tokio::io::ReadBuf;

/// A connection that the application holds; dropping it closes the connection in order.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) host: Host,
    pub(crate) id: ConnId,
    options: Mutex<ConnOptions>,
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

    pub(crate) fn poll_read(&self, cx: &mut Cx<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        match inner.stack.read(now, self.id, out.initialize_unfilled()) {
            Ok(ReadOutcome::Data(count)) => {
                // Reading opens the window, which the peer may have to be told.
                session.pump();
                out.advance(count);
                Poll::Ready(Ok(()))
            }
            Ok(ReadOutcome::End) => Poll::Ready(Ok(())),
            Ok(ReadOutcome::Empty) => {
                let waiting = inner.wakers.conn(self.id);
                match waiting {
                    Some(waiting) => match waiting.closed {
                        None => {
                            waiting.read = Some(cx.waker().clone());
                            Poll::Pending
                        }
                        Some(cause) => Poll::Ready(error::of_close(cause).map_or(Ok(()), Err)),
                    },
                    None => Poll::Ready(Err(error::of_call(StackError::NoSuchHandle))),
                }
            }
            Err(e) => {
                let ended = Self::ended(inner.wakers.conn(self.id));
                Poll::Ready(Err(ended.unwrap_or_else(|| error::of_call(e))))
            }
        }
    }

    pub(crate) fn poll_write(&self, cx: &mut Cx<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        match inner.stack.write(now, self.id, bytes) {
            Ok(0) => {
                match inner.wakers.conn(self.id) {
                    Some(waiting) => match waiting.closed {
                        None => {
                            waiting.write = Some(cx.waker().clone());
                            Poll::Pending
                        }
                        Some(cause) => Poll::Ready(Err(error::of_close(cause)
                            .unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()))),
                    },
                    None => Poll::Ready(Err(error::of_call(StackError::NoSuchHandle))),
                }
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
        self.options
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_options(&self, change: impl FnOnce(&mut ConnOptions)) -> io::Result<()> {
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
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

impl Drop for Handle {
    fn drop(&mut self) {
        let mut session = self.host.shared().session();
        let now = session.now();
        let inner = session.inner();
        inner.wakers.forget(self.id);
        // After an abort the handle is gone already.
        let _ = inner.stack.close(now, self.id);
        session.pump();
    }
}
