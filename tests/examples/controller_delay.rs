//! What a controller in another process costs (SMAPP figure 3): the time from the SYN of a connection to the SYN of its second
//! subflow, with one controller (`refresh` of two subflows, which opens the second as soon as it may) within the stack and as
//! `manypath ctl run` beside the process, by turns, on an idle machine and with as many busy programs as it has processors.
//! `ndiffports`, which the paper takes, waits for a random moment in our stack, and would hide the difference.
//!
//! `cargo run --release -p manypath-tests --example controller_delay [ROUNDS]`; the peer is a stack behind a cable in memory.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use manypath_control::server::Server;
use manypath_io::device::Device;
use manypath_io::device::memory::{MemoryConfig, pair};
use manypath_io::{Connect, Context, DeviceAddress, MpListener};
use manypath_proxy::live::Live;
use manypath_stack::PathManager;
use manypath_stack::api::Refresh;
use manypath_tests::program::{manypath, runtime_dir};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Replacing the slower one would be for connections that live longer than these.
const POLICY: PathManager = PathManager::Refresh(Refresh {
    subflows: 2,
    every: manypath_tcp::time::Duration::from_secs(60),
});
/// Rounds that are not counted.
const WARM: usize = 50;
/// How long a connection is left alone until its second subflow is looked at.
const REST: Duration = Duration::from_millis(3);

/// What the paper measured on its machines: the mean, idle; and the bound under load. Microseconds.
const PAPER: [f64; 2] = [23.0, 37.0];

fn main() -> io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("spin") {
        loop {
            std::hint::spin_loop();
        }
    }
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds: usize = rounds.unwrap_or(1000);
    println!("microseconds from SYN to SYN      10 %    25 %  median    75 %    90 %    99 %");
    for (busy, paper) in [false, true].into_iter().zip(PAPER) {
        let programs = if busy { spinners()? } else { Vec::new() };
        let [inside, beside] = measure(rounds)?;
        for mut program in programs {
            program.kill()?;
            program.wait()?;
        }
        let load = if busy { "loaded" } else { "idle" };
        print(&format!("{load}, in the stack"), &inside);
        print(&format!("{load}, beside it"), &beside);
        let extra = at(&beside, 50) - at(&inside, 50);
        let ratio = at(&beside, 50) / at(&inside, 50);
        println!(
            "{load}: {extra:.1} more in the median, {ratio:.2} times as long (the paper: {paper} more)"
        );
    }
    Ok(())
}

fn spinners() -> io::Result<Vec<Child>> {
    let count = std::thread::available_parallelism()?.get();
    let this = std::env::current_exe()?;
    (0..count)
        .map(|_| Command::new(&this).arg("spin").spawn())
        .collect()
}

/// The delays of both arms, sorted.
fn measure(rounds: usize) -> io::Result<[Vec<f64>; 2]> {
    let arms = [cable(), cable()];
    let (near, far): (Vec<Device>, Vec<Device>) = arms.into_iter().unzip();
    let server = std::thread::spawn(move || runtime()?.block_on(answer(far)));
    let measured = runtime()?.block_on(ask(near, rounds));
    // The server waits for connections until the program ends.
    drop(server);
    measured
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn cable() -> (Device, Device) {
    pair(MemoryConfig::default())
}

fn context(device: Device, host: u8) -> io::Result<Context> {
    let address = DeviceAddress::new(std::net::Ipv4Addr::new(10, 0, 0, host).into());
    Context::builder().device(device, vec![address]).build()
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

fn target() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 2], 80))
}

async fn ask(devices: Vec<Device>, rounds: usize) -> io::Result<[Vec<f64>; 2]> {
    let mut contexts = Vec::new();
    for device in devices {
        contexts.push(context(device, 1)?);
    }
    // Both have a control socket; one has a controller that owns all connections.
    let folder = runtime_dir().join("manypath");
    let mut sockets = Vec::new();
    for (n, context) in contexts.iter().enumerate() {
        let (pid, title) = (n as u32 + 1, "controller_delay".to_owned());
        sockets.push(Server::start_in(
            &folder,
            pid,
            title,
            Live(context.clone()),
        )?);
    }
    let mut controller = manypath(["ctl", "--pid", "2", "run", &POLICY.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = controller.stderr.take().map(BufReader::new);
    tokio::task::spawn_blocking(move || said.map(|mut said| said.read_line(&mut String::new())))
        .await?
        .transpose()?;
    let mut delays = [Vec::new(), Vec::new()];
    for round in 0..rounds + WARM {
        // Neither arm always follows the other.
        for arm in [round % 2, 1 - round % 2] {
            let context = &contexts[arm];
            let policy = match arm {
                0 => POLICY,
                _ => PathManager::Userspace,
            };
            let delay = once(context, policy).await?;
            if round >= WARM {
                delays[arm].push(delay);
            }
        }
    }
    controller.kill()?;
    controller.wait()?;
    delays.iter_mut().for_each(|d| d.sort_by(f64::total_cmp));
    Ok(delays)
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

/// A percentile of sorted values.
fn at(sorted: &[f64], percent: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * percent / 100)
        .copied()
        .unwrap_or(f64::NAN)
}

fn print(what: &str, sorted: &[f64]) {
    let mut text = format!("{what:<28}");
    for percent in [10, 25, 50, 75, 90, 99] {
        text += &format!("{:8.1}", at(sorted, percent));
    }
    println!("{text}");
}
