//! Paths steered from outside, against the Linux kernel as the peer: commands, events, and controllers beside the process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use manypath_control::report::ConnReport;
use manypath_tests::net::{Family, Net};
use manypath_tests::pair::{Plan, Role, Route};
use manypath_tests::program::manypath;
use manypath_tests::transfer::{both_ways, finish};
use manypath_tests::until::wait_until;

use crate::control_kernel::steered;

use Family::V4;

/// Runs a `ctl` command for a process and gives what it prints.
fn ctl(pid: u32, words: &[&str]) -> String {
    let mut command = manypath(["ctl", "--pid", &pid.to_string()]);
    let out = command.args(words).output().expect("it starts");
    let (said, error) = (
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    );
    assert!(out.status.success(), "ctl {words:?}: {said}{error}");
    said
}

fn established(conn: &ConnReport) -> Vec<u32> {
    let up = conn.subflows.iter().filter(|s| s.phase == "established");
    up.map(|s| s.id).collect()
}

pub(crate) fn wait_for_established(route: &mut Route<'_>, count: usize) -> Vec<u32> {
    wait_until("as many subflows", || {
        let conn = route.program.connection();
        let up = established(&conn);
        if up.len() == count {
            Ok(up)
        } else {
            Err((conn.subflows, conn.ended))
        }
    })
}

/// A running `ctl events`.
struct Watcher {
    process: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Watcher {
    /// Starts it and waits until its subscription is heard of.
    fn start(pid: u32) -> Self {
        let pid = pid.to_string();
        let mut command = manypath([
            "ctl", "--pid", &pid, "--json", "events", "--sample", "100ms",
        ]);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(process.stdout.take().expect("a pipe"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                into.lock().expect("lock").push(line);
            }
        });
        let watcher = Self { process, lines };
        wait_until("the first sample", || {
            match watcher.said().contains(r#""event":"sample""#) {
                true => Ok(()),
                false => Err(()),
            }
        });
        watcher
    }

    fn said(&self) -> String {
        self.lines.lock().expect("lock").join("\n")
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // It may have ended with the process that it watched.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection over two cables whose paths nobody but a controller decides.
pub(crate) fn led(net: &Net) -> Route<'_> {
    let mut plan = Plan::new(&[V4, V4]);
    plan.more = vec!["--path-manager".into(), "userspace".into()];
    Route::open(net, Role::Client, plan)
}

/// Subflows come and go by command, the kernel goes along, and a watcher with nothing but a socket sees it all.
#[test]
fn subflows_come_and_go_by_command() {
    let Some(net) = Net::new(2) else { return };
    let mut route = led(&net);
    let ends = route.join();
    let pid = route.program.pid();
    both_ways(&ends.ours, &ends.kernel, 1000);
    let conn = route.program.connection();
    assert_eq!(established(&conn).len(), 1);
    let name = conn.id.clone();
    let second = conn
        .local_addresses
        .iter()
        .filter(|local| Some(local.address) != conn.local.map(|l| Some(l.ip())))
        .find_map(|local| local.address)
        .expect("a second address");
    let watcher = Watcher::start(pid);
    ctl(
        pid,
        &["add", &name, "--from", &second.to_string(), "--backup"],
    );
    let up = wait_for_established(&mut route, 2);
    ctl(pid, &["remove", &name, &up[1].to_string()]);
    wait_for_established(&mut route, 1);
    ctl(pid, &["add", &name]);
    let up = wait_for_established(&mut route, 2);
    ctl(pid, &["priority", &name, &up[0].to_string(), "backup"]);
    both_ways(&ends.ours, &ends.kernel, 2_000_000);
    ctl(pid, &["remove", &name, &up[0].to_string(), "--reset"]);
    wait_for_established(&mut route, 1);
    both_ways(&ends.ours, &ends.kernel, 2_000_000);
    let why = ctl(pid, &["show", &name]);
    for part in [
        "reset subflow",
        "as backup: on request",
        "create * -> *: on request",
    ] {
        assert!(why.contains(part), "{part} is missing in:\n{why}");
    }
    finish(&ends.ours, &ends.kernel);
    route.program.wait_until_idle();
    drop(ends);
    let said = wait_until("the end to be told", || {
        let said = watcher.said();
        if said.contains(r#""event":"closed""#) {
            Ok(said)
        } else {
            Err(said)
        }
    });
    for part in [
        r#""event":"sub_established""#,
        r#""event":"sub_closed""#,
        r#""cause":"administrative""#,
        r#""event":"closed""#,
    ] {
        assert!(said.contains(part), "{part} is missing in:\n{said}");
    }
    for line in said.lines() {
        let read: Result<manypath_control::wire::EventReport, _> = serde_json::from_str(line);
        assert!(read.is_ok(), "{line}");
    }
}

/// Full mesh as a controller beside the process: it makes the second subflow, and makes it again after a loss.
#[test]
fn a_full_mesh_beside_the_process_re_creates_what_is_lost() {
    let Some(net) = Net::new(2) else { return };
    let mut route = led(&net);
    net.add_endpoint(Net::kernel_address(V4, 2), 2, "signal");
    let ends = route.join();
    let pid = route.program.pid();
    both_ways(&ends.ours, &ends.kernel, 1000);
    let mut run = manypath(["ctl", "--pid", &pid.to_string(), "run", "fullmesh"]);
    let mut run = run.stdout(Stdio::null()).spawn().expect("it starts");
    let up = wait_until("more subflows", || {
        let conn = route.program.connection();
        let up = established(&conn);
        if up.len() > 1 {
            Ok(up)
        } else {
            Err(conn.subflows)
        }
    });
    // Who does not own the connection may look, but not touch.
    let name = route.program.connection().id;
    let refused = manypath(["ctl", "--pid", &pid.to_string(), "remove", &name, "0"])
        .output()
        .expect("it starts");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another controller"));
    both_ways(&ends.ours, &ends.kernel, 1_000_000);
    // Killed without a word: what it made stays, and the connection's own policy is back.
    run.kill().expect("it runs");
    run.wait().expect("its end");
    wait_until("the claim to end", || {
        let out = manypath([
            "ctl",
            "--pid",
            &pid.to_string(),
            "remove",
            &name,
            &up[1].to_string(),
        ])
        .output()
        .expect("it starts");
        if out.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&out.stderr).into_owned())
        }
    });
    both_ways(&ends.ours, &ends.kernel, 1_000_000);
    finish(&ends.ours, &ends.kernel);
}

/// `python3` with the library of the project; nothing where there is none.
fn python(args: &[&str]) -> Option<Command> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../bindings/python");
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("there is no python3");
        return None;
    }
    let mut command = Command::new("python3");
    command
        .args(args)
        .current_dir(folder)
        .env("PYTHONPATH", "src")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_RUNTIME_DIR", manypath_tests::program::runtime_dir())
        .stdin(Stdio::null());
    Some(command)
}

/// The Python library's own tests: both clients against a process that a thread plays, and the rules of the examples.
#[test]
fn the_python_library_passes_its_tests() {
    let Some(mut tests) = python(&["-m", "unittest", "discover", "-s", "tests"]) else {
        return;
    };
    let out = tests.output().expect("it starts");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Examples of the Python library steer a connection to the kernel: a full mesh, and subflows on one path that are refreshed.
#[test]
fn controllers_in_python_command_connections_to_the_kernel() {
    let Some(net) = Net::new(2) else { return };
    for (example, count) in [("examples/full_mesh.py", 2), ("examples/refresh.py", 5)] {
        let mut route = led(&net);
        let ends = route.join();
        let pid = route.program.pid().to_string();
        let Some(mut controller) = python(&[example, &pid]) else {
            return;
        };
        both_ways(&ends.ours, &ends.kernel, 1000);
        let mut controller = controller.spawn().expect("it starts");
        wait_for_established(&mut route, count);
        both_ways(&ends.ours, &ends.kernel, 2_000_000);
        controller.kill().expect("it runs");
        controller.wait().expect("its end");
        finish(&ends.ours, &ends.kernel);
    }
}

/// The same examples over the kernel's netlink steer connections between two kernels: full mesh, refresh, and a backup and a second
/// subflow that are made when the first path dies.
#[test]
fn controllers_in_python_command_the_kernels_own_connections() {
    for (example, joins) in [
        ("full_mesh.py", 1),
        ("refresh.py", 4),
        ("smart_backup.py", 1),
        ("streaming.py", 1),
    ] {
        let file = format!("examples/{example}");
        let Some(controller) = python(&["-u", &file, "kernel"]) else {
            return;
        };
        let dies = ["smart_backup.py", "streaming.py"].contains(&example);
        steered(example, controller, joins, dies);
    }
}
