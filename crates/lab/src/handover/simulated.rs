//! The same transfer between two of our stacks in the simulator.

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_tcp::time::{Duration, Instant};

use super::{
    Cast, End, FAILING, HandoverError, LEAST_WATCH, Measured, OUTAGE, Row, Stack, WARM_UP, WATCH,
    enough,
};
use crate::emulator::Buffer;
use crate::testbed::TestPath;

const STEP: Duration = Duration::from_millis(1);

fn span(time: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// One transfer.
pub(super) fn row(paths: &[TestPath], sender: End) -> Result<Row, HandoverError> {
    let failed = |error: &dyn std::fmt::Display| HandoverError::Simulation(error.to_string());
    let scenario = Scenario::parse(&text(paths, sender)).map_err(|e| failed(&e))?;
    let simulation = Simulation::new(scenario, RunOptions::default()).map_err(|e| failed(&e))?;
    let failing = &paths[FAILING];
    Ok(Row {
        cast: Cast {
            client: Stack::Manypath,
            server: Stack::Manypath,
            sender,
        },
        simulated: true,
        measured: Some(measure(simulation, sender, &failing.name, enough(failing))),
        failure: None,
    })
}

fn text(paths: &[TestPath], sender: End) -> String {
    use std::fmt::Write;
    let interfaces: Vec<String> = paths
        .iter()
        .zip(1..)
        .map(|(path, n)| {
            format!(
                "{{ name = \"{}\", addresses = [\"10.77.{n}.1\"] }}",
                path.name
            )
        })
        .collect();
    let mut text = format!(
        "title = \"handover\"\n\
         [[host]]\nname = \"client\"\ninterface = [{}]\n\
         [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.77.0.1\"] }}]\n\
         [[router]]\nname = \"internet\"\n\
         [[link]]\nname = \"access\"\nends = [\"internet\", \"server.eth0\"]\n",
        interfaces.join(", ")
    );
    for (index, path) in paths.iter().enumerate() {
        let buffer = match path.up.buffer {
            Buffer::Time(time) => format!("buffer = \"{}us\"", time.as_micros()),
            Buffer::Bytes(bytes) => format!("buffer = \"{bytes}B\""),
            Buffer::Unlimited => String::new(),
        };
        let outages = if index == FAILING {
            let (from, to) = (WARM_UP, WARM_UP + OUTAGE);
            format!("[[\"{}ms\", \"{}ms\"]]", from.as_millis(), to.as_millis())
        } else {
            "[]".to_owned()
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "[[link]]\nname = \"{0}\"\nends = [\"client.{0}\", \"internet\"]\nrate = \"{1}bit/s\"\n\
             delay = \"{2}us\"\n{buffer}\noutages = {outages}\n",
            path.name,
            super::rate(path),
            path.up.delay.as_micros()
        );
    }
    let word = match sender {
        End::Client => "upload",
        End::Server => "download",
    };
    text + &format!(
        "[[app]]\nname = \"bulk\"\nclient = \"client\"\nserver = \"server\"\n{word} = \"10GB\"\n"
    )
}

fn measure(mut simulation: Simulation, sender: End, name: &str, enough: u64) -> Measured {
    let receiver = match sender {
        End::Client => 1,
        End::Server => 0,
    };
    let read = |s: &Simulation| {
        let end = s.hosts()[receiver].endpoints().first();
        end.map_or(0, |end| end.record.read)
    };
    let carried = |s: &Simulation| {
        let links = s.report().links;
        let failing = links.into_iter().find(|link| link.name == name);
        failing.map_or(0, |link| match sender {
            End::Client => link.out.delivered_bytes,
            End::Server => link.back.delivered_bytes,
        })
    };
    let cut = Instant::ZERO + span(WARM_UP);
    let back = cut + span(OUTAGE);
    simulation.run_until(Instant::ZERO + span(WARM_UP / 2));
    let half = read(&simulation);
    simulation.run_until(cut);
    let rate = |bytes: u64, time: Duration| bytes as f64 * 8e9 / time.as_nanos() as f64;
    let before = rate(read(&simulation) - half, span(WARM_UP / 2));
    let (mut now, mut last, mut moved) = (cut, read(&simulation), cut);
    let (mut stall, mut base, mut failback) = (Duration::ZERO, None, None);
    let (mut one, mut three) = (0, 0);
    while now < back + span(LEAST_WATCH) || failback.is_none() && now < back + span(WATCH) {
        now += STEP;
        simulation.run_until(now);
        if read(&simulation) > last {
            (last, moved) = (read(&simulation), now);
        } else if now <= back + Duration::from_secs(2) {
            stall = stall.max(now.since(moved));
        }
        if now >= back {
            let base = *base.get_or_insert_with(|| carried(&simulation));
            if failback.is_none() && carried(&simulation) >= base + enough {
                failback = Some(now.since(back).as_nanos() as f64 / 1e9);
            }
        }
        if now == back + Duration::from_secs(1) {
            one = read(&simulation);
        } else if now == back + Duration::from_secs(3) {
            three = read(&simulation);
        }
    }
    Measured {
        before,
        stall: stall.as_nanos() as f64 / 1e9,
        failback,
        after: rate(three - one, Duration::from_secs(2)),
    }
}
