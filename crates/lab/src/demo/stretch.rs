//! The times in which a download brought nothing, and why.

use super::report::RunReport;

/// A time without a packet, in seconds since the start of the download.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stretch {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) why: String,
}

/// Shorter ones are a round trip of the slower path, or a sample that fell between two packets.
const SHORTEST: f64 = 0.45;
/// Less than this share of the highest rate counts as nothing: acknowledgements and probes pass all the same.
const NOTHING: f64 = 0.01;

/// The empty stretches of a download in which the path called `cut` was cut.
pub(super) fn empty(run: &RunReport, cut: &str) -> Vec<Stretch> {
    let whole = |rates: &[f64]| rates.iter().sum::<f64>();
    let highest = run
        .samples
        .iter()
        .map(|sample| whole(&sample.rates))
        .fold(0.0, f64::max);
    let mut found: Vec<(f64, f64)> = Vec::new();
    let mut before = 0.0;
    for sample in &run.samples {
        if whole(&sample.rates) <= highest * NOTHING {
            match found.last_mut() {
                Some((_, to)) if *to == before => *to = sample.at,
                _ => found.push((before, sample.at)),
            }
        }
        before = sample.at;
    }
    found
        .into_iter()
        .filter(|(from, to)| to - from >= SHORTEST)
        .map(|(from, to)| Stretch {
            from,
            to,
            why: why(run, cut, from, to),
        })
        .collect()
}

fn why(run: &RunReport, name: &str, from: f64, to: f64) -> String {
    let Some(cut) = run.cut else {
        return "the connection is being opened, or the sender waits for a retransmission timeout"
            .to_owned();
    };
    if to <= cut.from {
        return "the connection is being opened".to_owned();
    }
    if from > cut.to + SHORTEST {
        return "a loss is repaired by a retransmission timeout".to_owned();
    }
    let several = run.over.len() > 1;
    let mut text = if several {
        format!(
            "{name} is cut, and the sender has not repeated on the other path what it had in flight there, so the window that \
             both share is full"
        )
    } else {
        format!("{name} is cut, and this download has no other path")
    };
    if to > cut.to + SHORTEST {
        text += &format!(
            "; {name} is back after {:.1} s, but the sender only looks again when its retransmission timeout, doubled by each \
             one before, has passed (RFC 6298)",
            cut.to
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::{Cut, Sample};
    use super::*;

    /// A download with these rates in each quarter of a second.
    fn run(rates: &[f64], cut: Cut, over: Vec<usize>) -> RunReport {
        RunReport {
            name: String::new(),
            over,
            seconds: rates.len() as f64 / 4.0,
            goodput: 0.0,
            longest_stall: 0.0,
            intact: true,
            path_bytes: Vec::new(),
            cut: Some(cut),
            samples: (1..)
                .zip(rates)
                .map(|(n, rate)| Sample {
                    at: f64::from(n) / 4.0,
                    rates: vec![*rate],
                })
                .collect(),
        }
    }

    #[test]
    fn a_cut_without_another_path_is_one_stretch_that_lasts_until_the_timeout() {
        let cut = Cut { from: 0.5, to: 1.0 };
        let run = run(&[8e6, 8e6, 1e3, 0.0, 0.0, 0.0, 8e6], cut, vec![0]);
        let found = empty(&run, "wifi");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].from, found[0].to), (0.5, 1.5));
        assert!(found[0].why.contains("no other path"), "{found:?}");
        assert!(found[0].why.contains("RFC 6298"), "{found:?}");
    }

    #[test]
    fn a_single_empty_sample_is_no_stretch() {
        let cut = Cut { from: 0.5, to: 1.0 };
        let run = run(&[8e6, 8e6, 0.0, 8e6], cut, vec![0, 1]);
        assert_eq!(empty(&run, "wifi"), []);
    }

    #[test]
    fn the_end_of_the_cut_ends_the_stretch_of_a_sender_that_looks_at_once() {
        let cut = Cut { from: 0.5, to: 1.0 };
        let run = run(&[8e6, 8e6, 0.0, 0.0, 8e6], cut, vec![0]);
        let found = empty(&run, "wifi");
        assert!(!found[0].why.contains("RFC 6298"), "{found:?}");
    }
}
