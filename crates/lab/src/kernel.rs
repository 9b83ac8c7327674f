//! What the kernel's own Multipath TCP did in a namespace: its counters and its sockets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::Command;

use crate::netns::{self, NetNs, NetNsError};

/// The release of the kernel that runs here; nothing where it does not say.
#[must_use]
pub fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.unwrap_or_default().trim().to_owned()
}

/// The counters of `/proc/net/netstat` by name, with the group's prefix: `MPTcpExtMPJoinSynRx`, `TcpExtTCPTimeouts`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Reads the counters of a namespace. A kernel without Multipath TCP simply has none of that group.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(ns: &NetNs) -> std::io::Result<Self> {
        ns.run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))
            .map(|text| Self::parse(&text))
    }

    /// Takes pairs of lines, `Group: name name` above `Group: value value`. Lines of another shape are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut all = BTreeMap::new();
        let mut lines = text.lines();
        while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            let (Some((group, names)), Some((_, values))) =
                (names.split_once(':'), values.split_once(':'))
            else {
                continue;
            };
            for (name, value) in names
                .split_ascii_whitespace()
                .zip(values.split_ascii_whitespace())
            {
                if let Ok(value) = value.parse() {
                    all.insert(format!("{group}{name}"), value);
                }
            }
        }
        Self(all)
    }

    /// One counter by its whole name; zero when the kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How much every counter grew since `earlier`, leaving out those that did not.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> BTreeMap<String, u64> {
        self.0
            .iter()
            .map(|(name, now)| (name.clone(), now.saturating_sub(earlier.get(name))))
            .filter(|(_, grown)| *grown > 0)
            .collect()
    }

    /// The counters of the kernel's Multipath TCP only, without their prefix.
    #[must_use]
    pub fn mptcp(&self) -> BTreeMap<&str, u64> {
        self.0
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("MPTcpExt")?, *value)))
            .collect()
    }
}

/// What `ss` prints about the Multipath TCP sockets of a namespace, numbers unresolved.
///
/// # Errors
/// When `ss` is not there.
pub fn mptcp_sockets(ns: &NetNs) -> Result<String, NetNsError> {
    let mut command = Command::new("ss");
    command.args(["-M", "-i", "-n", "-H"]);
    ns.output(command)
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What `ss` prints about the established TCP sockets of a namespace, subflows among them (`tcp-ulp-mptcp`).
///
/// # Errors
/// When `ss` is not there.
pub fn tcp_sockets(ns: &NetNs) -> Result<String, NetNsError> {
    let mut command = Command::new("ss");
    command.args(["-t", "-i", "-n", "-H", "-O"]);
    ns.output(command)
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Bytes that each subflow of the namespace's sockets has had acknowledged and has received, by its two addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subflow {
    /// Local address and port as `ss` prints them.
    pub local: String,
    /// The peer's.
    pub remote: String,
    /// Both directions are open.
    pub established: bool,
    /// Payload bytes that the peer acknowledged.
    pub acked: u64,
    /// Payload bytes that arrived.
    pub received: u64,
}

impl Subflow {
    /// The local address. `ss` puts the interface behind it where the socket is bound to one: `10.0.0.1%p0:5000`.
    #[must_use]
    pub fn local_ip(&self) -> Option<IpAddr> {
        let (address, _port) = self.local.rsplit_once(':')?;
        let address = address.split_once('%').map_or(address, |(bare, _)| bare);
        address.trim_matches(['[', ']']).parse().ok()
    }
}

/// The subflows of Multipath TCP in a namespace.
///
/// # Errors
/// When `ss` is not there.
pub fn subflows(ns: &NetNs) -> Result<Vec<Subflow>, NetNsError> {
    Ok(tcp_sockets(ns)?.lines().filter_map(parse_subflow).collect())
}

fn parse_subflow(line: &str) -> Option<Subflow> {
    if !line.contains("tcp-ulp-mptcp") {
        return None;
    }
    let mut fields = line.split_ascii_whitespace().skip(3);
    let local = fields.next()?.to_owned();
    let remote = fields.next()?.to_owned();
    let number = |key: &str| {
        line.split_ascii_whitespace()
            .find_map(|word| word.strip_prefix(key)?.parse().ok())
            .unwrap_or(0)
    };
    Some(Subflow {
        local,
        remote,
        established: line.starts_with("ESTAB"),
        acked: number("bytes_acked:"),
        received: number("bytes_received:"),
    })
}

/// Prepares a namespace as one end of the kernel's Multipath TCP, with or without checksums.
///
/// # Errors
/// When this kernel has no Multipath TCP or the parameter is not ours to set, and [`NetNsError::Stuck`] when it answers no more.
pub fn prepare(ns: &NetNs, checksum: bool) -> Result<(), NetNsError> {
    if !netns::netlink_answers() {
        return Err(NetNsError::Stuck);
    }
    ns.sysctl("net.mptcp.enabled", "1")?;
    ns.sysctl(
        "net.mptcp.checksum_enabled",
        if checksum { "1" } else { "0" },
    )?;
    ns.ip(["mptcp limits set subflows 8 add_addr_accepted 8"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_pairs_of_lines() {
        let text = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 7\nMPTcpExt: MPCapableSYNRX\nMPTcpExt: 3\n";
        let counters = Counters::parse(text);
        assert_eq!(counters.get("TcpExtTCPTimeouts"), 7);
        assert_eq!(counters.get("MPTcpExtMPCapableSYNRX"), 3);
        assert_eq!(counters.get("MPTcpExtNone"), 0);
        assert_eq!(counters.mptcp().len(), 1);
        let later = Counters::parse("TcpExt: TCPTimeouts\nTcpExt: 9\n");
        assert_eq!(
            later.since(&counters).into_iter().collect::<Vec<_>>(),
            [("TcpExtTCPTimeouts".to_owned(), 2)]
        );
    }

    #[test]
    fn subflows_are_told_from_other_connections() {
        let line = "ESTAB 0 0 10.0.0.1:5000 10.0.0.2:80 cubic bytes_acked:12 bytes_received:34 tcp-ulp-mptcp flags:Mm";
        let subflow = parse_subflow(line).expect("it is one");
        assert_eq!((subflow.acked, subflow.received), (12, 34));
        assert!(subflow.established);
        assert_eq!(
            (subflow.local.as_str(), subflow.remote.as_str()),
            ("10.0.0.1:5000", "10.0.0.2:80")
        );
        assert_eq!(
            parse_subflow("ESTAB 0 0 10.0.0.1:5000 10.0.0.2:80 cubic"),
            None
        );
    }

    #[test]
    fn a_subflow_has_an_address_whether_it_is_bound_to_an_interface_or_not() {
        let local = |local: &str| {
            let line = format!("ESTAB 0 0 {local} 10.0.0.2:80 tcp-ulp-mptcp");
            parse_subflow(&line).expect("it is one").local_ip()
        };
        let here = Some(IpAddr::from([10, 0, 0, 1]));
        assert_eq!(
            ["10.0.0.1:5000", "10.0.0.1%p0:5000"].map(local),
            [here, here]
        );
        assert_eq!(local("[fd00::1]:5000"), "fd00::1".parse().ok());
        assert_eq!(local("*:*"), None);
    }
}
