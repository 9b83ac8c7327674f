//! `manypath forward` as a service: what one client may have of it, what it does at its limits, and what becomes of peers that
//! have gone without a word.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, tool};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, binary, manypath, runtime_dir};
use manypath_tests::until::{PATIENCE, wait_for};

use Family::{V4, V6};

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Answers every connection's bytes with the same bytes, until the test ends.
fn echo(ns: &NetNs, at: SocketAddr, speaks: Speaks) -> peer::Listener {
    let listener = peer::listen(ns, at, speaks);
    let accepting = listener.try_clone().expect("a descriptor is free");
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&accepting) {
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut got = [0; 64];
                loop {
                    match stream.read(&mut got)? {
                        0 => return Ok(()),
                        n => stream.write_all(&got[..n])?,
                    }
                }
            });
        }
    });
    listener
}

/// One byte there and back.
fn ask(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"?")?;
    stream.read_exact(&mut [0])
}

/// More clients at one time than there are descriptors; each is served when its turn comes.
fn more_clients_than_descriptors(listen: &str, to: &str, client: SocketAddr, at_kernel: bool) {
    const CLIENTS: usize = 100;
    let Some(net) = Net::new(1) else { return };
    let backend = to.rsplit_once(':').expect("a port").1;
    let _echo = echo(
        &net.ours,
        local(backend.parse().expect("a port")),
        Speaks::Tcp,
    );
    let mut command = tool("sh");
    command
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(binary())
        .args(["forward", "--listen", listen, "--to", to, "--path", "v1"])
        .env("XDG_RUNTIME_DIR", runtime_dir());
    let program = Program::start_command(&net.ours, command, "goes to");
    let (host, speaks) = match at_kernel {
        true => (&net.kernel, Speaks::Mptcp),
        false => (&net.ours, Speaks::Tcp),
    };
    let failed = std::thread::scope(|scope| {
        let one = || {
            let mut stream = peer::connect(host, client, speaks)?;
            ask(&mut stream)
        };
        let all: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        let results = all
            .into_iter()
            .map(|client| client.join().expect("no panic"));
        results.filter_map(Result::err).collect::<Vec<_>>()
    });
    let said = program.interrupt();
    assert!(failed.is_empty(), "{failed:?}: {said}");
    let carried = said.contains(&format!("{CLIENTS} connections ("));
    assert!(carried && said.contains("0 broken, 0 could not"), "{said}");
    assert!(said.contains("the limit of open files lets"), "{said}");
    assert!(said.lines().count() < 10, "{said}");
}

#[test]
fn at_the_limit_of_open_files_clients_of_tcp_wait() {
    more_clients_than_descriptors(
        "tcp:127.0.0.1:7000",
        "tcp:127.0.0.1:7001",
        local(7000),
        false,
    );
}

#[test]
fn at_the_limit_of_open_files_clients_of_our_stack_wait() {
    let at = SocketAddr::new(
        Net::our_address(V4, manypath_tests::net::Own::Shared, 1),
        7000,
    );
    more_clients_than_descriptors("mptcp:0.0.0.0:7000", "tcp:127.0.0.1:7001", at, true);
}

#[test]
fn one_client_has_its_part_of_the_places_and_the_others_theirs() {
    let Some(net) = Net::new(1) else { return };
    let _echo = echo(&net.ours, local(7001), Speaks::Tcp);
    let args = [
        "--max-connections",
        "4",
        "--max-per-client",
        "3",
        "--path",
        "v1",
    ];
    let program = Program::forward(&net.ours, "tcp:[::]:7000", "tcp:127.0.0.1:7001", args);
    let at = |family| {
        SocketAddr::new(
            Net::our_address(family, manypath_tests::net::Own::Shared, 1),
            7000,
        )
    };
    let connect = |family| {
        let mut stream = peer::connect(&net.kernel, at(family), Speaks::Tcp)?;
        ask(&mut stream).map(|()| stream)
    };
    let held: Vec<_> = (0..3)
        .map(|_| connect(V4).expect("within its part"))
        .collect();
    for _ in 0..3 {
        let error = connect(V4).expect_err("beyond its part");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    // The last place is left to somebody else, who then has the fourth; the fifth waits until one goes.
    let other = connect(V6).expect("a place");
    let mut fifth = peer::connect(&net.kernel, at(V6), Speaks::Tcp).expect("the queue");
    wait_for("the limit to be told", || {
        program.said().contains("(--max-connections)").then_some(())
    });
    drop((held, other));
    ask(&mut fifth).expect("a place");
    let said = program.interrupt();
    let told = said
        .lines()
        .filter(|line| line.contains("(--max-per-client)"));
    assert_eq!(told.count(), 1, "{said}");
    assert!(said.contains("3 refused"), "{said}");
}

#[test]
fn a_full_pipe_of_the_log_does_not_stop_the_service() {
    let Some(net) = Net::new(1) else { return };
    let _echo = echo(&net.ours, local(7001), Speaks::Tcp);
    let (mut full, _unread) = UnixStream::pair().expect("a pair");
    full.set_nonblocking(true).expect("a socket");
    while full.write(&[b'x'; 1000]).is_ok() {}
    full.set_nonblocking(false).expect("a socket");
    let mut command = manypath([
        "-vv",
        "forward",
        "--listen",
        "tcp:127.0.0.1:7000",
        "--to",
        "tcp:127.0.0.1:7001",
    ]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::from(OwnedFd::from(full)));
    let mut process = net.ours.spawn(command).expect("it starts");
    let mut stream = wait_for("the service", || {
        peer::connect(&net.ours, local(7000), Speaks::Tcp).ok()
    });
    ask(&mut stream).expect("served");
    for _ in 0..2000 {
        let mut stream = peer::connect(&net.ours, local(7000), Speaks::Tcp).expect("it listens");
        ask(&mut stream).expect("served");
    }
    let pid = i32::try_from(process.child().id()).expect("a process id");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGTERM,
    )
    .expect("it runs");
    let status = wait_for("its end", || process.child().try_wait().expect("our child"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_peer_that_vanished_is_detected_by_keepalive() {
    let Some(net) = Net::new(1) else { return };
    let _echo = echo(&net.ours, local(7001), Speaks::Tcp);
    let args = ["--keepalive", "1s", "--path", "v1"];
    let mut program = Program::forward(&net.ours, "mptcp:0.0.0.0:7000", "tcp:127.0.0.1:7001", args);
    let at = SocketAddr::new(
        Net::our_address(V4, manypath_tests::net::Own::Shared, 1),
        7000,
    );
    // A connection of Multipath TCP would be kept for another minute, for joins.
    let mut stream = peer::connect(&net.kernel, at, Speaks::Tcp).expect("it listens");
    ask(&mut stream).expect("served");
    // What is not acknowledged would be repeated instead of asking.
    wait_for("the acknowledgement", || {
        (program.connection().send_queue == 0).then_some(())
    });
    crate::leftovers::vanish(&net.kernel);
    // One second of silence, then nine probes a second apart.
    program.wait_until_idle();
    drop(stream);
    let said = program.interrupt();
    assert!(said.contains("0 to the end, 1 broken"), "{said}");
}

#[test]
fn sockets_of_the_host_are_asked_after_two_hours_by_default() {
    let Some(net) = Net::new(1) else { return };
    let _echo = echo(&net.ours, local(7001), Speaks::Tcp);
    let program = Program::forward(
        &net.ours,
        "tcp:127.0.0.1:7000",
        "tcp:127.0.0.1:7001",
        [""; 0],
    );
    let mut stream = peer::connect(&net.ours, local(7000), Speaks::Tcp).expect("it listens");
    ask(&mut stream).expect("served");
    // The fields tr:tm->when of proc(5): 02 is the keepalive timer, in hundredths of a second.
    let timers: Vec<u64> = wait_for("both sockets", || {
        let table = net
            .ours
            .run(|| std::fs::read_to_string("/proc/thread-self/net/tcp"));
        let table = table.expect("the kernel's table");
        let timers = table.lines().filter_map(|line| {
            let timer = line.split_whitespace().nth(5)?.strip_prefix("02:")?;
            u64::from_str_radix(timer, 16).ok()
        });
        let timers: Vec<u64> = timers.collect();
        (timers.len() == 2).then_some(timers)
    });
    let hours = Duration::from_secs(7200).as_millis() as u64 / 10;
    assert!(
        timers.iter().all(|t| (hours - 3000..=hours).contains(t)),
        "{timers:?}"
    );
    program.interrupt();
}

/// A line of `/proc/PID/status`, without its name.
fn status(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.expect("every kernel tells").trim().replace('\t', " ")
}

#[test]
fn a_service_of_root_is_an_ordinary_user_once_it_is_set_up() {
    let nobody = manypath_io::User::find("nobody").expect("every system has one");
    let Some(net) = Net::new(1) else { return };
    if !nobody.is_mapped() {
        eprintln!("skipped: this user namespace has no user nobody");
        return;
    }
    let before = net.traces();
    for attach in ["packet", "tun"] {
        let args = ["--path", "v1", "--attach", attach];
        let mut program = Program::forward(&net.ours, "mptcp:0.0.0.0:700", "tcp:127.0.0.1:1", args);
        let pid = program.pid();
        assert_eq!(status(pid, "Uid:"), "65534 65534 65534 65534");
        assert_eq!(status(pid, "Groups:"), manypath_io::GROUP.to_string());
        assert_eq!(status(pid, "Seccomp:"), "2");
        assert_eq!(status(pid, "NoNewPrivs:"), "1");
        assert!(
            program.report().connections.is_empty(),
            "root may still ask it"
        );
        // It puts back what root has changed.
        program.interrupt();
        assert_eq!(net.traces(), before);
    }
    let args = ["--path", "v1", "--user", "root"];
    let mut program = Program::forward(&net.ours, "tcp:127.0.0.1:7000", "mptcp:10.77.1.1:1", args);
    assert_eq!(status(program.pid(), "Uid:"), "0 0 0 0");
    assert_eq!(status(program.pid(), "Seccomp:"), "2");
    program.interrupt();
}
