//! The command line of `manypath ctl`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Args, Subcommand};
use manypath_control::remote::parse_end;
use manypath_control::wire::EVENTS;
use manypath_io::path::rate;
use manypath_stack::PathManager;

use crate::units::{parse_bytes, parse_period};

pub(crate) const CTL_EXAMPLES: &str = "\
Examples:
  manypath ctl list
  manypath ctl events --event timeout --event sub_closed
  manypath ctl add 3.1 --from 10.1.0.2 --backup
  manypath ctl remove 3.1 2 --reset
  manypath ctl policy 3.1 ndiffports=4
  manypath ctl limit path wwan0 5mbit
  manypath ctl reset-quota path wwan0
  manypath ctl run smart-backup:threshold=500ms
      Decides for all connections of the process until Ctrl-C; then their own policies decide again.
  manypath ctl run refresh:subflows=5 --engine kernel
      The same for connections of the Linux kernel; a connection's name is its token there.
  manypath ctl serve --engine kernel
      Puts those on a control socket of their own, for programs in C or any other language.
  manypath ctl events --json --sample 1s | jq 'select(.event == \"sample\") | .sample.bytes_acked'

The socket of a process speaks one JSON object a line, so `nc -U` will do as well (see docs/control.md).";

/// Options of all `ctl` commands.
#[derive(Debug, Args)]
#[command(after_help = CTL_EXAMPLES)]
pub(crate) struct CtlArgs {
    /// Of this process; needed where several are running
    #[arg(long, value_name = "PID", global = true)]
    pub(crate) pid: Option<u32>,

    /// Whose connections
    #[arg(long, value_enum, global = true, default_value_t = EngineKind::Manypath, conflicts_with = "pid")]
    pub(crate) engine: EngineKind,

    /// As JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Take the connection from the controller that owns it: orders act once, `run` keeps it
    #[arg(long, global = true)]
    pub(crate) force: bool,

    #[command(subcommand)]
    pub(crate) what: CtlCommand,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// All connections
    List,
    /// One connection, with the decisions of its path manager
    Show {
        /// The connection, as a list names it
        connection: String,
    },
    /// Events as they happen, until Ctrl-C
    Events {
        /// Only events of this name; may be given several times
        #[arg(long = "event", value_name = "NAME", value_parser = EVENTS)]
        events: Vec<String>,
        /// Only of this connection
        #[arg(long, value_name = "CONNECTION")]
        connection: Option<String>,
        /// And the state of the connections this often
        #[arg(long, value_name = "TIME", value_parser = parse_period)]
        sample: Option<Duration>,
    },
    /// Open a subflow; what is not given is chosen
    Add {
        /// The connection
        connection: String,
        /// Our address, perhaps with a port
        #[arg(long, value_name = "ADDRESS", value_parser = parse_end)]
        from: Option<(IpAddr, Option<u16>)>,
        /// The peer's address, perhaps with a port
        #[arg(long, value_name = "ADDRESS", value_parser = parse_end)]
        to: Option<(IpAddr, Option<u16>)>,
        /// Both ends are to use it only when nothing better is left
        #[arg(long)]
        backup: bool,
    },
    /// End a subflow
    Remove {
        /// The connection
        connection: String,
        /// The subflow: its number, or the address and port of one of its ends
        #[arg(value_parser = parse_subflow)]
        subflow: Named,
        /// At once by a reset, and not in order by a FIN
        #[arg(long)]
        reset: bool,
    },
    /// Make a subflow a backup, or regular again
    Priority {
        /// The connection
        connection: String,
        /// The subflow: its number, or the address and port of one of its ends
        #[arg(value_parser = parse_subflow)]
        subflow: Named,
        /// What it is to be
        #[arg(value_enum)]
        priority: Priority,
    },
    /// Tell the peer one of our addresses (ADD_ADDR)
    Announce {
        /// The connection
        connection: String,
        /// The address
        address: IpAddr,
        /// A port other than the connection's
        #[arg(long, value_name = "PORT")]
        port: Option<u16>,
    },
    /// Withdraw one of our addresses (REMOVE_ADDR)
    Withdraw {
        /// The connection
        connection: String,
        /// Our identifier of the address
        id: u8,
    },
    /// Change the limits of a connection
    Limits {
        /// The connection
        connection: String,
        /// Subflows at one time
        #[arg(long, value_name = "N")]
        subflows: Option<u16>,
        /// Addresses of the peer that are remembered
        #[arg(long, value_name = "N")]
        add_addr_accepted: Option<u8>,
    },
    /// Limit what is sent by a path, a class of connections or a connection, from the next packet on
    Limit {
        /// What is limited
        #[arg(value_enum)]
        of: LimitOf,
        /// The interface (wwan0/down: what peers are asked to send by it), the class by its name in the configuration (guests/down: one way of it), or the
        /// connection
        name: String,
        /// As 5mbit, in IP packets a second; or off
        #[arg(value_parser = parse_rate_or_off)]
        rate: Ceiling,
        /// What may leave at once after a pause [default: what 20 ms bring, 4500 bytes at least]
        #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
        burst: Option<u64>,
        /// Also write it into the configuration file of the process, so that it holds after a reload and a restart
        #[arg(long)]
        save: bool,
    },
    /// Count the quotas of a path or a class anew, as if their period began now
    ResetQuota {
        /// Whose they are
        #[arg(value_enum)]
        of: QuotaOf,
        /// The path by its name in the configuration or its interface, or the class
        name: String,
    },
    /// Let another policy of the process decide
    Policy {
        /// The connection
        connection: String,
        /// The policy, as for --path-manager
        policy: PathManager,
    },
    /// Decide from here: run a policy as a controller beside the process, until Ctrl-C
    Run {
        /// The policy, as for --path-manager
        controller: PathManager,
        /// Only for this connection
        #[arg(long, value_name = "CONNECTION")]
        connection: Option<String>,
        /// What spreads the pauses of the controllers
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
    },
    /// Put the kernel's connections on a control socket, until Ctrl-C (a manypath process has its own)
    Serve,
}

/// Whose connections are seen and steered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EngineKind {
    /// Those of a manypath process.
    Manypath,
    /// The Linux kernel's own, in this network namespace; needs CAP_NET_ADMIN and net.mptcp.path_manager=userspace.
    Kernel,
}

/// A subflow as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Its number.
    Number(u32),
    /// An address and a port at which it ends and no other one of the connection.
    End(SocketAddr),
}

fn parse_subflow(text: &str) -> Result<Named, String> {
    let number = text.parse().map(Named::Number);
    number
        .or_else(|_| text.parse().map(Named::End))
        .map_err(|_: std::net::AddrParseError| {
            "neither a number nor an address with a port".to_owned()
        })
}

impl CtlCommand {
    /// The connection that it orders something of; `None` when it only looks, or decides from then on.
    pub(crate) fn commanded(&self) -> Option<&str> {
        match self {
            Self::Add { connection, .. }
            | Self::Remove { connection, .. }
            | Self::Priority { connection, .. }
            | Self::Announce { connection, .. }
            | Self::Withdraw { connection, .. }
            | Self::Limits { connection, .. }
            | Self::Policy { connection, .. } => Some(connection),
            Self::Limit { of, name, .. } => (*of == LimitOf::Connection).then_some(name),
            Self::List
            | Self::ResetQuota { .. }
            | Self::Show { .. }
            | Self::Events { .. }
            | Self::Run { .. }
            | Self::Serve => None,
        }
    }

    /// The subflow that it is about.
    pub(crate) fn subflow(&self) -> Option<Named> {
        match self {
            Self::Remove { subflow, .. } | Self::Priority { subflow, .. } => Some(*subflow),
            _ => None,
        }
    }
}

/// Whose quotas are counted anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum QuotaOf {
    /// Those of a path.
    Path,
    /// Those of a class of connections.
    Class,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LimitOf {
    /// All that leaves by an interface.
    Path,
    /// All connections of a class together.
    Class,
    /// One connection, over all of its paths.
    Connection,
}

/// Bits a second, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ceiling(pub(crate) Option<u64>);

fn parse_rate_or_off(text: &str) -> Result<Ceiling, String> {
    match text {
        "off" => Ok(Ceiling(None)),
        text => match rate::parse(text) {
            Some(bits) => Ok(Ceiling(Some(bits))),
            None => Err("neither a rate as 5mbit or 800kbit, 1bit at least, nor off".to_owned()),
        },
    }
}

/// Priority of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Priority {
    /// Only when nothing better is left.
    Backup,
    /// Like any other.
    Regular,
}
