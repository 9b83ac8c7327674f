//! The whole driver over a cable in memory: no privileges, no kernel.

use manypath_io::{Connect, Context, MpListener};
use manypath_stack::{Mode, ProtocolLevel};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("a literal address")
}

/// Bytes in which every position is recognisable.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect()
}

async fn echo(listener: MpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await?;
    stream.write_all(&all).await?;
    stream.shutdown().await
}

async fn round_trip(server: &str, len: usize, mode: Mode) -> io::Result<ProtocolLevel> {
    let (client, far) = Context::memory_pair()?;
    let listener = MpListener::bind(&far, addr(server))?;
    let task = tokio::spawn(echo(listener));
    let stream = Connect::new(&client)
        .with(|o| o.mode = mode)
        .connect(addr(server))
        .await?;
    let level = stream.info()?.level;
    let sent = pattern(len);
    let (mut reading, mut writing) = stream.into_split();
    let copy = sent.clone();
    let writer = tokio::spawn(async move {
        writing.write_all(&copy).await?;
        writing.shutdown().await
    });
    let mut got = Vec::new();
    reading.read_to_end(&mut got).await?;
    writer.await.expect("the writer does not panic")?;
    task.await.expect("the echo does not panic")?;
    assert!(
        got == sent,
        "{} of {} bytes came back",
        got.len(),
        sent.len()
    );
    Ok(level)
}

async fn within<T>(limit: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(limit), what)
        .await
        .expect("it ends in time")
}

#[tokio::test]
async fn small_and_large_streams_come_back() {
    for len in [0, 1, 5, 1000, 100_000, 20_000_000] {
        let level = within(20, round_trip("10.0.0.2:80", len, Mode::Multipath))
            .await
            .expect("a round trip");
        assert_eq!(level, ProtocolLevel::Multipath);
    }
}
