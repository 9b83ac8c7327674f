//! What a client makes of the lines that it reads, and which ones it writes, however these travel.

use std::collections::VecDeque;
use std::io;

use crate::purse::{self, Purse};
use crate::wire::{Answer, Asked, EventReport, Reply, Request};

/// One session of a client. Events that arrive while a reply is waited for are kept.
#[derive(Debug)]
pub(crate) struct Dialogue {
    /// With what each took from the purse.
    events: VecDeque<(EventReport, u64)>,
    /// What comes of a line, until its end has come.
    line: Vec<u8>,
    purse: Purse,
    /// The request that was asked last.
    asked: u64,
    /// Its reply.
    reply: Option<Reply>,
}

impl Default for Dialogue {
    fn default() -> Self {
        Self::new(Purse::new(purse::OWN))
    }
}

impl Dialogue {
    /// One whose lines take from this purse.
    pub(crate) fn new(purse: Purse) -> Self {
        Self {
            events: VecDeque::new(),
            line: Vec::new(),
            purse,
            asked: 0,
            reply: None,
        }
    }

    /// Takes in bytes up to the end of a line, if that is among them, and what that says. Gives how many bytes it took, and whether
    /// a line has come to its end.
    ///
    /// # Errors
    /// There is no room for so much, or it is not the protocol.
    pub(crate) fn take_in(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(bytes.len(), |end| end + 1);
        self.purse.take(count as u64)?;
        self.line.extend_from_slice(&bytes[..count]);
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            let heard = self.hear(&line);
            // Its memory serves the next one, unless it was a long one.
            if line.capacity() <= 1 << 20 {
                self.line = line;
                self.line.clear();
            }
            heard?;
        }
        Ok((count, end.is_some()))
    }

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
    fn hear(&mut self, line: &[u8]) -> io::Result<()> {
        let bad = |e| io::Error::new(io::ErrorKind::InvalidData, e);
        let grows = purse::cost(line)?;
        self.purse.take(grows)?;
        let cost = grows + line.len() as u64;
        // The first word tells what it is: `{"event":` or `{"id":1,"reply":`.
        if line.starts_with(b"{\"event\"") {
            let event = serde_json::from_slice(line).map_err(bad)?;
            self.events.push_back((event, cost));
            return Ok(());
        }
        let answer: Answer = serde_json::from_slice(line).map_err(bad)?;
        // What could not be read as a request has no id.
        if answer.id.is_none_or(|id| id == self.asked) {
            self.renew(&answer.reply);
            self.reply = Some(answer.reply);
        }
        // What becomes of it is up to who asked.
        self.purse.give(cost);
        Ok(())
    }

    /// The reply that was waited for, once it has come.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        self.reply.take()
    }

    /// The oldest event that nobody has looked at.
    pub(crate) fn event(&mut self) -> Option<EventReport> {
        let (event, cost) = self.events.pop_front()?;
        self.purse.give(cost);
        Some(event)
    }

    /// Events that wait without their connection, because a command made it out of date, get it as it was shown since then.
    fn renew(&mut self, reply: &Reply) {
        let Reply::Connection { connection } = reply else {
            return;
        };
        for (event, _) in &mut self.events {
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
        for (event, _) in &mut self.events {
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
        let mut dialogue = Dialogue::new(Purse::new(1_000));
        assert_eq!(dialogue.take_in(&[b'x'; 600]).expect("room"), (600, false));
        let error = dialogue.take_in(&[b'x'; 600]).expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn unread_events_are_bounded_and_read_ones_are_not() {
        let line = b"{\"event\":\"timeout\",\"seq\":1,\"at_us\":2}\n";
        let mut dialogue = Dialogue::new(Purse::new(10_000));
        for _ in 0..1_000 {
            assert!(dialogue.take_in(line).expect("room").1);
            assert!(dialogue.event().is_some());
        }
        let unread = (0..1_000).find(|_| dialogue.take_in(line).is_err());
        assert!(unread.is_some_and(|count| count > 3), "{unread:?}");
    }

    #[test]
    fn a_reply_of_many_empty_objects_is_refused_before_it_is_made() {
        let mut dialogue = Dialogue::new(Purse::new(purse::FOREIGN));
        let many = vec!["{}"; 1_000_000].join(",");
        let line = format!("{{\"reply\":\"process\",\"process\":{{\"connections\":[{many}]}}}}\n");
        let error = dialogue.take_in(line.as_bytes()).expect_err("too much");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
