//! What the path manager of one connection knows: addresses of both ends, subflows, attempts and refusals.
//!
//! Owns the address identifiers of the connection; lists are never shared between connections. // rfc8684:A22
//! Must decide nothing about which subflows there should be: that is the policies' part. Here is what can be read;
//! `update` is how events change it, `pairs` what happened between each two addresses.

mod pairs;
mod update;

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::AddrId;

use self::pairs::{Pairs, Standing};
use super::{Reason, retry};
use crate::api::{IfaceId, SubflowOrigin, is_of_a_link};
use crate::ids::SubflowId;

/// How long a join keeps its place without an answer where others wait for one: its SYN was said twice by then.
const UNANSWERED: Duration = Duration::from_secs(3);

/// Bounds on what peers and policies can make a connection do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of subflows at one time, the first included.
    pub subflows: u16,
    /// Largest number of addresses of the peer that are remembered.
    pub remotes: u8,
    /// Joins that may wait for an answer from addresses that have proved nothing yet. // rfc8684:S3
    pub pending: u8,
    /// Joins that may go to such addresses during the whole connection. // rfc8684:S3
    pub unproven: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            subflows: 64,
            remotes: 16,
            pending: 8,
            unproven: 64,
        }
    }
}

/// The first subflow's two ends; both have identifier 0. // rfc8684:J3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Where its packets leave.
    pub iface: IfaceId,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Our address is one to be used only when nothing better is left.
    pub backup: bool,
}

/// What the peer was told about an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// Nothing.
    No,
    /// ADD_ADDR was sent.
    Sent,
    /// And echoed. // rfc8684:A9
    Echoed,
}

/// What can be done with an address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Everything.
    Full,
    /// What is there goes on and peers may join; nothing is opened from it.
    Passive,
    /// Nothing passes at present.
    Stalled,
    /// Nothing: the host does not have it any more.
    Gone,
}

/// An address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Identifies the address to the peer. // rfc8684:A2
    pub id: AddrId,
    /// Its interface.
    pub iface: IfaceId,
    /// The address.
    pub addr: IpAddr,
    /// Ask peers to use it only when nothing better is left.
    pub backup: bool,
    /// What can be done with it now.
    pub state: Use,
    /// Whether the peer was told of it.
    pub announced: Announced,
    /// The peer knows its identifier, from an announcement, a join or the first subflow.
    pub known: bool,
    /// It is gone and the peer is to be told. // rfc8684:A16
    pub withdraw: bool,
}

impl Local {
    /// Subflows are opened from it, and peers are told of it.
    pub const fn is_up(&self) -> bool {
        matches!(self.state, Use::Full)
    }

    /// Packets can leave from it.
    pub const fn passes(&self) -> bool {
        matches!(self.state, Use::Full | Use::Passive)
    }
}

/// How an address of the peer became known. All of these are verified: an announcement by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The first subflow.
    First,
    /// ADD_ADDR.
    Announced,
    /// The peer joined from it; behind a NAT it may be no address to connect to.
    Joined,
}

/// An address of the peer. // rfc8684:A3 rfc8684:J4
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer's identifier of it.
    pub id: AddrId,
    /// The address and the port to connect to.
    pub addr: SocketAddr,
    /// How it became known.
    pub source: Source,
    /// A subflow with this address was established once.
    pub proven: bool,
}

impl Remote {
    /// Where a peer joined from is not where it said that it can be reached.
    pub const fn is_connectable(&self) -> bool {
        match self.source {
            Source::First | Source::Announced => true,
            Source::Joined => false,
        }
    }
}

/// A subflow that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its number.
    pub subflow: SubflowId,
    /// Our identifier of its local address. // rfc8684:J4
    pub local_id: AddrId,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's identifier of its address.
    pub remote_id: AddrId,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Who wanted it.
    pub origin: SubflowOrigin,
    /// When its SYN was made.
    pub opened: Instant,
    /// When it was established.
    pub up: Option<Instant>,
    /// Its path does not answer, and it does not count as one that serves its pair of addresses.
    pub silent: bool,
    /// It is to be ended, or already was told to end.
    pub leaving: bool,
    /// A keepalive is to find out whether it still works.
    pub probe: bool,
    /// The priority that the peer should be told.
    pub tell_priority: Option<bool>,
}

impl Live {
    /// A subflow in its handshake.
    pub const fn opening(
        opened: Instant,
        subflow: SubflowId,
        local_id: AddrId,
        local: SocketAddr,
        remote_id: AddrId,
        remote: SocketAddr,
        origin: SubflowOrigin,
    ) -> Self {
        Self {
            subflow,
            local_id,
            local,
            remote_id,
            remote,
            origin,
            opened,
            up: None,
            silent: false,
            leaving: false,
            probe: false,
            tell_priority: None,
        }
    }
}

/// The knowledge of one connection's path manager.
#[derive(Clone, Debug)]
pub struct Ledger {
    limits: Limits,
    first_remote: SocketAddr,
    /// The interface of the first subflow.
    first_iface: IfaceId,
    locals: Vec<Local>,
    remotes: Vec<Remote>,
    /// Those that the peer has withdrawn although they worked.
    withdrawn: Vec<Remote>,
    live: Vec<Live>,
    pairs: Pairs,
    /// Subflows that a policy asked for and the connection has not opened yet.
    issued: Vec<(AddrId, SocketAddr)>,
    /// When joins may start; `None` until the connection is fully established.
    open_at: Option<Instant>,
    stopped: bool,
    peer_forbids_first: bool,
    unproven_left: u16,
    next_id: u8,
}

impl Ledger {
    /// What is known at the start of a connection.
    pub fn new(limits: Limits, first: First) -> Self {
        let local = Local {
            id: AddrId(0),
            iface: first.iface,
            addr: first.local.ip(),
            backup: first.backup,
            state: Use::Full,
            announced: Announced::No,
            known: true,
            withdraw: false,
        };
        let remote = Remote {
            id: AddrId(0),
            addr: plain(first.remote),
            source: Source::First,
            proven: true,
        };
        Self {
            limits,
            first_remote: plain(first.remote),
            first_iface: first.iface,
            locals: Vec::from([local]), // rfc8684:J3
            remotes: Vec::from([remote]),
            withdrawn: Vec::new(),
            live: Vec::new(),
            pairs: Pairs::default(),
            issued: Vec::new(),
            open_at: None,
            stopped: false,
            peer_forbids_first: false,
            unproven_left: limits.unproven,
            next_id: 1,
        }
    }

    /// When joins may start: `None` before the connection is fully established and after it stopped. // rfc8684:C15
    pub fn open_at(&self) -> Option<Instant> {
        self.open_at.filter(|_| !self.stopped)
    }

    /// The peer's address and port on the first subflow.
    pub fn first_remote(&self) -> SocketAddr {
        self.first_remote
    }

    /// Our addresses, the first subflow's first.
    pub fn locals(&self) -> &[Local] {
        &self.locals
    }

    /// The peer's addresses, the first subflow's first.
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// The peer's addresses to which a subflow may be made. Where nothing works, they are also those that were withdrawn: the peer may have them
    /// again, and no way to say so. TCP would go on there, too.
    pub(in crate::pm) fn destinations(&self) -> impl Iterator<Item = &Remote> {
        let withdrawn = match self.has_working() {
            true => &[],
            false => &self.withdrawn[..],
        };
        let all = self.remotes.iter().chain(withdrawn);
        all.filter(|remote| remote.is_connectable())
    }

    /// The subflows that exist.
    pub fn live(&self) -> &[Live] {
        &self.live
    }

    /// How many subflows there are or will be once everything asked for is opened.
    pub fn subflows(&self) -> usize {
        self.live.len() + self.issued.len()
    }

    /// How many subflows there are or will be between these two, silent ones left out.
    pub fn between(&self, local_id: AddrId, remote: SocketAddr) -> usize {
        self.count(|local, to| local == local_id && to == remote)
    }

    /// How many there are or will be from this address of ours, silent ones left out.
    pub(in crate::pm) fn from(&self, local_id: AddrId) -> usize {
        self.count(|local, _| local == local_id)
    }

    fn count(&self, counts: impl Fn(AddrId, SocketAddr) -> bool) -> usize {
        let live = self.live.iter().filter(|live| !live.silent);
        let live = live.filter(|live| counts(live.local_id, live.remote));
        let issued = self.issued.iter();
        live.count() + issued.filter(|(local, to)| counts(*local, *to)).count()
    }

    /// A subflow between these two does not answer.
    pub(in crate::pm) fn has_silent(&self, local_id: AddrId, remote: SocketAddr) -> bool {
        let between = |live: &&Live| live.local_id == local_id && live.remote == remote;
        self.live.iter().filter(between).any(|live| live.silent)
    }

    /// Some path would be used once more for want of another.
    pub(crate) fn has_last_resort(&self) -> bool {
        self.pairs.any_last_resort()
    }

    /// Some subflow carries data and answers.
    pub(in crate::pm) fn has_working(&self) -> bool {
        self.working().next().is_some()
    }

    /// The subflows that carry data and answer.
    pub(in crate::pm) fn working(&self) -> impl Iterator<Item = &Live> {
        let works = |live: &&Live| live.up.is_some() && !live.silent && !live.leaving;
        self.live
            .iter()
            .filter(works)
            .filter(|live| self.passes(live))
    }

    /// Packets of a subflow can leave the host.
    fn passes(&self, live: &Live) -> bool {
        let local = self.locals.iter().find(|local| local.id == live.local_id);
        local.is_none_or(Local::passes)
    }

    /// Some of our addresses and one of the peer's to connect to have no subflow that answers, and could have one now, or the place
    /// of one that is found to be silent.
    pub(crate) fn has_free_pair(&self, now: Instant) -> bool {
        let free = |local: &Local, remote: &Remote| {
            local.addr.is_ipv4() == remote.addr.is_ipv4()
                && self.between(local.id, remote.addr) == 0
                && self.permit_pair(now, local, remote).is_ok()
        };
        let mut usable = self.locals.iter().filter(|local| local.is_up());
        usable.any(|local| self.destinations().any(|remote| free(local, remote)))
    }

    /// Whether a subflow may be made between these two now: why it would be made, or why it must not.
    ///
    /// The rules that hold whatever the policy wants.
    pub fn permit(
        &self,
        now: Instant,
        local: &Local,
        remote: &Remote,
    ) -> Result<Option<Reason>, Reason> {
        if self.is_full() && !self.goes_beyond(local) {
            return Err(Reason::TooManySubflows);
        }
        self.permit_pair(now, local, remote)
    }

    /// All places are taken.
    pub(in crate::pm) fn is_full(&self) -> bool {
        self.subflows() >= usize::from(self.limits.subflows)
    }

    /// One subflow may be begun beyond the limit, which takes the place of a silent one when it is up, or of a backup if it is none
    /// itself. A backup takes one while nothing works.
    fn goes_beyond(&self, local: &Local) -> bool {
        let one_beyond = self.subflows() == usize::from(self.limits.subflows);
        let from_backup = |live: &Live| {
            let mut locals = self.locals.iter();
            live.up.is_some() && locals.any(|local| local.id == live.local_id && local.backup)
        };
        let silent = |live: &Live| live.silent || !self.passes(live);
        let gives_way = |live: &Live| silent(live) || !local.backup && from_backup(live);
        let someone = self
            .live
            .iter()
            .any(|live| !live.leaving && gives_way(live));
        one_beyond && someone && !(local.backup && self.has_working())
    }

    /// The join that makes room for one between these two, which was never tried, and from when on: one that nobody answers does not
    /// keep others from a place.
    pub(in crate::pm) fn makes_room(
        &self,
        now: Instant,
        local: &Local,
        remote: &Remote,
    ) -> Option<(SubflowId, Instant)> {
        let first_one = self.between(local.id, remote.addr) == 0 && self.is_untried(local, remote);
        if !first_one || self.permit_pair(now, local, remote).is_err() {
            return None;
        }
        let joins = self.live.iter().filter(|live| {
            let ours = matches!(
                live.origin,
                SubflowOrigin::PathManager | SubflowOrigin::Recreated
            );
            ours && live.up.is_none() && !live.leaving
        });
        let oldest = joins.min_by_key(|live| live.opened)?;
        Some((oldest.subflow, oldest.opened + UNANSWERED))
    }

    /// There is no subflow between these two, and never was one that ended.
    pub(in crate::pm) fn is_untried(&self, local: &Local, remote: &Remote) -> bool {
        let pair = self.pairs.get(local.id, remote.addr);
        pair.is_none_or(|pair| pair.last_end.is_none()) && !self.has_silent(local.id, remote.addr)
    }

    /// What is known of the pair speaks for or against a subflow.
    fn permit_pair(
        &self,
        now: Instant,
        local: &Local,
        remote: &Remote,
    ) -> Result<Option<Reason>, Reason> {
        // rfc8684:C19: that source address and port; other addresses of the peer stay open
        if self.peer_forbids_first && remote.addr == self.first_remote {
            return Err(Reason::PeerForbids);
        }
        if is_of_a_link(remote.addr.ip()) && local.iface != self.first_iface {
            return Err(Reason::OtherLink);
        }
        let pair = self.pairs.get(local.id, remote.addr);
        match pair.map_or(Standing::Free, |pair| pair.standing) {
            Standing::Closed(end) | Standing::Refresh(end) => return Err(Reason::GivenUp { end }),
            Standing::Until { end, at, alone } => {
                let until = if self.has_working() { at } else { alone };
                if until > now {
                    return Err(Reason::BackingOff { end, until });
                }
            }
            Standing::LastResort { end, at } => {
                let until = if self.has_working() {
                    at + retry::LONGEST
                } else {
                    at
                };
                if until > now {
                    return Err(Reason::BackingOff { end, until });
                }
                // One alone: several would part the stream among them, and only one that has it in order can become TCP.
                if !self.has_working() && self.between(local.id, remote.addr) > 0 {
                    return Err(Reason::TooManyPending);
                }
            }
            Standing::OnlyAlone { end, .. } if self.has_working() => {
                return Err(Reason::GivenUp { end });
            }
            Standing::OnlyAlone { end, at } if at > now => {
                return Err(Reason::BackingOff { end, until: at });
            }
            Standing::OnlyAlone { .. } | Standing::Free => {}
        }
        if !remote.proven {
            // rfc8684:S3
            let pending =
                self.live.iter().filter(|live| live.up.is_none()).count() + self.issued.len();
            if pending >= usize::from(self.limits.pending) {
                return Err(Reason::TooManyPending);
            }
            if self.unproven_left == 0 {
                return Err(Reason::BudgetSpent);
            }
        }
        if self.has_silent(local.id, remote.addr) {
            return Ok(Some(Reason::Silent));
        }
        Ok(pair.and_then(|pair| {
            pair.last_end.map(|end| Reason::LostBefore {
                end,
                failures: pair.failures,
            })
        }))
    }
}

/// Without flow label and scope, so that equal addresses compare equal.
fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip(), addr.port())
}
