//! Programs of the host itself, and what the host connects by interfaces that are no paths: their packets never come to the stack,
//! so sockets of the host's kernel take their connections.
//!
//! What goes to an address of the host from the host itself travels by the loopback interface, and what comes from its containers
//! by their bridge. Neither passes the devices on which packets are taken from the kernel.

use crate::host::Host;
use crate::netlink::Snapshot;
use crate::path::covers;
use crate::sys::filter::attach_filter;
use manypath_host::hold_port;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::task::{Context as Cx, Poll};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Addresses that are listened on at most.
const MOST: usize = 128;
/// Connections that may wait to be accepted on each.
const BACKLOG: i32 = 1024;
/// What Debian and others call the host by in `/etc/hosts`. Every address of 127.0.0.0/8 is the host, but sockets are bound to one.
const BY_NAME: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);

/// Accepts plain TCP from the host's own programs, and by interfaces that are no paths, on the port of an
/// [`MpListener`](crate::MpListener). It follows the host's addresses.
#[derive(Debug)]
pub struct LocalListener {
    host: Host,
    at: SocketAddr,
    except: Vec<IpAddr>,
    sockets: BTreeMap<SocketAddr, TcpListener>,
    /// Where another program listens, or nobody may; said once.
    refused: BTreeSet<SocketAddr>,
    changes: watch::Receiver<()>,
    /// The host has changed since the sockets were opened.
    is_old: bool,
    /// Where the next look for a connection begins.
    turn: usize,
}

impl LocalListener {
    /// Listens beside a listener of ours at `at`, but not on the addresses of `except`, which another program may want. `None` where
    /// the stack has only addresses that the host does not have. What cannot be listened on is said in the log and left out.
    #[must_use]
    pub fn beside(host: &Host, at: SocketAddr, except: &[IpAddr]) -> Option<Self> {
        if !host.shares_host() {
            return None;
        }
        let mut listener = LocalListener {
            changes: host.host_changes(),
            host: host.clone(),
            at,
            except: except.to_vec(),
            sockets: BTreeMap::new(),
            refused: BTreeSet::new(),
            is_old: false,
            turn: 0,
        };
        listener.follow();
        Some(listener)
    }

    /// Where it listens now.
    pub fn local_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.keys().copied()
    }

    /// Waits for the next connection. May be given up at any time.
    ///
    /// # Errors
    /// A connection that died in the queue, or no descriptors left; go on accepting.
    pub async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            if std::mem::take(&mut self.is_old) {
                self.follow();
            }
            let accepted = {
                let mut changed = pin!(self.changes.changed());
                let (sockets, turn) = (&self.sockets, &mut self.turn);
                poll_fn(|cx| {
                    // The sender lives in the stack, which lives in this.
                    if changed.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(None);
                    }
                    poll_any(sockets, turn, cx).map(Some)
                })
                .await
            };
            match accepted {
                Some(result) => return result,
                None => self.is_old = true,
            }
        }
    }

    /// Brings the sockets in line with the host's addresses.
    fn follow(&mut self) {
        let wanted = self
            .host
            .with_snapshot(|host| local_ends(host, self.at, &self.except));
        for at in self.sockets.keys().copied().collect::<Vec<_>>() {
            if !wanted.contains(&at) {
                self.close(at);
            }
        }
        self.refused.retain(|at| wanted.contains(at));
        for at in wanted {
            if let Some(socket) = self.sockets.get(&at) {
                // The interfaces that are paths may be others now.
                let _ = self.keep_paths_out(at, socket.as_fd());
                continue;
            }
            match self.open(at) {
                Ok(socket) => {
                    self.sockets.insert(at, socket);
                }
                Err(e) if self.refused.insert(at) => {
                    tracing::warn!("programs of this host do not reach this one at {at}: {e}");
                }
                Err(_) => {}
            }
        }
    }

    fn open(&self, at: SocketAddr) -> io::Result<TcpListener> {
        use rustix::net::{listen, sockopt};
        let socket: OwnedFd = match self.host.held(at) {
            Some(held) => held?,
            None => hold_port(at)?,
        };
        // An urgent byte is a byte of the stream (RFC 6093 section 6). What is accepted has it from its listener.
        sockopt::set_socket_oobinline(&socket, true)?;
        self.keep_paths_out(at, socket.as_fd())?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        // What is accepted has this from its listener as well, so that its TIME-WAIT keeps nobody from listening here again.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        listen(&socket, BACKLOG)?;
        TcpListener::from_std(socket.into())
    }

    /// On addresses of paths, what comes by a path is the stack's. The firewall's guard keeps it from the kernel; where others can take that
    /// away, a SYN in that moment must not open a connection whose later packets the guard takes.
    fn keep_paths_out(&self, at: SocketAddr, socket: impl AsFd) -> io::Result<()> {
        let paths = self.host.guarded_interfaces(at.ip());
        attach_filter(socket, &crate::filter::not_by(&paths))
    }

    fn close(&mut self, at: SocketAddr) {
        if let Some(socket) = self.sockets.remove(&at) {
            // The port stays held where it was before: that is another descriptor of the same socket.
            let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        }
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        while let Some(at) = self.sockets.keys().next().copied() {
            self.close(at);
        }
    }
}

/// The next connection of any of them, each in its turn.
fn poll_any(
    sockets: &BTreeMap<SocketAddr, TcpListener>,
    turn: &mut usize,
    cx: &mut Cx<'_>,
) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
    let count = sockets.len();
    let from = if count == 0 { 0 } else { *turn % count };
    for (n, socket) in sockets.values().enumerate().cycle().skip(from).take(count) {
        if let Poll::Ready(accepted) = socket.poll_accept(cx) {
            *turn = n + 1;
            return Poll::Ready(accepted);
        }
    }
    Poll::Pending
}

/// The addresses of the host on which who listens at `at` does so.
fn local_ends(host: &Snapshot, at: SocketAddr, except: &[IpAddr]) -> Vec<SocketAddr> {
    let ip = at.ip().to_canonical();
    let fits = |addr| covers(SocketAddr::new(ip, at.port()), addr);
    let mut ends: Vec<SocketAddr> = host
        .addresses
        .iter()
        .filter(|a| a.usable && fits(a.addr) && !except.contains(&a.addr))
        .map(|a| match a.addr {
            IpAddr::V6(addr) if addr.is_unicast_link_local() => {
                SocketAddrV6::new(addr, at.port(), 0, a.index).into()
            }
            addr => SocketAddr::new(addr, at.port()),
        })
        .collect();
    let looped = |end: &SocketAddr| end.is_ipv4() && end.ip().is_loopback();
    if ip.is_unspecified() && ends.iter().any(looped) {
        ends.push(SocketAddr::new(BY_NAME.into(), at.port()));
    }
    ends.truncate(MOST);
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Address;

    #[test]
    fn an_unspecified_address_is_every_address_of_its_family() {
        let address = |index, text: &str, usable| Address {
            index,
            addr: text.parse().expect("a literal"),
            prefix: 24,
            global: true,
            usable,
            deprecated: false,
        };
        let host = Snapshot {
            addresses: vec![
                address(1, "127.0.0.1", true),
                address(1, "::1", true),
                address(2, "10.0.0.1", true),
                address(2, "fe80::1", true),
                address(2, "fd00::1", false),
            ],
            ..Snapshot::default()
        };
        let ends = |at: &str, except: &[&str]| -> Vec<String> {
            let except: Vec<IpAddr> = except.iter().map(|a| a.parse().expect("one")).collect();
            let ends = local_ends(&host, at.parse().expect("a literal"), &except);
            ends.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            ends("0.0.0.0:80", &[]),
            ["127.0.0.1:80", "10.0.0.1:80", "127.0.1.1:80"]
        );
        assert_eq!(ends("0.0.0.0:80", &["127.0.0.1"]), ["10.0.0.1:80"]);
        assert_eq!(
            ends("[::]:80", &["127.0.0.1"]),
            ["[::1]:80", "10.0.0.1:80", "[fe80::1%2]:80"]
        );
        assert_eq!(ends("10.0.0.1:80", &[]), ["10.0.0.1:80"]);
        assert_eq!(ends("[::ffff:10.0.0.1]:80", &[]), ["10.0.0.1:80"]);
        assert!(ends("10.0.0.9:80", &[]).is_empty());
    }
}
