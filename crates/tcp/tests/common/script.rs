//! One machine against a script: inject a segment, expect a segment. Numbers in scripts are relative: ours to our ISN,
//! the peer's to its own.

use manypath_tcp::machine::{
    Config, CongestionConfig, Context, Decision, Kind, Machine, Offer, Outcome, Plan, TcpOptions,
};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::Mss;
use manypath_wire::ip::Ecn;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::options::{Options, SackBlocks, Timestamps};

use super::{PLAIN, Packet};

pub const ISN: SeqNum = SeqNum::new(u32::MAX - 1000);
pub const IRS: SeqNum = SeqNum::new(7_000_000);

pub const A: Flags = Flags::ACK;
pub const S: Flags = Flags::SYN;
pub const SA: Flags = Flags::SYN.with(Flags::ACK);
pub const FA: Flags = Flags::FIN.with(Flags::ACK);
pub const R: Flags = Flags::RST;
pub const RA: Flags = Flags::RST.with(Flags::ACK);

/// What left the machine.
#[derive(Clone, Debug)]
pub struct Out {
    pub plan: Plan,
    pub header: Header,
    pub options: Options,
    pub ecn: Ecn,
}

impl Out {
    /// Our number, relative.
    pub fn seq(&self) -> u32 {
        self.header.seq.since(ISN)
    }

    /// The peer's number, relative.
    pub fn ack(&self) -> u32 {
        self.header.ack.since(IRS)
    }

    /// SACK blocks, relative.
    pub fn sack(&self) -> Vec<(u32, u32)> {
        self.options
            .sack
            .iter()
            .map(|(a, b)| (a.since(IRS), b.since(IRS)))
            .collect()
    }
}

/// The machine under test and its surroundings.
pub struct Script {
    pub m: Machine,
    pub now: Instant,
    pub offer: Offer,
    /// Bytes handed over in total; what is available follows.
    pub written: u32,
    pub stamps: bool,
    /// The peer's timestamp clock.
    pub tsval: u32,
    /// What to echo.
    pub tsecr: u32,
    pub window: u16,
    pub ctx: Context<'static>,
    pub ecn: Ecn,
}

impl Script {
    fn around(m: Machine, now: Instant) -> Script {
        Script {
            m,
            now,
            offer: Offer {
                available: 0,
                fin: false,
                option_space: 0,
                max_burst: 1,
                push: true,
                no_nagle: false,
                probe_new: true,
            },
            written: 0,
            stamps: false,
            tsval: 1000,
            tsecr: 0,
            window: 60_000,
            ctx: PLAIN,
            ecn: Ecn::NotEct,
        }
    }

    /// A configuration in which numbers are easy: no timestamps, no scaling, no pacing, segments of 1000 bytes.
    pub fn config() -> Config {
        Config {
            mss: 1000,
            recv_window: 30_000,
            nagle: false,
            options: TcpOptions {
                timestamps: false,
                window_scaling: false,
                ..TcpOptions::default()
            },
            congestion: CongestionConfig {
                pacing: false,
                ..CongestionConfig::default()
            },
            ..Config::default()
        }
    }

    /// An active open, its SYN not yet sent.
    pub fn connecting(cfg: Config) -> Script {
        let now = Instant::from_secs(10);
        Script::around(Machine::connect(cfg, now, ISN), now)
    }

    /// An established connection that we opened. The handshake took 10 ms.
    pub fn established(cfg: Config) -> Script {
        let stamps = cfg.options.timestamps;
        let ecn = cfg.congestion.ecn;
        let mut s = Script::connecting(cfg);
        s.stamps = stamps;
        let syn = s.expect(Kind::Syn);
        s.tsecr = syn.options.timestamps.map_or(0, |t| t.val);
        s.pass(10);
        let flags = if ecn { SA | Flags::ECE } else { SA };
        let out = s.inject(0, flags, 1, &[]);
        assert!(out.established);
        let ack = s.expect(Kind::Ack);
        assert_eq!((ack.seq(), ack.ack()), (1, 1));
        s
    }

    /// A passive open whose SYN+ACK is not yet sent.
    pub fn accepting(cfg: Config) -> Script {
        Script::called(cfg, Machine::accept)
    }

    /// A passive open whose SYN+ACK was sent and forgotten.
    pub fn resuming(cfg: Config) -> Script {
        Script::called(cfg, |cfg, now, isn, syn| {
            Machine::resume(cfg, now, isn, syn, u32::MAX)
        })
    }

    fn called(
        cfg: Config,
        open: impl FnOnce(Config, Instant, SeqNum, &Segment<'_>) -> Machine,
    ) -> Script {
        let now = Instant::from_secs(10);
        let syn = Packet {
            header: raw(IRS, S, SeqNum::new(0), 60_000),
            options: Options {
                mss: Some(Mss(1000)),
                sack_permitted: cfg.options.sack,
                timestamps: cfg
                    .options
                    .timestamps
                    .then_some(Timestamps { val: 1000, ecr: 0 }),
                ..Options::EMPTY
            },
            payload: Vec::new(),
            ecn: Ecn::NotEct,
        };
        let stamps = cfg.options.timestamps;
        let m = open(cfg, now, ISN, &syn.view());
        let mut s = Script::around(m, now);
        s.stamps = stamps;
        s
    }

    pub fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    /// Hands over more bytes to send.
    pub fn write(&mut self, bytes: u32) {
        self.written += bytes;
    }

    /// A segment of the peer, by relative numbers.
    pub fn inject(&mut self, seq: u32, flags: Flags, ack: u32, payload: &[u8]) -> Outcome {
        self.inject_with(seq, flags, ack, payload, |_| {})
    }

    pub fn inject_sack(&mut self, ack: u32, blocks: &[(u32, u32)]) -> Outcome {
        let next = self.m.rcv_nxt().since(IRS);
        self.inject_with(next, A, ack, &[], |p| {
            p.options.sack = blocks
                .iter()
                .map(|(a, b)| (ISN + *a, ISN + *b))
                .collect::<SackBlocks>();
        })
    }

    pub fn inject_with(
        &mut self,
        seq: u32,
        flags: Flags,
        ack: u32,
        payload: &[u8],
        change: impl FnOnce(&mut Packet),
    ) -> Outcome {
        let ack = if flags.ack() {
            ISN + ack
        } else {
            SeqNum::new(0)
        };
        let mut options = Options::EMPTY;
        if flags.syn() {
            options.mss = Some(Mss(1000));
            options.sack_permitted = true;
        }
        if self.stamps {
            options.timestamps = Some(Timestamps {
                val: self.tsval,
                ecr: self.tsecr,
            });
        }
        let mut packet = Packet {
            header: raw(IRS + seq, flags, ack, self.window),
            options,
            payload: payload.to_vec(),
            ecn: self.ecn,
        };
        change(&mut packet);
        self.m.on_segment(self.now, &packet.view(), &self.ctx)
    }

    fn offer(&self) -> Offer {
        let given = self.m.snd_nxt().since(ISN).saturating_sub(1);
        Offer {
            available: self.written.saturating_sub(given),
            ..self.offer
        }
    }

    /// What the machine would send now, sent.
    pub fn poll(&mut self) -> Option<Out> {
        match self.m.decide(self.now, &self.offer()) {
            Decision::Idle => None,
            Decision::Send(plan) => {
                let (header, options) = self.m.header(self.now, &plan);
                let ecn = self.m.ecn(&plan);
                self.m.sent(self.now, &plan);
                Some(Out {
                    plan,
                    header,
                    options,
                    ecn,
                })
            }
        }
    }

    /// The next segment must be of this kind.
    pub fn expect(&mut self, kind: Kind) -> Out {
        let out = self.poll();
        match out {
            Some(out) if out.plan.kind == kind => out,
            other => panic!("expected {kind:?} at {:?}, got {other:?}", self.now),
        }
    }

    /// The next segment carries these relative numbers of payload.
    pub fn expect_data(&mut self, kind: Kind, from: u32, to: u32) -> Out {
        let out = self.expect(kind);
        assert_eq!((out.seq(), out.seq() + out.plan.len), (from, to), "{out:?}");
        out
    }

    /// Nothing leaves now.
    pub fn expect_none(&mut self) {
        let out = self.poll();
        assert!(out.is_none(), "unexpected {out:?} at {:?}", self.now);
    }

    /// Everything that leaves now.
    pub fn drain(&mut self) -> Vec<Out> {
        let mut all = Vec::new();
        while let Some(out) = self.poll() {
            all.push(out);
            assert!(all.len() < 1000, "sends without end");
        }
        all
    }

    /// Goes to the next deadline and lets it happen.
    pub fn timeout(&mut self) -> manypath_tcp::machine::TimeoutOutcome {
        let at = self.m.deadline().expect("a timer runs");
        assert!(at >= self.now, "deadlines are not in the past");
        self.now = at;
        self.m.on_timeout(at)
    }

    /// Milliseconds until the next deadline.
    pub fn wait(&self) -> Option<u64> {
        self.m.deadline().map(|at| at.since(self.now).as_millis())
    }

    /// Runs the timers for so long; everything sent meanwhile, with the time since the start in milliseconds.
    pub fn run(&mut self, ms: u64) -> Vec<(u64, Out)> {
        let start = self.now;
        let end = start + Duration::from_millis(ms);
        let mut all = Vec::new();
        loop {
            while let Some(out) = self.poll() {
                all.push((self.now.since(start).as_millis(), out));
                assert!(all.len() < 1000, "sends without end");
            }
            match self.m.deadline() {
                Some(at) if at <= end => {
                    self.now = at.max(self.now);
                    let _ = self.m.on_timeout(self.now);
                }
                _ => break,
            }
        }
        self.now = end;
        all
    }

    /// Acknowledges at once whatever leaves, until nothing does.
    pub fn settle(&mut self) {
        loop {
            self.drain();
            if !self.m.awaits_ack() {
                return;
            }
            let next = self.m.rcv_nxt().since(IRS);
            let ack = self.m.snd_nxt().since(ISN);
            let _ = self.inject(next, A, ack, &[]);
        }
    }
}

fn raw(seq: SeqNum, flags: Flags, ack: SeqNum, window: u16) -> Header {
    Header {
        src_port: 4000,
        dst_port: 80,
        seq,
        ack,
        flags,
        window,
        urgent: 0,
    }
}
