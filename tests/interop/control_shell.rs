//! Paths steered with nothing but a shell, `nc` and `jq`, by the very commands of `docs/control.md`.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use manypath_tests::net::Net;
use manypath_tests::program::runtime_dir;
use manypath_tests::transfer::{both_ways, finish};
use manypath_tests::until::wait_until;

use crate::control::{led, wait_for_established};

/// The commands of the documentation, each a line of its own.
const DOCUMENT: &str = include_str!("../../docs/control.md");

/// The first command of the documentation that has this in it, with what it has as examples replaced.
fn documented(part: &str, replaced: &[(&str, &str)]) -> String {
    let mut commands = DOCUMENT.lines().filter_map(|l| l.strip_prefix("    $ "));
    let command = commands.find(|command| command.contains(part));
    let mut command = command.expect("it is documented").to_owned();
    for (example, this) in replaced {
        assert!(command.contains(example), "{example} in {command}");
        command = command.replace(example, this);
    }
    command
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell.env("XDG_RUNTIME_DIR", runtime_dir());
    shell.stdin(Stdio::null()).stderr(Stdio::inherit());
    shell
}

/// What a command prints.
fn said(command: &str) -> String {
    let out = shell(command).output().expect("it starts");
    assert!(out.status.success(), "{command}");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// A command that goes on, and what it has printed so far.
struct Follower {
    shell: Child,
    said: Arc<Mutex<String>>,
}

impl Follower {
    fn start(command: &str) -> Self {
        // The shell becomes a group of its own, so that its pipeline ends with it.
        let mut shell = shell(command);
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        let mut shell = shell.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut out = shell.stdout.take().expect("a pipe");
        let said = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut chunk) {
                let text = String::from_utf8_lossy(&chunk[..count]);
                into.lock().expect("lock").push_str(&text);
            }
        });
        Self { shell, said }
    }

    fn wait_for(&self, part: &str) {
        wait_until(part, || {
            let said = self.said.lock().expect("lock").clone();
            if said.contains(part) {
                Ok(())
            } else {
                Err(said)
            }
        });
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.shell.id()) {
            // It may have ended with the process that it watched.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.shell.wait();
    }
}

/// Events are followed and a subflow is made, without a line of ours on that side.
#[test]
fn nc_and_jq_are_enough_to_control_connections() {
    for program in ["nc", "jq"] {
        if Command::new(program).arg("-h").output().is_err() {
            eprintln!("skipped: there is no {program}");
            return;
        }
    }
    let Some(net) = Net::new(2) else { return };
    let mut route = led(&net);
    let ends = route.join();
    let pid = route.program.pid().to_string();
    both_ways(&ends.ours, &ends.kernel, 1000);
    let name = said(&documented("\"list\"", &[("4711", &pid)]));
    let name = name.trim_matches('"');
    assert_eq!(name, route.program.connection().id);
    let follower = Follower::start(&documented("\"subscribe\"", &[("4711", &pid)]));
    // A sample says that the subscription has been heard of.
    follower.wait_for(r#""event":"sample""#);
    let conn = route.program.connection();
    let first = conn.local.expect("an address").ip();
    let mut locals = conn.local_addresses.iter().filter_map(|l| l.address);
    let second = locals.rfind(|addr| *addr != first).expect("two");
    let second = second.to_string();
    let create = [("4711", pid.as_str()), ("3.1", name), ("10.1.0.2", &second)];
    let reply =
        said(&(documented("\"subflow_create\"", &create) + " | jq -c '[.reply, .subflow]'"));
    assert_eq!(reply, r#"["done",1]"#);
    wait_for_established(&mut route, 2);
    follower.wait_for(&format!(
        r#""event":"sub_established","connection":"{name}""#
    ));
    both_ways(&ends.ours, &ends.kernel, 100_000);
    finish(&ends.ours, &ends.kernel);
}
