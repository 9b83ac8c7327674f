//! Whatever arrives and whenever it is asked, the machine keeps its promises.

mod common;

use std::num::NonZeroU32;

use common::script::{IRS, ISN, Script};
use common::{PLAIN, Packet};
use manypath_tcp::machine::{
    Config, CongestionConfig, Decision, Kind, Machine, Offer, State, TcpOptions,
};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ip::Ecn;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::options::{Options, Timestamps};
use proptest::prelude::*;

/// One step of a hostile world.
#[derive(Clone, Debug)]
enum Step {
    Segment {
        seq: i32,
        ack: i32,
        flags: u8,
        window: u16,
        len: u16,
        sack: Vec<(i32, i32)>,
        ts: Option<(i32, i32)>,
        ecn: u8,
    },
    Pass(u32),
    Timeout,
    Write(u16),
    Window(u16),
    Send(u8),
    Fin,
    Icmp {
        seq: i32,
        mtu: u16,
    },
    Probe,
    Abort,
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![4 => -3..3i32, 4 => -3000..40_000i32, 1 => any::<i32>()]
}

fn step() -> impl Strategy<Value = Step> {
    let segment = (
        near(),
        near(),
        prop_oneof![8 => Just(0x10u8), 2 => Just(0x11), 2 => any::<u8>()],
        any::<u16>(),
        prop_oneof![Just(0u16), 0..3000u16],
        proptest::collection::vec((near(), near()), 0..4),
        proptest::option::of((near(), near())),
        0..4u8,
    )
        .prop_map(
            |(seq, ack, flags, window, len, sack, ts, ecn)| Step::Segment {
                seq,
                ack,
                flags,
                window,
                len,
                sack,
                ts,
                ecn,
            },
        );
    prop_oneof![
        10 => segment,
        3 => (0..100_000u32).prop_map(Step::Pass),
        4 => Just(Step::Timeout),
        4 => any::<u16>().prop_map(Step::Write),
        1 => any::<u16>().prop_map(Step::Window),
        8 => (1..20u8).prop_map(Step::Send),
        1 => Just(Step::Fin),
        1 => (near(), any::<u16>()).prop_map(|(seq, mtu)| Step::Icmp { seq, mtu }),
        1 => Just(Step::Probe),
    ]
}

struct World {
    m: Machine,
    now: Instant,
    written: u32,
    fin: bool,
    edge: Option<SeqNum>,
    delivered: u64,
}

impl World {
    fn offer(&self) -> Offer {
        let given = self.m.snd_nxt_ssn().get().saturating_sub(1);
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

    fn send(&mut self, most: usize) {
        for _ in 0..most {
            let offer = self.offer();
            let Decision::Send(plan) = self.m.decide(self.now, &offer) else {
                return;
            };
            let (una, nxt) = (self.m.snd_una(), self.m.snd_nxt());
            assert!(plan.len <= 10_000.max(plan.mss));
            match plan.kind {
                Kind::Data | Kind::Fin => assert_eq!(plan.seq, nxt),
                Kind::Retransmit | Kind::TailProbe => {
                    assert!(
                        plan.seq.after_eq(una) && plan.seq.before_eq(nxt),
                        "{plan:?} {una:?} {nxt:?}"
                    );
                    assert!(plan.seq_len() > 0);
                }
                Kind::Syn | Kind::SynAck => assert_eq!(plan.seq, self.m.isn()),
                Kind::WindowProbe | Kind::KeepAlive => {
                    assert_eq!((plan.seq, plan.len), (una - 1, 0))
                }
                Kind::Ack | Kind::Reset => assert_eq!(plan.len, 0),
            }
            let (header, options) = self.m.header(self.now, &plan);
            assert!(options.wire_len(40) <= 40);
            self.m.sent(self.now, &plan);
            if plan.kind == Kind::Data {
                assert_eq!(self.m.snd_nxt(), plan.seq + plan.seq_len());
            }
            if header.flags.ack() && !header.flags.rst() {
                let scale = if plan.syn {
                    0
                } else {
                    self.m.info().options.recv_scale
                };
                let edge = header.ack + (u32::from(header.window) << scale);
                assert!(
                    self.edge.is_none_or(|old| edge.after_eq(old)),
                    "the right edge moved left"
                );
                self.edge = Some(edge);
            }
        }
    }

    fn segment(&mut self, packet: &Packet) {
        let held = self.m.state() != State::SynSent;
        let before = self.m.rcv_nxt();
        let out = self.m.on_segment(self.now, &packet.view(), &PLAIN);
        let mut bytes = 0;
        if let Some(part) = out.arrival.in_order() {
            assert_eq!(u64::from(part.ssn.get()), self.delivered + 1);
            bytes += packet.payload[part.range.clone()].len() as u64;
        }
        while let Some(chunk) = self.m.take_ready() {
            assert_eq!(u64::from(chunk.ssn.get()), self.delivered + bytes + 1);
            bytes += chunk.bytes.len() as u64;
        }
        self.delivered += bytes;
        if held && out.ended.is_none() {
            let grown = self.m.rcv_nxt().since(before);
            assert_eq!(
                u64::from(grown),
                bytes + u64::from(out.arrival.fin),
                "what is acknowledged was handed over"
            );
        }
        assert!(self.m.info().reassembly <= 30_000 + 1);
    }

    fn check(&self) {
        assert!(!self.m.snd_una().after(self.m.snd_nxt()));
        let info = self.m.info();
        assert!(info.congestion.cwnd > 0 && info.mss > 0);
        assert!(info.congestion.inflight <= self.m.snd_nxt().since(self.m.snd_una()));
        if self.m.state() == State::Closed {
            assert_eq!(self.m.deadline(), None);
        }
    }

    /// Before the deadline nothing happens; at the deadline something does.
    fn check_deadline(&mut self) {
        let Some(at) = self.m.deadline() else { return };
        let before = (
            self.m.info(),
            self.m.decide(self.now, &self.offer()),
            self.m.deadline(),
        );
        if at > self.now {
            let out = self.m.on_timeout(self.now);
            assert!(!out.rto_fired && out.dead.is_none());
            let after = (
                self.m.info(),
                self.m.decide(self.now, &self.offer()),
                self.m.deadline(),
            );
            assert_eq!(
                before, after,
                "a timeout before the deadline changes nothing"
            );
        }
        self.now = self.now.max(at);
        let _ = self.m.on_timeout(self.now);
        let after = (
            self.m.info(),
            self.m.decide(self.now, &self.offer()),
            self.m.deadline(),
        );
        assert!(
            before != after,
            "something changes at the deadline: {after:?}"
        );
        assert!(
            self.m.deadline().is_none_or(|next| next >= self.now),
            "deadlines are not in the past"
        );
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Segment {
                seq,
                ack,
                flags,
                window,
                len,
                sack,
                ts,
                ecn,
            } => {
                let rel = |base: SeqNum, off: i32| base + off as u32;
                let next = self.m.rcv_nxt();
                let base = if next == SeqNum::new(0) { IRS } else { next };
                let una = self.m.snd_una();
                let options = Options {
                    sack: sack
                        .iter()
                        .map(|(a, b)| (rel(una, *a), rel(una, *b)))
                        .collect(),
                    timestamps: ts.map(|(val, ecr)| Timestamps {
                        val: 5000u32.wrapping_add(val as u32),
                        ecr: (self.now.as_millis() as u32).wrapping_sub(ecr as u32),
                    }),
                    ..Options::EMPTY
                };
                let header = Header {
                    src_port: 1,
                    dst_port: 2,
                    seq: rel(base, *seq),
                    ack: rel(una, *ack),
                    flags: Flags::from_bits(*flags),
                    window: *window,
                    urgent: 0,
                };
                let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][usize::from(*ecn)];
                self.segment(&Packet {
                    header,
                    options,
                    payload: vec![*len as u8; usize::from(*len)],
                    ecn,
                });
            }
            Step::Pass(us) => self.now += Duration::from_micros(u64::from(*us)),
            Step::Timeout => self.check_deadline(),
            Step::Write(n) => self.written = self.written.saturating_add(u32::from(*n)),
            Step::Window(n) => self.m.set_recv_window(u32::from(*n)),
            Step::Send(n) => self.send(usize::from(*n)),
            Step::Fin => self.fin = true,
            Step::Icmp { seq, mtu } => {
                let tuple = "10.0.0.2:80"
                    .parse()
                    .and_then(|a| Ok((a, "10.0.0.1:9".parse()?)));
                let (a, b) = tuple.expect("valid addresses");
                let error = manypath_wire::ip::icmp::Error {
                    tuple: manypath_wire::ids::FourTuple::new(a, b),
                    seq: self.m.snd_una() + *seq as u32,
                    kind: manypath_wire::ip::icmp::Kind::FragNeeded {
                        mtu: u32::from(*mtu),
                    },
                };
                let _ = self.m.on_icmp(self.now, &error);
            }
            Step::Probe => self.m.probe_liveness(self.now),
            Step::Abort => self.m.abort(),
        }
        self.check();
    }
}

fn config(bits: u8) -> Config {
    Config {
        nagle: bits & 8 != 0,
        keepalive: (bits & 32 != 0).then(Default::default),
        user_timeout: (bits & 64 != 0).then_some(Duration::from_secs(30)),
        options: TcpOptions {
            timestamps: bits & 1 != 0,
            sack: bits & 2 != 0,
            ..Script::config().options
        },
        congestion: CongestionConfig {
            ecn: bits & 4 != 0,
            pacing: bits & 16 != 0,
            ..Script::config().congestion
        },
        ..Script::config()
    }
}

fn run(m: Machine, delivered_from: Instant, steps: &[Step]) {
    let mut world = World {
        m,
        now: delivered_from,
        written: 0,
        fin: false,
        edge: None,
        delivered: 0,
    };
    for step in steps {
        world.apply(step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn an_open_connection_keeps_its_promises(bits in any::<u8>(), steps in proptest::collection::vec(step(), 1..120)) {
        let s = Script::established(config(bits));
        run(s.m, s.now, &steps);
    }

    #[test]
    fn an_opening_connection_keeps_its_promises(
        passive in any::<bool>(),
        bits in any::<u8>(),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let s = if passive { Script::accepting(config(bits)) } else { Script::connecting(config(bits)) };
        run(s.m, s.now, &steps);
    }
}

#[test]
fn an_aborted_connection_sends_nothing_after_its_reset() {
    let s = Script::established(config(0xff));
    assert_eq!(s.m.isn(), ISN);
    run(
        s.m,
        s.now,
        &[
            Step::Write(1000),
            Step::Send(3),
            Step::Abort,
            Step::Timeout,
            Step::Send(9),
            Step::Timeout,
        ],
    );
}

/// What happens to a receiver whose application may be slow.
#[derive(Clone, Debug)]
enum Arrival {
    /// Payload from so many bytes behind the next byte expected, or before it, as far as the peer was ever allowed to send.
    Segment { ahead: i32, len: u16 },
    /// Payload that ends where the newest of all advertised right edges is.
    UpToEdge { len: u16 },
    /// The application reads.
    Read(u32),
    /// The receive buffer grows, as autotuning lets it.
    Grow(u32),
    /// The last bytes of what arrives stay unacknowledged.
    Withhold(u16),
    /// Everything due is sent.
    Send,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let segment =
        |ahead, len| (ahead, len).prop_map(|(ahead, len)| Arrival::Segment { ahead, len });
    prop_oneof![
        6 => segment(Just(0).boxed(), (0..300u16).boxed()),
        4 => segment((-2..1i32).boxed(), (0..1500u16).boxed()),
        2 => segment((-3000..70_000i32).boxed(), (0..1500u16).boxed()),
        2 => (1..1500u16).prop_map(|len| Arrival::UpToEdge { len }),
        1 => (0..100_000u32).prop_map(Arrival::Read),
        1 => (0..200_000u32).prop_map(Arrival::Grow),
        1 => prop_oneof![Just(0), Just(1), 0..3000u16].prop_map(Arrival::Withhold),
        8 => Just(Arrival::Send),
    ]
}

/// A receiver, and what its peer was told.
struct Hoarder {
    s: Script,
    unit: u32,
    buffer: u32,
    most: u32,
    read: u64,
    delivered: u64,
    /// The right edge of the newest advertisement, and the farthest of all, in bytes of the stream.
    told: u64,
    farthest: u64,
}

impl Hoarder {
    fn new(scale_for: u32, buffer: u32) -> Self {
        let config = Config {
            recv_window: scale_for,
            options: TcpOptions {
                window_scaling: true,
                ..Script::config().options
            },
            ..Script::config()
        };
        let buffer = buffer.min(scale_for);
        let mut s = Script::connecting(config);
        s.m.set_recv_window(buffer);
        s.expect(Kind::Syn);
        s.inject_with(0, Flags::SYN | Flags::ACK, 1, &[], |p| {
            p.options.window_scale = Some(7);
        });
        let ack = s.expect(Kind::Ack);
        let unit = 1 << s.m.info().options.recv_scale;
        let told = u64::from(ack.header.window) * u64::from(unit);
        Self {
            s,
            unit,
            buffer,
            most: scale_for,
            read: 0,
            delivered: 0,
            told,
            farthest: told.max(buffer.min(65_535).into()),
        }
    }

    fn room(&self) -> u32 {
        u32::try_from((self.read + u64::from(self.buffer)).saturating_sub(self.delivered))
            .unwrap_or(u32::MAX)
    }

    fn segment(&mut self, at: u64, len: u16) {
        let stop = (at + u64::from(len)).min(self.farthest);
        let payload = vec![7; stop.saturating_sub(at) as usize];
        let out = self.s.inject(1 + at as u32, Flags::ACK, 1, &payload);
        if let Some(part) = out.arrival.in_order() {
            self.delivered += part.range.len() as u64;
        }
        while let Some(chunk) = self.s.m.take_ready() {
            self.delivered += chunk.bytes.len() as u64;
        }
        // RFC 7323 section 2.4: what any acknowledgement allowed is taken, unless memory is short.
        let next = at <= self.delivered;
        assert!(!next || self.delivered >= stop, "{out:?}");
        let open = u64::from(self.s.m.info().recv_window);
        assert_eq!(self.delivered + open, self.farthest.max(self.delivered));
    }

    fn send(&mut self) {
        self.s.m.set_recv_window(self.room());
        while let Some(out) = self.s.poll() {
            let ack = u64::from(out.ack() - 1);
            let edge = ack + u64::from(u32::from(out.header.window) * self.unit);
            assert!(
                edge + u64::from(self.unit) > self.told,
                "the right edge moved left by more than rounding: {edge}, {}",
                self.told
            );
            self.told = edge;
            self.farthest = self.farthest.max(edge);
        }
    }

    fn apply(&mut self, arrival: &Arrival) {
        match *arrival {
            Arrival::Segment { ahead, len } => {
                let at = (self.delivered as i64 + i64::from(ahead)).max(0) as u64;
                self.segment(at.min(self.farthest), len);
            }
            Arrival::UpToEdge { len } => {
                self.segment(self.farthest - u64::from(len).min(self.farthest), len);
            }
            Arrival::Read(n) => {
                self.read = (self.read + u64::from(n)).min(self.delivered);
            }
            Arrival::Grow(n) => self.buffer = self.buffer.max(n.min(self.most)),
            Arrival::Withhold(n) => self.s.m.withhold(NonZeroU32::new(u32::from(n))),
            Arrival::Send => self.send(),
        }
        let kept = self.farthest - self.read;
        let most = u64::from(self.buffer) + u64::from(self.unit);
        assert!(kept < most, "{kept} bytes may be kept, {most} are allowed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_receiver_keeps_no_more_than_its_buffer_and_a_unit_of_scale(
        scale_for in prop_oneof![Just(60_000u32), Just(1 << 20), Just(8 << 20), Just(1 << 30)],
        buffer in 3000..150_000u32,
        arrivals in proptest::collection::vec(arrival(), 1..400),
    ) {
        let mut receiver = Hoarder::new(scale_for, buffer);
        for arrival in &arrivals {
            receiver.apply(arrival);
        }
    }
}
