//! Segments of the device under test in the script's terms, and whether they are what a script describes.

use manypath_wire::describe::OptionList;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::mptcp::MptcpOption;
use manypath_wire::tcp::options::{FastOpen, Options};

use super::Shape;
use super::option::{self, Voice};

/// A segment that the device sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Its flags, as letters.
    pub flags: String,
    /// Relative sequence number.
    pub seq: i64,
    /// Relative acknowledgement, with the flag ACK.
    pub ack: Option<i64>,
    /// Window field.
    pub window: u16,
    /// Options as text, those of Multipath TCP with `mptcp` before them.
    pub options: Vec<String>,
    /// Payload.
    pub payload: Vec<u8>,
    /// It repeats sequence numbers that were sent before.
    pub repeats: bool,
    /// An acknowledgement that says nothing but how far the sender has received.
    pub is_bare: bool,
}

impl Observed {
    /// Translates a segment. `base` is the initial number of the device and of the script, `cookie` the Fast Open cookie
    /// that counts as good.
    #[must_use]
    pub fn of(
        segment: &Segment<'_>,
        voice: &Voice<'_>,
        base: (SeqNum, SeqNum),
        cookie: Option<FastOpen>,
    ) -> Self {
        let flags = segment.header.flags;
        let mut plain = Options {
            mptcp: Options::EMPTY.mptcp,
            fastopen: None,
            ..segment.options
        };
        plain.ignored = 0;
        let text = OptionList(&plain).to_string();
        let mut options: Vec<String> = text.split(',').map(str::to_owned).collect();
        options.retain(|option| !option.is_empty());
        if let Some(given) = segment.options.fastopen {
            options.push(match given.cookie() {
                [] => "tfo cookiereq".to_owned(),
                _ if Some(given) == cookie => "tfo cookie good".to_owned(),
                _ => "tfo cookie bad".to_owned(),
            });
        }
        let mptcp = &segment.options.mptcp;
        options.extend(
            mptcp
                .iter()
                .map(|o| format!("mptcp {}", option::show(o, voice))),
        );
        let says_more = |o: &MptcpOption| match o {
            MptcpOption::Dss(dss) => dss.mapping.is_some(),
            _ => true,
        };
        Self {
            flags: flags.to_string(),
            seq: i64::from(segment.header.seq.diff(base.0)),
            ack: flags
                .ack()
                .then(|| i64::from(segment.header.ack.diff(base.1))),
            window: segment.header.window,
            options,
            payload: segment.payload.to_vec(),
            repeats: false,
            is_bare: segment.payload.is_empty()
                && !flags.syn()
                && !flags.fin()
                && !flags.rst()
                && !mptcp.iter().any(says_more),
        }
    }

    /// Sequence numbers that it takes.
    #[must_use]
    pub fn space(&self) -> i64 {
        let flag = |letter: char| i64::from(self.flags.contains(letter));
        // A packet's payload is far below 2^63.
        self.payload.len() as i64 + flag('S') + flag('F')
    }

    /// Why it is not what the script describes.
    ///
    /// # Errors
    /// The first thing in which it differs.
    pub fn check(&self, shape: &Shape) -> Result<(), String> {
        // Who sets PSH and when is nobody's business (RFC 9293 section 3.9.1.2), unless the script asks for it.
        let pushes = shape.flags.contains('P');
        let ours: String = self.flags.chars().filter(|c| pushes || *c != 'P').collect();
        let fits = match shape.flags.strip_suffix('*') {
            Some(least) => least.chars().all(|c| self.flags.contains(c)),
            None => ours == shape.flags,
        };
        if !fits {
            return Err(format!("flags [{}], not [{}]", self.flags, shape.flags));
        }
        let differs = |what: &str, wanted: i64, found: i64| {
            if wanted == found {
                Ok(())
            } else {
                Err(format!("{what} {found}, not {wanted}"))
            }
        };
        if let Some((start, end)) = shape.seq {
            differs("seq", start, self.seq)?;
            if let Some(end) = end {
                differs("payload to", end, self.seq + self.payload.len() as i64)?;
            }
        }
        if let Some(ack) = shape.ack {
            differs("ack", ack, self.ack.unwrap_or(-1))?;
        }
        if let Some(window) = shape.window {
            differs("win", i64::from(window), i64::from(self.window))?;
        }
        if let Some(length) = shape.length {
            differs("length", length as i64, self.payload.len() as i64)?;
        }
        if shape.payload.as_ref().is_some_and(|p| *p != self.payload) {
            return Err("another payload".to_owned());
        }
        shape
            .options
            .as_ref()
            .map_or(Ok(()), |wanted| self.check_options(wanted))
    }

    /// Multipath TCP options must be exactly those of the script (with `...` among them: at least those); of the others,
    /// only what the script names has to be there. Private ones are of those: no standard says anything of them.
    fn check_options(&self, wanted: &[String]) -> Result<(), String> {
        let mut left: Vec<&String> = self.options.iter().collect();
        let (mut none, mut more) = (false, false);
        for option in wanted {
            match option.as_str() {
                "no mptcp" => none = true,
                "..." => more = true,
                _ if option.starts_with("no ") => {
                    let name = option.trim_start_matches("no ");
                    if self.options.iter().any(|o| o.starts_with(name)) {
                        return Err(format!("has {name}"));
                    }
                }
                _ => {
                    let at = left.iter().position(|found| is_like(option, found));
                    left.remove(at.ok_or(format!("has no {option}"))?);
                }
            }
        }
        let speaks = wanted.iter().any(|o| o.starts_with("mptcp")) || none;
        let standard = |o: &&&String| o.starts_with("mptcp") && !o.starts_with("mptcp private");
        match left.iter().find(standard) {
            Some(option) if speaks && !more => Err(format!("has {option}")),
            Some(_) | None => Ok(()),
        }
    }
}

/// Word by word; `*` stands for any word, `ack*` for any that begins so, and `...` for all that follow.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut found = text.split_whitespace();
    for word in pattern.split_whitespace() {
        if word == "..." {
            return true;
        }
        let Some(given) = found.next() else {
            return false;
        };
        let fits = match word.strip_suffix('*') {
            Some(start) => given.starts_with(start),
            None => given == word,
        };
        if !fits {
            return false;
        }
    }
    found.next().is_none()
}

impl std::fmt::Display for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}], seq {}", self.flags, self.seq)?;
        if !self.payload.is_empty() {
            write!(f, ":{}", self.seq + self.payload.len() as i64)?;
        }
        if let Some(ack) = self.ack {
            write!(f, ", ack {ack}")?;
        }
        write!(f, ", win {}", self.window)?;
        if !self.options.is_empty() {
            write!(f, ", options [{}]", self.options.join(","))?;
        }
        write!(f, ", length {}", self.payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Observed {
        Observed {
            flags: "P.".to_owned(),
            seq: 1,
            ack: Some(1),
            window: 500,
            options: vec![
                "mss 1460".to_owned(),
                "mptcp dss ack64 1 seq64 1 subseq 1 len 5".to_owned(),
            ],
            payload: b"hello".to_vec(),
            repeats: false,
            is_bare: false,
        }
    }

    fn shape(flags: &str, options: &[&str]) -> Shape {
        Shape {
            flags: flags.to_owned(),
            options: Some(options.iter().map(|o| (*o).to_owned()).collect()),
            ..Shape::default()
        }
    }

    #[test]
    fn options_match_by_words_and_wildcards() {
        for (options, matches) in [
            (&["mptcp dss ack* 1 seq* 1 subseq 1 len 5"][..], true),
            (&["mptcp dss ack64 * seq64 * subseq * len *"], true),
            (&["mptcp dss ..."], true),
            (&["mss 1460"], true),
            (&["..."], true),
            (&[], true),
            (&["mptcp dss ack 1 seq 1 subseq 1 len 5"], false),
            (&["mptcp dss ack* 1"], false),
            (&["no mptcp"], false),
            (&["no mss"], false),
            (&["no sackOK"], true),
            (&["mptcp prio", "mptcp dss ..."], false),
        ] {
            let found = segment().check(&shape(".", options));
            assert_eq!(found.is_ok(), matches, "{options:?}: {found:?}");
        }
    }

    #[test]
    fn what_a_script_leaves_out_matches_anything() {
        let plain = Shape {
            flags: ".".to_owned(),
            ..Shape::default()
        };
        assert_eq!(segment().check(&plain), Ok(()));
        let push = |flags: &str| Shape {
            flags: flags.to_owned(),
            ..plain.clone()
        };
        assert_eq!(segment().check(&push("P.")), Ok(()));
        assert_eq!(segment().check(&push("P*")), Ok(()));
        for wrong in [
            Shape {
                seq: Some((2, None)),
                ..plain.clone()
            },
            Shape {
                seq: Some((1, Some(7))),
                ..plain.clone()
            },
            Shape {
                ack: Some(2),
                ..plain.clone()
            },
            Shape {
                window: Some(0),
                ..plain.clone()
            },
            Shape {
                length: Some(4),
                ..plain.clone()
            },
            Shape {
                payload: Some(b"hella".to_vec()),
                ..plain.clone()
            },
            Shape {
                flags: "F.".to_owned(),
                ..plain.clone()
            },
            Shape {
                flags: "F*".to_owned(),
                ..plain.clone()
            },
        ] {
            assert!(segment().check(&wrong).is_err(), "{wrong:?}");
        }
    }
}
