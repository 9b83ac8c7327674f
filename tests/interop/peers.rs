//! Peers that speak no Multipath TCP, or do not want to: plain TCP, and the same bytes.

use manypath_tests::net::{Family, Net, Own};
use manypath_tests::pair::{Plan, ROLES, Role, Route};
use manypath_tests::peer::Speaks;
use manypath_tests::transfer::{both_ways, finish};

use Family::{V4, V6};

const BYTES: u64 = 20_000_000;

fn plain(net: &Net, role: Role, plan: Plan) {
    let before = net.counters();
    let mut route = Route::open(net, role, plan);
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, BYTES);
    let conn = route.program.connection();
    assert_eq!(conn.level, "plain-tcp", "{conn:?}");
    assert_eq!(conn.subflows.len(), 1);
    // Each end of the stream is told on its own, as TCP's.
    finish(&ends.ours, &ends.kernel);
    drop(ends);
    route.program.wait_until_idle();
    let grown = net.counters().since(&before);
    assert_eq!(grown.get("MPTcpExtMPCapableACKRX"), None, "{grown:?}");
    let said = route.program.interrupt();
    assert!(said.contains("1 connections (1 to the end"), "{said}");
}

#[test]
fn a_peer_that_knows_only_tcp() {
    let Some(net) = Net::new(2) else { return };
    for role in ROLES {
        for families in [[V4, V4], [V6, V4]] {
            let plan = Plan {
                kernel: Speaks::Tcp,
                ..Plan::new(&families)
            };
            plain(&net, role, plan.clone());
            plain(
                &net,
                role,
                Plan {
                    own: Own::Shared,
                    ..plan
                },
            );
        }
    }
}

#[test]
fn a_peer_whose_multipath_tcp_is_switched_off() {
    let Some(net) = Net::new(2) else { return };
    net.kernel
        .sysctl("net.mptcp.enabled", "0")
        .expect("it has Multipath TCP");
    for role in ROLES {
        // Where it is off there are only sockets of TCP.
        let plan = Plan {
            kernel: Speaks::Tcp,
            ..Plan::new(&[V4, V4])
        };
        plain(&net, role, plan);
    }
}

/// The harness itself: the same test with the kernel at both ends.
#[test]
fn the_kernel_understands_itself() {
    let Some(net) = Net::new(1) else { return };
    for role in ROLES {
        let before = net.counters();
        let plan = Plan {
            engine: "kernel-mptcp",
            own: Own::Shared,
            ..Plan::new(&[V4])
        };
        let route = Route::open(&net, role, plan);
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, BYTES);
        finish(&ends.ours, &ends.kernel);
        let grown = net.counters().since(&before);
        let counter = match role {
            Role::Client => "MPTcpExtMPCapableSYNRX",
            Role::Server => "MPTcpExtMPCapableSYNACKRX",
        };
        assert_eq!(grown.get(counter), Some(&1), "{grown:?}");
    }
}
