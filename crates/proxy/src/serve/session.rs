//! One connection of a client, from being accepted to its opening.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use manypath_io::convert::cookie::Key;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::buffered::Buffered;
use crate::limits::{Bridle, Seat};
use crate::maybe_tls::MaybeTls;
use crate::opening::{convert, fixed, http, proxy_protocol, socks5, transparent};
use crate::relay::{Account, Terms, carry};
use crate::request::{Client, Request, Target};
use crate::seldom::Others;
use crate::serve::policy::{Verdict, question};
use crate::serve::row::{Row, Settings};
use crate::serve::totals::Outcome;
use crate::serve::{Bounds, Ended, Failure, How, ListenerSpec, OpeningKind, Policy, Refusal};
use crate::stream::{Leg, Stream};
use crate::target::connect::{Unreached, reach, reach_by};
use crate::target::rules::Question;
use crate::target::tls::Trust;

/// What an opening knows of the connection that it serves.
pub(crate) struct Session {
    pub(crate) row: Arc<Row>,
    settings: Arc<Settings>,
    /// The client: the peer, or what a PROXY header says.
    pub(crate) client: SocketAddr,
    /// Where the client connected to: the socket's own address, or what a PROXY header says.
    pub(crate) local: Option<SocketAddr>,
    /// The addresses of the connection itself.
    pub(crate) socket: (SocketAddr, Option<SocketAddr>),
    /// Puts the client's stream into classes.
    inside: Bridle,
    /// Its place in the class of its last request.
    seat: Mutex<Option<Seat>>,
}

impl Session {
    pub(crate) fn new(
        row: Arc<Row>,
        settings: Arc<Settings>,
        peer: SocketAddr,
        stream: &Stream,
    ) -> Self {
        let local = stream.local_addr().ok();
        Self {
            row,
            settings,
            client: peer,
            local,
            socket: (peer, local),
            inside: stream.bridle(),
            seat: Mutex::default(),
        }
    }

    pub(crate) fn spec(&self) -> &ListenerSpec {
        &self.settings.spec
    }

    pub(crate) fn bounds(&self) -> &Bounds {
        &self.settings.spec.bounds
    }

    /// The key that clients have to show.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.settings.key.as_ref()
    }

    /// The client, before it has said who it is.
    pub(crate) fn nobody(&self) -> Client {
        Client {
            listener: Arc::clone(&self.spec().name),
            address: self.client,
            user: None,
        }
    }

    /// Whether the client must say who it is.
    pub(crate) fn requires_user(&self, policy: &Policy, client: &Client) -> bool {
        self.row.asks_for_good() || policy.requires_user(client)
    }

    /// Reports a refusal.
    pub(crate) fn refused(&self, request: Option<&Request>, why: Refusal) {
        debug!(client = %self.client, why = why.name(), "refused");
        let observer = &self.row.shared.observer;
        observer.refused(&self.spec().name, self.client, request, why);
    }

    /// Reports a target that was not reached.
    pub(crate) fn failed(&self, request: &Request, why: Failure, what: &str, error: &io::Error) {
        if let Some(more) = self.row.not_reached.due(Instant::now()) {
            warn!(peer = %self.client, %error, "cannot {what}{}", Others(more));
        }
        let observer = &self.row.shared.observer;
        observer.failed(&self.spec().name, request, why);
    }

    /// Reports that a request was refused, or its target not reached.
    pub(crate) fn unreached(&self, request: &Request, why: &Unreached) -> Outcome {
        match why {
            Unreached::NeedsUser => self.refused(Some(request), Refusal::UserMissing),
            Unreached::Refused(refusal) => self.refused(Some(request), *refusal),
            Unreached::Failed(failure, error) => {
                let what = format!("connect to {}", request.target);
                self.failed(request, *failure, &what, error);
                return Outcome::Unreachable;
            }
        }
        Outcome::Refused
    }

    /// Takes a place in the class of a request, unless the connection has it already.
    pub(crate) fn admit(&self, request: &Request) -> Result<(), Refusal> {
        let policy = self.row.shared.policy();
        let seats = policy.classes.seats(&asked_by(request));
        let mut seat = self.seat.lock().unwrap_or_else(PoisonError::into_inner);
        let has_it = |seats| seat.as_ref().is_some_and(|seat| seat.is_of(seats));
        match seats {
            Some(seats) if has_it(seats) => {}
            Some(seats) => *seat = Some(seats.admit()?),
            None => *seat = None,
        }
        Ok(())
    }

    /// Connects to a request's target, and writes the first bytes, if the request's class has a place.
    pub(crate) async fn reach(&self, request: &Request, first: &[u8]) -> Result<Stream, Unreached> {
        self.admit_if_permitted(request)?;
        let spec = self.spec();
        let (client, _) = self.socket;
        let from = spec.keep_client.then(|| client.ip().to_canonical());
        reach(&self.row.shared, request, (spec.outside, from), first).await
    }

    /// As [`Session::reach`] does, and shakes hands for TLS where `tls` says so.
    pub(crate) async fn reach_by(
        &self,
        request: &Request,
        tls: Option<&Trust>,
    ) -> Result<MaybeTls, Unreached> {
        self.admit_if_permitted(request)?;
        reach_by(&self.row.shared, request, self.spec().outside, tls).await
    }

    /// What the rules deny takes no place.
    fn admit_if_permitted(&self, request: &Request) -> Result<(), Unreached> {
        match self.row.shared.policy().permits(request) {
            Verdict::Allow => self.admit(request).map_err(Unreached::Refused),
            Verdict::NeedsUser => Err(Unreached::NeedsUser),
            Verdict::Deny(why) => Err(Unreached::Refused(why.into())),
        }
    }

    /// Reports a target that was reached, and limits what is sent as the request's class has it.
    pub(crate) fn connected(&self, request: &Request, outside: &Stream, after: Duration) {
        self.limit(request, &outside.bridle());
        debug!(peer = %self.client, to = %request.target, "carrying");
        let observer = &self.row.shared.observer;
        observer.connected(&self.spec().name, request, after);
    }

    /// Limits what is sent for a request as its class has it.
    pub(crate) fn limit(&self, request: &Request, outside: &Bridle) {
        let policy = self.row.shared.policy();
        policy
            .classes
            .sort(&asked_by(request), &self.inside, outside);
    }

    pub(crate) fn ended(&self, ended: &Ended) {
        self.row.shared.observer.ended(&self.spec().name, ended);
    }

    /// Relays between the client and the target until both have ended, and reports it. `early` bytes went to the target before.
    pub(crate) async fn tunnel<A: Leg, B: Leg>(
        &self,
        request: Request,
        (inside, outside): (A, B),
        reached: Option<SocketAddr>,
        early: u64,
        started: Instant,
    ) -> Outcome {
        let (totals, bounds) = (&self.row.totals, self.bounds());
        let account = Mutex::new(Account::default());
        totals.bytes_forth.fetch_add(early, Ordering::Relaxed);
        let terms = Terms {
            forth: &totals.bytes_forth,
            back: &totals.bytes_back,
            idle: bounds.idle,
            half_closed: bounds.half_closed,
            account: Some(&account),
        };
        let result = carry(inside, outside, terms).await;
        let account = account.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Account { carried, paths } = account;
        let (forth, back) = (carried.forth + early, carried.back);
        let lasted = started.elapsed();
        let how = match &result {
            Ok(_) => How::Finished,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => How::Idle,
            Err(_) => How::Broken,
        };
        let (peer, seconds) = (self.client, lasted.as_secs_f64());
        match &result {
            Ok(_) => info!(%peer, forth, back, seconds, "carried to the end"),
            Err(error) => info!(%peer, %error, "broken"),
        }
        self.ended(&Ended {
            request,
            reached,
            http: None,
            forth,
            back,
            paths,
            lasted,
            how,
        });
        match how {
            How::Finished => Outcome::Finished,
            How::Broken | How::Idle => Outcome::Broken,
            How::Stopped => Outcome::Stopped,
        }
    }
}

/// What a request asks for, as far as it is known before names are looked up.
fn asked_by(request: &Request) -> Question<'_> {
    let address = match &request.target {
        Target::Address(addr) => Some(addr.ip()),
        Target::Name { .. } => None,
    };
    question(request, address)
}

/// Whether a listener's SYNs that bring payload wait for an answer that the opening gives. A PROXY header comes first, and may not be
/// whole in a SYN.
pub(crate) fn holds_syns(spec: &ListenerSpec) -> bool {
    spec.opening == OpeningKind::Convert && !spec.proxy_in
}

/// Serves a client until its connection is over.
pub(crate) async fn serve(mut session: Session, stream: Stream) -> Outcome {
    // Neither fails but on a stream that is broken already, which says so at the first read.
    let _ = stream.set_nodelay(true);
    if let Some(keepalive) = session.row.shared.sockets.keepalive {
        let _ = stream.set_keepalive(keepalive);
    }
    if !holds_syns(session.spec()) {
        stream.answer_syn(false);
    }
    let mut stream = Buffered::new(stream);
    if session.spec().proxy_in {
        if !session.spec().believes(session.client.ip()) {
            session.refused(None, Refusal::ProxyHeader);
            stream.abort();
            return Outcome::Refused;
        }
        let header = proxy_protocol::accept(&mut stream);
        match timeout(session.bounds().header_time, header).await {
            Ok(Ok(Some(header))) => {
                session.client = header.source;
                session.local = Some(header.destination);
            }
            // A health check of the balancer itself: the connection's own addresses count.
            Ok(Ok(None)) => {}
            Ok(Err(_)) | Err(_) => {
                session.refused(None, Refusal::ProxyHeader);
                stream.abort();
                return Outcome::Refused;
            }
        }
    }
    // Each has memory for itself alone, not for the largest of them.
    let kind = match &session.spec().opening {
        OpeningKind::Fixed(to) => {
            let to = to.clone();
            return Box::pin(fixed::serve(&session, stream, &to)).await;
        }
        OpeningKind::Socks5 => return Box::pin(socks5::serve(&session, stream)).await,
        OpeningKind::Convert => return Box::pin(convert::serve(&session, stream)).await,
        OpeningKind::Transparent => return Box::pin(transparent::serve(&session, stream)).await,
        OpeningKind::Http => session.settings.tls.clone(),
    };
    let inside = match kind {
        None => {
            let (stream, bytes) = stream.into_parts();
            Buffered::with(MaybeTls::Plain(stream), bytes)
        }
        Some(tls) => {
            match Box::pin(timeout(session.bounds().header_time, tls.accept(stream))).await {
                Ok(Ok(inside)) => Buffered::new(inside),
                Ok(Err(error)) => {
                    debug!(client = %session.client, %error, "no TLS");
                    session.refused(None, Refusal::Tls);
                    return Outcome::Refused;
                }
                Err(_) => {
                    session.refused(None, Refusal::HeaderTimeout);
                    return Outcome::Refused;
                }
            }
        }
    };
    Box::pin(http::serve(&session, inside)).await
}
