//! `manypath lab list` and `manypath lab figure`.

use manypath_lab::figure::{self, FigureError};

use crate::args::FigureArgs;
use crate::commands::{print_json, print_text};
use crate::exit::{Code, Failure};

/// Names the figures.
pub(crate) fn list() -> Result<(), Failure> {
    let line = |figure: &figure::Figure| format!("{:<10} {}\n", figure.id, figure.title);
    print_text(&figure::all().iter().map(line).collect::<String>())
}

/// Makes one.
pub(crate) fn run(args: &FigureArgs) -> Result<(), Failure> {
    let figure = figure::find(&args.id).ok_or_else(|| {
        Failure::usage(format!("there is no figure {}", args.id))
            .hint("`manypath lab list` shows all")
    })?;
    let outcome = figure::run(figure, args.quick, args.jobs)
        .map_err(|error| Failure::usage(error.to_string()))?;
    if let Some(folder) = &args.out {
        outcome.write(folder).map_err(|error| match &error {
            FigureError::File { path, source } => Failure::file(path, source),
            FigureError::Run { .. } => Failure::usage(error.to_string()),
        })?;
    }
    if args.json {
        print_json(&outcome)?;
    } else {
        print_text(&outcome.table())?;
    }
    match outcome.interrupted {
        true => Err(Failure::new(Code::Interrupted, "interrupted")),
        false => Ok(()),
    }
}
