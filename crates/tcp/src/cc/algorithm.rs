//! The names of the algorithms.

use core::fmt;
use core::str::FromStr;

use super::CustomCongestion;

/// Which algorithm governs congestion avoidance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 5681 with appropriate byte counting (RFC 3465).
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// The linked increases of RFC 6356, coupled over the subflows of a connection.
    Lia,
    /// Opportunistic linked increases (draft-khalili-mptcp-congestion-control-05), coupled.
    Olia,
    /// Balanced linked adaptation (draft-walid-mptcp-congestion-control-04), coupled.
    Balia,
    /// Weighted Vegas (draft-xu-mptcp-congestion-control-05), coupled, by delay.
    WVegas,
    /// BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr,
    /// One from outside of this crate.
    Custom(&'static CustomCongestion),
}

impl Algorithm {
    /// Every algorithm of this crate, for lists in help texts.
    pub const ALL: &'static [Self] = &[
        Self::Reno,
        Self::Cubic,
        Self::Lia,
        Self::Olia,
        Self::Balia,
        Self::WVegas,
        Self::Bbr,
    ];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Lia => "lia",
            Self::Olia => "olia",
            Self::Balia => "balia",
            Self::WVegas => "wvegas",
            Self::Bbr => "bbr",
            Self::Custom(custom) => custom.name(),
        }
    }

    /// Its subflows share what one TCP would get.
    pub const fn is_coupled(self) -> bool {
        match self {
            Self::Lia | Self::Olia | Self::Balia | Self::WVegas => true,
            Self::Reno | Self::Cubic | Self::Bbr => false,
            Self::Custom(custom) => custom.is_coupled(),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An algorithm of that name does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm;

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown congestion control; there are:")?;
        Algorithm::ALL
            .iter()
            .try_for_each(|known| write!(f, " {known}"))
    }
}

impl core::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|known| known.name() == name)
            .ok_or(UnknownAlgorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn names_are_read_as_they_are_written() {
        for &algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert!(UnknownAlgorithm.to_string().contains(algorithm.name()));
        }
        assert_eq!("vegas9".parse::<Algorithm>(), Err(UnknownAlgorithm));
    }
}
