//! From a name to addresses: /etc/hosts, then every name server asked by every path, and last the host's own resolver.
//!
//! The host's resolver alone would do where its first default route works; it waits five seconds for a name server that is silent,
//! each time. Here questions race as SYNs do ([`crate::race`]): a path or a name server that did not answer lately stands behind the
//! others. Sources of names that only the host knows (nsswitch.conf(5): mDNS, directories) are asked last, so they are not lost.

mod config;
mod host;
mod query;

use crate::race::memory::{Candidate, Memory, Way};
use crate::race::{ATTEMPT_DELAY, decide::MOST_ATTEMPTS, race};
use config::Files;
use host::HostResolver;
use query::Servers;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A way to a name server: from which interface and address questions leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameWay {
    /// The interface's name.
    pub iface: String,
    /// The host's address there.
    pub local: IpAddr,
    /// To be used only when nothing better is left.
    pub backup: bool,
}

/// Finds addresses of names, and remembers which name servers answer by which paths.
#[derive(Debug)]
pub struct Names {
    began: Instant,
    memory: Mutex<Memory>,
    files: Mutex<Files>,
    servers: Servers,
}

impl Default for Names {
    fn default() -> Self {
        Names {
            began: Instant::now(),
            memory: Mutex::default(),
            files: Mutex::default(),
            servers: Servers::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is kept is only what was learnt; half of it is as good.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One for the process, as the threads are.
static HOST: HostResolver = HostResolver::new();

/// Whom an attempt asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Server(Candidate),
    Host,
}

type Answer<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

impl Names {
    /// Asks these name servers alone from now on, by UDP, and by TCP for an answer that is too long for that: not those that the host
    /// knows, and not the host's resolver. Without any, those of the host again. /etc/hosts is looked at first in any case.
    pub fn use_servers(&self, servers: Vec<SocketAddr>) {
        lock(&self.files).choose(servers);
    }

    /// The addresses of a host in the order of preference; at least one. `ways` lead to name servers that are not on this host;
    /// without any the host's routes decide. An address is its own.
    ///
    /// # Errors
    /// `InvalidInput` for what can be no name, `NotFound` if nobody knows the name, `TimedOut` if nobody answers; those of the host's
    /// resolver. Each says which name.
    pub async fn lookup(&self, ways: &[NameWay], host: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(addr) = host.parse() {
            return Ok(vec![addr]);
        }
        let found = match check(host) {
            Ok(()) => self.find(ways, host).await,
            Err(what) => Err(io::Error::new(io::ErrorKind::InvalidInput, what)),
        };
        found.map_err(|error| io::Error::new(error.kind(), format!("{host:?}: {error}")))
    }

    async fn find(&self, ways: &[NameWay], host: &str) -> io::Result<Vec<IpAddr>> {
        let (known, config) = {
            let mut files = lock(&self.files);
            files.refresh();
            (files.hosts(host), files.config())
        };
        if !known.is_empty() {
            return Ok(known);
        }
        let candidates = self.candidates(ways, &config.servers);
        let asked = candidates.iter().copied().map(Asked::Server);
        let host_too = (!config.alone).then_some(Asked::Host);
        let asked: Vec<Asked> = asked.chain(host_too).collect();
        let delays: Vec<Duration> = asked.iter().map(delay).collect();
        let outcome = race(&delays, |i| -> Answer<'_> {
            match asked[i] {
                Asked::Server(to) => {
                    let way = ways.iter().find(|way| way.local == to.local);
                    let ask = self
                        .servers
                        .ask(way.cloned(), to.remote, config.clone(), host);
                    Box::pin(ask)
                }
                Asked::Host => Box::pin(HOST.ask(host)),
            }
        })
        .await;
        let fates = &outcome.fates[..candidates.len()];
        let now = self.began.elapsed();
        lock(&self.memory).learn(now, &candidates, fates);
        outcome.result.map(|(_, addrs)| addrs)
    }

    fn candidates(&self, ways: &[NameWay], servers: &[SocketAddr]) -> Vec<Candidate> {
        // A name server on this host is reached by no path.
        let anywhere = |local| Way {
            local,
            backup: false,
        };
        let unbound = [
            anywhere(Ipv4Addr::UNSPECIFIED.into()),
            anywhere(Ipv6Addr::UNSPECIFIED.into()),
        ];
        let bound: Vec<Way> = ways
            .iter()
            .map(|way| Way {
                local: way.local,
                backup: way.backup,
            })
            .collect();
        let now = self.began.elapsed();
        let (here, away): (Vec<SocketAddr>, Vec<SocketAddr>) =
            servers.iter().partition(|s| s.ip().is_loopback());
        let mut memory = lock(&self.memory);
        let mut all = memory.plan(now, &unbound, &here);
        let ways = if bound.is_empty() {
            &unbound[..]
        } else {
            &bound
        };
        all.extend(memory.plan(now, ways, &away));
        // One is left for the host's resolver.
        all.truncate(MOST_ATTEMPTS - 1);
        all
    }
}

/// Whether a text can be the name of a host (RFC 1035 section 2.3.4, RFC 2181 section 11), or what is wrong with it. Names in other
/// scripts grow when they are encoded, so they may fail later. Pure.
fn check(host: &str) -> Result<(), &'static str> {
    let name = host.strip_suffix('.').unwrap_or(host);
    if name.is_empty() {
        return Err("a name cannot be empty");
    }
    if name.len() > 253 {
        return Err("a name has 253 bytes at most");
    }
    if name.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err("a name has no spaces or control characters");
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err("a name has no empty part between two dots"),
            1..=63 => {}
            _ => return Err("no part of a name has more than 63 bytes"),
        }
    }
    Ok(())
}

fn delay(asked: &Asked) -> Duration {
    match asked {
        Asked::Server(candidate) => candidate.delay,
        Asked::Host => ATTEMPT_DELAY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_asked_by_each_path_and_one_on_this_host_by_none() {
        let way = |iface: &str, local: &str| NameWay {
            iface: iface.to_owned(),
            local: local.parse().expect("a literal address"),
            backup: false,
        };
        let ways = [way("wan1", "10.1.0.2"), way("wan2", "10.2.0.2")];
        let servers = ["192.0.2.53:53", "127.0.0.53:53", "192.0.2.54:53"];
        let servers = servers.map(|text| text.parse().expect("a literal address"));
        let order = |ways: &[NameWay]| -> Vec<String> {
            let all = Names::default().candidates(ways, &servers);
            let text = |c: &Candidate| format!("{}>{}", c.local, c.remote);
            all.iter().map(text).collect()
        };
        assert_eq!(
            order(&ways),
            [
                "0.0.0.0>127.0.0.53:53",
                "10.1.0.2>192.0.2.53:53",
                "10.2.0.2>192.0.2.53:53",
                "10.1.0.2>192.0.2.54:53",
                "10.2.0.2>192.0.2.54:53"
            ]
        );
        assert_eq!(
            order(&[]),
            [
                "0.0.0.0>127.0.0.53:53",
                "0.0.0.0>192.0.2.53:53",
                "0.0.0.0>192.0.2.54:53"
            ]
        );
    }

    #[tokio::test]
    async fn what_can_be_no_name_is_said_at_once_and_by_name() {
        let long = ["a".repeat(64), "a.".repeat(130)];
        let names = ["a_b..c", "", ".", ".a", "a b", "a\0b", &long[0], &long[1]];
        for name in names {
            let error = Names::default().lookup(&[], name).await;
            let error = error.expect_err("no name");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
        for name in ["a_b.c", "example.net.", "a", "b\u{fc}cher.example"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[tokio::test]
    async fn an_address_is_its_own_and_localhost_is_here() {
        let names = Names::default();
        for (host, first) in [("192.0.2.7", "192.0.2.7"), ("fd00::1", "fd00::1")] {
            let found = names.lookup(&[], host).await.expect("no question");
            assert_eq!(found, [first.parse::<IpAddr>().expect("literal")]);
        }
        let found = names.lookup(&[], "localhost").await.expect("known");
        assert!(found.iter().all(IpAddr::is_loopback));
    }
}
