//! Where the access log goes: a thread writes it, so that a full disk or a reader that sleeps holds nothing up. Lines that find no
//! room are left out and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::access::Line;
use crate::config::{Log, LogFormat, LogTo};

/// Lines that may wait: a burst of them, not a backlog.
const WAITING: usize = 4096;

/// How long the end waits for lines that are not written.
const LAST: Duration = Duration::from_secs(1);

enum Item {
    Line(String),
    /// Open the file anew, and say what came of it.
    Reopen(SyncSender<io::Result<()>>),
    End(SyncSender<()>),
}

/// An access log that is open. Dropping it writes what waits.
#[derive(Debug)]
pub struct Sink {
    log: Log,
    items: SyncSender<Item>,
    /// Not joined: a disk that hangs must not hold the end up.
    _thread: JoinHandle<()>,
}

impl Sink {
    /// Opens a log; `None` where it is off.
    ///
    /// # Errors
    /// Those of opening the file, or of starting a thread.
    pub fn open(log: &Log) -> io::Result<Option<Self>> {
        let (file, path) = match &log.access {
            LogTo::Off => return Ok(None),
            LogTo::Stdout => {
                let stdout = io::stdout();
                (File::from(stdout.as_fd().try_clone_to_owned()?), None)
            }
            LogTo::File(path) => (open(path)?, Some(path.clone())),
        };
        let (items, received) = sync_channel(WAITING);
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&received, file, path.as_deref()))?;
        Ok(Some(Self {
            log: log.clone(),
            items,
            _thread: thread,
        }))
    }

    /// What it was opened by.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.log
    }

    fn format(&self) -> LogFormat {
        self.log.format
    }

    /// Hands a line over; `false` if there is no room for it. Never waits.
    pub(super) fn write(&self, line: &Line<'_>) -> bool {
        let text = line.to_text(self.format());
        self.items.try_send(Item::Line(text)).is_ok()
    }

    /// Opens the file anew, as after it was moved away. Waits for the lines before it, so it is for a thread that may block.
    ///
    /// # Errors
    /// Those of opening; then the file before stays in use. `TimedOut` where the disk holds the writer up.
    pub fn reopen(&self) -> io::Result<()> {
        let (done, opened) = sync_channel(1);
        let stuck = || io::Error::new(io::ErrorKind::TimedOut, "the log is not being written");
        self.items
            .try_send(Item::Reopen(done))
            .map_err(|_| stuck())?;
        opened.recv_timeout(LAST).map_err(|_| stuck())?
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.items.try_send(Item::End(done)).is_ok() {
            let _ = written.recv_timeout(LAST);
        }
    }
}

/// Opens a file to be appended to; others than its user and group do not read who went where.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .open(path)
}

/// Writes what comes, and flushes when nothing waits.
fn write_all(items: &Receiver<Item>, file: File, path: Option<&Path>) {
    let mut to = BufWriter::new(file);
    loop {
        let item = match items.try_recv() {
            Ok(item) => item,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                flush(&mut to);
                match items.recv() {
                    Ok(item) => item,
                    Err(_) => break,
                }
            }
        };
        match item {
            Item::Line(line) => {
                // A full disk loses lines and ends nothing.
                let _ = to.write_all(line.as_bytes());
            }
            Item::Reopen(done) => {
                flush(&mut to);
                let opened = path.map_or(Ok(()), |path| {
                    to = BufWriter::new(open(path)?);
                    Ok(())
                });
                let _ = done.try_send(opened);
            }
            Item::End(done) => {
                flush(&mut to);
                let _ = done.try_send(());
                break;
            }
        }
    }
}

/// What cannot be written is thrown away: kept, it would stand in front of all that comes.
fn flush(to: &mut BufWriter<File>) {
    if to.flush().is_err()
        && let Ok(file) = to.get_ref().try_clone()
    {
        let (_, _) = std::mem::replace(to, BufWriter::new(file)).into_parts();
    }
}

/// The folder of a log's file: what the process must be able to write to.
#[must_use]
pub fn folder(log: &Log) -> Option<PathBuf> {
    match &log.access {
        LogTo::File(path) => path.parent().map(Into::into),
        LogTo::Off | LogTo::Stdout => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::access::Event;
    use crate::serve::observer::Refusal;
    use std::time::UNIX_EPOCH;

    fn write(sink: &Sink, listener: &str) {
        let line = Line {
            time: UNIX_EPOCH,
            listener,
            client: "192.0.2.1:1".parse().expect("an address"),
            request: None,
            event: Event::Refused(Refusal::Rule),
        };
        assert!(sink.write(&line));
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("log"), folder.path().join("log.1"));
        let log = Log {
            access: LogTo::File(path.clone()),
            format: LogFormat::Text,
        };
        let sink = Sink::open(&log).expect("opened").expect("on");
        write(&sink, "before");
        std::fs::rename(&path, &moved).expect("moved");
        write(&sink, "moved");
        sink.reopen().expect("opened");
        write(&sink, "after");
        drop(sink);
        let read = |path| std::fs::read_to_string(path).expect("a log");
        let (old, new) = (read(&moved), read(&path));
        assert!(old.contains("before") && old.contains("moved"), "{old}");
        assert_eq!(old.lines().count(), 2);
        assert!(new.contains("after") && new.lines().count() == 1, "{new}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_anew_stays_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = Log {
            access: LogTo::File(path.clone()),
            format: LogFormat::Json,
        };
        let sink = Sink::open(&log).expect("opened").expect("on");
        std::fs::rename(&path, folder.path().join("moved")).expect("moved");
        std::fs::create_dir(&path).expect("in the way");
        sink.reopen().expect_err("a folder is no file");
        write(&sink, "still");
        drop(sink);
        let text = std::fs::read_to_string(folder.path().join("moved")).expect("a log");
        assert!(text.contains("still"));
    }
}
