//! Messages and attributes as bytes, and back.

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// What a message that makes something asks for.
pub(crate) const CREATE: u16 = 0x400;
/// A rule goes behind those that are there.
pub(crate) const APPEND: u16 = 0x800;
/// A question for everything of a kind.
pub(crate) const DUMP: u16 = 0x300;

const NESTED: u16 = 0x8000;
/// `struct nlmsghdr`, and with it `struct nfgenmsg`.
const HEADER: usize = 16;
const HEADERS: usize = HEADER + 4;

/// What a message is about (`enum nf_tables_msg_types`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    NewTable = 0,
    DelTable = 2,
    NewChain = 3,
    GetChain = 4,
    NewRule = 6,
    GetRule = 7,
    NewSet = 9,
    NewSetElem = 12,
    DelSetElem = 14,
    NewGeneration = 15,
}

/// The families of tables (`NFPROTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Family {
    Unspecified = 0,
    Inet = 1,
    Netdev = 5,
}

/// A growing list of attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// Bytes as they are.
    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        // Lengths are 16 bits wide. What we send is made of names of at most 64 bytes, rules of a few hundred, and lists that
        // their makers divide.
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// A number, which nf_tables wants in network order.
    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    /// Text with its terminating zero.
    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Attributes within one.
    pub(crate) fn nested(self, kind: u16, inner: Attributes) -> Self {
        self.bytes(kind | NESTED, &inner.0)
    }
}

/// Several changes, of which all are made or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    first: u32,
    next: u32,
    /// Where the last message begins.
    last: usize,
}

impl Batch {
    /// An empty batch whose messages are numbered from `first`.
    pub(crate) fn new(first: u32) -> Self {
        let mut batch = Batch {
            bytes: Vec::new(),
            first,
            next: first,
            last: 0,
        };
        batch.write(BATCH_BEGIN, 0, 0, SUBSYSTEM, &Attributes::default());
        batch
    }

    fn write(&mut self, kind: u16, flags: u16, family: u8, resource: u16, content: &Attributes) {
        self.last = self.bytes.len();
        write(
            &mut self.bytes,
            kind,
            flags,
            self.next,
            family,
            resource,
            content,
        );
        self.next += 1;
    }

    /// Adds a change.
    pub(crate) fn push(
        &mut self,
        command: Command,
        flags: u16,
        family: Family,
        content: &Attributes,
    ) {
        let kind = SUBSYSTEM << 8 | command as u16;
        self.write(kind, flags, family as u8, 0, content);
    }

    /// The bytes to send, and the numbers of the messages; that with the last number but one is acknowledged.
    pub(crate) fn finish(mut self) -> (Vec<u8>, std::ops::Range<u32>) {
        // One acknowledgement is enough: errors are told of every message.
        let at = self.last + 6;
        let flags = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]) | NLM_F_ACK;
        self.bytes[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
        self.write(BATCH_END, 0, 0, SUBSYSTEM, &Attributes::default());
        (self.bytes, self.first..self.next)
    }
}

fn write(
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    number: u32,
    family: u8,
    resource: u16,
    content: &Attributes,
) {
    let length = (HEADERS + content.0.len()) as u32;
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
    bytes.extend_from_slice(&number.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[family, 0]);
    bytes.extend_from_slice(&resource.to_be_bytes());
    bytes.extend_from_slice(&content.0);
}

/// A question.
pub(crate) fn question(
    command: Command,
    family: Family,
    number: u32,
    content: &Attributes,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let kind = SUBSYSTEM << 8 | command as u16;
    write(&mut bytes, kind, DUMP, number, family as u8, 0, content);
    bytes
}

/// What the kernel says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// An object, or news of one.
    Object {
        /// What of it ([`Command`] as a number).
        command: u16,
        /// Who caused the news: the number of a netlink socket.
        by: u32,
        /// The family as a number.
        family: u8,
        /// Its attributes.
        content: &'a [u8],
    },
    /// The end of a dump.
    Done,
    /// The outcome of the message with this number: zero or a negative error code.
    Outcome(u32, i32),
}

/// Divides what was received into messages; what is no whole message ends it.
pub(crate) fn answers(mut bytes: &[u8]) -> Vec<Answer<'_>> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    let mut found = Vec::new();
    while let Some(length) = number(bytes, 0).map(|n| n as usize) {
        let Some(message) = bytes.get(..length).filter(|m| m.len() >= HEADER) else {
            break;
        };
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        let by = number(message, 12).unwrap_or_default();
        match kind {
            ERROR => {
                let code = number(message, HEADER).unwrap_or_default() as i32;
                found.push(Answer::Outcome(
                    number(message, HEADER + 4 + 8).unwrap_or_default(),
                    code,
                ));
            }
            DONE => found.push(Answer::Done),
            _ if kind >> 8 == SUBSYSTEM && message.len() >= HEADERS => found.push(Answer::Object {
                command: kind & 0xff,
                by,
                family: message[HEADER],
                content: &message[HEADERS..],
            }),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    found
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

/// The first attribute of a kind.
pub(crate) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header: [u8; 4] = *bytes.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let value = bytes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

/// A number attribute.
pub(crate) fn attribute_number(bytes: &[u8], wanted: u16) -> Option<u32> {
    let value = attribute(bytes, wanted)?;
    Some(u32::from_be_bytes(*value.first_chunk()?))
}

/// A text attribute.
pub(crate) fn attribute_text(bytes: &[u8], wanted: u16) -> Option<String> {
    let value = attribute(bytes, wanted)?;
    let text = value.split(|b| *b == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_found_again() {
        let inner = Attributes::default().number(1, 7);
        let list = Attributes::default()
            .text(1, "ab")
            .nested(4, inner)
            .bytes(5, &[9]);
        assert_eq!(list.0.len(), 8 + 12 + 8);
        assert_eq!(attribute_text(&list.0, 1).as_deref(), Some("ab"));
        let nested = attribute(&list.0, 4).expect("it is there");
        assert_eq!(attribute_number(nested, 1), Some(7));
        assert_eq!(attribute(&list.0, 5), Some(&[9][..]));
        assert_eq!(attribute(&list.0, 6), None);
        for cut in 0..list.0.len() {
            let _ = attribute(&list.0[..cut], 6);
        }
    }

    #[test]
    fn a_batch_asks_for_one_acknowledgement() {
        let mut batch = Batch::new(10);
        let name = Attributes::default().text(1, "t");
        batch.push(Command::NewTable, CREATE, Family::Inet, &name);
        batch.push(Command::DelTable, 0, Family::Inet, &name);
        let (bytes, numbers) = batch.finish();
        assert_eq!(numbers, 10..14);
        let mut at = 0;
        let mut flags = Vec::new();
        while at < bytes.len() {
            flags.push(u16::from_ne_bytes([bytes[at + 6], bytes[at + 7]]));
            at += number(&bytes, at).expect("whole") as usize;
        }
        assert_eq!(flags, [1, 1 | CREATE, 1 | NLM_F_ACK, 1]);
    }

    #[test]
    fn cut_or_senseless_answers_end_quietly() {
        let mut bytes = question(Command::GetChain, Family::Inet, 1, &Attributes::default());
        assert_eq!(answers(&bytes).len(), 1);
        for cut in 0..bytes.len() {
            assert!(answers(&bytes[..cut]).is_empty());
        }
        bytes[0] = 3;
        assert!(answers(&bytes).is_empty());
        bytes[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(answers(&bytes).is_empty());
    }
}
