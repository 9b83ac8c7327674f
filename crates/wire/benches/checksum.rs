//! How fast bytes are summed and copied: one core, from the size of a header to that of an offloaded burst.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use manypath_wire::checksum::{Sum, copy_and_sum};

fn checksum(c: &mut Criterion) {
    let mut group = c.benchmark_group("checksum");
    for size in [20usize, 64, 1428, 16_384, 65_536] {
        let src: Vec<u8> = (0..size).map(|i| (i * 31) as u8).collect();
        let mut dst = vec![0u8; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(BenchmarkId::new("sum", size), &src, |b, src| {
            b.iter(|| Sum::of(black_box(src)).fold());
        });
        group.bench_with_input(BenchmarkId::new("copy_and_sum", size), &src, |b, src| {
            b.iter(|| copy_and_sum(black_box(&mut dst), black_box(src)).fold());
        });
        group.bench_with_input(BenchmarkId::new("copy_only", size), &src, |b, src| {
            b.iter(|| black_box(&mut dst).copy_from_slice(black_box(src)));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    checksum(&mut criterion);
    criterion.final_summary();
}
