//! How long the body of a message is (RFC 9112 section 6.3). Pure.
//!
//! Whatever two readers could measure differently is refused: that is how requests, and answers, are smuggled.

use super::head::{Field, RequestHead, ResponseHead, list};

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection (answers alone).
    UntilClose,
}

/// Why a message has no body that everybody measures in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFraming {
    /// Two lengths, a length that is no number, or a length and chunks.
    Ambiguous,
    /// A transfer coding that is not `chunked` alone (RFC 9112 section 6.1).
    Coding,
}

/// The body of a request.
///
/// # Errors
/// It could be measured in two ways.
pub fn of_request(head: &RequestHead<'_>) -> Result<Body, BadFraming> {
    let length = length(&head.fields)?;
    if !has(&head.fields, "transfer-encoding") {
        return Ok(length.map_or(Body::None, Body::Length));
    }
    if length.is_some() || head.minor == 0 {
        return Err(BadFraming::Ambiguous);
    }
    match is_chunked(&head.fields) {
        true => Ok(Body::Chunked),
        false => Err(BadFraming::Coding),
    }
}

/// The body of an answer to a request of this method. A length beside chunks does not count (RFC 9112 section 6.3).
///
/// # Errors
/// It could be measured in two ways.
pub fn of_response(method: &str, head: &ResponseHead<'_>) -> Result<Body, BadFraming> {
    if method == "HEAD" || matches!(head.status, 100..=199 | 204 | 304) {
        return Ok(Body::None);
    }
    if has(&head.fields, "transfer-encoding") {
        return match is_chunked(&head.fields) {
            true if head.minor > 0 => Ok(Body::Chunked),
            true | false => Err(BadFraming::Coding),
        };
    }
    Ok(length(&head.fields)?.map_or(Body::UntilClose, Body::Length))
}

fn has(fields: &[Field<'_>], name: &str) -> bool {
    fields.iter().any(|field| field.is(name))
}

fn is_chunked(fields: &[Field<'_>]) -> bool {
    let mut codings = list(fields, "transfer-encoding");
    let first = codings.next();
    first.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

/// The one length of all `Content-Length` fields; the same number twice is one (RFC 9110 section 8.6).
pub(crate) fn length(fields: &[Field<'_>]) -> Result<Option<u64>, BadFraming> {
    let mut known = None;
    for field in fields.iter().filter(|field| field.is("content-length")) {
        for number in field.value.split(|&b| b == b',') {
            let number = super::head::trim(number);
            // `parse` would take a sign.
            let digits = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(number).ok().filter(|_| digits);
            let number: u64 = number
                .and_then(|number| number.parse().ok())
                .ok_or(BadFraming::Ambiguous)?;
            if known.is_some_and(|known| known != number) {
                return Err(BadFraming::Ambiguous);
            }
            known = Some(number);
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::super::head::{parse_request, parse_response};
    use super::*;

    fn request(fields: &str) -> Result<Body, BadFraming> {
        let head = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n");
        of_request(&parse_request(head.as_bytes()).expect("a head"))
    }

    #[test]
    fn smuggled_requests_have_no_length() {
        use BadFraming::{Ambiguous, Coding};
        for (fields, wanted) in [
            ("", Ok(Body::None)),
            ("Content-Length: 5\r\n", Ok(Body::Length(5))),
            ("Content-Length: 0\r\n", Ok(Body::Length(0))),
            (
                "Content-Length: 5\r\nContent-Length: 5\r\n",
                Ok(Body::Length(5)),
            ),
            ("Content-Length: 5, 5\r\n", Ok(Body::Length(5))),
            ("Transfer-Encoding: Chunked\r\n", Ok(Body::Chunked)),
            // Two lengths.
            ("Content-Length: 5\r\nContent-Length: 6\r\n", Err(Ambiguous)),
            ("Content-Length: 5\r\ncontent-length: 6\r\n", Err(Ambiguous)),
            ("Content-Length: 5, 6\r\n", Err(Ambiguous)),
            // No number.
            ("Content-Length: +5\r\n", Err(Ambiguous)),
            ("Content-Length: -1\r\n", Err(Ambiguous)),
            ("Content-Length: 0x5\r\n", Err(Ambiguous)),
            ("Content-Length: 5 5\r\n", Err(Ambiguous)),
            ("Content-Length: 5,\r\n", Err(Ambiguous)),
            ("Content-Length:\r\n", Err(Ambiguous)),
            ("Content-Length: 18446744073709551616\r\n", Err(Ambiguous)),
            // A length and chunks, in either order.
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                Err(Ambiguous),
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                Err(Ambiguous),
            ),
            (
                "Transfer-Encoding: x\r\nContent-Length: 5\r\n",
                Err(Ambiguous),
            ),
            // Codings that somebody else may not see, or sees twice.
            ("Transfer-Encoding: xchunked\r\n", Err(Coding)),
            ("Transfer-Encoding: chunked, identity\r\n", Err(Coding)),
            ("Transfer-Encoding: identity, chunked\r\n", Err(Coding)),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                Err(Coding),
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
                Err(Coding),
            ),
            ("Transfer-Encoding: \"chunked\"\r\n", Err(Coding)),
            ("Transfer-Encoding:\r\n", Err(Coding)),
        ] {
            assert_eq!(request(fields), wanted, "{fields}");
        }
        let old = parse_request(b"POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(of_request(&old.expect("a head")), Err(Ambiguous));
    }

    #[test]
    fn answers_without_a_body_have_none_whatever_they_say() {
        let answer = |method, text: &str| {
            let head = format!("{text}\r\n\r\n");
            of_response(method, &parse_response(head.as_bytes()).expect("a head"))
        };
        for (method, text, wanted) in [
            (
                "HEAD",
                "HTTP/1.1 200 OK\r\nContent-Length: 1234",
                Ok(Body::None),
            ),
            (
                "GET",
                "HTTP/1.1 304 No\r\nContent-Length: 99",
                Ok(Body::None),
            ),
            (
                "GET",
                "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked",
                Ok(Body::None),
            ),
            ("GET", "HTTP/1.1 200 OK", Ok(Body::UntilClose)),
            (
                "GET",
                "HTTP/1.1 200 OK\r\nContent-Length: 3",
                Ok(Body::Length(3)),
            ),
            (
                "GET",
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
                Ok(Body::Chunked),
            ),
            (
                "GET",
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4",
                Err(BadFraming::Ambiguous),
            ),
            (
                "GET",
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
                Err(BadFraming::Coding),
            ),
            (
                "GET",
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
                Err(BadFraming::Coding),
            ),
        ] {
            assert_eq!(answer(method, text), wanted, "{method} {text}");
        }
    }
}
