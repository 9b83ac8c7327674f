//! PathFinder (algorithm 1 of the paper): one more subflow as long as that raises the throughput of all by a factor, in
//! steady state; and a variant that chooses by itself over how many round trips it looks.

use alloc::vec::Vec;

use manypath_tcp::time::{Duration, Instant};

use super::{Order, SubflowView, View, one_more};
use crate::api::{EventKind, PathFinder};
use crate::ids::SubflowId;

/// The longest time between two looks, in round trips of the main subflow.
const SLOWEST: u64 = 8;
/// Looks after which the variant that adapts itself gives up waiting for a clear answer and starts again, more slowly.
const LOOKS: u64 = 16;
/// How many standard errors the mean must be above the threshold, squared.
const CONFIDENCE: u128 = 9;
/// What throughput is taken to vary by, as a part of itself, before samples have told it. It weighs as much as one of them.
const PRESUMED: u64 = 10;
/// In which part of a round trip the variant that adapts itself looks again for steady state.
const WAITING: u64 = 4;

#[derive(Clone, Debug)]
pub(super) struct Finder {
    own: PathFinder,
    next: Option<Instant>,
    /// When it was looked last, and what had been acknowledged then on each subflow.
    last: Option<(Instant, Vec<(SubflowId, u64)>)>,
    /// Largest average throughput seen, in bytes a second; zero before the first steady state (`BW_max`).
    most: u64,
    /// Probe period of the algorithm with a given gamma: looks left and the sum so far (`PF_probe`, `BW_probe`).
    probe: Option<(u8, u64)>,
    /// Samples of the variant that adapts itself.
    samples: Samples,
    /// Round trips between two looks.
    stride: u64,
}

/// Number, sum and sum of squares of samples in KB a second.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    count: u64,
    sum: u128,
    squares: u128,
}

impl Samples {
    fn add(&mut self, sample: u64) {
        let sample = u128::from(sample);
        self.count += 1;
        self.sum += sample;
        self.squares += sample * sample;
    }

    fn mean(&self) -> u64 {
        u64::try_from(self.sum / u128::from(self.count.max(1))).unwrap_or(u64::MAX)
    }

    /// The mean is above (or below) `threshold` by several standard errors.
    fn is_clear(&self, threshold: u64) -> bool {
        let count = u128::from(self.count);
        if count == 0 {
            return false;
        }
        let mean = self.mean();
        let distance = u128::from(mean.abs_diff(threshold));
        let presumed = u128::from(mean / PRESUMED);
        let deviations = (self.squares * count).saturating_sub(self.sum * self.sum) / count;
        let variance = (deviations + presumed * presumed) / count;
        distance * distance * count >= CONFIDENCE * variance
    }
}

impl Finder {
    pub(super) fn new(own: PathFinder) -> Self {
        Self {
            own,
            next: None,
            last: None,
            most: 0,
            probe: None,
            samples: Samples::default(),
            stride: 1,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn react(
        &mut self,
        now: Instant,
        _event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        if !view.may_join {
            self.next = None;
            return;
        }
        if self.next.is_some_and(|next| next > now) {
            return;
        }
        // "For every RTT of the main subflow."
        let rtt = view.subflows.first().and_then(|sf| sf.srtt);
        let rtt = rtt.unwrap_or(Duration::from_millis(100));
        let steady = |sf: &SubflowView| sf.established && sf.steady;
        let is_steady = !view.subflows.is_empty() && view.subflows.iter().all(steady);
        let pause = if is_steady || self.own.gamma.is_some() {
            rtt.times(self.stride)
        } else {
            Duration::from_micros(rtt.as_micros() / WAITING)
        };
        self.next = Some(now + pause.max(Duration::from_millis(1)));
        // Line 1: nothing is compared unless all subflows are in congestion avoidance. While a loss is repaired the cumulative
        // acknowledgement stands still, and leaps then: neither is a throughput.
        if !is_steady {
            self.last = None;
            return;
        }
        let Some(current) = self.bandwidth(now, view) else {
            return;
        };
        if view.subflows.len() >= usize::from(self.own.most) {
            return;
        }
        let why = if self.most == 0 {
            // Lines 3 to 5: the first time there is nothing to compare with.
            self.most = current.max(1);
            Some("the first subflow is in steady state")
        } else {
            match self.own.gamma {
                Some(gamma) => self.with_gamma(gamma, current),
                None => self.adapting(current),
            }
        };
        if let Some(why) = why {
            self.last = None;
            self.samples = Samples::default();
            self.stride = 1;
            orders.push(Order::give(one_more(), why));
        }
    }

    /// Line 2: what all subflows together had acknowledged since the last look, in bytes a second.
    fn bandwidth(&mut self, now: Instant, view: &View) -> Option<u64> {
        let seen = view.subflows.iter().map(|sf| (sf.id, sf.acked)).collect();
        let (at, before) = self.last.replace((now, seen))?;
        let acked = |id: SubflowId| before.iter().find(|(known, _)| *known == id);
        let bytes: u64 = view
            .subflows
            .iter()
            .filter_map(|sf| acked(sf.id).map(|(_, then)| sf.acked.saturating_sub(*then)))
            .sum();
        let time = now.since(at).as_micros().max(1);
        Some(bytes.saturating_mul(1_000_000) / time)
    }

    fn threshold(&self) -> u64 {
        self.most.saturating_mul(100 + u64::from(self.own.beta)) / 100
    }

    /// Lines 7 to 18.
    fn with_gamma(&mut self, gamma: u8, current: u64) -> Option<&'static str> {
        let threshold = self.threshold();
        self.probe = match self.probe {
            Some((left, sum)) => Some((left - 1, sum.saturating_add(current))),
            None if current > threshold => Some((gamma, current)),
            None => None,
        };
        let (_, sum) = self.probe.filter(|(left, _)| *left == 0)?;
        self.probe = None;
        let average = sum / (u64::from(gamma) + 1);
        if average <= threshold {
            return None;
        }
        self.most = average;
        Some("the throughput has risen by more than beta")
    }

    /// As many looks as it takes to tell a rise from chance: one where it is large, two where the throughput is even, more and at
    /// longer intervals where others come and go.
    fn adapting(&mut self, current: u64) -> Option<&'static str> {
        self.samples.add(current / 1_000);
        let threshold = self.threshold() / 1_000;
        if self.samples.is_clear(threshold) {
            if self.samples.mean() > threshold {
                self.most = self.samples.mean().saturating_mul(1_000);
                return Some("the throughput has clearly risen by more than beta");
            }
        } else if self.samples.count < LOOKS {
            return None;
        } else {
            self.stride = (self.stride * 2).min(SLOWEST);
        }
        // A path that is added later shows in later samples.
        if self.samples.count >= LOOKS {
            self.samples = Samples::default();
        }
        None
    }
}
