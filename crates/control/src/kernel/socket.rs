//! Netlink as this module needs it: attributes, a question with its answers, and a socket that listens.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer,
    NlaBuffer,
};
use netlink_sys::{AsyncSocket, Socket, SocketAddr, TokioSocket};

/// `NLMSG_ERROR` and `NLMSG_DONE` of linux/netlink.h.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Flags of an answer that refuses: the request is not repeated in it, and attributes say more.
const CAPPED: u16 = 0x100;
const MORE: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`.
const MESSAGE: u16 = 1;
/// What the kernel may keep for us when much happens at once, bytes.
const ROOM: i32 = 8 << 20;
/// Longest message that is told, bytes; they are of a hundred.
const DATAGRAM: usize = 1 << 14;

/// The attributes of a message, with their numbers; what cannot be read ends them.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let nla = NlaBuffer::new_checked(rest).ok()?;
        let (kind, length) = (nla.kind(), usize::from(nla.length()));
        let value = rest.get(NLA_HEADER_SIZE..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// One of them.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// A number in the host's order.
pub(super) fn u16_of(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// A number in the host's order.
pub(super) fn u32_of(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// A number in the host's order.
pub(super) fn u64_of(value: &[u8]) -> Option<u64> {
    value.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

/// Appends an attribute.
pub(super) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let nla = DefaultNla::new(kind, value.to_vec());
    let at = out.len();
    out.resize(at + nla.buffer_len(), 0);
    nla.emit(&mut out[at..]);
}

/// Why the kernel does not do something.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The socket failed.
    Socket(io::Error),
    /// The kernel's word on it.
    Kernel {
        /// As `errno` numbers it.
        error: io::Error,
        /// What it adds in words.
        message: Option<String>,
    },
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Socket(error) => error,
            Refusal::Kernel { error, message } => match message {
                Some(message) => Self::new(error.kind(), format!("{error}: {message}")),
                None => error,
            },
        }
    }
}

/// A socket for questions. The kernel answers before it lets the sender go on, so nothing waits here.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens one for a netlink protocol.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Refusals in words; kernels that cannot say more say a number.
        let _ = socket.set_ext_ack(true);
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Asks for one thing, or to do one.
    pub(super) fn ask(&mut self, kind: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
        self.send(kind, NLM_F_ACK, body)
    }

    /// Asks for a whole table.
    pub(super) fn dump(&mut self, kind: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
        self.send(kind, NLM_F_DUMP, body)
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, Refusal> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = vec![0; 16 + body.len()];
        bytes[16..].copy_from_slice(body);
        let mut message = NetlinkBuffer::new(&mut bytes);
        message.set_length(u32::try_from(16 + body.len()).unwrap_or(u32::MAX));
        message.set_message_type(kind);
        message.set_flags(NLM_F_REQUEST | flags);
        message.set_sequence_number(self.sequence);
        self.socket.send(&bytes, 0)?;
        let mut found = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                if message.sequence_number() != self.sequence {
                    continue;
                }
                match message.message_type() {
                    DONE => return Ok(found),
                    ERROR => return refusal(&message).map_or(Ok(found), Err),
                    _ => found.push(message.payload().to_vec()),
                }
            }
        }
    }
}

/// The messages of a datagram.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(bytes).ok()?;
        let length = (message.length() as usize).next_multiple_of(4);
        bytes = bytes.get(length..).unwrap_or(&[]);
        Some(message)
    })
}

/// What an `NLMSG_ERROR` says; nothing where it is an acknowledgement.
fn refusal(message: &NetlinkBuffer<&[u8]>) -> Option<Refusal> {
    let payload = message.payload();
    let code = i32::from_ne_bytes(*payload.first_chunk()?);
    if code == 0 {
        return None;
    }
    // Behind the number come the request, or only its header, and then the attributes.
    let asked = payload.get(4..).and_then(u32_of).unwrap_or(16) as usize;
    let skip = match message.flags() & CAPPED {
        0 => 4 + asked.next_multiple_of(4),
        _ => 4 + 16,
    };
    let text = (message.flags() & MORE != 0)
        .then(|| {
            payload
                .get(skip..)
                .and_then(|more| attribute(more, MESSAGE))
        })
        .flatten()
        .map(|text| {
            let text = String::from_utf8_lossy(text);
            text.trim_end_matches('\0').to_owned()
        });
    Some(Refusal::Kernel {
        error: io::Error::from_raw_os_error(code.wrapping_neg()),
        message: text,
    })
}

/// A socket on which the kernel tells what happens.
pub(super) struct Ear {
    socket: TokioSocket,
    /// What came while it was waited for; `None` where something was lost.
    kept: VecDeque<Option<Vec<u8>>>,
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ear").finish_non_exhaustive()
    }
}

/// A message: its kind and what it carries.
pub(super) type Heard = (u16, Vec<u8>);

impl Ear {
    /// Listens to groups of a netlink protocol. Must be called within a runtime.
    pub(super) fn open(protocol: isize, groups: &[u32]) -> io::Result<Self> {
        let mut socket = TokioSocket::new(protocol)?;
        socket.socket_mut().bind_auto()?;
        for group in groups {
            socket.socket_mut().add_membership(*group)?;
        }
        // The system may allow less.
        let _ = socket.socket_ref().set_rx_buf_sz(ROOM);
        Ok(Self {
            socket,
            kept: VecDeque::new(),
        })
    }

    /// The messages that have come; empty when none waits now, `None` when some did not fit.
    pub(super) fn heard(&mut self) -> io::Result<Option<Vec<Heard>>> {
        let next = match self.kept.pop_front() {
            Some(kept) => Ok(kept),
            None => match self.socket.socket_ref().recv_from_full() {
                Ok((datagram, _)) => Ok(Some(datagram)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(Vec::new())),
                Err(error) => lost(error),
            },
        };
        let read = |m: NetlinkBuffer<&[u8]>| (m.message_type(), m.payload().to_vec());
        Ok(next?.map(|datagram| messages(&datagram).map(read).collect()))
    }

    /// Waits until something has come. May be given up.
    pub(super) async fn listen(&mut self) -> io::Result<()> {
        let mut datagram = Vec::with_capacity(DATAGRAM);
        let kept = match poll_fn(|cx| self.socket.poll_recv(cx, &mut datagram)).await {
            Ok(()) => Some(datagram),
            Err(error) => lost(error)?,
        };
        self.kept.push_back(kept);
        Ok(())
    }
}

/// `ENOBUFS` of netlink(7): the kernel has dropped messages for which there was no room.
fn lost<T>(error: io::Error) -> io::Result<Option<T>> {
    match error.raw_os_error() {
        Some(105) => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_written_and_read() {
        let mut bytes = Vec::new();
        put(&mut bytes, 1, &[7]);
        put(&mut bytes, 2, &5_u32.to_ne_bytes());
        assert_eq!(bytes.len(), 16);
        assert_eq!(attribute(&bytes, 1), Some(&[7][..]));
        assert_eq!(attribute(&bytes, 2).and_then(u32_of), Some(5));
        assert_eq!(attribute(&bytes, 3), None);
        assert_eq!(attributes(&bytes[..10]).count(), 1);
    }
}
