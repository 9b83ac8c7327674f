//! Path management of one connection: which subflows there should be, which addresses the peer should know, and why.
//!
//! [`ledger`] holds what is known, [`policies`] turn it into wishes by pure functions, [`retry`] says what each way of
//! losing a subflow means for the next one, and the [`Manager`] here feeds the first, asks the second and writes the
//! decision log. Must never touch a subflow itself: the connection does what the returned [`Action`]s say and reports
//! back with [`Event`]s.

pub mod controllers;
pub mod ledger;
pub mod policies;
pub mod retry;
#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::AddrId;

use crate::api::{Command, IfaceId, SubflowEnd, SubflowOrigin};
use crate::crypto::rng::Rng;
use crate::ids::SubflowId;
use crate::trace::Ring;

pub use ledger::{First, Ledger, Limits, Use};
pub use policies::Policy;

/// What the connection should do for its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a subflow. Answer with [`Event::Opening`] or [`Event::CreateFailed`].
    Create(Create),
    /// End a subflow: its address is gone, so by a reset. // rfc8684:A19
    Remove {
        /// Which one.
        subflow: SubflowId,
    },
    /// Find out by a keepalive whether a subflow still works, and end it if not. // rfc8684:A17
    Probe {
        /// Which one.
        subflow: SubflowId,
    },
    /// Tell the peer by MP_PRIO how we want a subflow to be used.
    Prioritise {
        /// Which one.
        subflow: SubflowId,
        /// Only when nothing better is left.
        backup: bool,
    },
    /// Send ADD_ADDR until it is echoed.
    Announce {
        /// Our identifier of the address.
        id: AddrId,
        /// The address.
        addr: IpAddr,
        /// A port other than the connection's.
        port: Option<u16>,
    },
    /// Send REMOVE_ADDR.
    Withdraw {
        /// Our identifier of the address.
        id: AddrId,
    },
}

/// A subflow to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    /// Our identifier of the local address.
    pub local_id: AddrId,
    /// Where its packets leave.
    pub iface: IfaceId,
    /// The local address; the port is chosen by the connection.
    pub local: IpAddr,
    /// Address and port to connect to.
    pub remote: SocketAddr,
    /// The peer's identifier of that address.
    pub remote_id: AddrId,
    /// Both ends are to use it only when nothing better is left.
    pub backup: bool,
    /// First time or again.
    pub origin: SubflowOrigin,
}

/// Why something was done, or not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The policy wants a subflow between these two addresses.
    PairWanted,
    /// The policy wants that many subflows.
    CountWanted(u8),
    /// The subflow here was lost and its time to come back has come.
    LostBefore {
        /// How the last one ended.
        end: SubflowEnd,
        /// How many ended without having lived long.
        failures: u8,
    },
    /// A local address of the application's is not known to the peer.
    LocalAddressNew,
    /// The local address is gone.
    LocalAddressGone,
    /// The priority of the local address changed.
    PriorityChanged,
    /// The peer withdrew its address.
    PeerWithdrew,
    /// The subflow here has been silent for some time: a new one finds out whether the path works again.
    Silent,
    /// Not done: the peer asked that no subflow be opened to this address and port. // rfc8684:C19
    PeerForbids,
    /// Not done: the peer's address means something on the link of the first subflow alone (RFC 4007 section 6).
    OtherLink,
    /// Not done: the connection has as many subflows as it may.
    TooManySubflows,
    /// Not done: enough joins are under way to addresses that have proved nothing yet.
    TooManyPending,
    /// Not done: too many joins went to addresses that have proved nothing. // rfc8684:S3
    BudgetSpent,
    /// Not done before that time: the last subflow here was lost.
    BackingOff {
        /// How it ended.
        end: SubflowEnd,
        /// When it may be tried again.
        until: Instant,
    },
    /// Not done: the last attempt ended in a way that makes another one pointless or forbidden.
    /// // rfc8684:T4 rfc8684:H6 rfc8684:A11
    GivenUp {
        /// How it ended.
        end: SubflowEnd,
    },
    /// Not done: we could not even send a SYN.
    NotCreated(NotCreated),
    /// A controller asked for it and gave this reason.
    Controller(&'static str),
    /// The application or a controller outside asked for it.
    Asked,
    /// An application or a controller asked for it, and it could not be.
    AskedInVain,
}

/// Why the connection could not open a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCreated {
    /// Every local port towards that destination is in use.
    NoPort,
    /// The connection has no number left for another subflow.
    NoSlot,
    /// The connection takes none at the moment: it may be about to fall back.
    NotNow,
}

/// One line of the decision log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Which one of the connection's it is, from 1.
    pub number: u32,
    /// When.
    pub at: Instant,
    /// What was decided.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This is to be done.
    Do(Action),
    /// No subflow is made between these two now.
    Decline {
        /// From this local address.
        local: IpAddr,
        /// To this address and port.
        remote: SocketAddr,
    },
    /// A controller's command.
    Command(Command),
    /// A controller looked and leaves things as they are.
    Leave,
}

/// What the connection tells its path manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is fully established: joins are allowed now. // rfc8684:C15
    Ready,
    /// The peer set flag C: no more subflows to its first address and port. // rfc8684:C19
    PeerForbidsFirstAddress,
    /// No join will ever be made again: fallback, or the connection closes.
    Stop,
    /// A local address can be used, or its backup flag changed.
    LocalUp {
        /// Its interface.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
        /// Ask peers to use it only when nothing better is left.
        backup: bool,
    },
    /// A local address goes on with what it has and takes what peers open; nothing is opened from it.
    LocalPassive {
        /// Its interface.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
    },
    /// Nothing passes from a local address at present. The peer is not told.
    LocalStalled {
        /// Its interface.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
    },
    /// A local address that was gone is on another interface now; it keeps its identifier.
    LocalMoved {
        /// Where it was.
        from: IfaceId,
        /// Where it is.
        to: IfaceId,
        /// The address.
        addr: IpAddr,
    },
    /// A local address is gone.
    LocalDown {
        /// Its interface.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
    },
    /// An ADD_ADDR whose code was right.
    Advertised {
        /// The peer's identifier.
        id: AddrId,
        /// The address.
        addr: IpAddr,
        /// The port it gave.
        port: Option<u16>,
        /// Our peer's port on the subflow that carried it. // rfc8684:A5
        carried_port: u16,
    },
    /// A REMOVE_ADDR names this identifier.
    Withdrawn {
        /// The peer's identifier.
        id: AddrId,
    },
    /// A subflow is in its handshake, whoever started it.
    Opening {
        /// Which one.
        subflow: SubflowId,
        /// Our identifier of the local address.
        local_id: AddrId,
        /// Local address and port.
        local: SocketAddr,
        /// The peer's identifier of its address.
        remote_id: AddrId,
        /// The peer's address and port.
        remote: SocketAddr,
        /// Who wanted it.
        origin: SubflowOrigin,
    },
    /// A subflow is established: both ends proved who they are.
    Up {
        /// Which one.
        subflow: SubflowId,
    },
    /// A subflow ended, established or not.
    Ended {
        /// Which one.
        subflow: SubflowId,
        /// Why.
        end: SubflowEnd,
        /// How much it carried.
        carried: Carried,
    },
    /// A subflow's path fell silent, or answers again.
    Silence {
        /// Which one.
        subflow: SubflowId,
        /// It is silent.
        silent: bool,
    },
    /// A [`Create`] could not be carried out.
    CreateFailed {
        /// What was asked for.
        create: Create,
        /// Why it was not done.
        why: NotCreated,
    },
    /// The peer echoed an announcement of ours.
    Echoed {
        /// Our identifier.
        id: AddrId,
    },
}

/// What a subflow was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// As far as is known nothing came through.
    Nothing,
    /// Data that the peer acknowledged, or that came from it.
    Something,
    /// More than a beginning.
    Much,
}

/// What became of an event, where the connection wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Taken into the ledger.
    Accepted,
    /// Without effect, for instance an unknown identifier. // rfc8684:A20
    Ignored,
}

/// How a manager behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which subflows there should be.
    pub policy: Policy,
    /// Bounds.
    pub limits: Limits,
    /// Longest randomised wait between the connection's establishment and its first join. // rfc8684:H3,H4
    pub open_wait: Duration,
}

impl Config {
    /// A policy with the usual bounds.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            limits: Limits::default(),
            open_wait: Duration::from_millis(10),
        }
    }
}

/// The path manager of one connection.
#[derive(Debug)]
pub struct Manager {
    config: Config,
    ledger: Ledger,
    log: Ring<Decision>,
    /// How many entries it had, and how many of these were told.
    decided: u32,
    told: u32,
    /// Something changed since the policy was last asked.
    dirty: bool,
    /// When time alone changes the policy's answer.
    next: Option<Instant>,
}

impl Manager {
    /// How many decisions are remembered.
    pub const LOG: usize = 64;

    /// A manager for a connection whose first subflow is this.
    pub fn new(config: Config, first: First) -> Self {
        Self {
            config,
            ledger: Ledger::new(config.limits, first),
            log: Ring::new(Self::LOG),
            decided: 0,
            told: 0,
            dirty: false,
            next: None,
        }
    }

    /// What is known.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The identifier of a local address, given to it now if it has none: a join of the peer arrived there.
    /// `None` if all identifiers are in use. // rfc8684:J3
    pub fn local_id(&mut self, iface: IfaceId, addr: IpAddr) -> Option<AddrId> {
        self.ledger.local_id(iface, addr)
    }

    /// The newest decisions, oldest first.
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &Decision> + ExactSizeIterator {
        self.log.iter()
    }

    /// Changes the policy of a running connection. Subflows that exist stay.
    pub fn set_policy(&mut self, policy: Policy) {
        self.config.policy = policy;
        self.dirty = true;
    }

    /// Changes the bounds of a running connection. What exceeds them already stays.
    pub fn set_limits(&mut self, subflows: Option<u16>, remotes: Option<u8>) {
        self.ledger.set_limits(subflows, remotes);
        self.dirty = true;
    }

    /// Writes into the decision log what was decided elsewhere. The same decision to leave things again and again is one
    /// entry.
    pub fn note(&mut self, at: Instant, verdict: Verdict, reason: Reason) {
        let same = |last: &Decision| last.verdict == verdict && last.reason == reason;
        if verdict != Verdict::Leave || !self.log.iter().next_back().is_some_and(same) {
            self.enter(at, verdict, reason);
        }
    }

    fn enter(&mut self, at: Instant, verdict: Verdict, reason: Reason) {
        self.decided = self.decided.wrapping_add(1);
        self.log.push(Decision {
            number: self.decided,
            at,
            verdict,
            reason,
        });
    }

    /// The number of the next entry of the log that was not told yet.
    pub(crate) fn poll_decision(&mut self) -> Option<u32> {
        let next = self.told.wrapping_add(1);
        (self.told != self.decided).then(|| {
            self.told = next;
            next
        })
    }

    /// An action was ordered from elsewhere: the policy must not wish for it again.
    pub(crate) fn ordered(&mut self, action: &Action) {
        self.ledger.issued(action);
        self.dirty = true;
    }

    /// Takes an event in. Follow with [`Manager::poll`] until it returns `None`.
    pub fn handle(&mut self, now: Instant, event: Event, rng: &mut Rng) -> Noted {
        self.dirty = true;
        match event {
            Event::Ready => self.ledger.ready(now + rng.up_to(self.config.open_wait)),
            Event::PeerForbidsFirstAddress => self.ledger.peer_forbids_first(),
            Event::Stop => self.ledger.stop(),
            Event::LocalUp {
                iface,
                addr,
                backup,
            } => self.ledger.local_up(iface, addr, backup),
            Event::LocalPassive { iface, addr } => self.ledger.local_passive(iface, addr),
            Event::LocalStalled { iface, addr } => self.ledger.local_stalled(iface, addr),
            Event::LocalMoved { from, to, addr } => self.ledger.local_moved(from, to, addr),
            Event::LocalDown { iface, addr } => self.ledger.local_down(iface, addr),
            Event::Advertised {
                id,
                addr,
                port,
                carried_port,
            } => self.ledger.advertised(id, addr, port, carried_port),
            Event::Withdrawn { id } => self.ledger.withdrawn(id),
            Event::Opening {
                subflow,
                local_id,
                local,
                remote_id,
                remote,
                origin,
            } => {
                let live =
                    ledger::Live::opening(now, subflow, local_id, local, remote_id, remote, origin);
                self.ledger.opening(live)
            }
            Event::Up { subflow } => self.ledger.up(now, subflow),
            Event::Ended {
                subflow,
                end,
                carried,
            } => self.ledger.ended(now, subflow, end, carried, rng),
            Event::Silence { subflow, silent } => self.ledger.silence(subflow, silent),
            Event::CreateFailed { create, why } => self.ledger.create_failed(now, &create, why),
            Event::Echoed { id } => self.ledger.echoed(id),
        }
    }

    /// The next thing to do, if there is one now.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        if !self.dirty && self.next.is_none_or(|next| next > now) {
            return None;
        }
        let plan = self.config.policy.plan(&self.ledger, now);
        for &(local, remote, reason) in &plan.declined {
            if self.ledger.note_declined(local, remote, reason) {
                let verdict = Verdict::Decline {
                    local: local.1,
                    remote,
                };
                self.enter(now, verdict, reason);
            }
        }
        self.next = plan.next;
        self.dirty = plan.todo.is_some();
        let (action, reason) = plan.todo?;
        self.ledger.issued(&action);
        self.enter(now, Verdict::Do(action), reason);
        Some(action)
    }

    /// When [`Manager::poll`] has something to do although no event comes.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verdict, self.reason)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Verdict::Do(Action::Create(create)) => {
                write!(f, "create {} -> {}", create.local, create.remote)?;
                if create.backup {
                    f.write_str(" as backup")?;
                }
            }
            Verdict::Do(Action::Remove { subflow }) => write!(f, "remove subflow {subflow}")?,
            Verdict::Do(Action::Probe { subflow }) => write!(f, "probe subflow {subflow}")?,
            Verdict::Do(Action::Prioritise { subflow, backup }) => {
                write!(
                    f,
                    "make subflow {subflow} {}",
                    if backup { "a backup" } else { "regular" }
                )?;
            }
            Verdict::Do(Action::Announce {
                id,
                addr,
                port: None,
            }) => {
                write!(f, "announce {addr} as {}", id.0)?;
            }
            Verdict::Do(Action::Announce {
                id,
                addr,
                port: Some(port),
            }) => {
                write!(f, "announce {} as {}", SocketAddr::new(addr, port), id.0)?;
            }
            Verdict::Do(Action::Withdraw { id }) => write!(f, "withdraw address {}", id.0)?,
            Verdict::Decline { local, remote } => write!(f, "no subflow {local} -> {remote}")?,
            Verdict::Command(command) => write!(f, "{command}")?,
            Verdict::Leave => f.write_str("leave things as they are")?,
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PairWanted => f.write_str("the policy wants one for each pair of addresses"),
            Self::CountWanted(count) => write!(f, "the policy wants {count}"),
            Self::LostBefore { end, failures } => {
                write!(
                    f,
                    "the last one was lost ({}), {failures} in a row",
                    retry::name(*end)
                )
            }
            Self::LocalAddressNew => f.write_str("the peer does not know the address"),
            Self::LocalAddressGone => f.write_str("the local address is gone"),
            Self::Silent => f.write_str("the subflow here is silent"),
            Self::PriorityChanged => f.write_str("the priority of the local address changed"),
            Self::PeerWithdrew => f.write_str("the peer withdrew its address"),
            Self::PeerForbids => {
                f.write_str("the peer wants no more subflows to its first address")
            }
            Self::OtherLink => f.write_str("the peer's address is one of another link"),
            Self::TooManySubflows => f.write_str("there are as many subflows as allowed"),
            Self::TooManyPending => f.write_str("too many joins wait for an answer"),
            Self::BudgetSpent => f.write_str("too many joins found no answer"),
            Self::BackingOff { end, until } => {
                let at = until.as_millis();
                write!(
                    f,
                    "the last one was lost ({}); next attempt at {at} ms",
                    retry::name(*end)
                )
            }
            Self::GivenUp { end } => {
                write!(f, "the last attempt ended for good ({})", retry::name(*end))
            }
            Self::NotCreated(NotCreated::NoPort) => f.write_str("no local port is free"),
            Self::NotCreated(NotCreated::NoSlot) => f.write_str("no subflow number is free"),
            Self::NotCreated(NotCreated::NotNow) => f.write_str("the connection takes none now"),
            Self::Controller(why) => f.write_str(why),
            Self::Asked => f.write_str("on request"),
            Self::AskedInVain => f.write_str("on request, and refused"),
        }
    }
}
