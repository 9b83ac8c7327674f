//! Being told when somebody changes what we have set up.

use crate::nft::message::{Answer, answers};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Multicast groups of rtnetlink (linux/rtnetlink.h, RTNLGRP_*).
const GROUPS: [u32; 6] = [
    7,  // IPV4_ROUTE
    11, // IPV6_ROUTE
    8,  // IPV4_RULE
    19, // IPV6_RULE
    24, // IPV4_NETCONF
    25, // IPV6_NETCONF
];

/// A socket on which the kernel tells of changes. What changed is not said: whoever is told looks at what is his
/// ([`crate::Setup::repair`], [`crate::nat::Nat::repair`]), so a lost message leaves nothing broken.
pub struct News {
    socket: Socket,
    /// News of firewall rules rather than of routing.
    rules: bool,
}

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("News")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl News {
    /// Of routes, of the rules that choose among routing tables, and of the settings of interfaces.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn of_routing() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        GROUPS
            .iter()
            .try_for_each(|group| socket.add_membership(*group))?;
        Ok(News {
            socket,
            rules: false,
        })
    }

    /// Of firewall rules.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn of_rules() -> io::Result<Self> {
        Ok(News {
            socket: crate::nft::socket::news()?,
            rules: true,
        })
    }

    /// Takes everything that waits; answers whether there was something that may concern us. Never blocks.
    ///
    /// # Errors
    /// Those of the socket; an overrun is not an error, but news.
    pub fn take(&self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => any |= !self.rules || is_ended(&bytes),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(any),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    any = true;
                }
                Err(e) => return Err(e),
            }
        }
    }
}

impl AsRawFd for News {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Whether a change of rules is told as complete, by another process than this one: `NFT_MSG_NEWGEN` ends each, and its second
/// attribute is the process.
fn is_ended(bytes: &[u8]) -> bool {
    const NEW_GENERATION: u16 = crate::nft::message::Command::NewGeneration as u16;
    answers(bytes).iter().any(|answer| match answer {
        Answer::Object {
            command: NEW_GENERATION,
            content,
            ..
        } => {
            let by = crate::nft::message::attribute_number(content, 2);
            by != Some(std::process::id())
        }
        _ => false,
    })
}
