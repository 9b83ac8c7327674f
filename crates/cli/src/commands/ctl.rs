//! `manypath ctl`.

use std::io;
use std::time::Duration;

use manypath_control::blocking;
use manypath_control::bridge::Bridge;
use manypath_control::client::{self, Client};
use manypath_control::engine::{ControlError, Engine};
use manypath_control::kernel::Kernel;
use manypath_control::place::Entry;
use manypath_control::remote::{Deed, Runner};
use manypath_control::report::SubflowReport;
use manypath_control::wire::{self, EventReport, Filter, LimitOrder, Reply, Request, Wanted};

use manypath_proxy::config::save::save;

use crate::args::StatusArgs;
use crate::commands::{print_json, print_text, printable, status};
use crate::ctl_args::{CtlArgs, CtlCommand, EngineKind, LimitOf, Named, Priority, QuotaOf};
use crate::exit::{Code, Failure};
use crate::runtime::{block_on, unless_stopped};

/// How often samples come for those who only ask for them.
const EACH_SECOND: Duration = Duration::from_secs(1);

/// Does one thing to a running process, or to the kernel.
pub(crate) fn run(args: CtlArgs) -> Result<(), Failure> {
    let CtlArgs {
        pid,
        engine,
        json,
        force,
        what,
    } = args;
    let takes = what.commanded().is_some() || matches!(what, CtlCommand::Run { .. });
    if force && !(takes && engine == EngineKind::Manypath) {
        let what = match engine {
            EngineKind::Kernel => "--force: nobody owns the kernel's connections",
            EngineKind::Manypath => "--force: this command only looks",
        };
        return Err(Failure::usage(what));
    }
    if let (EngineKind::Kernel, Some(Named::Number(number))) = (engine, what.subflow()) {
        let what = format!(
            "{number} names no subflow: the kernel's have numbers only as long as one session lasts"
        );
        return Err(Failure::usage(what).hint(
            "name it by an end, as `manypath ctl --engine kernel show CONNECTION` has them",
        ));
    }
    match (engine, &what) {
        (EngineKind::Manypath, CtlCommand::List) => status::run(&StatusArgs {
            json,
            watch: false,
            why: false,
            counters: false,
            interval: Duration::from_secs(1),
            pid,
        }),
        (EngineKind::Manypath, CtlCommand::Serve) => {
            let what = "every manypath process has a control socket already";
            Err(Failure::usage(what)
                .hint("`--engine kernel` makes one for the kernel's connections"))
        }
        (EngineKind::Kernel, CtlCommand::Serve) => block_on(unless_stopped(serve())),
        (EngineKind::Manypath, CtlCommand::Run { .. }) => block_on(unless_stopped(async move {
            let socket = socket_of(pid).await?;
            let controller = on_own_thread(move || {
                let client = blocking::Client::connect_at(&socket).map_err(|e| lost(&e))?;
                block_on(carry_out(client, what, force, json))
            });
            controller.await
        })),
        (EngineKind::Manypath, _) => block_on(unless_stopped(async move {
            let socket = socket_of(pid).await?;
            let client = Client::connect_at(&socket).await.map_err(|e| lost(&e))?;
            carry_out(client, what, force, json).await
        })),
        (EngineKind::Kernel, _) => block_on(unless_stopped(async move {
            let kernel = Kernel::open().map_err(|error| no_kernel(&error))?;
            carry_out(kernel, what, force, json).await
        })),
    }
}

/// The kernel's connections behind a control socket.
async fn serve() -> Result<(), Failure> {
    // Better said now than to each session.
    Kernel::open().map_err(|error| no_kernel(&error))?;
    let bridge = Bridge::start(Kernel::open).map_err(|error| {
        Failure::from_io(
            format!("there can be no control socket: {error}"),
            error.kind(),
        )
    })?;
    crate::runtime::say(&format!("{} serves until Ctrl-C", bridge.path().display()));
    std::future::pending().await
}

fn no_kernel(error: &std::io::Error) -> Failure {
    let what = format!("the kernel's connections cannot be seen: {error}");
    Failure::from_io(what, error.kind())
        .hint("it takes CAP_NET_ADMIN, and a kernel with Multipath TCP (Linux 5.19 or newer)")
}

async fn carry_out(
    mut engine: impl Engine,
    what: CtlCommand,
    force: bool,
    json: bool,
) -> Result<(), Failure> {
    if let Some(connection) = what.commanded().filter(|_| force) {
        let claim = Request::Claim {
            connection: Some(connection.to_owned()),
            force,
        };
        ask(&mut engine, claim).await?;
    }
    match what {
        CtlCommand::List => list(&mut engine, json).await,
        CtlCommand::Show { connection } => show(&mut engine, connection, json).await,
        CtlCommand::Events {
            events,
            connection,
            sample,
        } => {
            let named = events.iter().any(|name| name == "sample");
            let sample = sample.or(named.then_some(EACH_SECOND));
            let sample_ms = sample.map(|t| u64::try_from(t.as_millis()).unwrap_or(u64::MAX));
            let filter = Filter {
                events,
                connection,
                sample_ms,
                with_sample: false,
                with_view: false,
            };
            watch(engine, filter, json).await
        }
        CtlCommand::Run {
            controller,
            connection,
            seed,
        } => {
            let all = connection.is_none();
            let runner = Runner::start(engine, controller, connection, force, seed).await;
            let runner = runner.map_err(cannot_run)?;
            crate::runtime::say(&format!("{controller} decides until Ctrl-C"));
            let others = runner.owned_by_others();
            if others > 0 {
                crate::runtime::say(&format!(
                    "of connections that others own ({others}) it only hears: --force takes them"
                ));
            }
            let mut unread = None;
            let told = |deed: &Deed| {
                unread = tell(deed, json).err().filter(Failure::is_unread);
                unread
                    .as_ref()
                    .map_or(Ok(()), |_| Err(io::ErrorKind::BrokenPipe.into()))
            };
            let ended = runner.run(told).await;
            unread.map_or_else(|| ended.map_err(|e| lost(&e)), Err)?;
            gone(all)
        }
        CtlCommand::Remove {
            connection,
            subflow,
            reset,
        } => {
            let subflow = number(&mut engine, &connection, subflow).await?;
            let destroy = Request::SubflowDestroy {
                connection,
                subflow,
                reset,
            };
            done(&ask(&mut engine, destroy).await?, json)
        }
        CtlCommand::Priority {
            connection,
            subflow,
            priority,
        } => {
            let subflow = number(&mut engine, &connection, subflow).await?;
            let set = Request::SetFlags {
                connection,
                subflow,
                backup: priority == Priority::Backup,
            };
            done(&ask(&mut engine, set).await?, json)
        }
        CtlCommand::Add {
            connection,
            from,
            to,
            backup,
        } => {
            let wanted = Wanted {
                local: from.map(|(addr, _)| addr),
                local_port: from.and_then(|(_, port)| port),
                remote: to.map(|(addr, _)| addr),
                remote_port: to.and_then(|(_, port)| port),
                backup,
            };
            add(&mut engine, connection, wanted, json).await
        }
        CtlCommand::Limit { save: true, .. } => match request(what) {
            Some(Request::Limit(order)) => limit_and_save(&mut engine, order, json).await,
            Some(_) | None => Ok(()),
        },
        other => match request(other) {
            Some(request) => {
                let reply = ask(&mut engine, request).await?;
                done(&reply, json)
            }
            None => Ok(()),
        },
    }
}

/// Limits, and writes the limit into the configuration file.
async fn limit_and_save(
    engine: &mut impl Engine,
    order: LimitOrder,
    json: bool,
) -> Result<(), Failure> {
    if order.of == wire::LimitOf::Connection {
        return Err(Failure::usage(
            "--save: a connection has no place in a file; limit its class, by --save too",
        ));
    }
    let Reply::Process { process } = ask(engine, Request::List).await? else {
        return Err(Failure::usage("--save: this is no process with a file"));
    };
    let Some(file) = process.config else {
        return Err(Failure::usage(
            "--save: the process has no configuration file: start it by `manypath proxy --config FILE`",
        ));
    };
    let reply = ask(engine, Request::Limit(order.clone())).await?;
    save(std::path::Path::new(&file), &order).map_err(|why| Failure::new(Code::Failure, why))?;
    done(&reply, json)
}

/// Opens a subflow, and says which one.
async fn add(
    engine: &mut impl Engine,
    connection: String,
    wanted: Wanted,
    json: bool,
) -> Result<(), Failure> {
    let create = Request::SubflowCreate {
        connection: connection.clone(),
        wanted,
    };
    let reply = ask(engine, create).await?;
    let Reply::Done {
        subflow: Some(number),
        ..
    } = reply
    else {
        return done(&reply, json);
    };
    if json {
        return print_json(&reply);
    }
    let opened = subflows(engine, connection).await?;
    let opened = opened.into_iter().find(|subflow| subflow.id == number);
    let ends = opened.and_then(|subflow| Some((subflow.local?, subflow.remote?)));
    let ends = ends.map_or_else(String::new, |(local, remote)| {
        format!(", {local} -> {remote}")
    });
    print_text(&format!("subflow {number} is being opened{ends}\n"))
}

/// The subflows of a connection as it is shown.
async fn subflows(
    engine: &mut impl Engine,
    connection: String,
) -> Result<Vec<SubflowReport>, Failure> {
    match ask(engine, Request::Show { connection }).await? {
        Reply::Connection { connection } => Ok(connection.subflows),
        _ => Ok(Vec::new()),
    }
}

/// The number of a subflow that may be named by an end of its own.
async fn number(
    engine: &mut impl Engine,
    connection: &str,
    subflow: Named,
) -> Result<u32, Failure> {
    let end = match subflow {
        Named::Number(number) => return Ok(number),
        Named::End(end) => end,
    };
    let all = subflows(engine, connection.to_owned()).await?;
    let mut with = all
        .iter()
        .filter(|subflow| [subflow.local, subflow.remote].contains(&Some(end)));
    match (with.next(), with.next()) {
        (Some(found), None) => Ok(found.id),
        (Some(_), Some(_)) => Err(
            refused("not_found", format!("several subflows end at {end}"))
                .hint("name one by its other end"),
        ),
        (None, _) => Err(refused("not_found", format!("no subflow ends at {end}"))),
    }
}

async fn list(engine: &mut impl Engine, json: bool) -> Result<(), Failure> {
    let reply = ask(engine, Request::List).await?;
    if json {
        return print_json(&reply);
    }
    let mut text = String::new();
    if let Reply::Process { process } = &reply {
        for connection in &process.connections {
            status::write_one(&mut text, connection);
        }
    }
    print_text(&text)
}

/// Does what blocks its thread. Whoever gives up waiting leaves it to the end of the process.
async fn on_own_thread(
    what: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || ended.send(what()));
    // It ends without a word only when it panics, which has been told.
    end.await
        .unwrap_or_else(|_| Err(Failure::new(Code::Failure, "the controller ended")))
}

/// A controller that cannot begin: the command line asks for none, or somebody says no.
fn cannot_run(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidInput => Failure::usage(error.to_string())
            .hint("`manypath ctl policy CONNECTION POLICY` lets it decide within the process"),
        _ => match error.downcast() {
            Ok(ControlError::Refused { code, message }) => refused(&code, message),
            Ok(ControlError::Session(error)) | Err(error) => lost(&error),
        },
    }
}

/// The socket of the process that is meant, which answers.
pub(crate) async fn socket_of(pid: Option<u32>) -> Result<Entry, Failure> {
    let mut sockets = client::sockets();
    sockets.retain(|socket| pid.is_none_or(|pid| pid == socket.pid));
    // At one time: those that do not answer are not waited for one after the other.
    let mut asked = tokio::task::JoinSet::new();
    for socket in sockets {
        asked.spawn(async move {
            let reply = client::ask_at(&socket, &Request::Hello).await;
            (socket.pid, reply.map(|_| socket))
        });
    }
    let mut found = Vec::new();
    for (pid, answer) in asked.join_all().await {
        match answer {
            // What nobody listens to is left over from a process that is gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            answer => found.push((pid, answer)),
        }
    }
    found.sort_by_key(|(pid, _)| *pid);
    match (found.pop(), found.len()) {
        (Some((_, Ok(socket))), 0) => Ok(socket),
        (Some((pid, Err(error))), 0) => Err(status::silent(pid, &error)),
        (Some((last, _)), _) => {
            let mut pids: Vec<String> = found.iter().map(|(pid, _)| pid.to_string()).collect();
            pids.push(last.to_string());
            let what = format!("several processes are running: {}", pids.join(", "));
            Err(Failure::usage(what).hint("say which one with --pid"))
        }
        (None, _) => Err(status::nobody(pid)),
    }
}

pub(crate) fn lost(error: &std::io::Error) -> Failure {
    let ended = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    if ended.contains(&error.kind()) {
        let what = "the process has ended the session";
        return Failure::new(Code::Network, what).hint(
            "it is over, or a controller that owned connections did not read for ten seconds",
        );
    }
    Failure::from_io(
        format!("the process does not go along: {error}"),
        error.kind(),
    )
}

async fn ask(engine: &mut impl Engine, request: Request) -> Result<Reply, Failure> {
    engine.order(request).await.map_err(|error| match error {
        ControlError::Session(error) => lost(&error),
        ControlError::Refused { code, message } => refused(&code, message),
    })
}

/// What was refused, and what to do about it.
fn refused(code: &str, message: String) -> Failure {
    let failure = Failure::new(Code::Failure, message);
    match code {
        "not_found" => failure.hint("`manypath ctl list` names the connections and their subflows"),
        "owned" => failure.hint(
            "it commands until it releases the connection or ends; --force takes the connection from it",
        ),
        "no_path" => failure.hint(
            "`manypath ctl show CONNECTION --json` has the addresses of both ends, as local_addresses and remote_addresses",
        ),
        "limit" => failure.hint("`manypath ctl limits CONNECTION --subflows N` changes it"),
        _ => failure,
    }
}

/// The request of a command that is one request and one reply.
fn request(what: CtlCommand) -> Option<Request> {
    Some(match what {
        CtlCommand::Announce {
            connection,
            address,
            port,
        } => Request::Announce {
            connection,
            address,
            port,
        },
        CtlCommand::Withdraw { connection, id } => Request::Remove {
            connection,
            address_id: id,
        },
        CtlCommand::Limits {
            connection,
            subflows,
            add_addr_accepted,
        } => Request::SetLimits {
            connection,
            subflows,
            add_addr_accepted,
        },
        CtlCommand::Limit {
            of,
            name,
            rate,
            burst,
            save: _,
        } => Request::Limit(LimitOrder {
            of: match of {
                LimitOf::Path => wire::LimitOf::Path,
                LimitOf::Class => wire::LimitOf::Class,
                LimitOf::Connection => wire::LimitOf::Connection,
            },
            name,
            bits_per_second: rate.0,
            burst,
        }),
        CtlCommand::ResetQuota { of, name } => Request::ResetQuota {
            of: match of {
                QuotaOf::Path => wire::LimitOf::Path,
                QuotaOf::Class => wire::LimitOf::Class,
            },
            name,
        },
        CtlCommand::Policy { connection, policy } => Request::SetPolicy {
            connection,
            policy: policy.to_string(),
        },
        CtlCommand::List
        | CtlCommand::Show { .. }
        | CtlCommand::Add { .. }
        | CtlCommand::Remove { .. }
        | CtlCommand::Priority { .. }
        | CtlCommand::Events { .. }
        | CtlCommand::Run { .. }
        | CtlCommand::Serve => return None,
    })
}

fn done(reply: &Reply, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(reply);
    }
    match reply {
        Reply::Done {
            address_id: Some(id),
            ..
        } => print_text(&format!("announced as address {id}\n")),
        _ => Ok(()),
    }
}

async fn show(engine: &mut impl Engine, connection: String, json: bool) -> Result<(), Failure> {
    let shown = Request::Show {
        connection: connection.clone(),
    };
    let shown = ask(engine, shown).await?;
    // The kernel keeps no log of decisions.
    let why = engine.order(Request::Why { connection }).await.ok();
    if json {
        print_json(&shown)?;
        return why.map_or(Ok(()), |why| print_json(&why));
    }
    let mut text = String::new();
    if let Reply::Connection { connection } = &shown {
        status::write_one(&mut text, connection);
    }
    if let Some(Reply::Decisions { decisions }) = &why {
        status::write_decisions(&mut text, decisions);
    }
    print_text(&text)
}

async fn watch(mut engine: impl Engine, filter: Filter, json: bool) -> Result<(), Failure> {
    let all = filter.connection.is_none();
    if let Some(connection) = filter.connection.clone() {
        // One that is not there would be waited for without a word.
        ask(&mut engine, Request::Show { connection }).await?;
    }
    ask(&mut engine, Request::Subscribe(filter)).await?;
    while let Some(event) = engine.next_event().await.map_err(|e| lost(&e))? {
        if json {
            print_json(&event)?;
        } else {
            print_text(&line(&event))?;
        }
    }
    gone(all)
}

/// Nothing more will come. That is as it should be where one connection was followed, and not where all were.
fn gone(all: bool) -> Result<(), Failure> {
    match all {
        true => Err(Failure::new(Code::Network, "the process has ended")),
        false => Ok(()),
    }
}

/// An event in words: what it is, and whatever it says.
fn line(event: &EventReport) -> String {
    let seconds = std::time::Duration::from_micros(event.at_us).as_secs_f64();
    let mut text = format!("{seconds:12.6} {:16}", event.event);
    if let Some(sample) = &event.sample {
        text.push_str(&format!(
            " {} acknowledged {} of {}, {} subflows",
            sample.id,
            sample.bytes_acked,
            sample.bytes_written,
            sample.subflows.len()
        ));
        return printable(&text) + "\n";
    }
    // The fields in the order of the protocol; every one that is there says something.
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(event) {
        for (name, value) in fields {
            if !matches!(name.as_str(), "event" | "seq" | "at_us") {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                text.push_str(&format!(" {name}={value}"));
            }
        }
    }
    printable(&text) + "\n"
}

/// Tells a decision.
fn tell(deed: &Deed, json: bool) -> Result<(), Failure> {
    let what = match &deed.order.command {
        Some(command) => command.to_string(),
        None => "leave things as they are".to_owned(),
    };
    if json {
        return print_json(&serde_json::json!({
            "connection": deed.connection,
            "decision": what,
            "reason": deed.order.why,
            "refused": deed.refused,
        }));
    }
    let refused = deed.refused.as_ref();
    let refused = refused.map_or_else(String::new, |why| format!(" (refused: {why})"));
    print_text(&format!(
        "{} {what}: {}{refused}\n",
        deed.connection, deed.order.why
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_cannot_be_run_is_a_wrong_command_line() {
        let failure = cannot_run(io::ErrorKind::InvalidInput.into());
        assert!(failure.to_string().contains("ctl policy"));
        let owned = ControlError::Refused {
            code: "owned".to_owned(),
            message: "another controller owns it".to_owned(),
        };
        let failure = cannot_run(owned.into()).to_string();
        assert!(failure.starts_with("another controller owns it\n  hint: "));
        assert!(failure.contains("--force"), "{failure}");
    }

    #[test]
    fn a_refusal_says_what_to_do_next() {
        for code in ["not_found", "owned", "no_path", "limit"] {
            let told = refused(code, "no".to_owned()).to_string();
            assert!(told.starts_with("no\n  hint: "), "{told}");
        }
    }

    #[test]
    fn an_event_is_told_with_whatever_it_says() {
        let event = EventReport {
            event: "timeout".into(),
            at_us: 1_500_000,
            connection: Some("3.1".into()),
            subflow: Some(2),
            rto_us: Some(400_000),
            ..EventReport::default()
        };
        let text = line(&event);
        for part in [
            "1.500000",
            "timeout",
            "connection=3.1",
            "subflow=2",
            "rto_us=400000",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }
}
