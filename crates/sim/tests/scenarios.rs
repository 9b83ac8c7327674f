//! The shipped scenarios come out as they say, and each gives the same record twice.

use std::path::Path;

use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions};

fn run(text: &str, options: RunOptions) -> Report {
    let scenario = Scenario::parse(text).expect("shipped scenarios are well-formed");
    manypath_sim::replay(scenario, options).expect("shipped scenarios make sense")
}

#[test]
fn shipped_scenarios_come_out_as_expected_and_repeat() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let folders = [folder.join("regressions"), folder];
    let mut files: Vec<_> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).expect("the folder is in the repository"))
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    assert!(files.len() >= 8, "only {} scenarios", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        let report = run(&text, RunOptions::default());
        assert!(report.is_good(), "{}:\n{report}", file.display());
        let again = run(&text, RunOptions::default());
        assert_eq!(report.hash, again.hash, "{}", file.display());
    }
}
