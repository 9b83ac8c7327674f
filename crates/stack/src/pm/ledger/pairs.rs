//! What happened between each local address and each address and port of the peer.

use alloc::vec::Vec;
use core::net::SocketAddr;

use manypath_tcp::time::Instant;
use manypath_wire::ids::AddrId;

use crate::api::SubflowEnd;
use crate::pm::Reason;

/// Whether a subflow may be tried between two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing speaks against it.
    Free,
    /// Not before that time.
    Until {
        /// Why not.
        end: SubflowEnd,
        /// When.
        at: Instant,
        /// When, while nothing else works.
        alone: Instant,
    },
    /// Not before that time, and much later while another subflow carries data.
    LastResort {
        /// Why not.
        end: SubflowEnd,
        /// When.
        at: Instant,
    },
    /// Not before that time, and not at all while another subflow carries data: the peer refused it for good, or again and again.
    OnlyAlone {
        /// Why not.
        end: SubflowEnd,
        /// When.
        at: Instant,
    },
    /// Only after the local or the remote address was refreshed.
    Refresh(SubflowEnd),
    /// No more on this connection.
    Closed(SubflowEnd),
}

/// What happened between one local address and one remote address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) local_id: AddrId,
    pub(super) remote: SocketAddr,
    /// A subflow here was established once.
    pub(super) worked: bool,
    /// Subflows lost in a row without having lived long.
    pub(super) failures: u8,
    /// How the last one ended.
    pub(super) last_end: Option<SubflowEnd>,
    pub(super) standing: Standing,
    /// The reason that was last logged for doing nothing.
    pub(super) declined: Option<Reason>,
}

/// The table of pairs.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs(Vec<Pair>);

impl Pairs {
    /// The pair, if anything is known of it.
    pub(super) fn get(&self, local_id: AddrId, remote: SocketAddr) -> Option<&Pair> {
        self.0
            .iter()
            .find(|pair| pair.local_id == local_id && pair.remote == remote)
    }

    /// The pair, entered now if it is new.
    pub(super) fn entry(&mut self, local_id: AddrId, remote: SocketAddr) -> &mut Pair {
        let found = self
            .0
            .iter()
            .position(|pair| pair.local_id == local_id && pair.remote == remote);
        let at = found.unwrap_or_else(|| {
            self.drop_a_blank_pair();
            self.0.push(Pair {
                local_id,
                remote,
                worked: false,
                failures: 0,
                last_end: None,
                standing: Standing::Free,
                declined: None,
            });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// Some pair is kept for want of another.
    pub(super) fn any_last_resort(&self) -> bool {
        let kept = |pair: &Pair| matches!(pair.standing, Standing::LastResort { .. });
        self.0.iter().any(kept)
    }

    /// The peer may have a place again: who was refused for want of one may ask once more.
    pub(super) fn place_is_free(&mut self) {
        for pair in &mut self.0 {
            match pair.standing {
                Standing::OnlyAlone { end, at } if is_passing(end) => {
                    let alone = at;
                    pair.standing = Standing::Until { end, at, alone };
                }
                _ => {}
            }
        }
    }

    /// Keeps the table bounded against peers that join from ever new ports: a pair without a refusal goes first.
    fn drop_a_blank_pair(&mut self) {
        const MOST: usize = 512;
        if self.0.len() >= MOST {
            let blank = self
                .0
                .iter()
                .position(|pair| pair.standing == Standing::Free)
                .unwrap_or(0);
            self.0.remove(blank);
        }
    }

    /// Fresh news about an address: what was only a matter of waiting or of a dead path is forgotten. What the peer
    /// refused for good stays refused. // rfc8684:T4
    pub(super) fn forgive(&mut self, concerned: impl Fn(&Pair) -> bool) {
        for pair in self.0.iter_mut().filter(|pair| concerned(pair)) {
            match pair.standing {
                Standing::OnlyAlone { end, .. } if is_passing(end) => {
                    pair.standing = Standing::Free;
                    pair.failures = 0;
                }
                Standing::Free | Standing::OnlyAlone { .. } | Standing::Closed(_) => {}
                Standing::Until { .. } | Standing::LastResort { .. } | Standing::Refresh(_) => {
                    pair.standing = Standing::Free;
                    pair.failures = 0;
                }
            }
        }
    }
}

/// The peer said that trying again makes sense.
fn is_passing(end: SubflowEnd) -> bool {
    matches!(
        end,
        SubflowEnd::ResetByPeer {
            transient: true,
            ..
        }
    )
}
