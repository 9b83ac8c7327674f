//! What a process that was killed leaves behind, and who takes it away; what a service may have of its host; how long it
//! waits for those that are gone.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, Own, tool};
use manypath_tests::pair::{Plan, Role, Route};
use manypath_tests::program::{Program, binary, runtime_dir};
use manypath_tests::until::wait_for;
use nix::sys::signal::Signal;

use Family::V4;

/// The exit code for everything that the network does to us.
const NETWORK: i32 = 4;

/// The notes about changes of hosts, wherever they may be.
fn journals() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders = vec!["/run/manypath".into(), runtime_dir().join("manypath")];
    let ours = |name: &OsStr| name.to_string_lossy().starts_with("manypath-");
    folders.extend(
        list(&std::env::temp_dir())
            .filter(|entry| ours(&entry.file_name()))
            .map(|entry| entry.path()),
    );
    for folder in folders {
        found.extend(list(&folder).map(|entry| entry.path()));
    }
    found.retain(|path| path.extension().is_some_and(|e| e == "undo"));
    found
}

/// Whether some thread is in a network namespace whose copy of `net/dev` has this number. Numbers of namespaces that are
/// gone are used again.
fn is_inhabited(number: u64) -> bool {
    let list = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    list(Path::new("/proc"))
        .flat_map(|process| list(&process.path().join("task")))
        .filter_map(|thread| std::fs::metadata(thread.path().join("net/dev")).ok())
        .any(|meta| meta.ino() == number)
}

#[test]
fn what_is_noted_about_hosts_that_are_gone_is_forgotten() {
    let of = |pid: u32| {
        let mut all = journals();
        all.retain(|path| path.to_string_lossy().contains(&format!("-{pid}_")));
        all
    };
    let Some(net) = Net::new(1) else { return };
    let mut route = Route::open(&net, Role::Client, Plan::new(&[V4]));
    let pid = route.program.pid();
    let at = format!("/proc/{pid}/net/dev");
    let number = std::fs::metadata(at).expect("it runs").ino();
    route.program.signal(Signal::SIGKILL);
    let (status, _) = route.end();
    assert_eq!(status.code(), None);
    assert_eq!(of(pid).len(), 1, "killed, it cannot clean up");

    // A host that is there already does not get the number of the one that goes.
    let other = NetNs::new("other").expect("permitted, as the others were");
    other
        .ip([
            "link add v1 type veth peer name v2".to_owned(),
            "addr add 10.77.1.2/24 dev v1".to_owned(),
            "link set v1 up".to_owned(),
            "link set v2 up".to_owned(),
        ])
        .expect("it is ours");
    let start = || {
        let args = ["--path", "v1=10.77.1.10"];
        Program::forward(&other, "tcp:127.0.0.1:7000", "mptcp:10.77.1.1:5000", args).interrupt();
    };
    start();
    assert_eq!(of(pid).len(), 1, "its host is still there");
    drop(net);
    wait_for("the journal to be forgotten", || {
        start();
        (of(pid).is_empty() || is_inhabited(number)).then_some(())
    });
}

#[test]
fn a_service_may_open_as_many_files_as_the_administrator_allows() {
    let Some(net) = Net::new(1) else { return };
    let mut command = tool("sh");
    command
        .args(["-c", "ulimit -Sn 64 && exec \"$0\" \"$@\""])
        .arg(binary())
        .args([
            "perf",
            "serve",
            "--proto",
            "tcp",
            "--listen",
            "127.0.0.1:7000",
        ]);
    let mut program = Program::start_command(&net.ours, command, "serving");
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", program.pid())).expect("it runs");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("Linux");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    assert_ne!(words[3], "64");
    program.interrupt();
}

/// Packets neither come nor go any more.
pub(crate) fn vanish(host: &NetNs) {
    let mut command = tool("nft");
    command.arg(
        "add table inet gone; \
         add chain inet gone in { type filter hook input priority 0; policy drop; }; \
         add chain inet gone out { type filter hook output priority 0; policy drop; }",
    );
    let output = host.output(command).expect("nft is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The time is a second, and TCP would try for many minutes.
fn ends_in_time(proto: &str) {
    let Some(net) = Net::new(1) else { return };
    let at = SocketAddr::new(Net::kernel_address(V4, 1), 5000).to_string();
    let server = Program::start(
        &net.kernel,
        ["perf", "serve", "--proto", "kernel-mptcp", "--listen", &at],
        "serving",
    );
    let started = Instant::now();
    let path = Net::path(V4, Own::Owned, 1);
    let client = Program::start(
        &net.ours,
        [
            "perf", "send", &at, "--proto", proto, "--time", "1s", "--path", &path,
        ],
        "bit/s",
    );
    vanish(&net.kernel);
    let (status, said) = client.end();
    assert_eq!(status.code(), Some(NETWORK), "{proto}: {said}");
    assert!(said.contains("nothing has moved"), "{proto}: {said}");
    assert!(
        started.elapsed() < Duration::from_secs(18),
        "{proto}: {said}"
    );
    drop(server);
}

#[test]
fn a_timed_run_of_ours_ends_though_the_peer_has_vanished() {
    ends_in_time("mptcp");
}

#[test]
fn a_timed_run_of_the_kernels_ends_though_the_peer_has_vanished() {
    ends_in_time("kernel-mptcp");
}
