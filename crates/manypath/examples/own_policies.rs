//! A scheduler, a congestion control and a path controller of one's own, each at work on a connection in this process.

use manypath::plug::{
    AckSample, Choice, Command, CongestionControl, CustomCongestion, CustomController,
    CustomScheduler, EventKind, GroupView, Instant, Need, NewSubflow, Order, PathController,
    PathView, Schedule, View, Window, usable,
};
use manypath::{
    Congestion, ConnectOptions, Host, Info, PathEvent, PathManager, Scheduler, testing,
};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// New data goes on the youngest subflow alone, and waits while that one has no room.
#[derive(Debug)]
struct Youngest;

impl Schedule for Youngest {
    fn pick(&mut self, paths: &[PathView], need: &Need) -> Choice {
        let youngest = usable(paths, need).max_by_key(|path| path.subflow);
        match youngest.filter(|path| path.room.is_open()) {
            Some(path) => Choice::Send(path.subflow),
            None => Choice::Wait,
        }
    }
}

static YOUNGEST: CustomScheduler = CustomScheduler::new("youngest", || Box::new(Youngest));

/// A window of twenty segments, whatever happens: for a path whose capacity is known.
#[derive(Debug, Clone)]
struct Twenty;

impl Twenty {
    const SEGMENTS: u32 = 20;
}

impl CongestionControl for Twenty {
    fn on_ack(&mut self, window: &mut Window, _: &AckSample, _: &GroupView<'_>) -> bool {
        window.set_cwnd(Self::SEGMENTS * window.mss());
        true // neither slow start nor `avoid` follows
    }

    fn avoid(&mut self, _: &mut Window, _: u32, _: &AckSample, _: &GroupView<'_>) {}

    fn reduce(&mut self, window: &Window, _flight: u32) -> u32 {
        window.cwnd()
    }

    fn copy(&self) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
}

static TWENTY: CustomCongestion = CustomCongestion::new("twenty", || Box::new(Twenty));

/// One subflow from our second address, as soon as the connection may have it, and no other.
#[derive(Debug, Default)]
struct SecondAddress {
    asked: bool,
}

impl PathController for SecondAddress {
    fn react(
        &mut self,
        _now: Instant,
        _event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        let used = |addr| view.subflows.iter().any(|sf| sf.local.ip() == addr);
        let mut free = view.locals.iter().filter(|local| !used(local.addr));
        let fits = free.find(|local| local.addr.is_ipv4());
        if let Some(local) = fits.filter(|_| view.may_join && !self.asked) {
            self.asked = true;
            let subflow = NewSubflow {
                local: Some(local.addr),
                ..NewSubflow::default()
            };
            orders.push(Order::give(Command::Create(subflow), "a second address"));
        }
    }
}

static SECOND: CustomController =
    CustomController::new("second-address", || Box::new(SecondAddress::default()));

/// Sends `bytes` to a server of `net` with all three, and returns what the connection looked like before it ended.
pub async fn upload(net: &testing::Pair, bytes: u64) -> io::Result<Info> {
    let listener = net.server.listen("0.0.0.0:80")?;
    let server = tokio::spawn(async move {
        let (mut stream, _peer) = listener.accept().await?;
        stream.read_exact(&mut [0; 2]).await?;
        stream.write_all(b"go").await?;
        let read = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        stream.close().await?;
        io::Result::Ok(read)
    });
    let options = ConnectOptions::new()
        .scheduler(Scheduler::Custom(&YOUNGEST))
        .congestion(Congestion::Custom(&TWENTY))
        .path_manager(PathManager::custom(&SECOND));
    let mut stream = net.client.connect_with("10.0.1.2:80", &options).await?;
    let mut events = stream.path_events();
    // Joins are allowed when the peer has acknowledged something (RFC 8684 section 3.1).
    stream.write_all(b"hi").await?;
    stream.read_exact(&mut [0; 2]).await?;
    while let Some(event) = events.next().await {
        if matches!(event, PathEvent::SubflowUp { .. }) {
            break;
        }
    }
    tokio::io::copy(&mut tokio::io::repeat(0).take(bytes), &mut stream).await?;
    let info = stream.info()?;
    stream.close().await?;
    let read = server.await??;
    assert_eq!(read, bytes);
    Ok(info)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let net = testing::pair_of(2, Host::builder(), Host::builder())?;
    let info = upload(&net, 50_000_000).await?;
    println!(
        "{} and {}, {}",
        info.scheduler, info.congestion, info.path_manager
    );
    for subflow in &info.subflows {
        println!(
            "{} > {}: {} bytes",
            subflow.local, subflow.remote, subflow.bytes_sent
        );
    }
    Ok(())
}
