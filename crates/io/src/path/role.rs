//! What each address of the host is used for, and what stays of it when its link or its route is gone.
//!
//! Pure: the paths before, those that are found now, and the host. An address is a path for as long as the host has it: a link
//! that blinks, a route that is replaced and a second address (RFC 8981) end no connection.

use super::{HostPath, PathSpec};
use crate::netlink::Snapshot;

/// What an address is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    Opens,
    /// What is there goes on and what peers open is taken, but no subflow is opened from it: its link has another address, or it
    /// is deprecated (RFC 4862 section 5.5.4).
    Accepts,
    /// Nothing passes at present: no carrier, switched off, or no route. The host has the address still.
    Stalled,
}

/// The paths now: those that are `found`, and those of `before` that only cannot be used at present.
///
/// The address of a link that subflows are opened from stays the same while it is preferred; a new one, which comes every day
/// where addresses are temporary, would make one more subflow of the same link.
#[must_use]
pub(crate) fn follow(
    before: &[HostPath],
    mut found: Vec<HostPath>,
    specs: &[PathSpec],
    host: &Snapshot,
) -> Vec<HostPath> {
    for old in before.iter().filter(|old| old.role == Role::Opens) {
        keep_opening(old, &mut found, specs, host);
    }
    let stalled = before
        .iter()
        .filter(|old| !found.iter().any(|new| same(old, new)));
    let stalled: Vec<HostPath> = stalled
        .filter(|old| is_still_there(old, host))
        .map(|old| HostPath {
            role: Role::Stalled,
            ..old.clone()
        })
        .collect();
    found.extend(stalled);
    found
}

fn same(a: &HostPath, b: &HostPath) -> bool {
    a.index == b.index && a.addr == b.addr
}

/// Gives the role of opening back to the address that had it.
fn keep_opening(old: &HostPath, found: &mut [HostPath], specs: &[PathSpec], host: &Snapshot) {
    let deprecated = host
        .addresses
        .iter()
        .any(|a| a.index == old.index && a.addr == old.addr && a.deprecated);
    let Some(at) = found.iter().position(|new| same(old, new)) else {
        return;
    };
    if deprecated || found[at].role != Role::Accepts {
        return;
    }
    let named = |path: &HostPath| specs.iter().any(|spec| spec.addr == Some(path.addr));
    let other = found.iter().position(|new| {
        new.index == old.index
            && new.addr.is_ipv6() == old.addr.is_ipv6()
            && new.role == Role::Opens
            && !named(new)
    });
    found[at].role = Role::Opens;
    if let Some(other) = other {
        found[other].role = Role::Accepts;
    }
}

/// The host has the address, or the interface where it is ours alone.
fn is_still_there(path: &HostPath, host: &Snapshot) -> bool {
    if path.owned {
        host.interfaces.iter().any(|i| i.index == path.index)
    } else {
        host.addresses
            .iter()
            .any(|a| a.index == path.index && a.addr == path.addr)
    }
}

#[cfg(test)]
mod tests {
    use super::super::select;
    use super::*;
    use crate::neigh::Mac;
    use crate::netlink::{Address, DefaultRoute, Interface};

    fn host(up: bool, addresses: &[(&str, bool)], routed: bool) -> Snapshot {
        let ipv6 = |text: &str| text.contains(':');
        let gateway = |ipv6: bool| if ipv6 { "fd00::9" } else { "10.0.0.9" };
        Snapshot {
            interfaces: vec![Interface {
                index: 2,
                name: "eth0".to_owned(),
                mac: Some(Mac([2, 0, 0, 0, 0, 2])),
                bare: false,
                mtu: 1500,
                up,
                loopback: false,
            }],
            addresses: addresses
                .iter()
                .map(|(text, deprecated)| Address {
                    index: 2,
                    addr: text.parse().expect("a literal"),
                    prefix: if ipv6(text) { 64 } else { 24 },
                    global: true,
                    usable: true,
                    deprecated: *deprecated,
                })
                .collect(),
            routes: Vec::new(),
            ways: Vec::new(),
            defaults: [false, true]
                .into_iter()
                .filter(|_| routed)
                .map(|ipv6| DefaultRoute {
                    index: 2,
                    ipv6,
                    gateway: gateway(ipv6).parse().ok(),
                    metric: 0,
                })
                .collect(),
        }
    }

    fn step(before: &[HostPath], specs: &[&str], host: &Snapshot) -> Vec<HostPath> {
        let specs: Vec<PathSpec> = specs.iter().map(|s| s.parse().expect("a spec")).collect();
        follow(before, select(&specs, host).0, &specs, host)
    }

    fn roles(paths: &[HostPath]) -> Vec<(String, Role)> {
        let role = |p: &HostPath| (p.addr.to_string(), p.role);
        paths.iter().map(role).collect()
    }

    fn is(paths: &[HostPath], wanted: &[(&str, Role)]) {
        let wanted: Vec<_> = wanted.iter().map(|(a, r)| ((*a).to_owned(), *r)).collect();
        assert_eq!(roles(paths), wanted);
    }

    #[test]
    fn an_address_stays_a_path_without_carrier_and_without_route() {
        use Role::{Opens, Stalled};
        for specs in [&["eth0"][..], &[]] {
            let one = [("10.0.0.1", false)];
            let before = step(&[], specs, &host(true, &one, true));
            is(&before, &[("10.0.0.1", Opens)]);
            let dark = step(&before, specs, &host(false, &one, false));
            is(&dark, &[("10.0.0.1", Stalled)]);
            let again = step(&dark, specs, &host(true, &one, true));
            assert_eq!(again, before);
            is(&step(&dark, specs, &host(true, &[], true)), &[]);
        }
        let one = [("10.0.0.1", false)];
        let before = step(&[], &[], &host(true, &one, true));
        is(
            &step(&before, &[], &host(true, &one, false)),
            &[("10.0.0.1", Stalled)],
        );
    }

    #[test]
    fn an_address_that_is_ours_alone_lasts_as_long_as_its_interface() {
        let before = step(&[], &["eth0=10.0.0.7"], &host(true, &[], true));
        assert!(before[0].owned);
        let dark = step(&before, &["eth0=10.0.0.7"], &host(false, &[], true));
        is(&dark, &[("10.0.0.7", Role::Stalled)]);
        let none = Snapshot::default();
        is(&step(&dark, &["eth0=10.0.0.7"], &none), &[]);
    }

    #[test]
    fn a_second_address_is_listened_on_and_nothing_more() {
        use Role::{Accepts, Opens};
        let before = step(&[], &["eth0"], &host(true, &[("fd00::1", false)], true));
        // The kernel lists the newest first.
        let two = [("fd00::2", false), ("fd00::1", false)];
        let more = step(&before, &["eth0"], &host(true, &two, true));
        is(&more, &[("fd00::2", Accepts), ("fd00::1", Opens)]);
        let old = [("fd00::2", false), ("fd00::1", true)];
        let aged = step(&more, &["eth0"], &host(true, &old, true));
        is(&aged, &[("fd00::2", Opens), ("fd00::1", Accepts)]);
        let only = step(&before, &["eth0"], &host(true, &[("fd00::1", true)], true));
        is(&only, &[("fd00::1", Opens)]);
        let named = step(
            &[],
            &["eth0=fd00::1", "eth0=fd00::2"],
            &host(true, &two, true),
        );
        is(&named, &[("fd00::1", Opens), ("fd00::2", Opens)]);
    }
}
