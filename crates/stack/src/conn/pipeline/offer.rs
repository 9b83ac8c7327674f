//! What a subflow may send now: new data, a reinjection, a FIN.
//!
//! Pure: reads the connection. The offer is the same for the scheduler, which asks for room, and for the subflow that sends.

use manypath_tcp::machine::{Kind, Offer, Plan};
use manypath_tcp::time::Instant;

use crate::api::ConnOptions;
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::offset::Offset;
use crate::conn::fallback::Fallback;
use crate::conn::handshake::Keys;
use crate::conn::level::Level;
use crate::conn::pull::path_view::Schedule;
use crate::conn::pull::source::Source;
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::subflow::table::Subflows;
use crate::conn::types::SubflowIdx;
use crate::ids::SubflowId;

/// The longest mapping: its length field has 16 bits and a DATA_FIN may add one.
const LONGEST_MAPPING: u32 = 65_534;

/// Checksummed bursts that a window holds at least, each of one segment at least. A trade: fewer leave the window closed for longer,
/// more cost each segment more.
const BURSTS_PER_WINDOW: u64 = 8;

/// Payload of the longest burst, which one mapping covers, where `window` bytes may be without Data ACK. With checksums the peer
/// acknowledges no byte of a mapping before all of it has arrived (RFC 8684 section 3.3.1): bursts that fill the window would make it
/// stop-and-wait. Pure.
pub(crate) fn longest_burst(window: u64, checksum: bool) -> u32 {
    let share = u32::try_from(window / BURSTS_PER_WINDOW).unwrap_or(u32::MAX);
    match checksum {
        true => share.min(LONGEST_MAPPING),
        false => LONGEST_MAPPING,
    }
}

/// What decides about the next segment of a subflow.
pub(crate) struct Offers<'a> {
    subflows: &'a Subflows,
    send: &'a SendQueue,
    level: Level,
    fallback: &'a Fallback,
    keys: &'a Keys,
    numbers: &'a Numbers,
    opts: &'a ConnOptions,
}

impl SendQueue {
    /// Nothing is known to follow what is offered. A writer that found room for all it had may wait for a response, which the rest of a
    /// segment must not delay; Nagle's algorithm still allows one small segment in flight at most.
    pub(in crate::conn) fn pushes(&self, opts: &ConnOptions) -> bool {
        opts.nodelay || self.fin.state != FinState::Open || !self.writer_has_more
    }
}

impl Offers<'_> {
    /// The last byte has to signal the fallback, before the FIN.
    #[inline]
    pub(in crate::conn) fn owes_final_byte(&self) -> bool {
        let known = self.keys.remote.is_some();
        self.fallback
            .owes_final_byte(self.subflows, self.send, self.level, known)
    }

    /// The subflow can send its FIN now.
    #[inline]
    pub(crate) fn fin_ready(&self, i: SubflowIdx) -> bool {
        let sf = &self.subflows[i];
        sf.closing.finish && !sf.tcp.fin_sent() && !self.owes_final_byte()
    }

    /// What a subflow may send now of `available` bytes of the stream; `again`: they were sent before.
    #[inline]
    pub(in crate::conn) fn offer(&self, i: SubflowIdx, available: u64, again: bool) -> Offer {
        self.offer_on(i, &self.offer_anywhere(available, again))
    }

    /// What is offered to this subflow of what is offered to any.
    #[inline]
    pub(in crate::conn) fn offer_on(&self, i: SubflowIdx, any: &Offer) -> Offer {
        let sf = &self.subflows[i];
        Offer {
            fin: any.fin || sf.closing.finish && !self.owes_final_byte(),
            probe_new: self.probes_with_new(i),
            max_burst: sf.endpoint.offload.max_burst.min(any.max_burst),
            ..*any
        }
    }

    /// What any subflow may send now of `available` bytes of the stream; `again`: they were sent before.
    pub(in crate::conn) fn offer_anywhere(&self, available: u64, again: bool) -> Offer {
        let plain = !self.level.is_multipath();
        let closing =
            plain && self.send.fin.state != FinState::Open && self.send.sendable() == available;
        // A response on one subflow acknowledges at data level what another one carried, whose own ACK may be delayed.
        let idle = self.send.una() == self.send.next();
        Offer {
            available: u32::try_from(available).unwrap_or(u32::MAX),
            fin: closing && !self.owes_final_byte(),
            option_space: self
                .subflows
                .option_space(self.opts, self.level, self.fallback),
            max_burst: longest_burst(self.send.window(), self.numbers.checksum && !plain)
                .min(self.subflows.longest_burst),
            push: self.send.pushes(self.opts),
            // A whole segment elsewhere is often none here, and nothing will be appended to it; nor to the writer's last bytes, which would
            // leave at once with a FIN as well.
            no_nagle: again || idle || self.send.ends_behind(available),
            probe_new: false,
        }
    }

    /// The subflow's tail loss probe is due, and carries what is next (RFC 8985 section 7.3). With several subflows it is the last
    /// segment again: what answers nothing may have failed, and new data on it would hold up what the others deliver, which can carry
    /// that data at once.
    pub(in crate::conn) fn probes_with_new(&self, i: SubflowIdx) -> bool {
        let sf = &self.subflows[i];
        sf.tcp.tail_probe_due() && sf.carries_data() && self.subflows.is_alone(i)
    }

    /// The subflow that has to send a probe with what is next, although there is no room for it.
    pub(in crate::conn) fn probe_due(&self) -> Option<SubflowId> {
        let tail = || {
            let mut all = self.subflows.each();
            let due = all.find(|(i, _)| self.probes_with_new(*i));
            due.map(|(_, sf)| sf.id())
        };
        self.subflows.window_probe_due().or_else(tail)
    }

    /// Bytes that a subflow would send now of what is offered to any. What it would refuse to send is not offered to the scheduler: a path with a few
    /// bytes of room must not hold back the others.
    pub(in crate::conn) fn room(
        &self,
        schedule: &Schedule,
        i: SubflowIdx,
        any: &Offer,
        now: Instant,
    ) -> u32 {
        let sf = &self.subflows[i];
        let congested = sf.tcp.is_congested(any.available, any.option_space);
        let can_send = || sf.tcp.can_send_new(now, &self.offer_on(i, any));
        debug_assert!(!congested || can_send() == 0, "it could send");
        let is_full = schedule.no_room.has(sf.id(), sf.endpoint.iface);
        if congested || !sf.carries_data() || is_full || self.subflows.would_hold_up(i) {
            return 0;
        }
        can_send()
    }

    /// Whether a subflow can send a whole segment that was sent before.
    pub(in crate::conn) fn can_resend(&self, i: SubflowIdx, now: Instant) -> bool {
        let tcp = &self.subflows[i].tcp;
        tcp.can_send_new(now, &self.offer(i, u64::from(tcp.mss()), true)) > 0
    }

    /// Determines where a plan's payload comes from and shortens it to one mapping.
    #[inline]
    pub(in crate::conn) fn settle(
        &self,
        i: SubflowIdx,
        plan: Plan,
        offered: Source,
    ) -> Option<(Plan, Source)> {
        if plan.kind == Kind::KeepAlive && self.owes_final_byte() {
            let at = Offset(self.send.end().0 - 1);
            return Some((Plan { len: 1, ..plan }, Source::FinalByte(at)));
        }
        if plan.len == 0 {
            return Some((plan, Source::Empty));
        }
        let sf = &self.subflows[i];
        if plan.seq == sf.tcp.snd_nxt() {
            return Some((plan, offered));
        }
        let m = *sf.maps.tx.find(plan.ssn)?;
        let left = u32::from(m.len) - plan.ssn.since(m.ssn);
        Some((plan.shortened(left), Source::Mapped(m)))
    }
}

impl Conn {
    /// What may be sent now.
    #[inline]
    pub(in crate::conn) fn offers(&self) -> Offers<'_> {
        Offers {
            subflows: &self.subflows,
            send: &self.send,
            level: self.level,
            fallback: &self.fallback,
            keys: &self.handshake.keys,
            numbers: &self.numbers,
            opts: &self.opts,
        }
    }
}
