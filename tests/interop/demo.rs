//! The demo, ended before its time: nothing of it may stay.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use manypath_lab::netns::{Privilege, acquire, privilege};
use manypath_tests::program::manypath;
use manypath_tests::until::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Whether the demo can run here with real packets; says why not.
fn possible() -> bool {
    let why = match privilege() {
        Privilege::Forbidden(why) => Some(why),
        Privilege::Ready => acquire().err().map(|error| error.to_string()),
        // It enters one of its own.
        Privilege::Enter(_) => None,
    };
    if let Some(why) = why {
        eprintln!("skipped: {why}");
        return false;
    }
    let curl = Command::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !curl.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no curl");
        return false;
    }
    true
}

/// A demo that is in the middle of its first download, and its folder for temporary files.
fn running() -> (Child, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut demo = manypath(["demo", "--quick"])
        .current_dir(&folder)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stderr = demo.stderr.take().expect("a pipe");
    let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
    let mut said = Vec::new();
    let begun = lines
        .by_ref()
        .inspect(|line| said.push(line.clone()))
        .any(|line| line.contains("Mbit/s"));
    assert!(begun, "the demo did not begin: {said:?}");
    // Somebody must go on listening, or its next line would end it.
    std::thread::spawn(move || lines.count());
    (demo, folder)
}

/// Parent and state of a process.
fn status(pid: u32) -> Option<(u32, char)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

/// Every process that descends from this one, itself left out.
fn descendants(of: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .expect("Linux")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, status(pid)?.0))).collect();
    let mut found = vec![of];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(
            parents
                .iter()
                .filter(|(_, p)| *p == parent)
                .map(|(pid, _)| *pid),
        );
        at += 1;
    }
    found.split_off(1)
}

/// Gone, or dead and waiting to be reaped by whoever inherited it.
fn is_gone(pid: u32) -> bool {
    status(pid).is_none_or(|(_, state)| matches!(state, 'Z' | 'X'))
}

fn signal(demo: &Child, signal: Signal) {
    let pid = i32::try_from(demo.id()).expect("Linux numbers processes below 2^22");
    kill(Pid::from_raw(pid), signal).expect("our child");
}

#[test]
fn an_interrupted_demo_takes_everything_down() {
    if !possible() {
        return;
    }
    let (mut demo, folder) = running();
    let others = descendants(demo.id());
    assert!(
        others.len() >= 3,
        "a server, a relay and a client at least: {others:?}"
    );
    signal(&demo, Signal::SIGINT);
    let ended = wait_for("the demo to end", || demo.try_wait().expect("our child"));
    assert_eq!(ended.code(), Some(130), "{ended}");
    assert!(
        others.iter().all(|pid| is_gone(*pid)),
        "when it has ended, so have all others: {others:?}"
    );
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("ours").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_killed_demo_leaves_no_process_behind() {
    if !possible() {
        return;
    }
    let (mut demo, _folder) = running();
    let others = descendants(demo.id());
    assert!(
        others.len() >= 3,
        "a server, a relay and a client at least: {others:?}"
    );
    signal(&demo, Signal::SIGKILL);
    demo.wait().expect("our child");
    // Namespaces live only as long as the processes and threads in them, so with these they are gone too.
    wait_for("the demo's processes to end", || {
        others.iter().all(|pid| is_gone(*pid)).then_some(())
    });
}
