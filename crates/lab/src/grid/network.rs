//! The networks of the grid, each drawn from its number.

use manypath_sim::rng::Rng;
use serde::Serialize;

use crate::parallel::PathSpec;

/// The part of a seed's randomness that draws its network.
const PART: u64 = 0x6772_6964;

/// The part that draws what a server answers.
const ANSWER_PART: u64 = 0x616e_7377;

/// Bytes that any buffer holds: less than a few packets no device has.
const LEAST_BUFFER: u64 = 10 * 1_500;

/// The largest buffers of a socket: what the stack has unless somebody chooses.
pub const AUTOTUNED: u64 = 8 << 20;

/// One network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Network {
    /// Its number.
    pub seed: u64,
    /// Two to four paths.
    pub paths: Vec<PathSpec>,
    /// Bytes of the send and of the receive buffer; nothing for what the stack has by itself.
    pub buffer: Option<u64>,
    /// Bytes that a server answers to each request, where there are requests.
    pub answer: u64,
}

/// A number between `low` and `high` whose logarithm is spread evenly.
fn log(rng: &mut Rng, low: f64, high: f64) -> f64 {
    let part = rng.below(1 << 20) as f64 / f64::from(1 << 20);
    low * (high / low).powf(part)
}

impl Network {
    /// The network of a number. Rates from 1 to 50 Mbit/s on the fastest path and down to a hundredth of that on the
    /// slowest, round trips from 4 ms and up to fifty times the shortest, buffers of half to twenty bandwidth-delay
    /// products (15 kB at least), losses of up to 5 % on none, some or all paths, socket buffers from 32 kB to 4 MB or
    /// the stack's own 8 MB, and answers of 1 kB to 1 MB.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, PART);
        let count = [2, 2, 2, 2, 3, 4][rng.below(6) as usize];
        let fastest = log(&mut rng, 1e6, 50e6);
        let shortest = log(&mut rng, 4.0, 40.0);
        let rates = spread(&mut rng, count, 100.0);
        let trips = spread(&mut rng, count, 50.0);
        let paths = rates.iter().zip(&trips).map(|(slower, longer)| {
            let rate = (fastest / slower) as u64;
            let rtt_us = (shortest * longer * 1_000.0) as u64;
            let products = log(&mut rng, 0.5, 20.0);
            let lossy = rng.below(2) == 0;
            let loss = log(&mut rng, 100.0, 50_000.0) as u32;
            let path = PathSpec {
                rate,
                rtt_us,
                buffer: 0,
                loss_ppm: if lossy { loss } else { 0 },
            };
            PathSpec {
                buffer: ((path.bdp() as f64 * products) as u64).max(LEAST_BUFFER),
                ..path
            }
        });
        let paths = paths.collect();
        let buffer = match rng.below(4) {
            0 => None,
            _ => Some(log(&mut rng, 32e3, 4e6) as u64),
        };
        Self {
            seed,
            paths,
            buffer,
            answer: log(&mut Rng::stream(seed, ANSWER_PART), 1e3, 1e6) as u64,
        }
    }

    /// No path loses at random.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.paths.iter().all(|path| path.loss_ppm == 0)
    }

    /// `2 * sum(rate) * longest round trip`, the buffer that NSDI 2012 section 4.2 asks for, with the round trips of
    /// paths whose buffers are full.
    #[must_use]
    pub fn needs(&self) -> u64 {
        let rates: u64 = self.paths.iter().map(|path| path.rate / 8).sum();
        let longest = self.paths.iter().map(|path| {
            let full = path.buffer * 8_000_000 / path.rate.max(1);
            path.rtt_us + full
        });
        let longest = longest.max().unwrap_or(0);
        u64::try_from(2 * u128::from(rates) * u128::from(longest) / 1_000_000).unwrap_or(u64::MAX)
    }

    /// The socket's buffers hold that.
    #[must_use]
    pub fn is_well_buffered(&self) -> bool {
        self.buffer.unwrap_or(AUTOTUNED) >= self.needs()
    }
}

/// Factors for `count` paths, in any order: one of them is 1, one is drawn up to `most`, the others are between.
fn spread(rng: &mut Rng, count: usize, most: f64) -> Vec<f64> {
    let widest = log(rng, 1.0, most);
    let mut factors = vec![1.0, widest];
    while factors.len() < count {
        factors.push(log(rng, 1.0, widest));
    }
    for n in (1..count).rev() {
        factors.swap(n, rng.below(n as u64 + 1) as usize);
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_stay_in_their_ranges_and_repeat() {
        let all: Vec<Network> = (0..500).map(Network::draw).collect();
        for network in &all {
            assert_eq!(*network, Network::draw(network.seed));
            let of = |value: fn(&PathSpec) -> u64| network.paths.iter().map(value);
            let ratio = |value: fn(&PathSpec) -> u64| {
                of(value).max().expect("two paths") as f64
                    / of(value).min().expect("two paths") as f64
            };
            assert!((2..=4).contains(&network.paths.len()));
            assert!(
                ratio(|p| p.rate) <= 101.0 && ratio(|p| p.rtt_us) <= 51.0,
                "{network:?}"
            );
            assert!(of(|p| u64::from(p.loss_ppm)).all(|ppm| ppm <= 50_000));
            assert!(
                network
                    .buffer
                    .is_none_or(|bytes| (32_000..=4_000_000).contains(&bytes))
            );
            assert!((1_000..=1_000_000).contains(&network.answer));
        }
        let share = |what: fn(&Network) -> bool| all.iter().filter(|n| what(n)).count();
        assert!(share(|n| n.paths.len() == 4) > 50 && share(Network::is_clean) > 80);
        assert!(share(|n| n.is_clean() && n.is_well_buffered()) > 25);
    }

    #[test]
    fn the_papers_wireless_paths_need_a_megabyte() {
        let path = |rate, rtt_us, buffer| PathSpec {
            rate,
            rtt_us,
            buffer,
            loss_ppm: 0,
        };
        let network = Network {
            seed: 0,
            paths: vec![
                path(8_000_000, 20_000, 80_000),
                path(2_000_000, 150_000, 500_000),
            ],
            buffer: None,
            answer: 1_000,
        };
        // 2 * 1.25 MB/s * (150 ms + 2 s).
        assert_eq!(network.needs(), 5_375_000);
        assert!(network.is_well_buffered());
    }
}
