//! Checks a configuration as a whole: the files that it names, and whether it is safe.

use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manypath_io::convert::cookie::Key;

use super::file::Draft;
use super::{Config, Fault, Faults, Listen, read_text};
use crate::Error;
use crate::converter::ConverterSpec;
use crate::endpoint::{Endpoint, Proto};
use crate::limits::{Count, QuotaSpec, Then as Consequence};
use crate::serve::OpeningKind;
use crate::serve::tls::Tls;
use crate::taking::is_ipv6;
use crate::target::rules::{Rule, Then};
use crate::target::tls::{Roots, Trust, has_system_roots};
use crate::users::Users;

/// The longest file that is read.
const LONGEST: u64 = 4 << 20;

/// A configuration that can be put in force.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What it says.
    pub config: Config,
    /// The users of each file that it names.
    pub users: HashMap<PathBuf, Arc<Users>>,
    /// Whose certificates of targets are believed.
    pub trust: Trust,
    /// What is allowed and may not be meant.
    pub warnings: Vec<String>,
}

impl Checked {
    /// The users of a listener, if it asks for any.
    #[must_use]
    pub fn users_of(&self, listen: &Listen) -> Option<Arc<Users>> {
        self.users.get(listen.users.as_ref()?).cloned()
    }
}

/// Reads a file and everything that it names.
///
/// # Errors
/// Everything that is wrong.
pub fn read_file(path: &Path) -> Result<Checked, Faults> {
    let text = read(path).map_err(|error| Faults::of_file(path, error))?;
    let faults = |faults| Faults {
        file: path.to_owned(),
        faults,
    };
    let draft = read_text(&text).map_err(faults)?;
    check(draft).map_err(faults)
}

/// Checks what [`read_text`] has read, or what the command line says.
///
/// # Errors
/// Everything that is wrong.
pub fn check(draft: Draft) -> Result<Checked, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut warnings = Vec::new();
    let Draft {
        config,
        listeners,
        rules,
        paths,
    } = draft;
    if config.listeners.is_empty() {
        faults.push(at((0, 0), "there is no [[listen]]: nobody could come"));
    }
    // Each listener holds a place for who comes next.
    if config.limits.total <= config.listeners.len() {
        let message = "`all_connections` of [limits] is not more than there are listeners: none could carry anything";
        faults.push(at((0, 0), message));
    }
    let mut users = HashMap::new();
    for (listen, place) in config.listeners.iter().zip(&listeners) {
        if let Some(path) = &listen.users
            && !users.contains_key(path)
        {
            match read_users(path) {
                Ok(read) => {
                    users.insert(path.clone(), Arc::new(read));
                }
                Err(messages) => faults.extend(messages.into_iter().map(|m| at(*place, m))),
            }
        }
        if let Some(tls) = &listen.spec.tls {
            let loaded = Tls::load(tls).err();
            faults.extend(loaded.map(|error| at(*place, format!("`tls`: {error}"))));
        }
        if let Some(path) = &listen.spec.key
            && let Err(error) = Key::read(path)
        {
            let message = format!("`key`: cannot use {}: {error}", path.display());
            faults.push(at(*place, message));
        }
        if let Some(why) = unsafe_without(listen, &config.rules) {
            faults.push(at(*place, why));
        }
        warnings.extend(warnings_of(listen));
    }
    let trust = trust_of(&config).unwrap_or_else(|error| {
        faults.push(at((0, 0), format!("`ca` of [https]: {error}")));
        Trust::default()
    });
    if let Some(Err(error)) = config.via.as_ref().map(ConverterSpec::open) {
        faults.push(at((0, 0), format!("`key` of [via]: {error}")));
    }
    faults.extend(faults_of_rules(&config, &rules));
    warnings.extend(warnings_of_rules(&config, &users));
    if serves_http(&config) && config.roots == Roots::default() && !has_system_roots() {
        warnings.push(
            "this host trusts no authority, so that https:// targets are not reached: install its certificates (ca-certificates), or name some by `ca` of [https]".to_owned(),
        );
    }
    faults.extend(faults_of_paths(&config, &paths));
    warnings.extend(warnings_of_classes(&config));
    warnings.extend(warnings_of_quotas(&config));
    warnings.extend(unused_via(&config));
    match faults.is_empty() {
        true => Ok(Checked {
            config,
            users,
            trust,
            warnings,
        }),
        false => Err(faults),
    }
}

/// A converter that nothing goes through.
fn unused_via(config: &Config) -> Option<String> {
    let ours = |listen: &Listen| listen.spec.carries() == Proto::Mptcp;
    let used = config.via.is_none() || config.listeners.iter().any(ours);
    (!used).then(|| {
        "no connection goes through the converter of [via]: no listener has `outside = \"mptcp\"`".to_owned()
    })
}

fn at(place: (usize, usize), message: impl Into<String>) -> Fault {
    let (line, column) = place;
    Fault {
        line,
        column,
        message: message.into(),
    }
}

/// The text of a file, which must not be endless.
fn read(path: &Path) -> Result<String, String> {
    let told = |error| format!("cannot read {}: {error}", path.display());
    let meta = fs::metadata(path).map_err(told)?;
    if !meta.is_file() {
        return Err(format!("{} is no file", path.display()));
    }
    if meta.len() > LONGEST {
        return Err(format!("{} is longer than {LONGEST} bytes", path.display()));
    }
    fs::read_to_string(path).map_err(told)
}

fn read_users(path: &Path) -> Result<Users, Vec<String>> {
    let text = read(path).map_err(|error| vec![format!("`users`: {error}")])?;
    let file = path.display();
    Users::read(&text).map_err(|bad| {
        let told = bad.into_iter();
        told.map(|bad| format!("`users`: {file}:{}: {}", bad.line, bad.message))
            .collect()
    })
}

fn serves_http(config: &Config) -> bool {
    let mut listeners = config.listeners.iter();
    listeners.any(|listen| listen.spec.opening == OpeningKind::Http)
}

/// Nothing is read where nobody can ask for an `https` target.
fn trust_of(config: &Config) -> Result<Trust, Error> {
    match serves_http(config) {
        true => Trust::load(&config.roots),
        false => Ok(Trust::default()),
    }
}

/// Whether others than programs of this host reach a listener.
fn is_beyond_loopback(on: &Endpoint) -> bool {
    let host = on.at.host();
    match host.parse::<IpAddr>() {
        Ok(addr) => !addr.to_canonical().is_loopback(),
        Err(_) => !host.eq_ignore_ascii_case("localhost"),
    }
}

/// A listener that lets anybody go anywhere would be found and used within hours.
fn unsafe_without(listen: &Listen, rules: &[Rule]) -> Option<String> {
    let open = matches!(
        listen.spec.opening,
        OpeningKind::Http | OpeningKind::Socks5 | OpeningKind::Convert
    ) && is_beyond_loopback(&listen.spec.on);
    // Where rules say who may, each that allows something has to.
    let says_who = |rule: &Rule| !(rule.client.is_empty() && rule.user.is_empty());
    let mut allowing = rules.iter().filter(|rule| rule.then == Then::Allow);
    let anybody = rules.is_empty() || allowing.any(|rule| !says_who(rule));
    if listen.spec.opening == OpeningKind::Transparent {
        // The firewall says who comes, and nobody who dials it directly gets anywhere.
        return None;
    }
    let asks = listen.users.is_some() || listen.spec.key.is_some();
    let by = match listen.spec.opening {
        OpeningKind::Convert => "by `key`, or by `client`",
        _ => "by `users`, or by `client` or `user`",
    };
    (open && !asks && anybody).then(|| {
        format!(
            "{} is reached from beyond this host: say who may use it, {by} in every [[rule]] that allows something, as client = \"192.168.1.0/24\", then = \"allow\"",
            listen.spec.on
        )
    })
}

fn warnings_of(listen: &Listen) -> Vec<String> {
    let spec = &listen.spec;
    let beyond = is_beyond_loopback(&spec.on);
    let mut told = Vec::new();
    if beyond && listen.users.is_some() && spec.tls.is_none() {
        told.push(format!(
            "{}: passwords go over the network in clear: without `tls`, whoever is on the way reads them",
            spec.name
        ));
    }
    if let Some(taken) = spec.take.as_ref().filter(|_| !is_ipv6(spec)) {
        told.push(format!(
            "{}: IPv6 that comes by {} is not taken: write on = \"[::]:{}\" to take both",
            spec.name,
            taken.interfaces.join(", "),
            spec.on.at.port(),
        ));
    }
    if beyond && spec.proxy_in && spec.proxy_from.is_empty() {
        told.push(format!(
            "{}: whoever reaches it says what the client's address is: name your load balancer by `from` of proxy_protocol",
            spec.name
        ));
    }
    told
}

/// Rules that can never apply.
fn faults_of_rules(config: &Config, places: &[(usize, usize)]) -> Vec<Fault> {
    let asks = config.listeners.iter().any(|listen| listen.users.is_some());
    let named = config.rules.iter().zip(places);
    let named = named.filter(|(rule, _)| !asks && !rule.user.is_empty());
    named
        .map(|(_, place)| at(*place, "`user` never matches: no [[listen]] has `users`"))
        .collect()
}

fn warnings_of_rules(config: &Config, users: &HashMap<PathBuf, Arc<Users>>) -> Vec<String> {
    let mut told = Vec::new();
    let rules = &config.rules;
    let last = rules.iter().position(Rule::is_for_all);
    if let Some(last) = last.filter(|last| last + 1 < rules.len()) {
        let message = format!(
            "rule {} is for everything: no later rule is ever asked",
            last + 1
        );
        told.push(message);
    }
    if !rules.is_empty() && rules.iter().all(|rule| rule.then == Then::Deny) {
        told.push(
            "no rule allows anything: what no rule matches is denied; end with a [[rule]] that says then = \"allow\"".to_owned(),
        );
    }
    for (i, rule) in rules.iter().enumerate() {
        let is_known = |name: &str| users.values().any(|users| users.names().any(|n| n == name));
        for name in rule.user.iter().filter(|name| !is_known(name)) {
            told.push(format!("rule {}: no users file has a user '{name}'", i + 1));
        }
    }
    told
}

/// Limits of paths hold where our stack sends.
fn faults_of_paths(config: &Config, places: &[(usize, usize)]) -> Vec<Fault> {
    let ours = kinds(config).contains(&Proto::Mptcp);
    let all = places.iter().filter(|_| !ours);
    all.map(|place| {
        at(*place, "a path has limits where our stack sends alone, and everything here is TCP or Multipath TCP of the host: say mptcp in `on` or `outside`, or limit a [[class]]")
    })
    .collect()
}

/// What a path's rate does not hold back.
fn warnings_of_quotas(config: &Config) -> Vec<String> {
    let mut told = Vec::new();
    for path in &config.paths {
        if path.rate.is_some_and(|rate| rate.down.is_some()) {
            let who = match &config.via {
                Some(via) => format!(
                    "the converter {} keeps `down` if it is manypath and no NAT changes the path's address; other peers are",
                    via.at
                ),
                None => "peers are".to_owned(),
            };
            told.push(format!(
                "path {}: {who} asked to use it less while it carries more than `down` (MP_PRIO), which they may not do, and do not where they have no other path",
                path.name
            ));
        }
        let slows = |quota: &&QuotaSpec| {
            matches!(quota.then, Consequence::Rate(_)) && quota.count != Count::Up
        };
        if path.quota.iter().any(|quota| slows(&quota)) {
            told.push(format!(
                "path {}: a rate holds back what is sent by it, and peers are asked to use it less when the quota is used up, which they may not do: then = \"never\" ends it",
                path.name
            ));
        }
    }
    told
}

fn warnings_of_classes(config: &Config) -> Vec<String> {
    let (mut told, classes) = (Vec::new(), &config.classes);
    for (i, class) in classes.iter().enumerate() {
        let mut before = classes[..i].iter();
        let covers = |other: &&crate::limits::ClassSpec| {
            let (theirs, ours) = (&other.matches, &class.matches);
            theirs.is_for_all() || theirs == ours
        };
        if let Some(other) = before.find(covers) {
            told.push(format!(
                "class {} is never asked: {} matches all that it matches, and the first that matches counts",
                class.name, other.name
            ));
        }
    }
    let ours = |proto: Proto| proto == Proto::Mptcp;
    let inside: Vec<bool> = config
        .listeners
        .iter()
        .map(|l| ours(l.spec.on.proto))
        .collect();
    if !classes.is_empty() && inside.contains(&true) && inside.contains(&false) {
        told.push(
            "classes: clients over our stack and over the host's TCP have the rate of `down` each"
                .to_owned(),
        );
    }
    told
}

/// The kinds of TCP that a configuration needs.
#[must_use]
pub fn kinds(config: &Config) -> Vec<Proto> {
    let mut kinds = Vec::new();
    for listen in &config.listeners {
        for kind in [listen.spec.on.proto, listen.spec.carries()] {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests;
