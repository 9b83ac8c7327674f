//! What can be read about a connection, gathered on request.

use manypath_tcp::time::Instant;

use super::Conn;
use super::subflow::Subflow;
use crate::api::{ConnInfo, ConnOptions};

impl Conn {
    pub(crate) fn info(&self) -> ConnInfo {
        ConnInfo {
            id: self.id,
            role: self.role,
            state: self.state(),
            level: self.lattice.level(),
            fallback: self.lattice.cause(),
            closed: self.closed,
            local: self.first.local,
            remote: self.first.remote,
            token: self.token().filter(|_| self.remote.is_some()),
            checksum: self.checksum && self.lattice.speaks_multipath(),
            scheduler: self.opts.scheduler,
            congestion: self.opts.congestion,
            path_manager: self.opts.path_manager,
            opened: self.opened,
            bytes_written: self.send.end().0,
            bytes_acked: self.send.una().0,
            bytes_received: self.recv.next().0,
            bytes_read: self.recv.bytes_read(),
            bytes_reinjected: self.send.bytes_reinjected,
            send_queue: u32::try_from(self.send.queued()).unwrap_or(u32::MAX),
            recv_queue: u32::try_from(self.recv.readable()).unwrap_or(u32::MAX),
            memory: self.memory(),
            peer_window: self
                .send
                .edge()
                .max(self.send.next())
                .since(self.send.next()),
            subflows: self.subflows.iter().map(Subflow::info).collect(),
            ended: self.ended.iter().copied().collect(),
        }
    }

    /// Takes options that can change on a living connection: buffers, scheduler, no-delay, timeouts.
    pub(crate) fn set_options(&mut self, opts: &ConnOptions, now: Instant) {
        self.opts.scheduler = opts.scheduler;
        self.opts.nodelay = opts.nodelay;
        self.opts.break_before_make = opts.break_before_make;
        self.opts.max_subflows = opts.max_subflows;
        self.opts.send_buffer = opts.send_buffer;
        self.send.set_capacity(opts.send_buffer);
        self.recv
            .set_capacity(opts.recv_buffer.min(self.opts.recv_buffer));
        for sf in &mut self.subflows {
            sf.tcp.set_nagle(!opts.nodelay);
            sf.tcp.set_user_timeout(opts.user_timeout);
            if opts.keepalive != self.opts.keepalive {
                sf.tcp.set_keepalive(now, opts.keepalive);
            }
        }
        self.opts.keepalive = opts.keepalive;
        self.opts.user_timeout = opts.user_timeout;
    }
}
