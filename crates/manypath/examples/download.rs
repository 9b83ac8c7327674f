//! A download over two paths, with its progress, that loses one of them in the middle and goes on.
//!
//! ```text
//! download                       # both ends in one process, two paths in memory, the first of which is cut
//! download server.example:80 /big-file > file        # by the paths of this host, as root
//! ```

use manypath::{Host, MpStream, PathEvent, PathEvents, testing};
use std::io::{self, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Reads everything, and says after each part how much it was.
pub async fn download(
    stream: &mut MpStream,
    out: &mut impl Write,
    mut progress: impl FnMut(u64, &MpStream),
) -> io::Result<u64> {
    let mut part = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        match stream.read(&mut part).await? {
            0 => return Ok(total),
            count => {
                out.write_all(&part[..count])?;
                total += count as u64;
                progress(total, stream);
            }
        }
    }
}

/// How many bytes came by the subflows of each address that are there now, copies included.
pub fn by_path(stream: &MpStream) -> String {
    let Ok(info) = stream.info() else {
        return String::new();
    };
    let mut sums = std::collections::BTreeMap::new();
    for subflow in &info.subflows {
        *sums.entry(subflow.local.ip()).or_insert(0) += subflow.bytes_received;
    }
    let each = sums.iter().map(|(address, bytes)| {
        let megabytes = *bytes as f64 / 1e6;
        format!("{address}: {megabytes:.1} MB")
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Tells of the paths as they come and go.
pub async fn tell(mut events: PathEvents) {
    while let Some(event) = events.next().await {
        match event {
            PathEvent::SubflowUp { local, remote, .. } => eprintln!("\nup: {local} > {remote}"),
            PathEvent::SubflowDown { local, cause, .. } => eprintln!("\ndown: {local} ({cause})"),
            PathEvent::LocalDown { addr } => eprintln!("\nlost: {addr}"),
            PathEvent::LocalUp { addr } => eprintln!("\nthere: {addr}"),
            PathEvent::Timeout { subflow, rto, .. } => {
                eprintln!("\nsilent: subflow {subflow}, tried again in {rto:?}");
            }
            _ => {}
        }
    }
}

async fn from_network(server: &str, path: &str) -> io::Result<()> {
    let host = Host::new()?;
    let mut stream = host.connect(server).await?;
    tokio::spawn(tell(stream.path_events()));
    let request = format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let total = download(&mut stream, &mut io::stdout(), |total, stream| {
        eprint!("\r{:.1} MB ({}) ", total as f64 / 1e6, by_path(stream));
    })
    .await?;
    eprintln!("\n{total} bytes with the header");
    stream.close().await
}

/// Serves `bytes` zeros to one client of `net`, downloads them, and cuts the first cable half-way. Returns what arrived.
pub async fn in_memory(net: &testing::Pair, bytes: u64) -> io::Result<u64> {
    let listener = net.server.listen("0.0.0.0:80")?;
    let server = tokio::spawn(async move {
        let (mut stream, _peer) = listener.accept().await?;
        tokio::io::copy(&mut tokio::io::repeat(0).take(bytes), &mut stream).await?;
        stream.close().await
    });
    let mut stream = net.client.connect("10.0.1.2:80").await?;
    tokio::spawn(tell(stream.path_events()));
    let mut cut = false;
    let total = download(&mut stream, &mut io::sink(), |total, stream| {
        eprint!("\r{:.1} MB ({}) ", total as f64 / 1e6, by_path(stream));
        if !cut && total > bytes / 2 {
            net.cut(1);
            cut = true;
        }
    })
    .await?;
    stream.close().await?;
    server.await??;
    Ok(total)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [server, path] = &args[..] {
        return from_network(server, path).await;
    }
    let total = in_memory(&testing::pair(2)?, 200_000_000).await?;
    eprintln!("\n{total} bytes");
    Ok(())
}
