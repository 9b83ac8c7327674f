//! Refresh (SMAPP section 4.4): several subflows over a network that hashes flows; every 2.5 s the slowest is replaced, unless
//! all do about alike.
//!
//! `cargo run -p manypath-control --example refresh [PID | kernel]`

use std::collections::HashMap;
use std::io;

use manypath_control::engine::{AnyEngine, ControlError, Engine};
use manypath_control::report::ConnReport;
use manypath_control::wire::{Filter, Wanted};
use manypath_stack::api::Ending;

const SUBFLOWS: usize = 5;
const EVERY_MS: u64 = 2_500;

/// What each subflow of a connection had acknowledged at the last look.
type Acked = HashMap<u32, u64>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut control = AnyEngine::open(std::env::args().nth(1).as_deref()).await?;
    let filter = Filter::of(["established", "sample"]);
    control.subscribe(filter.with_samples(EVERY_MS)).await?;
    control.claim(None).await?;
    let mut all: HashMap<String, Acked> = HashMap::new();
    while let Some(event) = control.next_event().await? {
        let Some(seen) = event.sample.filter(|seen| seen.may_join) else {
            continue;
        };
        let before = all.remove(&seen.id).unwrap_or_default();
        match refresh(&mut control, &seen, &before).await {
            Err(ControlError::Session(error)) => return Err(error),
            Err(refused) => eprintln!("{}: {refused}", seen.id),
            Ok(()) => {}
        }
        let acked = seen.established().map(|sf| (sf.id, sf.bytes_acked));
        all.insert(seen.id.clone(), acked.collect());
    }
    Ok(())
}

async fn refresh(
    control: &mut impl Engine,
    seen: &ConnReport,
    before: &Acked,
) -> Result<(), ControlError> {
    for _ in seen.subflows.len()..SUBFLOWS {
        control.create(&seen.id, Wanted::default()).await?;
    }
    // One that was not there at the last look has not had its chance.
    let since = |id, acked: u64| before.get(&id).map(|b| acked.saturating_sub(*b));
    let all = seen.established();
    let rates = all.filter_map(|sf| Some((since(sf.id, sf.bytes_acked)?, sf.id)));
    let rates: Vec<(u64, u32)> = rates.collect();
    if let (Some((least, slowest)), Some((most, _))) = (rates.iter().min(), rates.iter().max()) {
        if least * 4 < most * 3 {
            control.create(&seen.id, Wanted::default()).await?;
            control.destroy(&seen.id, *slowest, Ending::Fin).await?;
        }
    }
    Ok(())
}
