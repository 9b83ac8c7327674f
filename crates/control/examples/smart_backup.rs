//! Smart backup (SMAPP section 4.2) beside a process: no second subflow before the time-out of the first passes a second.
//!
//! `cargo run -p manypath-control --example smart_backup [PID]`

use std::io;

use manypath_control::client::{self, Client};
use manypath_control::wire::{EventReport, Filter, Reply, Request, Wanted};

const THRESHOLD_US: u64 = 1_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let pid = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let found = client::sockets()
        .into_iter()
        .find(|(known, _)| pid.is_none_or(|pid: u32| pid == *known));
    let (_, socket) = found.ok_or(io::ErrorKind::NotFound)?;
    let mut control = Client::connect(&socket).await?;
    let events = vec!["timeout".to_owned()];
    control
        .ask(Request::Subscribe(Filter {
            events,
            ..Filter::default()
        }))
        .await?;
    control
        .ask(Request::Claim {
            connection: None,
            force: false,
        })
        .await?;
    while let Some(event) = control.next_event().await? {
        if event.rto_us > Some(THRESHOLD_US) {
            move_away(&mut control, event).await?;
        }
    }
    Ok(())
}

/// Opens a subflow from an unused address and resets the one in trouble.
async fn move_away(control: &mut Client, event: EventReport) -> io::Result<()> {
    let (Some(connection), Some(subflow)) = (event.connection, event.subflow) else {
        return Ok(());
    };
    let show = Request::Show {
        connection: connection.clone(),
    };
    let Reply::Connection { connection: shown } = control.ask(show).await? else {
        return Ok(());
    };
    let used = |local| {
        shown
            .subflows
            .iter()
            .any(|sf| sf.local.map(|end| end.ip()) == local)
    };
    let free = shown
        .local_addresses
        .iter()
        .find(|local| local.up && !used(local.address));
    if let Some(free) = free {
        let wanted = Wanted {
            local: free.address,
            ..Wanted::default()
        };
        let connection = connection.clone();
        let made = control
            .ask(Request::SubflowCreate { connection, wanted })
            .await?;
        println!(
            "subflow {subflow} times out, moving to {:?}: {made:?}",
            free.address
        );
        control
            .ask(Request::SubflowDestroy {
                connection: shown.id.clone(),
                subflow,
                reset: true,
            })
            .await?;
    }
    Ok(())
}
