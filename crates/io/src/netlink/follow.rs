//! Being told when links, addresses or routes change.

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use std::io;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Multicast groups of rtnetlink (linux/rtnetlink.h, RTNLGRP_*).
const GROUPS: [u32; 5] = [
    1,  // LINK
    5,  // IPV4_IFADDR
    9,  // IPV6_IFADDR
    7,  // IPV4_ROUTE
    11, // IPV6_ROUTE
];

/// Waits for changes. What changed is not said: whoever is told takes a new [`super::Snapshot`] and compares, so a lost
/// message never leaves a wrong picture.
#[derive(Debug)]
pub struct Follower {
    socket: AsyncFd<Socket>,
}

impl Follower {
    /// Subscribes. Take the first snapshot afterwards, so that no change falls between.
    ///
    /// # Errors
    /// Those of the netlink socket; must be called within a runtime.
    pub fn new() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        Ok(Follower {
            socket: crate::sys::watch::watch(socket, Interest::READABLE)?,
        })
    }

    /// Waits until something changed. Everything that waits is taken at once.
    ///
    /// # Errors
    /// Those of the socket; an overrun is not an error, but a change.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut guard = self.socket.readable().await?;
            let mut any = false;
            loop {
                match guard.get_inner().recv_from_full() {
                    Ok(_) => any = true,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                    Err(e) => return Err(e),
                }
            }
            guard.clear_ready();
            if any {
                return Ok(());
            }
        }
    }
}
