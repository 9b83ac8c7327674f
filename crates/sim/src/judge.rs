//! What came out of a run, and whether that was expected.

use manypath_stack::api::{ProtocolLevel, SubflowInfo};
use manypath_tcp::time::Instant;

use crate::endpoint::Endpoint;
use crate::fabric::Side;
use crate::oracle::{Rule, Violation};
use crate::report::{
    BoxReport, ConnectionReport, EndReport, HostReport, LinkReport, Report, SubflowReport,
};
use crate::scenario::{Expect, LevelSpec};
use crate::simulation::Simulation;

fn seconds(time: Instant) -> f64 {
    time.as_nanos() as f64 / 1e9
}

impl Simulation {
    /// Runs to the end and reports.
    pub fn finish(mut self) -> Report {
        self.run();
        if let Err(error) = self.finish_capture() {
            self.refused.push(error.to_string());
        }
        self.report()
    }

    /// What has come out so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let hosts = self.hosts.iter().map(|host| HostReport {
            name: host.name().to_owned(),
            interfaces: host
                .interfaces()
                .iter()
                .map(|i| (i.name.clone(), i.counters))
                .collect(),
            counters: host
                .stack
                .counters()
                .iter()
                .filter(|(_, count)| *count > 0)
                .collect(),
        });
        let links = self
            .fabric
            .link_counters()
            .map(|(name, [out, back])| LinkReport {
                name: name.to_owned(),
                out,
                back,
            });
        let boxes = self
            .fabric
            .boxes()
            .map(|(link, side, kind, touched)| BoxReport {
                link: link.to_owned(),
                at_second: side == Side::B,
                kind,
                touched,
            });
        let mut report = Report {
            title: self.scenario.title.clone(),
            seed: self.seed,
            hash: self.fabric.digest().to_string(),
            seconds: seconds(self.now),
            events: self.events,
            segments: self.hosts.iter().map(|host| host.watch().packets()).sum(),
            connections: self.connections(),
            links: links.collect(),
            hosts: hosts.collect(),
            boxes: boxes.collect(),
            drops: self.fabric.drops(),
            samples: self.samples.clone(),
            violations: self
                .broken_rules()
                .iter()
                .map(ToString::to_string)
                .collect(),
            misses: self.refused.clone(),
            notes: Vec::new(),
        };
        let misses = misses(&report, &self.scenario.expect);
        report.misses.extend(misses);
        report
    }

    /// Rules that were broken, in a run that is over.
    pub(crate) fn broken_rules(&self) -> Vec<Violation> {
        let mut all = self.found.clone();
        for host in &self.hosts {
            let deceived = host.endpoints().iter().filter(|end| {
                let checked = end.record.info.as_ref().is_some_and(|info| info.checksum);
                let level = end.record.level;
                end.record.altered > 0 && checked && level == Some(ProtocolLevel::Multipath)
            });
            // What the checksums are for (RFC 8684 section 3.7): full Multipath TCP hands over nothing that was altered.
            all.extend(deceived.map(|end| {
                let count = end.record.altered;
                Violation {
                    time: self.now(),
                    host: host.name().to_owned(),
                    rule: Rule::Stream,
                    what: format!("read altered bytes in {count} places in spite of checksums"),
                }
            }));
        }
        all
    }

    fn connections(&self) -> Vec<ConnectionReport> {
        let mut reports = Vec::new();
        for (index, app) in self.apps.iter().enumerate() {
            let of_app = |host: usize, is_client: bool| {
                let ends = self.hosts[host].endpoints().iter();
                ends.filter(move |end| end.app == index && end.is_client == is_client)
            };
            let mut clients: Vec<&Endpoint> = of_app(app.client, true).collect();
            clients.sort_by_key(|end| end.number);
            let mut servers: Vec<&Endpoint> = of_app(app.server, false).collect();
            servers.sort_by_key(|end| end.number);
            for client in clients {
                let server = servers.binary_search_by_key(&client.number, |end| end.number);
                let server = server.ok().map(|at| servers[at]);
                reports.push(connection(&app.name, client, server));
            }
        }
        reports
    }
}

fn connection(app: &str, client: &Endpoint, server: Option<&Endpoint>) -> ConnectionReport {
    let started = client.record.started;
    let over = server
        .and_then(|server| server.record.over)
        .and_then(|theirs| client.record.over.map(|ours| ours.max(theirs)));
    let bytes = client.record.read + server.map_or(0, |server| server.record.read);
    let goodput = over.map(|over| {
        let span = (over - started).as_nanos().max(1) as f64 / 1e9;
        bytes as f64 * 8.0 / span
    });
    let after = |at: Instant| (at - started).as_nanos() as f64 / 1e9;
    ConnectionReport {
        app: app.to_owned(),
        number: client.number.unwrap_or(0),
        started: seconds(started),
        connect_time: client.record.established.map(after),
        accept_time: server.and_then(|server| server.record.established.map(after)),
        over: over.map(seconds),
        goodput,
        client: end(client),
        server: server.map(end),
    }
}

fn end(endpoint: &Endpoint) -> EndReport {
    let record = &endpoint.record;
    let info = record.info.as_ref();
    let live = info
        .iter()
        .flat_map(|info| &info.subflows)
        .map(live_subflow);
    let ended = info
        .iter()
        .flat_map(|info| &info.ended)
        .map(|gone| SubflowReport {
            tuple: gone.tuple.to_string(),
            origin: format!("{:?}", gone.origin),
            end: Some(format!("{:?}", gone.end)),
            sent: gone.bytes_sent,
            received: gone.bytes_received,
            retransmitted: None,
            srtt: None,
        });
    EndReport {
        sent: record.sent,
        read: record.read,
        altered: record.altered,
        failure: record.failure.map(|cause| format!("{cause:?}")),
        level: record.level.map(|level| format!("{level:?}")),
        fell_back: record.fell_back.map(|cause| format!("{cause:?}")),
        longest_stall: record.longest_stall.as_nanos() as f64 / 1e9,
        reinjected: info.map_or(0, |info| info.bytes_reinjected),
        subflows_up: record.subflows,
        subflows: live.chain(ended).collect(),
    }
}

fn live_subflow(info: &SubflowInfo) -> SubflowReport {
    SubflowReport {
        tuple: info.tuple.to_string(),
        origin: format!("{:?}", info.origin),
        end: None,
        sent: info.bytes_sent,
        received: info.bytes_received,
        retransmitted: Some(info.tcp.counters.sent.segs_retrans),
        srtt: info.tcp.srtt.map(|srtt| srtt.as_nanos() as f64 / 1e9),
    }
}

/// What did not come out as expected.
fn misses(report: &Report, expect: &Expect) -> Vec<String> {
    let mut misses = Vec::new();
    for connection in &report.connections {
        let place = format!("{}[{}]", connection.app, connection.number);
        for end in connection.ends() {
            misses.extend(end_misses(end, expect).map(|what| format!("{place}: {what}")));
        }
        let mut miss = |what: String| misses.push(format!("{place}: {what}"));
        if connection.server.is_none() && !expect.may_fail() {
            miss("the server never saw it".into());
        }
        if let Some(by) = expect.finished_by {
            let by = by.0.as_nanos() as f64 / 1e9;
            match connection.over {
                Some(over) if over <= by => {}
                Some(over) => miss(format!("over at {over:.3} s, expected by {by:.3} s")),
                None => miss(format!("not over, expected by {by:.3} s")),
            }
        }
        if let Some(least) = expect.goodput {
            let least = least.0.as_bytes_per_sec() as f64 * 8.0;
            let got = connection.goodput.unwrap_or(0.0);
            if got < least {
                miss(format!(
                    "{:.3} Mbit/s, expected {:.3}",
                    got / 1e6,
                    least / 1e6
                ));
            }
        }
        if let Some(wanted) = expect.subflows {
            let up = connection.client.subflows_up;
            if up < wanted {
                miss(format!("{up} subflows came up, expected {wanted}"));
            }
        }
    }
    if expect.no_way_on && !report.has_no_way_on() {
        misses.push("not ended early for want of a way on in the standard".to_owned());
    }
    misses.extend(share_misses(report, expect));
    misses
}

fn end_misses<'a>(end: &'a EndReport, expect: &'a Expect) -> impl Iterator<Item = String> + 'a {
    let failure = end.failure.as_ref().filter(|_| !expect.may_fail());
    let failure = failure.map(|cause| format!("ended by {cause}"));
    let stall = expect.longest_stall.and_then(|most| {
        let most = most.0.as_nanos() as f64 / 1e9;
        let got = end.longest_stall;
        (got > most).then(|| format!("a stall of {got:.3} s, expected {most:.3} at most"))
    });
    let level = expect.level.and_then(|wanted| {
        let wanted = match wanted {
            LevelSpec::Multipath => ProtocolLevel::Multipath,
            LevelSpec::PlainTcp => ProtocolLevel::PlainTcp,
        };
        let wanted = format!("{wanted:?}");
        let got = end.level.clone().unwrap_or_else(|| "nothing".into());
        (got != wanted).then(|| format!("it is {got}, expected {wanted}"))
    });
    [failure, stall, level].into_iter().flatten()
}

fn share_misses(report: &Report, expect: &Expect) -> Vec<String> {
    let mut misses = Vec::new();
    for (name, share) in &expect.share {
        let (host, interface) = name.split_once('.').unwrap_or((name, ""));
        let interfaces = report
            .hosts
            .iter()
            .filter(|h| h.name == host)
            .flat_map(|h| &h.interfaces);
        let (mut all, mut own) = (0, 0);
        for (known, counters) in interfaces {
            all += counters.received_payload + counters.sent_payload;
            if known == interface {
                own += counters.received_payload + counters.sent_payload;
            }
        }
        let percent = own as f64 * 100.0 / (all as f64).max(1.0);
        if percent < share.min || percent > share.max {
            misses.push(format!(
                "{name} carried {percent:.1} % of the payload, expected {} to {}",
                share.min, share.max
            ));
        }
    }
    misses
}
