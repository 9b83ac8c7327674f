//! Writes one packet into a device buffer.
//!
//! Headers are written after the payload, because the DSS checksum in them (RFC 8684 section 3.3.1) comes from the pass that copies it.

use manypath_tcp::machine::Plan;
use manypath_tcp::time::Instant;
use manypath_wire::checksum::Sum;
use manypath_wire::emit::{self, Checksum, Outgoing};
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::Ecn;
use manypath_wire::tcp::header::Header;
use manypath_wire::tcp::layout::{Fitted, Prefer};
use manypath_wire::tcp::options::MptcpOptions;

use crate::api::TxMeta;
use crate::conn::subflow::Subflow;

/// Time to live of every packet, as Linux sends it (`ip_default_ttl`; RFC 1700 recommends the same).
pub(crate) const HOP_LIMIT: u8 = 64;

/// Bytes of the largest headers: IPv6 without extensions, TCP with all its options.
pub(crate) const MOST_HEADERS: usize = 40 + 60;

/// Everything about a packet except its payload.
#[derive(Debug)]
pub(crate) struct Draft {
    tuple: FourTuple,
    header: Header,
    ecn: Ecn,
    fitted: Fitted,
    header_len: usize,
    payload_len: usize,
    /// Payload bytes per wire segment, when the device has to segment.
    gso_size: u16,
    partial_checksum: bool,
}

impl Draft {
    /// Without headers so far.
    pub(crate) fn new(sf: &Subflow, plan: &Plan) -> Self {
        Self {
            tuple: sf.endpoint.tuple,
            header: Header::EMPTY,
            ecn: sf.tcp.ecn(plan),
            header_len: 0,
            fitted: Fitted::EMPTY,
            payload_len: plan.len as usize,
            gso_size: if plan.len > plan.mss {
                plan.mss as u16
            } else {
                0
            },
            partial_checksum: sf.endpoint.offload.checksum,
        }
    }

    /// Chooses fields and options; `list` adds those of Multipath TCP.
    pub(crate) fn compose(
        &mut self,
        sf: &Subflow,
        plan: &Plan,
        now: Instant,
        list: impl FnOnce(&mut MptcpOptions),
    ) {
        let header = &mut self.header;
        self.fitted.fill(40, |options| {
            *header = sf.tcp.header_with(now, plan, options);
            list(&mut options.mptcp);
            // A pure ACK with a signal is sent for the signal. // rfc8684:A14
            if options.mptcp.has_signal() {
                Prefer::Signals
            } else {
                Prefer::Data
            }
        });
        self.header_len = emit::header_len(&self.tuple, &self.fitted);
    }

    /// Bytes of the whole packet.
    pub(crate) fn room(&self) -> usize {
        self.header_len + self.payload_len
    }

    /// Bytes of the headers alone.
    pub(crate) fn header_len(&self) -> usize {
        self.header_len
    }

    /// Where the payload goes.
    pub(crate) fn payload<'b>(&self, buffer: &'b mut [u8]) -> &'b mut [u8] {
        &mut buffer[self.header_len..self.header_len + self.payload_len]
    }

    /// The TCP checksum needs the payload's sum.
    pub(crate) fn needs_sum(&self) -> bool {
        !self.partial_checksum
    }

    /// The mapping's checksum, now that the payload is known.
    pub(crate) fn set_checksum(&mut self, checksum: u16) {
        self.fitted.set_checksum(checksum);
    }

    /// The options that fit.
    pub(crate) fn options(&self) -> &MptcpOptions {
        &self.fitted.options().mptcp
    }

    /// Writes the headers to the front of the buffer; the payload, wherever it is, follows them.
    pub(crate) fn finish(&self, buffer: &mut [u8], sum: Sum) -> TxMeta {
        let out = Outgoing {
            tuple: self.tuple,
            ecn: self.ecn,
            hop_limit: HOP_LIMIT,
            header: self.header,
            options: &self.fitted,
        };
        let checksum = if self.partial_checksum {
            Checksum::Partial
        } else {
            Checksum::Full
        };
        let written = emit::headers(buffer, &out, self.payload_len)
            .and_then(|_| emit::finish(buffer, sum, checksum));
        debug_assert_eq!(written, Ok(()), "the slot has room for what was asked");
        TxMeta {
            len: self.room(),
            gso_size: self.gso_size,
            header_len: self.header_len as u16,
            l4_offset: emit::ip_header_len(&self.tuple) as u16,
            ipv6: self.tuple.is_ipv6(),
            partial_checksum: self.partial_checksum,
        }
    }
}
