//! Smart streaming (SMAPP section 4.3): a second subflow only when a block is late half-way; none whose time-out passes a second.
//!
//! `cargo run -p manypath-control --example smart_streaming [PID | kernel]`

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use manypath_control::engine::{AnyEngine, ControlError, Engine};
use manypath_control::report::ConnReport;
use manypath_control::wire::{Filter, Wanted};
use manypath_stack::api::Ending;

const BLOCK: u64 = 65_536;
const PERIOD: Duration = Duration::from_secs(1);
const BOUND_US: u64 = 1_000_000;

/// The newest block of a stream, and until when half of it must have arrived.
#[derive(Default)]
struct Stream {
    begun: u64,
    half_way: Option<Instant>,
}

impl Stream {
    fn is_late(&mut self, now: Instant, seen: &ConnReport) -> bool {
        let begun = seen.bytes_written.div_ceil(BLOCK);
        if begun > self.begun {
            (self.begun, self.half_way) = (begun, Some(now + PERIOD / 2));
        }
        let over = self.half_way.take_if(|half_way| *half_way <= now).is_some();
        over && seen.bytes_acked < begun * BLOCK - BLOCK / 2
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut control = AnyEngine::open(std::env::args().nth(1).as_deref()).await?;
    let filter = Filter::of(["timeout", "sample"]);
    control.subscribe(filter.with_samples(50)).await?;
    control.claim(None).await?;
    let mut streams: HashMap<String, Stream> = HashMap::new();
    while let Some(event) = control.next_event().await? {
        let Some(seen) = event.sample else { continue };
        let late = event.event == "sample"
            && streams
                .entry(seen.id.clone())
                .or_default()
                .is_late(Instant::now(), &seen);
        let done = match (event.subflow, seen.unused_addresses().first()) {
            (Some(bad), _) if event.rto_us > Some(BOUND_US) && seen.established().count() > 1 => {
                control.destroy(&seen.id, bad, Ending::Reset).await
            }
            (None, Some(local)) if late => {
                let made = control.create(&seen.id, Wanted::from(*local)).await;
                made.map(|_| ())
            }
            _ => Ok(()),
        };
        match done {
            Err(ControlError::Session(error)) => return Err(error),
            Err(refused) => eprintln!("{}: {refused}", seen.id),
            Ok(()) => {}
        }
    }
    Ok(())
}
