//! The protocol: one JSON object a line, a reply for each request, in order.
//!
//! `{"request":"list"}` is answered with everything, `{"request":"show","connection":"3.1"}` with one connection.

use serde::{Deserialize, Serialize};

use crate::report::{ConnReport, ProcessReport};

/// Longest request line in bytes, line end included; a longer one ends the session.
pub const MAX_REQUEST: u64 = 64 * 1024;

/// What a client may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// The process and all of its connections.
    List,
    /// One connection.
    Show {
        /// Its name, as a list gives it.
        connection: String,
    },
}

/// What a process answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
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
    /// The request could not be served.
    Error {
        /// Why, for a human reader.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_documented_form() {
        let list: Request = serde_json::from_str(r#"{"request":"list"}"#).expect("list");
        assert_eq!(list, Request::List);
        let show = Request::Show {
            connection: "3.1".into(),
        };
        let text = serde_json::to_string(&show).expect("JSON");
        assert_eq!(text, r#"{"request":"show","connection":"3.1"}"#);
    }

    #[test]
    fn an_older_process_may_leave_fields_out() {
        let text = r#"{"reply":"process","process":{"pid":7,"connections":[{"id":"1.1"}]}}"#;
        let Reply::Process { process } = serde_json::from_str(text).expect("reply") else {
            panic!("not a process");
        };
        assert_eq!(
            (process.pid, process.connections[0].id.as_str()),
            (7, "1.1")
        );
    }
}
