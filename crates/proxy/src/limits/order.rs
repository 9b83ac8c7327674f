//! Limits of our stack, as the control socket sets and shows them.

use std::time::Duration;

use manypath_control::report::LimitReport;
use manypath_control::wire::{LimitOf, LimitOrder};
use manypath_io::Host;
use manypath_stack::ids::ConnId;
use manypath_stack::{ClassId, IfaceId, LimitState, Limited, RateLimit};

use super::told::is_told;

/// Packets of a class or a connection are no longer than this, whatever path they take, bytes.
pub(crate) const MTU: u16 = 1500;

/// Why an order was not carried out: a code of the protocol, and words.
pub(crate) type Refused = (&'static str, String);

/// A limit with the usual burst, or another.
pub(super) fn limit(bits_per_sec: u64, burst: Option<u64>, mtu: u16) -> RateLimit {
    let usual = RateLimit::new(bits_per_sec, mtu);
    RateLimit {
        burst: burst.unwrap_or(usual.burst),
        ..usual
    }
}

/// What an order is about, and which of its directions, up and down: `NAME/up` and `NAME/down` are one of a class, `NAME/down` that of a path.
pub(crate) fn ways(order: &LimitOrder) -> (&str, [bool; 2]) {
    match (order.of, order.name.rsplit_once('/')) {
        (LimitOf::Path | LimitOf::Class, Some((name, "down"))) => (name, [false, true]),
        (LimitOf::Class, Some((name, "up"))) => (name, [true, false]),
        (LimitOf::Class, _) => (&order.name, [true, true]),
        (LimitOf::Path | LimitOf::Connection, _) => (&order.name, [true, false]),
    }
}

/// As reports have it; with room for another one.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2)
}

/// Sets, changes or removes a limit of a path or of a connection; `route`: the class of a path that is known by addresses.
pub(super) fn obey(host: &Host, order: &LimitOrder, route: Option<ClassId>) -> Result<(), Refused> {
    let known = route.map(Limited::Class).or_else(|| named(host, order));
    let what = known.ok_or_else(|| missing(order))?;
    let bits = order.bits_per_second;
    let limit = bits.map(|bits| limit(bits, order.burst, MTU));
    host.limit(what, limit).map_err(|_| missing(order))
}

/// What an order is about.
fn named(host: &Host, order: &LimitOrder) -> Option<Limited> {
    match order.of {
        LimitOf::Path => {
            let mut known = ifaces(host).into_iter();
            let found = known.find(|(_, name)| *name == order.name);
            found.map(|(iface, _)| Limited::Path(iface))
        }
        LimitOf::Connection => order.name.parse::<ConnId>().ok().map(Limited::Connection),
        LimitOf::Class => None,
    }
}

pub(super) fn missing(order: &LimitOrder) -> Refused {
    let (of, name) = (order.of.name(), &order.name);
    ("not_found", format!("there is no {of} {name}"))
}

/// The interfaces that have paths, be they without a link at present.
pub(super) fn ifaces(host: &Host) -> Vec<(IfaceId, String)> {
    let stalled = host.stalled().into_iter().map(|(path, _)| path);
    let paths = host.paths().into_iter().chain(stalled);
    let named = paths.filter_map(|path| Some((path.iface, host.iface_name(path.iface)?)));
    named.collect()
}

/// What a class of the stack is, and its name.
type ClassName<'a> = dyn Fn(ClassId) -> Option<(LimitOf, String)> + 'a;

/// The limits of a stack, and what each does.
pub(super) fn reports(host: &Host, class: &ClassName<'_>) -> Vec<LimitReport> {
    let all = host.limits().into_iter();
    // What clients tell is theirs, and there may be thousands.
    let of_clients = |what: &Limited| matches!(what, Limited::Class(class) if is_told(*class));
    let all = all.filter(|(what, _)| !of_clients(what));
    all.map(|(what, state)| report(host, class, what, &state))
        .collect()
}

fn report(host: &Host, class: &ClassName<'_>, what: Limited, state: &LimitState) -> LimitReport {
    let (of, name) = match what {
        Limited::Path(iface) => {
            let name = host.iface_name(iface);
            (LimitOf::Path, name.unwrap_or_else(|| iface.0.to_string()))
        }
        Limited::Class(id) => class(id).unwrap_or_else(|| (LimitOf::Class, id.0.to_string())),
        Limited::Connection(id) => (LimitOf::Connection, id.to_string()),
    };
    LimitReport {
        of,
        name,
        bits_per_second: state.limit.bits_per_sec,
        burst: state.limit.burst,
        tokens: state.tokens,
        held_us: state.held.time.as_micros(),
        waits: state.held.times,
        waiting: state.waiting as u64,
        elsewhere_bytes: state.held.elsewhere,
    }
}
