//! Uplinks as they are in life: a modem that is unplugged and plugged in again elsewhere, an address that is leased anew.
//! The program knows its paths by the names of their interfaces, as users write them.

use std::net::{IpAddr, SocketAddr, TcpStream};

use manypath_control::report::SubflowReport;
use manypath_tests::net::{Family, Net, Own};
use manypath_tests::pair::Role;
use manypath_tests::peer::{self, Listener, Speaks};
use manypath_tests::program::Program;
use manypath_tests::transfer::{both_ways, finish, send};
use manypath_tests::until::wait_until;

use Family::V4;

/// What is sent while something happens to a path.
const LEN: u64 = 100 << 20;

const PORT: u16 = 5000;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy)]
enum Way {
    ToKernel,
    FromKernel,
}

const WAYS: [Way; 2] = [Way::ToKernel, Way::FromKernel];

/// One connection by these interfaces. The kernel takes joins only as long as it listens.
struct Connected {
    program: Program,
    ours: TcpStream,
    kernel: TcpStream,
    _listener: Listener,
}

/// A connection between our program, with these interfaces as its paths, and the kernel, which begins on the first of them.
fn connected(net: &Net, role: Role, paths: &[u8]) -> Connected {
    let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let at = |address| format!("mptcp:{}", SocketAddr::new(address, PORT));
    let mut words = Vec::new();
    for n in paths {
        words.extend(["--path".to_owned(), format!("v{n}")]);
    }
    words.extend(["--host-congestion", "cubic"].map(str::to_owned));
    let (program, listener, ours, kernel) = match role {
        Role::Client => {
            let any = SocketAddr::from(([0, 0, 0, 0], PORT));
            let listener = peer::listen(&net.kernel, any, Speaks::Mptcp);
            let local = loopback(peer::free_port(&net.ours));
            let to = at(Net::kernel_address(V4, paths[0]));
            let program = Program::forward(&net.ours, &format!("tcp:{local}"), &to, words);
            let ours = peer::connect(&net.ours, local, Speaks::Tcp).expect("it listens");
            let kernel = peer::accept(&listener).expect("the forwarder connects");
            (program, listener, ours, kernel)
        }
        Role::Server => {
            let listener = peer::listen(&net.ours, loopback(0), Speaks::Tcp);
            let local = listener.local_addr().expect("it is bound");
            let address = Net::our_address(V4, Own::Shared, paths[0]);
            let program = Program::forward(&net.ours, &at(address), &format!("tcp:{local}"), words);
            let server = SocketAddr::new(address, PORT);
            let kernel = peer::connect(&net.kernel, server, Speaks::Mptcp).expect("it listens");
            let ours = peer::accept(&listener).expect("the forwarder connects");
            (program, listener, ours, kernel)
        }
    };
    both_ways(&ours, &kernel, 1000);
    Connected {
        program,
        ours,
        kernel,
        _listener: listener,
    }
}

/// Waits for an established subflow that `wanted` likes, and answers what its connection has to say of it.
fn subflow(
    program: &mut Program,
    what: &str,
    wanted: impl Fn(&SubflowReport) -> bool,
) -> SubflowReport {
    wait_until(what, || {
        let all = program.connection().subflows;
        let found = all.iter().find(|s| s.phase == "established" && wanted(s));
        found.cloned().ok_or(all)
    })
}

fn is_at(addr: impl Into<IpAddr>) -> impl Fn(&SubflowReport) -> bool {
    let addr = addr.into();
    move |s| s.local.is_some_and(|local| local.ip() == addr)
}

/// Sends one way and does `what` on another thread once a quarter has arrived.
fn send_through(ends: &Connected, way: Way, what: impl FnOnce() + Send) {
    let (from, to) = match way {
        Way::ToKernel => (&ends.ours, &ends.kernel),
        Way::FromKernel => (&ends.kernel, &ends.ours),
    };
    let mut what = Some(what);
    let arrived = std::thread::scope(|scope| {
        send(from, to, LEN, 5, |got| {
            if got > LEN / 4
                && let Some(what) = what.take()
            {
                scope.spawn(what);
            }
        })
    });
    let arrived = arrived.unwrap_or_else(|error| panic!("{way:?}: {error}"));
    arrived.assert_same();
    println!("{way:?}: longest stall {:?}", arrived.stall);
}

/// An interface goes away in the middle of a transfer, and comes back as another one of the same name with another address:
/// its subflows go, nothing stops, and a new one from the new address carries data.
fn unplugged_and_plugged_in_again(role: Role, n: u8) {
    let (old, new) = (
        Net::our_address(V4, Own::Shared, n),
        IpAddr::from([10, 77, n, 7]),
    );
    for way in WAYS {
        let Some(net) = Net::bridged(2) else { return };
        if role == Role::Client {
            net.add_endpoint(Net::kernel_address(V4, 2), 2, "signal");
        }
        let mut ends = connected(&net, role, &[1, 2]);
        subflow(
            &mut ends.program,
            "a subflow by each",
            is_at([10, 77, 2, 2]),
        );
        send_through(&ends, way, || net.unplug(n));
        wait_until("its subflows to be gone", || {
            let all = ends.program.connection().subflows;
            if all.iter().any(is_at(old)) {
                Err(all)
            } else {
                Ok(())
            }
        });
        net.plug_in(n, new);
        let before = subflow(
            &mut ends.program,
            "a subflow from the new address",
            is_at(new),
        );
        send_through(&ends, way, || ());
        let after = subflow(&mut ends.program, "it to be there still", |s| {
            s.id == before.id
        });
        let carried = |s: &SubflowReport| s.bytes_sent + s.bytes_received;
        assert!(carried(&after) > carried(&before), "{after:?}");
        end(&ends);
    }
}

#[test]
fn a_second_uplink_is_unplugged_and_plugged_in_again() {
    unplugged_and_plugged_in_again(Role::Client, 2);
}

#[test]
fn the_first_uplink_is_unplugged_and_plugged_in_again() {
    unplugged_and_plugged_in_again(Role::Client, 1);
}

#[test]
fn an_uplink_of_the_server_is_unplugged_and_plugged_in_again() {
    unplugged_and_plugged_in_again(Role::Server, 2);
}

/// The only path changes in the middle of a transfer to another address: break before make.
fn the_only_uplink_changes(change: impl Fn(&Net, IpAddr) + Sync) {
    let new = IpAddr::from([10, 77, 1, 7]);
    for way in WAYS {
        let Some(net) = Net::bridged(1) else { return };
        let mut ends = connected(&net, Role::Client, &[1]);
        send_through(&ends, way, || change(&net, new));
        subflow(
            &mut ends.program,
            "a subflow from the new address",
            is_at(new),
        );
        both_ways(&ends.ours, &ends.kernel, 1_000_000);
        end(&ends);
    }
}

#[test]
fn the_only_uplink_gets_another_address() {
    the_only_uplink_changes(|net, new| {
        let old = Net::our_address(V4, Own::Shared, 1);
        let lines = [
            format!("addr del {old}/24 dev v1"),
            format!("addr add {new}/24 dev v1"),
        ];
        net.ours.ip(lines).expect("the interface is there");
    });
}

#[test]
fn the_only_uplink_is_unplugged_and_plugged_in_again() {
    the_only_uplink_changes(|net, new| {
        net.unplug(1);
        net.plug_in(1, new);
    });
}

fn end(ends: &Connected) {
    finish(&ends.ours, &ends.kernel);
    let said = ends.program.said();
    assert!(!said.contains("panicked"), "{said}");
}
