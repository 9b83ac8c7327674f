//! One cell of the table: two namespaces, one or two paths, the box on one of them, and one connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manypath_sim::scenario::EndSpec;
use socket2::{Domain, Protocol, Socket, Type};

use super::cases::Case;
use super::model::{Arm, Cell, Outcome, Place, Stack, seconds};
use super::relay::{Relay, Wanted, endpoint};
use super::talk::{Broken, accept, finish, payload, send};
use super::watch::{self, Seen};
use super::{CONGESTION, Options};
use crate::emulator::{Loss, MakeBoxes};
use crate::kernel;
use crate::netns::{NetNs, NetNsError};
use crate::testbed::{TestPath, Testbed};

/// Where servers listen on the wire.
const PORT: u16 = 5000;
/// Where a relay and its application meet on loopback.
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6000);
/// Rate of a path.
const RATE: u64 = 50_000_000;
/// Round trip of a path without queueing, and how long its full buffer lasts.
const ROUND_TRIP: u64 = 20;

/// What all cells share.
pub(super) struct Setting<'a> {
    pub(super) options: &'a Options,
    pub(super) program: &'a Path,
    pub(super) runtime: &'a Path,
}

/// The paths of a case: the box is at the client's end of its path, unless the case says otherwise.
fn paths(case: &Case, place: Place) -> Vec<TestPath> {
    let ms = manypath_tcp::time::Duration::from_millis;
    (0..place.paths())
        .map(|index| {
            let name = format!("eth{}", index + 1);
            let mut path = TestPath::symmetric(&name, RATE, ms(ROUND_TRIP), ms(2 * ROUND_TRIP));
            // A box may join segments; the interfaces behind it take what no wire would.
            path.up.mtu = u16::MAX;
            path.down.mtu = u16::MAX;
            if index == place.path() {
                path.boxes = chain(case, EndSpec::First);
                path.far_boxes = chain(case, EndSpec::Second);
                if let Some(loss) = case.loss {
                    path.up.loss = vec![Loss::Bernoulli(loss.0)];
                    path.down.loss = path.up.loss.clone();
                }
            }
            path
        })
        .collect()
}

fn chain(case: &Case, end: EndSpec) -> Option<MakeBoxes> {
    let specs: Vec<_> = case
        .chain
        .iter()
        .filter(|placed| placed.at == end)
        .map(|placed| placed.spec.clone())
        .collect();
    (!specs.is_empty())
        .then(|| Arc::new(move || specs.iter().map(|spec| spec.build()).collect()) as MakeBoxes)
}

/// The address that a side uses on a path, counted from zero. Ours is nobody else's.
fn address(stack: Stack, server: bool, path: usize) -> IpAddr {
    let last = match (stack, server) {
        (Stack::Kernel, false) => 1,
        (Stack::Kernel, true) => 2,
        (Stack::Ours, false) => 10,
        (Stack::Ours, true) => 20,
    };
    // There are two paths at most.
    Ipv4Addr::new(10, 77, path as u8 + 1, last).into()
}

fn socket(to: SocketAddr, protocol: Protocol) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(protocol))?;
    // Subflows inherit it.
    socket.set_tcp_congestion(CONGESTION.as_bytes())?;
    Ok(socket)
}

fn listen(ns: &NetNs, at: SocketAddr, protocol: Protocol) -> std::io::Result<TcpListener> {
    ns.run(move || {
        let socket = socket(at, protocol)?;
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        socket.listen(16)?;
        Ok(socket.into())
    })
}

/// Both sides of a connection that is still to be made.
struct Ends<'a> {
    setting: &'a Setting<'a>,
    arm: Arm,
    listener: TcpListener,
    /// Where the client's application connects to, and how.
    target: (SocketAddr, Protocol),
    /// Ours, where it takes part: client, server.
    relays: [Option<Relay>; 2],
}

impl<'a> Ends<'a> {
    fn open(
        setting: &'a Setting<'a>,
        bed: &Testbed,
        case: &Case,
        arm: Arm,
        paths: usize,
    ) -> Result<Result<Self, String>, NetNsError> {
        let [client, server] = arm.ends().unwrap_or([Stack::Kernel, Stack::Kernel]);
        for (ns, stack) in [(&bed.client, client), (&bed.server, server)] {
            if stack == Stack::Kernel {
                kernel::prepare(ns, case.checksum)?;
            }
        }
        let protocol = match arm {
            Arm::Tcp => Protocol::TCP,
            _ => Protocol::MPTCP,
        };
        let begins = SocketAddr::new(address(server, true, 0), PORT);
        let relay = |ns: &NetNs, is_server: bool, listen: String, to: String| {
            let path = |index| {
                let own = address(Stack::Ours, is_server, index);
                format!("eth{}={own}", index + 1)
            };
            Relay::start(
                ns,
                &Wanted {
                    program: setting.program,
                    runtime: setting.runtime,
                    listen,
                    to,
                    paths: (0..paths).map(path).collect(),
                    checksum: case.checksum,
                },
            )
        };
        let mut relays = [None, None];
        let listener = match server {
            Stack::Kernel => {
                if paths > 1 && arm != Arm::Tcp {
                    let second = address(server, true, 1);
                    bed.server
                        .ip([format!("mptcp endpoint add {second} dev eth2 signal")])?;
                }
                // The kernel takes joins only where it listens, so on every address.
                let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
                listen(&bed.server, any, protocol)
            }
            Stack::Ours => {
                let listener = listen(&bed.server, LOCAL, Protocol::TCP);
                let (from, to) = (endpoint("mptcp", begins), endpoint("tcp", LOCAL));
                match relay(&bed.server, true, from, to)? {
                    Ok(relay) => relays[1] = Some(relay),
                    Err(why) => return Ok(Err(why)),
                }
                listener
            }
        };
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => return Ok(Err(format!("cannot listen: {error}"))),
        };
        let target = match client {
            Stack::Kernel => (begins, protocol),
            Stack::Ours => {
                let (from, to) = (endpoint("tcp", LOCAL), endpoint("mptcp", begins));
                match relay(&bed.client, false, from, to)? {
                    Ok(relay) => relays[0] = Some(relay),
                    Err(why) => return Ok(Err(why)),
                }
                (LOCAL, Protocol::TCP)
            }
        };
        Ok(Ok(Self {
            setting,
            arm,
            listener,
            target,
            relays,
        }))
    }

    fn connect(
        &self,
        bed: &Testbed,
        begun: Instant,
        deadline: Instant,
    ) -> Result<[TcpStream; 2], Broken> {
        let (to, protocol) = self.target;
        let patience = deadline.saturating_duration_since(Instant::now());
        let client = bed
            .client
            .run(move || socket(to, protocol))
            .and_then(|socket| {
                socket.connect_timeout(&to.into(), patience)?;
                Ok(TcpStream::from(socket))
            })
            .map_err(|error| Broken {
                why: format!("connect: {error}"),
                stall: begun.elapsed(),
            })?;
        let server = accept(&self.listener, &client, begun, deadline)?;
        for stream in [&client, &server] {
            // What is written is sent; it matters little for bulk data.
            let _ = stream.set_nodelay(true);
        }
        Ok([client, server])
    }

    /// How both ends see the connection.
    fn seen(&mut self, bed: &Testbed, [client, server]: &[TcpStream; 2]) -> [Option<Seen>; 2] {
        let (program, runtime) = (self.setting.program, self.setting.runtime);
        let [ours_connects, ours_serves] = &mut self.relays;
        [
            (ours_connects, &bed.client, client),
            (ours_serves, &bed.server, server),
        ]
        .map(|(relay, ns, stream)| match relay {
            Some(relay) => relay.seen(program, runtime),
            None => watch::kernel(ns, stream),
        })
    }
}

/// What came of a conversation.
struct Told {
    outcome: Outcome,
    stall: Duration,
    rewritten: bool,
}

impl Told {
    fn failed(why: String, stall: Duration) -> Self {
        Self {
            outcome: Outcome::Failed(why),
            stall,
            rewritten: false,
        }
    }
}

/// Runs one cell.
pub(super) fn run(
    setting: &Setting<'_>,
    case: &Case,
    place: Place,
    arm: Arm,
) -> Result<Cell, NetNsError> {
    let bed = Testbed::new(
        "boxes",
        &paths(case, place),
        CONGESTION,
        setting.options.seed,
    )?;
    let mut ends = match Ends::open(setting, &bed, case, arm, place.paths())? {
        Ok(ends) => ends,
        Err(why) => {
            return Ok(cell(
                arm,
                Told::failed(why, Duration::ZERO),
                Instant::now(),
                0,
            ));
        }
    };
    let begun = Instant::now();
    let mut told = converse(&mut ends, &bed, case, place, begun);
    if let Some(line) = ends.relays.iter().flatten().find_map(Relay::complaint) {
        told.outcome = Outcome::Failed(line);
    }
    let time = Instant::now();
    let touched = bed
        .emulator()
        .counters()
        .get(place.path())
        .map_or(0, |path| path.touched);
    let mut cell = cell(arm, told, begun, touched);
    cell.time = seconds(time - begun);
    Ok(cell)
}

fn cell(arm: Arm, told: Told, begun: Instant, touched: u64) -> Cell {
    Cell {
        arm,
        outcome: told.outcome,
        stall: seconds(told.stall),
        time: seconds(begun.elapsed()),
        touched,
        others: Vec::new(),
        rewritten: told.rewritten,
    }
}

fn converse(ends: &mut Ends<'_>, bed: &Testbed, case: &Case, place: Place, begun: Instant) -> Told {
    let pause = case.pause.map_or(Duration::ZERO, |pause| {
        Duration::from_nanos(pause.0.as_nanos())
    });
    let deadline = begun + ends.setting.options.limit + pause;
    let bytes = case.bytes.map_or(ends.setting.options.bytes, |size| {
        usize::try_from(size.0).unwrap_or(usize::MAX)
    });
    let marker = case.rewrites().map(|[from, _]| from.as_bytes());
    let sent = [1, 2].map(|seed| payload(bytes, seed, marker));
    let mut stall = Duration::ZERO;
    let result = (|| -> Result<Told, Broken> {
        let streams = ends.connect(bed, begun, deadline)?;
        let [client, server] = &streams;
        let up = send("up", [client, server], &sent[0], begun, deadline)?;
        stall = up.stall;
        std::thread::sleep(pause);
        let down = send("down", [server, client], &sent[1], Instant::now(), deadline)?;
        stall = stall.max(down.stall);
        let outcome = match ends.arm {
            Arm::Tcp => Outcome::Intact,
            _ => watch::outcome(ends.seen(bed, &streams), place.paths()),
        };
        stall = stall.max(finish([client, server], deadline)?);
        let mut rewritten = false;
        for (what, heard, sent) in [("up", up, &sent[0]), ("down", down, &sent[1])] {
            match compare(&heard.bytes, sent, case.rewrites()) {
                Content::Same => {}
                Content::Rewritten => rewritten = true,
                Content::Wrong => {
                    return Ok(Told::failed(format!("{what}: wrong bytes"), stall));
                }
            }
        }
        Ok(Told {
            outcome,
            stall,
            rewritten,
        })
    })();
    result.unwrap_or_else(|broken| Told::failed(broken.why, stall.max(broken.stall)))
}

/// What arrived, against what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Same,
    /// As the box rewrites it, in some places or all.
    Rewritten,
    Wrong,
}

fn compare(heard: &[u8], sent: &[u8], rewrites: Option<[&str; 2]>) -> Content {
    if heard == sent {
        return Content::Same;
    }
    let Some([from, to]) = rewrites else {
        return Content::Wrong;
    };
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let (mut heard, mut sent) = (heard, sent);
    // Walks along both; where they differ, it must be at a marker and by the box's own words.
    loop {
        let same = heard.iter().zip(sent).take_while(|(a, b)| a == b).count();
        if same == heard.len() && same == sent.len() {
            return Content::Rewritten;
        }
        // The two words may begin alike, so the marker begins a little before the difference.
        let begins = (0..=same.min(from.len())).find(|back| {
            sent[same - back..].starts_with(from) && heard[same - back..].starts_with(to)
        });
        let Some(back) = begins else {
            return Content::Wrong;
        };
        heard = &heard[same - back + to.len()..];
        sent = &sent[same - back + from.len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_the_same_rewritten_or_wrong() {
        assert_eq!(compare(b"abc", b"abc", None), Content::Same);
        assert_eq!(compare(b"abd", b"abc", None), Content::Wrong);
        assert_eq!(compare(b"ab", b"abc", None), Content::Wrong);
        let longer = Some(["PORT 1", "PORT 234"]);
        let compared = |heard| compare(heard, b"..PORT 1..PORT 1..", longer);
        assert_eq!(compared(b"..PORT 234..PORT 234.."), Content::Rewritten);
        assert_eq!(compared(b"..PORT 1..PORT 234.."), Content::Rewritten);
        assert_eq!(compared(b"..PORT 1..PORT 235.."), Content::Wrong);
        assert_eq!(compared(b"..PORT 1..PORT 234."), Content::Wrong);
        let shorter = Some(["MARK", "M"]);
        assert_eq!(compare(b"aMb", b"aMARKb", shorter), Content::Rewritten);
    }

    #[test]
    fn the_box_is_on_its_path_only() {
        let chain = toml::from_str("kind = \"strip\"").expect("a box by its defaults");
        let case = Case {
            name: "x".to_owned(),
            about: String::new(),
            chain: vec![chain],
            quick: false,
            pause: None,
            bytes: None,
            checksum: false,
            loss: None,
        };
        let with_boxes = |place| -> Vec<bool> {
            let paths = paths(&case, place);
            paths.iter().map(|path| path.boxes.is_some()).collect()
        };
        assert_eq!(with_boxes(Place::Only), [true]);
        assert_eq!(with_boxes(Place::First), [true, false]);
        assert_eq!(with_boxes(Place::Second), [false, true]);
    }
}
