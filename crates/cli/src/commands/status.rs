//! `manypath status`.

use std::collections::HashMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use manypath_control::client::{self, Client, Collected, collect, collect_one};
use manypath_control::report::{
    ClassReport, ConnReport, EndedReport, HOST_REPAIRS, LimitReport, MemoryReport, PathReport,
    ProcessReport, QuotaReport, SubflowReport,
};
use manypath_control::wire::{DecisionReport, Reply, Request};
use manypath_stack::sched::Scheduler;
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
    /// Those that did not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<Silent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Vec<Why<'a>>>,
}

#[derive(Serialize)]
struct Silent {
    pid: u32,
    error: String,
}

/// How long asking for decisions may take in all.
const FOR_DECISIONS: Duration = Duration::from_secs(3);

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// Shows all processes once, or again and again.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    block_on(unless_stopped(async {
        let mut rates = Rates::default();
        loop {
            let asked = Instant::now();
            // Whoever wants to see one process does not wait for others.
            let found = match args.pid {
                Some(pid) => collect_one(pid).await,
                None => collect().await,
            };
            let why = match args.why {
                true => decisions(&found).await,
                false => Whys::new(),
            };
            show(args, &found, &why, &mut rates, asked)?;
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
        "`ps -o stat= {pid}` says T if it is stopped; a user has no more than 256 sessions with a process at a time"
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

/// Asks for the decisions for all connections, in one session with each process.
async fn decisions(found: &Collected) -> Whys {
    let mut all = Whys::new();
    let sockets = client::sockets();
    let end = tokio::time::Instant::now() + FOR_DECISIONS;
    for process in &found.processes {
        let Some(socket) = sockets.iter().find(|socket| socket.pid == process.pid) else {
            continue;
        };
        // A connection or process that is gone by now has no decisions to show, nor one that does not answer in time.
        let asked = async {
            let mut client = Client::connect_at(socket).await?;
            for conn in &process.connections {
                let connection = conn.id.clone();
                if let Reply::Decisions { decisions } =
                    client.ask(Request::Why { connection }).await?
                {
                    all.insert((process.pid, conn.id.clone()), decisions);
                }
            }
            Ok::<_, io::Error>(())
        };
        if !matches!(tokio::time::timeout_at(end, asked).await, Ok(Ok(()))) {
            tracing::warn!(pid = process.pid, "it did not tell all of its decisions");
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
    asked: Instant,
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
            silent: found
                .silent
                .iter()
                .map(|(pid, error)| Silent {
                    pid: *pid,
                    error: error.to_string(),
                })
                .collect(),
            why: args.why.then_some(why),
        });
    }
    let mut text = String::new();
    let width = columns(args.watch);
    if args.watch && io::stdout().is_terminal() {
        // To the upper left corner, and clear what is below.
        text.push_str("\x1b[H\x1b[J");
    }
    if found.processes.is_empty() && found.silent.is_empty() && args.pid.is_none() {
        text.push_str("no manypath process of this user is running\n");
    }
    for process in &found.processes {
        let now = rates.moment(process.pid, process.uptime_us, asked);
        let mut told = String::new();
        let look = Look {
            why,
            rates: args.watch,
            counters: args.counters,
            width,
        };
        write_process(&mut told, process, &look, rates, now);
        rates.end_round(process.pid, now);
        text.push_str(&told);
    }
    print_text(&text)
}

/// How wide a line may be: as wide as the terminal, or, where `--watch` writes into something else, as `COLUMNS` says.
fn columns(watch: bool) -> Option<usize> {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|text| text.parse().ok()).filter(|n| *n > 0);
    if !io::stdout().is_terminal() {
        return said.filter(|_| watch);
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.map(|size| usize::from(size.ws_col)).filter(|n| *n > 0);
    Some(size.or(said).unwrap_or(COLUMNS))
}

/// What is shown of a process.
struct Look<'a> {
    why: &'a Whys,
    rates: bool,
    counters: bool,
    /// Columns of a line; `None` for as many as it takes.
    width: Option<usize>,
}

fn write_process(
    text: &mut String,
    process: &ProcessReport,
    look: &Look<'_>,
    rates: &mut Rates,
    now: Instant,
) {
    let count = process.connections.len();
    let noun = if count == 1 {
        "connection"
    } else {
        "connections"
    };
    let mut out = Page {
        text,
        width: look.width,
    };
    out.line(&format!(
        "process {}: {}, up {}, {count} {noun}",
        process.pid,
        printable(&process.title),
        micros(process.uptime_us)
    ));
    write_overview(&mut out, process);
    if look.counters {
        write_counters(&mut out, process);
    }
    for conn in &process.connections {
        write_conn(&mut out, conn);
        let rates = rates.look(process.pid, conn, now);
        if !conn.subflows.is_empty() {
            write_subflows(&mut out, conn, look.rates.then_some(rates.as_slice()));
        }
        for ended in &conn.ended {
            write_ended(&mut out, ended);
        }
        if let Some(decisions) = look.why.get(&(process.pid, conn.id.clone())) {
            if let Ok(scheduler) = conn.scheduler.parse::<Scheduler>() {
                let says = scheduler.says();
                out.line(&format!("    new data goes by {scheduler}: {says}"));
            }
            for line in decision_lines(decisions) {
                out.line(&line);
            }
        }
    }
}

/// Paths and memory.
fn write_overview(out: &mut Page<'_>, process: &ProcessReport) {
    let path = |path: &PathReport| printable(&path_text(path));
    if !process.paths.is_empty() {
        let paths: Vec<String> = process.paths.iter().map(path).collect();
        out.line(&format!("  paths: {}", paths.join("; ")));
    }
    let MemoryReport { used, limit } = process.memory;
    if limit > 0 {
        out.line(&format!("  memory: {} of {}", bytes(used), bytes(limit)));
    }
    for limit in &process.limits {
        out.line(&printable(&limit_line(limit)));
    }
    for quota in &process.quotas {
        out.line(&printable(&quota_line(quota)));
    }
    for class in &process.classes {
        out.line(&printable(&class_line(class)));
    }
    if let Some(repairs @ 1..) = process.counters.get(HOST_REPAIRS) {
        out.line(&format!(
            "  repairs: {repairs} (of rules, routes, settings or a device of this process that somebody took away or changed; the log names them)"
        ));
    }
}

/// A path, when it is used, and why it is not.
fn path_text(path: &PathReport) -> String {
    let mut told = path.iface.clone();
    told.extend(path.address.iter().map(|address| format!(" {address}")));
    let priority = path.priority.as_deref();
    match priority {
        _ if path.backup => told.push_str(", backup"),
        Some("secondary") => told.push_str(", secondary"),
        _ => {}
    }
    let mut why = Vec::new();
    if priority == Some("never") {
        why.push(match &path.reason {
            Some(reason) => format!("not used: {reason}"),
            None => "not used: priority = \"never\"".to_owned(),
        });
    } else {
        why.extend(path.reason.clone());
    }
    if !path.up && (priority != Some("never") || path.missing.is_some()) {
        let missing = path.missing.as_deref().unwrap_or("down");
        why.push(format!("missing: {missing}"));
    }
    if !why.is_empty() {
        told.push_str(&format!(" ({})", why.join("; ")));
    }
    told
}

/// A limit, and what it does.
fn limit_line(limit: &LimitReport) -> String {
    let rate = bits_per_second(limit.bits_per_second as f64);
    let mut told = format!("  limit: {} {} {rate}", limit.of.name(), limit.name);
    if limit.waits > 0 {
        let held = micros(limit.held_us);
        told.push_str(&format!(", held back for {held} in all"));
    }
    if limit.elsewhere_bytes > 0 {
        let elsewhere = bytes(limit.elsewhere_bytes);
        told.push_str(&format!(", {elsewhere} went by other paths meanwhile"));
    }
    if limit.waiting > 0 {
        told.push_str(&format!(", {} waiting", limit.waiting));
    }
    told
}

/// A quota, and what was used of it.
fn quota_line(quota: &QuotaReport) -> String {
    let (used, amount) = (bytes(quota.used), bytes(quota.amount));
    let mut told = format!(
        "  quota: {} {} {used} of {amount} this {}",
        quota.of.name(),
        quota.name,
        quota.period
    );
    if quota.count != "both" {
        told.push_str(&format!(", {} alone", quota.count));
    }
    if quota.spent {
        told.push_str(&format!(", used up: {}", quota.then));
    }
    if !quota.kept {
        told.push_str(
            " (in memory alone: its file cannot be written or is another process's, see the log)",
        );
    }
    told
}

/// A class that bounds its connections.
fn class_line(class: &ClassReport) -> String {
    let mut told = format!("  class: {}, {} connections", class.name, class.connections);
    if let Some(most) = class.most_connections {
        told.push_str(&format!(" of {most}"));
    }
    if let Some(rate) = &class.connection_rate {
        told.push_str(&format!(", {rate} may begin"));
    }
    if class.refused > 0 {
        told.push_str(&format!(", {} refused", class.refused));
    }
    told
}

/// What was counted, without what never happened.
fn write_counters(out: &mut Page<'_>, process: &ProcessReport) {
    let of_stack = process.counters.iter().map(|(name, n)| (name.clone(), n));
    let of_devices = process.devices.iter().flat_map(|device| {
        let named = device.counters.iter();
        named.map(|(name, n)| (format!("{} {name}", device.iface), n))
    });
    out.line("  counters (those that are not there are 0):");
    for (name, count) in of_stack.chain(of_devices).filter(|(_, count)| **count > 0) {
        out.line(&format!("    {:<30} {count}", printable(&name)));
    }
}

/// Text of lines that are not wider than the page.
struct Page<'a> {
    text: &'a mut String,
    width: Option<usize>,
}

impl Page<'_> {
    /// Adds a line; what does not fit goes on in the next one, between words if there are any, further to the right.
    fn line(&mut self, line: &str) {
        let Some(width) = self.width else {
            self.text.push_str(line);
            self.text.push('\n');
            return;
        };
        let indent = line.chars().take_while(|c| *c == ' ').count();
        // A page that is narrower than the margin has none.
        let margin = if indent + 4 < width / 2 {
            indent + 4
        } else {
            0
        };
        let mut rest: Vec<char> = line.trim_end().chars().collect();
        while rest.len() > width {
            let fits = &rest[..=width];
            let first = fits.iter().take_while(|c| **c == ' ').count();
            let space = fits.iter().rposition(|c| *c == ' ');
            let cut = space.filter(|at| *at > first).unwrap_or(width).max(1);
            let next: Vec<char> = rest.split_off(cut);
            self.text.extend(rest.iter());
            self.text.push('\n');
            rest = vec![' '; margin];
            rest.extend(next.iter().skip_while(|c| **c == ' '));
        }
        self.text.extend(rest);
        self.text.push('\n');
    }
}

/// One connection, as it stands in a list.
pub(crate) fn write_one(text: &mut String, conn: &ConnReport) {
    let width = columns(false);
    let mut out = Page { text, width };
    write_conn(&mut out, conn);
    write_subflows(&mut out, conn, None);
    for ended in &conn.ended {
        write_ended(&mut out, ended);
    }
}

/// What the path manager decided, oldest first.
pub(crate) fn write_decisions(text: &mut String, decisions: &[DecisionReport]) {
    let width = columns(false);
    let mut out = Page { text, width };
    for line in decision_lines(decisions) {
        out.line(&line);
    }
}

fn decision_lines(decisions: &[DecisionReport]) -> impl Iterator<Item = String> {
    decisions.iter().map(|entry| {
        let DecisionReport {
            number: _,
            ago_us,
            decision,
            reason,
        } = entry;
        let told = printable(&format!("{decision}: {reason}"));
        format!("      {} ago: {told}", micros(*ago_us))
    })
}

fn addr(addr: Option<std::net::SocketAddr>) -> String {
    addr.map_or_else(|| "?".to_owned(), |a| a.to_string())
}

fn write_conn(out: &mut Page<'_>, conn: &ConnReport) {
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
    out.line(&format!(
        "  {} {} {arrow} {}  {}  {}",
        printable(&conn.id),
        addr(conn.local),
        addr(conn.remote),
        micros(conn.age_us),
        printable(&words.join(", "))
    ));
    out.line(&format!(
        "      written {} (acknowledged {}, queued {}, reinjected {}), received {} (unread {}), peer's window {}",
        bytes(conn.bytes_written),
        bytes(conn.bytes_acked),
        bytes(conn.send_queue),
        bytes(conn.bytes_reinjected),
        bytes(conn.bytes_received),
        bytes(conn.recv_queue),
        bytes(conn.peer_window),
    ));
}

/// The columns of subflows, and which are left out first where a page is narrow.
const SUBFLOW_COLUMNS: [(&str, u8); 14] = [
    ("subflow", 0),
    ("path", 0),
    ("addresses", 6),
    ("state", 1),
    ("rtt", 2),
    ("rto", 11),
    ("cwnd", 5),
    ("sent", 4),
    ("received", 4),
    ("retrans", 8),
    ("reinj", 10),
    ("why", 9),
    ("out", 0),
    ("in", 0),
];

fn write_subflows(out: &mut Page<'_>, conn: &ConnReport, rates: Option<&[SubflowRate]>) {
    let count = SUBFLOW_COLUMNS.len() - if rates.is_some() { 0 } else { 2 };
    let header = SUBFLOW_COLUMNS.iter().take(count);
    let mut rows = vec![
        header
            .map(|(name, _)| (*name).to_owned())
            .collect::<Vec<_>>(),
    ];
    for (i, subflow) in conn.subflows.iter().enumerate() {
        let mut row = subflow_row(subflow);
        if let Some(rate) = rates.and_then(|rates| rates.get(i)) {
            row.extend([bits_per_second(rate.sent), bits_per_second(rate.received)]);
        }
        rows.push(row);
    }
    let mut kept: Vec<usize> = (0..count).collect();
    let table = loop {
        let table = table(&rows, &kept);
        let widest = table.iter().map(|line| line.chars().count()).max();
        let fits = out.width.is_none_or(|width| widest.unwrap_or(0) <= width);
        let least = kept.iter().copied().max_by_key(|c| SUBFLOW_COLUMNS[*c].1);
        match least.filter(|c| !fits && SUBFLOW_COLUMNS[*c].1 > 0) {
            Some(least) => kept.retain(|c| *c != least),
            None => break table,
        }
    };
    for line in table {
        out.line(&line);
    }
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

/// The lines of a table of these columns.
fn table(rows: &[Vec<String>], columns: &[usize]) -> Vec<String> {
    let width = |c: &usize| {
        let cells = rows.iter().filter_map(|row| row.get(*c));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::from("     ");
        for (c, width) in columns.iter().zip(&widths) {
            let cell = row.get(*c).map_or("", String::as_str);
            // Writing to a string cannot fail.
            let _ = write!(line, " {:<width$} ", printable(cell));
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn write_ended(out: &mut Page<'_>, ended: &EndedReport) {
    out.line(&format!(
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
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(why: &Whys, width: Option<usize>) -> Look<'_> {
        Look {
            why,
            rates: true,
            counters: false,
            width,
        }
    }

    /// What a terminal shows is no wider than it is.
    #[test]
    fn a_narrow_terminal_shows_what_matters_most() {
        let subflow = |id, iface: &str| SubflowReport {
            id,
            iface: iface.into(),
            local: "[2001:db8:1234:5678::1234]:54321".parse().ok(),
            remote: "[2001:db8:8765:4321::4321]:443".parse().ok(),
            phase: "pre-established".into(),
            stale: true,
            srtt_us: Some(123_456),
            rto_us: 1_234_567,
            cwnd: 1_234_567,
            bytes_sent: 123_456_789,
            origin: "path manager, again after a loss".into(),
            ..SubflowReport::default()
        };
        let process = ProcessReport {
            title: "forward tcp:127.0.0.1:8080 to mptcp:server.example:80 and more".into(),
            paths: vec![PathReport {
                iface: "wwan0".into(),
                missing: Some("the interface wwan0 is down".into()),
                ..PathReport::default()
            }],
            memory: MemoryReport {
                used: 1,
                limit: 1 << 30,
            },
            counters: [("syn_source_limit", 7), ("never", 0), (HOST_REPAIRS, 2)]
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
            connections: vec![ConnReport {
                subflows: vec![subflow(0, "wlan0"), subflow(1, "wwan0")],
                fallback: Some("a checksum failed: something rewrites the payload".into()),
                ..ConnReport::default()
            }],
            ..ProcessReport::default()
        };
        let whys = Whys::new();
        let shown = |width: usize| {
            let mut text = String::new();
            let look = Look {
                counters: true,
                ..all(&whys, Some(width))
            };
            let mut rates = Rates::default();
            write_process(&mut text, &process, &look, &mut rates, Instant::now());
            text
        };
        for width in [1, 20, 40, 80, 120, 163, 300] {
            let text = shown(width);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
        let text = shown(80);
        for part in [
            "subflow",
            "wwan0",
            "state",
            "rtt",
            "out",
            "in",
            "0 bit/s",
            "is down",
            "memory",
            "repairs: 2",
            "syn_source_limit",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(
            !text.contains("again after a loss") && !text.contains("never"),
            "{text}"
        );
        assert!(shown(300).contains("again after a loss"));
    }

    #[test]
    fn a_path_is_shown_with_when_it_is_used_and_why_not() {
        let path =
            |up, priority: Option<&str>, reason: Option<&str>, missing: Option<&str>| PathReport {
                iface: "wwan0".into(),
                up,
                backup: priority == Some("backup"),
                priority: priority.map(Into::into),
                reason: reason.map(Into::into),
                missing: missing.map(Into::into),
                ..PathReport::default()
            };
        let quota = Some("its quota is used up, back at noon");
        for (report, told) in [
            (path(true, None, None, None), "wwan0"),
            (path(true, Some("always"), None, None), "wwan0"),
            (
                path(true, Some("secondary"), None, None),
                "wwan0, secondary",
            ),
            (
                path(true, Some("backup"), quota, None),
                "wwan0, backup (its quota is used up, back at noon)",
            ),
            (
                path(false, Some("never"), quota, None),
                "wwan0 (not used: its quota is used up, back at noon)",
            ),
            (
                path(false, Some("never"), None, None),
                "wwan0 (not used: priority = \"never\")",
            ),
            (
                path(false, Some("always"), None, Some("no cable")),
                "wwan0 (missing: no cable)",
            ),
            (path(false, None, None, None), "wwan0 (missing: down)"),
        ] {
            assert_eq!(path_text(&report), told);
        }
    }

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
        let mut text = String::new();
        let (whys, now) = (Whys::new(), Instant::now());
        write_process(
            &mut text,
            &process,
            &all(&whys, None),
            &mut Rates::default(),
            now,
        );
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
    fn a_named_process_that_is_absent_or_unresponsive_is_reported() {
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
        let whys = Whys::from([(
            (42, "3.1".to_owned()),
            vec![DecisionReport {
                decision: "create 10.1.0.1 -> *".into(),
                reason: "the policy wants one".into(),
                ..DecisionReport::default()
            }],
        )]);
        let now = Instant::now();
        write_process(
            &mut text,
            &process,
            &all(&whys, None),
            &mut Rates::default(),
            now,
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
