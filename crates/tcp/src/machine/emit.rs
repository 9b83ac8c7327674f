//! The header of a planned segment, and the bookkeeping once it has left.

use manypath_wire::ip::Ecn;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::options::{Options, Timestamps};

use super::Machine;
use super::negotiate::syn_options;
use super::plan::{Kind, Plan};
use super::state::Change;
use crate::send::loss::{Control, Sent};
use crate::time::Instant;

/// SACK blocks beside timestamps, and without (RFC 2018 section 3).
const BLOCKS_WITH_STAMPS: usize = 3;
const BLOCKS_ALONE: usize = 4;

impl Machine {
    /// The header and this layer's options for a plan. The ports are zero: the caller knows them. For a burst the
    /// same header serves every segment, as a device that splits it expects.
    pub fn header(&self, now: Instant, plan: &Plan) -> (Header, Options) {
        let mut options = Options::EMPTY;
        (self.header_with(now, plan, &mut options), options)
    }

    /// As [`header`](Self::header), the options written to where they are needed: the value is large to move.
    pub fn header_with(&self, now: Instant, plan: &Plan, options: &mut Options) -> Header {
        self.options(now, plan, options);
        let acks = plan.kind != Kind::Syn;
        Header {
            src_port: 0,
            dst_port: 0,
            seq: plan.seq,
            ack: if acks {
                self.recv.acknowledges()
            } else {
                SeqNum::new(0)
            },
            flags: self.flags(plan),
            window: self.window_field(plan),
            urgent: 0, // rfc8684:D10
        }
    }

    /// The congestion mark of the packets of a plan. RFC 3168 sections 6.1.4 to 6.1.6: only new data says that it may
    /// be marked.
    pub fn ecn(&self, plan: &Plan) -> Ecn {
        if self.agreed.ecn && self.is_new_data(plan) {
            Ecn::Ect0
        } else {
            Ecn::NotEct
        }
    }

    /// Payload that was never sent before, whatever it is sent for: a tail loss probe may be the first after a reduction, and has to tell it
    /// (RFC 3168 section 6.1.2).
    fn is_new_data(&self, plan: &Plan) -> bool {
        let carries_data = match plan.kind {
            Kind::Data | Kind::TailProbe => true,
            Kind::Syn
            | Kind::SynAck
            | Kind::Fin
            | Kind::Retransmit
            | Kind::WindowProbe
            | Kind::KeepAlive
            | Kind::Ack
            | Kind::Reset => false,
        };
        carries_data && plan.carries_new(self.send.nxt())
    }

    fn window_field(&self, plan: &Plan) -> u16 {
        match plan.kind {
            Kind::Syn | Kind::SynAck => self.recv.window.syn_field(self.recv.next()),
            Kind::Reset => 0,
            Kind::Data
            | Kind::Fin
            | Kind::Retransmit
            | Kind::TailProbe
            | Kind::WindowProbe
            | Kind::KeepAlive
            | Kind::Ack => self.recv.window_field(self.recv_step()),
        }
    }

    fn flags(&self, plan: &Plan) -> Flags {
        let mut flags = match plan.kind {
            // RFC 3168 6.1.1.1: a SYN sent again does not ask for ECN, in case that is why the first one was dropped.
            Kind::Syn if self.cfg.congestion.ecn && !self.syn_left() => {
                Flags::SYN | Flags::ECE | Flags::CWR
            }
            Kind::Syn => return Flags::SYN,
            Kind::SynAck if self.agreed.ecn => return Flags::SYN | Flags::ACK | Flags::ECE,
            Kind::SynAck => return Flags::SYN | Flags::ACK,
            Kind::Reset => return Flags::RST | Flags::ACK,
            Kind::Data
            | Kind::Fin
            | Kind::Retransmit
            | Kind::TailProbe
            | Kind::WindowProbe
            | Kind::KeepAlive
            | Kind::Ack => Flags::ACK,
        };
        if plan.kind == Kind::Syn {
            return flags;
        }
        if plan.push && plan.len > 0 {
            flags |= Flags::PSH;
        }
        if plan.fin {
            flags |= Flags::FIN;
        }
        if self.recv.ecn_echo {
            flags |= Flags::ECE;
        }
        if self.send.cwr_due && self.is_new_data(plan) {
            flags |= Flags::CWR;
        }
        flags
    }

    /// Writes the options into an empty list.
    fn options(&self, now: Instant, plan: &Plan, options: &mut Options) {
        match plan.kind {
            Kind::Syn | Kind::SynAck => {
                *options = syn_options(&self.cfg, &self.agreed);
                options.fastopen = self.fast_open_option(plan.kind);
            }
            Kind::Reset => return,
            Kind::Data
            | Kind::Fin
            | Kind::Retransmit
            | Kind::TailProbe
            | Kind::WindowProbe
            | Kind::KeepAlive
            | Kind::Ack => {}
        }
        if self.agreed.timestamps {
            let ecr = self.recv.recent.as_ref().map_or(0, |r| r.value());
            options.timestamps = Some(Timestamps {
                val: self.stamps.value(now),
                ecr,
            });
        }
        if self.agreed.sack && plan.kind == Kind::Ack {
            let max = if self.agreed.timestamps {
                BLOCKS_WITH_STAMPS
            } else {
                BLOCKS_ALONE
            };
            options.sack = self.recv.sack_blocks(max).collect();
        }
    }

    /// The plan has left: flight, timers, pacer and acknowledgement state follow.
    pub fn sent(&mut self, now: Instant, plan: &Plan) {
        self.tick(now);
        let first_syn = !self.syn_left();
        self.count_sent(plan);
        match plan.kind {
            Kind::Syn => self.recv.window.offered_in_syn(self.recv.next()),
            Kind::SynAck => {
                self.recv.window.offered_in_syn(self.recv.next());
                let window = u32::from(self.recv.window.syn_field(self.recv.next()));
                self.recv.acknowledged(window);
            }
            Kind::Reset => {
                self.reset_due = false;
                self.change(Change::Abort);
                return;
            }
            Kind::Data
            | Kind::Fin
            | Kind::Retransmit
            | Kind::TailProbe
            | Kind::WindowProbe
            | Kind::KeepAlive
            | Kind::Ack => {
                let field = self.window_field(plan);
                let window = self.recv.window.scale().expand(field);
                self.recv.acknowledged(window);
            }
        }
        match plan.kind {
            Kind::Syn | Kind::SynAck => {
                self.syn_again = false;
                self.syn_carried(plan.len);
                self.send.waiting_since.get_or_insert(now);
                let how = if first_syn {
                    Sent::New
                } else {
                    Sent::Retransmit
                };
                self.send.loss.sent(
                    now,
                    plan.seq,
                    1,
                    Control {
                        syn: true,
                        fin: false,
                    },
                    how,
                );
            }
            Kind::Data if plan.len == plan.mss && plan.len > self.mss() => {
                self.sent_new(now, plan, Sent::MtuProbe);
            }
            Kind::Data | Kind::Fin => self.sent_new(now, plan, Sent::New),
            Kind::TailProbe if plan.seq == self.send.nxt() => self.sent_new(now, plan, Sent::Probe),
            Kind::TailProbe => self.sent_again(now, plan, Sent::Probe),
            Kind::Retransmit => self.sent_again(now, plan, Sent::Retransmit),
            Kind::WindowProbe => self.send.persist.sent(),
            Kind::KeepAlive => self.prober.sent(),
            Kind::Ack | Kind::Reset => {}
        }
        self.watch_window(now);
    }

    fn sent_new(&mut self, now: Instant, plan: &Plan, how: Sent) {
        if !self.send.loss.outstanding() {
            self.send.loss.on_idle_restart(now);
        }
        if plan.len > 0 {
            self.send.cwr_due = false;
        }
        if self.send.persist.due() {
            self.send.persist.sent();
        }
        let control = Control {
            syn: false,
            fin: plan.fin,
        };
        self.send
            .loss
            .sent(now, plan.seq, plan.seq_len(), control, how);
        self.send
            .note_new(now, plan.seq + plan.len, plan.len % plan.mss.max(1) == 0);
        if plan.fin {
            self.send.fin = Some(plan.seq + plan.len);
            self.change(Change::FinSent);
        }
    }

    fn sent_again(&mut self, now: Instant, plan: &Plan, how: Sent) {
        let control = Control {
            syn: false,
            fin: plan.fin,
        };
        self.send
            .loss
            .sent(now, plan.seq, plan.seq_len(), control, how);
    }

    fn count_sent(&mut self, plan: &Plan) {
        let segments = u64::from(plan.len.div_ceil(plan.mss.max(1)).max(1));
        let again = plan.kind == Kind::Retransmit
            || (plan.kind == Kind::TailProbe && plan.seq != self.send.nxt())
            || (plan.syn && self.syn_left());
        let c = &mut self.counters;
        c.sent.segs_out += segments;
        if plan.len > 0 {
            c.sent.data_segs_out += segments;
            c.sent.bytes_sent += u64::from(plan.len);
        }
        if again {
            c.sent.segs_retrans += segments;
            c.sent.bytes_retrans += u64::from(plan.len);
        }
        c.sent.tail_probes += u64::from(plan.kind == Kind::TailProbe);
        c.sent.window_probes += u64::from(plan.kind == Kind::WindowProbe);
        c.sent.keepalives += u64::from(plan.kind == Kind::KeepAlive);
        c.sent.acks_out += u64::from(plan.kind == Kind::Ack);
    }
}
