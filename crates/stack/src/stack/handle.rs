//! What an application does with a connection.

use manypath_tcp::time::Instant;

use super::Stack;
use crate::api::{ConnInfo, ConnOptions, Readiness, StackError, SubflowEnd};
use crate::conn::{Conn, Cx, readable};
use crate::ids::{ConnId, SubflowId};

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// That many bytes.
    Data(usize),
    /// Nothing yet; a `Readable` event follows.
    Empty,
    /// The peer closed its direction and everything was read.
    End,
}

impl Stack {
    pub(super) fn on_conn<R>(
        &mut self,
        now: Instant,
        id: ConnId,
        f: impl FnOnce(&mut Conn, &mut Cx<'_>) -> R,
    ) -> Result<R, StackError> {
        self.tick(now);
        if self
            .conns
            .get(id.0)
            .is_none_or(|entry| entry.conn.life.is_released())
        {
            return Err(StackError::NoSuchHandle);
        }
        self.with_conn(id.0.index(), f)
            .ok_or(StackError::NoSuchHandle)
    }

    /// Queues bytes for the peer and says how many; zero means that the send buffer is full and a `Writable` event
    /// follows.
    pub fn write(&mut self, now: Instant, id: ConnId, bytes: &[u8]) -> Result<usize, StackError> {
        let mut rest = bytes;
        self.write_with(now, id, bytes.len(), |place| {
            let (part, behind) = rest.split_at(place.len());
            place.copy_from_slice(part);
            rest = behind;
        })
    }

    /// As [`write`](Self::write), of bytes that do not exist yet: at most `most` are queued, and `fill` writes them where they lie, in
    /// order and in one or two parts.
    pub fn write_with(
        &mut self,
        now: Instant,
        id: ConnId,
        most: usize,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, StackError> {
        let tight = !self.permits().roomy;
        self.on_conn(now, id, |conn, cx| {
            // Until now it may have been idle.
            conn.note_advance(cx.now);
            conn.write_with(most, tight, fill)
        })?
    }

    /// More of what the application writes at this moment would leave in the same train of bursts, and nobody would
    /// wait for it: acknowledgements are on their way, and what has not been sent is little. A driver may let the
    /// application go on writing before it sends.
    #[must_use]
    pub fn may_gather_writes(&self, id: ConnId) -> bool {
        let entry = self.conns.get(id.0);
        entry.is_some_and(|entry| entry.conn.may_gather_writes())
    }

    /// Takes received bytes.
    pub fn read(
        &mut self,
        now: Instant,
        id: ConnId,
        out: &mut [u8],
    ) -> Result<ReadOutcome, StackError> {
        let (most, mut read) = (out.len(), 0);
        self.read_with(now, id, most, |part| {
            out[read..read + part.len()].copy_from_slice(part);
            read += part.len();
        })
    }

    /// As [`read`](Self::read), without a copy: `see` is shown at most `most` bytes where they lie, in order and in parts, and they count
    /// as read.
    pub fn read_with(
        &mut self,
        now: Instant,
        id: ConnId,
        most: usize,
        see: impl FnMut(&[u8]),
    ) -> Result<ReadOutcome, StackError> {
        self.tick(now);
        let now = self.now;
        let conn = self.held(id)?;
        let read = match conn.read_with(most, see)? {
            Some(0) => return Ok(ReadOutcome::Empty),
            Some(n) => ReadOutcome::Data(n),
            None => return Ok(ReadOutcome::End),
        };
        // Most reads change nothing that anybody else has to know.
        if conn.on_read(now) {
            self.reconcile_later(id.0.index());
        }
        Ok(read)
    }

    /// As [`read`](Self::read), but the bytes stay and are read again.
    pub fn peek(&mut self, id: ConnId, out: &mut [u8]) -> Result<ReadOutcome, StackError> {
        let (most, mut read) = (out.len(), 0);
        let conn = self.held(id)?;
        let peeked = readable::peek_with(conn, most, |part| {
            out[read..read + part.len()].copy_from_slice(part);
            read += part.len();
        })?;
        Ok(match peeked {
            Some(0) => ReadOutcome::Empty,
            Some(n) => ReadOutcome::Data(n),
            None => ReadOutcome::End,
        })
    }

    /// Which calls would do something at once, if only fail. A `Readable` or `Writable` event follows for those that would not.
    pub fn readiness(&mut self, id: ConnId) -> Result<Readiness, StackError> {
        Ok(readable::readiness(self.held(id)?))
    }

    /// A connection that the application has not let go of.
    fn held(&mut self, id: ConnId) -> Result<&mut Conn, StackError> {
        let entry = self.conns.get_mut(id.0);
        let entry = entry.filter(|entry| !entry.conn.life.is_released());
        Ok(&mut entry.ok_or(StackError::NoSuchHandle)?.conn)
    }

    /// Closes our direction after everything written so far; the other one stays open.
    pub fn shutdown_write(&mut self, now: Instant, id: ConnId) -> Result<(), StackError> {
        self.on_conn(now, id, |conn, _| conn.ending().shutdown_write())
    }

    /// Lets go of a connection: what was written is still delivered, what was not read is lost. One that nobody has answered yet
    /// ends at once, whatever was written (RFC 9293 section 3.10.4). The handle is invalid from now on.
    pub fn close(&mut self, now: Instant, id: ConnId) -> Result<(), StackError> {
        self.on_conn(now, id, |conn, cx| conn.ending().release(cx))
    }

    /// Ends a connection at once, telling the peer by MP_FASTCLOSE or RST. The handle is invalid from now on.
    pub fn abort(&mut self, now: Instant, id: ConnId) -> Result<(), StackError> {
        self.on_conn(now, id, |conn, cx| conn.ending().release_and_abort(cx))
    }

    /// Everything there is to know about a connection.
    pub fn info(&self, id: ConnId) -> Result<ConnInfo, StackError> {
        let entry = self.conns.get(id.0).ok_or(StackError::NoSuchHandle)?;
        Ok(entry.conn.info())
    }

    /// The path manager's decisions for a connection, oldest first, as text with their time.
    pub fn decisions(
        &self,
        id: ConnId,
    ) -> Result<alloc::vec::Vec<crate::pm::Decision>, StackError> {
        let entry = self.conns.get(id.0).ok_or(StackError::NoSuchHandle)?;
        Ok(entry
            .conn
            .paths
            .manager
            .as_ref()
            .map(|manager| manager.log().copied().collect())
            .unwrap_or_default())
    }

    /// A connection's options as they stand.
    pub fn options(&self, id: ConnId) -> Result<&ConnOptions, StackError> {
        let entry = self.conns.get(id.0).ok_or(StackError::NoSuchHandle)?;
        Ok(&entry.conn.opts)
    }

    /// Changes what can be changed on a living connection: scheduler, congestion control, mechanisms, receive algorithm, buffers,
    /// no-delay, keepalive, user timeout, limits. The receive buffer only shrinks: its size at the start decided the window scale.
    pub fn set_options(
        &mut self,
        now: Instant,
        id: ConnId,
        opts: &ConnOptions,
    ) -> Result<(), StackError> {
        self.on_conn(now, id, |conn, cx| conn.set_options(opts, cx.now))
    }

    /// Ends one subflow of a connection with a FIN; the connection goes on. // rfc8684:A21
    pub fn remove_subflow(
        &mut self,
        now: Instant,
        id: ConnId,
        subflow: SubflowId,
    ) -> Result<(), StackError> {
        self.on_conn(now, id, |conn, cx| {
            conn.ending()
                .remove_subflow(subflow, SubflowEnd::Administrative, cx)
        })?
    }

    /// Uses a subflow as a backup and asks the peer to, or no longer (RFC 8684 section 3.3.8).
    pub fn set_backup(
        &mut self,
        now: Instant,
        id: ConnId,
        subflow: SubflowId,
        backup: bool,
    ) -> Result<(), StackError> {
        self.on_conn(now, id, |conn, cx| {
            conn.flight().set_backup(subflow, backup, cx)
        })?
    }
}
