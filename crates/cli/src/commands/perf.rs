//! `manypath perf`.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use manypath_proxy::endpoint::Endpoint;
use manypath_proxy::perf::{
    self, Header, Job, Kind, Plan, Progress, ServeOptions, Served, Summary,
};
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use crate::args::{MeasureArgs, PerfArgs, PerfCommand, RequestArgs, ServeArgs};
use crate::commands::{Opened, Purpose, open, print_json, print_text};
use crate::confine::Confinement;
use crate::exit::{Code, Failure};
use crate::live::Rates;
use crate::memory::{Keeper, Load};
use crate::runtime::{block_on, prepare_process, say, unless_stopped};
use crate::signals::ending;
use crate::units::{bits_per_second, bytes};

/// Runs the wanted side.
pub(crate) fn run(args: PerfArgs) -> Result<(), Failure> {
    match args.command {
        PerfCommand::Serve(args) => {
            let confinement = Confinement::prepare(args.user.as_deref())?;
            serve(args, confinement)
        }
        PerfCommand::Send(args) => {
            prepare_process();
            measure(&args.measure, Some(&args.requests), Kind::Send)
        }
        PerfCommand::Receive(args) => {
            prepare_process();
            measure(&args.measure, None, Kind::Receive)
        }
    }
}

#[derive(Serialize)]
struct ServedLine<'a> {
    peer: String,
    kind: &'a str,
    bytes: u64,
    seconds: f64,
    error: Option<&'a str>,
}

fn serve(args: ServeArgs, confinement: Confinement) -> Result<(), Failure> {
    block_on(async move {
        let endpoint = Endpoint {
            proto: args.proto,
            at: args.listen,
        };
        let title = format!("perf serve on {endpoint}");
        let purpose = Purpose::Service { keepalive: None };
        let opened = open(&args.stack, &[args.proto], title, purpose)?;
        confinement.enter(&opened)?;
        let listening = async { Ok(opened.sockets.listen_in_time(&endpoint, None).await?) };
        let listener = unless_stopped(listening).await?;
        if let Ok(addr) = listener.local_addr() {
            say(&format!(
                "manypath: serving at {}:{addr}; Ctrl-C ends it",
                args.proto
            ));
        }
        let stack = opened.sockets.stack.clone();
        let keeper = Keeper::start(move || Load::of_stack(stack.as_ref()));
        let options = ServeOptions {
            source: args.source,
            stop_after: args.connections,
        };
        let mut signal = None;
        let stop = async { signal = Some(ending().await) };
        perf::serve(
            listener,
            options,
            move |served| tell(&served, args.json),
            stop,
        )
        .await;
        drop(keeper);
        match signal {
            None => opened.close_delivered().await,
            Some(_) => opened.close().await,
        }
        signal.map_or(Ok(()), |signal| Err(signal.failure()))
    })
}

fn tell(served: &Served, json: bool) {
    let kind = match served.kind {
        Some(Kind::Send) => "sent to us",
        Some(Kind::Receive) => "received from us",
        Some(Kind::Requests) => "requests",
        None => "plain data",
    };
    let seconds = served.elapsed.as_secs_f64();
    let rate = if seconds > 0.0 {
        served.bytes as f64 * 8.0 / seconds
    } else {
        0.0
    };
    // A reader that went away does not end the service.
    let _ = if json {
        print_json(&ServedLine {
            peer: served.peer.to_string(),
            kind,
            bytes: served.bytes,
            seconds,
            error: served.error.as_deref(),
        })
    } else {
        let error = served
            .error
            .as_ref()
            .map(|e| format!(", broken: {e}"))
            .unwrap_or_default();
        print_text(&format!(
            "{}: {kind}, {} in {seconds:.3} s, {}{error}\n",
            served.peer,
            bytes(served.bytes),
            bits_per_second(rate)
        ))
    };
}

/// Turns the command line into a plan.
fn plan(args: &MeasureArgs, requests: Option<&RequestArgs>, kind: Kind) -> Result<Plan, Failure> {
    let size = |bytes: u64, what: &str| {
        u32::try_from(bytes)
            .ok()
            .filter(|&n| n <= 64 << 20)
            .ok_or_else(|| Failure::usage(format!("{what} can have 64 MiB at most")))
    };
    let time = match (args.time, args.bytes) {
        (None, None) if !(args.plain && kind == Kind::Receive) => Duration::from_secs(10),
        (time, _) => time.unwrap_or_default(),
    };
    let millis = u32::try_from(time.as_millis())
        .map_err(|_| Failure::usage("--time can have 49 days at most"))?;
    // To the protocol zero says that there is no limit.
    if args.bytes == Some(0) || (args.time.is_some() && millis == 0) {
        return Err(Failure::usage(
            "--bytes must be 1 at least, and --time 1ms at least",
        ));
    }
    let header = Header {
        kind,
        hash: args.sha256,
        seed: args.seed,
        bytes: args.bytes.unwrap_or(0),
        millis,
        request: size(requests.map_or(0, |r| r.request_size), "a request")?,
        response: size(requests.map_or(0, |r| r.response_size), "a response")?,
    };
    match requests.and_then(|r| r.requests) {
        Some(_) if header.request == 0 => Err(Failure::usage("a request has one byte at least")),
        Some(rounds) => Ok(Plan::Measure {
            header: Header {
                kind: Kind::Requests,
                ..header
            },
            rounds,
        }),
        None if args.plain => Ok(Plan::Plain { header }),
        None => Ok(Plan::Measure { header, rounds: 0 }),
    }
}

/// One look at the rates, for JSON.
#[derive(Serialize)]
struct Interval {
    at: f64,
    bits_per_second: f64,
    subflows: Vec<SubflowSample>,
}

#[derive(Serialize)]
struct SubflowSample {
    connection: String,
    id: u32,
    iface: String,
    local: Option<std::net::SocketAddr>,
    remote: Option<std::net::SocketAddr>,
    sent: f64,
    received: f64,
    srtt_us: Option<u64>,
    cwnd: u64,
    retransmissions: u64,
}

#[derive(Serialize)]
struct Report {
    peer: String,
    #[serde(flatten)]
    summary: Summary,
    intervals: Vec<Interval>,
}

fn measure(args: &MeasureArgs, requests: Option<&RequestArgs>, kind: Kind) -> Result<(), Failure> {
    let plan = plan(args, requests, kind)?;
    block_on(async move {
        let to = Endpoint {
            proto: args.proto,
            at: args.peer.clone(),
        };
        let verb = if kind == Kind::Send {
            "send to"
        } else {
            "receive from"
        };
        let opened = open(
            &args.stack,
            &[args.proto],
            format!("perf {verb} {to}"),
            Purpose::Client,
        )?;
        let job = Job {
            to,
            plan,
            connections: args.connections,
            parallel: args.parallel.into(),
        };
        let result = unless_stopped(watched(args, &job, &opened)).await;
        opened.close().await;
        let (summary, intervals) = result?;
        let ok = summary.same != Some(false) && summary.failures.is_empty();
        if args.json {
            print_json(&Report {
                peer: job.to.to_string(),
                summary,
                intervals,
            })?;
        } else {
            print_text(&describe(&summary))?;
        }
        if ok {
            Ok(())
        } else {
            Err(Failure::new(
                Code::Failure,
                "the measurement is not clean: see the result",
            ))
        }
    })
}

/// Runs the job and looks at the rates meanwhile.
async fn watched(
    args: &MeasureArgs,
    job: &Job,
    opened: &Opened,
) -> Result<(Summary, Vec<Interval>), Failure> {
    let progress = Arc::new(Progress::default());
    let mut view = View::new(args, job);
    let mut rates = Rates::default();
    let mut intervals = Vec::new();
    let started = Instant::now();
    rates.end_round(0, started);
    let (mut then, mut bytes_then) = (started, 0);
    let running = perf::run(job, &opened.sockets, &progress);
    tokio::pin!(running);
    let mut ticks = tokio::time::interval(args.interval.max(Duration::from_millis(10)));
    // After a pause of the machine one look is enough.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks.tick().await;
    loop {
        tokio::select! {
            result = &mut running => {
                view.finish();
                let summary = result.inspect_err(|_| {
                    // What was cut has carried something, too.
                    let moved = bytes(progress.bytes());
                    crate::runtime::say(&format!("manypath: {moved} before it was cut"));
                })?;
                return Ok((summary, intervals));
            }
            _ = ticks.tick() => {
                let now = Instant::now();
                let bytes_now = progress.bytes();
                let seconds = (now - then).as_secs_f64();
                let interval = Interval {
                    at: (now - started).as_secs_f64(),
                    bits_per_second: (bytes_now - bytes_then) as f64 * 8.0 / seconds.max(1e-9),
                    subflows: sample(opened, &mut rates, now).await,
                };
                (then, bytes_then) = (now, bytes_now);
                view.show(&progress, &interval);
                if args.json {
                    intervals.push(interval);
                }
            }
        }
    }
}

async fn sample(opened: &Opened, rates: &mut Rates, now: Instant) -> Vec<SubflowSample> {
    let mut out = Vec::new();
    for conn in opened.connections() {
        let of = rates.look(0, &conn, now);
        out.extend(
            conn.subflows
                .into_iter()
                .zip(of)
                .map(|(subflow, rate)| SubflowSample {
                    connection: conn.id.clone(),
                    id: subflow.id,
                    iface: subflow.iface,
                    local: subflow.local,
                    remote: subflow.remote,
                    sent: rate.sent,
                    received: rate.received,
                    srtt_us: subflow.srtt_us,
                    cwnd: subflow.cwnd,
                    retransmissions: subflow.retransmissions,
                }),
        );
    }
    rates.end_round(0, now);
    out
}

/// Subflows shown at one time; more would fill the screen.
const SHOWN: usize = 8;

/// What one sees while it runs: bars on a terminal, a line for every look elsewhere, nothing with `--json`.
enum View {
    Bars {
        all: MultiProgress,
        total: ProgressBar,
        subflows: Vec<ProgressBar>,
        by_connections: bool,
    },
    Lines,
    Nothing,
}

impl View {
    fn new(args: &MeasureArgs, job: &Job) -> Self {
        if args.json {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines;
        }
        let all = MultiProgress::new();
        let by_connections = job.connections > 1;
        let length = if by_connections {
            Some(job.connections)
        } else {
            args.bytes.or(match job.plan {
                Plan::Measure { rounds, .. } if rounds > 0 => Some(rounds),
                Plan::Measure { .. } | Plan::Plain { .. } => None,
            })
        };
        let total = all.add(length.map_or_else(ProgressBar::no_length, ProgressBar::new));
        let template = if length.is_some() {
            "{elapsed:>4} [{bar:40}] {percent:>3}%  {msg}"
        } else {
            "{elapsed:>4} {spinner}  {msg}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            total.set_style(style.progress_chars("=> "));
        }
        Self::Bars {
            all,
            total,
            subflows: Vec::new(),
            by_connections,
        }
    }

    fn show(&mut self, progress: &Progress, interval: &Interval) {
        let sum = format!(
            "{}, {}",
            bits_per_second(interval.bits_per_second),
            bytes(progress.bytes())
        );
        match self {
            Self::Nothing => {}
            Self::Lines => {
                let each: Vec<String> = interval
                    .subflows
                    .iter()
                    .take(SHOWN)
                    .map(subflow_text)
                    .collect();
                let each = if each.is_empty() {
                    String::new()
                } else {
                    format!(" = {}", each.join(" + "))
                };
                if progress.bytes() == 0 {
                    say(&format!("{:6.1} s  nothing yet", interval.at));
                } else {
                    say(&format!("{:6.1} s  {sum}{each}", interval.at));
                }
            }
            Self::Bars {
                all,
                total,
                subflows,
                by_connections,
            } => {
                let done = if *by_connections {
                    format!(
                        "{sum}, {} connections, {} failed",
                        progress.connections(),
                        progress.failed()
                    )
                } else {
                    sum
                };
                total.set_message(done);
                total.set_position(if *by_connections {
                    progress.connections()
                } else if progress.rounds() > 0 {
                    progress.rounds()
                } else {
                    progress.bytes()
                });
                while subflows.len() < interval.subflows.len().min(SHOWN) {
                    let bar = all.add(ProgressBar::no_length());
                    if let Ok(style) = ProgressStyle::with_template("       {msg}") {
                        bar.set_style(style);
                    }
                    subflows.push(bar);
                }
                for (i, bar) in subflows.iter().enumerate() {
                    bar.set_message(
                        interval
                            .subflows
                            .get(i)
                            .map(subflow_text)
                            .unwrap_or_default(),
                    );
                    bar.tick();
                }
            }
        }
    }

    fn finish(&mut self) {
        if let Self::Bars {
            total, subflows, ..
        } = self
        {
            subflows.iter().for_each(ProgressBar::finish_and_clear);
            total.finish_and_clear();
        }
    }
}

fn subflow_text(subflow: &SubflowSample) -> String {
    let rate = subflow.sent.max(subflow.received);
    format!("{} {}", subflow.iface, bits_per_second(rate))
}

fn describe(summary: &Summary) -> String {
    use std::fmt::Write;
    let mut text = format!(
        "{} in {:.3} s, {}\n",
        bytes(summary.bytes),
        summary.seconds,
        bits_per_second(summary.bits_per_second)
    );
    // Writing to a string cannot fail, here and below.
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    if summary.connections + summary.failures.values().sum::<u64>() > 1 {
        line(format!(
            "connections: {} done, {} per second",
            summary.connections,
            (summary.connections as f64 / summary.seconds.max(1e-9)).round()
        ));
    }
    for (reason, count) in &summary.failures {
        line(format!("failed {count} times: {reason}"));
    }
    for (name, spread) in [
        ("connecting", summary.connect_ms),
        ("a request", summary.request_ms),
    ] {
        if let Some(s) = spread {
            line(if s.min == s.max {
                format!("{name} took {:.3} ms", s.median)
            } else {
                format!(
                    "{name} took {:.3} ms (median; shortest {:.3}, 99 of 100 within {:.3}, longest {:.3})",
                    s.median, s.min, s.p99, s.max
                )
            });
        }
    }
    if let Some(hash) = &summary.sha256 {
        line(format!("SHA-256 {hash}"));
    }
    match summary.same {
        Some(true) => line("both ends saw the same bytes".to_owned()),
        Some(false) => line("the two ends saw DIFFERENT bytes".to_owned()),
        None => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn is_a_plan(line: &str) -> bool {
        let line = format!("manypath perf send 192.0.2.1:1 {line}");
        let command = Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command);
        let Ok(Command::Perf(args)) = command else {
            panic!("{line} is no measurement");
        };
        match args.command {
            PerfCommand::Send(args) => {
                plan(&args.measure, Some(&args.requests), Kind::Send).is_ok()
            }
            PerfCommand::Serve(_) | PerfCommand::Receive(_) => false,
        }
    }

    #[test]
    fn only_a_sender_makes_requests() {
        let parse = |line: &str| {
            Cli::try_parse_from(format!("manypath perf {line}").split_whitespace()).is_ok()
        };
        assert!(parse("send 192.0.2.1:1 --requests 5"));
        assert!(!parse("send 192.0.2.1:1 --requests 5 --plain"));
        assert!(!parse("send 192.0.2.1:1 --requests 5 --time 1s"));
        assert!(parse("receive 192.0.2.1:1 --time 1s --plain"));
        assert!(!parse("receive 192.0.2.1:1 --requests 5"));
    }

    #[test]
    fn nothing_to_send_is_not_taken_for_no_limit() {
        for line in ["", "--bytes 1", "--time 1ms", "--requests 1"] {
            assert!(is_a_plan(line), "{line}");
        }
        for line in [
            "--bytes 0",
            "--time 0",
            "--time 100us",
            "--bytes 1 --time 0",
        ] {
            assert!(!is_a_plan(line), "{line}");
        }
    }
}
