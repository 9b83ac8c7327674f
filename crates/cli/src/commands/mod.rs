//! One file a command, and what several of them share.

pub(crate) mod attack;
pub(crate) mod completions;
pub(crate) mod ctl;
pub(crate) mod delay;
pub(crate) mod demo;
pub(crate) mod figure;
pub(crate) mod forward;
pub(crate) mod grid;
pub(crate) mod handover;
pub(crate) mod lab;
pub(crate) mod password;
pub(crate) mod perf;
pub(crate) mod proxy;
pub(crate) mod status;
pub(crate) mod undo;

use std::time::Duration;

use manypath_control::report::ConnReport;
use manypath_control::server::{Backend, Server};
use manypath_io::Host;
use manypath_io::path::Wanted;
use manypath_proxy::congestion_controls_without;
use manypath_proxy::converter::{Converter, ConverterSpec};
use manypath_proxy::endpoint::Proto;
use manypath_proxy::live::Live;
use manypath_proxy::sockets::Sockets;

use crate::args::StackArgs;
use crate::exit::{Code, Failure};
use crate::lines::Outlet;
use crate::setup;
use crate::signals::{self, Signal};

/// How long closing connections may take at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long data that has still to be delivered may stand still.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Sockets of the wanted kinds, and what has to live as long as they do.
pub(crate) struct Opened {
    /// Opens streams and listeners.
    pub(crate) sockets: Sockets,
    control: Option<Server>,
}

impl Opened {
    /// Sockets, and the control socket of whoever has them.
    pub(crate) fn new(sockets: Sockets, control: Option<Server>) -> Self {
        Self { sockets, control }
    }

    /// The connections of our stack, as they are now.
    pub(crate) fn connections(&self) -> Vec<ConnReport> {
        self.sockets
            .stack
            .as_ref()
            .map(|host| Live::new(host.clone()).connections())
            .unwrap_or_default()
    }

    /// Where the control socket lies, if there is one.
    pub(crate) fn control_folder(&self) -> Option<std::path::PathBuf> {
        let socket = self.control.as_ref()?.path();
        socket.parent().map(Into::into)
    }

    /// Waits for what closed streams have still to deliver, as long as it moves, before everything is taken down in order.
    pub(crate) async fn close_delivered(self) {
        if let Some(host) = &self.sockets.stack {
            host.delivered(STANDSTILL).await;
        }
        self.close().await;
    }

    /// Takes everything down in order.
    pub(crate) async fn close(self) {
        drop(self.control);
        if let Some(host) = self.sockets.stack {
            host.close(PATIENCE).await;
        }
    }
}

/// What a stack is opened for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// To serve whoever comes: it may start before the network, and wait for it.
    Service {
        /// How long peers may be silent before they are asked.
        keepalive: Option<Duration>,
    },
    /// To connect now.
    Client,
}

/// Sets up what the kinds need: our stack only if one of them is ours.
/// `keepalive` asks peers that have been silent for so long whether they are there.
pub(crate) fn open(
    args: &StackArgs,
    protos: &[Proto],
    title: String,
    purpose: Purpose,
) -> Result<Opened, Failure> {
    let wanted = Wanted {
        specs: args.paths.clone(),
        ..Wanted::default()
    };
    let sockets = open_sockets(args, wanted, protos, purpose)?;
    // Being seen is a convenience: traffic flows without it.
    let control = sockets.stack.as_ref().and_then(|host| {
        Server::start(title, Live::limited(host.clone(), sockets.limiter.clone()))
            .inspect_err(
                |error| tracing::warn!(%error, "`manypath status` will not see this process"),
            )
            .ok()
    });
    Ok(Opened::new(sockets, control))
}

/// The sockets of [`open`] alone, by these paths.
pub(crate) fn open_sockets(
    args: &StackArgs,
    wanted: Wanted,
    protos: &[Proto],
    purpose: Purpose,
) -> Result<Sockets, Failure> {
    if let Some(name) = &args.host_congestion {
        if let Some(there) = congestion_controls_without(name) {
            return Err(Failure::usage(format!(
                "--host-congestion {name}: this kernel has no such congestion control; it has: {there}"
            )));
        }
    }
    let mut sockets = Sockets {
        connect_timeout: args.connect_timeout,
        host_congestion: args.host_congestion.clone(),
        keepalive: match purpose {
            Purpose::Service { keepalive } => keepalive,
            Purpose::Client => None,
        },
        ..Sockets::default()
    };
    if !protos.contains(&Proto::Mptcp) {
        return Ok(sockets);
    }
    // A signal that came meanwhile ended the programs that set-up starts, too, if it came from the terminal.
    let host: Host = setup::host(args, wanted, matches!(purpose, Purpose::Service { .. }))
        .map_err(|failure| signals::noted().map_or(failure, Signal::failure))?;
    setup::warn_of_missing(&host);
    setup::warn_of_firewall(&host);
    sockets.stack = Some(host);
    sockets.via = via(args)?;
    Ok(sockets)
}

/// The converter that the command line names.
fn via(args: &StackArgs) -> Result<Option<Converter>, Failure> {
    let Some(at) = &args.via else {
        return Ok(None);
    };
    let spec = ConverterSpec {
        at: at.clone(),
        key: args.via_key.clone(),
        direct: args.direct,
    };
    let opened = spec.open();
    opened
        .map(Some)
        .map_err(|why| Failure::usage(format!("--via-key: {why}")))
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|e| Failure::new(Code::Failure, format!("cannot write JSON: {e}")))?;
    print_text(&(text + "\n"))
}

/// Text from another process, which may be another user's, in one line and without orders to the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Prints text; a reader that went away (`| head`) ends the command without a message of its own.
pub(crate) fn print_text(text: &str) -> Result<(), Failure> {
    Outlet::Output
        .write(text.as_bytes())
        .map_err(|e| Failure::stdout(&e))
}

/// What to do when private networks cannot be had.
pub(crate) fn namespace_failure(error: &manypath_lab::netns::NetNsError) -> Failure {
    use manypath_lab::netns::NetNsError;
    let message = error.to_string();
    match error {
        NetNsError::Forbidden(_) => Failure::new(Code::Privilege, message).hint(
            "run it as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 \
             (on Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)",
        ),
        NetNsError::Start { source, .. } | NetNsError::Sysctl { source, .. } => {
            Failure::from_io(message, source.kind())
        }
        NetNsError::Missing { .. } | NetNsError::Command { .. } | NetNsError::Stuck => {
            Failure::new(Code::Failure, message)
        }
    }
}
