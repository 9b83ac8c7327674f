//! The tasks that feed the stack: one for deadlines, two for each device.

use super::timer::AlarmWait;
use super::{Port, Shared};
use crate::device::{Inbound, Receive};
use manypath_stack::IfaceId;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
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
        receive: Box<dyn Receive>,
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

/// Serves deadlines, and pumps that were put off.
pub(super) async fn deadlines(shared: Arc<Shared>, wait: AlarmWait) {
    let alarms = async {
        while wait.wait().await.is_ok() {
            shared.session().on_alarm();
        }
    };
    let late = async {
        loop {
            shared.late.notified().await;
            shared.session().on_late();
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

/// Brings received batches to the stack. The system calls happen without the lock.
async fn feed(shared: Arc<Shared>, iface: IfaceId, mut receive: Box<dyn Receive>) {
    // An error means that the device is gone; its paths go down by netlink.
    while let Ok(count) = poll_fn(|cx| receive.poll_fill(cx)).await {
        let mut session = shared.session();
        let (now, elapsed) = (session.now(), session.now);
        let inner = session.inner();
        let mut back = false;
        for index in 0..count {
            match receive.frame(index) {
                Inbound::Packet { packet, meta } => {
                    inner.stack.handle_packet(now, iface, packet, meta);
                }
                Inbound::Neighbour(frame) => {
                    if let Some(port) = inner.ports.port(iface) {
                        port.transmit.set_now(elapsed);
                        back |= port.transmit.on_neighbour(frame);
                    }
                }
                Inbound::Ignored => {}
            }
        }
        if back {
            inner.stack.try_path_again(now, iface);
        }
        session.pump();
    }
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
        let mut session = shared.session();
        if let Some(port) = session.inner().ports.port(iface) {
            port.blocked = false;
        }
        session.pump();
    }
}
