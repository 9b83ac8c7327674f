//! Which paths are wanted: those that are named, those with a default route, and none of some interfaces.

use super::{HostPath, Missing, PathSpec, Renames, select};
use crate::netlink::Snapshot;

/// The paths that a stack is to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those that are named.
    pub specs: Vec<PathSpec>,
    /// Beside them, every interface with a default route. That is so anyway where none is named.
    pub routed: bool,
    /// Interfaces that are not used at all at present, named or not.
    pub unused: Vec<String>,
}

impl Wanted {
    /// The paths that the host has of these, in the order of preference: as they are named, and by the metrics of their default routes where
    /// those with one are wanted besides. Pure but for the names, which `renames` keeps.
    pub(crate) fn select(
        &self,
        renames: &mut Renames,
        host: &Snapshot,
    ) -> (Vec<HostPath>, Vec<Missing>) {
        let specs = renames.follow(&self.specs, host);
        let (mut paths, missing) = select(&specs, host);
        if self.routed && !specs.is_empty() {
            let named = |path: &HostPath| specs.iter().any(|spec| spec.iface == path.iface);
            let (others, _) = select(&[], host);
            paths.extend(others.into_iter().filter(|path| !named(path)));
            paths.sort_by_key(|path| host.metric(path.index, path.addr));
        }
        (paths, missing)
    }

    /// Takes those out that are not to be used.
    pub(crate) fn leave_out(
        &self,
        renames: &mut Renames,
        host: &Snapshot,
        paths: &mut Vec<HostPath>,
    ) {
        for name in &self.unused {
            let now = renames.name_now(name, host);
            paths.retain(|path| path.iface != now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Address, DefaultRoute, Interface};

    /// `wwan0` without a default route, `eth0` with one, `wlan0` with a better one.
    fn host() -> Snapshot {
        let interface = |index: u32, name: &str| Interface {
            index,
            name: name.to_owned(),
            mac: None,
            bare: false,
            mtu: 1500,
            up: true,
            loopback: false,
        };
        let address = |index: u32| Address {
            index,
            addr: std::net::Ipv4Addr::new(10, 0, 0, index as u8).into(),
            prefix: 24,
            global: true,
            usable: true,
            deprecated: false,
        };
        let route = |index: u32, metric: u32| DefaultRoute {
            index,
            ipv6: false,
            gateway: None,
            metric,
        };
        Snapshot {
            interfaces: vec![
                interface(2, "eth0"),
                interface(3, "wlan0"),
                interface(4, "wwan0"),
            ],
            addresses: vec![address(2), address(3), address(4)],
            defaults: vec![route(2, 100), route(3, 50)],
            ..Snapshot::default()
        }
    }

    #[test]
    fn named_paths_are_beside_those_with_a_default_route_or_alone() {
        let spec = |name: &str| name.parse::<PathSpec>().expect("well-formed");
        for (specs, routed, unused, found) in [
            (vec![], false, None, &["wlan0", "eth0"][..]),
            (vec![], true, None, &["wlan0", "eth0"]),
            (vec![spec("wwan0,backup")], false, None, &["wwan0"]),
            (
                vec![spec("wwan0,backup")],
                true,
                None,
                &["wlan0", "eth0", "wwan0"],
            ),
            (vec![spec("eth0,backup")], true, None, &["wlan0", "eth0"]),
            (vec![spec("eth0")], true, Some("eth0"), &["wlan0"]),
            (vec![], true, Some("wlan0"), &["eth0"]),
            (vec![], true, Some("none"), &["wlan0", "eth0"]),
        ] {
            let wanted = Wanted {
                specs,
                routed,
                unused: unused.into_iter().map(str::to_owned).collect(),
            };
            let (mut renames, host) = (Renames::default(), host());
            let (mut paths, missing) = wanted.select(&mut renames, &host);
            wanted.leave_out(&mut renames, &host, &mut paths);
            let names: Vec<&str> = paths.iter().map(|path| path.iface.as_str()).collect();
            assert_eq!(names, found, "{wanted:?}");
            assert!(missing.is_empty());
            let named = paths.iter().filter(|path| path.backup);
            assert_eq!(
                named.count(),
                wanted.specs.iter().filter(|s| s.backup).count()
            );
        }
    }
}
