//! Commands of a controller, inside the connection or in another process, and of the application.
//!
//! A command must never do what the limits of the connection or the peer (RFC 8684 section 3.1, flag C) forbid.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_wire::ids::AddrId;

use crate::api::{
    ConnOptions, EventKind, IfaceId, NewSubflow, PathManager, StackError, SubflowEnd,
};
use crate::conn::Conn;
use crate::conn::dss::reset_reason::unacceptable_performance;
use crate::conn::events::Events;
use crate::conn::handshake::Handshake;
use crate::conn::handshake::mp_join::Joins;
use crate::conn::paths::{PathController, Paths};
use crate::conn::send::flight::Flight;
use crate::conn::types::Cx;
use crate::ids::SubflowId;
use crate::pm::controllers::View;
use crate::pm::{self, Policy, Reason, Verdict};

/// What commands concern: the paths and the subflows on them, and the limits of the connection.
pub(crate) struct Commands<'a> {
    paths: &'a mut Paths,
    flight: Flight<'a>,
    handshake: &'a Handshake,
    joins: Joins,
    opts: &'a mut ConnOptions,
    events: &'a mut Events,
}

impl Commands<'_> {
    /// Requests a subflow that cannot be made yet. It is made when the connection is fully established, so that a
    /// controller outside need not be waited for then.
    pub(crate) fn request_early(&mut self, wanted: &NewSubflow) -> Result<(), StackError> {
        self.remote_of(wanted)?;
        let most = usize::from(self.opts.max_subflows);
        if self.flight.subflows.len() + self.paths.controller.early.len() >= most {
            return Err(StackError::TooMany);
        }
        self.paths.controller.early.push(*wanted);
        Ok(())
    }

    /// Changes the policy; subflows that exist stay.
    pub(crate) fn set_policy(&mut self, policy: PathManager) -> Result<(), StackError> {
        let manager = self
            .paths
            .manager
            .as_mut()
            .ok_or(StackError::InvalidState)?;
        manager.set_policy(Policy::from(policy));
        self.opts.path_manager = policy;
        let early = core::mem::take(&mut self.paths.controller.early);
        self.paths.controller = PathController {
            early,
            ..PathController::new(policy)
        };
        self.events
            .set_controller(self.paths.controller.is_present());
        if self.handshake.is_fully_established() {
            self.events.push_to_controller(&EventKind::JoinsAllowed);
        }
        Ok(())
    }

    /// Ends a subflow at once; the peer may make another one.
    pub(crate) fn drop_subflow(
        &mut self,
        subflow: SubflowId,
        cx: &mut Cx<'_>,
    ) -> Result<(), StackError> {
        let i = self
            .flight
            .subflows
            .find(subflow)
            .ok_or(StackError::NoSuchHandle)?;
        // Without the last subflow and without joins there is no connection.
        let needed = !self.flight.subflows.has_other(i) && !self.joins.may_join();
        if needed || !self.flight.level.is_multipath() {
            return Err(StackError::InvalidState);
        }
        let why = unacceptable_performance();
        self.flight
            .reset_subflow(i, SubflowEnd::Administrative, why, cx);
        Ok(())
    }

    /// Advertises one of our addresses to the peer.
    pub(crate) fn announce(
        &mut self,
        iface: IfaceId,
        addr: IpAddr,
        port: Option<u16>,
        cx: &mut Cx<'_>,
    ) -> Result<AddrId, StackError> {
        if !self.joins.may_join()
            || self
                .paths
                .as_seen_by_peer(self.handshake.role, addr, port)
                .is_none()
        {
            return Err(StackError::InvalidState);
        }
        let manager = self
            .paths
            .manager
            .as_mut()
            .ok_or(StackError::InvalidState)?;
        let id = manager.local_id(iface, addr).ok_or(StackError::TooMany)?;
        let action = pm::Action::Announce { id, addr, port };
        manager.ordered(&action);
        self.paths
            .carry_out(&mut self.flight, self.handshake.role, action, cx);
        Ok(id)
    }

    /// Withdraws one of our addresses.
    pub(crate) fn withdraw_address(
        &mut self,
        id: AddrId,
        cx: &mut Cx<'_>,
    ) -> Result<(), StackError> {
        let manager = self
            .paths
            .manager
            .as_mut()
            .ok_or(StackError::InvalidState)?;
        if !manager.ledger().locals().iter().any(|local| local.id == id) {
            return Err(StackError::NoSuchHandle);
        }
        let action = pm::Action::Withdraw { id };
        manager.ordered(&action);
        self.paths
            .carry_out(&mut self.flight, self.handshake.role, action, cx);
        Ok(())
    }

    /// Changes the limits of this connection.
    pub(crate) fn set_limits(&mut self, subflows: Option<u16>, addresses: Option<u8>) {
        self.opts.max_subflows = subflows.unwrap_or(self.opts.max_subflows);
        if let Some(manager) = &mut self.paths.manager {
            manager.set_limits(subflows, addresses);
        }
    }

    /// The remote end of a subflow to be made, with defaults filled in.
    pub(crate) fn remote_of(
        &self,
        wanted: &NewSubflow,
    ) -> Result<(SocketAddr, AddrId), StackError> {
        let manager = self
            .paths
            .manager
            .as_ref()
            .ok_or(StackError::InvalidState)?;
        let remotes = manager.ledger().remotes();
        let first = self.handshake.first.remote;
        let addr = wanted.remote.unwrap_or(first.ip());
        let known = remotes.iter().find(|remote| {
            remote.addr.ip() == addr
                && wanted
                    .remote_port
                    .is_none_or(|port| port == remote.addr.port())
        });
        let port = wanted
            .remote_port
            .or(known.map(|remote| remote.addr.port()));
        let remote = SocketAddr::new(addr, port.unwrap_or(first.port()));
        // rfc8684:C19
        if !self.joins.may_create() || self.handshake.forbids_join_to(remote) {
            return Err(StackError::InvalidState);
        }
        Ok((remote, known.map_or(AddrId(0), |remote| remote.id)))
    }
}

impl Conn {
    /// Its paths, for a command.
    pub(crate) fn commands(&mut self) -> Commands<'_> {
        Commands {
            joins: self.joins(),
            paths: &mut self.paths,
            flight: Flight::new(&mut self.subflows, &mut self.send, self.level),
            handshake: &self.handshake,
            opts: &mut self.opts,
            events: &mut self.events,
        }
    }

    /// Lets the controller process its events. Opening a subflow takes the stack, which polls for
    /// [orders](Paths::poll_command).
    pub(crate) fn run_controller(&mut self, cx: &mut Cx<'_>) {
        let due = self
            .paths
            .controller
            .deadline()
            .is_some_and(|at| at <= cx.now);
        if !self.events.controller_has_some() && !due {
            return;
        }
        if self.life.closed.is_some() {
            self.paths.controller = PathController::default();
            self.events.set_controller(false);
            return;
        }
        let Some(mut controller) = self.paths.controller.controller.take() else {
            return;
        };
        let heard = self.events.take_for_controller();
        let view = View::from(&self.info());
        let mut orders = Vec::new();
        for event in &heard {
            orders.extend(controller.react(cx.now, Some(event), &view));
        }
        if controller.deadline().is_some_and(|at| at <= cx.now) {
            orders.extend(controller.react(cx.now, None, &view));
        }
        self.paths.controller.controller = Some(controller);
        for order in orders {
            let verdict = order.command.map_or(Verdict::Leave, Verdict::Command);
            self.paths
                .note_decision(verdict, Reason::Controller(order.why), cx);
            self.paths.controller.orders.extend(order.command);
        }
    }
}
