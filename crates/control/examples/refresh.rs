//! Refresh (SMAPP section 4.4): several subflows over a network that hashes flows; every 2.5 s the slowest is replaced, unless
//! all do about alike. `cargo run -p manypath-control --example refresh [PID | kernel]`

use std::{collections::HashMap, io};

use manypath_control::steering::prelude::*;

const SUBFLOWS: usize = 5;
const EVERY_MS: u64 = 2_500;

/// What each subflow of a connection had acknowledged at the last look.
type Acked = HashMap<u32, u64>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let filter = Filter::of(["established", "sample"]).with_samples(EVERY_MS);
    let mut all: HashMap<String, Acked> = HashMap::new();
    let react = async |control: &mut Steering<()>, turn: Turn<()>| {
        let Some(seen) = turn.sample().filter(|seen| seen.may_join) else {
            return Ok(());
        };
        let acked = seen.established().map(|sf| (sf.id, sf.bytes_acked));
        let before = all.insert(seen.id.clone(), acked.collect());
        refresh(control, &seen, &before.unwrap_or_default()).await
    };
    Steering::begin(filter).await?.run(react).await
}

async fn refresh(control: &mut Steering<()>, seen: &ConnReport, before: &Acked) -> Done {
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
