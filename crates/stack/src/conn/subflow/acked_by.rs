//! Which host acknowledges the data of a subflow: the peer, or a split-TCP proxy in front of it.

use manypath_tcp::time::Instant;

/// Which host acknowledges the data of a subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AckedBy {
    /// The peer, as far as is known.
    #[default]
    Peer,
    /// The first data was acknowledged without options.
    Unknown {
        /// Deadline of the decision whether that was a proxy.
        until: Instant,
        /// A Data ACK arrived since.
        data_ack_seen: bool,
    },
    /// A proxy, with the peer behind it.
    Proxy,
}

impl AckedBy {
    /// When the decision is due.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Unknown { until, .. } => Some(until),
            Self::Peer | Self::Proxy => None,
        }
    }

    /// A Data ACK arrived on the subflow.
    pub(crate) fn on_data_ack(&mut self) {
        if let Self::Unknown { data_ack_seen, .. } = self {
            *data_ack_seen = true;
        }
    }

    /// The state after the deadline. `arrived`: the subflow's first data has its Data ACK by now, by whatever path.
    /// `None`: the subflow is of no use. Pure. // rfc8684:B3
    pub(in crate::conn) fn at_the_end(self, arrived: bool) -> Option<Self> {
        match self {
            Self::Unknown { data_ack_seen, .. } => {
                (data_ack_seen && arrived).then_some(Self::Proxy)
            }
            Self::Peer | Self::Proxy => Some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_distinguished_from_a_path_that_strips_options() {
        // rfc8684:B3
        let until = Instant::from_secs(1);
        let mut bare = AckedBy::Unknown {
            until,
            data_ack_seen: false,
        };
        assert_eq!(bare.deadline(), Some(until));
        // Its data may have arrived on another subflow; options still do not come back.
        assert_eq!(bare.at_the_end(true), None);
        bare.on_data_ack();
        assert_eq!(bare.at_the_end(false), None, "its data never arrived");
        assert_eq!(bare.at_the_end(true), Some(AckedBy::Proxy));
        let mut peer = AckedBy::Peer;
        peer.on_data_ack();
        assert_eq!(peer, AckedBy::Peer);
        assert_eq!(peer.deadline(), None);
    }
}
