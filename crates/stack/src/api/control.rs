//! What a controller of paths may ask for: the commands of Linux's `mptcp_pm` family and of SMAPP section 3.

use core::fmt;
use core::net::IpAddr;

use manypath_wire::ids::AddrId;

use super::path::IfaceId;
use super::policy::PathManager;
use crate::ids::SubflowId;

/// A subflow to be made. Whatever is not given is chosen: it is any four-tuple, or part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewSubflow {
    /// Our address. By default that of the first subflow while it can be used, else the first that is no backup.
    pub local: Option<IpAddr>,
    /// Our interface, where several have that address.
    pub iface: Option<IfaceId>,
    /// Our port. By default the first subflow's from another address, and an unused one from the same.
    pub local_port: Option<u16>,
    /// The peer's address; by default that of the first subflow.
    pub remote: Option<IpAddr>,
    /// The peer's port; by default the one that it announced with the address, or that of the first subflow.
    pub remote_port: Option<u16>,
    /// Both ends are to use it only when nothing better is left.
    pub backup: bool,
}

/// How a subflow is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a FIN: what was sent on it still arrives.
    Fin,
    /// By a reset: at once, as fits a path that does not work.
    Reset,
}

/// What is to be done to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `subflow_create`: open a subflow, now or as soon as the connection is fully established (RFC 8684 section 3.1).
    Create(NewSubflow),
    /// `subflow_destroy`: end a subflow, whoever made it.
    Destroy {
        /// Which one.
        subflow: SubflowId,
        /// How.
        ending: Ending,
    },
    /// `set_flags`: both ends are to use a subflow only when nothing better is left, or no longer.
    SetBackup {
        /// Which one.
        subflow: SubflowId,
        /// Only when nothing better is left.
        backup: bool,
    },
    /// `announce`: tell the peer a local address by ADD_ADDR.
    Announce {
        /// The address, one of ours.
        addr: IpAddr,
        /// A port other than the connection's.
        port: Option<u16>,
    },
    /// `remove`: withdraw an address by REMOVE_ADDR.
    Withdraw {
        /// Our identifier of it.
        id: AddrId,
    },
    /// `set_limits`: change bounds of this connection.
    SetLimits {
        /// Largest number of subflows at one time.
        subflows: Option<u16>,
        /// Largest number of addresses of the peer that are remembered.
        add_addr_accepted: Option<u8>,
    },
    /// Let another policy decide. The subflows that exist stay.
    SetPolicy(PathManager),
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Nothing more to say. A subflow that was asked for is made when the connection is fully established.
    Done,
    /// This subflow is being opened.
    Subflow(SubflowId),
    /// The address has this identifier.
    Address(AddrId),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(wanted) => write!(f, "create {wanted}"),
            Self::Destroy { subflow, ending } => match ending {
                Ending::Fin => write!(f, "close subflow {subflow}"),
                Ending::Reset => write!(f, "reset subflow {subflow}"),
            },
            Self::SetBackup { subflow, backup } => {
                let how = if *backup { "a backup" } else { "regular" };
                write!(f, "make subflow {subflow} {how}")
            }
            Self::Announce { addr, port: None } => write!(f, "announce {addr}"),
            Self::Announce {
                addr,
                port: Some(port),
            } => write!(f, "announce {addr} port {port}"),
            Self::Withdraw { id } => write!(f, "withdraw address {}", id.0),
            Self::SetLimits {
                subflows,
                add_addr_accepted,
            } => {
                f.write_str("limit")?;
                if let Some(subflows) = subflows {
                    write!(f, " the subflows to {subflows}")?;
                }
                if let Some(addresses) = add_addr_accepted {
                    write!(f, " the addresses of the peer to {addresses}")?;
                }
                let nothing = subflows.is_none() && add_addr_accepted.is_none();
                f.write_str(if nothing { " nothing more" } else { "" })
            }
            Self::SetPolicy(policy) => write!(f, "let {policy} decide"),
        }
    }
}

impl fmt::Display for NewSubflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |f: &mut fmt::Formatter<'_>, addr: Option<IpAddr>, port: Option<u16>| {
            match addr {
                Some(addr) => write!(f, "{addr}")?,
                None => f.write_str("*")?,
            }
            port.map_or(Ok(()), |port| write!(f, " port {port}"))
        };
        end(f, self.local, self.local_port)?;
        f.write_str(" -> ")?;
        end(f, self.remote, self.remote_port)?;
        if self.backup {
            f.write_str(" as backup")?;
        }
        Ok(())
    }
}
