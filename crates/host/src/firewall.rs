//! The rules that keep the host's kernel out of our connections, and its address translation, as nftables scripts.
//!
//! The scripts are pure text; [`load`] hands them to `nft`. Everything of one [`crate::Setup`] is in one table of its own, so that
//! deleting the table takes everything away.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};

/// Frames that the kernel must not see, because a packet socket of ours answers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The interface's name.
    pub iface: String,
    /// The address.
    pub addr: IpAddr,
    /// The local ports that are ours; empty: the whole address.
    pub ports: Vec<RangeInclusive<u16>>,
}

/// Translation between an address of ours behind a TUN device and an address of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Translation {
    /// Our address behind the TUN device.
    pub(crate) inside: IpAddr,
    /// The interface its packets leave by.
    pub(crate) iface: String,
    /// The host's address there.
    pub(crate) outside: IpAddr,
    /// Ports of `outside` that are ours to listen on.
    pub(crate) listen: Vec<u16>,
}

fn family(addr: IpAddr) -> &'static str {
    if addr.is_ipv6() { "ip6" } else { "ip" }
}

/// Names of interfaces may hold characters that mean something to nft.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace(['"', '\\'], ""))
}

fn set<T: ToString>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<String> = items.map(|i| i.to_string()).collect();
    format!("{{ {} }}", items.join(", "))
}

fn ports(list: &[RangeInclusive<u16>]) -> String {
    set(list.iter().map(|r| {
        if r.start() == r.end() {
            r.start().to_string()
        } else {
            format!("{}-{}", r.start(), r.end())
        }
    }))
}

/// The table for packet devices. The drop is before connection tracking, so that the host does not even remember the packets; a
/// packet socket receives its copy earlier still.
pub(crate) fn guard_script(table: &str, guards: &[Guard]) -> String {
    let mut text = format!(
        "table inet {table} {{\n  chain guard {{\n    type filter hook prerouting priority -400; policy accept;\n"
    );
    for guard in guards {
        let family = family(guard.addr);
        let _ = write!(
            text,
            "    iifname {} {family} daddr {} ",
            quoted(&guard.iface),
            guard.addr
        );
        if guard.ports.is_empty() {
            text.push_str("drop\n");
        } else {
            let _ = writeln!(text, "tcp dport {} drop", ports(&guard.ports));
        }
    }
    text.push_str("  }\n}\n");
    text
}

/// The table for TUN devices.
pub(crate) fn translation_script(table: &str, tun: &str, list: &[Translation]) -> String {
    let mut out = String::new();
    let mut inward = String::new();
    for t in list {
        let family = family(t.inside);
        let _ = writeln!(
            out,
            "    {family} saddr {} oifname {} snat {family} to {}",
            t.inside,
            quoted(&t.iface),
            t.outside
        );
        if !t.listen.is_empty() {
            let _ = writeln!(
                inward,
                "    iifname != {} {family} daddr {} tcp dport {} dnat {family} to {}",
                quoted(tun),
                t.outside,
                set(t.listen.iter()),
                t.inside
            );
        }
    }
    let mut text = format!(
        "table inet {table} {{\n  chain outward {{\n    type nat hook postrouting priority 100; policy accept;\n{out}  }}\n"
    );
    if !inward.is_empty() {
        let _ = write!(
            text,
            "  chain inward {{\n    type nat hook prerouting priority -100; policy accept;\n{inward}  }}\n"
        );
    }
    text.push_str("}\n");
    text
}

/// The program that sets up firewall rules is not installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFirewallProgram;

impl fmt::Display for NoFirewallProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the program nft is needed to set up firewall rules, and is not installed")
    }
}

impl std::error::Error for NoFirewallProgram {}

/// The chains of the host, as `nft` writes them, that drop what is forwarded unless a rule of theirs accepts it. An
/// accepting rule in a table of ours does not help: each chain decides for itself.
fn dropping_chains(listing: &str) -> Vec<String> {
    let (mut table, mut chain, mut found) = ("", "", Vec::new());
    for line in listing.lines().map(str::trim) {
        let name = |word| Some(line.strip_prefix(word)?.strip_suffix('{')?.trim());
        if let Some(name) = name("table ") {
            table = name;
        } else if let Some(name) = name("chain ") {
            chain = name;
        } else if line.contains("hook forward") && line.contains("policy drop") {
            found.push(format!("{table} {chain}"));
        }
    }
    found
}

/// The firewall chains of the host that drop what is forwarded unless a rule of theirs accepts it, as `FAMILY TABLE CHAIN`.
/// Container engines put one up. What a TUN device carries is forwarded. Empty where the rules cannot be read.
#[must_use]
pub fn forwarding_is_dropped() -> Vec<String> {
    let output = Command::new("nft").args(["list", "chains"]).output();
    output
        .map(|output| dropping_chains(&String::from_utf8_lossy(&output.stdout)))
        .unwrap_or_default()
}

fn run(script: &str) -> io::Result<()> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::Error::new(io::ErrorKind::NotFound, NoFirewallProgram),
            _ => e,
        })?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.lines().next().unwrap_or("nft failed").to_owned();
    let kind = if message.contains("not permitted") {
        io::ErrorKind::PermissionDenied
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, format!("firewall rules: {message}")))
}

/// Puts a script into force, replacing the table if it exists. All or nothing.
pub(crate) fn load(table: &str, script: &str) -> io::Result<()> {
    // Declaring before deleting makes the deletion work whether or not the table exists.
    run(&format!(
        "table inet {table} {{}}\ndelete table inet {table}\n{script}"
    ))
}

/// Deletes a table; one that does not exist is no error.
pub(crate) fn delete(table: &str) -> io::Result<()> {
    run(&format!(
        "table inet {table} {{}}\ndelete table inet {table}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_name_interface_address_and_ports() {
        let text = guard_script(
            "manypath_1_2_0",
            &[
                Guard {
                    iface: "eth0".into(),
                    addr: "10.0.0.1".parse().expect("a literal"),
                    ports: vec![80..=80, 40000..=49999],
                },
                Guard {
                    iface: "eth\"1".into(),
                    addr: "fd00::1".parse().expect("a literal"),
                    ports: vec![],
                },
            ],
        );
        assert!(
            text.contains(
                "iifname \"eth0\" ip daddr 10.0.0.1 tcp dport { 80, 40000-49999 } drop\n"
            )
        );
        assert!(text.contains("iifname \"eth1\" ip6 daddr fd00::1 drop\n"));
    }

    #[test]
    fn chains_that_drop_what_is_forwarded() {
        let listing = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy drop;\n\t}\n\
            \tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n\
            table inet mine {\n\tchain forward {\n\t\ttype filter hook forward priority filter; policy accept;\n\t}\n}\n";
        assert_eq!(dropping_chains(listing), ["ip filter FORWARD"]);
        assert!(dropping_chains("").is_empty());
    }

    #[test]
    fn translation_inward_only_when_asked() {
        let mut t = Translation {
            inside: "198.18.0.2".parse().expect("a literal"),
            iface: "eth0".into(),
            outside: "10.0.0.1".parse().expect("a literal"),
            listen: vec![],
        };
        let text = translation_script("m", "tun0", std::slice::from_ref(&t));
        assert!(text.contains("ip saddr 198.18.0.2 oifname \"eth0\" snat ip to 10.0.0.1\n"));
        assert!(!text.contains("dnat"));
        t.listen = vec![80, 443];
        let text = translation_script("m", "tun0", &[t]);
        assert!(text.contains(
            "iifname != \"tun0\" ip daddr 10.0.0.1 tcp dport { 80, 443 } dnat ip to 198.18.0.2\n"
        ));
    }
}
