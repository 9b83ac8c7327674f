//! The neighbour cache: states after RFC 4861, section 7.3.2, used for ARP as well.

use super::arp::{Arp, Operation};
use super::nd::{Discovery, Message};
use super::{EtherType, Frame, Link, Mac};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How long an answer is believed without question (RFC 4861, section 10: REACHABLE_TIME).
const REACHABLE: Duration = Duration::from_secs(30);
/// Between two questions (RETRANS_TIMER).
const RETRY: Duration = Duration::from_secs(1);
/// Questions before giving up (MAX_UNICAST_SOLICIT and MAX_MULTICAST_SOLICIT).
const TRIES: u8 = 3;
/// After giving up: how long packets for the hop are refused before it is asked again.
const FAILED: Duration = Duration::from_secs(1);
/// Entries kept at most; on an ordinary link one gateway or a handful of hosts are used.
const ENTRIES_MAX: usize = 1024;
/// Packets that wait for an answer, of all hops together, and their bytes. A SYN that is dropped here costs its
/// connection a second, so that hundreds of connections opened at once have to fit.
const PARKED_MAX: usize = 1024;
const PARKED_BYTES_MAX: usize = 512 * 1024;
/// Packets kept that could not be delivered, of which the stack is told. One of a connection is enough, and connections beyond wait
/// for their own time-outs.
const LOST_MAX: usize = 64;
/// Frames waiting to be sent; questions beyond are not asked, they would be repeated anyway.
pub(super) const OUTPUT_MAX: usize = 256;

/// The answer to "may I send to this neighbour?".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// Yes, with this hardware address.
    Known(Mac),
    /// Not yet: a question is on its way; park the packet.
    Wait,
    /// It did not answer a moment ago; drop the packet.
    Unreachable,
}

/// Something to send.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// A whole Ethernet frame of ours.
    Control(Vec<u8>),
    /// A parked packet whose neighbour has been found.
    Parked {
        /// The bytes as they were parked.
        bytes: Vec<u8>,
        /// The neighbour.
        mac: Mac,
    },
}

/// What happened, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Questions sent.
    pub asked: u64,
    /// Questions answered by us.
    pub answered: u64,
    /// Neighbours that did not answer.
    pub failed: u64,
    /// Packets dropped because too many waited, or their neighbour never answered.
    pub dropped: u64,
    /// Somebody else claims an address that is ours alone.
    pub conflicts: u64,
    /// Frames that were not well-formed ARP or neighbour discovery.
    pub malformed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Incomplete { tries: u8, next: Duration },
    Reachable { until: Duration },
    Probe { tries: u8, next: Duration },
    Failed { until: Duration },
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    mac: Option<Mac>,
    asker: IpAddr,
    state: State,
    used: Duration,
}

#[derive(Debug)]
struct Parked {
    hop: IpAddr,
    bytes: Vec<u8>,
}

/// The cache of one interface.
#[derive(Debug)]
pub struct Neighbours {
    pub(super) mac: Mac,
    pub(super) links: Vec<Link>,
    /// Next hops of single destinations, where the host's routes tell them apart.
    vias: BTreeMap<(IpAddr, IpAddr), IpAddr>,
    entries: BTreeMap<IpAddr, Entry>,
    parked: VecDeque<Parked>,
    parked_bytes: usize,
    pub(super) output: VecDeque<Output>,
    /// Packets, as they were parked, whose neighbour did not answer.
    lost: Vec<Vec<u8>>,
    /// How often a neighbour answered that had not, or from another hardware address than before.
    returned: u64,
    pub(super) counters: Counters,
}

impl Neighbours {
    /// An empty cache for the interface with hardware address `mac`.
    #[must_use]
    pub fn new(mac: Mac) -> Self {
        Neighbours {
            mac,
            links: Vec::new(),
            vias: BTreeMap::new(),
            entries: BTreeMap::new(),
            parked: VecDeque::new(),
            parked_bytes: 0,
            output: VecDeque::new(),
            lost: Vec::new(),
            returned: 0,
            counters: Counters::default(),
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Our addresses here.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Adds or replaces one of our addresses.
    pub fn set_link(&mut self, link: Link) {
        self.links.retain(|l| l.addr != link.addr);
        self.links.push(link);
    }

    /// Forgets one of our addresses.
    pub fn remove_link(&mut self, addr: IpAddr) {
        self.links.retain(|l| l.addr != addr);
    }

    /// The neighbour for a packet from our `src` to `dst`. `None`: `src` is not ours here, or `dst` is no host.
    #[must_use]
    pub fn next_hop(&self, src: IpAddr, dst: IpAddr) -> Option<IpAddr> {
        let link = self.links.iter().find(|l| l.addr == src)?;
        if link.is_broadcast(dst) {
            return None;
        }
        let via = self.vias.get(&(src, dst)).copied();
        Some(via.unwrap_or_else(|| link.next_hop(dst)))
    }

    /// Packets from our `src` to `dst` go to this neighbour from now on. It is remembered only if that is another one than usual.
    pub fn set_via(&mut self, src: IpAddr, dst: IpAddr, hop: IpAddr) {
        self.vias.remove(&(src, dst));
        let usual = self.next_hop(src, dst);
        if usual.is_some_and(|usual| usual != hop) && self.vias.len() < ENTRIES_MAX {
            self.vias.insert((src, dst), hop);
        }
    }

    /// Forgets what was said of single destinations.
    pub fn forget_vias(&mut self) {
        self.vias.clear();
    }

    /// Looks up `hop`; asks for it (from our address `src`) if it is unknown or its entry has aged.
    pub fn resolve(&mut self, now: Duration, src: IpAddr, hop: IpAddr) -> Lookup {
        if let Some(entry) = self.entries.get_mut(&hop) {
            entry.used = now;
            match (entry.state, entry.mac) {
                (State::Reachable { until }, Some(mac)) if now < until => {
                    return Lookup::Known(mac);
                }
                (State::Reachable { .. }, Some(mac)) => {
                    // Aged: go on using it while we ask the neighbour itself.
                    entry.asker = src;
                    entry.state = State::Probe {
                        tries: 1,
                        next: now + RETRY,
                    };
                    self.ask(src, hop, Some(mac));
                    return Lookup::Known(mac);
                }
                (State::Probe { .. }, Some(mac)) => return Lookup::Known(mac),
                (State::Failed { until }, _) if now < until => return Lookup::Unreachable,
                (State::Incomplete { .. }, _) => return Lookup::Wait,
                (State::Failed { .. } | State::Reachable { .. } | State::Probe { .. }, _) => {}
            }
        }
        self.make_room();
        self.entries.insert(
            hop,
            Entry {
                mac: None,
                asker: src,
                state: State::Incomplete {
                    tries: 1,
                    next: now + RETRY,
                },
                used: now,
            },
        );
        self.ask(src, hop, None);
        Lookup::Wait
    }

    fn make_room(&mut self) {
        if self.entries.len() >= ENTRIES_MAX {
            if let Some(oldest) = self
                .entries
                .iter()
                .min_by_key(|(_, e)| e.used)
                .map(|(hop, _)| *hop)
            {
                self.entries.remove(&oldest);
                self.drop_parked(oldest);
            }
        }
    }

    /// Keeps `bytes` until `hop` has answered. The oldest waiting packets are dropped when there are too many.
    pub fn park(&mut self, hop: IpAddr, bytes: Vec<u8>) {
        self.parked_bytes += bytes.len();
        self.parked.push_back(Parked { hop, bytes });
        while self.parked.len() > PARKED_MAX || self.parked_bytes > PARKED_BYTES_MAX {
            match self.parked.pop_front() {
                Some(p) => self.parked_bytes -= p.bytes.len(),
                None => break,
            }
            self.counters.dropped += 1;
        }
    }

    /// The hardware address of `addr`, if it is known.
    pub(super) fn known(&self, addr: IpAddr) -> Option<Mac> {
        self.entries.get(&addr).and_then(|e| e.mac)
    }

    /// Enters a neighbour learnt elsewhere (the kernel's table).
    pub fn learn(&mut self, now: Duration, hop: IpAddr, mac: Mac) {
        let asker = match hop {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        if mac.is_unicast() {
            self.make_room();
            self.fill(now, hop, mac, asker);
        }
    }

    /// What was sent from our `src` to `dst` was not answered. The neighbour on the way is asked whether it is still there, unless
    /// it has just been heard: its entry goes on being used meanwhile (RFC 4861, section 7.3.3, state PROBE).
    pub fn doubt(&mut self, now: Duration, src: IpAddr, dst: IpAddr) {
        if let Some(hop) = self.next_hop(src, dst) {
            self.doubt_hop(now, Some(src), hop);
        }
    }

    /// The link was away: nothing that is known of it is certain.
    pub fn doubt_all(&mut self, now: Duration) {
        let hops: Vec<IpAddr> = self.entries.keys().copied().collect();
        for hop in hops {
            self.doubt_hop(now, None, hop);
        }
    }

    fn doubt_hop(&mut self, now: Duration, src: Option<IpAddr>, hop: IpAddr) {
        let Some(entry) = self.entries.get_mut(&hop) else {
            return;
        };
        let (State::Reachable { until }, known) = (entry.state, entry.mac) else {
            return;
        };
        if now + REACHABLE < until + RETRY {
            return;
        }
        entry.asker = src.unwrap_or(entry.asker);
        let (asker, next) = (entry.asker, now + RETRY);
        if asker.is_unspecified() {
            // Nobody here has sent to it: the next one who does asks.
            entry.state = State::Reachable { until: now };
            return;
        }
        entry.state = State::Probe { tries: 1, next };
        self.ask(asker, hop, known);
    }

    /// Takes an ARP frame or an IPv6 neighbour discovery frame from the wire. True if a neighbour answers that did not, or from
    /// another hardware address than before.
    pub fn on_frame(&mut self, now: Duration, bytes: &[u8]) -> bool {
        let before = self.returned;
        let handled = Frame::parse(bytes).and_then(|frame| {
            if frame.src == self.mac {
                return Some(());
            }
            if frame.kind == EtherType::ARP {
                Arp::parse(frame.payload).map(|arp| self.on_arp(now, &arp))
            } else if frame.kind == EtherType::IPV6 {
                Discovery::parse(frame.payload).map(|d| self.on_discovery(now, &d))
            } else {
                None
            }
        });
        if handled.is_none() {
            self.counters.malformed += 1;
        }
        self.returned != before
    }

    fn owned(&self, addr: IpAddr) -> bool {
        self.links.iter().any(|l| l.owned && l.addr == addr)
    }

    fn ours(&self, addr: IpAddr) -> bool {
        self.links.iter().any(|l| l.addr == addr)
    }

    fn on_arp(&mut self, now: Duration, arp: &Arp) {
        let (sender, target) = (IpAddr::V4(arp.sender), IpAddr::V4(arp.target));
        if self.owned(sender) {
            // Somebody else uses our address: say that it is ours (RFC 5227, section 2.4 b).
            self.counters.conflicts += 1;
            if let IpAddr::V4(addr) = sender {
                self.announce_v4(addr);
            }
            return;
        }
        if !arp.sender.is_unspecified() && (self.entries.contains_key(&sender) || self.ours(target))
        {
            self.make_room();
            self.fill(now, sender, arp.sender_mac, target);
        }
        if arp.operation == Operation::Request && self.owned(target) {
            let reply = Arp {
                operation: Operation::Reply,
                sender_mac: self.mac,
                sender: arp.target,
                target_mac: arp.sender_mac,
                target: arp.sender,
            };
            self.counters.answered += 1;
            self.emit(reply.to_frame(arp.sender_mac));
        }
    }

    fn on_discovery(&mut self, now: Duration, d: &Discovery) {
        let target = IpAddr::V6(d.target);
        match d.message {
            Message::Solicit { source_mac } => {
                if let Some(mac) = source_mac.filter(|_| self.ours(target)) {
                    self.make_room();
                    self.fill(now, IpAddr::V6(d.src), mac, target);
                }
                if self.owned(target) {
                    self.counters.answered += 1;
                    self.answer_v6(d, source_mac);
                }
            }
            Message::Advert { target_mac, .. } if self.owned(target) => {
                // RFC 4862, section 5.4.4: a duplicate of an address in use.
                self.counters.conflicts += u64::from(target_mac != Some(self.mac));
            }
            Message::Advert {
                target_mac,
                solicited,
                overrides,
            } => self.on_advert(now, target, target_mac, solicited, overrides),
        }
    }

    /// RFC 4861, section 7.2.5: an advertisement never creates an entry, and only one that overrides replaces an address.
    fn on_advert(
        &mut self,
        now: Duration,
        target: IpAddr,
        mac: Option<Mac>,
        solicited: bool,
        overrides: bool,
    ) {
        let Some(entry) = self.entries.get(&target) else {
            return;
        };
        let (known, asker) = (entry.mac, entry.asker);
        match (known, mac) {
            (None, Some(mac)) => self.fill(now, target, mac, asker),
            (Some(old), Some(new)) if overrides || old == new => self.fill(now, target, new, asker),
            (Some(old), None) if solicited => self.fill(now, target, old, asker),
            _ => {}
        }
    }

    fn fill(&mut self, now: Duration, hop: IpAddr, mac: Mac, asker: IpAddr) {
        let until = now + REACHABLE;
        let returns = self.entries.get(&hop).is_some_and(|e| match e.state {
            State::Incomplete { .. } | State::Failed { .. } => true,
            State::Reachable { .. } | State::Probe { .. } => e.mac != Some(mac),
        });
        self.returned += u64::from(returns);
        self.entries
            .entry(hop)
            .and_modify(|e| {
                e.mac = Some(mac);
                e.state = State::Reachable { until };
            })
            .or_insert(Entry {
                mac: Some(mac),
                asker,
                state: State::Reachable { until },
                used: now,
            });
        let waiting = std::mem::take(&mut self.parked);
        for p in waiting {
            if p.hop == hop {
                self.parked_bytes -= p.bytes.len();
                self.output.push_back(Output::Parked {
                    bytes: p.bytes,
                    mac,
                });
            } else {
                self.parked.push_back(p);
            }
        }
    }

    /// The packets that waited for `hop` wait no more.
    fn drop_parked(&mut self, hop: IpAddr) -> Vec<Vec<u8>> {
        let all = std::mem::take(&mut self.parked);
        let (dropped, kept): (VecDeque<Parked>, VecDeque<Parked>) =
            all.into_iter().partition(|parked| parked.hop == hop);
        self.parked = kept;
        self.parked_bytes = self.parked.iter().map(|p| p.bytes.len()).sum();
        self.counters.dropped += dropped.len() as u64;
        dropped.into_iter().map(|p| p.bytes).collect()
    }

    /// A packet whose neighbour does not answer is dropped: [`Neighbours::take_lost`] tells.
    pub fn lose(&mut self, bytes: &[u8]) {
        if self.lost.len() < LOST_MAX {
            self.lost.push(bytes.to_vec());
        }
    }

    /// The packets that were dropped since the last call because their neighbour does not answer; some of them if they were many.
    pub fn take_lost(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.lost)
    }

    /// Routers that were asked for lately and do not answer.
    #[must_use]
    pub fn silent_gateways(&self) -> Vec<IpAddr> {
        let failed = |hop: &IpAddr| {
            let state = self.entries.get(hop).map(|entry| entry.state);
            matches!(state, Some(State::Failed { .. }))
        };
        let mut silent: Vec<IpAddr> = self.links.iter().filter_map(|l| l.gateway).collect();
        silent.retain(failed);
        silent.dedup();
        silent
    }

    /// When [`Neighbours::on_timeout`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        if !self.lost.is_empty() {
            return Some(Duration::ZERO);
        }
        self.entries
            .values()
            .filter_map(|e| match e.state {
                State::Incomplete { next, .. } | State::Probe { next, .. } => Some(next),
                State::Reachable { .. } | State::Failed { .. } => None,
            })
            .min()
    }

    /// Repeats questions and gives up on neighbours that do not answer.
    pub fn on_timeout(&mut self, now: Duration) {
        let due: Vec<(IpAddr, Entry)> = self
            .entries
            .iter()
            .filter(|(_, e)| match e.state {
                State::Incomplete { next, .. } | State::Probe { next, .. } => next <= now,
                State::Reachable { .. } | State::Failed { .. } => false,
            })
            .map(|(hop, e)| (*hop, *e))
            .collect();
        for (hop, entry) in due {
            let next = now + RETRY;
            let state = match entry.state {
                State::Incomplete { tries, .. } if tries < TRIES => {
                    self.ask(entry.asker, hop, None);
                    State::Incomplete {
                        tries: tries + 1,
                        next,
                    }
                }
                State::Probe { tries, .. } if tries < TRIES => {
                    self.ask(entry.asker, hop, entry.mac);
                    State::Probe {
                        tries: tries + 1,
                        next,
                    }
                }
                // The old address no longer answers: ask everybody, as the neighbour may have a new one.
                State::Probe { .. } => {
                    self.ask(entry.asker, hop, None);
                    State::Incomplete { tries: 1, next }
                }
                State::Incomplete { .. } | State::Failed { .. } | State::Reachable { .. } => {
                    self.counters.failed += 1;
                    for packet in self.drop_parked(hop) {
                        self.lose(&packet);
                    }
                    State::Failed {
                        until: now + FAILED,
                    }
                }
            };
            if let Some(e) = self.entries.get_mut(&hop) {
                if matches!(state, State::Incomplete { .. } | State::Failed { .. }) {
                    e.mac = None;
                }
                e.state = state;
            }
        }
    }

    /// The next frame to send.
    pub fn pop_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::super::nd;
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn ip(s: &str) -> IpAddr {
        s.parse().expect("a literal address")
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn cache(addr: &str, owned: bool) -> Neighbours {
        let mut n = Neighbours::new(OURS);
        n.set_link(Link {
            addr: ip(addr),
            prefix: 24,
            gateway: Some(ip("10.0.0.254")).filter(|_| addr.contains('.')),
            owned,
        });
        n
    }

    fn controls(n: &mut Neighbours) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| n.pop_output())
            .filter_map(|o| match o {
                Output::Control(f) => Some(f),
                Output::Parked { .. } => None,
            })
            .collect()
    }

    fn reply(from: &str, to: &str) -> Vec<u8> {
        match (ip(from), ip(to)) {
            (IpAddr::V4(sender), IpAddr::V4(target)) => Arp {
                operation: Operation::Reply,
                sender_mac: THEIRS,
                sender,
                target_mac: OURS,
                target,
            }
            .to_frame(OURS),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Discovery {
                src,
                dst,
                target: src,
                message: Message::Advert {
                    target_mac: Some(THEIRS),
                    solicited: true,
                    overrides: true,
                },
            }
            .to_frame(THEIRS, OURS),
            _ => unreachable!("both of one family"),
        }
    }

    #[test]
    fn packets_for_a_neighbour_that_does_not_answer_are_told() {
        let mut n = cache("10.0.0.1", false);
        let gateway = ip("10.0.0.254");
        assert_eq!(n.resolve(secs(0), ip("10.0.0.1"), gateway), Lookup::Wait);
        n.park(gateway, vec![1, 2, 3]);
        for at in 1..=3 {
            assert!(n.take_lost().is_empty() && n.silent_gateways().is_empty());
            n.on_timeout(secs(at));
        }
        assert_eq!(n.silent_gateways(), [gateway]);
        assert_eq!(n.deadline(), Some(Duration::ZERO), "at once");
        assert_eq!(n.take_lost(), [[1, 2, 3]]);
        assert_eq!(n.deadline(), None);
        for _ in 0..2 * LOST_MAX {
            n.lose(&[0]);
        }
        assert_eq!(n.take_lost().len(), LOST_MAX);
    }

    #[test]
    fn next_hop_is_the_neighbour_or_the_gateway() {
        let n = cache("10.0.0.1", false);
        assert_eq!(
            n.next_hop(ip("10.0.0.1"), ip("10.0.0.77")),
            Some(ip("10.0.0.77"))
        );
        assert_eq!(
            n.next_hop(ip("10.0.0.1"), ip("10.0.1.77")),
            Some(ip("10.0.0.254"))
        );
        assert_eq!(n.next_hop(ip("10.0.0.9"), ip("10.0.0.77")), None);
        assert_eq!(n.next_hop(ip("10.0.0.1"), ip("10.0.0.255")), None);
        for (prefix, dst, is) in [
            (24, "10.0.0.255", true),
            (24, "10.0.1.255", false),
            (30, "10.0.0.3", true),
            (31, "10.0.0.1", false),
            (32, "10.0.0.1", false),
            (8, "10.255.255.255", true),
            (24, "ff02::1", false),
        ] {
            let link = Link {
                addr: ip("10.0.0.1"),
                prefix,
                gateway: None,
                owned: false,
            };
            assert_eq!(link.is_broadcast(ip(dst)), is, "{dst}/{prefix}");
        }
        let mut n = n;
        n.set_via(ip("10.0.0.1"), ip("10.0.1.77"), ip("10.0.0.9"));
        n.set_via(ip("10.0.0.1"), ip("10.0.1.78"), ip("10.0.0.254"));
        for (dst, hop) in [("10.0.1.77", "10.0.0.9"), ("10.0.1.78", "10.0.0.254")] {
            assert_eq!(n.next_hop(ip("10.0.0.1"), ip(dst)), Some(ip(hop)));
        }
        assert_eq!(n.vias.len(), 1, "the usual one is no exception");
        n.forget_vias();
        assert_eq!(
            n.next_hop(ip("10.0.0.1"), ip("10.0.1.77")),
            Some(ip("10.0.0.254"))
        );
        let odd = Link {
            addr: ip("10.0.0.1"),
            prefix: 25,
            gateway: Some(ip("10.0.0.99")),
            owned: false,
        };
        assert_eq!(odd.next_hop(ip("10.0.0.127")), ip("10.0.0.127"));
        assert_eq!(odd.next_hop(ip("10.0.0.128")), ip("10.0.0.99"));
        let alone = Link {
            gateway: None,
            ..odd
        };
        assert_eq!(alone.next_hop(ip("192.0.2.1")), ip("192.0.2.1"));
    }

    #[test]
    fn parked_packet_leaves_when_the_answer_comes() {
        for (us, them) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let mut n = cache(us, false);
            assert_eq!(n.resolve(secs(0), ip(us), ip(them)), Lookup::Wait);
            n.park(ip(them), vec![1, 2, 3]);
            assert_eq!(controls(&mut n).len(), 1);
            assert_eq!(n.resolve(secs(0), ip(us), ip(them)), Lookup::Wait);
            assert!(controls(&mut n).is_empty(), "one question is enough");
            n.on_frame(secs(0), &reply(them, us));
            assert_eq!(
                n.pop_output(),
                Some(Output::Parked {
                    bytes: vec![1, 2, 3],
                    mac: THEIRS
                })
            );
            assert_eq!(n.resolve(secs(1), ip(us), ip(them)), Lookup::Known(THEIRS));
            assert_eq!(n.deadline(), None);
        }
    }

    #[test]
    fn gives_up_after_three_questions_and_asks_again_later() {
        let mut n = cache("10.0.0.1", false);
        let (us, them) = (ip("10.0.0.1"), ip("10.0.0.2"));
        assert_eq!(n.resolve(secs(0), us, them), Lookup::Wait);
        n.park(them, vec![0; 10]);
        for s in 1..=3 {
            assert_eq!(n.deadline(), Some(secs(s)));
            n.on_timeout(secs(s));
        }
        assert_eq!(controls(&mut n).len(), 3);
        assert_eq!(n.counters().failed, 1);
        assert_eq!(n.counters().dropped, 1);
        assert_eq!(n.take_lost(), [[0; 10]]);
        assert_eq!(n.deadline(), None);
        assert_eq!(n.resolve(secs(3), us, them), Lookup::Unreachable);
        assert_eq!(n.resolve(secs(4), us, them), Lookup::Wait);
    }

    #[test]
    fn aged_entry_is_used_while_it_is_probed() {
        let mut n = cache("10.0.0.1", false);
        let (us, them) = (ip("10.0.0.1"), ip("10.0.0.2"));
        n.learn(secs(0), them, THEIRS);
        assert_eq!(n.resolve(secs(29), us, them), Lookup::Known(THEIRS));
        assert!(controls(&mut n).is_empty());
        assert_eq!(n.resolve(secs(31), us, them), Lookup::Known(THEIRS));
        let asked = controls(&mut n);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0][..6], THEIRS.0, "asked by unicast");
        n.learn(secs(31), them, THEIRS);
        assert_eq!(n.deadline(), None);
        assert_eq!(n.resolve(secs(60), us, them), Lookup::Known(THEIRS));
    }

    #[test]
    fn a_neighbour_that_is_doubted_is_asked_at_once_and_found_at_another_address() {
        for (us, them, far) in [
            ("10.0.0.1", "10.0.0.254", "192.0.2.1"),
            ("fd00::1", "fd00::2", "fd00::2"),
        ] {
            let mut n = cache(us, false);
            let (us, them, far) = (ip(us), ip(them), ip(far));
            let other = Mac([2, 0, 0, 0, 0, 9]);
            n.learn(secs(0), them, other);
            n.doubt(secs(0), us, far);
            assert!(controls(&mut n).is_empty(), "it was heard a moment ago");
            n.doubt(secs(5), us, far);
            assert_eq!(controls(&mut n).len(), 1);
            n.doubt(secs(5), us, far);
            assert!(controls(&mut n).is_empty(), "one question is enough");
            assert_eq!(n.resolve(secs(5), us, them), Lookup::Known(other));
            for s in 6..=8 {
                n.on_timeout(secs(s));
            }
            let asked = controls(&mut n);
            assert_eq!(asked.len(), 3);
            assert_ne!(asked[2][..6], other.0, "everybody is asked in the end");
            assert_eq!(n.resolve(secs(8), us, them), Lookup::Wait);
            let answer = reply(&them.to_string(), &us.to_string());
            assert!(n.on_frame(secs(8), &answer), "it is back");
            assert_eq!(n.resolve(secs(8), us, them), Lookup::Known(THEIRS));
            assert!(!n.on_frame(secs(9), &answer), "that is no news");
        }
    }

    #[test]
    fn a_link_that_was_away_has_its_neighbours_asked_again() {
        let mut n = cache("10.0.0.1", false);
        let (us, them) = (ip("10.0.0.1"), ip("10.0.0.2"));
        n.learn(secs(0), ip("10.0.0.3"), THEIRS);
        assert_eq!(n.resolve(secs(0), us, them), Lookup::Wait);
        n.on_frame(secs(0), &reply("10.0.0.2", "10.0.0.1"));
        controls(&mut n);
        n.doubt_all(secs(4));
        assert_eq!(controls(&mut n).len(), 1, "who was sent to");
        n.resolve(secs(4), us, ip("10.0.0.3"));
        assert_eq!(controls(&mut n).len(), 1, "and who is sent to now");
    }

    #[test]
    fn only_owned_addresses_are_answered() {
        let question = |target: &str| {
            Arp {
                operation: Operation::Request,
                sender_mac: THEIRS,
                sender: Ipv4Addr::new(10, 0, 0, 2),
                target_mac: Mac([0; 6]),
                target: target.parse().expect("a literal"),
            }
            .to_frame(Mac::BROADCAST)
        };
        let mut owner = cache("10.0.0.1", true);
        owner.on_frame(secs(0), &question("10.0.0.1"));
        let answers = controls(&mut owner);
        assert_eq!(answers.len(), 1);
        let arp = Arp::parse(&answers[0][14..]).expect("our own answer");
        assert_eq!((arp.sender_mac, arp.operation), (OURS, Operation::Reply));
        owner.on_frame(secs(0), &question("10.0.0.3"));
        assert!(controls(&mut owner).is_empty());
        let mut sharer = cache("10.0.0.1", false);
        sharer.on_frame(secs(0), &question("10.0.0.1"));
        assert!(controls(&mut sharer).is_empty());
        // but both have learnt who asked
        assert_eq!(
            sharer.resolve(secs(0), ip("10.0.0.1"), ip("10.0.0.2")),
            Lookup::Known(THEIRS)
        );
    }

    #[test]
    fn duplicate_check_is_answered_to_all() {
        let mut n = cache("fd00::1", true);
        let target: Ipv6Addr = "fd00::1".parse().expect("a literal");
        let probe = Discovery {
            src: Ipv6Addr::UNSPECIFIED,
            dst: nd::solicited_node(target),
            target,
            message: Message::Solicit { source_mac: None },
        };
        n.on_frame(
            secs(0),
            &probe.to_frame(THEIRS, nd::multicast_mac(probe.dst)),
        );
        let answers = controls(&mut n);
        let answer = Discovery::parse(&answers[0][14..]).expect("our own answer");
        assert_eq!(
            answer.dst,
            "ff02::1".parse::<Ipv6Addr>().expect("a literal")
        );
        assert!(matches!(
            answer.message,
            Message::Advert {
                solicited: false,
                ..
            }
        ));
    }

    #[test]
    fn strangers_cannot_fill_the_cache_and_queues_are_bounded() {
        let mut n = cache("10.0.0.1", false);
        n.on_frame(secs(0), &reply("10.0.0.9", "10.0.0.3"));
        assert!(n.entries.is_empty());
        for i in 0..2000u32 {
            let hop = IpAddr::V4(Ipv4Addr::from(0x0a00_0100 + i));
            n.resolve(secs(0), ip("10.0.0.1"), hop);
            n.park(hop, vec![0; 100]);
        }
        assert!(n.entries.len() <= ENTRIES_MAX);
        assert!(n.parked.len() <= PARKED_MAX);
        assert!(n.output.len() <= OUTPUT_MAX);
        n.park(ip("10.0.0.2"), vec![0; PARKED_BYTES_MAX + 1]);
        assert_eq!(n.parked_bytes, 0);
    }

    #[test]
    fn many_connections_opened_at_once_wait_together() {
        let mut n = cache("10.0.0.1", false);
        let them = ip("10.0.0.2");
        assert_eq!(n.resolve(secs(0), ip("10.0.0.1"), them), Lookup::Wait);
        for _ in 0..1000 {
            n.park(them, vec![0; 74]);
        }
        n.on_frame(secs(0), &reply("10.0.0.2", "10.0.0.1"));
        let left = std::iter::from_fn(|| n.output.pop_front())
            .filter(|out| matches!(out, Output::Parked { .. }))
            .count();
        assert_eq!((left, n.counters().dropped), (1000, 0));
    }

    #[test]
    fn a_conflict_is_counted_and_contested() {
        let mut n = cache("10.0.0.1", true);
        n.on_frame(secs(0), &reply("10.0.0.1", "10.0.0.1"));
        assert_eq!(n.counters().conflicts, 1);
        assert_eq!(controls(&mut n).len(), 1);
    }
}
