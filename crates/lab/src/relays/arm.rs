//! Whose relay: how each is started, and what its client says first.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::Task;
use crate::netns::{NetNsError, Process};
use crate::relay::squid;
use crate::testbed::{Pair, SERVER, Testbed};

/// Where relays listen.
pub(super) const RELAY: u16 = 3128;
/// Where the receiver of uploads listens; CONNECT goes there without a rule.
pub(super) const BULK: u16 = 443;
/// Where nginx listens.
pub(super) const WEB: u16 = 80;

/// Whose relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// None: the client speaks the kernel's TCP with the server.
    Direct,
    /// `manypath forward`.
    Forward,
    /// `manypath proxy`: CONNECT for uploads, absolute form for answers.
    Connect,
    /// `manypath proxy` by SOCKS5.
    Socks5,
    /// `manypath proxy` with the kernel's Multipath TCP towards the server.
    KernelOutside,
    /// HAProxy under `mptcpize`.
    HaproxyMptcp,
    /// HAProxy as it is.
    Haproxy,
    /// squid.
    Squid,
}

impl Arm {
    /// Every arm, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::Direct,
        Self::Forward,
        Self::Connect,
        Self::Socks5,
        Self::KernelOutside,
        Self::HaproxyMptcp,
        Self::Haproxy,
        Self::Squid,
    ];

    /// Its name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "no relay, TCP",
            Self::Forward => "manypath forward",
            Self::Connect => "manypath proxy, HTTP",
            Self::Socks5 => "manypath proxy, SOCKS5",
            Self::KernelOutside => "proxy, kernel's MPTCP",
            Self::HaproxyMptcp => "HAProxy, MPTCP",
            Self::Haproxy => "HAProxy, TCP",
            Self::Squid => "squid, TCP",
        }
    }

    /// The web's client here speaks no SOCKS5.
    pub(super) fn does(self, task: Task) -> bool {
        !matches!((self, task), (Self::Socks5, Task::Answers { .. }))
    }

    /// Whether a client names its target.
    pub(super) fn is_asked(self) -> bool {
        matches!(self, Self::Connect | Self::KernelOutside | Self::Squid)
    }

    /// What a client says first, and how it is answered.
    pub(super) fn words(self) -> (Vec<u8>, Answered) {
        let connect = format!("CONNECT {SERVER}:{BULK} HTTP/1.1\r\nHost: {SERVER}:{BULK}\r\n\r\n");
        match self {
            Self::Connect | Self::KernelOutside | Self::Squid => {
                (connect.into_bytes(), Answered::Head)
            }
            Self::Socks5 => {
                let port = BULK.to_be_bytes();
                let words = [&[5, 1, 0, 5, 1, 0, 1], &SERVER.octets()[..], &port].concat();
                (words, Answered::Bytes(12))
            }
            _ => (Vec::new(), Answered::Bytes(0)),
        }
    }

    /// Starts the relay in the client's namespace, with its files in a folder; `None` where there is none to start.
    pub(super) fn start(
        self,
        pair: &Pair,
        program: &Path,
        folder: &Path,
        task: Task,
    ) -> Result<Option<Process>, String> {
        let mut command = match self {
            Self::Direct => return Ok(None),
            Self::Forward | Self::Connect | Self::Socks5 | Self::KernelOutside => {
                self.ours(pair, program, task)
            }
            Self::HaproxyMptcp | Self::Haproxy => {
                let file = folder.join("haproxy.cfg");
                written(&file, &haproxy(task))?;
                let (first, rest) = match self {
                    Self::HaproxyMptcp => ("mptcpize", &["run", "haproxy"][..]),
                    _ => ("haproxy", &[][..]),
                };
                let mut command = Command::new(first);
                command.args(rest).arg("-db").arg("-f").arg(file);
                command
            }
            Self::Squid => {
                let file = folder.join("squid.conf");
                let at = format!("127.0.0.1:{RELAY}");
                written(&file, &squid(&at, "http_access allow all", folder))?;
                let mut command = Command::new("squid");
                // Its shared memory is not that of another one.
                command.args(["-n", "relays", "-N", "-f"]).arg(file);
                command
            }
        };
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let started = pair.client.spawn(command);
        started.map(Some).map_err(|error| missing(&error))
    }

    fn ours(self, pair: &Pair, program: &Path, task: Task) -> Command {
        let mut command = Command::new(program);
        let on = format!("127.0.0.1:{RELAY}");
        let port = match task {
            Task::Bulk { .. } => BULK,
            Task::Answers { .. } => WEB,
        };
        match self {
            Self::Forward => command
                .args(["forward", "--listen", &format!("tcp:{on}")])
                .args(["--to", &format!("mptcp:{SERVER}:{port}")]),
            Self::Socks5 => command.args(["proxy", "--socks5", &on]),
            _ => command.args(["proxy", "--http", &on]),
        };
        command.args(["--user", "root"]);
        if self == Self::KernelOutside {
            command.args(["--outside", "kernel-mptcp"]);
            return command;
        }
        for (index, interface) in pair.interfaces().iter().enumerate() {
            let (own, gateway) = (Testbed::own_address(index), Testbed::gateway(index));
            command.args(["--path", &format!("{interface}={own},gateway={gateway}")]);
        }
        command.args(["--checksum", "off"]);
        command
    }
}

/// How the answer to a client's first words ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answered {
    /// With an empty line.
    Head,
    /// After so many bytes.
    Bytes(usize),
}

pub(super) fn written(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

pub(super) fn missing(error: &NetNsError) -> String {
    format!("{error}; `scripts/setup bench` installs what is missing")
}

fn haproxy(task: Task) -> String {
    let (mode, port) = match task {
        Task::Bulk { .. } => ("tcp", BULK),
        Task::Answers { .. } => ("http", WEB),
    };
    // As many as are asked for, and the probe whether it listens; it wants descriptors for all of them.
    let most = match task {
        Task::Bulk { .. } => 10,
        Task::Answers { connections } => connections + 10,
    };
    // One thread, as ours has; connections to servers are kept and shared in HTTP, as it does by default.
    format!(
        "global\n nbthread 1\n maxconn {most}\ndefaults\n mode {mode}\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen relay\n bind 127.0.0.1:{RELAY}\n maxconn {most}\n server s {SERVER}:{port}\n"
    )
}
