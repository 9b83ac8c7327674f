//! Two stacks in one process with a network between them in virtual time, and a clock on what each of them costs.
//!
//! The network decides which packets meet which others, as real links do; the clock runs only while a stack works. So
//! reordering is that of the network, and the cost that of the stack alone: no kernel, no device. What counts is the median
//! of many batches of packets, which other programs on the machine disturb little.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};

use manypath_stack::api::ReceiveAlgorithm;
use manypath_stack::ids::ConnId;
use manypath_stack::{
    ConnOptions, ConnectOptions, IfaceId, ListenOptions, Offload, Path, PathEvent, PathManager,
    ReadOutcome, RxMeta, Slots, Stack, StackConfig, Transmit, TxMeta,
};
use manypath_tcp::time::{Duration, Instant};

/// A network and what is to be sent over it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bench {
    /// Links between the two, all alike.
    pub(super) links: usize,
    /// Bits a second of each.
    pub(super) rate: u64,
    /// Round trip in microseconds.
    pub(super) rtt_us: u64,
    /// Bytes of the buffer before each.
    pub(super) queue: u64,
    /// Subflows, which take the links in turn. One of plain TCP if `plain`.
    pub(super) subflows: usize,
    pub(super) plain: bool,
    pub(super) mtu: u16,
    pub(super) checksum: bool,
    pub(super) receive: ReceiveAlgorithm,
    /// Data packets to measure, after as many again that only warm up.
    pub(super) packets: usize,
}

/// What it cost, in nanoseconds for each data packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    pub(super) sender: f64,
    pub(super) receiver: f64,
    /// Payload bytes of a data packet, on average.
    pub(super) payload: f64,
    /// Part of the data that the receiver had to look for a place for.
    pub(super) out_of_order: f64,
}

impl Cost {
    /// What it cost the end that it cost more.
    pub(super) fn slower(&self) -> f64 {
        self.sender.max(self.receiver)
    }

    /// Gbit/s that one core at each end can carry: the slower of both says how much.
    pub(super) fn gigabits(&self) -> f64 {
        self.payload * 8.0 / self.slower().max(1.0)
    }
}

/// Packets of a batch, at least.
const BATCH: usize = 64;
/// Data packets between two reads of the receiver's application.
const READ_EVERY: usize = 16;
/// A connection on which nothing arrives for so long is silent, whatever its timers do.
const SILENCE: Duration = Duration::from_secs(30);
/// What arrives within this time is handed over together, as cards do that spare interrupts.
const TOGETHER: Duration = Duration::from_micros(50);
const BUFFER: u32 = 8 << 20;

#[derive(Default)]
struct Taken {
    slot: Vec<u8>,
    sent: Vec<(IfaceId, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
}

impl Slots for Taken {
    fn slot(&mut self, _iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        if self.slot.len() < room {
            self.slot.resize(room, 0);
        }
        Some(&mut self.slot)
    }

    fn commit(&mut self, iface: IfaceId, meta: TxMeta) {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.clear();
        packet.extend_from_slice(&self.slot[..meta.len]);
        self.sent.push((iface, packet));
    }
}

/// Brings a packet to where a processor finds what its card or its kernel has just written: the packets of this network have
/// waited elsewhere, the longer the more there are on their way, which costs no real receiver anything.
fn just_written(packet: &[u8]) {
    const LINE: usize = 64;
    let lines = packet.iter().step_by(LINE);
    black_box(lines.fold(0, |all, byte| all ^ byte));
}

/// One link, in the direction of the data.
#[derive(Default)]
struct Link {
    free_at: Instant,
    flying: VecDeque<(Instant, IfaceId, Vec<u8>)>,
}

/// How long a link of so many bits a second takes for so many bytes.
fn time_to_send(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Time that a stack has worked, in batches.
#[derive(Default)]
struct Watch {
    now: u64,
    in_batch: usize,
    batches: Vec<f64>,
}

impl Watch {
    fn around<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begun = std::time::Instant::now();
        let result = black_box(work());
        self.now += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        result
    }

    /// So many packets more are done. What came together stays together: its time cannot be told apart.
    fn packets(&mut self, count: usize) {
        self.in_batch += count;
        if self.in_batch >= BATCH {
            self.batches.push(self.now as f64 / self.in_batch as f64);
            (self.now, self.in_batch) = (0, 0);
        }
    }

    /// The median of the second half: the first one only warmed up. An error if not one batch was filled.
    fn median(&self) -> Result<f64, String> {
        let mut late = self.batches[self.batches.len() / 2..].to_vec();
        late.sort_by(f64::total_cmp);
        let median = late.get(late.len() / 2).copied();
        median.ok_or_else(|| format!("too few packets: it takes {BATCH} to measure anything"))
    }
}

struct World {
    bench: Bench,
    now: Instant,
    sender: Stack,
    receiver: Stack,
    out: Taken,
    links: Vec<Link>,
    back: VecDeque<(Instant, IfaceId, Vec<u8>)>,
    watches: [Watch; 2],
    /// Data packets and acknowledgements that arrived.
    arrived: usize,
    acknowledged: usize,
    /// When the last data packet arrived.
    heard: Instant,
}

fn client(subflow: usize) -> IpAddr {
    IpAddr::from([10, 0, u8::try_from(subflow).unwrap_or(u8::MAX), 1])
}

fn server() -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 9, 0, 1]), 80)
}

/// Interfaces have checksums and nothing else done for them, as cards have had for decades.
const CARD: Offload = Offload {
    checksum: true,
    max_burst: 0,
};

fn up(stack: &mut Stack, now: Instant, iface: usize, addr: IpAddr, mtu: u16) {
    let path = Path {
        iface: IfaceId(u32::try_from(iface).unwrap_or(u32::MAX)),
        addr,
        mtu,
        backup: false,
        offload: CARD,
        ports: None,
        outside: None,
    };
    stack.handle_path_event(now, PathEvent::Up(path));
}

impl Bench {
    fn options(&self, path_manager: PathManager) -> ConnOptions {
        let mut options = ConnOptions {
            path_manager,
            checksum: self.checksum,
            send_buffer: BUFFER,
            recv_buffer: BUFFER,
            receive: self.receive,
            ..ConnOptions::default()
        };
        if self.plain {
            options.mode = manypath_stack::api::Mode::PlainTcp;
        }
        options
    }

    /// Sends until as many packets have arrived as are wanted.
    ///
    /// # Errors
    /// When the connection does not come about or falls silent.
    pub(super) fn run(self) -> Result<Cost, String> {
        let now = Instant::from_secs(1);
        let config = StackConfig::default;
        let mut world = World {
            bench: self,
            now,
            sender: Stack::new(config(), [1; 32], now),
            receiver: Stack::new(config(), [2; 32], now),
            out: Taken::default(),
            links: (0..self.links).map(|_| Link::default()).collect(),
            back: VecDeque::new(),
            watches: [Watch::default(), Watch::default()],
            arrived: 0,
            acknowledged: 0,
            heard: now,
        };
        for subflow in 0..self.subflows {
            up(&mut world.sender, now, subflow, client(subflow), self.mtu);
            // The receiver answers on the interface that the sender's address leads to.
            up(&mut world.receiver, now, subflow, server().ip(), self.mtu);
        }
        let failed = |what: &str| format!("{what} between two stacks in one process");
        let listening = ListenOptions {
            addr: server(),
            backlog: 4,
            conn: self.options(PathManager::Passive),
        };
        let listener = world
            .receiver
            .listen(listening)
            .map_err(|error| format!("{}: {error}", failed("listen")))?;
        let connecting = ConnectOptions {
            remote: server(),
            local: None,
            conn: self.options(PathManager::FullMesh),
        };
        let sending = world
            .sender
            .connect(now, connecting)
            .map_err(|error| format!("{}: {error}", failed("connect")))?;
        let chunk = vec![0x5a; 256 << 10];
        let mut page = vec![0; 256 << 10];
        let (mut accepted, mut read): (Option<ConnId>, u64) = (None, 0);
        let (mut seen, mut wrote) = (0, None);
        while world.arrived < self.packets * 2 {
            if wrote != Some(world.acknowledged) {
                // Until the first data arrive, whatever happens may be the handshake.
                wrote = (world.arrived > 0).then_some(world.acknowledged);
                world.write(sending, &chunk);
            }
            if !world.step() || world.now.since(world.heard) > SILENCE {
                return Err(failed("silence"));
            }
            accepted = accepted.or_else(|| world.receiver.accept(listener));
            if let Some(conn) = accepted
                && (world.arrived >= seen + READ_EVERY || world.is_quiet())
            {
                seen = world.arrived;
                read += world.read(conn, &mut page);
            }
        }
        let conn = accepted.ok_or_else(|| failed("nobody accepted"))?;
        let info = world
            .receiver
            .info(conn)
            .map_err(|error| error.to_string())?;
        if !self.plain && info.subflows.len() != self.subflows {
            let count = info.subflows.len();
            return Err(format!("{count} of {} subflows", self.subflows));
        }
        let packets = world.arrived.max(1) as f64;
        Ok(Cost {
            sender: world.watches[0].median()?,
            receiver: world.watches[1].median()?,
            payload: (read as f64 + f64::from(info.recv_queue)) / packets,
            out_of_order: info.searches.searches as f64 / packets,
        })
    }
}

impl World {
    fn write(&mut self, conn: ConnId, chunk: &[u8]) {
        let (sender, now) = (&mut self.sender, self.now);
        // A connection that is not established yet takes nothing, which is no error that matters.
        let _ = self.watches[0].around(|| sender.write(now, conn, chunk));
        self.transmit_data();
    }

    fn read(&mut self, conn: ConnId, page: &mut [u8]) -> u64 {
        let (receiver, now) = (&mut self.receiver, self.now);
        let read = self.watches[1].around(|| {
            let mut read = 0;
            while let Ok(ReadOutcome::Data(len)) = receiver.read(now, conn, page) {
                read += len as u64;
            }
            read
        });
        self.transmit_back();
        read
    }

    /// Nothing is on its way: if the window is full, only reading goes on.
    fn is_quiet(&self) -> bool {
        self.back.is_empty() && self.links.iter().all(|link| link.flying.is_empty())
    }

    /// Everything that the sender may send now, onto the links.
    fn transmit_data(&mut self) {
        let (sender, out, now) = (&mut self.sender, &mut self.out, self.now);
        self.watches[0].around(|| while let Transmit::Sent(_) = sender.poll_transmit(now, out) {});
        let bench = &self.bench;
        for (iface, packet) in self.out.sent.drain(..) {
            let link = &mut self.links[iface.0 as usize % bench.links];
            let begin = link.free_at.max(now);
            if begin.since(now) > time_to_send(bench.queue, bench.rate) {
                continue;
            }
            link.free_at = begin + time_to_send(packet.len() as u64, bench.rate);
            let there = link.free_at + Duration::from_micros(bench.rtt_us / 2);
            link.flying.push_back((there, iface, packet));
        }
    }

    fn transmit_back(&mut self) {
        let (receiver, out, now) = (&mut self.receiver, &mut self.out, self.now);
        self.watches[1]
            .around(|| while let Transmit::Sent(_) = receiver.poll_transmit(now, out) {});
        let there = now + Duration::from_micros(self.bench.rtt_us / 2);
        for (iface, packet) in self.out.sent.drain(..) {
            self.back.push_back((there, iface, packet));
        }
    }

    /// The next thing that happens; false if nothing does.
    fn step(&mut self) -> bool {
        let heads = self.links.iter().enumerate();
        let head = heads.filter_map(|(n, link)| Some((link.flying.front()?.0, Some(n))));
        let back = self.back.front().map(|(at, _, _)| (*at, None));
        let packet = head.chain(back).min();
        let deadlines = [self.sender.poll_deadline(), self.receiver.poll_deadline()];
        let deadline = deadlines.into_iter().flatten().min();
        match (packet, deadline) {
            (None, None) => return false,
            (Some((at, from)), deadline) if deadline.is_none_or(|deadline| at <= deadline) => {
                self.now = self.now.max(at) + TOGETHER;
                match from {
                    Some(_) => self.arrive(),
                    None => self.acknowledge(),
                }
            }
            (_, Some(deadline)) => {
                self.now = self.now.max(deadline);
                let now = self.now;
                let (sender, receiver) = (&mut self.sender, &mut self.receiver);
                self.watches[0].around(|| sender.handle_timeout(now));
                self.watches[1].around(|| receiver.handle_timeout(now));
                self.transmit_data();
                self.transmit_back();
            }
            (Some(_), None) => {}
        }
        while self.sender.poll_event().is_some() {}
        while self.receiver.poll_event().is_some() {}
        true
    }

    /// The first packet of any link that is due by now, in the order of their arrival.
    fn due(&mut self) -> Option<(IfaceId, Vec<u8>)> {
        let heads = self.links.iter().enumerate();
        let heads = heads.filter_map(|(n, link)| Some((link.flying.front()?.0, n)));
        let (_, link) = heads.min().filter(|(at, _)| *at <= self.now)?;
        let (_, iface, packet) = self.links[link].flying.pop_front()?;
        Some((iface, packet))
    }

    fn arrive(&mut self) {
        /// Bytes of a packet that has only headers, at most.
        const HEADERS: usize = 100;
        let (now, mut data) = (self.now, 0);
        while let Some((iface, packet)) = self.due() {
            just_written(&packet);
            let receiver = &mut self.receiver;
            let meta = RxMeta {
                checksum_ok: true,
                ..RxMeta::default()
            };
            self.watches[1].around(|| receiver.handle_packet(now, iface, &packet, meta));
            data += usize::from(packet.len() > HEADERS);
            self.out.spare.push(packet);
        }
        self.transmit_back();
        if data > 0 {
            self.heard = now;
        }
        self.arrived += data;
        self.watches
            .iter_mut()
            .for_each(|watch| watch.packets(data));
    }

    fn acknowledge(&mut self) {
        let now = self.now;
        while self.back.front().is_some_and(|(at, _, _)| *at <= now) {
            let Some((_, iface, packet)) = self.back.pop_front() else {
                break;
            };
            just_written(&packet);
            let sender = &mut self.sender;
            let meta = RxMeta {
                checksum_ok: true,
                ..RxMeta::default()
            };
            self.watches[0].around(|| sender.handle_packet(now, iface, &packet, meta));
            self.acknowledged += 1;
            self.out.spare.push(packet);
        }
        self.transmit_data();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_measured_and_subflows_meet_out_of_order() {
        let bench = Bench {
            links: 2,
            rate: 1_000_000_000,
            rtt_us: 400,
            queue: 250_000,
            subflows: 4,
            plain: false,
            mtu: 1500,
            checksum: false,
            receive: ReceiveAlgorithm::AllShortcuts,
            packets: 5_000,
        };
        let cost = bench.run().expect("a working stack");
        assert!(cost.sender > 0.0 && cost.receiver > 0.0, "{cost:?}");
        assert!((1_300.0..=1_460.0).contains(&cost.payload), "{cost:?}");
        assert!(cost.out_of_order > 0.05, "{cost:?}");
        let plain = Bench {
            links: 1,
            subflows: 1,
            plain: true,
            ..bench
        };
        let cost = plain.run().expect("a working stack");
        assert!(
            cost.gigabits() > 0.0 && cost.out_of_order < 0.05,
            "{cost:?}"
        );
    }

    #[test]
    fn a_window_that_is_full_when_a_hole_is_filled_is_read() {
        // Two subflows overflow the buffer of one link, and the window is full before the loss is repaired.
        let bench = Bench {
            links: 1,
            rate: 1_000_000_000,
            rtt_us: 400,
            queue: 1_000_000,
            subflows: 2,
            plain: false,
            mtu: 1440,
            checksum: false,
            receive: ReceiveAlgorithm::AllShortcuts,
            packets: 10_000,
        };
        bench.run().expect("it goes on");
    }

    #[test]
    fn rates_are_exact() {
        let [fast, slow] = [10_000_000_000, 1_500_000].map(|rate| time_to_send(1_500, rate));
        assert_eq!(fast, Duration::from_nanos(1_200));
        assert_eq!(slow, Duration::from_millis(8));
    }

    #[test]
    fn the_median_leaves_the_beginning_and_single_delays_out() {
        let mut watch = Watch {
            batches: vec![900.0, 800.0, 100.0, 120.0, 5_000.0],
            ..Watch::default()
        };
        assert_eq!(watch.median(), Ok(120.0));
        watch.batches.clear();
        assert!(watch.median().is_err_and(|why| why.contains("64")));
        watch.now = 1_000;
        watch.packets(BATCH - 1);
        watch.packets(61);
        assert_eq!(watch.batches, [1_000.0 / (BATCH + 60) as f64]);
    }
}
