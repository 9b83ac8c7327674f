//! What a scheduler may know about the subflows of a connection.

use core::num::NonZeroU32;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use crate::ids::SubflowId;

/// A snapshot of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// Which one.
    pub subflow: SubflowId,
    /// How good it is to send on at all; `None` before its handshake is done and once it closes.
    pub tier: Option<Tier>,
    /// It leaves from the address where the connection began.
    pub home: bool,
    /// Round trip and timeout.
    pub rtt: RttView,
    /// Expected time until what is sent now is acknowledged: the round trip and the queue that is being built.
    pub expected_delivery: Duration,
    /// What that would be on the empty path.
    pub base_delay: Duration,
    /// What the path is known to carry.
    pub rates: RatesView,
    /// The congestion window.
    pub cwnd: CwndView,
    /// Bytes held to be in the network.
    pub inflight: u32,
    /// When the oldest of these left; `None` where there are none, or losses are being repaired.
    pub oldest: Option<Instant>,
    /// Of these, duplicates of what another subflow carries.
    pub duplicates: u32,
    /// Bytes that the peer's last segment on this subflow lets be in flight. It is the same on all of them, unless a middlebox on
    /// this path lowers it.
    pub peer_window: u32,
    /// Room for new data right now.
    pub room: Room,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

/// Round trip and timeout of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttView {
    /// Smoothed round trip; `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// Variation of the round trip (RFC 6298 section 2); zero before the first measurement.
    pub rttvar: Duration,
    /// Current retransmission timeout, back-off included.
    pub rto: Duration,
}

/// Rates of a path, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RatesView {
    /// What it carries for a second; `None` before data was delivered. A burst may pass faster: the expected delivery goes by the
    /// highest rate.
    pub sustained: Option<Rate>,
    /// How fast the queue that round trips show becomes shorter; `None` while they show none.
    pub drain: Option<Rate>,
    /// What limits let it send: its path's, its connection's, and those of the connection's classes, which it may share with others. `None`: there
    /// are none.
    pub limit: Option<Rate>,
}

/// The congestion window of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CwndView {
    /// In bytes.
    pub bytes: u32,
    /// Bytes that it leaves free.
    pub room: u32,
    /// It doubles each round trip.
    pub slow_start: bool,
    /// Nothing of the path has ended its slow start yet, and no round trip is twice that of the empty path: it may carry more than
    /// it ever did.
    pub unproven: bool,
}

/// Room for new data on a subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Room {
    /// The congestion window, the peer's window, pacing, F-RTO, a limit, the device or the handshake permits nothing.
    #[default]
    Full,
    /// They permit so many bytes.
    Bytes(NonZeroU32),
    /// They permit some, but new data there would be late.
    HeldBack(HeldBack),
}

/// Why a subflow with room gets no new data. Schedulers other than `guarded` meet [`HeldBack::Preference`] alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// It would fill the connection's window before it is delivered.
    Window,
    /// Quicker subflows deliver all that waits before it.
    Quicker,
    /// It has a queue longer than the timeout of the subflow whose data is resent.
    Queue,
    /// The operator wants others used first, or it has had its share.
    Preference,
}

impl Room {
    /// Room for `bytes`.
    pub const fn of(bytes: u32) -> Self {
        match NonZeroU32::new(bytes) {
            Some(bytes) => Self::Bytes(bytes),
            None => Self::Full,
        }
    }

    /// Bytes of new data that may leave now.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Bytes(bytes) => bytes.get(),
            Self::Full | Self::HeldBack(_) => 0,
        }
    }

    /// Some new data may leave now.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Bytes(_))
    }

    /// Takes the room away; a full subflow stays full.
    pub(super) fn hold_back(&mut self, why: HeldBack) {
        if self.is_open() {
            *self = Self::HeldBack(why);
        }
    }
}

/// How good a class of subflows is; only the best class that exists is used.
///
/// A stale regular subflow ranks below a fresh backup: after a timeout it is not "available" in the sense of flag B,
/// and a backup that waits for the last retransmission would be no backup. // rfc8684:P1
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Used like any other.
    Regular,
    /// The receiver of its data asked that it be used only when nothing better is left (flag B of MP_JOIN or MP_PRIO).
    Backup,
    /// Regular, and potentially failed (no ACK for two round trips, RTO, no uplink) or without options: what is sent there now may not
    /// arrive for long.
    StaleRegular,
    /// A backup of which the same is known.
    StaleBackup,
}

impl Tier {
    /// The class of an established subflow.
    pub const fn of(stale: bool, backup: bool) -> Self {
        match (stale, backup) {
            (false, false) => Self::Regular,
            (false, true) => Self::Backup,
            (true, false) => Self::StaleRegular,
            (true, true) => Self::StaleBackup,
        }
    }
}
