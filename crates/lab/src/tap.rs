//! What TCP packets a host sends and receives, with the kernel's own time for each.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use manypath_sim::view::TcpView;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::netns::NetNs;

/// Headers are at the beginning; of the payload only its length counts.
const HEAD: usize = 2048;

/// A TCP packet that came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    /// When, since 1970.
    pub(crate) at: Duration,
    pub(crate) from_port: u16,
    pub(crate) to_port: u16,
    pub(crate) flags: u8,
    pub(crate) payload: usize,
}

/// Sees every packet of every interface of a namespace from when it is opened on.
#[derive(Debug)]
pub(crate) struct Tap(OwnedFd);

impl Tap {
    pub(crate) fn open(ns: &NetNs) -> io::Result<Self> {
        ns.run(|| {
            let tap = socket(
                AddressFamily::Packet,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::EthAll,
            )?;
            setsockopt(&tap, sockopt::ReceiveTimestampns, &true)?;
            Ok(Self(tap))
        })
    }

    /// The next TCP packet; none when there is none within a time.
    pub(crate) fn next(&self, within: Duration) -> io::Result<Option<Passed>> {
        let wait = Timespec::try_from(within).map_err(io::Error::other)?;
        loop {
            let mut ready = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            if retry_on_intr(|| poll(&mut ready, Some(&wait)))? == 0 {
                return Ok(None);
            }
            if let Some(passed) = self.read()? {
                return Ok(Some(passed));
            }
        }
    }

    fn read(&self) -> io::Result<Option<Passed>> {
        let (mut bytes, mut control) = ([0; HEAD], nix::cmsg_space!(nix::sys::time::TimeSpec));
        let mut parts = [io::IoSliceMut::new(&mut bytes)];
        let received = recvmsg::<()>(
            self.0.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_TRUNC,
        )?;
        let stamp = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let length = received.bytes.min(HEAD);
        let view = TcpView::of(&bytes[..length]);
        Ok(stamp.zip(view).map(|(at, view)| {
            let (from_port, to_port) = view.ports(&bytes);
            Passed {
                at,
                from_port,
                to_port,
                flags: view.flags,
                payload: view.payload_len(),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use manypath_sim::view::{ACK, SYN};

    use super::*;

    #[test]
    fn a_connection_comes_by_in_order() {
        if let Err(why) = crate::netns::acquire() {
            eprintln!("skipped: {why}");
            return;
        }
        let ns = NetNs::new("tap").expect("a namespace");
        let tap = Tap::open(&ns).expect("the right to see packets");
        let port = ns.run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let to = listener.local_addr().expect("bound");
            let _client = TcpStream::connect(to).expect("it listens");
            to.port()
        });
        let next = || {
            let passed = tap.next(Duration::from_secs(5)).expect("it reads");
            passed.expect("a packet")
        };
        let first = next();
        assert_eq!((first.to_port, first.flags & (SYN | ACK)), (port, SYN));
        let answer = std::iter::repeat_with(next).find(|passed| passed.from_port == port);
        let answer = answer.expect("endless");
        assert_eq!(answer.flags & (SYN | ACK), SYN | ACK);
        assert!(answer.at >= first.at && answer.payload == 0);
    }
}
