//! What the host's files say about names: hosts(5) and resolv.conf(5), read again when they change.

use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use hickory_resolver::proto::rr::Name;
use hickory_resolver::system_conf::parse_resolv_conf;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

const HOSTS: &str = "/etc/hosts";
const RESOLV: &str = "/etc/resolv.conf";
/// Where systemd-resolved writes the name servers of all links, which its own answers on 127.0.0.53 stand for.
const UPLINKS: &str = "/run/systemd/resolve/resolv.conf";

/// Where name servers listen.
const PORT: u16 = 53;

/// What resolv.conf asks for, or somebody in its place.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// In their order.
    pub(super) servers: Vec<SocketAddr>,
    /// Nobody else is asked, not the host's own resolver either.
    pub(super) alone: bool,
    pub(super) search: Vec<Name>,
    pub(super) domain: Option<Name>,
    pub(super) ndots: usize,
    /// Tells configurations apart.
    pub(super) generation: u64,
}

impl Config {
    /// Of files as they are: those of `uplinks` are asked behind a server on this host. Pure.
    fn of(resolv: &[u8], uplinks: &[u8], generation: u64) -> Self {
        let (config, opts) =
            parse_resolv_conf(resolv).unwrap_or_else(|_| (empty(), ResolverOpts::default()));
        let mut servers: Vec<SocketAddr> = Vec::new();
        let mut add = |config: &ResolverConfig| {
            for server in config.name_servers() {
                let server = SocketAddr::new(server.ip, PORT);
                if !servers.contains(&server) {
                    servers.push(server);
                }
            }
        };
        add(&config);
        let all_here = config.name_servers().iter().all(|s| s.ip.is_loopback());
        if all_here && let Ok((uplinks, _)) = parse_resolv_conf(uplinks) {
            add(&uplinks);
        }
        Config {
            servers,
            alone: false,
            search: config.search().to_vec(),
            domain: config.domain().cloned(),
            ndots: opts.ndots,
            generation,
        }
    }

    /// These servers and no others, which are asked for names as they are.
    fn of_servers(servers: &[SocketAddr], generation: u64) -> Self {
        Config {
            servers: servers.to_vec(),
            alone: true,
            search: Vec::new(),
            domain: None,
            ndots: 1,
            generation,
        }
    }
}

fn empty() -> ResolverConfig {
    ResolverConfig::from_parts(None, Vec::new(), Vec::new())
}

/// When a file was written last, and how long it is.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &str) -> Stamp {
    let meta = fs::metadata(Path::new(path)).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

/// The files as they were read last.
#[derive(Debug, Default)]
pub(super) struct Files {
    stamps: [Stamp; 3],
    read: bool,
    hosts: Vec<(IpAddr, Vec<String>)>,
    config: Option<Arc<Config>>,
    /// In place of those of resolv.conf.
    chosen: Vec<SocketAddr>,
    generation: u64,
}

impl Files {
    /// Takes these name servers in place of those of resolv.conf; without any, those of resolv.conf again.
    pub(super) fn choose(&mut self, servers: Vec<SocketAddr>) {
        if self.chosen != servers {
            (self.chosen, self.read) = (servers, false);
        }
    }

    /// Reads what has changed.
    pub(super) fn refresh(&mut self) {
        let stamps = [HOSTS, RESOLV, UPLINKS].map(stamp);
        if self.read && self.stamps == stamps {
            return;
        }
        (self.stamps, self.read) = (stamps, true);
        let bytes = |path| fs::read(path).unwrap_or_default();
        self.hosts = parse_hosts(&String::from_utf8_lossy(&bytes(HOSTS)));
        self.generation += 1;
        let config = match self.chosen.as_slice() {
            [] => Config::of(&bytes(RESOLV), &bytes(UPLINKS), self.generation),
            servers => Config::of_servers(servers, self.generation),
        };
        self.config = Some(Arc::new(config));
    }

    pub(super) fn config(&self) -> Arc<Config> {
        let none = || Arc::new(Config::of(&[], &[], 0));
        self.config.clone().unwrap_or_else(none)
    }

    /// The addresses of a name that needs no question.
    pub(super) fn hosts(&self, name: &str) -> Vec<IpAddr> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let is = |known: &String| known.eq_ignore_ascii_case(name);
        let listed = self.hosts.iter().filter(|(_, names)| names.iter().any(is));
        let mut found: Vec<IpAddr> = listed.map(|(addr, _)| *addr).collect();
        let lower = name.to_ascii_lowercase();
        // RFC 6761 section 6.3: no server is asked for it. Files that list one family are common, and so are programs that listen on one.
        if lower == "localhost" || lower.ends_with(".localhost") {
            let both: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
            let missing = |addr: &IpAddr| !found.iter().any(|f| f.is_ipv4() == addr.is_ipv4());
            let missing: Vec<IpAddr> = both.into_iter().filter(missing).collect();
            found.extend(missing);
        }
        found
    }
}

/// Lines of hosts(5): an address, and names up to a `#`. Pure.
fn parse_hosts(text: &str) -> Vec<(IpAddr, Vec<String>)> {
    let entry = |line: &str| {
        let line = line.split('#').next()?;
        let mut words = line.split_whitespace();
        let addr = words.next()?.parse().ok()?;
        Some((addr, words.map(str::to_owned).collect()))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        let ip = |text: &&str| text.parse().expect("a literal address");
        texts.iter().map(ip).collect()
    }

    fn sockets(texts: &[&str]) -> Vec<SocketAddr> {
        let socket = |text: &&str| text.parse().expect("a literal address");
        texts.iter().map(socket).collect()
    }

    #[test]
    fn servers_that_are_chosen_stand_in_place_of_those_of_the_host() {
        let mut files = Files::default();
        files.choose(sockets(&["10.0.0.1:5353"]));
        files.refresh();
        let config = files.config();
        assert_eq!(config.servers, sockets(&["10.0.0.1:5353"]));
        assert!(config.alone && config.search.is_empty());
        files.choose(Vec::new());
        files.refresh();
        assert!(!files.config().alone);
        assert_ne!(files.config().generation, config.generation);
    }

    #[test]
    fn hosts_are_found_by_any_of_their_names() {
        let text = "127.0.0.1 localhost\n# 10.0.0.9 not\n192.0.2.1 srv.test Srv # old\n192.0.2.2\tsrv.test\nx y\n";
        let files = Files {
            hosts: parse_hosts(text),
            ..Files::default()
        };
        assert_eq!(files.hosts("SRV.test."), ips(&["192.0.2.1", "192.0.2.2"]));
        assert_eq!(files.hosts("srv"), ips(&["192.0.2.1"]));
        assert_eq!(files.hosts("localhost"), ips(&["127.0.0.1", "::1"]));
        assert_eq!(files.hosts("a.localhost"), ips(&["::1", "127.0.0.1"]));
        assert!(files.hosts("not").is_empty());
    }

    #[test]
    fn servers_of_all_links_stand_behind_a_stub_on_this_host() {
        let uplinks = b"nameserver 192.0.2.1\nnameserver 192.0.2.2\n";
        let stub = Config::of(b"nameserver 127.0.0.53\nsearch lan\n", uplinks, 1);
        let wanted = sockets(&["127.0.0.53:53", "192.0.2.1:53", "192.0.2.2:53"]);
        assert_eq!(stub.servers, wanted);
        assert_eq!(stub.search.len(), 1);
        let plain = Config::of(b"nameserver 198.51.100.1\noptions ndots:2\n", uplinks, 1);
        assert_eq!(plain.servers, sockets(&["198.51.100.1:53"]));
        assert_eq!(plain.ndots, 2);
        assert!(Config::of(b"", b"", 1).servers.is_empty());
    }
}
