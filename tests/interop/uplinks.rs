//! Uplinks as they are in life: a modem that is unplugged and plugged in again elsewhere, an address that is leased anew.
//! The program knows its paths by the names of their interfaces, as users write them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::TryRecvError;

use manypath_control::report::{PathReport, SubflowReport};
use manypath_io::sys::lab::tun_file;
use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, Own, tool};
use manypath_tests::pair::{Ends, Plan, Role, Route, WAYS, Way};
use manypath_tests::peer::Speaks;
use manypath_tests::program::Program;
use manypath_tests::transfer::{both_ways, finish, send};
use manypath_tests::until::wait_until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use Family::V4;

/// What is sent while something happens to a path.
const LEN: u64 = 100 << 20;

/// A connection whose paths are these interfaces, and which begins on the first.
fn connected<'net>(
    net: &'net Net,
    role: Role,
    attach: &str,
    paths: usize,
    way: Way,
) -> (Route<'net>, Ends) {
    let plan = Plan {
        own: Own::Named,
        more: ["--attach", attach].map(str::to_owned).into(),
        ..Plan::with_cut(&[V4].repeat(paths), way)
    };
    let route = Route::open(net, role, plan);
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    (route, ends)
}

/// Waits until the established subflows that can carry data are as `wanted` likes, and answers them.
fn subflows(
    route: &mut Route<'_>,
    what: &str,
    wanted: impl Fn(&[SubflowReport]) -> bool,
) -> Vec<SubflowReport> {
    wait_until(what, || {
        let mut all = route.program.connection().subflows;
        // Those whose link is away wait for it.
        all.retain(|s| !s.stale);
        let whole = all.len();
        all.retain(|s| s.phase == "established");
        // Those that end have to be gone as well.
        if whole == all.len() && wanted(&all) {
            Ok(all)
        } else {
            Err(all)
        }
    })
}

/// The stack's addresses that subflows have. Behind a TUN device they are not those of the interfaces.
fn addresses(subflows: &[SubflowReport]) -> BTreeSet<IpAddr> {
    let local = |s: &SubflowReport| s.local.map(|local| local.ip());
    subflows.iter().filter_map(local).collect()
}

/// What subflows have carried since they were as `before`.
fn carried(subflows: &[SubflowReport], before: &[SubflowReport]) -> u64 {
    let bytes = |s: &SubflowReport| s.bytes_sent + s.bytes_received;
    let was = |id| before.iter().find(|s| s.id == id).map_or(0, bytes);
    let since = |s: &SubflowReport| bytes(s).saturating_sub(was(s.id));
    subflows.iter().map(since).sum()
}

/// Sends one way and does `what` on another thread once a quarter has arrived.
fn send_through(ends: &Ends, way: Way, what: impl FnOnce() + Send) {
    let (from, to) = ends.along(way);
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

/// What happens to an uplink.
#[derive(Debug, Clone, Copy)]
enum Gone {
    /// The interface is taken away, and comes back as another one of the same name with another address.
    Interface,
    /// It loses its carrier for some time.
    Carrier,
}

/// An uplink goes away in the middle of a transfer and comes back: nothing stops, and then it can carry all. Its subflows go with
/// its interface, and wait for its carrier.
fn goes_and_comes_back(role: Role, attach: &str, n: u8, gone: Gone) {
    for way in WAYS {
        let Some(net) = Net::bridged(2) else { return };
        if role == Role::Client {
            net.add_endpoint(Net::kernel_address(V4, 2), 2, "signal");
        }
        let (mut route, ends) = connected(&net, role, attach, 2, way);
        subflows(&mut route, "two addresses", |all| addresses(all).len() == 2);
        send_through(&ends, way, || match gone {
            Gone::Interface => net.unplug(n),
            Gone::Carrier => net.carrier(n, false),
        });
        subflows(&mut route, "one address", |all| addresses(all).len() == 1);
        let waiting = route.program.connection().subflows.iter().any(|s| s.stale);
        assert_eq!(waiting, matches!(gone, Gone::Carrier));
        match gone {
            Gone::Interface => net.plug_in(n, [10, 77, n, 7].into()),
            Gone::Carrier => net.carrier(n, true),
        }
        subflows(&mut route, "two again", |all| addresses(all).len() == 2);
        // Which of two paths carries how much is the sender's business: now it is the only one.
        net.carrier(3 - n, false);
        subflows(&mut route, "the one that is back", |all| {
            addresses(all).len() == 1
        });
        // Nothing else passes anywhere.
        send_through(&ends, way, || ());
        end(&route, &ends);
    }
}

/// A path that is not there yet when the program starts is named, and used when it comes.
fn comes_later(attach: &str) {
    let Some(net) = Net::bridged(2) else { return };
    net.add_endpoint(Net::kernel_address(V4, 2), 2, "signal");
    net.unplug(2);
    let (mut route, ends) = connected(&net, Role::Client, attach, 2, Way::ToKernel);
    let said = route.program.said();
    assert!(
        said.contains("there is no interface v2; the path is used when it comes"),
        "{said}"
    );
    net.plug_in(2, [10, 77, 2, 7].into());
    subflows(&mut route, "two addresses", |all| addresses(all).len() == 2);
    both_ways(&ends.ours, &ends.kernel, 1_000_000);
    end(&route, &ends);
}

/// A cable between our host and the kernel's that has no Ethernet, as a modem's or a tunnel's: IP packets are carried from one device
/// to the other until the end.
fn modem(net: &Net) -> std::sync::mpsc::Sender<()> {
    let (until, ended) = std::sync::mpsc::channel();
    let open = |host: &NetNs, end: u8| {
        let file = host.run(|| tun_file("modem")).expect("permitted");
        let lines = [
            format!("addr add 10.79.0.{end}/24 dev modem"),
            format!("addr add fd79::{end}/64 dev modem nodad"),
            "link set modem up".to_owned(),
        ];
        host.ip(lines).expect("it is there");
        file
    };
    let ends = [open(&net.kernel, 1), open(&net.ours, 2)];
    std::thread::spawn(move || {
        let mut packet = vec![0; 65_536];
        while ended.try_recv() != Err(TryRecvError::Disconnected) {
            let mut ready = ends.each_ref().map(|file| PollFd::new(file, PollFlags::IN));
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: 50_000_000,
            };
            let _ = poll(&mut ready, Some(&pause));
            for (from, to) in [(0, 1), (1, 0)] {
                while let Ok(len) = (&ends[from]).read(&mut packet) {
                    // A full queue loses it.
                    let _ = (&ends[to]).write(&packet[..len]);
                }
            }
        }
    });
    until
}

/// An uplink without Ethernet comes later: it is used, in both roles, and alone.
fn a_modem_comes_later(role: Role, family: Family) {
    let Some(net) = Net::bridged(1) else { return };
    let (there, here): (IpAddr, IpAddr) = match family {
        Family::V4 => ([10, 79, 0, 1].into(), [10, 79, 0, 2].into()),
        Family::V6 => (
            "fd79::1".parse().expect("a literal"),
            "fd79::2".parse().expect("a literal"),
        ),
    };
    let plan = Plan {
        own: Own::Named,
        more: ["--path", "modem"].map(str::to_owned).into(),
        ..Plan::with_cut(&[family], Way::ToKernel)
    };
    let mut route = Route::open(&net, role, plan);
    let said = route.program.said();
    assert!(
        said.contains("there is no interface modem; the path is used when it comes"),
        "{said}"
    );
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    let _carried = modem(&net);
    net.kernel
        .ip(["mptcp limits set subflows 8 add_addr_accepted 8"])
        .expect("it has Multipath TCP");
    let flags = if role == Role::Client {
        "signal"
    } else {
        "subflow"
    };
    let line = format!("mptcp endpoint add {there} dev modem {flags}");
    net.kernel.ip([line]).expect("the address is the kernel's");
    wait_until("one by the modem", || {
        let all = route.program.connection().subflows;
        let is_up = |s: &&SubflowReport| s.phase == "established";
        let up: Vec<SubflowReport> = all.iter().filter(is_up).cloned().collect();
        match addresses(&up).contains(&here) {
            true => Ok(()),
            false => Err(all),
        }
    });
    net.carrier(1, false);
    subflows(&mut route, "the modem's alone", |all| {
        addresses(all) == BTreeSet::from([here])
    });
    both_ways(&ends.ours, &ends.kernel, 20_000_000);
    end(&route, &ends);
}

/// The only path changes in the middle of a transfer to another address: break before make.
fn the_only_uplink_changes(attach: &str, change: impl Fn(&Net, IpAddr) + Sync) {
    for way in WAYS {
        let Some(net) = Net::bridged(1) else { return };
        let (mut route, ends) = connected(&net, Role::Client, attach, 1, way);
        let old = subflows(&mut route, "one subflow", |all| all.len() == 1);
        send_through(&ends, way, || change(&net, [10, 77, 1, 7].into()));
        subflows(&mut route, "another subflow", |all| {
            all.len() == 1 && addresses(all).is_disjoint(&addresses(&old))
        });
        both_ways(&ends.ours, &ends.kernel, 1_000_000);
        let new = carried(&route.program.connection().subflows, &old);
        assert!(new >= 2_000_000, "{new} bytes");
        end(&route, &ends);
    }
}

/// What the only uplink does for a moment.
#[derive(Debug, Clone, Copy)]
enum Blink {
    /// It loses its carrier until we have noticed.
    Carrier,
    /// Its address is taken away and put back at once.
    Address,
    /// It gets a second IPv6 address.
    SecondAddress,
}

/// Nothing ends when the only uplink blinks, as nothing does in the kernel: the one subflow, or TCP connection, goes on.
fn the_only_uplink_blinks(role: Role, attach: &str, speaks: Speaks, blink: Blink) {
    let family = match blink {
        Blink::Carrier | Blink::Address => V4,
        Blink::SecondAddress => Family::V6,
    };
    for way in WAYS {
        let Some(net) = Net::bridged(1) else { return };
        let plan = Plan {
            own: Own::Named,
            kernel: speaks,
            more: ["--attach", attach].map(str::to_owned).into(),
            ..Plan::with_cut(&[family], way)
        };
        let mut route = Route::open(&net, role, plan);
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, 1000);
        let ids = |all: &[SubflowReport]| all.iter().map(|s| s.id).collect::<Vec<_>>();
        let before = ids(&route.program.connection().subflows);
        let program = std::sync::Mutex::new(&mut route.program);
        send_through(&ends, way, || match blink {
            Blink::Carrier => {
                net.carrier(1, false);
                let mut program = program.lock().expect("no other thread has it");
                wait_until("the link to be away", || {
                    let all = program.connection().subflows;
                    if all.iter().all(|s| s.stale) {
                        Ok(())
                    } else {
                        Err(all)
                    }
                });
                net.carrier(1, true);
            }
            Blink::Address => gets_another_address(&net, Net::our_address(V4, Own::Shared, 1)),
            Blink::SecondAddress => {
                let line = "addr add fd77:1::99/64 dev v1 nodad".to_owned();
                net.ours.ip([line]).expect("the interface is there");
            }
        });
        // Behind a TUN device the kernel may have to ask for its neighbour again, and takes a second for it: a subflow beside the
        // old one takes its place then, where there can be one.
        if attach == "packet" || speaks == Speaks::Tcp {
            assert_eq!(ids(&route.program.connection().subflows), before);
        }
        both_ways(&ends.ours, &ends.kernel, 1000);
        end(&route, &ends);
    }
}

fn gets_another_address(net: &Net, new: IpAddr) {
    let old = Net::our_address(V4, Own::Shared, 1);
    let lines = [
        format!("addr del {old}/24 dev v1"),
        format!("addr add {new}/24 dev v1"),
    ];
    net.ours.ip(lines).expect("the interface is there");
}

fn is_plugged_in_elsewhere(net: &Net, new: IpAddr) {
    net.unplug(1);
    net.plug_in(1, new);
}

/// What the program had written down of the host, and the host itself: the policy rules and the tables that they lead to.
fn rules(net: &Net) -> Vec<String> {
    let ours = |line: &&str| line.starts_with("7000:") || line.contains(" table 70");
    let all = show(net, "-4 rule") + &show(net, "-4 route show table all");
    all.lines().filter(ours).map(str::to_owned).collect()
}

/// Paths behind a TUN device come and go for months: each has one rule and its routes while it is there, and nothing when it is gone.
#[test]
fn a_path_that_goes_leaves_no_rule_behind_a_tun() {
    let Some(net) = Net::bridged(2) else { return };
    net.add_endpoint(Net::kernel_address(V4, 2), 2, "signal");
    let (mut route, ends) = connected(&net, Role::Client, "tun", 2, Way::ToKernel);
    subflows(&mut route, "two addresses", |all| addresses(all).len() == 2);
    let kinds = |rules: &[String]| {
        let is_rule = |line: &&String| line.starts_with("7000:");
        (rules.iter().filter(is_rule).count(), rules.len())
    };
    let before = kinds(&rules(&net));
    assert_eq!(before.0, 2);
    // Without carrier it stays.
    net.carrier(2, false);
    subflows(&mut route, "one address", |all| addresses(all).len() == 1);
    assert_eq!(kinds(&rules(&net)).0, before.0, "{:?}", rules(&net));
    net.carrier(2, true);
    subflows(&mut route, "two again", |all| addresses(all).len() == 2);
    for _ in 0..3 {
        let address = Net::our_address(V4, Own::Shared, 2);
        let change = |word: &str| {
            let line = format!("addr {word} {address}/24 dev v2");
            net.ours.ip([line]).expect("the interface is there");
        };
        change("del");
        subflows(&mut route, "one address", |all| addresses(all).len() == 1);
        wait_until("the rule of the other one to go", || {
            let left = rules(&net);
            if kinds(&left).0 == 1 {
                Ok(())
            } else {
                Err(left)
            }
        });
        change("add");
        subflows(&mut route, "two again", |all| addresses(all).len() == 2);
        assert_eq!(kinds(&rules(&net)), before, "{:?}", rules(&net));
    }
    // A path whose router changes is the same path: its subflows stay.
    let old = subflows(&mut route, "two addresses", |all| addresses(all).len() == 2);
    net.ours
        .ip(["route add default via 10.77.2.1 dev v2 metric 7"])
        .expect("the router is on the link");
    wait_until("the new route", || {
        let now = rules(&net);
        let there = now.iter().any(|l| l.contains("via 10.77.2.1"));
        if there { Ok(()) } else { Err(now) }
    });
    assert_eq!(kinds(&rules(&net)), before, "{:?}", rules(&net));
    both_ways(&ends.ours, &ends.kernel, 1_000_000);
    let now = subflows(&mut route, "two addresses", |all| addresses(all).len() == 2);
    let ids = |all: &[SubflowReport]| all.iter().map(|s| s.id).collect::<Vec<_>>();
    assert_eq!(ids(&now), ids(&old));
    end(&route, &ends);
}

fn show(net: &Net, what: &str) -> String {
    let mut command = tool("ip");
    command.args(what.split(' '));
    let output = net.ours.output(command).expect("ip is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The MTU of an uplink changes in the middle of a transfer, or that of the device: it goes on, and the device lets through what the
/// uplink does.
fn the_mtu_of_an_uplink_changes(attach: &str) {
    let Some(net) = Net::new(1) else { return };
    let set = |mtu: u16| {
        for host in [&net.ours, &net.kernel] {
            host.ip([format!("link set v1 mtu {mtu}")])
                .expect("the cable carries it");
        }
    };
    let own = || {
        let line = "link set manypath0 mtu 700";
        net.ours.ip([line]).expect("the device is there");
    };
    let changes: [(&(dyn Fn() + Sync), u16, u16); 4] = [
        (&|| set(9000), 9000, 9000),
        (&|| set(600), 600, 1280),
        (&|| set(1500), 1500, 1500),
        (&own, 1500, 1500),
    ];
    let of_a_tun = attach == "tun";
    let (mut route, ends) = connected(&net, Role::Client, attach, 1, Way::ToKernel);
    // The last is of our own device.
    let count = if of_a_tun { 4 } else { 3 };
    for (change, mtu, device) in changes.into_iter().take(count) {
        send_through(&ends, Way::ToKernel, change);
        send_through(&ends, Way::FromKernel, || ());
        subflows(&mut route, "segments that fit", |all| {
            all.iter().all(|s| s.mss <= u64::from(mtu - 40))
        });
        wait_until("the device to follow", || {
            let now = show(&net, "-o link show type tun");
            let follows = !of_a_tun || now.contains(&format!(" mtu {device} "));
            if follows { Ok(()) } else { Err(now) }
        });
        let again = route.join();
        for ends in [&ends, &again] {
            both_ways(&ends.ours, &ends.kernel, 1_000_000);
        }
        finish(&again.ours, &again.kernel);
        wait_until("the second connection to be over", || {
            let left = route.program.report().connections.len();
            if left == 1 { Ok(()) } else { Err(left) }
        });
    }
    end(&route, &ends);
}

/// The only uplink gets another name, in the middle of a transfer: everything goes on, also when the user named it, and what is
/// changed on the host later is undone by the new name.
fn the_only_uplink_is_renamed(role: Role, attach: &str) {
    for way in WAYS {
        let Some(net) = Net::bridged(1) else { return };
        // Its IPv6 addresses go, and would later.
        let again = ["link set v1 down", "link set v1 up"];
        net.ours.ip(again).expect("it is there");
        let before = net.traces();
        let (mut route, ends) = connected(&net, role, attach, 1, way);
        send_through(&ends, way, || {
            let lines = ["link set v1 down", "link set v1 name v9", "link set v9 up"];
            net.ours.ip(lines).expect("it is there");
        });
        // Of one path, the one there was or, where the kernel is slow to see the carrier, one joined in its place.
        subflows(&mut route, "one subflow", |all| all.len() == 1);
        let said = route.program.said();
        assert!(!said.contains("is gone"), "{said}");
        let again = route.join();
        both_ways(&again.ours, &again.kernel, 1_000_000);
        finish(&again.ours, &again.kernel);
        end(&route, &ends);
        route.program.interrupt();
        let lines = ["link set v9 down", "link set v9 name v1", "link set v1 up"];
        net.ours.ip(lines).expect("it is there");
        wait_until("the host to be as before", || {
            let now = net.traces();
            if now == before { Ok(()) } else { Err(now) }
        });
    }
}

/// `status` shows the paths that are there or were named, and none of the addresses that an interface once had.
#[test]
fn status_shows_no_address_that_is_gone() {
    const V7: &str = "there is no interface v7";
    for attach in ["packet", "tun"] {
        let Some(net) = Net::bridged(1) else { return };
        let address = |n: u32| format!("10.77.1.{n}");
        let change = |line: String| net.ours.ip([line]).expect("the interface is there");
        change("addr flush dev v1".to_owned());
        change(format!("addr add {}/24 dev v1", address(19)));
        let args = ["--path", "v1", "--path", "v7", "--attach", attach];
        let to = "mptcp:10.77.1.1:5000";
        let mut program = Program::forward(&net.ours, "tcp:127.0.0.1:7000", to, args);
        // The address of each that is up, and why another one is not.
        let mut shows = |wanted: [&str; 2]| {
            wait_until(&format!("{attach}: {wanted:?}"), || {
                let paths = program.report().paths.into_iter();
                let told = |path: PathReport| match path.missing {
                    Some(why) => why,
                    None => path.address.expect("it is up").to_string(),
                };
                let shown: Vec<String> = paths.map(told).collect();
                let fits = |(shown, wanted): (&String, &str)| shown.contains(wanted);
                match shown.len() == wanted.len() && shown.iter().zip(wanted).all(fits) {
                    true => Ok(()),
                    false => Err(shown),
                }
            });
        };
        // Behind a TUN device the stack's addresses are its own.
        let up = |n: u32| match attach {
            "tun" => "198.18.".to_owned(),
            _ => address(n),
        };
        shows([&up(19), V7]);
        for n in 20..25 {
            change(format!("addr del {}/24 dev v1", address(n - 1)));
            change(format!("addr add {}/24 dev v1", address(n)));
            shows([&up(n), V7]);
        }
        net.carrier(1, false);
        shows(["no carrier", V7]);
        net.carrier(1, true);
        shows([&up(24), V7]);
        change("addr flush dev v1 scope global".to_owned());
        shows(["the interface v1 has no usable address", V7]);
        net.unplug(1);
        shows(["there is no interface v1", V7]);
        program.interrupt();
    }
}

/// An MTU that leaves no room for the options of Multipath TCP: the path is refused, that is said, and what it had waits.
#[test]
fn an_mtu_that_is_too_small_is_said() {
    let Some(net) = Net::bridged(1) else { return };
    let set = |mtu: u16| {
        for host in [&net.ours, &net.kernel] {
            let line = format!("link set v1 mtu {mtu}");
            host.ip([line]).expect("the cable carries it");
        }
    };
    set(68);
    let args = ["--path", "v1"];
    let target = SocketAddr::new(Net::kernel_address(V4, 1), 5001);
    let program = Program::forward(
        &net.ours,
        "tcp:127.0.0.1:7000",
        &format!("mptcp:{target}"),
        args,
    );
    assert!(
        program
            .said()
            .contains("the MTU of the interface v1 is smaller than 128")
    );
    program.interrupt();
    set(128);
    let (route, ends) = connected(&net, Role::Client, "packet", 1, Way::ToKernel);
    both_ways(&ends.ours, &ends.kernel, 100_000);
    set(68);
    let words = "cannot be used now: its MTU is too small for the options of Multipath TCP";
    wait_until(words, || {
        let said = route.program.said();
        if said.contains(words) {
            Ok(())
        } else {
            Err(said)
        }
    });
    set(1500);
    both_ways(&ends.ours, &ends.kernel, 1_000_000);
    end(&route, &ends);
}

/// Somebody deletes the device, or switches it off, in the middle of a transfer: it is said, and nothing ends.
#[test]
fn a_tun_that_is_taken_away_is_made_again() {
    for (deed, words) in [
        ("link del manypath0", "somebody has deleted"),
        ("link set manypath0 down", "somebody has switched off"),
    ] {
        let Some(net) = Net::new(1) else { return };
        for speaks in [Speaks::Mptcp, Speaks::Tcp] {
            let plan = Plan {
                own: Own::Named,
                kernel: speaks,
                more: ["--attach", "tun"].map(str::to_owned).into(),
                ..Plan::with_cut(&[V4], Way::ToKernel)
            };
            let route = Route::open(&net, Role::Client, plan);
            let ends = route.join();
            send_through(&ends, Way::ToKernel, || {
                net.ours.ip([deed]).expect("it is there");
            });
            let said = route.program.said();
            assert!(said.contains(words), "{said}");
            both_ways(&ends.ours, &ends.kernel, 1_000_000);
            let again = route.join();
            both_ways(&again.ours, &again.kernel, 1_000_000);
            let there = show(&net, "-o link show type tun");
            assert_eq!(there.lines().count(), 1, "{there}");
            let all = rules(&net);
            let of_ours = all.iter().filter(|l| l.starts_with("7000:"));
            assert_eq!(of_ours.count(), 1, "{all:?}");
            finish(&again.ours, &again.kernel);
            end(&route, &ends);
        }
    }
}

/// A server behind a TUN device tells its peer the addresses of the host, where it can be joined, and never one from inside.
#[test]
fn peers_are_told_the_addresses_outside_a_tun() {
    let Some(net) = Net::new(2) else { return };
    net.kernel
        .ip(["mptcp limits set subflows 4 add_addr_accepted 4"])
        .expect("it has Multipath TCP");
    let (mut route, ends) = connected(&net, Role::Server, "tun", 2, Way::ToKernel);
    let all = subflows(&mut route, "the peer to join by the other address", |all| {
        addresses(all).len() == 2
    });
    let remote = |s: &SubflowReport| s.remote.map(|remote| remote.ip());
    let remotes: BTreeSet<IpAddr> = all.iter().filter_map(remote).collect();
    let both = [1, 2].map(|n| Net::kernel_address(V4, n));
    assert_eq!(remotes, BTreeSet::from(both));
    both_ways(&ends.ours, &ends.kernel, 1_000_000);
    end(&route, &ends);
}

macro_rules! uplinks {
    ($($name:ident: $what:ident($($argument:expr),*);)*) => {$(
        #[test]
        fn $name() {
            $what($($argument),*);
        }
    )*};
}

uplinks! {
    the_first_is_plugged_in_again: goes_and_comes_back(Role::Client, "packet", 1, Gone::Interface);
    the_second_is_plugged_in_again: goes_and_comes_back(Role::Client, "packet", 2, Gone::Interface);
    the_second_of_a_server_is_plugged_in_again: goes_and_comes_back(Role::Server, "packet", 2, Gone::Interface);
    the_first_is_plugged_in_again_behind_a_tun: goes_and_comes_back(Role::Client, "tun", 1, Gone::Interface);
    the_second_is_plugged_in_again_behind_a_tun: goes_and_comes_back(Role::Client, "tun", 2, Gone::Interface);
    the_first_has_no_carrier_for_a_while: goes_and_comes_back(Role::Client, "packet", 1, Gone::Carrier);
    the_second_of_a_server_has_no_carrier_for_a_while: goes_and_comes_back(Role::Server, "packet", 2, Gone::Carrier);
    the_first_has_no_carrier_for_a_while_behind_a_tun: goes_and_comes_back(Role::Client, "tun", 1, Gone::Carrier);
    the_only_one_is_renamed: the_only_uplink_is_renamed(Role::Client, "packet");
    the_only_one_of_a_server_is_renamed: the_only_uplink_is_renamed(Role::Server, "packet");
    the_only_one_is_renamed_behind_a_tun: the_only_uplink_is_renamed(Role::Client, "tun");
    the_mtu_changes: the_mtu_of_an_uplink_changes("packet");
    the_mtu_changes_behind_a_tun: the_mtu_of_an_uplink_changes("tun");
    a_modem_of_a_client_comes_later: a_modem_comes_later(Role::Client, V4);
    a_modem_of_a_client_comes_later_with_ipv6: a_modem_comes_later(Role::Client, Family::V6);
    a_modem_of_a_server_comes_later: a_modem_comes_later(Role::Server, V4);
    one_comes_later: comes_later("packet");
    one_comes_later_behind_a_tun: comes_later("tun");
    the_only_one_of_a_server_blinks: the_only_uplink_blinks(Role::Server, "packet", Speaks::Mptcp, Blink::Carrier);
    the_only_one_blinks_for_tcp: the_only_uplink_blinks(Role::Client, "packet", Speaks::Tcp, Blink::Carrier);
    the_only_one_blinks_for_tcp_behind_a_tun: the_only_uplink_blinks(Role::Client, "tun", Speaks::Tcp, Blink::Carrier);
    the_only_one_blinks_behind_a_tun: the_only_uplink_blinks(Role::Client, "tun", Speaks::Mptcp, Blink::Carrier);
    the_only_one_has_its_address_put_back_behind_a_tun: the_only_uplink_blinks(Role::Client, "tun", Speaks::Mptcp, Blink::Address);
    the_only_one_has_its_address_put_back: the_only_uplink_blinks(Role::Client, "packet", Speaks::Mptcp, Blink::Address);
    the_only_one_has_its_address_put_back_for_tcp: the_only_uplink_blinks(Role::Server, "packet", Speaks::Tcp, Blink::Address);
    the_only_one_gets_a_second_address: the_only_uplink_blinks(Role::Client, "packet", Speaks::Tcp, Blink::SecondAddress);
    the_only_one_gets_another_address: the_only_uplink_changes("packet", gets_another_address);
    the_only_one_gets_another_address_behind_a_tun: the_only_uplink_changes("tun", gets_another_address);
    the_only_one_is_plugged_in_elsewhere: the_only_uplink_changes("packet", is_plugged_in_elsewhere);
    the_only_one_is_plugged_in_elsewhere_behind_a_tun: the_only_uplink_changes("tun", is_plugged_in_elsewhere);
}

fn end(route: &Route<'_>, ends: &Ends) {
    finish(&ends.ours, &ends.kernel);
    let said = route.program.said();
    assert!(!said.contains("panicked"), "{said}");
}
