//! A download in the simulator: our stack at the client and at the proxy, which limits what leaves by its Ethernet.

use std::fmt::Write as _;

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_tcp::time::Instant;

use super::super::sim::span;
use super::{Job, Rates};

const NAMES: [&str; 2] = ["ethernet", "wifi"];

/// Makes the download, with the time counted from its beginning.
pub(super) fn download(job: &Job) -> Result<Vec<Rates>, String> {
    let start = match job.again {
        // What the first one set up is there, and nothing of it is under way any more.
        true => job.limit(),
        false => 0.0,
    };
    let scenario = Scenario::parse(&text(job, start)).map_err(|error| error.to_string())?;
    let mut simulation =
        Simulation::new(scenario, RunOptions::default()).map_err(|error| error.to_string())?;
    let after = |seconds: f64| Instant::ZERO + span(start + seconds);
    simulation.run_until(after(0.0));
    let (mut all, mut before) = (Vec::new(), arrived(&simulation));
    while !is_done(&simulation, job) {
        let at = (all.len() + 1) as f64 * job.step;
        if at > job.limit() {
            return Err("the download did not end".to_owned());
        }
        simulation.run_until(after(at));
        let now = arrived(&simulation);
        let rate = |path: usize| (now[path] - before[path]) as f64 * 8.0 / job.step;
        all.push(Rates {
            at,
            paths: [0, 1].map(rate),
        });
        before = now;
    }
    // It ended somewhere in the last step, whose mean says nothing.
    all.pop();
    Ok(all)
}

/// The client of the last download has read all of it.
fn is_done(simulation: &Simulation, job: &Job) -> bool {
    let ends = simulation.hosts()[0].endpoints();
    let downloads = if job.again { 2 } else { 1 };
    ends.len() == downloads && ends.last().is_some_and(|end| end.record.read == job.size)
}

/// Bytes that each link has brought to the client.
fn arrived(simulation: &Simulation) -> [u64; 2] {
    NAMES.map(|name| {
        let link = simulation.links().find(|(link, _)| *link == name);
        link.map_or(0, |(_, [_, back])| back.delivered_bytes)
    })
}

/// The network and its downloads: client and proxy with one interface a path.
fn text(job: &Job, start: f64) -> String {
    let mut text = format!(
        "title = \"a download through a proxy\"\nlimit = \"{}us\"\n",
        micros(start + job.limit())
    );
    for (host, last) in [("client", 2), ("proxy", 1)] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "[[host]]\nname = \"{host}\"");
        for (name, number) in NAMES.iter().zip(1..) {
            let _ = writeln!(
                text,
                "[[host.interface]]\nname = \"{name}\"\naddresses = [\"10.{number}.0.{last}\"]\nmtu = {}",
                job.mtu
            );
            if let Some(cap) = job.cap.filter(|_| host == "proxy" && number == 1) {
                let _ = writeln!(text, "limit = \"{cap}bit/s\"");
            }
        }
    }
    for (name, path) in NAMES.iter().zip(&job.paths) {
        let _ = writeln!(
            text,
            "[[link]]\nname = \"{name}\"\nends = [\"client.{name}\", \"proxy.{name}\"]\nrate = \"{}bit/s\"\n\
             delay = \"{}us\"\nbuffer = \"{}B\"\nloss = \"{}.{:04}%\"",
            path.rate,
            path.rtt_us / 2,
            path.buffer,
            path.loss_ppm / 10_000,
            path.loss_ppm % 10_000
        );
    }
    let mut starts = vec![start];
    if job.again {
        starts.insert(0, 0.0);
    }
    for (start, number) in starts.iter().zip(1..) {
        let over = match job.plain_over {
            Some(path) => format!(
                "from = \"10.{0}.0.2\"\nto = \"10.{0}.0.1\"\noptions = {{ plain-tcp = true }}\n",
                path + 1
            ),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "[[app]]\nname = \"download {number}\"\nclient = \"client\"\nserver = \"proxy\"\nstart = \"{}us\"\n\
             download = \"{}B\"\n{over}client-options = {{ recv-buffer = \"{}B\" }}",
            micros(*start),
            job.size,
            job.buffer
        );
    }
    text
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::super::super::sim;
    use super::super::{Knob, PLAIN};
    use super::*;
    use crate::figure::Knobs;

    fn job() -> Job {
        let knobs = Knobs::of(&PLAIN as &[Knob]);
        Job {
            paths: ["ethernet", "wifi"].map(|name| sim::path(&knobs, name)),
            plain_over: None,
            buffer: 720_000,
            mtu: 1500,
            cap: None,
            size: 3_000_000,
            again: false,
            step: 0.1,
        }
    }

    fn mean(all: &[Rates], path: usize) -> f64 {
        all.iter().map(|rates| rates.paths[path]).sum::<f64>() / all.len() as f64 / 1e6
    }

    #[test]
    fn the_limit_holds_from_the_first_byte_on_and_in_the_second_download() {
        for again in [false, true] {
            let capped = Job {
                cap: Some(5_000_000),
                again,
                ..job()
            };
            let all = download(&capped).expect("it ends");
            let most = all.iter().map(|rates| rates.paths[0]).fold(0.0, f64::max);
            // A tenth of a second at the limit, and twenty milliseconds of burst.
            assert!(most / 1e6 <= 5.0 * 1.2 + 0.2, "{most}");
            assert!((4.3..5.1).contains(&mean(&all, 0)), "{all:?}");
            assert!((6.5..10.1).contains(&mean(&all, 1)), "{all:?}");
            assert_eq!(all[0].at, 0.1);
        }
    }

    #[test]
    fn plain_tcp_goes_over_its_path_alone() {
        let plain = Job {
            plain_over: Some(1),
            ..job()
        };
        let all = download(&plain).expect("it ends");
        assert!(mean(&all, 0) < 0.01 && mean(&all, 1) > 7.0, "{all:?}");
    }

    #[test]
    fn a_download_that_does_not_end_is_an_error() {
        let never = Job {
            size: 3_000_000,
            cap: Some(1),
            plain_over: Some(0),
            ..job()
        };
        assert!(download(&never).is_err());
    }
}
