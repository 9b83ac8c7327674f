//! Lines of the access log: one for everything that was carried, refused or not reached. No line has a password, a header or
//! a path of a URL, and nothing of a client's own choice breaks a line.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::SystemTime;

use serde::Serialize;

use super::clock::rfc3339;
use crate::config::LogFormat;
use crate::request::Request;
use crate::serve::observer::{Ended, Failure, PathBytes, Refusal};

/// What a line tells.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// When it was over.
    pub time: SystemTime,
    /// Where it came in.
    pub listener: &'a str,
    /// Who came: the address.
    pub client: SocketAddr,
    /// What was asked, if it got so far.
    pub request: Option<&'a Request>,
    /// What came of it.
    pub event: Event<'a>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// It was carried.
    Ended(&'a Ended),
    /// The client was refused.
    Refused(Refusal),
    /// The target was not reached.
    Failed(Failure),
}

/// A line's fields, in the order in which they are written.
#[derive(Debug, Serialize)]
struct Fields {
    time: String,
    /// `finished`, `broken`, `idle`, `stopped`, `refused` or `failed`.
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    listener: String,
    client: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opening: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reached: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_forth: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_back: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<PathFields>,
}

#[derive(Debug, Serialize)]
struct PathFields {
    path: String,
    /// `inside` towards the client, `outside` towards the target.
    side: &'static str,
    sent: u64,
    received: u64,
}

impl From<&PathBytes> for PathFields {
    fn from(bytes: &PathBytes) -> Self {
        Self {
            path: bytes.path.to_string(),
            side: side(bytes),
            sent: bytes.sent,
            received: bytes.received,
        }
    }
}

/// Whose connection a path carried.
pub(super) fn side(bytes: &PathBytes) -> &'static str {
    match bytes.inside {
        true => "inside",
        false => "outside",
    }
}

impl Fields {
    fn of(line: &Line<'_>) -> Self {
        let ended = match line.event {
            Event::Ended(ended) => Some(ended),
            Event::Refused(_) | Event::Failed(_) => None,
        };
        let (result, reason) = match line.event {
            Event::Ended(ended) => (ended.how.name(), None),
            Event::Refused(why) => ("refused", Some(why.name())),
            Event::Failed(why) => ("failed", Some(why.name())),
        };
        let http = ended.and_then(|ended| ended.http.as_ref());
        Self {
            time: rfc3339(line.time),
            result,
            reason,
            listener: line.listener.to_owned(),
            client: line.client,
            user: line
                .request
                .and_then(|r| Some(r.client.user.as_ref()?.to_string())),
            opening: line.request.map(|request| request.way.name()),
            target: line.request.map(|request| request.target.to_string()),
            reached: ended.and_then(|ended| ended.reached),
            method: http.map(|(method, _)| method.to_string()),
            status: http.map(|(_, status)| *status),
            bytes_forth: ended.map(|ended| ended.forth),
            bytes_back: ended.map(|ended| ended.back),
            seconds: ended.map(|ended| millis(ended.lasted.as_secs_f64())),
            paths: ended.map_or(Vec::new(), |ended| {
                ended.paths.iter().map(PathFields::from).collect()
            }),
        }
    }
}

fn millis(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

impl Line<'_> {
    /// The line with its end.
    #[must_use]
    pub fn to_text(&self, format: LogFormat) -> String {
        let fields = Fields::of(self);
        let mut text = match format {
            // Nothing of it can fail to be written as JSON.
            LogFormat::Json => serde_json::to_string(&fields).unwrap_or_default(),
            LogFormat::Text => pairs(&fields),
        };
        text.push('\n');
        text
    }
}

/// `key=value` pairs; a value with spaces or signs that a shell would mind stands in quotes.
fn pairs(fields: &Fields) -> String {
    let mut text = format!("{} {}", fields.time, fields.result);
    let mut pair = |key: &str, value: Option<String>| {
        let Some(value) = value else { return };
        let plain = |c: char| c.is_ascii_alphanumeric() || ".:-_[]/*+@".contains(c);
        // Writing to a string does not fail.
        let _ = match !value.is_empty() && value.chars().all(plain) {
            true => write!(text, " {key}={value}"),
            false => write!(text, " {key}={value:?}"),
        };
    };
    pair("reason", fields.reason.map(str::to_owned));
    pair("listener", Some(fields.listener.clone()));
    pair("client", Some(fields.client.to_string()));
    pair("user", fields.user.clone());
    pair("opening", fields.opening.map(str::to_owned));
    pair("target", fields.target.clone());
    pair("reached", fields.reached.map(|at| at.to_string()));
    pair("method", fields.method.clone());
    pair("status", fields.status.map(|n| n.to_string()));
    pair("bytes_forth", fields.bytes_forth.map(|n| n.to_string()));
    pair("bytes_back", fields.bytes_back.map(|n| n.to_string()));
    pair("seconds", fields.seconds.map(|n| format!("{n:.3}")));
    for path in &fields.paths {
        let key = format!("{}.{}", path.side, path.path);
        pair(&key, Some(format!("{}/{}", path.sent, path.received)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Client, Target, Way};
    use crate::serve::observer::How;
    use std::time::{Duration, UNIX_EPOCH};

    fn request(user: Option<&str>) -> Request {
        Request {
            target: Target::from_host("www.example.net", 443).expect("a name"),
            client: Client {
                listener: "http 127.0.0.1:3128".into(),
                address: "192.0.2.1:4000".parse().expect("an address"),
                user: user.map(Into::into),
            },
            way: Way::Connect,
        }
    }

    fn line<'a>(request: &'a Request, event: Event<'a>) -> Line<'a> {
        Line {
            time: UNIX_EPOCH + Duration::from_millis(5),
            listener: "http 127.0.0.1:3128",
            client: request.client.address,
            request: Some(request),
            event,
        }
    }

    #[test]
    fn what_was_carried_has_its_bytes_by_path() {
        let request = request(Some("al ice\n"));
        let ended = Ended {
            request: request.clone(),
            reached: Some("203.0.113.1:443".parse().expect("an address")),
            http: Some(("GET".into(), 200)),
            forth: 10,
            back: 20,
            paths: vec![PathBytes {
                path: "eth0".into(),
                inside: false,
                sent: 10,
                received: 20,
            }],
            lasted: Duration::from_micros(1_234_567),
            how: How::Finished,
        };
        let line = line(&request, Event::Ended(&ended));
        assert_eq!(
            line.to_text(LogFormat::Json),
            concat!(
                r#"{"time":"1970-01-01T00:00:00.005Z","result":"finished","listener":"http 127.0.0.1:3128","#,
                r#""client":"192.0.2.1:4000","user":"al ice\n","opening":"connect","target":"www.example.net:443","#,
                r#""reached":"203.0.113.1:443","method":"GET","status":200,"bytes_forth":10,"bytes_back":20,"#,
                r#""seconds":1.235,"paths":[{"path":"eth0","side":"outside","sent":10,"received":20}]}"#,
                "\n"
            )
        );
        assert_eq!(
            line.to_text(LogFormat::Text),
            concat!(
                r#"1970-01-01T00:00:00.005Z finished listener="http 127.0.0.1:3128" client=192.0.2.1:4000 user="al ice\n""#,
                " opening=connect target=www.example.net:443 reached=203.0.113.1:443 method=GET status=200",
                " bytes_forth=10 bytes_back=20 seconds=1.235 outside.eth0=10/20\n"
            )
        );
    }

    #[test]
    fn what_was_not_carried_has_a_reason() {
        let request = request(None);
        let refused = Line {
            request: None,
            ..line(&request, Event::Refused(Refusal::Malformed))
        };
        assert_eq!(
            refused.to_text(LogFormat::Text),
            "1970-01-01T00:00:00.005Z refused reason=malformed listener=\"http 127.0.0.1:3128\" client=192.0.2.1:4000\n"
        );
        let failed = line(&request, Event::Failed(Failure::TimedOut));
        let json: serde_json::Value =
            serde_json::from_str(&failed.to_text(LogFormat::Json)).expect("JSON");
        assert_eq!(
            (&json["result"], &json["reason"]),
            (&"failed".into(), &"timed_out".into())
        );
        assert_eq!(json["target"], "www.example.net:443");
    }
}
