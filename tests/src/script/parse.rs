//! Text to [`Script`].

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{
    Action, ArmName, Either, PORT, Script, Settings, Shape, Step, What, device_address,
    peer_address,
};

/// Reads a script.
///
/// # Errors
/// With the line's number, what is wrong with it.
pub fn script(name: &str, text: &str) -> Result<Script, String> {
    let lines = expand(text).map_err(|why| format!("{name}:{why}"))?;
    let mut reader = Reader {
        lines: lines
            .iter()
            .map(|(line, text)| (*line, text.as_str()))
            .collect(),
        at: 0,
    };
    let title = text
        .lines()
        .find_map(|line| line.strip_prefix('#'))
        .unwrap_or_default();
    let mut script = Script {
        name: name.to_owned(),
        title: title.trim().to_owned(),
        settings: Settings::default(),
        skip: None,
        steps: Vec::new(),
    };
    while let Some((line, words)) = reader.next() {
        let step = header(words, &mut script).and_then(|done| {
            if done {
                Ok(None)
            } else {
                reader.step(line, words).map(Some)
            }
        });
        match step {
            Ok(step) => script.steps.extend(step),
            Err(why) => return Err(format!("{name}:{line}: {why}")),
        }
    }
    if script.title.is_empty() {
        return Err(format!(
            "{name}: the first comment has to say what it is about"
        ));
    }
    Ok(script)
}

/// The handshake of a server under test; `{c}` is there for checksums.
const SERVER: &[&str] = &[
    "app listen",
    "< [S], options [mptcp capable v1{c}]",
    "> [S.], options [mptcp capable v1{c} {key}]",
    "< [.], options [mptcp capable v1{c} {key,key}]",
    "app accept",
    "< [.], options [mptcp dss ack64 1]",
];

/// The handshake of a client under test.
const CLIENT: &[&str] = &[
    "app connect",
    "> [S], options [mptcp capable v1{c}]",
    "< [S.], options [mptcp capable v1{c} {key}]",
    "> [.], options [mptcp capable v1{c} {key,key}]",
    "app connected",
    "< [.], options [mptcp dss ack64 1]",
];

/// The script joins as flow `{n}` from its address on path `{n}`.
const JOINED: &[&str] = &[
    "flow {n} path {n}",
    "{n}< [S], options [mptcp join id {n} token good]",
    "{n}> [S.], options [mptcp join id * hmac good]",
    "{n}< [.], options [mptcp join hmac good]",
    "{n}> [.], seq 1, ack 1",
];

/// The device joins as flow `{n}` from its address on path `{n}`.
const JOINS: &[&str] = &[
    "app join path {n}",
    "{n}> [S], options [mptcp join id * token good]",
    "{n}< [S.], options [mptcp join id {n} hmac good]",
    "{n}> [.], options [mptcp join hmac good]",
    "{n}< [.], options [mptcp dss ack64 1]",
];

/// Writes out the abbreviations, with the number of the line that each line comes from.
fn expand(text: &str) -> Result<Vec<(usize, String)>, String> {
    let mut lines = Vec::new();
    let mut checksum = "";
    for (number, line) in text.lines().enumerate().map(|(i, l)| (i + 1, l.trim())) {
        let mut of = |what: &[&str], flow: &str| {
            let written = |line: &&str| line.replace("{c}", checksum).replace("{n}", flow);
            lines.extend(what.iter().map(|line| (number, written(line))));
        };
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["set", "checksum"] => {
                of(&[line], "");
                checksum = " csum";
            }
            ["established", "server"] => of(SERVER, ""),
            ["established", "client"] => of(CLIENT, ""),
            ["joined", flow] => of(JOINED, flow),
            ["joins", flow] => of(JOINS, flow),
            ["established" | "joined" | "joins", ..] => {
                return Err(format!("{number}: not understood: {line}"));
            }
            _ => lines.push((number, line.to_owned())),
        }
    }
    Ok(lines)
}

/// Takes a line that is about the whole script.
fn header(line: &str, script: &mut Script) -> Result<bool, String> {
    if let Some(rest) = line.strip_prefix("skip ") {
        let (arm, why) = rest.split_once(':').ok_or("skip ARM: why")?;
        script.skip = Some((arm_name(arm)?, why.trim().to_owned()));
        return Ok(true);
    }
    let Some(rest) = line.strip_prefix("set ") else {
        return Ok(false);
    };
    let settings = &mut script.settings;
    match rest.split_whitespace().collect::<Vec<_>>()[..] {
        ["checksum"] => settings.checksum = true,
        ["cookies"] => settings.cookies = true,
        ["fast-open"] => settings.fast_open = true,
        ["ecn"] => settings.ecn = true,
        ["mesh"] => settings.mesh = true,
        ["receive-buffer", bytes] => settings.receive_buffer = Some(number(bytes)?),
        _ => return Err(format!("no setting '{rest}'")),
    }
    Ok(true)
}

struct Reader<'a> {
    lines: Vec<(usize, &'a str)>,
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next line that says something.
    fn next(&mut self) -> Option<(usize, &'a str)> {
        while let Some(&(line, text)) = self.lines.get(self.at) {
            self.at += 1;
            let text = text.trim();
            if !text.is_empty() && !text.starts_with('#') {
                return Some((line, text));
            }
        }
        None
    }

    fn step(&mut self, line: usize, whole: &str) -> Result<Step, String> {
        let (flow, text) = match whole.split_at_checked(1) {
            Some((digit, rest)) if digit.starts_with(|c: char| c.is_ascii_digit()) => {
                (number(digit)?, rest.trim_start())
            }
            _ => (0, whole),
        };
        let what = if let Some(rest) = text.strip_prefix('<') {
            What::Inject(shape(rest)?)
        } else if let Some(rest) = text.strip_prefix(">>") {
            let (rest, within) = within(rest)?;
            What::Find(shape(rest)?, within)
        } else if let Some(rest) = text.strip_prefix('>') {
            let (rest, within) = within(rest)?;
            What::Expect(shape(rest)?, within)
        } else if let Some(rest) = text.strip_prefix('!') {
            let (rest, within) = within(rest)?;
            What::Never(shape(rest)?, within.ok_or("'!' needs 'within'")?)
        } else if let Some(rest) = text.strip_prefix("nothing") {
            What::Nothing(within(rest)?.1.ok_or("'nothing' needs 'within'")?)
        } else if let Some(rest) = text.strip_prefix("app ") {
            What::App(action(rest.trim())?)
        } else if let Some(rest) = text.strip_prefix("flow ") {
            return flow_line(line, whole, rest);
        } else if text == "connection" {
            What::Connection
        } else if text == "either" {
            What::Either(Box::new(self.either()?))
        } else {
            return Err(format!("not understood: {text}"));
        };
        let text = whole.to_owned();
        Ok(Step {
            line,
            text,
            flow,
            what,
        })
    }

    /// `either`, lines, `or ARM: reason`, lines, `end`.
    fn either(&mut self) -> Result<Either, String> {
        let mut wanted = Vec::new();
        let (arm, reason) = loop {
            let (line, text) = self.next().ok_or("'either' without 'or'")?;
            match text.strip_prefix("or ") {
                Some(rest) => {
                    let (arm, reason) = rest.split_once(':').ok_or("or ARM: reason")?;
                    break (arm_name(arm)?, reason.trim().to_owned());
                }
                None => wanted.push(self.step(line, text)?),
            }
        };
        let cites = reason.contains("rfc8684:") || reason.contains("RFC ");
        if !reason.contains("right:") || !cites {
            return Err("a difference has to say which is 'right:' by which rule".to_owned());
        }
        let mut instead = Vec::new();
        loop {
            let (line, text) = self.next().ok_or("'either' without 'end'")?;
            if text == "end" {
                break;
            }
            instead.push(self.step(line, text)?);
        }
        Ok(Either {
            wanted,
            arm,
            reason,
            instead,
        })
    }
}

fn arm_name(text: &str) -> Result<ArmName, String> {
    match text.trim() {
        "ours" => Ok(ArmName::Ours),
        "kernel" => Ok(ArmName::Kernel),
        other => Err(format!("no arm '{other}'")),
    }
}

fn flow_line(line: usize, whole: &str, text: &str) -> Result<Step, String> {
    let device = device_address(0);
    let (flow, from, to, port) = match text.split_whitespace().collect::<Vec<_>>()[..] {
        [flow, "path", path] => (flow, peer_address(number(path)?), device, PORT),
        [flow, "path", path, "port", port] => {
            (flow, peer_address(number(path)?), device, number(port)?)
        }
        [flow, "from", from] => (flow, address(from)?, device, PORT),
        [flow, "to", to] => (flow, peer_address(0), address(to)?, PORT),
        _ => {
            return Err("flow N path N [port N], flow N from ADDRESS or flow N to ADDRESS".into());
        }
    };
    let (flow, to) = (number(flow)?, SocketAddr::new(to, port));
    Ok(Step {
        line,
        text: whole.to_owned(),
        flow,
        what: What::Flow { from, to },
    })
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("no address: '{text}'"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("no number: '{text}'"))
}

/// Splits `... within 200ms` off a line.
fn within(text: &str) -> Result<(&str, Option<Duration>), String> {
    let Some((rest, time)) = text.rsplit_once("within ") else {
        return Ok((text, None));
    };
    let time = time.trim();
    let value = if let Some(ms) = time.strip_suffix("ms") {
        Duration::from_millis(number(ms)?)
    } else if let Some(s) = time.strip_suffix('s') {
        Duration::from_secs(number(s)?)
    } else {
        return Err(format!("a time ends in ms or s: '{time}'"));
    };
    Ok((rest.trim_end().trim_end_matches(','), Some(value)))
}

/// `"text"`, or a number for that many bytes of a pattern.
fn payload(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('"') {
        Some(rest) => match rest.strip_suffix('"') {
            Some(inner) => Ok(inner.as_bytes().to_vec()),
            None => Err(format!("a text without its end: {text}")),
        },
        None => {
            let len: usize = number(text)?;
            Ok((0..len).map(|i| b'a' + (i % 23) as u8).collect())
        }
    }
}

fn action(text: &str) -> Result<Action, String> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    let path = || number::<u8>(rest.trim_start_matches("path").trim());
    Ok(match (verb, rest) {
        ("listen", "") => Action::Listen,
        ("connect", "") => Action::Connect(Vec::new()),
        ("connect", bytes) => Action::Connect(payload(bytes)?),
        ("connected", "") => Action::Connected,
        ("accept", "") => Action::Accept,
        ("read", "end") => Action::ReadEnd,
        ("read", "reset") => Action::ReadReset,
        ("read", bytes) => Action::Read(payload(bytes)?),
        ("write", bytes) => Action::Write(payload(bytes)?),
        ("shutdown", "") => Action::Shutdown,
        ("close", "") => Action::Close,
        ("abort", "") => Action::Abort,
        ("join", _) => Action::Join(path()?),
        ("announce", _) => Action::Announce(path()?),
        ("withdraw", _) => Action::Withdraw(path()?),
        ("backup", _) => Action::Backup(path()?),
        ("speaks", "mptcp") => Action::Speaks(true),
        ("speaks", "tcp") => Action::Speaks(false),
        _ => return Err(format!("no action '{text}'")),
    })
}

/// Commas that are not inside brackets, braces or quotes separate.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut quoted, mut from) = (Vec::new(), 0, false, 0);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn shape(text: &str) -> Result<Shape, String> {
    let mut shape = Shape::default();
    let mut parts = split(text).into_iter();
    let flags = parts.next().ok_or("a segment needs its flags")?;
    let flags = flags.strip_prefix("Flags ").unwrap_or(flags);
    shape.flags = flags
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .ok_or(format!("flags stand in brackets: '{flags}'"))?
        .to_owned();
    for part in parts {
        if part.starts_with('"') {
            shape.payload = Some(payload(part)?);
            continue;
        }
        let (key, value) = part.split_once(' ').unwrap_or((part, ""));
        match key {
            "seq" => {
                let (start, end) = match value.split_once(':') {
                    Some((start, end)) => (start, Some(number(end)?)),
                    None => (value, None),
                };
                shape.seq = Some((number(start)?, end));
            }
            "ack" => shape.ack = Some(number(value)?),
            "win" => shape.window = Some(number(value)?),
            "length" => shape.length = Some(number(value)?),
            "bytes" => shape.payload = Some(payload(value)?),
            "options" => {
                let inner = value
                    .strip_prefix('[')
                    .and_then(|rest| rest.strip_suffix(']'))
                    .ok_or("options stand in brackets")?;
                shape.options = Some(split(inner).into_iter().map(str::to_owned).collect());
            }
            _ => return Err(format!("not part of a segment: '{part}'")),
        }
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_line_by_line() {
        let text = "# A title.\nset checksum\napp listen\n\n1< [P.], seq 1:6, ack 1, options [mss 1460,mptcp capable v1 {key,key} len 5], \"a, b\"\n> [.], ack 6, within 200ms\n";
        let script = script("x", text).expect("right");
        assert_eq!(script.title, "A title.");
        assert!(script.settings.checksum);
        assert_eq!(script.steps.len(), 3);
        let What::Inject(shape) = &script.steps[1].what else {
            panic!("{:?}", script.steps[1]);
        };
        assert_eq!(script.steps[1].flow, 1);
        assert_eq!(shape.seq, Some((1, Some(6))));
        assert_eq!(
            shape.options.as_deref(),
            Some(
                &[
                    "mss 1460".to_owned(),
                    "mptcp capable v1 {key,key} len 5".to_owned()
                ][..]
            )
        );
        assert_eq!(shape.payload.as_deref(), Some(&b"a, b"[..]));
        let What::Expect(shape, limit) = &script.steps[2].what else {
            panic!("{:?}", script.steps[2]);
        };
        assert_eq!(shape.ack, Some(6));
        assert_eq!(*limit, Some(Duration::from_millis(200)));
    }

    #[test]
    fn a_difference_names_its_rule() {
        let with = |reason: &str| {
            let text = format!("# T\neither\n> [R]\nor kernel: {reason}\n> [.]\nend\n");
            script("x", &text)
        };
        assert!(with("it likes to; right: ours, rfc8684:J14").is_ok());
        assert!(with("it likes to; right: ours").is_err());
        assert!(with("it likes to, rfc8684:J14").is_err());
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        for (text, line) in [
            ("# T\napp dance\n", ":2:"),
            ("# T\n\n> [.], sequence 5\n", ":3:"),
            ("# T\n! [R]\n", ":2:"),
            ("# T\nset everything\n", ":2:"),
        ] {
            let error = script("x", text).expect_err(text);
            assert!(error.contains(line), "{error}");
        }
    }
}
