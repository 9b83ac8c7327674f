//! Which boxes the table has, read from a file in the words of the scenarios.

use manypath_sim::middlebox::BoxSpec;
use manypath_sim::scenario::units::{Percent, Size, Span};
use manypath_sim::scenario::{PlacedBox, Scenario};
use serde::Deserialize;

/// One box, or a chain of them, and what it takes to meet it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// Its name in the table.
    pub name: String,
    /// What it does, for people.
    #[serde(default)]
    pub about: String,
    /// The boxes, nearest to the client first.
    #[serde(rename = "box")]
    pub chain: Vec<PlacedBox>,
    /// It belongs to the quick table.
    #[serde(default)]
    pub quick: bool,
    /// How long the applications are silent in the middle.
    pub pause: Option<Span>,
    /// Bytes each way, where the usual amount is too little or too much.
    pub bytes: Option<Size>,
    /// Both ends use Multipath TCP's own checksum, for boxes that change payload. Not for all: Linux 6.18 may divide by
    /// zero and lock up the process when its Multipath TCP repeats data with checksums on another subflow.
    #[serde(default)]
    pub checksum: bool,
    /// Chance that the lines of the box's path lose a packet.
    pub loss: Option<Percent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

/// All cases of the table.
///
/// # Panics
/// Never: the file is part of the program, and a test reads it.
#[must_use]
pub fn cases() -> Vec<Case> {
    let file: File = toml::from_str(include_str!("cases.toml")).expect("a test reads it");
    file.case
}

impl Case {
    /// The word names this case: its own name, or the kind of one of its boxes.
    #[must_use]
    pub fn is_called(&self, word: &str) -> bool {
        self.name == word || self.chain.iter().any(|placed| placed.spec.kind() == word)
    }

    /// What a box of the chain looks for in the payload, and what it writes instead.
    pub(super) fn rewrites(&self) -> Option<[&str; 2]> {
        self.chain.iter().find_map(|placed| match &placed.spec {
            BoxSpec::Rewrite(spec) => Some([spec.find.as_str(), spec.replace.as_str()]),
            _ => None,
        })
    }
}

/// The chains of a scenario's links, each as a case with the link's name. The first end of a link is the client's.
#[must_use]
pub fn of_scenario(scenario: &Scenario) -> Vec<Case> {
    let links = scenario.links.iter().filter(|link| !link.boxes.is_empty());
    links
        .map(|link| Case {
            name: link.name.clone(),
            about: String::new(),
            chain: link.boxes.clone(),
            quick: true,
            pause: None,
            bytes: None,
            loss: None,
            checksum: link.boxes.iter().any(|placed| placed.spec.rewrites()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_box_is_in_the_table() {
        let cases = cases();
        for spec in BoxSpec::all() {
            assert!(
                cases.iter().any(|case| case.is_called(spec.kind())),
                "{} is missing",
                spec.kind()
            );
        }
        let mut names: Vec<_> = cases.iter().map(|case| &case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), cases.len(), "names are used once");
        assert!(cases.iter().all(|case| !case.about.is_empty()));
        assert!(cases.iter().any(|case| case.quick));
        for case in cases {
            let rewrites = case.chain.iter().any(|placed| placed.spec.rewrites());
            assert_eq!(case.checksum, rewrites, "{}", case.name);
        }
    }
}
