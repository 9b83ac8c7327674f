//! The command lines of `proxy`, `check`, `reload` and `password`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use manypath_proxy::config::{LogTo, MetricsAt};
use manypath_proxy::endpoint::{Endpoint, Proto};

use crate::args::StackArgs;
use crate::exit::{Ends, codes};
use crate::words::{self, words};

pub(crate) const PROXY_EXAMPLES: &str = "\
Examples:
  manypath proxy --http 127.0.0.1:3128 --socks5 127.0.0.1:1080
      Programs of this host that know a proxy use all of its uplinks: curl -x http://127.0.0.1:3128, a browser's setting.
  manypath proxy --http 127.0.0.1:3128 --path wlan0 --path wwan0,backup
      The same over two interfaces, the second only when the first is of no use.
  manypath proxy --http 192.168.1.1:3128 --users /etc/manypath/users --outside tcp
      For a whole network, with passwords, over the host's TCP.
  manypath proxy --config /etc/manypath/proxy.toml
      Many listeners, rules, limits, TLS, metrics and an access log (docs/proxy.md).";

#[derive(Debug, Args)]
#[command(after_help = PROXY_EXAMPLES, after_long_help = format!("{PROXY_EXAMPLES}\n\nSIGHUP and `manypath reload` put a changed file in force and open the access log anew; no connection is dropped.\nIt runs until Ctrl-C; connections that are open then are reset.\n\n{}", codes(Ends::Reloaded, "it cannot begin: the message says why")))]
pub(crate) struct ProxyArgs {
    /// Everything from a file; `manypath check FILE` says what is in force, or what is wrong
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present_any = ["http", "socks5"])]
    pub(crate) config: Option<PathBuf>,

    /// Listen for HTTP clients: requests in absolute form, and CONNECT
    #[arg(long, value_name = "[PROTO:]HOST:PORT", value_hint = ValueHint::Other, value_parser = read_on, conflicts_with = "config")]
    pub(crate) http: Vec<Endpoint>,

    /// Listen for SOCKS5 clients
    #[arg(long, value_name = "[PROTO:]HOST:PORT", value_hint = ValueHint::Other, value_parser = read_on, conflicts_with = "config")]
    pub(crate) socks5: Vec<Endpoint>,

    /// Whose TCP carries connections to targets: tcp, mptcp or kernel-mptcp
    #[arg(long, default_value = "mptcp", value_parser = words::<Proto>(words::PROTOS), hide_possible_values = true, conflicts_with = "config")]
    pub(crate) outside: Proto,

    /// Ask clients for a user and a password of this file (`manypath password` makes its lines)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "config")]
    pub(crate) users: Option<PathBuf>,

    /// Where the access log goes: stdout, the path of a file, or off
    #[arg(long, value_name = "FILE|stdout|off", value_hint = ValueHint::FilePath, default_value = "off", conflicts_with = "config")]
    pub(crate) access_log: LogTo,

    /// Serve metrics and health there: a loopback address, or unix:/PATH
    #[arg(long, value_name = "HOST:PORT|unix:PATH", value_hint = ValueHint::Other, conflicts_with = "config")]
    pub(crate) metrics: Option<MetricsAt>,

    /// Who to be after the set-up when started by root: by name or number, `root` to stay root [default: nobody]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[command(flatten)]
    pub(crate) stack: StackArgs,
}

fn read_on(text: &str) -> Result<Endpoint, String> {
    manypath_proxy::config::read_on(text)
}

pub(crate) const CHECK_EXAMPLES: &str = "\
Examples:
  manypath check /etc/manypath/proxy.toml
  manypath check /etc/manypath/proxy.toml --json";

#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES, after_long_help = format!("{CHECK_EXAMPLES}\n\n{}", codes(Ends::Compute, "the file cannot be used: each mistake is told with its line and column")))]
pub(crate) struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// What is in force as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) const RELOAD_EXAMPLES: &str = "\
Examples:
  manypath reload
  manypath reload --pid 4711";

#[derive(Debug, Args)]
#[command(after_help = RELOAD_EXAMPLES, after_long_help = format!("{RELOAD_EXAMPLES}\n\n{}", codes(Ends::Control, "the file cannot be used, and the configuration before it stays in force; or there is no such process")))]
pub(crate) struct ReloadArgs {
    /// The process, where several are running
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

pub(crate) const PASSWORD_EXAMPLES: &str = "\
Examples:
  manypath password alice >>/etc/manypath/users
      Asks for the password twice, and shows it to nobody.
  pass show proxy/alice | manypath password alice >>/etc/manypath/users
      Takes the first line of what it reads.";

#[derive(Debug, Args)]
#[command(after_help = PASSWORD_EXAMPLES, after_long_help = format!("{PASSWORD_EXAMPLES}\n\n{}", codes(Ends::Compute, "the name or the password cannot be")))]
pub(crate) struct PasswordArgs {
    /// The user's name
    #[arg(value_name = "USER")]
    pub(crate) name: String,
}

pub(crate) const UNDO_EXAMPLES: &str = "\
Firewall rules, policy rules, routes, kernel settings and ports of processes that are gone are put back; what a running process has changed
stays. Every start of a process that changes the host does the same first.

Examples:
  manypath undo
      Shows what it put back, a line each; nothing where nothing was left.";

#[derive(Debug, Args)]
#[command(after_help = UNDO_EXAMPLES, after_long_help = format!("{UNDO_EXAMPLES}\n\n{}", codes(Ends::Control, "no note of what was changed can be read or kept")))]
pub(crate) struct UndoArgs {}
