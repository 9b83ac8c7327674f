//! Packet sockets (`AF_PACKET`): options, filters and batched calls. See packet(7).

use super::check;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most packets one system call moves in either direction.
pub(crate) const BATCH_MAX: usize = 64;

const EMPTY_VECTOR: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// A message header for one buffer. Headers that a call does not use are never written: clearing 64 of them for each
/// call would cost more than a small packet.
fn message(vector: *mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: `mmsghdr` is plain old data for which all-zero bytes are a valid value.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = vector;
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// A raw packet socket. Until [`PacketSocket::bind`] names a protocol it receives nothing.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl PacketSocket {
    /// A non-blocking raw packet socket that receives nothing yet.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`.
    pub(crate) fn new() -> io::Result<Self> {
        Self::of_kind(libc::SOCK_RAW)
    }

    /// The same for packets from their IP header on ([`PacketSocket::send_by`]).
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`.
    pub(crate) fn without_link_headers() -> io::Result<Self> {
        Self::of_kind(libc::SOCK_DGRAM)
    }

    fn of_kind(kind: libc::c_int) -> io::Result<Self> {
        // SAFETY: `socket` takes no pointers.
        let fd = check(unsafe {
            libc::socket(
                libc::AF_PACKET,
                kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                0,
            )
        })?;
        // SAFETY: the kernel just gave us this descriptor, nothing else owns it.
        Ok(PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Binds to one interface; `protocol` is an Ethernet type, `ETH_P_ALL`, or 0 to receive nothing.
    pub(crate) fn bind(&self, ifindex: u32, protocol: u16) -> io::Result<()> {
        let addr = address(ifindex, protocol);
        // SAFETY: the pointer and length describe `addr`, which lives across the call.
        check(unsafe {
            libc::bind(
                self.0.as_raw_fd(),
                (&raw const addr).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    fn set<T: Copy>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        // SAFETY: pointer and length describe `value`, a live `Copy` value without invariants the kernel could break,
        // since `setsockopt` only reads it.
        check(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        })?;
        Ok(())
    }

    /// Every packet carries a virtio network header before its Ethernet header, both ways.
    pub(crate) fn set_vnet_header(&self, on: bool) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, &i32::from(on))
    }

    /// Do not deliver what this host sends on the interface.
    pub(crate) fn set_ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)
    }

    /// Hand packets to the driver without the interface's queueing discipline.
    pub(crate) fn set_qdisc_bypass(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32)
    }

    /// Asks for socket buffers of `bytes` each way, beyond the system's limit where we are allowed to.
    pub(crate) fn set_buffers(&self, bytes: usize) -> io::Result<()> {
        let wanted = i32::try_from(bytes).unwrap_or(i32::MAX);
        for (force, plain) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            if self.set(libc::SOL_SOCKET, force, &wanted).is_err() {
                self.set(libc::SOL_SOCKET, plain, &wanted)?;
            }
        }
        Ok(())
    }

    /// Asks the interface to receive the Ethernet multicast group `mac`, for as long as the socket lives.
    pub(crate) fn join_multicast(&self, ifindex: u32, mac: [u8; 6]) -> io::Result<()> {
        // SAFETY: `packet_mreq` is plain old data for which all-zero bytes are a valid value.
        let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
        request.mr_ifindex = ifindex as i32;
        request.mr_type = libc::PACKET_MR_MULTICAST as u16;
        request.mr_alen = 6;
        request.mr_address[..6].copy_from_slice(&mac);
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Packets the kernel could not queue for this socket since the last call.
    pub(crate) fn take_drops(&self) -> io::Result<u32> {
        // SAFETY: `tpacket_stats` is plain old data for which all-zero bytes are a valid value.
        let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: pointer and length describe `stats`, which lives across the call.
        check(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        })?;
        Ok(stats.tp_drops)
    }

    /// Receives up to `lens.len()` packets (at most [`BATCH_MAX`]), the i-th at `slab[i * stride..]`. Returns how many;
    /// `lens[i]` is 0 for a packet that did not fit its stride.
    ///
    /// # Errors
    /// `WouldBlock` when nothing waits; `NetworkDown` when the interface is down.
    pub(crate) fn recv_batch(
        &self,
        slab: &mut [u8],
        stride: usize,
        lens: &mut [u32],
    ) -> io::Result<usize> {
        receive(slab, stride, lens, |messages, count| {
            // SAFETY: `receive` says what it hands over.
            check(unsafe {
                libc::recvmmsg(
                    self.0.as_raw_fd(),
                    messages,
                    count,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            })
        })
    }

    /// Sends one packet, from its IP header on, by a socket [without link headers](PacketSocket::without_link_headers); `protocol` is
    /// its Ethernet type.
    ///
    /// # Errors
    /// Those of [`PacketSocket::send_batch`].
    pub(crate) fn send_by(&self, ifindex: u32, protocol: u16, packet: &[u8]) -> io::Result<()> {
        let to = address(ifindex, protocol);
        // SAFETY: pointers and lengths describe `packet` and `to`, which live across the call and are only read.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Sends `parts` of `slab`, one packet each, in order. Returns how many went (at least one, or an error).
    ///
    /// # Errors
    /// `WouldBlock` when the socket's buffer is full; `ENOBUFS` when the interface's queue dropped the packet.
    pub(crate) fn send_batch(&self, slab: &[u8], parts: &[Range<usize>]) -> io::Result<usize> {
        let count = parts.len().min(BATCH_MAX);
        if let [one] = parts {
            let bytes = &slab[one.clone()];
            // SAFETY: pointer and length describe `bytes`, which lives across the call and is only read.
            let sent = unsafe {
                libc::send(
                    self.0.as_raw_fd(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            return if sent < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(1)
            };
        }
        send(slab, &parts[..count], |messages, count| {
            // SAFETY: `send` says what it hands over; `sendmmsg` reads the bytes and writes only the headers.
            check(unsafe {
                libc::sendmmsg(self.0.as_raw_fd(), messages, count, libc::MSG_DONTWAIT)
            })
        })
    }
}

/// An interface, and an Ethernet type on it.
fn address(ifindex: u32, protocol: u16) -> libc::sockaddr_ll {
    // SAFETY: `sockaddr_ll` is plain old data for which all-zero bytes are a valid value.
    let mut addr: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    addr.sll_family = libc::AF_PACKET as u16;
    addr.sll_protocol = protocol.to_be();
    addr.sll_ifindex = ifindex as i32;
    addr
}

/// Points a header at each `stride` of `slab` and hands the headers to `call`, which may write through the first that
/// many of them, each of which points at one live vector, and each vector at a part of `slab` that is disjoint from the
/// others and exclusively borrowed; none of them moves meanwhile. `call` says how many it filled in.
fn receive(
    slab: &mut [u8],
    stride: usize,
    lens: &mut [u32],
    call: impl FnOnce(*mut libc::mmsghdr, libc::c_uint) -> io::Result<libc::c_int>,
) -> io::Result<usize> {
    let count = lens.len().min(BATCH_MAX).min(slab.len() / stride.max(1));
    let mut vectors = [EMPTY_VECTOR; BATCH_MAX];
    let mut messages = [const { MaybeUninit::uninit() }; BATCH_MAX];
    for (i, part) in slab.chunks_exact_mut(stride).take(count).enumerate() {
        vectors[i] = libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        };
        messages[i].write(message(&raw mut vectors[i]));
    }
    let got = call(messages.as_mut_ptr().cast(), count as libc::c_uint)? as usize;
    for (len, message) in lens.iter_mut().zip(&messages).take(got.min(count)) {
        // SAFETY: the first `count` headers were all written above.
        let message = unsafe { message.assume_init_ref() };
        let cut = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        *len = if cut { 0 } else { message.msg_len };
    }
    Ok(got)
}

/// Points a header at each of `parts`, which are at most [`BATCH_MAX`], and hands the headers to `call`: each points at
/// one live vector, and each vector at live bytes of `slab`, which may only be read. `call` says how many it sent.
fn send(
    slab: &[u8],
    parts: &[Range<usize>],
    call: impl FnOnce(*mut libc::mmsghdr, libc::c_uint) -> io::Result<libc::c_int>,
) -> io::Result<usize> {
    let mut vectors = [EMPTY_VECTOR; BATCH_MAX];
    let mut messages = [const { MaybeUninit::uninit() }; BATCH_MAX];
    for (i, part) in parts.iter().enumerate() {
        let bytes = &slab[part.clone()];
        vectors[i] = libc::iovec {
            // The kernel only reads through this pointer; `iovec` has no const form.
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        messages[i].write(message(&raw mut vectors[i]));
    }
    let sent = call(messages.as_mut_ptr().cast(), parts.len() as libc::c_uint)?;
    Ok(sent as usize)
}

/// The kernel's part is played by the tests, so that Miri can follow the pointers.
#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a header points at.
    fn part(message: &libc::mmsghdr) -> (*mut u8, usize) {
        assert_eq!(message.msg_hdr.msg_iovlen, 1);
        // SAFETY: the header was made by `receive` or `send`, whose vectors live until the call is over.
        let vector = unsafe { *message.msg_hdr.msg_iov };
        (vector.iov_base.cast(), vector.iov_len)
    }

    #[test]
    fn packets_are_received_where_they_belong() {
        let mut slab = [0; 35];
        let mut lens = [9; 5];
        let got = receive(&mut slab, 10, &mut lens, |messages, count| {
            assert_eq!(count, 3, "a part that is too short is left alone");
            // SAFETY: `receive` made that many headers, which nobody else uses now.
            let messages = unsafe { std::slice::from_raw_parts_mut(messages, count as usize) };
            for (i, message) in messages.iter_mut().take(2).enumerate() {
                let (at, len) = part(message);
                assert_eq!(len, 10);
                // SAFETY: all of the part is ours to write.
                unsafe { at.write_bytes(i as u8 + 1, len) };
                message.msg_len = 7;
                message.msg_hdr.msg_flags = if i == 1 { libc::MSG_TRUNC } else { 0 };
            }
            Ok(2)
        });
        assert_eq!(got.ok(), Some(2));
        assert_eq!(lens, [7, 0, 9, 9, 9], "what was cut does not count");
        assert_eq!(slab[..10], [1; 10]);
        assert_eq!(slab[10..20], [2; 10]);
        assert_eq!(slab[20..], [0; 15]);
    }

    #[test]
    fn packets_are_sent_from_where_they_are() {
        let slab: Vec<u8> = (0..100).collect();
        let parts = [0..3, 40..40, 90..100, 1..2];
        let sent = send(&slab, &parts, |messages, count| {
            // SAFETY: `send` made that many headers, which nobody else uses now.
            let messages = unsafe { std::slice::from_raw_parts(messages, count as usize) };
            for (message, expected) in messages.iter().zip(&parts) {
                let (at, len) = part(message);
                // SAFETY: all of the part may be read.
                let bytes = unsafe { std::slice::from_raw_parts(at, len) };
                assert_eq!(bytes, &slab[expected.clone()]);
            }
            Ok(messages.len() as libc::c_int)
        });
        assert_eq!(sent.ok(), Some(4));
    }

    #[test]
    fn errors_of_the_call_are_handed_on() {
        let blocked = || Err(io::ErrorKind::WouldBlock.into());
        let error = receive(&mut [0; 8], 4, &mut [0; 2], |_, _| blocked()).err();
        assert_eq!(error.map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
        let error = send(&[0; 8], &[0..4, 4..8], |_, _| blocked()).err();
        assert_eq!(error.map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
