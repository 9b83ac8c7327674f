//! `manypath undo`.

use crate::commands::print_text;
use crate::exit::Failure;

/// Undoes what dead processes left behind, and shows it.
pub(crate) fn run() -> Result<(), Failure> {
    let undone = manypath_host::clean_up().map_err(|error| {
        Failure::from_io(
            format!("cannot look for what processes left behind: {error}"),
            error.kind(),
        )
    })?;
    let lines: String = undone
        .iter()
        .map(|what| format!("put back: {what}\n"))
        .collect();
    print_text(&lines)
}
