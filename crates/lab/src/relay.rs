//! Our stack at an end of emulated paths: where it has addresses, and `manypath forward` ready for connections.
//!
//! It has addresses of its own beside the kernel's, so the kernel has nothing to do with its packets.

use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::netns::{NetNs, NetNsError, Process};
use crate::spoken::Spoken;
use crate::testbed::Testbed;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often it is looked whether somebody listens.
const LOOK: Duration = Duration::from_millis(10);

/// An end of the paths of a testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

impl End {
    /// What it is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// Where its programs run.
    pub(crate) fn ns(self, bed: &Testbed) -> &NetNs {
        match self {
            Self::Client => &bed.client,
            Self::Server => &bed.server,
        }
    }

    /// The words of all of its paths, as `manypath` takes them.
    pub(crate) fn paths(self, bed: &Testbed) -> Vec<String> {
        let paths = bed.paths().iter().enumerate();
        let words = paths.flat_map(|(n, path)| {
            let (own, gateway) = self.addresses(n);
            [
                "--path".to_owned(),
                format!("{}={own},gateway={gateway}", path.name),
            ]
        });
        words.collect()
    }

    /// The address of our stack on a path, and its gateway there.
    fn addresses(self, path: usize) -> (IpAddr, IpAddr) {
        match self {
            Self::Client => (Testbed::own_address(path), Testbed::gateway(path)),
            Self::Server => (
                Testbed::own_server_address(path),
                Testbed::client_address(path),
            ),
        }
    }
}

/// Why a relay is not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    #[error(transparent)]
    Network(#[from] NetNsError),
    /// With what it said last.
    #[error("manypath did not start: {0}")]
    Said(String),
}

/// Starts `manypath forward` from one endpoint to another, over these paths and with more of its options, and waits until it listens.
pub(crate) fn forward(
    ns: &NetNs,
    program: &Path,
    [listen, to]: [&str; 2],
    paths: &[String],
    options: &[&str],
) -> Result<Spoken, NotStarted> {
    let mut command = Command::new(program);
    command.args(["forward", "--listen", listen, "--to", to]);
    command.args(options).args(paths).stdout(Stdio::null());
    let mut relay = Spoken::start(ns, command)?;
    relay
        .says(" goes to ", PATIENCE)
        .map_err(NotStarted::Said)?;
    Ok(relay)
}

/// Starts `manypath proxy` with a configuration and over these paths, and waits until it listens.
pub(crate) fn proxy(
    ns: &NetNs,
    program: &Path,
    config: &Path,
    paths: &[String],
) -> Result<Spoken, NotStarted> {
    let mut command = Command::new(program);
    command.arg("proxy").arg("--config").arg(config).args(paths);
    command.args(["--checksum", "off"]).stdout(Stdio::null());
    let mut proxy = Spoken::start(ns, command)?;
    proxy
        .says(" listens on ", PATIENCE)
        .map_err(NotStarted::Said)?;
    Ok(proxy)
}

/// A configuration of squid that listens there and keeps nothing, with its files in a folder. It refuses to be root, so it becomes the user that its
/// package makes.
pub(crate) fn squid(at: &str, access: &str, folder: &Path) -> String {
    let here = folder.display();
    format!(
        "http_port {at}\n{access}\ncache deny all\naccess_log none\ncache_log /dev/null\npid_filename none\n\
         coredump_dir {here}\nshutdown_lifetime 0 seconds\ncache_effective_user proxy\nnetdb_filename none\n"
    )
}

/// Waits until somebody listens on a port of a namespace, without connecting to it.
pub(crate) fn await_listener(
    ns: &NetNs,
    port: u16,
    process: &mut Process,
    patience: Duration,
) -> Result<(), String> {
    let end = Instant::now() + patience;
    while !ns.listens(port) {
        if let Ok(Some(status)) = process.child().try_wait() {
            return Err(format!("it ended before it listened ({status})"));
        }
        if Instant::now() > end {
            return Err(format!("nobody listens on port {port}"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
