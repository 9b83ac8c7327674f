//! Limits of paths, of classes of connections and of single connections: set, changed and looked at while connections run.
//!
//! A segment leaves when its path, its connection's classes and its connection have tokens. Which connection is in which class is the caller's
//! business.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use manypath_tcp::time::Instant;

use super::{Entry, Stack};
use crate::api::{ClassId, IfaceId, RateLimit, Route, StackError};
use crate::ids::ConnId;
use crate::sched::Preference;
use crate::shape::{CLASSES, LimitState, Limited, MOST_ROUTES};
use crate::slab::Handle;

impl Stack {
    /// Sets, changes or removes the limit of what leaves by an interface. It holds from the next packet on, on running connections too; the
    /// scheduler gives to other paths what has to wait here.
    pub fn limit_path(&mut self, now: Instant, iface: IfaceId, limit: Option<RateLimit>) {
        let now = self.tick(now);
        let freed = self.shaper.limit_path(iface, limit, now);
        self.go_on(freed);
        for (_, entry) in self.conns.iter_mut() {
            fit(entry, &self.shaper);
        }
        if let Some(offload) = self.shaper.offload(iface) {
            self.set_offload(iface, offload);
        }
    }

    /// Sets, changes or removes the limit that all connections of a class share. It holds from the next packet on.
    pub fn limit_class(&mut self, now: Instant, class: ClassId, limit: Option<RateLimit>) {
        let now = self.tick(now);
        let freed = self.shaper.limit_class(class, limit, now);
        self.go_on(freed);
        let for_all = self.shaper.routes(class);
        for entry in self.conns.iter_mut().map(|(_, entry)| entry) {
            let is_routed = entry.shares.routes.iter().any(|route| route.class == class);
            if is_routed || for_all || entry.shares.classes.contains(&Some(class)) {
                fit(entry, &self.shaper);
            }
        }
    }

    /// Sets, changes or removes the limit of one connection, whatever paths it has. It holds from the next packet on.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection.
    pub fn limit_connection(
        &mut self,
        now: Instant,
        id: ConnId,
        limit: Option<RateLimit>,
    ) -> Result<(), StackError> {
        let now = self.tick(now);
        let entry = self.conns.get_mut(id.0).ok_or(StackError::NoSuchHandle)?;
        let (own, freed) = self.shaper.limit_one(entry.shares.own, limit, now);
        entry.shares.own = own;
        fit(entry, &self.shaper);
        self.go_on(freed);
        Ok(())
    }

    /// Puts a connection into classes, and takes it out of those that it was in. A class has the limit that is, or will be, set for it.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection.
    pub fn classify(
        &mut self,
        now: Instant,
        id: ConnId,
        classes: [Option<ClassId>; CLASSES],
    ) -> Result<(), StackError> {
        self.tick(now);
        let entry = self.conns.get_mut(id.0).ok_or(StackError::NoSuchHandle)?;
        entry.shares.classes = classes;
        fit(entry, &self.shaper);
        // What it waited for may be none of its business any more.
        self.give_turn(id.0.index());
        Ok(())
    }

    /// What a class has of a path that several wait for, beside the others: work-conserving, as what it leaves goes to them. Without a weight it
    /// has 1, and where no class has one the connections have their turns as they come.
    pub fn weigh(&mut self, now: Instant, class: ClassId, weight: Option<NonZeroU16>) {
        self.tick(now);
        self.shaper.weigh(class, weight);
    }

    /// Packets of all connections between some addresses have the limits of these classes besides: the first route that leads so counts.
    pub fn route(&mut self, now: Instant, routes: Vec<Route>) {
        self.tick(now);
        self.shaper.set_routes(routes);
        let mut slots = Vec::new();
        for (handle, entry) in self.conns.iter_mut() {
            fit(entry, &self.shaper);
            slots.push(handle.index());
        }
        self.go_on(slots);
    }

    /// The same for packets of one connection, [`MOST_ROUTES`] at most.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection.
    pub fn route_connection(
        &mut self,
        now: Instant,
        id: ConnId,
        mut routes: Vec<Route>,
    ) -> Result<(), StackError> {
        self.tick(now);
        let entry = self.conns.get_mut(id.0).ok_or(StackError::NoSuchHandle)?;
        routes.truncate(MOST_ROUTES);
        entry.shares.routes = routes;
        fit(entry, &self.shaper);
        self.give_turn(id.0.index());
        Ok(())
    }

    /// What an operator wants of the paths of interfaces: which come first, and how new data is divided among them. Others are as any. It holds
    /// from the next data on, on running connections too.
    pub fn prefer(&mut self, now: Instant, wanted: Vec<(IfaceId, Preference)>) {
        self.tick(now);
        self.preferences.clone_from(&wanted);
        let mut slots = Vec::new();
        for (handle, entry) in self.conns.iter_mut() {
            entry.conn.schedule.set_preferences(wanted.clone());
            slots.push(handle.index());
        }
        // What was kept from a path may leave now.
        self.go_on(slots);
    }

    /// The limit of an interface, and what it does.
    pub fn path_limit(&self, iface: IfaceId) -> Option<LimitState> {
        self.shaper.look_path(iface, self.now)
    }

    /// The limit of a class, and what it does.
    pub fn class_limit(&self, class: ClassId) -> Option<LimitState> {
        self.shaper.look_class(class, self.now)
    }

    /// The limit of a connection itself, and what it does.
    pub fn connection_limit(&self, id: ConnId) -> Option<LimitState> {
        let own = self.conns.get(id.0)?.shares.own?;
        self.shaper.look_one(own, self.now)
    }

    /// Every limit that is set, of paths, then of classes, then of connections.
    pub fn limits(&self) -> Vec<(Limited, LimitState)> {
        let paths = self.shaper.paths().map(Limited::Path);
        let classes = self.shaper.classes().map(Limited::Class);
        let conns = self.conns.iter();
        let limited = conns.filter(|(_, entry)| entry.shares.own.is_some());
        let limited = limited.map(|(handle, _)| Limited::Connection(ConnId(handle)));
        let all = paths.chain(classes).chain(limited);
        all.filter_map(|what| Some((what, self.limit_of(what)?)))
            .collect()
    }

    /// A limit and what it does, whatever it is of.
    pub fn limit_of(&self, what: Limited) -> Option<LimitState> {
        match what {
            Limited::Path(iface) => self.path_limit(iface),
            Limited::Class(class) => self.class_limit(class),
            Limited::Connection(id) => self.connection_limit(id),
        }
    }

    /// Sets, changes or removes a limit, whatever it is of.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection.
    pub fn limit(
        &mut self,
        now: Instant,
        what: Limited,
        limit: Option<RateLimit>,
    ) -> Result<(), StackError> {
        match what {
            Limited::Path(iface) => self.limit_path(now, iface, limit),
            Limited::Class(class) => self.limit_class(now, class, limit),
            Limited::Connection(id) => self.limit_connection(now, id, limit)?,
        }
        Ok(())
    }

    /// The classes that a connection is in; none, where there is no such connection.
    pub fn classes(&self, id: ConnId) -> [Option<ClassId>; CLASSES] {
        let entry = self.conns.get(id.0);
        entry.map_or([None; CLASSES], |entry| entry.shares.classes)
    }

    /// What holds for all connections holds for a new one.
    pub(super) fn fit_new(&mut self, handle: Handle) {
        let Some(entry) = self.conns.get_mut(handle) else {
            return;
        };
        if !self.preferences.is_empty() {
            let wanted = self.preferences.clone();
            entry.conn.schedule.set_preferences(wanted);
        }
        if !self.shaper.is_idle() {
            fit(entry, &self.shaper);
        }
    }

    /// What they waited for is gone.
    fn go_on(&mut self, freed: Vec<u32>) {
        for slot in freed {
            self.give_turn(slot);
        }
    }
}

/// Has a connection make no burst that is longer than what its limits let leave at once, and tells its scheduler what they let it send.
fn fit(entry: &mut Entry, shaper: &crate::shape::Shaper) {
    entry.conn.subflows.longest_burst = shaper.longest_burst(&entry.shares);
    entry.conn.schedule.set_limits(shaper.rates(&entry.shares));
}
