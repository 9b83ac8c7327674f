//! What an application that knows of Multipath TCP can ask of a stream: the basic interface of RFC 6897 section 5, by methods
//! where that has socket options, and what happens to its paths.
//!
//! | RFC 6897 | here |
//! |---|---|
//! | `TCP_MULTIPATH_ENABLE`, before | [`Connect::multipath`] |
//! | `TCP_MULTIPATH_ENABLE`, after | [`MpStream::is_multipath`] |
//! | `TCP_MULTIPATH_ADD` | [`MpStream::add_addresses`] |
//! | `TCP_MULTIPATH_REMOVE` | [`MpStream::remove_addresses`] |
//! | `TCP_MULTIPATH_SUBFLOWS` | [`MpStream::subflow_addresses`] |
//! | `TCP_MULTIPATH_CONNID` | [`MpStream::connection_id`] |
//! | `bind` before `connect` | [`Connect::from`] |
//! | `getpeername`, `getsockname` | [`MpStream::peer_addr`], [`MpStream::local_addr`]: those of the first subflow (section 4.2) |

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use manypath_stack::ids::ConnId;
use manypath_stack::{Command, Ending, Event, EventKind, Mode, NewSubflow, ProtocolLevel, Role};
use tokio::sync::mpsc;

use super::stream::{Connect, MpStream};

impl Connect {
    /// Offers Multipath TCP, as is the default, or stays with TCP (`TCP_MULTIPATH_ENABLE`).
    #[must_use]
    pub fn multipath(self, enable: bool) -> Self {
        let mode = if enable {
            Mode::Multipath
        } else {
            Mode::PlainTcp
        };
        self.with(|options| options.mode = mode)
    }
}

impl MpStream {
    /// Whether Multipath TCP is in use, and not TCP (`TCP_MULTIPATH_ENABLE` after the handshake).
    ///
    /// # Errors
    /// `NotConnected` when the stack has forgotten the connection.
    pub fn is_multipath(&self) -> io::Result<bool> {
        Ok(self.info()?.level != ProtocolLevel::PlainTcp)
    }

    /// Uses more of our addresses (`TCP_MULTIPATH_ADD`): the side that opened the connection joins from each that has no
    /// subflow yet, the other side announces them.
    ///
    /// # Errors
    /// Those of [`MpStream::command`], at the first address that cannot be used; those before it are in use.
    pub fn add_addresses(&self, local: &[IpAddr]) -> io::Result<()> {
        let info = self.info()?;
        for &addr in local {
            let is_used = |subflow: &manypath_stack::SubflowInfo| subflow.tuple.local.ip() == addr;
            if info.role == Role::Responder {
                self.command(Command::Announce { addr, port: None })?;
            } else if !info.subflows.iter().any(is_used) {
                // The first subflow's, or one of our address's family that the peer has told us of.
                let fits = |remote: &SocketAddr| remote.is_ipv4() == addr.is_ipv4();
                let mut known = info.remotes.iter().map(|peer| peer.addr);
                let remote = Some(info.remote).filter(fits).or_else(|| known.find(fits));
                self.command(Command::Create(NewSubflow {
                    local: Some(addr),
                    remote: remote.map(|remote| remote.ip()),
                    ..NewSubflow::default()
                }))?;
            }
        }
        Ok(())
    }

    /// Uses some of our addresses no more (`TCP_MULTIPATH_REMOVE`): their subflows end by a FIN, and the peer is told where
    /// it knew of them.
    ///
    /// # Errors
    /// `BrokenPipe` if no subflow would be left, `NotConnected` when the connection is over.
    pub fn remove_addresses(&self, local: &[IpAddr]) -> io::Result<()> {
        let info = self.info()?;
        let goes = |addr: IpAddr| local.contains(&addr);
        if info
            .subflows
            .iter()
            .all(|subflow| goes(subflow.tuple.local.ip()))
        {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "no subflow would be left; close the connection instead",
            ));
        }
        for subflow in info.subflows.iter().filter(|s| goes(s.tuple.local.ip())) {
            let (subflow, ending) = (subflow.id, Ending::Fin);
            self.command(Command::Destroy { subflow, ending })?;
        }
        for address in info.locals.iter().filter(|a| a.announced && goes(a.addr)) {
            self.command(Command::Withdraw { id: address.id })?;
        }
        Ok(())
    }

    /// Our and the peer's address of each subflow (`TCP_MULTIPATH_SUBFLOWS`).
    ///
    /// # Errors
    /// `NotConnected` when the stack has forgotten the connection.
    pub fn subflow_addresses(&self) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
        let info = self.info()?;
        let ends =
            |subflow: &manypath_stack::SubflowInfo| (subflow.tuple.local, subflow.tuple.remote);
        Ok(info.subflows.iter().map(ends).collect())
    }

    /// What the connection is called on this host (`TCP_MULTIPATH_CONNID`): our token, `None` over TCP.
    ///
    /// # Errors
    /// `NotConnected` when the stack has forgotten the connection.
    pub fn connection_id(&self) -> io::Result<Option<u32>> {
        Ok(self.info()?.token.map(|token| token.0))
    }

    /// What happens to the connection's subflows and to our addresses from now on: the events that a controller gets.
    #[must_use]
    pub fn path_events(&self) -> PathEvents {
        let (events, lost) = self.host().path_events();
        let conn = self.id();
        PathEvents {
            events,
            lost,
            conn,
            ended: false,
        }
    }
}

/// Events of one connection's paths, see [`MpStream::path_events`].
#[derive(Debug)]
pub struct PathEvents {
    events: mpsc::Receiver<Event>,
    lost: Arc<AtomicU64>,
    conn: ConnId,
    ended: bool,
}

impl PathEvents {
    /// The next one; `None` after `Closed`, which is the last. May be given up and called again.
    pub async fn next(&mut self) -> Option<Event> {
        while !self.ended {
            let event = self.events.recv().await?;
            if event.conn.is_none_or(|conn| conn == self.conn) {
                self.ended = matches!(event.kind, EventKind::Closed(_));
                return Some(event);
            }
        }
        None
    }

    /// How many events of the whole stack came while more than a hundred thousand were waiting here, and were left out.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
