//! Pages that need no other file: one a figure, and the gallery of all that a folder holds.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;

use super::outcome::{Outcome, number};
use super::{Arm, FigureError, all, draw};
use crate::demo::escape;
use crate::whole::write_whole;

const STYLE: &str = "body{font-family:sans-serif;max-width:78em;margin:2em auto;padding:0 1em;line-height:1.4}\
    svg{max-width:100%;height:auto}pre{overflow:auto;background:#f6f6f6;padding:1em}\
    .side{display:flex;flex-wrap:wrap;gap:2em}.side>*{flex:1 1 20em}\
    table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}\
    td:first-child,th:first-child{text-align:left}\
    .yes::before{content:'\\2713\\a0';color:#080}.no::before{content:'\\2717\\a0';color:#b00}\
    ul{padding-left:1em;list-style:none}.note{color:#666}";

fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\n<style>{STYLE}</style></head>\n<body>\n",
        escape(title)
    )
}

/// The page of one figure.
pub(super) fn page(outcome: &Outcome, svg: &str) -> String {
    head(&format!("{}: {}", outcome.id, outcome.title))
        + &format!(
            "<h1>{}</h1>\n{}\n{svg}\n",
            escape(&outcome.title),
            origin(outcome)
        )
        + &sides(outcome)
        + &values(outcome)
        + &format!(
            "<details><summary>As comma-separated values</summary><pre>{}</pre></details>\n</body></html>\n",
            escape(&outcome.csv())
        )
}

/// Which figure it is, and what makes it again, where its file is new enough to say so.
fn origin(outcome: &Outcome) -> String {
    let command = match outcome.command.as_str() {
        "" => String::new(),
        command => format!("<code>{}</code>; ", escape(command)),
    };
    format!(
        "<p class=\"note\">{}; {command}{}</p>",
        escape(&outcome.source),
        escape(&outcome.parameters)
    )
}

/// The paper beside what came out.
fn sides(outcome: &Outcome) -> String {
    let mut text = format!(
        "<div class=\"side\"><div><h2>The paper</h2><p>{}</p></div>\n<div><h2>Here</h2><p>{}</p>\n<ul>",
        escape(&outcome.paper),
        escape(&sentence(&outcome.agreement))
    );
    for finding in &outcome.findings {
        let mark = if finding.holds { "yes" } else { "no" };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            text,
            "<li class=\"{mark}\">{}: {}</li>",
            escape(&finding.statement),
            escape(&finding.seen)
        );
    }
    text += "</ul>\n";
    for line in outcome.skipped.iter().chain(&outcome.failures) {
        let _ = writeln!(text, "<p class=\"note\">{}</p>", escape(line));
    }
    if outcome.interrupted {
        text += "<p class=\"note\">It was stopped before its last run.</p>\n";
    }
    text + "</div></div>\n"
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

/// A table with the arms and the paper side by side, for lines short enough to read.
fn values(outcome: &Outcome) -> String {
    let series = || {
        let ours = outcome
            .series
            .iter()
            .map(|line| (Some(line.arm), line.name.as_str(), &line.points));
        let papers = outcome
            .published
            .iter()
            .map(|line| (None, line.name.as_str(), &line.points));
        ours.chain(papers)
    };
    let mut xs: Vec<f64> = series()
        .flat_map(|(_, _, points)| points.iter().map(|p| p[0]))
        .collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    if xs.len() > 24 {
        return String::new();
    }
    let mut text = format!(
        "<table><tr><th>{}</th><th></th>",
        escape(&outcome.axes[0].label)
    );
    for x in &xs {
        let _ = write!(text, "<th>{}</th>", number(*x));
    }
    text += "</tr>\n";
    for name in outcome.names() {
        for (arm, _, points) in series().filter(|(_, other, _)| *other == name) {
            let arm = arm.map_or("the paper", Arm::title);
            let _ = write!(text, "<tr><td>{}</td><td>{arm}</td>", escape(name));
            for x in &xs {
                let found = points.iter().find(|point| point[0] == *x);
                let cell = found.map_or(String::new(), |point| number(point[1]));
                let _ = write!(text, "<td>{cell}</td>");
            }
            text += "</tr>\n";
        }
    }
    text + "</table>\n"
}

/// What a folder holds of a figure; nothing if there is no file.
///
/// # Errors
/// When the file is there and cannot be read.
pub(super) fn read(folder: &Path, id: &str) -> Result<Option<Outcome>, FigureError> {
    let path = folder.join(format!("{id}.json"));
    let failed = |why: String| FigureError::Unreadable {
        path: path.clone(),
        why,
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| failed(error.to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Writes `index.html`: every figure that the folder holds, in the order of [`all`]. Gives what is there and cannot be read,
/// and so is not on it.
///
/// # Errors
/// When it cannot be written.
pub fn gallery(folder: &Path) -> Result<Vec<FigureError>, FigureError> {
    let (mut outcomes, mut unreadable) = (Vec::new(), Vec::new());
    for figure in all() {
        match read(folder, figure.id) {
            Ok(outcome) => outcomes.extend(outcome),
            Err(error) => unreadable.push(error),
        }
    }
    let path = folder.join("index.html");
    match write_whole(&path, index(&outcomes).as_bytes()) {
        Ok(()) => Ok(unreadable),
        Err(source) => Err(FigureError::File { path, source }),
    }
}

fn index(outcomes: &[Outcome]) -> String {
    let mut text = head("Figures of the papers, made anew")
        + "<h1>Figures of the papers, made anew</h1>\n\
           <p>Each is made by the one command beside it. Panels are arms: our stack in the simulator, our \
           stack on real packets, the Linux kernel's in the same network; the same line has the same colour everywhere.</p>\n<ul>";
    for outcome in outcomes {
        let (held, count) = (
            outcome
                .findings
                .iter()
                .filter(|finding| finding.holds)
                .count(),
            outcome.findings.len(),
        );
        let _ = writeln!(
            text,
            "<li><a href=\"#{0}\">{0}</a> {1}: {held} of {count}</li>",
            escape(&outcome.id),
            escape(&outcome.title)
        );
    }
    text += "</ul>\n";
    for outcome in outcomes {
        let _ = writeln!(
            text,
            "<section id=\"{0}\"><h2>{0}: {1}</h2>\n{2}\n{3}\n{4}</section>",
            escape(&outcome.id),
            escape(&outcome.title),
            origin(outcome),
            draw::svg(outcome),
            sides(outcome)
        );
    }
    text + "</body></html>\n"
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::made_up;
    use super::*;

    #[test]
    fn a_figure_is_written_whole_and_found_by_the_gallery() {
        let folder = tempfile::tempdir().expect("a place for temporary files");
        let outcome = Outcome {
            id: "nsdi-4a".to_owned(),
            ..made_up()
        };
        outcome.write(folder.path()).expect("a folder of our own");
        std::fs::write(folder.path().join("nsdi-8.json"), "{\"id\":null}").expect("our own");
        let unreadable = gallery(folder.path()).expect("a folder of our own");
        let [error] = unreadable.as_slice() else {
            panic!("{unreadable:?}");
        };
        assert!(error.to_string().contains("nsdi-8.json"), "{error}");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("written");
        let page = read("nsdi-4a.html");
        assert!(page.contains("a &lt;title&gt;") && page.contains("0.31 times"));
        assert!(page.contains("<code>manypath lab figure made-up --quick</code>"));
        assert!(page.contains("the paper</td>") && page.contains("Linux kernel"));
        assert!(read("index.html").contains("1 of 2"));
        let picture = std::fs::read(folder.path().join("nsdi-4a.png")).expect("written");
        assert!(picture.starts_with(b"\x89PNG"));
    }
}
