//! What a handshake costs in hashing.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use criterion::Criterion;
use manypath_stack::crypto::isn::IsnSource;
use manypath_stack::crypto::keypool::{KeyPool, TokenHome};
use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::crypto::mac::{self, JoinMac, Keys};
use manypath_stack::crypto::rng::Rng;
use manypath_tcp::time::Instant;
use manypath_wire::ids::{AddrId, FourTuple, Key, Nonce};

fn crypto(c: &mut Criterion) {
    let mut rng = Rng::new([1; 32]);
    let keys = Keys {
        sender: Key([1; 8]),
        receiver: Key([2; 8]),
    };
    let addr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
    c.bench_function("key/derive", |b| {
        b.iter(|| KeyMaterial::derive(black_box(Key([3; 8]))))
    });
    c.bench_function("mac/join", |b| {
        b.iter(|| JoinMac::compute(black_box(keys), Nonce(4), Nonce(5)).ack())
    });
    c.bench_function("mac/add_addr", |b| {
        b.iter(|| mac::add_addr(black_box(keys), AddrId(1), addr, Some(80)))
    });
    c.bench_function("rng/u64", |b| b.iter(|| rng.next_u64()));
    let source = IsnSource::new(&mut rng);
    let tuple = FourTuple::new(SocketAddr::new(addr, 50_000), SocketAddr::new(addr, 80));
    c.bench_function("isn", |b| {
        b.iter(|| source.choose(Instant::ZERO, black_box(&tuple)))
    });
    let mut pool = KeyPool::new(64, TokenHome::ANY);
    c.bench_function("keypool/refill and take", |b| {
        b.iter(|| {
            pool.refill(&mut rng, 1, |_| false);
            pool.take(&mut rng, |_| false)
        });
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    crypto(&mut criterion);
    criterion.final_summary();
}
