//! `manypath lab list` and `manypath lab figure`.

use std::path::Path;

use manypath_lab::figure::{self, Figure, FigureError, Options, Outcome};

use crate::commands::{namespace_failure, print_json, print_text};
use crate::exit::{Code, Failure};
use crate::figure_args::{FigureArgs, ListArgs};
use crate::runtime::{say, say_always};

/// Names the figures, or tells of one.
pub(crate) fn list(args: &ListArgs) -> Result<(), Failure> {
    if args.json {
        return match &args.id {
            None => print_json(&figure::all().map(told).collect::<Vec<_>>()),
            Some(id) => print_json(&told(find(id)?)),
        };
    }
    let Some(id) = &args.id else {
        return print_text(&figure::all().map(line).collect::<String>());
    };
    print_text(&details(find(id)?))
}

fn line(figure: &Figure) -> String {
    let arms: Vec<&str> = figure.arms().iter().map(|arm| arm.name()).collect();
    format!("{:<11} {} ({})\n", figure.id, figure.title, arms.join(", "))
}

/// What is told of a figure, for programs.
fn told(figure: &Figure) -> serde_json::Value {
    let arms = |arms: &[figure::Arm]| arms.iter().map(|arm| arm.name()).collect::<Vec<_>>();
    let knob = |knob: &figure::Knob| serde_json::json!({"name": knob.name, "value": knob.value, "quick": knob.quick, "about": knob.about});
    let line =
        |line: &figure::Line| serde_json::json!({"name": line.name, "arms": arms(line.arms)});
    serde_json::json!({
        "id": figure.id,
        "title": figure.title,
        "source": figure.source,
        "paper": figure.paper.says,
        "arms": arms(&figure.arms()),
        "parameters": figure.knobs.iter().map(knob).collect::<Vec<_>>(),
        "lines": figure.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn details(figure: &Figure) -> String {
    let mut text = format!("{}: {}\n{}\n\n", figure.id, figure.title, figure.source);
    text += &format!("the paper: {}\n\nparameters:\n", figure.paper.says);
    for knob in figure.knobs {
        let quick = if knob.quick == knob.value {
            String::new()
        } else {
            format!(" ({} with --quick)", knob.quick)
        };
        text += &format!(
            "  {:<12} {:<10} {}{quick}\n",
            knob.name, knob.value, knob.about
        );
    }
    text += "\nlines:\n";
    for line in figure.lines {
        let arms: Vec<&str> = line.arms.iter().map(|arm| arm.name()).collect();
        text += &format!("  {:<32} {}\n", line.name, arms.join(", "));
    }
    text
}

fn find(id: &str) -> Result<&'static Figure, Failure> {
    figure::find(id).ok_or_else(|| {
        Failure::usage(format!("there is no figure {id}")).hint("`manypath lab list` shows all")
    })
}

/// The figures that are asked for: all of them that have the arm, where all are.
fn wanted(args: &FigureArgs) -> Result<Vec<&'static Figure>, Failure> {
    let named = args.ids.iter().filter(|id| *id != "all");
    let named: Vec<&'static Figure> = named.map(|id| find(id)).collect::<Result<_, _>>()?;
    if args.ids.iter().any(|id| id == "all") {
        let has = |figure: &&Figure| figure.arms().iter().any(|arm| args.arm.has(*arm));
        return Ok(figure::all().filter(has).collect());
    }
    Ok(named)
}

/// Makes them. It may replace this process, so it comes before any thread.
pub(crate) fn run(args: &FigureArgs, quiet: bool) -> Result<(), Failure> {
    let figures = wanted(args)?;
    let options = Options {
        arms: args.arm,
        quick: args.quick,
        jobs: args.jobs,
        set: args.set.clone(),
        sweep: args.sweep.clone(),
        keep: args.out.clone(),
        fresh: args.fresh,
        quiet,
        program: None,
    };
    let outcomes = figure::make(&figures, &options).map_err(failure)?;
    // A full disk costs no table, and a reader that went away no file.
    let printed = outcomes.iter().try_for_each(|outcome| match args.json {
        true => print_json(outcome),
        false => print_text(&(outcome.table() + "\n")),
    });
    if let Some(folder) = &args.out {
        write(folder, &outcomes)?;
    }
    printed?;
    if outcomes.iter().any(|outcome| outcome.interrupted) {
        return Err(Failure::stopped(""));
    }
    super::lab::verdict(
        outcomes.iter().all(|outcome| outcome.failures.is_empty()),
        "some runs failed",
    )
}

/// Writes what came out into a folder, and the page of everything that is there.
fn write(folder: &Path, outcomes: &[Outcome]) -> Result<(), Failure> {
    for outcome in outcomes {
        if outcome.belongs_in(folder) {
            outcome.write(folder).map_err(failure)?;
        } else if !outcome.series.is_empty() {
            let id = &outcome.id;
            say(&format!(
                "manypath: {id} was stopped; {} keeps the one that it has",
                folder.display()
            ));
        }
    }
    for unreadable in figure::gallery(folder).map_err(failure)? {
        say_always(&format!("manypath: not in index.html: {unreadable}"));
    }
    Ok(())
}

fn failure(error: FigureError) -> Failure {
    let message = error.to_string();
    match error {
        FigureError::Knob(_) | FigureError::Arm { .. } => {
            Failure::usage(message).hint("`manypath lab list ID` shows parameters and arms")
        }
        FigureError::NoFolder(_) => Failure::usage(message)
            .hint("name another one with --out; it is made if it is not there"),
        FigureError::Network(error) => namespace_failure(&error),
        FigureError::Unreadable { .. } => Failure::new(Code::Failure, message),
        FigureError::Program(source) => Failure::from_io(message, source.kind()),
        FigureError::File { path, source } => Failure::file(&path, &source),
    }
}
