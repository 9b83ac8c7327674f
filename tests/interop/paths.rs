//! Subflows that come about in the middle of a connection, and many of them.

use std::net::SocketAddr;
use std::time::Instant;

use manypath_tests::net::{Family, Net, Own};
use manypath_tests::pair::{Plan, Role, Route};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::Program;
use manypath_tests::transfer::{both_ways, finish};
use manypath_tests::until::{wait_for, wait_until};

use Family::V4;

/// The kernel is told of another address while the connection lasts, and announces it: we join there.
#[test]
fn an_address_that_the_kernel_announces_later_is_joined() {
    let Some(net) = Net::new(2) else { return };
    let mut route = Route::open(&net, Role::Client, Plan::new(&[V4]));
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    assert_eq!(route.program.connection().subflows.len(), 1);
    let before = net.counters();
    // On the same cable: our side has no other here.
    net.kernel
        .ip(["addr add 10.77.1.99/24 dev v1"])
        .expect("the address is free");
    net.add_endpoint("10.77.1.99".parse().expect("an address"), 1, "signal");
    route.wait_for_subflows(2);
    let conn = route.program.connection();
    let joined = |s: &manypath_control::report::SubflowReport| {
        s.remote == Some(SocketAddr::new([10, 77, 1, 99].into(), 5000))
    };
    assert!(conn.subflows.iter().any(joined), "{:?}", conn.subflows);
    wait_for("the kernel to count the join", || {
        let grown = net.counters().since(&before);
        (grown.get("MPTcpExtMPJoinAckRx") == Some(&1)).then_some(())
    });
    let grown = net.counters().since(&before);
    assert_eq!(grown.get("MPTcpExtEchoAdd"), Some(&1), "{grown:?}");
    both_ways(&ends.ours, &ends.kernel, 5_000_000);
    finish(&ends.ours, &ends.kernel);
}

/// No more than the rate leaves by a path, from the first byte on; what comes is not limited.
#[test]
fn a_path_with_a_rate_sends_no_faster() {
    let Some(net) = Net::new(1) else { return };
    let plan = Plan {
        rate: Some("20mbit"),
        ..Plan::new(&[V4])
    };
    let route = Route::open(&net, Role::Client, plan);
    let ends = route.join();
    let begin = Instant::now();
    both_ways(&ends.ours, &ends.kernel, 4_000_000);
    let seconds = begin.elapsed().as_secs_f64();
    // A burst of 20 ms, and what relay and sockets of the host still hold.
    assert!(4e6 * 8.0 <= 20e6 * (seconds + 0.02), "{seconds} s");
    finish(&ends.ours, &ends.kernel);
}

/// The kernel's client is told to use another address of its own: it joins us from there.
#[test]
fn the_kernel_joins_us_from_an_address_that_it_gets_later() {
    let Some(net) = Net::new(2) else { return };
    let mut route = Route::open(&net, Role::Server, Plan::new(&[V4]));
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    assert_eq!(route.program.connection().subflows.len(), 1);
    net.kernel
        .ip(["addr add 10.77.1.99/24 dev v1"])
        .expect("the address is free");
    net.add_endpoint("10.77.1.99".parse().expect("an address"), 1, "subflow");
    route.wait_for_subflows(2);
    let conn = route.program.connection();
    let is_late = |s: &manypath_control::report::SubflowReport| {
        s.remote.is_some_and(|r| r.ip().to_string() == "10.77.1.99")
    };
    assert!(conn.subflows.iter().any(is_late), "{:?}", conn.subflows);
    both_ways(&ends.ours, &ends.kernel, 5_000_000);
    finish(&ends.ours, &ends.kernel);
}

/// An endpoint that the kernel takes back takes its subflow along; the connection goes on.
#[test]
fn an_address_that_the_kernel_withdraws_is_left() {
    let Some(net) = Net::new(2) else { return };
    net.add_endpoint(Net::kernel_address(V4, 2), 2, "signal");
    let mut route = Route::open(&net, Role::Client, Plan::new(&[V4, V4]));
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    let at = |s: &manypath_control::report::SubflowReport| {
        s.remote.map(|r| r.ip()) == Some(Net::kernel_address(V4, 2)) && s.phase == "established"
    };
    wait_until("a subflow to the second address", || {
        let conn = route.program.connection();
        if conn.subflows.iter().any(at) {
            Ok(())
        } else {
            Err(conn.subflows)
        }
    });
    net.kernel
        .ip(["mptcp endpoint flush"])
        .expect("there is one");
    wait_until("the subflow to be gone", || {
        let conn = route.program.connection();
        if conn.subflows.iter().any(at) {
            Err(conn.subflows)
        } else {
            Ok(())
        }
    });
    both_ways(&ends.ours, &ends.kernel, 5_000_000);
    finish(&ends.ours, &ends.kernel);
}

/// Both ends are ours: 64 subflows, eight times the kernel's limit, and every one of them carries data.
#[test]
fn sixty_four_subflows_between_two_of_our_own() {
    const COUNT: usize = 64;
    let Some(net) = Net::new(1) else { return };
    // The other end is ours too: it takes an address of its own in the kernel's namespace.
    let target = peer::listen(
        &net.kernel,
        SocketAddr::new([127, 0, 0, 1].into(), 6000),
        Speaks::Tcp,
    );
    let mut server = Program::forward(
        &net.kernel,
        "mptcp:10.77.1.20:5000",
        "tcp:127.0.0.1:6000",
        ["--path", "v1=10.77.1.20"],
    );
    let mut client = Program::forward(
        &net.ours,
        "tcp:127.0.0.1:6001",
        "mptcp:10.77.1.20:5000",
        [
            "--path",
            &Net::path(V4, Own::Owned, 1),
            "--path-manager",
            "ndiffports=64",
        ],
    );
    let near = peer::connect(
        &net.ours,
        SocketAddr::new([127, 0, 0, 1].into(), 6001),
        Speaks::Tcp,
    )
    .expect("the forwarder listens");
    let far = peer::accept(&target).expect("the forwarder connects");
    both_ways(&near, &far, 1000);
    for program in [&mut client, &mut server] {
        wait_until("64 subflows", || {
            let conn = program.connection();
            let ready = conn.subflows.iter().filter(|s| s.phase == "established");
            match ready.count() {
                COUNT => Ok(()),
                other => Err((other, conn.level, conn.fallback)),
            }
        });
    }
    both_ways(&near, &far, 30_000_000);
    let (here, there) = (client.connection(), server.connection());
    assert_eq!(here.subflows.len(), COUNT);
    assert_eq!(there.subflows.len(), COUNT);
    let carrying = |conn: &manypath_control::report::ConnReport| {
        let used =
            |s: &&manypath_control::report::SubflowReport| s.bytes_sent + s.bytes_received > 0;
        conn.subflows.iter().filter(used).count()
    };
    println!(
        "{} and {} of {COUNT} subflows carried data",
        carrying(&here),
        carrying(&there)
    );
    assert!(carrying(&here) > 1);
    finish(&near, &far);
    drop((near, far));
    client.wait_until_idle();
    server.wait_until_idle();
    for program in [client, server] {
        program.interrupt();
    }
}
