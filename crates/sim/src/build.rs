//! From a scenario to a simulation that is ready to run.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use manypath_stack::StackConfig;
use manypath_stack::api::{ConnOptions, ListenOptions, Offload, PathManager, RateLimit};
use manypath_tcp::time::{Duration, Instant};

use crate::endpoint::{Closing, Gate, Plan};
use crate::fabric::{Fabric, LinkId, NodeId, Port, Side};
use crate::habit::DeafToOldEnd;
use crate::host::{Host, Interface, InterfaceCounters, Service, options};
use crate::middlebox::{BoxSpec, NatSpec, Way};
use crate::reading::Alterations;
use crate::record::Capture;
use crate::rng::Rng;
use crate::scenario::units::Span;
use crate::scenario::{
    Action, AppSpec, CloseSpec, EndSpec, HostSpec, Scenario, ScenarioError, SpreadSpec,
};
use crate::simulation::{App, Happening, RunOptions, Simulation};

/// Number of the randomness of the first host's stack; links have lower ones.
const STACKS: u64 = 1 << 48;
/// Port of the first application's server.
const FIRST_PORT: u16 = 5001;

impl Simulation {
    /// Builds what a scenario describes.
    pub fn new(scenario: Scenario, run: RunOptions) -> Result<Self, ScenarioError> {
        let seed = run.seed.unwrap_or(scenario.seed);
        let mut simulation = Self::empty(scenario.clone(), seed);
        simulation.spurious_timeouts = run.spurious_timeouts;
        let names = build_network(&mut simulation.fabric, &scenario)?;
        let boxes = scenario.links.iter().flat_map(|link| &link.boxes);
        let alterations = Arc::new(Alterations::of(boxes.map(|placed| &placed.spec)));
        for (index, spec) in scenario.hosts.iter().enumerate() {
            let seed = Rng::stream(seed, STACKS + index as u64).bytes();
            let mut host = build_host(spec, &names, seed, &mut simulation.fabric)?;
            host.expect_alterations(&alterations);
            simulation.hosts.push(host);
        }
        for (index, spec) in scenario.apps.iter().enumerate() {
            let app = build_app(index, spec, &scenario, &mut simulation.hosts)?;
            simulation.apps.push(app);
            simulation.happen(at(spec.start), Happening::Connect(index));
        }
        schedule(&mut simulation, &scenario, &names)?;
        if let Some(every) = scenario.sample_every {
            simulation.happen(at(every), Happening::Sample);
        }
        if let Some(to) = run.capture {
            let interfaces = simulation.fabric.interface_names();
            let capture = Capture::new(to, interfaces.iter().map(String::as_str))
                .map_err(|error| ScenarioError::Senseless(error.to_string()))?;
            simulation.fabric.set_capture(Some(capture));
        }
        Ok(simulation)
    }
}

fn at(span: Span) -> Instant {
    Instant::ZERO + span.0
}

/// Links by name, and interfaces by `host.interface` with the end of a link that they are.
#[derive(Debug, Default)]
struct Names {
    links: BTreeMap<String, LinkId>,
    interfaces: BTreeMap<String, Port>,
}

impl Names {
    fn link(&self, place: &str, name: &str) -> Result<LinkId, ScenarioError> {
        self.links
            .get(name)
            .copied()
            .ok_or_else(|| unknown(place, "link", name))
    }
}

fn unknown(place: &str, what: &'static str, name: &str) -> ScenarioError {
    ScenarioError::Unknown {
        place: place.to_owned(),
        what,
        name: name.to_owned(),
    }
}

fn build_network(fabric: &mut Fabric, scenario: &Scenario) -> Result<Names, ScenarioError> {
    let mut names = Names::default();
    let mut nodes: BTreeMap<&str, NodeId> = BTreeMap::new();
    // Hosts first: a host's number is its node's.
    for host in &scenario.hosts {
        nodes.insert(&host.name, fabric.add_host(&host.name));
    }
    for router in &scenario.routers {
        let node = fabric.add_router(&router.name, router.icmp);
        if router.spread == SpreadSpec::RoundRobin {
            fabric.take_turns(node);
        }
        nodes.insert(&router.name, node);
    }
    let mut known = BTreeSet::new();
    let interfaces = scenario.hosts.iter().flat_map(|host| &host.interfaces);
    for address in interfaces.flat_map(|interface| &interface.addresses) {
        if !known.insert(address) {
            let what = format!("two interfaces have the address {address}");
            return Err(ScenarioError::Senseless(what));
        }
    }
    if nodes.len() != scenario.hosts.len() + scenario.routers.len() {
        return Err(ScenarioError::Senseless(
            "two nodes have the same name".into(),
        ));
    }
    for spec in &scenario.links {
        let place = format!("link {}", spec.name);
        let node = |end: &String| {
            let name = end.split_once('.').map_or(end.as_str(), |(host, _)| host);
            nodes
                .get(name)
                .copied()
                .ok_or_else(|| unknown(&place, "end", end))
        };
        let ends = [node(&spec.ends[0])?, node(&spec.ends[1])?];
        let configs = [spec.line.config(&spec.out), spec.line.config(&spec.back)];
        let link = fabric.add_link(&spec.name, ends, configs);
        if names.links.insert(spec.name.clone(), link).is_some() {
            return Err(ScenarioError::Senseless(format!(
                "two links are called {}",
                spec.name
            )));
        }
        for (end, side) in spec.ends.iter().zip([Side::A, Side::B]) {
            if end.contains('.')
                && names
                    .interfaces
                    .insert(end.clone(), Port { link, side })
                    .is_some()
            {
                return Err(ScenarioError::Senseless(format!(
                    "{end} is the end of two links"
                )));
            }
        }
        for placed in &spec.boxes {
            fabric.add_box(port(link, placed.at), placed.spec.build());
        }
    }
    for spec in &scenario.links {
        let link = names.link("a translation", &spec.name)?;
        for placed in &spec.boxes {
            if let BoxSpec::Nat(nat) = &placed.spec {
                route_outside(fabric, port(link, placed.at), nat);
            }
        }
    }
    Ok(names)
}

/// Makes routers send what is meant for the outside addresses of a translation at `port` to its outer side.
fn route_outside(fabric: &mut Fabric, port: Port, nat: &NatSpec) {
    let inner = match nat.inside {
        Way::Out => port,
        Way::In => port.peer(),
    };
    for address in &nat.addresses {
        fabric.add_address(*address, inner);
    }
}

fn port(link: LinkId, end: EndSpec) -> Port {
    let side = match end {
        EndSpec::First => Side::A,
        EndSpec::Second => Side::B,
    };
    Port { link, side }
}

fn build_host(
    spec: &HostSpec,
    names: &Names,
    seed: [u8; 32],
    fabric: &mut Fabric,
) -> Result<Host, ScenarioError> {
    let mut host = Host::new(&spec.name, StackConfig::default(), seed);
    host.habit = spec.deaf_to_old_end.map(DeafToOldEnd::new);
    for interface in &spec.interfaces {
        let end = interface.end(&spec.name);
        let port = *names.interfaces.get(&end).ok_or_else(|| {
            ScenarioError::Senseless(format!("interface {end} is the end of no link"))
        })?;
        for address in &interface.addresses {
            fabric.add_address(*address, port);
        }
        if interface.coalesce.is_some() && interface.offload.is_none() {
            let what = format!("interface {end} coalesces, which needs `offload`");
            return Err(ScenarioError::Senseless(what));
        }
        let max_burst = interface
            .offload
            .map_or(0, |size| u32::try_from(size.0).unwrap_or(65_000));
        host.add_interface(
            Instant::ZERO,
            Interface {
                name: interface.name.clone(),
                port,
                addresses: interface.addresses.clone(),
                mtu: interface.mtu,
                backup: interface.backup,
                offload: Offload {
                    checksum: interface.offload.is_some(),
                    max_burst,
                },
                coalesce: interface.coalesce.map(|span| span.0),
                device_queue: interface.device_queue.map(|size| size.0),
                limit: interface.limit.map(|speed| {
                    RateLimit::new(speed.0.as_bytes_per_sec().saturating_mul(8), interface.mtu)
                }),
                counters: InterfaceCounters::default(),
            },
        );
    }
    Ok(host)
}

fn build_app(
    index: usize,
    spec: &AppSpec,
    scenario: &Scenario,
    hosts: &mut [Host],
) -> Result<App, ScenarioError> {
    let place = format!("application {}", spec.name);
    let host = |name: &String| {
        let found = scenario.hosts.iter().position(|host| host.name == *name);
        found.ok_or_else(|| unknown(&place, "host", name))
    };
    let (client, server) = (host(&spec.client)?, host(&spec.server)?);
    if client == server {
        let what = "client and server are the same host";
        return Err(ScenarioError::Senseless(format!("{place}: {what}")));
    }
    let to = destination(spec, scenario, client, server)?;
    let port = spec.port.unwrap_or(FIRST_PORT + index as u16);
    let (plan, server_plan) = plans(spec)?;
    if spec.parallel.is_some() && spec.spacing.0 == Duration::ZERO {
        return Err(ScenarioError::Senseless(format!(
            "{place}: with `parallel` there must be a `spacing` above zero"
        )));
    }
    let base = ConnOptions {
        path_manager: PathManager::FullMesh,
        ..ConnOptions::default()
    };
    let service = Service {
        app: index,
        plan: server_plan,
        numbered: spec.connections > 1,
    };
    let listen = ListenOptions {
        addr: SocketAddr::new(to, port),
        backlog: spec.connections.max(16) as usize,
        conn: options(
            [&spec.options, &spec.server_options],
            ConnOptions::default(),
        )?,
    };
    let listener = hosts[server]
        .stack
        .listen(listen)
        .map_err(|error| ScenarioError::Senseless(format!("{place}: {error}")))?;
    hosts[server].serve(listener, service);
    Ok(App {
        name: spec.name.clone(),
        client,
        server,
        remote: SocketAddr::new(to, port),
        local: spec.from,
        plan,
        service,
        options: options([&spec.options, &spec.client_options], base)?,
        connections: spec.connections,
        asked: 0,
        spacing: spec.spacing.0,
        parallel: spec.parallel,
    })
}

/// The server's address: as told, or its first of the family of the client's first.
fn destination(
    spec: &AppSpec,
    scenario: &Scenario,
    client: usize,
    server: usize,
) -> Result<IpAddr, ScenarioError> {
    let addresses = |host: usize| {
        scenario.hosts[host]
            .interfaces
            .iter()
            .flat_map(|i| &i.addresses)
    };
    let from = spec.from.or_else(|| addresses(client).next().copied());
    let wanted = |address: &&IpAddr| from.is_some_and(|from| from.is_ipv4() == address.is_ipv4());
    match spec.to {
        Some(to) => Ok(to),
        None => addresses(server).find(wanted).copied().ok_or_else(|| {
            let what = "no address of the server has the family of the client's first";
            ScenarioError::Senseless(format!("application {}: {what}", spec.name))
        }),
    }
}

/// The plans of the client's and the server's end.
fn plans(spec: &AppSpec) -> Result<(Plan, Plan), ScenarioError> {
    let senseless = |what: &str| {
        let text = format!("application {}: {what}", spec.name);
        Err(ScenarioError::Senseless(text))
    };
    let closing = match spec.close {
        CloseSpec::AfterSending => [Closing::AfterSending; 2],
        CloseSpec::AfterBoth => [Closing::AfterBoth; 2],
        CloseSpec::Abort => [Closing::Abort, Closing::PeerAborts],
    };
    let (up, down, pieces, gates) = match (spec.rounds, spec.request, spec.response) {
        (Some(rounds), Some(request), Some(response)) if request.0 > 0 && response.0 > 0 => {
            let wait = |bytes, lag| Gate::AfterReading { bytes, lag };
            (
                request.0 * rounds,
                response.0 * rounds,
                [request.0, response.0],
                [wait(response.0, 0), wait(request.0, 1)],
            )
        }
        (None, None, None) => {
            let (piece, gate) = match (spec.burst, spec.pause) {
                (Some(burst), Some(pause)) if burst.0 > 0 => (burst.0, Gate::Pause(pause.0)),
                (None, None) => (u64::MAX / 2, Gate::Open),
                _ => return senseless("`burst` and `pause` go together"),
            };
            (spec.upload.0, spec.download.0, [piece; 2], [gate; 2])
        }
        _ => return senseless("`rounds`, `request` and `response` go together"),
    };
    let plan = |send, expect, side: usize, read: Option<crate::scenario::units::Speed>| Plan {
        send,
        piece: pieces[side],
        gate: gates[side],
        expect,
        read_rate: read.map(|speed| speed.0),
        closing: closing[side],
    };
    Ok((
        plan(up, down, 0, spec.client_reads),
        plan(down, up, 1, spec.server_reads),
    ))
}

/// Puts everything that happens to the network into the queue.
fn schedule(
    simulation: &mut Simulation,
    scenario: &Scenario,
    names: &Names,
) -> Result<(), ScenarioError> {
    for spec in &scenario.links {
        let link = names.link("an outage", &spec.name)?;
        for [from, to] in &spec.outages {
            if from.0 >= to.0 {
                return Err(ScenarioError::Senseless(format!(
                    "an outage of link {} ends before it begins",
                    spec.name
                )));
            }
            simulation.happen(at(*from), Happening::Up(link, false));
            simulation.happen(at(*to), Happening::Up(link, true));
        }
    }
    for action in &scenario.events {
        let what = match action {
            Action::Cut { link, .. } => Happening::Up(names.link("an event", link)?, false),
            Action::Mend { link, .. } => Happening::Up(names.link("an event", link)?, true),
            Action::Change {
                link,
                from,
                rate,
                delay,
                loss,
                ..
            } => {
                let link = names.link("an event", link)?;
                let both = [EndSpec::First, EndSpec::Second].map(|end| port(link, end));
                Happening::Change {
                    from: from.map_or(both.to_vec(), |end| vec![port(link, end)]),
                    rate: rate.map(|speed| speed.0),
                    delay: delay.map(|span: Span| -> Duration { span.0 }),
                    loss: loss.as_ref().map(crate::scenario::LossSpecs::models),
                }
            }
            Action::RemoveAddress {
                interface, address, ..
            } => address_event(scenario, interface, *address, false)?,
            Action::AddAddress {
                interface, address, ..
            } => address_event(scenario, interface, *address, true)?,
            Action::SetOptions { app, options, .. } => {
                options.apply(&mut ConnOptions::default())?;
                let known = scenario.apps.iter().position(|spec| spec.name == *app);
                Happening::Options {
                    app: known.ok_or_else(|| unknown("an event", "app", app))?,
                    change: options.clone(),
                }
            }
        };
        simulation.happen(at(action.at()), what);
    }
    Ok(())
}

fn address_event(
    scenario: &Scenario,
    interface: &str,
    address: IpAddr,
    up: bool,
) -> Result<Happening, ScenarioError> {
    let found = scenario.hosts.iter().enumerate().find_map(|(host, spec)| {
        let name = interface.strip_prefix(&spec.name)?.strip_prefix('.')?;
        let index = spec.interfaces.iter().position(|i| i.name == name)?;
        Some((host, index))
    });
    let (host, interface) = found.ok_or_else(|| unknown("an event", "interface", interface))?;
    Ok(Happening::Address {
        host,
        interface,
        address,
        up,
    })
}
