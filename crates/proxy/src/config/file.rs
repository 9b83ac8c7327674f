//! From the text of a configuration file to a [`Config`].

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::de::DeTable;

use super::fault::{Fault, place};
use super::outward::{resolver_of, roots_of, via_of};
use super::table::{At, Notes, Table};
use super::taken::{not_kept, not_taken_to, taken_of};
use super::{Config, Limits, Listen, Log, MetricsAt, default_quota_file, limited};
use crate::endpoint::{Endpoint, Proto};
use crate::serve::{ForwardedHeader, ListenerSpec, OpeningKind, ProxyVersion, TlsFiles};
use crate::target::rules::{Network, Pattern, Rule, Then};

/// Bounds of times that are waited: longer ones than a year are mistakes.
const TIMES: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(366 * 24 * 3600);

/// Bounds of what is counted.
const COUNTS: RangeInclusive<u64> = 1..=10_000_000;

/// A file in the making: what it says, and where its parts stand.
#[derive(Debug)]
pub struct Draft {
    /// What it says.
    pub config: Config,
    /// Where each listener begins, as line and column.
    pub listeners: Vec<(usize, usize)>,
    /// Where each rule begins.
    pub rules: Vec<(usize, usize)>,
    /// Where each path begins.
    pub paths: Vec<(usize, usize)>,
}

/// Reads the text of a file.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text.
pub fn read_text(text: &str) -> Result<Draft, Vec<Fault>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What follows a broken line may be read wrongly, and would be told as wrong keys.
        return Err(errors.iter().map(|error| syntax(text, error)).collect());
    }
    let notes = Notes::default();
    let (config, listeners, rules, paths) = document_of(Table::document(&notes, &document));
    let faults = notes.into_faults(text);
    if !faults.is_empty() {
        return Err(faults);
    }
    let places = |all: Vec<usize>| all.into_iter().map(|at| place(text, at)).collect();
    Ok(Draft {
        config,
        listeners: places(listeners),
        rules: places(rules),
        paths: places(paths),
    })
}

fn syntax(text: &str, error: &toml::de::Error) -> Fault {
    let at = error.span().map_or(0, |span| span.start);
    let (line, column) = place(text, at);
    Fault {
        line,
        column,
        message: error.message().to_owned(),
    }
}

type Places = Vec<usize>;

fn document_of(document: Table<'_>) -> (Config, Places, Places, Places) {
    let limits = document.table("limits").map(limits_of).unwrap_or_default();
    let (mut listeners, mut listener_places) = (Vec::<Listen>::new(), Vec::new());
    for table in document.tables("listen") {
        let at = table.at;
        let on_at = table.place_of("on").unwrap_or(at);
        let Some(mut listen) = listener_of(table) else {
            continue;
        };
        let on = &listen.spec.on;
        // Port 0 is any free one.
        let taken = |other: &&Listen| other.spec.on.at == on.at && on.at.port() != 0;
        if listeners.iter().any(|other| taken(&other)) {
            document.wrong(on_at, format!("two listeners are on {}", on.at));
        }
        if let Some(other) = listeners.iter().find(|l| l.spec.name == listen.spec.name) {
            let message = format!("two listeners are called {}", other.spec.name);
            document.wrong(at, message);
        }
        listen.spec.bounds = limits.bounds.clone();
        listeners.push(listen);
        listener_places.push(at);
    }
    let (mut rules, mut rule_places) = (Vec::new(), Vec::new());
    for table in document.tables("rule") {
        let at = table.at;
        if let Some(rule) = rule_of(table) {
            rules.push(rule);
            rule_places.push(at);
        }
    }
    let limited::Paths {
        paths,
        routes,
        places: path_places,
    } = limited::paths_of(&document);
    let routed = limited::routed_of(&document, !paths.is_empty());
    let classes = limited::classes_of(&document).into_iter();
    let config = Config {
        listeners,
        rules,
        limits,
        name_servers: document
            .table("resolver")
            .map(resolver_of)
            .unwrap_or_default(),
        via: document.table("via").and_then(via_of),
        roots: document.table("https").map(roots_of).unwrap_or_default(),
        paths,
        routed,
        quota_file: limited::quota_file_of(&document).unwrap_or_else(default_quota_file),
        classes: classes.map(|(class, _)| class).collect(),
        routes,
        metrics: document.table("metrics").and_then(metrics_of),
        log: document.table("log").map(log_of).unwrap_or_default(),
    };
    document.end();
    (config, listener_places, rule_places, path_places)
}

/// An endpoint; without a kind it is the host's TCP.
///
/// # Errors
/// It is none.
pub fn read_on(text: &str) -> Result<Endpoint, String> {
    let kinds = Proto::ALL.map(Proto::name);
    let kind = text.split_once(':').map_or(text, |(kind, _)| kind);
    match kinds.contains(&kind) {
        true => text.parse(),
        false => Ok(Endpoint {
            proto: Proto::Tcp,
            at: text.parse()?,
        }),
    }
}

fn listener_of(table: Table<'_>) -> Option<Listen> {
    const ON: &str = "an address and port as \"127.0.0.1:3128\"";
    const TO: &str = "an endpoint as \"mptcp:server.example:80\"";
    let on = table.needed("on", table.read("on", ON, read_on));
    let opening = table.needed("opening", opening_of(&table));
    let name = table.read("name", "a name", read_name);
    let to = table.read("to", TO, str::parse::<Endpoint>);
    let outside = table.read("outside", "tcp, mptcp or kernel-mptcp", str::parse::<Proto>);
    let users = table.path("users");
    let key = table.path("key");
    let tls = table.table("tls").map(tls_of);
    let take_at = table.place_of("take");
    let take = table.table("take").map(taken_of);
    let keep_client = table.switch("keep_client").unwrap_or_default();
    let proxy = table.table("proxy_protocol");
    let (proxy_in, proxy_from, proxy_out) = proxy.map(proxy_protocol_of).unwrap_or_default();
    let forwarded = table.read(
        "forwarded",
        "off, forwarded or x-forwarded-for",
        read_forwarded,
    );
    let at = table.at;
    let kind = opening.as_ref().map(|opening| opening.value);
    let is_fixed = kind == Some(Kind::Fixed);
    keys_fit(&table, kind);
    if is_fixed && to.is_none() && table.place_of("to").is_none() {
        table.wrong(
            at,
            "opening = \"fixed\" wants `to`, the endpoint to which every connection goes",
        );
    }
    if let Some(on) = on
        .as_ref()
        .filter(|on| kind == Some(Kind::Transparent) && on.value.proto != Proto::Tcp)
    {
        table.wrong(
            on.at,
            "`on`: the firewall turns connections to the host's TCP: write tcp:HOST:PORT",
        );
    }
    if let (Some(at), Some(on)) = (take_at, &on)
        && let Some(why) = not_taken_to(&on.value)
    {
        table.wrong(at, why);
    }
    let outside_kind = outside
        .as_ref()
        .map_or(Proto::Mptcp, |outside| outside.value);
    if let Some(at) = table.place_of("keep_client").filter(|_| keep_client)
        && let Some(why) = not_kept(outside_kind, take.as_ref().and_then(Option::as_ref))
    {
        table.wrong(at, why);
    }
    if let Some(to) = to.as_ref().filter(|to| to.value.at.port() == 0) {
        table.wrong(to.at, "`to`: nobody can be reached at port 0");
    }
    table.end();
    let (on, opening) = (on?.value, opening?.value);
    let opening = match opening {
        Kind::Http => OpeningKind::Http,
        Kind::Socks5 => OpeningKind::Socks5,
        Kind::Convert => OpeningKind::Convert,
        Kind::Transparent => OpeningKind::Transparent,
        Kind::Fixed => OpeningKind::Fixed(to?.value),
    };
    let name = name.map_or_else(
        || format!("{} {}", opening.name(), on.at),
        |name| name.value,
    );
    let mut spec = ListenerSpec::new(name, on, opening, outside_kind);
    spec.tls = tls.flatten();
    spec.take = take.flatten();
    spec.keep_client = keep_client;
    spec.key = key.map(|key| key.value);
    (spec.proxy_in, spec.proxy_out) = (proxy_in, proxy_out);
    spec.proxy_from = proxy_from;
    spec.forwarded = forwarded
        .map(|forwarded| forwarded.value)
        .unwrap_or_default();
    Some(Listen {
        spec,
        users: users.map(|users| users.value),
    })
}

/// Notes the keys of a listener that are for other openings than its own.
fn keys_fit(table: &Table<'_>, kind: Option<Kind>) {
    let fits = |key: &'static str, wrong: bool, why: &str| {
        if let Some(at) = table.place_of(key).filter(|_| wrong) {
            table.wrong(at, format!("`{key}` {why}"));
        }
    };
    let (is_fixed, is_http) = (kind == Some(Kind::Fixed), kind == Some(Kind::Http));
    let is_known = kind.is_some();
    fits(
        "to",
        is_known && !is_fixed,
        "is for opening = \"fixed\": elsewhere the client names its target",
    );
    fits(
        "outside",
        is_fixed,
        "is for openings whose client names its target: `to` says it here, as \"mptcp:HOST:PORT\"",
    );
    fits(
        "users",
        is_fixed || matches!(kind, Some(Kind::Convert | Kind::Transparent)),
        "is for openings that can ask for a password: http and socks5",
    );
    fits(
        "key",
        is_known && kind != Some(Kind::Convert),
        "is for opening = \"convert\"",
    );
    fits(
        "take",
        is_known && kind != Some(Kind::Transparent),
        "is for opening = \"transparent\"",
    );
    fits(
        "keep_client",
        is_known && kind != Some(Kind::Transparent),
        "is for opening = \"transparent\"",
    );
    fits("tls", is_known && !is_http, "is for opening = \"http\"");
    fits(
        "forwarded",
        is_known && !is_http,
        "is for opening = \"http\"",
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Http,
    Socks5,
    Convert,
    Transparent,
    Fixed,
}

fn opening_of(table: &Table<'_>) -> Option<At<Kind>> {
    let read = |text: &str| match text {
        "http" => Ok(Kind::Http),
        "socks5" => Ok(Kind::Socks5),
        "convert" => Ok(Kind::Convert),
        "transparent" => Ok(Kind::Transparent),
        "fixed" => Ok(Kind::Fixed),
        _ => Err(format!(
            "'{text}' is none of http, socks5, convert, transparent, fixed"
        )),
    };
    table.read(
        "opening",
        "http, socks5, convert, transparent or fixed",
        read,
    )
}

/// A name that stands in logs and in labels of metrics.
pub(super) fn read_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
    match (1..=64).contains(&text.len()) && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is no name of 1 to 64 letters, digits and signs"
        )),
    }
}

fn tls_of(table: Table<'_>) -> Option<TlsFiles> {
    let cert = table.needed("cert", table.path("cert"));
    let key = table.needed("key", table.path("key"));
    table.end();
    Some(TlsFiles {
        cert: cert?.value,
        key: key?.value,
    })
}

fn proxy_protocol_of(table: Table<'_>) -> (bool, Vec<Network>, Option<ProxyVersion>) {
    let read = |text: &str| match text {
        "v1" => Ok(ProxyVersion::V1),
        "v2" => Ok(ProxyVersion::V2),
        _ => Err(format!("'{text}' is neither v1 nor v2")),
    };
    let proxy_in = table.switch("in").unwrap_or_default();
    let from = table.list(
        "from",
        "a network as \"192.0.2.0/24\"",
        str::parse::<Network>,
    );
    if let Some(at) = table.place_of("from").filter(|_| !proxy_in) {
        table.wrong(
            at,
            "`from` is for in = true: it says whose headers are believed",
        );
    }
    let proxy_out = table.read("out", "v1 or v2", read);
    table.end();
    (proxy_in, from, proxy_out.map(|out| out.value))
}

fn read_forwarded(text: &str) -> Result<ForwardedHeader, String> {
    match text {
        "off" => Ok(ForwardedHeader::Off),
        "forwarded" => Ok(ForwardedHeader::Forwarded),
        "x-forwarded-for" => Ok(ForwardedHeader::XForwardedFor),
        _ => Err(format!(
            "'{text}' is none of off, forwarded, x-forwarded-for"
        )),
    }
}

/// What a rule is for: an empty list means any.
#[derive(Default)]
pub(super) struct RuleParts {
    client: Vec<Network>,
    user: Vec<String>,
    to: Vec<Pattern>,
    port: Vec<RangeInclusive<u16>>,
}

impl RuleParts {
    pub(super) fn into_rule(self, then: Then) -> Rule {
        let Self {
            client,
            user,
            to,
            port,
        } = self;
        Rule {
            client,
            user,
            to,
            port,
            then,
        }
    }
}

pub(super) fn rule_parts(table: &Table<'_>) -> RuleParts {
    const CLIENT: &str = "a network as \"192.0.2.0/24\"";
    const TO: &str = "a name as \"*.example.net\" or a network";
    RuleParts {
        client: table.list("client", CLIENT, str::parse::<Network>),
        user: table.list("user", "the name of a user", |name| {
            Ok::<_, String>(name.to_owned())
        }),
        to: table.list("to", TO, str::parse::<Pattern>),
        port: table.ports("port"),
    }
}

fn rule_of(table: Table<'_>) -> Option<Rule> {
    let parts = rule_parts(&table);
    let then = table.needed(
        "then",
        table.read("then", "allow or deny", str::parse::<Then>),
    );
    table.end();
    Some(parts.into_rule(then?.value))
}

fn limits_of(table: Table<'_>) -> Limits {
    let mut limits = Limits::default();
    let bounds = &mut limits.bounds;
    let count = |key| {
        let count = table.number(key, COUNTS)?;
        usize::try_from(count).ok()
    };
    if let Some(count) = count("connections") {
        bounds.max_connections = count;
        // A quarter of all, so that three other clients find places beside one.
        bounds.max_per_client = count.div_ceil(4);
    }
    if let Some(count) = count("per_client") {
        bounds.max_per_client = count;
    }
    if let Some(count) = count("all_connections") {
        limits.total = count;
    }
    if let Some(bytes) = table.amount("header_size", 1024..=1 << 20) {
        bounds.header_bytes = usize::try_from(bytes).unwrap_or(bounds.header_bytes);
    }
    let time = |key| table.time(key, TIMES, false).flatten();
    if let Some(time) = time("header_time") {
        bounds.header_time = time;
    }
    if let Some(time) = time("keep_alive") {
        bounds.keep_alive = time;
    }
    if let Some(idle) = table.time("idle", TIMES, true) {
        bounds.idle = idle;
    }
    if let Some(time) = table.time("half_closed", TIMES, true) {
        bounds.half_closed = time;
    }
    if let Some(time) = time("udp_idle") {
        bounds.udp_idle = time;
    }
    if let Some(count) = count("udp_targets") {
        bounds.udp_targets = count;
    }
    if let Some(time) = time("connect_time") {
        limits.connect_time = time;
    }
    if let Some(keepalive) = table.time("tcp_keepalive", TIMES, true) {
        limits.keepalive = keepalive;
    }
    table.end();
    limits
}

fn metrics_of(table: Table<'_>) -> Option<MetricsAt> {
    const ON: &str = "a loopback address and port as \"127.0.0.1:9464\", or \"unix:/run/...\"";
    let on = table.needed("on", table.read("on", ON, str::parse::<MetricsAt>));
    table.end();
    on.map(|on| on.value)
}

fn log_of(table: Table<'_>) -> Log {
    let access = table.read("access", "stdout, off or the path of a file", str::parse);
    let format = table.read("format", "json or text", str::parse);
    table.end();
    Log {
        access: access.map(|access| access.value).unwrap_or_default(),
        format: format.map(|format| format.value).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
