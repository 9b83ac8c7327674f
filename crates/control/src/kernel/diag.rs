//! Socket diagnostics (linux/inet_diag.h): what the kernel knows of subflows and connections, and of its own addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::socket::{Netlink, Refusal, attribute, put, u32_of, u64_of};

/// `NETLINK_SOCK_DIAG` and `NETLINK_ROUTE`.
pub(super) const SOCK_DIAG: isize = 4;
pub(super) const ROUTE: isize = 0;
/// `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// `AF_INET` and `AF_INET6`.
const V4: u8 = 2;
const V6: u8 = 10;
const TCP: u8 = 6;
/// `IPPROTO_MPTCP`, which does not fit into the request's byte: an attribute has it.
const MPTCP: u32 = 262;
const REQUEST_PROTOCOL: u16 = 3;
/// All states but LISTEN, TIME-WAIT and CLOSE, as bits.
const STATES: u32 = 0b1011_0011_1110;
/// `INET_DIAG_INFO` as a bit of the request, and the attributes of an answer.
const WANT_INFO: u8 = 1 << 1;
const INFO: u16 = 2;
const ULP: u16 = 19;
const ULP_MPTCP: u16 = 3;

/// Flags of `MPTCP_SUBFLOW_ATTR_FLAGS`.
pub(super) mod flag {
    /// The connection began with it, and the peer agreed.
    pub(crate) const CAPABLE_REMOTE: u32 = 1;
    /// We asked for Multipath TCP with it.
    pub(crate) const CAPABLE_LOCAL: u32 = 1 << 1;
    /// The peer wants it as a backup.
    pub(crate) const BACKUP_REMOTE: u32 = 1 << 4;
    /// We want it as a backup.
    pub(crate) const BACKUP_LOCAL: u32 = 1 << 5;
    /// Both sides know each other's keys.
    pub(crate) const FULLY_ESTABLISHED: u32 = 1 << 6;
}

/// A subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subflow {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// As `TCP_*` of linux/tcp_states.h.
    pub(super) state: u8,
    /// The connection's, on this side.
    pub(super) token: u32,
    /// Rises with the time of the first look at it.
    pub(super) cookie: u64,
    pub(super) local_id: u8,
    pub(super) remote_id: u8,
    /// The bits of [`flag`].
    pub(super) flags: u32,
    pub(super) tcp: TcpInfo,
}

/// `struct tcp_info`, as far as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpInfo(Vec<u8>);

impl TcpInfo {
    fn byte(&self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    fn word(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(u32_of).unwrap_or(0)
    }

    fn long(&self, at: usize) -> u64 {
        self.0.get(at..).and_then(u64_of).unwrap_or(0)
    }

    /// `TCP_CA_Recovery` or worse.
    pub(super) fn in_recovery(&self) -> bool {
        self.byte(1) >= 3
    }

    pub(super) fn backoffs(&self) -> u8 {
        self.byte(4)
    }

    pub(super) fn rto_us(&self) -> u32 {
        self.word(8)
    }

    pub(super) fn mss(&self) -> u32 {
        self.word(16)
    }

    pub(super) fn unacked(&self) -> u32 {
        self.word(24)
    }

    /// Zero before the first measurement.
    pub(super) fn srtt_us(&self) -> u32 {
        self.word(68)
    }

    pub(super) fn rttvar_us(&self) -> u32 {
        self.word(72)
    }

    /// In segments; `i32::MAX` while there is none.
    pub(super) fn ssthresh(&self) -> u32 {
        self.word(76)
    }

    /// In segments.
    pub(super) fn cwnd(&self) -> u32 {
        self.word(80)
    }

    pub(super) fn retransmissions(&self) -> u32 {
        self.word(100)
    }

    /// All ones without pacing.
    pub(super) fn pacing_rate(&self) -> u64 {
        self.long(104)
    }

    pub(super) fn bytes_acked(&self) -> u64 {
        self.long(120)
    }

    pub(super) fn bytes_received(&self) -> u64 {
        self.long(128)
    }

    /// All ones before the first measurement.
    pub(super) fn min_rtt_us(&self) -> u32 {
        self.word(148)
    }

    pub(super) fn delivery_rate(&self) -> u64 {
        self.long(160)
    }

    pub(super) fn bytes_sent(&self) -> u64 {
        self.long(200)
    }

    pub(super) fn bytes_retransmitted(&self) -> u64 {
        self.long(208)
    }

    pub(super) fn peer_window(&self) -> u32 {
        self.word(228)
    }
}

/// A connection: `struct mptcp_info`, as far as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) token: u32,
    pub(super) checksum: bool,
    pub(super) bytes_retransmitted: u64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) bytes_acked: u64,
    /// Bytes that wait to be read, and to be acknowledged.
    pub(super) recv_queue: u32,
    pub(super) send_queue: u32,
}

/// What all answers begin with: `struct inet_diag_msg`.
struct Found<'a> {
    state: u8,
    local: SocketAddr,
    remote: SocketAddr,
    cookie: u64,
    recv_queue: u32,
    attributes: &'a [u8],
}

fn found(answer: &[u8]) -> Option<Found<'_>> {
    let family = *answer.first()?;
    let port = |at| {
        let bytes: Option<&[u8; 2]> = answer.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map(|b| u16::from_be_bytes(*b))
    };
    let address = |at| -> Option<IpAddr> {
        let bytes = answer.get(at..)?;
        Some(match family {
            V4 => Ipv4Addr::from(*bytes.first_chunk::<4>()?).into(),
            _ => IpAddr::from(Ipv6Addr::from(*bytes.first_chunk::<16>()?)).to_canonical(),
        })
    };
    Some(Found {
        state: *answer.get(1)?,
        local: SocketAddr::new(address(8)?, port(4)?),
        remote: SocketAddr::new(address(24)?, port(6)?),
        cookie: answer.get(44..).and_then(u64_of)?,
        recv_queue: answer.get(56..).and_then(u32_of)?,
        attributes: answer.get(72..)?,
    })
}

/// `struct inet_diag_req_v2` for one family; no addresses stand for all.
fn request(family: u8) -> Vec<u8> {
    let mut body = vec![0; 56];
    body[..3].copy_from_slice(&[family, TCP, WANT_INFO]);
    body[4..8].copy_from_slice(&STATES.to_ne_bytes());
    body
}

/// The answers for both address families.
fn dump(netlink: &mut Netlink, protocol: Option<u32>) -> io::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for family in [V4, V6] {
        let mut body = request(family);
        if let Some(protocol) = protocol {
            put(&mut body, REQUEST_PROTOCOL, &protocol.to_ne_bytes());
        }
        all.extend(netlink.dump(BY_FAMILY, &body)?);
    }
    Ok(all)
}

/// The answer about one socket, unless it is gone.
fn one(netlink: &mut Netlink, body: &[u8]) -> io::Result<Option<Vec<u8>>> {
    match netlink.ask(BY_FAMILY, body) {
        Ok(answers) => Ok(answers.into_iter().next()),
        Err(Refusal::Kernel { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}

/// All subflows of Multipath TCP, oldest first as far as anybody has looked at them before.
pub(super) fn subflows(netlink: &mut Netlink) -> io::Result<Vec<Subflow>> {
    let answers = dump(netlink, None)?;
    let mut all: Vec<Subflow> = answers.iter().filter_map(|a| subflow_of(a)).collect();
    all.sort_by_key(|subflow| {
        let first = subflow.flags & (flag::CAPABLE_LOCAL | flag::CAPABLE_REMOTE) != 0;
        (!first, subflow.cookie)
    });
    Ok(all)
}

/// The subflow with these ends.
pub(super) fn subflow(
    netlink: &mut Netlink,
    local: SocketAddr,
    remote: SocketAddr,
) -> io::Result<Option<Subflow>> {
    let mut body = request(if local.is_ipv4() { V4 } else { V6 });
    for (at, port) in [(8, local.port()), (10, remote.port())] {
        body[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    for (at, address) in [(12, local.ip()), (28, remote.ip())] {
        match address {
            IpAddr::V4(v4) => body[at..at + 4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => body[at..at + 16].copy_from_slice(&v6.octets()),
        }
    }
    body[48..].copy_from_slice(&[0xff; 8]);
    Ok(one(netlink, &body)?.as_deref().and_then(subflow_of))
}

fn subflow_of(answer: &[u8]) -> Option<Subflow> {
    let found = found(answer)?;
    let mptcp = attribute(attribute(found.attributes, ULP)?, ULP_MPTCP)?;
    let word = |kind| attribute(mptcp, kind).and_then(u32_of);
    let byte = |kind| attribute(mptcp, kind).and_then(|v| v.first().copied());
    let tcp = attribute(found.attributes, INFO).unwrap_or_default();
    Some(Subflow {
        local: found.local,
        remote: found.remote,
        state: found.state,
        cookie: found.cookie,
        token: word(2)?,
        flags: word(8).unwrap_or(0),
        remote_id: byte(9).unwrap_or(0),
        local_id: byte(10).unwrap_or(0),
        tcp: TcpInfo(tcp.to_vec()),
    })
}

/// All connections of Multipath TCP.
pub(super) fn connections(netlink: &mut Netlink) -> io::Result<Vec<Connection>> {
    let answers = dump(netlink, Some(MPTCP))?;
    Ok(answers.iter().filter_map(|a| connection_of(a)).collect())
}

/// The connection with this token, which stands where other sockets' cookies do.
pub(super) fn connection(netlink: &mut Netlink, token: u32) -> io::Result<Option<Connection>> {
    let mut body = request(V4);
    body[48..52].copy_from_slice(&token.to_ne_bytes());
    put(&mut body, REQUEST_PROTOCOL, &MPTCP.to_ne_bytes());
    Ok(one(netlink, &body)?.as_deref().and_then(connection_of))
}

fn connection_of(answer: &[u8]) -> Option<Connection> {
    let found = found(answer)?;
    let info = attribute(found.attributes, INFO)?;
    let long = |at: usize| info.get(at..).and_then(u64_of).unwrap_or(0);
    Some(Connection {
        local: found.local,
        remote: found.remote,
        token: info.get(12..).and_then(u32_of)?,
        checksum: info.get(42).is_some_and(|on| *on != 0),
        bytes_retransmitted: long(48),
        bytes_sent: long(56),
        bytes_received: long(64),
        bytes_acked: long(72),
        recv_queue: found.recv_queue,
        // `mptcpi_write_seq` and `mptcpi_snd_una`: the socket itself counts what its subflows hold as theirs.
        send_queue: u32::try_from(long(16).wrapping_sub(long(24))).unwrap_or(0),
    })
}

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) iface: u32,
    pub(super) address: IpAddr,
}

/// `RTM_NEWADDR`, `RTM_DELADDR`, `RTM_GETADDR`, and the groups in which changes are told.
pub(super) const NEW_ADDRESS: u16 = 20;
pub(super) const DEL_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
pub(super) const ADDRESS_GROUPS: [u32; 2] = [5, 9];

/// Reads an address that others can reach; `None` for loopback and link-local ones, and for those that are not usable yet.
pub(super) fn address(payload: &[u8]) -> Option<Address> {
    const UNIVERSE: u8 = 0;
    const TENTATIVE: u8 = 0x40;
    let (&[_, _, flags, scope], rest) = payload.split_first_chunk()?;
    if scope != UNIVERSE || flags & TENTATIVE != 0 {
        return None;
    }
    let (index, rest) = rest.split_first_chunk()?;
    // IFA_LOCAL, which IPv6 does not have, or IFA_ADDRESS.
    let value = attribute(rest, 2).or_else(|| attribute(rest, 1))?;
    let address = match value.len() {
        4 => IpAddr::from(*value.first_chunk::<4>()?),
        _ => IpAddr::from(*value.first_chunk::<16>()?),
    };
    Some(Address {
        iface: u32::from_ne_bytes(*index),
        address,
    })
}

/// All of them.
pub(super) fn addresses(netlink: &mut Netlink) -> io::Result<Vec<Address>> {
    let answers = netlink.dump(GET_ADDRESS, &[0; 8])?;
    Ok(answers.iter().filter_map(|a| address(a)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let mut bytes = vec![0; 72];
        bytes[..2].copy_from_slice(&[2, 1]);
        bytes[4..6].copy_from_slice(&5000_u16.to_be_bytes());
        bytes[6..8].copy_from_slice(&80_u16.to_be_bytes());
        bytes[8..12].copy_from_slice(&[10, 0, 0, 1]);
        bytes[24..28].copy_from_slice(&[10, 0, 0, 2]);
        bytes[44..52].copy_from_slice(&9_u64.to_ne_bytes());
        let read = found(&bytes).expect("whole");
        assert_eq!(read.local, "10.0.0.1:5000".parse().expect("address"));
        assert_eq!(read.remote, "10.0.0.2:80".parse().expect("address"));
        assert_eq!((read.cookie, read.state), (9, 1));
        assert!(found(&bytes[..60]).is_none());
    }

    #[test]
    fn loopback_and_tentative_addresses_are_nobodys() {
        let message = |flags, scope| {
            let mut bytes = vec![2, 24, flags, scope, 3, 0, 0, 0];
            put(&mut bytes, 2, &[10, 0, 0, 1]);
            bytes
        };
        let read = address(&message(0x80, 0)).expect("usable");
        assert_eq!(read.address, "10.0.0.1".parse::<IpAddr>().expect("address"));
        assert_eq!(address(&message(0x80, 254)), None);
        assert_eq!(address(&message(0x40, 0)), None);
    }
}
