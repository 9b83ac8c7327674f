//! Limits of what leaves by each path, asked where a subflow pulls data.
//!
//! A path without tokens is not ready until it has some, as if its device were full: the scheduler gives data to another path at once, nothing
//! queues and nothing is dropped. IP bytes count, of every packet; acknowledgements and other small packets are charged and never wait.

mod bucket;
mod slots;

use alloc::vec::Vec;

use manypath_tcp::time::{Duration, Instant};

use crate::api::{IfaceId, Offload, Path, RateLimit};
use bucket::Bucket;
pub(crate) use slots::ShapedSlots;

/// What one limit held back so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// For how long something waited for tokens.
    pub time: Duration,
    /// How often something began to wait.
    pub times: u64,
}

#[derive(Clone, Copy, Debug)]
struct Shaped {
    iface: IfaceId,
    bucket: Bucket,
    held: Held,
    /// Something waits for tokens since then.
    since: Option<Instant>,
}

/// Limits of all paths of a stack.
#[derive(Debug, Default)]
pub(crate) struct Shaper {
    paths: Vec<Shaped>,
    /// What the devices do without limits.
    devices: Vec<(IfaceId, Offload)>,
    /// When the first path that had no tokens in this poll has them.
    ready_at: Option<Instant>,
    /// A device that had no room in this poll.
    device_full: Option<IfaceId>,
}

impl Shaper {
    /// Whether any limit is set.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.paths.is_empty()
    }

    /// Sets, changes or removes the limit of a path.
    pub(crate) fn limit(&mut self, iface: IfaceId, limit: Option<RateLimit>, now: Instant) {
        self.ready_at = None;
        let known = self.find(iface);
        match (known, limit) {
            (Some(path), Some(limit)) => path.bucket.change(limit, now),
            (None, Some(limit)) => self.paths.push(Shaped {
                iface,
                bucket: Bucket::new(limit, now),
                held: Held::default(),
                since: None,
            }),
            (_, None) => self.paths.retain(|path| path.iface != iface),
        }
    }

    /// The limit of a path, and what it held back until `now`.
    pub(crate) fn look(&self, iface: IfaceId, now: Instant) -> Option<(RateLimit, Held)> {
        let path = self.known(iface)?;
        let waits = path.since.map_or(Duration::ZERO, |since| now.since(since));
        let held = Held {
            time: path.held.time + waits,
            ..path.held
        };
        Some((path.bucket.limit(), held))
    }

    /// Notes what the device of a path does, and gives the path as its limit leaves it.
    pub(crate) fn fit(&mut self, path: &Path) -> Path {
        self.forget_device(path.iface);
        self.devices.push((path.iface, path.offload));
        let offload = self.offload(path.iface).unwrap_or(path.offload);
        Path {
            offload,
            ..path.clone()
        }
    }

    /// The device of an interface is gone. Its limit stays, for when it comes back.
    pub(crate) fn forget_device(&mut self, iface: IfaceId) {
        self.devices.retain(|(known, _)| *known != iface);
    }

    /// What a device is asked to do: to divide no burst that is larger than what may leave at once.
    pub(crate) fn offload(&self, iface: IfaceId) -> Option<Offload> {
        let (_, device) = self.devices.iter().find(|(known, _)| *known == iface)?;
        let most = self.known(iface).map_or(u32::MAX, |path| {
            u32::try_from(path.bucket.limit().burst).unwrap_or(u32::MAX)
        });
        Some(Offload {
            max_burst: device.max_burst.min(most),
            ..*device
        })
    }

    /// A poll begins.
    pub(crate) fn begin_poll(&mut self) {
        self.ready_at = None;
        self.device_full = None;
    }

    /// When what waited for tokens in the last poll may leave.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ready_at
    }

    /// A device that had no room in this poll, whatever tokens there were.
    pub(crate) fn full_device(&self) -> Option<IfaceId> {
        self.device_full
    }

    fn known(&self, iface: IfaceId) -> Option<&Shaped> {
        self.paths.iter().find(|path| path.iface == iface)
    }

    fn find(&mut self, iface: IfaceId) -> Option<&mut Shaped> {
        self.paths.iter_mut().find(|path| path.iface == iface)
    }

    /// Whether a packet of so many bytes may leave now.
    fn permits(&mut self, iface: IfaceId, bytes: u64, now: Instant) -> bool {
        let Some(path) = self.find(iface) else {
            return true;
        };
        match path.bucket.ready_at(bytes, now) {
            Some(at) if at <= now => {
                if let Some(since) = path.since.take() {
                    path.held.time += now.since(since);
                }
                true
            }
            later => {
                if path.since.is_none() {
                    path.since = Some(now);
                    path.held.times += 1;
                }
                self.ready_at = match (self.ready_at, later) {
                    (Some(before), Some(later)) => Some(before.min(later)),
                    (before, later) => before.or(later),
                };
                false
            }
        }
    }

    fn charge(&mut self, iface: IfaceId, bytes: u64, now: Instant) {
        if let Some(path) = self.find(iface) {
            path.bucket.charge(bytes, now);
        }
    }

    fn note_device_full(&mut self, iface: IfaceId) {
        self.device_full = Some(iface);
    }
}
