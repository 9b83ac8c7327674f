//! A program of ours whose words on standard error are read: it says when it is ready, and why it is not.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::netns::{NetNs, NetNsError, Process};

/// A running program and what it has said.
pub(crate) struct Spoken {
    process: Process,
    said: Receiver<String>,
}

impl Spoken {
    /// Starts it in a namespace. Its standard error is read to the end, so that it never waits for us.
    pub(crate) fn start(ns: &NetNs, mut command: Command) -> Result<Self, NetNsError> {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = ns.spawn(command)?;
        let (tell, said) = channel();
        let errors = process
            .child()
            .stderr
            .take()
            .expect("it was asked to be a pipe");
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // Nobody may want to know any more.
                let _ = tell.send(line);
            }
        });
        Ok(Self { process, said })
    }

    /// Waits until it says `word`. An error is what it said last instead.
    pub(crate) fn says(&mut self, word: &str, patience: Duration) -> Result<(), String> {
        let end = Instant::now() + patience;
        let mut last = String::new();
        loop {
            match self
                .said
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.contains(word) => return Ok(()),
                Ok(line) => last = line,
                Err(_) => return Err(last),
            }
        }
    }

    /// What it has said since it was last asked, without waiting.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> + '_ {
        self.said.try_iter()
    }

    /// The last it says before it ends.
    pub(crate) fn last_words(&self) -> String {
        self.said.iter().last().unwrap_or_default()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.process.child()
    }

    /// The process, whose further words nobody hears.
    pub(crate) fn into_process(self) -> Process {
        self.process
    }
}
