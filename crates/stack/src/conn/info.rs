//! Snapshots of a connection for status, and options that change while it is open. Must never copy stream data.

use alloc::vec::Vec;

use manypath_tcp::time::Instant;

use crate::api::{ConnInfo, ConnOptions, LocalAddress, PeerAddress};
use crate::conn::Conn;
use crate::conn::paths::Paths;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::table::Subflows;
use crate::pm::ledger::{Announced, Local, Remote, Source};

impl Subflows {
    /// Room in the peer's window beyond what was sent. With plain TCP only the subflow knows it.
    fn peer_window(&self, send: &SendQueue) -> u64 {
        let next = send.next();
        if let Some(edge) = send.edge() {
            return edge.max(next).since(next);
        }
        let room = |sf: &Subflow| u64::from(sf.tcp.peer_window());
        self.iter().map(room).max().unwrap_or(0)
    }
}

impl Paths {
    fn local_addresses(&self) -> Vec<LocalAddress> {
        let locals = self.manager.iter().flat_map(|m| m.ledger().locals());
        let told = |local: &Local| LocalAddress {
            id: local.id,
            iface: local.iface,
            addr: local.addr,
            backup: local.backup,
            up: local.is_up(),
            announced: local.announced != Announced::No,
        };
        locals.map(told).collect()
    }

    fn peer_addresses(&self) -> Vec<PeerAddress> {
        let remotes = self.manager.iter().flat_map(|m| m.ledger().remotes());
        let told = |remote: &Remote| PeerAddress {
            id: remote.id,
            addr: remote.addr,
            announced: remote.source == Source::Announced,
        };
        remotes.map(told).collect()
    }
}

impl Conn {
    pub(crate) fn info(&self) -> ConnInfo {
        ConnInfo {
            id: self.id,
            role: self.handshake.role,
            state: self.state(),
            level: self.level.level(),
            fallback: self.level.cause(),
            closed: self.life.closed,
            local: self.handshake.first.local,
            remote: self.handshake.first.remote,
            token: self
                .handshake
                .keys
                .token()
                .filter(|_| self.handshake.keys.remote.is_some()),
            checksum: self.numbers.checksum && self.level.is_multipath(),
            scheduler: self.opts.scheduler,
            congestion: self.opts.congestion,
            receive: self.recv.arrived.algorithm(),
            searches: self.recv.arrived.searches(),
            path_manager: self.opts.path_manager,
            opened: self.life.opened,
            bytes_written: self.send.end().0,
            bytes_acked: self.send.una().0,
            bytes_received: self.recv.next().0,
            bytes_read: self.recv.bytes_read(),
            bytes_reinjected: self.send.bytes_reinjected,
            send_queue: u32::try_from(self.send.queued()).unwrap_or(u32::MAX),
            recv_queue: u32::try_from(self.recv.readable()).unwrap_or(u32::MAX),
            memory: self.memory(),
            peer_window: self.subflows.peer_window(&self.send),
            may_join: self.joins().may_join(),
            may_create: self.joins().may_create(),
            held_up_by: self
                .subflows
                .held_up_by(&self.send)
                .map(|i| self.subflows[i].id()),
            locals: self.paths.local_addresses(),
            remotes: self.paths.peer_addresses(),
            subflows: self.subflows.iter().map(Subflow::info).collect(),
            ended: self.subflows.ended.iter().copied().collect(),
        }
    }

    /// Applies options that can change on an open connection: buffers, scheduler, congestion control, mechanisms, receive algorithm,
    /// no-delay, limits, timeouts.
    pub(crate) fn set_options(&mut self, opts: &ConnOptions, now: Instant) {
        self.opts.scheduler = opts.scheduler;
        self.opts.congestion = opts.congestion;
        self.opts.receive = opts.receive;
        self.recv.arrived.set_algorithm(opts.receive);
        let untuned = self.opts.mechanisms.autotune && !opts.mechanisms.autotune;
        self.opts.mechanisms = opts.mechanisms;
        if untuned {
            self.send.untune();
            if self.limits.accepted {
                let grown = self.recv.capacity();
                self.recv.set_capacity(grown.max(self.opts.recv_buffer));
            }
        }
        self.opts.nodelay = opts.nodelay;
        self.opts.break_before_make = opts.break_before_make;
        self.opts.max_subflows = opts.max_subflows;
        self.opts.send_buffer = opts.send_buffer;
        self.send.set_capacity(opts.send_buffer);
        self.opts.recv_buffer = opts.recv_buffer.min(self.opts.recv_buffer);
        self.recv
            .set_capacity(self.recv.capacity().min(self.opts.recv_buffer));
        for sf in &mut self.subflows {
            sf.tcp.set_capping(opts.mechanisms.cap);
            sf.tcp.set_nagle(!opts.nodelay);
            sf.tcp.set_congestion(opts.congestion);
            sf.tcp.set_user_timeout(opts.user_timeout);
            if opts.keepalive != self.opts.keepalive {
                sf.tcp.set_keepalive(now, opts.keepalive);
            }
        }
        // Nobody read them before, if the algorithm was not coupled.
        for i in self.subflows.indices() {
            self.subflows.refresh_sample(i);
        }
        self.opts.keepalive = opts.keepalive;
        self.opts.user_timeout = opts.user_timeout;
    }
}
