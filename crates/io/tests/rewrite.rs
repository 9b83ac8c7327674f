//! A middlebox that rewrites payload between us and the kernel, on the only subflow: both ends fall back to TCP in the
//! middle of the stream, and no byte is lost, doubled or held up (RFC 8684 section 3.7).

mod common;

use common::{Lab, addr, kernel_mptcp_listener, pattern, run};
use manypath_io::{Attach, Connect, Host, MpStream};
use manypath_stack::{FallbackCause, ProtocolLevel};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What the middlebox writes over four bytes of every long segment.
const STAMP: [u8; 4] = [0x2a, 0x2b, 0x2c, 0x2d];

/// Rewrites the payload of segments that match, from now on. The TCP checksum is completed behind it, so that only the
/// data-level checksum can tell.
fn rewrite(hook: &str, port: &str) {
    run("nft add table ip middlebox");
    run(&format!(
        "nft add chain ip middlebox rewrite {{ type filter hook {hook} priority raw ; }}"
    ));
    run(&format!(
        "nft add rule ip middlebox rewrite tcp {port} 5000 meta length > 400 @th,1600,32 set 0x2a2b2c2d"
    ));
}

/// The kernel's side: gives back what comes, without the middlebox, with it, and without it again. A single byte, too
/// short to be rewritten, says that the next part may begin.
fn serve(listener: &TcpListener, hook: &str, port: &str) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    for (part, len) in PARTS.into_iter().enumerate() {
        match part {
            REWRITTEN => rewrite(hook, port),
            AFTERWARDS => drop(run("nft delete table ip middlebox")),
            _ => {}
        }
        stream.write_all(b"g")?;
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes)?;
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}

const PARTS: [usize; 3] = [3_000, 20_000, 200_000];
const REWRITTEN: usize = 1;
const AFTERWARDS: usize = 2;

async fn part(stream: &mut MpStream, len: usize) -> Vec<u8> {
    stream.read_exact(&mut [0]).await.expect("the go-ahead");
    stream.write_all(&pattern(len)).await.expect("writable");
    let mut got = vec![0; len];
    stream.read_exact(&mut got).await.expect("an echo");
    stream.write_all(b"d").await.expect("writable");
    got
}

fn fall(hook: &'static str, port: &'static str, expected: FallbackCause) {
    let Some(lab) = Lab::new(1) else { return };
    let listener = lab
        .kernel
        .run(|| kernel_mptcp_listener(addr("0.0.0.0:5000")))
        .expect("a listener of the kernel");
    let server = lab.kernel.start(move || serve(&listener, hook, port));
    lab.ours.block_on(move || async move {
        let host = Host::builder()
            .paths(["v1=10.77.1.10".parse().expect("a good path")])
            .attach(Attach::Packet)
            .offload(true)
            .build()
            .expect("a stack");
        let mut stream = Connect::new(&host)
            .connect(addr("10.77.1.1:5000"))
            .await
            .expect("connected");
        assert!(part(&mut stream, PARTS[0]).await == pattern(PARTS[0]));
        let level = stream.info().expect("open").level;
        assert_eq!(level, ProtocolLevel::Multipath);
        // The stream goes on, with what the middlebox made of it.
        let got = part(&mut stream, PARTS[REWRITTEN]).await;
        assert!(got.windows(4).any(|four| four == STAMP), "rewritten");
        let info = stream.info().expect("open");
        assert_eq!(info.fallback, Some(expected));
        assert!(part(&mut stream, PARTS[AFTERWARDS]).await == pattern(PARTS[AFTERWARDS]));
        let info = stream.info().expect("open");
        assert_eq!((info.level, info.closed), (ProtocolLevel::PlainTcp, None));
        assert_eq!(stream.read(&mut [0; 10]).await.expect("an end"), 0);
        stream.shutdown().await.expect("open");
    });
    server.join().expect("no panic").expect("the kernel served");
}

#[test]
fn the_kernel_finds_a_wrong_checksum() {
    // rfc8684:B9,B10,B13
    fall("prerouting", "dport", FallbackCause::PeerFailed);
}

#[test]
fn we_find_a_wrong_checksum() {
    // rfc8684:B9,B10,B14
    fall("postrouting", "sport", FallbackCause::Checksum);
}
