//! Limits of a path and of a class in `manypath proxy`, counted on the cables.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use manypath_control::report::SubflowReport;
use manypath_control::wire::LimitOf;
use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, shell};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, manypath};
use manypath_tests::until::{wait_for, wait_until};

pub(crate) const PORT: u16 = 5000;

/// Neighbour discovery and what else the kernel sends by itself, and what left between two looks at a counter and the clock.
pub(crate) const SLACK: f64 = 30_000.0;

/// Takes whatever comes.
pub(crate) fn swallow(kernel: &NetNs) {
    let at = SocketAddr::new(Net::kernel_address(Family::V4, 1), PORT);
    let listener = peer::listen(kernel, at, Speaks::Mptcp);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            std::thread::spawn(move || {
                let mut buf = vec![0; 65536];
                while let Ok(1..) = stream.read(&mut buf) {}
            });
        }
    });
}

/// A file in front of the kernel's listener, with this before and after it.
pub(crate) fn configure(folder: &std::path::Path, before: &str, more: &str) -> PathBuf {
    let to = SocketAddr::new(Net::kernel_address(Family::V4, 1), PORT);
    let text = format!(
        "{before}\n[[listen]]\non = \"127.0.0.1:7000\"\nopening = \"fixed\"\nto = \"mptcp:{to}\"\n{more}"
    );
    let file = folder.join("proxy.toml");
    std::fs::write(&file, text).expect("a folder of ours");
    file
}

/// A proxy in front of the kernel's listener, with this besides in its configuration.
fn start(net: &Net, folder: &std::path::Path, more: &str) -> Program {
    let file = configure(folder, "", more);
    let file = file.to_str().expect("UTF-8");
    let args = [
        "proxy", "--config", file, "--path", "v1", "--path", "v2", "-v",
    ];
    Program::start(&net.ours, args, "listens on")
}

/// Has a proxy read its file anew.
pub(crate) fn reload(program: &mut Program) {
    let pid = program.pid().to_string();
    let output = manypath(["reload", "--pid", &pid]).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// A client that writes until it is told to stop.
pub(crate) struct Upload(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Upload {
    pub(crate) fn start(ours: &NetNs) -> Self {
        let at = SocketAddr::from(([127, 0, 0, 1], 7000));
        let mut stream: TcpStream = peer::connect(ours, at, Speaks::Tcp).expect("it listens");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let block = [b'x'; 16384];
            while !stopped.load(Ordering::Relaxed) && stream.write_all(&block).is_ok() {}
        });
        Self(stop, Some(thread))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

/// IP bytes that have come and left by a cable.
pub(crate) fn carried(ours: &NetNs, n: u8) -> [f64; 2] {
    let table = shell(ours, "cat /proc/net/dev");
    let name = format!("v{n}:");
    let line = table.lines().map(str::trim_start);
    let line = line.filter_map(|line| line.strip_prefix(&name)).next();
    let counts = line.expect("a cable").split_whitespace();
    let counts: Vec<f64> = counts.map(|n| n.parse().expect("a count")).collect();
    // Offloads may hide some of the Ethernet headers: none is counted.
    [counts[0] - 14.0 * counts[1], counts[8] - 14.0 * counts[9]]
}

/// IP bytes that have left by a cable, and when.
pub(crate) fn sent(ours: &NetNs, n: u8) -> (f64, Instant) {
    let [_, sent] = carried(ours, n);
    (sent, Instant::now())
}

/// What may leave at `rate` bits a second from one look to another, with a burst of 20 ms or three packets.
pub(crate) fn allowed(rate: f64, from: Instant, to: Instant) -> f64 {
    rate / 8.0 * ((to - from).as_secs_f64() + 0.02) + 4500.0 + SLACK
}

fn limit(program: &mut Program, args: &[&str]) {
    let pid = program.pid().to_string();
    let command = ["ctl", "--pid", pid.as_str(), "limit"];
    let output = manypath(command.iter().chain(args)).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The first path has 20 Mbit/s, so that the second one is wanted.
fn two_paths() -> Option<Net> {
    let net = Net::new(2)?;
    net.add_endpoint(Net::kernel_address(Family::V4, 2), 2, "signal");
    let line = "tc qdisc add dev v1 root tbf rate 20mbit burst 32kb limit 250000";
    shell(&net.ours, line);
    Some(net)
}

#[test]
fn a_path_holds_its_limit_from_the_first_packet_on_and_another_one_from_the_order_on() {
    let Some(net) = two_paths() else { return };
    swallow(&net.kernel);
    let folder = tempfile::tempdir().expect("a folder");
    let path = "[path.second]\ninterface = \"v2\"\nrate = \"8mbit\"\n";
    let (before, began) = sent(&net.ours, 2);
    let mut program = start(&net, folder.path(), path);
    let upload = Upload::start(&net.ours);
    let enough = |since: f64, bytes: f64| {
        wait_for("the second path to carry something", || {
            let (now, at) = sent(&net.ours, 2);
            (now - since >= bytes).then_some((now - since, at))
        })
    };
    let (got, at) = enough(before, 3e6);
    assert!(got <= allowed(8e6, began, at), "{got}");
    let limits = program.report().limits;
    let of_path = |l: &&manypath_control::report::LimitReport| {
        l.of == LimitOf::Path && l.name == "v2" && l.bits_per_second == 8_000_000 && l.waits > 0
    };
    assert!(limits.iter().any(|l| of_path(&l)), "{limits:?}");
    // The first path has 20 Mbit/s, so that it carried more than twice as much meanwhile.
    let went = limits
        .iter()
        .find(|l| of_path(l))
        .map_or(0, |l| l.elsewhere_bytes);
    assert!(went > 1_000_000, "{limits:?}");
    wait_until("the log to tell of it", || {
        let said = program.said();
        let told = said.contains("the limit of path v2, 8mbit, begins to hold back");
        told.then_some(()).ok_or(said)
    });
    limit(&mut program, &["path", "v2", "2mbit"]);
    let (before, began) = sent(&net.ours, 2);
    let (got, at) = enough(before, 600_000.0);
    // Of the old burst some may be left.
    assert!(got <= allowed(2e6, began, at) + 20_000.0, "{got}");
    limit(&mut program, &["path", "v2", "off"]);
    let (before, began) = sent(&net.ours, 2);
    let (got, at) = enough(before, 6e6);
    assert!(got > allowed(8e6, began, at), "{got}: no limit is left");
    drop(upload);
    program.interrupt();
}

#[test]
fn a_class_holds_its_limit_over_all_paths_and_connections_together() {
    let Some(net) = two_paths() else { return };
    swallow(&net.kernel);
    let folder = tempfile::tempdir().expect("a folder");
    let class = "[[class]]\nname = \"all\"\nrate = { up = \"10mbit\" }\n";
    let both = || {
        let ((one, _), (two, at)) = (sent(&net.ours, 1), sent(&net.ours, 2));
        (one + two, at)
    };
    let (before, began) = both();
    let program = start(&net, folder.path(), class);
    let uploads: Vec<Upload> = (0..4).map(|_| Upload::start(&net.ours)).collect();
    let (got, at) = wait_until("the class to have sent something", || {
        let (now, at) = both();
        let got = now - before;
        match got >= 4e6 {
            true => Ok((got, at)),
            false => Err((got, program.said())),
        }
    });
    // Handshakes of connections are no data of theirs: two of some hundred bytes each.
    assert!(got <= allowed(10e6, began, at), "{got}");
    drop(uploads);
    program.interrupt();
}

#[test]
fn a_file_names_the_paths_and_what_they_are_for_and_a_reload_changes_that() {
    let Some(net) = two_paths() else { return };
    swallow(&net.kernel);
    let folder = tempfile::tempdir().expect("a folder");
    let named = "paths = \"named\"";
    let paths = |priority: &str| {
        format!(
            "[path.first]\ninterface = \"v1\"\n[path.second]\ninterface = \"v2\"\npriority = \"{priority}\"\n"
        )
    };
    let file = configure(folder.path(), named, &paths("never"));
    let file = file.to_str().expect("UTF-8").to_owned();
    // Root alone may look into the folder.
    let args = ["proxy", "--config", &file, "--user", "root"];
    let mut program = Program::start(&net.ours, args, "listens on");
    let upload = Upload::start(&net.ours);
    let carries = |program: &Program, n: u8, bytes: f64| {
        let (before, _) = sent(&net.ours, n);
        wait_until("a path to carry something", || {
            let (now, _) = sent(&net.ours, n);
            match now - before >= bytes {
                true => Ok(()),
                false => Err((now - before, program.said())),
            }
        });
    };
    let subflows = |program: &mut Program, wanted: &dyn Fn(&SubflowReport) -> bool| {
        let report = program.report();
        let connections = report.connections.iter();
        let mut all = connections.flat_map(|connection| &connection.subflows);
        all.any(wanted)
    };
    let is_second = |sf: &SubflowReport| sf.iface == "v2";
    let (before, _) = sent(&net.ours, 2);
    carries(&program, 1, 3e6);
    let (now, _) = sent(&net.ours, 2);
    assert!(now - before < SLACK, "it is never used: {}", now - before);
    configure(folder.path(), named, &paths("always"));
    reload(&mut program);
    carries(&program, 2, 3e6);
    configure(folder.path(), named, &paths("backup"));
    reload(&mut program);
    let is_backup = |sf: &SubflowReport| is_second(sf) && sf.backup_here;
    wait_for("the subflow to be a backup", || {
        subflows(&mut program, &is_backup).then_some(())
    });
    configure(folder.path(), named, &paths("never"));
    reload(&mut program);
    wait_for("the subflow to end", || {
        (!subflows(&mut program, &is_second)).then_some(())
    });
    carries(&program, 1, 3e6);
    drop(upload);
    program.interrupt();
}
