//! Full mesh by cause (SMAPP section 4.1): a subflow from each local address, and again after a loss, later for worse causes.
//! `cargo run -p manypath-control --example full_mesh [PID | kernel]`

use std::{collections::HashMap, io, net::IpAddr, time::Duration};

use manypath_control::steering::prelude::*;

type Control = Steering<(String, IpAddr)>; // a path, which is a connection and our address, whose time to wait is over
type Lost = HashMap<(String, IpAddr), (u32, bool)>; // how often a path was lost, and whether it waits

/// How long to wait before the first new attempt; none after an end that somebody meant.
fn pause(event: &EventReport) -> Option<Duration> {
    let meant = event.reset_reason.is_some() && event.transient == Some(false);
    match event.cause.as_deref() {
        Some("reset_by_peer" | "timed_out") if !meant => Some(Duration::from_secs(1)),
        Some("unreachable") => Some(Duration::from_secs(3)),
        Some("address_gone") => Some(Duration::ZERO),
        _ => None,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let filter = Filter::of(["established", "sub_closed", "new_local_addr"]);
    let (mut control, mut lost) = (Control::begin(filter).await?, Lost::new());
    fill(&mut control, &lost).await?;
    let react = async |control: &mut Control, turn| {
        match turn {
            Turn::Event(event) => lose(control, &mut lost, &event),
            Turn::Due(path) => lost.entry(path).or_default().1 = false,
        }
        fill(control, &lost).await
    };
    control.run(react).await
}

fn lose(control: &mut Control, lost: &mut Lost, event: &EventReport) {
    if let Some((name, _, from)) = event.of_subflow() {
        let path = (name.to_owned(), from);
        let (count, waits) = lost.entry(path.clone()).or_default();
        if let Some(pause) = pause(event) {
            control.after_about(pause * (1 << *count), path); // doubles five times at most
        }
        (*count, *waits) = ((*count + 1).min(5), true);
    }
}

async fn fill(control: &mut Control, lost: &Lost) -> Done {
    for seen in control.list().await? {
        for local in seen.unused_addresses() {
            let path = (seen.id.clone(), local);
            if !lost.get(&path).is_some_and(|(_, waits)| *waits) {
                heed(control.create(&seen.id, Wanted::from(local)).await)?;
            }
        }
    }
    Ok(())
}
