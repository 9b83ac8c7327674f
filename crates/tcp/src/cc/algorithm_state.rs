//! What differs between the algorithms: the state of each, and how it grows and reduces the window.

use super::custom::Custom;
use super::{AckSample, Algorithm, Balia, Bbr, Cubic, GroupView, Lia, Olia, Reno, WVegas, Window};
use crate::time::Instant;

/// One of the algorithms with what it remembers.
#[derive(Clone, Debug)]
pub(super) enum AlgorithmState {
    Reno(Reno),
    Cubic(Cubic),
    Lia(Lia),
    Olia(Olia),
    Balia(Balia),
    WVegas(WVegas),
    Bbr(Bbr),
    Custom(Custom),
}

impl AlgorithmState {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Reno => Self::Reno(Reno::new()),
            Algorithm::Cubic => Self::Cubic(Cubic::new()),
            Algorithm::Lia => Self::Lia(Lia::new()),
            Algorithm::Olia => Self::Olia(Olia::new()),
            Algorithm::Balia => Self::Balia(Balia::new()),
            Algorithm::WVegas => Self::WVegas(WVegas::new()),
            Algorithm::Bbr => Self::Bbr(Bbr::new()),
            Algorithm::Custom(of) => Self::Custom(Custom {
                of,
                state: of.make(),
            }),
        }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Reno(_) => Algorithm::Reno,
            Self::Cubic(_) => Algorithm::Cubic,
            Self::Lia(_) => Algorithm::Lia,
            Self::Olia(_) => Algorithm::Olia,
            Self::Balia(_) => Algorithm::Balia,
            Self::WVegas(_) => Algorithm::WVegas,
            Self::Bbr(_) => Algorithm::Bbr,
            Self::Custom(custom) => Algorithm::Custom(custom.of),
        }
    }

    /// Bytes between losses, for those that ask ([`Olia::interloss`]).
    pub(super) fn interloss(&self) -> u64 {
        match self {
            Self::Olia(olia) => olia.interloss(),
            Self::Reno(_) | Self::Cubic(_) | Self::Lia(_) => 0,
            Self::Balia(_) | Self::WVegas(_) | Self::Bbr(_) | Self::Custom(_) => 0,
        }
    }

    /// Any acknowledgement of something new, in whatever phase. `recovering` says that fast recovery sets the window, so
    /// that [`takes_over`](Self::takes_over) is not asked.
    pub(super) fn observe(&mut self, window: &mut Window, ack: &AckSample, recovering: bool) {
        match self {
            Self::Olia(olia) => olia.delivered(ack.acked),
            Self::Bbr(bbr) if recovering => bbr.observe(window, ack, true),
            Self::Reno(_) | Self::Cubic(_) | Self::Lia(_) => {}
            Self::Balia(_) | Self::WVegas(_) | Self::Bbr(_) | Self::Custom(_) => {}
        }
    }

    /// An acknowledgement outside of fast recovery, before it changes the window: what a loss is judged by is known anew.
    pub(super) fn compare(&mut self, window: &Window, ack: &AckSample, group: &GroupView<'_>) {
        match self {
            Self::Balia(balia) => balia.compare(window, ack.srtt, group),
            Self::Reno(_) | Self::Cubic(_) | Self::Lia(_) | Self::Olia(_) => {}
            Self::WVegas(_) | Self::Bbr(_) | Self::Custom(_) => {}
        }
    }

    /// The algorithms that do without the common slow start take the whole acknowledgement. True if so.
    pub(super) fn takes_over(
        &mut self,
        window: &mut Window,
        ack: &AckSample,
        group: &GroupView<'_>,
    ) -> bool {
        match self {
            Self::WVegas(vegas) => {
                // RFC 7661 section 4.3 in slow start, as for the others.
                let used = match window.in_slow_start() {
                    true => ack.max_inflight.saturating_mul(2) >= window.cwnd(),
                    false => ack.cwnd_limited,
                };
                vegas.on_ack(window, ack, used, group);
                true
            }
            Self::Bbr(bbr) => {
                bbr.on_ack(window, ack);
                true
            }
            Self::Custom(custom) => custom.state.on_ack(window, ack, group),
            Self::Reno(_) | Self::Cubic(_) | Self::Lia(_) | Self::Olia(_) | Self::Balia(_) => false,
        }
    }

    /// `acked` bytes were acknowledged in congestion avoidance, in a window that the sender uses.
    pub(super) fn avoid(
        &mut self,
        window: &mut Window,
        acked: u32,
        ack: &AckSample,
        group: &GroupView<'_>,
    ) {
        match self {
            Self::Reno(reno) => reno.avoid(window, acked),
            Self::Cubic(cubic) => cubic.avoid(window, acked, ack.now, ack.srtt),
            Self::Lia(lia) => lia.avoid(window, acked, ack.srtt, group),
            Self::Olia(olia) => olia.avoid(window, acked, ack.srtt, group),
            Self::Balia(balia) => balia.avoid(window, acked, ack.srtt, group),
            Self::Custom(custom) => custom.state.avoid(window, acked, ack, group),
            // They took the acknowledgement over.
            Self::WVegas(_) | Self::Bbr(_) => {}
        }
    }

    /// The window after a reduction, when `flight` bytes of it were outstanding.
    pub(super) fn reduce(&mut self, window: &mut Window, flight: u32) -> u32 {
        // What that floor gives back must not be earned as well.
        let least = window.least_reduced();
        match self {
            Self::Reno(_) => flight / 2,
            Self::Lia(_) => window.in_segments((flight / 2).max(least)),
            Self::Cubic(cubic) => cubic.reduce(window.cwnd(), flight),
            Self::Olia(olia) => {
                olia.lost();
                // OLIA keeps it all the same: three subflows on a bottleneck took 44 % of it without.
                window.in_segments(flight / 2)
            }
            Self::Balia(balia) => window.in_segments(balia.reduce(flight).max(least)),
            Self::WVegas(vegas) => {
                vegas.lost();
                flight / 2
            }
            // Losses say nothing to it.
            Self::Bbr(bbr) => bbr.lasting(window.cwnd()),
            Self::Custom(custom) => custom.state.reduce(window, flight),
        }
    }

    /// Something else than a loss halves the window, which was `cwnd`. A curve begins anew there; what the coupled algorithms know of
    /// losses stays as it is.
    pub(super) fn penalised(&mut self, cwnd: u32) {
        if let Self::Cubic(cubic) = self {
            // How far the window falls is not the algorithm's choice.
            let _ = cubic.reduce(cwnd, cwnd);
        }
    }

    /// Something else than a loss made the window so small because the path needs no more. A curve must not lead back to where it
    /// was.
    pub(super) fn cut(&mut self, cwnd: u32) {
        if let Self::Cubic(cubic) = self {
            cubic.start_flat(cwnd);
        }
    }

    /// An acknowledgement while the window is held where it is: time that counts for no growth, but measures the path.
    pub(super) fn capped(&mut self, window: &mut Window, ack: &AckSample) {
        match self {
            Self::Cubic(cubic) => cubic.on_idle_until(ack.now),
            Self::Bbr(bbr) => bbr.observe(window, ack, false),
            Self::Custom(custom) => custom.state.on_idle_until(ack.now),
            Self::Reno(_) | Self::Lia(_) | Self::Olia(_) | Self::Balia(_) | Self::WVegas(_) => {}
        }
    }

    /// The window grows by slow start, at `now`.
    pub(super) fn on_slow_start(&mut self, now: Instant) {
        if let Self::Cubic(cubic) = self {
            cubic.on_slow_start(now);
        }
    }

    /// A retransmission timeout.
    pub(super) fn on_timeout(&mut self) {
        match self {
            Self::Cubic(cubic) => cubic.on_timeout(),
            Self::Custom(custom) => custom.state.on_timeout(),
            Self::Reno(_) | Self::Lia(_) | Self::Olia(_) => {}
            Self::Balia(_) | Self::WVegas(_) | Self::Bbr(_) => {}
        }
    }

    /// Sending starts again at `now` after nothing was outstanding.
    pub(super) fn on_restart(&mut self, now: Instant) {
        match self {
            Self::Bbr(bbr) => bbr.on_restart(),
            Self::Cubic(cubic) => cubic.on_idle_until(now),
            Self::Custom(custom) => custom.state.on_idle_until(now),
            Self::Reno(_) | Self::Lia(_) | Self::Olia(_) | Self::Balia(_) | Self::WVegas(_) => {}
        }
    }

    /// The window was not used until `now`.
    pub(super) fn on_idle_until(&mut self, now: Instant) {
        match self {
            Self::Cubic(cubic) => cubic.on_idle_until(now),
            Self::Custom(custom) => custom.state.on_idle_until(now),
            Self::Reno(_) | Self::Lia(_) | Self::Olia(_) => {}
            Self::Balia(_) | Self::WVegas(_) | Self::Bbr(_) => {}
        }
    }
}
