//! What goes wrong in daily life: a clear message, the right exit code, and a host as it was before.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, ExitStatus, Output, Stdio};

use manypath_tests::net::{Family, Net, Own, tool};
use manypath_tests::pair::{Plan, ROLES, Role, Route};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, binary, manypath};
use manypath_tests::transfer::{both_ways, send};
use manypath_tests::until::wait_for;
use nix::sys::signal::Signal;

use Family::V4;

const PRIVILEGE: i32 = 3;
const NETWORK: i32 = 4;

/// Runs the program to its end inside our host.
fn run(net: &Net, args: &[&str]) -> (ExitStatus, String) {
    Program::run(&net.ours, manypath(args))
}

/// It ended with that code, said that, and left the host as it was.
fn assert_refused((status, said): &(ExitStatus, String), code: i32, words: &[&str]) {
    assert_eq!(status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "'{word}' is missing in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

const LISTEN: [&str; 5] = [
    "forward",
    "--listen",
    "tcp:127.0.0.1:7000",
    "--to",
    "mptcp:10.77.1.1:5000",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    LISTEN.into_iter().chain(more.iter().copied()).collect()
}

#[test]
fn an_interface_that_is_not_there() {
    let Some(net) = Net::new(1) else { return };
    let before = net.traces();
    let perf = ["perf", "send", "10.77.1.1:5000", "--path", "nosuch0"];
    let output = run(&net, &perf);
    assert_refused(&output, NETWORK, &["nosuch0", "hint"]);
    let output = run(&net, &with(&["--path", "v1=10.99.0.1,gateway=fd00::1"]));
    assert_refused(&output, 2, &["gateway"]);
    assert_eq!(net.traces(), before);
}

#[test]
fn numbers_that_cannot_be_meant() {
    let Some(net) = Net::new(1) else { return };
    for (more, word) in [
        (["--memory", "1Ki"], "1Mi"),
        (["--buffer", "1Ki"], "4Ki"),
        (["--to", "mptcp:10.77.1.1:0"], "port 0"),
        (["--to", "mptcp:127.0.0.1:5000"], "tcp:"),
        (["--host-congestion", "dance"], "it has: "),
        (["--path-manager", "dance"], "'dance'"),
        (["--path-manager", "dance"], "fullmesh, ndiffports=N"),
        (["--path-manager", "ndiffports=x"], "'ndiffports=x'"),
    ] {
        let mut args: Vec<&str> = LISTEN[..3].to_vec();
        if more[0] != "--to" {
            args.extend(&LISTEN[3..]);
        }
        args.extend(more);
        assert_refused(&run(&net, &args), 2, &[word]);
    }
}

/// What nothing can ever come by is refused at the start, instead of being waited for.
#[test]
fn the_loopback_is_no_path() {
    let Some(net) = Net::new(1) else { return };
    // Some hosts have addresses of services there.
    net.ours
        .ip(["addr add 192.0.2.9/32 dev lo"])
        .expect("it is ours");
    let before = net.traces();
    for path in ["lo", "lo=127.0.0.1", "lo=192.0.2.9"] {
        for more in [&["--path", path][..], &["--path", "v1", "--path", path]] {
            let output = run(&net, &with(more));
            assert_refused(&output, 2, &["lo is the loopback", "hint", "--path eth0"]);
        }
    }
    let link_local = "paths have no link-local";
    for (listen, why) in [
        ("mptcp:127.0.0.1:7001", "loopback"),
        ("mptcp:[::1]:7001", "loopback"),
        ("mptcp:localhost:7001", "loopback"),
        ("mptcp:[fe80::1%v1]:7001", link_local),
    ] {
        for attach in ["packet", "tun"] {
            let args = [
                "forward",
                "--listen",
                listen,
                "--to",
                "tcp:127.0.0.1:1",
                "--path",
                "v1",
                "--attach",
                attach,
            ];
            assert_refused(&run(&net, &args), 2, &[listen, why, "0.0.0.0"]);
        }
    }
    assert_eq!(net.traces(), before);
}

#[test]
fn no_path_at_all() {
    let Some(net) = Net::new(0) else { return };
    let before = net.traces();
    let output = run(&net, &["perf", "send", "10.77.1.1:5000"]);
    assert_refused(&output, NETWORK, &["path"]);
    assert_eq!(net.traces(), before);
}

#[test]
fn an_address_in_use() {
    let Some(net) = Net::new(1) else { return };
    let before = net.traces();
    // By the host's TCP where the host's TCP is wanted.
    let _taken = peer::listen(
        &net.ours,
        SocketAddr::new([127, 0, 0, 1].into(), 7000),
        Speaks::Tcp,
    );
    let output = run(&net, &with(&["--path", "v1"]));
    assert_refused(&output, NETWORK, &["127.0.0.1:7000", "in use"]);
    // By the host's TCP where our stack shares the address.
    let _taken = peer::listen(
        &net.ours,
        SocketAddr::new([10, 77, 1, 2].into(), 7001),
        Speaks::Tcp,
    );
    let args = [
        "forward",
        "--listen",
        "mptcp:10.77.1.2:7001",
        "--to",
        "tcp:127.0.0.1:1",
        "--path",
        "v1=10.77.1.2",
    ];
    let output = run(&net, &args);
    assert_refused(&output, NETWORK, &["10.77.1.2:7001", "in use"]);
    assert_eq!(net.traces(), before);
}

/// Behind a TUN device the stack listens on all addresses of the host, or on none.
#[test]
fn one_address_behind_a_tun() {
    let Some(net) = Net::new(1) else { return };
    let before = net.traces();
    let args = [
        "forward",
        "--listen",
        "mptcp:10.77.1.2:7001",
        "--to",
        "tcp:127.0.0.1:1",
        "--path",
        "v1",
        "--attach",
        "tun",
    ];
    assert_refused(&run(&net, &args), NETWORK, &["10.77.1.2:7001", "0.0.0.0"]);
    assert_eq!(net.traces(), before);
}

#[test]
fn this_very_host() {
    let Some(net) = Net::new(1) else { return };
    let args = [
        "perf",
        "send",
        "127.0.0.1:7001",
        "--path",
        "v1=10.77.1.10",
        "--time",
        "1s",
    ];
    assert_refused(&run(&net, &args), NETWORK, &["loopback"]);
}

#[test]
fn a_firewall_that_forwards_nothing() {
    let Some(net) = Net::new(1) else { return };
    let mut command = tool("nft");
    command.arg("add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }");
    assert!(
        net.ours
            .output(command)
            .expect("nft is installed")
            .status
            .success()
    );
    let mut args = vec![
        "perf",
        "send",
        "10.77.1.1:7001",
        "--path",
        "v1",
        "--time",
        "1s",
    ];
    args.extend(["--attach", "tun", "--connect-timeout", "500ms"]);
    assert_refused(
        &run(&net, &args),
        NETWORK,
        &["'ip filter FORWARD'", "iifname manypath"],
    );
}

#[test]
fn without_the_firewall_program() {
    let Some(net) = Net::new(1) else { return };
    let before = net.traces();
    for attach in ["packet", "tun"] {
        let mut command = manypath(["forward", "--listen", "tcp:127.0.0.1:7001"]);
        command
            .args([
                "--to",
                "mptcp:10.77.1.1:5000",
                "--path",
                "v1",
                "--attach",
                attach,
            ])
            .env("PATH", "/nonexistent");
        Program::start_command(&net.ours, command, "goes to").interrupt();
    }
    assert_eq!(net.traces(), before);
}

#[test]
fn without_privileges() {
    let Some(net) = Net::new(1) else { return };
    // Somebody else may not be allowed to look into the folder of the build.
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("manypath");
    std::fs::copy(binary(), &copy).expect("there is room");
    open_to_all(folder.path());
    let before = net.traces();
    let mut command = tool("setpriv");
    command
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ])
        .arg(&copy)
        .args(with(&["--path", "v1"]))
        .env_remove("XDG_RUNTIME_DIR")
        .stdin(Stdio::null());
    let output = Program::run(&net.ours, command);
    if output.1.starts_with("setpriv:") {
        eprintln!("skipped: {}", output.1);
        return;
    }
    assert_refused(&output, PRIVILEGE, &["CAP_NET_RAW", "root"]);
    assert_eq!(net.traces(), before);
}

fn open_to_all(folder: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
}

#[test]
fn a_peer_that_does_not_answer() {
    let Some(net) = Net::new(1) else { return };
    let before = net.traces();
    let path = ["--path", "v1=10.77.1.10"];
    let measure = |peer: &str, time: &str| {
        let args = [
            "perf",
            "send",
            peer,
            "--bytes",
            "1K",
            "--connect-timeout",
            time,
        ];
        run(&net, &[&args[..], &path].concat())
    };
    // Nobody listens there.
    assert_refused(
        &measure("10.77.1.1:9", "10s"),
        NETWORK,
        &["10.77.1.1:9", "refused"],
    );
    // Nobody has that address.
    assert_refused(&measure("10.77.1.77:9", "1s"), NETWORK, &["10.77.1.77:9"]);
    // No path leads there.
    assert_refused(&measure("[fd77:1::1]:9", "1s"), NETWORK, &["fd77:1::1"]);
    assert_eq!(net.traces(), before);
}

#[test]
fn a_client_whose_server_cannot_be_reached_is_reset() {
    let Some(net) = Net::new(1) else { return };
    let mut args = with(&["--path", "v1=10.77.1.10"]);
    args[4] = "mptcp:10.77.1.1:9";
    let program = Program::start(&net.ours, args, "goes to");
    let at = SocketAddr::new([127, 0, 0, 1].into(), 7000);
    let mut client = peer::connect(&net.ours, at, Speaks::Tcp).expect("the forwarder listens");
    let error = client.read(&mut [0; 1]).expect_err("no regular end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let said = program.interrupt();
    assert!(said.contains("1 could not be carried"), "{said}");
}

#[test]
fn a_full_disk() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let Ok(full) = full else {
        eprintln!("skipped: there is no /dev/full");
        return;
    };
    let output = manypath(["status", "--json"])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .expect("the program starts");
    let output = (
        output.status,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_refused(&output, 1, &["space", "hint"]);
}

/// In the middle of a transfer: both peers see a reset and not an end, and the host is as it was.
#[test]
fn control_c_in_the_middle() {
    let Some(net) = Net::new(2) else { return };
    for role in ROLES {
        for own in [Own::Owned, Own::Shared] {
            let before = net.traces();
            let mut route = Route::open(
                &net,
                role,
                Plan {
                    own,
                    ..Plan::new(&[V4, V4])
                },
            );
            let ends = route.join();
            both_ways(&ends.ours, &ends.kernel, 1000);
            if own == Own::Shared {
                assert_ne!(
                    net.traces(),
                    before,
                    "nothing keeps the kernel from answering"
                );
            }
            let mut stopped = false;
            let result = send(&ends.ours, &ends.kernel, u64::MAX, 5, |got| {
                if got > 1_000_000 && !stopped {
                    stopped = true;
                    route.program.signal(Signal::SIGINT);
                }
            });
            let error = result.expect_err("it never ends by itself");
            assert_ne!(
                error.kind(),
                std::io::ErrorKind::UnexpectedEof,
                "{role:?} {own:?}: {error}"
            );
            let (status, said) = route.end();
            assert_eq!(status.code(), Some(130), "{said}");
            assert!(!said.contains("panicked"), "{said}");
            assert_eq!(net.traces(), before);
        }
    }
}

/// A kill cannot be answered; the next start puts the host in order.
#[test]
fn the_next_start_cleans_up_after_a_kill() {
    let Some(net) = Net::new(2) else { return };
    let before = net.traces();
    for attach in ["packet", "tun"] {
        if attach == "tun" && !std::path::Path::new("/dev/net/tun").exists() {
            eprintln!("skipped: there is no /dev/net/tun");
            continue;
        }
        let more = ["--attach", attach].map(str::to_owned).to_vec();
        let plan = Plan {
            own: Own::Shared,
            more,
            ..Plan::new(&[V4, V4])
        };
        let mut route = Route::open(&net, Role::Client, plan.clone());
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, 1000);
        route.program.signal(Signal::SIGKILL);
        let (status, _) = route.end();
        assert_eq!(status.code(), None);
        assert_ne!(net.traces(), before, "it could not clean up");
        drop(ends);
        // The next one works, and takes its own traces and those of the dead one along.
        let route = Route::open(&net, Role::Client, plan);
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, 1000);
        drop(ends);
        route.program.interrupt();
        wait_for("the host to be as it was", || {
            (net.traces() == before).then_some(())
        });
    }
}

/// Two at one time do not take each other's rules away.
#[test]
fn two_programs_beside_each_other() {
    let Some(net) = Net::new(1) else { return };
    let before = net.traces();
    let listener = peer::listen(
        &net.kernel,
        SocketAddr::new([10, 77, 1, 1].into(), 5000),
        Speaks::Mptcp,
    );
    let start = |port: u16| {
        let listen = format!("tcp:127.0.0.1:{port}");
        Program::forward(
            &net.ours,
            &listen,
            "mptcp:10.77.1.1:5000",
            ["--path", "v1=10.77.1.2"],
        )
    };
    let (first, second) = (start(7000), start(7001));
    let connect = |port: u16| {
        let at = SocketAddr::new([127, 0, 0, 1].into(), port);
        let near = peer::connect(&net.ours, at, Speaks::Tcp).expect("the forwarder listens");
        (
            near,
            peer::accept(&listener).expect("the forwarder connects"),
        )
    };
    let (a, b) = connect(7000);
    let (c, d) = connect(7001);
    both_ways(&a, &b, 1_000_000);
    first.interrupt();
    both_ways(&c, &d, 1_000_000);
    drop((c, d));
    second.interrupt();
    assert_eq!(net.traces(), before);
}

/// The command line itself.
#[test]
fn a_wrong_command_line() {
    let try_out = |args: &[&str]| -> Output {
        let mut command: Command = manypath(args);
        command.output().expect("the program starts")
    };
    for args in [
        &["forward"][..],
        &["forward", "--listen", "udp:1", "--to", "tcp:127.0.0.1:1"],
        &[
            "forward",
            "--listen",
            "tcp:127.0.0.1:99999",
            "--to",
            "tcp:127.0.0.1:1",
        ],
        &["nonsense"],
    ] {
        let output = try_out(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
}
