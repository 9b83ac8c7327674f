//! The kernel's own connections, between two kernels, steered by `manypath ctl --engine kernel`: by hand, by policies of our
//! stack, and by the examples of the library.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use manypath_control::report::ConnReport;
use manypath_control::wire::Reply;
use manypath_lab::netns::Process;
use manypath_tests::net::{Family, Net};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{binary, manypath};
use manypath_tests::transfer::both_ways;
use manypath_tests::until::wait_until;

use Family::V4;

/// Makes new connections of our side wait for a controller, which may use both cables.
fn prepare(net: &Net) {
    net.ours
        .ip([
            "rule add from 10.77.2.2 table 2",
            "route add default via 10.77.2.1 dev v2 table 2",
        ])
        .expect("the cable is there");
    // With checksums a sending kernel may lock up when a path dies.
    for host in [&net.kernel, &net.ours] {
        host.sysctl("net.mptcp.checksum_enabled", "0")
            .expect("it is there");
    }
    net.ours
        .sysctl("net.mptcp.pm_type", "1")
        .expect("a kernel since 5.19");
}

/// A connection, with the listener: a kernel takes joins only while it listens.
fn connect(net: &Net) -> (TcpStream, TcpStream, peer::Listener) {
    let target = SocketAddr::new(Net::kernel_address(V4, 1), 5000);
    let listener = peer::listen(&net.kernel, target, Speaks::Mptcp);
    let near = peer::connect(&net.ours, target, Speaks::Mptcp).expect("it listens");
    let far = peer::accept(&listener).expect("it is there");
    (near, far, listener)
}

/// Runs a `ctl` command for our side's kernel.
fn ctl(net: &Net, words: &[&str]) -> Result<String, String> {
    let mut command = manypath(["ctl", "--engine", "kernel", "--json"]);
    command.args(words);
    let out = net.ours.output(command).expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match out.status.success() {
        true => Ok(text(&out.stdout)),
        false => Err(text(&out.stderr)),
    }
}

fn connections(net: &Net) -> Vec<ConnReport> {
    let text = ctl(net, &["list"]).expect("a list");
    match serde_json::from_str(&text).expect("a reply") {
        Reply::Process { process } => process.connections,
        other => panic!("not a list: {other:?}"),
    }
}

fn wait_for_subflows(net: &Net, count: usize) -> ConnReport {
    wait_until("as many subflows", || {
        let all = connections(net);
        match all.as_slice() {
            [conn] if conn.established().count() == count => Ok(conn.clone()),
            _ => Err(all),
        }
    })
}

fn joins(net: &Net) -> u64 {
    net.counters().get("MPTcpExtMPJoinAckRx")
}

/// Every command by hand. The session of each is its own: what began before it is found by looking.
#[test]
fn the_kernels_connections_are_listed_and_commanded() {
    let Some(net) = Net::new(2) else { return };
    prepare(&net);
    let (near, far, _listener) = connect(&net);
    both_ways(&near, &far, 100_000);
    let conn = wait_until("the last acknowledgement", || {
        let conn = wait_for_subflows(&net, 1);
        match conn.bytes_acked {
            100_000 => Ok(conn),
            less => Err(less),
        }
    });
    assert_eq!(conn.role, "initiator");
    let first = &conn.subflows[0];
    assert!(first.srtt_us.is_some() && first.cwnd > 0 && first.rto_us > 0);
    let id = conn.id.as_str();
    ctl(&net, &["add", id, "--from", "10.77.2.2", "--backup"]).expect("a second subflow");
    let conn = wait_for_subflows(&net, 2);
    assert!(conn.subflows[1].backup_here, "{:?}", conn.subflows);
    let end = conn.subflows[1].local.expect("its address").to_string();
    ctl(&net, &["priority", id, &end, "regular"]).expect("another priority");
    wait_until("the new priority", || {
        let conn = wait_for_subflows(&net, 2);
        match conn.subflows[1].backup_here {
            false => Ok(()),
            true => Err(conn.subflows),
        }
    });
    both_ways(&near, &far, 1_000_000);
    ctl(&net, &["remove", id, &end]).expect("the second subflow ends");
    let conn = wait_for_subflows(&net, 1);
    assert_ne!(conn.subflows[0].local.map(|end| end.to_string()), Some(end));
    ctl(&net, &["announce", id, "10.77.2.2"]).expect("an address is told");
    wait_until("the peer to hear of it", || {
        match net.counters().get("MPTcpExtAddAddr") {
            0 => Err("nothing"),
            _ => Ok(()),
        }
    });
    both_ways(&near, &far, 100_000);
    for (words, answer) in [
        (&["policy", id, "fullmesh"][..], "does not offer"),
        (&["limits", id, "--subflows", "3"], "does not offer"),
        (&["remove", id, "0"], "names no subflow"),
        (&["remove", id, "10.77.2.2:9"], "no subflow ends"),
        (&["add", "0badbeef"], "no such"),
        (&["add", id, "--from", "192.0.2.1"], "the kernel"),
    ] {
        let refused = ctl(&net, words).expect_err("it is refused");
        assert!(refused.contains(answer), "{words:?}: {refused}");
    }
}

/// A program of ours beside the kernel, ended when it is dropped.
struct Controller(Process);

impl Controller {
    /// Starts it and waits until the kernel has it on its list of those to tell.
    fn start(net: &Net, mut command: Command) -> Self {
        command.stdout(Stdio::null()).stdin(Stdio::null());
        let process = net.ours.spawn(command).expect("it starts");
        wait_until("the controller to listen for events", || {
            let groups = net
                .ours
                .run(|| std::fs::read_to_string("/proc/thread-self/net/netlink"));
            let groups = groups.expect("the table of sockets");
            // Protocol 16 is generic netlink; the fourth column has the groups.
            let listens = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.get(1) == Some(&"16")
                    && words.get(3).is_some_and(|g| g.contains(|c| c != '0'))
            };
            match groups.lines().skip(1).any(listens) {
                true => Ok(()),
                false => Err(groups),
            }
        });
        Self(process)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.0.stop(Duration::ZERO);
    }
}

/// One controller beside the kernel: what it makes, on a healthy network or on one whose first path dies.
pub(crate) fn steered(what: &str, command: Command, wanted: u64, dies: bool) {
    steered_beside(what, |_| ((), command), wanted, dies);
}

/// The same, with something that has to run in our side's namespace while the controller does.
pub(crate) fn steered_beside<K>(
    what: &str,
    controller: impl FnOnce(&Net) -> (K, Command),
    wanted: u64,
    dies: bool,
) {
    let net = if dies { Net::bridged(2) } else { Net::new(2) };
    let Some(net) = net else { return };
    prepare(&net);
    let (_beside, command) = controller(&net);
    let controller = Controller::start(&net, command);
    let before = joins(&net);
    let (near, far, _listener) = connect(&net);
    both_ways(&near, &far, 100_000);
    if dies {
        // Data that stays unacknowledged is what the controller waits for: several blocks of a stream.
        net.swallow(1);
        (&near)
            .write_all(&[7; 200_000])
            .expect("room in the buffer");
    }
    wait_until("the joins", || match joins(&net) - before {
        count if count >= wanted => Ok(()),
        count => Err((what.to_owned(), count)),
    });
    // Linux 6.18 divides by zero (tcp_tso_segs, from __mptcp_close_ssk) when a subflow is destroyed while its connection closes with data to resend,
    // and its generic netlink stays locked: no command may come in the middle of the close.
    drop(controller);
    drop((near, far));
}

fn policy(words: &str) -> Command {
    manypath(["ctl", "--engine", "kernel", "run", words])
}

#[test]
fn policies_of_the_stack_command_the_kernel() {
    steered("fullmesh", policy("fullmesh"), 1, false);
    steered("refresh", policy("refresh"), 4, false);
}

#[test]
fn a_smart_backup_commands_the_kernel() {
    steered("smart-backup", policy("smart-backup"), 1, true);
}

#[test]
fn smart_streaming_commands_the_kernel() {
    steered("streaming", policy("streaming"), 1, true);
    steered("smart_streaming", example("smart_streaming"), 1, true);
}

/// An example of the control crate, built where this test is.
fn example(name: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let profile: PathBuf = binary().parent().expect("cargo's folder").to_owned();
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "--offline", "--package"])
        .args(["manypath-control", "--example", name, "--target-dir"])
        .arg(profile.parent().expect("cargo's folder"))
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo runs").success(), "{name}");
    let mut command = Command::new(profile.join("examples").join(name));
    command.arg("kernel");
    command
}

#[test]
fn examples_of_the_library_command_the_kernel() {
    steered("full_mesh", example("full_mesh"), 1, false);
    steered("refresh", example("refresh"), 4, false);
    steered("smart_backup", example("smart_backup"), 1, true);
}
