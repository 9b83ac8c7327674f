//! Handshakes of the first and of further subflows (RFC 8684 sections 3.1 and 3.2, appendix B).

pub(in crate::conn) mod fast_open;
pub(in crate::conn) mod first_data;
pub(in crate::conn) mod mp_capable;
pub(in crate::conn) mod mp_join;
pub(in crate::conn) mod option_retry;

use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;
use manypath_wire::tcp::mptcp::AddAddr;
use manypath_wire::tcp::options::FastOpen;

use crate::api::Role;
use crate::crypto::keys::KeyMaterial;
use crate::crypto::mac;

/// How far a connection has come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The handshake of the first subflow is not complete.
    Opening,
    /// Data may be sent.
    Established,
    /// Joins may be made. // rfc8684:C15
    FullyEstablished,
}

/// The handshake of a connection.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(in crate::conn) role: Role,
    pub(crate) keys: Keys,
    /// Addresses and ports of the first subflow, for ever. // rfc8684:S2
    pub(in crate::conn) first: FourTuple,
    pub(in crate::conn) stage: Stage,
    /// What the handshake showed about Fast Open.
    pub(in crate::conn) fast_open_outcome: Option<FastOpenOutcome>,
    /// How long an initiator that has sent its keys may take to send more before joins are allowed.
    pub(in crate::conn) proof_until: Option<Instant>,
    /// The initiator's first data came before its keys.
    pub(in crate::conn) keyless_data: bool,
    /// Our SYN/ACK was repeated once for its keys, beside timers.
    pub(in crate::conn) keys_asked: bool,
    /// A DSS was sent: the peer may have seen that options pass.
    pub(in crate::conn) dss_sent: bool,
}

impl Handshake {
    pub(in crate::conn) fn new(role: Role, first: FourTuple, keys: Keys) -> Self {
        Self {
            role,
            keys,
            first,
            stage: Stage::Opening,
            fast_open_outcome: None,
            proof_until: None,
            keyless_data: false,
            keys_asked: false,
            dss_sent: false,
        }
    }

    /// Data may be sent.
    pub(crate) fn is_established(&self) -> bool {
        self.stage >= Stage::Established
    }

    /// Joins may be made. // rfc8684:C15
    pub(in crate::conn) fn is_fully_established(&self) -> bool {
        self.stage == Stage::FullyEstablished
    }

    pub(crate) fn first_tuple(&self) -> FourTuple {
        self.first
    }
}

/// Keys and tokens (RFC 8684 section 3.1).
#[derive(Debug)]
pub(crate) struct Keys {
    /// Ours, where Multipath TCP is to be used.
    pub(in crate::conn) local: Option<KeyMaterial>,
    pub(in crate::conn) remote: Option<KeyMaterial>,
    /// The peer wants no joins to the address and port of its first subflow. // rfc8684:C19
    pub(in crate::conn) no_joins_to_first: bool,
}

impl Keys {
    /// Our token, while Multipath TCP is possible.
    pub(crate) fn token(&self) -> Option<manypath_wire::ids::Token> {
        self.local.as_ref().map(|local| local.token)
    }

    /// The HMAC of an ADD_ADDR shows that the peer sent it. // rfc8684:A6,A7
    pub(in crate::conn) fn authenticate(&self, add: &AddAddr) -> bool {
        let expected = self
            .pair()
            .map(|keys| mac::add_addr(keys.reversed(), add.addr_id, add.addr, add.port));
        matches!((expected, add.hmac), (Some(want), Some(got)) if mac::equal(&want, &got))
    }
}

/// What our handshake revealed about Fast Open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastOpenOutcome {
    /// A cookie for the next time, and the peer's maximum segment size.
    Cookie { cookie: FastOpen, mss: u16 },
    /// The SYN with the option, or with payload alone, went unanswered, whether or not one without got through; or the payload that
    /// came without the option was not taken.
    Silence,
    /// The cookie that was sent was not accepted.
    Refusal,
}
