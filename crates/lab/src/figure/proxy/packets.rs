//! A download on real packets by curl: through `manypath forward` and `manypath proxy`, through squid on the kernel's Multipath TCP, or
//! past the proxy.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::ends::CONGESTION;
use super::super::real::{PATIENCE, bed, failed, kept_up, prepare_kernels};
use super::super::{Arm, Run};
use super::{Job, Rates};
use crate::demo::web::{self, Web};
use crate::kernel;
use crate::netns::{NetNs, Process};
use crate::relay::{self, End, await_listener, forward};
use crate::testbed::{SERVER, Testbed};

const WEB_PORT: u16 = 8080;
const PROXY_PORT: u16 = 3128;
/// Where curl finds our client's relay, on its loopback.
const LOCAL_PORT: u16 = 5004;
const FILE: &str = "file.bin";
/// How often it is looked at what the paths have brought.
const LOOK: Duration = Duration::from_millis(10);
/// How often it is looked whether a connection has its subflows, by which the limit is put up.
const WATCH: Duration = Duration::from_millis(100);
/// How long the proxies may take to end.
const ENDING: Duration = Duration::from_secs(3);

/// Makes the download, with the time counted from its beginning.
pub(super) fn download(run: &Run<'_>, job: &Job) -> Result<Vec<Rates>, String> {
    let bed = bed(&job.paths, CONGESTION)?;
    set_mtu(&bed, job.mtu)?;
    let folder = tempfile::tempdir().map_err(failed("a folder"))?;
    let _web = serve(&bed.server, folder.path(), job.size)?;
    let ways = match (run.arm, job.plain_over) {
        (Arm::Real, None) => ours(run, &bed, folder.path(), job)?,
        (Arm::Kernel, None) => squid(&bed, folder.path(), job)?,
        (Arm::Kernel, Some(path)) => {
            receive_buffer(&bed.client, job.buffer)?;
            Ways::past_the_proxy(Testbed::client_address(path))
        }
        (arm, _) => return Err(format!("{arm} has no such download on real packets")),
    };
    let mut limit = Limit::of(run, &bed, job);
    if job.again {
        fetch(run, &bed, &ways, job, &mut limit)?;
    }
    let rates = fetch(run, &bed, &ways, job, &mut limit)?;
    kept_up(&bed)?;
    ways.end();
    Ok(rates)
}

/// How curl gets at the server, and what stands in between.
struct Ways {
    /// The program before curl, as `mptcpize run`.
    under: &'static [&'static str],
    curl: Vec<String>,
    between: Vec<Process>,
}

impl Ways {
    fn by_proxy(under: &'static [&'static str], proxy: SocketAddr, between: Vec<Process>) -> Self {
        Self {
            under,
            curl: vec!["--proxy".to_owned(), format!("http://{proxy}")],
            between,
        }
    }

    fn past_the_proxy(from: IpAddr) -> Self {
        let no_proxy = ["--noproxy", "*", "--interface"].map(str::to_owned);
        Self {
            under: &[],
            curl: no_proxy.into_iter().chain([from.to_string()]).collect(),
            between: Vec::new(),
        }
    }

    fn command(&self) -> Command {
        let words: Vec<&str> = self.under.iter().copied().chain(["curl"]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(&self.curl);
        command.args([
            "--silent",
            "--show-error",
            "--fail",
            "--output",
            "/dev/null",
        ]);
        command.args(["--write-out", "%{size_download}"]);
        command.arg(format!("http://{SERVER}:{WEB_PORT}/{FILE}"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Ends what stands in between in an orderly way: killed, it would leave notes behind.
    fn end(self) {
        for mut process in self.between {
            process.stop(ENDING);
        }
    }
}

fn set_mtu(bed: &Testbed, mtu: u64) -> Result<(), String> {
    for ns in [&bed.client, &bed.server] {
        let lines = bed.paths().iter();
        let lines = lines.map(|path| format!("link set dev {} mtu {mtu}", path.name));
        ns.ip(lines).map_err(failed("ip"))?;
    }
    Ok(())
}

/// A web server that speaks only TCP, with one file.
fn serve(ns: &NetNs, folder: &Path, size: u64) -> Result<Web, String> {
    let file = std::fs::File::create(folder.join(FILE)).map_err(failed("the file"))?;
    file.set_len(size).map_err(failed("the file"))?;
    web::start(ns, folder, WEB_PORT, web::Transport::Tcp).map_err(failed("the web server"))
}

/// The kernel counts its own overhead into a buffer, and takes half of it for that until it knows better.
fn receive_buffer(ns: &NetNs, buffer: u64) -> Result<(), String> {
    let bytes = buffer * 2;
    let value = format!("4096 {bytes} {bytes}");
    ns.sysctl("net.ipv4.tcp_rmem", &value)
        .map_err(failed("the receive buffer"))
}

/// `manypath forward` before curl, `manypath proxy` before the server. The limit stands in the proxy's command line.
fn ours(run: &Run<'_>, bed: &Testbed, folder: &Path, job: &Job) -> Result<Ways, String> {
    let proxy_at = SocketAddr::new(Testbed::own_server_address(0), PROXY_PORT);
    let file = folder.join("proxy.toml");
    let text = format!(
        "[[listen]]\non = \"mptcp:{proxy_at}\"\nopening = \"http\"\noutside = \"tcp\"\n\
         [[rule]]\nclient = \"10.77.0.0/16\"\nto = \"{SERVER}/32\"\nport = {WEB_PORT}\nthen = \"allow\"\n"
    );
    std::fs::write(&file, text).map_err(failed("the proxy's configuration"))?;
    let mut paths = End::Server.paths(bed);
    if let (Some(cap), Some(ethernet)) = (job.cap, paths.get_mut(1)) {
        ethernet.push_str(&format!(",rate={cap}bit"));
    }
    let proxy = relay::proxy(&bed.server, run.program, &file, &paths);
    let proxy = proxy.map_err(|error| error.to_string())?;
    let local = SocketAddr::from(([127, 0, 0, 1], LOCAL_PORT));
    let (from, to) = (format!("tcp:{local}"), format!("mptcp:{proxy_at}"));
    let buffer = job.buffer.to_string();
    let options = ["--checksum", "off", "--buffer", &buffer];
    let paths = End::Client.paths(bed);
    let relay = forward(&bed.client, run.program, [&from, &to], &paths, &options);
    let relay = relay.map_err(|error| error.to_string())?;
    let between = vec![relay.into_process(), proxy.into_process()];
    Ok(Ways::by_proxy(&[], local, between))
}

/// Squid without a cache, and curl, both on the kernel's Multipath TCP.
fn squid(bed: &Testbed, folder: &Path, job: &Job) -> Result<Ways, String> {
    const MISSING: &str = "squid under mptcpize (apt-get install squid mptcpize)";
    prepare_kernels(bed)?;
    receive_buffer(&bed.client, job.buffer)?;
    let file = folder.join("squid.conf");
    let text = relay::squid(&PROXY_PORT.to_string(), "http_access allow all", folder)
        + "visible_hostname proxy\ncache_mem 8 MB\n";
    std::fs::write(&file, text).map_err(failed("squid's configuration"))?;
    let mut squid = Command::new("mptcpize");
    squid.args(["run", "squid", "-N", "-f"]).arg(&file);
    squid
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut squid = bed.server.spawn(squid).map_err(failed(MISSING))?;
    await_listener(&bed.server, PROXY_PORT, &mut squid, PATIENCE).map_err(failed(MISSING))?;
    let proxy = SocketAddr::from((SERVER, PROXY_PORT));
    Ok(Ways::by_proxy(&["mptcpize", "run"], proxy, vec![squid]))
}

/// The limit that tc is to hold, put up as in the paper: when a connection is there with two subflows.
struct Limit<'a> {
    bed: &'a Testbed,
    /// Bits a second; nothing when there is no limit, or when it is there already.
    due: Option<u64>,
    looked: Instant,
}

impl<'a> Limit<'a> {
    fn of(run: &Run<'_>, bed: &'a Testbed, job: &Job) -> Self {
        let due = job
            .cap
            .filter(|_| run.arm == Arm::Kernel && job.plain_over.is_none());
        Self {
            bed,
            due,
            looked: Instant::now(),
        }
    }

    fn watch(&mut self) -> Result<(), String> {
        let Some(cap) = self.due.filter(|_| self.looked.elapsed() >= WATCH) else {
            return Ok(());
        };
        self.looked = Instant::now();
        let subflows = kernel::subflows(&self.bed.client).map_err(failed("ss"))?;
        let established = subflows.iter().filter(|subflow| subflow.established);
        if established.count() < 2 {
            return Ok(());
        }
        self.due = None;
        let ethernet = &self.bed.paths()[0].name;
        for words in [
            format!("qdisc add dev {ethernet} root handle 1: htb default 1"),
            format!("class add dev {ethernet} parent 1: classid 1:1 htb rate {cap}bit"),
        ] {
            tc(&self.bed.server, &words)?;
        }
        Ok(())
    }
}

fn tc(ns: &NetNs, words: &str) -> Result<(), String> {
    let mut command = Command::new("tc");
    command.args(words.split(' '));
    let output = ns.output(command).map_err(failed("tc"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "tc {words}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// One download from beginning to end.
fn fetch(
    run: &Run<'_>,
    bed: &Testbed,
    ways: &Ways,
    job: &Job,
    limit: &mut Limit<'_>,
) -> Result<Vec<Rates>, String> {
    let begin = Instant::now();
    let mut look = Look::at(bed, begin);
    let mut curl = bed.client.spawn(ways.command()).map_err(failed("curl"))?;
    let mut all = Vec::new();
    let status = loop {
        if let Some(status) = curl.child().try_wait().map_err(failed("curl"))? {
            break status;
        }
        run.go_on()?;
        if begin.elapsed().as_secs_f64() > job.limit() {
            return Err("the download did not end".to_owned());
        }
        limit.watch()?;
        if look.time.elapsed().as_secs_f64() >= job.step {
            all.push(look.again(bed, begin));
        }
        std::thread::sleep(LOOK);
    };
    let mut said = [String::new(), String::new()];
    // What it says is a courtesy; its status alone is an error already.
    let child = curl.child();
    let _ = child
        .stdout
        .take()
        .map(|mut out| out.read_to_string(&mut said[0]));
    let _ = child
        .stderr
        .take()
        .map(|mut err| err.read_to_string(&mut said[1]));
    match said[0].trim().parse::<u64>() {
        Ok(bytes) if status.success() && bytes == job.size => Ok(all),
        _ => Err(format!(
            "curl: {} of {} bytes; {} ({status})",
            said[0].trim(),
            job.size,
            said[1].trim()
        )),
    }
}

/// What the paths have brought so far.
struct Look {
    time: Instant,
    bytes: Vec<u64>,
}

impl Look {
    fn at(bed: &Testbed, time: Instant) -> Self {
        let bytes = bed.delivered();
        Self { time, bytes }
    }

    /// Looks again, and gives what came since the last time.
    fn again(&mut self, bed: &Testbed, begin: Instant) -> Rates {
        let now = Self::at(bed, Instant::now());
        let seconds = (now.time - self.time).as_secs_f64().max(1e-9);
        let rate = |path: usize| (now.bytes[path] - self.bytes[path]) as f64 * 8.0 / seconds;
        let rates = Rates {
            at: (now.time - begin).as_secs_f64(),
            paths: [0, 1].map(rate),
        };
        *self = now;
        rates
    }
}
