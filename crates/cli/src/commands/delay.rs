//! What a controller in another process costs (SMAPP figure 3): the time from the SYN of a connection to the SYN of its second
//! subflow, with one controller (`refresh` of two subflows, which opens the second as soon as it may) within the stack and as
//! `manypath ctl run` beside the process, by turns. `ndiffports`, which the paper takes, waits for a random moment in our
//! stack, and would hide the difference.
//!
//! `manypath lab figure smapp-3` runs it as a process of its own.

use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use manypath_control::server::Server;
use manypath_io::device::Device;
use manypath_io::device::memory::{MemoryConfig, pair};
use manypath_io::{Connect, Context, DeviceAddress, MpListener};
use manypath_proxy::live::Live;
use manypath_stack::PathManager;
use manypath_stack::api::Refresh;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::print_json;
use crate::exit::Failure;

/// Replacing the slower one would be for connections that live longer than these.
const POLICY: PathManager = PathManager::Refresh(Refresh {
    subflows: 2,
    every: manypath_tcp::time::Duration::from_secs(60),
});
/// Rounds that are not counted.
const WARM: usize = 50;
/// How long a connection is left alone until its second subflow is looked at.
const REST: Duration = Duration::from_millis(3);
/// Names of the two control sockets, in a folder of their own.
const NAMES: [u32; 2] = [1, 2];

#[derive(Debug, Args)]
pub(crate) struct DelayArgs {
    /// Connections that are counted, each way
    #[arg(long, default_value_t = 500)]
    rounds: usize,
    /// As many busy programs as the machine has processors
    #[arg(long)]
    loaded: bool,
    /// The busy poll of the controller, in microseconds
    #[arg(long, default_value_t = 0)]
    busy_poll_us: u64,
    /// Only keep a processor busy
    #[arg(long)]
    spin: bool,
}

/// Prints the microseconds of all rounds, within the stack and beside it.
pub(crate) fn run(args: &DelayArgs) -> Result<(), Failure> {
    if args.spin {
        loop {
            std::hint::spin_loop();
        }
    }
    let failed = |e: io::Error| Failure::from_io(format!("cannot measure: {e}"), e.kind());
    let delays = measure(args).map_err(failed)?;
    print_json(&delays)
}

fn measure(args: &DelayArgs) -> io::Result<[Vec<f64>; 2]> {
    let folder = tempfile::tempdir()?;
    let mut spinners = Spinners::default();
    if args.loaded {
        for _ in 0..std::thread::available_parallelism()?.get() {
            let this = std::env::current_exe()?;
            let spinner = Command::new(this)
                .args(["lab", "delay", "--spin"])
                .spawn()?;
            spinners.0.push(spinner);
        }
    }
    let arms = NAMES.map(|_| pair(MemoryConfig::default()));
    let (near, far): (Vec<Device>, Vec<Device>) = arms.into_iter().unzip();
    // The peer has no thread of its own, as it would have no part of this machine's processors elsewhere.
    runtime()?.block_on(async {
        tokio::select! {
            measured = ask(near, args, folder.path()) => measured,
            end = answer(far) => Err(end.err().unwrap_or(io::ErrorKind::Other.into())),
        }
    })
}

/// Programs that end with this.
#[derive(Default)]
struct Spinners(Vec<Child>);

impl Drop for Spinners {
    fn drop(&mut self) {
        for program in &mut self.0 {
            // They may have ended already.
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn context(device: Device, host: u8) -> io::Result<Context> {
    let address = DeviceAddress::new(Ipv4Addr::new(10, 0, 0, host).into());
    Context::builder().device(device, vec![address]).build()
}

fn target() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

/// The server: what was said to it, it says once more.
async fn answer(devices: Vec<Device>) -> io::Result<()> {
    let mut all = Vec::new();
    for device in devices {
        let listener = MpListener::bind(&context(device, 2)?, target())?;
        all.push(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut text = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut text).await {
                        stream.write_all(&text[..count]).await?;
                    }
                    io::Result::Ok(())
                });
            }
        }));
    }
    for task in all {
        task.await?;
    }
    Ok(())
}

async fn ask(devices: Vec<Device>, args: &DelayArgs, folder: &Path) -> io::Result<[Vec<f64>; 2]> {
    // Both have a control socket; one has a controller that owns all connections.
    let mut arms = Vec::new();
    for (device, name) in devices.into_iter().zip(NAMES) {
        let context = context(device, 1)?;
        let live = Live(context.clone());
        let sockets = folder.join("manypath");
        let server = Server::start_in(&sockets, name, "measures delays".to_owned(), live)?;
        arms.push((context, server));
    }
    let _controller = controller(folder, args.busy_poll_us).await?;
    let mut delays = [Vec::new(), Vec::new()];
    for round in 0..args.rounds + WARM {
        // Neither arm always follows the other.
        for arm in [round % 2, 1 - round % 2] {
            let policy = match arm {
                0 => POLICY,
                _ => PathManager::Userspace,
            };
            let delay = once(&arms[arm].0, policy).await?;
            if round >= WARM {
                delays[arm].push(delay);
            }
        }
    }
    Ok(delays)
}

/// The controller beside the second arm, once it steers.
async fn controller(folder: &Path, busy_poll_us: u64) -> io::Result<Spinners> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["ctl", "--pid", &NAMES[1].to_string(), "run"])
        .arg(POLICY.to_string())
        .env("XDG_RUNTIME_DIR", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if busy_poll_us > 0 {
        command.arg(format!("--busy-poll={busy_poll_us}us"));
    }
    let mut child = command.spawn()?;
    let said = child.stderr.take().map(BufReader::new);
    let guard = Spinners(vec![child]);
    let mut line = String::new();
    // It says when it decides, and this thread must answer it until then.
    let read = move || said.map_or(Ok(0), |mut said| said.read_line(&mut line));
    tokio::task::spawn_blocking(read).await??;
    Ok(guard)
}

/// One connection: microseconds from its SYN to that of its second subflow.
async fn once(context: &Context, policy: PathManager) -> io::Result<f64> {
    let connect = Connect::new(context).with(|options| options.path_manager = policy);
    let mut stream = connect.connect(target()).await?;
    stream.write_all(b"hello").await?;
    stream.read_exact(&mut [0; 5]).await?;
    loop {
        tokio::time::sleep(REST).await;
        let info = stream.info()?;
        if let [first, second] = info.subflows.as_slice() {
            let delay = second.opened.since(first.opened);
            stream.abort()?;
            return Ok(delay.as_nanos() as f64 / 1e3);
        }
    }
}
