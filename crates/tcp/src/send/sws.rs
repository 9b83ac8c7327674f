//! How much new payload to send at once: sender silly-window avoidance (RFC 9293 section 3.8.6.2.1) and Nagle's rule
//! (section 3.7.4) in Minshall's refinement: only one small segment may be unacknowledged.

/// What follows the bytes that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// More bytes are about to.
    More,
    /// Nothing yet.
    Nothing,
    /// FIN.
    Fin,
}

/// Segments sent and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unacked {
    /// None.
    Nothing,
    /// All of full size.
    Full,
    /// One is smaller.
    Small,
}

/// Everything the rule looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    /// Bytes waiting.
    pub(crate) available: u32,
    /// What follows them.
    pub(crate) follows: Follows,
    /// Payload of a full segment; not zero.
    pub(crate) mss: u32,
    /// Payload of the largest burst.
    pub(crate) max_burst: u32,
    /// Room that the congestion window leaves.
    pub(crate) cwnd_room: u32,
    /// Room that the peer's window leaves.
    pub(crate) window_room: u32,
    /// The largest window the peer ever offered.
    pub(crate) window_largest: u32,
    /// What is unacknowledged.
    pub(crate) unacked: Unacked,
    /// Nagle's rule applies.
    pub(crate) nagle: bool,
    /// The override timer fired: send whatever fits.
    pub(crate) forced: bool,
    /// The congestion window, to judge how large a burst is worth waiting for.
    pub(crate) cwnd: u32,
}

/// Why nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing to send.
    Nothing,
    /// The congestion window is full.
    Congestion,
    /// The peer's window is closed or too small to use.
    PeerWindow,
    /// Nagle's rule.
    Small,
}

/// The whole segments of `bytes`. Mostly it is none or one, and a division takes longer than everything else here.
fn whole(bytes: u32, mss: u32) -> u32 {
    match bytes {
        few if few < mss => 0,
        few if few - mss < mss => mss,
        many => many / mss * mss,
    }
}

/// Bytes to send now: full segments, or the tail of what is available.
pub(crate) fn choose(s: &Snapshot) -> Result<u32, Wait> {
    if s.available == 0 {
        return Err(Wait::Nothing);
    }
    let burst = whole(s.max_burst.max(s.mss), s.mss);
    let room = s.cwnd_room.min(s.window_room);
    if room >= s.available && s.available <= burst {
        return tail(s);
    }
    let full = whole(room.min(burst).min(s.available), s.mss);
    if full > 0 {
        return worth_waiting(s, full, burst);
    }
    if s.window_room < s.mss && s.window_room <= s.cwnd_room {
        // The peer's window is the bound, and it is less than a segment.
        // Half of a window of one byte is all of it: no persist timer waits for more.
        let half = (s.window_largest / 2).max(1);
        if s.window_room > 0 && (s.window_room >= half || s.forced) {
            return Ok(s.window_room.min(s.available));
        }
        return Err(Wait::PeerWindow);
    }
    // A connection whose whole congestion window is less than a segment must still make progress.
    if s.unacked == Unacked::Nothing && s.window_room > 0 {
        return Ok(s.mss.min(s.window_room).min(s.available));
    }
    Err(Wait::Congestion)
}

/// Everything available fits: send all of it, or only its full segments if the rest is to wait.
fn tail(s: &Snapshot) -> Result<u32, Wait> {
    let full = whole(s.available, s.mss);
    if full == s.available || s.follows == Follows::Fin || s.forced {
        return Ok(s.available);
    }
    let hold = match s.unacked {
        Unacked::Nothing => false,
        Unacked::Full => s.follows == Follows::More,
        Unacked::Small => s.nagle || s.follows == Follows::More,
    };
    match (hold, full) {
        (false, _) => Ok(s.available),
        (true, 0) => Err(Wait::Small),
        (true, full) => Ok(full),
    }
}

/// With much in flight, an acknowledgement will soon allow a larger burst; many tiny bursts would cost the device and
/// the peer more than the short wait.
fn worth_waiting(s: &Snapshot, full: u32, burst: u32) -> Result<u32, Wait> {
    let good = burst.min(s.cwnd / 8).max(s.mss);
    let bound_by_cwnd = s.cwnd_room < s.window_room && full < s.available && full < burst;
    if bound_by_cwnd && full < whole(good, s.mss) && s.cwnd_room < s.cwnd / 2 {
        return Err(Wait::Congestion);
    }
    Ok(full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plenty() -> Snapshot {
        Snapshot {
            available: 100_000,
            follows: Follows::Nothing,
            mss: 1000,
            max_burst: 1000,
            cwnd_room: 50_000,
            window_room: 50_000,
            window_largest: 50_000,
            unacked: Unacked::Full,
            nagle: true,
            forced: false,
            cwnd: 50_000,
        }
    }

    #[test]
    fn bursts_are_whole_segments() {
        assert_eq!(choose(&plenty()), Ok(1000));
        assert_eq!(
            choose(&Snapshot {
                max_burst: 10_500,
                ..plenty()
            }),
            Ok(10_000)
        );
        assert_eq!(
            choose(&Snapshot {
                max_burst: 10_500,
                window_room: 3_999,
                ..plenty()
            }),
            Ok(3_000)
        );
        assert_eq!(
            choose(&Snapshot {
                max_burst: 10_500,
                available: 4_100,
                ..plenty()
            }),
            Ok(4_100)
        );
    }

    #[test]
    fn nagle_allows_one_small_segment() {
        // RFC 9293 3.7.4 with the refinement that a small segment may follow full ones.
        let s = Snapshot {
            available: 10,
            ..plenty()
        };
        assert_eq!(choose(&s), Ok(10));
        assert_eq!(
            choose(&Snapshot {
                unacked: Unacked::Small,
                ..s
            }),
            Err(Wait::Small)
        );
        assert_eq!(
            choose(&Snapshot {
                unacked: Unacked::Small,
                nagle: false,
                ..s
            }),
            Ok(10)
        );
        assert_eq!(
            choose(&Snapshot {
                unacked: Unacked::Small,
                follows: Follows::Fin,
                ..s
            }),
            Ok(10)
        );
        assert_eq!(
            choose(&Snapshot {
                unacked: Unacked::Small,
                available: 2_010,
                max_burst: 9_000,
                ..s
            }),
            Ok(2_000)
        );
        assert_eq!(
            choose(&Snapshot {
                follows: Follows::More,
                ..s
            }),
            Err(Wait::Small)
        );
        assert_eq!(
            choose(&Snapshot {
                follows: Follows::More,
                unacked: Unacked::Nothing,
                ..s
            }),
            Ok(10)
        );
    }

    #[test]
    fn silly_windows_are_not_used() {
        // RFC 9293 3.8.6.2.1
        let s = Snapshot {
            window_room: 600,
            ..plenty()
        };
        assert_eq!(choose(&s), Err(Wait::PeerWindow));
        assert_eq!(choose(&Snapshot { forced: true, ..s }), Ok(600));
        assert_eq!(
            choose(&Snapshot {
                window_largest: 1200,
                ..s
            }),
            Ok(600)
        );
        assert_eq!(
            choose(&Snapshot {
                window_room: 0,
                forced: true,
                ..s
            }),
            Err(Wait::PeerWindow)
        );
        // Half of one byte is that byte.
        let one = Snapshot {
            window_room: 1,
            window_largest: 1,
            ..s
        };
        assert_eq!(choose(&one), Ok(1));
        // All that there is to send always fits a window that is large enough for it.
        assert_eq!(
            choose(&Snapshot {
                available: 600,
                unacked: Unacked::Nothing,
                ..s
            }),
            Ok(600)
        );
    }

    #[test]
    fn congestion_window_is_obeyed() {
        assert_eq!(
            choose(&Snapshot {
                cwnd_room: 999,
                ..plenty()
            }),
            Err(Wait::Congestion)
        );
        assert_eq!(
            choose(&Snapshot {
                cwnd_room: 0,
                cwnd: 400,
                unacked: Unacked::Nothing,
                ..plenty()
            }),
            Ok(1000)
        );
    }

    #[test]
    fn small_bursts_wait_for_more_room_when_much_is_in_flight() {
        let s = Snapshot {
            cwnd_room: 2_000,
            max_burst: 64_000,
            cwnd: 80_000,
            window_room: 90_000,
            ..plenty()
        };
        assert_eq!(choose(&s), Err(Wait::Congestion));
        assert_eq!(
            choose(&Snapshot {
                cwnd_room: 10_000,
                ..s
            }),
            Ok(10_000)
        );
        assert_eq!(
            choose(&Snapshot {
                available: 2_000,
                ..s
            }),
            Ok(2_000)
        );
    }
}
