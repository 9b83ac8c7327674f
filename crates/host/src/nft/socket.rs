//! The conversation with the kernel. It answers while it is being asked, so nothing here waits.

use super::message::{Answer, Attributes, Batch, Command, Family, answers, question};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::fmt;
use std::io;

/// `NFNLGRP_NFTABLES`: news of every change of rules.
const GROUP: u32 = 7;

/// The kernel has no nf_tables, or not what a table of ours needs of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFirewall;

impl fmt::Display for NoFirewall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel has no nf_tables (Linux 4.9 or later with CONFIG_NF_TABLES, _INET and _NETDEV)")
    }
}

impl std::error::Error for NoFirewall {}

fn none() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, NoFirewall)
}

/// A socket of `NETLINK_NETFILTER`.
pub(crate) struct Nft {
    socket: Socket,
    /// The number of the next message.
    pub(crate) number: u32,
}

impl fmt::Debug for Nft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nft").finish_non_exhaustive()
    }
}

impl Nft {
    /// Opens one.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(|e| match e.raw_os_error() {
            Some(libc) if libc == rustix::io::Errno::PROTONOSUPPORT.raw_os_error() => none(),
            _ => e,
        })?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        Ok(Nft { socket, number: 1 })
    }

    /// Makes the changes of a batch: all or none.
    pub(crate) fn commit(&mut self, batch: Batch) -> io::Result<()> {
        let (bytes, numbers) = batch.finish();
        self.socket.send(&bytes, 0)?;
        let mut result = Err(io::Error::from(io::ErrorKind::TimedOut));
        loop {
            let bytes = match self.socket.recv_from_full() {
                Ok((bytes, _)) => bytes,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return result,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            for answer in answers(&bytes) {
                let Answer::Outcome(number, code) = answer else {
                    continue;
                };
                if !numbers.contains(&number) {
                    continue;
                }
                match (code, &result) {
                    // The first refusal is the cause of the others.
                    (0, Err(e)) if e.kind() == io::ErrorKind::TimedOut => result = Ok(()),
                    (0, _) => {}
                    (_, Err(e)) if e.kind() != io::ErrorKind::TimedOut => {}
                    _ => result = Err(refusal(code)),
                }
            }
        }
    }

    /// Everything of a kind: the family and the attributes of each.
    pub(crate) fn dump(
        &mut self,
        command: Command,
        family: Family,
        of: &Attributes,
    ) -> io::Result<Vec<(u8, Vec<u8>)>> {
        self.number = self.number.wrapping_add(1);
        self.socket
            .send(&question(command, family, self.number, of), 0)?;
        let mut found = Vec::new();
        loop {
            let (bytes, _) = match self.socket.recv_from_full() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            for answer in answers(&bytes) {
                match answer {
                    Answer::Object {
                        family, content, ..
                    } => found.push((family, content.to_vec())),
                    Answer::Done | Answer::Outcome(_, 0) => return Ok(found),
                    Answer::Outcome(_, code) => return Err(refusal(code)),
                }
            }
        }
    }
}

fn refusal(code: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(code.wrapping_neg());
    let text = format!("firewall rules: {error}");
    match error.kind() {
        io::ErrorKind::Unsupported => none(),
        io::ErrorKind::NotFound => io::Error::new(error.kind(), text),
        kind => io::Error::new(kind, text),
    }
}

/// News of changes of rules.
pub(crate) fn news() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    socket.add_membership(GROUP)?;
    Ok(socket)
}
