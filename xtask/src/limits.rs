//! Sizes: a file's code part has 800 lines at most (500 wanted), a function 120 (80 wanted).

use crate::check::Findings;
use crate::source::Source;

const FILE_MAX: usize = 800;
const FILE_WANTED: usize = 500;
const FUNCTION_MAX: usize = 120;
const FUNCTION_WANTED: usize = 80;

/// Checks every Rust file; scripts and generated data have no limit.
pub(crate) fn check(sources: &[Source]) -> Findings {
    let mut found = Findings::default();
    for source in sources.iter().filter(|s| s.path.ends_with(".rs")) {
        let lines = source.code_lines();
        if lines > FILE_MAX {
            found.error(format!(
                "{}: {lines} code lines, {FILE_MAX} allowed",
                source.path
            ));
        } else if lines > FILE_WANTED {
            found.warning(format!(
                "{}: {lines} code lines, {FILE_WANTED} wanted",
                source.path
            ));
        }
        for function in source.functions() {
            let (start, end) = (*function.lines.start(), *function.lines.end());
            let lines = end - start + 1;
            let place = format!("{}:{start}: {}", source.path, function.name);
            if lines > FUNCTION_MAX {
                found.error(format!("{place} has {lines} lines, {FUNCTION_MAX} allowed"));
            } else if lines > FUNCTION_WANTED {
                found.warning(format!(
                    "{place} has {lines} lines, {FUNCTION_WANTED} wanted"
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::from_text;

    #[test]
    fn a_long_function_is_refused_and_a_long_test_is_not() {
        let long = "    x();\n".repeat(FUNCTION_MAX);
        let code = from_text("crates/io/src/a.rs", &format!("fn f() {{\n{long}}}\n"));
        assert_eq!(check(&[code]).errors.len(), 1);
        let test = from_text(
            "crates/io/src/a.rs",
            &format!("#[test]\nfn f() {{\n{long}}}\n"),
        );
        assert!(check(&[test]).errors.is_empty());
    }
}
