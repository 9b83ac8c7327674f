//! Attempts to open one connection by several paths and addresses, of which one at most succeeds (RFC 8305 section 5).
//!
//! Owns which attempts belong together. The first that is established aborts the others before the next segment is looked at, so a
//! SYN/ACK that comes later belongs to nothing and is answered by RST: the server accepts one connection. When attempts start is the
//! caller's decision.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use manypath_tcp::time::Instant;

use super::Stack;
use crate::api::{ConnectOptions, StackError};
use crate::ids::ConnId;

/// Attempts that belong together, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RaceId(u64);

/// The races that are not decided.
#[derive(Debug, Default)]
pub(super) struct Races {
    last: u64,
    open: BTreeMap<RaceId, Vec<ConnId>>,
}

impl Races {
    /// Decides a race; its attempts.
    fn close(&mut self, race: RaceId) -> Vec<ConnId> {
        self.open.remove(&race).unwrap_or_default()
    }
}

impl Stack {
    /// Begins a race without attempts. The caller ends it by [`Stack::end_race`].
    pub fn begin_race(&mut self) -> RaceId {
        self.races.last += 1;
        let race = RaceId(self.races.last);
        self.races.open.insert(race, Vec::new());
        race
    }

    /// Opens a connection as [`Stack::connect`] does, as an attempt of a race.
    ///
    /// # Errors
    /// `InvalidState` if the race is decided or ended; those of [`Stack::connect`].
    pub fn connect_in_race(
        &mut self,
        now: Instant,
        race: RaceId,
        opts: ConnectOptions,
    ) -> Result<ConnId, StackError> {
        if !self.races.open.contains_key(&race) {
            return Err(StackError::InvalidState);
        }
        let conn = self.connect(now, opts)?;
        if let Some(entry) = self.conns.get_mut(conn.0) {
            entry.race = Some(race);
        }
        if let Some(attempts) = self.races.open.get_mut(&race) {
            attempts.push(conn);
        }
        Ok(conn)
    }

    /// Ends a race: attempts that are not established are aborted, which sends nothing (RFC 9293 section 3.10.5, SYN-SENT).
    pub fn end_race(&mut self, now: Instant, race: RaceId) {
        self.tick(now);
        for attempt in self.races.close(race) {
            self.abort_attempt(attempt);
        }
    }

    /// An attempt that is established has won: the others are aborted.
    pub(super) fn settle_race(&mut self, slot: u32) {
        let Some(handle) = self.conns.handle_at(slot) else {
            return;
        };
        let won = |entry: &mut super::Entry| {
            let established = entry.conn.handshake.is_established();
            entry.race.take_if(|_| established)
        };
        let Some(race) = self.conns.at_mut(slot).and_then(won) else {
            return;
        };
        for attempt in self.races.close(race) {
            if attempt != ConnId(handle) {
                self.abort_attempt(attempt);
            }
        }
    }

    /// A connection is gone, and with it its place in a race.
    pub(super) fn leave_race(&mut self, conn: ConnId, race: Option<RaceId>) {
        if let Some(attempts) = race.and_then(|race| self.races.open.get_mut(&race)) {
            attempts.retain(|attempt| *attempt != conn);
        }
    }

    fn abort_attempt(&mut self, attempt: ConnId) {
        let Some(entry) = self.conns.get_mut(attempt.0) else {
            return;
        };
        entry.race = None;
        if entry.conn.handshake.is_established() || entry.conn.life.is_released() {
            return;
        }
        self.counters.race_lost += 1;
        self.with_conn(attempt.0.index(), |conn, cx| {
            conn.ending().release_and_abort(cx)
        });
    }
}
