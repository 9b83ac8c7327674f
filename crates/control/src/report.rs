//! What is told about a process, its connections and their subflows, as plain data.
//!
//! Times are in microseconds, amounts in bytes, rates in bytes per second. Fields are only ever added, so that a
//! newer `status` understands an older process: what an older process does not send takes its default.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::wire::LimitOf;

/// The counter of what was put back on the host after somebody had taken it away or changed it.
pub const HOST_REPAIRS: &str = "host_repairs";

/// A process that owns a stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    /// Its process id.
    pub pid: u32,
    /// What it does, as a user would say it: `forward tcp:127.0.0.1:8080 to mptcp:192.0.2.1:80`.
    pub title: String,
    /// The program's version.
    pub version: String,
    /// Microseconds since it began.
    pub uptime_us: u64,
    /// Its configuration file.
    pub config: Option<String>,
    /// Its paths, those that are missing too.
    pub paths: Vec<PathReport>,
    /// Its devices.
    pub devices: Vec<DeviceReport>,
    /// What its connections hold.
    pub memory: MemoryReport,
    /// What its stack decided how often, by name; counts only rise. Each is described where it counts, in
    /// `crates/stack/src/stats.rs`, and those of limits in `docs/limits.md`.
    pub counters: BTreeMap<String, u64>,
    /// Its limits of what is sent.
    pub limits: Vec<LimitReport>,
    /// Its classes that bound how many connections there are.
    pub classes: Vec<ClassReport>,
    /// Its quotas.
    pub quotas: Vec<QuotaReport>,
    /// Its connections, oldest first.
    pub connections: Vec<ConnReport>,
}

/// What a process tells beside its connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Its configuration file.
    pub config: Option<String>,
    /// Its paths, those that are missing too.
    pub paths: Vec<PathReport>,
    /// Its devices.
    pub devices: Vec<DeviceReport>,
    /// What its connections hold.
    pub memory: MemoryReport,
    /// What its stack decided how often, by name.
    pub counters: BTreeMap<String, u64>,
    /// Its limits of what is sent.
    pub limits: Vec<LimitReport>,
    /// Its classes that bound how many connections there are.
    pub classes: Vec<ClassReport>,
    /// Its quotas.
    pub quotas: Vec<QuotaReport>,
}

/// A quota, and what was used of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaReport {
    /// Whose it is.
    pub of: LimitOf,
    /// The path or the class, as the configuration calls it.
    pub name: String,
    /// `day`, `week` or `month`.
    pub period: String,
    /// Which bytes count: `both`, `up` or `down`.
    pub count: String,
    /// What happens when it is used up: `backup`, `never` or `rate 256kbit`.
    pub then: String,
    /// Bytes that may be carried in the period.
    pub amount: u64,
    /// Bytes that were.
    pub used: u64,
    /// It is used up, and `then` holds.
    pub spent: bool,
    /// When the next period begins, seconds since 1970.
    pub resets_at: i64,
    /// The count is in the file of quotas; false while that cannot be written, or is another process's.
    pub kept: bool,
}

/// A class that bounds how many connections it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassReport {
    /// Its name.
    pub name: String,
    /// Connections that it has now.
    pub connections: u64,
    /// As many as it may have at one time.
    pub most_connections: Option<u64>,
    /// As many as may begin in a time: `20/s`.
    pub connection_rate: Option<String>,
    /// Connections that were refused for it.
    pub refused: u64,
}

/// A limit of what is sent, and what it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitReport {
    /// What it is of.
    pub of: LimitOf,
    /// The interface, the class or the connection.
    pub name: String,
    /// Bits of IP packets a second.
    pub bits_per_second: u64,
    /// Bytes that may leave at once after a pause.
    pub burst: u64,
    /// Bytes that may leave now; below zero after acknowledgements, which do not wait.
    pub tokens: i64,
    /// For how long something waited for it, microseconds.
    pub held_us: u64,
    /// How often something began to wait for it.
    pub waits: u64,
    /// Connections that wait for it now.
    pub waiting: u64,
    /// Bytes of packets that went by other paths meanwhile; of a path alone.
    pub elsewhere_bytes: u64,
}

/// A local address that the process uses, or wants to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathReport {
    /// The interface's name, or its number where it has no name here.
    pub iface: String,
    /// The address; absent while the interface has none.
    pub address: Option<IpAddr>,
    /// It can be used now.
    pub up: bool,
    /// Used only when nothing better is left.
    pub backup: bool,
    /// Largest IP packet in bytes; 0 while it is missing.
    pub mtu: u16,
    /// Why it cannot be used.
    pub missing: Option<String>,
    /// When it is used at present: `always`, `secondary`, `backup` or `never`; absent where no configuration names it.
    pub priority: Option<String>,
    /// Why that is not what the configuration says: a quota that is used up, and when the path is back.
    pub reason: Option<String>,
}

/// A network device of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceReport {
    /// The interface's name.
    pub iface: String,
    /// A TUN device: packets go through the host's routing and firewall.
    pub tun: bool,
    /// What happened in it, by name; counts only rise.
    pub counters: BTreeMap<String, u64>,
}

/// Memory of all connections together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// Bytes held now.
    pub used: u64,
    /// Bytes that may be held (`--memory`).
    pub limit: u64,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnReport {
    /// Its name within the process.
    pub id: String,
    /// `initiator` or `responder`.
    pub role: String,
    /// Connection-level state (RFC 8684 appendix D).
    pub state: String,
    /// `multipath`, or how far it fell back: `no-more-joins`, `infinite-mapping`, `plain-tcp`.
    pub level: String,
    /// Why it fell back.
    pub fallback: Option<String>,
    /// Why it ended.
    pub closed: Option<String>,
    /// Local address of the first subflow.
    pub local: Option<SocketAddr>,
    /// The peer's address on the first subflow.
    pub remote: Option<SocketAddr>,
    /// Our token, in hexadecimal.
    pub token: Option<String>,
    /// DSS checksums are in use.
    pub checksum: bool,
    /// Scheduler.
    pub scheduler: String,
    /// Congestion control.
    pub congestion: String,
    /// Receive algorithm.
    pub receive: String,
    /// Segments whose place among those out of order was looked for.
    pub receive_searches: u64,
    /// Of these, segments whose subflow's shortcut was right.
    pub receive_hits: u64,
    /// Queued segments or batches that were looked at for it.
    pub receive_steps: u64,
    /// Path manager.
    pub path_manager: String,
    /// Age.
    pub age_us: u64,
    /// Stream bytes written by the application.
    pub bytes_written: u64,
    /// Stream bytes acknowledged at connection level.
    pub bytes_acked: u64,
    /// Stream bytes received in order.
    pub bytes_received: u64,
    /// Stream bytes read by the application.
    pub bytes_read: u64,
    /// Stream bytes sent once more on another subflow.
    pub bytes_reinjected: u64,
    /// Bytes in the send buffer.
    pub send_queue: u64,
    /// Bytes in the receive buffer.
    pub recv_queue: u64,
    /// Room in the peer's window.
    pub peer_window: u64,
    /// Memory that its buffers take.
    pub memory: u64,
    /// Subflows may be added now.
    pub may_join: bool,
    /// Subflows may be asked for: they are made now, or as soon as the connection is fully established.
    pub may_create: bool,
    /// The subflow that carries the oldest unacknowledged byte: who holds the window up while it is closed.
    pub held_up_by: Option<u32>,
    /// Our addresses as the connection knows them.
    pub local_addresses: Vec<LocalAddressReport>,
    /// The peer's addresses as the connection knows them.
    pub remote_addresses: Vec<RemoteAddressReport>,
    /// Live subflows.
    pub subflows: Vec<SubflowReport>,
    /// Subflows that ended, the last ones only.
    pub ended: Vec<EndedReport>,
}

impl ConnReport {
    /// Subflows that can carry data.
    pub fn established(&self) -> impl Iterator<Item = &SubflowReport> {
        let all = self.subflows.iter();
        all.filter(|subflow| subflow.phase == "established")
    }

    /// One of its live subflows.
    #[must_use]
    pub fn subflow(&self, id: u32) -> Option<&SubflowReport> {
        self.subflows.iter().find(|subflow| subflow.id == id)
    }

    /// Our usable addresses from which no subflow leaves, backup ones last; none while no subflow may be added.
    pub fn unused_addresses(&self) -> Vec<IpAddr> {
        let used = |addr| self.subflows.iter().any(|sf| sf.local_address() == addr);
        let all = self.local_addresses.iter();
        let mut free: Vec<_> = all
            .filter(|local| self.may_join && local.up && !used(local.address))
            .collect();
        free.sort_by_key(|local| local.backup);
        free.iter().filter_map(|local| local.address).collect()
    }
}

impl SubflowReport {
    /// Our address, without the port.
    pub fn local_address(&self) -> Option<IpAddr> {
        self.local.map(|local| local.ip())
    }
}

/// An address of ours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalAddressReport {
    /// Its identifier.
    pub id: u8,
    /// The interface's name, or its number where it has no name here.
    pub iface: String,
    /// The address.
    pub address: Option<IpAddr>,
    /// Peers are to use it only when nothing better is left.
    pub backup: bool,
    /// It can be used now.
    pub up: bool,
    /// The peer was told of it.
    pub announced: bool,
}

/// An address of the peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemoteAddressReport {
    /// The peer's identifier of it.
    pub id: u8,
    /// Address and port.
    pub address: Option<SocketAddr>,
    /// The peer announced it.
    pub announced: bool,
}

/// A live subflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubflowReport {
    /// Its number within the connection.
    pub id: u32,
    /// The interface's name, or its number where it has no name here.
    pub iface: String,
    /// Local address.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// Our address identifier.
    pub local_id: u8,
    /// The peer's address identifier.
    pub remote_id: u8,
    /// Why it was made.
    pub origin: String,
    /// Where it stands: `handshake`, `pre-established`, `established`, `closing`.
    pub phase: String,
    /// TCP state.
    pub tcp_state: String,
    /// We asked the peer to treat it as a backup.
    pub backup_here: bool,
    /// The peer asked us to treat it as a backup.
    pub backup_there: bool,
    /// In a retransmission time-out.
    pub stale: bool,
    /// Age.
    pub age_us: u64,
    /// Smoothed round-trip time.
    pub srtt_us: Option<u64>,
    /// Smallest round-trip time.
    pub min_rtt_us: Option<u64>,
    /// Variation of the round-trip time.
    pub rttvar_us: u64,
    /// Retransmission time-out, back-off included.
    pub rto_us: u64,
    /// Time-outs in a row.
    pub backoffs: u8,
    /// Congestion window.
    pub cwnd: u64,
    /// Slow-start threshold; absent while there is none.
    pub ssthresh: Option<u64>,
    /// Rate at which the window is spread over the round trip; absent without pacing.
    pub pacing_rate: Option<u64>,
    /// The highest rate at which data arrived in the last two round trips; zero before the first.
    pub delivery_rate: u64,
    /// Bytes in the network.
    pub inflight: u64,
    /// Payload bytes per segment.
    pub mss: u64,
    /// The peer's window on this subflow.
    pub peer_window: u64,
    /// Loss recovery is under way.
    pub in_recovery: bool,
    /// Stream bytes sent on it for the first time.
    pub bytes_sent: u64,
    /// Stream bytes that arrived on it.
    pub bytes_received: u64,
    /// Stream bytes sent on it that another subflow had sent before.
    pub bytes_reinjected: u64,
    /// Payload bytes acknowledged on it.
    pub bytes_acked: u64,
    /// Payload bytes sent again on it.
    pub bytes_retransmitted: u64,
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
}

/// A subflow that is gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedReport {
    /// Its number within the connection.
    pub id: u32,
    /// Local address.
    pub local: Option<SocketAddr>,
    /// The peer's address.
    pub remote: Option<SocketAddr>,
    /// Why it was made.
    pub origin: String,
    /// Why it ended.
    pub end: String,
    /// Microseconds since then.
    pub ago_us: u64,
    /// How long it had lived.
    pub lived_us: u64,
    /// Stream bytes sent on it.
    pub bytes_sent: u64,
    /// Stream bytes received on it.
    pub bytes_received: u64,
}
