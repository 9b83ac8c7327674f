//! Lines for people and programs that may not read them: a service never waits for its readers.
//!
//! Until [`detach`] lines are written at once. From then on a thread of each outlet writes them; when it cannot keep up, because
//! nobody reads a pipe or a terminal is held, further lines are left out and counted, and the count is told as soon
//! as there is room again.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Lines that may wait for each outlet: a burst of them, not a backlog.
const WAITING: usize = 1024;

/// How long the last lines may take at the end.
const LAST: Duration = Duration::from_secs(1);

/// Where lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlet {
    /// Standard error: the log and what goes on.
    Error,
    /// Standard output: results.
    Output,
}

enum Item {
    Text(Vec<u8>),
    /// Everything before it has been written.
    Flush(SyncSender<()>),
}

/// A detached outlet.
struct Detached {
    items: SyncSender<Item>,
    left_out: &'static AtomicU64,
}

static ERROR: OnceLock<Detached> = OnceLock::new();
static OUTPUT: OnceLock<Detached> = OnceLock::new();

impl Outlet {
    fn detached(self) -> &'static OnceLock<Detached> {
        match self {
            Self::Error => &ERROR,
            Self::Output => &OUTPUT,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Error => "standard error",
            Self::Output => "standard output",
        }
    }

    /// Writes whole lines. Never waits once the outlet is detached.
    ///
    /// # Errors
    /// Those of the write, as long as it is made at once.
    pub(crate) fn write(self, text: &[u8]) -> io::Result<()> {
        let Some(to) = self.detached().get() else {
            return match self {
                Self::Error => io::stderr().write_all(text),
                Self::Output => {
                    let mut out = io::stdout().lock();
                    out.write_all(text).and_then(|()| out.flush())
                }
            };
        };
        if to.items.try_send(Item::Text(text.to_vec())).is_err() {
            to.left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Lets threads write from now on. Comes after privileges have been given up: threads have their own.
///
/// # Errors
/// Those of starting a thread; lines are written at once then.
pub(crate) fn detach() -> io::Result<()> {
    for outlet in [Outlet::Error, Outlet::Output] {
        // Its own descriptor: a thread that waits must not hold the lock of the standard library's.
        let fd = match outlet {
            Outlet::Error => duplicate(io::stderr().as_fd())?,
            Outlet::Output => duplicate(io::stdout().as_fd())?,
        };
        let left_out: &'static AtomicU64 = Box::leak(Box::default());
        let (items, received) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || write_all(&received, fd, outlet, left_out))?;
        let _ = outlet.detached().set(Detached { items, left_out });
    }
    Ok(())
}

fn duplicate(fd: BorrowedFd<'_>) -> io::Result<File> {
    fd.try_clone_to_owned().map(File::from)
}

fn write_all(items: &Receiver<Item>, mut to: impl Write, outlet: Outlet, left_out: &AtomicU64) {
    for item in items {
        // A reader that went away does not end the service.
        match item {
            Item::Text(text) => {
                let _ = to.write_all(&text);
            }
            Item::Flush(done) => {
                let _ = done.try_send(());
            }
        }
        let missing = left_out.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let told = format!(
                "manypath: {missing} lines are missing here: nobody read {} in time\n",
                outlet.name()
            );
            match outlet {
                Outlet::Error => {
                    let _ = to.write_all(told.as_bytes());
                }
                // Programs read the other one.
                Outlet::Output => {
                    let _ = Outlet::Error.write(told.as_bytes());
                }
            }
        }
    }
}

/// Waits until what was said is written, a second at most: at the end of the program.
pub(crate) fn flush() {
    for outlet in [Outlet::Output, Outlet::Error] {
        if let Some(to) = outlet.detached().get() {
            let (done, written) = sync_channel(1);
            if to.items.try_send(Item::Flush(done)).is_ok() {
                let _ = written.recv_timeout(LAST);
            }
        }
    }
}

/// The log's way to standard error; each write is a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        Outlet::Error.write(text)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_left_out_are_counted_where_the_others_stand() {
        let (items, received) = sync_channel(4);
        let left_out = AtomicU64::new(3);
        for text in ["a\n", "b\n"] {
            items.send(Item::Text(text.into())).expect("room");
        }
        let (done, written) = sync_channel(1);
        items.send(Item::Flush(done)).expect("room");
        drop(items);
        let mut all = Vec::new();
        write_all(&received, &mut all, Outlet::Error, &left_out);
        written.recv().expect("told");
        let all = String::from_utf8(all).expect("text");
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[2]), (3, "a", "b"));
        assert!(lines[1].contains("3 lines are missing"), "{all}");
    }
}
