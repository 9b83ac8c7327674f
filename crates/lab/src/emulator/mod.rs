//! Emulated paths between network namespaces, in real time.
//!
//! A path joins two interfaces that live in a namespace of the emulator's own. One thread reads the frames that arrive on
//! either, finishes what the sending kernel left to its card, takes each IP packet through a link (rate, delay, buffer,
//! loss), and writes it to the other interface when its time has come. Frames that carry no IP (address resolution) pass
//! at once. The departure times follow from the link's own clock and not from when the thread woke up, so the rate stays
//! exact even when the machine is busy; only single packets come out late then, by the time it took to wake.

mod frames;
mod link;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use manypath_io::sys::lab::{FRAME_HEADER, frame_socket, frames_missed};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::Timespec;

use crate::netns::{NetNs, NetNsError};
use frames::ETHERNET;
use link::Link;
pub use link::{Buffer, LinkCounters, LinkSpec};

/// Which way packets go on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the first interface to the second.
    Forward,
    /// From the second to the first.
    Backward,
}

impl Direction {
    fn index(self) -> usize {
        match self {
            Self::Forward => 0,
            Self::Backward => 1,
        }
    }
}

/// Two interfaces of the emulator's namespace and what lies between them.
#[derive(Debug, Clone)]
pub struct PathSpec {
    /// Interface towards the first end.
    pub first: String,
    /// Interface towards the second end.
    pub second: String,
    /// From the first to the second.
    pub forward: LinkSpec,
    /// From the second to the first.
    pub backward: LinkSpec,
}

/// What happened on a path so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathCounters {
    links: [LinkCounters; 2],
    /// Frames of a kind that cannot be put on a wire, or that the receiving interface refused.
    pub unfit: u64,
    /// Frames lost because the emulator did not keep up. Anything but zero means that the path was not what it should be.
    pub missed: u64,
}

impl PathCounters {
    /// One direction.
    #[must_use]
    pub fn link(&self, direction: Direction) -> &LinkCounters {
        &self.links[direction.index()]
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
        direction: Direction,
        spec: LinkSpec,
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
            start: Instant::now(),
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

    /// Cuts a path in both directions, or joins it again. What is in it at the cut is lost.
    pub fn set_up(&self, path: usize, up: bool) {
        self.order(Order::Up { path, up });
    }

    /// Changes one direction of a path from now on.
    pub fn change(&self, path: usize, direction: Direction, spec: LinkSpec) {
        self.order(Order::Change {
            path,
            direction,
            spec,
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
    links: [Link; 2],
    unfit: u64,
    missed: u64,
}

impl Path {
    fn open(spec: &PathSpec, seed: u64) -> std::io::Result<Self> {
        let open = |name: &str| -> std::io::Result<OwnedFd> {
            let index = nix::net::if_::if_nametoindex(name).map_err(std::io::Error::from)?;
            frame_socket(index)
        };
        Ok(Self {
            sockets: [open(&spec.first)?, open(&spec.second)?],
            links: [
                Link::new(spec.forward, seed),
                Link::new(spec.backward, !seed),
            ],
            unfit: 0,
            missed: 0,
        })
    }

    fn counters(&self) -> PathCounters {
        PathCounters {
            links: [self.links[0].counters, self.links[1].counters],
            unfit: self.unfit,
            missed: self.missed,
        }
    }

    /// Reads what has arrived on one side.
    fn read(&mut self, side: usize, start: Instant, buffer: &mut [u8], ready: &mut Vec<u8>) {
        for _ in 0..BATCH {
            let len =
                match rustix::net::recv(&self.sockets[side], &mut *buffer, RecvFlags::DONTWAIT) {
                    Ok((len, _)) => len,
                    Err(Errno::AGAIN) => return,
                    // An interface that went down and the like: the kernel tells once and goes on.
                    Err(_) => continue,
                };
            let now = nanos(start);
            let link = &mut self.links[side];
            let socket = &self.sockets[1 - side];
            let mut refused = 0;
            let done = frames::finish(&buffer[..len], |frame| {
                if carries_ip(&frame) {
                    let len = (frame.len() - ETHERNET) as u32;
                    link.offer(now, len, frame);
                } else if !write(socket, &frame, ready) {
                    refused += 1;
                }
            });
            self.unfit += refused + u64::from(done.is_err());
        }
    }

    /// Writes what has come out of both links.
    fn deliver(&mut self, start: Instant, ready: &mut Vec<u8>) {
        for side in 0..2 {
            while let Some(frame) = self.links[side].take(nanos(start)) {
                if !write(&self.sockets[1 - side], &frame, ready) {
                    self.unfit += 1;
                }
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.links.iter().filter_map(Link::deadline).min()
    }
}

/// Whether the frame holds IPv4 or IPv6, by its Ethernet type.
fn carries_ip(frame: &[u8]) -> bool {
    matches!(frame.get(12..14), Some([0x08, 0x00] | [0x86, 0xdd]))
}

/// Writes a finished frame behind a header that leaves nothing to do.
fn write(socket: &OwnedFd, frame: &[u8], ready: &mut Vec<u8>) -> bool {
    ready.clear();
    ready.resize(FRAME_HEADER, 0);
    ready.extend_from_slice(frame);
    rustix::net::send(socket, ready, SendFlags::DONTWAIT).is_ok()
}

fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

struct Worker {
    paths: Vec<Path>,
    inbox: Receiver<Order>,
    bell: Arc<OwnedFd>,
    counters: Arc<Mutex<Vec<PathCounters>>>,
    start: Instant,
    shown_at: u64,
}

impl Worker {
    fn run(mut self) {
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
                for side in 0..2 {
                    if ready_sides.sockets.get(index * 2 + side) == Some(&true) {
                        path.read(side, self.start, &mut buffer, &mut ready);
                    }
                }
                path.deliver(self.start, &mut ready);
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
                        path.links.iter_mut().for_each(|link| link.set_up(up));
                    }
                }
                Ok(Order::Change {
                    path,
                    direction,
                    spec,
                }) => {
                    if let Some(path) = self.paths.get_mut(path) {
                        path.links[direction.index()].change(nanos(self.start), spec);
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
        let now = nanos(self.start);
        self.publish(now);
        let due = self.paths.iter().filter_map(Path::deadline).min();
        let mut left = due.map(|due| due.saturating_sub(now));
        if let (Some(due), Some(0..SPIN)) = (due, left) {
            while nanos(self.start) < due {
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
