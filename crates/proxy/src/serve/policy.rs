//! Who may go where: one immutable snapshot, replaced as a whole when the configuration changes.

use std::net::IpAddr;

use crate::request::{Client, Request, Way};
use crate::target::guard::Special;

/// What a policy says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may go on.
    Allow,
    /// It may not.
    Deny(Denial),
    /// It might, if the client said who it is: HTTP answers 407, SOCKS5 refuses.
    NeedsUser,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// A rule says so, or no rule allows it.
    Rule,
    /// CONNECT to a port that is not allowed.
    Port,
    /// The address is one that clients may not choose.
    Address(Special),
}

/// Rules and users in force. Connections keep the snapshot that they began with; each request looks at the newest.
#[derive(Debug, Default)]
pub struct Policy {
    permissive: bool,
}

impl Policy {
    /// Allows every target, addresses of this host and all ports of CONNECT too: for listeners that only trusted programs reach.
    #[must_use]
    pub fn permissive() -> Self {
        Self { permissive: true }
    }

    /// Whether a client must say who it is before it is asked what it wants.
    #[must_use]
    pub fn requires_user(&self, _client: &Client) -> bool {
        false
    }

    /// Whether there are users at all: then a client that offers a password is asked for it, even where none is required.
    #[must_use]
    pub fn knows_users(&self) -> bool {
        false
    }

    /// Whether the password is this user's. Slow on purpose (password hashes), and blocking: called where blocking is allowed.
    #[must_use]
    pub fn authenticate(&self, _user: &str, _password: &[u8]) -> bool {
        false
    }

    /// Whether a request may go on to have its target's name resolved. Not asked for [`Way::Fixed`].
    #[must_use]
    pub fn permits(&self, request: &Request) -> Verdict {
        match request.way {
            _ if self.permissive => Verdict::Allow,
            Way::Connect if request.target.port() != 443 => Verdict::Deny(Denial::Port),
            Way::Connect | Way::Http | Way::Socks | Way::SocksUdp | Way::Fixed => Verdict::Allow,
        }
    }

    /// Whether a request may go to this address, which its target is or resolved to. Addresses that are refused are left out;
    /// a request for which none is left is refused. `special` says which kind of address clients do not get unless a rule
    /// allows it, this host's own ones included. Not asked for [`Way::Fixed`].
    #[must_use]
    pub fn permits_address(
        &self,
        _request: &Request,
        _addr: IpAddr,
        special: Option<Special>,
    ) -> Verdict {
        match special {
            Some(special) if !self.permissive => Verdict::Deny(Denial::Address(special)),
            Some(_) => Verdict::Allow,
            None => Verdict::Allow,
        }
    }
}
