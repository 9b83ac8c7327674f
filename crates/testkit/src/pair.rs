//! Two stacks joined back to back.

use manypath_stack::{IfaceId, Path, PathEvent, RxMeta, Stack, StackConfig};
use manypath_tcp::time::{Duration, Instant};

use crate::{Wire, path};

/// Packets after which a stack that sends at one moment will not end.
const ENDLESS: usize = 1_000_000;
/// How long a packet is under way.
const DELAY: Duration = Duration::from_micros(50);

/// What becomes of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// How often it arrives.
    pub times: usize,
    /// The receiver's device vouches for its TCP checksum.
    pub checksum_ok: bool,
}

/// What lies between two stacks.
pub trait Network {
    /// Sees a packet when it arrives, may change it, and says what becomes of it.
    fn carry(&mut self, now: Instant, packet: &mut [u8]) -> Fate;
}

/// Two stacks, their devices, what lies between them, and one clock. Host 0 has address 1 on each path, host 1 has address 2.
pub struct Pair<N> {
    /// The clock.
    pub now: Instant,
    /// The stacks.
    pub stacks: [Stack; 2],
    /// Their devices.
    pub wires: [Wire; 2],
    /// What lies between them.
    pub network: N,
}

impl<N: Network> Pair<N> {
    /// Two stacks of so many paths each; `adjust` may change what a path is like.
    pub fn new(paths: u8, network: N, adjust: impl Fn(&mut Path)) -> Self {
        let now = Instant::from_secs(1);
        let mut stacks = [1, 2].map(|seed| Stack::new(StackConfig::default(), [seed; 32], now));
        for (host, stack) in (1..).zip(&mut stacks) {
            for number in 0..paths {
                let mut path = path(host, number);
                adjust(&mut path);
                stack.handle_path_event(now, PathEvent::Up(path));
            }
        }
        Self {
            now,
            stacks,
            wires: Default::default(),
            network,
        }
    }

    /// Carries packets until both stacks are silent.
    pub fn exchange(&mut self) {
        self.exchange_most(usize::MAX);
    }

    /// As [`exchange`](Self::exchange), but ends when `most` packets were carried, and neither stack sends more at one moment:
    /// returns how many it carried.
    pub fn exchange_most(&mut self, most: usize) -> usize {
        let mut carried = 0;
        loop {
            let before = carried;
            for from in 0..2 {
                let (stack, wire) = (&mut self.stacks[from], &mut self.wires[from]);
                let ended = wire.flush(stack, self.now, most.min(ENDLESS));
                assert!(ended || most < ENDLESS, "it sends without end");
                while let Some((iface, packet)) = self.wires[from].queue.pop_front() {
                    carried += 1;
                    self.deliver(1 - from, iface, packet);
                }
            }
            if carried == before || carried >= most {
                return carried;
            }
        }
    }

    fn deliver(&mut self, to: usize, iface: IfaceId, mut packet: Vec<u8>) {
        let fate = self.network.carry(self.now, &mut packet);
        self.now += DELAY;
        let meta = RxMeta {
            checksum_ok: fate.checksum_ok,
            ..RxMeta::default()
        };
        for _ in 0..fate.times {
            self.stacks[to].handle_packet(self.now, iface, &packet, meta);
        }
    }

    /// Lets time pass to the next deadline of either stack; false if there is none within so long.
    pub fn wait(&mut self, limit: Duration) -> bool {
        let deadlines = self.stacks.iter_mut().filter_map(Stack::poll_deadline);
        let Some(at) = deadlines.min().filter(|at| at.since(self.now) <= limit) else {
            return false;
        };
        self.now = self.now.max(at);
        for stack in &mut self.stacks {
            stack.handle_timeout(self.now);
        }
        true
    }

    /// [Carries packets](Self::exchange), then [waits](Self::wait).
    pub fn step(&mut self, limit: Duration) -> bool {
        self.exchange();
        self.wait(limit)
    }
}
