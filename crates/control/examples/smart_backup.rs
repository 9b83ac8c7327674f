//! Smart backup (SMAPP section 4.2): no second subflow before the time-out of the first passes a second; then move, and back
//! when the first path does well again. `cargo run -p manypath-control --example smart_backup [PID | kernel]`

use std::{collections::HashMap, io, net::IpAddr, time::Duration};

use manypath_control::steering::prelude::*;

const THRESHOLD_US: u64 = 1_000_000;
const RETRY: Duration = Duration::from_secs(10); // before the first path is tried again,
const PROBATION: Duration = Duration::from_secs(3); // and how long it must then do well

type Control = Steering<(String, IpAddr)>; // a connection to be looked at later, and its first address
type Moved = HashMap<String, Option<u32>>; // those that have moved, and the subflow that tries the first path

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let (filter, mut moved) = (Filter::of(["timeout"]), Moved::new());
    let react = async |control: &mut Control, turn| match turn {
        Turn::Event(event) => timed_out(control, &mut moved, &event).await,
        Turn::Due((name, first)) => look_back(control, &mut moved, name, first).await,
    };
    Control::begin(filter).await?.run(react).await
}

async fn timed_out(control: &mut Control, moved: &mut Moved, event: &EventReport) -> Done {
    let Some((name, bad, from)) = event.of_subflow() else {
        return Ok(());
    };
    if moved.get(name) == Some(&Some(bad)) {
        control.destroy(name, bad, Ending::Reset).await?;
    } else if !moved.contains_key(name) && event.rto_us > Some(THRESHOLD_US) {
        // What is meant as a backup stands last.
        let wanted = Wanted::from(control.show(name).await?.unused_addresses().pop());
        control.create(name, wanted).await?;
        control.destroy(name, bad, Ending::Reset).await?;
        moved.insert(name.to_owned(), None);
        control.after(RETRY, (name.to_owned(), from));
    }
    Ok(())
}

async fn look_back(c: &mut Control, moved: &mut Moved, name: String, first: IpAddr) -> Done {
    let trial = moved.remove(&name).flatten();
    let seen = c.show(&name).await?;
    if seen.established().any(|sf| Some(sf.id) == trial) {
        for other in seen.subflows.iter().filter(|sf| Some(sf.id) != trial) {
            c.destroy(&name, other.id, Ending::Fin).await?;
        }
    } else {
        let (trial, pause) = match trial {
            None => (c.create(&name, Wanted::from(first)).await?, PROBATION),
            Some(_) => (None, RETRY),
        };
        c.after(pause, (name.clone(), first));
        moved.insert(name, trial);
    }
    Ok(())
}
