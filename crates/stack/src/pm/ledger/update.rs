//! How events and issued actions change the ledger.

use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::AddrId;

use super::pairs::Standing;
use super::{Announced, Ledger, Live, Local, Remote, Source, Use, plain};
use crate::api::{IfaceId, SubflowEnd, is_of_a_host, is_of_a_link};
use crate::crypto::rng::Rng;
use crate::ids::SubflowId;
use crate::pm::retry::{self, History, Retry};
use crate::pm::{Action, Carried, Create, NotCreated, Noted, Reason};

/// A subflow that lived this long was a success; its loss starts the back-off anew.
const LONG_LIFE: Duration = Duration::from_secs(30);
/// The same of one that carried data, however little: a network that forgets idle flows ends each of them in a pause.
const LONG_LIFE_WITH_DATA: Duration = retry::LONGEST_ALONE;

/// Withdrawn addresses that are remembered.
const MOST_WITHDRAWN: usize = 4;

/// How soon a subflow that was refused beside a silent one is asked for again.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// How soon a failed attempt for lack of a local resource is repeated.
const RESOURCE_PAUSE: Duration = Duration::from_secs(5);
/// The same where the connection was about to fall back, which is decided soon.
const UNSETTLED_PAUSE: Duration = Duration::from_millis(500);

impl Ledger {
    /// The connection is fully established. // rfc8684:C15
    pub(in crate::pm) fn ready(&mut self, open_at: Instant) -> Noted {
        if self.open_at.is_some() {
            return Noted::Ignored;
        }
        self.open_at = Some(open_at);
        Noted::Accepted
    }

    /// No joins any more.
    pub(in crate::pm) fn stop(&mut self) -> Noted {
        self.stopped = true;
        Noted::Accepted
    }

    /// Other bounds from now on.
    pub(in crate::pm) fn set_limits(&mut self, subflows: Option<u16>, remotes: Option<u8>) {
        self.limits.subflows = subflows.unwrap_or(self.limits.subflows);
        self.limits.remotes = remotes.unwrap_or(self.limits.remotes);
    }

    /// Flag C. // rfc8684:C19
    pub(in crate::pm) fn peer_forbids_first(&mut self) -> Noted {
        self.peer_forbids_first = true;
        Noted::Accepted
    }

    /// See [`crate::pm::Manager::local_id`].
    pub(in crate::pm) fn local_id(&mut self, iface: IfaceId, addr: IpAddr) -> Option<AddrId> {
        if let Some(local) = self
            .locals
            .iter_mut()
            .find(|local| local.iface == iface && local.addr == addr)
        {
            return Some(local.id);
        }
        let id = self.free_id()?;
        self.locals.push(Local {
            id,
            iface,
            addr,
            backup: false,
            state: Use::Full,
            announced: Announced::No,
            known: false,
            withdraw: false,
        });
        Some(id)
    }

    /// An identifier that no address has, the longest unused first, so that a removal that is still on its way
    /// cannot hit a new address. // rfc8684:A2 rfc8684:A13
    fn free_id(&mut self) -> Option<AddrId> {
        for _ in 0..=u8::MAX {
            let id = self.next_id;
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            if !self.locals.iter().any(|local| local.id.0 == id) {
                return Some(AddrId(id));
            }
        }
        None
    }

    /// A local address can be used, or its priority changed.
    pub(in crate::pm) fn local_up(&mut self, iface: IfaceId, addr: IpAddr, backup: bool) -> Noted {
        self.rename_withdrawn(iface, addr);
        let Some(id) = self.local_id(iface, addr) else {
            return Noted::Ignored;
        };
        let Some(local) = self.locals.iter_mut().find(|local| local.id == id) else {
            return Noted::Ignored;
        };
        let priority_changed = local.backup != backup;
        let came_back = !local.is_up();
        local.state = Use::Full;
        local.backup = backup;
        // A withdrawal that was not sent yet is void; one that was sent is followed by a new announcement.
        local.withdraw = false;
        if priority_changed {
            for live in self.live.iter_mut().filter(|live| live.local_id == id) {
                live.tell_priority = Some(backup);
            }
        }
        if came_back {
            self.pairs.forgive(|pair| pair.local_id == id);
        }
        Noted::Accepted
    }

    /// The withdrawal of an address that is back may be still on its way, or the peer may act on it later: what is joined from the
    /// address now has another identifier. // rfc8684:A13
    fn rename_withdrawn(&mut self, iface: IfaceId, addr: IpAddr) {
        let is = |local: &Local| {
            let told = local.state == Use::Gone && !local.known && !local.withdraw;
            told && local.iface == iface && local.addr == addr
        };
        if let Some(at) = self.locals.iter().position(is)
            && let Some(id) = self.free_id()
        {
            self.locals[at].id = id;
        }
    }

    /// Nothing is opened from a local address.
    pub(in crate::pm) fn local_passive(&mut self, iface: IfaceId, addr: IpAddr) -> Noted {
        let Some(id) = self.local_id(iface, addr) else {
            return Noted::Ignored;
        };
        self.with_local(id, |local| {
            (local.state, local.withdraw) = (Use::Passive, false);
        });
        Noted::Accepted
    }

    /// Nothing passes from a local address at present, which stays that of its subflows.
    pub(in crate::pm) fn local_stalled(&mut self, iface: IfaceId, addr: IpAddr) -> Noted {
        let mut locals = self.locals.iter_mut();
        match locals.find(|local| local.iface == iface && local.addr == addr) {
            Some(local) => {
                local.state = Use::Stalled;
                Noted::Accepted
            }
            None => Noted::Ignored,
        }
    }

    /// A local address is on another interface: it is the same one to the peer, which knows it by its identifier.
    pub(in crate::pm) fn local_moved(&mut self, from: IfaceId, to: IfaceId, addr: IpAddr) -> Noted {
        let is = |local: &Local, iface: IfaceId| local.iface == iface && local.addr == addr;
        if self.locals.iter().any(|local| is(local, to)) {
            return Noted::Ignored;
        }
        match self.locals.iter_mut().find(|local| is(local, from)) {
            Some(local) => {
                local.iface = to;
                Noted::Accepted
            }
            None => Noted::Ignored,
        }
    }

    /// A local address is gone: its subflows end where others work, and the peer is told. // rfc8684:A16 rfc8684:A19
    pub(in crate::pm) fn local_down(&mut self, iface: IfaceId, addr: IpAddr) -> Noted {
        let found = self
            .locals
            .iter_mut()
            .find(|local| local.iface == iface && local.addr == addr);
        let Some(local) = found.filter(|local| local.state != Use::Gone) else {
            return Noted::Ignored;
        };
        local.state = Use::Gone;
        local.withdraw = local.known;
        Noted::Accepted
    }

    /// A verified ADD_ADDR.
    pub(in crate::pm) fn advertised(
        &mut self,
        id: AddrId,
        addr: IpAddr,
        port: Option<u16>,
        carried_port: u16,
    ) -> Noted {
        let port = port.unwrap_or(carried_port); // rfc8684:A5
        if !self.may_connect_to(addr, port) {
            return Noted::Ignored;
        }
        let addr = SocketAddr::new(addr, port);
        if let Some(known) = self.remotes.iter_mut().find(|remote| remote.id == id) {
            // rfc8684:A12 rfc8684:A13: an identifier keeps its address until it is removed; only the port may change
            if known.addr.ip() != addr.ip() {
                return Noted::Ignored;
            }
            if known.source != Source::First {
                known.addr = addr;
                known.source = Source::Announced;
            }
            // rfc8684:H6 rfc8684:A11: the announcement is the refresh that allows another attempt
            self.pairs.forgive(|pair| pair.remote == addr);
            return Noted::Accepted;
        }
        if self.remotes.len() >= usize::from(self.limits.remotes) {
            return Noted::Ignored; // rfc8684:S3 rfc8684:A4
        }
        let proven = self
            .remotes
            .iter()
            .any(|remote| remote.proven && remote.addr.ip() == addr.ip());
        self.withdrawn.retain(|known| known.addr != addr);
        self.remotes.push(Remote {
            id,
            addr,
            source: Source::Announced,
            proven,
        });
        Noted::Accepted
    }

    /// Whether an announced address is one that a connection may go to at all. // rfc8684:S3
    fn may_connect_to(&self, addr: IpAddr, port: u16) -> bool {
        let ours = self.locals.iter().any(|local| local.addr == addr);
        // A peer beyond a network must not make us talk to our own host.
        let reaches_in = addr.is_loopback() && !self.first_remote.ip().is_loopback();
        // Nor to the neighbours of it, of which it knows only if it is one of them.
        let beside = is_of_a_link(addr) && !is_of_a_link(self.first_remote.ip());
        let reaches_in = reaches_in || beside;
        port != 0 && is_of_a_host(addr) && !reaches_in && (!ours || addr == self.first_remote.ip())
    }

    /// REMOVE_ADDR: no new subflows to the address as long as another one works, and those that exist are tested. // rfc8684:A17
    pub(in crate::pm) fn withdrawn(&mut self, id: AddrId) -> Noted {
        let known = self.remotes.iter().position(|remote| remote.id == id);
        let mut affected = false;
        for live in self
            .live
            .iter_mut()
            .filter(|live| live.remote_id == id && !live.leaving)
        {
            live.probe = true;
            affected = true;
        }
        match known {
            Some(at) => {
                let remote = self.remotes.remove(at);
                if remote.proven && remote.is_connectable() {
                    self.remember_withdrawn(remote);
                }
                Noted::Accepted
            }
            None if affected => Noted::Accepted,
            None => Noted::Ignored, // rfc8684:A20
        }
    }

    /// Of several the oldest goes first.
    fn remember_withdrawn(&mut self, remote: Remote) {
        self.withdrawn.retain(|known| known.addr != remote.addr);
        if self.withdrawn.len() >= MOST_WITHDRAWN {
            self.withdrawn.remove(0);
        }
        self.withdrawn.push(remote);
    }

    /// A subflow is in its handshake.
    pub(in crate::pm) fn opening(&mut self, live: Live) -> Noted {
        let live = Live {
            remote: plain(live.remote),
            ..live
        };
        if let Some(at) = self
            .issued
            .iter()
            .position(|issued| *issued == (live.local_id, live.remote))
        {
            self.issued.swap_remove(at);
        }
        if let Some(local) = self
            .locals
            .iter_mut()
            .find(|local| local.id == live.local_id)
        {
            local.known = true;
        }
        self.live.push(live);
        Noted::Accepted
    }

    /// A subflow is established: its addresses are proven.
    pub(in crate::pm) fn up(&mut self, now: Instant, subflow: SubflowId) -> Noted {
        let Some(live) = self.live.iter_mut().find(|live| live.subflow == subflow) else {
            return Noted::Ignored;
        };
        live.up = Some(now);
        let live = *live;
        let pair = self.pairs.entry(live.local_id, live.remote);
        pair.worked = true;
        // That it comes up says nothing about what the path does to its payload.
        if !matches!(pair.standing, Standing::LastResort { .. }) {
            pair.standing = Standing::Free;
        }
        let mut proved_now = false;
        for remote in self
            .remotes
            .iter_mut()
            .filter(|remote| remote.addr.ip() == live.remote.ip())
        {
            proved_now |= !remote.proven;
            remote.proven = true;
        }
        if proved_now {
            self.unproven_left = (self.unproven_left + 1).min(self.limits.unproven);
        }
        let known = self
            .remotes
            .iter()
            .any(|remote| remote.id == live.remote_id);
        if !known && self.remotes.len() < usize::from(self.limits.remotes) {
            // rfc8684:A3: an identifier that came by a join
            let addr = SocketAddr::new(live.remote.ip(), self.first_remote.port());
            self.remotes.push(Remote {
                id: live.remote_id,
                addr,
                source: Source::Joined,
                proven: true,
            });
        }
        Noted::Accepted
    }

    /// A subflow's path fell silent, or answers again.
    pub(in crate::pm) fn silence(&mut self, subflow: SubflowId, silent: bool) -> Noted {
        let live = self.live.iter_mut().find(|live| live.subflow == subflow);
        match live.filter(|live| live.silent != silent) {
            Some(live) => {
                live.silent = silent;
                Noted::Accepted
            }
            None => Noted::Ignored,
        }
    }

    /// A subflow ended. The wait before the next one is randomised by up to a quarter.
    pub(in crate::pm) fn ended(
        &mut self,
        now: Instant,
        subflow: SubflowId,
        end: SubflowEnd,
        carried: Carried,
        rng: &mut Rng,
    ) -> Noted {
        let Some(at) = self.live.iter().position(|live| live.subflow == subflow) else {
            return Noted::Ignored;
        };
        let live = self.live.swap_remove(at);
        let beside_silent = self.has_silent(live.local_id, live.remote);
        let beside = self.has_working();
        if live.up.is_some() {
            self.pairs.place_is_free();
        }
        let pair = self.pairs.entry(live.local_id, live.remote);
        let long = match carried {
            Carried::Nothing => LONG_LIFE,
            Carried::Something | Carried::Much => LONG_LIFE_WITH_DATA,
        };
        if live.up.is_some_and(|up| up + long <= now) {
            pair.failures = 0;
        }
        let established = live.up.is_some();
        let useful = carried == Carried::Much;
        let history = History {
            established,
            worked: established || pair.worked,
            failures: pair.failures,
            useful,
            beside,
        };
        pair.last_end = Some(end);
        // After the shorter pause an attempt may have been made.
        let waits = matches!(pair.standing, Standing::Until { alone, .. } if alone > now);
        match (pair.standing, retry::after(end, history)) {
            (Standing::Closed(_), _) => {}
            // A refusal of one more subflow beside a silent one says nothing about the time after that one is gone.
            (_, Retry::Never | Retry::WhenRefreshed) if beside_silent && !established => {
                let at = now + REFUSED_PAUSE;
                let alone = at;
                pair.standing = Standing::Until { end, at, alone };
            }
            (_, Retry::Never) => pair.standing = Standing::Closed(end),
            (_, Retry::WhenRefreshed) => pair.standing = Standing::Refresh(end),
            // One fault that ends several subflows of the pair at once is one failure.
            (_, Retry::After(_) | Retry::Now) if waits => {}
            (_, Retry::Now) => pair.standing = Standing::Free,
            (_, Retry::After(pause)) => {
                pair.failures = pair.failures.saturating_add(1);
                let spread = rng.up_to(pause.over(4));
                let alone = now
                    + pause.min(retry::LONGEST_ALONE)
                    + spread.min(retry::LONGEST_ALONE.over(4));
                let at = now + pause + spread;
                pair.standing = Standing::Until { end, at, alone };
            }
            (_, Retry::OnlyAlone(pause)) => {
                pair.failures = pair.failures.saturating_add(1);
                let pause = pause.min(retry::LONGEST_ALONE);
                let at = now + pause + rng.up_to(pause.over(4));
                pair.standing = Standing::OnlyAlone { end, at };
            }
            (_, Retry::AsLastResort(pause)) => {
                pair.failures = if useful {
                    1
                } else {
                    pair.failures.saturating_add(1)
                };
                let at = now + pause + rng.up_to(pause.over(4));
                pair.standing = Standing::LastResort { end, at };
            }
        }
        Noted::Accepted
    }

    /// An action could not be carried out for want of something of ours: try again a little later.
    pub(in crate::pm) fn create_failed(
        &mut self,
        now: Instant,
        create: &Create,
        why: NotCreated,
    ) -> Noted {
        let key = (create.local_id, create.remote);
        let Some(at) = self.issued.iter().position(|issued| *issued == key) else {
            return Noted::Ignored;
        };
        self.issued.swap_remove(at);
        let pair = self.pairs.entry(create.local_id, create.remote);
        pair.declined = Some(Reason::NotCreated(why));
        let pause = match why {
            NotCreated::NoPort | NotCreated::NoSlot => RESOURCE_PAUSE,
            NotCreated::NotNow => UNSETTLED_PAUSE,
        };
        let at = now + pause;
        pair.standing = Standing::Until {
            end: SubflowEnd::Administrative,
            at,
            alone: at,
        };
        Noted::Accepted
    }

    /// The peer has our announcement. // rfc8684:A9
    pub(in crate::pm) fn echoed(&mut self, id: AddrId) -> Noted {
        match self
            .locals
            .iter_mut()
            .find(|local| local.id == id && local.announced == Announced::Sent)
        {
            Some(local) => {
                local.announced = Announced::Echoed;
                Noted::Accepted
            }
            None => Noted::Ignored,
        }
    }

    /// An action left the manager: it must not be wished for again.
    pub(in crate::pm) fn issued(&mut self, action: &Action) {
        match *action {
            Action::Create(create) => {
                let proven = self
                    .remotes
                    .iter()
                    .any(|remote| remote.addr == create.remote && remote.proven);
                if !proven {
                    self.unproven_left = self.unproven_left.saturating_sub(1); // rfc8684:S3
                }
                self.issued.push((create.local_id, create.remote));
                self.pairs.entry(create.local_id, create.remote).declined = None;
            }
            Action::Remove { subflow } => self.with_live(subflow, |live| live.leaving = true),
            Action::Probe { subflow } => self.with_live(subflow, |live| live.probe = false),
            Action::Prioritise { subflow, .. } => {
                self.with_live(subflow, |live| live.tell_priority = None)
            }
            Action::Announce { id, .. } => {
                self.with_local(id, |local| {
                    (local.announced, local.known) = (Announced::Sent, true)
                });
            }
            Action::Withdraw { id } => self.with_local(id, |local| {
                (local.announced, local.known, local.withdraw) = (Announced::No, false, false);
            }),
        }
    }

    /// Remembers why a pair has no subflow; `true` if the reason is a new one.
    pub(in crate::pm) fn note_declined(
        &mut self,
        local: (AddrId, IpAddr),
        remote: SocketAddr,
        reason: Reason,
    ) -> bool {
        let pair = self.pairs.entry(local.0, remote);
        pair.declined.replace(reason) != Some(reason)
    }

    fn with_live(&mut self, subflow: SubflowId, change: impl FnOnce(&mut Live)) {
        if let Some(live) = self.live.iter_mut().find(|live| live.subflow == subflow) {
            change(live);
        }
    }

    fn with_local(&mut self, id: AddrId, change: impl FnOnce(&mut Local)) {
        if let Some(local) = self.locals.iter_mut().find(|local| local.id == id) {
            change(local);
        }
    }
}
