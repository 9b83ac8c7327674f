//! What an application can see of a connection without reading or writing: bytes that wait, and which calls would do something.

use super::Conn;
use super::error_of;
use crate::api::{CloseCause, Readiness, StackError};
use crate::conn::send::queue::FinState;

/// As [`Conn::read_with`], but the bytes stay.
pub(crate) fn peek_with(
    conn: &mut Conn,
    most: usize,
    see: impl FnMut(&[u8]),
) -> Result<Option<usize>, StackError> {
    match conn.recv.peek_with(most, see) {
        0 => {
            conn.events.readable_reported &= conn.recv.readable() > 0;
            nothing(conn)
        }
        n => Ok(Some(n)),
    }
}

/// What a read gives where no bytes are: nothing yet, or the end.
pub(super) fn nothing(conn: &Conn) -> Result<Option<usize>, StackError> {
    if conn.recv.finished() {
        return Ok(None);
    }
    match conn.life.closed {
        None => Ok(Some(0)),
        Some(CloseCause::Finished) => Ok(None),
        Some(cause) => Err(error_of(cause)),
    }
}

/// Which calls would do something at once, if only fail. An event follows for those that would not.
pub(crate) fn readiness(conn: &mut Conn) -> Readiness {
    let over = conn.life.closed.is_some();
    let readable = over || conn.recv.readable() > 0 || conn.recv.finished();
    let writable = over || conn.send.fin.state != FinState::Open || conn.send.room() > 0;
    conn.events.readable_reported &= readable;
    conn.events.write_blocked |= !writable;
    Readiness { readable, writable }
}
