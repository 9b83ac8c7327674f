//! One connection through the middle: what its client says, and what its packets tell.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpStream};

use manypath_sim::view::{ACK, SYN};
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::super::super::real::PATIENCE;
use crate::tap::Passed;

/// Bytes of an exchange: one packet each way.
const DATA: usize = 1000;
/// As Linux names it (`MSG_FASTOPEN`): connects and says something with the SYN.
const FAST_OPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);

/// What a client says before its data, and what makes the middle turn to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// Nothing; the SYN itself goes on.
    Routed,
    /// Nothing; a connection that is there.
    Connected,
    /// CONNECT, in a connection that is there.
    Request,
    /// Connect of RFC 8803, in the SYN.
    WithSyn,
}

impl Opening {
    /// Connects, and exchanges data with the server twice: the first time what stands in between may still be connecting. Gives the
    /// client's port. The first connection by a converter learns a token for the next ones, before which the converter does not believe
    /// where a SYN comes from.
    pub(super) fn talk(
        self,
        relay: SocketAddr,
        server: SocketAddrV4,
        token: &mut Vec<u8>,
    ) -> io::Result<u16> {
        let mut stream = self.connect(relay, server, token)?;
        let port = stream.local_addr()?.port();
        stream.set_nodelay(true)?;
        let mut answer = [0; DATA];
        for _ in 0..2 {
            stream.write_all(&[0x61; DATA])?;
            stream.read_exact(&mut answer)?;
        }
        stream.shutdown(Shutdown::Write)?;
        while stream.read(&mut answer)? > 0 {}
        Ok(port)
    }

    fn connect(
        self,
        relay: SocketAddr,
        server: SocketAddrV4,
        token: &mut Vec<u8>,
    ) -> io::Result<TcpStream> {
        let protocol = match self {
            Self::Routed => Protocol::TCP,
            _ => Protocol::MPTCP,
        };
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
        if self == Self::WithSyn {
            let message = connect_message(server, token);
            let taken = rustix::net::sendto(&socket, &message, FAST_OPEN, &relay)?;
            if taken < message.len() {
                return Err(io::ErrorKind::WriteZero.into());
            }
        } else {
            socket.connect_timeout(&relay.into(), PATIENCE)?;
        }
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut stream = TcpStream::from(socket);
        match self {
            Self::Routed | Self::Connected => {}
            Self::Request => request(&mut stream, server)?,
            Self::WithSyn => success(&mut stream, token)?,
        }
        Ok(stream)
    }
}

/// The fixed header, a Cookie with the token, and a Connect (RFC 8803 sections 4.1, 4.2.9 and 4.2.5): lengths are in words of four bytes.
/// An empty Cookie asks for a token.
fn connect_message(server: SocketAddrV4, token: &[u8]) -> Vec<u8> {
    let words = (token.len() / 4) as u8;
    let mut message = vec![1, 7 + words, 0x22, 0x63, COOKIE, 1 + words, 0, 0];
    message.extend_from_slice(token);
    message.extend_from_slice(&[0x0a, 5]);
    message.extend_from_slice(&server.port().to_be_bytes());
    message.extend_from_slice(&server.ip().to_ipv6_mapped().octets());
    message
}

/// Types of TLVs.
const COOKIE: u8 = 22;
const ERROR: u8 = 30;

/// Reads the converter's answer, with a token in it where one was asked for.
fn success(stream: &mut TcpStream, token: &mut Vec<u8>) -> io::Result<()> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut tlvs = vec![0; usize::from(header[1]).saturating_sub(1) * 4];
    stream.read_exact(&mut tlvs)?;
    match tlvs.first() {
        Some(&ERROR) => Err(io::Error::other(format!("the converter says {tlvs:?}"))),
        Some(&COOKIE) => {
            *token = tlvs.split_off(4);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn request(stream: &mut TcpStream, server: SocketAddrV4) -> io::Result<()> {
    write!(
        stream,
        "CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n"
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head);
    match text.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(io::Error::other(text.into_owned())),
    }
}

/// Microseconds that the middle took, there and back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Delays {
    /// From what made it turn to the server to the SYN there, and from the server's answer to the client's.
    pub(super) connecting: f64,
    /// Of the last exchange.
    pub(super) data: f64,
}

/// Packets that passed at one end, by where they went.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Towards the server.
    pub(super) there: Vec<Passed>,
    /// Towards the client.
    pub(super) back: Vec<Passed>,
}

/// What the packets of one connection tell, as they passed at the client and at the server. Nothing while some are missing.
pub(super) fn delays(opening: Opening, client: &Ways, server: &Ways) -> Option<Delays> {
    let is_syn = |p: &&Passed| p.flags & (SYN | ACK) == SYN;
    let is_answer = |p: &&Passed| p.flags & (SYN | ACK) == SYN | ACK;
    let has_data = |p: &&Passed| p.payload > 0 && p.flags & SYN == 0;

    let (out, into) = (|| client.there.iter(), || client.back.iter());
    let asked = match opening {
        Opening::Routed | Opening::WithSyn => out().find(is_syn)?,
        Opening::Connected => out().find(|p| p.flags & SYN == 0)?,
        Opening::Request => out().find(has_data)?,
    };
    let syn = server.there.iter().find(is_syn)?;
    let answer = server.back.iter().find(is_answer)?;
    let told = match opening {
        Opening::Routed | Opening::WithSyn => Some(into().find(is_answer)?),
        // Such a client was told before there was a connection to the server.
        Opening::Connected => None,
        Opening::Request => Some(into().find(has_data)?),
    };
    let back = told.map_or(Some(0.0), |told| between(answer, told))?;
    let last = |packets: &[Passed]| packets.iter().rfind(has_data).copied();
    let there = between(&last(&client.there)?, &last(&server.there)?)?;
    Some(Delays {
        connecting: between(asked, syn)? + back,
        data: there + between(&last(&server.back)?, &last(&client.back)?)?,
    })
}

/// Microseconds from one packet to another that is not before it.
fn between(from: &Passed, to: &Passed) -> Option<f64> {
    let time = to.at.checked_sub(from.at)?;
    Some(time.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn passed(us: u64, flags: u8, payload: usize) -> Passed {
        Passed {
            at: Duration::from_micros(us),
            from_port: 1,
            to_port: 2,
            flags,
            payload,
        }
    }

    #[test]
    fn times_within_the_middle_are_added_up_and_those_of_the_ends_left_out() {
        let client = Ways {
            there: vec![
                passed(0, SYN, 24),
                passed(130, ACK, 0),
                passed(140, ACK, 50),
                passed(1000, ACK, DATA),
            ],
            back: vec![
                passed(120, SYN | ACK, 0),
                passed(600, ACK, 39),
                passed(1110, ACK, DATA),
            ],
        };
        let server = Ways {
            there: vec![passed(170, SYN, 0), passed(1020, ACK, DATA)],
            back: vec![passed(175, SYN | ACK, 0), passed(1080, ACK, DATA)],
        };
        let of = |opening| delays(opening, &client, &server);
        let connecting = |opening| of(opening).expect("whole").connecting.round();
        assert_eq!(connecting(Opening::Connected), 40.0);
        assert_eq!(connecting(Opening::Request), 30.0 + 425.0);
        assert_eq!(of(Opening::Request).expect("whole").data.round(), 50.0);
        // An answer before the server's own is no answer of the server.
        assert_eq!(of(Opening::WithSyn), None);
        assert_eq!(delays(Opening::Routed, &client, &Ways::default()), None);
    }

    #[test]
    fn connect_is_as_rfc_8803_has_it() {
        let server = SocketAddrV4::new([10, 78, 0, 2].into(), 80);
        let connect = [
            10, 5, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 78, 0, 2,
        ];
        let message = connect_message(server, &[]);
        assert_eq!(message[..8], [1, 7, 0x22, 0x63, 22, 1, 0, 0]);
        assert_eq!(message[8..], connect);
        let message = connect_message(server, &[9; 20]);
        assert_eq!(message[..8], [1, 12, 0x22, 0x63, 22, 6, 0, 0]);
        assert_eq!(
            (&message[8..28], &message[28..]),
            (&[9; 20][..], &connect[..])
        );
    }
}
