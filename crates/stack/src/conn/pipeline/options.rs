//! Chooses the Multipath TCP options of a segment (RFC 8684 section 3).
//!
//! Pure: reads the connection and lists what a segment of a given kind has to carry. Whether it fits is the layout's business; what was
//! left out is sent later.

use manypath_tcp::machine::{Kind, Plan};
use manypath_wire::checksum::Sum;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{
    Capable, CapableKeys, DataAck, Dss, FastClose, Join, MapDsn, Mapping, MptcpOption,
};
use manypath_wire::tcp::options::MptcpOptions;

use crate::api::ConnOptions;
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::mapping::TxMapping;
use crate::conn::fallback::Fallback;
use crate::conn::fallback::final_byte::peer_may_not_know;
use crate::conn::handshake::Keys;
use crate::conn::level::Level;
use crate::conn::life::Life;
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::data_rto::DataTimer;
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::subflow::Subflow;
use crate::conn::subflow::closing::Explanation;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::SubflowIdx;

/// Bytes per second at which half of a 32-bit sequence space lasts for a maximum segment lifetime of two minutes.
const SLOW: u64 = (1 << 31) / 120;

fn add(list: &mut MptcpOptions, option: MptcpOption) {
    let taken = list.push(option);
    debug_assert!(taken, "no segment wants more options than it can hold");
}

/// The final byte is resent with an infinite mapping, before the FIN.
fn sends_final_mapping(plan: &Plan) -> bool {
    plan.kind == Kind::KeepAlive && plan.len > 0
}

impl Subflows {
    /// Option bytes, a multiple of four, that a data segment of this subflow needs.
    pub(crate) fn option_space(&self, opts: &ConnOptions, level: Level, fallback: &Fallback) -> u8 {
        if level.is_multipath() {
            // DSS with 64-bit numbers and a checksum; MP_CAPABLE with data is no longer.
            return if self.long_numbers(opts) { 28 } else { 24 };
        }
        // The one infinite mapping with its Data ACK, also where its segment is retransmitted.
        let unacked = |by: Ssn| {
            let mut subflows = self.iter();
            subflows.any(|sf| !sf.tcp.snd_una_ssn().after(by))
        };
        let infinite = level.infinite_due() || fallback.announce.carried_by.is_some_and(unacked);
        match (infinite, fallback.unconfirmed.is_some()) {
            (true, _) => 28,
            (false, true) => 12,
            (false, false) => 0,
        }
    }

    /// Mappings use 64-bit data sequence numbers, unless the application asked to save four bytes and the connection is too slow to wrap
    /// within the life of a segment. // rfc8684:D15
    fn long_numbers(&self, opts: &ConnOptions) -> bool {
        // One whose handshake is not over has no round trip, and nothing in flight.
        let measured = self.iter().filter(|sf| sf.tcp.srtt().is_some());
        opts.long_dsn || measured.map(Subflow::rate).sum::<u64>() >= SLOW
    }

    fn map_dsn(&self, opts: &ConnOptions, dsn: manypath_wire::dsn::Dsn) -> MapDsn {
        if self.long_numbers(opts) {
            MapDsn::Long(dsn.get())
        } else {
            MapDsn::Short(dsn.low32())
        }
    }

    /// A DATA_FIN leaves no room for the SACK blocks that show the peer what is missing, or what it sent in vain. Once sent it yields to
    /// them, unless it is lost or its Data ACK is overdue. // rfc8684:O1
    fn omits_data_fin_for_sack(
        &self,
        send: &SendQueue,
        data_timer: &DataTimer,
        i: SubflowIdx,
    ) -> bool {
        send.fin.state == FinState::Sent
            && !send.fin.lost
            && !data_timer.has_expired()
            && self[i].tcp.reports_holes()
    }

    /// No new data is left to carry the infinite mapping, and this segment ends the stream.
    fn carries_final_mapping(&self, keys: &Keys, level: Level, plan: &Plan) -> bool {
        // The final byte may be lost, and the FIN is retransmitted.
        let peer_may_not_know = peer_may_not_know(level) && keys.remote.is_some();
        let fin = plan.fin && (self.joined || peer_may_not_know);
        (fin || sends_final_mapping(plan)) && level.infinite_due()
    }

    /// From this byte on the subflow's sequence is the data sequence. // rfc8684:B4,B9,D18
    fn infinite_mapping(
        &self,
        opts: &ConnOptions,
        numbers: &Numbers,
        fallback: &Fallback,
        m: &TxMapping,
    ) -> MptcpOption {
        let (ssn, at) = fallback.infinite_start(m.ssn, m.at);
        let mapping = numbers.tx.map(|tx| Mapping {
            dsn: self.map_dsn(opts, tx.dsn(at)),
            ssn,
            len: 0,
            checksum: numbers.checksum.then_some(0),
        });
        MptcpOption::Dss(Dss {
            data_ack: None,
            mapping,
            data_fin: false,
        })
    }

    /// The infinite mapping on a segment without data.
    pub(in crate::conn) fn infinite_mapping_without_data(
        &self,
        opts: &ConnOptions,
        numbers: &Numbers,
        send: &SendQueue,
        fallback: &Fallback,
        i: SubflowIdx,
    ) -> MptcpOption {
        self.infinite_mapping(
            opts,
            numbers,
            fallback,
            &TxMapping {
                ssn: self[i].tcp.snd_nxt_ssn(),
                at: send.next(),
                len: 0,
                checksum: None,
                fin: false,
            },
        )
    }
}

/// The segment whose options are chosen.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    i: SubflowIdx,
    plan: &'a Plan,
    mapping: Option<&'a TxMapping>,
}

/// What a DSS is made of: both streams, and their numbers.
struct Streams<'a> {
    subflows: &'a Subflows,
    send: &'a SendQueue,
    recv: &'a ReceiveQueue,
    numbers: &'a Numbers,
    opts: &'a ConnOptions,
}

impl Streams<'_> {
    fn map_dsn(&self, dsn: manypath_wire::dsn::Dsn) -> MapDsn {
        self.subflows.map_dsn(self.opts, dsn)
    }

    fn wire_mapping(&self, m: &TxMapping) -> Option<Mapping> {
        let dsn = self.numbers.tx?.dsn(m.at);
        // rfc8684:D7
        Some(Mapping {
            dsn: self.map_dsn(dsn),
            ssn: m.ssn,
            len: m.wire_len(),
            checksum: m.checksum,
        })
    }

    /// A DATA_FIN without payload. // rfc8684:F1,F2
    fn data_fin_without_data(&self) -> Option<Mapping> {
        let dsn = self.numbers.tx?.dsn(self.send.end());
        let ssn = Ssn::new(0);
        let checksum = self
            .numbers
            .checksum
            .then(|| manypath_wire::checksum::dss(dsn, ssn, 1, Sum::ZERO));
        Some(Mapping {
            dsn: self.map_dsn(dsn),
            ssn,
            len: 1,
            checksum,
        })
    }

    fn dss_with(&self, mapping: Option<Mapping>, data_fin: bool) -> MptcpOption {
        let data_ack = self.numbers.rx.map(|rx| {
            let ack = rx.dsn(self.recv.data_ack());
            // rfc8684:D19
            if self.numbers.peer_long {
                DataAck::Long(ack.get())
            } else {
                DataAck::Short(ack.low32())
            }
        });
        MptcpOption::Dss(Dss {
            data_ack,
            mapping,
            data_fin: data_fin && mapping.is_some(),
        })
    }

    /// DSS with a Data ACK and, if there is payload or a DATA_FIN to send, a mapping.
    fn dss(&self, mapping: Option<&TxMapping>) -> MptcpOption {
        let (mapping, data_fin) = match mapping {
            Some(m) => (self.wire_mapping(m), m.fin),
            None if self.send.data_fin_due() => (self.data_fin_without_data(), true),
            None => (None, false),
        };
        self.dss_with(mapping, data_fin)
    }

    /// Options without mappings: an infinite one, the answer to an MP_FAIL, Data ACKs for a peer that may not have fallen back.
    fn options_after_fallback(
        &self,
        fallback: &Fallback,
        level: Level,
        keys: &Keys,
        segment: &Carrier<'_>,
        list: &mut MptcpOptions,
    ) {
        let sf = &self.subflows[segment.i];
        match (segment.mapping, sf.signals.queue.front()) {
            (Some(mapping), _) if fallback.wants_infinite(level, mapping, segment.plan.ssn) => {
                add(
                    list,
                    self.subflows
                        .infinite_mapping(self.opts, self.numbers, fallback, mapping),
                );
            }
            (_, fail) => {
                if fallback.unconfirmed.is_some()
                    && !sf.tcp.reports_holes()
                    && !sends_final_mapping(segment.plan)
                {
                    add(list, self.dss_after_unconfirmed_fallback(fallback, level));
                } else if segment.mapping.is_none()
                    && (fallback.announce.without_data
                        || self
                            .subflows
                            .carries_final_mapping(keys, level, segment.plan))
                    && !matches!(fail, Some(MptcpOption::Dss(_)))
                {
                    // New data may never follow on this subflow, and the peer must know how the stream ends. // rfc8684:B4
                    add(
                        list,
                        self.subflows.infinite_mapping_without_data(
                            self.opts,
                            self.numbers,
                            self.send,
                            fallback,
                            segment.i,
                        ),
                    );
                }
                // The answer to an MP_FAIL is the last option. // rfc8684:B10
                if let (None, Some(fail), Kind::Ack) = (segment.mapping, fail, segment.plan.kind) {
                    add(list, *fail);
                }
            }
        }
    }

    /// Options of a subflow's handshake.
    fn handshake_options(&self, keys: &Keys, segment: &Carrier<'_>, list: &mut MptcpOptions) {
        let sf = &self.subflows[segment.i];
        match &sf.handshake.state {
            // rfc8684:C1,C4,C16,C17,C20,C28
            HandshakeState::CapableSyn => {
                if segment.plan.kind == Kind::Syn && !sf.handshake.plain {
                    add(
                        list,
                        MptcpOption::Capable(Capable::v1(self.numbers.checksum, CapableKeys::Syn)),
                    );
                }
            }
            HandshakeState::CapableSynAck => {
                // Data sent before the peer's keys arrive has a mapping and no Data ACK. // rfc8684:O5
                if let Some(m) = segment.mapping {
                    add(list, self.dss(Some(m)));
                }
                if let (Kind::SynAck, Some(local), false) =
                    (segment.plan.kind, &keys.local, sf.handshake.plain)
                {
                    let keys = CapableKeys::SynAck {
                        sender: local.key(),
                    };
                    add(
                        list,
                        MptcpOption::Capable(Capable::v1(self.numbers.checksum, keys)),
                    );
                }
            }
            HandshakeState::JoinSyn { nonce } => {
                if let Some(remote) = &keys.remote {
                    // rfc8684:J1,J2,J3,J5
                    add(
                        list,
                        MptcpOption::Join(Join::Syn {
                            backup: sf.endpoint.backup_here,
                            addr_id: sf.endpoint.local_id,
                            token: remote.token,
                            nonce: *nonce,
                        }),
                    );
                }
            }
            HandshakeState::JoinSynAck { local, remote } => {
                if let (Kind::SynAck, Some(hmac)) =
                    (segment.plan.kind, keys.syn_ack_proof(*local, *remote))
                {
                    add(
                        list,
                        MptcpOption::Join(Join::SynAck {
                            backup: sf.endpoint.backup_here,
                            addr_id: sf.endpoint.local_id,
                            hmac,
                            nonce: *local,
                        }),
                    );
                }
            }
            // rfc8684:J11
            HandshakeState::JoinAck { proof, .. } => {
                add(list, MptcpOption::Join(Join::Ack { hmac: *proof }))
            }
            HandshakeState::CapableAck
            | HandshakeState::CapableKeys
            | HandshakeState::Done
            | HandshakeState::Plain => {}
        }
    }

    /// Before the peer has proved that it has our key: MP_CAPABLE on pure ACKs and on the first data.
    // rfc8684:C9,C10,C11
    fn mp_capable_options(&self, keys: &Keys, segment: &Carrier<'_>, list: &mut MptcpOptions) {
        let (Some(local), Some(remote)) = (&keys.local, &keys.remote) else {
            return;
        };
        let (sender, receiver) = (local.key(), remote.key());
        match segment.mapping {
            // A middlebox may have dropped packets with the option: this one without.
            None if self.subflows[segment.i].handshake.plain => {}
            // A close cannot wait for the proof for ever, and the peer may lack either: the two alternate.
            None if self.send.data_fin_due()
                && !self.subflows[segment.i].handshake.capable_next =>
            {
                add(list, self.dss(None))
            }
            None => add(
                list,
                MptcpOption::Capable(Capable::v1(
                    self.numbers.checksum,
                    CapableKeys::Ack { sender, receiver },
                )),
            ),
            Some(m) if m.ssn == Ssn::new(1) && !m.fin => {
                let keys = CapableKeys::Data {
                    sender,
                    receiver,
                    len: m.len,
                    checksum: m.checksum,
                };
                add(
                    list,
                    MptcpOption::Capable(Capable::v1(self.numbers.checksum, keys)),
                );
            }
            Some(m) => add(list, self.dss(Some(m))),
        }
    }

    fn established_options(
        &self,
        fallback: &Fallback,
        data_timer: &DataTimer,
        segment: &Carrier<'_>,
        list: &mut MptcpOptions,
    ) {
        // Every segment carries a Data ACK: it is cheap, and each may be the one that arrives. // rfc8684:D23,B2
        // A peer that answered our MP_FAIL has fallen back, and takes no mapping any more: our stream ends with the FIN, or on another
        // subflow. // rfc8684:B9
        let dss = match segment.mapping {
            None if fallback.mp_fail_is_answered()
                || self
                    .subflows
                    .omits_data_fin_for_sack(self.send, data_timer, segment.i) =>
            {
                self.dss_with(None, false)
            }
            _ => self.dss(segment.mapping),
        };
        add(list, dss);
        // A signal may be long, and the Data ACK must not wait for another segment.
        if segment.mapping.is_none() && fallback.recent_acks.is_last(self.recv.data_ack()) {
            // Signals are sent on pure ACKs, where they have room. // rfc8684:A14
            if let Some(signal) = self.subflows[segment.i].signals.queue.front() {
                add(list, *signal);
            }
        }
    }

    /// The DSS for a peer that may not have noticed our fallback: what arrived, and the end of our stream, unless an infinite mapping was
    /// sent.
    fn dss_after_unconfirmed_fallback(&self, fallback: &Fallback, level: Level) -> MptcpOption {
        let last = self.send.fin.state != FinState::Open && self.send.all_sent();
        let mapping = self
            .data_fin_without_data()
            .filter(|_| last && level.infinite_due() && !fallback.announce.infinite_sent);
        let at = self.recv.next() + u64::from(fallback.data_fin_after_fallback);
        MptcpOption::Dss(Dss {
            data_ack: self.numbers.rx.map(|n| DataAck::Long(n.dsn(at).get())),
            mapping,
            data_fin: mapping.is_some(),
        })
    }
}

impl SendQueue {
    /// A FIN that closes a subflow because the DATA_FIN has no Data ACK does not repeat it: Linux (6.18) keeps a FIN with a mapping in the
    /// subflow's queue, and acts on a noted DATA_FIN only once that is empty.
    fn is_plain_fin(&self, plan: &Plan) -> bool {
        let unanswered = self.lacks_data_fin_only() && self.fin_is_unanswered();
        plan.fin && plan.len == 0 && unanswered
    }

    /// Our DATA_FIN has to be sent, or may have to be resent.
    fn data_fin_due(&self) -> bool {
        match self.fin.state {
            FinState::Queued => self.all_sent(),
            FinState::Sent => true,
            FinState::Open | FinState::Acked => false,
        }
    }
}

impl Fallback {
    /// A segment of this mapping carries the infinite mapping. Where everything is resent, what was in flight before does not: if a
    /// middlebox rewrites, the receiver can tell only by the segment at hand where the mapping begins.
    fn wants_infinite(&self, level: Level, mapping: &TxMapping, ssn: Ssn) -> bool {
        let resent = |from: Ssn| !mapping.ssn.before(from);
        let first = level.infinite_due() && self.resend.from.is_none_or(resent);
        first || self.announce.carried_by == Some(ssn)
    }
}

impl Life {
    /// Our MP_FASTCLOSE is unanswered: every segment without data carries it.
    fn carries_fast_close(&self, sf: &Subflow, plan: &Plan) -> bool {
        let handshake_is_complete = matches!(
            sf.handshake.state,
            HandshakeState::CapableKeys | HandshakeState::Done
        );
        self.fast_close.is_some() && handshake_is_complete && plan.len == 0
    }
}

impl Keys {
    /// MP_FASTCLOSE carries the peer's key. // rfc8684:Z1,Z2
    pub(crate) fn fast_close_option(&self) -> Option<MptcpOption> {
        Some(MptcpOption::FastClose(FastClose {
            key: self.remote.as_ref()?.key(),
        }))
    }
}

impl Conn {
    /// Adds the options of a segment, most important first. Only MP_CAPABLE and MP_FASTCLOSE carry keys. // rfc8684:S4
    pub(crate) fn options_for(
        &self,
        i: SubflowIdx,
        plan: &Plan,
        mapping: Option<&TxMapping>,
        list: &mut MptcpOptions,
    ) {
        let sf = &self.subflows[i];
        if plan.kind == Kind::Reset {
            if let Some(Explanation(Some(why))) = sf.closing.reset_with {
                add(list, why);
            }
            return;
        }
        if plan.kind == Kind::KeepAlive && plan.len == 0 && sf.handshake.plain_probe.is_asked() {
            return;
        }
        let streams = Streams {
            subflows: &self.subflows,
            send: &self.send,
            recv: &self.recv,
            numbers: &self.numbers,
            opts: &self.opts,
        };
        if self.life.carries_fast_close(sf, plan) {
            // Replaces what the connection would send about its streams: these are over. // rfc8684:Z1,Z2,Z5
            if let Some(close) = self.handshake.keys.fast_close_option() {
                add(list, close);
            }
            add(list, streams.dss_with(None, false));
            return;
        }
        let segment = &Carrier { i, plan, mapping };
        match &sf.handshake.state {
            HandshakeState::Plain => {
                let keys = &self.handshake.keys;
                streams.options_after_fallback(&self.fallback, self.level, keys, segment, list);
            }
            HandshakeState::CapableAck => {
                streams.mp_capable_options(&self.handshake.keys, segment, list)
            }
            // A mere probe of the initiator, or a segment without options on purpose, must not prove that options pass.
            HandshakeState::CapableKeys | HandshakeState::Done
                if self
                    .handshake
                    .has_not_answered_initiator(&self.subflows, self.level)
                    && (sf.handshake.plain || plan.kind == Kind::KeepAlive) => {}
            HandshakeState::CapableKeys | HandshakeState::Done if self.send.is_plain_fin(plan) => {
                add(list, streams.dss_with(None, false));
            }
            HandshakeState::CapableKeys | HandshakeState::Done => {
                streams.established_options(&self.fallback, &self.data_timer, segment, list);
            }
            HandshakeState::CapableSyn
            | HandshakeState::CapableSynAck
            | HandshakeState::JoinSyn { .. }
            | HandshakeState::JoinSynAck { .. }
            | HandshakeState::JoinAck { .. } => {
                streams.handshake_options(&self.handshake.keys, segment, list);
            }
        }
    }
}
