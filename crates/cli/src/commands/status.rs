//! `manypath status`.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::Instant;

use manypath_control::client::{self, Collected, collect};
use manypath_control::report::{ConnReport, EndedReport, ProcessReport, SubflowReport};
use manypath_control::wire::{DecisionReport, Reply, Request};
use serde::Serialize;

use crate::args::StatusArgs;
use crate::commands::{print_json, print_text, printable};
use crate::exit::{Code, Failure};
use crate::live::{Rates, SubflowRate};
use crate::runtime::{block_on, unless_stopped};
use crate::units::{bits_per_second, bytes, micros};

#[derive(Serialize)]
struct Document<'a> {
    processes: &'a [ProcessReport],
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Vec<Why<'a>>>,
}

/// Shows all processes once, or again and again.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    block_on(unless_stopped(async {
        let mut rates = Rates::default();
        loop {
            let now = Instant::now();
            let mut found = collect().await;
            found
                .processes
                .retain(|process| args.pid.is_none_or(|pid| process.pid == pid));
            let why = match args.why {
                true => decisions(&found).await,
                false => Whys::new(),
            };
            show(args, &found, &why, &mut rates, now)?;
            rates.forget_before(now);
            if !args.watch {
                return judge(args.pid, &found);
            }
            tokio::time::sleep(args.interval).await;
        }
    }))
}

/// Whether somebody who looks once has seen what was asked for.
fn judge(pid: Option<u32>, found: &Collected) -> Result<(), Failure> {
    let wanted = |(known, _): &&(u32, io::Error)| pid.is_none_or(|pid| pid == *known);
    match found.silent.iter().find(wanted) {
        _ if !found.processes.is_empty() => Ok(()),
        Some((pid, error)) => Err(silent(*pid, error)),
        None if pid.is_some() => Err(nobody(pid)),
        None => Ok(()),
    }
}

/// A process is there and does not answer.
pub(crate) fn silent(pid: u32, error: &io::Error) -> Failure {
    Failure::new(
        Code::Failure,
        format!("process {pid} cannot be asked: {error}"),
    )
    .hint(format!(
        "`ps -o stat= {pid}` says T if it is stopped; a process has no more than 256 sessions at a time"
    ))
}

/// There is no such process.
pub(crate) fn nobody(pid: Option<u32>) -> Failure {
    let what = match pid {
        Some(pid) => format!("no manypath process {pid} of this user can be reached"),
        None => "no manypath process of this user can be reached".to_owned(),
    };
    Failure::new(Code::Failure, what)
        .hint("`manypath status` shows those that are running; root sees those of all users")
}

/// The decisions for each connection, by process and name.
type Whys = HashMap<(u32, String), Vec<DecisionReport>>;

/// Asks for the decisions for all connections.
async fn decisions(found: &Collected) -> Whys {
    let mut all = Whys::new();
    let sockets = client::sockets();
    for process in &found.processes {
        let Some((_, socket)) = sockets.iter().find(|(pid, _)| *pid == process.pid) else {
            continue;
        };
        for conn in &process.connections {
            let connection = conn.id.clone();
            // A connection or process that is gone by now has no decisions to show.
            if let Ok(Reply::Decisions { decisions }) =
                client::ask(socket, &Request::Why { connection }).await
            {
                all.insert((process.pid, conn.id.clone()), decisions);
            }
        }
    }
    all
}

#[derive(Serialize)]
struct Why<'a> {
    pid: u32,
    connection: &'a str,
    decisions: &'a [DecisionReport],
}

fn show(
    args: &StatusArgs,
    found: &Collected,
    why: &Whys,
    rates: &mut Rates,
    now: Instant,
) -> Result<(), Failure> {
    for (pid, error) in &found.silent {
        tracing::warn!(pid, %error, "a process does not answer");
    }
    if args.json {
        let mut why: Vec<Why<'_>> = why
            .iter()
            .map(|((pid, connection), decisions)| Why {
                pid: *pid,
                connection,
                decisions,
            })
            .collect();
        why.sort_by_key(|why| (why.pid, why.connection));
        return print_json(&Document {
            processes: &found.processes,
            why: args.why.then_some(why),
        });
    }
    let mut text = String::new();
    if args.watch && std::io::stdout().is_terminal() {
        // To the upper left corner, and clear what is below.
        text.push_str("\x1b[H\x1b[J");
    }
    if found.processes.is_empty() && found.silent.is_empty() && args.pid.is_none() {
        text.push_str("no manypath process of this user is running\n");
    }
    for process in &found.processes {
        write_process(&mut text, process, why, rates, now, args.watch);
    }
    print_text(&text)
}

fn write_process(
    text: &mut String,
    process: &ProcessReport,
    why: &Whys,
    rates: &mut Rates,
    now: Instant,
    with_rates: bool,
) {
    let count = process.connections.len();
    let noun = if count == 1 {
        "connection"
    } else {
        "connections"
    };
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "process {}: {}, up {}, {count} {noun}",
        process.pid,
        printable(&process.title),
        micros(process.uptime_us)
    );
    for conn in &process.connections {
        write_conn(text, conn);
        let rates = rates.look(process.pid, conn, now);
        if !conn.subflows.is_empty() {
            write_subflows(text, conn, with_rates.then_some(rates.as_slice()));
        }
        for ended in &conn.ended {
            write_ended(text, ended);
        }
        if let Some(decisions) = why.get(&(process.pid, conn.id.clone())) {
            write_decisions(text, decisions);
        }
    }
}

/// One connection, as it stands in a list.
pub(crate) fn write_one(text: &mut String, conn: &ConnReport) {
    write_conn(text, conn);
    write_subflows(text, conn, None);
    for ended in &conn.ended {
        write_ended(text, ended);
    }
}

/// What the path manager decided, oldest first.
pub(crate) fn write_decisions(text: &mut String, decisions: &[DecisionReport]) {
    for decision in decisions {
        let DecisionReport {
            number: _,
            ago_us,
            decision,
            reason,
        } = decision;
        let told = printable(&format!("{decision}: {reason}"));
        let _ = writeln!(text, "      {} ago: {told}", micros(*ago_us));
    }
}

fn addr(addr: Option<std::net::SocketAddr>) -> String {
    addr.map_or_else(|| "?".to_owned(), |a| a.to_string())
}

fn write_conn(text: &mut String, conn: &ConnReport) {
    let arrow = if conn.role == "responder" { "<-" } else { "->" };
    let mut words = vec![conn.state.clone(), conn.level.clone()];
    words.extend(
        conn.fallback
            .as_ref()
            .map(|why| format!("fell back: {why}")),
    );
    words.extend(conn.closed.as_ref().map(|why| format!("closed: {why}")));
    if conn.checksum {
        words.push("checksum".to_owned());
    }
    words.extend([
        conn.scheduler.clone(),
        conn.congestion.clone(),
        conn.path_manager.clone(),
    ]);
    // The kernel does not say all of them.
    words.retain(|word| !word.is_empty());
    let _ = writeln!(
        text,
        "  {} {} {arrow} {}  {}  {}",
        printable(&conn.id),
        addr(conn.local),
        addr(conn.remote),
        micros(conn.age_us),
        printable(&words.join(", "))
    );
    let _ = writeln!(
        text,
        "      written {} (acknowledged {}, queued {}, reinjected {}), received {} (unread {}), peer's window {}",
        bytes(conn.bytes_written),
        bytes(conn.bytes_acked),
        bytes(conn.send_queue),
        bytes(conn.bytes_reinjected),
        bytes(conn.bytes_received),
        bytes(conn.recv_queue),
        bytes(conn.peer_window),
    );
}

fn write_subflows(text: &mut String, conn: &ConnReport, rates: Option<&[SubflowRate]>) {
    let mut header: Vec<&str> = vec![
        "subflow",
        "path",
        "addresses",
        "state",
        "rtt",
        "rto",
        "cwnd",
        "sent",
        "received",
        "retrans",
        "reinj",
        "why",
    ];
    if rates.is_some() {
        header.extend(["out", "in"]);
    }
    let mut rows = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for (i, subflow) in conn.subflows.iter().enumerate() {
        let mut row = subflow_row(subflow);
        if let Some(rate) = rates.and_then(|rates| rates.get(i)) {
            row.extend([bits_per_second(rate.sent), bits_per_second(rate.received)]);
        }
        rows.push(row);
    }
    write_table(text, &rows);
}

fn subflow_row(subflow: &SubflowReport) -> Vec<String> {
    let mut state = subflow.phase.clone();
    for (on, word) in [
        (subflow.backup_here || subflow.backup_there, "backup"),
        (subflow.in_recovery, "recovering"),
        (subflow.stale, "stale"),
    ] {
        if on {
            state.push(' ');
            state.push_str(word);
        }
    }
    vec![
        subflow.id.to_string(),
        subflow.iface.clone(),
        format!("{}>{}", addr(subflow.local), addr(subflow.remote)),
        state,
        subflow.srtt_us.map_or_else(|| "-".to_owned(), micros),
        micros(subflow.rto_us),
        bytes(subflow.cwnd),
        bytes(subflow.bytes_sent),
        bytes(subflow.bytes_received),
        subflow.retransmissions.to_string(),
        bytes(subflow.bytes_reinjected),
        subflow.origin.clone(),
    ]
}

fn write_table(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| {
            rows.iter()
                .filter_map(|row| row.get(c))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::from("     ");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, " {:<width$} ", printable(cell));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn write_ended(text: &mut String, ended: &EndedReport) {
    let _ = writeln!(
        text,
        "      ended: {} {}>{}, {} ago after {}: {} (made: {}; sent {}, received {})",
        ended.id,
        addr(ended.local),
        addr(ended.remote),
        micros(ended.ago_us),
        micros(ended.lived_us),
        printable(&ended.end),
        printable(&ended.origin),
        bytes(ended.bytes_sent),
        bytes(ended.bytes_received),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_process_says_reaches_the_terminal_as_an_order() {
        let evil = || "\x1b]0;mine\x07\u{9b}2J\nprocess 1: ".to_owned();
        let process = ProcessReport {
            title: evil(),
            connections: vec![ConnReport {
                id: evil(),
                state: evil(),
                fallback: Some(evil()),
                subflows: vec![SubflowReport {
                    iface: evil(),
                    ..SubflowReport::default()
                }],
                ended: vec![EndedReport {
                    end: evil(),
                    origin: evil(),
                    ..EndedReport::default()
                }],
                ..ConnReport::default()
            }],
            ..ProcessReport::default()
        };
        let (whys, now) = (Whys::new(), Instant::now());
        let mut text = String::new();
        write_process(&mut text, &process, &whys, &mut Rates::default(), now, true);
        write_decisions(
            &mut text,
            &[DecisionReport {
                decision: evil(),
                ..DecisionReport::default()
            }],
        );
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert_eq!(text.lines().count(), 7, "{text}");
    }

    #[test]
    fn who_asks_for_a_process_hears_that_it_is_not_there_or_does_not_answer() {
        let mut found = Collected::default();
        assert!(judge(None, &found).is_ok(), "nothing runs, and that is so");
        assert!(judge(Some(7), &found).is_err());
        found.silent = vec![(7, io::ErrorKind::TimedOut.into())];
        for pid in [None, Some(7)] {
            let told = judge(pid, &found).expect_err("silent").to_string();
            assert!(told.contains("process 7 cannot be asked"), "{told}");
        }
        found.processes = vec![ProcessReport::default()];
        assert!(judge(None, &found).is_ok());
    }

    #[test]
    fn everything_that_matters_is_shown() {
        let process = ProcessReport {
            pid: 42,
            title: "forward a to b".into(),
            connections: vec![ConnReport {
                id: "3.1".into(),
                state: "established".into(),
                level: "multipath".into(),
                subflows: vec![SubflowReport {
                    id: 7,
                    iface: "wlan0".into(),
                    srtt_us: Some(20_500),
                    retransmissions: 11,
                    backup_there: true,
                    origin: "made by the path manager".into(),
                    ..SubflowReport::default()
                }],
                ended: vec![EndedReport {
                    end: "timed out".into(),
                    ..EndedReport::default()
                }],
                ..ConnReport::default()
            }],
            ..ProcessReport::default()
        };
        let mut text = String::new();
        write_process(
            &mut text,
            &process,
            &Whys::from([(
                (42, "3.1".to_owned()),
                vec![DecisionReport {
                    decision: "create 10.1.0.1 -> *".into(),
                    reason: "the policy wants one".into(),
                    ..DecisionReport::default()
                }],
            )]),
            &mut Rates::default(),
            Instant::now(),
            true,
        );
        for part in [
            "process 42",
            "3.1",
            "established",
            "wlan0",
            "20.5 ms",
            " 11 ",
            "backup",
            "path manager",
            "timed out",
            "0 bit/s",
            "create 10.1.0.1 -> *: the policy wants one",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}
