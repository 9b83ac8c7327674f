//! Path management: addresses of both ends, and commands of controllers for them.

pub(in crate::conn) mod addresses;
pub(in crate::conn) mod controller;
pub(in crate::conn) mod uplink;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::time::Instant;
use manypath_wire::ids::AddrId;
use manypath_wire::tcp::mptcp::AddAddr;

use crate::api::{NewSubflow, PathManager};
use crate::pm;
use crate::pm::controllers::Controller;

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
    /// A subflow waits to be opened.
    pub(crate) fn wants_subflow(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A subflow that the path manager wants opened.
    pub(crate) fn poll_wanted(&mut self) -> Option<pm::Create> {
        self.wanted.pop_front()
    }
}

/// A controller inside the connection, and its commands.
#[derive(Debug, Default)]
pub(crate) struct PathController {
    pub(in crate::conn) controller: Option<Box<Controller>>,
    pub(in crate::conn) orders: VecDeque<crate::api::Command>,
    /// Subflows requested before the connection could have any.
    pub(in crate::conn) early: Vec<NewSubflow>,
}

impl PathController {
    pub(crate) fn new(policy: PathManager) -> Self {
        Self {
            controller: Controller::of(policy).map(Box::new),
            ..Self::default()
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.controller.is_some()
    }

    pub(crate) fn has_commands(&self) -> bool {
        !self.orders.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.controller.as_ref()?.deadline()
    }
}

/// An address that the peer has not echoed yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcement {
    id: AddrId,
    addr: IpAddr,
    port: Option<u16>,
    again_at: Instant,
    sent: u8,
}

impl Announcement {
    /// An echo repeats the announcement without its HMAC. // rfc8684:A9
    pub(in crate::conn) fn is_echoed_by(&self, echo: &AddAddr) -> bool {
        (self.id, self.addr, self.port) == (echo.addr_id, echo.addr, echo.port)
    }
}

/// The pending announcements.
#[derive(Debug, Default)]
pub(crate) struct Announcements(Vec<Announcement>);

impl Announcements {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.iter().map(|a| a.again_at).min()
    }
}
