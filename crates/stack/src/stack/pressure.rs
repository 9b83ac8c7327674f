//! Decides what a stack permits when memory runs short (RFC 6429 section 3: a system may end connections to protect itself).
//!
//! Pure: what is held and what was advertised in, permissions out. `limits` keeps the sums and is the only caller that acts.
//! In the order in which memory fills: receive windows stop growing, applications may queue little and idle hoarders are not
//! listened to, joins are refused, SYNs are dropped, and the connections that hold most and move least are ended.

use manypath_tcp::time::Duration;

/// What every connection may hold however tight memory is: enough for requests and short answers.
pub(super) const MODEST: usize = 16 * 1024;
/// The receive window that every connection may have however tight memory is: as much as TCP can advertise without a scale. Of
/// what is advertised so much does not count as promised.
pub(super) const PLAIN_WINDOW: u32 = 64 * 1024;

/// What connections take of the memory that is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Bytes of memory held.
    pub(super) held: usize,
    /// Bytes beyond these that peers may send at once, since a window was advertised for them. It is never taken back (RFC 9293
    /// section 3.8.6).
    pub(super) promised: usize,
    /// Connections.
    pub(super) connections: usize,
}

/// What is permitted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permits {
    /// Bytes by which receive windows may grow beyond each connection's share.
    pub(super) growth: usize,
    /// The receive window, in bytes, to which any connection may grow.
    pub(super) window: u32,
    /// Bytes of memory that a connection may hold whether it moves or not, while memory lasts.
    pub(super) share: usize,
    /// Applications may queue what they like, and every segment is taken.
    pub(super) roomy: bool,
    /// How long a connection may get nowhere; none is ended for that while there is room.
    pub(super) patience: Option<Duration>,
    /// Peers may join.
    pub(super) joins: bool,
    /// Peers may connect.
    pub(super) connections: bool,
    /// Bytes that have to be freed at once, by whom it hurts least.
    pub(super) free: usize,
}

/// What a load permits where `limit` bytes are allowed and connections may get nowhere for `patience`.
pub(super) fn permits(load: Load, limit: usize, patience: Duration) -> Permits {
    let part = |eighths: usize| limit / 8 * eighths;
    let each = part(2) / load.connections.max(1);
    let roomy = load.held < part(4);
    let scarce = load.held >= part(6);
    Permits {
        growth: part(4).saturating_sub(load.held.saturating_add(load.promised)),
        window: u32::try_from(each).unwrap_or(u32::MAX).max(PLAIN_WINDOW),
        share: each.max(MODEST),
        roomy,
        patience: match (roomy, scarce) {
            (true, _) => None,
            (false, false) => Some(patience),
            // There is no time left to lose.
            (false, true) => Some(patience.ratio(1, 4)),
        },
        joins: !scarce,
        connections: load.held < limit,
        // Down to seven eighths, so that not every segment asks again.
        free: if load.held >= limit {
            load.held - part(7)
        } else {
            0
        },
    }
}

/// A connection as one that may have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) slot: u32,
    /// Bytes of memory.
    pub(super) held: usize,
    /// Bytes a second that its application reads or its peer acknowledges.
    pub(super) rate: u64,
    /// It moves at the least rate that counts as progress.
    pub(super) moves: bool,
}

/// Who is ended to free so many bytes: those that hold more than a share, first those that do not move, then those that would
/// need longest to move what they hold.
pub(super) fn victims(
    mut holders: alloc::vec::Vec<Holder>,
    share: usize,
    free: usize,
) -> alloc::vec::Vec<Holder> {
    holders.retain(|holder| holder.held > share);
    let seconds = |holder: &Holder| holder.held as u64 / holder.rate.max(1);
    holders.sort_unstable_by_key(|holder| {
        let longest = core::cmp::Reverse((seconds(holder), holder.held));
        (holder.moves, longest, holder.slot)
    });
    let mut freed = 0;
    let needed = holders.iter().take_while(|holder| {
        let more = freed < free;
        freed += holder.held;
        more
    });
    let count = needed.count();
    holders.truncate(count);
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn what_each_load_permits() {
        let some = |secs| Some(Duration::from_secs(secs));
        // Held and promised of 64 MiB, in MiB; growth in MiB, patience, joins, connections, MiB to be freed.
        for (held, promised, growth, patience, joins, connections, free) in [
            (0, 0, 32, None, true, true, 0),
            (10, 20, 2, None, true, true, 0),
            // Windows alone: nobody is ended, refused or held back for what only was advertised.
            (10, 22, 0, None, true, true, 0),
            (10, 500, 0, None, true, true, 0),
            (32, 0, 0, some(20), true, true, 0),
            (47, 0, 0, some(20), true, true, 0),
            (48, 0, 0, some(5), false, true, 0),
            (63, 0, 0, some(5), false, true, 0),
            (64, 0, 0, some(5), false, false, 8),
            (80, 0, 0, some(5), false, false, 24),
        ] {
            let load = Load {
                held: held * MIB,
                promised: promised * MIB,
                connections: 64,
            };
            let p = permits(load, 64 * MIB, PATIENCE);
            let got = (
                p.growth / MIB,
                p.patience,
                p.joins,
                p.connections,
                p.free / MIB,
            );
            let expected = (growth, patience, joins, connections, free);
            assert_eq!(got, expected, "{held} held, {promised} promised");
            assert_eq!(p.roomy, patience.is_none());
        }
    }

    #[test]
    fn the_share_is_a_quarter_for_all_and_never_less_than_modest() {
        for (connections, share, window) in [
            (0, 16 * MIB, 16 * MIB),
            (1, 16 * MIB, 16 * MIB),
            (64, 256 << 10, 256 << 10),
            (1000, 16_777, 64 << 10),
            (100_000, MODEST, 64 << 10),
        ] {
            let load = Load {
                connections,
                ..Load::default()
            };
            let p = permits(load, 64 * MIB, PATIENCE);
            assert_eq!(
                (p.share, p.window as usize),
                (share, window),
                "{connections}"
            );
        }
        let all = permits(Load::default(), usize::MAX, PATIENCE);
        assert_eq!(all.window, u32::MAX);
    }

    #[test]
    fn connections_with_most_memory_and_least_progress_are_evicted_first() {
        let holder = |slot, held: usize, rate| Holder {
            slot,
            held: held * 1000,
            rate,
            moves: rate >= 4096,
        };
        let all = alloc::vec![
            holder(0, 8000, 10_000_000),
            holder(1, 16, 0),
            holder(2, 500, 2),
            holder(3, 4000, 2),
            holder(4, 900, 5000),
            holder(5, 6000, 9_000),
        ];
        let gone = |free: usize| -> alloc::vec::Vec<u32> {
            let victims = victims(all.clone(), 100_000, free);
            victims.iter().map(|holder| holder.slot).collect()
        };
        assert_eq!(gone(0), []);
        assert_eq!(gone(1), [3]);
        assert_eq!(gone(4_100_000), [3, 2]);
        assert_eq!(gone(4_600_000), [3, 2, 5]);
        assert_eq!(gone(10_600_000), [3, 2, 5, 4]);
        // The one within its share stays, whatever is asked for.
        assert_eq!(gone(usize::MAX), [3, 2, 5, 4, 0]);
    }
}
