//! What the tests of the machine share: segments made by hand, a peer that is a script, and a toy network.
#![allow(dead_code)] // every test file uses a part of it
#![allow(unreachable_pub)]

pub mod net;
pub mod script;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use manypath_tcp::cc::GroupView;
use manypath_tcp::machine::Context;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::{Ecn, IpMeta};
use manypath_wire::segment::Segment;
use manypath_wire::tcp::header::Header;
use manypath_wire::tcp::options::Options;

/// A context without siblings.
pub const PLAIN: Context<'static> = Context {
    group: GroupView::ALONE,
    congestion_signal_ok: true,
};

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn at(n: u64) -> Instant {
    Instant::from_millis(n)
}

/// A segment on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    pub header: Header,
    pub options: Options,
    pub payload: Vec<u8>,
    pub ecn: Ecn,
}

impl Packet {
    /// The view that a machine gets.
    pub fn view(&self) -> Segment<'_> {
        let (src, dst) = (
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        );
        Segment {
            tuple: FourTuple::new(SocketAddr::new(dst, 80), SocketAddr::new(src, 4000)),
            ip: IpMeta {
                src,
                dst,
                protocol: 6,
                ttl: 64,
                ecn: self.ecn,
                total_len: 40 + self.payload.len(),
                header_len: 20,
            },
            header: self.header,
            options: self.options,
            payload: &self.payload,
            payload_sum: None,
        }
    }
}

/// A small generator of pseudo-random numbers; the same seed gives the same numbers for ever.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }

    /// True in `permille` of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}
