//! `[path.NAME]` and `[[class]]`: what may be sent, by path and by class of connections.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use manypath_io::path::rate;

use super::file::rule_parts;
use super::table::{At, Table};
use crate::limits::calendar::{Hours, Period, Reset};
use crate::limits::{
    Admission, ClassHours, ClassSpec, Count, PathHours, PathLimit, PathRate, Priority, QuotaSpec,
    RouteLimit, Then as Consequence, read_amount,
};
use crate::target::rules::{Network, Then};

/// Bursts that may leave at once: one byte to 1 GB.
const BURSTS: std::ops::RangeInclusive<u64> = 1..=1 << 30;

/// Connections of a class.
const CONNECTIONS: std::ops::RangeInclusive<u64> = 1..=10_000_000;

/// Weights of paths.
const WEIGHTS: std::ops::RangeInclusive<u64> = 1..=1000;

const RATE: &str = "a rate as \"5mbit\"";

/// A rate with its unit: 1 bit a second to 2^64 - 1.
fn read_rate(text: &str) -> Result<u64, String> {
    rate::parse(text).ok_or_else(|| {
        format!(
            "'{text}' is no rate: write a number with its unit, as 5mbit, 800kbit, 1.5gbit or 1bit, which is the least"
        )
    })
}

/// Both directions, where the file tells them apart or not.
struct Rates {
    up: Option<u64>,
    down: Option<u64>,
    burst: Option<u64>,
}

fn rates_of(table: &Table<'_>) -> Option<Rates> {
    if !table.is_table("rate") {
        let rate = table.needed("rate", table.read("rate", RATE, read_rate))?;
        return Some(Rates {
            up: Some(rate.value),
            down: Some(rate.value),
            burst: None,
        });
    }
    let rates = table.table("rate")?;
    let (up, down) = (
        rates.read("up", RATE, read_rate),
        rates.read("down", RATE, read_rate),
    );
    let burst = rates.amount("burst", BURSTS);
    let nothing = rates.place_of("up").is_none() && rates.place_of("down").is_none();
    if nothing {
        rates.wrong(rates.at, "`rate` says neither `up` nor `down`");
    }
    rates.end();
    Some(Rates {
        up: up.map(|up| up.value),
        down: down.map(|down| down.value),
        burst,
    })
}

/// The tables `[path.NAME]`, and where each begins.
#[derive(Default)]
pub(super) struct Paths {
    pub(super) paths: Vec<PathLimit>,
    /// Those that are known by addresses.
    pub(super) routes: Vec<RouteLimit>,
    pub(super) places: Vec<usize>,
}

/// Reads them.
pub(super) fn paths_of(document: &Table<'_>) -> Paths {
    let mut all = Paths::default();
    for (name, table) in document.named_tables("path") {
        let at = table.at;
        if table
            .place_of("local")
            .or(table.place_of("remote"))
            .is_some()
        {
            all.routes.extend(route_of(name, table));
            all.places.push(at);
            continue;
        }
        let Some(path) = path_of(name, table) else {
            continue;
        };
        let mut paths = all.paths.iter();
        if let Some(other) = paths.find(|p| p.interface == path.interface) {
            let message = format!("[path.{}] is for {} already", other.name, path.interface);
            document.wrong(at, message);
        }
        all.paths.push(path);
        all.places.push(at);
    }
    all
}

/// A path that is known by addresses: it has a rate of what is sent alone.
fn route_of(name: String, table: Table<'_>) -> Option<RouteLimit> {
    const NETWORK: &str = "a network as \"203.0.113.0/24\", or one address";
    let network = |key| table.read(key, NETWORK, str::parse::<Network>);
    let (local, remote) = (network("local"), network("remote"));
    for key in [
        "interface",
        "gateway",
        "priority",
        "weight",
        "overflow",
        "quota",
    ] {
        table.refuse(key, "is for a path that is named by its `interface`: one that is known by `local` or `remote` has `rate` and `schedule`");
    }
    let sent = |table: &Table<'_>, rates: Rates| {
        if let (Some(_), true, Some(at)) =
            (rates.down, table.is_table("rate"), table.place_of("rate"))
        {
            table.wrong(
                at,
                "`down` is for a path that is named by its `interface`: peers are asked by that",
            );
        }
        PathRate {
            down: None,
            ..rate_of(rates)
        }
    };
    let rate = table.place_of("rate").and_then(|_| rates_of(&table));
    let rate = rate.map(|rates| sent(&table, rates));
    let schedule = schedule_of(&table, |hours, rates| Some(sent(hours, rates)));
    if rate.is_none() && table.place_of("rate").is_none() && schedule.is_empty() {
        let message =
            "a path that is known by `local` or `remote` limits nothing: say `rate` or `schedule`";
        table.wrong(table.at, message);
    }
    table.end();
    Some(RouteLimit {
        name,
        local: local.map(|local| local.value),
        remote: remote.map(|remote| remote.value),
        rate,
        schedule: hours_of(schedule),
    })
}

fn hours_of(schedule: Vec<(Hours, PathRate)>) -> Vec<PathHours> {
    let hours = schedule.into_iter();
    hours.map(|(when, rate)| PathHours { when, rate }).collect()
}

fn path_of(name: String, table: Table<'_>) -> Option<PathLimit> {
    let interface = table.needed(
        "interface",
        table.read("interface", "the name of an interface", read_interface),
    );
    let gateway = table.read("gateway", "the address of a router", read_gateway);
    let priority = table.read(
        "priority",
        "always, secondary, backup or never",
        read_priority,
    );
    let weight = weight_of(&table);
    let overflow = table.read("overflow", RATE, read_rate);
    let rates = table.place_of("rate").and_then(|_| rates_of(&table));
    let schedule = schedule_of(&table, |_, rates| Some(rate_of(rates)));
    let quota = quotas_of(&table, |_| None);
    table.end();
    Some(PathLimit {
        name,
        interface: interface?.value,
        gateway: gateway.map(|gateway| gateway.value),
        priority: priority.map(|priority| priority.value).unwrap_or_default(),
        weight,
        overflow: overflow.map(|overflow| overflow.value),
        rate: rates.map(rate_of),
        schedule: hours_of(schedule),
        quota,
    })
}

fn weight_of(table: &Table<'_>) -> Option<NonZeroU16> {
    let weight = table.number("weight", WEIGHTS)?;
    NonZeroU16::new(u16::try_from(weight).ok()?)
}

fn rate_of(rates: Rates) -> PathRate {
    PathRate {
        up: rates.up,
        down: rates.down,
        burst: rates.burst,
    }
}

/// `schedule`: tables of `when` and `rate`.
fn schedule_of<R>(
    table: &Table<'_>,
    read: impl Fn(&Table<'_>, Rates) -> Option<R>,
) -> Vec<(Hours, R)> {
    const WHEN: &str = "hours of the week as \"mon-fri 08:00-18:00\"";
    let tables = table.one_or_more("schedule").into_iter();
    let one = |hours: Table<'_>| {
        let when = hours.needed("when", hours.read("when", WHEN, Hours::read));
        let rates = rates_of(&hours);
        let rates = rates.and_then(|rates| read(&hours, rates));
        hours.end();
        Some((when?.value, rates?))
    };
    tables.filter_map(one).collect()
}

/// `quota`: tables of `amount`, `period`, `reset`, `count` and `then`; `refuses` says why one is none here.
fn quotas_of(
    table: &Table<'_>,
    refuses: impl Fn(Consequence) -> Option<&'static str>,
) -> Vec<QuotaSpec> {
    const AMOUNT: &str = "an amount as \"30GB\"";
    const THEN: &str = "backup, never, or a rate as \"rate 256kbit\"";
    let mut all: Vec<QuotaSpec> = Vec::new();
    for quota in table.one_or_more("quota") {
        let at = quota.at;
        let amount = quota.needed("amount", quota.read("amount", AMOUNT, read_amount));
        let period = quota.needed(
            "period",
            quota.read("period", "day, week or month", Period::read),
        );
        let period = period.map(|period| period.value);
        let reset = quota.read("reset", "a time as \"1st 00:00\"", |text| match period {
            Some(period) => Reset::read(period, text).map(Some),
            // That is told already.
            None => Ok(None),
        });
        let count = quota.read("count", "both, up or down", Count::read);
        let then = quota.needed("then", quota.read("then", THEN, Consequence::read));
        if let Some(then) = &then
            && let Some(why) = refuses(then.value)
        {
            quota.wrong(then.at, why);
        }
        quota.end();
        let reset_at = quota_reset(reset, period);
        let (Some(amount), Some(reset), Some(then)) = (amount, reset_at, then) else {
            continue;
        };
        let spec = QuotaSpec {
            amount: amount.value,
            reset,
            count: count.map(|count| count.value).unwrap_or_default(),
            then: then.value,
        };
        let same = |other: &&QuotaSpec| (&other.reset, other.count) == (&spec.reset, spec.count);
        if all.iter().any(|other| same(&other)) {
            table.wrong(
                at,
                "two quotas count the same bytes in the same period: keep the one that is meant",
            );
        }
        all.push(spec);
    }
    all
}

fn quota_reset(read: Option<At<Option<Reset>>>, period: Option<Period>) -> Option<Reset> {
    match read {
        Some(read) => read.value,
        None => period.map(Reset::usual),
    }
}

/// `[quotas]`: the file that keeps them.
pub(super) fn quota_file_of(document: &Table<'_>) -> Option<PathBuf> {
    let table = document.table("quotas")?;
    let file = table.needed("file", table.path("file"));
    table.end();
    Some(file?.value)
}

fn read_gateway(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is no address of a router, as 192.0.2.1"))
}

fn read_priority(text: &str) -> Result<Priority, String> {
    match text {
        "always" => Ok(Priority::Always),
        "secondary" => Ok(Priority::Secondary),
        "backup" => Ok(Priority::Backup),
        "never" => Ok(Priority::Never),
        _ => Err(format!(
            "'{text}' is none of always, secondary, backup, never"
        )),
    }
}

/// `paths`: whether every interface with a default route is a path beside those that are named.
pub(super) fn routed_of(document: &Table<'_>, named: bool) -> bool {
    let read = |text: &str| match text {
        "routed" => Ok(true),
        "named" => Ok(false),
        _ => Err(format!("'{text}' is neither routed nor named")),
    };
    let Some(paths) = document.read("paths", "routed or named", read) else {
        return true;
    };
    if !paths.value && !named {
        document.wrong(
            paths.at,
            "`paths` is named, and no [path.NAME] names one: say [path.lan] and interface = \"eth0\"",
        );
    }
    paths.value
}

pub(super) fn read_interface(text: &str) -> Result<String, String> {
    // As the kernel has it: IFNAMSIZ less the end.
    let fits = (1..=15).contains(&text.len()) && !text.contains(['/', ' ', ':']);
    match fits {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is no name of an interface")),
    }
}

/// The tables `[[class]]`, and where each begins.
pub(super) fn classes_of(document: &Table<'_>) -> Vec<(ClassSpec, usize)> {
    let mut classes: Vec<(ClassSpec, usize)> = Vec::new();
    for (number, table) in (1..).zip(document.tables("class")) {
        let at = table.at;
        let Some(class) = class_of(number, table) else {
            continue;
        };
        if classes.iter().any(|(other, _)| other.name == class.name) {
            document.wrong(at, format!("two classes are called {}", class.name));
        }
        classes.push((class, at));
    }
    classes
}

fn class_of(number: usize, table: Table<'_>) -> Option<ClassSpec> {
    let name = table.read("name", "a name", super::file::read_name);
    let parts = match table.table("match") {
        Some(matches) => {
            let parts = rule_parts(&matches);
            matches.end();
            parts
        }
        None => super::file::RuleParts::default(),
    };
    let rates = table.place_of("rate").and_then(|_| rates_of(&table));
    if let (Some(at), Some(_)) = (table.place_of("rate"), rates.as_ref().and_then(|r| r.burst)) {
        table.wrong(at, "`burst` is for [path.NAME]: that of a class is 20 ms");
    }
    let weight = weight_of(&table);
    let admission = Admission {
        connections: table.number("connections", CONNECTIONS),
        connection_rate: table
            .read("connection_rate", "a rate as \"20/s\"", str::parse)
            .map(|rate| rate.value),
    };
    let schedule = schedule_of(&table, |hours, rates| {
        if let (Some(at), Some(_)) = (hours.place_of("rate"), rates.burst) {
            hours.wrong(at, "`burst` is for [path.NAME]: that of a class is 20 ms");
        }
        Some((rates.up, rates.down))
    });
    let quota = quotas_of(&table, |then| match then {
        Consequence::Rate(_) | Consequence::Never => None,
        Consequence::Backup => Some(
            "`then`: a class has no path that could be used less; say a rate, as \"rate 256kbit\", or \"never\"",
        ),
    });
    let limits = [
        "rate",
        "weight",
        "connections",
        "connection_rate",
        "quota",
        "schedule",
    ];
    if limits.iter().all(|key| table.place_of(key).is_none()) {
        let message = "[[class]] limits nothing: say `rate`, `weight`, `connections`, `connection_rate`, `quota` or `schedule`";
        table.wrong(table.at, message);
    }
    table.end();
    Some(ClassSpec {
        name: name.map_or_else(|| format!("class{number}"), |name| name.value),
        matches: parts.into_rule(Then::Allow),
        up: rates.as_ref().and_then(|rates| rates.up),
        down: rates.as_ref().and_then(|rates| rates.down),
        weight,
        admission,
        schedule: schedule
            .into_iter()
            .map(|(when, (up, down))| ClassHours { when, up, down })
            .collect(),
        quota,
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::super::read_text;
    use crate::limits::{PathLimit, Priority};

    /// What is told of a file with a listener and this.
    fn told(more: &str) -> Vec<String> {
        let text = format!("[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n{more}");
        let faults = read_text(&text).err().unwrap_or_default();
        let told = faults.into_iter();
        told.map(|f| format!("{}:{} {}", f.line, f.column, f.message))
            .collect()
    }

    #[test]
    fn paths_and_classes_are_read() {
        let text = "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n\
             [path.lte]\ninterface = \"wwan0\"\nrate = { up = \"5mbit\", burst = \"64Ki\" }\n\
             [path.dsl]\ninterface = \"eth0\"\nrate = \"18446744073709551615bit\"\n\
             [[class]]\nname = \"guests\"\nmatch = { client = \"192.168.1.0/24\", port = [80, 443] }\nrate = { down = \"1bit\" }\n\
             [[class]]\nrate = \"10mbit\"\n";
        let config = read_text(text).expect("it is right").config;
        let [dsl, lte] = &config.paths[..] else {
            panic!("two paths")
        };
        let rate = |path: &PathLimit| path.rate.map(|rate| (rate.up, rate.down, rate.burst));
        assert_eq!(
            (dsl.name.as_str(), rate(dsl)),
            ("dsl", Some((Some(u64::MAX), Some(u64::MAX), None)))
        );
        let up = (Some(5_000_000), None, Some(64 << 10));
        assert_eq!(rate(lte), Some(up));
        let [guests, all] = &config.classes[..] else {
            panic!("two classes")
        };
        assert_eq!((guests.up, guests.down), (None, Some(1)));
        assert_eq!((all.up, all.name.as_str()), (Some(10_000_000), "class2"));
    }

    #[test]
    fn what_is_no_rate_is_told_with_its_place() {
        for wrong in [
            "\"0mbit\"",
            "\"\"",
            "\"5\"",
            "\"-1mbit\"",
            "\"NaN\"",
            "\"NaNmbit\"",
            "\"1e30bit\"",
            "\"18446744073709551616bit\"",
            "5",
            "-1",
            "nan",
            "1e30",
            "{ burst = \"1Ki\" }",
            "{}",
        ] {
            for table in ["[path.a]\ninterface = \"eth0\"", "[[class]]\nname = \"a\""] {
                let told = told(&format!("{table}\nrate = {wrong}\n"));
                assert!(!told.is_empty(), "{wrong} is taken");
                let there = told.iter().all(|fault| fault.starts_with("6:8 "));
                assert!(there, "{wrong}: {told:?}");
            }
        }
    }

    #[test]
    fn connections_of_a_class_are_read_and_wrong_ones_told_with_their_place() {
        let text = "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n\
             [[class]]\nconnections = 200\nconnection_rate = \"20/s\"\n";
        let config = read_text(text).expect("it is right").config;
        let [class] = &config.classes[..] else {
            panic!("one class")
        };
        assert_eq!(class.admission.connections, Some(200));
        assert_eq!(class.admission.connection_rate, "20/s".parse().ok());
        for (key, wrong) in [
            ("connections", "0"),
            ("connections", "-1"),
            ("connections", "nan"),
            ("connections", "18446744073709551616"),
            ("connections", "\"200\""),
            ("connection_rate", "20"),
            ("connection_rate", "\"20\""),
            ("connection_rate", "\"0/s\""),
            ("connection_rate", "\"-1/s\""),
            ("connection_rate", "\"NaN/s\""),
        ] {
            let told = told(&format!("[[class]]\n{key} = {wrong}\n"));
            let place = format!("5:{} `{key}`", key.len() + 4);
            let there = told.first().is_some_and(|fault| fault.starts_with(&place));
            assert!(there, "{key} = {wrong}: {told:?}");
        }
    }

    #[test]
    fn limits_that_nobody_could_keep_are_refused() {
        let twice = told(
            "[path.a]\ninterface = \"eth0\"\nrate = \"1mbit\"\n[path.b]\ninterface = \"eth0\"\nrate = \"1mbit\"\n",
        );
        assert!(twice[0].contains("is for eth0 already"), "{twice:?}");
        let bare = told("[path.a]\n[[class]]\n");
        assert_eq!(bare.len(), 2, "{bare:?}");
        let names = told(
            "[[class]]\nname = \"a\"\nrate = \"1bit\"\n[[class]]\nname = \"a\"\nrate = \"1bit\"\n",
        );
        assert!(names[0].contains("two classes are called a"), "{names:?}");
        let key = told("[[class]]\nrate = \"1bit\"\nquotum = 1\n");
        assert!(key[0].contains("unknown key `quotum`"), "{key:?}");
    }

    #[test]
    fn paths_are_named_with_what_they_are_for() {
        let listen = "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n";
        let read = |text: &str| read_text(text).map(|draft| draft.config);
        let text = format!(
            "paths = \"named\"\n{listen}[path.lte]\ninterface = \"wwan0\"\npriority = \"backup\"\ngateway = \"192.0.2.1\"\n[path.dsl]\ninterface = \"eth0\"\n"
        );
        let config = read(&text).expect("it is right");
        assert!(!config.routed);
        let [dsl, lte] = &config.paths[..] else {
            panic!("two paths")
        };
        assert_eq!((dsl.priority, dsl.rate), (Priority::Always, None));
        assert_eq!(lte.priority, Priority::Backup);
        assert_eq!(lte.gateway, "192.0.2.1".parse().ok());
        assert!(read(listen).expect("it is right").routed);
        for (text, place, what) in [
            (
                format!("paths = \"named\"\n{listen}"),
                "1:9",
                "no [path.NAME] names one",
            ),
            (
                format!("paths = \"all\"\n{listen}"),
                "1:9",
                "neither routed nor named",
            ),
            (
                format!("{listen}[path.a]\ninterface = \"eth0\"\npriority = \"secnd\"\n"),
                "6:12",
                "none of always, secondary, backup, never",
            ),
            (
                format!("{listen}[path.a]\ninterface = \"eth0\"\ngateway = \"router\"\n"),
                "6:11",
                "no address of a router",
            ),
        ] {
            let faults = read(&text).expect_err(what);
            let told: Vec<String> = faults
                .iter()
                .map(|f| format!("{}:{} {}", f.line, f.column, f.message))
                .collect();
            assert!(
                told[0].starts_with(place) && told[0].contains(what),
                "{told:?}"
            );
        }
    }

    #[test]
    fn paths_are_known_by_addresses_too() {
        let text = "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n\
             [path.clients]\nremote = \"203.0.113.0/24\"\nrate = \"20mbit\"\n\
             [path.uplink]\nlocal = \"10.1.0.1\"\nremote = \"2001:db8::/32\"\nrate = { up = \"5mbit\" }\n";
        let config = read_text(text).expect("it is right").config;
        assert!(config.paths.is_empty());
        let [clients, uplink] = &config.routes[..] else {
            panic!("two paths")
        };
        let up = |route: &crate::limits::RouteLimit| route.rate.map(|rate| (rate.up, rate.down));
        assert_eq!(clients.remote, "203.0.113.0/24".parse().ok());
        assert_eq!(
            (clients.local, up(clients)),
            (None, Some((Some(20_000_000), None)))
        );
        assert_eq!(uplink.local, "10.1.0.1".parse().ok());
        for (line, place, what) in [
            ("rate = \"0mbit\"", "6:8", "is no rate"),
            ("rate = { down = \"1mbit\" }", "6:8", "`down` is for a path"),
            ("priority = \"backup\"", "6:12", "named by its `interface`"),
            ("interface = \"eth0\"", "6:13", "named by its `interface`"),
            ("remote = \"10.1.0.1/24\"", "6:10", "bits beyond its prefix"),
        ] {
            let told = told(&format!("[path.a]\nlocal = \"10.1.0.0/24\"\n{line}\n"));
            let there = told
                .iter()
                .any(|fault| fault.starts_with(place) && fault.contains(what));
            assert!(there, "{line}: {told:?}");
        }
        let bare = told("[path.a]\nremote = \"10.1.0.0/24\"\n");
        assert!(bare[0].contains("limits nothing"), "{bare:?}");
    }

    #[test]
    fn weights_and_overflows_are_read_and_wrong_ones_told_with_their_place() {
        let text = "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n\
             [path.lte]\ninterface = \"wwan0\"\npriority = \"secondary\"\nweight = 7\noverflow = \"30mbit\"\n";
        let config = read_text(text).expect("it is right").config;
        let lte = &config.paths[0];
        assert_eq!(lte.priority, Priority::Secondary);
        assert_eq!(lte.weight, NonZeroU16::new(7));
        assert_eq!(lte.overflow, Some(30_000_000));
        for (key, wrong) in [
            // Without zero, none sum to zero.
            ("weight", "0"),
            ("weight", "-1"),
            ("weight", "1001"),
            ("weight", "1.5"),
            ("weight", "nan"),
            ("weight", "18446744073709551616"),
            ("weight", "\"7\""),
            ("overflow", "30"),
            ("overflow", "\"30\""),
            ("overflow", "\"0mbit\""),
            ("overflow", "\"-1mbit\""),
            ("overflow", "\"NaNmbit\""),
        ] {
            let told = told(&format!(
                "[path.a]\ninterface = \"eth0\"\n{key} = {wrong}\n"
            ));
            let place = format!("6:{} `{key}`", key.len() + 4);
            let there = told.first().is_some_and(|fault| fault.starts_with(&place));
            assert!(there, "{key} = {wrong}: {told:?}");
        }
    }

    #[test]
    fn quotas_and_schedules_are_read() {
        let text = "[[listen]]\non = \"127.0.0.1:3128\"\nopening = \"http\"\n\
             [quotas]\nfile = \"/run/q.json\"\n\
             [path.lte]\ninterface = \"wwan0\"\n\
             quota = [{ amount = \"5GB\", period = \"day\", then = \"backup\" },\
              { amount = \"30GB\", period = \"month\", reset = \"1st 00:00 Europe/Brussels\", count = \"down\", then = \"rate 256kbit\" }]\n\
             schedule = { when = \"mon-fri 08:00-18:00\", rate = { up = \"5mbit\", burst = \"9Ki\" } }\n\
             [[class]]\nquota = { amount = \"2GB\", period = \"day\", then = \"rate 1mbit\" }\n\
             schedule = [{ when = \"22:00-06:00 UTC\", rate = { down = \"1mbit\" } }]\n";
        let config = read_text(text).expect("it is right").config;
        assert_eq!(config.quota_file.to_str(), Some("/run/q.json"));
        assert!(config.has_quotas());
        let lte = &config.paths[0];
        let told: Vec<String> = lte.quota.iter().map(ToString::to_string).collect();
        assert!(told[0].starts_with("5GB a day from 00:00 "), "{told:?}");
        let month = "30GB a month from 1st 00:00 Europe/Brussels, down alone, then rate 256kbit";
        assert_eq!(told[1], month);
        assert_eq!(lte.schedule[0].rate.burst, Some(9 << 10));
        let class = &config.classes[0];
        assert_eq!(class.quota.len(), 1);
        assert_eq!(class.schedule[0].down, Some(1_000_000));
    }

    #[test]
    fn what_is_no_quota_is_told_with_its_place() {
        let right = [
            ("amount", "\"5GB\""),
            ("period", "\"month\""),
            ("reset", "\"1st 00:00 UTC\""),
            ("count", "\"up\""),
            ("then", "\"rate 1mbit\""),
        ];
        for (key, wrong, what) in [
            ("amount", "5000000000", "wants an amount"),
            ("amount", "nan", "wants an amount"),
            ("amount", "-1", "wants an amount"),
            ("amount", "\"5000000000\"", "has no unit"),
            ("amount", "\"0GB\"", "is nothing"),
            ("amount", "\"-1GB\"", "no amount"),
            ("amount", "\"NaNGB\"", "no amount"),
            ("amount", "\"18446744073709551616B\"", "no amount"),
            ("period", "\"year\"", "none of day, week, month"),
            ("reset", "\"0th 00:00\"", "says not when a month begins"),
            ("reset", "\"1st 00:00 Europe/Atlantis\"", "no time zone"),
            ("count", "\"all\"", "none of both, up, down"),
            ("then", "\"stop\"", "none of backup, never"),
            ("then", "\"rate 0bit\"", "none of backup, never"),
            ("then", "\"rate 5\"", "none of backup, never"),
        ] {
            let keys = right.map(|(name, value)| {
                let value = if name == key { wrong } else { value };
                format!("{name} = {value}")
            });
            let line = format!("quota = {{ {} }}", keys.join(", "));
            for table in ["[path.a]\ninterface = \"eth0\"", "[[class]]\nname = \"a\""] {
                let told = told(&format!("{table}\n{line}\n"));
                let at = line.find(wrong).map_or(0, |at| at + 1);
                let there = told[0].starts_with(&format!("6:{at} ")) && told[0].contains(what);
                assert!(there, "{key} = {wrong}: {told:?}");
            }
        }
        for (line, what) in [
            ("quota = {}", "has no `amount`"),
            ("quota = []", "empty list"),
            ("quota = \"5GB\"", "wants a table"),
            ("schedule = {}", "has no `when`"),
            ("schedule = { when = \"08:00-18:00\" }", "has no `rate`"),
            (
                "schedule = { when = \"8-18\", rate = \"1mbit\" }",
                "no hours of the week",
            ),
            (
                "schedule = { when = \"08:00-18:00\", rate = \"0mbit\" }",
                "is no rate",
            ),
            (
                "quota = { amount = \"1GB\", period = \"day\", then = \"rate 1bit\", amuont = 1 }",
                "is `amount` meant",
            ),
        ] {
            let told = told(&format!("[path.a]\ninterface = \"eth0\"\n{line}\n"));
            assert!(
                told.iter().any(|fault| fault.contains(what)),
                "{line}: {told:?}"
            );
        }
        let quota = "{ amount = \"1GB\", period = \"day\", then = \"rate 1bit\" }";
        let twice = told(&format!(
            "[path.a]\ninterface = \"eth0\"\nquota = [{quota}, {quota}]\n"
        ));
        assert!(twice[0].contains("count the same bytes"), "{twice:?}");
        let class =
            told("[[class]]\nquota = { amount = \"1GB\", period = \"day\", then = \"backup\" }\n");
        assert!(
            class[0].contains("no path that could be used less"),
            "{class:?}"
        );
        let never = "[[class]]\nquota = { amount = \"1GB\", period = \"day\", then = \"never\" }\n";
        assert!(told(never).is_empty());
    }
}
