//! The table at the end: how often each box was met, and what became of Multipath TCP there.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::Outcome;

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Multipath TCP to the end, on every subflow that it opened.
    Kept,
    /// Multipath TCP to the end, but something ended a subflow before.
    LostSubflow,
    /// It went on as plain TCP or with an infinite mapping.
    FellBack,
    /// Plain TCP did not deliver, Multipath TCP did.
    OnlyOurs,
    /// Neither of them delivered.
    Neither,
    /// It ended early at both ends, where RFC 8684 section 3.7 has no way on.
    NoWayOn,
    /// Something is wrong.
    Failed,
}

impl Fate {
    /// The fate of a pair of runs.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        let twin = &outcome.twin;
        let (Ok(tcp), Ok(ours), None) = (&twin.tcp, &twin.ours, &twin.fault) else {
            return Self::Failed;
        };
        if twin.no_way_on {
            return Self::NoWayOn;
        }
        match (tcp.whole, ours.whole) {
            (None, None) => Self::Neither,
            (None, Some(_)) => Self::OnlyOurs,
            (Some(_), _) if ours.fell_back => Self::FellBack,
            (Some(_), _) if ours.lost_subflows > 0 => Self::LostSubflow,
            (Some(_), _) => Self::Kept,
        }
    }
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the words are those of `Fate`")]
pub struct Row {
    pub kept: u64,
    pub lost_subflow: u64,
    pub fell_back: u64,
    pub only_ours: u64,
    pub neither: u64,
    pub no_way_on: u64,
    pub failed: u64,
}

impl Row {
    fn add(&mut self, fate: Fate) {
        let place = match fate {
            Fate::Kept => &mut self.kept,
            Fate::LostSubflow => &mut self.lost_subflow,
            Fate::FellBack => &mut self.fell_back,
            Fate::OnlyOurs => &mut self.only_ours,
            Fate::Neither => &mut self.neither,
            Fate::NoWayOn => &mut self.no_way_on,
            Fate::Failed => &mut self.failed,
        };
        *place += 1;
    }

    /// Runs in all.
    #[must_use]
    pub const fn met(&self) -> u64 {
        let Self {
            kept,
            lost_subflow,
            fell_back,
            only_ours,
            neither,
            no_way_on,
            failed,
        } = *self;
        kept + lost_subflow + fell_back + only_ours + neither + no_way_on + failed
    }
}

/// What many seeds came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Table {
    /// All runs.
    pub all: Row,
    /// Runs that no box touched.
    pub no_box: Row,
    /// By the name of the box, the runs that met one.
    pub boxes: BTreeMap<&'static str, Row>,
    /// Runs that would not do, but with other losses, or without what happened on the path of TCP when that was done.
    pub unlucky: u64,
}

impl Table {
    /// Adds a seed.
    pub fn add(&mut self, outcome: &Outcome) {
        let fate = Fate::of(outcome);
        self.all.add(fate);
        self.unlucky += u64::from(outcome.twin.unlucky);
        let names = boxes(outcome);
        if names.is_empty() {
            self.no_box.add(fate);
        }
        for name in names {
            self.boxes.entry(name).or_default().add(fate);
        }
    }
}

/// The names of the boxes that touched a packet of the run as planned, each once.
fn boxes(outcome: &Outcome) -> Vec<&'static str> {
    let boxes = outcome.twin.ours.iter().flat_map(|arm| &arm.report.boxes);
    let mut names: Vec<_> = boxes
        .filter(|report| report.touched > 0)
        .map(|report| report.kind)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .boxes
            .keys()
            .map(|name| name.len())
            .max()
            .unwrap_or(0)
            .max(8);
        writeln!(
            f,
            "{:width$}  {:>7} {:>9} {:>12} {:>9} {:>9} {:>9} {:>9} {:>7}",
            "box",
            "met",
            "kept",
            "lost subflow",
            "fell back",
            "TCP dead",
            "both dead",
            "no way on",
            "failed"
        )?;
        let mut line = |name: &str, row: &Row| {
            let Row {
                kept,
                lost_subflow,
                fell_back,
                only_ours,
                neither,
                no_way_on,
                failed,
            } = row;
            writeln!(
                f,
                "{name:width$}  {:>7} {kept:>9} {lost_subflow:>12} {fell_back:>9} {only_ours:>9} {neither:>9} {no_way_on:>9} {failed:>7}",
                row.met()
            )
        };
        line("no box", &self.no_box)?;
        for (name, row) in &self.boxes {
            line(name, row)?;
        }
        line("all", &self.all)
    }
}
