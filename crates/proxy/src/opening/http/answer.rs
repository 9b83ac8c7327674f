//! Answers of the proxy itself: a status, `Proxy-Status` (RFC 9209), and a line for people.

use crate::serve::{Failure, Refusal};

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Of RFC 9209 section 2.3.
    error: &'static str,
    text: &'static str,
}

const fn answer(status: u16, error: &'static str, text: &'static str) -> Answer {
    Answer {
        status,
        error,
        text,
    }
}

impl Answer {
    /// For a client that is refused; `None` where nothing can be said any more.
    pub(super) fn to_refused(why: Refusal) -> Option<Self> {
        Some(match why {
            Refusal::Malformed => answer(400, "http_request_error", "this is no HTTP/1.1 request"),
            Refusal::Ambiguous => answer(
                400,
                "http_request_error",
                "the length of the request's body is ambiguous",
            ),
            Refusal::HeaderTooLarge => answer(
                431,
                "http_request_error",
                "the head of the request is too large",
            ),
            Refusal::HeaderTimeout => {
                answer(408, "http_request_error", "the request took too long")
            }
            Refusal::Unsupported => answer(501, "http_request_error", "the proxy does not do this"),
            Refusal::BadTarget => answer(400, "http_request_error", "the target is none"),
            Refusal::UserMissing | Refusal::UserWrong => answer(
                407,
                "http_request_denied",
                "the proxy wants a user and a password",
            ),
            Refusal::UserBusy => answer(
                429,
                "http_request_denied",
                "too many passwords were wrong or wait: ask again in a while",
            ),
            Refusal::ClassFull | Refusal::ClassRate => answer(
                429,
                "http_request_denied",
                "as many connections of this kind as may be are open or begin: ask again in a while",
            ),
            Refusal::ClassQuota => answer(
                429,
                "http_request_denied",
                "what connections of this kind may carry is used up: ask again in the next period",
            ),
            Refusal::Rule | Refusal::Port => {
                answer(403, "http_request_denied", "the proxy's rules forbid this")
            }
            Refusal::Address => answer(
                403,
                "destination_ip_prohibited",
                "the proxy's rules forbid this address",
            ),
            Refusal::Loop => answer(502, "proxy_loop_detected", "the request has come back"),
            Refusal::Truncated | Refusal::ClientFull | Refusal::Tls | Refusal::ProxyHeader => {
                return None;
            }
        })
    }

    /// For a target that was not reached.
    pub(super) fn to_failed(why: Failure) -> Self {
        match why {
            Failure::Refused => answer(502, "connection_refused", "the server refused"),
            Failure::NetworkUnreachable => answer(
                502,
                "destination_ip_unroutable",
                "no route leads to the server",
            ),
            Failure::HostUnreachable => answer(
                502,
                "destination_unavailable",
                "the server is not reachable",
            ),
            Failure::TimedOut => answer(504, "connection_timeout", "the server did not answer"),
            Failure::NameNotFound => answer(502, "dns_error", "the server's name is not known"),
            Failure::NameTimedOut => answer(504, "dns_timeout", "no name server answered"),
            Failure::NoResources => answer(
                503,
                "connection_limit_reached",
                "the proxy has no connection left",
            ),
            Failure::BadAnswer => answer(
                502,
                "http_protocol_error",
                "the server's answer is no HTTP/1.1, or broke off",
            ),
            Failure::Certificate => answer(
                502,
                "tls_certificate_error",
                "the server's certificate is not one to be trusted for its name",
            ),
            Failure::Tls => answer(502, "tls_protocol_error", "the server spoke no TLS with us"),
            Failure::TlsAlert => answer(502, "tls_alert_received", "the server refused TLS"),
            Failure::Other => answer(502, "proxy_internal_error", "the server was not reached"),
        }
    }

    /// The same with another status.
    pub(super) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    /// The bytes. An answer to HEAD has no body.
    pub(super) fn bytes(self, pseudonym: &str, method: &str, close: bool) -> Vec<u8> {
        let Self {
            status,
            error,
            text,
        } = self;
        let reason = reason(status);
        let ask = match status {
            407 => "Proxy-Authenticate: Basic realm=\"manypath\", charset=\"UTF-8\"\r\n",
            429 => "Retry-After: 5\r\n",
            _ => "",
        };
        let end = if close { "Connection: close\r\n" } else { "" };
        let length = text.len() + 1;
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\n{ask}Proxy-Status: {pseudonym}; error={error}\r\nContent-Type: text/plain\r\n\
             Content-Length: {length}\r\n{end}\r\n"
        );
        match method {
            "HEAD" => head.into_bytes(),
            _ => format!("{head}{text}\n").into_bytes(),
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        414 => "URI Too Long",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_and_every_refusal_of_a_request_has_an_answer() {
        for why in Failure::ALL {
            assert!((502..=504).contains(&Answer::to_failed(why).status));
        }
        for why in Refusal::ALL {
            if let Some(answer) = Answer::to_refused(why) {
                assert_ne!(reason(answer.status), "Error", "{why:?}");
            }
        }
        let bytes = Answer::to_refused(Refusal::UserMissing).map(|a| a.bytes("p", "HEAD", true));
        let text = String::from_utf8(bytes.expect("an answer")).expect("text");
        assert!(text.starts_with("HTTP/1.1 407 "), "{text}");
        assert!(text.contains("Basic realm"), "{text}");
        assert!(text.ends_with("Connection: close\r\n\r\n"), "{text}");
    }
}
