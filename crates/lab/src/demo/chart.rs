//! Drawings of rates over time, as SVG made by hand: no script, no font, no other file.

use std::fmt::Write;

use super::report::RunReport;

/// Size of a drawing, in the units of its view box.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 28.0;

/// Axes that several drawings share, so that they can be compared by eye.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axes {
    /// Seconds at the right end.
    pub(super) seconds: f64,
    /// Bits per second at the top.
    pub(super) rate: f64,
}

impl Axes {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * (seconds / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, rate: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (rate / self.rate).clamp(0.0, 1.0)
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides `range` into about `parts`.
fn step(range: f64, parts: f64) -> f64 {
    let rough = (range / parts).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|f| f * power >= rough)
        .unwrap_or(10.0);
    factor * power
}

fn ticks(end: f64, parts: f64) -> impl Iterator<Item = f64> {
    let step = step(end, parts);
    (0..=(end / step + 1e-6) as u32).map(move |n| f64::from(n) * step)
}

/// The rates of one download, the paths stacked on one another, the cut shaded.
pub(super) fn rates(run: &RunReport, names: &[String], axes: &Axes) -> String {
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Rate of each path over time: {}\">\n",
        escape(&run.name)
    );
    grid(&mut svg, axes);
    if let Some(cut) = run.cut {
        let (from, to) = (axes.x(cut.from), axes.x(cut.to));
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            svg,
            "<rect class=\"cut\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{} cut from {:.1} s to {:.1} s</title></rect>",
            (to - from).max(1.0),
            HEIGHT - TOP - BOTTOM,
            names.first().map_or(String::new(), |name| escape(name)),
            cut.from,
            cut.to
        );
    }
    let mut below = vec![0.0; run.samples.len()];
    for path in 0..names.len() {
        let above: Vec<f64> = run
            .samples
            .iter()
            .zip(&below)
            .map(|(sample, base)| base + sample.rates.get(path).copied().unwrap_or(0.0))
            .collect();
        area(&mut svg, run, axes, path, &below, &above);
        below = above;
    }
    hover(&mut svg, run, names, axes);
    svg += "</svg>\n";
    svg
}

fn grid(svg: &mut String, axes: &Axes) {
    for (index, rate) in ticks(axes.rate, 5.0).enumerate() {
        let y = axes.y(rate);
        // The zero of a narrow page would stand in that of the time.
        let class = if index == 0 { " class=\"every\"" } else { "" };
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text{class} x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            rate / 1e6
        );
    }
    let _ = writeln!(svg, "<text x=\"0\" y=\"18\">Mbit/s</text>");
    for (index, seconds) in ticks(axes.seconds, 10.0).enumerate() {
        // A narrow page has room for every second one.
        let class = if index % 2 == 1 {
            " class=\"every\""
        } else {
            ""
        };
        let _ = writeln!(
            svg,
            "<text{class} x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{seconds} s</text>",
            axes.x(seconds),
            HEIGHT - BOTTOM + 16.0
        );
    }
}

/// One path's share as steps: a sample says what happened in the time before it.
fn area(svg: &mut String, run: &RunReport, axes: &Axes, path: usize, below: &[f64], above: &[f64]) {
    let starts = std::iter::once(0.0).chain(run.samples.iter().map(|sample| sample.at));
    let spans: Vec<(f64, f64)> = starts
        .zip(run.samples.iter().map(|sample| sample.at))
        .collect();
    let mut d = String::new();
    for ((from, to), rate) in spans.iter().zip(above) {
        let lead = if d.is_empty() { 'M' } else { 'L' };
        let y = axes.y(*rate);
        let _ = write!(
            d,
            "{lead}{:.1} {y:.1}L{:.1} {y:.1}",
            axes.x(*from),
            axes.x(*to)
        );
    }
    for ((from, to), rate) in spans.iter().zip(below).rev() {
        let y = axes.y(*rate);
        let _ = write!(d, "L{:.1} {y:.1}L{:.1} {y:.1}", axes.x(*to), axes.x(*from));
    }
    let _ = writeln!(svg, "<path class=\"p{path}\" d=\"{d}Z\"/>");
}

/// Invisible columns that name the numbers under the pointer.
fn hover(svg: &mut String, run: &RunReport, names: &[String], axes: &Axes) {
    let mut from = 0.0;
    for sample in &run.samples {
        let each: Vec<String> = names
            .iter()
            .zip(&sample.rates)
            .map(|(name, rate)| format!("{} {:.2} Mbit/s", escape(name), rate / 1e6))
            .collect();
        let _ = writeln!(
            svg,
            "<rect class=\"hover\" x=\"{:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{:.2} s: {}</title></rect>",
            axes.x(from),
            (axes.x(sample.at) - axes.x(from)).max(0.1),
            HEIGHT - TOP - BOTTOM,
            sample.at,
            each.join(", ")
        );
        from = sample.at;
    }
}

/// Text that is safe inside markup and its attributes.
pub(crate) fn escape(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut out, c| {
            match c {
                '&' => out += "&amp;",
                '<' => out += "&lt;",
                '>' => out += "&gt;",
                '"' => out += "&quot;",
                other => out.push(other),
            }
            out
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            ticks(10.0, 5.0).collect::<Vec<_>>(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(ticks(53.0, 10.0).collect::<Vec<_>>().len(), 6);
        assert!(ticks(0.0, 5.0).count() < 100);
    }

    #[test]
    fn nothing_is_drawn_outside_the_axes() {
        let axes = Axes {
            seconds: 10.0,
            rate: 1e7,
        };
        assert_eq!(axes.x(20.0), WIDTH - RIGHT);
        assert_eq!(axes.y(2e7), TOP);
        assert_eq!(axes.y(-1.0), HEIGHT - BOTTOM);
    }
}
