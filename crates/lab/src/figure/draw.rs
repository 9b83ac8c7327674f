//! A figure as a drawing: one panel an arm, side by side on the same axes, with the paper's values as rings.

use std::fmt::Write as _;
use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg;

use super::Arm;
use super::outcome::{Drawn, Outcome, number};
use crate::demo::escape;

const PANEL: f64 = 360.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const GAP: f64 = 24.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
/// Height of a row of the legend, and width of one of its entries.
const ROW: f64 = 18.0;
const ENTRY: f64 = 250.0;
/// Told apart by people with any kind of colour vision (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c8c00",
];
/// How many dots of the picture a unit of the drawing has each way.
const DENSITY: f32 = 2.0;
/// Values that logarithmic axes begin with at least.
const LEAST: f64 = 1e-6;

/// The range of an axis.
#[derive(Debug, Clone)]
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    /// Around these values. Linear axes of quantities begin at zero when `from_zero`.
    fn around(values: impl Iterator<Item = f64>, drawn: &Drawn, from_zero: bool) -> Self {
        let usable = values.filter(|v| v.is_finite() && (!drawn.logarithmic || *v > 0.0));
        let range = (f64::MAX, f64::MIN);
        let (low, high) = usable.fold(range, |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let (low, high) = match (drawn.logarithmic, from_zero) {
            (true, true) => (low / 1.5, high * 1.5),
            (false, true) => (low.min(0.0), if high > 0.0 { high * 1.08 } else { 1.0 }),
            (_, false) => (low, high),
        };
        Self {
            low,
            high: if high > low { high } else { low + 1.0 },
            logarithmic: drawn.logarithmic,
        }
    }

    /// Where a value is, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let [value, low, high] = [value, self.low, self.high].map(|v| match self.logarithmic {
            true => v.max(LEAST).ln(),
            false => v,
        });
        ((value - low) / (high - low).max(1e-12)).clamp(0.0, 1.0)
    }

    /// Values to write beside the axis: 1, 2 and 5 times powers of ten.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let from = self.low.max(LEAST).log10().floor() as i32;
            let to = self.high.max(LEAST).log10().ceil() as i32;
            let digits: &[f64] = if to - from > 3 {
                &[1.0]
            } else {
                &[1.0, 2.0, 5.0]
            };
            let all =
                (from..=to).flat_map(|power| digits.iter().map(move |d| d * 10_f64.powi(power)));
            return all.filter(|v| (self.low..=self.high).contains(v)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|d| d * power);
        let step = step.into_iter().find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(power * 10.0);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

/// The drawing.
pub(super) fn svg(outcome: &Outcome) -> String {
    let mut arms = outcome.arms();
    if arms.is_empty() {
        // The paper's values stand alone then.
        arms.push(Arm::Sim);
    }
    let names = outcome.names();
    let width = LEFT + (PANEL + GAP) * arms.len() as f64;
    let rows = names
        .len()
        .div_ceil(((width - LEFT) / ENTRY).max(1.0) as usize);
    let height = HEIGHT + ROW * (rows as f64 + 0.5);
    let points = || {
        let ours = outcome.series.iter().flat_map(|line| &line.points);
        ours.chain(outcome.published.iter().flat_map(|line| &line.points))
    };
    let [across, up] = &outcome.axes;
    let scales = [
        Scale::around(points().map(|p| p[0]), across, false),
        Scale::around(points().map(|p| p[1]), up, true),
    ];
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, sans-serif\" font-size=\"11\" role=\"img\" aria-label=\"{}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escape(&outcome.title)
    );
    for (n, arm) in arms.iter().enumerate() {
        let left = LEFT + (PANEL + GAP) * n as f64;
        svg += &panel(outcome, *arm, left, n == 0, &scales, &names);
    }
    svg += &legend(&names, width, !outcome.published.is_empty());
    // Writing to a String cannot fail.
    let _ = writeln!(
        svg,
        "<text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n</svg>",
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(&up.label)
    );
    svg
}

/// One arm.
fn panel(
    outcome: &Outcome,
    arm: Arm,
    left: f64,
    first: bool,
    [across, up]: &[Scale; 2],
    names: &[&str],
) -> String {
    let x = |value: f64| left + PANEL * across.part(value);
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * up.part(value);
    let head = if outcome.series.is_empty() {
        "the paper"
    } else {
        arm.title()
    };
    let (floor, right) = (HEIGHT - BOTTOM, left + PANEL);
    let mut svg = format!(
        "<text x=\"{left}\" y=\"{:.1}\" font-weight=\"bold\">{head}</text>\n",
        TOP - 12.0
    );
    // Writing to a String cannot fail, here and below.
    for value in up.ticks() {
        let at = y(value);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#dddddd\"/>"
        );
        if first {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                at + 4.0,
                number(value)
            );
        }
    }
    for value in across.ticks() {
        let at = x(value);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {floor}v4\" stroke=\"#888888\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            floor + 16.0,
            number(value)
        );
    }
    let _ = writeln!(
        svg,
        "<path d=\"M{left} {TOP}V{floor}H{right}\" fill=\"none\" stroke=\"#888888\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        left + PANEL / 2.0,
        HEIGHT - 12.0,
        escape(&outcome.axes[0].label)
    );
    for line in outcome.series.iter().filter(|line| line.arm == arm) {
        let colour = colour(names, &line.name);
        let path: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point[0]), y(point[1])))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" points=\"{}\"/>",
            path.join(" ")
        );
        // Distributions have too many points to mark.
        for point in line.points.iter().filter(|_| line.points.len() <= 16) {
            let (x, y) = (x(point[0]), y(point[1]));
            let _ = write!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
            );
        }
    }
    for line in &outcome.published {
        let colour = colour(names, &line.name);
        for point in &line.points {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5.5\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                x(point[0]),
                y(point[1])
            );
        }
    }
    svg
}

fn colour(names: &[&str], name: &str) -> &'static str {
    let place = names.iter().position(|other| *other == name);
    COLOURS[place.unwrap_or(0) % COLOURS.len()]
}

fn legend(names: &[&str], width: f64, rings: bool) -> String {
    let columns = ((width - LEFT) / ENTRY).max(1.0) as usize;
    let mut svg = String::new();
    for (n, name) in names.iter().enumerate() {
        let x = LEFT + ENTRY * (n % columns) as f64;
        let y = HEIGHT + ROW * ((n / columns) as f64 + 0.5);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1}h18\" stroke=\"{}\" stroke-width=\"2.5\"/><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 4.0,
            colour(names, name),
            x + 24.0,
            escape(name)
        );
    }
    if rings {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"14\" text-anchor=\"end\" fill=\"#555555\">rings: what the paper says</text>",
            width - GAP
        );
    }
    svg
}

/// The drawing as a picture, with the font that this program brings along. Empty if the drawing is none.
pub(super) fn png(svg: &str) -> Vec<u8> {
    let mut fonts = usvg::fontdb::Database::new();
    for face in [dejavu::sans::regular(), dejavu::sans::bold()] {
        fonts.load_font_data(face.to_vec());
    }
    let options = usvg::Options {
        font_family: "DejaVu Sans".to_owned(),
        fontdb: Arc::new(fonts),
        ..usvg::Options::default()
    };
    let Ok(tree) = usvg::Tree::from_str(svg, &options) else {
        return Vec::new();
    };
    let size = tree.size();
    let [width, height] = [size.width(), size.height()].map(|side| (side * DENSITY).ceil() as u32);
    let Some(mut picture) = Pixmap::new(width, height) else {
        return Vec::new();
    };
    resvg::render(
        &tree,
        Transform::from_scale(DENSITY, DENSITY),
        &mut picture.as_mut(),
    );
    picture.encode_png().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::made_up;
    use super::*;

    fn scale(low: f64, high: f64, logarithmic: bool) -> Scale {
        Scale {
            low,
            high,
            logarithmic,
        }
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(scale(0.0, 10.8, false).ticks(), [0.0, 5.0, 10.0]);
        assert_eq!(
            scale(50.0, 1000.0, false).ticks(),
            [200.0, 400.0, 600.0, 800.0, 1000.0]
        );
        assert_eq!(
            scale(64.0, 2000.0, true).ticks(),
            [100.0, 200.0, 500.0, 1000.0, 2000.0]
        );
        assert!((scale(1.0, 100.0, true).part(10.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn every_arm_has_a_panel_and_every_line_one_colour() {
        let svg = svg(&made_up());
        assert_eq!(svg.matches("font-weight=\"bold\"").count(), 2);
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert!(svg.contains("a &lt;title&gt;") && svg.contains("rings"));
        // The line in both panels, and its entry in the legend.
        assert_eq!(svg.matches("stroke=\"#d55e00\"").count(), 3);
    }

    #[test]
    fn a_picture_has_text_without_any_font_of_the_system() {
        let dots = |svg: &str| {
            let picture = Pixmap::decode_png(&png(svg)).expect("a picture");
            picture
                .data()
                .chunks(4)
                .filter(|dot| dot[0] < 128 && dot[3] > 0)
                .count()
        };
        let around = |inside: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"90\" height=\"20\">\
                 <rect width=\"100%\" height=\"100%\" fill=\"white\"/>{inside}</svg>"
            )
        };
        assert_eq!(dots(&around("")), 0);
        assert!(
            dots(&around(
                "<text x=\"5\" y=\"15\" font-family=\"DejaVu Sans\">goodput</text>"
            )) > 100
        );
        assert!(!png(&svg(&made_up())).is_empty());
        assert!(png("no drawing").is_empty());
    }
}
