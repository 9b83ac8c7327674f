//! The generic netlink family `mptcp_pm` (linux/mptcp.h, linux/mptcp_pm.h): what the kernel tells, and what it can be told.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::socket::{Netlink, Refusal, attribute, attributes, put, u16_of, u32_of};

/// `NETLINK_GENERIC`.
pub(super) const GENERIC: isize = 16;
/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, and the attributes of the answer.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// The family, as this kernel has numbered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    id: u16,
    /// The group in which events are told.
    pub(super) events: u32,
}

/// A command, with its number (`MPTCP_PM_CMD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    SetFlags = 7,
    Announce = 8,
    Remove = 9,
    Create = 10,
    Destroy = 11,
}

/// `MPTCP_PM_ADDR_FLAG_*`.
pub(super) const SIGNAL: u32 = 1;
pub(super) const BACKUP: u32 = 4;

/// An address in a command; what is not given is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    pub(super) id: u8,
    pub(super) flags: u32,
}

impl Endpoint {
    /// One end of a subflow.
    pub(super) fn end(end: SocketAddr) -> Self {
        Self {
            address: end.ip(),
            port: Some(end.port()),
            id: 0,
            flags: 0,
        }
    }

    /// `MPTCP_PM_ADDR_ATTR_*`.
    fn attributes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (family, kind, bytes) = match self.address {
            IpAddr::V4(v4) => (2_u16, 3, v4.octets().to_vec()),
            IpAddr::V6(v6) => (10, 4, v6.octets().to_vec()),
        };
        put(&mut out, 1, &family.to_ne_bytes());
        put(&mut out, kind, &bytes);
        if self.id != 0 {
            put(&mut out, 2, &[self.id]);
        }
        if let Some(port) = self.port {
            put(&mut out, 5, &port.to_ne_bytes());
        }
        if self.flags != 0 {
            put(&mut out, 6, &self.flags.to_ne_bytes());
        }
        out
    }
}

/// What a command is about (`MPTCP_PM_ATTR_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct About {
    pub(super) local: Option<Endpoint>,
    pub(super) remote: Option<Endpoint>,
    pub(super) local_id: Option<u8>,
}

impl Family {
    /// Looks it up.
    pub(super) fn find(netlink: &mut Netlink) -> io::Result<Self> {
        let mut body = vec![GET_FAMILY, 1, 0, 0];
        put(&mut body, FAMILY_NAME, b"mptcp_pm\0");
        let answers = netlink.ask(CONTROL, &body)?;
        let found = answers.iter().find_map(|answer| {
            let answer = answer.get(4..)?;
            let groups = attribute(answer, GROUPS)?;
            let events = attributes(groups).find_map(|(_, group)| {
                let named = attribute(group, GROUP_NAME)? == b"mptcp_pm_events\0";
                named.then(|| attribute(group, GROUP_ID).and_then(u32_of))?
            })?;
            let id = attribute(answer, FAMILY_ID).and_then(u16_of)?;
            Some(Self { id, events })
        });
        found.ok_or_else(|| {
            let what = "this kernel has no user-space path management";
            io::Error::new(io::ErrorKind::Unsupported, what)
        })
    }

    /// Carries a command out.
    pub(super) fn order(
        self,
        netlink: &mut Netlink,
        command: Command,
        token: u32,
        about: About,
    ) -> Result<(), Refusal> {
        const NESTED: u16 = 0x8000;
        let mut body = vec![command as u8, 1, 0, 0];
        if let Some(local) = about.local {
            put(&mut body, 1 | NESTED, &local.attributes());
        }
        put(&mut body, 4, &token.to_ne_bytes());
        if let Some(id) = about.local_id {
            put(&mut body, 5, &[id]);
        }
        if let Some(remote) = about.remote {
            put(&mut body, 6 | NESTED, &remote.attributes());
        }
        netlink.ask(self.id, &body).map(|_| ())
    }
}

/// What the kernel tells of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// By the names of the protocol.
    pub(super) event: &'static str,
    pub(super) token: u32,
    pub(super) local: Option<IpAddr>,
    pub(super) local_port: u16,
    pub(super) remote: Option<IpAddr>,
    pub(super) remote_port: u16,
    pub(super) local_id: u8,
    pub(super) remote_id: u8,
    pub(super) backup: bool,
    /// The peer opened the connection.
    pub(super) server_side: bool,
    /// An `errno`.
    pub(super) error: u8,
    /// The peer's reason for a reset, and whether it said that trying again makes sense.
    pub(super) reset: Option<(u8, bool)>,
}

/// `MPTCP_EVENT_*` that concern connections.
const EVENTS: &[(u8, &str)] = &[
    (1, "created"),
    (2, "established"),
    (3, "closed"),
    (6, "announced"),
    (7, "removed"),
    (10, "sub_established"),
    (11, "sub_closed"),
    (13, "sub_priority"),
];

/// `MPTCP_PM_EV_FLAG_SERVER_SIDE`, since Linux 6.17; before that there was an attribute for it.
const SERVER_SIDE: u16 = 2;

impl Notice {
    /// Reads a message of the group; `None` for what does not concern a connection.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let event = EVENTS.iter().find(|(id, _)| payload.first() == Some(id))?.1;
        let all = payload.get(4..)?;
        let byte = |kind| attribute(all, kind).and_then(|v| v.first().copied());
        // Ports travel in the network's order.
        let port = |kind| {
            let value: Option<&[u8; 2]> = attribute(all, kind).and_then(|v| v.first_chunk());
            value.map_or(0, |b| u16::from_be_bytes(*b))
        };
        let address = |four, six| {
            let v4 = attribute(all, four).and_then(|v| v.first_chunk::<4>());
            let v6 = attribute(all, six).and_then(|v| v.first_chunk::<16>());
            let v4 = v4.map(|b| IpAddr::from(Ipv4Addr::from(*b)));
            v4.or(v6.map(|b| IpAddr::from(Ipv6Addr::from(*b)).to_canonical()))
        };
        let flags = attribute(all, 13).and_then(u16_of).unwrap_or(0);
        let reset = attribute(all, 16).and_then(u32_of).map(|reason| {
            let flags = attribute(all, 17).and_then(u32_of).unwrap_or(0);
            (reason as u8, flags & 1 != 0)
        });
        Some(Self {
            event,
            token: attribute(all, 1).and_then(u32_of)?,
            local: address(5, 6),
            local_port: port(9),
            remote: address(7, 8),
            remote_port: port(10),
            local_id: byte(3).unwrap_or(0),
            remote_id: byte(4).unwrap_or(0),
            backup: byte(11).unwrap_or(0) != 0,
            server_side: byte(18).unwrap_or(0) != 0 || flags & SERVER_SIDE != 0,
            error: byte(12).unwrap_or(0),
            reset,
        })
    }

    /// Both ends, where it names them.
    pub(super) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((
            SocketAddr::new(self.local?, self.local_port),
            SocketAddr::new(self.remote?, self.remote_port),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_the_kernel_is_read() {
        let mut bytes = vec![11, 1, 0, 0];
        put(&mut bytes, 1, &0xabcd_u32.to_ne_bytes());
        put(&mut bytes, 5, &[10, 0, 0, 1]);
        put(&mut bytes, 7, &[10, 0, 0, 2]);
        put(&mut bytes, 9, &5000_u16.to_be_bytes());
        put(&mut bytes, 10, &80_u16.to_be_bytes());
        put(&mut bytes, 12, &[110]);
        put(&mut bytes, 16, &3_u32.to_ne_bytes());
        put(&mut bytes, 17, &1_u32.to_ne_bytes());
        let notice = Notice::read(&bytes).expect("an event");
        assert_eq!(notice.event, "sub_closed");
        assert_eq!((notice.token, notice.error), (0xabcd, 110));
        assert_eq!(notice.reset, Some((3, true)));
        let ends = ("10.0.0.1:5000".parse(), "10.0.0.2:80".parse());
        assert_eq!(
            notice.ends(),
            Some((ends.0.expect("address"), ends.1.expect("address")))
        );
        assert_eq!(Notice::read(&[99, 1, 0, 0]), None);
    }
}
