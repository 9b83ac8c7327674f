//! What one segment costs without its payload: reading it, choosing its options, writing its headers.

use std::hint::black_box;

use criterion::Criterion;
use manypath_wire::checksum::Sum;
use manypath_wire::emit::{self, Checksum, Outgoing};
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::Ecn;
use manypath_wire::segment::{Segment, Verify};
use manypath_wire::seq::{SeqNum, Ssn};
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::layout::{Prefer, Wanted, fit};
use manypath_wire::tcp::mptcp::{DataAck, Dss, MapDsn, Mapping, MptcpOption};
use manypath_wire::tcp::options::{Options, Timestamps};

/// The options of a data segment in the middle of a transfer.
fn wanted() -> Wanted {
    let dss = Dss {
        data_ack: Some(DataAck::Long(1)),
        mapping: Some(Mapping {
            dsn: MapDsn::Long(2),
            ssn: Ssn::new(3),
            len: 1400,
            checksum: Some(4),
        }),
        data_fin: false,
    };
    Wanted {
        options: Options {
            timestamps: Some(Timestamps { val: 5, ecr: 6 }),
            mptcp: [MptcpOption::Dss(dss)].into_iter().collect(),
            ..Options::EMPTY
        },
        prefer: Prefer::Data,
    }
}

fn write(buffer: &mut [u8], wanted: &Wanted, payload: Sum) -> usize {
    let fitted = fit(wanted, 40);
    let out = Outgoing {
        tuple: FourTuple::of([10, 0, 0, 1].into(), 1, [10, 0, 0, 2].into(), 2),
        ecn: Ecn::NotEct,
        hop_limit: 64,
        header: Header {
            src_port: 1,
            dst_port: 2,
            seq: SeqNum::new(7),
            ack: SeqNum::new(8),
            flags: Flags::ACK,
            window: 9,
            urgent: 0,
        },
        options: &fitted,
    };
    let len = emit::headers(buffer, &out, 1400).expect("the buffer is large enough");
    emit::finish(buffer, payload, Checksum::Full).expect("headers were written");
    len
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let payload = [0x5a; 1400];
    let sum = Sum::of(&payload);
    let mut packet = vec![0; 1500];
    let wanted = wanted();
    let len = write(&mut packet, &wanted, sum);
    packet.truncate(len);
    packet.extend(payload);
    criterion.bench_function("segment/parse trusted", |b| {
        b.iter(|| {
            Segment::parse(black_box(&packet), Verify::Trusted)
                .expect("right")
                .len()
        });
    });
    criterion.bench_function("segment/parse full", |b| {
        b.iter(|| {
            Segment::parse(black_box(&packet), Verify::Full)
                .expect("right")
                .len()
        });
    });
    criterion.bench_function("segment/fit and write", |b| {
        b.iter(|| write(black_box(&mut packet), black_box(&wanted), sum));
    });
    criterion.final_summary();
}
