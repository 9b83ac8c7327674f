//! An upload on real packets over two paths, of which the first begins to lose packets: what the server has read by when.
//!
//! The server is the kernel's. The client is our `manypath forward`, or the kernel with a backup endpoint; what a thread
//! beside it writes goes up.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use manypath_sim::loss::Loss;
use manypath_sim::rng::Chance;

use super::super::ends::{CONGESTION, Client, listen};
use super::super::real::{PATIENCE, failed, kept_up, line, seeded_bed, write_to_the_end};
use super::super::{Arm, Run};
use crate::bench::accept;
use crate::emulator::Way;
use crate::netns::NetNs;
use crate::parallel::PathSpec;
use crate::relay::End;
use crate::testbed::{SERVER, Testbed};

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
    let listener = listen(&bed.server)?;
    // The relay lives as long as the upload.
    let client = client(&bed, run, &upload)?;
    let stream = client.connect(SERVER)?;
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

fn client<'a>(bed: &'a Testbed, run: &Run<'_>, upload: &Upload<'_>) -> Result<Client<'a>, String> {
    match run.arm {
        Arm::Kernel => {
            let (second, path) = (Testbed::client_address(1), &bed.paths()[1].name);
            let backup = if upload.backup { " backup" } else { "" };
            let endpoint = format!("{second} dev {path}{backup}");
            Client::kernel(&bed.client, Testbed::client_address(0), [endpoint])
        }
        Arm::Real => {
            let mut paths = End::Client.paths(bed);
            if let Some(last) = paths.last_mut().filter(|_| upload.backup) {
                last.push_str(",backup");
            }
            let policy = ["--path-manager", upload.policy];
            Client::relay(run, &bed.client, SERVER, &paths, &policy)
        }
        Arm::Sim | Arm::Process => Err(format!("{} has no real packets", run.arm)),
    }
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
