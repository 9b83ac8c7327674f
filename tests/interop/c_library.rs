//! The C library and its examples, as a C compiler makes them: on their own, steering connections to the Linux kernel, and
//! steering the kernel's own through `manypath ctl serve`.

use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use manypath_control::report::SubflowReport;
use manypath_lab::netns::Process;
use manypath_tests::net::{Family, Net, Own};
use manypath_tests::program::{manypath, runtime_dir};
use manypath_tests::transfer::{both_ways, finish};

use crate::control::{led, wait_for_established};
use crate::control_kernel::steered_beside;

/// Runs `make` for the library, into a folder of the test's own. `None` where it cannot be built, with the reason printed.
fn make(out: &Path, target: &str) -> Option<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../bindings/c");
    let includes = "#include <jansson.h>\n";
    let compiler = Command::new("cc")
        .args(["-E", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let has_library = compiler.is_ok_and(|mut compiler| {
        let mut input = compiler.stdin.take().expect("a pipe");
        let written = input.write_all(includes.as_bytes());
        drop(input);
        written.is_ok() && compiler.wait().is_ok_and(|status| status.success())
    });
    if !has_library {
        eprintln!("skipped: no C compiler with Jansson (package libjansson-dev)");
        return None;
    }
    let made = Command::new("make")
        .args(["-s", "-C", folder, target])
        .arg(format!("OUT={}", out.display()))
        .env_remove("MAKEFLAGS")
        .output();
    let Ok(made) = made else {
        eprintln!("skipped: there is no make");
        return None;
    };
    assert!(
        made.status.success(),
        "make {target}: {}{}",
        String::from_utf8_lossy(&made.stdout),
        String::from_utf8_lossy(&made.stderr)
    );
    Some(())
}

/// A running controller, which ends with the test.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended with the process that it steered.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an example beside a process.
fn start(example: &Path, pid: u32) -> Controller {
    let mut command = Command::new(example);
    command
        .arg(pid.to_string())
        .env("XDG_RUNTIME_DIR", runtime_dir());
    Controller(command.spawn().expect("it was made"))
}

/// Against a process that a thread plays, with the compiler's checks of memory and arithmetic on.
#[test]
fn the_c_library_passes_its_tests() {
    let out = tempfile::tempdir().expect("a folder");
    let _ = make(out.path(), "check");
}

/// The two that open all they can.
#[test]
fn controllers_in_c_command_connections_to_the_kernel() {
    let Some(net) = Net::bridged(2) else { return };
    let out = tempfile::tempdir().expect("a folder");
    if make(out.path(), "all").is_none() {
        return;
    }
    for (example, count) in [("full_mesh", 2), ("refresh", 5)] {
        let mut route = led(&net);
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, 1000);
        let controller = start(&out.path().join(example), route.program.pid());
        wait_for_established(&mut route, count);
        both_ways(&ends.ours, &ends.kernel, 2_000_000);
        drop(controller);
        finish(&ends.ours, &ends.kernel);
    }
}

/// The two that wait for trouble: the first path dies without a word, and what was written arrives over the second.
#[test]
fn controllers_in_c_leave_a_dead_path() {
    let out = tempfile::tempdir().expect("a folder");
    for example in ["streaming", "smart_backup"] {
        let Some(net) = Net::bridged(2) else { return };
        if make(out.path(), "all").is_none() {
            return;
        }
        let mut route = led(&net);
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, 1000);
        let _controller = start(&out.path().join(example), route.program.pid());
        net.swallow(1);
        both_ways(&ends.ours, &ends.kernel, 100_000);
        let second = Net::our_address(Family::V4, Own::Owned, 2);
        let conn = route.program.connection();
        let carries =
            |subflow: &SubflowReport| subflow.local.is_some_and(|local| local.ip() == second);
        assert!(conn.subflows.iter().any(carries), "{example}: {conn:?}");
        finish(&ends.ours, &ends.kernel);
    }
}

/// The kernel's connections on a control socket, and where that lies.
fn serve(net: &Net) -> (Process, PathBuf) {
    let mut command = manypath(["ctl", "--engine", "kernel", "serve"]);
    command.stderr(Stdio::piped());
    let mut process = net.ours.spawn(command).expect("it starts");
    let said = process.child().stderr.take().expect("a pipe");
    let line = BufReader::new(said).lines().next().expect("a line");
    let line = line.expect("text");
    let path = line.split(" serves ").next().expect("a first word");
    (process, path.into())
}

#[test]
fn controllers_in_c_command_the_kernels_own_connections() {
    let out = tempfile::tempdir().expect("a folder");
    if make(out.path(), "all").is_none() {
        return;
    }
    for (example, joins, dies) in [
        ("full_mesh", 1, false),
        ("refresh", 4, false),
        ("smart_backup", 1, true),
        ("streaming", 1, true),
    ] {
        let beside = |net: &Net| {
            let (server, socket) = serve(net);
            let mut command = Command::new(out.path().join(example));
            command.arg(socket);
            (server, command)
        };
        steered_beside(example, beside, joins, dies);
    }
}
