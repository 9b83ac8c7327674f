//! The protocol: one JSON object a line in both directions, over the process's Unix socket.
//!
//! A request names itself by `request`, and a reply by `reply`; replies come in the order of their requests and repeat the
//! request's `id` if it had one. Between them come events, which name themselves by `event`, once they were subscribed to.
//! `{"request":"list"}` is answered with everything, `{"request":"show","connection":"3.1"}` with one connection. Words
//! are those of Linux's `mptcp_pm` family where that has them. `docs/control.schema.json` describes every line.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::report::{ConnReport, LimitReport, PathReport, ProcessReport, QuotaReport};
use crate::view::ViewReport;

/// Version of the protocol. Fields are only ever added within one.
pub const VERSION: u32 = 1;

/// Longest request line in bytes, line end included; a longer one ends the session.
pub const MAX_REQUEST: u64 = 64 * 1024;

/// A line of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Repeated in the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// What is asked.
    #[serde(flatten)]
    pub request: Request,
}

/// What has to be right for a line to be anybody's request.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    id: Option<u64>,
    request: serde_json::Value,
}

impl Asked {
    /// Reads a line, which may lack its end where no more comes.
    ///
    /// # Errors
    /// It is no request: the answer that says why, with the `id` if there is one.
    pub fn read(line: &[u8]) -> Result<Self, Answer> {
        let refuse = |id, why: &dyn std::fmt::Display| {
            let reply = Reply::error("invalid", format!("not a request: {why}"));
            Answer { id, reply }
        };
        if !line.ends_with(b"\n") && line.len() as u64 >= MAX_REQUEST {
            let why = format!("longer than {MAX_REQUEST} bytes, line end included");
            return Err(refuse(None, &why));
        }
        let head: Head = serde_json::from_slice(line).map_err(|e| refuse(None, &e))?;
        if !head.request.is_string() {
            // A number would be taken for that of a variant.
            return Err(refuse(head.id, &"`request` is not a string"));
        }
        serde_json::from_slice(line).map_err(|e| refuse(head.id, &e))
    }
}

/// What a client may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Which version is spoken, and by whom.
    Hello,
    /// The process and all of its connections.
    List,
    /// One connection.
    Show {
        /// Its name, as a list gives it.
        connection: String,
    },
    /// The decisions of its path manager, with their reasons.
    Why {
        /// Its name.
        connection: String,
    },
    /// Events from now on. A second subscription takes the place of the first.
    Subscribe(Filter),
    /// No more events.
    Unsubscribe,
    /// Owns a connection, or all that nobody owns, now and later: no one else may command it, and its own policy stands
    /// still until the claim ends with `release` or with the session.
    Claim {
        /// Its name; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<String>,
        /// Takes it away from another owner.
        #[serde(default)]
        force: bool,
    },
    /// Ends a claim: the connection's own policy decides again.
    Release {
        /// Its name; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<String>,
    },
    /// Opens a subflow; what is not given is chosen.
    SubflowCreate {
        /// The connection.
        connection: String,
        /// The subflow.
        #[serde(flatten)]
        wanted: Wanted,
    },
    /// Ends a subflow.
    SubflowDestroy {
        /// The connection.
        connection: String,
        /// The subflow's number.
        subflow: u32,
        /// At once by a reset, and not by a FIN.
        #[serde(default)]
        reset: bool,
    },
    /// Changes the priority of a subflow.
    SetFlags {
        /// The connection.
        connection: String,
        /// The subflow's number.
        subflow: u32,
        /// Use it only when nothing better is left.
        backup: bool,
    },
    /// Tells the peer one of our addresses.
    Announce {
        /// The connection.
        connection: String,
        /// The address.
        address: IpAddr,
        /// A port other than the connection's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
    },
    /// Withdraws one of our addresses.
    Remove {
        /// The connection.
        connection: String,
        /// Our identifier of the address.
        address_id: u8,
    },
    /// Changes limits of a connection.
    SetLimits {
        /// The connection.
        connection: String,
        /// Largest number of subflows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subflows: Option<u16>,
        /// Largest number of addresses of the peer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        add_addr_accepted: Option<u8>,
    },
    /// Sets, changes or removes a limit of what is sent.
    Limit(LimitOrder),
    /// Counts the quotas of a path or a class anew, as if its period began now.
    ResetQuota {
        /// `path` or `class`.
        of: LimitOf,
        /// The path by its name in the configuration or its interface, or the class.
        name: String,
    },
    /// Reads the configuration file anew and puts it in force.
    Reload,
    /// Lets another policy of the process itself decide.
    SetPolicy {
        /// The connection.
        connection: String,
        /// As on the command line: `fullmesh`, `smart-backup:threshold=1s`.
        policy: String,
    },
}

/// What is to be limited, and how. It holds from the next packet on, until the process ends or reads its configuration anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitOrder {
    /// `path`, `class` or `connection`.
    pub of: LimitOf,
    /// The interface (with `/down`, what peers are asked to send by it), the class by its name in the configuration (with `/up` or `/down`, one way of it),
    /// or the connection.
    pub name: String,
    /// Bits of IP packets a second, at least one; without it there is no limit any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<u64>,
    /// Bytes that may leave at once after a pause [default: what 20 ms bring, 4500 at least].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
}

/// What a limit is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitOf {
    /// All that leaves by an interface.
    #[default]
    Path,
    /// All connections of a class together.
    Class,
    /// One connection.
    Connection,
}

impl LimitOf {
    /// The word of the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Class => "class",
            Self::Connection => "connection",
        }
    }
}

impl Request {
    /// What no network could carry out, whoever is asked.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        let (remote, ports) = match self {
            Self::SubflowCreate { wanted, .. } => {
                (wanted.remote, [wanted.local_port, wanted.remote_port])
            }
            Self::Announce { port, .. } => (None, [*port, None]),
            Self::Limit(order) => {
                let none = order.bits_per_second == Some(0) || order.burst == Some(0);
                return none
                    .then_some("a limit is at least 1 bit a second, its burst at least 1 byte");
            }
            _ => return None,
        };
        let is_one_host = |addr: IpAddr| {
            let everybody = addr == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
            !(addr.is_unspecified() || addr.is_multicast() || everybody)
        };
        if ports.contains(&Some(0)) {
            return Some("a port is a number from 1 to 65535");
        }
        let several = remote.is_some_and(|addr| !is_one_host(addr));
        several.then_some("the remote address is not that of one host")
    }
}

/// A subflow that is wanted: a four-tuple, or any part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// Our address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// Our port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_port: Option<u16>,
    /// The peer's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<IpAddr>,
    /// The peer's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_port: Option<u16>,
    /// Both ends are to use it only when nothing better is left.
    pub backup: bool,
}

/// The names of all events.
pub const EVENTS: [&str; 21] = [
    "opening",
    "created",
    "established",
    "closed",
    "fallback",
    "sub_established",
    "sub_closed",
    "sub_priority",
    "announced",
    "removed",
    "timeout",
    "new_local_addr",
    "del_local_addr",
    "limit",
    "limit_held",
    "quota_spent",
    "quota_reset",
    "path_priority",
    "decision",
    "sample",
    "lost",
];

/// Which events a subscriber wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// By their names; all without any, but for `decision`, which has to be named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Of this connection only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// And a `sample` of each connection every so many milliseconds, 10 at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_ms: Option<u64>,
    /// Each event of a connection brings the connection as it is then, so that nobody has to ask before acting.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub with_sample: bool,
    /// Each event of a connection brings what controllers decide by, as `view`: a quarter of a sample, to be written and read while
    /// somebody waits. Where there are no views, it brings a sample.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub with_view: bool,
}

impl Filter {
    /// Events of these names.
    #[must_use]
    pub fn of<const N: usize>(names: [&str; N]) -> Self {
        Self {
            events: names.map(str::to_owned).to_vec(),
            ..Self::default()
        }
    }

    /// The answer to a subscription that would wait for what never comes: an event of a name that there is not.
    #[must_use]
    pub fn refusal(&self) -> Option<Reply> {
        if self.events.len() > EVENTS.len() {
            return Some(Reply::error("invalid", "an event is named more than once"));
        }
        let mut wanted = self.events.iter();
        let unknown = wanted.find(|name| !EVENTS.contains(&name.as_str()))?;
        let known = EVENTS.join(", ");
        Some(Reply::error(
            "invalid",
            format!("there is no event '{unknown}'; there are {known}"),
        ))
    }

    /// And samples every so many milliseconds; each event brings one, too.
    #[must_use]
    pub fn with_samples(mut self, every_ms: u64) -> Self {
        (self.sample_ms, self.with_sample) = (Some(every_ms), true);
        self
    }
}

impl Wanted {
    /// A subflow from one of our addresses; `None` leaves that to the other side, too.
    #[must_use]
    pub fn from(local: impl Into<Option<IpAddr>>) -> Self {
        Self {
            local: local.into(),
            ..Self::default()
        }
    }
}

/// A line that answers a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The answer.
    #[serde(flatten)]
    pub reply: Reply,
}

/// What a process answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Hello`].
    Hello {
        /// Of the protocol.
        version: u32,
        /// Process id.
        pid: u32,
        /// What the process does.
        title: String,
    },
    /// To [`Request::List`].
    Process {
        /// The process and its connections.
        process: Box<ProcessReport>,
    },
    /// To [`Request::Show`].
    Connection {
        /// The connection.
        connection: Box<ConnReport>,
    },
    /// To [`Request::Why`].
    Decisions {
        /// Oldest first.
        decisions: Vec<DecisionReport>,
    },
    /// The command was carried out, or has begun to be.
    Done {
        /// The subflow that is being opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subflow: Option<u32>,
        /// The identifier of the address that is announced.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address_id: Option<u8>,
        /// Of a claim on everything: how many connections stay with their owners.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owned_by_others: Option<u32>,
    },
    /// The request could not be served.
    Error {
        /// Why, for a program: `not_found`, `owned`, `no_path`, `no_port`, `limit`, `state`, `invalid`, `denied`, `config`.
        #[serde(default)]
        code: String,
        /// Why, for a human reader.
        message: String,
    },
}

impl Reply {
    /// Carried out: what was made, if anything was.
    #[must_use]
    pub fn done(subflow: Option<u32>, address_id: Option<u8>) -> Self {
        Self::Done {
            subflow,
            address_id,
            owned_by_others: None,
        }
    }

    /// A refusal.
    #[must_use]
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self::Error {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// One entry of the decision log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DecisionReport {
    /// Which one of the connection's it is, from 1.
    pub number: u32,
    /// How long ago, in microseconds.
    pub ago_us: u64,
    /// What was decided, or that nothing is done.
    pub decision: String,
    /// Why.
    pub reason: String,
}

/// A line that nobody asked for at this moment. What does not fit an event is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventReport {
    /// Its name: `opening`, `created`, `established`, `closed`, `fallback`, `sub_established`, `sub_closed`, `sub_priority`, `announced`,
    /// `removed`, `timeout`, `new_local_addr`, `del_local_addr`, `limit`, `limit_held`, `quota_spent`, `quota_reset`, `path_priority`, `decision`,
    /// `sample`, `lost`.
    pub event: String,
    /// Rises by one for each event of the process but `decision`; a gap is one that was filtered out.
    pub seq: u64,
    /// Microseconds since the process began.
    pub at_us: u64,
    /// The connection's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Our token, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The peer opened the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_side: Option<bool>,
    /// The subflow's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subflow: Option<u32>,
    /// Our address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<SocketAddr>,
    /// The peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<SocketAddr>,
    /// Our identifier of our address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_id: Option<u8>,
    /// The peer's identifier of its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<u8>,
    /// Only to be used when nothing better is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<bool>,
    /// Who wanted the subflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Why something ended: `finished`, `reset_by_peer`, `refused`, `timed_out`, `unreachable`, `administrative`,
    /// `address_gone`, `replaced`, `checksum`, `bad_hmac`, `options_lost`, `protocol_error`, `connection_closed`; for a
    /// fallback its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The same as an `errno` number of Linux; 0 for an orderly end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<i32>,
    /// The reason that the peer gave for a reset (RFC 8684 section 3.6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_reason: Option<u8>,
    /// The peer said that trying again makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transient: Option<bool>,
    /// The retransmission time-out that applies now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto_us: Option<u64>,
    /// How often it was doubled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoffs: Option<u8>,
    /// An address that came or went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What the path manager decided, or that nothing is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of a `sample`, and of any event of a subscription `with_sample`: the connection as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<Box<ConnReport>>,
    /// Of any event of a subscription `with_view`: the connection as controllers see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<Box<ViewReport>>,
    /// Of `lost`: samples that were left out because the reader is slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Of `lost`: events that the process could not keep, however that may have come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Of `limit`: what was set, at 0 bits a second that there is none any more. Of `limit_held`: a limit that held something back in the last second,
    /// with what it has held back in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Box<LimitReport>>,
    /// Of `quota_spent` and `quota_reset`: the quota that is used up, or counts anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Box<QuotaReport>>,
    /// Of `path_priority`: a path that is used more or less than before, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Box<PathReport>>,
}

impl EventReport {
    /// Which connection, which subflow of it, and our address of that subflow; `None` where it does not concern one.
    #[must_use]
    pub fn of_subflow(&self) -> Option<(&str, u32, IpAddr)> {
        let connection = self.connection.as_deref()?;
        Some((connection, self.subflow?, self.local?.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn requests_have_the_documented_form() {
        let cases = [
            (r#"{"request":"list"}"#, Request::List),
            (
                r#"{"request":"show","connection":"3.1"}"#,
                Request::Show {
                    connection: "3.1".into(),
                },
            ),
            (
                r#"{"request":"subflow_create","connection":"3.1","local":"10.0.0.1","backup":true}"#,
                Request::SubflowCreate {
                    connection: "3.1".into(),
                    wanted: Wanted {
                        local: Some("10.0.0.1".parse().expect("address")),
                        backup: true,
                        ..Wanted::default()
                    },
                },
            ),
            (
                r#"{"request":"subscribe","events":["timeout"],"sample_ms":100}"#,
                Request::Subscribe(Filter {
                    events: vec!["timeout".into()],
                    connection: None,
                    sample_ms: Some(100),
                    with_sample: false,
                    with_view: false,
                }),
            ),
        ];
        for (text, request) in cases {
            assert_eq!(asked(text), Asked { id: None, request });
        }
        assert_eq!(asked(r#"{"id":7,"request":"hello"}"#).id, Some(7));
        assert!(serde_json::from_str::<Asked>(r#"{"request":"dance"}"#).is_err());
    }

    #[test]
    fn what_is_no_request_is_refused_under_its_id() {
        let refused = |line: &[u8]| {
            let answer = Asked::read(line).expect_err("refused");
            assert!(matches!(&answer.reply, Reply::Error { code, .. } if code == "invalid"));
            answer.id
        };
        // The eighth of the requests is no name for `release`.
        assert_eq!(refused(b"{\"id\":3,\"request\":7}\n"), Some(3));
        assert_eq!(refused(b"{\"id\":3,\"request\":\"dance\"}\n"), Some(3));
        assert_eq!(refused(b"{\"id\":3,\"request\":\"show\"}\n"), Some(3));
        assert_eq!(refused(b"{\"id\":-3,\"request\":\"list\"}\n"), None);
        assert_eq!(refused(b"\xff\n"), None);
        assert_eq!(refused(&vec![b' '; MAX_REQUEST as usize]), None);
        let asked = Asked::read(br#"{"id":3,"request":"list"}"#).expect("without its end");
        assert_eq!((asked.id, asked.request), (Some(3), Request::List));
    }

    #[test]
    fn a_subflow_leads_from_a_port_to_a_port_of_one_host() {
        let flaw = |what: &str| {
            asked(&format!(r#"{{"connection":"3.1",{what}}}"#))
                .request
                .flaw()
        };
        for what in [
            r#""request":"subflow_create","remote":"0.0.0.0""#,
            r#""request":"subflow_create","remote":"255.255.255.255""#,
            r#""request":"subflow_create","remote":"ff02::1""#,
            r#""request":"subflow_create","remote":"10.0.0.1","remote_port":0"#,
            r#""request":"subflow_create","local_port":0"#,
            r#""request":"announce","address":"10.0.0.1","port":0"#,
        ] {
            assert!(flaw(what).is_some(), "{what}");
        }
        for what in [
            r#""request":"subflow_create""#,
            r#""request":"subflow_create","remote":"10.0.0.1","remote_port":1,"local_port":65535"#,
            r#""request":"announce","address":"10.0.0.1""#,
        ] {
            assert_eq!(flaw(what), None, "{what}");
        }
    }

    #[test]
    fn an_older_process_may_leave_fields_out() {
        let text = r#"{"reply":"process","process":{"pid":7,"connections":[{"id":"1.1"}]}}"#;
        let answer: Answer = serde_json::from_str(text).expect("reply");
        let Reply::Process { process } = answer.reply else {
            panic!("not a process");
        };
        assert_eq!(
            (process.pid, process.connections[0].id.as_str()),
            (7, "1.1")
        );
    }

    #[test]
    fn an_event_says_only_what_it_has_to_say() {
        let event = EventReport {
            event: "timeout".into(),
            seq: 5,
            rto_us: Some(400_000),
            ..EventReport::default()
        };
        let text = serde_json::to_string(&event).expect("JSON");
        assert_eq!(
            text,
            r#"{"event":"timeout","seq":5,"at_us":0,"rto_us":400000}"#
        );
    }
}
