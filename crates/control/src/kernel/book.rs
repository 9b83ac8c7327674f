//! What is known of the kernel's connections: from its events, and from looking at its sockets.
//!
//! Subflows have no numbers in the kernel: they are given here, by their order of appearance, and hold for one session.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::diag::{self, flag};
use crate::report::{
    ConnReport, LocalAddressReport, ProcessReport, RemoteAddressReport, SubflowReport,
};

/// Both ends of a subflow.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// Everything that one look shows.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) subflows: Vec<diag::Subflow>,
    pub(super) connections: Vec<diag::Connection>,
    pub(super) addresses: Vec<diag::Address>,
}

/// A subflow that has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) ends: Ends,
    pub(super) local_id: u8,
    pub(super) backoffs: u8,
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Conn {
    pub(super) server_side: bool,
    pub(super) established: bool,
    pub(super) first: Option<Ends>,
    pub(super) subflows: BTreeMap<u8, Known>,
    last: Option<u8>,
    /// The peer's addresses, by its identifiers.
    pub(super) announced: BTreeMap<u8, SocketAddr>,
    /// Our identifiers of our addresses. The first subflow's has zero, which a command cannot name.
    ids: BTreeMap<IpAddr, u8>,
    begun: Option<Instant>,
}

impl Conn {
    /// The number of a subflow, which gets one if it has none.
    pub(super) fn number(&mut self, ends: Ends, local_id: u8) -> u8 {
        let known = self.subflows.iter().find(|(_, sf)| sf.ends == ends);
        if let Some((number, _)) = known {
            return *number;
        }
        // Numbers are used again as late as possible.
        let first = self.last.map_or(0, |last| last.wrapping_add(1));
        let free = (0..=u8::MAX)
            .map(|n| first.wrapping_add(n))
            .find(|n| !self.subflows.contains_key(n));
        let number = free.unwrap_or(first);
        self.last = Some(number);
        let new = Known {
            ends,
            local_id,
            backoffs: 0,
        };
        self.subflows.insert(number, new);
        if local_id != 0 {
            self.ids.insert(ends.0.ip(), local_id);
        }
        number
    }

    /// Forgets a subflow; its number, if it had one.
    pub(super) fn forget(&mut self, ends: Ends) -> Option<u8> {
        let (&number, _) = self.subflows.iter().find(|(_, sf)| sf.ends == ends)?;
        self.subflows.remove(&number);
        Some(number)
    }

    /// Our identifier of an address of ours, which gets one if it has none.
    pub(super) fn id_of(&mut self, address: IpAddr) -> u8 {
        if let Some(id) = self.ids.get(&address) {
            return *id;
        }
        let free = (1..=u8::MAX).find(|id| !self.ids.values().any(|used| used == id));
        let id = free.unwrap_or(u8::MAX);
        self.ids.insert(address, id);
        id
    }
}

/// All connections, by their tokens.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) conns: BTreeMap<u32, Conn>,
}

impl Book {
    /// A connection of which an event tells, which may be new.
    pub(super) fn conn(&mut self, token: u32) -> &mut Conn {
        self.conns.entry(token).or_default()
    }

    /// Brings the book up to what a look shows: connections that began before the session, and ends that nobody told.
    pub(super) fn update(&mut self, look: &Look) {
        let lives = |token: u32| {
            look.subflows.iter().any(|sf| sf.token == token)
                || look.connections.iter().any(|conn| conn.token == token)
        };
        self.conns.retain(|token, _| lives(*token));
        for found in &look.subflows {
            let conn = self.conn(found.token);
            let ends = (found.local, found.remote);
            conn.number(ends, found.local_id);
            if found.flags & (flag::CAPABLE_LOCAL | flag::CAPABLE_REMOTE) != 0 {
                conn.first.get_or_insert(ends);
                conn.server_side = found.flags & flag::CAPABLE_LOCAL == 0;
            }
            conn.established |= found.flags & flag::FULLY_ESTABLISHED != 0;
            conn.begun.get_or_insert_with(Instant::now);
        }
        for (token, conn) in &mut self.conns {
            let here = |ends| {
                let mut all = look.subflows.iter();
                all.any(|sf| sf.token == *token && (sf.local, sf.remote) == ends)
            };
            conn.subflows.retain(|_, sf| here(sf.ends));
        }
    }

    /// A connection as a look shows it.
    pub(super) fn report(&self, token: u32, look: &Look) -> Option<ConnReport> {
        let conn = self.conns.get(&token)?;
        let whole = look.connections.iter().find(|c| c.token == token);
        let first = conn.first.or(whole.map(|c| (c.local, c.remote)));
        let found = |ends: Ends| {
            let mut all = look.subflows.iter();
            all.find(|sf| sf.token == token && (sf.local, sf.remote) == ends)
        };
        let subflows: Vec<SubflowReport> = conn
            .subflows
            .iter()
            .filter_map(|(number, known)| found(known.ends).map(|f| subflow(*number, f)))
            .collect();
        let family = first.map(|(local, _)| local.is_ipv4());
        let locals = look.addresses.iter();
        let locals = locals.filter(|a| family.is_none_or(|v4| a.address.is_ipv4() == v4));
        let remote = |id, address, announced| RemoteAddressReport {
            id,
            address: Some(address),
            announced,
        };
        let announced = conn.announced.iter().map(|(id, a)| remote(*id, *a, true));
        let first_remote = first.map(|(_, there)| remote(0, there, false));
        Some(ConnReport {
            id: name(token),
            role: if conn.server_side {
                "responder"
            } else {
                "initiator"
            }
            .to_owned(),
            state: if conn.established {
                "established"
            } else {
                "opening"
            }
            .to_owned(),
            level: "multipath".to_owned(),
            local: first.map(|(local, _)| local),
            remote: first.map(|(_, remote)| remote),
            token: Some(name(token)),
            checksum: whole.is_some_and(|c| c.checksum),
            path_manager: "userspace".to_owned(),
            age_us: conn.begun.map_or(0, |at| micros(at.elapsed())),
            bytes_written: whole.map_or(0, |c| c.bytes_acked + u64::from(c.send_queue)),
            bytes_acked: whole.map_or(0, |c| c.bytes_acked),
            bytes_received: whole.map_or(0, |c| c.bytes_received),
            bytes_read: whole.map_or(0, |c| {
                c.bytes_received.saturating_sub(u64::from(c.recv_queue))
            }),
            bytes_reinjected: whole.map_or(0, |c| c.bytes_retransmitted),
            send_queue: whole.map_or(0, |c| u64::from(c.send_queue)),
            recv_queue: whole.map_or(0, |c| u64::from(c.recv_queue)),
            may_join: conn.established,
            may_create: conn.established,
            local_addresses: locals
                .map(|a| LocalAddressReport {
                    id: conn.ids.get(&a.address).copied().unwrap_or(0),
                    iface: a.iface.to_string(),
                    address: Some(a.address),
                    backup: false,
                    up: true,
                    announced: false,
                })
                .collect(),
            remote_addresses: first_remote.into_iter().chain(announced).collect(),
            subflows,
            ..ConnReport::default()
        })
    }

    /// All of them.
    pub(super) fn process(&self, look: &Look) -> ProcessReport {
        ProcessReport {
            pid: 0,
            title: "the Linux kernel".to_owned(),
            version: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .map(|text| text.trim().to_owned())
                .unwrap_or_default(),
            uptime_us: 0,
            connections: self
                .conns
                .keys()
                .filter_map(|token| self.report(*token, look))
                .collect(),
            // Of paths, memory and counters the kernel tells by other means: `ip mptcp`, `nstat`.
            ..ProcessReport::default()
        }
    }
}

/// A connection's name: its token.
pub(super) fn name(token: u32) -> String {
    format!("{token:08x}")
}

/// Microseconds, as reports have them.
pub(super) fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A subflow as the kernel has it.
fn subflow(number: u8, found: &diag::Subflow) -> SubflowReport {
    const ESTABLISHED: u8 = 1;
    const OPENING: [u8; 2] = [2, 3];
    let tcp = &found.tcp;
    let mss = u64::from(tcp.mss());
    let first = found.flags & (flag::CAPABLE_LOCAL | flag::CAPABLE_REMOTE) != 0;
    let joined = found.flags & flag::FULLY_ESTABLISHED != 0;
    SubflowReport {
        id: number.into(),
        local: Some(found.local),
        remote: Some(found.remote),
        local_id: found.local_id,
        remote_id: found.remote_id,
        origin: if first { "opened the connection" } else { "" }.to_owned(),
        phase: match found.state {
            ESTABLISHED if first || joined => "established",
            ESTABLISHED => "pre-established",
            state if OPENING.contains(&state) => "handshake",
            _ => "closing",
        }
        .to_owned(),
        tcp_state: match found.state {
            1 => "established",
            2 => "syn-sent",
            3 => "syn-received",
            4 => "fin-wait-1",
            5 => "fin-wait-2",
            8 => "close-wait",
            9 => "last-ack",
            _ => "closing",
        }
        .to_owned(),
        backup_here: found.flags & flag::BACKUP_LOCAL != 0,
        backup_there: found.flags & flag::BACKUP_REMOTE != 0,
        stale: tcp.backoffs() > 0,
        srtt_us: Some(u64::from(tcp.srtt_us())).filter(|t| *t > 0),
        min_rtt_us: Some(tcp.min_rtt_us())
            .filter(|t| *t > 0 && *t != u32::MAX)
            .map(u64::from),
        rttvar_us: tcp.rttvar_us().into(),
        rto_us: tcp.rto_us().into(),
        backoffs: tcp.backoffs(),
        cwnd: u64::from(tcp.cwnd()) * mss,
        ssthresh: Some(tcp.ssthresh())
            .filter(|t| *t < i32::MAX as u32)
            .map(|t| u64::from(t) * mss),
        pacing_rate: Some(tcp.pacing_rate()).filter(|rate| *rate != u64::MAX && *rate > 0),
        delivery_rate: tcp.delivery_rate(),
        inflight: u64::from(tcp.unacked()) * mss,
        mss,
        peer_window: tcp.peer_window().into(),
        in_recovery: tcp.in_recovery(),
        bytes_sent: tcp.bytes_sent().saturating_sub(tcp.bytes_retransmitted()),
        bytes_received: tcp.bytes_received(),
        bytes_acked: tcp.bytes_acked(),
        bytes_retransmitted: tcp.bytes_retransmitted(),
        retransmissions: tcp.retransmissions().into(),
        ..SubflowReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> Ends {
        (
            SocketAddr::from(([10, 0, 0, 1], port)),
            SocketAddr::from(([10, 0, 0, 2], 80)),
        )
    }

    #[test]
    fn numbers_are_given_in_order_and_used_again_late() {
        let mut conn = Conn::default();
        assert_eq!(conn.number(ends(1), 0), 0);
        assert_eq!(conn.number(ends(2), 1), 1);
        assert_eq!(conn.number(ends(1), 0), 0);
        assert_eq!(conn.forget(ends(1)), Some(0));
        assert_eq!(conn.forget(ends(1)), None);
        assert_eq!(conn.number(ends(3), 1), 2);
        for port in 4..258 {
            conn.number(ends(port), 1);
        }
        assert!(conn.subflows.contains_key(&0), "all others were in use");
    }

    #[test]
    fn addresses_get_identifiers_that_nobody_has() {
        let mut conn = Conn::default();
        conn.number(ends(1), 0);
        conn.number((SocketAddr::from(([10, 1, 0, 1], 5)), ends(1).1), 1);
        assert_eq!(conn.id_of(IpAddr::from([10, 1, 0, 1])), 1);
        assert_eq!(conn.id_of(IpAddr::from([10, 0, 0, 1])), 2);
        assert_eq!(conn.id_of(IpAddr::from([10, 2, 0, 1])), 3);
    }
}
