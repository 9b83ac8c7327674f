//! What a client makes of the lines that it reads, and which ones it writes, however these travel.

use std::collections::VecDeque;
use std::io;

use crate::wire::{Answer, Asked, EventReport, Reply, Request};

/// The longest line that a client reads. A list of 10,000 connections with four subflows each has about 40 MB. Who asks need not be
/// the one who answers: root asks everybody.
const MAX_LINE: u64 = 256 << 20;

/// How many bytes may follow those that have come of a line.
pub(crate) fn room(come: usize) -> io::Result<u64> {
    match MAX_LINE.saturating_sub(come as u64) {
        0 => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a line of more than {MAX_LINE} bytes"),
        )),
        some => Ok(some),
    }
}

/// One session of a client. Events that arrive while a reply is waited for are kept.
#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    events: VecDeque<EventReport>,
    /// The request that was asked last.
    asked: u64,
    /// Its reply.
    reply: Option<Reply>,
}

impl Dialogue {
    /// The line that asks; its reply is waited for from now on.
    pub(crate) fn ask(&mut self, request: Request) -> io::Result<Vec<u8>> {
        self.asked += 1;
        self.reply = None;
        let id = Some(self.asked);
        let mut text = serde_json::to_vec(&Asked { id, request }).map_err(io::Error::other)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Takes in a line.
    pub(crate) fn hear(&mut self, line: &[u8]) -> io::Result<()> {
        let bad = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        // The first word tells what it is: `{"event":` or `{"id":1,"reply":`.
        if line.starts_with(b"{\"event\"") {
            self.events
                .push_back(serde_json::from_slice(line).map_err(bad)?);
            return Ok(());
        }
        let answer: Answer = serde_json::from_slice(line).map_err(bad)?;
        // What could not be read as a request has no id.
        if answer.id.is_none_or(|id| id == self.asked) {
            self.renew(&answer.reply);
            self.reply = Some(answer.reply);
        }
        Ok(())
    }

    /// The reply that was waited for, once it has come.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        self.reply.take()
    }

    /// The oldest event that nobody has looked at.
    pub(crate) fn event(&mut self) -> Option<EventReport> {
        self.events.pop_front()
    }

    /// Events that wait without their connection, because a command made it out of date, get it as it was shown since then.
    fn renew(&mut self, reply: &Reply) {
        let Reply::Connection { connection } = reply else {
            return;
        };
        for event in &mut self.events {
            if event.sample.is_none()
                && event.view.is_none()
                && event.connection.as_ref() == Some(&connection.id)
            {
                event.sample = Some(connection.clone());
            }
        }
    }

    /// A command has changed the connection: what waits shows it as it was before.
    pub(crate) fn outdate(&mut self, connection: &str) {
        for event in &mut self.events {
            if event.connection.as_deref() == Some(connection) && event.event != "sample" {
                (event.sample, event.view) = (None, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_given_up() {
        assert_eq!(room(0).expect("room"), MAX_LINE);
        assert_eq!(room(1_000).expect("room"), MAX_LINE - 1_000);
        let full = usize::try_from(MAX_LINE).expect("64 bits");
        assert_eq!(
            room(full).expect_err("full").kind(),
            io::ErrorKind::InvalidData
        );
    }
}
