//! The page that the demo leaves: one file, readable in light and in dark, with nothing to load.

use std::fmt::Write;

use super::chart::{Axes, escape, rates};
use super::report::{Arm, Report, RunReport};
use super::stretch;

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c2128; --soft: #57606a; --paper: #ffffff; --line: #d8dee4; --p0: #1f6feb; --p1: #d97706; --p2: #2da44e; --p3: #8250df; --cut: #cf222e; }\n\
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --paper: #0d1117; --line: #30363d; --p0: #58a6ff; --p1: #f0a03c; --p2: #56d364; --p3: #bc8cff; --cut: #ff7b72; } }\n\
body { margin: 2rem auto; padding: 0 1rem; max-width: 60rem; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }\n\
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .2rem; } p { max-width: 46rem; } .soft { color: var(--soft); }\n\
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; } th:first-child, td:first-child { text-align: left; padding-left: 0; } tr.ours td { font-weight: 600; }\n\
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } .grid { stroke: var(--line); stroke-width: 1; } .cut { fill: var(--cut); opacity: .14; } .hover { fill: transparent; } .hover:hover { fill: var(--ink); opacity: .12; }\n\
@media (max-width: 640px) { body { margin: 1rem auto; padding: 0 .75rem; } svg text { font-size: 22px; } .every { display: none; } th, td { padding: .3rem .2rem; font-size: .68rem; } th, td:first-child { white-space: normal; } th:last-child, td:last-child { padding-right: 0; } }\n\
.p0 { fill: var(--p0); } .p1 { fill: var(--p1); } .p2 { fill: var(--p2); } .p3 { fill: var(--p3); } path { opacity: .85; }\n\
.entry { white-space: nowrap; } .key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin: 0 .35rem 0 1rem; vertical-align: -1px; } .k0 { background: var(--p0); } .k1 { background: var(--p1); } .k2 { background: var(--p2); } .k3 { background: var(--p3); } .kc { background: var(--cut); opacity: .35; }\n\
code { font-size: .9em; word-break: break-all; }";

/// The whole page.
pub(super) fn html(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>manypath demo</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n\
         <h1>One download, two paths</h1>\n<p>{}</p>\n",
        escape(&report.conclusion())
    );
    table(&mut page, report);
    let names: Vec<String> = report.paths.iter().map(|path| path.name.clone()).collect();
    legend(&mut page, report);
    let axes = Axes {
        seconds: report
            .runs
            .iter()
            .map(|run| run.seconds)
            .fold(1.0, f64::max),
        rate: report
            .paths
            .iter()
            .map(|path| path.rate as f64)
            .sum::<f64>()
            .max(1.0),
    };
    for run in &report.runs {
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            page,
            "<h2>{}</h2>\n<div class=\"wide\">{}</div>\n",
            escape(&run.name),
            rates(run, &names, &axes)
        );
        stretches(&mut page, report, run);
    }
    conditions(&mut page, report);
    page += "</body>\n</html>\n";
    page
}

fn table(page: &mut String, report: &Report) {
    *page += "<div class=\"wide\"><table>\n<tr><th>Download over</th><th>Seconds</th><th>Mbit/s</th><th>Longest stall, s</th>";
    for path in &report.paths {
        let _ = write!(page, "<th>{}, %</th>", escape(&path.name));
    }
    *page += "<th>Bytes</th></tr>\n";
    for (index, run) in report.runs.iter().enumerate() {
        let total = run.path_bytes.iter().sum::<u64>().max(1) as f64;
        let class = if index == 0 { " class=\"ours\"" } else { "" };
        let _ = write!(
            page,
            "<tr{class}><td>{}</td><td>{:.1}</td><td>{:.2}</td><td>{:.2}</td>",
            escape(&run.name),
            run.seconds,
            run.goodput / 1e6,
            run.longest_stall
        );
        for bytes in &run.path_bytes {
            let _ = write!(page, "<td>{:.0}</td>", *bytes as f64 * 100.0 / total);
        }
        let _ = writeln!(
            page,
            "<td>{}</td></tr>",
            if run.intact { "equal" } else { "different" }
        );
    }
    *page += "</table></div>\n<p class=\"soft\">Longest stall: the longest time in which the client was given no byte. Packets may \
              arrive meanwhile and wait for one that was lost.</p>\n";
}

/// Says of each time in which nothing arrived why that was.
fn stretches(page: &mut String, report: &Report, run: &RunReport) {
    let name = cut_name(report);
    for stretch in stretch::empty(run, name) {
        let _ = writeln!(
            page,
            "<p class=\"soft\">{:.1} to {:.1} s, nothing arrives: {}.</p>",
            stretch.from,
            stretch.to,
            escape(&stretch.why)
        );
    }
}

/// The path that was cut.
fn cut_name(report: &Report) -> &str {
    report
        .paths
        .get(report.cut_path)
        .map_or("", |path| path.name.as_str())
}

fn legend(page: &mut String, report: &Report) {
    *page +=
        "<p class=\"soft\">Mbit/s that each path brought to the client, whole packets, stacked:";
    for (index, path) in report.paths.iter().enumerate() {
        let _ = write!(
            page,
            " <span class=\"entry\"><span class=\"key k{index}\"></span>{}</span>",
            escape(&path.name)
        );
    }
    let _ = writeln!(
        page,
        " <span class=\"entry\"><span class=\"key kc\"></span>{} cut</span>. Across: seconds since the start of the download.</p>",
        escape(cut_name(report))
    );
}

fn conditions(page: &mut String, report: &Report) {
    *page += "<h2>How it was done</h2>\n<p>";
    match &report.arm {
        Arm::Real {
            server,
            client,
            kernel,
        } => {
            let _ = write!(
                page,
                "Real packets between network namespaces of {}. Server: {}. Client: {}.",
                escape(kernel),
                escape(server),
                escape(client)
            );
        }
        Arm::Simulated { reason } => {
            let _ = write!(
                page,
                "Simulated, with our stack at both ends, because {}.",
                escape(reason)
            );
        }
    }
    *page += "</p>\n<ul>\n";
    for path in &report.paths {
        let _ = writeln!(
            page,
            "<li>{}: {} Mbit/s, {} ms round trip, {} ms of buffer</li>",
            escape(&path.name),
            path.rate as f64 / 1e6,
            path.round_trip_ms,
            path.buffer_ms
        );
    }
    let hash = report.sha256.as_ref().map_or_else(String::new, |hash| {
        format!(", SHA-256 <code>{}</code>", escape(hash))
    });
    let _ = writeln!(
        page,
        "</ul>\n<p>The file has {} bytes{hash}. In every download the fast path carried nothing for {:.0} seconds, from the \
         moment when two fifths of the file had arrived.</p>",
        report.bytes, report.cut_seconds
    );
    if !report.kernel_counters.is_empty() {
        let each: Vec<String> = report
            .kernel_counters
            .iter()
            .map(|(name, value)| format!("{} {value}", escape(name)))
            .collect();
        let _ = writeln!(
            page,
            "<p class=\"soft\">What the server's kernel counted during the downloads over Multipath TCP: {}.</p>",
            each.join(", ")
        );
    }
    let _ = writeln!(
        page,
        "<p class=\"soft\">manypath {}</p>",
        escape(&report.version)
    );
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::*;

    #[test]
    fn the_page_stands_alone_and_is_well_formed() {
        let text = html(&example());
        for outside in ["http:", "https:", "<script", "src=", "@import", "url("] {
            assert!(!text.contains(outside), "{outside}");
        }
        assert!(text.contains("a &lt;server&gt;") && !text.contains("<server>"));
        assert!(text.contains("prefers-color-scheme: dark"));
        for tag in [
            "svg", "table", "tr", "td", "th", "p", "ul", "li", "rect", "path", "title", "div", "h2",
        ] {
            let opened = text.matches(&format!("<{tag} ")).count()
                + text.matches(&format!("<{tag}>")).count();
            let closed = text.matches(&format!("</{tag}>")).count();
            let start = format!("<{tag} ");
            let alone = text
                .split(&start)
                .skip(1)
                .filter(|rest| rest.find('>').is_some_and(|end| rest[..end].ends_with('/')))
                .count();
            assert_eq!(opened, closed + alone, "{tag}");
        }
        assert_eq!(text.matches("<svg").count(), 3);
    }

    #[test]
    fn an_empty_report_still_makes_a_page() {
        let mut report = example();
        report.runs.clear();
        report.paths.clear();
        assert!(html(&report).ends_with("</html>\n"));
    }
}
