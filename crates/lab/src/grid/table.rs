//! The grid as text.

use std::fmt;

use super::{Load, Report, Row};

/// What the default settings must reach of TCP on the best path, everywhere.
pub(super) const NEVER_BELOW: f64 = 0.95;

/// Networks that are told one by one: those where it came out worst.
const WORST: usize = 10;

/// Shares of the networks that quantiles are told for, in hundredths.
const QUANTILES: [usize; 7] = [0, 1, 5, 25, 50, 75, 100];

/// The value below which `percent` of the sorted values are.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len().saturating_sub(1) * percent + 50) / 100;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all
}

impl Report {
    /// Networks that no path loses on and whose buffers are large enough: where the sum of the TCPs can be had.
    fn roomy(&self) -> impl Iterator<Item = &Row> {
        let fits = |row: &&Row| row.network.is_clean() && row.network.is_well_buffered();
        self.rows.iter().filter(fits)
    }

    /// The goodputs over TCP on the best path, sorted.
    #[must_use]
    pub fn ratios(&self, variant: usize) -> Vec<f64> {
        sorted(self.rows.iter().map(|row| row.ratio(variant)))
    }

    /// The goodputs over the sum of the TCPs where that can be had, sorted.
    #[must_use]
    pub fn shares(&self, variant: usize) -> Vec<f64> {
        sorted(self.roomy().map(|row| row.share(variant)))
    }

    /// With the default settings no network is worse than TCP on its best path, but for five parts in a hundred.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(|row| row.ratio(0) >= NEVER_BELOW)
    }

    /// The rows as comma-separated values, with a head that names the units; what has none is a ratio or a number.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "seed,paths,socket_buffer_bytes,needs_bytes,clean,best_tcp_bit_per_s,sum_tcp_bit_per_s",
        );
        for variant in &self.variants {
            text += &format!(
                ",{0}_bit_per_s,{0}_to_best,{0}_to_sum,{0}_whole_to_best",
                variant.name
            );
        }
        text.push('\n');
        for row in &self.rows {
            let network = &row.network;
            text += &format!(
                "{},{},{},{},{},{:.0},{:.0}",
                network.seed,
                network.paths.len(),
                network
                    .buffer
                    .map_or("default".to_owned(), |b| b.to_string()),
                network.needs(),
                network.is_clean(),
                row.best(),
                row.sum()
            );
            for variant in 0..self.variants.len() {
                text += &format!(
                    ",{:.0},{:.4},{:.4},{:.4}",
                    row.ours[variant],
                    row.ratio(variant),
                    row.share(variant),
                    row.whole_ratio(variant)
                );
            }
            text.push('\n');
        }
        text
    }
}

/// A variant's quantiles and how many values are below a bound, if there are any.
fn quantile_line(f: &mut impl fmt::Write, name: &str, all: &[f64], bound: f64) -> fmt::Result {
    if all.is_empty() {
        return writeln!(f, "{name:<24}{:>7}", "none");
    }
    let cells = QUANTILES
        .iter()
        .map(|q| format!("{:7.3}", quantile(all, *q)));
    let below = all.iter().filter(|ratio| **ratio < bound).count();
    writeln!(f, "{name:<24}{}   {below}", cells.collect::<String>())
}

/// One network in one line.
fn line(row: &Row, variant: usize) -> String {
    let paths: Vec<String> = row
        .network
        .paths
        .iter()
        .zip(&row.tcp)
        .map(|(path, tcp)| {
            format!(
                "[{:.2} Mbit/s {:.0} ms {:.1} BDP {:.2} %: {:.2}]",
                path.rate as f64 / 1e6,
                path.rtt_us as f64 / 1e3,
                path.buffer as f64 / path.bdp().max(1) as f64,
                f64::from(path.loss_ppm) / 1e4,
                tcp / 1e6
            )
        })
        .collect();
    let buffer = row.network.buffer;
    let buffer = buffer.map_or("default".to_owned(), |b| format!("{} kB", b / 1_000));
    format!(
        "{:>6} {:.3} {:.3} {buffer:>8} ours {:.2} {}",
        row.network.seed,
        row.ratio(variant),
        row.share(variant),
        row.ours[variant] / 1e6,
        paths.join(" ")
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} networks, {}: goodput over TCP on the best path, and over the sum of the TCPs where no path\n\
             loses and the buffers hold 2 * sum(rate) * longest round trip ({} networks). TCP has its default settings\n\
             (CUBIC) and the network's own socket buffers in every row. The beginning, eight of the longest round trips,\n\
             is left out but where it says \"whole\".\n",
            self.rows.len(),
            match self.load {
                Load::Bulk => "bulk transfers",
                Load::Requests => "requests one after the other",
            },
            self.roomy().count()
        )?;
        let heads: String = QUANTILES
            .iter()
            .map(|q| format!("{:>7}", format!("{q} %")))
            .collect();
        writeln!(f, "{:<24}{heads}   below 0.95", "to the best path")?;
        for (n, variant) in self.variants.iter().enumerate() {
            quantile_line(f, &variant.name, &self.ratios(n), 0.95)?;
        }
        writeln!(f, "{:<24}{heads}   below 0.95", "the same, whole")?;
        for (n, variant) in self.variants.iter().enumerate() {
            let all = sorted(self.rows.iter().map(|row| row.whole_ratio(n)));
            quantile_line(f, &variant.name, &all, 0.95)?;
        }
        writeln!(f, "{:<24}{heads}   below 0.90", "to the sum")?;
        for (n, variant) in self.variants.iter().enumerate() {
            quantile_line(f, &variant.name, &self.shares(n), 0.90)?;
        }
        let variant = 0;
        let mut worst: Vec<&Row> = self.rows.iter().collect();
        worst.sort_by(|a, b| a.ratio(variant).total_cmp(&b.ratio(variant)));
        writeln!(
            f,
            "\nworst to the best path (number, to best, to sum, buffer, Mbit/s; paths with TCP's Mbit/s)"
        )?;
        for row in worst.iter().take(WORST) {
            writeln!(f, "{}", line(row, variant))?;
        }
        let mut worst: Vec<&Row> = self.roomy().collect();
        worst.sort_by(|a, b| a.share(variant).total_cmp(&b.share(variant)));
        writeln!(f, "\nworst to the sum, of those with room")?;
        for row in worst.iter().take(WORST) {
            writeln!(f, "{}", line(row, variant))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_values_themselves() {
        let values = sorted([3.0, 1.0, 2.0, 5.0, 4.0].into_iter());
        let got = [0, 50, 100].map(|percent| quantile(&values, percent));
        assert_eq!(got, [1.0, 3.0, 5.0]);
        assert!(quantile(&[], 50).is_nan());
    }

    #[test]
    fn the_table_says_which_tcp_it_divides_by() {
        let report = Report {
            load: Load::Bulk,
            variants: Vec::new(),
            rows: Vec::new(),
            interrupted: false,
        };
        let head = report.to_string().replace('\n', " ");
        assert!(
            head.contains(
                "TCP has its default settings (CUBIC) and the network's own socket buffers"
            ),
            "{head}"
        );
    }

    #[test]
    fn where_no_network_counts_there_is_no_number() {
        let line = |all: &[f64]| {
            let mut text = String::new();
            quantile_line(&mut text, "default", all, 0.9).expect("text takes everything");
            text
        };
        assert_eq!(line(&[]), "default                    none\n");
        assert!(line(&[0.5]).starts_with("default                   0.500"));
        assert!(line(&[0.5]).ends_with("   1\n"));
    }
}
