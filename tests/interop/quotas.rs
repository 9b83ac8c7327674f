//! Quotas of a path in `manypath proxy`, counted on the cables: with downloads that run already, over `kill -9`, and counted anew.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use manypath_control::report::{PathReport, QuotaReport};
use manypath_control::wire::EventReport;
use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, shell};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, manypath};
use manypath_tests::until::wait_until;
use nix::sys::signal::Signal;

use crate::limits::{PORT, SLACK, carried, configure};

/// Sends for as long as somebody reads.
pub(crate) fn pour(kernel: &NetNs) {
    pour_by(kernel, Speaks::Mptcp);
}

/// The same by one of the kernel's TCPs.
pub(crate) fn pour_by(kernel: &NetNs, speaks: Speaks) {
    let at = SocketAddr::new(Net::kernel_address(Family::V4, 1), PORT);
    let listener = peer::listen(kernel, at, speaks);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            std::thread::spawn(move || while stream.write_all(&[b'x'; 65536]).is_ok() {});
        }
    });
}

/// A client that reads until it is dropped. That it was broken is told by its end.
pub(crate) struct Download(TcpStream, std::thread::JoinHandle<u64>);

impl Download {
    pub(crate) fn start(ours: &NetNs) -> Self {
        let at = SocketAddr::from(([127, 0, 0, 1], 7000));
        let stream: TcpStream = peer::connect(ours, at, Speaks::Tcp).expect("it listens");
        let mut read = stream.try_clone().expect("a descriptor");
        let thread = std::thread::spawn(move || {
            let (mut buf, mut all) = (vec![0; 65536], 0);
            while let Ok(n @ 1..) = read.read(&mut buf) {
                all += n as u64;
            }
            all
        });
        Self(stream, thread)
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.1.is_finished()
    }

    pub(crate) fn end(self) {
        // It may be over.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
        let _ = self.1.join();
    }
}

fn start(net: &Net, file: &Path) -> Program {
    let file = file.to_str().expect("UTF-8");
    // Root alone may look into the folder.
    let args = ["proxy", "--config", file, "--user", "root"];
    Program::start(&net.ours, args, "listens on")
}

fn quota(program: &mut Program) -> QuotaReport {
    let mut all = program.report().quotas;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Has the quota counted anew.
fn reset(program: &mut Program) {
    let pid = program.pid().to_string();
    let order = [
        "ctl",
        "--pid",
        pid.as_str(),
        "reset-quota",
        "path",
        "second",
    ];
    let output = manypath(order).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// What a program tells of its limits, in the order in which it does.
struct Events(Child, Arc<Mutex<Vec<EventReport>>>);

impl Events {
    fn follow(program: &mut Program) -> Self {
        let pid = program.pid().to_string();
        let mut command = manypath(["ctl", "--pid", &pid, "events", "--json"]);
        for name in [
            "limit",
            "limit_held",
            "quota_spent",
            "quota_reset",
            "path_priority",
        ] {
            command.args(["--event", name]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&told);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("an event");
                into.lock().expect("lock").push(event);
            }
        });
        let events = Self(child, told);
        // An order that changes nothing else shows that it listens.
        events.wait_for_one("limit", || {
            let order = ["ctl", "--pid", &pid, "limit", "path", "v1", "900gbit"];
            assert!(
                manypath(order)
                    .output()
                    .expect("it starts")
                    .status
                    .success()
            );
            let order = ["ctl", "--pid", &pid, "limit", "path", "v1", "off"];
            assert!(
                manypath(order)
                    .output()
                    .expect("it starts")
                    .status
                    .success()
            );
        });
        events
    }

    fn all(&self) -> Vec<EventReport> {
        self.1.lock().expect("lock").clone()
    }

    /// Waits for an event of this name, and does something before each look.
    fn wait_for_one(&self, name: &str, mut act: impl FnMut()) -> EventReport {
        wait_until("an event", || {
            act();
            let all = self.all();
            let found = all.iter().rfind(|event| event.event == name).cloned();
            found.ok_or((name.to_owned(), all))
        })
    }

    fn wait_for_path(&self, priority: &str) {
        wait_until("an event of the path", || {
            let all = self.all();
            let mut paths = all.iter().filter_map(|event| event.path.as_ref());
            let last = paths.rfind(|path| path.iface == "v2");
            match last.is_some_and(|path| path.priority.as_deref() == Some(priority)) {
                true => Ok(()),
                false => Err((priority.to_owned(), all)),
            }
        });
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both ways together.
fn all(net: &Net, n: u8) -> f64 {
    carried(&net.ours, n).iter().sum()
}

fn wait_carried(net: &Net, program: &Program, n: u8, bytes: f64) {
    let before = all(net, n);
    wait_until("a path to carry something", || {
        let now = all(net, n);
        match now - before >= bytes {
            true => Ok(()),
            false => Err((now - before, program.said())),
        }
    });
}

const AMOUNT: f64 = 20e6;

#[test]
fn a_quota_moves_downloads_that_run_holds_over_kill_9_and_is_counted_anew_by_order() {
    let Some(net) = Net::new(2) else { return };
    net.add_endpoint(Net::kernel_address(Family::V4, 2), 2, "signal");
    for (cable, rate) in [("v1", "50mbit"), ("v2", "200mbit")] {
        let line =
            format!("tc qdisc add dev {cable} root tbf rate {rate} burst 128kb limit 250000");
        shell(&net.kernel, &line);
    }
    pour(&net.kernel);
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("quotas.json");
    let paths = format!(
        "[quotas]\nfile = {kept:?}\n[path.first]\ninterface = \"v1\"\n[path.second]\ninterface = \"v2\"\n\
         quota = {{ amount = \"20MB\", period = \"month\", reset = \"1st 00:00 UTC\", then = \"never\" }}\n"
    );
    let file = configure(folder.path(), "paths = \"named\"", &paths);
    let mut program = start(&net, &file);
    let events = Events::follow(&mut program);
    let before = all(&net, 2);
    let downloads: Vec<Download> = (0..8).map(|_| Download::start(&net.ours)).collect();
    wait_until("the quota to be used up", || {
        let quota = quota(&mut program);
        match quota.spent {
            true => Ok(()),
            false => Err(format!("{quota:?} {}", program.said())),
        }
    });
    let spent = events.wait_for_one("quota_spent", || {});
    let spent = spent.quota.expect("it is in the event");
    assert_eq!((spent.name.as_str(), spent.amount), ("second", 20_000_000));
    events.wait_for_path("never");
    let paths = program.report().paths;
    let out = |path: &PathReport| {
        let reason = path.reason.as_deref().unwrap_or_default();
        path.iface == "v2"
            && !path.up
            && path.priority.as_deref() == Some("never")
            && reason.starts_with("its quota of 20MB a month is used up, back at ")
            && reason.ends_with("-01 00:00 UTC")
    };
    assert!(paths.iter().any(out), "{paths:?}");
    wait_carried(&net, &program, 1, 5e6);
    let used = all(&net, 2) - before;
    assert!(used >= AMOUNT * 0.95, "{used}: it was used before");
    assert!(used <= AMOUNT * 1.05 + SLACK, "{used}");
    let told = quota(&mut program);
    // A cable of this kind passes many segments as one packet, and counts the headers of one.
    let counted = told.used as f64;
    assert!(counted >= used - SLACK, "{told:?}: {used}");
    assert!(counted <= used * 1.04 + SLACK, "{told:?}: {used}");
    wait_carried(&net, &program, 1, 5e6);
    assert!(
        all(&net, 2) - before - used < SLACK,
        "nothing more goes there"
    );
    assert!(
        downloads.iter().all(Download::is_running),
        "{}",
        program.said()
    );
    // A second later at most it is kept, and the program may die.
    wait_until("the count to be kept", || {
        let text = std::fs::read_to_string(&kept).unwrap_or_default();
        let bytes = text.split("\"bytes\": ").nth(1);
        let bytes = bytes.and_then(|rest| rest.split_whitespace().next());
        let bytes: u64 = bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        match bytes >= told.used {
            true => Ok(()),
            false => Err((text, program.said())),
        }
    });
    program.signal(Signal::SIGKILL);
    let _ = program.end();
    downloads.into_iter().for_each(Download::end);
    let mut program = start(&net, &file);
    assert!(quota(&mut program).spent, "{}", program.said());
    let before = all(&net, 2);
    let download = Download::start(&net.ours);
    wait_carried(&net, &program, 1, 5e6);
    assert!(all(&net, 2) - before < SLACK, "it is still used up");
    download.end();
    reset(&mut program);
    let told = quota(&mut program);
    assert!(told.used < 1000 && !told.spent, "{told:?}");
    program.signal(Signal::SIGKILL);
    let _ = program.end();
    let mut program = start(&net, &file);
    let events = Events::follow(&mut program);
    let told = quota(&mut program);
    assert!(
        told.used < 1000 && !told.spent,
        "{told:?}: the reset is kept"
    );
    let download = Download::start(&net.ours);
    wait_until("the quota to be used up again", || {
        let quota = quota(&mut program);
        match quota.spent {
            true => Ok(()),
            false => Err(format!("{quota:?} {}", program.said())),
        }
    });
    wait_carried(&net, &program, 1, 1e6);
    events.wait_for_path("never");
    reset(&mut program);
    let begun = Instant::now();
    wait_carried(&net, &program, 2, 1e6);
    // As the users' case has it: nothing in the way back waits for a time.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(download.is_running(), "{}", program.said());
    events.wait_for_one("quota_reset", || {});
    events.wait_for_path("always");
    download.end();
    program.interrupt();
}
