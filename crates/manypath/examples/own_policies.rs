//! A scheduler, a congestion control and a path controller of one's own, each at work on a connection in this process.

use manypath::plug::{
    AckSample, Choice, Command, CongestionControl, CustomCongestion, CustomController,
    CustomScheduler, EventKind, GroupView, Instant, Need, NewSubflow, Order, PathController,
    PathView, Schedule, View, Window, usable,
};
use manypath::{
    Congestion, ConnectOptions, Host, Info, PathManager, Scheduler, SubflowId, testing,
};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends a quarter of a megabyte on one path, then as much on the next one.
#[derive(Debug, Default)]
struct Quarters {
    on: Option<SubflowId>,
    left: u32,
}

impl Schedule for Quarters {
    fn pick(&mut self, paths: &[PathView], need: &Need) -> Choice {
        let open = || usable(paths, need).filter(|path| path.room.is_open());
        let stays = self.left > 0 && open().any(|path| Some(path.subflow) == self.on);
        if !stays {
            let after = |path: &&PathView| self.on.is_some_and(|on| path.subflow > on);
            let next = open().find(after).or_else(|| open().next());
            let Some(next) = next else {
                return Choice::Wait;
            };
            (self.on, self.left) = (Some(next.subflow), 250_000);
        }
        self.left = self.left.saturating_sub(need.bytes.min(64 << 10));
        self.on.map_or(Choice::Wait, Choice::Send)
    }
}

static QUARTERS: CustomScheduler =
    CustomScheduler::new("quarters", || Box::new(Quarters::default()));

/// Adds two segments in a round trip and gives up a third on a loss.
#[derive(Debug, Clone)]
struct TwoUpThirdDown;

impl CongestionControl for TwoUpThirdDown {
    fn avoid(&mut self, window: &mut Window, acked: u32, _: &AckSample, _: &GroupView<'_>) {
        // What a whole window of acknowledgements adds up to.
        let mss = u64::from(window.mss());
        let gain = 2 * mss * u64::from(acked) / u64::from(window.cwnd().max(1));
        window.set_cwnd(window.cwnd().saturating_add(gain as u32));
    }

    fn reduce(&mut self, _: &Window, flight: u32) -> u32 {
        flight / 3 * 2
    }

    fn copy(&self) -> Box<dyn CongestionControl> {
        Box::new(self.clone())
    }
}

static TWO_UP: CustomCongestion = CustomCongestion::new("two-up", || Box::new(TwoUpThirdDown));

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
        stream.write_all(b"go").await?;
        let read = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        stream.close().await?;
        io::Result::Ok(read)
    });
    let options = ConnectOptions::new()
        .scheduler(Scheduler::Custom(&QUARTERS))
        .congestion(Congestion::Custom(&TWO_UP))
        .path_manager(PathManager::custom(&SECOND));
    let mut stream = net.client.connect_with("10.0.1.2:80", &options).await?;
    stream.read_exact(&mut [0; 2]).await?;
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
