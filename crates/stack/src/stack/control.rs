//! Commands of applications and controllers: whoever gives them, they are carried out in one place.

use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::Instant;
use manypath_wire::ids::AddrId;

use super::Stack;
use super::open::PortChoice;
use crate::api::{Command, Done, Ending, NewSubflow, Path, StackError, SubflowEnd, SubflowOrigin};
use crate::conn::{Conn, Cx};
use crate::ids::{ConnId, SubflowId};
use crate::pm::{self, Reason, Verdict};

impl Stack {
    /// Carries out a command for one connection.
    ///
    /// # Errors
    /// `NoSuchHandle` when there is no such connection, subflow or address, `NoPath` when the local address cannot be used,
    /// `NoPorts` without a free port, `TooMany` at a limit, `InvalidState` when the connection's state forbids it.
    pub fn command(
        &mut self,
        now: Instant,
        id: ConnId,
        command: Command,
    ) -> Result<Done, StackError> {
        self.tick(now);
        if self.conns.get(id.0).is_none() {
            return Err(StackError::NoSuchHandle);
        }
        let slot = id.0.index();
        let done = self.obey(slot, command);
        let reason = match done {
            Ok(_) => Reason::Asked,
            Err(_) => Reason::AskedInVain,
        };
        self.with_conn(slot, |conn, cx| {
            conn.paths
                .note_decision(Verdict::Command(command), reason, cx);
        });
        done
    }

    /// What the controller inside a connection wants done.
    pub(super) fn settle_orders(&mut self, slot: u32) {
        while let Some(command) = self
            .conns
            .at_mut(slot)
            .and_then(|e| e.conn.paths.poll_command())
        {
            let done = self.obey(slot, command);
            self.reconcile_later(slot);
            if let (Command::Create(wanted), Err(error)) = (command, done) {
                let why = match error {
                    StackError::NoPorts | StackError::NoPath => pm::NotCreated::NoPort,
                    _ => pm::NotCreated::NoSlot,
                };
                self.on_slot(slot, |conn, cx| {
                    conn.paths.command_refused(&wanted, why, cx);
                    Ok(())
                })
                .unwrap_or_default();
            }
        }
    }

    /// Acts on a connection without settling what follows; the caller does.
    fn on_slot<R>(
        &mut self,
        slot: u32,
        f: impl FnOnce(&mut Conn, &mut Cx<'_>) -> Result<R, StackError>,
    ) -> Result<R, StackError> {
        let entry = self.conns.at_mut(slot).ok_or(StackError::NoSuchHandle)?;
        let mut cx = Cx::new(self.now, &mut self.counters, &mut self.rng);
        f(&mut entry.conn, &mut cx)
    }

    fn obey(&mut self, slot: u32, command: Command) -> Result<Done, StackError> {
        match command {
            Command::Create(wanted) => self.create(slot, &wanted),
            Command::Destroy { subflow, ending } => self.on_slot(slot, |conn, cx| {
                match ending {
                    Ending::Fin => {
                        conn.ending()
                            .remove_subflow(subflow, SubflowEnd::Administrative, cx)?
                    }
                    Ending::Reset => conn.commands().drop_subflow(subflow, cx)?,
                }
                Ok(Done::Done)
            }),
            Command::SetBackup { subflow, backup } => self.on_slot(slot, |conn, cx| {
                conn.flight().set_backup(subflow, backup, cx)?;
                Ok(Done::Done)
            }),
            Command::Announce { addr, port } => {
                let iface = self.path_of(addr).ok_or(StackError::NoPath)?.iface;
                self.on_slot(slot, |conn, cx| {
                    conn.commands()
                        .announce(iface, addr, port, cx)
                        .map(Done::Address)
                })
            }
            Command::Withdraw { id } => self.on_slot(slot, |conn, cx| {
                conn.commands().withdraw_address(id, cx)?;
                Ok(Done::Done)
            }),
            Command::SetLimits {
                subflows,
                add_addr_accepted,
            } => self.on_slot(slot, |conn, _| {
                conn.commands().set_limits(subflows, add_addr_accepted);
                Ok(Done::Done)
            }),
            Command::SetPolicy(policy) => self.on_slot(slot, |conn, _| {
                conn.commands().set_policy(policy)?;
                Ok(Done::Done)
            }),
        }
    }

    fn create(&mut self, slot: u32, wanted: &NewSubflow) -> Result<Done, StackError> {
        let entry = self.conns.at_mut(slot).ok_or(StackError::NoSuchHandle)?;
        if entry.conn.joins().will_follow() {
            return entry
                .conn
                .commands()
                .request_early(wanted)
                .map(|()| Done::Done);
        }
        let wanted = &NewSubflow {
            local: wanted.local.map(|addr| addr.to_canonical()),
            remote: wanted.remote.map(|addr| addr.to_canonical()),
            ..*wanted
        };
        let (remote, remote_id) = entry.conn.commands().remote_of(wanted)?;
        let first = entry.conn.handshake.first_tuple();
        if !self.may_be_called(remote.ip()) {
            return Err(StackError::BadAddress);
        }
        if self.is_ours(remote.ip()) {
            // The host would deliver it to itself.
            return Err(StackError::NoPath);
        }
        let path = self
            .path_for(wanted, first.local.ip(), remote)
            .ok_or(StackError::NoPath)?;
        let (iface, local) = (path.iface, path.addr);
        let ports = match wanted.local_port {
            Some(port) => PortChoice::Exactly(port),
            None if local == first.local.ip() => PortChoice::Unused,
            None => PortChoice::Like(first.local.port()),
        };
        let local_id = self.on_slot(slot, |conn, _| {
            let manager = conn
                .paths
                .manager
                .as_mut()
                .ok_or(StackError::InvalidState)?;
            manager.local_id(iface, local).ok_or(StackError::TooMany)
        })?;
        let create = pm::Create {
            local_id,
            iface,
            local,
            remote,
            remote_id,
            backup: wanted.backup,
            origin: SubflowOrigin::Command,
        };
        self.try_open(slot, &create, ports)
            .map(Done::Subflow)
            .map_err(|why| match why {
                pm::NotCreated::NoPort => StackError::NoPorts,
                pm::NotCreated::NoSlot | pm::NotCreated::NotNow => StackError::TooMany,
            })
    }

    /// Where a subflow leaves: as told, else from the first subflow's address while that can be used, else from the first
    /// one that is no backup.
    fn path_for(&self, wanted: &NewSubflow, first: IpAddr, remote: SocketAddr) -> Option<&Path> {
        let fits = |p: &&Path| {
            p.addr.is_ipv4() == remote.is_ipv4()
                && wanted.local.is_none_or(|addr| addr == p.addr)
                && wanted.iface.is_none_or(|iface| iface == p.iface)
        };
        let preferred = |p: &&Path| (p.addr != first, p.backup);
        // One that is asked for by name need not be one that subflows are opened from otherwise.
        let named = || self.passive_paths().filter(|_| wanted.local.is_some());
        let best = self.paths.iter().filter(fits).min_by_key(preferred);
        best.or_else(|| named().find(fits))
    }

    /// Opens a subflow on the application's request, from a local address to an address of the peer.
    ///
    /// # Errors
    /// Those of [`Stack::command`]; `InvalidState` also before the connection is fully established, when the subflow has no
    /// number yet.
    pub fn create_subflow(
        &mut self,
        now: Instant,
        id: ConnId,
        local: IpAddr,
        remote: SocketAddr,
        backup: bool,
    ) -> Result<SubflowId, StackError> {
        let wanted = NewSubflow {
            local: Some(local),
            remote: Some(remote.ip()),
            remote_port: Some(remote.port()),
            backup,
            ..NewSubflow::default()
        };
        if self
            .conns
            .get(id.0)
            .is_some_and(|e| e.conn.joins().will_follow())
        {
            return Err(StackError::InvalidState);
        }
        match self.command(now, id, Command::Create(wanted))? {
            Done::Subflow(subflow) => Ok(subflow),
            Done::Done | Done::Address(AddrId(_)) => Err(StackError::InvalidState),
        }
    }
}
