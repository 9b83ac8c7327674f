//! Figure 3: what a controller in a process of its own costs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use socket2::Protocol;

use super::super::real::{PATIENCE, PORT, bed, failed, kept_up, socket};
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use super::{distribution, quantile};
use crate::kernel;
use crate::netns::NetNs;
use crate::parallel::PathSpec;
use crate::testbed::{SERVER, Testbed};

const CONGESTION: &str = "cubic";
/// The server ends when nobody has come for so long.
const WAIT: Timespec = Timespec {
    tv_sec: 15,
    tv_nsec: 0,
};
const IDLE: &str = "idle";
const LOADED: &str = "loaded";

/// Figure 3.
pub(super) const FIGURE: Figure = Figure {
    id: "smapp-3",
    source: "SMAPP, figure 3",
    title: "From the SYN of a connection to that of its second subflow, with one controller in the stack and beside it",
    paper: Paper {
        says: "A controller in user space takes 23 us more than one in the kernel on average. With other programs that keep \
               the processors busy both take longer, and the difference stays below 37 us.",
        lines: &[],
    },
    knobs: &[
        Knob::new("rounds", Unit::Count, "1000", "connections each way").quick("300"),
        Knob::new(
            "rate",
            Unit::Rate,
            "1gbit",
            "rate of the link between the hosts",
        ),
        Knob::new("delay", Unit::Time, "50us", "delay of the link, one way"),
        Knob::new("size", Unit::Bytes, "512kB", "what the server answers"),
    ],
    x: Across::Measured(Axis::logarithmic("us from SYN to SYN")),
    y: Axis::linear("% of the connections"),
    lines: &[line(IDLE), line(LOADED)],
    load: Load::Heavy,
    run,
    verdict,
};

const fn line(name: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Process, Arm::Real],
        does: Does::Own(name),
    }
}

fn in_stack(load: &str) -> String {
    format!("{load}, in the stack")
}

fn beside(load: &str) -> String {
    format!("{load}, beside the process")
}

fn bare(load: &str) -> String {
    format!("{load}, a socket's round trip alone")
}

/// Both arms by turns, in a process of its own, which has a controller beside it. By turns with them, a message as long as an event
/// goes to a process that answers with as much as an order: what no controller beside the process can do without.
fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let mut command = Command::new(run.program);
    command.args(["lab", "delay"]);
    command.arg(format!("--rounds={}", run.knobs.whole("rounds")));
    if run.line.name == LOADED {
        command.arg("--loaded");
    }
    let output = match run.arm {
        Arm::Process => command.output().map_err(|error| error.to_string())?,
        Arm::Real => over_a_link(run, command)?,
        Arm::Sim | Arm::Kernel => return Err(format!("{} has no controller beside it", run.arm)),
    };
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let [within, outside, alone]: [Vec<f64>; 3] =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let mut samples = distribution(&in_stack(run.line.name), within);
    samples.extend(distribution(&beside(run.line.name), outside));
    samples.extend(distribution(&bare(run.line.name), alone));
    Ok(samples)
}

/// As the paper has it: a server of the kernel at the other end of a link, which answers each connection with a file.
fn over_a_link(run: &Run<'_>, mut command: Command) -> Result<Output, String> {
    let rate = run.knobs.whole("rate");
    let link = PathSpec {
        rate,
        rtt_us: (run.knobs.get("delay") * 2e6) as u64,
        // Ten milliseconds.
        buffer: rate / 800,
        loss_ppm: 0,
    };
    let bed = bed(&[link], CONGESTION)?;
    serve(&bed.server, run.knobs.whole("size"))?;
    command.arg(format!("--to={SERVER}:{PORT}"));
    // Each arm is a host of its own.
    for host in [10, 11] {
        let path = &bed.paths()[0].name;
        let gateway = Testbed::gateway(0);
        command.arg(format!("--path={path}=10.77.1.{host},gateway={gateway}"));
    }
    let output = bed.client.output(command).map_err(failed("lab delay"))?;
    kept_up(&bed)?;
    Ok(output)
}

/// Serves until nobody has come for a while.
fn serve(ns: &NetNs, size: u64) -> Result<(), String> {
    kernel::prepare(ns, false).map_err(failed("the server's kernel"))?;
    let listen = || {
        let socket = socket(Protocol::MPTCP, CONGESTION)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
        socket.listen(64)?;
        Ok(socket.into())
    };
    let listener: TcpListener = ns.run(listen).map_err(failed::<std::io::Error>("listen"))?;
    let file = vec![0x5a; usize::try_from(size).unwrap_or(usize::MAX)];
    let server = ns.thread("figure-server", move || {
        let calls = [PollFd::new(&listener, PollFlags::IN)];
        while poll(&mut calls.clone(), Some(&WAIT)).is_ok_and(|ready| ready > 0) {
            let served = listener
                .accept()
                .and_then(|(stream, _)| answer(stream, &file));
            // A client that goes away in the middle is none of the next one's business.
            served.unwrap_or_default();
        }
    });
    server.map(drop).map_err(failed("the server"))
}

fn answer(mut stream: TcpStream, file: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The client ends first, when it has looked at its subflows.
    while stream.read(&mut [0; 64])? > 0 {
        stream.write_all(file)?;
    }
    Ok(())
}

/// What the paper measured, in microseconds.
const PAPER: [(&str, f64); 2] = [(IDLE, 25.0), (LOADED, 37.0)];

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let arms = [Arm::Process, Arm::Real];
    let judge = |arm: Arm, (load, most): (&str, f64)| {
        let median = |name: &str| quantile(&seen.line(arm, name)?.points, 50.0);
        let (within, outside) = (median(&in_stack(load))?, median(&beside(load))?);
        let alone = median(&bare(load)).map_or(String::new(), |alone| {
            format!("; a socket's round trip alone {alone:.0} us")
        });
        Some(Finding::new(
            arm,
            &format!("{load}, the controller beside the process takes less than {most} us more"),
            format!("medians {within:.0} and {outside:.0} us{alone}"),
            outside - within < most,
        ))
    };
    let all = arms
        .into_iter()
        .flat_map(|arm| PAPER.map(|bound| (arm, bound)));
    all.filter_map(|(arm, bound)| judge(arm, bound)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn differences_of_medians_are_held_against_the_paper() {
        let series = |name: &str, median: f64| {
            Series::of(Arm::Process, name, &[[median, 50.0], [900.0, 100.0]])
        };
        for (more, holds) in [
            (24.0, [true, true]),
            (30.0, [false, true]),
            (40.0, [false, false]),
        ] {
            let all = [IDLE, LOADED].map(|load| {
                [
                    series(&in_stack(load), 50.0),
                    series(&beside(load), 50.0 + more),
                ]
            });
            let held: Vec<bool> = verdict(&Seen::of(&all.concat()))
                .iter()
                .map(|f| f.holds)
                .collect();
            assert_eq!(held, holds);
        }
    }
}
