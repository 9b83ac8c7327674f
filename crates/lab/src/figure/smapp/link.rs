//! A client and a server of the kernel with one link between them: connections that get a second subflow, one after the other.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use manypath_sim::middlebox::{Desk, Middlebox, Way};
use manypath_sim::packet::Packet;
use manypath_sim::view::{ACK, SYN, TcpView};
use manypath_tcp::time::Instant;

use super::super::Run;
use super::super::ends::{CONGESTION, Client, listen, serve_each};
use super::super::real::{PATIENCE, PORT, failed, kept_up, line};
use crate::netns::{NetNs, NetNsError, Process};
use crate::parallel::PathSpec;
use crate::spoken::Spoken;
use crate::testbed::{SERVER, TestPath, Testbed};

/// Rounds that are not counted.
const WARM: usize = 50;
/// The end of a connection is no part of what the next one takes.
const REST: Duration = Duration::from_millis(3);

/// The two hosts, and what comes by of SYNs near the client.
struct Link {
    bed: Testbed,
    syns: Receiver<Instant>,
}

impl Link {
    fn new(run: &Run<'_>, name: &str) -> Result<Self, String> {
        let rate = run.knobs.whole("rate");
        let line = line(&PathSpec {
            rate,
            rtt_us: (run.knobs.get("delay") * 2e6) as u64,
            // Ten milliseconds.
            buffer: rate / 800,
            loss_ppm: 0,
        });
        let (tell, syns) = channel();
        let path = TestPath {
            name: "p0".to_owned(),
            up: line.clone(),
            down: line,
            boxes: Some(Arc::new(move || vec![Box::new(Watch(tell.clone()))])),
            far_boxes: None,
        };
        let bed = Testbed::new(name, &[path], CONGESTION, 1).map_err(failed("the link"))?;
        serve(&bed.server, run.knobs.whole("size"))?;
        Ok(Self { bed, syns })
    }
}

/// Tells when a client's SYN comes by.
struct Watch(Sender<Instant>);

impl Middlebox for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        let flags = TcpView::of(packet.bytes()).map(|view| view.flags);
        if way == Way::Out && flags.is_some_and(|flags| flags & (SYN | ACK) == SYN) {
            // Nobody may look any more.
            let _ = self.0.send(desk.now);
        }
        desk.forward(way, packet);
    }

    fn touched(&self) -> u64 {
        0
    }
}

/// Answers each connection with so much, until nobody has come for a while.
fn serve(ns: &NetNs, size: u64) -> Result<(), String> {
    let file = vec![0x5a; usize::try_from(size).unwrap_or(usize::MAX)];
    serve_each(ns, listen(ns)?, move |stream| answer(stream, &file))
}

fn answer(mut stream: TcpStream, file: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The client ends first, when it has seen what it wants.
    while stream.read(&mut [0; 64])? > 0 {
        stream.write_all(file)?;
    }
    Ok(())
}

/// Runs a program of ours that connects to the server, by two hosts of its own.
pub(super) fn ours(run: &Run<'_>, mut command: Command) -> Result<Output, String> {
    let link = Link::new(run, "link")?;
    command.arg(format!("--to={SERVER}:{PORT}"));
    for host in [10, 11] {
        let gateway = Testbed::gateway(0);
        command.arg(format!("--path=p0=10.77.1.{host},gateway={gateway}"));
    }
    let output = link
        .bed
        .client
        .output(command)
        .map_err(failed("lab delay"))?;
    kept_up(&link.bed)?;
    Ok(output)
}

/// Microseconds from SYN to SYN of the kernel's connections, whose second subflows the kernel makes, and a controller of ours.
pub(super) fn kernels(run: &Run<'_>, rounds: usize, loaded: bool) -> Result<[Vec<f64>; 2], String> {
    let links = [Link::new(run, "inside")?, Link::new(run, "beside")?];
    let second = "10.77.1.3";
    for link in &links {
        let address = format!("addr add {second}/24 dev p0");
        link.bed.client.ip([address]).map_err(failed("ip"))?;
    }
    let client = |link: usize, endpoint: Option<String>| {
        Client::kernel(
            &links[link].bed.client,
            Testbed::client_address(0),
            endpoint,
        )
    };
    let clients = [
        client(0, Some(format!("{second} dev p0")))?,
        client(1, None)?,
    ];
    let _controller = controller(run, &links[1].bed.client)?;
    let _busy = if loaded {
        spinners(run, &links[0].bed.client)?
    } else {
        Vec::new()
    };
    let mut delays = [Vec::new(), Vec::new()];
    for round in 0..rounds + WARM {
        // Neither always follows the other.
        for arm in [round % 2, 1 - round % 2] {
            let delay = once(&clients[arm], &links[arm].syns)?;
            if round >= WARM {
                delays[arm].push(delay);
            }
        }
    }
    for link in &links {
        kept_up(&link.bed)?;
    }
    Ok(delays)
}

/// Lets connections of this host wait for a controller, and starts it.
fn controller(run: &Run<'_>, host: &NetNs) -> Result<Spoken, String> {
    host.sysctl("net.mptcp.pm_type", "1")
        .map_err(failed("the kernel's path manager"))?;
    let mut command = Command::new(run.program);
    command
        .args(["ctl", "--engine", "kernel", "run", "fullmesh"])
        .stdout(Stdio::null());
    let mut controller = Spoken::start(host, command).map_err(failed("ctl run"))?;
    controller
        .says("decides", PATIENCE)
        .map_err(failed("ctl run did not start"))?;
    Ok(controller)
}

/// As many busy programs as there are processors.
fn spinners(run: &Run<'_>, host: &NetNs) -> Result<Vec<Process>, String> {
    let processors = std::thread::available_parallelism().map_err(failed("processors"))?;
    let spin = |_| {
        let mut command = Command::new(run.program);
        command.args(["lab", "delay", "--spin"]);
        host.spawn(command)
    };
    let all: Result<_, NetNsError> = (0..processors.get()).map(spin).collect();
    all.map_err(failed("a busy program"))
}

/// One connection.
fn once(client: &Client<'_>, syns: &Receiver<Instant>) -> Result<f64, String> {
    let mut stream = client.connect(SERVER)?;
    let mut chunk = vec![0; 64 << 10];
    ask(&mut stream, &mut chunk).map_err(failed("the client"))?;
    let syn = || syns.recv_timeout(PATIENCE).map_err(failed("a SYN"));
    let (first, second) = (syn()?, syn()?);
    finish(stream, &mut chunk).map_err(failed("the client"))?;
    std::thread::sleep(REST);
    Ok(second.since(first).as_nanos() as f64 / 1e3)
}

/// Asks for the file, and waits for its beginning.
fn ask(stream: &mut TcpStream, chunk: &mut [u8]) -> std::io::Result<usize> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"hello")?;
    stream.read(chunk)
}

/// Says that this was all, and reads to the end.
fn finish(mut stream: TcpStream, chunk: &mut [u8]) -> std::io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    while stream.read(chunk)? > 0 {}
    Ok(())
}
