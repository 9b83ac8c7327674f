//! A host with two uplinks, a router behind each, and a server far away. The routers can stop carrying while the links stay up.
//!
//! ```text
//!   ours  10.78.1.2  u1 ---- d1  10.78.1.1  router  192.0.2.254  e ---- e  192.0.2.1  server
//!         10.78.2.2  u2 ---- d2  10.78.2.1                                 192.0.2.9
//! ```

use std::path::PathBuf;

use manypath_lab::kernel;
use manypath_lab::netns::{self, NetNs, NetNsError};

use crate::net::{Turn, tool};

/// The network. Everything goes with it.
#[derive(Debug)]
pub struct Routed {
    /// Where `manypath` runs.
    pub ours: NetNs,
    /// What can stop carrying.
    pub router: NetNs,
    /// The other end.
    pub server: NetNs,
    _turn: Turn,
}

impl Routed {
    /// Three hosts, with no other test at the same time; the default route by `u1` is the better one. `None`, with the reason printed,
    /// where that is not permitted.
    ///
    /// # Panics
    /// When the network cannot be built although namespaces are permitted.
    #[must_use]
    pub fn new() -> Option<Self> {
        let turn = Turn::alone();
        if let Err(error) = netns::acquire() {
            eprintln!("skipped: {error}");
            return None;
        }
        Some(Self::wire(turn).expect("namespaces are permitted here"))
    }

    fn wire(turn: Turn) -> Result<Self, NetNsError> {
        let ours = NetNs::new("ours")?;
        let router = NetNs::new("router")?;
        let server = NetNs::new("server")?;
        for n in 1..=2 {
            ours.veth(&format!("u{n}"), &router, &format!("d{n}"))?;
            router.ip([format!("addr add 10.78.{n}.1/24 dev d{n}")])?;
            ours.ip([
                format!("addr add 10.78.{n}.2/24 dev u{n}"),
                format!("route add default via 10.78.{n}.1 dev u{n} metric {n}00"),
            ])?;
        }
        server.veth("e", &router, "e")?;
        server.ip([
            "addr add 192.0.2.1/24 dev e",
            "addr add 192.0.2.9/24 dev e",
            "route add default via 192.0.2.254",
        ])?;
        router.ip(["addr add 192.0.2.254/24 dev e"])?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        // An ICMP error for each SYN.
        router.sysctl("net.ipv4.icmp_ratelimit", "0")?;
        kernel::prepare(&server, false)?;
        server.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        Ok(Self {
            ours,
            router,
            server,
            _turn: turn,
        })
    }

    /// The router's rules, from wherever they are to be changed.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules(self.router.path().to_owned())
    }
}

/// What the router does with what it forwards.
#[derive(Debug, Clone)]
pub struct Rules(PathBuf);

impl Rules {
    /// Replaces all rules.
    ///
    /// # Panics
    /// When `nft` refuses.
    pub fn set(&self, rules: &[&str]) {
        let mut text = "add table ip t; delete table ip t; add table ip t; \
                        add chain ip t f { type filter hook forward priority 0; };"
            .to_owned();
        for rule in rules {
            text += &format!("add rule ip t f {rule};");
        }
        let mut command = tool("nsenter");
        command.arg(format!("--net={}", self.0.display()));
        let output = command.args(["nft", &text]).output();
        let output = output.expect("nsenter is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
}
