//! Paths for the tests of the policies.

use manypath_tcp::time::Duration;

use super::PathView;
use crate::ids::SubflowId;

/// A path with ten free segments of 1,400 bytes.
pub(super) fn path(subflow: u8, srtt_ms: u64) -> PathView {
    PathView {
        subflow: SubflowId(subflow),
        established: true,
        home: false,
        backup: false,
        stale: false,
        srtt: Some(Duration::from_millis(srtt_ms)),
        rttvar: Duration::from_millis(srtt_ms / 10),
        rto: Duration::from_millis(200 + srtt_ms),
        delivery: Duration::from_millis(srtt_ms),
        least: Duration::from_millis(srtt_ms),
        capacity: 0,
        drain: 0,
        slow_start: false,
        unproven: false,
        cwnd: 14_000,
        cwnd_room: 14_000,
        inflight: 0,
        oldest: None,
        duplicates: 0,
        window: u32::MAX,
        can_send: 14_000,
        mss: 1_400,
    }
}

/// Its receiver wants it as a backup.
pub(super) fn backup(view: PathView) -> PathView {
    PathView {
        backup: true,
        ..view
    }
}

/// A time-out is pending.
pub(super) fn stale(view: PathView) -> PathView {
    PathView {
        stale: true,
        ..view
    }
}

/// Its window is in flight.
pub(super) fn full(view: PathView) -> PathView {
    PathView {
        cwnd_room: 0,
        inflight: view.cwnd,
        can_send: 0,
        ..view
    }
}

/// It does not carry data any more.
pub(super) fn closing(view: PathView) -> PathView {
    PathView {
        established: false,
        ..view
    }
}

/// Nothing came back yet.
pub(super) fn unmeasured(view: PathView) -> PathView {
    PathView { srtt: None, ..view }
}
