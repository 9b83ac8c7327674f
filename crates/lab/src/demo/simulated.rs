//! The demo without namespaces: the same paths, the same downloads and the same cut, in the simulator, with our stack at
//! both ends. Virtual time passes as fast as the machine can.

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};

use super::report::{Arm, Cut, PathReport, Report, RunReport, Sample};
use super::{BOTH_OURS, DemoError, Plan, paths};
use crate::emulator::{Buffer, LineConfig};
use crate::testbed::TestPath;

/// Whether a download uses every path or one alone.
#[derive(Debug, Clone, Copy)]
enum Over {
    All,
    One(usize),
}

/// Runs everything. `reason` says why there are no real packets.
pub(super) fn run(plan: Plan, reason: &str) -> Result<Report, DemoError> {
    let paths = paths();
    let mut runs = vec![download(plan, &paths, Over::All)?];
    for path in 0..paths.len() {
        runs.push(download(plan, &paths, Over::One(path))?);
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arm: Arm::Simulated {
            reason: reason.to_owned(),
        },
        bytes: plan.size,
        sha256: None,
        paths: paths.iter().map(PathReport::of).collect(),
        cut_path: 0,
        cut_seconds: plan.cut_for.as_secs_f64(),
        runs,
        kernel_counters: std::collections::BTreeMap::new(),
    })
}

/// One download. It is simulated twice: once whole, to find out when the cut is due, and once with the cut, which is the
/// same up to that moment.
fn download(plan: Plan, paths: &[TestPath], over: Over) -> Result<RunReport, DemoError> {
    let whole = simulate(plan, paths, over, None)?;
    let from = reaches(&whole.samples, plan.cut_after);
    let cut = from.map(|from| Cut {
        from,
        to: from + plan.cut_for.as_secs_f64(),
    });
    let report = simulate(plan, paths, over, cut)?;
    let failed = |message: String| DemoError::Program {
        program: "the simulator".to_owned(),
        message,
    };
    let [connection] = report.connections.as_slice() else {
        return Err(failed(format!(
            "{} connections instead of one",
            report.connections.len()
        )));
    };
    let seconds = connection
        .over
        .ok_or_else(|| failed("the download did not end".to_owned()))?;
    let (name, over) = match over {
        Over::All => (BOTH_OURS.to_owned(), (0..paths.len()).collect()),
        Over::One(path) => (format!("TCP, {} alone", paths[path].name), vec![path]),
    };
    let bytes = |name: &str| {
        report
            .links
            .iter()
            .find(|link| link.name == name)
            .map_or(0, |link| link.back.delivered_bytes)
    };
    Ok(RunReport {
        name,
        over,
        seconds,
        goodput: connection.client.read as f64 * 8.0 / seconds.max(1e-9),
        longest_stall: connection.client.longest_stall,
        intact: connection.client.read == plan.size && report.violations.is_empty(),
        path_bytes: paths.iter().map(|path| bytes(&path.name)).collect(),
        cut: cut.map(|cut| Cut {
            to: cut.to.min(seconds),
            ..cut
        }),
        samples: samples(&report.samples, paths.len(), seconds),
    })
}

/// When so many bytes had arrived, by the samples of the client's interfaces.
fn reaches(samples: &[manypath_sim::report::Sample], bytes: u64) -> Option<f64> {
    let mut before = 0.0;
    let mut sum = 0.0;
    samples.iter().find_map(|sample| {
        sum += sample.received.iter().take(2).sum::<f64>() * (sample.at - before) / 8.0;
        before = sample.at;
        (sum >= bytes as f64).then_some(sample.at)
    })
}

fn samples(all: &[manypath_sim::report::Sample], paths: usize, seconds: f64) -> Vec<Sample> {
    let until = all.iter().take_while(|sample| sample.at < seconds + 0.25);
    until
        .map(|sample| Sample {
            at: sample.at,
            rates: sample.received.iter().take(paths).copied().collect(),
        })
        .collect()
}

fn simulate(
    plan: Plan,
    paths: &[TestPath],
    over: Over,
    cut: Option<Cut>,
) -> Result<manypath_sim::Report, DemoError> {
    let failed = |message: String| DemoError::Program {
        program: "the simulator".to_owned(),
        message,
    };
    let scenario = Scenario::parse(&scenario(plan, paths, over, cut))
        .map_err(|error| failed(error.to_string()))?;
    let simulation = Simulation::new(scenario, RunOptions::default())
        .map_err(|error| failed(error.to_string()))?;
    Ok(simulation.finish())
}

/// The network of the demo as a scenario. The client is the first host, so its interfaces are the first in every sample.
fn scenario(plan: Plan, paths: &[TestPath], over: Over, cut: Option<Cut>) -> String {
    let interfaces: Vec<String> = paths
        .iter()
        .enumerate()
        .map(|(index, path)| {
            format!(
                "{{ name = \"{}\", addresses = [\"10.77.{}.1\"] }}",
                path.name,
                index + 1
            )
        })
        .collect();
    let links: String = paths
        .iter()
        .enumerate()
        .map(|(index, path)| {
            let outage = cut
                .filter(|_| index == 0)
                .map(|cut| {
                    format!(
                        "outages = [[\"{:.0}ms\", \"{:.0}ms\"]]\n",
                        cut.from * 1e3,
                        cut.to * 1e3
                    )
                })
                .unwrap_or_default();
            format!(
                "[[link]]\nname = \"{0}\"\nends = [\"client.{0}\", \"internet\"]\n{1}{outage}",
                path.name,
                line(&path.down)
            )
        })
        .collect();
    let (from, options) = match over {
        Over::All => (String::new(), "[app.options]\ncongestion = \"cubic\"\n"),
        Over::One(path) => (
            format!("from = \"10.77.{}.1\"\n", path + 1),
            "[app.options]\ncongestion = \"cubic\"\nplain-tcp = true\n",
        ),
    };
    format!(
        "title = \"demo\"\nsample-every = \"250ms\"\n\
         [[host]]\nname = \"client\"\ninterface = [{}]\n\
         [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.77.0.1\"], offload = \"64KB\" }}]\n\
         [[router]]\nname = \"internet\"\n{links}\
         [[link]]\nname = \"access\"\nends = [\"internet\", \"server.eth0\"]\nrate = \"1Gbit/s\"\n\
         [[app]]\nname = \"download\"\nclient = \"client\"\nserver = \"server\"\n{from}download = \"{}B\"\n{options}",
        interfaces.join(", "),
        plan.size
    )
}

fn line(line: &LineConfig) -> String {
    let buffer = match line.buffer {
        Buffer::Time(time) => format!("buffer = \"{}ms\"\n", time.as_millis()),
        Buffer::Bytes(bytes) => format!("buffer = \"{bytes}B\"\n"),
        Buffer::Unlimited => String::new(),
    };
    let (rate, delay) = (
        line.rate.as_bytes_per_sec().saturating_mul(8),
        line.delay.as_micros(),
    );
    format!("rate = \"{rate}bit/s\"\ndelay = \"{delay}us\"\n{buffer}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_demo_goes_on_through_the_cut() {
        let report = run(Plan::new(true), "this is a test").expect("nothing outside is needed");
        assert_eq!(report.runs.len(), 3);
        assert!(report.intact(), "{}", report.table());
        let ours = report.ours().expect("the first of three");
        assert!(
            ours.path_bytes.iter().all(|bytes| *bytes > 100_000),
            "both paths carry: {:?}",
            ours.path_bytes
        );
        assert!(
            report.gain().is_some_and(|gain| gain > 1.0),
            "{}",
            report.table()
        );
    }
}
