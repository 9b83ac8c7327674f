//! UDP ASSOCIATE (RFC 1928 section 7): datagrams of one client, as long as its connection lives.
//!
//! An association has three sockets, whatever its client does: one for the client and one for each family of targets. Only the
//! client's own address is listened to, and of its ports the first that speaks; only targets that were sent to may answer.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::wire::{self, Reply};
use crate::buffered::Buffered;
use crate::relay::take_large_buffer;
use crate::request::{Client, Request, Target, Way};
use crate::serve::session::Session;
use crate::serve::totals::Outcome;
use crate::serve::{Ended, Failure, How, Policy, Refusal};
use crate::stream::{Leg, Stream};
use crate::target::connect::{Unreached, addresses};

/// Descriptors of an association, besides that of its connection.
const SOCKETS: u32 = 3;

/// Datagrams that one socket may have before the others get their turn.
const AT_ONCE: usize = 32;

/// Names that are asked for at one time; what goes to further ones is lost.
const MOST_QUESTIONS: usize = 8;

/// Bytes that wait for the addresses of their targets.
const MOST_WAITING: usize = 16 * 1024;

/// How often targets that are silent are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// A target of the client.
struct Peer {
    /// The addresses that were found for it, the one that is used first.
    addr: SocketAddr,
    used: Instant,
}

/// The targets that may answer.
struct Peers {
    /// What the client wrote, and where that is. A refused one is kept as such, so that each datagram does not ask anew.
    known: HashMap<Target, Option<Peer>>,
    most: usize,
    idle: Duration,
}

impl Peers {
    fn is_peer(&mut self, from: SocketAddr, now: Instant) -> bool {
        let peers = self.known.values_mut().flatten();
        let peer = peers.into_iter().find(|peer| peer.addr == from);
        peer.map(|peer| peer.used = now).is_some()
    }

    fn sweep(&mut self, now: Instant) {
        let idle = self.idle;
        self.known.retain(|_, peer| {
            peer.as_ref()
                .is_some_and(|p| now.duration_since(p.used) < idle)
        });
    }

    /// Makes room for one more: the one that was silent for longest goes.
    fn make_room(&mut self) {
        if self.known.len() < self.most {
            return;
        }
        let used = |peer: &Option<Peer>| peer.as_ref().map(|peer| peer.used);
        let oldest = self.known.iter().min_by_key(|(_, peer)| used(peer));
        if let Some(oldest) = oldest.map(|(target, _)| target.clone()) {
            self.known.remove(&oldest);
        }
    }
}

/// The sockets of an association.
struct Sockets {
    /// For the client.
    near: UdpSocket,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    async fn bind(session: &Session) -> io::Result<Self> {
        // Where the client has reached us, so that its way there is known to work.
        let local = session
            .socket
            .1
            .map_or(Ipv4Addr::LOCALHOST.into(), |addr| addr.ip());
        let near = UdpSocket::bind((local.to_canonical(), 0)).await?;
        let v4 = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await;
        let v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await;
        match (v4, v6) {
            (Err(error), Err(_)) => Err(error),
            (v4, v6) => Ok(Self {
                near,
                v4: v4.ok(),
                v6: v6.ok(),
            }),
        }
    }

    fn to(&self, addr: SocketAddr) -> Option<&UdpSocket> {
        if addr.is_ipv4() {
            self.v4.as_ref()
        } else {
            self.v6.as_ref()
        }
    }
}

async fn readable(socket: Option<&UdpSocket>) -> io::Result<()> {
    match socket {
        Some(socket) => socket.readable().await,
        None => std::future::pending().await,
    }
}

/// Serves an association until its connection ends.
pub(super) async fn associate(
    session: &Session,
    mut stream: Buffered<Stream>,
    client: Client,
    declared: Option<SocketAddr>,
) -> Outcome {
    let started = Instant::now();
    let asked = |target: Target| Request {
        target,
        client: client.clone(),
        way: Way::SocksUdp,
    };
    let files = session.row.shared.files.clone();
    let permit = files
        .map(|files| files.try_acquire_many_owned(SOCKETS))
        .transpose();
    let bound = match permit {
        Ok(permit) => Sockets::bind(session)
            .await
            .map(|sockets| (permit, sockets)),
        Err(_) => Err(io::Error::other("no descriptors are left")),
    };
    let (_permit, sockets) = match bound {
        Ok(bound) => bound,
        Err(error) => {
            let request = asked(Target::Address((Ipv4Addr::UNSPECIFIED, 0).into()));
            session.failed(
                &request,
                Failure::NoResources,
                "open a UDP association",
                &error,
            );
            let last_words = wire::reply(Reply::GeneralFailure, None);
            stream.say_goodbye(&last_words).await;
            return Outcome::Unreachable;
        }
    };
    let here = sockets.near.local_addr().ok();
    if stream
        .write_all(&wire::reply(Reply::Succeeded, here))
        .await
        .is_err()
    {
        stream.abort();
        return Outcome::Broken;
    }
    let bounds = session.bounds();
    let mut relay = Relay {
        session,
        asked: &asked,
        sockets: &sockets,
        peers: Peers {
            known: HashMap::new(),
            most: bounds.udp_targets.max(1),
            idle: bounds.udp_idle,
        },
        questions: Questions::default(),
        policy: session.row.shared.policy(),
        malformed: false,
        client: Near {
            ip: session.socket.0.ip().to_canonical(),
            port: declared.map(|addr| addr.port()).filter(|port| *port != 0),
        },
        carried: [0; 2],
    };
    let how = relay.run(&mut stream).await;
    let [forth, back] = relay.carried;
    session.ended(&Ended {
        request: asked(Target::Address(
            here.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
        )),
        reached: None,
        http: None,
        forth,
        back,
        paths: Vec::new(),
        lasted: started.elapsed(),
        how,
    });
    match how {
        How::Finished => Outcome::Finished,
        How::Broken | How::Idle => {
            stream.abort();
            Outcome::Broken
        }
        How::Stopped => {
            stream.abort();
            Outcome::Stopped
        }
    }
}

/// Where the client's datagrams come from.
struct Near {
    ip: IpAddr,
    /// Said by the client, or that of its first datagram.
    port: Option<u16>,
}

impl Near {
    fn may_be(&self, from: SocketAddr) -> bool {
        from.ip().to_canonical() == self.ip && self.port.is_none_or(|port| port == from.port())
    }
}

/// Bytes that a datagram takes while it waits; an empty one takes some, too.
fn cost(payload: &[u8]) -> usize {
    payload.len() + 64
}

/// What has become of a target.
type Answer = (Request, Result<Vec<SocketAddr>, Unreached>);

type Question = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Targets whose addresses are asked for, while the association goes on.
#[derive(Default)]
struct Questions {
    tasks: JoinSet<Answer>,
    /// What each of them gets then.
    waiting: HashMap<Target, Vec<Vec<u8>>>,
    bytes: usize,
}

impl Questions {
    /// Asks, unless that is done already or there are too many questions, and keeps a datagram, unless there are too many bytes.
    /// An answer that is there at once is returned.
    fn ask(&mut self, target: Target, payload: &[u8], mut question: Question) -> Option<Answer> {
        let is_new = !self.waiting.contains_key(&target);
        let is_name = matches!(target, Target::Name { .. });
        if is_new && is_name && self.tasks.len() >= MOST_QUESTIONS {
            return None;
        }
        self.keep(target, payload);
        if !is_new {
            return None;
        }
        // An address needs no task.
        let mut cx = Context::from_waker(Waker::noop());
        match question.as_mut().poll(&mut cx) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => {
                self.tasks.spawn(question);
                None
            }
        }
    }

    fn keep(&mut self, target: Target, payload: &[u8]) {
        let waiting = self.waiting.entry(target).or_default();
        if self.bytes + cost(payload) <= MOST_WAITING {
            self.bytes += cost(payload);
            waiting.push(payload.to_vec());
        }
    }

    /// The next answer; `None` if nothing is asked.
    async fn next(&mut self) -> Option<Answer> {
        loop {
            // A task that has panicked has no answer; what waits for it goes with the association.
            if let Ok(answer) = self.tasks.join_next().await? {
                return Some(answer);
            }
        }
    }

    /// The datagrams that wait for a target.
    fn take(&mut self, target: &Target) -> Vec<Vec<u8>> {
        let waited = self.waiting.remove(target).unwrap_or_default();
        self.bytes -= waited.iter().map(|payload| cost(payload)).sum::<usize>();
        waited
    }
}

struct Relay<'a, F> {
    session: &'a Session,
    asked: &'a F,
    sockets: &'a Sockets,
    peers: Peers,
    questions: Questions,
    /// What the targets were judged by.
    policy: Arc<Policy>,
    client: Near,
    /// A datagram that is none was reported: one line tells as much as a thousand.
    malformed: bool,
    /// Payload from the client and to it.
    carried: [u64; 2],
}

impl<F: Fn(Target) -> Request> Relay<'_, F> {
    async fn run(&mut self, stream: &mut Buffered<Stream>) -> How {
        let bounds = self.session.bounds();
        let sockets = self.sockets;
        let mut sweep = tokio::time::interval(SWEEP.min(bounds.udp_idle));
        let mut moved = Instant::now();
        loop {
            tokio::select! {
                // Nothing is expected on the connection but its end.
                read = stream.fill() => match read {
                    Ok(0) => return How::Finished,
                    Ok(n) => stream.consume(n),
                    Err(_) => return How::Broken,
                },
                _ = sockets.near.readable() => {
                    if self.drain(&sockets.near, true) { moved = Instant::now(); }
                }
                _ = readable(sockets.v4.as_ref()) => if let Some(socket) = &sockets.v4 {
                    if self.drain(socket, false) { moved = Instant::now(); }
                },
                _ = readable(sockets.v6.as_ref()) => if let Some(socket) = &sockets.v6 {
                    if self.drain(socket, false) { moved = Instant::now(); }
                },
                Some(answer) = self.questions.next() => self.answered(answer),
                _ = sweep.tick() => {
                    self.peers.sweep(Instant::now());
                    if bounds.idle.is_some_and(|idle| moved.elapsed() >= idle) {
                        return How::Idle;
                    }
                }
            }
        }
    }

    /// Takes what a socket has, a few datagrams at a time; tells whether somebody who may has sent one. The buffer is held no
    /// longer than that: nothing is waited for.
    fn drain(&mut self, socket: &UdpSocket, of_client: bool) -> bool {
        let policy = self.session.row.shared.policy();
        if !Arc::ptr_eq(&policy, &self.policy) {
            // Every target is judged anew.
            self.policy = policy;
            self.peers.known.clear();
        }
        let mut buffer = take_large_buffer();
        let mut moved = false;
        for _ in 0..AT_ONCE {
            // An error is one of an earlier datagram, and has no more to say than its loss.
            let Ok((n, from)) = socket.try_recv_from(&mut buffer) else {
                break;
            };
            moved |= match of_client {
                true => self.client.may_be(from) && self.forth(from.port(), &buffer[..n]),
                false => self.back(from, &buffer[..n]),
            };
        }
        moved
    }

    /// A datagram of the client; false if it is none.
    fn forth(&mut self, port: u16, datagram: &[u8]) -> bool {
        let Some((target, header)) = wire::datagram(datagram) else {
            if !std::mem::replace(&mut self.malformed, true) {
                self.session.refused(None, Refusal::Malformed);
            }
            return false;
        };
        self.client.port = Some(port);
        let payload = &datagram[header..];
        match self.peers.known.get_mut(&target) {
            Some(Some(peer)) => {
                peer.used = Instant::now();
                let addr = peer.addr;
                self.send(addr, payload);
            }
            Some(None) => {}
            None => self.ask(target, payload),
        }
        true
    }

    fn send(&mut self, addr: SocketAddr, payload: &[u8]) {
        if let Some(socket) = self.sockets.to(addr) {
            // What is lost is lost: UDP promises nothing, and an ICMP error of another target may be told here.
            if socket.try_send_to(payload, addr).is_ok() {
                self.count(0, payload.len());
            }
        }
    }

    /// Asks for the address of a target; its datagram waits, if there is room for it.
    fn ask(&mut self, target: Target, payload: &[u8]) {
        let request = (self.asked)(target.clone());
        let row = Arc::clone(&self.session.row);
        let Some(place) = row.shared.opens_now(&request.client) else {
            return;
        };
        let question = Box::pin(async move {
            let _place = place;
            // Datagrams leave by the host's sockets.
            let found = addresses(&row.shared, &request, crate::endpoint::Proto::Tcp).await;
            (request, found)
        });
        if let Some(answer) = self.questions.ask(target, payload, question) {
            self.answered(answer);
        }
    }

    /// Takes note of the address of a target, if policy allows one, and sends what has waited for it.
    fn answered(&mut self, (request, found): Answer) {
        let peer = match found {
            Ok(found) => {
                let reachable = |addr: &SocketAddr| self.sockets.to(*addr).is_some();
                let addr = found.into_iter().find(reachable);
                addr.map(|addr| Peer {
                    addr,
                    used: Instant::now(),
                })
            }
            Err(why @ (Unreached::NeedsUser | Unreached::Refused(_) | Unreached::Failed(..))) => {
                self.session.unreached(&request, &why);
                None
            }
        };
        let addr = peer.as_ref().map(|peer| peer.addr);
        let waited = self.questions.take(&request.target);
        self.peers.make_room();
        self.peers.known.insert(request.target, peer);
        for payload in waited {
            if let Some(addr) = addr {
                self.send(addr, &payload);
            }
        }
    }

    /// A datagram for the client; false if nobody asked for it.
    fn back(&mut self, from: SocketAddr, payload: &[u8]) -> bool {
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let Some(port) = self.client.port else {
            return false;
        };
        if !self.peers.is_peer(from, Instant::now()) {
            return false;
        }
        let datagram = [&wire::datagram_header(from)[..], payload].concat();
        let to = SocketAddr::new(self.client.ip, port);
        if self.sockets.near.try_send_to(&datagram, to).is_ok() {
            self.count(1, payload.len());
        }
        true
    }

    fn count(&mut self, way: usize, n: usize) {
        use std::sync::atomic::Ordering;
        self.carried[way] += n as u64;
        let totals = &self.session.row.totals;
        let sum = [&totals.bytes_forth, &totals.bytes_back][way];
        sum.fetch_add(n as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(target: &Target) -> Answer {
        let client = Client {
            listener: "test".into(),
            address: ([192, 0, 2, 1], 4000).into(),
            user: None,
        };
        let request = Request {
            target: target.clone(),
            client,
            way: Way::SocksUdp,
        };
        (request, Ok(vec![([192, 0, 2, 2], 53).into()]))
    }

    #[tokio::test]
    async fn names_that_are_slow_hold_a_bounded_number_of_datagrams_and_nobody_up() {
        let mut questions = Questions::default();
        let name = |n: usize| Target::from_host(&format!("n{n}.test"), 53).expect("a name");
        let (end, ended) = tokio::sync::watch::channel(());
        for n in 0..100 {
            let (asked, mut ended) = (answer(&name(n)), ended.clone());
            let slow = Box::pin(async move {
                let _ = ended.changed().await;
                asked
            });
            assert!(questions.ask(name(n), &[0; 1000], slow).is_none());
        }
        assert_eq!(questions.tasks.len(), MOST_QUESTIONS);
        let more = || Box::pin(std::future::pending());
        for _ in 0..100 {
            assert!(questions.ask(name(0), &[0; 1000], more()).is_none());
        }
        assert_eq!(questions.tasks.len(), MOST_QUESTIONS, "one for each name");
        assert!(questions.bytes <= MOST_WAITING && questions.bytes > MOST_WAITING / 2);
        // An address is not asked for.
        let address = Target::from(SocketAddr::from(([192, 0, 2, 7], 53)));
        let ready = Box::pin(std::future::ready(answer(&address)));
        let (request, _) = questions.ask(address, &[0; 9], ready).expect("at once");
        questions.take(&request.target);
        drop(end);
        while let Some((request, _)) = questions.next().await {
            assert!(!questions.take(&request.target).is_empty());
        }
        assert!(questions.waiting.is_empty() && questions.bytes == 0);
    }

    #[test]
    fn the_target_that_was_silent_for_longest_makes_room() {
        let start = Instant::now();
        let addr = |n: u8| SocketAddr::from(([192, 0, 2, n], 53));
        let mut peers = Peers {
            known: HashMap::new(),
            most: 2,
            idle: Duration::from_secs(120),
        };
        for n in 1..=3 {
            peers.make_room();
            let used = start + Duration::from_secs(n.into());
            let peer = Peer {
                addr: addr(n),
                used,
            };
            peers.known.insert(addr(n).into(), Some(peer));
        }
        let later = start + Duration::from_secs(100);
        assert!(!peers.is_peer(addr(1), later));
        assert!(peers.is_peer(addr(2), later));
        peers.sweep(start + Duration::from_secs(200));
        assert!(peers.is_peer(addr(2), later));
        assert_eq!(peers.known.len(), 1);
    }
}
