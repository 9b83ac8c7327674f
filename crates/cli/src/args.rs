//! The command line.

use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use manypath_io::path::PathSpec;
use manypath_proxy::endpoint::{Endpoint, HostPort, Proto};
use manypath_stack::api::ReceiveAlgorithm;
use manypath_stack::sched::Scheduler;
use manypath_stack::{Mechanisms, PathManager};
use manypath_tcp::cc::Algorithm;

use crate::commands::completions::CompletionsArgs;
use crate::commands::delay::DelayArgs;
use crate::ctl_args::CtlArgs;
use crate::demo_args::DemoArgs;
use crate::exit::{Ends, all_codes, codes};
use crate::figure_args::{FigureArgs, ListArgs};
use crate::limit_args::LimitArgs;
use crate::proxy_args::{CheckArgs, PasswordArgs, ProxyArgs, ReloadArgs, UndoArgs};
use crate::units::{Patience, parse_bytes, parse_duration, parse_period, parse_period_or_off};
use crate::words::{self, words};

const EXAMPLES: &str = "\
Examples:
  manypath demo
      Two emulated paths, a stock web server and client, one of the paths cut in the middle. No root needed.
  manypath forward --listen tcp:127.0.0.1:8080 --to mptcp:server.example:80
      Let any TCP client on this host use all of its uplinks.
  manypath forward --listen mptcp:0.0.0.0:8080 --to tcp:127.0.0.1:80
      Let any TCP server on this host be reached over several paths.
  manypath status --watch
      See the connections and subflows of the running processes.";

/// Multipath TCP (RFC 8684) in user space.
#[derive(Debug, Parser)]
#[command(name = "manypath", version, about, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", all_codes()))]
pub(crate) struct Cli {
    /// Say more about what is going on; twice for everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Relay byte streams between TCP, our Multipath TCP and the kernel's
    Forward(ForwardArgs),
    /// Serve HTTP and SOCKS5 clients: their connections go by Multipath TCP, over every uplink
    Proxy(ProxyArgs),
    /// Say what a configuration file puts in force, or everything that is wrong with it
    Check(CheckArgs),
    /// Let a running proxy read its configuration file anew
    Reload(ReloadArgs),
    /// Make the line of a users file for a user and its password
    Password(PasswordArgs),
    /// Put back what processes that were killed have left changed on this host
    Undo(UndoArgs),
    /// Measure bulk data, requests and responses, and many connections
    Perf(PerfArgs),
    /// Show connections and subflows of running processes
    Status(StatusArgs),
    /// Steer the paths of running processes: subflows, addresses, policies, controllers
    Ctl(CtlArgs),
    /// Show it: two paths, an unmodified client and server, one path cut in the middle
    Demo(DemoArgs),
    /// Experiments: the simulator, the benchmark, the gauntlet
    Lab(LabArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
}

impl Command {
    /// Whether it changes the host, or has a socket there, and puts that back whatever signal ends it. The others change only
    /// namespaces that go with them, or nothing.
    pub(crate) fn puts_back(&self) -> bool {
        match self {
            Self::Forward(_)
            | Self::Proxy(_)
            | Self::Reload(_)
            | Self::Undo(_)
            | Self::Perf(_)
            | Self::Status(_)
            | Self::Ctl(_) => true,
            Self::Check(_)
            | Self::Password(_)
            | Self::Demo(_)
            | Self::Lab(_)
            | Self::Completions(_) => false,
        }
    }

    /// Whether SIGHUP asks it to read its configuration anew, and not to end.
    pub(crate) fn reloads(&self) -> bool {
        matches!(self, Self::Proxy(_))
    }
}

const FORWARD_EXAMPLES: &str = "\
PROTO is one of
  tcp           the host's TCP
  mptcp         our stack, Multipath TCP where the peer speaks it and TCP where not
  kernel-mptcp  the host kernel's Multipath TCP

Examples:
  manypath forward --listen tcp:127.0.0.1:8080 --to mptcp:server.example:80
      A client that connects to port 8080 here reaches the server over every interface with a default route.
  manypath forward --path wlan0 --path wwan0,backup --listen tcp:127.0.0.1:8080 --to mptcp:192.0.2.1:80
      The same over two interfaces, the second only when the first is of no use.
  manypath forward --path eth0=192.0.2.7 --listen mptcp:0.0.0.0:443 --to tcp:127.0.0.1:8443
      A server that knows only TCP, reached by Multipath TCP.

A listener of mptcp on addresses of the host:
  Rules of the host's INPUT chains (nftables, ufw, firewalld) do not apply to what comes by a path. With --attach tun those of the FORWARD
  chains do; with packet sockets those at the egress of the device, here for port 443 of eth0:
      nft add table netdev mine
      nft 'add chain netdev mine out { type filter hook egress device eth0 priority 0; }'
      nft add rule netdev mine out ip daddr != 192.0.2.0/24 tcp sport 443 drop
  Programs of this host, its containers and what comes by interfaces that are no paths reach it by plain TCP, as a socket
  of the host; to them the INPUT rules apply.

It runs until Ctrl-C; connections that are open then are reset.";

#[derive(Debug, Args)]
#[command(after_help = FORWARD_EXAMPLES, after_long_help = format!("{FORWARD_EXAMPLES}\n\n{}", codes(Ends::Service, "it cannot begin: the message says why")))]
pub(crate) struct ForwardArgs {
    /// Where connections come in
    #[arg(long, value_name = "PROTO:HOST:PORT", value_hint = ValueHint::Other)]
    pub(crate) listen: Endpoint,

    /// Where they go
    #[arg(long, value_name = "PROTO:HOST:PORT", value_hint = ValueHint::Other)]
    pub(crate) to: Endpoint,

    /// Connections carried at one time; further ones wait
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,

    /// Of these for one client, an IPv4 address or a /64 of IPv6; further ones are reset. Clients on this host itself have no
    /// such limit [default: a quarter of --max-connections]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_per_client: Option<u32>,

    /// Reset a connection when no byte has moved either way for so long, or `off`. Below 2h4m it may end what a NAT
    /// keeps (RFC 5382)
    #[arg(long, value_name = "TIME|off", value_hint = ValueHint::Other, value_parser = parse_period_or_off, default_value = "off")]
    pub(crate) idle_timeout: Patience,

    /// The same once one side has ended its stream, or `off`: a peer that has gone without a word is not waited for as long
    #[arg(long, value_name = "TIME|off", value_hint = ValueHint::Other, value_parser = parse_period_or_off, default_value = "4m")]
    pub(crate) half_closed_timeout: Patience,

    /// Ask a peer that has been silent for so long whether it is there, and reset the connection when it does not answer,
    /// or `off`: nine times, an eighth of that time apart (1 s at least, 75 s at most)
    #[arg(long, value_name = "TIME|off", value_hint = ValueHint::Other, value_parser = parse_period_or_off, default_value = "2h")]
    pub(crate) keepalive: Patience,

    /// Who to be after the set-up when started by root: by name or number, `root` to stay root [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) stack: StackArgs,
}

impl ForwardArgs {
    /// Connections that one client may have: a quarter of all, so that three others find places beside it.
    pub(crate) fn per_client(&self) -> u32 {
        self.max_per_client
            .unwrap_or(self.max_connections.div_ceil(4))
    }
}

#[derive(Debug, Args)]
#[command(after_long_help = codes(Ends::Network, "the data differed, or a connection failed"))]
pub(crate) struct PerfArgs {
    #[command(subcommand)]
    pub(crate) command: PerfCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PerfCommand {
    /// Wait for `perf send` and `perf receive`, or for any TCP client
    Serve(ServeArgs),
    /// Send data to a server, or make requests
    Send(SendArgs),
    /// Receive data from a server
    Receive(ReceiveArgs),
}

const SERVE_EXAMPLES: &str = "\
Examples:
  manypath perf serve --proto mptcp --listen 0.0.0.0:5201 --path eth0
  manypath perf serve --proto tcp
      Whatever is no measuring client is taken for plain data, counted and discarded.
  manypath perf serve --proto kernel-mptcp --source 1G
      Sends 1 GB to everybody who connects: for plain clients.";

#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES, after_long_help = format!("{SERVE_EXAMPLES}\n\n{}", codes(Ends::Network, "it cannot begin: the message says why")))]
pub(crate) struct ServeArgs {
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:5201")]
    pub(crate) listen: HostPort,

    /// Whose sockets: tcp, mptcp or kernel-mptcp
    #[arg(long, default_value = "mptcp", value_parser = words::<Proto>(words::PROTOS), hide_possible_values = true)]
    pub(crate) proto: Proto,

    /// Send so many bytes to every client at once (0: without end), without waiting for what it wants
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) source: Option<u64>,

    /// Stop after so many connections
    #[arg(long, value_name = "N")]
    pub(crate) connections: Option<u64>,

    /// Who to be after the set-up when started by root: by name or number, `root` to stay root [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// One line of JSON for every connection
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) stack: StackArgs,
}

const RECEIVE_EXAMPLES: &str = "\
Examples:
  manypath perf receive 192.0.2.1:5201 --path eth0 --path eth1
      For ten seconds, with the rate of every subflow while it runs.
  manypath perf receive 192.0.2.1:5201 --bytes 500M --sha256 --json
      Both ends hash the data; exit code 1 if the hashes differ.
  manypath perf receive 192.0.2.1:19 --plain
      From a peer that sends until it is done.";

#[derive(Debug, Args)]
#[command(after_help = RECEIVE_EXAMPLES, after_long_help = format!("{RECEIVE_EXAMPLES}\n\n{}", codes(Ends::Network, "the data differed, or a connection failed")))]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

const SEND_EXAMPLES: &str = "\
Examples:
  manypath perf send 192.0.2.1:5201 --path eth0 --path eth1
      For ten seconds, with the rate of every subflow while it runs.
  manypath perf send 192.0.2.1:5201 --bytes 500M --sha256 --json
      Both ends hash the data; exit code 1 if the hashes differ.
  manypath perf send 192.0.2.1:5201 --requests 1000 --request-size 64 --response-size 4Ki
      Times from a request to its response.
  manypath perf send 192.0.2.1:5201 --connections 10000 --parallel 100 --bytes 1K
      Short connections, a hundred at one time.
  manypath perf send 192.0.2.1:9 --plain --bytes 100M
      To a peer that discards whatever it gets.";

#[derive(Debug, Args)]
#[command(after_help = SEND_EXAMPLES, after_long_help = format!("{SEND_EXAMPLES}\n\n{}", codes(Ends::Network, "the data differed, or a connection failed")))]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    #[command(flatten)]
    pub(crate) requests: RequestArgs,
}

/// Requests in place of bulk data.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Make so many requests on each connection instead of sending bulk data
    #[arg(long, value_name = "N", conflicts_with_all = ["bytes", "time", "sha256", "plain"])]
    pub(crate) requests: Option<u64>,

    /// Bytes of a request
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64", requires = "requests")]
    pub(crate) request_size: u64,

    /// Bytes of a response
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "64", requires = "requests")]
    pub(crate) response_size: u64,
}

/// What both directions of a measurement have.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The server
    #[arg(value_name = "HOST:PORT", value_hint = ValueHint::Hostname)]
    pub(crate) peer: HostPort,

    /// Whose sockets: tcp, mptcp or kernel-mptcp
    #[arg(long, default_value = "mptcp", value_parser = words::<Proto>(words::PROTOS), hide_possible_values = true)]
    pub(crate) proto: Proto,

    /// Amount of data [default: as much as --time allows]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) bytes: Option<u64>,

    /// How long data flows [default: 10s, without a limit where --bytes is given]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) time: Option<Duration>,

    /// Compare SHA-256 hashes of the data at both ends
    #[arg(long)]
    pub(crate) sha256: bool,

    /// The peer is no `perf serve`: it discards what it gets, or sends until it is done
    #[arg(long)]
    pub(crate) plain: bool,

    /// Connections altogether
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) connections: u64,

    /// Connections at one time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) parallel: u16,

    /// Seed of the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Time between two measurements of the rates
    #[arg(long, value_name = "TIME", value_parser = parse_period, default_value = "500ms")]
    pub(crate) interval: Duration,

    /// The result as JSON on standard output, no progress
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) stack: StackArgs,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  manypath status
  manypath status --watch
  manypath status --counters
  manypath status --json | jq '.processes[] | {pid, paths, memory, counters}'
  manypath status --json | jq '.processes[].connections[].subflows[] | {iface, srtt_us, cwnd}'
  sudo manypath status
      Also of processes of other users.";

#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES, after_long_help = format!("{STATUS_EXAMPLES}\n\n{}", codes(Ends::Control, "no such process, or it does not answer")))]
pub(crate) struct StatusArgs {
    /// As JSON; with --watch one object a line
    #[arg(long)]
    pub(crate) json: bool,

    /// Go on until Ctrl-C, with rates
    #[arg(long)]
    pub(crate) watch: bool,

    /// Time between two looks
    #[arg(long, value_name = "TIME", value_parser = parse_period, default_value = "1s")]
    pub(crate) interval: Duration,

    /// Only this process
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Also every decision of the path managers, with its reason
    #[arg(long)]
    pub(crate) why: bool,

    /// Also what was counted: each limit that was reached, each packet that was dropped (docs/limits.md); --json has them always
    #[arg(long)]
    pub(crate) counters: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Run a scenario in the simulator: virtual time, the same stack, every packet held against oracles
    Sim(SimArgs),
    /// Goodput and processor time beside the kernel's TCP and Multipath TCP
    Bench(BenchArgs),
    /// What survives middleboxes on real packets, ours and the kernel's
    Boxes(BoxesArgs),
    /// What attackers can do to the stack: memory, work, and what honest clients beside them keep of their goodput
    Attack(AttackArgs),
    /// A path dies silently and returns: how long the reader waits, how soon the path is used again, beside the kernel
    Handover(HandoverArgs),
    /// Random networks, middleboxes, failures and applications: where TCP gets through, this must get through
    Gauntlet(GauntletArgs),
    /// Hundreds of networks in the simulator, and on each Multipath TCP beside TCP on the best path
    Grid(GridArgs),
    /// The figures of the papers that can be made
    List(ListArgs),
    /// Make figures of the papers anew: simulated, on real packets, and with the kernel's stack
    Figure(FigureArgs),
    /// What figure smapp-3 measures, as a process of its own
    #[command(hide = true)]
    Delay(DelayArgs),
}

const HANDOVER_EXAMPLES: &str = "\
Examples:
  manypath lab handover
  manypath lab handover --quick
  manypath lab handover --json > handover.json

It takes about three minutes. Where namespaces are forbidden, only the simulator shows it.";

#[derive(Debug, Args)]
#[command(after_help = HANDOVER_EXAMPLES, after_long_help = format!("{HANDOVER_EXAMPLES}\n\n{}", codes(Ends::Lab, "it was not as it should be, or a file could not be written")))]
pub(crate) struct HandoverArgs {
    /// Only our client and the kernel's server, both ways: half a minute
    #[arg(long)]
    pub(crate) quick: bool,

    /// The result as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

const ATTACK_EXAMPLES: &str = "\
Examples:
  manypath lab attack
      Every attack in simulated time; ends with 1 if an honest client kept less than 90 % of its goodput or a bound
      was passed.
  manypath lab attack --only syn-flood --only holes --json";

#[derive(Debug, Args)]
#[command(after_help = ATTACK_EXAMPLES, after_long_help = format!("{ATTACK_EXAMPLES}\n\n{}", codes(Ends::Lab, "a bound was passed, or an honest client kept too little")))]
pub(crate) struct AttackArgs {
    /// Only this one; may be given several times
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(manypath_lab::attack::names()))]
    pub(crate) only: Vec<String>,

    /// On real packets instead: `manypath forward` in a namespace, attackers beside clients of this host's kernel
    #[arg(long)]
    pub(crate) real: bool,

    /// The report as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

const SIM_EXAMPLES: &str = "\
Examples:
  manypath lab sim scenarios/wifi-cut.toml
  manypath lab sim scenarios/lossy.toml --seed 7 --pcap lossy.pcapng
  manypath lab sim scenarios/lossy.toml --runs 1000
      A thousand seeds, each run twice: the two records must be equal.";

#[derive(Debug, Args)]
#[command(after_help = SIM_EXAMPLES, after_long_help = format!("{SIM_EXAMPLES}\n\n{}", codes(Ends::Compute, "an oracle was violated, or two runs differed")))]
pub(crate) struct SimArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,

    /// Seed of everything random [default: the scenario's]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Write all packets to a capture file (pcapng)
    #[arg(long, value_name = "FILE", conflicts_with = "runs")]
    pub(crate) pcap: Option<PathBuf>,

    /// Run so many seeds, counting up, each of them twice, and tell only of those that fail
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) runs: Option<u64>,

    /// The report as JSON on standard output; with --runs one line for each that fails
    #[arg(long)]
    pub(crate) json: bool,
}

const BENCH_EXAMPLES: &str = "\
Examples:
  manypath lab bench
  manypath lab bench --rounds 5 --time 5s --json > bench.json";

#[derive(Debug, Args)]
#[command(after_help = BENCH_EXAMPLES, after_long_help = format!("{BENCH_EXAMPLES}\n\n{}", codes(Ends::Lab, "a measurement failed")))]
pub(crate) struct BenchArgs {
    /// How often every cell is measured; the medians are compared
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// How long a sender sends in one measurement
    #[arg(long, value_name = "TIME", value_parser = parse_period, default_value = "2s")]
    pub(crate) time: Duration,

    /// Compares relays instead: `forward` and `proxy` beside HAProxy and squid
    #[arg(long)]
    pub(crate) relays: bool,

    /// The result as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

const BOXES_EXAMPLES: &str = "\
Each middlebox alone on one of two paths, and on the only path, with real packets between network namespaces; the
kernel and ours at either end. \"one lost\" is a connection that went on over the other subflow, \"fell back\" one that
went on as TCP; the number is the longest time in seconds that an application waited for a byte. No root needed.

Examples:
  manypath lab boxes --quick
  manypath lab boxes --box strip --box reset
  manypath lab boxes --list
  manypath lab boxes --scenario scenarios/strip-joins.toml
      The boxes of each link of a scenario, as one row each.";

#[derive(Debug, Args)]
#[command(after_help = BOXES_EXAMPLES, after_long_help = format!("{BOXES_EXAMPLES}\n\n{}", codes(Ends::Lab, "ours did worse than the kernel somewhere")))]
pub(crate) struct BoxesArgs {
    /// Only these rows, by their names or by the kind of box
    #[arg(long = "box", value_name = "NAME", value_parser = words::<String>(words::boxes()), hide_possible_values = true)]
    pub(crate) boxes: Vec<String>,

    /// The boxes of a scenario file instead of the usual ones
    #[arg(long, value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: Option<PathBuf>,

    /// A few boxes and less data
    #[arg(long)]
    pub(crate) quick: bool,

    /// Only tell which boxes there are
    #[arg(long)]
    pub(crate) list: bool,

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Connections at one time [default: four for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,

    /// The result as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

const GAUNTLET_EXAMPLES: &str = "\
Every seed is a network of one to four paths, a chain of middleboxes on each, things that happen to them and an
application, run in the simulator with plain TCP over the first path and with Multipath TCP. What TCP delivers,
Multipath TCP must deliver: the same bytes, in no more than twice the time and two seconds. A seed that fails is
cut down to a scenario that fails in the same way, and written to a file.

Examples:
  manypath lab gauntlet --seeds 0..10000
  manypath lab gauntlet --seeds 1000000.. --minutes 30
  manypath lab gauntlet --seeds 7..8 --json
  manypath lab sim gauntlet-failures/gauntlet-7.toml --pcap 7.pcapng
      Replay a seed that failed.";

#[derive(Debug, Args)]
#[command(after_help = GAUNTLET_EXAMPLES, after_long_help = format!("{GAUNTLET_EXAMPLES}\n\n{}", codes(Ends::Gauntlet, "a file could not be written")))]
pub(crate) struct GauntletArgs {
    /// Which seeds: from the first to before the last
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, default_value = "0..1000")]
    pub(crate) seeds: Range<u64>,

    /// Stop after so many minutes
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) minutes: Option<u32>,

    /// Threads [default: one for each processor]
    #[arg(long, value_name = "J")]
    pub(crate) jobs: Option<NonZero<usize>>,

    /// Where scenarios and captures of failing seeds go
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, default_value = "gauntlet-failures")]
    pub(crate) out: PathBuf,

    /// The result as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

const GRID_EXAMPLES: &str = "\
Every number is a network of two to four paths: rates up to a hundred times apart, round trips up to fifty times, network
buffers from half to twenty bandwidth-delay products but 15 kB at least, losses of up to 5 %, socket buffers from 32 kB to
4 MB or the stack's own 8. TCP on each path alone delivers what it can in twenty to sixty seconds; Multipath TCP delivers as
much as the best of them. With --requests the client asks and the server answers, one after the other, as many times as in
the best of them. That TCP has its default settings (CUBIC) and the network's socket buffers, whatever --all and --with give
Multipath TCP.

Examples:
  manypath lab grid
  manypath lab grid --seeds 500..1000 --out grid
  manypath lab grid --seeds 0..100 --all
  manypath lab grid --requests --seeds 0..40
  manypath lab grid --seeds 0..100 --with 'scheduler=blest mechanisms=none'";

#[derive(Debug, Args)]
#[command(after_help = GRID_EXAMPLES, after_long_help = format!("{GRID_EXAMPLES}\n\n{}", codes(Ends::Compute, "a network was slower than TCP on its best path")))]
pub(crate) struct GridArgs {
    /// Which networks: from the first to before the last
    #[arg(long, value_name = "A..B", value_parser = parse_networks, default_value = "0..500")]
    pub(crate) seeds: Range<u64>,

    /// Requests one after the other, with answers of 1 kB to 1 MB, instead of bulk transfers
    #[arg(long)]
    pub(crate) requests: bool,

    /// Besides the default settings every scheduler, every congestion control, no mechanisms and other sets of them
    #[arg(long)]
    pub(crate) all: bool,

    /// Besides the default settings these, in the words of a scenario's options; may be repeated
    #[arg(long, value_name = "KEY=VALUE ...")]
    pub(crate) with: Vec<String>,

    /// Threads [default: one for each processor]
    #[arg(long, value_name = "J")]
    pub(crate) jobs: Option<NonZero<usize>>,

    /// Where the table goes as comma-separated values (grid.csv, requests.csv)
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// The result as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads `A..B`.
fn parse_networks(text: &str) -> Result<Range<u64>, String> {
    match parse_seeds(text) {
        Ok(seeds) if seeds.end < u64::MAX => Ok(seeds),
        Ok(seeds) => Err(format!(
            "'{text}' has no end; write for example {}..{}",
            seeds.start,
            seeds.start.saturating_add(100)
        )),
        Err(_) => Err(format!(
            "'{text}' is no range of networks; write for example 0..100"
        )),
    }
}

/// Reads `A..B`, or `A..` for all seeds from there on.
fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || {
        format!("'{text}' is no range of seeds; write for example 0..1000, or 5.. with --minutes")
    };
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let first: u64 = first.parse().map_err(|_| wrong())?;
    let end = match end {
        "" => u64::MAX,
        end => end.parse().map_err(|_| wrong())?,
    };
    if first < end {
        Ok(first..end)
    } else {
        Err(format!("'{text}' has no seed in it"))
    }
}

/// How our stack is set up. Without any `mptcp` endpoint none of it matters.
#[derive(Debug, Args)]
#[command(next_help_heading = "Our stack")]
pub(crate) struct StackArgs {
    /// A path to use, repeated for each; by default every interface with a default route. One must be there at the start; others
    /// may come later, or go and come back. A backup rests in both directions while anything better is left. With a rate (5mbit) no more leaves by the
    /// interface, in IP bytes and bursts of 20 ms; what has to wait goes by other paths at once
    #[arg(long = "path", value_hint = ValueHint::Other, value_name = "IFACE[=ADDR][,backup][,gateway=ADDR][,rate=RATE]")]
    pub(crate) paths: Vec<PathSpec>,

    /// How packets get to the interfaces: packet sockets, a TUN device, or whichever fits
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) attach: AttachKind,

    /// The most local ports to use on addresses that are shared with the host; 256 at first, more when they are needed. One
    /// stays with each connection that we opened for a minute after its end
    #[arg(long, value_name = "N", default_value_t = 12_288, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) local_ports: u16,

    /// Which subflows exist: fullmesh, ndiffports=N, passive (those that the peer makes), userspace (those that a controller
    /// makes), or by judging how they do: smart-backup, streaming, refresh, pathfinder, with parameters as in
    /// smart-backup:threshold=1s,retry=10s or pathfinder:beta=20,gamma=4; the first three by the paper's own rule with rule=paper
    /// [default: fullmesh for connections made here, passive for those accepted]
    #[arg(long, value_name = "POLICY", value_parser = words::<PathManager>(words::policies()), hide_possible_values = true)]
    pub(crate) path_manager: Option<PathManager>,

    /// Which subflow carries the next data: guarded (lowest round trip, but nothing for a path on which it would arrive so late
    /// that the others stand still), or what decides by itself: lowest-rtt, round-robin, redundant, blest, ecf, backup
    #[arg(long, value_name = "NAME", default_value_t, value_parser = words::<Scheduler>(words::schedulers()), hide_possible_values = true)]
    pub(crate) scheduler: Scheduler,

    /// What keeps a connection from being slower than its best path: default, none, or some of opportunistic, penalise,
    /// autotune, cap and guard with commas between them
    #[arg(long, value_name = "NAMES", default_value_t, value_parser = words::<Mechanisms>(words::MECHANISMS), hide_possible_values = true)]
    pub(crate) mechanisms: Mechanisms,

    /// Congestion control of every subflow: cubic, reno, bbr; or coupled over the subflows, so that together they take
    /// what one TCP would: lia, olia, balia; or wvegas, which is coupled and takes less beside TCP, since it obeys delay
    #[arg(long, value_name = "NAME", default_value_t, value_parser = words::<Algorithm>(words::algorithms()), hide_possible_values = true)]
    pub(crate) congestion: Algorithm,

    /// How the place of data that arrives out of order is found: all-shortcuts, shortcuts, tree, or list
    #[arg(long, value_name = "NAME", default_value_t, value_parser = words::<ReceiveAlgorithm>(words::receive_algorithms()), hide_possible_values = true)]
    pub(crate) receive: ReceiveAlgorithm,

    /// Congestion control of the host's own sockets, by the kernel's names [default: the kernel's]
    #[arg(long, value_name = "NAME")]
    pub(crate) host_congestion: Option<String>,

    /// Room for data that is sent and not acknowledged, and for data that is not read yet
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "8Mi")]
    pub(crate) buffer: u64,

    /// Checksums over the data (RFC 8684 section 3.3.1); also used when the peer requires them
    #[arg(
        long,
        value_name = "on|off",
        default_value = "on",
        hide_possible_values = true
    )]
    pub(crate) checksum: Switch,

    /// TCP Fast Open (RFC 7413): first bytes go along with the SYN to peers that gave a cookie, and are taken from
    /// peers that show one. A SYN that the network duplicates can deliver them twice: only for data that bears it
    #[arg(long)]
    pub(crate) fast_open: bool,

    /// Let devices split large packets and compute checksums
    #[arg(
        long,
        value_name = "on|off",
        default_value = "on",
        hide_possible_values = true
    )]
    pub(crate) offload: Switch,

    /// How long to wait for a peer to answer
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    pub(crate) connect_timeout: Duration,

    /// Connections of our stack go through this converter (RFC 8803), as `manypath proxy` with `opening = "convert"` is one: servers with
    /// TCP alone are then reached over all paths
    #[arg(long, value_name = "HOST:PORT", value_hint = ValueHint::Other)]
    pub(crate) via: Option<HostPort>,

    /// A file with the key that the converter wants to be shown
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "via")]
    pub(crate) via_key: Option<std::path::PathBuf>,

    /// Goes past the converter to servers that have answered it with Multipath TCP in the last ten minutes, and past its limits
    #[arg(long, requires = "via")]
    pub(crate) direct: bool,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

/// A switch that can be said either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

impl Switch {
    /// Whether it is on.
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}

/// How our stack gets at the interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachKind {
    /// Packet sockets where every path is an Ethernet at the start, otherwise a TUN device
    Auto,
    /// Packet sockets straight on the interfaces
    Packet,
    /// A TUN device behind the kernel's address translation
    Tun,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_examples_are_command_lines() {
        for text in [
            EXAMPLES,
            FORWARD_EXAMPLES,
            SERVE_EXAMPLES,
            SEND_EXAMPLES,
            RECEIVE_EXAMPLES,
            STATUS_EXAMPLES,
            crate::ctl_args::CTL_EXAMPLES,
            crate::figure_args::FIGURE_EXAMPLES,
            crate::demo_args::DEMO_EXAMPLES,
            crate::proxy_args::PROXY_EXAMPLES,
            crate::proxy_args::CHECK_EXAMPLES,
            crate::proxy_args::RELOAD_EXAMPLES,
            crate::proxy_args::PASSWORD_EXAMPLES,
            SIM_EXAMPLES,
            BENCH_EXAMPLES,
            BOXES_EXAMPLES,
            include_str!("../../../README.md"),
            include_str!("../../../docs/proxy.md"),
        ] {
            for line in text.lines().map(str::trim) {
                let line = line.strip_prefix("sudo ").unwrap_or(line);
                if !line.starts_with("manypath ") {
                    continue;
                }
                let line = line.split(['|', '>', '#']).next().unwrap_or(line);
                let parsed = Cli::try_parse_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{line}: {}", parsed.expect_err("checked"));
                let scenario = line.split(' ').find(|word| word.starts_with("scenarios/"));
                let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
                assert!(
                    scenario.is_none_or(|file| root.join(file).is_file()),
                    "{line}"
                );
            }
        }
    }
}
