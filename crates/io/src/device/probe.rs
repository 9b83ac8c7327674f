//! Is an address in use on a link? Asked before it is taken (RFC 5227, section 2.1; RFC 4862, section 5.4).

use crate::neigh::arp::{Arp, Operation};
use crate::neigh::nd::{self, Discovery, Message};
use crate::neigh::{EtherType, Frame, Mac};
use crate::sys::packet::PacketSocket;
use crate::vnet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Questions asked, and how long each waits for an answer. Shorter than the standards' seconds: the addresses are chosen by
/// people, and a conflict that shows later is still counted and contested.
const ROUNDS: u32 = 2;
const ROUND: Duration = Duration::from_millis(60);
const STRIDE: usize = 2048;
const BATCH: usize = 16;
const ETH_P_ALL: u16 = 3;

/// Asks for `addrs` on the interface and returns the first that somebody has, with their hardware address. Blocks for about
/// a tenth of a second.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_RAW`; those of the socket.
pub(crate) fn in_use(index: u32, mac: Mac, addrs: &[IpAddr]) -> io::Result<Option<(IpAddr, Mac)>> {
    let socket = PacketSocket::new()?;
    socket.set_vnet_header(true)?;
    socket.set_ignore_outgoing()?;
    for addr in addrs {
        if let IpAddr::V6(addr) = addr {
            socket.join_multicast(index, nd::multicast_mac(nd::solicited_node(*addr)).0)?;
        }
    }
    socket.bind(index, ETH_P_ALL)?;
    let mut slab = vec![0; STRIDE * BATCH];
    for _ in 0..ROUNDS {
        for addr in addrs {
            let mut bytes = vec![0; vnet::LEN];
            bytes.extend(question(mac, *addr));
            let len = bytes.len();
            socket.send_batch(&bytes, std::slice::from_ref(&(0..len)))?;
        }
        let end = Instant::now() + ROUND;
        while let Some(left) = end
            .checked_duration_since(Instant::now())
            .filter(|l| !l.is_zero())
        {
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&wait)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            let mut lens = [0; BATCH];
            let count = match socket.recv_batch(&mut slab, STRIDE, &mut lens) {
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e),
            };
            for (i, len) in lens.iter().take(count).enumerate() {
                let frame = &slab[i * STRIDE..i * STRIDE + *len as usize];
                let claim = frame.get(vnet::LEN..).and_then(claimed);
                if let Some((addr, by)) = claim {
                    if by != mac && addrs.contains(&addr) {
                        return Ok(Some((addr, by)));
                    }
                }
            }
        }
    }
    Ok(None)
}

/// The question from nobody: an answer must not make anybody think that we have the address already.
fn question(mac: Mac, addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(target) => Arp {
            operation: Operation::Request,
            sender_mac: mac,
            sender: Ipv4Addr::UNSPECIFIED,
            target_mac: Mac([0; 6]),
            target,
        }
        .to_frame(Mac::BROADCAST),
        IpAddr::V6(target) => {
            let dst = nd::solicited_node(target);
            Discovery {
                src: Ipv6Addr::UNSPECIFIED,
                dst,
                target,
                message: Message::Solicit { source_mac: None },
            }
            .to_frame(mac, nd::multicast_mac(dst))
        }
    }
}

/// The address that the sender of a frame says is its own.
fn claimed(bytes: &[u8]) -> Option<(IpAddr, Mac)> {
    let frame = Frame::parse(bytes)?;
    match frame.kind {
        EtherType::ARP => {
            let arp = Arp::parse(frame.payload)?;
            (!arp.sender.is_unspecified()).then_some((IpAddr::V4(arp.sender), arp.sender_mac))
        }
        EtherType::IPV6 => match Discovery::parse(frame.payload)? {
            Discovery {
                target,
                message: Message::Advert { .. },
                ..
            } => Some((IpAddr::V6(target), frame.src)),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

    #[test]
    fn questions_claim_nothing() {
        for addr in ["10.0.0.1", "fd00::1"] {
            let addr: IpAddr = addr.parse().expect("a literal");
            assert_eq!(claimed(&question(OURS, addr)), None);
        }
    }

    #[test]
    fn answers_claim_their_address() {
        let target: Ipv6Addr = "fd00::1".parse().expect("a literal");
        let advert = Discovery {
            src: target,
            dst: "ff02::1".parse().expect("a literal"),
            target,
            message: Message::Advert {
                target_mac: Some(THEIRS),
                solicited: false,
                overrides: true,
            },
        };
        let frame = advert.to_frame(THEIRS, nd::multicast_mac(advert.dst));
        assert_eq!(claimed(&frame), Some((IpAddr::V6(target), THEIRS)));
        let reply = Arp {
            operation: Operation::Reply,
            sender_mac: THEIRS,
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: OURS,
            target: Ipv4Addr::UNSPECIFIED,
        };
        assert_eq!(
            claimed(&reply.to_frame(OURS)),
            Some((IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), THEIRS))
        );
    }
}
