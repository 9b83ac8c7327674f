//! The side that asks: one process, or all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::place;
use crate::report::ProcessReport;
use crate::wire::{Reply, Request};

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a round over all processes brought.
#[derive(Debug, Default)]
pub struct Collected {
    /// The processes that answered, by rising id.
    pub processes: Vec<ProcessReport>,
    /// The sockets that did not answer, and why.
    pub silent: Vec<(PathBuf, io::Error)>,
}

/// Asks one process.
///
/// # Errors
/// The socket cannot be reached, or does not answer in the protocol within three seconds.
pub async fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    tokio::time::timeout(PATIENCE, ask_patiently(socket, request))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the process does not answer"))?
}

async fn ask_patiently(socket: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket).await?;
    let mut text = serde_json::to_vec(request).map_err(io::Error::other)?;
    text.push(b'\n');
    stream.write_all(&text).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    serde_json::from_str(&line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Asks every process whose socket this user may read; root sees those of all users.
pub async fn collect() -> Collected {
    collect_in(&place::folders_to_search()).await
}

/// Asks every process with a socket in one of the folders. Sockets whose process is gone are removed.
pub async fn collect_in(folders: &[PathBuf]) -> Collected {
    let mut out = Collected::default();
    for folder in folders.iter().filter(|folder| place::is_trusted(folder)) {
        for (_, socket) in place::sockets(folder) {
            match ask(&socket, &Request::List).await {
                Ok(Reply::Process { process }) => out.processes.push(*process),
                Ok(Reply::Error { message }) => {
                    out.silent.push((socket, io::Error::other(message)))
                }
                Ok(Reply::Connection { .. }) => {
                    let error =
                        io::Error::new(io::ErrorKind::InvalidData, "an answer to another question");
                    out.silent.push((socket, error));
                }
                // Nobody listens: the process ended without the chance to clean up.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = std::fs::remove_file(&socket);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => out.silent.push((socket, error)),
            }
        }
    }
    out.processes.sort_by_key(|process| process.pid);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ConnReport;
    use crate::server::{Reporter, Server};
    use std::future::Future;
    use std::pin::Pin;
    use tokio::io::AsyncReadExt;

    struct Two;

    impl Reporter for Two {
        fn connections(&self) -> Pin<Box<dyn Future<Output = Vec<ConnReport>> + Send + '_>> {
            let of = |id: &str| ConnReport {
                id: id.into(),
                ..ConnReport::default()
            };
            Box::pin(async move { vec![of("1.1"), of("2.1")] })
        }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let base = tempfile::tempdir().expect("folder");
        let folder = base.path().join("manypath");
        (base, folder)
    }

    #[tokio::test]
    async fn processes_are_listed_and_stale_sockets_removed() {
        let (_base, folder) = folder();
        let server = Server::start_in(&folder, 77, "a title".into(), Two).expect("server");
        let stale = place::socket(&folder, 78);
        drop(std::os::unix::net::UnixListener::bind(&stale).expect("socket"));
        assert!(stale.exists());
        let found = collect_in(std::slice::from_ref(&folder)).await;
        assert!(found.silent.is_empty());
        assert_eq!(found.processes.len(), 1);
        assert_eq!(found.processes[0].title, "a title");
        assert_eq!(found.processes[0].connections.len(), 2);
        assert!(!stale.exists());
        let path = server.path().to_path_buf();
        drop(server);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn one_connection_can_be_shown() {
        let (_base, folder) = folder();
        let server = Server::start_in(&folder, 77, String::new(), Two).expect("server");
        let show = |id: &str| Request::Show {
            connection: id.into(),
        };
        let reply = ask(server.path(), &show("2.1")).await.expect("reply");
        assert!(matches!(reply, Reply::Connection { connection } if connection.id == "2.1"));
        let reply = ask(server.path(), &show("9.9")).await.expect("reply");
        assert!(matches!(reply, Reply::Error { message } if message.contains("9.9")));
    }

    #[tokio::test]
    async fn nonsense_is_answered_with_an_error_and_an_endless_line_ends_the_session() {
        let (_base, folder) = folder();
        let server = Server::start_in(&folder, 77, String::new(), Two).expect("server");
        let mut stream = UnixStream::connect(server.path()).await.expect("connected");
        stream.write_all(b"nonsense\n").await.expect("written");
        let mut line = String::new();
        let mut reader = BufReader::new(&mut stream);
        reader.read_line(&mut line).await.expect("answered");
        assert!(line.contains("not a request"), "{line}");
        // More than the limit and no line end: one error, then the end of the session.
        let long = vec![b'x'; usize::try_from(crate::wire::MAX_REQUEST).expect("small")];
        stream.write_all(&long).await.expect("written");
        let mut rest = String::new();
        stream
            .read_to_string(&mut rest)
            .await
            .expect("closed by the server");
        assert!(rest.contains("not a request"));
    }
}
