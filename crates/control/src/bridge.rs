//! An engine behind a control socket: what the kernel owns is steered by programs in any language, as a process of ours is.
//!
//! Each session has an engine of its own, so nobody waits for a slow reader but that reader's own events, which the engine
//! counts when they are lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::place;
use crate::server::{HALF_LINE, IDLE, Kind, PATIENCE, accept, bind, is_welcome};
use crate::wire::{Answer, Asked, MAX_REQUEST, Reply};

/// A running control socket in front of an engine. Dropping it takes the socket away.
#[derive(Debug)]
pub struct Bridge {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Bridge {
    /// Opens a control socket of this process in its user's folder; `open` makes the engine of each session. Must be called
    /// within a tokio runtime.
    ///
    /// # Errors
    /// The folder or socket cannot be made.
    pub fn start<E: Engine + 'static>(
        open: impl Fn() -> io::Result<E> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_in(&place::folder()?, std::process::id(), open)
    }

    /// Like [`Bridge::start`], in a folder and under a process id of the caller's choice.
    ///
    /// # Errors
    /// The folder or socket cannot be made.
    pub fn start_in<E: Engine + 'static>(
        folder: &Path,
        pid: u32,
        open: impl Fn() -> io::Result<E> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let (path, listener) = bind(folder, pid)?;
        let open = Arc::new(open);
        let task = tokio::spawn(accept(listener, move |stream, kind| {
            let open = Arc::clone(&open);
            async move { serve(stream, open.as_ref(), kind).await }
        }));
        Ok(Self { path, task })
    }

    /// Where the socket lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.task.abort();
        // Nothing can be done about a socket that cannot be removed; readers remove stale ones.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve<E: Engine>(
    mut stream: UnixStream,
    open: &(impl Fn() -> io::Result<E> + Sync),
    kind: Kind,
) -> io::Result<()> {
    if !is_welcome(&mut stream).await? {
        return Ok(());
    }
    let (read, mut write) = stream.into_split();
    let mut engine = match open() {
        Ok(engine) => engine,
        Err(error) => {
            let reply = Reply::error("state", error.to_string());
            return say(&mut write, &Answer { id: None, reply }).await;
        }
    };
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    tokio::time::timeout(IDLE, read.fill_buf()).await??;
    loop {
        // Both may be given up in the middle and taken up again.
        tokio::select! {
            begun = read.fill_buf() => {
                begun?;
                let rest = read_line(&mut read, &mut line);
                let whole = tokio::time::timeout(HALF_LINE, rest).await??;
                if line.is_empty() {
                    return Ok(());
                }
                let answer = match Asked::read(&line) {
                    Ok(Asked { id, request }) => match kind.refusal(&request) {
                        Some(reply) => Answer { id, reply },
                        None => Answer { id, reply: engine.ask(request).await? },
                    },
                    Err(refusal) => refusal,
                };
                line.clear();
                say(&mut write, &answer).await?;
                if !whole {
                    return Ok(());
                }
            }
            event = engine.next_event() => match event? {
                Some(event) => say(&mut write, &event).await?,
                None => return Ok(()),
            },
        }
    }
}

/// Reads the rest of a line. False: it has no end, since there is no more or it is longer than a request may be.
async fn read_line(read: &mut BufReader<OwnedReadHalf>, line: &mut Vec<u8>) -> io::Result<bool> {
    let room = MAX_REQUEST.saturating_sub(line.len() as u64);
    read.take(room).read_until(b'\n', line).await?;
    Ok(line.last() == Some(&b'\n'))
}

/// Writes one line. A reader that does not take it in time is gone.
async fn say(write: &mut OwnedWriteHalf, what: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(what).map_err(io::Error::other)?;
    text.push(b'\n');
    tokio::time::timeout(PATIENCE, write.write_all(&text)).await?
}
