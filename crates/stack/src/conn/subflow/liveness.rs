//! Whether the path of one subflow works: stale, potentially failed, or without an uplink.

use manypath_tcp::time::Instant;

use crate::conn::subflow::probe::ReceiverProbe;
use crate::ids::SubflowId;

/// Whether packets of a subflow can leave the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uplink {
    /// As far as is known.
    Works,
    /// The link has no carrier, or there is no route.
    Stalled,
    /// The host does not have the address any more.
    NoAddress,
}

/// What is known of a subflow's path.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// Since when it is stale: an RTO, ICMP unreachable or no uplink. Its data was reinjected.
    pub(crate) stale_since: Option<Instant>,
    /// Nothing was acknowledged on it for two round trips.
    pub(crate) potentially_failed: bool,
    /// Whether its packets can leave the host.
    pub(crate) uplink: Uplink,
    /// The path manager knows that it is unresponsive.
    pub(crate) reported_unresponsive: bool,
    /// It answers again, but a join to replace it may still be quicker.
    pub(crate) contested: bool,
    /// The subflow that this one replaces, and which ends when options are seen to pass here.
    pub(crate) replaces: Option<SubflowId>,
    /// Receiver's probes while nothing is in flight.
    pub(crate) receiver_probe: ReceiverProbe,
    /// When it last brought bytes of the stream that the reader still lacked.
    pub(crate) delivered_at: Option<Instant>,
    /// When it last retransmitted at once on a sign of life.
    pub(crate) retried_at: Option<Instant>,
    /// When an unanswered keepalive probe ends it. // rfc8684:A17
    pub(crate) probe_until: Option<Instant>,
}

impl Liveness {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            stale_since: None,
            potentially_failed: false,
            uplink: Uplink::Works,
            reported_unresponsive: false,
            contested: false,
            replaces: None,
            receiver_probe: ReceiverProbe::new(now),
            delivered_at: None,
            retried_at: None,
            probe_until: None,
        }
    }

    /// Since a retransmission time-out, ICMP unreachable or the loss of its uplink, until it answers.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale_since.is_some()
    }

    /// The path may have failed: it is stale, nothing was acknowledged for two round trips, or packets
    /// cannot leave the host.
    pub(crate) fn is_potentially_failed(&self) -> bool {
        self.is_stale() || self.potentially_failed || self.uplink != Uplink::Works
    }

    /// Not in use, as the application sees it.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.is_stale() || self.receiver_probe.unresponsive || self.uplink != Uplink::Works
    }
}
