//! What a controller in another process costs (SMAPP figure 3): the time from the SYN of a connection to the SYN of its second
//! subflow, with one controller (`refresh` of two subflows, which opens the second as soon as it may) within the stack and as
//! `manypath ctl run` beside the process, by turns. `ndiffports`, which the paper takes, waits for a random moment in our
//! stack, and would hide the difference.
//!
//! The peer is a server somewhere else, or a part of this process without anything in between: there no moment is spent
//! on the way, in which a controller could be heard.
//!
//! `manypath lab figure smapp-3` runs it as a process of its own.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use manypath_control::server::Server;
use manypath_io::device::Device;
use manypath_io::device::memory::{MemoryConfig, pair};
use manypath_io::path::PathSpec;
use manypath_io::{Connect, DeviceAddress, Host, MpListener};
use manypath_proxy::live::Live;
use manypath_stack::PathManager;
use manypath_stack::api::{Refresh, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::print_json;
use crate::exit::Failure;

/// Replacing the slower one would be for connections that live longer than these.
const POLICY: PathManager = PathManager::Refresh(Refresh {
    subflows: 2,
    every: manypath_tcp::time::Duration::from_secs(60),
    rule: Rule::Own,
});
/// Rounds that are not counted.
const WARM: usize = 50;
/// How long a connection is left alone until its second subflow is looked at.
const REST: Duration = Duration::from_millis(3);
/// How long a second subflow is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The server of this process.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
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
    /// The way of the connections that are steered in the stack, and of those steered beside it
    #[arg(long = "path", num_args = 1, requires = "to")]
    paths: Vec<PathSpec>,
    /// The server, which answers a word, and closes when it is told the end
    #[arg(long, requires = "paths")]
    to: Option<SocketAddr>,
    /// Only keep a processor busy
    #[arg(long)]
    spin: bool,
    /// Only answer on standard input, a socket, as a controller does that has nothing to decide
    #[arg(long)]
    echo: bool,
}

/// Bytes of the event that a controller waits for, and of its order.
const EVENT: usize = 500;
const ORDER: usize = 74;

/// Prints the microseconds of all rounds: within the stack, beside it, and those of a socket's round trip alone.
pub(crate) fn run(args: &DelayArgs) -> Result<(), Failure> {
    if args.spin {
        loop {
            std::hint::spin_loop();
        }
    }
    let failed = |e: io::Error| Failure::from_io(format!("cannot measure: {e}"), e.kind());
    if args.echo {
        return echo().map_err(failed);
    }
    let delays = measure(args).map_err(failed)?;
    print_json(&delays)
}

fn measure(args: &DelayArgs) -> io::Result<[Vec<f64>; 3]> {
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
    let (rounds, path) = (args.rounds, folder.path().to_owned());
    // Both are tasks, as the parts of programs are: waking what a runtime was started with costs it a call of the system each time.
    runtime()?.block_on(async {
        let Some(to) = args.to else {
            // The peer has no thread of its own, as it would have no part of this machine's processors elsewhere.
            let arms = NAMES.map(|_| pair(MemoryConfig::default()));
            let (near, far): (Vec<Device>, Vec<Device>) = arms.into_iter().unzip();
            let near = near.into_iter().map(|device| host(device, 1)).collect::<io::Result<_>>()?;
            let to = SocketAddr::from((PEER, 80));
            return tokio::select! {
                measured = tokio::spawn(async move { ask(near, to, rounds, &path).await }) => measured?,
                end = tokio::spawn(answer(far, to)) => Err(end?.err().unwrap_or(io::ErrorKind::Other.into())),
            };
        };
        let paths = args.paths.iter().cloned();
        let hosts = paths.map(|path| Host::builder().paths([path]).build());
        let hosts = hosts.collect::<io::Result<_>>()?;
        tokio::spawn(async move { ask(hosts, to, rounds, &path).await }).await?
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

fn host(device: Device, number: u8) -> io::Result<Host> {
    let address = DeviceAddress::new(Ipv4Addr::new(10, 0, 0, number).into());
    Host::builder().device(device, vec![address]).build()
}

/// The server: what was said to it, it says once more.
async fn answer(devices: Vec<Device>, at: SocketAddr) -> io::Result<()> {
    let mut all = Vec::new();
    for device in devices {
        let listener = MpListener::bind(&host(device, 2)?, at)?;
        all.push(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut text = [0; 64];
                    while let count @ 1.. = stream.read(&mut text).await? {
                        stream.write_all(&text[..count]).await?;
                    }
                    stream.shutdown().await
                });
            }
        }));
    }
    for task in all {
        task.await?;
    }
    Ok(())
}

async fn ask(
    hosts: Vec<Host>,
    to: SocketAddr,
    rounds: usize,
    folder: &Path,
) -> io::Result<[Vec<f64>; 3]> {
    // Both have a control socket; one has a controller that owns all connections.
    let mut arms = Vec::new();
    for (host, name) in hosts.into_iter().zip(NAMES) {
        let live = Live::new(host.clone());
        let sockets = folder.join("manypath");
        let server = Server::start_in(&sockets, name, "measures delays".to_owned(), live)?;
        arms.push((host, server));
    }
    let _controller = controller(folder).await?;
    let mut bare = Bare::start()?;
    let mut delays = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds + WARM {
        // Neither arm always follows the other.
        for arm in [round % 2, 1 - round % 2] {
            let policy = match arm {
                0 => POLICY,
                _ => PathManager::Userspace,
            };
            let delay = once(&arms[arm].0, to, policy).await?;
            if round >= WARM {
                delays[arm].push(delay);
            }
        }
        tokio::time::sleep(REST).await;
        let delay = bare.round()?;
        if round >= WARM {
            delays[2].push(delay);
        }
    }
    Ok(delays)
}

/// A process that answers whatever it is told: what the way there and back takes without anything to do there.
struct Bare {
    socket: UnixStream,
    _program: Spinners,
}

impl Bare {
    fn start() -> io::Result<Self> {
        let (socket, there) = UnixStream::pair()?;
        let program = Command::new(std::env::current_exe()?)
            .args(["lab", "delay", "--echo"])
            .stdin(OwnedFd::from(there))
            .spawn()?;
        Ok(Self {
            socket,
            _program: Spinners(vec![program]),
        })
    }

    /// Microseconds there and back.
    fn round(&mut self) -> io::Result<f64> {
        let begun = Instant::now();
        self.socket.write_all(&[0; EVENT])?;
        self.socket.read_exact(&mut [0; ORDER])?;
        Ok(begun.elapsed().as_nanos() as f64 / 1e3)
    }
}

/// Answers until nobody asks any more.
fn echo() -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    while socket.read_exact(&mut [0; EVENT]).is_ok() {
        socket.write_all(&[0; ORDER])?;
    }
    Ok(())
}

/// The controller beside the second arm, once it steers.
async fn controller(folder: &Path) -> io::Result<Spinners> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["ctl", "--pid", &NAMES[1].to_string(), "run"])
        .arg(POLICY.to_string())
        .env("XDG_RUNTIME_DIR", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
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
async fn once(host: &Host, to: SocketAddr, policy: PathManager) -> io::Result<f64> {
    let connect = Connect::new(host).with(|options| options.path_manager = policy);
    let mut stream = connect.connect(to).await?;
    stream.write_all(b"hello").await?;
    let mut chunk = vec![0; 64 << 10];
    let _ = stream.read(&mut chunk).await?;
    let end = Instant::now() + PATIENCE;
    let delay = loop {
        tokio::time::sleep(REST).await;
        let info = stream.info()?;
        if let [first, second] = info.subflows.as_slice() {
            break second.opened.since(first.opened);
        }
        if Instant::now() > end {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no second subflow came",
            ));
        }
    };
    stream.shutdown().await?;
    while stream.read(&mut chunk).await? != 0 {}
    // Its end is no part of what the next one takes.
    tokio::time::sleep(REST).await;
    Ok(delay.as_nanos() as f64 / 1e3)
}
