//! A run: hosts on a network, driven from event to event until everybody is done.

use core::net::SocketAddr;

use manypath_stack::Stack;
use manypath_stack::api::{ConnOptions, ConnectOptions};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use crate::endpoint::{Endpoint, Phase, Plan};
use crate::fabric::{Fabric, LinkId, Port};
use crate::host::{Host, Service};
use crate::line::LineCounters;
use crate::loss::Loss;
use crate::oracle::{Rule, Violation};
use crate::record::{Capture, CaptureError};
use crate::report::Sample;
use crate::scenario::Scenario;

/// An application: a client's plan and how it connects.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) client: usize,
    pub(crate) server: usize,
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<core::net::IpAddr>,
    pub(crate) plan: Plan,
    pub(crate) service: Service,
    pub(crate) options: ConnOptions,
    pub(crate) connections: u32,
    /// How many have been asked for.
    pub(crate) asked: u32,
    pub(crate) spacing: Duration,
    /// How many may be open at one time.
    pub(crate) parallel: Option<u32>,
}

/// Something that happens to the network.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Up(LinkId, bool),
    Change {
        from: Vec<Port>,
        rate: Option<Rate>,
        delay: Option<Duration>,
        loss: Option<Vec<Loss>>,
    },
    Address {
        host: usize,
        interface: usize,
        address: core::net::IpAddr,
        up: bool,
    },
    /// Options of an application's connections.
    Options {
        app: usize,
        change: crate::scenario::OptionsSpec,
    },
    /// The next connection of an application.
    Connect(usize),
    Sample,
}

/// How a run may be varied without changing its outcome, and what it leaves behind.
#[derive(Default)]
pub struct RunOptions {
    /// Another seed than the scenario's.
    pub seed: Option<u64>,
    /// Call `handle_timeout` at every event, also before the deadline: nothing may change.
    pub spurious_timeouts: bool,
    /// Where a packet capture goes.
    pub capture: Option<Box<dyn std::io::Write + Send>>,
}

impl std::fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions")
            .field("seed", &self.seed)
            .field("spurious_timeouts", &self.spurious_timeouts)
            .field("capture", &self.capture.is_some())
            .finish()
    }
}

/// A simulation between its events.
pub struct Simulation {
    pub(crate) scenario: Scenario,
    pub(crate) seed: u64,
    pub(crate) fabric: Fabric,
    pub(crate) hosts: Vec<Host>,
    pub(crate) apps: Vec<App>,
    pub(crate) happenings: Vec<Happening>,
    pub(crate) found: Vec<Violation>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) sampled: Vec<u64>,
    pub(crate) now: Instant,
    pub(crate) events: u64,
    pub(crate) spurious_timeouts: bool,
    /// Connections that could not even be asked for.
    pub(crate) refused: Vec<String>,
    /// Events in a row without time going on.
    standing: u64,
}

/// Numbers of the fabric's caller events: hosts below, happenings above.
const HAPPENINGS: u64 = 1 << 32;
/// Events at one moment after which the simulation counts as spinning. A moment can hold as many as packets arrive
/// at once over links of unlimited rate.
const STANDING_LIMIT: u64 = 1_000_000;
/// Time after the last application is done within which every stack must have forgotten its connections.
const AFTERMATH: Duration = Duration::from_secs(400);

impl Simulation {
    pub(crate) fn empty(scenario: Scenario, seed: u64) -> Self {
        Self {
            fabric: Fabric::new(seed),
            scenario,
            seed,
            hosts: Vec::new(),
            apps: Vec::new(),
            happenings: Vec::new(),
            found: Vec::new(),
            samples: Vec::new(),
            sampled: Vec::new(),
            now: Instant::ZERO,
            events: 0,
            spurious_timeouts: false,
            refused: Vec::new(),
            standing: 0,
        }
    }

    /// Schedules something that happens to the network.
    pub(crate) fn happen(&mut self, at: Instant, what: Happening) {
        let number = HAPPENINGS + self.happenings.len() as u64;
        self.happenings.push(what);
        self.fabric.schedule(at, number);
    }

    /// Hosts, for a look inside.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Every link with its name and the counters of both directions.
    pub fn links(&self) -> impl Iterator<Item = (&str, [LineCounters; 2])> {
        self.fabric.link_counters()
    }

    /// Does something with the stack of a host, as a program there would, and has it send what that allows. `None`: there is no such host.
    pub fn act<R>(&mut self, host: &str, f: impl FnOnce(&mut Stack, Instant) -> R) -> Option<R> {
        let index = self.hosts.iter().position(|other| other.name() == host)?;
        let done = f(&mut self.hosts[index].stack, self.now);
        self.turn(index);
        Some(done)
    }

    /// The current virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Runs until every application is done and every stack has forgotten its connections, or a limit is reached.
    pub fn run(&mut self) {
        for host in 0..self.hosts.len() {
            self.turn(host);
        }
        let limit = Instant::ZERO + self.scenario.limit.0;
        let mut aftermath: Option<Instant> = None;
        while self.found.len() < 50 {
            let Some(next) = self.fabric.next_time() else {
                break;
            };
            let end = aftermath.unwrap_or(limit);
            if next > end
                || self.events > self.scenario.event_limit
                || self.standing > STANDING_LIMIT
            {
                break;
            }
            self.step();
            if aftermath.is_none() && self.all_done() {
                aftermath = Some(self.now + AFTERMATH);
            }
            if aftermath.is_some() && self.hosts.iter().all(|host| host.stack.conns().is_empty()) {
                break;
            }
        }
        self.judge_end();
    }

    /// Runs until a time, for a test that wants to look in the middle.
    pub fn run_until(&mut self, time: Instant) {
        if self.events == 0 {
            for host in 0..self.hosts.len() {
                self.turn(host);
            }
        }
        while self.fabric.next_time().is_some_and(|next| next <= time) {
            self.step();
        }
        self.now = self.now.max(time);
    }

    fn step(&mut self) {
        let Some((now, number)) = self.fabric.step() else {
            return;
        };
        self.standing = if now > self.now { 0 } else { self.standing + 1 };
        self.now = now;
        self.events += 1;
        match number {
            None => {}
            Some(number) if number < HAPPENINGS => {
                let host = &mut self.hosts[number as usize];
                // An event that a later one superseded does nothing.
                if host.timer.is_some_and(|timer| timer <= now) {
                    host.timer = None;
                    host.time_out(now);
                }
            }
            Some(number) => self.happens((number - HAPPENINGS) as usize),
        }
        self.deliver();
        if self.spurious_timeouts {
            for host in &mut self.hosts {
                if host.stack.poll_deadline().is_none_or(|due| due > now) {
                    host.stack.handle_timeout(now);
                }
            }
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].stirred {
                self.turn(host);
            }
        }
    }

    fn deliver(&mut self) {
        let mut inbox = std::mem::take(self.fabric.inbox());
        for delivery in inbox.drain(..) {
            // Hosts were added first, so node numbers are host numbers.
            let host = self.fabric.node_at(delivery.port).0 as usize;
            if let Some(packet) = self.hosts[host].receive(self.now, delivery.port, delivery.packet)
            {
                self.fabric.pool().give(packet);
            }
        }
        *self.fabric.inbox() = inbox;
    }

    fn turn(&mut self, host: usize) {
        let due = self.hosts[host].turn(self.now, &mut self.fabric, &mut self.found);
        let Some(due) = due else { return };
        let due = due.max(self.now);
        let timer = &mut self.hosts[host].timer;
        // A later deadline needs no new event: the one that is there finds out.
        if timer.is_none_or(|timer| due < timer) {
            *timer = Some(due);
            self.fabric.schedule(due, host as u64);
        }
    }

    fn happens(&mut self, index: usize) {
        let now = self.now;
        match self.happenings[index].clone() {
            Happening::Up(link, up) => self.fabric.set_up(now, link, up),
            Happening::Change {
                from,
                rate,
                delay,
                loss,
            } => {
                for port in from {
                    if let Some(rate) = rate {
                        self.fabric.set_rate(now, port, rate);
                    }
                    if let Some(delay) = delay {
                        self.fabric.set_delay(now, port, delay);
                    }
                    if let Some(loss) = &loss {
                        self.fabric.set_loss(port, loss.clone());
                    }
                }
            }
            Happening::Address {
                host,
                interface,
                address,
                up,
            } => {
                if up {
                    let port = self.hosts[host].interfaces()[interface].port;
                    self.fabric.add_address(address, port);
                    self.hosts[host].address_up(now, interface, address);
                } else {
                    self.hosts[host].address_down(now, interface, address);
                }
            }
            Happening::Options { app, change } => {
                for host in &mut self.hosts {
                    host.set_options(now, app, &change);
                }
            }
            Happening::Connect(app) => self.connect(index, app),
            Happening::Sample => self.sample(index),
        }
    }

    fn connect(&mut self, happening: usize, index: usize) {
        let now = self.now;
        if self.is_full(index) {
            let again = now + self.apps[index].spacing;
            self.fabric.schedule(again, HAPPENINGS + happening as u64);
            return;
        }
        let app = &mut self.apps[index];
        let number = u64::from(app.asked);
        app.asked += 1;
        if app.asked < app.connections {
            self.fabric
                .schedule(now + app.spacing, HAPPENINGS + happening as u64);
        }
        let options = ConnectOptions {
            remote: app.remote,
            local: app.local,
            conn: app.options.clone(),
        };
        let (plan, numbered) = (app.plan, app.service.numbered);
        let host = &mut self.hosts[app.client];
        let asked = host.connect(now, options, |conn| {
            let endpoint = Endpoint::new(conn, index, true, plan, now);
            if numbered {
                endpoint.numbered(Some(number))
            } else {
                endpoint
            }
        });
        if let Err(error) = asked {
            self.refused.push(format!(
                "{}[{number}] could not connect: {error}",
                self.apps[index].name
            ));
        }
    }

    /// Whether as many connections of an application are open as may be.
    fn is_full(&self, index: usize) -> bool {
        let app = &self.apps[index];
        let Some(most) = app.parallel else {
            return false;
        };
        let ends = self.hosts[app.client].endpoints().iter();
        let open = ends.filter(|end| end.is_client && end.app == index && end.phase != Phase::Over);
        open.count() >= most as usize
    }

    fn sample(&mut self, happening: usize) {
        let Some(every) = self.scenario.sample_every else {
            return;
        };
        let interfaces = self.hosts.iter().flat_map(Host::interfaces);
        let totals: Vec<u64> = interfaces.map(|i| i.counters.received_payload).collect();
        self.sampled.resize(totals.len(), 0);
        let seconds = every.0.as_nanos() as f64 / 1e9;
        let rate = |(now, before): (&u64, &u64)| (now - before) as f64 * 8.0 / seconds;
        self.samples.push(Sample {
            at: self.now.as_nanos() as f64 / 1e9,
            received: totals.iter().zip(&self.sampled).map(rate).collect(),
        });
        self.sampled = totals;
        if !self.all_done() {
            self.fabric
                .schedule(self.now + every.0, HAPPENINGS + happening as u64);
        }
    }

    fn all_done(&self) -> bool {
        let asked = self.apps.iter().all(|app| app.asked == app.connections);
        let mut endpoints = self.hosts.iter().flat_map(Host::endpoints);
        asked && endpoints.all(|endpoint| endpoint.phase == Phase::Over)
    }

    /// Every run ends: nothing hangs, spins, or stays behind.
    fn judge_end(&mut self) {
        for host in &mut self.hosts {
            host.keep_infos();
        }
        let mut complaints: Vec<(String, String)> = Vec::new();
        if self.standing > STANDING_LIMIT {
            complaints.push(("the run".into(), "spins: time does not go on".into()));
        } else if self.events > self.scenario.event_limit {
            let limit = self.scenario.event_limit;
            complaints.push(("the run".into(), format!("took more than {limit} events")));
        }
        for host in &self.hosts {
            let open = host
                .endpoints()
                .iter()
                .filter(|endpoint| endpoint.phase != Phase::Over);
            let before = complaints.len();
            complaints
                .extend(open.map(|endpoint| (host.name().to_owned(), self.unended(endpoint))));
            let left = host.stack.conns().len();
            if left > 0 && complaints.len() == before {
                let what = format!("the stack still has {left} connections that nobody owns");
                complaints.push((host.name().to_owned(), what));
            }
        }
        let time = self.now;
        let violations = complaints.into_iter().map(|(host, what)| Violation {
            time,
            host,
            rule: Rule::End,
            what,
        });
        self.found.extend(violations);
    }

    fn unended(&self, endpoint: &Endpoint) -> String {
        let side = if endpoint.is_client {
            "client"
        } else {
            "server"
        };
        format!(
            "{} ({side}, connection {:?}) never ended: sent {}, read {}, {:?}",
            self.apps[endpoint.app].name,
            endpoint.number,
            endpoint.record.sent,
            endpoint.record.read,
            endpoint.phase
        )
    }

    /// Ends the packet capture, if there is one.
    pub fn finish_capture(&mut self) -> Result<(), CaptureError> {
        self.fabric
            .set_capture(None)
            .map_or(Ok(()), Capture::finish)
    }
}
