//! Weights, overflow and schedules of paths in `manypath proxy`, counted on the cables.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use manypath_control::wire::LimitOf;
use manypath_tests::net::{Family, Net, Own, shell};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::Program;
use manypath_tests::until::wait_until;

use crate::limits::{PORT, SLACK, Upload, allowed, configure, reload, sent, swallow};

/// Two paths that carry so much to the kernel's Multipath TCP.
fn two_paths(rates: [&str; 2]) -> Option<Net> {
    let net = Net::new(2)?;
    net.add_endpoint(Net::kernel_address(Family::V4, 2), 2, "signal");
    for (cable, rate) in ["v1", "v2"].into_iter().zip(rates) {
        let line = format!("tc qdisc add dev {cable} root tbf rate {rate} burst 32kb limit 250000");
        shell(&net.ours, &line);
    }
    swallow(&net.kernel);
    Some(net)
}

fn start(net: &Net, folder: &std::path::Path, more: &str) -> Program {
    let file = configure(folder, "paths = \"named\"", more);
    let file = file.to_str().expect("UTF-8");
    // Root alone may look into the folder.
    let args = ["proxy", "--config", file, "--user", "root"];
    Program::start(&net.ours, args, "listens on")
}

fn paths(first: &str, second: &str) -> String {
    format!(
        "[path.first]\ninterface = \"v1\"\n{first}\n[path.second]\ninterface = \"v2\"\n{second}\n"
    )
}

/// Waits until so much has left by both paths, and says how much by each.
fn carry(net: &Net, program: &Program, bytes: f64) -> [f64; 2] {
    let both = || [1, 2].map(|n| sent(&net.ours, n).0);
    let before = both();
    wait_until("the paths to carry something", || {
        let now = both();
        let got = [0, 1].map(|i| now[i] - before[i]);
        match got[0] + got[1] >= bytes {
            true => Ok(got),
            false => Err((got, program.said())),
        }
    })
}

/// Waits until the second path has carried something.
fn wait_for_the_second(net: &Net, program: &Program) {
    let (before, _) = sent(&net.ours, 2);
    wait_until("the second path to carry something", || {
        let (now, _) = sent(&net.ours, 2);
        match now - before >= 200_000.0 {
            true => Ok(()),
            false => Err((now - before, program.said())),
        }
    });
}

#[test]
fn weights_divide_what_is_less_than_both_carry_and_a_full_path_gives_its_share_away() {
    let Some(net) = two_paths(["60mbit", "60mbit"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let less = "[[class]]\nname = \"all\"\nrate = { up = \"20mbit\" }\n";
    let weights = paths("weight = 3", "weight = 1");
    let mut program = start(&net, folder.path(), &(weights.clone() + less));
    let upload = Upload::start(&net.ours);
    wait_for_the_second(&net, &program);
    let [first, second] = carry(&net, &program, 8e6);
    let share = first / (first + second);
    assert!((share - 0.75).abs() < 0.05, "{first} {second}");
    // All that both carry is asked for.
    configure(folder.path(), "paths = \"named\"", &weights);
    reload(&mut program);
    let _ = carry(&net, &program, 8e6);
    let [first, second] = carry(&net, &program, 16e6);
    assert!(second > first * 0.8, "{first} {second}");
    drop(upload);
    program.interrupt();
}

#[test]
fn a_path_that_is_for_the_overflow_is_used_from_there_on() {
    let Some(net) = two_paths(["20mbit", "60mbit"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let never_so_much = paths("", "overflow = \"40mbit\"");
    let mut program = start(&net, folder.path(), &never_so_much);
    let upload = Upload::start(&net.ours);
    let (before, _) = sent(&net.ours, 2);
    let _ = carry(&net, &program, 8e6);
    let (now, _) = sent(&net.ours, 2);
    assert!(
        now - before < SLACK,
        "{}: the first carries less",
        now - before
    );
    configure(
        folder.path(),
        "paths = \"named\"",
        &paths("", "overflow = \"10mbit\""),
    );
    reload(&mut program);
    wait_for_the_second(&net, &program);
    let [first, second] = carry(&net, &program, 8e6);
    assert!(first > 1e6 && second > 1e6, "{first} {second}: both carry");
    drop(upload);
    program.interrupt();
}

/// The kernel's Multipath TCP reads from us by two addresses, and we send to both by one interface: only the addresses tell its paths apart.
#[test]
fn a_server_limits_what_it_sends_to_some_addresses_of_its_clients() {
    let Some(net) = Net::new(2) else { return };
    let second = Net::kernel_address(Family::V4, 2);
    net.add_endpoint(second, 2, "subflow");
    let line = "tc qdisc add dev v1 root tbf rate 60mbit burst 32kb limit 250000";
    shell(&net.ours, line);
    // The origin is on our host.
    let origin = SocketAddr::from(([127, 0, 0, 1], PORT));
    let listener = peer::listen(&net.ours, origin, Speaks::Tcp);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            std::thread::spawn(move || while stream.write_all(&[b'x'; 65536]).is_ok() {});
        }
    });
    let at = SocketAddr::new(Net::our_address(Family::V4, Own::Shared, 1), 7000);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "[[listen]]\non = \"mptcp:{at}\"\nopening = \"fixed\"\nto = \"tcp:{origin}\"\n\
         [[rule]]\nthen = \"allow\"\n\
         [path.clients]\nremote = \"10.77.2.0/24\"\nrate = \"8mbit\"\n"
    );
    std::fs::write(&file, text).expect("a folder of ours");
    let file = file.to_str().expect("UTF-8");
    let args = [
        "proxy", "--config", file, "--user", "root", "--path", "v1", "--path", "v2",
    ];
    let mut program = Program::start(&net.ours, args, "listens on");
    let began = Instant::now();
    let client: TcpStream = peer::connect(&net.kernel, at, Speaks::Mptcp).expect("it listens");
    let mut read = client.try_clone().expect("a descriptor");
    let reader = std::thread::spawn(move || std::io::copy(&mut read, &mut std::io::sink()));
    let (limited, other, ended) = wait_until("the second path to carry something", || {
        let (report, ended) = (program.report(), Instant::now());
        let (mut limited, mut other) = (0.0, 0.0);
        for subflow in report.connections.iter().flat_map(|conn| &conn.subflows) {
            match subflow.remote.map(|remote| remote.ip()) == Some(second) {
                true => limited += subflow.bytes_sent as f64,
                false => other += subflow.bytes_sent as f64,
            }
        }
        match limited >= 3e6 {
            true => Ok((limited, other, ended)),
            false => Err((limited, other, program.said())),
        }
    });
    assert!(limited <= allowed(8e6, began, ended), "{limited}");
    assert!(
        other > limited * 2.0,
        "{limited} {other}: the other path is free"
    );
    let limits = program.report().limits;
    let found = limits.iter().find(|limit| limit.name == "clients");
    let found = found.expect("it is told");
    assert_eq!(
        (found.of, found.bits_per_second),
        (LimitOf::Path, 8_000_000)
    );
    assert!(found.waits > 0 && found.elsewhere_bytes > 0, "{found:?}");
    // It may be over.
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = reader.join();
    program.interrupt();
}

#[test]
fn a_schedule_holds_at_its_hours_and_no_others() {
    let Some(net) = two_paths(["20mbit", "60mbit"]) else {
        return;
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let days = since.expect("a clock that is right").as_secs() / 86_400;
    // 1 January 1970 was a Thursday; three days from now is neither today nor tomorrow.
    let names = ["thu", "fri", "sat", "sun", "mon", "tue", "wed"];
    let another = names[usize::try_from(days + 3).expect("a day") % 7];
    let folder = tempfile::tempdir().expect("a folder");
    let second = format!(
        "rate = {{ up = \"50mbit\" }}\n\
         schedule = [{{ when = \"{another} 00:00-24:00 UTC\", rate = {{ up = \"1mbit\" }} }}, {{ when = \"00:00-24:00 UTC\", rate = {{ up = \"6mbit\" }} }}]"
    );
    let program = start(&net, folder.path(), &paths("", &second));
    let (before, began) = sent(&net.ours, 2);
    let upload = Upload::start(&net.ours);
    let (got, at) = wait_until("the second path to carry something", || {
        let (now, at) = sent(&net.ours, 2);
        match now - before >= 2e6 {
            true => Ok((now - before, at)),
            false => Err((now - before, program.said())),
        }
    });
    assert!(got <= allowed(6e6, began, at), "{got}");
    assert!(
        got > allowed(1e6, began, at),
        "{got}: the hours of now hold"
    );
    drop(upload);
    program.interrupt();
}
