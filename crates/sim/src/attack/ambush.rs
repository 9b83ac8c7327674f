//! An attacker on a path of real packets: a middlebox at the server's end that lets everything by, overhears it, adds what
//! the attack sends, and keeps what is for the attacker's own addresses.

use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::Instant;
use manypath_wire::segment::{Segment, Verify};

use super::{Attack, DEAF, Desk, OWN, SERVER};
use crate::middlebox::{self, Middlebox, Way};
use crate::packet::Packet;
use crate::view::{TcpView, addresses, put_u16};

/// Acts that one call may make up for when it comes late.
const AT_ONCE: usize = 256;

/// The box.
pub struct Ambush {
    attack: Box<dyn Attack + Send>,
    /// Where the server really is; attacks know it as [`SERVER`], and as [`DEAF`] where its application shall not read.
    server: SocketAddr,
    /// Attacks count time from the first packet that was seen.
    since: Option<Instant>,
    out: Vec<Vec<u8>>,
    sent: u64,
}

impl Ambush {
    /// An attack on a server of IPv4 at this address and port.
    #[must_use]
    pub fn new(attack: Box<dyn Attack + Send>, server: SocketAddr) -> Self {
        Self {
            attack,
            server,
            since: None,
            out: Vec::new(),
            sent: 0,
        }
    }

    fn with_attack(
        &mut self,
        desk: &mut middlebox::Desk<'_>,
        act: impl FnOnce(&mut dyn Attack, &mut Desk<'_>),
    ) {
        let since = *self.since.get_or_insert(desk.now);
        let mut own = Desk {
            now: Instant::ZERO + desk.now.since(since),
            rng: desk.rng,
            out: &mut self.out,
        };
        act(&mut *self.attack, &mut own);
        for mut packet in std::mem::take(&mut self.out) {
            for known in [SERVER, DEAF] {
                readdress(&mut packet, known, self.server, End::Destination);
            }
            self.sent += 1;
            let packet = desk.pool.copy_of(&packet);
            desk.forward(Way::In, packet);
        }
    }

    /// The packet as the attack sees it.
    fn seen(&self, packet: &Packet) -> Vec<u8> {
        let mut bytes = packet.bytes().to_vec();
        readdress(&mut bytes, self.server, SERVER, End::Source);
        readdress(&mut bytes, self.server, SERVER, End::Destination);
        bytes
    }
}

/// Which address of a packet.
#[derive(Clone, Copy)]
enum End {
    Source,
    Destination,
}

/// Replaces an address and port of a packet, if they are the ones expected, and corrects the checksums.
fn readdress(packet: &mut [u8], from: SocketAddr, to: SocketAddr, end: End) {
    let Some(view) = TcpView::of(packet).filter(|view| !view.ipv6) else {
        return;
    };
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else {
        return;
    };
    let (address, port) = match end {
        End::Source => (12, view.tcp),
        End::Destination => (16, view.tcp + 2),
    };
    let same = packet[address..address + 4] == from.ip().octets()
        && packet[port..port + 2] == from.port().to_be_bytes();
    if same {
        packet[address..address + 4].copy_from_slice(&to.ip().octets());
        put_u16(packet, port, to.port());
        view.fix_checksums(packet);
    }
}

/// Nobody honest has it: the attacker's own, or one that it made up.
fn is_hostile(address: IpAddr) -> bool {
    let made_up = match address {
        IpAddr::V4(v4) => v4.octets()[0] == 198 && v4.octets()[1] & 0xfe == 18,
        IpAddr::V6(_) => false,
    };
    made_up || OWN.contains(&address)
}

impl Middlebox for Ambush {
    fn name(&self) -> &'static str {
        "ambush"
    }

    fn touched(&self) -> u64 {
        self.sent
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut middlebox::Desk<'_>) {
        let to = addresses(packet.bytes()).map(|(_, to)| to);
        let seen = self.seen(&packet);
        let seg = Segment::parse(&seen, Verify::Trusted);
        if to.is_some_and(is_hostile) {
            if let (Ok(seg), true) = (&seg, to.is_some_and(|to| OWN.contains(&to))) {
                self.with_attack(desk, |attack, own| attack.receive(seg, own));
            }
            return desk.drop(packet, "for the attacker");
        }
        desk.forward(way, packet);
        if let Ok(seg) = &seg {
            self.with_attack(desk, |attack, own| attack.overhear(seg, own));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let since = self.since?;
        let next = self.attack.next()?;
        Some(since + next.since(Instant::ZERO))
    }

    fn on_deadline(&mut self, desk: &mut middlebox::Desk<'_>) {
        let now = desk.now;
        for _ in 0..AT_ONCE {
            if self.deadline().is_none_or(|at| at > now) {
                return;
            }
            self.with_attack(desk, |attack, own| attack.act(own));
        }
    }
}

impl std::fmt::Debug for Ambush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ambush")
            .field("server", &self.server)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}
