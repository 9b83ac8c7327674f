//! Down to TCP between two hosts that both know this: where the streams go on is said within the subflow's own bytes.
//!
//! The infinite mapping of RFC 8684 section 3.7 is an option, and a connection falls because options do not pass. With one
//! subflow that does no harm, whose order is the stream's. Where several carried data it is not, and nobody but the sender
//! knows where the stream goes on. So hosts that said on a join that they know it (an option of subtype 0xf, which section 8
//! leaves to them) begin what they send after the fall with a record: a code that only the holders of both keys can
//! compute, and the Data ACK. It passes wherever TCP passes. Each end sends one, when it falls or when the other's comes, and
//! takes what comes before the other's for no part of the stream any more. Behind its own it goes on where the other's
//! says, so that nothing is sent twice: of what something rewrites on the way, nobody could tell how much to skip.
//!
//! The other subflows stay, unused, until the peer's record has come: it may have ended the one that was chosen here. Of two
//! that were chosen at once, that of who opened the connection counts. For the same reason a subflow whose acknowledgements
//! come without options while they pass elsewhere rests, and is not reset: it may be the last way one day.
//!
//! How a connection outlives the subflow that it went on with is the matter of `resume`.
//!
//! Owns the way down by records. Must never send one to a peer that may take it for data.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{MptcpOption, Private};

use super::answered::AnsweredBy;
use super::digest::Digest;
use super::fallback::Others;
use super::ingest::interference;
use super::offset::Offset;
use super::record::{Code, RECORD, Said};
use super::resume::Proposal;
use super::send::FinState;
use super::subflow::{Greeting, Subflow};
use super::{Conn, Cx};
use crate::api::{CloseCause, FallbackCause, ProtocolLevel, Role, SubflowEnd};
use crate::ids::SubflowId;
use crate::pm;

/// Says on a join that its sender knows records, and takes them.
pub(crate) const KNOWS_RECORDS: Private = Private::new(0x152);

/// How much more a subflow must be worth than all others to be kept in their place without options.
const MUCH_MORE: u64 = 2;
/// An initial window (RFC 6928): what is less came one round trip after the other, at whatever rate.
pub(super) const LITTLE: u64 = 10 * 1460;

/// An outage of the path on which the connection began seldom lasts longer. Who goes on elsewhere with damage does so for good.
const OUTAGE: Duration = Duration::from_secs(10);

/// How long the peer's record may take before the subflow is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// The other subflows are asked again so often.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// What is known and under way of restarts.
#[derive(Debug, Default)]
pub(crate) struct Restart {
    /// We said on a join that we take records: whatever comes without a mapping may have one.
    said: bool,
    /// The peer knows records.
    agreed: bool,
    /// What the peer's begins with, once it was needed.
    code: Option<Box<Code>>,
    /// We fell: what we say goes on this subflow, and what comes counts from the peer's record on.
    pub(super) on: Option<SubflowId>,
    /// The peer's record is here.
    pub(super) came: bool,
    /// What was read since the first one of all came.
    read: Digest,
    /// The subflow ended on which both had gone on.
    pub(super) again: bool,
    /// It is silent, and another way is looked for.
    pub(super) seeks: bool,
    /// A way on beside the silent one, while both ends make sure of each other.
    pub(super) proposed: Option<Proposal>,
    /// One end read something else than the other one sent: there is no way on but the one that there is.
    pub(super) refuted: bool,
    /// How far we had sent when we fell.
    pub(super) sent: Offset,
    /// When the peer's record is waited for no more.
    until: Option<Instant>,
    /// When the other subflows are asked whether the peer has ours.
    ask_at: Option<Instant>,
    /// When they were asked first.
    asked: Option<Instant>,
}

/// Our record on its way.
#[derive(Debug)]
pub(super) struct Record {
    ssn: Ssn,
    bytes: [u8; RECORD],
    sent: usize,
}

impl Record {
    /// Where what follows it begins.
    fn end(&self) -> Ssn {
        self.ssn + RECORD as u32
    }
}

/// What the peer's record says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// The stream goes on here.
    On(Offset),
    /// Something that was true once.
    Old,
    /// The peer read something else than what was sent, or says what cannot be.
    None,
}

/// How long a path of such a time-out has to be silent to be no reason any more not to go on elsewhere.
pub(super) fn long_silence(rto: Duration) -> Duration {
    rto.times(4).max(Duration::from_secs(2))
}

impl Restart {
    /// The connection goes on as TCP on this subflow, which may be gone.
    pub(super) fn is_on(&self, id: SubflowId) -> bool {
        self.on == Some(id)
    }

    /// When the peer's record is waited for no more, or the other subflows are asked, or a proposal is dropped.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let proposal = self.proposed.as_ref().map(|proposal| proposal.until);
        let all = [self.until, self.ask_at, proposal];
        all.into_iter().flatten().min()
    }

    /// The peer's record is waited for from now on, and asked about elsewhere when this path, of such a time-out, was silent
    /// long enough.
    fn awaits(&mut self, now: Instant, rto: Duration) {
        self.until = Some(now + PATIENCE);
        self.ask_at = Some(now + long_silence(rto));
        self.asked = None;
    }

    /// The peer's record is waited for no more.
    fn is_over(&mut self) {
        (self.until, self.ask_at, self.asked) = (None, None, None);
    }
}

impl Subflow {
    /// So many bytes of our record were sent for the first time.
    pub(super) fn record_sent(&mut self, bytes: u32, cx: &mut Cx<'_>) {
        if let Some(record) = &mut self.record {
            record.sent += bytes as usize;
            cx.count.record_sent += u64::from(record.sent == RECORD);
        }
    }
}

impl Conn {
    /// We say on a join that we take records.
    pub(super) fn say_records(&mut self) {
        self.restart.said = true;
    }

    /// The peer knows records, and has proved that it is the peer.
    pub(crate) fn agree_on_records(&mut self) {
        self.restart.agreed = true;
    }

    /// The way down is by records: both ends know that both know them, since a join that said so came up.
    pub(crate) fn falls_by_record(&self) -> bool {
        self.restart.agreed && self.joined
    }

    /// We have the peer's proof on a join that says that it knows records, and it may have ours: then it falls by one, and takes
    /// one in any case.
    pub(super) fn may_be_answered_by_record(&self) -> bool {
        let knows = |sf: &Subflow| match sf.greeting {
            Greeting::JoinAck { knows_records, .. } => knows_records && sf.reset_with.is_none(),
            _ => false,
        };
        self.subflows.iter().any(knows)
    }

    /// We fell by a record.
    pub(crate) fn fell_by_record(&self) -> bool {
        self.restart.on.is_some()
    }

    /// Both records are here: the stream goes on as TCP.
    pub(super) fn goes_on_by_record(&self) -> bool {
        self.fell_by_record() && self.restart.came
    }

    /// What comes is no part of the stream until the peer's record does.
    pub(crate) fn awaits_record(&self) -> bool {
        self.fell_by_record() && !self.restart.came
    }

    /// We fell by a record, and not on this subflow.
    pub(super) fn fell_elsewhere(&self, i: usize) -> bool {
        self.fell_by_record() && !self.restart.is_on(self.subflows[i].id())
    }

    /// Data of ours is acknowledged on a subflow without options while they pass on another one, and has no Data ACK there
    /// either. If it is worth more than all others it goes on alone as TCP; else it carries data when nothing else does.
    pub(super) fn rest(&mut self, i: usize, cx: &mut Cx<'_>) {
        if self.outdoes_others(i) {
            self.fall_by_record(i, FallbackCause::OptionsLost, cx);
        } else if !core::mem::replace(&mut self.subflows[i].rests, true) {
            cx.count.subflow_rested += 1;
            self.reinject_swallowed(i);
            self.reinject_all(i);
        }
    }

    /// A Data ACK came on the subflow. If what this one carried first has arrived, options pass there both ways, and it was a proxy
    /// that acknowledged without (gauntlet 652291).
    pub(super) fn rests_no_more(&mut self, i: usize) {
        let una = self.send.una();
        let sf = &mut self.subflows[i];
        if sf.rests && sf.first_end.is_some_and(|end| una >= end) {
            sf.rests = false;
            sf.answered_by = AnsweredBy::Proxy;
        }
    }

    /// A Data ACK came on the subflow. What it is worth is known better by now than when another one was let rest for it, which
    /// may have been a guess: if it lost something or has a long queue, that one goes on alone after all.
    pub(super) fn outdone_by_resting(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &self.subflows[i];
        // Right after a time-out or in a loss it seems worth less than it is.
        let settled = !sf.tcp.in_slow_start() && !sf.tcp.in_recovery();
        if !self.falls_by_record() || !settled || !sf.answers() || sf.rests {
            return;
        }
        let rests = |j: &usize| {
            let sf = &self.subflows[*j];
            sf.rests && sf.answers() && sf.unexplained.is_none()
        };
        let outdoes = |j: &usize| self.others(*j) == Others::Proven && self.outdoes_others(*j);
        let resting = (0..self.subflows.len()).find(|j| rests(j) && outdoes(j));
        if let Some(j) = resting {
            self.rest(j, cx);
        }
    }

    /// The others together would be much slower to send on, as far as is known from here. One that still grows may come to the
    /// same window. What a proxy acknowledges tells nothing. As long as little was said, each word waits for one of them alone: who
    /// asks and answers gains nothing by the other ones.
    fn outdoes_others(&self, i: usize) -> bool {
        let sf = &self.subflows[i];
        let counts = |other: &&Subflow| other.id() != sf.id() && other.answers() && !other.rests;
        let worth = |other: &Subflow| match other.tcp.in_slow_start() {
            true => other.rate().max(other.rate_of(sf.tcp.cwnd())),
            false => other.rate(),
        };
        let others = self.subflows.iter().filter(counts).map(worth);
        let little = self.mapped + sf.unmapped <= LITTLE && self.send.next().0 <= LITTLE;
        let others: u64 = match little {
            true => others.max().unwrap_or(0),
            false => others.sum(),
        };
        !sf.is_answered_on_the_way() && sf.rate() > others * MUCH_MORE
    }

    /// It brought much more without mappings than all others with them meanwhile: our windows say nothing about what a peer
    /// sends. Of little, which waited for round trips, they say enough. And so it has to have been all the time, for a sender serves
    /// one path after the other, and where something is lost a path brings nothing for a while. What one will bring that just came
    /// up nobody knows; if it is this one, it will bring twice as much.
    pub(super) fn outbrings_others(&self, i: usize, now: Instant) -> bool {
        let sf = &self.subflows[i];
        let meanwhile = sf.unmapped_since.map_or(0, |(_, at)| self.mapped - at);
        if sf.unmapped + meanwhile <= LITTLE {
            return self.outdoes_others(i);
        }
        let others = || self.subflows.iter().filter(|other| other.id() != sf.id());
        if others().any(|other| other.grows_freely(now)) {
            return false;
        }
        let before: u64 = others().map(|other| other.brings(now)).sum();
        let much = |here: u64, there: u64| here > there.saturating_mul(MUCH_MORE);
        let all_the_time = match sf.grows_freely(now) {
            true => sf.brings(now) > before,
            false => much(sf.brings(now), before),
        };
        much(sf.unmapped, meanwhile) && all_the_time
    }

    /// The others, which are silent, were not worth much more when they answered: they may return, if not for ever. Their windows,
    /// which shrink with each time-out, say nothing about that: what they carried does, and what they would begin with again. And our
    /// windows say nothing about what a peer sends: what came does. The first one is waited for longer, as TCP would wait.
    pub(super) fn is_worth_silent(&self, i: usize, now: Instant) -> bool {
        let sf = &self.subflows[i];
        let lately = |other: &Subflow| match other.is_first() {
            true => now < other.is_silent_from().max(other.quiet.heard_at() + OUTAGE),
            false => now < other.is_silent_from(),
        };
        let counts = |other: &&Subflow| {
            other.id() != sf.id() && other.was_up() && !other.rests && lately(other)
        };
        let worth = |other: &Subflow| {
            let kept = other.tcp.sustained_rate();
            let began = other.rate_of(LITTLE as u32);
            kept.map_or(0, Rate::as_bytes_per_sec).max(began)
        };
        let others = || self.subflows.iter().filter(counts);
        let brought: u64 = others().map(|other| other.bytes_received).sum();
        if brought > LITTLE && brought > sf.bytes_received * MUCH_MORE {
            return false;
        }
        let others: u64 = others().map(worth).sum();
        sf.rate() * MUCH_MORE >= others
    }

    /// The connection goes on as TCP on this subflow, behind a record that says so.
    pub(super) fn fall_by_record(&mut self, i: usize, cause: FallbackCause, cx: &mut Cx<'_>) {
        let sf = &self.subflows[i];
        let (finished, all) = (sf.peer_finished, self.send.una() == self.send.end());
        if finished && !self.restart.came && self.recv.finished() && all {
            // Both have everything, whatever is held here, and our FIN says the rest.
            let sf = &mut self.subflows[i];
            sf.unexplained = None;
            sf.rx.clear();
            self.fall_silently(i, cx);
        } else if sf.tcp.fin_sent() || finished && !self.restart.came {
            // Nothing more can be said, or answered.
            self.subflows[i].unexplained = None;
            self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx);
        } else if self.lattice.descend(ProtocolLevel::PlainTcp, cause) {
            let fin_said = matches!(self.send.fin, FinState::Sent | FinState::Acked);
            self.restart.sent = self.send.next() + u64::from(fin_said);
            self.count_fallback(cause, cx);
            self.go_on_with(i, cx);
        }
    }

    /// Makes our record the next bytes of a subflow. False: without keys there is none.
    pub(super) fn put_record(&mut self, i: usize) -> bool {
        let (Some(keys), Some(numbers)) = (self.keys(), self.rx_numbers) else {
            return false;
        };
        let said = Said {
            ack: numbers.dsn(self.recv.data_ack()),
            digest: self.restart.read.value(),
        };
        let sf = &mut self.subflows[i];
        let ssn = sf.tcp.snd_nxt_ssn();
        sf.record_end = Some(ssn + RECORD as u32);
        sf.record = Some(Box::new(Record {
            ssn,
            bytes: Code::of(keys).record(said),
            sent: 0,
        }));
        true
    }

    /// Puts our record on a subflow, on which everything goes on.
    fn go_on_with(&mut self, i: usize, cx: &mut Cx<'_>) {
        if self.put_record(i) {
            self.go_on_behind(i, cx);
        }
    }

    /// Everything goes on on a subflow, behind our record there.
    pub(super) fn go_on_behind(&mut self, i: usize, cx: &mut Cx<'_>) {
        for sf in &mut self.subflows {
            (sf.unexplained, sf.damaged) = (None, None);
        }
        let sf = &mut self.subflows[i];
        if !self.restart.came {
            self.restart.awaits(cx.now, sf.tcp.base_rto());
        }
        self.restart.on = Some(sf.id());
        (self.restart.seeks, self.restart.refuted) = (false, false);
        self.again_from = sf.record_end;
        sf.has_mappings_again();
        sf.rx.clear();
        self.send.rewind();
        self.failing = None;
        self.withhold_no_more();
        self.recv.arrived.clear();
        self.rest_is_plain(i, cx);
    }

    /// Looks for the peer's record in bytes that no mapping covers. True if it ends there; what follows was taken in.
    pub(super) fn comes_by_record(
        &mut self,
        i: usize,
        ssn: Ssn,
        bytes: &[u8],
        cx: &mut Cx<'_>,
    ) -> bool {
        // Behind the peer's record everything is the stream, but on a subflow that came up since then.
        if !self.restart.said || self.restart.came && !self.fell_elsewhere(i) {
            return false;
        }
        let Some(keys) = self.keys() else {
            return false;
        };
        let code = || Box::new(Code::of(keys.reversed()));
        let code = self.restart.code.get_or_insert_with(code);
        let Some((said, end)) = self.subflows[i].finder.look(code, ssn, bytes) else {
            return false;
        };
        let rest = bytes.get(end..).unwrap_or_default();
        self.follow_record(i, (said, ssn + end as u32), rest, cx);
        true
    }

    /// The peer has everything that its record says, and its stream goes on where that ends.
    pub(super) fn follow_record(
        &mut self,
        i: usize,
        heard: (Said, Ssn),
        rest: &[u8],
        cx: &mut Cx<'_>,
    ) {
        let (said, ssn) = heard;
        if self.fell_elsewhere(i) && self.may_stay() {
            self.proposal_answered(i, heard, rest, cx);
            return;
        }
        if self.fell_elsewhere(i) && self.role == Role::Initiator {
            // It will follow, unless ours is lost with its subflow: the peer is asked.
            self.subflows[i].said = Some(heard);
            self.restart.ask_at.get_or_insert(cx.now);
            return;
        }
        if self.fell_elsewhere(i) {
            self.begins_once_more();
        }
        let why = super::join::mptcp_specific();
        let undecided = self.lattice.speaks_multipath() || self.fell_by_record();
        let sf = &self.subflows[i];
        if !undecided || sf.tcp.fin_sent() && !self.restart.is_on(sf.id()) {
            // What came before may have been taken for the stream, or there is no answer.
            self.reset_subflow(i, SubflowEnd::ProtocolError, why, cx);
            return;
        }
        cx.count.record_received += 1;
        self.restart.agreed = true;
        self.restart.came = true;
        self.restart.is_over();
        self.tell_manager(pm::Event::Stop, cx);
        self.joined = true;
        if self.fell_elsewhere(i) {
            self.go_on_with(i, cx);
        } else if self.fell_by_record() {
            self.leave_others(i, cx);
        } else {
            self.fall_by_record(i, FallbackCause::PeerInfinite, cx);
        }
        let at = match self.goes_on_at(said) {
            Way::On(at) => Some(at).filter(|_| self.fell_by_record()),
            Way::Old | Way::None => None,
        };
        match at {
            Some(at) => {
                self.send.go_on_from(at);
                self.unsettled = true;
                // Some of the record itself may be still to come.
                self.peer_again = Some((ssn, 0));
                self.take_plain(i, ssn, rest, cx);
                if self.subflows[i].peer_finished {
                    self.ends_with_subflow(i);
                }
            }
            None => self.is_contradicted_by_record(cx),
        }
    }

    /// Where our stream goes on by what the peer's record says.
    pub(super) fn goes_on_at(&self, said: Said) -> Way {
        let una = self.send.una();
        let at = self
            .tx_numbers
            .and_then(|numbers| numbers.offset(said.ack, una));
        let same = |at: Offset| {
            self.send
                .read_upto(at)
                .is_none_or(|read| read == said.digest)
        };
        match at {
            Some(at) if at < una => Way::Old,
            Some(at) if at <= self.restart.sent && same(at) => Way::On(at),
            _ => Way::None,
        }
    }

    /// What a reset says after a fall by a record, where the peer would look for another way on else.
    pub(super) fn farewell_of_restart(&self) -> Option<MptcpOption> {
        let word = self.fast_close_option();
        word.filter(|_| self.fell_by_record())
    }

    /// The peer read something else than what was sent, or says what cannot be: there is no way on.
    fn is_contradicted_by_record(&mut self, cx: &mut Cx<'_>) {
        let why = self.farewell_of_restart();
        for i in 0..self.subflows.len() {
            self.reset_subflow(i, SubflowEnd::ProtocolError, why, cx);
        }
        self.finish(CloseCause::ResetByPeer, cx);
    }

    /// A subflow ends on which the peer's record did not come: another one may do.
    pub(super) fn restart_elsewhere(&mut self, ended: SubflowId, cx: &mut Cx<'_>) {
        if !(self.awaits_record() && self.restart.is_on(ended)) {
            return;
        }
        let usable = (0..self.subflows.len()).filter(|i| self.takes_record(*i, ended));
        // All that answered since they were asked work: of those it is the quickest.
        let asked = self.restart.asked;
        let best = |i: &usize| {
            let sf = &self.subflows[*i];
            let heard = sf.quiet.heard_at();
            let heard = asked.map_or(heard, |asked| heard.min(asked));
            (sf.is_stale(), Reverse(heard), sf.tcp.srtt())
        };
        if let Some(i) = usable.min_by_key(best) {
            self.restart_on(i, cx);
        }
    }

    /// Bytes count, for which nothing but the subflow vouches.
    pub(super) fn note_read(&mut self, bytes: &[u8]) {
        if self.goes_on_by_record() {
            self.restart.read.feed(bytes);
        }
    }

    /// We go on with another subflow than we fell on.
    pub(super) fn restart_on(&mut self, i: usize, cx: &mut Cx<'_>) {
        self.go_on_with(i, cx);
        if let Some(heard) = self.subflows[i].said.take() {
            self.follow_record(i, heard, &[], cx);
        }
    }

    /// Our record could go on this subflow instead of that one. A second one there might be taken for what follows the first.
    pub(super) fn takes_record(&self, i: usize, instead: SubflowId) -> bool {
        let sf = &self.subflows[i];
        sf.id() != instead && sf.record_end.is_none() && self.may_go_on_with(i)
    }

    /// Both directions of a subflow are open.
    pub(super) fn may_go_on_with(&self, i: usize) -> bool {
        let sf = &self.subflows[i];
        sf.carries_data() && !sf.tcp.fin_sent() && !sf.peer_finished
    }

    /// The peer's record is late. Who has ours answers at once and ends all other subflows; so while another one answers what it
    /// was asked since, the peer has not got it: the path is silent, or something on it acknowledged the record and does not
    /// bring it (gauntlet 569724, 605828). Where the peer has no room for ours on one, it has none on any.
    pub(super) fn record_unanswered(&mut self, cx: &mut Cx<'_>) {
        if self.restart.ask_at.take_if(|at| *at <= cx.now).is_none() {
            return;
        }
        let Some(on) = self.restart.on.filter(|_| self.awaits_record()) else {
            return;
        };
        let waits = |i: usize| self.subflows[i].tcp.backoffs() == 0;
        let elsewhere = self.subflows.iter().any(|sf| sf.said.is_some());
        let in_peace = self.position(on).is_some_and(waits) && !elsewhere;
        if self.record_due().is_some() && in_peace {
            self.restart.ask_at = Some(cx.now + ASKED_EVERY);
            return;
        }
        let others = (0..self.subflows.len()).filter(|i| self.takes_record(*i, on));
        let others: Vec<_> = others.collect();
        let heard_since = |at: Instant| {
            let mut heard = others.iter().map(|i| self.subflows[*i].quiet.heard_at());
            heard.any(|heard| heard > at)
        };
        if self.restart.asked.is_some_and(heard_since) {
            if let Some(i) = self.position(on) {
                self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx);
            }
            return;
        }
        for i in &others {
            self.subflows[*i].tcp.probe_liveness(cx.now);
            cx.count.subflow_asked += 1;
        }
        if !others.is_empty() {
            self.restart.asked.get_or_insert(cx.now);
        }
        self.looks_for_another(on, cx);
        self.restart.ask_at = Some(cx.now + ASKED_EVERY);
    }

    /// The peer's record did not come in time.
    pub(super) fn record_overdue(&mut self, cx: &mut Cx<'_>) {
        let over = self.restart.until.take_if(|until| *until <= cx.now);
        let on = self.restart.on.filter(|_| over.is_some());
        let Some(i) = on.and_then(|on| self.position(on)) else {
            return;
        };
        if self.subflows[i].record.is_some() {
            // The peer has no room for ours, or its path is silent: that is for TCP to judge.
            self.restart.until = Some(cx.now + PATIENCE);
        } else {
            self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx);
        }
    }

    /// A subflow's data was acknowledged: it need not repeat our record any more. Who has it answers at once, so the silence of the
    /// path is waited for no longer: without an answer in the time for one, the other subflows are asked.
    pub(super) fn record_acked(&mut self, i: usize, now: Instant) {
        let sf = &mut self.subflows[i];
        let una = sf.tcp.snd_una_ssn();
        let all = |record: &mut Box<Record>| !una.before(record.end());
        if sf.record.take_if(all).is_some() && self.restart.is_on(sf.id()) {
            let due = now + self.data_rto();
            self.restart.ask_at = self.restart.ask_at.map(|at| at.min(due));
        }
    }

    /// The peer's record has to come before the stream goes on.
    pub(super) fn waits_for_record(&self) -> bool {
        self.awaits_record() || self.is_proposing()
    }

    /// Nothing but our record may be sent, or it is yet to come.
    pub(super) fn sends_record_only(&self) -> bool {
        self.waits_for_record() || self.record_due().is_some()
    }

    /// What of our record was not sent yet, and on which subflow it goes: that of a proposal first, for the other one may be silent.
    pub(super) fn record_due(&self) -> Option<(SubflowId, u64)> {
        let proposed = self.restart.proposed.as_ref().map(|proposal| proposal.on);
        let left = |id: SubflowId| {
            let record = self.subflows[self.position(id)?].record.as_ref()?;
            let left = (RECORD - record.sent) as u64;
            (left > 0).then_some((id, left))
        };
        proposed.into_iter().chain(self.restart.on).find_map(left)
    }

    /// The part of our record from this byte of the subflow on, if it lies there.
    pub(super) fn record_from(&self, i: usize, ssn: Ssn) -> Option<&[u8]> {
        let record = self.subflows[i].record.as_ref()?;
        let here = ssn.within(record.ssn, RECORD as u32);
        here.then(|| &record.bytes[ssn.since(record.ssn) as usize..])
    }
}
