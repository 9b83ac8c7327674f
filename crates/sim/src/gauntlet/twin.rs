//! The pair of runs: the same network, boxes, events and applications, once with Multipath TCP off and once as planned.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use manypath_stack::api::{ConnInfo, ProtocolLevel, SubflowEnd};
use manypath_tcp::time::{Duration, Instant};

use super::closing;
use super::elsewhere::{Pair, is_as_tcp_elsewhere};
use super::judge::{self, Fault};
use crate::endpoint::Endpoint;
use crate::middlebox::{BoxSpec, MPTCP, Phase};
use crate::oracle::Violation;
use crate::record::Digest;
use crate::report::{ConnectionReport, Report};
use crate::scenario::units::{Span, Speed};
use crate::scenario::{Action, HostSpec, LinkSpec, PlacedBox, Scenario, ScenarioError};
use crate::simulation::{RunOptions, Simulation};

/// How often a run that came too late is repeated with other losses, to tell bad luck from a bad decision.
const REPETITIONS: u64 = 5;

/// So much later a connection is established whose first SYN did not get through, or whose keys did not.
const HANDSHAKE_DROPPED: Duration = Duration::from_millis(300);

/// Round trips from the first SYN until a join is there.
const JOIN_ROUND_TRIPS: f64 = 4.0;

/// The subtype of a join (RFC 8684 section 8.1).
const MP_JOIN: u8 = 1;

/// One of the two runs.
#[derive(Debug, Default)]
pub struct Arm {
    /// What it was like.
    pub report: Report,
    /// Rules that were broken.
    pub violations: Vec<Violation>,
    /// Time until every reader had everything, if that happened.
    pub whole: Option<Duration>,
    /// A hash of what each reader read, in the order of the connections, the client's first.
    pub streams: Vec<u64>,
    /// Places where readers got something else than was sent.
    pub altered: u64,
    /// Some end gave Multipath TCP up.
    pub fell_back: bool,
    /// Subflows that something ended before their connection.
    pub lost_subflows: usize,
    /// When a reader got something last.
    pub last_read: Duration,
    /// One ended for a wrong checksum.
    pub found_damage: bool,
    /// Pairs of addresses, the client's first, of subflows that ended because options stopped passing.
    pub lost_options: Vec<Pair>,
    /// Pairs of addresses between which something was carried, the client's first.
    pub pairs: Vec<(IpAddr, IpAddr)>,
    /// Ends that hold a connection which the other end does not have any more, and would find out.
    pub half_open: Vec<String>,
}

/// Both runs of a scenario.
#[derive(Debug)]
pub struct Twin {
    /// The run with plain TCP, or why it panicked.
    pub tcp: Result<Arm, String>,
    /// The run as planned, or why it panicked.
    pub ours: Result<Arm, String>,
    /// What is wrong.
    pub fault: Option<Fault>,
    /// The run as planned came too late or not at all, but with other losses, or without what happened on plain TCP's path
    /// after it was done, it does not; or TCP does no better on the paths to which damage has Multipath TCP go.
    pub unlucky: bool,
    /// The run as planned did not deliver, and RFC 8684 section 3.7 has no way on from what happened to it.
    pub no_way_on: bool,
    /// A hash of everything that both runs delivered.
    pub hash: u64,
}

impl Twin {
    /// Runs a scenario both ways and judges. A capture shows the run as planned.
    pub fn run(scenario: &Scenario, options: RunOptions) -> Result<Self, ScenarioError> {
        let seed = options.seed;
        let mut twin = Self::once(scenario, options)?;
        let excused = match twin.fault {
            Some(Fault::Late { ours, .. }) => {
                succeeds_without_the_rest(scenario, &twin)?
                    || is_as_tcp_begun_later(scenario, seed, &twin, ours)?
                    || is_as_tcp_elsewhere(scenario, seed, &twin, Some(ours))?
                    || !is_usually_late(scenario)?
            }
            Some(Fault::Undelivered(_)) => {
                succeeds_without_the_rest(scenario, &twin)?
                    || is_as_tcp_elsewhere(scenario, seed, &twin, None)?
            }
            _ => false,
        };
        if excused {
            (twin.fault, twin.unlucky, twin.no_way_on) = (None, true, false);
        } else if twin.no_way_on {
            twin.fault = None;
        }
        Ok(twin)
    }

    pub(super) fn once(scenario: &Scenario, options: RunOptions) -> Result<Self, ScenarioError> {
        let plain = RunOptions {
            seed: options.seed,
            spurious_timeouts: options.spurious_timeouts,
            capture: None,
        };
        let tcp = arm(plain_tcp(scenario), plain)?;
        let ours = arm(scenario.clone(), options)?;
        let fault = judge::judge(&tcp, &ours, scenario.limit.0, has_one_way(scenario));
        let undelivered = matches!(fault, Some(Fault::Undelivered(_)));
        let no_way_on = undelivered && ours.as_ref().is_ok_and(|arm| arm.report.has_no_way_on());
        let mut digest = Digest::default();
        for arm in [&tcp, &ours].into_iter().flatten() {
            digest.add(Instant::ZERO, 0, arm.report.hash.as_bytes());
        }
        Ok(Self {
            tcp,
            ours,
            fault,
            unlucky: false,
            no_way_on,
            hash: digest.get(),
        })
    }

    /// Milliseconds until the last connection of the run as planned was over at both ends.
    pub(super) fn over(&self) -> Option<u64> {
        let connections = &self.ours.as_ref().ok()?.report.connections;
        let ends: Option<Vec<f64>> = connections
            .iter()
            .map(|connection| connection.over)
            .collect();
        ends?
            .into_iter()
            .reduce(f64::max)
            .map(|over| (over * 1e3) as u64)
    }

    /// The run as planned had other paths at that time, was established and still spoke Multipath TCP: whatever happened on one
    /// path then, it had to go on.
    fn could_go_on(&self, scenario: &Scenario, at: Duration) -> bool {
        let Ok(ours) = &self.ours else { return false };
        let mut connections = ours.report.connections.iter();
        let established = connections.all(|connection| connection.server.is_some());
        paths(scenario, at) > 1 && established && !ours.fell_back
    }

    /// How much longer the run as planned took to establish the connection that was the latest in this, at both ends.
    fn delay(&self) -> Duration {
        let (Ok(tcp), Ok(ours)) = (&self.tcp, &self.ours) else {
            return Duration::ZERO;
        };
        let both = tcp.report.connections.iter().zip(&ours.report.connections);
        let later = both.flat_map(|(tcp, ours)| {
            let connected = (tcp.connect_time, ours.connect_time);
            let ends = [connected, (tcp.accept_time, ours.accept_time)];
            ends.into_iter()
                .filter_map(|(tcp, ours)| Some(ours? - tcp?))
        });
        Duration::from_micros((later.fold(0.0, f64::max) * 1e6) as u64)
    }

    /// Seconds after which no connection is too young for another subflow: after the handshake the peer has to acknowledge
    /// something and to tell its addresses before a join can begin (RFC 8684 sections 3.1 and 3.4).
    fn joined_by(&self) -> f64 {
        let Ok(ours) = &self.ours else { return 0.0 };
        let connections = ours.report.connections.iter();
        let old = |connection: &ConnectionReport| {
            connection.started + connection.connect_time.unwrap_or(0.0) * JOIN_ROUND_TRIPS
        };
        connections.map(old).fold(0.0, f64::max)
    }

    /// The report of the run as planned, with what the comparison found in place of what TCP suffered as well. `no_way_on`: it is to end
    /// early, for want of a way on in the standard.
    #[must_use]
    pub fn into_report(self, no_way_on: bool) -> Report {
        let mut report = match self.ours {
            Ok(arm) => arm.report,
            // A panic is a finding of its own; it goes on to whoever asked.
            Err(panic) => std::panic::panic_any(panic),
        };
        let tcp = match &self.tcp {
            Ok(Arm {
                whole: Some(whole), ..
            }) => format!("delivered in {:.3} s", seconds(*whole)),
            Ok(_) => "did not deliver".to_owned(),
            Err(panic) => format!("panicked: {panic}"),
        };
        report.notes.push(format!("plain TCP {tcp}"));
        if self.unlucky {
            let note = "not as TCP, but only with these losses, for what happened after TCP was done, or for damage that TCP delivers";
            report.notes.push(note.to_owned());
        }
        if self.no_way_on && !no_way_on {
            let what = "ended early, for want of a way on in the standard";
            report.misses.push(what.to_owned());
            return report;
        }
        match self.fault {
            None => {
                let misses = std::mem::take(&mut report.misses);
                let violations = std::mem::take(&mut report.violations);
                report.notes.extend(misses.into_iter().chain(violations));
            }
            Some(fault) => report.misses.push(fault.to_string()),
        }
        report
    }
}

pub(super) fn seconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// Paths of the host that has the most at that time: links that let Multipath TCP join and have not ended for good, and whose ends
/// at hosts have addresses or come to some.
fn paths(scenario: &Scenario, at: Duration) -> usize {
    let comes = |end: &String| {
        let mut events = scenario.events.iter();
        events
            .any(|event| matches!(event, Action::AddAddress { interface, .. } if interface == end))
    };
    let ends = |host: &HostSpec| -> Vec<String> {
        let interfaces = host.interfaces.iter();
        interfaces.map(|one| one.end(&host.name)).collect()
    };
    let touches = |link: &LinkSpec, some: &[String]| link.ends.iter().any(|end| some.contains(end));
    let mut dead = Vec::new();
    for host in &scenario.hosts {
        let bare = host
            .interfaces
            .iter()
            .filter(|one| one.addresses.is_empty());
        dead.extend(
            bare.map(|one| one.end(&host.name))
                .filter(|end| !comes(end)),
        );
    }
    let links = scenario.links.iter();
    let usable: Vec<&LinkSpec> = links
        .filter(|link| !refuses_joins(link) && !has_ended(scenario, link, at))
        .filter(|link| !touches(link, &dead))
        .collect();
    let hosts = scenario.hosts.iter().map(ends);
    let of = |own: Vec<String>| usable.iter().filter(|link| touches(link, &own)).count();
    hosts.map(of).max().unwrap_or(0)
}

/// The link carries nothing from that time on, or earlier: it is cut for good, or a box on it swallows everything.
fn has_ended(scenario: &Scenario, link: &LinkSpec, at: Duration) -> bool {
    let concerns = |event: &&Action| matches!(event, Action::Cut { link: name, .. } | Action::Mend { link: name, .. } if *name == link.name);
    let events = scenario.events.iter().filter(concerns);
    let last = events.max_by_key(|event| event.at().0);
    let swallows = |placed: &PlacedBox| match &placed.spec {
        BoxSpec::Blackhole(hole) => hole.lasts.is_none() && hole.after.0 <= at,
        _ => false,
    };
    matches!(last, Some(Action::Cut { at: then, .. }) if then.0 <= at)
        || link.boxes.iter().any(swallows)
}

/// A box on the link takes the option away from what makes a join, or drops that for it, from the beginning on: Multipath TCP can
/// begin there, as TCP, but never come to it.
fn refuses_joins(link: &LinkSpec) -> bool {
    const HANDSHAKE: [Phase; 3] = [Phase::Syn, Phase::SynAck, Phase::ThirdAck];
    let handshake = |phases: &[Phase]| HANDSHAKE.iter().any(|phase| phases.contains(phase));
    link.boxes.iter().any(|placed| match &placed.spec {
        BoxSpec::DropUnknown(firewall) => {
            handshake(&firewall.phases) && !firewall.known.contains(&MPTCP)
        }
        BoxSpec::Strip(strip) => {
            let joins = |kinds: &Vec<u8>| kinds.contains(&MP_JOIN);
            let at_once =
                strip.after == 0 && strip.after_bytes.0 == 0 && strip.after_time.0.is_zero();
            at_once && handshake(&strip.phases) && strip.subtypes.as_ref().is_none_or(joins)
        }
        _ => false,
    })
}

/// Both runs have no choice but the same boxes, and nothing on the way damages payload at random.
fn has_one_way(scenario: &Scenario) -> bool {
    let mut boxes = scenario.links.iter().flat_map(|link| &link.boxes);
    let random = boxes.any(|placed| matches!(placed.spec, BoxSpec::Corrupt(_)));
    let single = scenario.hosts.iter().any(|host| host.interfaces.len() == 1);
    !random && single && scenario.links.len() <= 2
}

/// The scenario with Multipath TCP off at both ends.
pub(super) fn plain_tcp(scenario: &Scenario) -> Scenario {
    let mut plain = scenario.clone();
    for app in &mut plain.apps {
        app.options.plain_tcp = Some(true);
        app.client_options.plain_tcp = None;
        app.server_options.plain_tcp = None;
    }
    plain
}

/// Whether all is well in the network that plain TCP saw: without what happened on its path when it was done, or what made no
/// difference to it, nor would anything that came later. What happens elsewhere has to be survived, and so has what takes
/// options away, which never makes a difference to TCP, unless it begins when TCP is done.
fn succeeds_without_the_rest(scenario: &Scenario, twin: &Twin) -> Result<bool, ScenarioError> {
    let Ok(tcp) = &twin.tcp else { return Ok(false) };
    let undelivered = matches!(twin.fault, Some(Fault::Undelivered(_)));
    let Some(end) = tcp.whole else {
        return Ok(false);
    };
    let used = used_by(tcp);
    for from in beginnings(scenario, &used, end) {
        if undelivered && twin.could_go_on(scenario, from) && seconds(from) >= twin.joined_by() {
            return Ok(false);
        }
        let seen = without_what_follows(scenario, &used, from, end);
        let plain = arm(plain_tcp(&seen), RunOptions::default())?;
        if plain.is_ok_and(|tcp| tcp.whole == Some(end)) {
            // With fewer things that begin, there is an end of it.
            return Ok(Twin::run(&seen, RunOptions::default())?.fault.is_none());
        }
    }
    Ok(false)
}

/// The links that carried something.
fn used_by(arm: &Arm) -> Vec<&str> {
    let links = arm.report.links.iter();
    let used = links.filter(|link| link.out.delivered + link.back.delivered > 0);
    used.map(|link| &*link.name).collect()
}

/// Where a box drops SYNs for their options, a second passes until one goes without, and where it drops the keys, 0.3 s until who
/// listens may send. What happens to the network meanwhile befalls whoever is there then: TCP that begins as late is the measure as
/// well.
fn is_as_tcp_begun_later(
    scenario: &Scenario,
    seed: Option<u64>,
    twin: &Twin,
    ours: Duration,
) -> Result<bool, ScenarioError> {
    let mut delay = twin.delay();
    if delay < HANDSHAKE_DROPPED {
        return Ok(false);
    }
    let tcp = twin.tcp.as_ref().ok();
    if let Some((tcp, end)) = tcp.and_then(|tcp| Some((tcp, tcp.whole?))) {
        // What happened when TCP was done may have put the handshake off further, which is no part of that second.
        let seen = without_what_follows(scenario, &used_by(tcp), end, end);
        delay = delay.min(Twin::once(&seen, RunOptions::default())?.delay());
    }
    let mut later = plain_tcp(scenario);
    for app in &mut later.apps {
        app.start = Span(app.start.0 + delay);
    }
    // Boxes count from the first packet, which comes later as well.
    for placed in later.links.iter_mut().flat_map(|link| &mut link.boxes) {
        begins_sooner(&mut placed.spec, delay);
    }
    let options = RunOptions {
        seed,
        ..RunOptions::default()
    };
    let tcp = arm(later, options)?.ok();
    let whole = tcp.and_then(|tcp| tcp.whole);
    Ok(whole.is_some_and(|whole| ours <= judge::allowed(whole - delay)))
}

/// Has a box begin its work by so much sooner after its first packet.
fn begins_sooner(spec: &mut BoxSpec, by: Duration) {
    let after = match spec {
        BoxSpec::Blackhole(hole) => &mut hole.after,
        BoxSpec::ShrinkWindow(shrink) => &mut shrink.after,
        BoxSpec::Strip(strip) => &mut strip.after_time,
        BoxSpec::Reset(reset) => &mut reset.after,
        _ => return,
    };
    after.0 = after.0.excess_over(by);
}

/// When a box begins its work, if that is not at the first packet, nor, for one that takes options away, before `end`.
fn beginning(spec: &BoxSpec, end: Duration) -> Duration {
    match spec {
        BoxSpec::Blackhole(hole) => hole.after.0,
        BoxSpec::ShrinkWindow(shrink) => shrink.after.0,
        BoxSpec::Strip(strip) if strip.after_time.0 < end => Duration::ZERO,
        BoxSpec::Strip(strip) => strip.after_time.0,
        BoxSpec::Reset(reset) => reset.after.0,
        _ => Duration::ZERO,
    }
}

/// The event concerns one of these links.
fn happens_at(scenario: &Scenario, links: &[&str], event: &Action) -> bool {
    let at_interface = |interface: &String| {
        let mut there = scenario
            .links
            .iter()
            .filter(|link| link.ends.contains(interface));
        there.any(|link| links.contains(&&*link.name))
    };
    match event {
        Action::Cut { link, .. } | Action::Mend { link, .. } | Action::Change { link, .. } => {
            links.contains(&&**link)
        }
        Action::RemoveAddress { interface, .. } | Action::AddAddress { interface, .. } => {
            at_interface(interface)
        }
        Action::SetOptions { .. } => false,
    }
}

/// When something begins to happen on these links after the start, the first time first.
fn beginnings(scenario: &Scenario, links: &[&str], end: Duration) -> Vec<Duration> {
    let events = scenario.events.iter();
    let events = events.filter(|event| happens_at(scenario, links, event));
    let there = scenario
        .links
        .iter()
        .filter(|link| links.contains(&&*link.name));
    let boxes = there.flat_map(|link| &link.boxes);
    let mut times: Vec<Duration> = events
        .map(|event| event.at().0)
        .chain(boxes.map(|placed| beginning(&placed.spec, end)))
        .filter(|time| *time > Duration::ZERO)
        .collect();
    times.sort_unstable();
    times.dedup();
    times
}

/// The scenario without what begins to happen on these links at `from` or later.
fn without_what_follows(
    scenario: &Scenario,
    links: &[&str],
    from: Duration,
    end: Duration,
) -> Scenario {
    let mut seen = scenario.clone();
    seen.events
        .retain(|event| event.at().0 < from || !happens_at(scenario, links, event));
    for link in &mut seen.links {
        if links.contains(&&*link.name) {
            link.boxes
                .retain(|placed| beginning(&placed.spec, end) < from);
        }
    }
    seen
}

/// The same on links that are up to two hundredths slower or quicker: where nothing in a network is random, whatever the seed
/// is, one run is one throw.
fn at_other_rates(scenario: &Scenario, repetition: u64) -> Scenario {
    let percent = 100 + repetition - REPETITIONS.div_ceil(2);
    let mut other = scenario.clone();
    for link in &mut other.links {
        for line in [&mut link.line, &mut link.out, &mut link.back] {
            line.rate = line.rate.map(|rate| Speed(rate.0.ratio(percent, 100)));
        }
    }
    other
}

/// Whether the run as planned also comes too late in most repetitions with other losses, keys and rates, or something worse
/// happens in one.
fn is_usually_late(scenario: &Scenario) -> Result<bool, ScenarioError> {
    let mut late = 0;
    for repetition in 1..=REPETITIONS {
        let scenario = &at_other_rates(scenario, repetition);
        let options = RunOptions {
            seed: Some(scenario.seed.wrapping_add(repetition << 32)),
            ..RunOptions::default()
        };
        let twin = Twin::once(scenario, options)?;
        match twin.fault {
            None => {}
            Some(Fault::Late { .. }) => late += 1,
            Some(Fault::Undelivered(_)) if succeeds_without_the_rest(scenario, &twin)? => {}
            Some(_) => return Ok(true),
        }
    }
    Ok(late * 2 > REPETITIONS)
}

/// Runs one way. The inner error is the text of a panic.
pub(super) fn arm(
    scenario: Scenario,
    options: RunOptions,
) -> Result<Result<Arm, String>, ScenarioError> {
    let run = || -> Result<Arm, ScenarioError> {
        let mut simulation = Simulation::new(scenario, options)?;
        simulation.run();
        simulation
            .finish_capture()
            .map_err(|error| ScenarioError::Senseless(error.to_string()))?;
        Ok(Arm::of(&simulation))
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(arm) => arm.map(Ok),
        Err(panic) => Ok(Err(crate::random::panic_text(&*panic).to_owned())),
    }
}

impl Arm {
    /// Some end of a connection was told that it failed.
    pub(super) fn failed(&self) -> bool {
        let connections = self.report.connections.iter();
        let mut ends = connections.flat_map(ConnectionReport::ends);
        ends.any(|end| end.failure.is_some())
    }

    fn of(simulation: &Simulation) -> Self {
        let ends = || simulation.hosts.iter().flat_map(|host| host.endpoints());
        let mut readers: Vec<&Endpoint> = ends().collect();
        readers.sort_by_key(|end| (end.app, end.number, !end.is_client));
        let info = |end: &'_ Endpoint| end.record.info.clone();
        let lost = |end: &SubflowEnd| match end {
            SubflowEnd::Finished
            | SubflowEnd::Replaced
            | SubflowEnd::Administrative
            | SubflowEnd::AddressGone
            | SubflowEnd::ConnectionClosed => false,
            SubflowEnd::ResetByPeer { .. }
            | SubflowEnd::Refused
            | SubflowEnd::TimedOut
            | SubflowEnd::Unreachable
            | SubflowEnd::Checksum
            | SubflowEnd::BadHmac
            | SubflowEnd::OptionsLost
            | SubflowEnd::ProtocolError => true,
        };
        let fell_back = |end: &Endpoint| {
            let level = end.record.level;
            end.record.fell_back.is_some() || level.is_some_and(|l| l != ProtocolLevel::Multipath)
        };
        let damaged = |info: &ConnInfo| {
            let mut ended = info.ended.iter();
            ended.any(|gone| gone.end == SubflowEnd::Checksum)
        };
        let report = simulation.report();
        Self {
            last_read: ends()
                .map(Endpoint::last_read)
                .max()
                .unwrap_or(Instant::ZERO)
                - Instant::ZERO,
            found_damage: ends().filter_map(info).any(|info| damaged(&info)),
            lost_options: lost_options(simulation),
            pairs: pairs(&readers),
            half_open: closing::half_open(simulation),
            violations: simulation.broken_rules(),
            whole: whole(simulation),
            streams: readers.iter().map(|end| end.hash_of_stream()).collect(),
            altered: ends().map(|end| end.record.altered).sum(),
            fell_back: ends().any(fell_back),
            lost_subflows: ends()
                .filter_map(info)
                .map(|info| info.ended.iter().filter(|gone| lost(&gone.end)).count())
                .sum(),
            report,
        }
    }
}

/// Pairs of addresses between which something was carried, the client's first.
fn pairs(ends: &[&Endpoint]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for end in ends.iter().filter(|end| end.is_client) {
        let Some(info) = &end.record.info else {
            continue;
        };
        let living = info.subflows.iter();
        let living = living.map(|sf| (sf.tuple, sf.bytes_sent + sf.bytes_received));
        let ended = info.ended.iter();
        let ended = ended.map(|sf| (sf.tuple, sf.bytes_sent + sf.bytes_received));
        let carried = living.chain(ended).filter(|(_, bytes)| *bytes > 0);
        pairs.extend(carried.map(|(tuple, _)| (tuple.local.ip(), tuple.remote.ip())));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Between which addresses subflows ended because options stopped passing, the client's first.
fn lost_options(simulation: &Simulation) -> Vec<Pair> {
    let ends = simulation.hosts.iter().flat_map(|host| host.endpoints());
    let mut pairs = Vec::new();
    for end in ends {
        let ended = end.record.info.iter().flat_map(|info| &info.ended);
        let lost = ended.filter(|gone| gone.end == SubflowEnd::OptionsLost);
        pairs.extend(lost.map(|gone| {
            let (local, remote) = (gone.tuple.local.ip(), gone.tuple.remote.ip());
            match end.is_client {
                true => (local, remote),
                false => (remote, local),
            }
        }));
    }
    pairs
}

/// When every reader of every connection that was to be had everything.
fn whole(simulation: &Simulation) -> Option<Duration> {
    let mut last = Instant::ZERO;
    for (index, app) in simulation.apps.iter().enumerate() {
        for host in [app.client, app.server] {
            let ends = simulation.hosts[host].endpoints().iter();
            let mut there = 0;
            for end in ends.filter(|end| end.app == index && end.is_client == (host == app.client))
            {
                last = last.max(end.record.whole?);
                there += 1;
            }
            if there < app.connections {
                return None;
            }
        }
    }
    Some(last - Instant::ZERO)
}
