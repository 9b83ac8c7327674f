//! Limits of what leaves, by path, class and connection, asked where a subflow pulls data.
//!
//! A path without tokens is not ready until it has some, as if its device were full: the scheduler gives data to another path at once, nothing
//! queues and nothing is dropped. A connection that no limit lets send waits in the line of the one that refused it, and has its turn when there
//! are tokens. IP bytes count, of every packet; acknowledgements and other small packets are charged and never wait.

mod bucket;
mod gate;
mod rates;
mod slots;
mod turns;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU16;

use manypath_tcp::time::{Duration, Instant};

use crate::api::{ClassId, IfaceId, Offload, Path, RateLimit, Route};
use crate::ids::ConnId;
use crate::slab::{Handle, Slab};
use gate::Gate;
pub(crate) use rates::LimitRates;
pub(crate) use slots::ShapedSlots;
use turns::Share;

/// What one limit held back so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// For how long something waited for tokens.
    pub time: Duration,
    /// How often something began to wait.
    pub times: u64,
    /// Bytes of packets that connections have sent by other paths while they waited here. Of a path alone: what waits for a class or for its
    /// connection's own limit goes nowhere else.
    pub elsewhere: u64,
}

/// A limit and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// What is in force.
    pub limit: RateLimit,
    /// Bytes that may leave now. Below zero after acknowledgements, which do not wait.
    pub tokens: i64,
    /// What it held back.
    pub held: Held,
    /// Bytes that it let through since it was set.
    pub sent: u64,
    /// Connections that wait for it now.
    pub waiting: usize,
}

/// What a limit is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// All that leaves by an interface.
    Path(IfaceId),
    /// All connections of a class together.
    Class(ClassId),
    /// One connection, whatever paths it has.
    Connection(ConnId),
}

/// Classes that a connection may be in at one time.
pub const CLASSES: usize = 2;

/// Routes of one connection.
pub const MOST_ROUTES: usize = 16;

/// The limits of one connection besides those of paths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// Its own.
    pub(crate) own: Option<Handle>,
    /// Those that it shares with others.
    pub(crate) classes: [Option<ClassId>; CLASSES],
    /// Those of packets between some addresses.
    pub(crate) routes: Vec<Route>,
}

/// Limits that are asked for one connection: its own, and those of its classes.
pub(super) type Gates = [Option<Handle>; 1 + CLASSES];

/// Limits that are asked for packets between two addresses.
pub(super) type RouteGates = [Option<Handle>; 2];

/// A connection that wants to send.
#[derive(Clone, Copy, Debug)]
struct Asker {
    /// Its place in the stack's table.
    slot: u32,
    /// It waited, and now there are tokens.
    called: bool,
    /// By weights, where there are any.
    share: Option<Share>,
}

/// All limits of a stack.
#[derive(Debug, Default)]
pub(crate) struct Shaper {
    gates: Slab<Gate>,
    paths: Vec<(IfaceId, Handle)>,
    classes: BTreeMap<ClassId, Handle>,
    /// Of classes that have one.
    weights: BTreeMap<ClassId, NonZeroU16>,
    /// Of all connections, besides their own.
    routes: Vec<Route>,
    /// What the devices do without limits.
    devices: Vec<(IfaceId, Offload)>,
    /// When the first in each line has its tokens.
    wakes: BTreeSet<(Instant, Handle)>,
    /// Who waits where.
    waiting: BTreeSet<(Handle, u32)>,
    /// Limits whose first in line has been given a turn.
    called: Vec<Handle>,
    /// A device that had no room in this turn, whatever tokens there were.
    device_full: Option<IfaceId>,
}

impl Shaper {
    /// Whether any limit is set.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.gates.is_empty()
    }

    /// Sets, changes or removes the limit of a path. Gives those that waited for one that is gone.
    pub(crate) fn limit_path(
        &mut self,
        iface: IfaceId,
        limit: Option<RateLimit>,
        now: Instant,
    ) -> Vec<u32> {
        let known = self.of_path(iface);
        let (gate, freed) = self.set(known, limit, now);
        self.paths.retain(|(other, _)| *other != iface);
        self.paths.extend(gate.map(|gate| (iface, gate)));
        freed
    }

    /// Sets, changes or removes the limit of a class.
    pub(crate) fn limit_class(
        &mut self,
        class: ClassId,
        limit: Option<RateLimit>,
        now: Instant,
    ) -> Vec<u32> {
        let known = self.classes.remove(&class);
        let (gate, freed) = self.set(known, limit, now);
        if let Some(gate) = gate {
            self.classes.insert(class, gate);
        }
        freed
    }

    /// Sets, changes or removes the limit of one connection, and gives its handle.
    pub(crate) fn limit_one(
        &mut self,
        own: Option<Handle>,
        limit: Option<RateLimit>,
        now: Instant,
    ) -> (Option<Handle>, Vec<u32>) {
        self.set(own, limit, now)
    }

    fn set(
        &mut self,
        known: Option<Handle>,
        limit: Option<RateLimit>,
        now: Instant,
    ) -> (Option<Handle>, Vec<u32>) {
        match (known, limit) {
            (Some(handle), Some(limit)) => {
                if let Some(gate) = self.gates.get_mut(handle) {
                    gate.change(limit, now);
                }
                self.schedule(handle, now);
                (known, Vec::new())
            }
            (None, Some(limit)) => {
                let gate = Gate::new(limit, now);
                (Some(self.gates.insert(gate)), Vec::new())
            }
            (Some(handle), None) => (None, self.remove(handle, now)),
            (None, None) => (None, Vec::new()),
        }
    }

    fn remove(&mut self, handle: Handle, now: Instant) -> Vec<u32> {
        let mut freed = Vec::new();
        let Some(mut gate) = self.gates.remove(handle) else {
            return freed;
        };
        if let Some(at) = gate.wake_at {
            self.wakes.remove(&(at, handle));
        }
        while let Some(slot) = gate.leave(now) {
            self.waiting.remove(&(handle, slot));
            freed.push(slot);
        }
        freed
    }

    fn of_path(&self, iface: IfaceId) -> Option<Handle> {
        let mut paths = self.paths.iter();
        Some(paths.find(|(other, _)| *other == iface)?.1)
    }

    /// The interfaces that have a limit.
    pub(crate) fn paths(&self) -> impl Iterator<Item = IfaceId> {
        self.paths.iter().map(|(iface, _)| *iface)
    }

    /// The classes that have a limit.
    pub(crate) fn classes(&self) -> impl Iterator<Item = ClassId> {
        self.classes.keys().copied()
    }

    /// The limit of a path, and what it does.
    pub(crate) fn look_path(&self, iface: IfaceId, now: Instant) -> Option<LimitState> {
        self.look_one(self.of_path(iface)?, now)
    }

    /// The limit of a class, and what it does.
    pub(crate) fn look_class(&self, class: ClassId, now: Instant) -> Option<LimitState> {
        self.look_one(*self.classes.get(&class)?, now)
    }

    /// A limit by its handle, and what it does.
    pub(crate) fn look_one(&self, gate: Handle, now: Instant) -> Option<LimitState> {
        Some(self.gates.get(gate)?.state(now))
    }

    /// Notes what the device of a path does, and gives the path as its limit leaves it.
    pub(crate) fn fit(&mut self, path: &Path) -> Path {
        self.forget_device(path.iface);
        self.devices.push((path.iface, path.offload));
        let offload = self.offload(path.iface).unwrap_or(path.offload);
        Path {
            offload,
            ..path.clone()
        }
    }

    /// The device of an interface is gone. Its limit stays, for when it comes back.
    pub(crate) fn forget_device(&mut self, iface: IfaceId) {
        self.devices.retain(|(known, _)| *known != iface);
    }

    /// What a device is asked to do: to divide no burst that is larger than what may leave at once.
    pub(crate) fn offload(&self, iface: IfaceId) -> Option<Offload> {
        let (_, device) = self.devices.iter().find(|(known, _)| *known == iface)?;
        let most = self.burst(self.of_path(iface));
        Some(Offload {
            max_burst: device.max_burst.min(most),
            ..*device
        })
    }

    /// The longest burst that the limits of a connection let leave at once, bytes, whatever addresses it leads to.
    pub(crate) fn longest_burst(&self, shares: &Shares) -> u32 {
        let routes = self.routes.iter().chain(&shares.routes);
        let routes = routes.map(|route| self.classes.get(&route.class).copied());
        let gates = self.gates_of(shares).into_iter().chain(routes);
        gates.map(|gate| self.burst(gate)).min().unwrap_or(u32::MAX)
    }

    /// The routes of all connections from now on.
    pub(crate) fn set_routes(&mut self, routes: Vec<Route>) {
        self.routes = routes;
    }

    /// Whether a class is that of a route of all connections.
    pub(crate) fn routes(&self, class: ClassId) -> bool {
        self.routes.iter().any(|route| route.class == class)
    }

    /// The limits of packets of a connection between two addresses: its own route's, and that of the first of all connections' that leads so.
    fn gates_between(&self, own: &[Route], local: IpAddr, remote: IpAddr) -> RouteGates {
        let gate = |routes: &[Route]| {
            let leads = routes.iter().find(|route| route.leads(local, remote));
            self.classes.get(&leads?.class).copied()
        };
        [gate(own), gate(&self.routes)]
    }

    fn burst(&self, gate: Option<Handle>) -> u32 {
        let gate = gate.and_then(|gate| self.gates.get(gate));
        gate.map_or(u32::MAX, |gate| {
            u32::try_from(gate.limit().burst).unwrap_or(u32::MAX)
        })
    }

    fn gates_of(&self, shares: &Shares) -> Gates {
        let class = |class: Option<ClassId>| self.classes.get(&class?).copied();
        let [first, second] = shares.classes;
        [shares.own, class(first), class(second)]
    }

    /// When somebody who waits may send.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// The next connection that waited and whose tokens are there. It is to have a turn, and then [`turn_over`](Self::turn_over) is to be called.
    pub(crate) fn call(&mut self, now: Instant) -> Option<u32> {
        let (at, handle) = *self.wakes.first()?;
        if at > now {
            return None;
        }
        self.wakes.pop_first();
        let gate = self.gates.get_mut(handle)?;
        (gate.wake_at, gate.not_before) = (None, None);
        gate.called = true;
        self.called.push(handle);
        gate.first()
    }

    /// A turn begins.
    fn begin_turn(&mut self) {
        self.device_full = None;
    }

    /// The turn of a connection is over. Where it was called and did not ask, the next one in line has its chance.
    pub(crate) fn turn_over(&mut self, slot: u32, now: Instant) {
        let mut i = 0;
        while let Some(handle) = self.called.get(i).copied() {
            let gate = self.gates.get_mut(handle);
            let waits = |gate: &&mut Gate| gate.called && gate.first() == Some(slot);
            let is_called = gate.as_ref().is_some_and(|gate| gate.called);
            match gate.filter(waits) {
                Some(gate) => {
                    if gate.not_before.is_some() {
                        gate.called = false;
                        self.schedule(handle, now);
                    } else {
                        self.leave(handle, now);
                    }
                    self.called.swap_remove(i);
                }
                None if !is_called => {
                    self.called.swap_remove(i);
                }
                None => i += 1,
            }
        }
    }

    /// A device that had no room in the last turn.
    pub(crate) fn full_device(&self) -> Option<IfaceId> {
        self.device_full
    }

    fn is_called(&self, slot: u32) -> bool {
        let mut called = self.called.iter().filter_map(|h| self.gates.get(*h));
        called.any(|gate| gate.called && gate.first() == Some(slot))
    }

    /// What a class has of a path where several wait, beside others; without one it is 1, and where no class has one it is first come, first
    /// served.
    pub(crate) fn weigh(&mut self, class: ClassId, weight: Option<NonZeroU16>) {
        match weight {
            Some(weight) => self.weights.insert(class, weight),
            None => self.weights.remove(&class),
        };
    }

    /// The share of a connection by its first class that has a weight.
    fn share(&self, classes: &[Option<ClassId>; CLASSES]) -> Option<Share> {
        if self.weights.is_empty() {
            return None;
        }
        let mut classes = classes.iter().flatten();
        let weighed = classes.find_map(|class| Some((Some(*class), *self.weights.get(class)?)));
        Some(weighed.unwrap_or((None, turns::USUAL)))
    }

    /// Whether a limit lets a packet of so many bytes leave now. Whom it refuses waits there, by its share or behind all others.
    fn permits(&mut self, handle: Handle, asker: &Asker, bytes: u64, now: Instant) -> bool {
        let &Asker {
            slot,
            called,
            share,
        } = asker;
        let Some(gate) = self.gates.get_mut(handle) else {
            return true;
        };
        if gate.permits(slot, bytes, called, now) {
            return true;
        }
        if called && self.reserve(handle, slot, bytes, now) {
            return false;
        }
        let Some(gate) = self.gates.get_mut(handle) else {
            return true;
        };
        if gate.first() == Some(slot) {
            gate.ask_again(bytes);
            self.schedule(handle, now);
        } else if self.waiting.insert((handle, slot)) {
            gate.join(slot, bytes, share, now);
            if gate.first() == Some(slot) {
                self.schedule(handle, now);
            }
        }
        false
    }

    /// A connection that was called by one limit lacks tokens of another. Where these come soon it keeps its place in the first, and its tokens
    /// in the other; otherwise two connections could forever take the tokens that a third needs together.
    fn reserve(&mut self, handle: Handle, slot: u32, bytes: u64, now: Instant) -> bool {
        for i in 0..self.called.len() {
            let caller = self.called[i];
            let gate = self.gates.get_mut(caller);
            let gate = gate.filter(|gate| gate.called && gate.first() == Some(slot));
            let Some(latest) = gate.map(|gate| gate.patience(now)) else {
                continue;
            };
            let lacking = self.gates.get_mut(handle).filter(|_| caller != handle);
            let at = lacking.and_then(|gate| gate.reserve(slot, bytes, latest, now));
            if let (Some(at), Some(gate)) = (at, self.gates.get_mut(caller)) {
                gate.not_before = Some(gate.not_before.map_or(at, |before| before.min(at)));
                return true;
            }
        }
        false
    }

    fn charge(&mut self, handle: Handle, slot: u32, bytes: u64, now: Instant) {
        let Some(gate) = self.gates.get_mut(handle) else {
            return;
        };
        gate.charge(bytes, now);
        // Small packets are not what it waits for.
        if bytes > slots::ALWAYS as u64 {
            gate.served(slot);
            if gate.first() == Some(slot) {
                self.leave(handle, now);
            }
        }
    }

    /// A packet of a connection leaves by some limits of paths: counts it with the others whose tokens it would have waited for.
    fn note_elsewhere(&mut self, slot: u32, routes: &[Route], by: &[Option<Handle>], bytes: u64) {
        if self.waiting.is_empty() {
            return;
        }
        let of_routes = self.routes.iter().chain(routes);
        let of_routes = of_routes.filter_map(|route| self.classes.get(&route.class).copied());
        let of_paths = self.paths.iter().map(|(_, handle)| *handle);
        for handle in of_paths.chain(of_routes) {
            if !by.contains(&Some(handle)) && self.waiting.contains(&(handle, slot)) {
                if let Some(gate) = self.gates.get_mut(handle) {
                    gate.note_elsewhere(bytes);
                }
            }
        }
    }

    /// The first in line goes, and the next one is told when its tokens are there.
    fn leave(&mut self, handle: Handle, now: Instant) {
        let gate = self.gates.get_mut(handle);
        if let Some(slot) = gate.and_then(|gate| gate.leave(now)) {
            self.waiting.remove(&(handle, slot));
        }
        self.schedule(handle, now);
    }

    fn schedule(&mut self, handle: Handle, now: Instant) {
        let Some(gate) = self.gates.get_mut(handle) else {
            return;
        };
        // The one who has a turn is looked at when that is over.
        let at = match gate.called {
            true => None,
            false => gate.first_ready_at(now),
        };
        let before = core::mem::replace(&mut gate.wake_at, at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.wakes.remove(&(before, handle));
        }
        if let Some(at) = at {
            self.wakes.insert((at, handle));
        }
    }

    fn note_device_full(&mut self, iface: IfaceId) {
        self.device_full = Some(iface);
    }
}
