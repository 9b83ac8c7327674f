//! What is in force, for people and for programs.

use std::fmt::Write as _;

use manypath_io::path::rate;
use serde::Serialize;
use serde_json::{Value, json};

use super::check::Checked;
use super::{Config, Listen};
use crate::limits::{ClassSpec, PathLimit, Priority, QuotaSpec, RouteLimit};
use crate::serve::{ForwardedHeader, OpeningKind, ProxyVersion};
use crate::taking::Taken;
use crate::target::rules::Rule;
use crate::target::tls::Roots;
use crate::units::{exact_bytes, span};

/// A configuration as one JSON object, in the words of the file; times in seconds, amounts in bytes.
#[must_use]
pub fn as_json(checked: &Checked) -> Value {
    let config = &checked.config;
    let bounds = &config.limits.bounds;
    let seconds = |time: std::time::Duration| time.as_secs_f64();
    json!({
        "listen": config.listeners.iter().map(listener_json).collect::<Vec<_>>(),
        "rule": config.rules,
        "otherwise": otherwise(config),
        "limits": {
            "all_connections": config.limits.total,
            "connections": bounds.max_connections,
            "per_client": bounds.max_per_client,
            "header_size": bounds.header_bytes,
            "header_time": seconds(bounds.header_time),
            "keep_alive": seconds(bounds.keep_alive),
            "idle": bounds.idle.map(seconds),
            "half_closed": bounds.half_closed.map(seconds),
            "udp_idle": seconds(bounds.udp_idle),
            "udp_targets": bounds.udp_targets,
            "connect_time": seconds(config.limits.connect_time),
            "tcp_keepalive": config.limits.keepalive.map(seconds),
        },
        "resolver": { "servers": config.name_servers },
        "via": config.via.as_ref().map(|via| json!({ "converter": via.at.to_string(), "key": via.key, "direct": via.direct })),
        "https": { "ca": authorities(&config.roots) },
        "paths": if config.routed { "routed" } else { "named" },
        "path": config.paths,
        "class": config.classes,
        "quotas": { "file": config.quota_file },
        "metrics": config.metrics.as_ref().map(|on| json!({ "on": on.to_string() })),
        "log": { "access": config.log.access.to_string(), "format": config.log.format },
        "warnings": checked.warnings,
    })
}

fn listener_json(listen: &Listen) -> Value {
    let spec = &listen.spec;
    #[derive(Serialize)]
    struct Tls<'a> {
        cert: &'a std::path::Path,
        key: &'a std::path::Path,
    }
    let (to, outside) = match &spec.opening {
        OpeningKind::Fixed(to) => (Some(to.to_string()), None),
        OpeningKind::Http
        | OpeningKind::Socks5
        | OpeningKind::Convert
        | OpeningKind::Transparent => (None, Some(spec.outside.name())),
    };
    json!({
        "name": &*spec.name,
        "on": spec.on.to_string(),
        "opening": spec.opening.name(),
        "to": to,
        "outside": outside,
        "users": listen.users,
        "key": spec.key,
        "take": spec.take,
        "keep_client": spec.keep_client,
        "tls": spec.tls.as_ref().map(|tls| Tls { cert: &tls.cert, key: &tls.key }),
        "proxy_protocol": { "in": spec.proxy_in, "from": spec.proxy_from, "out": spec.proxy_out.map(version) },
        "forwarded": forwarded(spec.forwarded),
    })
}

/// Who is asked for names.
fn name_servers(config: &Config) -> String {
    let servers = config.name_servers.iter().map(ToString::to_string);
    match servers.collect::<Vec<_>>() {
        servers if servers.is_empty() => "the host's".to_owned(),
        servers => servers.join(", "),
    }
}

/// Whose certificates are believed, in the words of the file.
fn authorities(roots: &Roots) -> Vec<String> {
    let system = roots.system.then(|| "system".to_owned());
    let files = roots.files.iter().map(|file| file.display().to_string());
    system.into_iter().chain(files).collect()
}

fn version(version: ProxyVersion) -> &'static str {
    match version {
        ProxyVersion::V1 => "v1",
        ProxyVersion::V2 => "v2",
    }
}

fn forwarded(header: ForwardedHeader) -> &'static str {
    match header {
        ForwardedHeader::Off => "off",
        ForwardedHeader::Forwarded => "forwarded",
        ForwardedHeader::XForwardedFor => "x-forwarded-for",
    }
}

/// What happens to a request that no rule is for.
fn otherwise(config: &Config) -> &'static str {
    match config.rules.is_empty() {
        true => "allow",
        false => "deny",
    }
}

/// A configuration as a few lines.
#[must_use]
pub fn as_text(checked: &Checked) -> String {
    let config = &checked.config;
    let mut text = String::new();
    for listen in &config.listeners {
        listener_text(&mut text, listen);
    }
    rules_text(&mut text, config);
    limits_text(&mut text, config);
    quota_file_text(&mut text, config);
    let bounds = &config.limits.bounds;
    let or_off = |time: Option<_>| time.map_or_else(|| "off".to_owned(), span);
    let limits = [
        ("all_connections", config.limits.total.to_string()),
        ("connections", bounds.max_connections.to_string()),
        ("per_client", bounds.max_per_client.to_string()),
        ("header_size", exact_bytes(bounds.header_bytes as u64)),
        ("header_time", span(bounds.header_time)),
        ("keep_alive", span(bounds.keep_alive)),
        ("idle", or_off(bounds.idle)),
        ("half_closed", or_off(bounds.half_closed)),
        ("udp_idle", span(bounds.udp_idle)),
        ("udp_targets", bounds.udp_targets.to_string()),
        ("connect_time", span(config.limits.connect_time)),
        ("tcp_keepalive", or_off(config.limits.keepalive)),
    ];
    let limits: Vec<String> = limits
        .into_iter()
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    let metrics = config.metrics.as_ref();
    let metrics = metrics.map_or_else(|| "off".to_owned(), ToString::to_string);
    if let Some(via) = &config.via {
        let key = via.key.as_ref();
        let key = key.map_or(String::new(), |key| format!(", key of {}", key.display()));
        let direct = if via.direct {
            ", direct where the server can"
        } else {
            ""
        };
        let _ = writeln!(text, "via       {}{key}{direct}", via.at);
    }
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "limits    {}\nresolver  {}\nhttps     believes {}\nmetrics   {metrics}\nlog       access {}, {}\n",
        limits.join(", "),
        name_servers(config),
        authorities(&config.roots).join(", "),
        config.log.access,
        config.log.format,
    );
    text
}

fn listener_text(text: &mut String, listen: &Listen) {
    let spec = &listen.spec;
    let mut parts = vec![format!("{} on {}", spec.opening.name(), spec.on)];
    match &spec.opening {
        OpeningKind::Fixed(to) => parts.push(format!("to {to}")),
        OpeningKind::Http
        | OpeningKind::Socks5
        | OpeningKind::Convert
        | OpeningKind::Transparent => {
            parts.push(format!("outside {}", spec.outside));
            parts.push(match (&listen.users, &spec.key) {
                (Some(users), _) => format!("users of {}", users.display()),
                (None, Some(key)) => format!("key of {}", key.display()),
                (None, None) if spec.opening == OpeningKind::Convert => "no key".to_owned(),
                (None, None) if spec.opening == OpeningKind::Transparent => {
                    let by_others = || "whoever the firewall turns to it".to_owned();
                    spec.take.as_ref().map_or_else(by_others, Taken::to_string)
                }
                (None, None) => "no passwords".to_owned(),
            });
        }
    }
    if spec.keep_client {
        parts.push("from the client's own address".to_owned());
    }
    if let Some(tls) = &spec.tls {
        parts.push(format!("TLS by {}", tls.cert.display()));
    }
    if spec.proxy_in {
        let from: Vec<String> = spec.proxy_from.iter().map(ToString::to_string).collect();
        parts.push(match from.is_empty() {
            true => "PROXY protocol in".to_owned(),
            false => format!("PROXY protocol in from {}", from.join(", ")),
        });
    }
    if let Some(out) = spec.proxy_out {
        parts.push(format!("PROXY protocol {} out", version(out)));
    }
    if spec.forwarded != ForwardedHeader::Off {
        parts.push(format!("adds {}", forwarded(spec.forwarded)));
    }
    let _ = writeln!(text, "listen    {}: {}", spec.name, parts.join(", "));
}

fn class_text(class: &ClassSpec) -> String {
    let admission = class.admission;
    let weight = class.weight.map(|weight| format!(", weight {weight}"));
    let most = admission.connections;
    let most = most.map(|most| format!(", {most} connections"));
    let rate = admission.connection_rate;
    let rate = rate.map(|rate| format!(", {rate} begin"));
    weight.into_iter().chain(most).chain(rate).collect()
}

fn path_text(path: &PathLimit) -> String {
    let mut parts = vec![format!("{}: {}", path.name, path.interface)];
    if path.priority != Priority::Always {
        parts.push(path.priority.name().to_owned());
    }
    parts.extend(path.weight.map(|weight| format!("weight {weight}")));
    let overflow = path.overflow;
    parts.extend(overflow.map(|bits| format!("beyond {} of others", rate::text(bits))));
    parts.extend(path.gateway.map(|gateway| format!("by {gateway}")));
    if let Some(limit) = &path.rate {
        let burst = limit.burst.map_or_else(|| "20 ms".to_owned(), exact_bytes);
        if let Some(up) = limit.up {
            let rate = rate::text(up);
            parts.push(format!("up {rate}, at most {burst} at once"));
        }
        parts.extend(limit.down.map(|down| format!("down {}", rate::text(down))));
    }
    parts.join(", ")
}

/// A path that is known by addresses.
fn route_text(route: &RouteLimit) -> String {
    let mut parts = vec![route.name.clone() + ":"];
    parts.extend(route.local.map(|local| format!("from {local}")));
    parts.extend(route.remote.map(|remote| format!("to {remote}")));
    let up = route.rate.and_then(|rate| rate.up);
    parts.extend(up.map(|up| format!("up {}", rate::text(up))));
    for hours in &route.schedule {
        let up = hours.rate.up.map_or_else(|| "any".to_owned(), rate::text);
        parts.push(format!("({}: up {up})", hours.when));
    }
    parts.join(" ")
}

/// What may be sent.
fn limits_text(text: &mut String, config: &Config) {
    let rate = |rate: Option<u64>| rate.map_or_else(|| "any".to_owned(), rate::text);
    for path in &config.paths {
        let _ = writeln!(text, "path      {}", path_text(path));
    }
    for route in &config.routes {
        let _ = writeln!(text, "path      {}", route_text(route));
    }
    if !config.routed {
        text.push_str("path      no other\n");
    }
    let quotas = |text: &mut String, of: &str, name: &str, quotas: &[QuotaSpec]| {
        for quota in quotas {
            let _ = writeln!(text, "quota     {of} {name}: {quota}");
        }
    };
    for path in &config.paths {
        for hours in &path.schedule {
            let (name, when) = (&path.name, &hours.when);
            let (up, down) = (rate(hours.rate.up), rate(hours.rate.down));
            let _ = writeln!(text, "schedule  path {name}: {when}, up {up}, down {down}");
        }
        quotas(text, "path", &path.name, &path.quota);
    }
    for class in &config.classes {
        let (up, down) = (rate(class.up), rate(class.down));
        let matches = class.matches.to_string();
        let matches = matches.trim_start_matches("allow").trim_start();
        let _ = writeln!(
            text,
            "class     {}: {matches}, up {up}, down {down}{}",
            class.name,
            class_text(class)
        );
        for hours in &class.schedule {
            let (name, when) = (&class.name, &hours.when);
            let (up, down) = (rate(hours.up), rate(hours.down));
            let _ = writeln!(text, "schedule  class {name}: {when}, up {up}, down {down}");
        }
        quotas(text, "class", &class.name, &class.quota);
    }
}

/// Where quotas are counted, if there are any.
fn quota_file_text(text: &mut String, config: &Config) {
    if config.has_quotas() {
        let _ = writeln!(text, "quotas    in {}", config.quota_file.display());
    }
}

fn rules_text(text: &mut String, config: &Config) {
    let numbered = config.rules.iter().enumerate();
    let mut lines: Vec<String> = numbered
        .map(|(i, rule): (usize, &Rule)| format!("{:<3} {rule}", i + 1))
        .collect();
    lines.push(match config.rules.is_empty() {
        true => "    allow everything but special addresses, and CONNECT to other ports than 443"
            .to_owned(),
        false => "    deny everything else".to_owned(),
    });
    for line in lines {
        let _ = writeln!(text, "rule  {line}");
    }
}
