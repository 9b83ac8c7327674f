//! What the ends say of a connection, and what follows from it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;

use manypath_io::sys::lab::kernel_mptcp;

use super::model::Outcome;
use crate::kernel;
use crate::netns::NetNs;

/// How one end sees the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// It has become TCP.
    pub(super) fallback: bool,
    /// Local and remote address of every subflow that lives.
    pub(super) subflows: Vec<[IpAddr; 2]>,
}

/// Asks the kernel about a socket of its own, the only one of Multipath TCP in its namespace.
pub(super) fn kernel(ns: &NetNs, stream: &TcpStream) -> Option<Seen> {
    let info = kernel_mptcp(stream.as_fd()).ok()?;
    let address = |text: &str| text.parse::<SocketAddr>().ok().map(|at| at.ip());
    let subflows = kernel::subflows(ns).ok()?;
    Some(Seen {
        fallback: info.is_none_or(|info| info.fallback),
        subflows: subflows
            .iter()
            .filter(|subflow| subflow.established)
            .filter_map(|subflow| Some([address(&subflow.local)?, address(&subflow.remote)?]))
            .collect(),
    })
}

/// The path that a client's address belongs to: what bears it is sent over that path.
fn path(client: IpAddr) -> Option<u8> {
    match client {
        IpAddr::V4(address) => Some(address.octets()[2]),
        IpAddr::V6(_) => None,
    }
}

/// What became of a connection that delivered everything over so many paths. The ends are client and server.
pub(super) fn outcome(ends: [Option<Seen>; 2], paths: usize) -> Outcome {
    let [Some(client), Some(server)] = ends else {
        return Outcome::Failed("an end does not know the connection any more".to_owned());
    };
    if client.fallback || server.fallback {
        return Outcome::FellBack;
    }
    let used = [(&client, 0), (&server, 1)].map(|(end, side)| -> BTreeSet<_> {
        let clients = end.subflows.iter().map(|ends| ends[side]);
        clients.filter_map(path).collect()
    });
    if used[0].intersection(&used[1]).count() < paths {
        Outcome::SubflowLost
    } else {
        Outcome::Intact
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_counts_when_both_ends_have_a_subflow_on_it() {
        let seen = |fallback, client: bool, paths: &[u8]| {
            let ends = |path: &u8| {
                let mut ends = [[10, 77, *path, 1], [10, 77, *path, 2]].map(IpAddr::from);
                if !client {
                    ends.reverse();
                }
                ends
            };
            Some(Seen {
                fallback,
                subflows: paths.iter().map(ends).collect(),
            })
        };
        let judged = |client: (bool, &[u8]), server: (bool, &[u8])| {
            let ends = [
                seen(client.0, true, client.1),
                seen(server.0, false, server.1),
            ];
            outcome(ends, 2)
        };
        assert_eq!(judged((false, &[1, 2]), (false, &[2, 1])), Outcome::Intact);
        assert_eq!(
            judged((false, &[1]), (false, &[1, 2])),
            Outcome::SubflowLost
        );
        // Two subflows over one path are one path.
        assert_eq!(
            judged((false, &[1, 1]), (false, &[1, 1])),
            Outcome::SubflowLost
        );
        assert_eq!(judged((true, &[1]), (false, &[1])), Outcome::FellBack);
        assert!(!outcome([None, seen(false, false, &[1])], 1).delivered());
    }
}
