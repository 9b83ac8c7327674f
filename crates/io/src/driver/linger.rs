//! What closed streams have still to deliver when nobody holds the stack any more. The runtime may be gone by then, or wait for just
//! this on its only thread, so packets and deadlines are served here without it.

use super::{Receiver, Shared};
use manypath_stack::{ConnState, IfaceId};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long nothing may be acknowledged.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(5);

/// A device that is served.
struct Served {
    iface: IfaceId,
    receive: Receiver,
    descriptor: OwnedFd,
}

/// What is still to be delivered.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Owed {
    conns: usize,
    bytes: u64,
}

impl Shared {
    /// Serves the stack until every peer has acknowledged what was written to it, at most for `limit`, and not longer than
    /// ten seconds without an acknowledgement. Blocks the thread.
    pub(crate) fn linger(&self, limit: Duration) {
        let began = Instant::now();
        let (mut owed, mut since) = (self.owed(), began);
        if owed.conns == 0 || limit.is_zero() {
            return;
        }
        let served = self.served();
        while owed.conns > 0 && !served.is_empty() {
            if began.elapsed() >= limit || since.elapsed() >= STANDSTILL {
                tracing::warn!(
                    connections = owed.conns,
                    bytes = owed.bytes,
                    "what was written last is lost: its peers did not acknowledge it in time"
                );
                return;
            }
            self.wait_for_frames(&served);
            for device in &served {
                self.take_batch(device);
            }
            self.serve_deadlines();
            let now = self.owed();
            if now != owed {
                (owed, since) = (now, Instant::now());
            }
        }
    }

    /// An aborted connection owes nothing, nor does one that was never accepted.
    fn owed(&self) -> Owed {
        let mut session = self.session();
        let stack = &session.inner().stack;
        let mut owed = Owed::default();
        for info in stack
            .conns()
            .into_iter()
            .filter_map(|id| stack.info(id).ok())
        {
            let closing = matches!(
                info.state,
                ConnState::FinWait1 | ConnState::Closing | ConnState::LastAck
            );
            if closing {
                owed.conns += 1;
                owed.bytes += info.bytes_written.saturating_sub(info.bytes_acked);
            }
        }
        owed
    }

    fn served(&self) -> Vec<Served> {
        let mut session = self.session();
        let ports = session.inner().ports.all.iter();
        let all: Vec<_> = ports
            .map(|port| (port.info.iface, port.receive.clone()))
            .collect();
        drop(session);
        let served = all.into_iter().filter_map(|(iface, receive)| {
            let descriptor = receive.lock().descriptor()?.try_clone_to_owned().ok()?;
            Some(Served {
                iface,
                receive,
                descriptor,
            })
        });
        served.collect()
    }

    /// Until frames are there, a deadline is near, or it is time to look again.
    fn wait_for_frames(&self, served: &[Served]) {
        let wait = {
            let mut session = self.session();
            let elapsed = session.elapsed();
            let deadline = session.inner().deadline();
            deadline.map_or(LOOK, |deadline| deadline.saturating_sub(elapsed).min(LOOK))
        };
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let mut watched: Vec<_> = served
            .iter()
            .map(|device| PollFd::new(&device.descriptor, PollFlags::IN))
            .collect();
        // Whatever it says, everything is looked at.
        let _ = poll(&mut watched, Some(&timeout));
    }

    fn take_batch(&self, device: &Served) {
        let mut receive = device.receive.lock();
        if let Ok(count) = receive.fill() {
            self.session().take_in(device.iface, &**receive, count);
        }
    }

    /// Also asks devices that were full again.
    fn serve_deadlines(&self) {
        let mut session = self.session();
        for port in &mut session.inner().ports.all {
            port.blocked = false;
        }
        session.on_alarm();
    }
}
