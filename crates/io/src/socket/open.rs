//! Opening a connection: attempts by every path and to every address, of which one becomes the stream.

use super::error;
use super::handle::Handle;
use crate::driver::Shared;
use crate::host::Host;
use crate::netlink;
use crate::race::memory::{Candidate, Way};
use crate::race::{Attempt, Step, race};
use manypath_stack::{
    CloseCause, ConnOptions, ConnectOptions, IfaceId, RaceId, StackError, zone_of,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context as Cx, Poll};
use std::time::Duration;

/// What is asked for.
pub(super) struct Request<'a> {
    pub(super) host: &'a Host,
    /// The only address of ours that may be used.
    pub(super) local: Option<IpAddr>,
    pub(super) options: &'a ConnOptions,
    /// In the order of preference.
    pub(super) remotes: &'a [SocketAddr],
    /// Written before the first SYN leaves.
    pub(super) early: &'a [u8],
}

/// Opens a connection by the first path and address that answer. Tells how many of the early bytes were taken.
pub(super) async fn open(request: Request<'_>) -> io::Result<(Handle, usize)> {
    let remotes = outside(request.host, request.remotes)?;
    let request = Request {
        remotes: &remotes,
        ..request
    };
    let mut candidates = candidates(&request);
    if candidates.is_empty() {
        return Err(error::of_call(StackError::NoPath));
    }
    let pairs: Vec<_> = candidates
        .iter()
        .map(|c| (c.local, c.remote.ip()))
        .collect();
    let without = request.host.find_ways(&pairs);
    candidates.retain(|c| !without.contains(&(c.local, c.remote.ip())));
    if candidates.is_empty() {
        return Err(no_route(&pairs));
    }
    let run = Run::begin(request.host.shared());
    let delays: Vec<Duration> = candidates.iter().map(|c| c.delay).collect();
    let outcome = race(&delays, |i| {
        Opening::start(&request, run.race, &candidates[i], i == 0)
    })
    .await;
    let mut session = request.host.shared().session();
    let now = session.elapsed();
    session
        .inner()
        .memory
        .learn(now, &candidates, &outcome.fates);
    let (number, (handle, taken)) = outcome.result?;
    session.learn_round_trip(handle.id, candidates[number].local, handle.remote.ip());
    let taken = match taken {
        Some(taken) => taken,
        // Only the first SYN may take payload along, so that none arrives twice.
        None if request.early.is_empty() => 0,
        None => {
            let now = session.now();
            let written = session.inner().stack.write(now, handle.id, request.early);
            session.pump();
            written.map_err(error::of_call)?
        }
    };
    Ok((handle, taken))
}

/// As TCP has it (ENETUNREACH).
fn no_route(pairs: &[(IpAddr, IpAddr)]) -> io::Error {
    let pairs = pairs
        .iter()
        .map(|(from, to)| format!("from {from} to {to}"));
    let text = format!(
        "no route {}: add one (ip route), or name the router of a path (gateway=ADDRESS)",
        pairs.collect::<Vec<_>>().join(", ")
    );
    io::Error::new(io::ErrorKind::NetworkUnreachable, text)
}

/// Without addresses of the host itself. Their packets stay inside its kernel, so a SYN that leaves by a device has no answer.
///
/// # Errors
/// `ConnectionRefused` where none is left.
fn outside(host: &Host, remotes: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
    let stays_inside = |remote: &&SocketAddr| {
        let shared = host.shares_host() && !host.is_translated();
        shared && netlink::is_of_host(remote.ip()).unwrap_or(false)
    };
    let (own, left): (Vec<&SocketAddr>, Vec<&SocketAddr>) = remotes.iter().partition(stays_inside);
    match own.first() {
        Some(own) if left.is_empty() => Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            format!(
                "{} is an address of this host: connect to it with an ordinary TCP socket",
                own.ip()
            ),
        )),
        _ => Ok(left.into_iter().copied().collect()),
    }
}

fn candidates(request: &Request<'_>) -> Vec<Candidate> {
    let mut session = request.host.shared().session();
    let now = session.elapsed();
    let inner = session.inner();
    let asked = |addr: &IpAddr| request.local.is_none_or(|local| local == *addr);
    let mut ways: Vec<Way> = Vec::new();
    let mut links: Vec<(IpAddr, IfaceId)> = Vec::new();
    for path in inner.stack.paths().iter().filter(|path| asked(&path.addr)) {
        links.push((path.addr, path.iface));
        // A call names an address; an address on two interfaces is one way.
        if ways.iter().all(|way| way.local != path.addr) {
            ways.push(Way {
                local: path.addr,
                backup: path.backup,
            });
        }
    }
    let mut all = inner.memory.plan(now, &ways, request.remotes);
    // The zone of an address is a link of ours (RFC 4007 section 6).
    all.retain(|c| zone_of(c.remote).is_none_or(|link| links.contains(&(c.local, link))));
    all
}

/// A race of the stack; what is not established ends with it.
struct Run<'a> {
    shared: &'a Arc<Shared>,
    race: RaceId,
}

impl<'a> Run<'a> {
    fn begin(shared: &'a Arc<Shared>) -> Self {
        let race = shared.session().inner().stack.begin_race();
        Run { shared, race }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut session = self.shared.session();
        let now = session.now();
        session.inner().stack.end_race(now, self.race);
        session.pump();
    }
}

/// A connection whose SYN waits for its answer.
struct Opening {
    /// Taken when it is over.
    state: Option<io::Result<(Handle, Option<usize>)>>,
    doubted: bool,
}

impl Opening {
    fn start(request: &Request<'_>, race: RaceId, to: &Candidate, first: bool) -> Self {
        Opening {
            state: Some(Self::try_start(request, race, to, first)),
            doubted: false,
        }
    }

    fn try_start(
        request: &Request<'_>,
        race: RaceId,
        to: &Candidate,
        first: bool,
    ) -> io::Result<(Handle, Option<usize>)> {
        let wanted = ConnectOptions {
            remote: to.remote,
            local: Some(to.local),
            conn: request.options.clone(),
        };
        let attempt = || {
            let mut session = request.host.shared().session();
            let now = session.now();
            let started = session
                .inner()
                .stack
                .connect_in_race(now, race, wanted.clone());
            (session, started)
        };
        let (mut session, mut started) = attempt();
        while started == Err(StackError::NoPorts) {
            drop(session);
            if !request.host.grow_ports() {
                return Err(error::of_call(StackError::NoPorts));
            }
            (session, started) = attempt();
        }
        let id = started.map_err(error::of_call)?;
        let now = session.now();
        let inner = session.inner();
        let taken = first.then(|| match request.early {
            [] => Ok(0),
            bytes => inner.stack.write(now, id, bytes).map_err(error::of_call),
        });
        inner.wakers.follow(id, false);
        session.pump();
        let handle = Handle::new(request.host.clone(), id, request.options.clone())?;
        Ok((handle, taken.transpose()?))
    }
}

impl Attempt for Opening {
    type Won = (Handle, Option<usize>);

    fn poll(&mut self, cx: &mut Cx<'_>) -> Poll<Step<Self::Won>> {
        let Some(Ok((handle, _))) = &self.state else {
            return match self.state.take() {
                Some(Err(error)) => Poll::Ready(Step::Failed(error)),
                _ => Poll::Pending,
            };
        };
        let mut session = handle.host.shared().session();
        let Some(waiting) = session.inner().wakers.conn(handle.id) else {
            return Poll::Ready(Step::Failed(io::ErrorKind::NotConnected.into()));
        };
        if waiting.established {
            drop(session);
            return match self.state.take() {
                Some(Ok(won)) => Poll::Ready(Step::Connected(won)),
                _ => Poll::Pending,
            };
        }
        match waiting.closed {
            // Another attempt was answered, which says so itself.
            Some(CloseCause::Aborted) => return Poll::Pending,
            Some(cause) => {
                let reset = || io::ErrorKind::ConnectionReset.into();
                return Poll::Ready(Step::Failed(error::of_close(cause).unwrap_or_else(reset)));
            }
            None => waiting.open = Some(cx.waker().clone()),
        }
        let doubted = waiting.unreachable && !std::mem::replace(&mut self.doubted, true);
        if doubted {
            return Poll::Ready(Step::Doubted);
        }
        Poll::Pending
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(Ok((handle, _))) = &self.state {
            // It is not to go on in the background; one that is over needs no end.
            let _ = handle.abort();
        }
    }
}
