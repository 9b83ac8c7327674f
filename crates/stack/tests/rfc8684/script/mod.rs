//! Packet scripts: one stack under test, and at the other end of the wire a peer that is driven by hand, segment by
//! segment, in virtual time.

pub(crate) mod packet;
pub(crate) mod session;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use manypath_stack::stats::Counters;
use manypath_stack::{
    ConnOptions, Event, EventKind, IfaceId, Path, PathEvent, RxMeta, Stack, StackConfig,
};
use manypath_tcp::time::{Duration, Instant};
use manypath_testkit::{Wire, addr, next_timer};
use manypath_wire::describe;
use manypath_wire::ids::FourTuple;
use manypath_wire::segment::{Segment, Verify};
use manypath_wire::seq::SeqNum;

use packet::{Pkt, Seg};

/// How long a packet of the peer takes to the stack.
const ONE_WAY: Duration = Duration::from_millis(1);

/// The stack's address on a path.
pub(crate) fn ours(path: u8) -> IpAddr {
    addr(1, path)
}

/// The peer's address on a path.
pub(crate) fn theirs(path: u8) -> IpAddr {
    addr(2, path)
}

/// The peer's end of one subflow.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// As the stack sees it.
    pub(crate) tuple: FourTuple,
    pub(crate) iface: IfaceId,
    /// The peer's initial number.
    pub(crate) isn: SeqNum,
    /// The stack's initial number, once it was seen.
    pub(crate) irs: SeqNum,
    /// The peer's next number.
    pub(crate) nxt: SeqNum,
    /// The stack's next number.
    pub(crate) rcv: SeqNum,
    /// What the peer tells as its window, unscaled.
    pub(crate) window: u16,
}

/// The stack, the wire and the clock.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) stack: Stack,
    wire: Wire,
    /// What the stack sent and the script has not looked at.
    pub(crate) sent: VecDeque<Seg>,
    pub(crate) flows: Vec<Flow>,
    pub(crate) events: Vec<Event>,
    /// The stack's SYNs that have become flows.
    answered: Vec<(FourTuple, SeqNum)>,
    /// The interface that the last packet left by.
    pub(crate) left_by: Option<IfaceId>,
    log: Vec<String>,
}

/// A path of the stack.
pub(crate) fn path(number: u8, backup: bool) -> Path {
    Path {
        backup,
        ..manypath_testkit::path(1, number)
    }
}

impl World {
    /// A stack with that many paths.
    pub(crate) fn new(paths: u8) -> Self {
        Self::with(StackConfig::default(), paths)
    }

    /// The same, configured.
    pub(crate) fn with(config: StackConfig, paths: u8) -> Self {
        let now = Instant::from_secs(10);
        let mut world = Self {
            now,
            stack: Stack::new(config, [7; 32], now),
            wire: Wire::default(),
            sent: VecDeque::new(),
            flows: Vec::new(),
            events: Vec::new(),
            answered: Vec::new(),
            left_by: None,
            log: Vec::new(),
        };
        for number in 0..paths {
            world.path_up(path(number, false));
        }
        world
    }

    pub(crate) fn path_up(&mut self, path: Path) {
        let now = self.now;
        self.stack.handle_path_event(now, PathEvent::Up(path));
        self.flush();
    }

    pub(crate) fn path_down(&mut self, number: u8) {
        let (iface, addr) = (IfaceId(u32::from(number)), ours(number));
        self.stack
            .handle_path_event(self.now, PathEvent::Down { iface, addr });
        self.flush();
    }

    pub(crate) fn path_stalled(&mut self, number: u8) {
        let (iface, addr) = (IfaceId(u32::from(number)), ours(number));
        self.stack
            .handle_path_event(self.now, PathEvent::Stalled { iface, addr });
        self.flush();
    }

    pub(crate) fn count(&self) -> &Counters {
        self.stack.counters()
    }

    /// A flow of the peer that opens a subflow to the stack.
    pub(crate) fn dial(&mut self, number: u8, from_port: u16, to_port: u16) -> usize {
        let tuple = FourTuple::new(
            SocketAddr::new(ours(number), to_port),
            SocketAddr::new(theirs(number), from_port),
        );
        let isn = SeqNum::new(0xffff_ff00u32.wrapping_add(u32::from(from_port)));
        self.add_flow(tuple, number, isn)
    }

    fn add_flow(&mut self, tuple: FourTuple, number: u8, isn: SeqNum) -> usize {
        let zero = SeqNum::new(0);
        self.flows.push(Flow {
            tuple,
            iface: IfaceId(u32::from(number)),
            isn,
            irs: zero,
            nxt: isn,
            rcv: zero,
            window: 65_535,
        });
        self.flows.len() - 1
    }

    /// Waits for a SYN of the stack and makes a flow of it.
    pub(crate) fn answer(&mut self) -> (usize, Seg) {
        self.flush();
        let known = |seg: &Seg| self.answered.contains(&(seg.tuple, seg.seq));
        let at = self.sent.iter().position(|seg| seg.is_syn() && !known(seg));
        let Some(syn) = at.and_then(|at| self.sent.remove(at)) else {
            self.fail("no new SYN from the stack");
        };
        let IpAddr::V4(addr) = syn.tuple.local.ip() else {
            self.fail("the script speaks IPv4");
        };
        let isn = SeqNum::new(5000 + 1000 * self.answered.len() as u32);
        self.answered.push((syn.tuple, syn.seq));
        // A new subflow between the same ports replaces the old one.
        self.flows
            .iter_mut()
            .filter(|flow| flow.tuple == syn.tuple)
            .for_each(|old| old.tuple = old.tuple.reversed());
        let flow = self.add_flow(syn.tuple, addr.octets()[2], isn);
        self.flows[flow].irs = syn.seq;
        self.flows[flow].rcv = syn.seq + 1;
        (flow, syn)
    }

    /// Lets the stack send everything it wants to send now.
    pub(crate) fn flush(&mut self) {
        if !self.wire.flush(&mut self.stack, self.now, 1_000) {
            self.fail("the stack sends without end");
        }
        while let Some((iface, bytes)) = self.wire.queue.pop_front() {
            self.left_by = Some(iface);
            let parsed =
                Segment::parse(&bytes, Verify::Full).expect("the stack's own packets parse");
            self.note(&format!("    {}", describe::segment(&parsed)));
            let seg = Seg::of(&parsed, &bytes);
            if let Some(flow) = self.flows.iter_mut().find(|f| f.tuple == seg.tuple) {
                if seg.flags.syn() {
                    flow.irs = seg.seq;
                    flow.rcv = seg.seq + 1;
                } else if seg.seq == flow.rcv {
                    flow.rcv += seg.len();
                }
            }
            self.sent.push_back(seg);
        }
        while let Some(event) = self.stack.poll_event() {
            self.note(&format!("      {:?}", event.kind));
            self.events.push(event);
        }
    }

    /// Lets time pass, with every timer at its own moment.
    pub(crate) fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        let mut rounds = 0;
        self.flush();
        while next_timer(&mut self.stack, &mut self.now, until) {
            assert!(
                rounds < 10_000,
                "deadlines without progress:\n{}",
                self.log()
            );
            rounds += 1;
            self.flush();
        }
        self.now = until;
    }

    pub(crate) fn advance_ms(&mut self, ms: u64) {
        self.advance(Duration::from_millis(ms));
    }

    /// One packet of the peer.
    pub(crate) fn inject(&mut self, flow: usize, pkt: &Pkt) {
        self.advance(ONE_WAY);
        let bytes = pkt.write(&self.flows[flow]);
        if pkt.seq.is_none() && !pkt.flags.rst() {
            let end = self.flows[flow].nxt + pkt.len();
            self.flows[flow].nxt = end;
        }
        self.inject_bytes(self.flows[flow].iface, &bytes);
    }

    /// A packet made by hand.
    pub(crate) fn inject_bytes(&mut self, iface: IfaceId, bytes: &[u8]) {
        self.note(&format!(" >> {}", describe::packet(bytes)));
        self.stack
            .handle_packet(self.now, iface, bytes, RxMeta::default());
        self.flush();
    }

    /// The next segment of the stack on a flow, which must be as described.
    pub(crate) fn expect(&mut self, flow: usize, what: &str, is: impl Fn(&Seg) -> bool) -> Seg {
        self.flush();
        let tuple = self.flows[flow].tuple;
        match self.sent.iter().position(|seg| seg.tuple == tuple) {
            Some(at) if is(&self.sent[at]) => self.sent.remove(at).expect("it is there"),
            Some(_) => self.fail(&format!("the next segment is not: {what}")),
            None => self.fail(&format!("nothing was sent, expected: {what}")),
        }
    }

    /// The first segment of that kind on a flow; what went before is dropped.
    pub(crate) fn find(&mut self, flow: usize, what: &str, is: impl Fn(&Seg) -> bool) -> Seg {
        self.flush();
        let tuple = self.flows[flow].tuple;
        let at = self
            .sent
            .iter()
            .position(|seg| seg.tuple == tuple && is(seg));
        let Some(seg) = at.and_then(|at| self.sent.get(at).cloned()) else {
            self.fail(&format!("not sent: {what}"));
        };
        let mut index = 0;
        self.sent.retain(|seg| {
            index += 1;
            seg.tuple != tuple || Some(index - 1) > at
        });
        seg
    }

    /// Everything on a flow since the last look.
    pub(crate) fn drain(&mut self, flow: usize) -> Vec<Seg> {
        self.flush();
        let tuple = self.flows[flow].tuple;
        let (mine, rest) = self.sent.drain(..).partition(|seg| seg.tuple == tuple);
        self.sent = rest;
        let mine: VecDeque<Seg> = mine;
        mine.into()
    }

    /// The stack must have sent nothing on a flow.
    pub(crate) fn quiet(&mut self, flow: usize) {
        if !self.drain(flow).is_empty() {
            self.fail("something was sent, expected nothing");
        }
    }

    /// An event of this kind happened.
    pub(crate) fn happened(&self, is: impl Fn(&EventKind) -> bool) -> bool {
        self.events.iter().any(|event| is(&event.kind))
    }

    fn note(&mut self, line: &str) {
        let line = format!("{:>9} us {line}", self.now.as_micros() - 10_000_000);
        self.log.push(line);
    }

    pub(crate) fn log(&self) -> String {
        self.log.join("\n")
    }

    /// Ends the test with everything that was on the wire.
    #[track_caller]
    pub(crate) fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{}", self.log());
    }

    /// Asserts with everything that was on the wire.
    #[track_caller]
    pub(crate) fn check(&self, holds: bool, what: &str) {
        if !holds {
            self.fail(what);
        }
    }
}

/// Options for tests: everything at its default but what makes packets depend on more than the script.
pub(crate) fn plain_options() -> ConnOptions {
    ConnOptions {
        nodelay: true,
        pacing: false,
        ..ConnOptions::default()
    }
}

/// The same without Multipath TCP's own checksum.
pub(crate) fn without_checksums() -> ConnOptions {
    ConnOptions {
        checksum: false,
        ..plain_options()
    }
}
