//! Commands of controllers, inside the connection or in another process. Owns the events and commands that wait. A controller
//! must never do what the limits of the connection or the peer (RFC 8684 section 3.1, flag C) forbid.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_wire::ids::AddrId;

use crate::api::{EventKind, IfaceId, NewSubflow, PathManager, StackError, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::reset_reason::unacceptable_performance;
use crate::conn::paths::{PathController, Paths};
use crate::conn::types::Cx;
use crate::ids::SubflowId;
use crate::pm::controllers::View;
use crate::pm::{self, Policy, Reason, Verdict};

impl Paths {
    /// The connection is fully established: subflows requested before are made now.
    pub(crate) fn release_early_commands(&mut self) {
        let early = core::mem::take(&mut self.controller.early);
        let orders = early.into_iter().map(crate::api::Command::Create);
        self.controller.orders.extend(orders);
    }

    /// The next command of the controller.
    pub(crate) fn poll_command(&mut self) -> Option<crate::api::Command> {
        self.controller.orders.pop_front()
    }

    /// Writes into the decision log.
    pub(crate) fn note_decision(&mut self, verdict: Verdict, reason: Reason, cx: &Cx<'_>) {
        if let Some(manager) = &mut self.manager {
            manager.note(cx.now, verdict, reason);
        }
    }

    /// A subflow that the controller requested could not be made.
    pub(crate) fn command_refused(
        &mut self,
        wanted: &NewSubflow,
        why: pm::NotCreated,
        cx: &Cx<'_>,
    ) {
        if let Some(controller) = &mut self.controller.controller {
            controller.refused(cx.now, wanted);
        }
        self.note_decision(Verdict::Leave, Reason::NotCreated(why), cx);
    }
}

impl Conn {
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

    /// Requests a subflow that cannot be made yet. It is made when the connection is fully established, so that a
    /// controller outside need not be waited for then.
    pub(crate) fn request_early(&mut self, wanted: &NewSubflow) -> Result<(), StackError> {
        self.remote_of(wanted)?;
        let most = usize::from(self.opts.max_subflows);
        if self.subflows.len() + self.paths.controller.early.len() >= most {
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
            .subflows
            .find(subflow)
            .ok_or(StackError::NoSuchHandle)?;
        // Without the last subflow and without joins there is no connection.
        let needed = !self.subflows.has_other(i) && !self.may_join();
        if needed || !self.level.is_multipath() {
            return Err(StackError::InvalidState);
        }
        let why = unacceptable_performance();
        self.subflows.reset_subflow(
            &mut self.send,
            self.level,
            i,
            SubflowEnd::Administrative,
            why,
            cx,
        );
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
        if !self.may_join() || self.as_seen_by_peer(addr, port).is_none() {
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
        self.carry_out(action, cx);
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
        self.carry_out(action, cx);
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
        if !self.may_create() || self.handshake.forbids_join_to(remote) {
            return Err(StackError::InvalidState);
        }
        Ok((remote, known.map_or(AddrId(0), |remote| remote.id)))
    }
}
