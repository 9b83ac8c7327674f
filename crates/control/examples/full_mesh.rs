//! Full mesh by cause (SMAPP section 4.1): a subflow from each local address, and again after a loss, later for worse causes.
//!
//! `cargo run -p manypath-control --example full_mesh [PID | kernel]`

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use manypath_control::engine::{AnyEngine, ControlError, Engine};
use manypath_control::wire::{EventReport, Filter, Wanted};
use tokio::time::{Instant, timeout_at};

const LONGEST: Duration = Duration::from_secs(60);
const FOR_EVER: Duration = Duration::from_secs(1 << 30);

/// How long to wait before the first new attempt; not at all after an end that somebody meant.
fn pause(event: &EventReport) -> Duration {
    let meant = event.reset_reason.is_some() && event.transient == Some(false);
    match event.cause.as_deref() {
        Some("reset_by_peer") if !meant => Duration::from_secs(1),
        Some("timed_out") => Duration::from_secs(1),
        Some("unreachable") => Duration::from_secs(3),
        Some("address_gone") => Duration::ZERO,
        _ => FOR_EVER,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut control = AnyEngine::open(std::env::args().nth(1).as_deref()).await?;
    let filter = Filter::of(["established", "sub_closed", "new_local_addr"]);
    control.subscribe(filter).await?;
    control.claim(None).await?;
    let mut losses: HashMap<(String, IpAddr), u32> = HashMap::new();
    // Paths that must wait, and until when.
    let mut due: BTreeMap<(String, IpAddr), Instant> = BTreeMap::new();
    loop {
        due.retain(|_, at| *at > Instant::now());
        for seen in control.list().await? {
            for local in seen.unused_addresses() {
                if due.contains_key(&(seen.id.clone(), local)) {
                    continue;
                }
                match control.create(&seen.id, Wanted::from(local)).await {
                    Err(ControlError::Session(error)) => return Err(error),
                    Err(refused) => eprintln!("{}: {refused}", seen.id),
                    Ok(_) => {}
                }
            }
        }
        let next = due.values().min().copied();
        let next = next.unwrap_or(Instant::now() + FOR_EVER);
        let Ok(event) = timeout_at(next, control.next_event()).await else {
            continue;
        };
        let Some(event) = event? else { return Ok(()) };
        let path = event.connection.clone().zip(event.local.map(|l| l.ip()));
        if let ("sub_closed", Some(path)) = (event.event.as_str(), path) {
            let count = losses.entry(path.clone()).or_default();
            let wait = match pause(&event) {
                FOR_EVER => FOR_EVER,
                pause => (pause * 2_u32.pow((*count).min(6))).min(LONGEST),
            };
            *count += 1;
            due.insert(path, Instant::now() + wait);
        }
    }
}
