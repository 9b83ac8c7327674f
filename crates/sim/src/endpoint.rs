//! One end of one connection as an application sees it: when it writes, how it reads, when it closes. It drives the
//! stack through the same calls as any other program and checks every byte that it reads.

use std::hash::Hasher as _;
use std::sync::Arc;

use manypath_stack::Stack;
use manypath_stack::api::{CloseCause, ConnInfo, FallbackCause, StackError};
use manypath_stack::ids::ConnId;
use manypath_stack::{ReadOutcome, api::ProtocolLevel};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;
use twox_hash::XxHash3_64;

use crate::pattern::Pattern;
use crate::reading::{Alterations, Reader};

/// What holds the next piece of a stream back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Nothing.
    Open,
    /// Piece number `n` waits until `n + lag` times `bytes` have been read.
    AfterReading {
        /// Bytes to read for each piece.
        bytes: u64,
        /// 0: the first piece goes at once (a request); 1: it waits for the first one of the peer (a response).
        lag: u64,
    },
    /// A pause after each piece.
    Pause(Duration),
}

/// How an end closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Closes its direction when everything is sent.
    AfterSending,
    /// Closes when everything is sent and read.
    AfterBoth,
    /// Aborts when everything is sent and read.
    Abort,
    /// Expects the peer to abort.
    PeerAborts,
}

/// What one end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes to send.
    pub send: u64,
    /// They are sent in pieces of this size.
    pub piece: u64,
    /// What holds a piece back.
    pub gate: Gate,
    /// Bytes to expect.
    pub expect: u64,
    /// Reads no faster than this.
    pub read_rate: Option<Rate>,
    /// How it ends.
    pub closing: Closing,
}

/// The first bytes of a client's stream where an application has several connections: the connection's number.
pub const HEADER: u64 = 8;

/// Bytes that are offered to the stack at a time.
const BLOCK: u64 = 16 << 10;

/// Where an end stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not established.
    Opening,
    /// Writing and reading.
    Busy,
    /// Over, as planned or not.
    Over,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint {
    /// The stack's handle.
    pub conn: ConnId,
    /// Which application.
    pub app: usize,
    /// Which of its connections; a server learns it from the stream.
    pub number: Option<u64>,
    /// The end that connected.
    pub is_client: bool,
    plan: Plan,
    header: u64,
    heard: [u8; HEADER as usize],
    sent: u64,
    /// How much of what the peer sent has been read.
    read: u64,
    /// What the network may do to it.
    alterations: Arc<Alterations>,
    reader: Reader,
    /// Bytes of the block at hand that have not been taken: it offers the stack no more at one time.
    block: u64,
    next_piece: Instant,
    /// When reading may go on, for a slow reader.
    next_read: Instant,
    closed_writing: bool,
    /// Where it stands.
    pub phase: Phase,
    /// Its times and ends.
    pub record: EndRecord,
    last_read: Instant,
    /// A hash of the bytes that it has read, where they may be others than were sent.
    heard_all: Heard,
}

/// A hash of a stream, whatever the pieces that it came in.
struct Heard(XxHash3_64);

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0.finish())
    }
}

/// What is known about one end when all is over.
#[derive(Clone, Debug)]
pub struct EndRecord {
    /// When the connection was asked for or accepted.
    pub started: Instant,
    /// When it was established.
    pub established: Option<Instant>,
    /// When it had read everything, the end of the stream included where the peer does not abort.
    pub whole: Option<Instant>,
    /// When it was over.
    pub over: Option<Instant>,
    /// Why it ended too early.
    pub failure: Option<CloseCause>,
    /// Why it gave Multipath TCP up.
    pub fell_back: Option<FallbackCause>,
    /// How far it had fallen back when last seen.
    pub level: Option<ProtocolLevel>,
    /// Bytes sent and read.
    pub sent: u64,
    /// Bytes read.
    pub read: u64,
    /// Places where it read something else than was sent, because boxes rewrite or damage payload.
    pub altered: u64,
    /// Subflows that came up.
    pub subflows: usize,
    /// Longest time between two reads while bytes were due.
    pub longest_stall: Duration,
    /// The last that the stack said about it.
    pub info: Option<ConnInfo>,
}

/// What a turn of an endpoint led to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// It wants another turn then.
    pub wake: Option<Instant>,
    /// It called the stack, which may have something to send now.
    pub acted: bool,
    /// What it read was not what was sent.
    pub wrong: Option<String>,
}

impl Endpoint {
    /// An end at its beginning. `number`: which connection of the application, if known; `header`: bytes of the
    /// client's stream that say so.
    #[must_use]
    pub fn new(conn: ConnId, app: usize, is_client: bool, plan: Plan, now: Instant) -> Self {
        Self {
            conn,
            app,
            number: Some(0),
            is_client,
            plan,
            header: 0,
            heard: [0; HEADER as usize],
            sent: 0,
            read: 0,
            alterations: Arc::default(),
            reader: Reader::default(),
            block: 0,
            next_piece: now,
            next_read: now,
            closed_writing: false,
            phase: Phase::Opening,
            record: EndRecord {
                started: now,
                established: None,
                whole: None,
                over: None,
                failure: None,
                fell_back: None,
                level: None,
                sent: 0,
                read: 0,
                altered: 0,
                subflows: 0,
                longest_stall: Duration::ZERO,
                info: None,
            },
            last_read: now,
            heard_all: Heard(XxHash3_64::new()),
        }
    }

    /// When it got something last, or began.
    #[must_use]
    pub fn last_read(&self) -> Instant {
        self.last_read
    }

    /// A hash of everything that it has read, as it came. Where the network alters nothing, each byte was compared with
    /// what was sent, and their number says as much.
    #[must_use]
    pub fn hash_of_stream(&self) -> u64 {
        if self.alterations.are_none() {
            self.read
        } else {
            self.heard_all.0.finish()
        }
    }

    /// Lets it expect what boxes on the way may do to the streams.
    pub fn expect_alterations(&mut self, alterations: &Arc<Alterations>) {
        self.alterations = Arc::clone(alterations);
    }

    /// Makes it one of several connections, whose streams begin with their number.
    #[must_use]
    pub fn numbered(mut self, number: Option<u64>) -> Self {
        self.header = HEADER;
        self.number = number;
        if self.is_client {
            self.plan.send += HEADER;
        } else {
            self.plan.expect += HEADER;
        }
        self
    }

    /// The stream that the client (or server) of connection `number` sends.
    fn pattern(&self, of_client: bool, number: u64) -> Pattern {
        Pattern::new((self.app as u64) << 48 | number << 1 | u64::from(of_client))
    }

    /// The connection is established.
    pub fn established(&mut self, now: Instant) {
        if self.phase == Phase::Opening {
            self.phase = Phase::Busy;
            self.record.established = Some(now);
            self.last_read = now;
            self.next_piece = now;
        }
    }

    /// The connection ended under its feet.
    pub fn closed(&mut self, cause: CloseCause, now: Instant) {
        if self.phase == Phase::Over {
            return;
        }
        // The other end may abort exactly when this one has everything.
        let planned = self.plan.closing == Closing::PeerAborts && cause == CloseCause::ResetByPeer;
        if !(planned && self.read == self.plan.expect && self.sent == self.plan.send) {
            self.record.failure = Some(cause);
        }
        self.over(now);
    }

    fn over(&mut self, now: Instant) {
        self.phase = Phase::Over;
        self.record.over = Some(now);
    }

    /// Reads and writes what it can and may.
    pub fn turn(&mut self, now: Instant, stack: &mut Stack, room: usize) -> Turn {
        let mut turn = Turn::default();
        if self.phase == Phase::Over {
            return turn;
        }
        let ended = self.read_all(now, stack, room, &mut turn);
        if self.record.whole.is_none() && self.read == self.plan.expect {
            let aborts = matches!(self.plan.closing, Closing::Abort | Closing::PeerAborts);
            self.record.whole = (ended || aborts).then_some(now);
        }
        if self.phase == Phase::Busy {
            self.write_all(now, stack, &mut turn);
            self.close_if_due(now, stack, ended, &mut turn);
        }
        self.record.sent = self.sent;
        self.record.read = self.read;
        turn
    }

    /// Reads until there is nothing; says whether the stream has ended.
    fn read_all(&mut self, now: Instant, stack: &mut Stack, room: usize, turn: &mut Turn) -> bool {
        loop {
            let mut room = room;
            if let Some(rate) = self.plan.read_rate {
                if now < self.next_read {
                    wake_at(turn, self.next_read);
                    return false;
                }
                // A tenth of a second's worth at a time, or one byte.
                room = room.min((rate.as_bytes_per_sec() / 10).max(1) as usize);
            }
            if self.number.is_none() {
                room = room.min((HEADER - self.read) as usize);
            }
            let (before, mut checked) = (self.read, Ok(()));
            let read = stack.read_with(now, self.conn, room, |part| {
                if !self.alterations.are_none() {
                    self.heard_all.0.write(part);
                }
                if checked.is_ok() {
                    checked = self.check(part);
                }
            });
            match read {
                Ok(ReadOutcome::Data(_)) => {
                    turn.acted = true;
                    if let Err(wrong) = checked {
                        turn.wrong = Some(wrong);
                        return false;
                    }
                    self.note_read(now, self.read - before);
                }
                Ok(ReadOutcome::End) => {
                    turn.wrong = self.check_end().err();
                    return true;
                }
                // An error is followed by, or follows, the event that explains it.
                Ok(ReadOutcome::Empty) | Err(_) => return false,
            }
        }
    }

    fn note_read(&mut self, now: Instant, count: u64) {
        if let Some(rate) = self.plan.read_rate {
            self.next_read = self.next_read.max(now) + rate.time_for(count);
        }
        self.record.longest_stall = self.record.longest_stall.max(now - self.last_read);
        self.last_read = now;
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        while !self.is_client && self.read < self.header && !rest.is_empty() {
            self.heard[self.read as usize] = rest[0];
            (self.read, rest) = (self.read + 1, &rest[1..]);
            if self.read == self.header {
                self.number = Some(u64::from_be_bytes(self.heard));
                self.reader = Reader::at(self.header);
            }
        }
        let Some(number) = self.number.filter(|_| !rest.is_empty()) else {
            return Ok(());
        };
        let pattern = self.pattern(!self.is_client, number);
        let read = self
            .reader
            .read(&self.alterations, pattern, self.plan.expect, rest);
        self.read = self.reader.position();
        self.record.altered = self.reader.altered();
        read
    }

    /// Nothing is missing when the stream has ended.
    fn check_end(&mut self) -> Result<(), String> {
        let end = self.plan.expect;
        match self.number {
            Some(number) if self.read >= self.peer_header() => {
                let pattern = self.pattern(!self.is_client, number);
                self.reader.ended(&self.alterations, pattern, end)?;
                self.read = end;
                Ok(())
            }
            _ => Err(format!(
                "the stream ended after {} of {end} bytes",
                self.read
            )),
        }
    }

    /// Bytes at the start of the peer's stream that are not of the pattern.
    fn peer_header(&self) -> u64 {
        if self.is_client { 0 } else { self.header }
    }

    /// Bytes at the start of our stream that are no piece's.
    fn own_header(&self) -> u64 {
        if self.is_client { self.header } else { 0 }
    }

    /// How much may be sent by now, and when more may.
    fn sendable(&self, now: Instant) -> (u64, Option<Instant>) {
        let left = self.plan.send - self.sent;
        if left == 0 || self.number.is_none() {
            return (0, None);
        }
        // The header belongs to no piece.
        let head = self.own_header();
        let body = self.sent.saturating_sub(head);
        let piece_left = self.plan.piece - body % self.plan.piece + head.saturating_sub(self.sent);
        let at_start = body % self.plan.piece == 0;
        match self.plan.gate {
            Gate::Open => (left, None),
            Gate::Pause(_) if at_start && now < self.next_piece => (0, Some(self.next_piece)),
            Gate::Pause(_) => (left.min(piece_left), None),
            Gate::AfterReading { bytes, lag } => {
                let heard = if self.is_client { 0 } else { self.header };
                let needed = (body / self.plan.piece + lag) * bytes + heard;
                let open = self.read >= needed || !at_start;
                (if open { left.min(piece_left) } else { 0 }, None)
            }
        }
    }

    fn write_all(&mut self, now: Instant, stack: &mut Stack, turn: &mut Turn) {
        loop {
            let (count, wake) = self.sendable(now);
            if let Some(wake) = wake {
                wake_at(turn, wake);
            }
            if count == 0 {
                return;
            }
            if self.block == 0 {
                self.block = (self.plan.send - self.sent).min(BLOCK);
            }
            let offered = self.block.min(count) as usize;
            let mut at = self.sent;
            let taken = stack.write_with(now, self.conn, offered, |place| {
                self.fill(at, place);
                at += place.len() as u64;
            });
            let taken = match taken {
                Ok(taken) => taken,
                // The event that explains it follows.
                Err(StackError::NotConnected | _) => return,
            };
            turn.acted |= taken > 0;
            self.block -= taken as u64;
            self.sent += taken as u64;
            let body = self.sent - self.own_header().min(self.sent);
            if taken > 0 && body % self.plan.piece == 0 {
                if let Gate::Pause(pause) = self.plan.gate {
                    self.next_piece = now + pause;
                }
            }
            if taken < offered {
                return;
            }
        }
    }

    /// Writes the bytes of our stream from `at` on.
    fn fill(&self, at: u64, place: &mut [u8]) {
        let number = self.number.unwrap_or(0);
        self.pattern(self.is_client, number).fill(at, place);
        if self.is_client {
            let header = number.to_be_bytes();
            for (position, place) in (at..self.header).zip(place) {
                *place = header[position as usize];
            }
        }
    }

    fn close_if_due(&mut self, now: Instant, stack: &mut Stack, ended: bool, turn: &mut Turn) {
        let sent_all = self.sent == self.plan.send && self.number.is_some();
        let read_all = self.read == self.plan.expect;
        let due = match self.plan.closing {
            Closing::AfterSending => sent_all,
            Closing::AfterBoth => sent_all && read_all,
            // Who aborts must leave the peer the time to read: it has, when the client has its last answer.
            Closing::Abort if sent_all && read_all => {
                self.keep_info(stack);
                turn.acted |= stack.abort(now, self.conn).is_ok();
                return self.over(now);
            }
            Closing::Abort | Closing::PeerAborts => false,
        };
        if due && !self.closed_writing {
            self.closed_writing = true;
            turn.acted |= stack.shutdown_write(now, self.conn).is_ok();
        }
        if ended && self.closed_writing {
            self.keep_info(stack);
            turn.acted |= stack.close(now, self.conn).is_ok();
            self.over(now);
        }
    }

    /// Asks the stack about the connection while it is there.
    pub fn keep_info(&mut self, stack: &Stack) {
        if let Ok(info) = stack.info(self.conn) {
            self.record.level = Some(info.level);
            self.record.info = Some(info);
        }
    }
}

fn wake_at(turn: &mut Turn, at: Instant) {
    turn.wake = Some(turn.wake.map_or(at, |known| known.min(at)));
}
