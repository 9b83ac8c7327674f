//! Paths for the tests of the policies.

use manypath_tcp::time::Duration;
use manypath_tcp::units::Rate;

use super::{CwndView, PathView, RatesView, Room, RttView, Tier};
use crate::ids::SubflowId;

/// A path with ten free segments of 1,400 bytes.
pub(super) fn path(subflow: u8, srtt_ms: u64) -> PathView {
    let srtt = Duration::from_millis(srtt_ms);
    PathView {
        subflow: SubflowId(subflow),
        tier: Some(Tier::Regular),
        home: false,
        rtt: RttView {
            srtt: Some(srtt),
            rttvar: Duration::from_millis(srtt_ms / 10),
            rto: Duration::from_millis(200 + srtt_ms),
        },
        expected_delivery: srtt,
        base_delay: srtt,
        rates: RatesView::default(),
        cwnd: CwndView {
            bytes: 14_000,
            room: 14_000,
            slow_start: false,
            unproven: false,
        },
        inflight: 0,
        oldest: None,
        duplicates: 0,
        peer_window: u32::MAX,
        room: Room::of(14_000),
        mss: 1_400,
    }
}

/// A path that differs.
pub(super) fn with(mut view: PathView, change: impl FnOnce(&mut PathView)) -> PathView {
    change(&mut view);
    view
}

/// Bytes a second; none are unknown.
pub(super) fn rate(bytes: u64) -> Option<Rate> {
    (bytes > 0).then(|| Rate::from_bytes_per_sec(bytes))
}

/// Its receiver wants it as a backup.
pub(super) fn backup(view: PathView) -> PathView {
    let stale = view.tier == Some(Tier::StaleRegular);
    with(view, |view| view.tier = Some(Tier::of(stale, true)))
}

/// A timeout is pending.
pub(super) fn stale(view: PathView) -> PathView {
    let backup = view.tier == Some(Tier::Backup);
    with(view, |view| view.tier = Some(Tier::of(true, backup)))
}

/// Its window is in flight.
pub(super) fn full(view: PathView) -> PathView {
    with(view, |view| {
        view.cwnd.room = 0;
        view.inflight = view.cwnd.bytes;
        view.room = Room::Full;
    })
}

/// It does not carry data any more.
pub(super) fn closing(view: PathView) -> PathView {
    with(view, |view| view.tier = None)
}

/// Nothing came back yet.
pub(super) fn unmeasured(view: PathView) -> PathView {
    with(view, |view| view.rtt.srtt = None)
}
