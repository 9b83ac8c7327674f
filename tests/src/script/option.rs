//! Multipath TCP options as text, in the words of `manypath_wire::describe`, with data sequence numbers relative to the
//! initial one, and with words (`good`, `bad`, `{key}`) in place of what only the keys can tell.

use std::fmt::Write;
use std::net::IpAddr;

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::crypto::mac::{self, JoinMac, Keys};
use manypath_wire::checksum::{self, Sum};
use manypath_wire::dsn::Dsn;
use manypath_wire::ids::{AddrId, Key, Nonce, Token};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{
    AddAddr, Capable, CapableKeys, DataAck, Dss, Fail, FastClose, Join, MapDsn, Mapping,
    MptcpOption, Prio, Private, RemoveAddr, Reset, ResetReason,
};

/// A key and what follows from it. That of a script is no secret.
#[derive(Debug, Clone, Copy)]
pub struct Material {
    key: Key,
    token: Token,
    idsn: Dsn,
}

impl Material {
    /// What this key stands for.
    #[must_use]
    pub fn derive(key: Key) -> Self {
        let KeyMaterial { token, idsn, .. } = KeyMaterial::derive(key);
        Self { key, token, idsn }
    }
}

/// One end of a connection.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// Its key, once known.
    pub key: Option<Material>,
    /// Its nonce on the flow, once known.
    pub nonce: Option<Nonce>,
}

impl End {
    fn key(&self) -> Key {
        self.key.map_or(Key([0; 8]), |material| material.key)
    }

    fn token(&self) -> Token {
        self.key.map_or(Token(0), |material| material.token)
    }

    /// The data sequence number at a position: 0 is the SYN, 1 the first byte.
    fn dsn(&self, position: i64) -> Dsn {
        let base = self.key.map_or(0, |material| material.idsn.get());
        Dsn::new(base.wrapping_add_signed(position))
    }

    fn position(&self, dsn: Dsn) -> i64 {
        let base = self.key.map_or(0, |material| material.idsn.get());
        dsn.diff(Dsn::new(base))
    }

    fn nonce(&self) -> Nonce {
        self.nonce.unwrap_or(Nonce(0))
    }
}

/// Who speaks to whom in a segment.
#[derive(Debug, Clone, Copy)]
pub struct Voice<'a> {
    /// Who sends.
    pub from: End,
    /// Who receives.
    pub to: End,
    /// The segment's payload.
    pub payload: &'a [u8],
}

impl Voice<'_> {
    fn keys(&self) -> Keys {
        Keys {
            sender: self.from.key(),
            receiver: self.to.key(),
        }
    }

    fn join_mac(&self) -> JoinMac {
        JoinMac::compute(self.keys(), self.from.nonce(), self.to.nonce())
    }

    /// The right checksum of a mapping, where this segment holds all that is mapped.
    fn checksum(&self, dsn: Dsn, ssn: Ssn, len: u16, data_fin: bool) -> Option<u16> {
        let bytes = usize::from(len) - usize::from(data_fin && len > 0);
        match len {
            0 => Some(0),
            _ if bytes == 0 => Some(checksum::dss(dsn, ssn, len, Sum::ZERO)),
            _ => {
                let part = self.payload.get(..bytes)?;
                Some(checksum::dss(dsn, ssn, len, Sum::of(part)))
            }
        }
    }
}

/// The words of an option.
struct Words<'a>(std::iter::Peekable<std::str::SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        Self(text.split_whitespace().peekable())
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, word: &str) -> bool {
        self.0.next_if_eq(&word).is_some()
    }

    fn word(&mut self) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| "a word is missing".to_owned())
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.word()?;
        word.parse().map_err(|_| format!("no number: '{word}'"))
    }

    /// `KEYWORD N`, where the keyword is there.
    fn field<T: std::str::FromStr>(&mut self, word: &str) -> Result<Option<T>, String> {
        self.take(word).then(|| self.number()).transpose()
    }

    /// `good` or `bad`.
    fn verdict(&mut self) -> Result<bool, String> {
        match self.word()? {
            "good" => Ok(true),
            "bad" => Ok(false),
            other => Err(format!("good or bad, not '{other}'")),
        }
    }

    /// `csum` with an optional `good`, or `csum bad`: `Some(good)` where it is there.
    fn checksum(&mut self) -> Option<bool> {
        self.take("csum").then(|| {
            let bad = self.take("bad");
            self.take("good");
            !bad
        })
    }

    fn end(mut self) -> Result<(), String> {
        self.0
            .next()
            .map_or(Ok(()), |word| Err(format!("not understood: '{word}'")))
    }
}

/// The option that a script's text (without the word `mptcp`) stands for, spoken by the script.
///
/// # Errors
/// What is wrong with the text.
pub fn read(text: &str, voice: &Voice<'_>) -> Result<MptcpOption, String> {
    let mut words = Words::of(text);
    let option = match words.word()? {
        "capable" => MptcpOption::Capable(read_capable(&mut words, voice)?),
        "join" => MptcpOption::Join(read_join(&mut words, voice)?),
        "dss" => MptcpOption::Dss(read_dss(&mut words, voice)?),
        "add-addr" => MptcpOption::AddAddr(read_add_addr(&mut words, voice)?),
        "rem-addr" => {
            let mut ids = Vec::new();
            words.take("id");
            while words.0.peek().is_some() {
                ids.push(AddrId(words.number()?));
            }
            let ids = ids.into_iter().collect();
            MptcpOption::RemoveAddr(RemoveAddr { ids })
        }
        "prio" => MptcpOption::Prio(Prio {
            backup: words.take("backup"),
        }),
        "fail" => {
            let position = words.field("dsn")?.ok_or("fail dsn N")?;
            MptcpOption::Fail(Fail {
                dsn: voice.to.dsn(position),
            })
        }
        "fast-close" => {
            let mut key = voice.to.key();
            key.0[0] ^= u8::from(!words.verdict()?);
            MptcpOption::FastClose(FastClose { key })
        }
        "tcprst" => {
            let rest: Vec<&str> = words.0.by_ref().collect();
            let rest = rest.join(" ");
            let (reason, transient) = match rest.strip_suffix(" transient") {
                Some(reason) => (reason, true),
                None => (rest.as_str(), false),
            };
            let reason = (0..7)
                .map(ResetReason::from_code)
                .find(|r| r.to_string() == reason)
                .ok_or(format!("no reason '{reason}'"))?;
            MptcpOption::Reset(Reset { transient, reason })
        }
        "private" => {
            let name = words.word()?;
            let name = name.strip_prefix("0x").unwrap_or(name);
            let name = u16::from_str_radix(name, 16).map_err(|_| "private 0xNNN")?;
            MptcpOption::Private(Private::new(name))
        }
        other => return Err(format!("no option '{other}'")),
    };
    words.end()?;
    Ok(option)
}

fn read_capable(words: &mut Words<'_>, voice: &Voice<'_>) -> Result<Capable, String> {
    let version = words
        .word()?
        .strip_prefix('v')
        .and_then(|v| v.parse().ok())
        .ok_or("capable vN")?;
    let mut capable = Capable::v1(words.take("csum"), CapableKeys::Syn);
    capable.version = version;
    capable.extensibility = words.take("ext");
    capable.no_joins_here = words.take("nojoin");
    capable.hmac_sha256 = !words.take("no-sha256");
    if words.take("crypto") {
        capable.other_crypto = words.number()?;
    }
    let (sender, receiver) = (voice.from.key(), voice.to.key());
    capable.keys = match words.0.next() {
        None => CapableKeys::Syn,
        Some("{key}") => CapableKeys::SynAck { sender },
        Some(keys @ ("{key,key}" | "{key,bad}")) => {
            let mut receiver = receiver;
            receiver.0[0] ^= u8::from(keys == "{key,bad}");
            match words.field("len")? {
                None => CapableKeys::Ack { sender, receiver },
                Some(len) => CapableKeys::Data {
                    sender,
                    receiver,
                    len,
                    checksum: read_checksum(
                        words,
                        voice,
                        (voice.from.dsn(1), Ssn::new(1)),
                        len,
                        false,
                    )?,
                },
            }
        }
        Some(other) => return Err(format!("not understood: '{other}'")),
    };
    Ok(capable)
}

fn read_checksum(
    words: &mut Words<'_>,
    voice: &Voice<'_>,
    (dsn, ssn): (Dsn, Ssn),
    len: u16,
    data_fin: bool,
) -> Result<Option<u16>, String> {
    let Some(good) = words.checksum() else {
        return Ok(None);
    };
    let sum = voice.checksum(dsn, ssn, len, data_fin);
    let sum = sum.ok_or("a checksum needs all of its data in the segment")?;
    Ok(Some(if good { sum } else { sum ^ 0x5555 }))
}

fn read_join(words: &mut Words<'_>, voice: &Voice<'_>) -> Result<Join, String> {
    if words.take("hmac") {
        let mut hmac = voice.join_mac().ack();
        hmac[0] ^= u8::from(!words.verdict()?);
        return Ok(Join::Ack { hmac });
    }
    let backup = words.take("backup");
    let addr_id = AddrId(words.field("id")?.ok_or("join id N")?);
    let nonce = voice.from.nonce();
    if words.take("token") {
        let mut token = voice.to.token();
        token.0 ^= u32::from(!words.verdict()?);
        return Ok(Join::Syn {
            backup,
            addr_id,
            token,
            nonce,
        });
    }
    if !words.take("hmac") {
        return Err("join ... token or hmac".to_owned());
    }
    let mut hmac = voice.join_mac().syn_ack();
    hmac[0] ^= u8::from(!words.verdict()?);
    Ok(Join::SynAck {
        backup,
        addr_id,
        hmac,
        nonce,
    })
}

fn read_dss(words: &mut Words<'_>, voice: &Voice<'_>) -> Result<Dss, String> {
    let data_fin = words.take("fin");
    let low = |dsn: Dsn| dsn.get() as u32;
    let data_ack = if let Some(position) = words.field("ack")? {
        Some(DataAck::Short(low(voice.to.dsn(position))))
    } else {
        let long = words.field("ack64")?;
        long.map(|position| DataAck::Long(voice.to.dsn(position).get()))
    };
    let whole = if let Some(position) = words.field("seq")? {
        let dsn = voice.from.dsn(position);
        Some((dsn, MapDsn::Short(low(dsn))))
    } else {
        words.field("seq64")?.map(|position| {
            let dsn = voice.from.dsn(position);
            (dsn, MapDsn::Long(dsn.get()))
        })
    };
    let mapping = match whole {
        None => None,
        Some((whole, dsn)) => {
            let ssn = Ssn::new(words.field("subseq")?.ok_or("seq N subseq N len N")?);
            let len = words.field("len")?.ok_or("seq N subseq N len N")?;
            words.take("infinite");
            let checksum = read_checksum(words, voice, (whole, ssn), len, data_fin)?;
            Some(Mapping {
                dsn,
                ssn,
                len,
                checksum,
            })
        }
    };
    Ok(Dss {
        data_ack,
        mapping,
        data_fin,
    })
}

fn read_add_addr(words: &mut Words<'_>, voice: &Voice<'_>) -> Result<AddAddr, String> {
    let echo = words.take("echo");
    let addr_id = AddrId(words.field("id")?.ok_or("add-addr id N")?);
    let addr: IpAddr = words.number()?;
    let port = words.field("port")?;
    let mut hmac = None;
    if words.take("hmac") {
        let mut code = mac::add_addr(voice.keys(), addr_id, addr, port);
        code[0] ^= u8::from(!words.verdict()?);
        hmac = Some(code);
    }
    Ok(AddAddr {
        echo,
        addr_id,
        addr,
        port,
        hmac,
    })
}

fn verdict(good: bool) -> &'static str {
    if good { "good" } else { "bad" }
}

/// An option that the device under test sent, as text.
#[must_use]
pub fn show(option: &MptcpOption, voice: &Voice<'_>) -> String {
    match option {
        MptcpOption::Capable(capable) => show_capable(capable, voice),
        MptcpOption::Join(join) => show_join(join, voice),
        MptcpOption::Dss(dss) => show_dss(dss, voice),
        MptcpOption::AddAddr(add) => {
            let mut text = manypath_wire::describe::MptcpLine(option).to_string();
            if let (Some(hmac), Some(at)) = (add.hmac, text.find(" hmac ")) {
                let right = mac::add_addr(voice.keys(), add.addr_id, add.addr, add.port);
                text.truncate(at);
                text += &format!(" hmac {}", verdict(hmac == right));
            }
            text
        }
        MptcpOption::Fail(fail) => format!("fail dsn {}", voice.to.position(fail.dsn)),
        MptcpOption::FastClose(close) => {
            format!("fast-close {}", verdict(close.key == voice.to.key()))
        }
        MptcpOption::RemoveAddr(_)
        | MptcpOption::Prio(_)
        | MptcpOption::Reset(_)
        | MptcpOption::Private(_) => manypath_wire::describe::MptcpLine(option).to_string(),
    }
}

fn show_checksum(
    given: Option<u16>,
    voice: &Voice<'_>,
    (dsn, ssn): (Dsn, Ssn),
    len: u16,
    data_fin: bool,
) -> &'static str {
    match (given, voice.checksum(dsn, ssn, len, data_fin)) {
        (None, _) => "",
        // The rest of what is mapped is in other segments.
        (Some(_), None) => " csum part",
        (Some(given), Some(right)) if checksum_equal(given, right) => " csum good",
        (Some(_), Some(_)) => " csum bad",
    }
}

/// The two zeros of one's complement are one.
fn checksum_equal(a: u16, b: u16) -> bool {
    a == b || (a ^ b == 0xffff && (a == 0 || b == 0))
}

fn show_capable(capable: &Capable, voice: &Voice<'_>) -> String {
    let mut text = manypath_wire::describe::MptcpLine(&MptcpOption::Capable(*capable)).to_string();
    let name = |key: Key, right: Key| if key == right { "key" } else { "bad" };
    let (own, other) = (voice.from.key(), voice.to.key());
    if let Some(at) = text.find('{') {
        text.truncate(at);
    }
    // Writing to a string cannot fail.
    let _ = match capable.keys {
        CapableKeys::Syn => Ok(()),
        CapableKeys::SynAck { sender } => write!(text, "{{{}}}", name(sender, own)),
        CapableKeys::Ack { sender, receiver }
        | CapableKeys::Data {
            sender, receiver, ..
        } => write!(text, "{{{},{}}}", name(sender, own), name(receiver, other)),
    };
    if let CapableKeys::Data { len, checksum, .. } = capable.keys {
        let at = (voice.from.dsn(1), Ssn::new(1));
        let sum = show_checksum(checksum, voice, at, len, false);
        text += &format!(" len {len}{sum}");
    }
    text
}

fn show_join(join: &Join, voice: &Voice<'_>) -> String {
    let flag = |backup: bool| if backup { " backup" } else { "" };
    match *join {
        Join::Syn {
            backup,
            addr_id,
            token,
            nonce: _,
        } => {
            let token = verdict(token == voice.to.token());
            format!("join{} id {addr_id} token {token}", flag(backup))
        }
        Join::SynAck {
            backup,
            addr_id,
            hmac,
            nonce: _,
        } => {
            let hmac = verdict(hmac == voice.join_mac().syn_ack());
            format!("join{} id {addr_id} hmac {hmac}", flag(backup))
        }
        Join::Ack { hmac } => format!("join hmac {}", verdict(hmac == voice.join_mac().ack())),
    }
}

fn show_dss(dss: &Dss, voice: &Voice<'_>) -> String {
    let mut text = String::from(if dss.data_fin { "dss fin" } else { "dss" });
    if let Some(ack) = dss.data_ack {
        let position = voice.to.position(ack.expand(voice.to.dsn(0)));
        let word = if matches!(ack, DataAck::Long(_)) {
            "ack64"
        } else {
            "ack"
        };
        text += &format!(" {word} {position}");
    }
    if let Some(map) = dss.mapping {
        let dsn = map.dsn.expand(voice.from.dsn(0));
        let word = if matches!(map.dsn, MapDsn::Long(_)) {
            "seq64"
        } else {
            "seq"
        };
        let position = voice.from.position(dsn);
        text += &format!(" {word} {position} subseq {} len {}", map.ssn, map.len);
        if map.is_infinite() {
            text += " infinite";
        }
        text += show_checksum(map.checksum, voice, (dsn, map.ssn), map.len, dss.data_fin);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(payload: &[u8]) -> Voice<'_> {
        let end = |byte: u8| End {
            key: Some(Material::derive(Key([byte; 8]))),
            nonce: Some(Nonce(u32::from(byte))),
        };
        Voice {
            from: end(1),
            to: end(2),
            payload,
        }
    }

    #[test]
    fn what_is_read_is_shown_again() {
        for text in [
            "capable v1",
            "capable v1 csum nojoin",
            "capable v0 ext no-sha256",
            "capable v1 {key}",
            "capable v1 {key,key}",
            "capable v1 {key,bad}",
            "capable v1 {key,key} len 5",
            "capable v1 csum {key,key} len 5 csum good",
            "capable v1 csum {key,key} len 5 csum bad",
            "join backup id 3 token good",
            "join id 3 token bad",
            "join id 3 hmac good",
            "join id 3 hmac bad",
            "join hmac good",
            "join hmac bad",
            "dss ack 1 seq 1 subseq 1 len 5",
            "dss fin ack64 1 seq64 6 subseq 0 len 1 csum good",
            "dss fin ack64 1 seq64 1 subseq 1 len 6 csum good",
            "dss seq64 6 subseq 6 len 0 infinite csum good",
            "dss ack64 4",
            "add-addr id 2 10.0.1.2 hmac good",
            "add-addr id 2 10.0.1.2 port 81 hmac bad",
            "add-addr echo id 2 10.0.1.2",
            "rem-addr id 1 7",
            "prio backup",
            "prio",
            "fail dsn 6",
            "fast-close good",
            "fast-close bad",
            "tcprst MPTCP-specific error",
            "tcprst middlebox interference transient",
        ] {
            let voice = voice(b"hello");
            let option = read(text, &voice).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(show(&option, &voice), text);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in [
            "dss seq 1",
            "join id 3",
            "capable",
            "capable v1 {yek}",
            "hop",
            "prio now",
        ] {
            assert!(read(text, &voice(b"")).is_err(), "{text}");
        }
        let more = "dss seq 1 subseq 1 len 9 csum";
        assert!(read(more, &voice(b"short")).is_err());
    }
}
