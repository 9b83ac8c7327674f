//! Has the host's firewall turn connections to transparent listeners, as long as they are there.
//!
//! Which ones, and how, is the configuration's; the rules themselves and their undoing are [`manypath_host`]'s.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manypath_host::{News, Setup, Take, Turn};
use manypath_io::Watch;
use serde::{Serialize, Serializer};
use tracing::warn;

use crate::Error;
use crate::serve::ListenerSpec;
use crate::target::rules::Network;

/// Rules that one listener may make: one for each interface, network, and range of ports.
pub const MOST_RULES: usize = 256;

/// Connections that are turned to a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// By which interfaces they come.
    #[serde(rename = "interface")]
    pub interfaces: Vec<String>,
    /// From which networks; without any, from all.
    pub from: Vec<Network>,
    /// To which ports; without any, to all.
    #[serde(rename = "port", serialize_with = "as_text")]
    pub ports: Vec<RangeInclusive<u16>>,
    /// How.
    #[serde(rename = "mode", serialize_with = "as_word")]
    pub turn: Turn,
}

/// The word of a configuration.
#[must_use]
pub fn word_of(turn: Turn) -> &'static str {
    match turn {
        Turn::Redirect => "redirect",
        Turn::Tproxy => "tproxy",
    }
}

fn ports_text(ports: &RangeInclusive<u16>) -> String {
    match ports.start() == ports.end() {
        true => ports.start().to_string(),
        false => format!("{}-{}", ports.start(), ports.end()),
    }
}

fn as_text<S: Serializer>(ports: &[RangeInclusive<u16>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(ports.iter().map(ports_text))
}

fn as_word<S: Serializer>(turn: &Turn, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(word_of(*turn))
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from: Vec<String> = self.from.iter().map(ToString::to_string).collect();
        let ports: Vec<String> = self.ports.iter().map(ports_text).collect();
        write!(f, "takes what comes by {}", self.interfaces.join(", "))?;
        if !from.is_empty() {
            write!(f, " from {}", from.join(", "))?;
        }
        if !ports.is_empty() {
            write!(f, " to port {}", ports.join(", "))?;
        }
        write!(f, " ({})", word_of(self.turn))
    }
}

impl Taken {
    /// How many rules of one family it makes.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.interfaces.len() * self.from.len().max(1) * self.ports.len().max(1)
    }

    fn takes(&self, to: u16, ipv6: bool) -> impl Iterator<Item = Take> + '_ {
        let from: Vec<(IpAddr, u8)> = self.from.iter().map(Network::parts).collect();
        self.interfaces.iter().map(move |interface| Take {
            interface: interface.clone(),
            from: from.clone(),
            ports: self.ports.clone(),
            turn: self.turn,
            to,
            ipv6,
        })
    }
}

/// What listeners want to be turned to them.
fn wanted(specs: &[ListenerSpec]) -> Vec<Take> {
    let takes = |spec: &ListenerSpec| {
        let taken = spec.take.as_ref()?;
        // A socket on every address of IPv6 has those of IPv4, too.
        let ipv6 = is_ipv6(spec);
        Some(taken.takes(spec.on.at.port(), ipv6).collect::<Vec<_>>())
    };
    specs.iter().filter_map(takes).flatten().collect()
}

/// Whether a listener has both families, and not IPv4 alone.
#[must_use]
pub fn is_ipv6(spec: &ListenerSpec) -> bool {
    let at = spec.on.at.host().parse::<IpAddr>();
    at.is_ok_and(|addr| addr.is_ipv6())
}

/// The rules that are in force; they are put back when it is dropped.
#[derive(Debug, Default)]
pub struct Taking {
    /// Those of the host; `None` as long as nothing is taken.
    setup: Option<Arc<Mutex<Setup>>>,
    keeper: Option<tokio::task::JoinHandle<()>>,
}

impl Taking {
    /// Nothing is taken yet. Where something will be, what a process that is gone has left is undone, and the note of what is
    /// changed is begun, which root alone may do on some hosts: call it before that is given up.
    ///
    /// # Errors
    /// There is no place for the note.
    pub fn prepare(specs: &[ListenerSpec]) -> Result<Self, Error> {
        let mut taking = Self::default();
        if specs.iter().any(|spec| spec.take.is_some()) {
            taking.setup()?;
        }
        Ok(taking)
    }

    fn setup(&mut self) -> Result<&Arc<Mutex<Setup>>, Error> {
        if self.setup.is_none() {
            let setup = Setup::new()
                .map_err(|e| Error::new("note what is changed on this host".to_owned(), e))?;
            self.setup = Some(Arc::new(Mutex::new(setup)));
        }
        // It was made just now, if it was not there.
        let Some(setup) = &self.setup else {
            unreachable!("it is there")
        };
        Ok(setup)
    }

    /// Has what these listeners want turned to them from now on, and nothing else. What was turned to them before goes on.
    ///
    /// # Errors
    /// The kernel refuses the rules; those before stay in force.
    pub fn apply(&mut self, specs: &[ListenerSpec]) -> Result<(), Error> {
        let wanted = wanted(specs);
        if wanted.is_empty() && self.setup.is_none() {
            return Ok(());
        }
        let setup = Arc::clone(self.setup()?);
        lock(&setup).take(&wanted).map_err(|error| {
            let text = format!(
                "{error}; it takes CAP_NET_ADMIN and a kernel with nft_redir, nft_fib_inet, and for tproxy nft_tproxy and nft_socket (Linux 5.10)"
            );
            let error = std::io::Error::new(error.kind(), text);
            Error::new("put up the rules of `take`".to_owned(), error)
        })?;
        if self.keeper.is_none() {
            self.keeper = Some(tokio::spawn(async move {
                if let Err(error) = keep(&setup).await {
                    warn!(%error, "rules of `take` that others remove are not put back");
                }
            }));
        }
        Ok(())
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        if let Some(keeper) = &self.keeper {
            keeper.abort();
        }
        if let Some(setup) = &self.setup {
            // The keeper may hold it for a moment longer.
            lock(setup).undo();
        }
    }
}

fn lock(setup: &Mutex<Setup>) -> MutexGuard<'_, Setup> {
    // Each change is written down before it is made, so that half of it can be undone, too.
    setup.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at the rules whenever somebody changes what is near them.
async fn keep(setup: &Mutex<Setup>) -> std::io::Result<()> {
    let (routing, rules) = (
        Watch::new(News::of_routing()?)?,
        Watch::new(News::of_rules()?)?,
    );
    loop {
        tokio::select! {
            told = routing.next() => told?,
            told = rules.next() => told?,
        }
        let (restored, result) = lock(setup).repair();
        for what in restored {
            warn!("somebody removed {what}: put back");
        }
        if let Err(error) = result {
            warn!(%error, "cannot put back what somebody changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Proto;
    use crate::serve::OpeningKind;

    #[test]
    fn each_interface_of_each_listener_is_taken_in_the_families_that_it_has() {
        let listener = |on: &str, interfaces: &[&str]| {
            let on = on.parse().expect("an endpoint");
            let mut spec = ListenerSpec::new("test", on, OpeningKind::Transparent, Proto::Tcp);
            spec.take = (!interfaces.is_empty()).then(|| Taken {
                interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
                from: vec!["10.0.0.0/8".parse().expect("a network")],
                ports: vec![80..=80, 8000..=8999],
                turn: Turn::Redirect,
            });
            spec
        };
        let specs = [
            listener("tcp:0.0.0.0:1", &["lan0", "lan1"]),
            listener("tcp:[::]:2", &["lan2"]),
            listener("tcp:127.0.0.1:3", &[]),
        ];
        let found: Vec<(String, u16, bool)> = wanted(&specs)
            .into_iter()
            .map(|take| (take.interface, take.to, take.ipv6))
            .collect();
        let told = |name: &str, to, ipv6| (name.to_owned(), to, ipv6);
        assert_eq!(
            found,
            [
                told("lan0", 1, false),
                told("lan1", 1, false),
                told("lan2", 2, true)
            ]
        );
        let taken = specs[0].take.as_ref().expect("it takes");
        assert_eq!(taken.rules(), 4);
        assert_eq!(
            taken.to_string(),
            "takes what comes by lan0, lan1 from 10.0.0.0/8 to port 80, 8000-8999 (redirect)"
        );
    }
}
