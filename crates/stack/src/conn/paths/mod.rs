//! Path management: addresses of both ends, and commands of controllers for them.

pub(in crate::conn) mod addresses;
pub(in crate::conn) mod controller;
pub(in crate::conn) mod uplink;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::conn::paths::addresses::Announcements;
use crate::conn::paths::controller::PathController;
use crate::pm;

/// What decides about the paths of a connection, and what it decided.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) manager: Option<pm::Manager>,
    /// The controller inside the connection, where the policy has one.
    pub(in crate::conn) controller: PathController,
    pub(in crate::conn) announcements: Announcements,
    /// Addresses behind a NAT: our own, and the one to advertise.
    pub(in crate::conn) outside: Vec<(IpAddr, IpAddr)>,
    /// Subflows to open.
    pub(in crate::conn) wanted: VecDeque<pm::Create>,
}

impl Paths {
    /// A subflow that the path manager wants opened.
    pub(crate) fn poll_wanted(&mut self) -> Option<pm::Create> {
        self.wanted.pop_front()
    }
}
