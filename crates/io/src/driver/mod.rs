//! The event loop: one stack, its devices, and those who wait.
//!
//! Owns the lock. Whoever acts on the stack (an application's call, a batch of received packets, the alarm) does so under
//! it and *pumps* before leaving: packets go out, events are told, the alarm is set. So a write reaches the kernel in the
//! writer's own thread, without waking anybody. The simulator's loop is the same few lines over the same calls.

mod clock;
mod linger;
mod tasks;
mod timer;
mod traffic;
mod wakers;

use crate::device::{
    Device, DeviceCounters, DeviceInfo, Inbound, Receive, Transmit as DeviceTransmit,
};
use crate::race::memory::Memory;
use clock::{Clock, instant, since_start};
use manypath_stack::ids::ConnId;
use manypath_stack::{
    ConnState, Event, EventKind, Gather, IfaceId, Path, PathEvent, RateLimit, RxMeta, Slots, Stack,
    StackConfig, Transmit, TxMeta,
};
use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::icmp::{self, Complaint};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub(crate) use tasks::DeviceTasks;
use tokio::sync::{Notify, broadcast, mpsc};
pub use traffic::Traffic;
pub(crate) use wakers::Waiting;
use wakers::{Wakers, Woken};

/// Events kept for a subscriber that is slow.
const EVENTS: usize = 4096;

/// Events kept for a controller that has not looked at them; memory is taken as they come.
const WATCHED: usize = 1 << 17;

/// The receive half of a device. Its lock comes before the stack's.
#[derive(Clone)]
struct Receiver(Arc<Mutex<Box<dyn Receive>>>);

impl Receiver {
    fn lock(&self) -> MutexGuard<'_, Box<dyn Receive>> {
        // The next batch begins anew, whatever a panic left of the last one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One device.
struct Port {
    info: DeviceInfo,
    transmit: Box<dyn DeviceTransmit>,
    receive: Receiver,
    /// Tells the device's own task that the device is full.
    full: Arc<Notify>,
    blocked: bool,
    traffic: Traffic,
}

/// All devices, as the stack sees them.
#[derive(Default)]
struct Ports {
    all: Vec<Port>,
    /// Where packets go whose interface is gone. A device that is full makes its packets wait; one that is gone would make
    /// them wait for ever, with the subflows that want to end there and with every answer that stands behind them.
    nowhere: Vec<u8>,
    /// What interfaces carried whose devices are gone.
    gone: traffic::Gone,
}

impl Ports {
    fn port(&mut self, iface: IfaceId) -> Option<&mut Port> {
        self.all.iter_mut().find(|p| p.info.iface == iface)
    }

    /// Removes a device; what it carried is remembered.
    fn remove(&mut self, iface: IfaceId) {
        for port in self.all.extract_if(.., |p| p.info.iface == iface) {
            self.gone.add(&port.info.name, port.traffic);
        }
    }

    fn all_blocked(&self) -> bool {
        !self.all.is_empty() && self.all.iter().all(|p| p.blocked)
    }

    /// Nothing came back for what was sent between these addresses. A device that does not have the first one does nothing.
    fn doubt(&mut self, src: IpAddr, dst: IpAddr) {
        for port in &mut self.all {
            port.transmit.doubt(src, dst);
        }
    }

    /// Hands everything to the kernel; whatever does not fit waits for its device's task.
    fn flush(&mut self) {
        for port in &mut self.all {
            let done = port.transmit.flush();
            if !done && !port.blocked {
                port.blocked = true;
                port.full.notify_one();
            }
        }
    }
}

impl Slots for Ports {
    fn slot(&mut self, iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        match self.all.iter().position(|p| p.info.iface == iface) {
            Some(i) => self.all[i].transmit.slot(room),
            None => {
                self.nowhere.resize(room, 0);
                Some(&mut self.nowhere)
            }
        }
    }

    fn commit(&mut self, iface: IfaceId, meta: TxMeta) {
        if let Some(port) = self.port(iface) {
            port.traffic.sent += meta.wire_bytes();
            port.transmit.commit(meta);
        }
    }

    fn gathers(&self, iface: IfaceId) -> bool {
        let port = self.all.iter().find(|p| p.info.iface == iface);
        port.is_some_and(|p| p.transmit.gathers())
    }

    fn gather(
        &mut self,
        iface: IfaceId,
        meta: TxMeta,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) -> Gather {
        match self.port(iface) {
            Some(port) => {
                let done = port.transmit.gather(meta, headers, payload);
                if done == Gather::Taken {
                    port.traffic.sent += meta.wire_bytes();
                }
                done
            }
            None => Gather::Declined,
        }
    }
}

/// Everything under the lock.
pub(crate) struct Inner {
    /// The stack. Pump after acting on it.
    pub(crate) stack: Stack,
    pub(crate) wakers: Wakers,
    /// Which paths and addresses answered lately.
    pub(crate) memory: Memory,
    ports: Ports,
    alarm: timer::Alarm,
    /// Something was written and not yet sent; the task that serves deadlines knows.
    late: bool,
    events: broadcast::Sender<Event>,
    /// Controllers of paths, who get only what concerns them.
    watchers: Vec<Watcher>,
}

impl Inner {
    /// The name of an interface that has a device here.
    pub(crate) fn iface_name(&self, iface: IfaceId) -> Option<&str> {
        let port = self.ports.all.iter().find(|p| p.info.iface == iface);
        port.map(|p| p.info.name.as_str())
    }
}

/// A controller of paths, and how many events it did not get because it was too slow.
struct Watcher {
    events: mpsc::Sender<Event>,
    lost: Arc<AtomicU64>,
}

/// The stack and its devices, shared by all who act on them.
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    clock: Clock,
    /// Rings when a pump was put off.
    late: Notify,
    /// Rings at the next change of the stack after somebody wanted to know whether it is idle.
    idle: Notify,
    wanted_idle: AtomicBool,
}

/// The lock, held.
pub(crate) struct Session<'a> {
    guard: MutexGuard<'a, Inner>,
    shared: &'a Shared,
    now: Duration,
}

impl Shared {
    /// A stack without devices, and the task that serves its deadlines. Must be called within a runtime.
    ///
    /// # Errors
    /// Those of the timer and of the system's random numbers.
    pub(crate) fn new(
        config: StackConfig,
        seed: Option<[u8; 32]>,
    ) -> io::Result<(Arc<Self>, tokio::task::JoinHandle<()>)> {
        let seed = match seed {
            Some(seed) => seed,
            None => random_seed()?,
        };
        let (alarm, wait) = timer::alarm()?;
        let clock = Clock::new();
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner {
                stack: Stack::new(config, seed, clock.now()),
                wakers: Wakers::default(),
                memory: Memory::default(),
                ports: Ports::default(),
                alarm,
                late: false,
                events: broadcast::Sender::new(EVENTS),
                watchers: Vec::new(),
            }),
            clock,
            late: Notify::new(),
            idle: Notify::new(),
            wanted_idle: AtomicBool::new(false),
        });
        let task = tokio::spawn(tasks::deadlines(Arc::clone(&shared), wait));
        Ok((shared, task))
    }

    /// Locks the stack to act on it. The caller ends with [`Session::pump`], except after mere looking.
    pub(crate) fn session(&self) -> Session<'_> {
        // The stack is never left half changed by a panic of ours: a panic inside it is a bug that the next call reports
        // again, while refusing every later call would hide it.
        let guard = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Session {
            guard,
            shared: self,
            now: self.clock.elapsed(),
        }
    }

    /// Does something with the stack, and what follows from it. Never with a closure of an application: one that used a stream in it
    /// would wait for itself.
    pub(crate) fn act<R>(&self, f: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        let mut session = self.session();
        let now = session.now();
        let result = f(&mut session.inner().stack, now);
        session.pump();
        result
    }

    /// Adds a device and starts the tasks that serve it.
    pub(crate) fn attach(self: &Arc<Self>, device: Device) -> tasks::DeviceTasks {
        let Device {
            info,
            receive,
            transmit,
        } = device;
        let iface = info.iface;
        let full = Arc::new(Notify::new());
        let receive = Receiver(Arc::new(Mutex::new(receive)));
        let mut session = self.session();
        session.guard.ports.remove(iface);
        session.guard.ports.all.push(Port {
            info,
            transmit,
            receive: receive.clone(),
            full: Arc::clone(&full),
            blocked: false,
            traffic: Traffic::default(),
        });
        session.pump();
        tasks::DeviceTasks::start(self, iface, receive, full)
    }

    /// Removes a device; the caller stops its tasks.
    pub(crate) fn detach(&self, iface: IfaceId) {
        self.session().guard.ports.remove(iface);
    }

    /// Tells the stack of a path.
    pub(crate) fn path_event(&self, event: PathEvent) {
        let mut session = self.session();
        let now = session.now();
        let (PathEvent::Up(Path { addr, .. })
        | PathEvent::Passive(Path { addr, .. })
        | PathEvent::Stalled { addr, .. }
        | PathEvent::Down { addr, .. }) = event;
        // Whatever was wrong with it may be over.
        session.guard.memory.works(addr);
        session.guard.stack.handle_path_event(now, event);
        session.pump();
    }

    /// What leaves by an interface has this limit from now on.
    pub(crate) fn limit_path(&self, iface: IfaceId, limit: RateLimit) {
        let mut session = self.session();
        let now = session.now();
        session.guard.stack.limit_path(now, iface, Some(limit));
    }

    /// An interface has another name now.
    pub(crate) fn rename(&self, iface: IfaceId, name: &str) {
        if let Some(port) = self.session().inner().ports.port(iface) {
            name.clone_into(&mut port.info.name);
        }
    }

    /// Puts the stack's paths in this order.
    pub(crate) fn order_paths(&self, order: &[(IfaceId, IpAddr)]) {
        self.session().inner().stack.order_paths(order);
    }

    /// The host is on networks with these broadcast addresses.
    pub(crate) fn set_broadcasts(&self, addresses: Vec<Ipv4Addr>) {
        self.session().inner().stack.set_broadcasts(addresses);
    }

    /// Does something with a device's transmit half.
    pub(crate) fn with_transmit<R>(
        &self,
        iface: IfaceId,
        f: impl FnOnce(&mut dyn DeviceTransmit) -> R,
    ) -> Option<R> {
        let mut session = self.session();
        let now = session.now;
        let result = session.guard.ports.port(iface).map(|p| {
            p.transmit.set_now(now);
            f(&mut *p.transmit)
        });
        session.pump();
        result
    }

    /// What the devices are and did.
    pub(crate) fn devices(&self) -> Vec<(DeviceInfo, DeviceCounters)> {
        let mut session = self.session();
        let ports = &mut session.guard.ports.all;
        ports
            .iter_mut()
            .map(|p| (p.info.clone(), p.transmit.counters()))
            .collect()
    }

    /// What each interface has carried since the start, by its name.
    pub(crate) fn traffic(&self) -> BTreeMap<String, Traffic> {
        let session = self.session();
        let ports = &session.guard.ports;
        let there = ports.all.iter().map(|p| (p.info.name.as_str(), p.traffic));
        ports.gone.with(there)
    }

    /// Routers that do not answer, with the interface's name.
    pub(crate) fn silent_gateways(&self) -> Vec<(String, IpAddr)> {
        let session = self.session();
        let ports = session.guard.ports.all.iter();
        let of = |port: &Port| {
            let name = port.info.name.clone();
            let silent = port.transmit.silent_gateways().into_iter();
            silent.map(move |gateway| (name.clone(), gateway))
        };
        ports.flat_map(of).collect()
    }

    /// Waits until no connection owes its peer anything, and none is held that is not over at both ends. Subflows that still finish,
    /// on a path that died perhaps, are nobody's concern.
    pub(crate) async fn wait_idle(&self) {
        loop {
            let changed = self.idle.notified();
            self.wanted_idle.store(true, Ordering::Relaxed);
            if self.session().inner().is_idle() {
                return;
            }
            changed.await;
        }
    }

    /// All events for controllers of paths from now on, and the count of those that did not fit.
    pub(crate) fn watch(&self) -> (mpsc::Receiver<Event>, Arc<AtomicU64>) {
        let (events, receiver) = mpsc::channel(WATCHED);
        let lost = Arc::new(AtomicU64::new(0));
        let mut session = self.session();
        session.guard.watchers.retain(|w| !w.events.is_closed());
        session.guard.watchers.push(Watcher {
            events,
            lost: Arc::clone(&lost),
        });
        (receiver, lost)
    }

    /// All events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.session().guard.events.subscribe()
    }
}

impl Inner {
    fn is_idle(&mut self) -> bool {
        let all = self.stack.conns().into_iter();
        let mut states = all.filter_map(|id| Some((id, self.stack.info(id).ok()?.state)));
        states.all(|(id, state)| match state {
            ConnState::TimeWait | ConnState::FastCloseWait | ConnState::Closed => true,
            // Our end is acknowledged, and nobody reads what the peer may still say.
            ConnState::FinWait2 => !self.wakers.follows(id),
            ConnState::Opening
            | ConnState::Established
            | ConnState::FinWait1
            | ConnState::CloseWait
            | ConnState::LastAck
            | ConnState::Closing => false,
        })
    }

    /// When something is due next, since the driver's start.
    fn deadline(&mut self) -> Option<Duration> {
        let stack = self.stack.poll_deadline().map(since_start);
        let devices = self.ports.all.iter().filter_map(|p| p.transmit.deadline());
        stack.into_iter().chain(devices).min()
    }

    fn learn_round_trip(&mut self, now: Duration, id: ConnId, local: IpAddr, remote: IpAddr) {
        let Ok(info) = self.stack.info(id) else {
            return;
        };
        let fits = |tuple: &FourTuple| tuple.local.ip() == local && tuple.remote.ip() == remote;
        if let Some(subflow) = info.subflows.iter().find(|s| fits(&s.tuple))
            && subflow.tcp.srtt.is_some()
        {
            let rto = Duration::from_micros(subflow.tcp.rto.as_micros());
            self.memory.measured(now, local, remote, rto);
        }
    }
}

impl Session<'_> {
    /// The stack's now.
    pub(crate) fn now(&self) -> Instant {
        instant(self.now)
    }

    /// The same since the driver's start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now
    }

    /// Remembers the retransmission time-out of the path to a peer that a connection has just measured.
    pub(crate) fn learn_round_trip(&mut self, id: ConnId, local: IpAddr, remote: IpAddr) {
        let now = self.now;
        let inner = self.inner();
        inner.learn_round_trip(now, id, local, remote);
    }

    /// The stack and those who wait.
    pub(crate) fn inner(&mut self) -> &mut Inner {
        &mut self.guard
    }

    /// Ends like [`Session::pump`], but as soon as the tasks that are running now have had their turn: an application
    /// that goes on writing meanwhile sends everything in one train.
    pub(crate) fn pump_late(mut self) {
        if !core::mem::replace(&mut self.guard.late, true) {
            self.shared.late.notify_one();
        }
    }

    /// Makes up for a pump that was put off, unless somebody has pumped since.
    fn on_late(self) {
        if self.guard.late {
            self.pump();
        }
    }

    /// Sends what may be sent, tells events, sets the alarm, unlocks, and wakes whom the events concern.
    pub(crate) fn pump(mut self) {
        let mut woken = Woken::default();
        let now = self.now();
        let elapsed = self.now;
        let inner = &mut *self.guard;
        inner.late = false;
        for port in &mut inner.ports.all {
            port.transmit.set_now(elapsed);
        }
        // A full device's own task calls again; until then asking every connection in vain would cost a look at each.
        while !inner.ports.all_blocked() {
            match inner.stack.poll_transmit(now, &mut inner.ports) {
                Transmit::Sent(_) => {}
                Transmit::Blocked(iface) => {
                    if let Some(port) = inner.ports.port(iface) {
                        if !port.blocked {
                            port.blocked = true;
                            port.full.notify_one();
                        }
                    }
                    break;
                }
                Transmit::Nothing => break,
            }
        }
        inner.ports.flush();
        while let Some(event) = inner.stack.poll_event() {
            if let EventKind::Timeout { tuple, .. } = event.kind {
                inner.ports.doubt(tuple.local.ip(), tuple.remote.ip());
            }
            inner.wakers.on_event(&event, &mut woken);
            if let (EventKind::SubflowUp { tuple, .. }, Some(id)) = (event.kind, event.conn) {
                // A path that was held not to work may only be slow: then the next SYN on it is given more time.
                if inner.memory.works(tuple.local.ip()) {
                    inner.learn_round_trip(elapsed, id, tuple.local.ip(), tuple.remote.ip());
                }
            }
            if inner.events.receiver_count() != 0 {
                // Nobody left to tell is no error.
                let _ = inner.events.send(event);
            }
            if event.kind.name().is_some() {
                for watcher in &inner.watchers {
                    if let Err(mpsc::error::TrySendError::Full(_)) = watcher.events.try_send(event)
                    {
                        watcher.lost.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
        let deadline = inner.deadline();
        // The clock has moved on while we worked; the alarm counts from now.
        let elapsed = self.shared.clock.elapsed();
        inner.alarm.ensure(elapsed, deadline);
        let shared = self.shared;
        drop(self);
        woken.wake();
        if shared.wanted_idle.swap(false, Ordering::Relaxed) {
            shared.idle.notify_waiters();
        }
    }

    /// Brings a batch of received frames to the stack.
    fn take_in(mut self, iface: IfaceId, receive: &dyn Receive, count: usize) {
        let (now, elapsed) = (self.now(), self.now);
        let inner = self.inner();
        let (mut back, mut received) = (false, 0);
        let mtu = inner.ports.port(iface).map_or(0, |p| p.info.mtu);
        for index in 0..count {
            match receive.frame(index) {
                Inbound::Packet { packet, meta } => {
                    received += traffic::received(packet.len(), meta.joined, mtu);
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
        if let Some(port) = inner.ports.port(iface) {
            port.traffic.received += received;
        }
        if back {
            inner.stack.try_path_again(now, iface);
        }
        self.pump();
    }

    /// The alarm rang: everything that is due happens.
    fn on_alarm(mut self) {
        let (now, elapsed) = (self.now(), self.now);
        let inner = &mut *self.guard;
        inner.alarm.rung();
        if inner.stack.poll_deadline().is_some_and(|d| d <= now) {
            inner.stack.handle_timeout(now);
        }
        for port in &mut inner.ports.all {
            if port.transmit.deadline().is_some_and(|d| d <= elapsed) {
                port.transmit.set_now(elapsed);
                port.transmit.on_timeout();
            }
            let iface = port.info.iface;
            for packet in port.transmit.take_lost() {
                // As a kernel tells its own TCP: an ICMP error about the packet, from the destination that cannot be reached.
                if let Some(error) = icmp::complain(&packet, Complaint::NoNeighbour) {
                    let meta = RxMeta {
                        checksum_ok: true,
                        joined: false,
                    };
                    inner.stack.handle_packet(now, iface, &error, meta);
                }
            }
        }
        self.pump();
    }
}

/// 32 bytes that nobody can guess.
fn random_seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    let mut filled = 0;
    while filled < seed.len() {
        match rustix::rand::getrandom(&mut seed[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_for_an_interface_that_is_gone_wait_for_nothing() {
        let mut ports = Ports::default();
        let gone = IfaceId(7);
        for room in [1500, 60, 65_535] {
            let slot = ports.slot(gone, room);
            assert!(slot.is_some_and(|slot| slot.len() >= room));
        }
        assert!(!ports.gathers(gone) && !ports.all_blocked());
    }
}
