//! State of a subflow's link and address as the host reports it: no carrier, no address, and back again.
//!
//! A host does not end a TCP connection because a link flaps or an address is configured anew (RFC 9293 section 3.9.2.2 leaves
//! what the network reports to the time-outs; RFC 8684 section 3.4.2 has subflows of a removed address closed). So a subflow
//! that cannot send is *stale* at once: what it carried is reinjected on the others, and it ends by its own time-outs, or
//! when its address is gone and another subflow works, which the path manager decides.
//!
//! Owns the reaction of subflows to changes of their uplink. Must never end the only one that there is.

use core::net::IpAddr;

use crate::api::{EventKind, IfaceId, Offload, Path};
use crate::conn::Conn;
use crate::conn::events::Events;
use crate::conn::paths::Paths;
use crate::conn::send::flight::Flight;
use crate::conn::subflow::liveness::Uplink;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::pm;

/// What the host reports of an interface or an address concerns the path manager, the subflows there and the controllers.
pub(crate) struct Uplinks<'a> {
    pub(in crate::conn) paths: &'a mut Paths,
    pub(in crate::conn) flight: Flight<'a>,
    pub(in crate::conn) events: &'a mut Events,
}

impl Paths {
    /// Records the public address of one behind a NAT.
    pub(in crate::conn) fn note_outside(&mut self, path: &Path) {
        self.outside.retain(|(inside, _)| *inside != path.addr);
        let translated = path.outside.map(|outside| (path.addr, outside));
        self.outside.extend(translated);
    }

    /// An address that was gone is back, on whatever interface: the subflows that waited for it send on that one.
    pub(in crate::conn) fn follow_address(
        &mut self,
        subflows: &mut Subflows,
        path: &Path,
        cx: &mut Cx<'_>,
    ) {
        let (addr, to) = (path.addr, path.iface);
        for i in subflows.indices() {
            let sf = &mut subflows[i];
            let waits =
                sf.liveness.uplink == Uplink::NoAddress && sf.endpoint.tuple.local.ip() == addr;
            if waits && sf.endpoint.iface != to {
                let from = core::mem::replace(&mut sf.endpoint.iface, to);
                sf.endpoint.offload = path.offload;
                self.notify_manager(pm::Event::LocalMoved { from, to, addr }, cx);
            }
        }
    }
}

impl Subflows {
    fn is_at(&self, i: SubflowIdx, iface: IfaceId, addr: IpAddr) -> bool {
        let endpoint = &self[i].endpoint;
        endpoint.iface == iface && endpoint.tuple.local.ip() == addr
    }

    /// The neighbours of an interface answer again: its stale subflows retransmit.
    pub(crate) fn retransmit_interface_now(&mut self, iface: IfaceId, cx: &mut Cx<'_>) {
        for i in self.indices() {
            if self[i].endpoint.iface == iface {
                self.retransmit_now(i, cx);
            }
        }
    }
}

impl Uplinks<'_> {
    /// What the device of an interface takes off our hands has changed.
    pub(crate) fn set_offload(&mut self, iface: IfaceId, offload: Offload) {
        for sf in self.flight.subflows.iter_mut() {
            if sf.endpoint.iface == iface {
                sf.endpoint.offload = offload;
            }
        }
    }

    /// A local address is usable, or its priority or MTU changed.
    pub(crate) fn up(&mut self, path: &Path, cx: &mut Cx<'_>) {
        self.paths.note_outside(path);
        self.paths.follow_address(self.flight.subflows, path, cx);
        self.paths.notify_manager(
            pm::Event::LocalUp {
                iface: path.iface,
                addr: path.addr,
                backup: path.backup,
            },
            cx,
        );
        self.events.push_to_controller(&EventKind::LocalUp {
            iface: path.iface,
            addr: path.addr,
            backup: path.backup,
        });
        self.works(path, cx);
    }

    /// An address accepts joins of the peer and keeps its subflows; no new subflow is opened from it.
    pub(crate) fn passive(&mut self, path: &Path, cx: &mut Cx<'_>) {
        self.paths.note_outside(path);
        self.paths.follow_address(self.flight.subflows, path, cx);
        let (iface, addr) = (path.iface, path.addr);
        self.paths
            .notify_manager(pm::Event::LocalPassive { iface, addr }, cx);
        self.works(path, cx);
    }

    /// No packet can leave from an address at present: its subflows are stale. // rfc8684:R4
    pub(crate) fn stalled(&mut self, iface: IfaceId, addr: IpAddr, cx: &mut Cx<'_>) {
        self.paths
            .notify_manager(pm::Event::LocalStalled { iface, addr }, cx);
        self.events
            .push_to_controller(&EventKind::LocalDown { iface, addr });
        for i in self.flight.subflows.indices() {
            if self.flight.subflows.is_at(i, iface, addr) {
                self.fails(i, Uplink::Stalled, cx);
            }
        }
    }

    /// A local address is gone: it is withdrawn, and its subflows end where another subflow works. // rfc8684:A16,A19
    pub(crate) fn down(&mut self, iface: IfaceId, addr: IpAddr, cx: &mut Cx<'_>) {
        self.paths.outside.retain(|(inside, _)| *inside != addr);
        self.paths
            .notify_manager(pm::Event::LocalDown { iface, addr }, cx);
        self.events
            .push_to_controller(&EventKind::LocalDown { iface, addr });
        for i in self.flight.subflows.indices() {
            if !self.flight.subflows.is_at(i, iface, addr) {
                continue;
            }
            // A join in its handshake is requested again from an address that exists.
            match self.flight.subflows[i].is_first() || self.flight.subflows[i].was_up() {
                true => self.fails(i, Uplink::NoAddress, cx),
                false => self.flight.address_gone(i, cx),
            }
        }
    }

    /// Reinjects on others at once what a subflow had in flight.
    fn fails(&mut self, i: SubflowIdx, uplink: Uplink, cx: &mut Cx<'_>) {
        self.flight.subflows[i].liveness.uplink = uplink;
        self.flight.subflows.dirty = true;
        self.flight.becomes_stale(i, cx);
        self.flight.subflows.refresh_sample(i);
    }

    /// Subflows of an address can send again, or their packets take another route: they retransmit at once.
    fn works(&mut self, path: &Path, cx: &mut Cx<'_>) {
        for i in self.flight.subflows.indices() {
            if !self.flight.subflows.is_at(i, path.iface, path.addr) {
                continue;
            }
            let sf = &mut self.flight.subflows[i];
            sf.tcp.set_mss(cx.now, path.mss());
            match core::mem::replace(&mut sf.liveness.uplink, Uplink::Works) {
                Uplink::Works => self.flight.subflows.retransmit_now(i, cx),
                Uplink::Stalled | Uplink::NoAddress => self.recovers(i, cx),
            }
        }
    }

    /// What was in flight is considered lost and retransmitted now. With nothing in flight, the subflow is restored. A peer that
    /// has been sending is informed by an ACK, which also reports what arrived (a keepalive, whose sequence number is old, does
    /// neither for it); the keepalive probes whether the peer is there.
    fn recovers(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.flight.subflows.dirty = true;
        let sf = &mut self.flight.subflows[i];
        if sf.tcp.on_path_restored(cx.now) {
            sf.liveness.retried_at = Some(cx.now);
            cx.count.subflow_hinted += 1;
        } else {
            sf.tcp.force_ack();
            sf.tcp.probe_liveness(cx.now);
            self.flight.recovers(self.paths, i, cx);
        }
        self.flight.subflows.refresh_sample(i);
    }
}

impl Conn {
    /// Its paths, for a report of the host.
    pub(crate) fn uplinks(&mut self) -> Uplinks<'_> {
        Uplinks {
            paths: &mut self.paths,
            flight: Flight::new(&mut self.subflows, &mut self.send, self.level),
            events: &mut self.events,
        }
    }
}
