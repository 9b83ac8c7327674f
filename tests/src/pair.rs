//! A connection through `manypath forward`: an application at either end, the kernel on one side, `manypath` on the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitStatus;

use crate::net::{Family, Net, Own};
use crate::peer::{self, Listener, Speaks};
use crate::program::Program;
use crate::until::wait_until;

/// Which side begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `manypath` connects, the kernel listens.
    Client,
    /// The kernel connects, `manypath` listens.
    Server,
}

/// Both roles, for tests that do the same in each.
pub const ROLES: [Role; 2] = [Role::Client, Role::Server];

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From our application to the kernel's.
    ToKernel,
    /// The other way.
    FromKernel,
}

/// Both, for tests that do the same in each.
pub const WAYS: [Way; 2] = [Way::ToKernel, Way::FromKernel];

/// The port of the side that listens.
pub(crate) const PORT: u16 = 5000;

/// How the two sides talk.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The family used on each cable; the connection begins on the first.
    pub families: Vec<Family>,
    /// Whose addresses `manypath` uses.
    pub own: Own,
    /// Checksums wanted by our side, and by the kernel's.
    pub checksum: (bool, bool),
    /// What the kernel's application speaks.
    pub kernel: Speaks,
    /// Whose engine `manypath` uses towards the kernel: `mptcp`, or `kernel-mptcp` to check the harness itself.
    pub engine: &'static str,
    /// What may leave by each path, as on the command line.
    pub rate: Option<&'static str>,
    /// More of its command line.
    pub more: Vec<String>,
}

impl Plan {
    /// Multipath TCP on one cable for each of these families, on addresses of our own, checksums at both sides.
    #[must_use]
    pub fn new(families: &[Family]) -> Self {
        Self {
            families: families.to_vec(),
            own: Own::Owned,
            checksum: (true, true),
            kernel: Speaks::Mptcp,
            engine: "mptcp",
            rate: None,
            more: Vec::new(),
        }
    }

    /// The same where a path goes away while bytes go this way: with checksums only where we send.
    ///
    /// A kernel that repeats data with checksums, as it does when a path is cut, may divide by zero in the end and lock its
    /// socket for ever (Linux 6.18, `tcp_tso_segs` below `mptcp_worker`: it repeats to the end of what was written, and then
    /// pushes nothing with a segment size of nothing). Then the test program could not even be killed.
    #[must_use]
    pub fn with_cut(families: &[Family], way: Way) -> Self {
        let checksum = way == Way::ToKernel;
        Self {
            checksum: (checksum, checksum),
            ..Self::new(families)
        }
    }

    /// The paths and options of the program's command line.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut args = Vec::new();
        for (n, family) in (1..).zip(&self.families) {
            args.push("--path".to_owned());
            let rate = self
                .rate
                .map_or(String::new(), |rate| format!(",rate={rate}"));
            args.push(format!("{}{rate}", Net::path(*family, self.own, n)));
        }
        let word = if self.checksum.0 { "on" } else { "off" };
        args.extend(["--checksum".to_owned(), word.to_owned()]);
        args.extend(["--host-congestion".to_owned(), "cubic".to_owned()]);
        args.extend(self.more.iter().cloned());
        args
    }

    fn is_mixed(&self) -> bool {
        self.families.windows(2).any(|two| two[0] != two[1])
    }

    /// An address as the kernel's socket has to write it: one socket for both families is an IPv6 one.
    fn for_kernel(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(v4) if self.is_mixed() => v4.to_ipv6_mapped().into(),
            other => other,
        }
    }
}

/// A running forwarder whose two ends can be connected, as often as wanted.
#[derive(Debug)]
pub struct Route<'net> {
    /// The forwarder.
    pub program: Program,
    net: &'net Net,
    role: Role,
    plan: Plan,
    /// Where the side that listens does so: the kernel's socket or our application's.
    listener: Listener,
    /// Where the side that connects goes to.
    target: SocketAddr,
}

impl<'net> Route<'net> {
    /// Prepares the kernel, starts the forwarder, and listens behind or before it.
    ///
    /// # Panics
    /// When any of that fails.
    #[must_use]
    pub fn open(net: &'net Net, role: Role, plan: Plan) -> Self {
        let word = if plan.checksum.1 { "1" } else { "0" };
        net.kernel
            .sysctl("net.mptcp.checksum_enabled", word)
            .expect("it has Multipath TCP");
        let loopback = |port| SocketAddr::new([127, 0, 0, 1].into(), port);
        let family = plan.families[0];
        let (program, listener, target) = match role {
            Role::Client => {
                let local = loopback(peer::free_port(&net.ours));
                let at = SocketAddr::new(Net::kernel_address(family, 1), PORT);
                // The kernel accepts a join only where it listens, so on every address that it may announce.
                let any: IpAddr = if plan.is_mixed() || family == Family::V6 {
                    Ipv6Addr::UNSPECIFIED.into()
                } else {
                    Ipv4Addr::UNSPECIFIED.into()
                };
                let bound = SocketAddr::new(any, PORT);
                let listener = peer::listen(&net.kernel, bound, plan.kernel);
                let program = Program::forward(
                    &net.ours,
                    &format!("tcp:{local}"),
                    &format!("{}:{at}", plan.engine),
                    plan.arguments(),
                );
                (program, listener, local)
            }
            Role::Server => {
                // Any port that is free at this very moment.
                let listener = peer::listen(&net.ours, loopback(0), Speaks::Tcp);
                let local = listener.local_addr().expect("it is bound");
                let at = SocketAddr::new(Net::our_address(family, plan.own, 1), PORT);
                // Behind a TUN device the stack's addresses are its own: it listens on all of the host's.
                let listen = match plan.more.iter().any(|word| word == "tun") {
                    true => SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), PORT),
                    false => at,
                };
                let program = Program::forward(
                    &net.ours,
                    &format!("{}:{listen}", plan.engine),
                    &format!("tcp:{local}"),
                    plan.arguments(),
                );
                let target = SocketAddr::new(plan.for_kernel(at.ip()), PORT);
                (program, listener, target)
            }
        };
        Self {
            program,
            net,
            role,
            plan,
            listener,
            target,
        }
    }

    /// The socket of the side that listens.
    #[must_use]
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Where the side that connects goes to, from `Route`.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.target
    }

    /// Connects from the side that connects. What it is connected to may be no further than the forwarder.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        match self.role {
            Role::Client => peer::connect(&self.net.ours, self.target, Speaks::Tcp),
            Role::Server => peer::connect(&self.net.kernel, self.target, self.plan.kernel),
        }
    }

    /// Sockets of the side that connects, to be connected to [`Route::target`].
    #[must_use]
    pub fn sockets(&self, count: usize) -> Vec<TcpStream> {
        let (ns, speaks) = match self.role {
            Role::Client => (&self.net.ours, Speaks::Tcp),
            Role::Server => (&self.net.kernel, self.plan.kernel),
        };
        peer::sockets(ns, self.target, speaks, count)
    }

    /// One connection from end to end.
    ///
    /// # Panics
    /// When it does not come about.
    #[must_use]
    pub fn join(&self) -> Ends {
        let connected = self.connect().expect("the forwarder or stack listens");
        let accepted = peer::accept(&self.listener).expect("the forwarder connects");
        match self.role {
            Role::Client => Ends {
                ours: connected,
                kernel: accepted,
            },
            Role::Server => Ends {
                ours: accepted,
                kernel: connected,
            },
        }
    }

    /// Waits for the end of the forwarder and frees the addresses. Answers as [`Program::end`].
    ///
    /// # Panics
    /// As [`Program::end`].
    pub fn end(self) -> (ExitStatus, String) {
        self.program.end()
    }

    /// Waits until our stack has `count` subflows in its only connection, all of them established.
    ///
    /// # Panics
    /// When they do not come about.
    pub fn wait_for_subflows(&mut self, count: usize) {
        wait_until(&format!("{count} subflows"), || {
            let conn = self.program.connection();
            let ready = conn.subflows.iter().filter(|s| s.phase == "established");
            if ready.count() >= count {
                Ok(())
            } else {
                Err((conn.subflows, conn.ended))
            }
        });
    }
}

/// The two applications' streams.
#[derive(Debug)]
pub struct Ends {
    /// On our side, TCP over loopback to the forwarder.
    pub ours: TcpStream,
    /// On the kernel's side.
    pub kernel: TcpStream,
}

impl Ends {
    /// The one that sends, and the one that reads.
    #[must_use]
    pub fn along(&self, way: Way) -> (&TcpStream, &TcpStream) {
        match way {
            Way::ToKernel => (&self.ours, &self.kernel),
            Way::FromKernel => (&self.kernel, &self.ours),
        }
    }
}
