//! Two hosts in network namespaces, joined by Ethernet cables: one whose kernel is the peer, one where `manypath` runs.
//!
//! ```text
//!   ours   10.77.1.2 (the host's)  v1 ------- v1  10.77.1.1   kernel
//!          10.77.1.10 (nobody's)
//!          10.77.2.2               v2 ------- v2  10.77.2.1
//! ```
//!
//! IPv6 likewise with `fd77:N::`. With [`Net::bridged`] a switch stands in the middle of every cable, which can swallow
//! frames without either end noticing anything.

use std::net::IpAddr;
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use manypath_lab::kernel::{self, Counters};
use manypath_lab::netns::{self, NetNs, NetNsError};

/// Tests that measure time hold it alone, all others share it.
static TURN: RwLock<()> = RwLock::new(());

/// Only one thread may move the program into a user namespace.
static ENTERING: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The right to run now.
#[derive(Debug)]
pub(crate) enum Turn {
    Shared {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone {
        _guard: RwLockWriteGuard<'static, ()>,
    },
}

impl Turn {
    /// With no other test at the same time.
    pub(crate) fn alone() -> Self {
        let guard = TURN.write().unwrap_or_else(PoisonError::into_inner);
        Self::Alone { _guard: guard }
    }
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Whose address a packet of ours bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// One that our host does not have: the stack answers for it.
    Owned,
    /// Our host's own, shared with its kernel.
    Shared,
    /// The same, but the program is told only the interface, as users write it.
    Named,
}

/// The network. Everything goes with it.
#[derive(Debug)]
pub struct Net {
    /// Where the kernel is the peer.
    pub kernel: NetNs,
    /// Where `manypath` runs.
    pub ours: NetNs,
    /// The switches, where there are any.
    pub middle: Option<NetNs>,
    cables: u8,
    _turn: Turn,
}

impl Net {
    /// Two hosts and so many cables. `None`, with the reason printed, where that is not permitted.
    ///
    /// # Panics
    /// When the network cannot be built although namespaces are permitted.
    #[must_use]
    pub fn new(cables: u8) -> Option<Self> {
        let guard = TURN.read().unwrap_or_else(PoisonError::into_inner);
        Self::build(cables, false, Turn::Shared { _guard: guard })
    }

    /// The same with a switch in every cable, and with no other test at the same time.
    ///
    /// # Panics
    /// As [`Net::new`].
    #[must_use]
    pub fn bridged(cables: u8) -> Option<Self> {
        Self::build(cables, true, Turn::alone())
    }

    fn build(cables: u8, bridged: bool, turn: Turn) -> Option<Self> {
        let entering = ENTERING.lock().unwrap_or_else(PoisonError::into_inner);
        // An ordinary user's test program starts again as root of a namespace of its own, where all this is permitted.
        if let Err(error) = netns::acquire() {
            eprintln!("skipped: {error}");
            return None;
        }
        drop(entering);
        if !std::path::Path::new("/proc/sys/net/mptcp/enabled").exists() {
            eprintln!("skipped: this kernel has no Multipath TCP to test against");
            return None;
        }
        let net = Self::wire(cables, bridged, turn).expect("namespaces are permitted here");
        Some(net)
    }

    fn wire(cables: u8, bridged: bool, turn: Turn) -> Result<Self, NetNsError> {
        let kernel = NetNs::new("kernel")?;
        let ours = NetNs::new("ours")?;
        let middle = bridged.then(|| NetNs::new("middle")).transpose()?;
        for n in 1..=cables {
            let cable = format!("v{n}");
            match &middle {
                None => kernel.veth(&cable, &ours, &cable)?,
                Some(middle) => {
                    middle.ip([
                        format!("link add name br{n} type bridge"),
                        format!("link set br{n} up"),
                    ])?;
                    plug(&kernel, middle, n, 'k')?;
                    plug(&ours, middle, n, 'o')?;
                }
            }
            for (host, end) in [(&kernel, 1), (&ours, 2)] {
                host.ip([
                    format!("addr add 10.77.{n}.{end}/24 dev {cable}"),
                    format!("addr add fd77:{n}::{end}/64 dev {cable} nodad"),
                ])?;
            }
        }
        kernel::prepare(&kernel, true)?;
        // Each connection begins without the memory of the one before.
        kernel.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        Ok(Self {
            kernel,
            ours,
            middle,
            cables,
            _turn: turn,
        })
    }

    /// How many cables there are.
    #[must_use]
    pub fn cables(&self) -> u8 {
        self.cables
    }

    /// The kernel's address on cable `n` (from 1).
    #[must_use]
    pub fn kernel_address(family: Family, n: u8) -> IpAddr {
        address(family, n, "1", "1")
    }

    /// The address on cable `n` (from 1) that `manypath` uses.
    #[must_use]
    pub fn our_address(family: Family, own: Own, n: u8) -> IpAddr {
        match own {
            Own::Owned => address(family, n, "10", "10"),
            Own::Shared | Own::Named => address(family, n, "2", "2"),
        }
    }

    /// The `--path` of cable `n` (from 1).
    #[must_use]
    pub fn path(family: Family, own: Own, n: u8) -> String {
        match own {
            Own::Named => format!("v{n}"),
            Own::Owned | Own::Shared => format!("v{n}={}", Self::our_address(family, own, n)),
        }
    }

    /// The Multipath TCP counters of the kernel, as they are now.
    ///
    /// # Panics
    /// When the kernel does not show them.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::read(&self.kernel).expect("the namespace shows its counters")
    }

    /// Lets the kernel's side offer or use another of its addresses: `ip mptcp endpoint add ADDRESS dev vN FLAGS`.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn add_endpoint(&self, address: IpAddr, n: u8, flags: &str) {
        self.kernel
            .ip([format!("mptcp endpoint add {address} dev v{n} {flags}")])
            .expect("the address is the kernel's");
    }

    /// Takes segmentation and checksums away from the devices of cable `n`, so that a capture shows what a wire
    /// would carry. `false` where the tool for it is missing.
    #[must_use]
    pub fn without_offloads(&self, n: u8) -> bool {
        [&self.kernel, &self.ours].into_iter().all(|host| {
            let mut command = tool("ethtool");
            command.args(["-K", &format!("v{n}")]).args([
                "tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off",
            ]);
            host.output(command)
                .is_ok_and(|output| output.status.success())
        })
    }

    /// Makes the switch of cable `n` swallow everything. Neither end loses its link.
    ///
    /// # Panics
    /// Without a switch, or when `nft` refuses.
    pub fn swallow(&self, n: u8) {
        let middle = self.middle.as_ref().expect("the network has switches");
        let rules = format!(
            "add table bridge cut{n}; add chain bridge cut{n} frames {{ type filter hook forward priority 0; policy accept; }}; \
             add rule bridge cut{n} frames iifname {{ k{n}, o{n} }} drop"
        );
        let mut command = tool("nft");
        command.arg(rules);
        let output = middle.output(command).expect("nft is installed");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Switches the interface of cable `n` off at one end.
    ///
    /// # Panics
    /// When `ip` refuses.
    pub fn cut(&self, host: &NetNs, n: u8) {
        host.ip([format!("link set v{n} down")])
            .expect("the cable is there");
    }

    /// Takes the interface of cable `n` away from our host, and with it the switch's port.
    ///
    /// # Panics
    /// When there is none.
    pub fn unplug(&self, n: u8) {
        self.ours
            .ip([format!("link del v{n}")])
            .expect("it is plugged in");
    }

    /// Gives our host an interface of the old name on cable `n` again, with this address in a /24.
    ///
    /// # Panics
    /// Without a switch, or when there is such an interface.
    pub fn plug_in(&self, n: u8, address: IpAddr) {
        let middle = self.middle.as_ref().expect("the network has switches");
        let plugged = plug(&self.ours, middle, n, 'o')
            .and_then(|()| self.ours.ip([format!("addr add {address}/24 dev v{n}")]));
        plugged.expect("the cable's place is free");
    }

    /// Takes the carrier from our host's interface on cable `n`, or gives it back.
    ///
    /// # Panics
    /// Without a switch, or when `ip` refuses.
    pub fn carrier(&self, n: u8, there: bool) {
        let middle = self.middle.as_ref().expect("the network has switches");
        let word = if there { "up" } else { "down" };
        middle
            .ip([format!("link set o{n} {word}")])
            .expect("the switch has that port");
    }

    /// Everything about our host that `manypath` could have changed.
    ///
    /// # Panics
    /// When the tools that show it are missing.
    #[must_use]
    pub fn traces(&self) -> String {
        let mut all = String::new();
        for line in [
            "nft list ruleset",
            "ip -o link show",
            "ip -4 rule",
            "ip -6 rule",
            "ip -4 route show table all",
            "ip -6 route show table all",
            "sysctl -n net.ipv4.ip_local_reserved_ports",
            "sysctl -n net.ipv4.ip_forward",
            "sysctl -a -r ^net.ipv[46].conf.*(forwarding|accept_ra|rp_filter)$",
        ] {
            let mut words = line.split(' ');
            let mut command = tool(words.next().expect("a line has a word"));
            command.args(words);
            let output = self.ours.output(command).expect(line);
            let said = String::from_utf8_lossy(&output.stdout);
            // The kernel's own routes for IPv6 addresses of an interface come some time after it.
            let by_itself = |line: &&str| {
                ["fe80::", "ff00::/8", "local fd77:"]
                    .iter()
                    .any(|own| line.contains(own))
            };
            let lasting = said.lines().filter(|line| !by_itself(line));
            all += &lasting.fold(format!("{line}\n"), |all, line| all + line + "\n");
        }
        all
    }
}

/// Joins a host's interface of cable `n` to the switch, at the port of that side.
fn plug(host: &NetNs, middle: &NetNs, n: u8, side: char) -> Result<(), NetNsError> {
    let port = format!("{side}{n}");
    host.veth(&format!("v{n}"), middle, &port)?;
    middle.ip([format!("link set {port} master br{n}")])
}

fn address(family: Family, n: u8, v4: &str, v6: &str) -> IpAddr {
    match family {
        Family::V4 => format!("10.77.{n}.{v4}"),
        Family::V6 => format!("fd77:{n}::{v6}"),
    }
    .parse()
    .expect("composed of an address's parts")
}

/// What a line of the shell says inside a host, where it must succeed.
///
/// # Panics
/// When it fails, with what it complained of.
pub fn shell(host: &NetNs, line: &str) -> String {
    let mut command = tool("sh");
    command.args(["-c", line]);
    let output = host.output(command).expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A command that may live where only administrators look.
#[must_use]
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    command.env("PATH", path);
    command
}
