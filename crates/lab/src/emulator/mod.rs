//! Emulated paths between network namespaces, in real time.
//!
//! A path joins two interfaces that live in a namespace of the emulator's own. One thread reads the frames that arrive on
//! either, finishes what the sending kernel left to its card, takes each IP packet through the simulator's own lines and
//! middleboxes, and writes it to the other interface when its time has come. Frames that carry no IP (address resolution)
//! pass at once. The departure times follow from the link's own clock and not from when the thread woke up, so the rate stays
//! exact even when the machine is busy; only single packets come out late then, by the time it took to wake.

mod frames;
mod path;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use manypath_io::sys::lab::{FRAME_HEADER, frame_socket, frames_missed, run_before_others};
use manypath_sim::packet::Packet;
use manypath_tcp::time::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::Timespec;

use crate::netns::{NetNs, NetNsError};
use frames::ETHERNET;
pub use manypath_sim::line::{Buffer, LineConfig, LineCounters};
pub use manypath_sim::loss::Loss;
pub use manypath_sim::middlebox::{Middlebox, Way};
pub use manypath_sim::rng::Chance;
use path::{Wire, side};

/// Makes the middleboxes at one end of a path: those nearest to the first end first.
pub type MakeBoxes = Arc<dyn Fn() -> Vec<Box<dyn Middlebox>> + Send + Sync>;

/// Two interfaces of the emulator's namespace and what lies between them. [`Way::Out`] leads from the first to the second.
#[derive(Clone)]
pub struct PathSpec {
    /// Interface towards the first end.
    pub first: String,
    /// Interface towards the second end.
    pub second: String,
    /// From the first to the second.
    pub out: LineConfig,
    /// From the second to the first.
    pub back: LineConfig,
    /// Boxes between the first end and the lines, if there are any.
    pub boxes: Option<MakeBoxes>,
    /// Boxes between the lines and the second end; to them, packets of the way [`Way::Out`] go in.
    pub far_boxes: Option<MakeBoxes>,
}

impl fmt::Debug for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathSpec")
            .field("first", &self.first)
            .field("second", &self.second)
            .field("out", &self.out)
            .field("back", &self.back)
            .field("boxes", &self.boxes.is_some())
            .field("far_boxes", &self.far_boxes.is_some())
            .finish()
    }
}

/// What happened on a path so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathCounters {
    lines: [LineCounters; 2],
    /// Packets that middleboxes ended.
    pub boxed: u64,
    /// Packets that middleboxes changed, ended, held back or made.
    pub touched: u64,
    /// Frames of a kind that cannot be put on a wire, or that the receiving interface refused.
    pub unfit: u64,
    /// Frames lost because the emulator did not keep up. Anything but zero means that the path was not what it should be.
    pub missed: u64,
}

impl PathCounters {
    /// One direction.
    #[must_use]
    pub fn line(&self, way: Way) -> &LineCounters {
        &self.lines[side(way)]
    }
}

#[derive(Debug)]
enum Order {
    Up {
        path: usize,
        up: bool,
    },
    Change {
        path: usize,
        way: Way,
        config: Box<LineConfig>,
    },
    Stop,
}

/// Emulated paths at work. They end when this guard drops.
#[derive(Debug)]
pub struct Emulator {
    orders: Sender<Order>,
    bell: Arc<OwnedFd>,
    counters: Arc<Mutex<Vec<PathCounters>>>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts emulating between interfaces that exist in `ns` and are up. The same seed loses the same packets.
    ///
    /// # Errors
    /// When an interface does not exist or must not be read.
    pub fn start(ns: &NetNs, paths: &[PathSpec], seed: u64) -> Result<Self, NetNsError> {
        let failed = |source| NetNsError::Start {
            what: "the path emulator".to_owned(),
            source,
        };
        let bell = Arc::new(
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
                .map_err(|e| failed(e.into()))?,
        );
        let counters = Arc::new(Mutex::new(vec![PathCounters::default(); paths.len()]));
        let (orders, inbox) = channel();
        let wanted = paths.to_vec();
        let made = ns.run(move || {
            let pairs = wanted.iter().zip(0_u64..);
            pairs
                .map(|(spec, index)| Path::open(spec, seed ^ (index << 32)))
                .collect::<std::io::Result<Vec<_>>>()
        });
        let paths = made.map_err(failed)?;
        let worker = Worker {
            paths,
            inbox,
            bell: Arc::clone(&bell),
            counters: Arc::clone(&counters),
            clock: Clock(std::time::Instant::now()),
            shown_at: 0,
        };
        let thread = ns.thread("path-emulator", move || worker.run())?;
        Ok(Self {
            orders,
            bell,
            counters,
            thread: Some(thread),
        })
    }

    /// Cuts a path in both directions, or joins it again. What waits at the cut is lost.
    pub fn set_up(&self, path: usize, up: bool) {
        self.order(Order::Up { path, up });
    }

    /// Gives one direction of a path another rate, delay and loss from now on; its buffer and the rest stay as they are.
    pub fn change(&self, path: usize, way: Way, config: LineConfig) {
        self.order(Order::Change {
            path,
            way,
            config: Box::new(config),
        });
    }

    /// The counters of every path, in the order of their creation.
    #[must_use]
    pub fn counters(&self) -> Vec<PathCounters> {
        lock(&self.counters).clone()
    }

    fn order(&self, order: Order) {
        // A worker that is gone has nothing left to change; its counters say so.
        if self.orders.send(order).is_ok() {
            let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The counters are plain numbers, whole after every assignment, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads per socket before the links are looked at again, so that one busy side cannot hold up the others.
const BATCH: usize = 32;
/// The longest read: a burst of 64 KB behind both headers.
const LARGEST: usize = FRAME_HEADER + ETHERNET + 65_536;
/// Wake-ups this close are waited for without sleeping: a sleep takes longer than that.
const SPIN: u64 = 15_000;
/// The counters are shown this often at most, in nanoseconds.
const PUBLISH: u64 = 5_000_000;

struct Path {
    sockets: [OwnedFd; 2],
    wire: Wire,
    unfit: u64,
    missed: u64,
}

impl Path {
    fn open(spec: &PathSpec, seed: u64) -> std::io::Result<Self> {
        let open = |name: &str| -> std::io::Result<OwnedFd> {
            let index = nix::net::if_::if_nametoindex(name).map_err(std::io::Error::from)?;
            frame_socket(index)
        };
        let boxes = [&spec.boxes, &spec.far_boxes]
            .map(|make| make.as_ref().map(|make| make()).unwrap_or_default());
        Ok(Self {
            sockets: [open(&spec.first)?, open(&spec.second)?],
            wire: Wire::new(spec.out.clone(), spec.back.clone(), boxes, seed),
            unfit: 0,
            missed: 0,
        })
    }

    fn counters(&self) -> PathCounters {
        PathCounters {
            lines: self.wire.counters(),
            boxed: self.wire.dropped,
            touched: self.wire.touched(),
            unfit: self.unfit,
            missed: self.missed,
        }
    }

    /// Reads what has arrived from the end that packets of this way come from.
    fn read(&mut self, way: Way, clock: Clock, buffer: &mut [u8], ready: &mut Vec<u8>) {
        for _ in 0..BATCH {
            let len = match rustix::net::recv(
                &self.sockets[side(way)],
                &mut *buffer,
                RecvFlags::DONTWAIT,
            ) {
                Ok((len, _)) => len,
                Err(Errno::AGAIN) => return,
                // An interface that went down and the like: the kernel tells once and goes on.
                Err(_) => continue,
            };
            let now = clock.now();
            let (wire, sockets) = (&mut self.wire, &self.sockets);
            let mut refused = 0;
            let done = frames::finish(&buffer[..len], |frame| {
                if carries_ip(&frame) {
                    wire.offer(now, way, &frame, &mut |way, packet| {
                        refused += u64::from(!write(
                            leaving(sockets, way),
                            packet.link_header(),
                            packet.bytes(),
                            ready,
                        ));
                    });
                } else {
                    refused += u64::from(!write(leaving(sockets, way), &frame, &[], ready));
                }
            });
            self.unfit += refused + u64::from(done.is_err());
        }
    }

    /// Writes what has come out at either end.
    fn deliver(&mut self, clock: Clock, ready: &mut Vec<u8>) {
        let (wire, sockets) = (&mut self.wire, &self.sockets);
        let mut refused = 0;
        wire.deliver(clock.now(), &mut |way, packet: &Packet| {
            refused += u64::from(!write(
                leaving(sockets, way),
                packet.link_header(),
                packet.bytes(),
                ready,
            ));
        });
        self.unfit += refused;
    }
}

/// The socket through which packets of a way leave.
fn leaving(sockets: &[OwnedFd; 2], way: Way) -> &OwnedFd {
    &sockets[side(way.reversed())]
}

/// Whether the frame holds IPv4 or IPv6, by its Ethernet type.
fn carries_ip(frame: &[u8]) -> bool {
    matches!(frame.get(12..14), Some([0x08, 0x00] | [0x86, 0xdd]))
}

/// Writes a finished frame, given in two pieces.
fn write(socket: &OwnedFd, head: &[u8], tail: &[u8], ready: &mut Vec<u8>) -> bool {
    frames::prepare(head, tail, ready);
    rustix::net::send(socket, ready, SendFlags::DONTWAIT).is_ok()
}

/// The time that the lines are told: since the emulator's start.
#[derive(Clone, Copy)]
struct Clock(std::time::Instant);

impl Clock {
    fn now(self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

struct Worker {
    paths: Vec<Path>,
    inbox: Receiver<Order>,
    bell: Arc<OwnedFd>,
    counters: Arc<Mutex<Vec<PathCounters>>>,
    clock: Clock,
    shown_at: u64,
}

impl Worker {
    fn run(mut self) {
        // Where it is not allowed, the programs of a busy machine are ahead of the wire at times.
        let _ = run_before_others();
        // The default slack of 50 us would be late by half a packet at 100 Mbit/s.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut buffer = vec![0; LARGEST];
        let mut ready = Vec::with_capacity(LARGEST);
        loop {
            let ready_sides = self.wait();
            if ready_sides.bell && !self.obey() {
                return;
            }
            for (index, path) in self.paths.iter_mut().enumerate() {
                for way in [Way::Out, Way::In] {
                    if ready_sides.sockets.get(index * 2 + side(way)) == Some(&true) {
                        path.read(way, self.clock, &mut buffer, &mut ready);
                    }
                }
                path.deliver(self.clock, &mut ready);
            }
        }
    }

    /// Carries out the orders; false when it is time to stop.
    fn obey(&mut self) -> bool {
        let mut rung = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut rung);
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Up { path, up }) => {
                    if let Some(path) = self.paths.get_mut(path) {
                        path.wire.set_up(self.clock.now(), up);
                    }
                }
                Ok(Order::Change { path, way, config }) => {
                    if let Some(path) = self.paths.get_mut(path) {
                        path.wire.change(self.clock.now(), way, &config);
                    }
                }
                Ok(Order::Stop) | Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
            }
        }
    }

    /// Shows the counters to the other threads, but not more often than somebody could want to see them.
    fn publish(&mut self, now: u64) {
        if now < self.shown_at + PUBLISH {
            return;
        }
        self.shown_at = now;
        for path in &mut self.paths {
            let missed: u32 = path
                .sockets
                .iter()
                .filter_map(|s| frames_missed(s).ok())
                .sum();
            path.missed += u64::from(missed);
        }
        let mut shown = lock(&self.counters);
        for (place, path) in shown.iter_mut().zip(&self.paths) {
            *place = path.counters();
        }
    }

    /// Sleeps until a frame arrives, an order comes, or the next frame is due, and says what there is to read.
    fn wait(&mut self) -> Awake {
        let now = self.clock.now().as_nanos();
        self.publish(now);
        let due = self
            .paths
            .iter()
            .filter_map(|path| path.wire.deadline())
            .min()
            .map(Instant::as_nanos);
        let mut left = due.map(|due| due.saturating_sub(now));
        if let (Some(due), Some(0..SPIN)) = (due, left) {
            while self.clock.now().as_nanos() < due {
                std::hint::spin_loop();
            }
            left = Some(0);
        } else if self
            .paths
            .iter()
            .zip(lock(&self.counters).iter())
            .any(|(path, shown)| path.counters() != *shown)
        {
            // What happened since the last showing is to be seen soon, even if nothing else happens.
            left = Some(left.unwrap_or(PUBLISH).min(PUBLISH));
        }
        let timeout = left.map(|left| {
            let left = Duration::from_nanos(left);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let bell: BorrowedFd<'_> = self.bell.as_fd();
        let sockets = self.paths.iter().flat_map(|p| p.sockets.iter());
        let mut fds: Vec<PollFd<'_>> = sockets
            .map(|s| PollFd::new(s, PollFlags::IN))
            .chain([PollFd::from_borrowed_fd(bell, PollFlags::IN)])
            .collect();
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // Interrupted: the next round asks again.
            return Awake {
                sockets: Vec::new(),
                bell: false,
            };
        }
        let mut sockets: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let bell = sockets.pop().unwrap_or(false);
        Awake { sockets, bell }
    }
}

/// What there is to do after a sleep: which sockets have frames, and whether an order has come.
struct Awake {
    sockets: Vec<bool>,
    bell: bool,
}
