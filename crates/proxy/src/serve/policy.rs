//! Who may go where: one immutable snapshot, replaced as a whole when the configuration changes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::Classes;
use crate::request::{Client, Request, Target, Way};
use crate::target::guard::Special;
use crate::target::rules::{self, Question, Rule, decide};
use crate::users::Users;

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
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    /// Of the listeners that ask who a client is, by their names.
    users: HashMap<Arc<str>, Arc<Users>>,
    /// What may be sent.
    pub(crate) classes: Classes,
}

impl Policy {
    /// A policy of these rules, the first that matches decides, and of the users of the listeners that ask for them.
    #[must_use]
    pub fn new(rules: Vec<Rule>, users: HashMap<Arc<str>, Arc<Users>>) -> Self {
        Self {
            rules,
            users,
            classes: Classes::default(),
        }
    }

    /// And of these classes.
    #[must_use]
    pub fn with_classes(self, classes: Classes) -> Self {
        Self { classes, ..self }
    }

    /// Allows every target, addresses of this host and all ports of CONNECT too: for listeners that only trusted programs reach.
    #[must_use]
    pub fn permissive() -> Self {
        // Networks that are named, as special addresses demand.
        let halves = ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"];
        let rule = Rule {
            client: Vec::new(),
            user: Vec::new(),
            to: halves.iter().filter_map(|half| half.parse().ok()).collect(),
            port: vec![1..=u16::MAX],
            then: rules::Then::Allow,
        };
        Self::new(vec![rule], HashMap::new())
    }

    /// Whether a client must say who it is before it is asked what it wants.
    #[must_use]
    pub fn requires_user(&self, client: &Client) -> bool {
        self.users.contains_key(&client.listener)
    }

    /// Whether the password is that of this user of a listener. Slow on purpose (password hashes), and blocking: called where
    /// blocking is allowed.
    #[must_use]
    pub fn authenticate(&self, listener: &str, user: &str, password: &[u8]) -> bool {
        let users = self.users.get(listener);
        users.is_some_and(|users| users.authenticate(user, password))
    }

    /// Whether the password is known to be that of this user of a listener. At once; false says nothing.
    #[must_use]
    pub fn knows(&self, listener: &str, user: &str, password: &[u8]) -> bool {
        let users = self.users.get(listener);
        users.is_some_and(|users| users.knows(user, password))
    }

    /// Whether a request may go on to have its target's name resolved. Not asked for [`Way::Fixed`].
    #[must_use]
    pub fn permits(&self, request: &Request) -> Verdict {
        if request.client.user.is_none() && self.requires_user(&request.client) {
            return Verdict::NeedsUser;
        }
        // What is special about an address is asked for when it is about to be connected to.
        let address = match &request.target {
            Target::Address(addr) => Some(addr.ip()),
            Target::Name { .. } => None,
        };
        match decide(&self.rules, &question(request, address), None) {
            rules::Verdict::Allowed | rules::Verdict::DependsOnAddress => Verdict::Allow,
            rules::Verdict::Denied(why) => Verdict::Deny(why.into()),
        }
    }

    /// Whether a request may go to this address, which its target is or resolved to. Addresses that are refused are left out;
    /// a request for which none is left is refused. `special` says which kind of address clients do not get unless a rule
    /// allows it, this host's own ones included. Not asked for [`Way::Fixed`].
    #[must_use]
    pub fn permits_address(
        &self,
        request: &Request,
        addr: IpAddr,
        special: Option<Special>,
    ) -> Verdict {
        match decide(&self.rules, &question(request, Some(addr)), special) {
            rules::Verdict::Allowed => Verdict::Allow,
            // With an address nothing depends on it any more.
            rules::Verdict::DependsOnAddress => Verdict::Deny(Denial::Rule),
            rules::Verdict::Denied(why) => Verdict::Deny(why.into()),
        }
    }
}

pub(crate) fn question(request: &Request, address: Option<IpAddr>) -> Question<'_> {
    let name = match &request.target {
        Target::Address(_) => None,
        Target::Name { host, .. } => Some(host.as_ref()),
    };
    Question {
        client: request.client.address.ip(),
        user: request.client.user.as_deref(),
        name,
        address,
        port: request.target.port(),
        tunnel: request.way == Way::Connect,
    }
}

impl From<rules::Denial> for Denial {
    fn from(denial: rules::Denial) -> Self {
        match denial {
            rules::Denial::Rule(_) | rules::Denial::NoRule => Self::Rule,
            rules::Denial::ConnectPort => Self::Port,
            rules::Denial::Special(special) => Self::Address(special),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::line_for;

    fn request(target: &str, user: Option<&str>, way: Way) -> Request {
        Request {
            target: Target::from_authority(target, None).expect(target),
            client: Client {
                listener: "front".into(),
                address: "192.0.2.1:4000".parse().expect("an address"),
                user: user.map(Into::into),
            },
            way,
        }
    }

    #[test]
    fn a_listener_with_users_asks_and_others_do_not() {
        let line = line_for("alice", b"secret").expect("hashed");
        let users = Arc::new(Users::read(&line).expect("well-formed"));
        let policy = Policy::new(Vec::new(), [("front".into(), users)].into());
        let anonymous = request("a.example:443", None, Way::Connect);
        assert!(policy.requires_user(&anonymous.client));
        assert_eq!(policy.permits(&anonymous), Verdict::NeedsUser);
        let alice = request("a.example:443", Some("alice"), Way::Connect);
        assert_eq!(policy.permits(&alice), Verdict::Allow);
        assert!(policy.authenticate("front", "alice", b"secret"));
        assert!(!policy.authenticate("back", "alice", b"secret"));
        let back = Client {
            listener: "back".into(),
            ..anonymous.client
        };
        assert!(!policy.requires_user(&back));
    }

    #[test]
    fn a_permissive_policy_allows_this_host_too() {
        let policy = Policy::permissive();
        let request = request("a.example:22", None, Way::Connect);
        assert_eq!(policy.permits(&request), Verdict::Allow);
        for addr in ["127.0.0.1", "::1", "203.0.113.1", "2001:db8::1"] {
            let addr = addr.parse().expect("a literal");
            let verdict = policy.permits_address(&request, addr, Some(Special::Own));
            assert_eq!(verdict, Verdict::Allow);
        }
    }

    #[test]
    fn a_name_is_judged_again_by_each_of_its_addresses() {
        let policy = Policy::default();
        let by_name = request("a.example:443", None, Way::Connect);
        assert_eq!(policy.permits(&by_name), Verdict::Allow);
        let loopback = "127.0.0.1".parse().expect("a literal");
        let special = Some(Special::Loopback);
        assert_eq!(
            policy.permits_address(&by_name, loopback, special),
            Verdict::Deny(Denial::Address(Special::Loopback))
        );
        let public = "203.0.113.1".parse().expect("a literal");
        assert_eq!(
            policy.permits_address(&by_name, public, None),
            Verdict::Allow
        );
        let ssh = request("a.example:22", None, Way::Connect);
        assert_eq!(policy.permits(&ssh), Verdict::Deny(Denial::Port));
        let ssh = request("a.example:22", None, Way::Socks);
        assert_eq!(policy.permits(&ssh), Verdict::Allow);
    }
}
