//! Attackers, and how a stack fares under each: what it holds, what it does for every hostile packet, and what honest
//! clients beside it still get.
//!
//! An [`Attack`] makes packets and never sees the victim from inside. The [`mod@bench`] puts it on a link of its own beside
//! an honest client and measures; [`cases`] names every attack together with the bounds that hold for it.

pub mod acks;
pub mod ambush;
pub mod bench;
pub mod blind;
pub mod cases;
mod crowd;
pub mod flows;
mod host;
pub mod joins;
pub mod memory;
pub mod peer;
pub mod syns;
pub mod windows;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::segment::Segment;

use crate::rng::Rng;

/// The server under attack.
pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);
/// An application that accepts and never reads.
pub const DEAF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 81);
/// The honest clients' addresses: two of the one with the long transfer, then the other's.
pub const HONEST: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 1, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(10, 2, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(10, 3, 0, 2)),
];
/// The attacker's own addresses: answers to them arrive.
pub const OWN: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 3)),
];

/// What an attacker has to work with.
#[derive(Debug)]
pub struct Desk<'a> {
    /// The current time.
    pub now: Instant,
    /// Its randomness.
    pub rng: &'a mut Rng,
    /// Packets that it sends.
    pub out: &'a mut Vec<Vec<u8>>,
}

impl Desk<'_> {
    /// Sends a packet.
    pub fn send(&mut self, packet: Vec<u8>) {
        self.out.push(packet);
    }

    /// Some address that is nobody's here, with some port (RFC 2544's range for tests).
    pub fn made_up(&mut self) -> SocketAddr {
        let bits = self.rng.bits();
        let addr = Ipv4Addr::new(
            198,
            18 | (bits >> 40) as u8 & 1,
            (bits >> 32) as u8,
            (bits >> 24) as u8,
        );
        SocketAddr::new(addr.into(), 1024 + (bits as u16 % 60_000))
    }
}

/// An attacker.
pub trait Attack {
    /// When it wants to act next.
    fn next(&self) -> Option<Instant>;

    /// Acts: it is `next`.
    fn act(&mut self, desk: &mut Desk<'_>);

    /// A packet for one of its own addresses.
    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        let _ = (seg, desk);
    }

    /// A packet between the server and others that it sees, if it sits on their path.
    fn overhear(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        let _ = (seg, desk);
    }
}

/// Nobody: for comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peace;

impl Attack for Peace {
    fn next(&self) -> Option<Instant> {
        None
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        let _ = desk;
    }
}

/// A clock that ticks some times a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    next: Instant,
    gap: Duration,
}

impl Pace {
    /// Attacks begin when honest traffic runs.
    pub(crate) fn new(per_second: u64) -> Self {
        Self {
            next: Instant::from_millis(500),
            gap: Duration::from_nanos(1_000_000_000 / per_second.max(1)),
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        Some(self.next)
    }

    pub(crate) fn tick(&mut self) {
        self.next += self.gap;
    }
}
