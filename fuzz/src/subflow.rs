//! One subflow's machine under segments, timers and calls of the fuzzer's choice. Whatever comes, nothing may panic,
//! what is acknowledged was handed over in order, memory stays within its grant, and time goes on.

use std::net::SocketAddr;

use manypath_tcp::cc::{Algorithm, GroupView};
use manypath_tcp::machine::{Config, CongestionConfig, Context, Decision, Kind, Machine, Offer, State, TcpOptions, reassembly_grant};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::{FourTuple, Mss};
use manypath_wire::ip::icmp;
use manypath_wire::ip::{Ecn, IpMeta};
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::options::{Options, Timestamps};

use crate::script::Script;

/// Our and the peer's initial numbers, near the wrap.
const ISN: SeqNum = SeqNum::new(0xffff_f000);
const IRS: SeqNum = SeqNum::new(0xffff_ff00);
/// The receive window.
const WINDOW: u32 = 30_000;
/// Steps of one run.
const MOST_STEPS: usize = 400;

struct World<'a> {
    script: Script<'a>,
    machine: Machine,
    now: Instant,
    written: u32,
    fin: bool,
    /// Payload bytes handed over.
    delivered: u64,
}

fn tuple() -> FourTuple {
    FourTuple::new(
        SocketAddr::from(([10, 0, 0, 2], 80)),
        SocketAddr::from(([10, 0, 0, 1], 4000)),
    )
}

fn view<'p>(header: Header, options: Options, payload: &'p [u8], ecn: Ecn) -> Segment<'p> {
    let tuple = tuple();
    Segment {
        tuple,
        ip: IpMeta {
            src: tuple.remote.ip(),
            dst: tuple.local.ip(),
            protocol: 6,
            ttl: 64,
            ecn,
            total_len: 40 + payload.len(),
            header_len: 20,
        },
        header,
        options,
        payload,
        payload_sum: None,
    }
}

fn config(bits: u8) -> Config {
    Config { recv_window: WINDOW,
nagle: bits & 8 != 0,
keepalive: (bits & 32 != 0).then(Default::default),
user_timeout: (bits & 64 != 0).then_some(Duration::from_secs(30)),
options: TcpOptions { timestamps: bits & 1 != 0, sack: bits & 2 != 0, ..TcpOptions::default() },
congestion: CongestionConfig { ecn: bits & 4 != 0, pacing: bits & 16 != 0, algorithm: if bits & 128 == 0 {
            Algorithm::Cubic
        } else {
            Algorithm::Reno
        }, ..CongestionConfig::default() },
..Config::default() }
}

fn syn() -> (Header, Options) {
    let header = Header {
        src_port: 4000,
        dst_port: 80,
        seq: IRS,
        ack: SeqNum::new(0),
        flags: Flags::SYN,
        window: 20_000,
        urgent: 0,
    };
    let options = Options {
        mss: Some(Mss(1000)),
        window_scale: Some(3),
        sack_permitted: true,
        timestamps: Some(Timestamps { val: 5000, ecr: 0 }),
        ..Options::EMPTY
    };
    (header, options)
}

/// Runs one script.
pub fn subflow(data: &[u8]) {
    let mut script = Script::new(data);
    let (role, bits) = (script.byte(), script.byte());
    let now = Instant::from_secs(5);
    let machine = if role & 1 == 0 {
        let (header, options) = syn();
        Machine::accept(
            config(bits),
            now,
            ISN,
            &view(header, options, &[], Ecn::NotEct),
        )
    } else {
        Machine::connect(config(bits), now, ISN)
    };
    let mut world = World {
        script,
        machine,
        now,
        written: 0,
        fin: false,
        delivered: 0,
    };
    world.send(2);
    if role & 6 != 0 {
        // Most runs begin with an open connection: there is more to break.
        world.complete();
    }
    for _ in 0..MOST_STEPS {
        if world.script.is_over() {
            break;
        }
        world.step();
        world.check();
    }
}

impl World<'_> {
    fn offer(&self) -> Offer {
        let given = self.machine.snd_nxt_ssn().get().saturating_sub(1);
        Offer {
            available: self.written.saturating_sub(given),
            fin: self.fin,
            option_space: 20,
            max_burst: 10_000,
            push: true,
            no_nagle: false,
            probe_new: true,
        }
    }

    fn send(&mut self, most: u8) {
        for _ in 0..most {
            let Decision::Send(plan) = self.machine.decide(self.now, &self.offer()) else {
                return;
            };
            assert!(plan.len <= plan.mss.max(10_000));
            let (una, nxt) = (self.machine.snd_una(), self.machine.snd_nxt());
            match plan.kind {
                Kind::Data | Kind::Fin => assert_eq!(plan.seq, nxt),
                Kind::Retransmit | Kind::TailProbe => {
                    assert!(plan.seq.after_eq(una) && plan.seq.before_eq(nxt));
                    assert!(plan.seq_len() > 0);
                }
                Kind::Syn | Kind::SynAck => assert_eq!(plan.seq, self.machine.isn()),
                Kind::WindowProbe | Kind::KeepAlive | Kind::Ack | Kind::Reset => {
                    assert_eq!(plan.len, 0)
                }
            }
            let (_, options) = self.machine.header(self.now, &plan);
            assert!(options.wire_len(40) <= 40);
            self.machine.sent(self.now, &plan);
        }
    }

    /// The peer's part of the handshake as it should be.
    fn complete(&mut self) {
        let (mut header, mut options) = syn();
        match self.machine.state() {
            State::SynSent => header.flags = Flags::SYN.with(Flags::ACK),
            _ => {
                header.flags = Flags::ACK;
                header.seq = IRS + 1;
                options = Options {
                    timestamps: options.timestamps,
                    ..Options::EMPTY
                };
            }
        }
        header.ack = self.machine.snd_nxt();
        self.take(&view(header, options, &[], Ecn::NotEct));
        self.send(2);
    }

    fn step(&mut self) {
        match self.script.byte() {
            0..120 => self.segment(),
            120..150 => {
                let wait = u64::from(self.script.half()) * 20;
                self.now += Duration::from_micros(wait);
            }
            150..180 => self.time_out(),
            180..205 => {
                let more = u32::from(self.script.half());
                self.written = self.written.saturating_add(more);
            }
            205..235 => {
                let most = self.script.byte() % 20;
                self.send(most);
            }
            235..242 => {
                let bytes = u32::from(self.script.half());
                self.machine.set_recv_window(bytes);
            }
            242..246 => self.icmp(),
            246..250 => self.machine.probe_liveness(self.now),
            250..252 => self.machine.force_ack(),
            252 => self.machine.set_nagle(self.written % 2 == 0),
            253 => self.machine.abort(),
            254.. => self.fin = true,
        }
    }

    fn segment(&mut self) {
        let next = self.machine.rcv_nxt();
        let base = if next == SeqNum::new(0) { IRS } else { next };
        let una = self.machine.snd_una();
        let shape = self.script.byte();
        let flags = match shape & 3 {
            0..3 => Flags::ACK,
            _ => Flags::from_bits(self.script.byte()),
        };
        let seq = base + self.script.near();
        let ack = una + self.script.near();
        let window = self.script.half();
        let len = usize::from(self.script.half() % 3000);
        let mut options = Options::EMPTY;
        if shape & 4 != 0 {
            let blocks = self.script.byte() % 4;
            options.sack = (0..blocks)
                .map(|_| (una + self.script.near(), una + self.script.near()))
                .collect();
        }
        if shape & 8 == 0 {
            options.timestamps = Some(Timestamps {
                val: 5000_u32.wrapping_add(self.now.as_millis() as u32),
                ecr: (self.now.as_millis() as u32).wrapping_sub(self.script.near()),
            });
        }
        let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][usize::from(shape >> 4 & 3)];
        let header = Header {
            src_port: 4000,
            dst_port: 80,
            seq,
            ack,
            flags,
            window,
            urgent: 0,
        };
        let payload = vec![shape; len];
        self.take(&view(header, options, &payload, ecn));
    }

    fn take(&mut self, seg: &Segment<'_>) {
        let opening = self.machine.state() == State::SynSent;
        let before = self.machine.rcv_nxt();
        let context = Context {
            group: GroupView::ALONE,
            congestion_signal_ok: true,
        };
        let out = self.machine.on_segment(self.now, seg, &context);
        let mut bytes = 0;
        if let Some(part) = out.arrival.in_order() {
            assert_eq!(u64::from(part.ssn.get()), self.delivered + 1);
            bytes += part.range.len() as u64;
        }
        while let Some(chunk) = self.machine.take_ready() {
            assert_eq!(u64::from(chunk.ssn.get()), self.delivered + bytes + 1);
            bytes += chunk.bytes.len() as u64;
        }
        self.delivered += bytes;
        if !opening && out.ended.is_none() {
            let grown = self.machine.rcv_nxt().since(before);
            assert_eq!(
                u64::from(grown),
                bytes + u64::from(out.arrival.fin),
                "what is acknowledged was handed over"
            );
        }
    }

    fn time_out(&mut self) {
        let Some(at) = self.machine.deadline() else {
            return;
        };
        self.now = self.now.max(at);
        let before = (
            self.machine.info(),
            self.machine.decide(self.now, &self.offer()),
        );
        let _ = self.machine.on_timeout(self.now);
        let next = self.machine.deadline();
        let after = (
            self.machine.info(),
            self.machine.decide(self.now, &self.offer()),
        );
        assert!(
            next.is_none_or(|next| next > at) || before != after || next != Some(at),
            "time stands still at {at:?}"
        );
    }

    fn icmp(&mut self) {
        let error = icmp::Error {
            tuple: tuple(),
            seq: self.machine.snd_una() + self.script.near(),
            kind: icmp::Kind::FragNeeded {
                mtu: u32::from(self.script.half()),
            },
        };
        let _ = self.machine.on_icmp(self.now, &error);
    }

    fn check(&self) {
        let machine = &self.machine;
        assert!(!machine.snd_una().after(machine.snd_nxt()));
        let info = machine.info();
        assert!(info.congestion.cwnd > 0 && info.mss > 0);
        assert!(info.congestion.inflight <= machine.snd_nxt().since(machine.snd_una()));
        assert!(machine.reassembly_memory() <= reassembly_grant(WINDOW));
        if machine.state() == State::Closed {
            assert_eq!(machine.deadline(), None);
        }
    }
}
