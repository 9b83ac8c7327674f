//! The heads of HTTP/1.1 messages: request or status line, and fields (RFC 9112 sections 2 to 5).
//!
//! Requests are read strictly: what two readers could take for two things (a bare LF, a folded line, a space before a colon, a
//! control character) is no request, as that is how requests are smuggled (RFC 9112 section 11.2). Answers are read as
//! leniently as servers write them, and written anew.

/// Fields of one message.
const MOST_FIELDS: usize = 500;

/// One field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name, as it was written.
    pub name: &'a str,
    /// Its value, without the blanks around it.
    pub value: &'a [u8],
}

impl Field<'_> {
    /// Whether this is its name.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// A token.
    pub method: &'a str,
    /// Visible ASCII.
    pub target: &'a str,
    /// HTTP/1.`minor`: 0, or 1 for all that is higher.
    pub minor: u8,
    /// In their order.
    pub fields: Vec<Field<'a>>,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// 100 to 999.
    pub status: u16,
    /// The words behind it.
    pub reason: &'a [u8],
    /// HTTP/1.`minor`: 0, or 1 for all that is higher.
    pub minor: u8,
    /// In their order.
    pub fields: Vec<Field<'a>>,
}

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHead {
    /// They do not follow the grammar.
    Malformed,
    /// There are more fields than anybody needs.
    TooManyFields,
    /// A version of HTTP that is not 1.
    Version,
}

/// Where a head ends: behind the first empty line, whichever way its lines end. The first `from` bytes were looked at before.
#[must_use]
pub fn find_end(bytes: &[u8], from: usize) -> Option<usize> {
    // An end may have begun in what was looked at.
    let from = from.saturating_sub(3);
    let mut lf = bytes
        .iter()
        .enumerate()
        .skip(from)
        .filter(|(_, b)| **b == b'\n');
    lf.find_map(|(at, _)| match bytes.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Whether a request's first bytes cannot be HTTP: its first line has something that is no visible ASCII (a TLS or SOCKS client,
/// noise). So nobody has to wait for its end to see that.
#[must_use]
pub fn is_hopeless(bytes: &[u8]) -> bool {
    let line = bytes.split(|&b| b == b'\n').next().unwrap_or(bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    !line.iter().all(|b| (b' '..=b'~').contains(b))
}

/// Empty lines in front of a request (RFC 9112 section 2.2), two at most.
#[must_use]
pub fn empty_lines(bytes: &[u8]) -> usize {
    let pairs = bytes.chunks_exact(2).take(2);
    2 * pairs.take_while(|pair| *pair == b"\r\n").count()
}

/// Reads the head of a request, its empty line included.
///
/// # Errors
/// Why it is none.
pub fn parse_request(head: &[u8]) -> Result<RequestHead<'_>, BadHead> {
    let mut lines = Strict(head);
    let line = lines.next().ok_or(BadHead::Malformed)??;
    let line = std::str::from_utf8(line).map_err(|_| BadHead::Malformed)?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BadHead::Malformed);
    };
    let visible = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    if !is_token(method) || !visible(target) {
        return Err(BadHead::Malformed);
    }
    let minor = version_of(version.as_bytes())?;
    let mut fields = Vec::new();
    loop {
        let line = lines.next().ok_or(BadHead::Malformed)??;
        if line.is_empty() {
            break;
        }
        push(&mut fields, parse_field(line)?)?;
    }
    if !lines.0.is_empty() {
        return Err(BadHead::Malformed);
    }
    Ok(RequestHead {
        method,
        target,
        minor,
        fields,
    })
}

/// Reads fields up to an empty line: what stands behind the last chunk (RFC 9112 section 7.1.2). As strict as a request's head.
///
/// # Errors
/// They are none.
pub fn parse_trailers(bytes: &[u8]) -> Result<Vec<Field<'_>>, BadHead> {
    let mut fields = Vec::new();
    for line in Strict(bytes) {
        let line = line?;
        if line.is_empty() {
            return Ok(fields);
        }
        push(&mut fields, parse_field(line)?)?;
    }
    Err(BadHead::Malformed)
}

/// Reads the head of an answer, its empty line included. A folded line (RFC 9112 section 5.2) is refused.
///
/// # Errors
/// Why it is none.
pub fn parse_response(head: &[u8]) -> Result<ResponseHead<'_>, BadHead> {
    let mut lines = head
        .split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let line = lines.next().ok_or(BadHead::Malformed)?;
    let mut words = line.splitn(3, |&b| b == b' ');
    let minor = version_of(words.next().ok_or(BadHead::Malformed)?)?;
    let status = match words.next() {
        Some(&[a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9']) => [a, b, c]
            .iter()
            .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')),
        _ => return Err(BadHead::Malformed),
    };
    let reason = words.next().unwrap_or_default();
    if !reason.iter().all(|&b| is_value(b)) {
        return Err(BadHead::Malformed);
    }
    let mut fields = Vec::new();
    for line in lines {
        if line.is_empty() {
            break;
        }
        push(&mut fields, parse_lenient_field(line)?)?;
    }
    Ok(ResponseHead {
        status,
        reason,
        minor,
        fields,
    })
}

fn push<'a>(fields: &mut Vec<Field<'a>>, field: Field<'a>) -> Result<(), BadHead> {
    if fields.len() >= MOST_FIELDS {
        return Err(BadHead::TooManyFields);
    }
    fields.push(field);
    Ok(())
}

/// Lines that end in CRLF, and have neither CR nor LF in them.
struct Strict<'a>(&'a [u8]);

impl<'a> Iterator for Strict<'a> {
    type Item = Result<&'a [u8], BadHead>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let end = self.0.iter().position(|&b| b == b'\r' || b == b'\n');
        let Some((line, rest)) = end
            .map(|end| self.0.split_at(end))
            .and_then(|(line, rest)| Some((line, rest.strip_prefix(b"\r\n")?)))
        else {
            self.0 = &[];
            return Some(Err(BadHead::Malformed));
        };
        self.0 = rest;
        Some(Ok(line))
    }
}

fn parse_field(line: &[u8]) -> Result<Field<'_>, BadHead> {
    let colon = line.iter().position(|&b| b == b':');
    let (name, value) = line.split_at(colon.ok_or(BadHead::Malformed)?);
    let name = std::str::from_utf8(name).map_err(|_| BadHead::Malformed)?;
    let value = trim(&value[1..]);
    if !is_token(name) || !value.iter().all(|&b| is_value(b)) {
        return Err(BadHead::Malformed);
    }
    Ok(Field { name, value })
}

/// A space before the colon is taken away, as a proxy has to (RFC 9112 section 5.1).
fn parse_lenient_field(line: &[u8]) -> Result<Field<'_>, BadHead> {
    let colon = line.iter().position(|&b| b == b':');
    let (name, value) = line.split_at(colon.ok_or(BadHead::Malformed)?);
    let name = std::str::from_utf8(name).map_err(|_| BadHead::Malformed)?;
    let (name, value) = (name.trim_end_matches([' ', '\t']), trim(&value[1..]));
    if !is_token(name) || !value.iter().all(|&b| is_value(b)) {
        return Err(BadHead::Malformed);
    }
    Ok(Field { name, value })
}

fn version_of(text: &[u8]) -> Result<u8, BadHead> {
    match text {
        b"HTTP/1.0" => Ok(0),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9'] => Ok(1),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => Err(BadHead::Version),
        _ => Err(BadHead::Malformed),
    }
}

/// Takes spaces and tabs away from both ends.
#[must_use]
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// RFC 9110 section 5.6.2.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(fits)
}

/// RFC 9110 section 5.5: visible characters, blanks, and what is beyond ASCII.
fn is_value(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// The members of a comma-separated list over all fields of that name (RFC 9110 section 5.6.1).
pub fn list<'a>(fields: &'a [Field<'a>], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let values = fields.iter().filter(move |field| field.is(name));
    let members = values.flat_map(|field| field.value.split(|&b| b == b','));
    members.map(trim).filter(|member| !member.is_empty())
}

/// Whether a comma-separated list has a member, in whatever case.
#[must_use]
pub fn lists(fields: &[Field<'_>], name: &str, member: &str) -> bool {
    list(fields, name).any(|known| known.eq_ignore_ascii_case(member.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_and_its_fields() {
        let head = parse_request(b"GET http://a/ HTTP/1.1\r\nHost: a\r\nX:\t b c \r\nY:\r\n\r\n")
            .expect("whole");
        assert_eq!(
            (head.method, head.target, head.minor),
            ("GET", "http://a/", 1)
        );
        let fields: Vec<(&str, &[u8])> = head.fields.iter().map(|f| (f.name, f.value)).collect();
        assert_eq!(fields, [("Host", &b"a"[..]), ("X", b"b c"), ("Y", b"")]);
    }

    #[test]
    fn what_two_readers_could_take_for_two_things_is_no_request() {
        for head in [
            &b"GET http://a/ HTTP/1.1\nHost: a\r\n\r\n"[..],
            b"GET http://a/ HTTP/1.1\r\nHost: a\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\n",
            b"GET http://a/ HTTP/1.1\r\nX: a\rb\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nX: a\0b\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nX : a\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\n X: a\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nX\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\n: a\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nX\xc3\xa4: a\r\n\r\n",
            b"GET  http://a/ HTTP/1.1\r\n\r\n",
            b"GET\thttp://a/ HTTP/1.1\r\n\r\n",
            b"GET http://a/ b HTTP/1.1\r\n\r\n",
            b"GET http://a/ HTTP/1.1 \r\n\r\n",
            b"GET http://a/\r\n\r\n",
            b"GET http://\xc3\xa4/ HTTP/1.1\r\n\r\n",
            b"G(T http://a/ HTTP/1.1\r\n\r\n",
            b"GET http://a/ http/1.1\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\n\r\nX",
        ] {
            let text = String::from_utf8_lossy(head);
            assert_eq!(parse_request(head), Err(BadHead::Malformed), "{text:?}");
        }
        let two = parse_request(b"PRI * HTTP/2.0\r\n\r\n");
        assert_eq!(two, Err(BadHead::Version));
        let bomb = format!(
            "GET http://a/ HTTP/1.1\r\n{}\r\n",
            "X: a\r\n".repeat(MOST_FIELDS + 1)
        );
        assert_eq!(parse_request(bomb.as_bytes()), Err(BadHead::TooManyFields));
    }

    #[test]
    fn answers_are_read_as_servers_write_them() {
        let head = parse_response(b"HTTP/1.1 404 Not Found\r\nA : b\r\nC: d\n\n").expect("lenient");
        assert_eq!(
            (head.status, head.reason, head.minor),
            (404, &b"Not Found"[..], 1)
        );
        assert_eq!(
            head.fields[0],
            Field {
                name: "A",
                value: b"b"
            }
        );
        assert_eq!(
            parse_response(b"HTTP/1.0 200\r\n\r\n").map(|h| (h.status, h.minor)),
            Ok((200, 0))
        );
        for head in [
            &b"ICY 200 OK\r\n\r\n"[..],
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        ] {
            assert_eq!(parse_response(head), Err(BadHead::Malformed));
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_however_it_arrives() {
        for (bytes, end) in [
            (&b"A\r\n\r\nB"[..], Some(5)),
            (b"A\n\nB", Some(3)),
            (b"A\r\n\nB", Some(4)),
            (b"A\r\n\r", None),
            (b"A\r\nB\r\n", None),
        ] {
            assert_eq!(find_end(bytes, 0), end);
            for seen in 0..end.unwrap_or(bytes.len()) {
                assert_eq!(find_end(bytes, seen), end, "{seen} of {bytes:?}");
            }
        }
        assert!(is_hopeless(b"\x16\x03\x01"));
        assert!(is_hopeless(b"\x05\x01\x00"));
        assert!(!is_hopeless(b"GET http://a/ HT"));
        assert!(!is_hopeless(b"GET http://a/ HTTP/1.1\r\nX: \xc3"));
        assert_eq!(empty_lines(b"\r\n\r\n\r\nGET"), 4);
        assert_eq!(empty_lines(b"GET"), 0);
    }

    #[test]
    fn lists_go_over_several_fields() {
        let head = b"HTTP/1.1 200 OK\r\nConnection: a, ,B\r\nconnection: close\r\n\r\n";
        let head = parse_response(head).expect("whole");
        let members: Vec<&[u8]> = list(&head.fields, "connection").collect();
        assert_eq!(members, [&b"a"[..], b"B", b"close"]);
        assert!(lists(&head.fields, "Connection", "b"));
    }
}
