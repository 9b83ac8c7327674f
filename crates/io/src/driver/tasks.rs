//! The tasks that feed the stack: one for deadlines, two for each device.

use super::timer::AlarmWait;
use super::{Port, Receiver, Shared};
use manypath_stack::IfaceId;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The tasks of one device. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct DeviceTasks {
    /// The device they serve.
    pub(crate) iface: IfaceId,
    tasks: [JoinHandle<()>; 2],
}

impl DeviceTasks {
    pub(super) fn start(
        shared: &Arc<Shared>,
        iface: IfaceId,
        receive: Receiver,
        full: Arc<Notify>,
    ) -> Self {
        DeviceTasks {
            iface,
            tasks: [
                tokio::spawn(feed(Arc::clone(shared), iface, receive)),
                tokio::spawn(unblock(Arc::clone(shared), iface, full)),
            ],
        }
    }
}

impl Drop for DeviceTasks {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Does something with the stack that applications' own schedulers, congestion controls and controllers take part in. A panic is
/// theirs, or a bug of ours: it has been told on standard error, and ends what was being done, not the task, without which no
/// connection of the host would go on.
fn survive(shared: &Shared, act: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(act)).is_err() {
        tracing::error!("the stack goes on after a panic, see above; a connection may not");
        // What it had begun is pumped. Where that panics again, nothing more can be done until something else happens.
        let _ = catch_unwind(AssertUnwindSafe(|| shared.session().pump()));
    }
}

/// Serves deadlines, and pumps that were put off.
pub(super) async fn deadlines(shared: Arc<Shared>, wait: AlarmWait) {
    let alarms = async {
        while wait.wait().await.is_ok() {
            survive(&shared, || shared.session().on_alarm());
        }
    };
    let late = async {
        loop {
            shared.late.notified().await;
            survive(&shared, || shared.session().on_late());
        }
    };
    let (mut alarms, mut late) = (pin!(alarms), pin!(late));
    poll_fn(|cx| {
        // It never ends by itself.
        let _: Poll<()> = late.as_mut().poll(cx);
        alarms.as_mut().poll(cx)
    })
    .await;
}

/// Brings received batches to the stack. The system calls happen without the stack's lock.
async fn feed(shared: Arc<Shared>, iface: IfaceId, receive: Receiver) {
    // An error means that the device is gone; its paths go down by netlink.
    let batch = |cx: &mut Context<'_>| -> Poll<io::Result<()>> {
        let mut receive = receive.lock();
        let count = ready!(receive.poll_fill(cx))?;
        survive(&shared, || {
            shared.session().take_in(iface, &**receive, count);
        });
        Poll::Ready(Ok(()))
    };
    while poll_fn(batch).await.is_ok() {}
}

/// Waits for a full device to take packets again. Apart from the receiving task, because acknowledgements must be heard meanwhile.
async fn unblock(shared: Arc<Shared>, iface: IfaceId, full: Arc<Notify>) {
    loop {
        full.notified().await;
        poll_fn(|cx| match shared.session().inner().ports.port(iface) {
            Some(Port { transmit, .. }) => transmit.poll_writable(cx),
            None => Poll::Ready(()),
        })
        .await;
        survive(&shared, || {
            let mut session = shared.session();
            if let Some(port) = session.inner().ports.port(iface) {
                port.blocked = false;
            }
            session.pump();
        });
    }
}
