//! `manypath ctl`.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manypath_control::blocking;
use manypath_control::bridge::Bridge;
use manypath_control::client::{self, Client};
use manypath_control::engine::{ControlError, Engine};
use manypath_control::kernel::Kernel;
use manypath_control::remote::{Deed, Runner};
use manypath_control::wire::{EventReport, Filter, Reply, Request, Wanted};

use crate::args::StatusArgs;
use crate::commands::{print_json, print_text, status};
use crate::ctl_args::{CtlArgs, CtlCommand, EngineKind, Priority};
use crate::exit::{Code, Failure};
use crate::runtime::{block_on, unless_stopped};

/// Does one thing to a running process, or to the kernel.
pub(crate) fn run(args: CtlArgs) -> Result<(), Failure> {
    let CtlArgs {
        pid,
        engine,
        json,
        what,
    } = args;
    match (engine, &what) {
        (EngineKind::Manypath, CtlCommand::List) => status::run(&StatusArgs {
            json,
            watch: false,
            why: false,
            interval: Duration::from_secs(1),
            pid,
        }),
        (EngineKind::Manypath, CtlCommand::Serve) => {
            let what = "every manypath process has a control socket already";
            Err(Failure::usage(what)
                .hint("`--engine kernel` makes one for the kernel's connections"))
        }
        (EngineKind::Kernel, CtlCommand::Serve) => block_on(unless_stopped(serve())),
        (EngineKind::Manypath, CtlCommand::Run { .. }) => {
            block_on(unless_stopped(on_own_thread(move || {
                let client = session(pid, blocking::Client::connect)?;
                block_on(carry_out(client, what, json))
            })))
        }
        (EngineKind::Manypath, _) => block_on(unless_stopped(async move {
            let socket = session(pid, |socket| {
                UnixStream::connect(socket).map(|_| socket.to_owned())
            })?;
            let client = Client::connect(&socket).await.map_err(|e| lost(&e))?;
            carry_out(client, what, json).await
        })),
        (EngineKind::Kernel, _) => block_on(unless_stopped(async move {
            let kernel = Kernel::open().map_err(|error| no_kernel(&error))?;
            carry_out(kernel, what, json).await
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

async fn carry_out(mut engine: impl Engine, what: CtlCommand, json: bool) -> Result<(), Failure> {
    match what {
        CtlCommand::List => list(&mut engine, json).await,
        CtlCommand::Show { connection } => show(&mut engine, connection, json).await,
        CtlCommand::Events {
            events,
            connection,
            sample,
        } => {
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
            let runner = Runner::start(engine, controller, connection, seed).await;
            let runner = runner.map_err(|e| lost(&e))?;
            crate::runtime::say(&format!("{controller} decides until Ctrl-C"));
            let ended = runner.run(|deed| tell(deed, json)).await;
            ended.map_err(|e| lost(&e))
        }
        other => match request(other) {
            Some(request) => {
                let reply = ask(&mut engine, request).await?;
                done(&reply, json)
            }
            None => Ok(()),
        },
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

/// A session with the process that is meant.
fn session<S>(pid: Option<u32>, open: impl Fn(&Path) -> io::Result<S>) -> Result<S, Failure> {
    let mut sockets: Vec<(u32, PathBuf)> = client::sockets();
    sockets.retain(|(known, _)| pid.is_none_or(|pid| pid == *known));
    let mut found = Vec::new();
    for (pid, socket) in sockets {
        // What cannot be reached is left over from a process that is gone.
        if let Ok(client) = open(&socket) {
            found.push((pid, client));
        }
    }
    match (found.pop(), found.len()) {
        (Some((_, client)), 0) => Ok(client),
        (Some((last, _)), _) => {
            let mut pids: Vec<String> = found.iter().map(|(pid, _)| pid.to_string()).collect();
            pids.push(last.to_string());
            let what = format!("several processes are running: {}", pids.join(", "));
            Err(Failure::usage(what).hint("say which one with --pid"))
        }
        (None, _) => Err(Failure::new(
            Code::Failure,
            "no manypath process of this user can be reached",
        )
        .hint("`manypath status` shows those that are running; root sees those of all users")),
    }
}

fn lost(error: &std::io::Error) -> Failure {
    Failure::from_io(
        format!("the process does not go along: {error}"),
        error.kind(),
    )
}

async fn ask(engine: &mut impl Engine, request: Request) -> Result<Reply, Failure> {
    engine.order(request).await.map_err(|error| match error {
        ControlError::Session(error) => lost(&error),
        ControlError::Refused { message, .. } => Failure::new(Code::Failure, message),
    })
}

/// The request of a command that is one request and one reply.
fn request(what: CtlCommand) -> Option<Request> {
    Some(match what {
        CtlCommand::Add {
            connection,
            from,
            to,
            backup,
        } => Request::SubflowCreate {
            connection,
            wanted: Wanted {
                local: from.map(|(addr, _)| addr),
                local_port: from.and_then(|(_, port)| port),
                remote: to.map(|(addr, _)| addr),
                remote_port: to.and_then(|(_, port)| port),
                backup,
            },
        },
        CtlCommand::Remove {
            connection,
            subflow,
            reset,
        } => Request::SubflowDestroy {
            connection,
            subflow,
            reset,
        },
        CtlCommand::Priority {
            connection,
            subflow,
            priority,
        } => Request::SetFlags {
            connection,
            subflow,
            backup: priority == Priority::Backup,
        },
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
        CtlCommand::Policy { connection, policy } => Request::SetPolicy {
            connection,
            policy: policy.to_string(),
        },
        CtlCommand::List
        | CtlCommand::Show { .. }
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
            subflow: Some(subflow),
            ..
        } => print_text(&format!("subflow {subflow} is being opened\n")),
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
    ask(&mut engine, Request::Subscribe(filter)).await?;
    while let Some(event) = engine.next_event().await.map_err(|e| lost(&e))? {
        if json {
            print_json(&event)?;
        } else {
            print_text(&line(&event))?;
        }
    }
    Ok(())
}

/// An event in words: what it is, and whatever it says.
fn line(event: &EventReport) -> String {
    let seconds = std::time::Duration::from_micros(event.at_us).as_secs_f64();
    let mut text = format!("{seconds:12.6} {:16}", event.event);
    if let Some(sample) = &event.sample {
        text.push_str(&format!(
            " {} acknowledged {} of {}, {} subflows\n",
            sample.id,
            sample.bytes_acked,
            sample.bytes_written,
            sample.subflows.len()
        ));
        return text;
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
    text + "\n"
}

/// Tells a decision; a reader that went away is found out by the next command that prints.
fn tell(deed: &Deed, json: bool) {
    let what = match &deed.order.command {
        Some(command) => command.to_string(),
        None => "leave things as they are".to_owned(),
    };
    let _ = if json {
        print_json(&serde_json::json!({
            "connection": deed.connection,
            "decision": what,
            "reason": deed.order.why,
            "refused": deed.refused,
        }))
    } else {
        let refused = deed.refused.as_ref();
        let refused = refused.map_or_else(String::new, |why| format!(" (refused: {why})"));
        print_text(&format!(
            "{} {what}: {}{refused}\n",
            deed.connection, deed.order.why
        ))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

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
