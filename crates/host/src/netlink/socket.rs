//! One request, its answers.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

fn connect() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

fn send(socket: &Socket, flags: u16, message: RouteNetlinkMessage) -> io::Result<()> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = 1;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0).map(|_| ())
}

/// Divides one datagram into its messages; those of kinds we cannot read are left out.
pub(super) fn messages(mut bytes: &[u8]) -> Vec<NetlinkMessage<RouteNetlinkMessage>> {
    let mut found = Vec::new();
    while let Some(len) = bytes.first_chunk().map(|b| u32::from_ne_bytes(*b) as usize) {
        if len < 16 || len > bytes.len() {
            break;
        }
        if let Ok(message) = NetlinkMessage::deserialize(&bytes[..len]) {
            found.push(message);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    found
}

/// Asks for a whole table.
///
/// # Errors
/// Those of the netlink socket and of the kernel.
pub fn dump(request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
    let socket = connect()?;
    send(&socket, NLM_F_DUMP, request)?;
    let mut found = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        for message in messages(&bytes) {
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(found),
                NetlinkPayload::Error(e) => match e.code {
                    Some(_) => return Err(e.to_io()),
                    None => return Ok(found),
                },
                NetlinkPayload::InnerMessage(inner) => found.push(inner),
                _ => {}
            }
        }
    }
}

/// Asks one question that has one answer.
///
/// # Errors
/// Those of the netlink socket and of the kernel; `InvalidData` for an answer that cannot be read, as with a name that is not UTF-8.
pub fn ask(request: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
    let socket = connect()?;
    // The acknowledgement comes after the answer, whether that can be read or not.
    send(&socket, NLM_F_ACK, request)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        for message in messages(&bytes) {
            match message.payload {
                NetlinkPayload::Error(e) if e.code.is_none() => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                NetlinkPayload::Error(e) => return Err(e.to_io()),
                NetlinkPayload::InnerMessage(inner) => return Ok(inner),
                _ => {}
            }
        }
    }
}

/// Changes something and waits for the kernel's word on it.
pub(super) fn change(flags: u16, request: RouteNetlinkMessage) -> io::Result<()> {
    let socket = connect()?;
    send(&socket, NLM_F_ACK | flags, request)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        for message in messages(&bytes) {
            if let NetlinkPayload::Error(e) = message.payload {
                return match e.code {
                    Some(_) => Err(e.to_io()),
                    None => Ok(()),
                };
            }
        }
    }
}
