//! SYNs for listeners: who gets a connection, and what it starts from.

use manypath_tcp::machine::Machine;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::mptcp::Capable;

use super::open::Draft;
use super::{Stack, SynCookiePolicy};
use crate::api::{ConnOptions, IfaceId, Mode, Role};
use crate::conn::{capable_of, usable};
use crate::ids::{ConnId, ListenerId};
use crate::slab::Handle;

impl Stack {
    /// A SYN for a listener; out of TIME-WAIT our numbers must start `beyond` the old ones.
    pub(super) fn handle_syn(&mut self, iface: IfaceId, seg: &Segment<'_>, beyond: Option<SeqNum>) {
        let Some(slot) = self.demux.listener(seg.tuple.local) else {
            self.counters.no_socket += 1;
            if !self.is_the_hosts(iface, seg) {
                self.reset_reply(iface, seg, None);
            }
            return;
        };
        let Some((handle, listener)) = self.listeners.handle_at(slot).zip(self.listeners.at(slot))
        else {
            return;
        };
        let congested = listener.is_congested();
        let syn_ack_retries = listener.syn_ack_retries();
        let holds = listener.holds_syns;
        let remembered = match self.config.syn_cookies {
            SynCookiePolicy::Never | SynCookiePolicy::WhenFull => {
                listener.has_room() || self.make_room(handle)
            }
            SynCookiePolicy::Always => false,
        };
        // A cookie cannot continue the numbers of the connection before.
        let by_cookie =
            self.config.syn_cookies != SynCookiePolicy::Never && beyond.is_none() && !congested;
        if !remembered && !by_cookie {
            self.counters.syn_backlog_full += 1;
            return;
        }
        if !self.may_enter(seg.tuple.remote.ip()) {
            return;
        }
        let Some(opts) = self.listeners.get(handle).map(|l| l.opts.conn.clone()) else {
            return;
        };
        let Some(path) = self.path_for_packet(iface, seg.tuple.local.ip()).cloned() else {
            return;
        };
        let offer = self.offer_of(seg, &opts);
        if !remembered {
            return self.answer_by_cookie(iface, seg, &opts, &path, offer);
        }
        // rfc8684:C30
        let local = offer.and_then(|_| self.own_keys(Mode::Multipath));
        let draft = Draft {
            role: Role::Responder,
            local,
            offered_checksum: offer.is_some_and(|capable| capable.checksum_required), // rfc8684:C24
            no_joins: offer.is_some_and(|capable| capable.no_joins_here),
            opts,
        };
        let isn = self.first_number(&seg.tuple, beyond);
        let stamp = self.isn.timestamp_offset(&seg.tuple);
        let mut config = self.machine_config(&draft.opts, &path, stamp);
        config.timeouts.syn_ack_retries = syn_ack_retries;
        let mut tcp = Machine::accept(config, self.now, isn, seg);
        let held = holds && !seg.payload.is_empty() && self.early < self.config.max_early;
        let granted = !held && draft.opts.fast_open && self.grant_fast_open(&mut tcp, seg);
        // Until somebody accepts it.
        let room = draft.opts.recv_buffer.min(self.config.unaccepted_window);
        let taken = match (held, granted) {
            (true, _) => tcp.hold_answer(seg, room),
            (false, true) => tcp.take_early(seg, room),
            (false, false) => 0..0,
        };
        let id = ListenerId(handle);
        if let Ok(conn) = self.enter(draft, &path, seg.tuple, tcp, Some(id)) {
            self.counters.syn_accepted += 1;
            self.counters.conn_passive += 1;
            if let Some(listener) = self.listeners.get_mut(handle) {
                listener.opened(conn, self.now);
            }
            self.counters.fast_open_accepted += u64::from(granted);
            self.counters.syn_held += u64::from(held);
            if held || granted {
                self.enter_early(conn, &seg.payload[taken], held);
            }
        }
    }

    /// What a SYN offers, as far as we can speak it and want to.
    fn offer_of(&mut self, seg: &Segment<'_>, opts: &ConnOptions) -> Option<Capable> {
        let capable = capable_of(seg).filter(|_| opts.mode == Mode::Multipath)?;
        match usable(capable) {
            Ok(()) => Some(*capable),
            Err(why) => {
                why.count(&mut self.counters);
                None
            }
        }
    }

    /// A SYN for a four-tuple that is known. If it is that of a handshake that goes on, its peer is there and lacks our answer: others
    /// have to make room before it.
    pub(super) fn note_syn_again(&mut self, slot: u32, seg: &Segment<'_>) {
        let Some((handle, entry)) = self.conns.handle_at(slot).zip(self.conns.at(slot)) else {
            return;
        };
        let again = entry
            .conn
            .handshake
            .was_opened_by(&entry.conn.subflows, seg);
        let listener = entry.listener.filter(|_| again);
        if let Some(listener) = listener.and_then(|id| self.listeners.get_mut(id.0)) {
            listener.asked_again(ConnId(handle), self.now);
        }
    }

    /// Gives up a handshake whose peer is silent: a flood of SYNs must not keep others out for minutes.
    pub(super) fn make_room(&mut self, listener: Handle) -> bool {
        let now = self.now;
        let stale = self.listeners.get_mut(listener).and_then(|l| l.evict(now));
        let Some(stale) = stale else {
            return false;
        };
        self.counters.half_open_evicted += 1;
        self.with_conn(stale.0.index(), |conn, cx| conn.ending().give_up(cx));
        true
    }
}
