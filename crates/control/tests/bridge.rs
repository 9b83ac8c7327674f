//! An engine behind a control socket answers lines as a process does.

use std::io;

use manypath_control::bridge::Bridge;
use manypath_control::client::collect_in;
use manypath_control::engine::Engine;
use manypath_control::wire::{EventReport, Reply, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Knows no connections.
struct Empty;

impl Engine for Empty {
    async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        Ok(match request {
            Request::List => Reply::Process {
                process: Box::default(),
            },
            _ => Reply::error("not_found", "nothing is here"),
        })
    }

    async fn next_event(&mut self) -> io::Result<Option<EventReport>> {
        std::future::pending().await
    }

    fn outdate(&mut self, _: &str) {}
}

async fn answers(lines: &[u8]) -> Vec<String> {
    let base = tempfile::tempdir().expect("folder");
    let bridge =
        Bridge::start_in(&base.path().join("manypath"), 77, || Ok(Empty)).expect("a bridge");
    let mut stream = UnixStream::connect(bridge.path()).await.expect("connected");
    stream.write_all(lines).await.expect("written");
    stream.shutdown().await.expect("half closed");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("all replies");
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_last_line_needs_no_end() {
    let all = answers(b"{\"id\":1,\"request\":\"hello\"}\n{\"id\":2,\"request\":\"hello\"}").await;
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[1].starts_with(r#"{"id":2,"reply":"error""#), "{all:?}");
}

#[tokio::test]
async fn an_endless_line_is_told_about() {
    let long = vec![b'x'; usize::try_from(manypath_control::wire::MAX_REQUEST).expect("small")];
    let all = answers(&long).await;
    assert!(
        all.len() == 1 && all[0].contains("longer than 65536 bytes"),
        "{all:?}"
    );
}

#[tokio::test]
async fn what_has_no_process_of_its_own_is_found_by_the_one_that_serves_it() {
    let base = tempfile::tempdir().expect("folder");
    let folder = base.path().join("manypath");
    let _bridge = Bridge::start_in(&folder, 77, || Ok(Empty)).expect("a bridge");
    let found = collect_in(&[folder]).await;
    let pids: Vec<u32> = found.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [77]);
}
