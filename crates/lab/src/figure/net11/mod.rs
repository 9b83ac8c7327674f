//! Figures of "MultiPath TCP: From Theory to Practice", NETWORKING 2011.

mod cost;
mod fairness;
mod paths;

use super::Figure;

/// The figures, in the paper's order.
pub(super) const FIGURES: &[Figure] = &[
    fairness::AMONG_MANY,
    fairness::SUBFLOWS,
    paths::DELAY,
    paths::LOSS,
    cost::MSS,
    cost::SUBFLOWS,
];
