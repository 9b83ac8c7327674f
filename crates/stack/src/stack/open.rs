//! How connections and subflows begin, from either side.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::machine::Machine;
use manypath_tcp::time::Instant;
use manypath_wire::ids::{AddrId, FourTuple, Nonce, Token};
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::mptcp::ResetReason;

use super::demux::Target;
use super::limits::Cost;
use super::listener::Listener;
use super::ports::DYNAMIC;
use super::{Entry, Stack};
use crate::api::{
    ConnOptions, ConnectOptions, IfaceId, ListenOptions, Mode, Path, Role, StackError,
    SubflowOrigin, is_of_a_host, meant, zone_of,
};
use crate::conn::{Conn, ConnParams, Cx, Endpoint, HandshakeState, JoinVerdict};
use crate::crypto::keys::KeyMaterial;
use crate::ids::{ConnId, ListenerId, SubflowId};
use crate::pm;
use crate::shape::Shares;

/// How often the SYN of a join is repeated where a subflow was lost: a minute's worth, since it asks each second.
const REJOIN_SYNS: u8 = 60;

/// What an MP_JOIN SYN says.
#[derive(Clone, Copy, Debug)]
pub(super) struct JoinOffer {
    pub(super) token: Token,
    pub(super) nonce: Nonce,
    pub(super) addr_id: AddrId,
    pub(super) backup: bool,
}

impl Stack {
    /// Accepts connections on an address and port from now on.
    pub fn listen(&mut self, opts: ListenOptions) -> Result<ListenerId, StackError> {
        let addr = meant(opts.addr);
        if !addr.ip().is_unspecified() && !is_of_a_host(addr.ip()) {
            return Err(StackError::BadAddress);
        }
        let opts = ListenOptions { addr, ..opts };
        let handle = self.listeners.insert(Listener::new(opts));
        if self.demux.add_listener(addr, handle.index()).is_err() {
            self.listeners.remove(handle);
            return Err(StackError::AddressInUse);
        }
        Ok(ListenerId(handle))
    }

    /// Whether from now on a listener's SYNs that bring payload are not answered before [`answer_syn`](Self::answer_syn): the connection
    /// can be accepted at once, and its first bytes be read. As many as [`StackConfig::max_early`](super::StackConfig::max_early) are held at
    /// one time; further SYNs are answered at once, without their payload.
    pub fn hold_syns(&mut self, id: ListenerId, on: bool) -> Result<(), StackError> {
        let listener = self.listeners.get_mut(id.0);
        listener.ok_or(StackError::NoSuchHandle)?.holds_syns = on;
        Ok(())
    }

    /// Stops accepting. Connections that nobody accepted are aborted; accepted ones live on.
    pub fn close_listener(&mut self, now: Instant, id: ListenerId) -> Result<(), StackError> {
        self.tick(now);
        let listener = self
            .listeners
            .remove(id.0)
            .ok_or(StackError::NoSuchHandle)?;
        self.demux.remove_listener(listener.opts.addr, id.0.index());
        for waiting in listener.waiting() {
            self.with_conn(waiting.0.index(), |conn, cx| {
                conn.ending().release_and_abort(cx)
            });
        }
        Ok(())
    }

    /// The next established connection of a listener.
    pub fn accept(&mut self, id: ListenerId) -> Option<ConnId> {
        let conn = self.listeners.get_mut(id.0)?.accept()?;
        self.permit_window(conn.0.index());
        if let Some(entry) = self.conns.get_mut(conn.0) {
            entry.listener = None;
            let accepted = &mut *entry.conn;
            let opts = &accepted.opts;
            accepted.limits.lift_restriction(opts, &mut accepted.recv);
            self.reconcile_later(conn.0.index());
        }
        Some(conn)
    }

    /// Opens a connection; `Established` or `Closed` follows as an event.
    pub fn connect(&mut self, now: Instant, opts: ConnectOptions) -> Result<ConnId, StackError> {
        let now = self.tick(now);
        if self.conns.len() >= self.config.max_connections {
            return Err(StackError::TooMany);
        }
        let remote = meant(opts.remote);
        if !self.may_be_called(remote.ip()) || remote.port() == 0 {
            return Err(StackError::BadAddress);
        }
        let local = opts.local.map(|addr| addr.to_canonical());
        let opts = ConnectOptions {
            remote,
            local,
            ..opts
        };
        let path = self
            .first_path(opts.local, opts.remote)
            .ok_or(StackError::NoPath)?
            .clone();
        let tuple = self
            .free_tuple(&path, opts.remote, None)
            .ok_or(StackError::NoPorts)?;
        let local = self.own_keys(opts.conn.mode);
        let birth = Draft {
            role: Role::Initiator,
            opts: opts.conn,
            local,
            offered_checksum: false,
            no_joins: false,
        };
        let isn = self.isn.choose(now, &tuple);
        let stamp = self.isn.timestamp_offset(&tuple);
        let config = self.machine_config(&birth.opts, &path, stamp);
        let mut tcp = Machine::connect(config, now, isn);
        self.offer_early(&mut tcp, &birth.opts, &tuple);
        self.counters.conn_active += 1;
        self.enter(birth, &path, tuple, tcp, None)
    }

    /// A path for the first subflow: the address that was asked for, else the first that is not a backup.
    fn first_path(&self, local: Option<IpAddr>, remote: SocketAddr) -> Option<&Path> {
        if let Some(addr) = local {
            let named = self.path_of(addr);
            return named.filter(|p| p.addr.is_ipv4() == remote.is_ipv4());
        }
        // The zone of an address is a link of ours (RFC 4007 section 6).
        let zone = zone_of(remote);
        let fits = |p: &&Path| {
            p.addr.is_ipv4() == remote.is_ipv4() && zone.is_none_or(|zone| p.iface == zone)
        };
        self.paths.iter().filter(fits).min_by_key(|p| p.backup)
    }

    /// A four-tuple that is free, with the preferred local port if it can be had. // rfc8684:H1
    fn free_tuple(
        &mut self,
        path: &Path,
        remote: SocketAddr,
        preferred: Option<u16>,
    ) -> Option<FourTuple> {
        let range = path.ports.clone().unwrap_or(DYNAMIC);
        let (demux, time_wait) = (&self.demux, &self.time_wait);
        let taken = |addr: IpAddr, port: u16| {
            let tuple = FourTuple::new(SocketAddr::new(addr, port), remote);
            demux.subflow(&tuple).is_some()
                || demux.listener(tuple.local).is_some()
                || time_wait.contains(&tuple)
        };
        // A new connection takes a port that its joins from the other addresses can have as well. // rfc8684:H2
        let others = self.paths.iter().map(|other| other.addr);
        let others = others.filter(|_| preferred.is_none());
        let in_use = |port: u16| {
            let elsewhere = |addr: IpAddr| addr.is_ipv4() == remote.is_ipv4() && taken(addr, port);
            taken(path.addr, port) || others.clone().any(elsewhere)
        };
        let port = self
            .ports
            .allocate(path.addr, remote, range, preferred, in_use)?;
        Some(FourTuple::new(SocketAddr::new(path.addr, port), remote))
    }

    /// Keys for a connection that may speak Multipath TCP. // rfc8684:C5,C6
    pub(super) fn own_keys(&mut self, mode: Mode) -> Option<KeyMaterial> {
        match mode {
            Mode::PlainTcp => None,
            Mode::Multipath => {
                let demux = &self.demux;
                self.keys
                    .take(&mut self.rng, |token| demux.token(token).is_some())
            }
        }
    }

    pub(super) fn enter(
        &mut self,
        draft: Draft,
        path: &Path,
        tuple: FourTuple,
        tcp: Machine,
        listener: Option<ListenerId>,
    ) -> Result<ConnId, StackError> {
        let subflow = SubflowId(0);
        let endpoint = Endpoint {
            id: subflow,
            iface: path.iface,
            offload: path.offload,
            tuple,
            origin: SubflowOrigin::First,
            local_id: AddrId(0), // rfc8684:J3
            remote_id: AddrId(0),
            backup_here: false,
            backup_there: false,
        };
        let manager = draft
            .local
            .is_some()
            .then(|| self.manager_for(&draft.opts, path, tuple));
        let token = draft.local.as_ref().map(|local| local.token);
        let now = self.now;
        let handle = self.conns.insert_with(|handle| {
            let birth = ConnParams {
                id: ConnId(handle),
                role: draft.role,
                opts: draft.opts,
                local: draft.local,
                offered_checksum: draft.offered_checksum,
                no_joins_to_first: draft.no_joins,
                manager,
            };
            Entry {
                conn: Box::new(Conn::new(birth, endpoint, tcp, now)),
                listener,
                cost: Cost::default(),
                assessed: true,
                source: None,
                early: false,
                held: false,
                ready: false,
                to_reconcile: false,
                race: None,
                shares: Shares::default(),
            }
        });
        self.fit_new(handle);
        let slot = handle.index();
        let target = Target {
            conn: slot,
            subflow,
        };
        if self.demux.add_subflow(&tuple, target).is_err() {
            self.conns.remove(handle);
            return Err(StackError::AddressInUse);
        }
        self.leave_time_wait(&tuple);
        if let Some(token) = token {
            // The pool made sure of this when the key was taken, a moment ago.
            let entered = self.demux.add_token(token, slot);
            debug_assert!(entered.is_ok(), "two live connections with one token");
        }
        let paths = self.paths.clone();
        let others: Vec<Path> = self.passive_paths().cloned().collect();
        let unread = listener.map(|_| self.config.unaccepted_window);
        self.permit_window(slot);
        self.with_conn(slot, |conn, cx| {
            match unread {
                Some(bytes) => conn.limits.restrict_window(&mut conn.recv, bytes),
                None => conn.limits.heed_permitted_window(&mut conn.recv),
            }
            conn.paths.notify_opening(&endpoint, cx);
            for path in &paths {
                conn.uplinks().up(path, cx);
            }
            // Its own address serves although another one of the link is preferred.
            let own = |path: &&Path| path.iface == endpoint.iface && path.addr == tuple.local.ip();
            for path in others.iter().filter(|path| !own(path)) {
                conn.uplinks().passive(path, cx);
            }
        });
        Ok(ConnId(handle))
    }

    /// A SYN that was let in has brought a four-tuple out of TIME-WAIT. Sooner the record must not go: of a SYN that is refused
    /// nothing is left that would acknowledge the old peer's FIN.
    fn leave_time_wait(&mut self, tuple: &FourTuple) {
        self.counters.time_wait_reused += u64::from(self.time_wait.reopened(tuple));
    }

    fn manager_for(&self, opts: &ConnOptions, path: &Path, tuple: FourTuple) -> pm::Manager {
        let mut config = pm::Config::new(pm::Policy::from(opts.path_manager));
        config.limits.subflows = opts.max_subflows;
        let first = pm::First {
            iface: path.iface,
            local: tuple.local,
            remote: tuple.remote,
            backup: path.backup,
        };
        pm::Manager::new(config, first)
    }

    /// Where our numbers begin: out of TIME-WAIT `beyond` the old ones (RFC 9293 section 3.10.7.4).
    pub(super) fn first_number(&self, tuple: &FourTuple, beyond: Option<SeqNum>) -> SeqNum {
        let chosen = self.isn.choose(self.now, tuple); // rfc8684:G4
        beyond.map_or(chosen, |old| chosen.max(old + (1 << 16)))
    }

    /// A SYN that wants to join a connection, on whatever port. // rfc8684:J17
    pub(super) fn handle_join(
        &mut self,
        iface: IfaceId,
        seg: &Segment<'_>,
        offer: JoinOffer,
        beyond: Option<SeqNum>,
    ) {
        // rfc8684:J8,E1
        let Some(slot) = self.demux.token(offer.token) else {
            self.counters.join_unknown_token += 1;
            if !self.is_the_hosts_join(iface, seg) {
                self.reset_reply(iface, seg, Some(ResetReason::MptcpSpecific));
            }
            return;
        };
        let Some(path) = self.path_for_packet(iface, seg.tuple.local.ip()).cloned() else {
            return;
        };
        self.assess();
        let joins = self.permits().joins;
        let taken = match joins {
            true => self.admit_join(slot),
            false => JoinVerdict::None,
        };
        let Some(conn) = self.conns.at_mut(slot).map(|entry| &mut entry.conn) else {
            return;
        };
        if !conn.joins().are_accepted() {
            // A peer that is kept waiting repeats its SYN.
            let waits = conn.joins().must_wait();
            self.counters.join_too_early += 1;
            if !waits {
                self.reset_reply(iface, seg, Some(ResetReason::MptcpSpecific));
            }
            return;
        }
        if !joins {
            self.counters.join_memory += 1;
            self.reset_reply(iface, seg, Some(ResetReason::LackOfResources)); // rfc8684:T3
            return;
        }
        if taken == JoinVerdict::Waits {
            self.counters.join_refused += 1;
            return;
        }
        let local_id = conn
            .paths
            .manager
            .as_mut()
            .and_then(|manager| manager.local_id(iface, path.addr));
        let subflow = match taken {
            JoinVerdict::Beyond => conn.subflows.free_name(),
            _ => conn.subflows.free_subflow(&conn.opts),
        };
        let (Some(subflow), Some(local_id)) = (subflow, local_id) else {
            // A place may be free later.
            self.counters.join_refused += 1;
            self.reset_reply(iface, seg, Some(ResetReason::LackOfResources)); // rfc8684:T3
            return;
        };
        let opts = conn.opts.clone();
        let nonce = Nonce(self.rng.next_u32()); // rfc8684:J2
        let isn = self.first_number(&seg.tuple, beyond);
        let stamp = self.isn.timestamp_offset(&seg.tuple);
        let tcp = Machine::accept(self.machine_config(&opts, &path, stamp), self.now, isn, seg);
        let endpoint = Endpoint {
            id: subflow,
            iface,
            offload: path.offload,
            tuple: seg.tuple,
            origin: SubflowOrigin::Peer,
            local_id,
            remote_id: offer.addr_id, // rfc8684:J4
            backup_here: path.backup,
            backup_there: offer.backup, // rfc8684:J6
        };
        let handshake = HandshakeState::JoinSynAck {
            local: nonce,
            remote: offer.nonce,
        };
        self.add_subflow(slot, endpoint, tcp, handshake);
    }

    /// Whether a connection has a place for a join. One that an unproven join has held for long is given to the next one: tokens may
    /// be overheard, and sources made up. The connection is only touched where that helps: a turn of it costs as much as all its
    /// subflows.
    fn admit_join(&mut self, slot: u32) -> JoinVerdict {
        let mut place = self.look_for_place(slot);
        if let JoinVerdict::Of(_) = place {
            self.with_conn(slot, |conn, cx| conn.subflows.room_for_join(&conn.opts, cx));
            // It may have been the one beyond the limit.
            place = self.look_for_place(slot);
        }
        match place {
            JoinVerdict::Ask => {
                self.with_conn(slot, |conn, cx| conn.subflows.room_for_join(&conn.opts, cx));
                JoinVerdict::Waits
            }
            // One for each SYN.
            JoinVerdict::Of(_) => JoinVerdict::Waits,
            JoinVerdict::Free | JoinVerdict::Beyond | JoinVerdict::Waits | JoinVerdict::None => {
                place
            }
        }
    }

    fn look_for_place(&self, slot: u32) -> JoinVerdict {
        let entry = self.conns.at(slot);
        let entry = entry.filter(|entry| entry.conn.joins().are_accepted());
        entry.map_or(JoinVerdict::None, |entry| {
            let conn = &entry.conn;
            conn.subflows.admit_join(&conn.opts, self.now)
        })
    }

    /// A subflow that the path manager wants.
    pub(super) fn open_wanted(&mut self, slot: u32, create: &pm::Create) {
        // The peer may not know yet that the subflow is lost which used this port: a reset can be lost, too.
        let ports = match self.conns.at_mut(slot) {
            Some(entry) if create.origin != SubflowOrigin::Recreated => {
                PortChoice::Like(entry.conn.handshake.first_tuple().local.port())
            }
            _ => PortChoice::Unused,
        };
        if let Err(why) = self.try_open(slot, create, ports) {
            let Some(entry) = self.conns.at_mut(slot) else {
                return;
            };
            let mut cx = Cx::new(self.now, &mut self.counters, &mut self.rng);
            entry.conn.paths.notify_manager(
                pm::Event::CreateFailed {
                    create: *create,
                    why,
                },
                &mut cx,
            );
            self.reconcile_later(slot);
        }
    }

    pub(super) fn try_open(
        &mut self,
        slot: u32,
        create: &pm::Create,
        ports: PortChoice,
    ) -> Result<SubflowId, pm::NotCreated> {
        let path = self
            .path_for_packet(create.iface, create.local)
            .cloned()
            .ok_or(pm::NotCreated::NoPort)?;
        if self.is_broadcast(create.remote.ip()) {
            return Err(pm::NotCreated::NoPort);
        }
        if !self.permits().joins {
            return Err(pm::NotCreated::NotNow);
        }
        let entry = self.conns.at_mut(slot).ok_or(pm::NotCreated::NoSlot)?;
        let opts = entry.conn.opts.clone();
        if !entry.conn.joins().may_join() || entry.conn.subflows.awaits_fallback_of_peer(self.now) {
            return Err(pm::NotCreated::NotNow);
        }
        let subflow = entry
            .conn
            .subflows
            .name_for_own_join(&opts, create.backup)
            .ok_or(pm::NotCreated::NoSlot)?;
        let again = create.origin == SubflowOrigin::Recreated;
        let rests = |port: &u16| {
            let local = SocketAddr::new(path.addr, *port);
            self.ports
                .rests(&FourTuple::new(local, create.remote), self.now)
        };
        let preferred = match ports {
            PortChoice::Like(port) => Some(port).filter(|port| !rests(port)),
            PortChoice::Exactly(port) => Some(port),
            PortChoice::Unused => None,
        };
        let exact = |tuple: &FourTuple| match ports {
            PortChoice::Exactly(port) => tuple.local.port() == port,
            PortChoice::Like(_) | PortChoice::Unused => true,
        };
        let tuple = self
            .free_tuple(&path, create.remote, preferred)
            .filter(exact)
            .ok_or(pm::NotCreated::NoPort)?;
        let nonce = Nonce(self.rng.next_u32()); // rfc8684:J2
        let isn = self.isn.choose(self.now, &tuple); // rfc8684:G4
        let stamp = self.isn.timestamp_offset(&tuple);
        let mut config = self.machine_config(&opts, &path, stamp);
        if again {
            // Its SYN goes on asking, each second, a path that worked before.
            config.timeouts.syn_retries = REJOIN_SYNS;
        }
        let tcp = Machine::connect(config, self.now, isn);
        let endpoint = Endpoint {
            id: subflow,
            iface: path.iface,
            offload: path.offload,
            tuple,
            origin: create.origin,
            local_id: create.local_id,
            remote_id: create.remote_id,
            backup_here: create.backup,
            backup_there: false,
        };
        self.add_subflow(slot, endpoint, tcp, HandshakeState::JoinSyn { nonce });
        Ok(subflow)
    }

    fn add_subflow(
        &mut self,
        slot: u32,
        endpoint: Endpoint,
        tcp: Machine,
        handshake: HandshakeState,
    ) {
        if self
            .demux
            .add_subflow(
                &endpoint.tuple,
                Target {
                    conn: slot,
                    subflow: endpoint.id,
                },
            )
            .is_err()
        {
            return;
        }
        self.leave_time_wait(&endpoint.tuple);
        if let Some(entry) = self.conns.at_mut(slot) {
            let mut cx = Cx::new(self.now, &mut self.counters, &mut self.rng);
            entry.conn.paths.notify_opening(&endpoint, &mut cx);
            entry
                .conn
                .subflows
                .add_join(endpoint, tcp, handshake, &mut cx);
            self.reconcile_later(slot);
        }
    }
}

/// Which local port a subflow takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortChoice {
    /// This one, if it is free. // rfc8684:H1
    Like(u16),
    /// One that was not used lately.
    Unused,
    /// This one or none.
    Exactly(u16),
}

/// A connection that is about to be entered.
pub(super) struct Draft {
    pub(super) role: Role,
    pub(super) opts: ConnOptions,
    pub(super) local: Option<KeyMaterial>,
    pub(super) offered_checksum: bool,
    pub(super) no_joins: bool,
}
