//! Limits of paths as a configuration has them, for interfaces that are there and for those that come.

use manypath_stack::{IfaceId, RateLimit};
use serde::Serialize;

use super::order::{MTU, limit};

/// A limit of what leaves by an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathLimit {
    /// As the configuration calls it.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Bits of IP packets a second.
    pub up: u64,
    /// Bytes that may leave at once after a pause; without it, what 20 ms bring.
    pub burst: Option<u64>,
}

/// Which limits were wanted, and which the stack was told of.
#[derive(Debug, Default)]
pub(super) struct Paths {
    wanted: Vec<PathLimit>,
    told: Vec<(IfaceId, RateLimit)>,
    /// All are to be told again: what was changed by hand holds until a configuration is put in force.
    renewed: bool,
}

impl Paths {
    /// Other limits are wanted from now on.
    pub(super) fn set(&mut self, limits: &[PathLimit]) {
        self.wanted = limits.to_vec();
        self.renewed = true;
    }

    /// What has to be told for these interfaces. What was told once may have been changed since, and is not told again.
    pub(super) fn follow(
        &mut self,
        found: &[(IfaceId, String)],
    ) -> Vec<(IfaceId, Option<RateLimit>)> {
        let wanted = |(iface, name): &(IfaceId, String)| {
            let limit_of = self.wanted.iter().find(|limit| limit.interface == *name)?;
            Some((*iface, limit(limit_of.up, limit_of.burst, MTU)))
        };
        let now: Vec<(IfaceId, RateLimit)> = found.iter().filter_map(wanted).collect();
        let renewed = std::mem::take(&mut self.renewed);
        let is_new = |told: &&(IfaceId, RateLimit)| renewed || !self.told.contains(told);
        let new = now.iter().filter(is_new);
        let mut changes: Vec<_> = new.map(|(iface, limit)| (*iface, Some(*limit))).collect();
        let gone = self.told.iter().map(|(iface, _)| *iface);
        let gone = gone.filter(|iface| !now.iter().any(|(other, _)| other == iface));
        changes.extend(gone.map(|iface| (iface, None)));
        self.told = now;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(up: u64) -> PathLimit {
        PathLimit {
            name: "lte".into(),
            interface: "wwan0".into(),
            up,
            burst: None,
        }
    }

    #[test]
    fn an_interface_gets_its_limit_once_and_when_it_comes_back() {
        let mut paths = Paths::default();
        let there = [
            (IfaceId(2), "eth0".to_owned()),
            (IfaceId(3), "wwan0".to_owned()),
        ];
        assert_eq!(paths.follow(&there), []);
        paths.set(&[wants(1_000_000)]);
        let limit = RateLimit::new(1_000_000, MTU);
        assert_eq!(paths.follow(&there), [(IfaceId(3), Some(limit))]);
        assert_eq!(paths.follow(&there), []);
        paths.set(&[wants(1_000_000)]);
        assert_eq!(paths.follow(&there), [(IfaceId(3), Some(limit))]);
        assert_eq!(paths.follow(&there[..1]), [(IfaceId(3), None)]);
        let back = [(IfaceId(7), "wwan0".to_owned())];
        assert_eq!(paths.follow(&back), [(IfaceId(7), Some(limit))]);
    }

    #[test]
    fn a_limit_that_is_not_wanted_any_more_ends() {
        let mut paths = Paths::default();
        let there = [(IfaceId(3), "wwan0".to_owned())];
        paths.set(&[wants(8)]);
        assert_eq!(paths.follow(&there).len(), 1);
        paths.set(&[]);
        assert_eq!(paths.follow(&there), [(IfaceId(3), None)]);
    }
}
