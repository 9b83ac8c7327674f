//! What to do when the window that all subflows share is full and one of them holds its trailing edge up (NSDI 2012
//! section 4.2, mechanisms 1 and 2).
//!
//! A subflow that has room and nothing new to send repeats what a slower one carries and would deliver later, the oldest
//! first, each byte once. The slower one is penalised, so that it does not happen again in the next round trip.

use manypath_tcp::time::Duration;

use super::mapping::TxMapping;
use super::offset::Offset;
use super::send::FinState;
use super::transmit::{Progress, Source};
use super::{Conn, Cx};
use crate::api::Slots;
use crate::ids::SubflowId;

/// Mappings of one subflow among which the next one to repeat is looked for.
const MOST_LOOKED_AT: usize = 256;

/// Why a subflow with room has nothing new to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// It has, or nobody waits for more.
    None,
    /// The peer's window or our send buffer is full of data without Data ACK.
    Full,
    /// The stream ends here, and only what is under way is missing.
    Tail,
}

/// What the send queue looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// New bytes that the peer's window lets go.
    pub(crate) sendable: u64,
    /// Bytes without Data ACK that were sent.
    pub(crate) outstanding: u64,
    /// New bytes wait for the peer's window.
    pub(crate) window_full: bool,
    /// The application would write more and the buffer is full.
    pub(crate) writer_waits: bool,
    /// The application closed.
    pub(crate) closing: bool,
}

/// Names the stall. Pure.
pub(crate) fn stall(now: Standing) -> Stall {
    if now.sendable > 0 || now.outstanding == 0 {
        Stall::None
    } else if now.window_full || now.writer_waits {
        Stall::Full
    } else if now.closing {
        Stall::Tail
    } else {
        Stall::None
    }
}

/// What is known of a subflow's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Smoothed round trip.
    pub(crate) round_trip: Duration,
    /// The shortest round trip.
    pub(crate) base: Duration,
    /// What is in flight and one segment more over the delivery rate (Little's law).
    pub(crate) by_rate: Option<Duration>,
    /// Half of the congestion window is in flight.
    pub(crate) busy: bool,
}

/// How long what is sent now needs until it is acknowledged: the path's round trip and the queue in it. Rates are measured
/// with delay, so a window is believed to need twice its round trip at most. On a path that is not busy the smoothed round
/// trip may tell of a queue that is long gone. Pure.
pub(crate) fn delivery(pace: &Pace) -> Duration {
    let least = match pace.busy {
        true => pace.round_trip,
        false => pace.base.min(pace.round_trip),
    };
    let by_rate = pace.by_rate.unwrap_or(pace.round_trip);
    by_rate.clamp(least, pace.round_trip.times(2).max(least))
}

/// How long a subflow still needs for a byte that it has in flight, `ahead` bytes behind the oldest of `flight`: data
/// moves evenly, the newest byte needs a whole `delivery`. While losses are repaired nothing moves. Pure.
pub(crate) fn remaining(delivery: Duration, ahead: u64, flight: u64, repairing: bool) -> Duration {
    if repairing || flight == 0 {
        return delivery;
    }
    delivery.ratio(ahead.min(flight), flight)
}

/// Repeating a byte helps if it is there sooner than by the subflow that carries it. Pure.
pub(crate) fn helps(carried: Duration, repeated: Duration) -> bool {
    repeated < carried
}

/// A part of the stream that should travel a second time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rescue {
    holder: usize,
    carrier: SubflowId,
    from: Offset,
    bytes: u64,
}

impl Conn {
    fn standing(&self) -> Standing {
        Standing {
            sendable: self.send.sendable(),
            outstanding: self.send.next() - self.send.una(),
            window_full: self.send.blocked_by_window(),
            writer_waits: self.write_blocked && self.send.all_sent(),
            closing: self.send.fin != FinState::Open && self.send.all_sent(),
        }
    }

    /// How long what is sent on a subflow now needs until it is acknowledged.
    pub(crate) fn delivery(&self, i: usize) -> Duration {
        let tcp = &self.subflows[i].tcp;
        let queue = u64::from(tcp.inflight()) + u64::from(tcp.mss());
        delivery(&Pace {
            round_trip: tcp.srtt().unwrap_or(Duration::ZERO),
            base: tcp.min_rtt().unwrap_or(Duration::ZERO),
            by_rate: tcp.delivery_rate().map(|rate| rate.time_for(queue)),
            busy: tcp.inflight() >= tcp.cwnd() / 2,
        })
    }

    /// Nothing new can be sent: repeats what holds the window up, or the end of the stream, where that helps.
    pub(crate) fn rescue_edge(&mut self, slots: &mut dyn Slots, cx: &mut Cx<'_>) -> Progress {
        let on = self.opts.mechanisms;
        if self.subflows.len() < 2 || !(on.opportunistic || on.penalise) {
            return Progress::Nothing;
        }
        let stall = stall(self.standing());
        if stall == Stall::None || !self.lattice.speaks_multipath() {
            return Progress::Nothing;
        }
        let Some(rescue) = self.next_rescue(cx) else {
            return Progress::Nothing;
        };
        if on.penalise && stall == Stall::Full {
            self.penalise(rescue.holder, cx);
        }
        if !on.opportunistic {
            return Progress::Nothing;
        }
        let (from, before) = (rescue.from, self.send.bytes_reinjected);
        let sent = self.send_on(
            rescue.carrier,
            rescue.bytes,
            Source::Reinjected(from),
            slots,
            cx,
        );
        let bytes = self.send.bytes_reinjected - before;
        if sent == Progress::Sent && bytes > 0 {
            self.repeated = from + bytes;
            cx.count.opportunistic_bytes += bytes;
        }
        sent
    }

    /// The oldest part of the stream that a slower subflow holds, that was not repeated before, and that would be there
    /// sooner if the quickest subflow with room repeated it.
    fn next_rescue(&self, cx: &Cx<'_>) -> Option<Rescue> {
        let quickest = (0..self.subflows.len())
            .filter(|&i| self.subflows[i].answers() && !self.subflows[i].is_backup())
            .filter_map(|i| Some((self.subflows[i].tcp.srtt()?, i)))
            .filter(|&(_, i)| {
                let mss = u64::from(self.subflows[i].tcp.mss());
                let offer = self.offer(i, mss, true);
                self.subflows[i].tcp.can_send_new(cx.now, &offer) > 0
            })
            .min()?;
        let (round_trip, carrier) = quickest;
        let from = self.repeated.max(self.send.una());
        let mut found: Option<(usize, Offset, u64)> = None;
        for (i, sf) in self.subflows.iter().enumerate() {
            if i == carrier || !sf.answers() {
                continue;
            }
            let behind = |m: &&TxMapping| m.at + u64::from(m.len) > from;
            let Some(m) = sf.tx.iter().take(MOST_LOOKED_AT).find(behind) else {
                continue;
            };
            let at = m.at.max(from);
            if found.is_none_or(|(_, best, _)| at < best) {
                found = Some((i, at, (m.at + u64::from(m.len)).since(at)));
            }
        }
        let (holder, at, bytes) = found?;
        let tcp = &self.subflows[holder].tcp;
        let flight = u64::from(tcp.snd_nxt_ssn().since(tcp.snd_una_ssn()));
        let oldest = self.subflows[holder]
            .tx
            .iter()
            .find(|m| m.at + u64::from(m.len) > at);
        let ahead = oldest.map_or(flight, |m| u64::from(m.end().since(tcp.snd_una_ssn())));
        let carried = remaining(self.delivery(holder), ahead, flight, tcp.in_recovery());
        helps(carried, round_trip).then(|| Rescue {
            holder,
            carrier: self.subflows[carrier].id(),
            from: at,
            bytes,
        })
    }

    /// Halves the window of a subflow that holds the others up, at most once in its round trip.
    fn penalise(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        // What was in flight at the last time is a round trip old when it is acknowledged.
        let again = sf
            .penalised
            .is_none_or(|upto| upto.before_eq(sf.tcp.snd_una_ssn()));
        if again && sf.tcp.penalise() {
            sf.penalised = Some(sf.tcp.snd_nxt_ssn());
            cx.count.subflow_penalised += 1;
            self.refresh_sample(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDING: Standing = Standing {
        sendable: 0,
        outstanding: 100_000,
        window_full: false,
        writer_waits: false,
        closing: false,
    };

    #[test]
    fn a_stall_is_named_by_what_is_missing() {
        for (name, now, expected) in [
            ("the application has no more", STANDING, Stall::None),
            (
                "the window is full",
                Standing {
                    window_full: true,
                    ..STANDING
                },
                Stall::Full,
            ),
            (
                "the buffer is full",
                Standing {
                    writer_waits: true,
                    ..STANDING
                },
                Stall::Full,
            ),
            (
                "the stream ends",
                Standing {
                    closing: true,
                    ..STANDING
                },
                Stall::Tail,
            ),
            (
                "something new can go",
                Standing {
                    sendable: 1,
                    writer_waits: true,
                    ..STANDING
                },
                Stall::None,
            ),
            (
                "a closed window with nothing under way",
                Standing {
                    outstanding: 0,
                    window_full: true,
                    ..STANDING
                },
                Stall::None,
            ),
        ] {
            assert_eq!(stall(now), expected, "{name}");
        }
    }

    #[test]
    fn a_path_is_as_slow_as_the_queue_that_is_in_it() {
        let ms = Duration::from_millis;
        for (name, round_trip, by_rate, busy, expected) in [
            ("nothing measured", 150, None, true, 150),
            ("a steady window", 150, Some(150), true, 150),
            ("acknowledgements came in a gust", 150, Some(90), true, 150),
            ("slow start builds a queue", 150, Some(280), true, 280),
            ("rates lag behind", 150, Some(2_000), true, 300),
            ("a queue that is gone", 3_000, Some(40), false, 100),
            ("a small rate", 3_000, Some(430), false, 430),
        ] {
            let pace = Pace {
                round_trip: ms(round_trip),
                base: ms(100),
                by_rate: by_rate.map(ms),
                busy,
            };
            assert_eq!(delivery(&pace), ms(expected), "{name}");
        }
    }

    #[test]
    fn only_what_would_come_later_is_repeated() {
        let ms = Duration::from_millis;
        for (delivery, ahead, flight, repairing, carrier, repeat) in [
            // The oldest segment of forty on a path of 150 ms is nearly there.
            (150, 1_000, 40_000, false, 20, false),
            // One in the middle needs 75 ms.
            (150, 20_000, 40_000, false, 20, true),
            (150, 20_000, 40_000, false, 75, false),
            // Lost: the repetition needs a whole round trip.
            (150, 1_000, 40_000, true, 20, true),
            (150, 1_000, 40_000, true, 150, false),
            (150, 1_000, 0, false, 20, true),
        ] {
            let carried = remaining(ms(delivery), ahead, flight, repairing);
            assert_eq!(helps(carried, ms(carrier)), repeat, "{ahead} of {flight}");
        }
    }
}
