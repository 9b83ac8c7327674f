//! What the owner of a subflow may choose before it opens.

use crate::cc::Algorithm;
pub use crate::send::Keepalive;
use crate::time::Duration;

/// Everything that is fixed when a [`Machine`](super::Machine) is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bytes of TCP options plus payload that one packet of the path carries: path MTU less the IP header and the
    /// 20-byte TCP header. Announced to the peer as its MSS.
    pub mss: u16,
    /// The largest receive window, in bytes, that will ever be offered; decides the window scale (RFC 7323 section 2.3).
    pub recv_window: u32,
    /// What the SYN offers.
    pub options: TcpOptions,
    /// Congestion control.
    pub congestion: CongestionConfig,
    /// Times after which something is sent again or given up.
    pub timeouts: Timeouts,
    /// Hold back small segments while data is unacknowledged (RFC 9293 section 3.7.4).
    pub nagle: bool,
    /// Longest time an acknowledgement of in-order data is held back; at most 500 ms (RFC 9293 section 3.8.6.3).
    pub delayed_ack: Duration,
    /// Probing of an idle peer; off when absent.
    pub keepalive: Option<Keepalive>,
    /// Give up when data stayed unacknowledged for so long (RFC 9293 section 3.10.8, RFC 5482).
    pub user_timeout: Option<Duration>,
}

/// Options that a SYN offers or accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Added to the timestamp clock, so that it does not tell the host's uptime (RFC 7323 section 5.4).
    pub timestamp_offset: u32,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Window scaling (RFC 7323 section 2).
    pub window_scaling: bool,
}

/// How a subflow controls congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionConfig {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Initial congestion window in segments (RFC 6928: 10).
    pub initial_window: u32,
    /// Cap the congestion window where the smoothed round trip is twice the base ([`cap()`](crate::cc::cap())).
    pub capping: bool,
    /// Spread transmissions over the round trip.
    pub pacing: bool,
    /// Offer or accept explicit congestion notification (RFC 3168).
    pub ecn: bool,
}

/// Times and numbers of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Lower bound of the retransmission timeout.
    pub min_rto: Duration,
    /// Upper bound of the retransmission timeout (RFC 6298 section 2.5: at least 60 s).
    pub max_rto: Duration,
    /// Retransmissions of a SYN before giving up.
    pub syn_retries: u8,
    /// Retransmissions of a SYN+ACK before giving up. Anybody can have them sent to an address that is not theirs.
    pub syn_ack_retries: u8,
    /// Time without any acknowledgement after which the next timeout of data gives up (RFC 9293 section 3.8.3, R2: at
    /// least 100 s). A time and not a number of timeouts, because a path that is probed often must not die sooner.
    pub give_up: Duration,
    /// How long TIME-WAIT lasts (RFC 9293: twice the maximum segment lifetime).
    pub time_wait: Duration,
}

impl Default for Config {
    /// As Linux: delayed acknowledgements of `TCP_DELACK_MIN`. 1460 bytes are those of Ethernet over IPv4, and 1 MiB of window
    /// carries 80 Mbit/s over a round trip of 100 ms.
    fn default() -> Self {
        Config {
            mss: 1460,
            recv_window: 1 << 20,
            options: TcpOptions::default(),
            congestion: CongestionConfig::default(),
            timeouts: Timeouts::default(),
            nagle: true,
            delayed_ack: Duration::from_millis(40),
            keepalive: None,
            user_timeout: None,
        }
    }
}

impl Default for TcpOptions {
    fn default() -> Self {
        TcpOptions {
            timestamps: true,
            timestamp_offset: 0,
            sack: true,
            window_scaling: true,
        }
    }
}

impl Default for CongestionConfig {
    /// RFC 9438 with the initial window of RFC 6928, paced.
    fn default() -> Self {
        CongestionConfig {
            algorithm: Algorithm::Cubic,
            initial_window: 10,
            capping: false,
            pacing: true,
            ecn: false,
        }
    }
}

impl Default for Timeouts {
    /// As Linux: `TCP_RTO_MIN`, `TCP_RTO_MAX`, `tcp_syn_retries`, `tcp_synack_retries`, `tcp_retries2` (15 timeouts, about
    /// 924 s), `TCP_TIMEWAIT_LEN`.
    fn default() -> Self {
        Timeouts {
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(120),
            syn_retries: 6,
            syn_ack_retries: 5,
            give_up: Duration::from_secs(900),
            time_wait: Duration::from_secs(60),
        }
    }
}
