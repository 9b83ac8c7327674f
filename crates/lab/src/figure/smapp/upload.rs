//! An upload on real packets over two paths, of which the first begins to lose packets: what the server has read by when.
//!
//! The server is the kernel's. The client is our `manypath forward`, or the kernel with a backup endpoint; what a thread
//! beside it writes goes up.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use manypath_sim::loss::Loss;
use manypath_sim::rng::Chance;
use socket2::Protocol;

use super::super::real::{
    PATIENCE, PORT, client_paths, failed, kept_up, line, seeded_bed, socket, write_to_the_end,
};
use super::super::{Arm, Run};
use crate::bench::accept;
use crate::emulator::Way;
use crate::kernel;
use crate::netns::NetNs;
use crate::parallel::PathSpec;
use crate::spoken::Spoken;
use crate::testbed::{SERVER, Testbed};

/// The kernel's congestion control, which is ours by default.
const CONGESTION: &str = "cubic";
/// Where our relay takes what is to go up.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5004);
/// How soon it is seen that the time is over.
const STEP: Duration = Duration::from_millis(5);

/// An upload to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upload<'a> {
    /// What each of the two paths is like.
    pub(super) path: PathSpec,
    /// The path manager of our client.
    pub(super) policy: &'a str,
    /// The second path is a backup.
    pub(super) backup: bool,
    /// Blocks of so many bytes, so many, one a second; as much as goes without.
    pub(super) blocks: Option<(u64, u64)>,
    /// When the first path begins to lose packets both ways, and how many in a million.
    pub(super) loss: (Duration, u32),
    /// How long it is watched.
    pub(super) time: Duration,
    /// The same seed loses the same packets.
    pub(super) seed: u64,
}

/// Bytes that the server had read, by the time since it had the connection.
pub(super) type Progress = Vec<(Duration, u64)>;

/// Each of the two paths, as the figure's knobs have it.
pub(super) fn path(run: &Run<'_>) -> PathSpec {
    let rate = run.knobs.whole("rate");
    PathSpec {
        rate,
        rtt_us: (run.knobs.get("delay") * 2e6) as u64,
        // A tenth of a second, as in the simulator.
        buffer: rate / 80,
        loss_ppm: 0,
    }
}

pub(super) fn upload(run: &Run<'_>, upload: Upload<'_>) -> Result<Progress, String> {
    let bed = seeded_bed(&[upload.path; 2], CONGESTION, upload.seed)?;
    kernel::prepare(&bed.server, false).map_err(failed("the server's kernel"))?;
    let listen = || {
        let socket = socket(Protocol::MPTCP, CONGESTION)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
        socket.listen(1)?;
        Ok(socket.into())
    };
    let listener: TcpListener = bed
        .server
        .run(listen)
        .map_err(failed::<std::io::Error>("listen"))?;
    // The relay lives as long as the upload.
    let (stream, _relay) = match run.arm {
        Arm::Kernel => (kernels(&bed, upload.backup)?, None),
        Arm::Real => {
            let relay = relay(&bed, run, &upload)?;
            let connect = || TcpStream::connect_timeout(&LOCAL, PATIENCE);
            let stream = bed.client.run(connect).map_err(failed("connect"))?;
            (stream, Some(relay))
        }
        Arm::Sim | Arm::Process => return Err(format!("{} has no real packets", run.arm)),
    };
    let accepted = accept(&listener, PATIENCE).map_err(failed("accept"))?;
    let begun = Instant::now();
    let reader = bed
        .server
        .thread("figure-reader", move || read(accepted, begun, upload.time))
        .map_err(failed("the reader"))?;
    match upload.blocks {
        None => write_to_the_end(&bed.client, stream)?,
        Some(blocks) => write_blocks(&bed.client, stream, begun, blocks)?,
    }
    let (at, ppm) = upload.loss;
    std::thread::sleep((begun + at).saturating_duration_since(Instant::now()));
    for way in [Way::Out, Way::In] {
        let mut lossy = line(&upload.path);
        lossy.loss = vec![Loss::Bernoulli(Chance::ppm(ppm))];
        bed.emulator().change(0, way, lossy);
    }
    let read = reader.join().map_err(|_| "the reader panicked")?;
    let read = read.map_err(failed("read"))?;
    kept_up(&bed)?;
    Ok(read)
}

/// The kernel's client.
fn kernels(bed: &Testbed, backup: bool) -> Result<TcpStream, String> {
    kernel::prepare(&bed.client, false).map_err(failed("the client's kernel"))?;
    let (address, path) = (Testbed::client_address(1), &bed.paths()[1].name);
    let backup = if backup { " backup" } else { "" };
    let endpoint = format!("mptcp endpoint add {address} dev {path} subflow{backup}");
    bed.client.ip([endpoint]).map_err(failed("ip"))?;
    let connect = || {
        let socket = socket(Protocol::MPTCP, CONGESTION)?;
        socket.bind(&SocketAddr::new(Testbed::client_address(0), 0).into())?;
        socket.connect_timeout(&SocketAddr::from((SERVER, PORT)).into(), PATIENCE)?;
        Ok(socket.into())
    };
    bed.client
        .run(connect)
        .map_err(failed::<std::io::Error>("connect"))
}

/// Our client.
fn relay(bed: &Testbed, run: &Run<'_>, upload: &Upload<'_>) -> Result<Spoken, String> {
    let mut command = Command::new(run.program);
    let (from, to) = (format!("tcp:{LOCAL}"), format!("mptcp:{SERVER}:{PORT}"));
    command.args(["forward", "--listen", &from, "--to", &to]);
    command.args(["--checksum", "off", "--path-manager", upload.policy]);
    let mut paths = client_paths(bed);
    if let Some(last) = paths.last_mut().filter(|_| upload.backup) {
        last.push_str(",backup");
    }
    command.args(paths).stdout(Stdio::null());
    let mut relay = Spoken::start(&bed.client, command).map_err(failed("forward"))?;
    relay
        .says(" goes to ", PATIENCE)
        .map_err(failed("forward did not start"))?;
    Ok(relay)
}

/// Writes a block each second. The stream stays open for whoever reads.
fn write_blocks(
    ns: &NetNs,
    mut stream: TcpStream,
    begun: Instant,
    (size, count): (u64, u64),
) -> Result<(), String> {
    let written = ns.thread("figure-writer", move || {
        let block = vec![0x5a; usize::try_from(size).unwrap_or(usize::MAX)];
        // A peer that stops reading without closing must not hold up the thread for ever.
        let _ = stream.set_write_timeout(Some(PATIENCE));
        for number in 0..count {
            let at = begun + Duration::from_secs(number);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if stream.write_all(&block).is_err() {
                return;
            }
        }
        // Its end is the peer's.
        let _ = stream.read(&mut [0]);
    });
    written.map(drop).map_err(failed("the writer"))
}

/// Reads for so long.
fn read(mut stream: TcpStream, begun: Instant, time: Duration) -> std::io::Result<Progress> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(STEP))?;
    let mut chunk = vec![0; 64 << 10];
    let (mut all, mut read) = (vec![(Duration::ZERO, 0)], 0);
    while begun.elapsed() < time {
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => read += len as u64,
            Err(error) if is_no_news(error.kind()) => continue,
            Err(error) => return Err(error),
        }
        all.push((begun.elapsed(), read));
    }
    all.push((begun.elapsed(), read));
    Ok(all)
}

fn is_no_news(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut
    )
}
