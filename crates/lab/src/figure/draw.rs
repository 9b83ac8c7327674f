//! A figure as a drawing and as a page that needs no other file.

use std::fmt::Write as _;

use super::{Outcome, find};
use crate::demo::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 48.0;
const COLOURS: [&str; 6] = [
    "#1b6ca8", "#d1495b", "#2e8b57", "#8d5fa8", "#c77d0a", "#555555",
];

/// The range of an axis.
#[derive(Debug, Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    /// Where a value is, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let [value, low, high] = [value, self.low, self.high].map(|v| match self.logarithmic {
            true => v.max(1e-9).ln(),
            false => v,
        });
        (value - low) / (high - low).max(1e-9)
    }
}

/// The drawing.
pub(super) fn svg(outcome: &Outcome) -> String {
    let figure = find(&outcome.id);
    let points = || outcome.series.iter().flat_map(|line| &line.points);
    let (low, high) = points().fold((f64::MAX, f64::MIN), |(low, high), point| {
        (low.min(point[0]), high.max(point[0]))
    });
    let across = Scale {
        low,
        high,
        logarithmic: figure.is_some_and(|figure| figure.logarithmic),
    };
    let most = points().map(|point| point[1]).fold(0.0, f64::max);
    let up = Scale {
        low: 0.0,
        high: most * 1.08,
        logarithmic: false,
    };
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * across.part(value);
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up.part(value);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\" aria-label=\"{0}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escape(&outcome.title)
    );
    // Writing to a String cannot fail, here and below.
    for n in 0..=5 {
        let value = up.high * f64::from(n) / 5.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{value:.3}</text>",
            WIDTH - RIGHT,
            y(value),
            LEFT - 6.0,
            y(value) + 4.0
        );
    }
    let mut xs: Vec<f64> = points().map(|point| point[0]).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let every = xs.len().div_ceil(10).max(1);
    for value in xs.iter().step_by(every) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
            x(*value),
            HEIGHT - BOTTOM + 18.0
        );
    }
    for (n, line) in outcome.series.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let path: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point[0]), y(point[1])))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>",
            path.join(" "),
            WIDTH - RIGHT + 8.0,
            TOP + 14.0 + 18.0 * n as f64,
            escape(&line.name)
        );
    }
    let axes = figure.map_or(["", ""], |figure| figure.axes);
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n</svg>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        escape(axes[0]),
        HEIGHT / 2.0,
        escape(axes[1])
    );
    svg
}

/// The page around it.
pub(super) fn page(outcome: &Outcome, svg: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{id}: {title}</title>\n\
         <style>body{{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}pre{{overflow:auto}}</style>\n\
         <h1>{title}</h1>\n{svg}\n<h2>The paper</h2><p>{paper}</p>\n<h2>Here, simulated</h2><p>{agreement}</p>\n\
         <details><summary>Values</summary><pre>{csv}</pre></details>\n</html>\n",
        id = escape(&outcome.id),
        title = escape(&outcome.title),
        paper = escape(&outcome.paper),
        agreement = escape(&outcome.agreement),
        csv = escape(&outcome.csv())
    )
}
