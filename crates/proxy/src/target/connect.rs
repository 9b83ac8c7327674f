//! From a request to a stream: what policy says of the target, its addresses, what policy says of those, and the first that answers.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use manypath_io::race::decide::MOST_ATTEMPTS;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::endpoint::{Endpoint, Proto};
use crate::maybe_tls::MaybeTls;
use crate::request::{Request, Target};
use crate::seldom::{Others, Seldom};
use crate::serve::policy::{Policy, Verdict};
use crate::serve::row::PAUSE;
use crate::serve::shared::Shared;
use crate::serve::{Failure, Refusal};
use crate::stream::Stream;
use crate::target::failure;
use crate::target::guard::Special;
use crate::target::tls::{Trust, of_handshake};

/// Addresses that are tried in one race: with each path of our stack an attempt is made, and a race has a bounded number of them.
const AT_ONCE: usize = 4;

/// Addresses of one name that are judged.
const MOST_LOOKED_AT: usize = 256;

/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 64;

/// Lines about descriptors that are missing.
static NO_FILES: Seldom = Seldom::every(Duration::from_secs(1));

/// Why there is no stream.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// The client has to say who it is.
    NeedsUser,
    /// Policy says no, or the request has come back to us.
    Refused(Refusal),
    /// The target does not answer.
    Failed(Failure, io::Error),
}

impl Unreached {
    fn connecting(error: io::Error) -> Self {
        Self::Failed(failure::of_connecting(&error), error)
    }

    fn too_many() -> Self {
        let error = io::Error::other("as many targets as may be are being reached");
        Self::Failed(Failure::NoResources, error)
    }
}

/// Connects to a request's target, and writes the first bytes; by the host's TCP `from` an address that need not be one of this host,
/// where one is named.
pub(crate) async fn reach(
    shared: &Shared,
    request: &Request,
    (outside, from): (Proto, Option<IpAddr>),
    early: &[u8],
) -> Result<Stream, Unreached> {
    let Some(_place) = shared.opens(&request.client).await else {
        return Err(Unreached::too_many());
    };
    let addrs = addresses(shared, request, outside).await?;
    let stream = connect(shared, outside, &addrs, early, from).await;
    stream.map_err(Unreached::connecting)
}

/// Connects to a request's target as [`reach`] does, and shakes hands for TLS where `tls` says so.
pub(crate) async fn reach_by(
    shared: &Shared,
    request: &Request,
    outside: Proto,
    tls: Option<&Trust>,
) -> Result<MaybeTls, Unreached> {
    let Some(_place) = shared.opens(&request.client).await else {
        return Err(Unreached::too_many());
    };
    let addrs = addresses(shared, request, outside).await?;
    let stream = connect(shared, outside, &addrs, &[], None).await;
    let stream = stream.map_err(Unreached::connecting)?;
    // A stream that is broken already says so at the first read.
    let _ = stream.set_nodelay(true);
    let Some(trust) = tls else {
        return Ok(MaybeTls::Plain(stream));
    };
    let limit = Instant::now() + shared.sockets.connect_timeout;
    let shaken = match timeout_at(limit, trust.connect(stream, &request.target)).await {
        Ok(shaken) => shaken,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    shaken.map_err(|error| Unreached::Failed(of_handshake(&error), error))
}

/// Addresses of one race, so that each of them is tried on each path.
fn at_once(paths: usize) -> usize {
    (MOST_ATTEMPTS / paths.max(1)).clamp(1, AT_ONCE)
}

/// Connects to the first of some addresses that answers, a few at one time.
async fn connect(
    shared: &Shared,
    outside: Proto,
    addrs: &[SocketAddr],
    early: &[u8],
    from: Option<IpAddr>,
) -> io::Result<Stream> {
    let deadline = Instant::now() + shared.sockets.connect_timeout;
    let mut error = None;
    let paths = match (outside, &shared.sockets.stack) {
        (Proto::Mptcp, Some(stack)) => stack.paths().len(),
        // The kernel chooses the way to each.
        _ => 1,
    };
    let at_once = at_once(paths);
    let batches = addrs.chunks(at_once).count();
    for (n, batch) in addrs.chunks(at_once).enumerate() {
        // What is left of the time is for all that are left.
        let left = deadline.saturating_duration_since(Instant::now());
        let until = Instant::now() + left / u32::try_from(batches - n).unwrap_or(u32::MAX);
        match timeout_at(until, open(shared, (outside, from), batch, early, until)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(failed)) => error = Some(most_telling(error, failed)),
            Err(_) => {
                let seconds = shared.sockets.connect_timeout.as_secs_f32();
                let text = format!("no answer within {seconds} s");
                let failed = io::Error::new(io::ErrorKind::TimedOut, text);
                error = Some(most_telling(error, failed));
            }
        }
    }
    Err(error.unwrap_or_else(|| io::ErrorKind::TimedOut.into()))
}

/// Connects to one of some addresses. Without a descriptor it waits for one, as long as it would for an answer.
async fn open(
    shared: &Shared,
    (outside, from): (Proto, Option<IpAddr>),
    addrs: &[SocketAddr],
    early: &[u8],
    until: Instant,
) -> io::Result<Stream> {
    loop {
        match shared.sockets.open(outside, addrs, early, from).await {
            Err(error) if failure::is_out_of_files(&error) && Instant::now() + PAUSE < until => {
                if let Some(more) = NO_FILES.due(std::time::Instant::now()) {
                    warn!(%error, "cannot connect yet{}", Others(more));
                }
                tokio::time::sleep(PAUSE).await;
            }
            result => return result,
        }
    }
}

/// That somebody refused says more than that a network is not reached, and that more than silence.
fn most_telling(known: Option<io::Error>, new: io::Error) -> io::Error {
    let rank = |error: &io::Error| match failure::of_connecting(error) {
        Failure::Refused => 0,
        Failure::NetworkUnreachable | Failure::HostUnreachable => 1,
        Failure::TimedOut => 2,
        _ => 3,
    };
    match known {
        Some(known) if rank(&known) <= rank(&new) => known,
        _ => new,
    }
}

/// The addresses to which a request may go, families in turn; at least one.
pub(crate) async fn addresses(
    shared: &Shared,
    request: &Request,
    outside: Proto,
) -> Result<Vec<SocketAddr>, Unreached> {
    let policy = shared.policy();
    match policy.permits(request) {
        Verdict::Allow => {}
        Verdict::NeedsUser => return Err(Unreached::NeedsUser),
        Verdict::Deny(denial) => return Err(Unreached::Refused(denial.into())),
    }
    let found = match &request.target {
        Target::Address(addr) => vec![SocketAddr::new(addr.ip().to_canonical(), addr.port())],
        Target::Name { host, port } => {
            let limit = Instant::now() + shared.sockets.connect_timeout;
            let lookup = shared.sockets.lookup(outside, host);
            match timeout_at(limit, lookup).await {
                // Each is looked at; a hostile answer has thousands.
                Ok(Ok(found)) => in_turn(found)
                    .take(MOST_LOOKED_AT)
                    .map(|addr| SocketAddr::new(addr, *port))
                    .collect(),
                Ok(Err(error)) => {
                    return Err(Unreached::Failed(failure::of_resolving(&error), error));
                }
                Err(_) => {
                    let text = "no name server has answered in time";
                    let error = io::Error::new(io::ErrorKind::TimedOut, text);
                    return Err(Unreached::Failed(Failure::NameTimedOut, error));
                }
            }
        }
    };
    let mut allowed = Vec::new();
    let mut why = Refusal::Address;
    for addr in found {
        match permits_address(shared, &policy, request, addr) {
            Ok(()) => allowed.push(addr),
            Err(Unreached::Refused(refusal)) => why = refusal,
            Err(other) => return Err(other),
        }
    }
    allowed.truncate(MOST_ADDRESSES);
    if allowed.is_empty() {
        return Err(Unreached::Refused(why));
    }
    Ok(allowed)
}

/// Whether a request may go to the address that an earlier one was connected to.
pub(crate) fn permits_again(shared: &Shared, request: &Request, reached: SocketAddr) -> bool {
    let policy = shared.policy();
    let reached = SocketAddr::new(reached.ip().to_canonical(), reached.port());
    policy.permits(request) == Verdict::Allow
        && permits_address(shared, &policy, request, reached).is_ok()
}

fn permits_address(
    shared: &Shared,
    policy: &Policy,
    request: &Request,
    addr: SocketAddr,
) -> Result<(), Unreached> {
    let special = Special::of(addr.ip(), |addr| is_own(shared, addr));
    let is_here = matches!(
        special,
        Some(Special::Loopback | Special::Unspecified | Special::Own)
    );
    if is_here && shared.listens_on(addr.port()) {
        return Err(Unreached::Refused(Refusal::Loop));
    }
    match policy.permits_address(request, addr.ip(), special) {
        Verdict::Allow => Ok(()),
        Verdict::NeedsUser => Err(Unreached::NeedsUser),
        Verdict::Deny(denial) => Err(Unreached::Refused(denial.into())),
    }
}

/// Whether a connection to an endpoint would come back to one of our listeners. A name is looked up only if its port is one of ours.
pub(crate) async fn leads_to_us(shared: &Shared, to: &Endpoint) -> bool {
    let (host, port) = (to.at.host(), to.at.port());
    if !shared.listens_on(port) {
        return false;
    }
    let lookup = shared.sockets.lookup(to.proto, host);
    // Whoever connects then finds the same, and tells that nothing is found.
    let found = timeout_at(Instant::now() + shared.sockets.connect_timeout, lookup).await;
    let found = found.map_or(Vec::new(), Result::unwrap_or_default);
    found.into_iter().map(|ip| ip.to_canonical()).any(|ip| {
        let special = Special::of(ip, |ip| is_own(shared, ip));
        let is_here = matches!(
            special,
            Some(Special::Loopback | Special::Unspecified | Special::Own)
        );
        shared.listens_at(SocketAddr::new(ip, port), is_here)
    })
}

/// Whether an address is one of this host, or of our stack.
fn is_own(shared: &Shared, addr: IpAddr) -> bool {
    let ours = shared.sockets.stack.as_ref();
    if ours.is_some_and(|stack| stack.paths().iter().any(|path| path.addr == addr)) {
        return true;
    }
    match manypath_io::netlink::is_of_host(addr) {
        Ok(own) => own,
        // Where the kernel cannot be asked: a socket can be bound to the host's own addresses only.
        Err(_) => may_be_bound(UdpSocket::bind((addr, 0))),
    }
}

/// Whether a socket that was to be bound to an address says that it may be one of this host. Without a descriptor, for example,
/// it says nothing, and what is not known is not allowed.
fn may_be_bound(bound: io::Result<UdpSocket>) -> bool {
    match bound {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

/// Families in turn, beginning with that of the first address (RFC 8305 section 4), each address once.
fn in_turn(found: Vec<IpAddr>) -> impl Iterator<Item = IpAddr> {
    let first = found.first().map(IpAddr::to_canonical);
    let first_is_v4 = first.is_some_and(|addr| addr.is_ipv4());
    let found = found.into_iter().map(|addr| addr.to_canonical());
    let (one, other): (Vec<IpAddr>, Vec<IpAddr>) =
        found.partition(|addr| addr.is_ipv4() == first_is_v4);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut seen = HashSet::new();
    std::iter::from_fn(move || match (one.next(), other.next()) {
        (None, None) => None,
        (a, b) => Some([a, b].into_iter().flatten()),
    })
    .flatten()
    .filter(move |addr| seen.insert(*addr))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sockets::Sockets;

    #[test]
    fn families_take_turns_and_no_address_comes_twice() {
        let found = ["fd00::1", "fd00::2", "192.0.2.1", "fd00::1", "192.0.2.2"];
        let found = found.map(|text| text.parse().expect("literal"));
        let order: Vec<String> = in_turn(found.into()).map(|a| a.to_string()).collect();
        assert_eq!(order, ["fd00::1", "192.0.2.1", "fd00::2", "192.0.2.2"]);
    }

    #[tokio::test]
    async fn of_fifty_addresses_the_one_that_lives_is_found() {
        let listener = tokio::net::TcpListener::bind("127.0.0.47:0").await;
        let listener = listener.expect("loopback");
        let port = listener.local_addr().expect("bound").port();
        let addrs: Vec<SocketAddr> = (1..=50).map(|n| ([127, 0, 0, n], port).into()).collect();
        let shared = Shared::new(Sockets::default(), Arc::new(()), Arc::default());
        let stream = connect(&shared, Proto::Tcp, &addrs, b"", None).await;
        let reached = stream.expect("one lives").peer_addr().expect("connected");
        assert_eq!(reached, addrs[46]);
        let none = connect(&shared, Proto::Tcp, &addrs[..46], b"", None).await;
        let error = none.expect_err("none lives");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn no_address_of_a_race_is_left_without_an_attempt() {
        for paths in 0..=8 {
            assert!(at_once(paths) * paths <= MOST_ATTEMPTS, "{paths}");
        }
        assert_eq!([0, 1, 2, 3, 9].map(at_once), [4, 4, 4, 2, 1]);
    }

    #[test]
    fn an_ipv4_address_in_an_ipv6_answer_is_one() {
        let found = ["::ffff:192.0.2.1", "fd00::1", "192.0.2.1"];
        let found = found.map(|text| text.parse().expect("literal"));
        let order: Vec<String> = in_turn(found.into()).map(|a| a.to_string()).collect();
        assert_eq!(order, ["192.0.2.1", "fd00::1"]);
    }

    #[test]
    fn what_cannot_be_asked_for_counts_as_this_host_s() {
        let failed = |code| Err(io::Error::from_raw_os_error(code));
        assert!(may_be_bound(UdpSocket::bind("127.0.0.1:0")));
        assert!(may_be_bound(failed(24)), "no descriptors");
        assert!(!may_be_bound(failed(99)), "no address of this host");
    }

    #[test]
    fn a_refusal_says_more_than_silence() {
        let kind = |kind: io::ErrorKind| io::Error::from(kind);
        let refused = kind(io::ErrorKind::ConnectionRefused);
        let telling = most_telling(Some(refused), kind(io::ErrorKind::TimedOut));
        assert_eq!(telling.kind(), io::ErrorKind::ConnectionRefused);
        let silent = kind(io::ErrorKind::TimedOut);
        let telling = most_telling(Some(silent), kind(io::ErrorKind::HostUnreachable));
        assert_eq!(telling.kind(), io::ErrorKind::HostUnreachable);
    }
}
