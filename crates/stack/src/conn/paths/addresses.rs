//! ADD_ADDR, REMOVE_ADDR and MP_PRIO, in and out, and the path manager's actions (RFC 8684 sections 3.3.8 and 3.4).
//!
//! Owns announcements until they are echoed. Which subflows there should be is the path manager's decision, never one of this file.

use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::time::Duration;
use manypath_wire::ids::AddrId;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::mptcp::{AddAddr, AddrIds, MptcpOption, Prio, RemoveAddr};

use crate::api::{EventKind, Role, StackError};
use crate::conn::Conn;
use crate::conn::events::Events;
use crate::conn::paths::{Announcement, Paths};
use crate::conn::send::flight::Flight;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::crypto::mac;
use crate::pm;

/// How often an announcement is sent before it is given up. // rfc8684:A9
const ANNOUNCEMENTS: u8 = 5;
/// Wait between them at first; it doubles.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);
/// Options that may wait on one subflow.
const MOST_SIGNALS: usize = 16;

impl Subflows {
    /// A keepalive decides whether a subflow whose address the peer withdrew still works. // rfc8684:A17
    fn probe(&mut self, subflow: crate::ids::SubflowId, cx: &mut Cx<'_>) {
        if let Some(i) = self.find(subflow) {
            let sf = &mut self[i];
            sf.liveness.probe_until = Some(cx.now + sf.tcp.rto().times(3));
            sf.tcp.probe_liveness(cx.now);
        }
    }

    /// A segment arrived on a subflow. The answer to a keepalive has no payload; payload may have been in flight already when
    /// the address was withdrawn, and counts only a time-out later. // rfc8684:A17
    pub(crate) fn probe_answered(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &Cx<'_>) {
        let sf = &mut self[i];
        let Some(until) = sf.liveness.probe_until else {
            return;
        };
        if seg.is_empty() || cx.now + sf.tcp.rto().times(2) >= until {
            sf.liveness.probe_until = None;
        }
    }

    /// An ACK without data was sent with these options: a signal that was among them is done.
    pub(crate) fn signals_sent(
        &mut self,
        i: SubflowIdx,
        gone: &manypath_wire::tcp::options::MptcpOptions,
        cx: &Cx<'_>,
    ) {
        let sf = &mut self[i];
        let Some(front) = sf.signals.queue.front() else {
            return;
        };
        if gone.iter().any(|option| option == front) {
            sf.signals.queue.pop_front();
            sf.signals.sent_alone(cx.now, sf.tcp.rto());
        }
    }

    /// The peer changes the priority of this subflow. // rfc8684:P2
    pub(crate) fn on_prio(
        &mut self,
        events: &mut Events,
        i: SubflowIdx,
        backup: bool,
        cx: &mut Cx<'_>,
    ) {
        cx.count.prio_received += 1;
        let endpoint = &mut self[i].endpoint;
        if endpoint.backup_there != backup {
            endpoint.backup_there = backup;
            let subflow = endpoint.id;
            events.push(EventKind::PriorityChanged { subflow, backup });
        }
    }
}

impl Flight<'_> {
    /// Unanswered probes end their subflows. // rfc8684:A17,A19
    pub(crate) fn probes_due(&mut self, cx: &mut Cx<'_>) {
        for i in self.subflows.indices() {
            if self.subflows[i]
                .liveness
                .probe_until
                .is_some_and(|until| until <= cx.now)
            {
                self.subflows[i].liveness.probe_until = None;
                self.address_gone(i, cx);
            }
        }
    }

    /// Makes a subflow a backup, or no longer, and sends MP_PRIO. // rfc8684:P2
    pub(crate) fn set_backup(
        &mut self,
        subflow: crate::ids::SubflowId,
        backup: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), StackError> {
        let i = self
            .subflows
            .find(subflow)
            .ok_or(StackError::NoSuchHandle)?;
        self.subflows[i].endpoint.backup_here = backup;
        cx.count.prio_sent += 1;
        self.signal(i, MptcpOption::Prio(Prio { backup }));
        Ok(())
    }

    fn signal(&mut self, i: SubflowIdx, option: MptcpOption) {
        let signals = &mut self.subflows[i].signals.queue;
        if signals.len() < MOST_SIGNALS && self.level.is_multipath() {
            signals.push_back(option);
        }
    }
}

impl Paths {
    /// Reports an event to the path manager.
    pub(crate) fn notify_manager(&mut self, event: pm::Event, cx: &mut Cx<'_>) -> pm::Noted {
        match &mut self.manager {
            Some(manager) => manager.handle(cx.now, event, cx.rng),
            None => pm::Noted::Ignored,
        }
    }

    fn withdraw(&mut self, flight: &mut Flight<'_>, id: AddrId, cx: &mut Cx<'_>) {
        self.announcements.0.retain(|a| a.id != id);
        let mut ids = AddrIds::EMPTY;
        let taken = ids.push(id);
        debug_assert!(taken, "an empty list takes one");
        // Any subflow that still works can carry it. // rfc8684:A16
        if let Some(i) = flight.subflows.best_subflow() {
            cx.count.remove_addr_sent += 1;
            flight.signal(i, MptcpOption::RemoveAddr(RemoveAddr { ids }));
        }
    }

    /// The peer withdraws addresses. // rfc8684:A17,A18,A20
    pub(crate) fn on_remove_addr(
        &mut self,
        events: &mut Events,
        remove: &RemoveAddr,
        cx: &mut Cx<'_>,
    ) {
        for &id in remove.ids.as_slice() {
            match self.notify_manager(pm::Event::Withdrawn { id }, cx) {
                pm::Noted::Accepted => {
                    cx.count.remove_addr_accepted += 1;
                    events.push(EventKind::AddressWithdrawn { id });
                }
                pm::Noted::Ignored => cx.count.remove_addr_unknown += 1,
            }
        }
    }

    /// Executes one action on the paths; new subflows are left to the stack, which has the ports.
    pub(crate) fn carry_out(
        &mut self,
        flight: &mut Flight<'_>,
        role: Role,
        action: pm::Action,
        cx: &mut Cx<'_>,
    ) {
        match action {
            pm::Action::Create(create) => self.wanted.push_back(create),
            pm::Action::Remove { subflow } => {
                if let Some(i) = flight.subflows.find(subflow) {
                    flight.address_gone(i, cx);
                }
            }
            pm::Action::Probe { subflow } => flight.subflows.probe(subflow, cx),
            // A subflow that ended in the meantime has no priority any more.
            pm::Action::Prioritise { subflow, backup } => {
                let _ = flight.set_backup(subflow, backup, cx);
            }
            pm::Action::Announce { id, addr, port } => {
                self.announcements.0.retain(|a| a.id != id);
                let told = self.as_seen_by_peer(role, addr, port);
                self.announcements.0.extend(told.map(|addr| Announcement {
                    id,
                    addr,
                    port,
                    again_at: cx.now,
                    sent: 0,
                }));
            }
            pm::Action::Withdraw { id } => self.withdraw(flight, id, cx),
        }
    }

    /// The form in which to advertise one of our addresses: never one from behind a NAT, which means nothing to the peer or is that of
    /// another host. A translated one is reachable where we listen, so the initiator advertises it only with a named port.
    pub(crate) fn as_seen_by_peer(
        &self,
        role: Role,
        addr: IpAddr,
        port: Option<u16>,
    ) -> Option<IpAddr> {
        let mut translated = self.outside.iter().filter(|(inside, _)| *inside == addr);
        let Some((_, outside)) = translated.next() else {
            return Some(addr);
        };
        (role == Role::Responder || port.is_some()).then_some(*outside)
    }

    /// Sends announcements, again until they are echoed. // rfc8684:A9
    pub(crate) fn announce_due(
        &mut self,
        flight: &mut Flight<'_>,
        keys: mac::Keys,
        cx: &mut Cx<'_>,
    ) {
        let Some(i) = flight.subflows.best_subflow() else {
            return;
        };
        let mut due = Vec::new();
        self.announcements.0.retain_mut(|a| {
            if a.again_at > cx.now {
                return true;
            }
            if a.sent == ANNOUNCEMENTS {
                cx.count.add_addr_unanswered += 1;
                return false;
            }
            a.again_at = cx.now + ANNOUNCE_AGAIN.times(1 << a.sent);
            a.sent += 1;
            due.push(*a);
            true
        });
        for a in due {
            cx.count.add_addr_sent += 1;
            let hmac = Some(mac::add_addr(keys, a.id, a.addr, a.port)); // rfc8684:A6
            flight.signal(
                i,
                MptcpOption::AddAddr(AddAddr {
                    echo: false,
                    addr_id: a.id,
                    addr: a.addr,
                    port: a.port,
                    hmac,
                }),
            );
        }
    }

    /// The peer echoes the announcement of our address: the same ID, address and port. What names another address or port echoes an
    /// announcement that is not ours, or no longer. // rfc8684:A9
    pub(crate) fn on_add_addr_echo(&mut self, add: &AddAddr, cx: &mut Cx<'_>) {
        cx.count.add_addr_echo_received += 1;
        let before = self.announcements.0.len();
        self.announcements.0.retain(|a| !a.is_echoed_by(add));
        if self.announcements.0.len() < before {
            self.notify_manager(pm::Event::Echoed { id: add.addr_id }, cx);
        }
    }

    /// The peer announces an address, with a valid HMAC. // rfc8684:A1,A6,A7
    pub(crate) fn on_add_addr(
        &mut self,
        flight: &mut Flight<'_>,
        events: &mut Events,
        i: SubflowIdx,
        add: &AddAddr,
        cx: &mut Cx<'_>,
    ) {
        let event = pm::Event::Advertised {
            id: add.addr_id,
            addr: add.addr,
            port: add.port,
            carried_port: flight.subflows[i].endpoint.tuple.remote.port(),
        };
        let known = self.notify_manager(event, cx);
        match known {
            pm::Noted::Accepted => cx.count.add_addr_accepted += 1,
            pm::Noted::Ignored => cx.count.add_addr_ignored += 1,
        }
        cx.count.add_addr_echo_sent += 1;
        flight.signal(i, MptcpOption::AddAddr(add.to_echo()));
        if known == pm::Noted::Accepted {
            events.push(EventKind::AddressAnnounced {
                id: add.addr_id,
                addr: add.addr,
                port: add.port,
            });
        }
    }
}

impl Conn {
    /// Executes the path manager's actions, and sends announcements that are due.
    pub(in crate::conn) fn follow_manager(&mut self, cx: &mut Cx<'_>) {
        let role = self.handshake.role;
        while let Some(action) = self
            .paths
            .manager
            .as_mut()
            .and_then(|manager| manager.poll(cx.now))
        {
            self.paths.carry_out(
                &mut Flight::new(&mut self.subflows, &mut self.send, self.level),
                role,
                action,
                cx,
            );
        }
        // Called for every segment, and nearly always for nothing.
        if self.paths.announcements.0.is_empty() || !self.joins().may_join() {
            return;
        }
        if let Some(keys) = self.handshake.keys.pair() {
            self.paths.announce_due(
                &mut Flight::new(&mut self.subflows, &mut self.send, self.level),
                keys,
                cx,
            );
        }
    }
}
