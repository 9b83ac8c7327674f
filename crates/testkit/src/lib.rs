//! What tests and fuzz targets share to drive stacks by hand: a wire that keeps what a stack sends, two stacks joined back to
//! back, the addresses that they have, and packets written by hand. Networks with rates, delays and middleboxes are the simulator's (`manypath-sim`).

mod packet;
mod pair;
mod wire;

use std::net::IpAddr;

use manypath_stack::{IfaceId, Offload, Path, Stack};
use manypath_tcp::time::Instant;

pub use packet::{header, packet, packet_patched, strip_mptcp};
pub use pair::{Fate, Network, Pair};
pub use wire::Wire;

/// The address of a host on a path.
#[must_use]
pub fn addr(host: u8, path: u8) -> IpAddr {
    IpAddr::from([10, 0, path, host])
}

/// A host's path of this number, with an MTU of 1500 bytes and no offload. Its interface has the same number.
#[must_use]
pub fn path(host: u8, number: u8) -> Path {
    Path {
        iface: IfaceId(u32::from(number)),
        addr: addr(host, number),
        mtu: 1500,
        backup: false,
        offload: Offload::default(),
        ports: None,
        outside: None,
    }
}

/// Byte number `at` of a stream in which a shift by a few bytes is seen at once.
#[must_use]
pub fn pattern(at: usize) -> u8 {
    (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]
}

/// Moves the clock to the stack's next deadline and handles it; false if none is due by then.
pub fn next_timer(stack: &mut Stack, now: &mut Instant, until: Instant) -> bool {
    let Some(at) = stack.poll_deadline().filter(|at| *at <= until) else {
        return false;
    };
    *now = at.max(*now);
    stack.handle_timeout(*now);
    true
}
