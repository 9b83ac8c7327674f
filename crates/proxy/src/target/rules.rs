//! Decides which client may reach which target.
//!
//! Pure: the rules, who asks and for what go in, a verdict comes out. The first rule that matches decides. A rule that names networks
//! cannot be judged before the target's name is resolved; then the decision is taken again, for each address on its own, so that a
//! name that resolves to what nobody may reach is refused whatever it is called.
//!
//! [Special addresses](crate::target::guard::Special), as the loopback and this host's own, are refused unless the rule that decides names a
//! network with that address.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

use crate::target::guard::{Special, unwrapped};

/// The port of HTTPS: where CONNECT may go without a rule that names ports.
const HTTPS: u16 = 443;

/// What a matching rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The target may be reached.
    Allow,
    /// It may not.
    Deny,
}

impl FromStr for Then {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => Err(format!("'{text}' is neither allow nor deny")),
        }
    }
}

/// A network, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Whether an address lies in it. An IPv4 address in IPv6 form (`::ffff:192.0.2.1`) is that IPv4 address.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.0.contains(&addr.to_canonical())
    }

    /// Its first address, and the length of its prefix.
    #[must_use]
    pub fn parts(&self) -> (IpAddr, u8) {
        (self.0.network(), self.0.prefix_len())
    }

    /// Whether an address leads into it, as one of a NAT64 does into the network that is behind the translator.
    fn leads_into(&self, addr: IpAddr) -> bool {
        self.contains(addr) || self.contains(unwrapped(addr))
    }

    /// Whether it is all of IPv4 or IPv6: then no particular address is named.
    fn is_everything(&self) -> bool {
        self.0.prefix_len() == 0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(addr) = text.parse::<IpAddr>() {
            return Ok(Self(addr.to_canonical().into()));
        }
        let net = text.parse::<IpNet>().map_err(|_| {
            format!("'{text}' is no network, as 192.0.2.0/24, 2001:db8::/32 or one address")
        })?;
        if net.addr() != net.network() {
            return Err(format!(
                "'{text}' has bits beyond its prefix: write {} for the network, or {} for the address",
                net.trunc(),
                net.addr()
            ));
        }
        Ok(Self(net))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            write!(f, "{}", self.0.addr())
        } else {
            write!(f, "{}", self.0)
        }
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Which targets a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This name.
    Name(String),
    /// Every name below this one, and not the name itself: `*.example.net`.
    Below(String),
    /// Every address of a network, whether it was asked for or found by a name.
    Network(Network),
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        if text.contains(['/', ':']) {
            return Err(text.parse::<Network>().err().unwrap_or_default());
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = folded(name);
        let is_label =
            |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_of_a_name);
        if name.len() > 253 || !name.split('.').all(is_label) {
            return Err(format!(
                "'{text}' is no name, as www.example.net or *.example.net (international names in their xn-- form), and no network"
            ));
        }
        Ok(match below {
            true => Self::Below(name),
            false => Self::Name(name),
        })
    }
}

/// Letters of host names, and the underscore of service names.
fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// A name as it is compared: lower case, without the dot of the root.
fn folded(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// One rule. An empty list means any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Where the client is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client: Vec<Network>,
    /// Who the client is, by a password that was checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<String>,
    /// Where it wants to go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Pattern>,
    /// To which port.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_ranges")]
    pub port: Vec<RangeInclusive<u16>>,
    /// What happens then.
    pub then: Then,
}

fn as_ranges<S: Serializer>(ports: &[RangeInclusive<u16>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(ports.iter().map(port_text))
}

/// `443`, or `8000-8999`.
fn port_text(ports: &RangeInclusive<u16>) -> String {
    match (ports.start(), ports.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

impl fmt::Display for Rule {
    /// As a sentence: `allow from 192.0.2.0/24 to *.example.net port 80, 443`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T>(
            f: &mut fmt::Formatter<'_>,
            word: &str,
            items: &[T],
            text: impl Fn(&T) -> String,
        ) -> fmt::Result {
            if items.is_empty() {
                return Ok(());
            }
            let items: Vec<String> = items.iter().map(text).collect();
            write!(f, " {word} {}", items.join(", "))
        }
        f.write_str(match self.then {
            Then::Allow => "allow",
            Then::Deny => "deny",
        })?;
        list(f, "from", &self.client, Network::to_string)?;
        list(f, "user", &self.user, String::clone)?;
        list(f, "to", &self.to, Pattern::to_string)?;
        list(f, "port", &self.port, port_text)?;
        let any = self.client.is_empty() && self.user.is_empty();
        match any && self.to.is_empty() && self.port.is_empty() {
            true => f.write_str(" everything"),
            false => Ok(()),
        }
    }
}

/// What is asked. What is not known yet, or not there, is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Where the client is.
    pub client: IpAddr,
    /// Who it is, when its password was right.
    pub user: Option<&'a str>,
    /// The name it asked for; `None` when it asked for an address.
    pub name: Option<&'a str>,
    /// The address: the one asked for, or one of the name's.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// The client wants a tunnel through HTTP (CONNECT).
    pub tunnel: bool,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target may be reached.
    Allowed,
    /// It may not.
    Denied(Denial),
    /// That depends on the addresses that the name has.
    DependsOnAddress,
}

/// Why a target may not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// A rule says so; its number in the file, from 1.
    Rule(usize),
    /// There are rules, and none is for this.
    NoRule,
    /// CONNECT to a port other than 443 that no rule names.
    ConnectPort,
    /// The address leads back to this host, or is not that of one host, and no rule names its network.
    Special(Special),
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(number) => write!(f, "rule {number} denies it"),
            Self::NoRule => f.write_str("no rule allows it"),
            Self::ConnectPort => {
                f.write_str("CONNECT goes to port 443 unless a rule names other ports")
            }
            Self::Special(special) => write!(
                f,
                "a {special} address is refused unless a rule names its network"
            ),
        }
    }
}

/// Whether a rule is for something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    No,
    /// It depends on the address, which is not known.
    Perhaps,
    Yes,
    /// Yes, and by a network of its own that names the address.
    Named,
}

impl Rule {
    /// Whether it is for something, as far as that is known.
    pub(crate) fn is_for(&self, asked: &Question<'_>) -> bool {
        matches!(self.matches(asked), Match::Yes | Match::Named)
    }

    /// Whether it is for everything.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        let any_client = self.client.is_empty() && self.user.is_empty();
        any_client && self.to.is_empty() && self.port.is_empty()
    }

    fn matches(&self, asked: &Question<'_>) -> Match {
        let client = self.client.is_empty()
            || self
                .client
                .iter()
                .any(|network| network.contains(asked.client));
        let user = self.user.is_empty()
            || asked
                .user
                .is_some_and(|name| self.user.iter().any(|user| user == name));
        let port =
            self.port.is_empty() || self.port.iter().any(|range| range.contains(&asked.port));
        if !(client && user && port) {
            return Match::No;
        }
        if self.to.is_empty() {
            return Match::Yes;
        }
        let all = self.to.iter().map(|pattern| pattern.matches(asked));
        // The strongest of them.
        all.max_by_key(|found| *found as u8).unwrap_or(Match::No)
    }
}

impl Pattern {
    fn matches(&self, asked: &Question<'_>) -> Match {
        let name = asked.name.map(folded);
        let yes = match (self, asked.address) {
            (Self::Name(wanted), _) => name.is_some_and(|name| name == *wanted),
            (Self::Below(wanted), _) => name.is_some_and(|name| {
                let rest = name.strip_suffix(wanted.as_str());
                rest.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }),
            (Self::Network(network), Some(addr)) if network.leads_into(addr) => {
                return match network.is_everything() {
                    true => Match::Yes,
                    false => Match::Named,
                };
            }
            (Self::Network(_), Some(_)) => false,
            (Self::Network(_), None) => return Match::Perhaps,
        };
        match yes {
            true => Match::Yes,
            false => Match::No,
        }
    }
}

/// Decides. `special` says what is special about the address, if it is known.
///
/// Without rules everything is allowed but CONNECT to other ports than 443 and special addresses; with rules, what none matches
/// is denied.
#[must_use]
pub fn decide(rules: &[Rule], asked: &Question<'_>, special: Option<Special>) -> Verdict {
    let mut decided = None;
    for (i, rule) in rules.iter().enumerate() {
        match rule.matches(asked) {
            Match::No => {}
            Match::Perhaps => return Verdict::DependsOnAddress,
            found @ (Match::Yes | Match::Named) => {
                if rule.then == Then::Deny {
                    return Verdict::Denied(Denial::Rule(i + 1));
                }
                decided = Some((rule, found));
                break;
            }
        }
    }
    if decided.is_none() && !rules.is_empty() {
        return Verdict::Denied(Denial::NoRule);
    }
    let names_ports = decided.is_some_and(|(rule, _)| !rule.port.is_empty());
    if asked.tunnel && asked.port != HTTPS && !names_ports {
        return Verdict::Denied(Denial::ConnectPort);
    }
    let named = decided.is_some_and(|(_, found)| found == Match::Named);
    match special.filter(|_| !named) {
        Some(special) => Verdict::Denied(Denial::Special(special)),
        None => Verdict::Allowed,
    }
}

#[cfg(test)]
mod tests;
