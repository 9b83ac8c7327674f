//! The host is never disturbed, and does not disturb: firewalls that are reloaded, ports that programs have, bridges, several
//! processes at once, few privileges.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use manypath_lab::netns::NetNs;
use manypath_tests::net::{Family, Net, Own, shell, tool};
use manypath_tests::pair::{Plan, ROLES, Role, Route, Way};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::{Program, binary, manypath};
use manypath_tests::transfer::{both_ways, finish, send};
use manypath_tests::until::{wait_for, wait_until};
use socket2::{Domain, Socket, Type};

use Family::V4;

/// What is sent while somebody changes the host.
const LEN: u64 = 20 << 20;

/// Everything that a reload of a firewall or of a network manager takes away.
const RELOAD: &str = "nft flush ruleset; ip rule flush; ip rule add table main pref 32766; ip rule add table default pref 32767";

/// A reload of the host's firewall and rules in the middle of a transfer ends no connection, and new ones work.
fn survives_a_reload(attach: &str, roles: &[Role]) {
    for &role in roles {
        let Some(net) = Net::new(1) else { return };
        let plan = Plan {
            own: Own::Shared,
            more: ["--attach", attach].map(str::to_owned).into(),
            ..Plan::new(&[V4])
        };
        let route = Route::open(&net, role, plan);
        let ends = route.join();
        both_ways(&ends.ours, &ends.kernel, 1000);
        let (from, to) = ends.along(Way::ToKernel);
        let mut reloads = 0;
        let arrived = send(from, to, LEN, 5, |got| {
            if reloads < 3 && got > LEN / 4 * (reloads + 1) {
                reloads += 1;
                shell(&net.ours, RELOAD);
            }
        });
        arrived.expect("nobody ended it").assert_same();
        assert_eq!(reloads, 3);
        let again = route.join();
        both_ways(&again.ours, &again.kernel, 100_000);
        for ends in [&ends, &again] {
            finish(&ends.ours, &ends.kernel);
        }
    }
}

#[test]
fn a_reloaded_firewall_ends_no_connection() {
    survives_a_reload("packet", &ROLES);
}

#[test]
fn a_reloaded_firewall_ends_no_connection_behind_a_tun() {
    // Behind a TUN device nobody can listen on one address of the host alone.
    survives_a_reload("tun", &[Role::Client]);
}

/// What somebody takes away behind a TUN device is put back and counted, and the connection goes on.
#[test]
fn what_is_taken_away_behind_a_tun_is_put_back_and_counted() {
    let Some(net) = Net::new(1) else { return };
    let plan = Plan {
        own: Own::Shared,
        more: ["--attach", "tun"].map(str::to_owned).into(),
        ..Plan::new(&[V4])
    };
    let mut route = Route::open(&net, Role::Client, plan);
    let ends = route.join();
    both_ways(&ends.ours, &ends.kernel, 1000);
    let deeds = [
        "ip rule flush; ip rule add table main pref 32766; ip rule add table default pref 32767",
        "ip route flush table $(ip rule | sed -n 's/^7000:.*lookup //p')",
        "ip route del 198.18.0.0/24",
        "ip addr del 198.18.0.1/24 dev manypath0",
        "sysctl -qw net.ipv4.ip_forward=1; sysctl -qw net.ipv4.ip_forward=0",
        "sysctl -qw net.ipv4.conf.manypath0.forwarding=0",
        "ip link set manypath0 down",
        "ip link del manypath0",
    ];
    let mut count = 0;
    for deed in deeds {
        shell(&net.ours, deed);
        let begin = std::time::Instant::now();
        both_ways(&ends.ours, &ends.kernel, 100_000);
        println!("{deed}: it goes on after {:?}", begin.elapsed());
        count = wait_until(deed, || {
            let counters = route.program.report().counters;
            let now = counters[manypath_control::report::HOST_REPAIRS];
            if now > count { Ok(now) } else { Err(now) }
        });
    }
    let pid = route.program.pid().to_string();
    let shown = manypath(["status", "--pid", &pid])
        .output()
        .expect("it starts");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("repairs: "), "{shown}");
    let said = route.program.said();
    assert!(said.contains("somebody removed or changed"), "{said}");
    finish(&ends.ours, &ends.kernel);
}

/// A server of the peer's kernel that answers every connection; how many are answered at one time does not matter.
fn greeter(net: &Net) -> SocketAddr {
    let at = SocketAddr::new(Net::kernel_address(V4, 1), 5001);
    let listener = net.kernel.run(move || TcpListener::bind(at));
    serve(listener.expect("the port is free"));
    at
}

fn serve(listener: TcpListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || greet(stream));
        }
    });
}

fn greet(mut stream: TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(b"hello").is_ok() {}
}

/// Whether a greeter answers on a connection.
fn answers(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20)))?;
    stream.write_all(b"x")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"hello");
    Ok(())
}

fn ask(host: &NetNs, at: SocketAddr) {
    let stream = host.run(move || TcpStream::connect(at));
    let mut stream = stream.expect("somebody listens");
    answers(&mut stream).expect("an answer");
}

/// A connection of the host's from a port by its number.
fn connect_from(host: &NetNs, from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    host.run(move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&from.into())?;
        socket.connect(&to.into())?;
        Ok(socket.into())
    })
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn start(net: &Net, port: u16, to: SocketAddr, more: &[&str]) -> Program {
    let (listen, to) = (format!("tcp:127.0.0.1:{port}"), format!("mptcp:{to}"));
    Program::forward(&net.ours, &listen, &to, more.iter().copied())
}

#[test]
fn programs_of_the_host_have_any_port_before_and_after() {
    let Some(net) = Net::new(1) else { return };
    let here = Net::our_address(V4, Own::Shared, 1);
    let there = greeter(&net);
    let serve = |port: u16| {
        let at = SocketAddr::new(here, port);
        let listener = net.ours.run(move || TcpListener::bind(at));
        let listener = listener.unwrap_or_else(|error| panic!("{at}: {error}"));
        std::thread::spawn(move || listener.incoming().flatten().for_each(greet));
        at
    };
    // Where it would like its own best.
    let before = [serve(65_400), serve(27_017)];
    let mut open = connect_from(&net.ours, SocketAddr::new(here, 65_300), there).expect("free");
    let program = start(&net, 7000, there, &["--path", "v1"]);
    let row = shell(&net.ours, "cat /proc/sys/net/ipv4/ip_local_reserved_ports");
    let (low, high) = row.trim().split_once('-').expect("one row");
    let (low, high): (u16, u16) = (low.parse().expect("a port"), high.parse().expect("a port"));
    assert!(high - low < 512, "{row}: few at first");
    for port in [65_300, 65_400, 27_017] {
        assert!(!(low..=high).contains(&port), "{row}");
    }
    answers(&mut open).expect("it lives");
    ask(&net.ours, local(7000));
    // All of the row, except where our connection itself is.
    let later: Vec<SocketAddr> = (low..low + 40).map(serve).collect();
    for at in before.into_iter().chain(later) {
        ask(&net.kernel, at);
    }
    let from = SocketAddr::new(here, high);
    let mut from_ours = connect_from(&net.ours, from, there).expect("nobody has it");
    answers(&mut from_ours).expect("an answer");
    ask(&net.ours, local(7000));
    program.interrupt();
}

#[test]
fn ten_processes_share_the_host() {
    let Some(net) = Net::new(1) else { return };
    let traces = net.traces();
    let there = greeter(&net);
    let all: Vec<Program> = (0..10)
        .map(|n| start(&net, 7000 + n, there, &["--path", "v1"]))
        .collect();
    for n in 0..10 {
        ask(&net.ours, local(7000 + n));
    }
    for program in all {
        program.interrupt();
    }
    assert_eq!(net.traces(), traces);
}

#[test]
fn more_connections_than_ports_at_first() {
    let Some(net) = Net::new(1) else { return };
    let there = greeter(&net);
    let program = start(&net, 7000, there, &["--path", "v1"]);
    let mut all: Vec<TcpStream> = (0..600)
        .map(|_| {
            let stream = net.ours.run(|| TcpStream::connect(local(7000)));
            stream.expect("it listens")
        })
        .collect();
    for stream in &mut all {
        answers(stream).expect("there is a port for each");
    }
    drop(all);
    program.interrupt();
}

#[test]
fn processes_that_start_together_have_networks_of_their_own() {
    let Some(net) = Net::new(1) else { return };
    let there = greeter(&net);
    let all: Vec<Program> = std::thread::scope(|scope| {
        let start = |n: u16| start(&net, 7000 + n, there, &["--path", "v1", "--attach", "tun"]);
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || start(n))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Program>| thread.join();
        threads
            .into_iter()
            .map(|thread| join(thread).expect("each starts"))
            .collect()
    });
    let mut inside: Vec<IpAddr> = shell(&net.ours, "ip -o -4 address")
        .split_whitespace()
        .filter_map(|word| word.split_once('/')?.0.parse().ok())
        .filter(|addr: &IpAddr| addr.to_string().starts_with("198.18."))
        .collect();
    inside.sort();
    inside.dedup();
    assert_eq!(inside.len(), 4, "{inside:?}");
    for n in 0..4 {
        ask(&net.ours, local(7000 + n));
    }
    for program in all {
        program.interrupt();
    }
}

#[test]
fn a_path_on_a_bridge_that_shows_frames_to_the_firewall() {
    let Some(net) = Net::new(1) else { return };
    let here = Net::our_address(V4, Own::Shared, 1);
    net.ours
        .ip([
            "link add name br9 type bridge".to_owned(),
            "link set v1 master br9".to_owned(),
            "addr flush dev v1".to_owned(),
            format!("addr add {here}/24 dev br9"),
            "link set br9 up".to_owned(),
        ])
        .expect("it is ours");
    if let Err(error) = net.ours.sysctl("net.bridge.bridge-nf-call-iptables", "1") {
        eprintln!("skipped: this kernel has no br_netfilter ({error})");
        return;
    }
    let there = greeter(&net);
    for attach in ["packet", "tun"] {
        let program = start(&net, 7000, there, &["--path", "br9", "--attach", attach]);
        ask(&net.ours, local(7000));
        program.interrupt();
    }
}

fn capabilities_of_the_file_are_enough(attach: &str) {
    use std::os::unix::fs::MetadataExt;
    let tun = std::fs::metadata("/dev/net/tun");
    if attach == "tun" && !tun.is_ok_and(|file| file.mode() & 0o006 == 0o006) {
        eprintln!("skipped: /dev/net/tun is not for everybody here");
        return;
    }
    let Some(net) = Net::new(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("manypath");
    std::fs::copy(binary(), &copy).expect("room for a copy");
    let copy = copy.display();
    let given = format!(
        "chmod 755 {0} {copy} && setcap cap_net_admin,cap_net_raw+ep {copy}",
        folder.path().display()
    );
    let output = Command::new("sh").args(["-c", &given]).output();
    if !output.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: files can be given no capabilities here");
        return;
    }
    let there = greeter(&net);
    let mut command = tool("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(copy.to_string())
        .args(["forward", "--listen", "tcp:127.0.0.1:7000", "--to"])
        .arg(format!("mptcp:{there}"))
        .args(["--path", "v1", "--attach", attach]);
    for (key, value) in manypath(["status"]).get_envs() {
        // Nobody may not write where the others' sockets are.
        if let (true, Some(value)) = (key == "PATH", value) {
            command.env(key, value);
        }
    }
    let program = Program::start_command(&net.ours, command, "goes to");
    ask(&net.ours, local(7000));
    program.interrupt();
    let left = || (shell(&net.ours, "nft list ruleset").is_empty()).then_some(());
    wait_for("nothing to be left", left);
}

#[test]
fn file_capabilities_are_enough() {
    capabilities_of_the_file_are_enough("packet");
}

#[test]
fn file_capabilities_are_enough_behind_a_tun() {
    capabilities_of_the_file_are_enough("tun");
}

#[test]
fn killed_at_any_moment_of_its_set_up_it_leaves_nothing_for_long() {
    let Some(net) = Net::new(1) else { return };
    let before = net.traces();
    for attach in ["packet", "tun"] {
        let command = || {
            let mut command = manypath(["forward", "--listen", "tcp:127.0.0.1:7001"]);
            command
                .args(["--to", "mptcp:10.77.1.1:5000", "--path", "v1"])
                .args(["--attach", attach])
                .stderr(std::process::Stdio::null());
            command
        };
        // How long the set-up takes differs from host to host: the moments are spread over more than that.
        for moment in 0..30 {
            let mut process = net.ours.spawn(command()).expect("it starts");
            std::thread::sleep(std::time::Duration::from_millis(moment * 4));
            process.child().kill().expect("our child");
            process.child().wait().expect("our child");
        }
        Program::start_command(&net.ours, command(), "goes to").interrupt();
        assert_eq!(net.traces(), before, "{attach}");
    }
}

/// Asks a greeter behind a forwarder as kernels speak, and answers how it ended.
fn try_to_ask(host: &NetNs, at: SocketAddr, speaks: Speaks) -> std::io::Result<()> {
    let mut stream = peer::connect(host, at, speaks)?;
    answers(&mut stream)
}

/// Programs of the host and of its containers reach a listener on all addresses, whichever address of the host they use, and whoever
/// comes by a path has Multipath TCP.
fn is_reached_from_everywhere(attach: &str) {
    let Some(net) = Net::new(1) else { return };
    let container = NetNs::new("box").expect("permitted");
    net.ours.veth("c0", &container, "eth0").expect("permitted");
    let lines = [
        "link add name box0 type bridge",
        "link set box0 up",
        "link set c0 master box0",
        "addr add 10.88.0.1/24 dev box0",
    ];
    net.ours.ip(lines).expect("permitted");
    let lines = [
        "addr add 10.88.0.2/24 dev eth0",
        "route add default via 10.88.0.1",
    ];
    container.ip(lines).expect("permitted");
    let backend = local(5003);
    let args = ["--path", "v1", "--attach", attach];
    let mut program = Program::forward(
        &net.ours,
        "mptcp:0.0.0.0:5000",
        &format!("tcp:{backend}"),
        args,
    );
    let own = SocketAddr::new(Net::our_address(V4, Own::Shared, 1), 5000);
    let at = |addr: [u8; 4]| SocketAddr::from((addr, 5000));
    let all = [
        ("loopback", &net.ours, at([127, 0, 0, 1]), Speaks::Tcp),
        (
            "the host's name",
            &net.ours,
            at([127, 0, 1, 1]),
            Speaks::Tcp,
        ),
        ("own address", &net.ours, own, Speaks::Tcp),
        ("the bridge", &net.ours, at([10, 88, 0, 1]), Speaks::Tcp),
        ("a container", &container, own, Speaks::Tcp),
        (
            "a container by the bridge",
            &container,
            at([10, 88, 0, 1]),
            Speaks::Tcp,
        ),
        ("a remote host", &net.kernel, own, Speaks::Mptcp),
        ("a remote host by TCP", &net.kernel, own, Speaks::Tcp),
    ];
    // Without a backend a connection is taken and reset, as with a listener of the kernel.
    for (who, host, at, speaks) in all {
        let error = try_to_ask(host, at, speaks).expect_err(who);
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{who}");
    }
    let listener = net.ours.run(move || TcpListener::bind(backend));
    serve(listener.expect("the port is free"));
    for (who, host, at, speaks) in all {
        try_to_ask(host, at, speaks).unwrap_or_else(|error| panic!("{who}: {error}"));
    }
    let mut far = peer::connect(&net.kernel, own, Speaks::Mptcp).expect("it listens");
    answers(&mut far).expect("an answer");
    wait_until("the other connections to be over", || {
        let open = program.report().connections;
        if open.len() == 1 { Ok(()) } else { Err(open) }
    });
    assert_eq!(program.connection().level, "multipath");
    // An address that comes later is the host's, too.
    net.ours
        .ip(["addr add 10.88.1.1/24 dev box0"])
        .expect("permitted");
    wait_for("the new address", || {
        try_to_ask(&container, at([10, 88, 1, 1]), Speaks::Tcp).ok()
    });
    drop(far);
    program.interrupt();
    let error = try_to_ask(&net.ours, own, Speaks::Tcp).expect_err("nobody listens");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_listener_is_reached_from_everywhere() {
    is_reached_from_everywhere("packet");
}

#[test]
fn a_listener_is_reached_from_everywhere_behind_a_tun() {
    is_reached_from_everywhere("tun");
}

/// What is left of local connections, in TIME-WAIT at our end, keeps nobody from listening there again.
#[test]
fn a_listener_starts_again_after_local_connections() {
    let Some(net) = Net::new(1) else { return };
    let backend = net.ours.run(|| TcpListener::bind(local(5003)));
    let backend = backend.expect("the port is free");
    std::thread::spawn(move || backend.incoming().take(1).for_each(drop));
    let forward = || {
        Program::forward(
            &net.ours,
            "mptcp:0.0.0.0:5000",
            "tcp:127.0.0.1:5003",
            ["--path", "v1"],
        )
    };
    let program = forward();
    // The backend closes first, and so does the relay.
    let own = SocketAddr::new(Net::our_address(V4, Own::Shared, 1), 5000);
    let client = net.ours.run(move || TcpStream::connect(own));
    let end = client.expect("it listens").read(&mut [0]);
    assert_eq!(end.expect("an end in order"), 0);
    program.interrupt();
    forward().interrupt();
}

/// The backend has the forwarder's port on the loopback, and may start after it.
#[test]
fn a_backend_keeps_its_port_on_the_loopback() {
    let Some(net) = Net::new(1) else { return };
    let args = ["--path", "v1"];
    let program = Program::forward(&net.ours, "mptcp:0.0.0.0:5000", "tcp:127.0.0.1:5000", args);
    let listener = net.ours.run(|| TcpListener::bind(local(5000)));
    serve(listener.expect("the port is the backend's"));
    let own = SocketAddr::new(Net::our_address(V4, Own::Shared, 1), 5000);
    for host in [&net.ours, &net.kernel] {
        try_to_ask(host, own, Speaks::Tcp).expect("an answer");
    }
    program.interrupt();
}
