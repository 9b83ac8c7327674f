//! Smart streaming (SMAPP section 4.3): a second subflow only when a block is late half-way; none whose time-out passes a second.
//! `cargo run -p manypath-control --example smart_streaming [PID | kernel]`

use std::{collections::HashMap, io, time::Duration, time::Instant};

use manypath_control::steering::prelude::*;

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
    let filter = Filter::of(["timeout", "sample"]).with_samples(50);
    let mut streams: HashMap<String, Stream> = HashMap::new();
    let react = async |control: &mut Steering<()>, turn| {
        let Turn::Event(event) = turn else {
            return Ok(());
        };
        let Some(seen) = &event.sample else {
            return Ok(());
        };
        let free = seen.unused_addresses();
        if let Some(bad) = event.subflow.filter(|_| event.rto_us > Some(BOUND_US)) {
            if seen.established().count() > 1 {
                control.destroy(&seen.id, bad, Ending::Reset).await?;
            }
        } else if let (None, Some(local)) = (event.subflow, free.first()) {
            let stream = streams.entry(seen.id.clone()).or_default();
            if stream.is_late(Instant::now(), seen) {
                control.create(&seen.id, Wanted::from(*local)).await?;
            }
        }
        Ok(())
    };
    Steering::begin(filter).await?.run(react).await
}
