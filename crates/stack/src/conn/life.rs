//! How a connection ends: closed, released by the application, orphaned (RFC 8684 appendix D).

use manypath_tcp::time::Instant;

use crate::api::CloseCause;
use crate::conn::dss::offset::Offset;

/// Our MP_FASTCLOSE that the peer has not answered with a RST. // rfc8684:Z1
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastCloseWait {
    pub(in crate::conn) at: Instant,
    pub(in crate::conn) repeats: u8,
}

impl FastCloseWait {
    pub(crate) fn deadline(&self) -> Instant {
        self.at
    }
}

/// How far the end of a connection has come.
#[derive(Debug)]
pub(crate) struct Life {
    pub(in crate::conn) opened: Instant,
    pub(in crate::conn) closed: Option<CloseCause>,
    /// The peer's DATA_FIN was here when we closed.
    pub(in crate::conn) closed_second: bool,
    /// It was put into its listener's queue.
    pub(in crate::conn) offered: bool,
    /// The application closed it.
    pub(in crate::conn) released: bool,
    pub(in crate::conn) bytes_at_release: Offset,
    /// The Data ACK when the application closed, or when that was last checked.
    pub(in crate::conn) acked_at_release: Offset,
    pub(in crate::conn) orphan_until: Option<Instant>,
    /// When it ends unless a subflow comes up.
    pub(in crate::conn) close_timeout: Option<Instant>,
    pub(in crate::conn) fast_close: Option<FastCloseWait>,
}

impl Life {
    pub(in crate::conn) fn new(now: Instant) -> Self {
        Self {
            opened: now,
            closed: None,
            closed_second: false,
            offered: false,
            released: false,
            bytes_at_release: Offset::ZERO,
            acked_at_release: Offset::ZERO,
            orphan_until: None,
            close_timeout: None,
            fast_close: None,
        }
    }

    /// It is closed, by whatever cause.
    pub(crate) fn has_ended(&self) -> bool {
        self.closed.is_some()
    }

    pub(crate) fn offered(&self) -> bool {
        self.offered
    }

    pub(crate) fn set_offered(&mut self) {
        self.offered = true;
    }

    /// The application closed it.
    pub(crate) fn is_released(&self) -> bool {
        self.released
    }
}
