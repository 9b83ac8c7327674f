//! What a process that was killed leaves behind, and who takes it away; what a service may have of its host; how long it
//! waits for those that are gone.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, Own, shell, tool};
use manypath_tests::pair::{Plan, Role, Route};
use manypath_tests::program::{Program, binary, runtime_dir};
use manypath_tests::until::{wait_for, wait_until};
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

/// Those of one process.
fn journals_of(pid: u32) -> Vec<PathBuf> {
    let mut all = journals();
    all.retain(|path| path.to_string_lossy().contains(&format!("-{pid}_")));
    all
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
    let Some(net) = Net::new(1) else { return };
    let mut route = Route::open(&net, Role::Client, Plan::new(&[V4]));
    let pid = route.program.pid();
    let at = format!("/proc/{pid}/net/dev");
    let number = std::fs::metadata(at).expect("it runs").ino();
    route.program.signal(Signal::SIGKILL);
    let (status, _) = route.end();
    assert_eq!(status.code(), None);
    assert_eq!(journals_of(pid).len(), 1, "killed, it cannot clean up");

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
    assert_eq!(journals_of(pid).len(), 1, "its host is still there");
    drop(net);
    wait_for("the journal to be forgotten", || {
        start();
        (journals_of(pid).is_empty() || is_inhabited(number)).then_some(())
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

/// The kernel settings of our host and the policy rules of ours.
fn settings(net: &Net) -> Vec<String> {
    let ours = |line: &&str| line.starts_with("net.ipv") || line.starts_with("7000:");
    let all = net.traces();
    all.lines().filter(ours).map(str::to_owned).collect()
}

/// A forwarder behind a TUN device by these interfaces, with IPv4 and IPv6, that has changed settings of each.
fn forward_behind_a_tun(net: &Net, interfaces: &[&str]) -> Program {
    let mut args = vec!["--attach", "tun"];
    for interface in interfaces {
        args.extend(["--path", interface]);
    }
    let program = Program::forward(&net.ours, "tcp:127.0.0.1:0", "mptcp:10.77.1.1:5000", args);
    for interface in interfaces {
        has(
            net,
            &format!("net.ipv4.conf.{interface}.forwarding = 1"),
            true,
        );
        has(
            net,
            &format!("net.ipv6.conf.{interface}.accept_ra = 2"),
            true,
        );
    }
    program
}

/// Waits until our host has, or has not, a setting or rule with these words.
fn has(net: &Net, words: &str, wanted: bool) {
    wait_until(words, || {
        let now = settings(net);
        let there = now.iter().any(|line| line.contains(words));
        if there == wanted { Ok(()) } else { Err(now) }
    });
}

/// Gives an interface of our host another name. Its IPv6 address goes with the link.
fn rename(net: &Net, old: &str, new: &str) {
    let lines = [
        format!("link set {old} down"),
        format!("link set {old} name {new}"),
        format!("link set {new} up"),
    ];
    net.ours.ip(lines).expect("it is there");
}

/// Waits until the rules of our host name an interface as it is called now.
fn rules_follow(net: &Net, interface: &str) {
    let name = format!("\"{interface}\"");
    wait_until("the rules to follow", || {
        let rules = shell(&net.ours, "nft list ruleset");
        if rules.contains(&name) {
            Ok(())
        } else {
            Err(rules)
        }
    });
}

/// Starts it by an interface, and ends it in order.
fn start_and_end(net: &Net, interface: &str) {
    let args = ["--path", interface, "--attach", "tun"];
    Program::forward(
        &net.ours,
        "tcp:127.0.0.1:7000",
        "mptcp:10.77.1.1:5000",
        args,
    )
    .interrupt();
}

fn kill(mut program: Program) -> u32 {
    let pid = program.pid();
    program.signal(Signal::SIGKILL);
    let (status, _) = program.end();
    assert_eq!(status.code(), None);
    assert_eq!(journals_of(pid).len(), 1, "killed, it cannot clean up");
    pid
}

/// An interface that was renamed, lost its addresses and has its old name again is none of the paths meanwhile.
#[test]
fn settings_of_an_interface_that_was_renamed_while_it_had_no_address_are_restored() {
    for back in [true, false] {
        let Some(net) = Net::new(1) else { return };
        let before = settings(&net);
        let program = forward_behind_a_tun(&net, &["v1"]);
        rename(&net, "v1", "v9");
        rules_follow(&net, "v9");
        net.ours.ip(["addr flush dev v9"]).expect("it is there");
        has(&net, "7000:", false);
        if back {
            rename(&net, "v9", "v1");
        }
        program.interrupt();
        if !back {
            rename(&net, "v9", "v1");
        }
        assert_eq!(
            settings(&net),
            before,
            "renamed back before the end: {back}"
        );
    }
}

/// Names that go from one interface to another.
#[test]
fn settings_of_interfaces_that_change_names_are_restored() {
    let Some(net) = Net::new(3) else { return };
    // As an administrator has it, and for no path.
    shell(&net.ours, "sysctl -qw net.ipv4.conf.v3.forwarding=1");
    let before = settings(&net);
    let exchange = || {
        rename(&net, "v1", "x");
        rename(&net, "v3", "v1");
        rename(&net, "v2", "v3");
        rename(&net, "x", "v2");
    };
    let undo = || {
        rename(&net, "v2", "x");
        rename(&net, "v3", "v2");
        rename(&net, "v1", "v3");
        rename(&net, "x", "v1");
    };
    let program = forward_behind_a_tun(&net, &["v1", "v2"]);
    exchange();
    program.interrupt();
    undo();
    assert_eq!(settings(&net), before, "ended in order");
    // An IPv6 address goes when a link is down.
    for n in 1..=2 {
        let line = format!("addr add fd77:{n}::2/64 dev v{n} nodad");
        net.ours.ip([line]).expect("it is there");
    }
    kill(forward_behind_a_tun(&net, &["v1", "v2"]));
    exchange();
    start_and_end(&net, "v2");
    undo();
    assert_eq!(settings(&net), before, "killed");
}

/// Killed, it leaves a note that the next start finds, whatever the interface is called by then.
#[test]
fn settings_of_an_interface_that_was_renamed_are_restored_by_the_next_start() {
    for (while_it_ran, now) in [(true, "v1"), (true, "v9"), (false, "v9")] {
        let Some(net) = Net::new(1) else { return };
        let before = settings(&net);
        let program = forward_behind_a_tun(&net, &["v1"]);
        if while_it_ran {
            rename(&net, "v1", "v9");
            rules_follow(&net, "v9");
        }
        let pid = kill(program);
        match (while_it_ran, now) {
            (true, "v1") => rename(&net, "v9", "v1"),
            (false, "v9") => rename(&net, "v1", "v9"),
            _ => {}
        }
        start_and_end(&net, now);
        if now == "v9" {
            rename(&net, "v9", "v1");
        }
        assert_eq!(settings(&net), before, "{while_it_ran} {now}");
        assert_eq!(journals_of(pid), [] as [PathBuf; 0]);
    }
}

/// What an administrator set on another device that has the index of one that is gone is left alone.
#[test]
fn the_index_of_an_interface_may_be_used_again() {
    let Some(net) = Net::new(2) else { return };
    let index = shell(&net.ours, "ip -o link show v2 | cut -d: -f1");
    kill(forward_behind_a_tun(&net, &["v2"]));
    let line = format!(
        "ip link del v2 && ip link add w2 index {} type veth peer name w3 && sysctl -qw net.ipv4.conf.w2.forwarding=1",
        index.trim()
    );
    shell(&net.ours, &line);
    start_and_end(&net, "v1");
    has(&net, "net.ipv4.conf.w2.forwarding = 1", true);
}

/// The note of a version that knew interfaces by their names alone.
#[test]
fn what_an_earlier_version_noted_is_undone() {
    let Some(net) = Net::new(1) else { return };
    let before = settings(&net);
    let pid = kill(forward_behind_a_tun(&net, &["v1"]));
    let journal = journals_of(pid).remove(0);
    let text = std::fs::read_to_string(&journal).expect("it is ours");
    let as_before: String = text
        .lines()
        .filter_map(|line| {
            if line.starts_with("mark boot") {
                return None;
            }
            let words: Vec<&str> = line.split(' ').collect();
            Some(match words[..] {
                ["sysctl", _, name, .., family, setting, before, ours] if words.len() == 10 => {
                    // The TUN device is gone.
                    let name = if name == "7631" { "v1" } else { "manypath0" };
                    format!("sysctl net/{family}/conf/{name}/{setting} {before} {ours}\n")
                }
                _ => format!("{line}\n"),
            })
        })
        .collect();
    assert!(
        as_before.contains("sysctl net/ipv4/conf/v1/forwarding 0 1\n"),
        "{text}"
    );
    std::fs::write(&journal, as_before).expect("it is ours");
    start_and_end(&net, "v1");
    assert_eq!(settings(&net), before);
    assert!(!journal.with_extension("torn").exists());
}

/// A list of reserved ports is longer than a few bytes where an administrator looks after one.
#[test]
fn the_ports_that_an_administrator_reserved_stay_reserved() {
    let Some(net) = Net::new(1) else { return };
    let ports = "8080,9090,10050-10051,15672,25672,27017,33060,35000-35100,40000,45000-45010,50051";
    let reserve = format!("sysctl -qw net.ipv4.ip_local_reserved_ports={ports}");
    shell(&net.ours, &reserve);
    let reserved = || shell(&net.ours, "sysctl -n net.ipv4.ip_local_reserved_ports");
    let args = ["--path", "v1", "--attach", "packet"];
    let to = "mptcp:10.77.1.1:5000";
    let program = Program::forward(&net.ours, "tcp:127.0.0.1:7000", to, args);
    let now = reserved();
    assert!(
        now.trim().starts_with(ports) && now.trim() != ports,
        "{now}"
    );
    program.interrupt();
    assert_eq!(reserved().trim(), ports);
}

/// The switch for forwarding of IPv6 that counts is one for all interfaces, and writing it writes that of each.
#[test]
fn what_the_switch_for_all_interfaces_overwrites_is_restored() {
    let Some(net) = Net::new(2) else { return };
    let set = "sysctl -qw net.ipv6.conf.v2.forwarding=1 net.ipv6.conf.default.forwarding=1";
    shell(&net.ours, set);
    let show = "sysctl net.ipv6.conf.all.forwarding net.ipv6.conf.default.forwarding \
                net.ipv6.conf.v1.forwarding net.ipv6.conf.v2.forwarding net.ipv6.conf.v2.accept_ra";
    let before = shell(&net.ours, show);
    // The other uplink goes on listening to its router as well.
    let first = forward_behind_a_tun(&net, &["v1"]);
    has(&net, "net.ipv6.conf.v2.accept_ra = 2", true);
    let second = forward_behind_a_tun(&net, &["v1"]);
    first.interrupt();
    has(&net, "net.ipv6.conf.v1.accept_ra = 2", true);
    has(&net, "net.ipv6.conf.all.forwarding = 1", true);
    second.interrupt();
    assert_eq!(shell(&net.ours, show), before);
}

/// What an administrator switches off meanwhile is needed until the end, and off from then on.
#[test]
fn what_was_switched_off_meanwhile_is_off_at_the_end() {
    let Some(net) = Net::new(1) else { return };
    let all = |value: u8| {
        let keys = "net.ipv4.conf.v1.forwarding net.ipv6.conf.all.forwarding";
        let set: Vec<String> = keys
            .split(' ')
            .map(|key| format!("{key}={value}"))
            .collect();
        shell(&net.ours, &format!("sysctl -qw {}", set.join(" ")));
        keys.split(' ')
            .map(|key| format!("{key} = {value}"))
            .collect::<Vec<_>>()
    };
    let on = all(1);
    let program = forward_behind_a_tun(&net, &["v1"]);
    let off = all(0);
    on.iter().for_each(|setting| has(&net, setting, true));
    program.interrupt();
    off.iter().for_each(|setting| has(&net, setting, true));
}
