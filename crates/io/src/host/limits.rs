//! Limits of paths, classes and connections of a running stack.

use std::num::NonZeroU16;

use manypath_stack::ids::ConnId;
use manypath_stack::sched::Preference;
use manypath_stack::{
    CLASSES, ClassId, IfaceId, LimitState, Limited, RateLimit, Route, StackError,
};

use super::Host;

impl Host {
    /// Sets, changes or removes a limit. It holds from the next packet on. That of an interface stays when the interface goes and comes back.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection.
    pub fn limit(&self, what: Limited, limit: Option<RateLimit>) -> Result<(), StackError> {
        self.shared()
            .act(|stack, now| stack.limit(now, what, limit))
    }

    /// What an operator wants of the paths of interfaces: which come first, and how new data is divided among them.
    pub fn prefer(&self, wanted: Vec<(IfaceId, Preference)>) {
        self.shared().act(|stack, now| stack.prefer(now, wanted));
    }

    /// What a class has of a path that several wait for, beside the others.
    pub fn weigh(&self, class: ClassId, weight: Option<NonZeroU16>) {
        self.shared()
            .act(|stack, now| stack.weigh(now, class, weight));
    }

    /// Packets of all connections between some addresses have the limits of these classes besides.
    pub fn route(&self, routes: Vec<Route>) {
        self.shared().act(|stack, now| stack.route(now, routes));
    }

    /// The same for packets of one connection.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection.
    pub fn route_connection(&self, id: ConnId, routes: Vec<Route>) -> Result<(), StackError> {
        self.shared()
            .act(|stack, now| stack.route_connection(now, id, routes))
    }

    /// Every limit that is set, and what it does.
    #[must_use]
    pub fn limits(&self) -> Vec<(Limited, LimitState)> {
        // Tokens come with time: without this they would be those of the last packet.
        self.shared().act(|stack, _| stack.limits())
    }

    /// A limit that is set, and what it does.
    #[must_use]
    pub fn limit_of(&self, what: Limited) -> Option<LimitState> {
        self.shared().act(|stack, _| stack.limit_of(what))
    }

    /// Puts a connection into classes whose limits it shares from the next packet on.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection.
    pub fn classify(
        &self,
        id: ConnId,
        classes: [Option<ClassId>; CLASSES],
    ) -> Result<(), StackError> {
        self.shared()
            .act(|stack, now| stack.classify(now, id, classes))
    }
}
