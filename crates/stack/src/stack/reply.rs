//! Answers without a connection: resets for segments that belong to nothing (RFC 9293 section 3.10.7.1) and the last
//! acknowledgements of TIME-WAIT. Bounded in number and rate.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use manypath_tcp::time::Instant;
use manypath_wire::checksum::Sum;
use manypath_wire::emit::{self, Checksum, Outgoing};
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::Ecn;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::layout::{Wanted, fit};
use manypath_wire::tcp::mptcp::MptcpOption;
use manypath_wire::tcp::options::Options;

use super::timewait;
use crate::api::{IfaceId, Slots, TxMeta};
use crate::conn::HOP_LIMIT;

/// Replies that may wait for a device.
const MOST: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Reply {
    iface: IfaceId,
    tuple: FourTuple,
    header: Header,
    options: Options,
}

/// The replies that wait, and how many more may be made now.
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    /// ICMP errors, written already.
    errors: VecDeque<(IfaceId, Vec<u8>)>,
    per_second: u32,
    budget: u32,
    filled: Instant,
}

impl Replies {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            errors: VecDeque::new(),
            per_second,
            budget: per_second,
            filled: Instant::ZERO,
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<Reply>()
    }

    fn allowed(&mut self, now: Instant) -> bool {
        let gained = now
            .since(self.filled)
            .as_micros()
            .saturating_mul(u64::from(self.per_second))
            / 1_000_000;
        if gained > 0 {
            self.budget = u32::try_from(u64::from(self.budget) + gained)
                .unwrap_or(u32::MAX)
                .min(self.per_second);
            self.filled = now;
        }
        let waiting = self.queue.len() + self.errors.len();
        let allowed = self.budget > 0 && waiting < MOST;
        self.budget -= u32::from(allowed);
        allowed
    }

    /// Answers a segment with a reset; false when there are too many.
    pub(super) fn reset(
        &mut self,
        now: Instant,
        iface: IfaceId,
        seg: &Segment<'_>,
        option: Option<MptcpOption>,
    ) -> bool {
        if seg.header.flags.rst() || !self.allowed(now) {
            return false;
        }
        let (seq, ack, flags) = if seg.header.flags.ack() {
            (seg.header.ack, SeqNum::new(0), Flags::RST)
        } else {
            (SeqNum::new(0), seg.end(), Flags::RST.with(Flags::ACK))
        };
        let mut options = Options::EMPTY;
        if let Some(option) = option {
            let taken = options.mptcp.push(option);
            debug_assert!(taken, "the list was empty");
        }
        let header = Header {
            src_port: seg.tuple.local.port(),
            dst_port: seg.tuple.remote.port(),
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
        };
        self.queue.push_back(Reply {
            iface,
            tuple: seg.tuple,
            header,
            options,
        });
        true
    }

    /// Repeats the last acknowledgement of a subflow in TIME-WAIT; false when there are too many.
    pub(super) fn acknowledge(&mut self, now: Instant, reply: &timewait::Reply) -> bool {
        if !self.allowed(now) {
            return false;
        }
        let options = Options {
            timestamps: reply.timestamps,
            ..Options::EMPTY
        };
        self.queue.push_back(Reply {
            iface: reply.iface,
            tuple: reply.tuple,
            header: reply.header,
            options,
        });
        true
    }

    /// Answers a SYN; false when too many answers wait for the device already. One small packet for one, so no rate is kept.
    pub(super) fn answer(
        &mut self,
        iface: IfaceId,
        tuple: FourTuple,
        header: Header,
        options: Options,
    ) -> bool {
        let room = self.queue.len() < MOST;
        if room {
            self.queue.push_back(Reply {
                iface,
                tuple,
                header,
                options,
            });
        }
        room
    }

    /// Sends an ICMP error; false when there are too many (RFC 4443 section 2.4 f, RFC 1812 section 4.3.2.8).
    pub(super) fn complain(&mut self, now: Instant, iface: IfaceId, packet: Vec<u8>) -> bool {
        let allowed = self.allowed(now);
        if allowed {
            self.errors.push_back((iface, packet));
        }
        allowed
    }

    /// Writes the next one. `Err` names the interface without room.
    pub(super) fn transmit(&mut self, slots: &mut dyn Slots) -> Result<bool, IfaceId> {
        if let Some(reply) = self.queue.front() {
            reply.write(slots)?;
            self.queue.pop_front();
        } else if let Some((iface, packet)) = self.errors.front() {
            write_packet(slots, *iface, packet)?;
            self.errors.pop_front();
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

fn write_packet(slots: &mut dyn Slots, iface: IfaceId, packet: &[u8]) -> Result<(), IfaceId> {
    let buffer = slots.slot(iface, packet.len()).ok_or(iface)?;
    buffer[..packet.len()].copy_from_slice(packet);
    // Below 1,280 bytes, and no part of it is TCP's.
    let len = packet.len() as u16;
    let meta = TxMeta {
        len: packet.len(),
        gso_size: 0,
        header_len: len,
        l4_offset: len,
        ipv6: packet.first().is_some_and(|first| first >> 4 == 6),
        partial_checksum: false,
    };
    slots.commit(iface, meta);
    Ok(())
}

impl Reply {
    fn write(&self, slots: &mut dyn Slots) -> Result<(), IfaceId> {
        let reply = self;
        let fitted = fit(
            &Wanted {
                options: reply.options,
                ..Wanted::default()
            },
            40,
        );
        let len = emit::header_len(&reply.tuple, &fitted);
        let Some(buffer) = slots.slot(reply.iface, len) else {
            return Err(reply.iface);
        };
        let out = Outgoing {
            tuple: reply.tuple,
            ecn: Ecn::NotEct,
            hop_limit: HOP_LIMIT,
            header: reply.header,
            options: &fitted,
        };
        let written = emit::headers(buffer, &out, 0)
            .and_then(|_| emit::finish(buffer, Sum::ZERO, Checksum::Full));
        let l4_offset = emit::ip_header_len(&reply.tuple) as u16;
        let (iface, ipv6) = (reply.iface, reply.tuple.is_ipv6());
        if written.is_ok() {
            let meta = TxMeta {
                len,
                gso_size: 0,
                header_len: len as u16,
                l4_offset,
                ipv6,
                partial_checksum: false,
            };
            slots.commit(iface, meta);
        }
        Ok(())
    }
}
