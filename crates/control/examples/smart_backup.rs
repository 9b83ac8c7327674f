//! Smart backup (SMAPP section 4.2): no second subflow before the time-out of the first passes a second; then move, and back
//! when the first path does well again.
//!
//! `cargo run -p manypath-control --example smart_backup [PID | kernel]`

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use manypath_control::engine::{AnyEngine, ControlError, Engine};
use manypath_control::wire::{EventReport, Filter, Wanted};
use manypath_stack::api::Ending;
use tokio::time::{Instant, timeout_at};

const THRESHOLD_US: u64 = 1_000_000;
/// Before the first path is tried again, and how long it must then do well.
const RETRY: Duration = Duration::from_secs(10);
const PROBATION: Duration = Duration::from_secs(3);

/// A connection that has moved.
struct Moved {
    primary: IpAddr,
    /// The subflow that tries the first path.
    trial: Option<u32>,
    look: Instant,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut control = AnyEngine::open(std::env::args().nth(1).as_deref()).await?;
    control.subscribe(Filter::of(["timeout", "closed"])).await?;
    control.claim(None).await?;
    let mut moved: HashMap<String, Moved> = HashMap::new();
    loop {
        let next = moved.iter().min_by_key(|(_, state)| state.look);
        let next = next.map(|(name, state)| (name.clone(), state.look));
        let until = next.as_ref().map_or(Instant::now() + RETRY, |(_, at)| *at);
        let done = match (timeout_at(until, control.next_event()).await, next) {
            (Ok(event), _) => match event? {
                Some(event) => react(&mut control, &mut moved, event).await,
                None => return Ok(()),
            },
            (Err(_), Some((name, _))) => lead_back(&mut control, &mut moved, &name).await,
            (Err(_), None) => Ok(()),
        };
        match done {
            Err(ControlError::Session(error)) => return Err(error),
            Err(refused) => eprintln!("{refused}"),
            Ok(()) => {}
        }
    }
}

async fn react(
    control: &mut impl Engine,
    moved: &mut HashMap<String, Moved>,
    event: EventReport,
) -> Result<(), ControlError> {
    let Some(name) = event.connection else {
        return Ok(());
    };
    let (Some(subflow), true) = (event.subflow, event.event == "timeout") else {
        moved.remove(&name);
        return Ok(());
    };
    if let Some(state) = moved.get_mut(&name) {
        // It does not do well yet.
        state.trial.take_if(|trial| *trial == subflow);
    } else if event.rto_us > Some(THRESHOLD_US) {
        let seen = control.show(&name).await?;
        let bad = seen.subflows.iter().find(|sf| sf.id == subflow);
        if let Some(primary) = bad.and_then(|sf| sf.local_address()) {
            // What is meant as a backup goes first.
            let local = seen.unused_addresses().last().copied();
            let wanted = local.map(Wanted::from).unwrap_or_default();
            control.create(&name, wanted).await?;
            control.destroy(&name, subflow, Ending::Reset).await?;
            let (trial, look) = (None, Instant::now() + RETRY);
            moved.insert(
                name,
                Moved {
                    primary,
                    trial,
                    look,
                },
            );
        }
    }
    Ok(())
}

/// Tries the first path; when it has done well for a while, the others are closed.
async fn lead_back(
    control: &mut impl Engine,
    moved: &mut HashMap<String, Moved>,
    name: &str,
) -> Result<(), ControlError> {
    let Some(mut state) = moved.remove(name) else {
        return Ok(());
    };
    let seen = control.show(name).await?;
    let well = seen.established().any(|sf| Some(sf.id) == state.trial);
    if well {
        for other in seen.subflows.iter().filter(|sf| Some(sf.id) != state.trial) {
            control.destroy(name, other.id, Ending::Fin).await?;
        }
        return Ok(());
    }
    let wait = match state.trial {
        // It came to nothing.
        Some(_) => RETRY,
        None => PROBATION,
    };
    state.trial = match state.trial {
        Some(_) => None,
        None => control.create(name, Wanted::from(state.primary)).await?,
    };
    state.look = Instant::now() + wait;
    moved.insert(name.to_owned(), state);
    Ok(())
}
