//! What a segment costs in the machines of both ends: decided, sent, received, acknowledged, the acknowledgement taken.

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, Throughput};
use manypath_tcp::cc::GroupView;
use manypath_tcp::machine::{Config, CongestionConfig, Context, Decision, Machine, Offer};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::{Ecn, IpMeta};
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Header;
use manypath_wire::tcp::options::Options;

const CONTEXT: Context<'static> = Context {
    group: GroupView::ALONE,
    congestion_signal_ok: true,
};
const SEGMENTS: u64 = 10_000;
static PAYLOAD: [u8; 65_536] = [0; 65_536];

fn segment(header: Header, options: Options, len: u32) -> Segment<'static> {
    let address = [10, 0, 0, 1].into();
    Segment {
        tuple: FourTuple::new((address, 80).into(), (address, 81).into()),
        ip: IpMeta {
            src: address,
            dst: address,
            protocol: 6,
            ttl: 64,
            ecn: Ecn::NotEct,
            total_len: 40 + len as usize,
            header_len: 20,
        },
        header,
        options,
        payload: &PAYLOAD[..len as usize],
        payload_sum: None,
    }
}

/// Sends so many segments (or bursts) from one machine to the other, losing every `lose`th; returns payload bytes.
fn transfer(count: u64, max_burst: u32, lose: u64) -> u64 {
    let cfg = Config {
        recv_window: 4 << 20,
        congestion: CongestionConfig {
            pacing: false,
            ..CongestionConfig::default()
        },
        ..Config::default()
    };
    let offer = |available| Offer {
        available,
        fin: false,
        option_space: 20,
        max_burst,
        push: true,
        no_nagle: false,
        probe_new: true,
    };
    let mut now = Instant::from_secs(1);
    let mut sender = Machine::connect(cfg.clone(), now, SeqNum::new(1));
    let mut receiver: Option<Machine> = None;
    let mut wire: VecDeque<(Header, Options, u32)> = VecDeque::new();
    let (mut sent, mut bytes) = (0, 0);
    while sent < count {
        now += Duration::from_micros(10);
        while wire.len() < 64
            && let Decision::Send(plan) = sender.decide(now, &offer(1 << 30))
        {
            let (header, options) = sender.header(now, &plan);
            sender.sent(now, &plan);
            sent += 1;
            if sent % lose != 0 {
                wire.push_back((header, options, plan.len));
            }
        }
        for (header, options, len) in wire.drain(..) {
            let arrived = segment(header, options, len);
            let Some(peer) = &mut receiver else {
                receiver = Some(Machine::accept(cfg.clone(), now, SeqNum::new(9), &arrived));
                continue;
            };
            let out = peer.on_segment(now, &arrived, &CONTEXT);
            bytes += out
                .arrival
                .in_order()
                .map_or(0, |part| part.range.len() as u64);
            while let Some(chunk) = peer.take_ready() {
                bytes += chunk.bytes.len() as u64;
            }
            while let Decision::Send(plan) = peer.decide(now, &offer(0)) {
                let (header, options) = peer.header(now, &plan);
                peer.sent(now, &plan);
                sender.on_segment(now, &segment(header, options, 0), &CONTEXT);
            }
        }
        if let Some(peer) = &mut receiver
            && let Decision::Send(plan) = peer.decide(now, &offer(0))
        {
            let (header, options) = peer.header(now, &plan);
            peer.sent(now, &plan);
            sender.on_segment(now, &segment(header, options, 0), &CONTEXT);
        }
        if sender.deadline().is_some_and(|at| at <= now) {
            sender.on_timeout(now);
        }
    }
    bytes
}

fn segments(c: &mut Criterion) {
    let mut group = c.benchmark_group("machine");
    group.sample_size(20);
    for (name, burst, lose) in [
        ("segments", 1, u64::MAX),
        ("bursts of 64 KB", 65_535, u64::MAX),
        ("segments, one in a hundred lost", 1, 100),
    ] {
        group.throughput(Throughput::Elements(SEGMENTS));
        group.bench_function(name, |b| {
            b.iter(|| black_box(transfer(SEGMENTS, burst, lose)))
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    segments(&mut criterion);
    criterion.final_summary();
}
