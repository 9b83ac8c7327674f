//! The arms of a figure: whose stack talks, over what.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Whose stack talks, over what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Our stack in the simulator, in virtual time.
    Sim,
    /// Our code in this process, measured by the clock; ratios count.
    Process,
    /// Our stack on real packets, between namespaces.
    Real,
    /// The Linux kernel's stack in the same namespaces.
    Kernel,
}

impl Arm {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Sim, Self::Process, Self::Real, Self::Kernel];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Process => "process",
            Self::Real => "real",
            Self::Kernel => "kernel",
        }
    }

    /// What it is, for the head of a panel.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sim => "ours, simulated",
            Self::Process => "ours, in one process",
            Self::Real => "ours, real packets",
            Self::Kernel => "Linux kernel, real packets",
        }
    }

    /// It needs network namespaces.
    #[must_use]
    pub const fn needs_namespaces(self) -> bool {
        matches!(self, Self::Real | Self::Kernel)
    }
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which arms are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arms {
    /// Those that a figure has.
    #[default]
    All,
    /// One.
    One(Arm),
}

impl Arms {
    /// Whether this one is.
    #[must_use]
    pub fn has(self, arm: Arm) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == arm,
        }
    }
}

impl FromStr for Arms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::All);
        }
        let arm = Arm::ALL.into_iter().find(|arm| arm.name() == text);
        arm.map(Self::One)
            .ok_or_else(|| format!("'{text}' is no arm: sim, process, real, kernel or all"))
    }
}
