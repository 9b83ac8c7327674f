//! Signals that end a service: at any moment of its set-up and later, and what was ignored stays ignored.

use std::time::Duration;

use manypath_tests::net::{Net, tool};
use manypath_tests::program::{Program, binary, manypath, runtime_dir};
use nix::sys::signal::Signal;

const FORWARD: [&str; 5] = [
    "forward",
    "--listen",
    "mptcp:0.0.0.0:7000",
    "--to",
    "tcp:127.0.0.1:1",
];

/// A service manager's request has exit code 0 for a service; any other signal n has 128 + n.
fn code(signal: Signal) -> i32 {
    match signal {
        Signal::SIGTERM => 0,
        other => 128 + other as i32,
    }
}

fn assert_same(before: &str, after: &str, case: &str) {
    let new = after
        .lines()
        .filter(|line| !before.lines().any(|l| l == *line));
    let gone = before
        .lines()
        .filter(|line| !after.lines().any(|l| l == *line));
    let differing: Vec<&str> = new.chain(gone).collect();
    assert!(before == after, "{case}: {differing:?}");
}

/// What the tests were started with ignored, the program ignores as well (under `nohup`, or in the background of a script).
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.expect("a mask in hexadecimal") >> (signal as i32 - 1) & 1 == 1
}

/// Sends the signals in turn, each to a service of its own, later and later in its set-up and beyond.
fn at_many_moments(attach: &str) {
    const SIGNALS: [Signal; 7] = [
        Signal::SIGTERM,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGINT,
        Signal::SIGALRM,
    ];
    let Some(net) = Net::new(2) else { return };
    let before = net.traces();
    let args = || {
        let paths = ["--path", "v1", "--path", "v2", "--attach", attach];
        manypath(FORWARD.into_iter().chain(paths))
    };
    let (ignored, signals): (Vec<Signal>, Vec<Signal>) =
        SIGNALS.into_iter().partition(|signal| is_ignored(*signal));
    for signal in ignored {
        eprintln!("skipped: {signal} is ignored where these tests run");
    }
    let times = 4 * signals.len();
    for (n, signal) in signals.iter().copied().cycle().take(times).enumerate() {
        let moment = Duration::from_millis(2 + n as u64 * n as u64 / 2);
        let mut program = Program::launch(&net.ours, args());
        std::thread::sleep(moment);
        program.signal(signal);
        let (status, said) = program.end();
        let case = format!("{signal} after {moment:?}: {status}: {said}");
        // Before the program has noted any signal there is nothing to put back, and the signal does what it does to all.
        use std::os::unix::process::ExitStatusExt;
        let at_once = status.signal() == Some(signal as i32);
        assert!(at_once || status.code() == Some(code(signal)), "{case}");
        assert_same(&before, &net.traces(), &case);
    }
    for signal in signals {
        let mut program = Program::start_command(&net.ours, args(), "goes to");
        assert_ne!(net.traces(), before);
        program.signal(signal);
        let (status, said) = program.end();
        assert_eq!(status.code(), Some(code(signal)), "{signal}: {said}");
        assert_same(&before, &net.traces(), &format!("{signal}: {said}"));
    }
}

#[test]
fn the_host_is_as_before_whenever_a_signal_comes_with_packet_sockets() {
    at_many_moments("packet");
}

#[test]
fn the_host_is_as_before_whenever_a_signal_comes_with_a_tun_device() {
    at_many_moments("tun");
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    let Some(net) = Net::new(1) else { return };
    let mut command = tool("sh");
    command
        .args(["-c", "trap '' HUP USR1 && exec \"$0\" \"$@\""])
        .arg(binary())
        .args(FORWARD)
        .args(["--path", "v1"])
        .env("XDG_RUNTIME_DIR", runtime_dir());
    let mut program = Program::start_command(&net.ours, command, "goes to");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("it runs");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.expect("Linux").trim(), 16).expect("a mask");
    let ignored = |signal: Signal| mask & (1 << (signal as i32 - 1)) != 0;
    assert!(
        ignored(Signal::SIGHUP) && ignored(Signal::SIGUSR1),
        "{status}"
    );
    program.signal(Signal::SIGHUP);
    program.signal(Signal::SIGUSR1);
    program.interrupt();
}
