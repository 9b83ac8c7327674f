//! The relay in front of streams that hold bytes themselves, as a TLS session does: the socket below has nothing on its way, and
//! the peer has not got everything.

use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};

use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};

use super::{Leg, Terms, carry};

/// What a session takes while its socket is full.
const MOST: usize = 64 * 1024;

struct Session {
    socket: DuplexStream,
    held: Vec<u8>,
    /// The peer ends by a reset.
    resets: bool,
}

impl Session {
    fn new(socket: DuplexStream, resets: bool) -> Self {
        let held = Vec::new();
        Self {
            socket,
            held,
            resets,
        }
    }
}

impl AsyncRead for Session {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, out))?;
        match this.resets && out.filled().len() == before {
            true => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            false => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Session {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.held.len() >= MOST {
            ready!(Pin::new(&mut *this).poll_flush(cx))?;
        }
        this.held.extend_from_slice(bytes);
        let _ = Pin::new(this).poll_flush(cx)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while !this.held.is_empty() {
            let n = ready!(Pin::new(&mut this.socket).poll_write(cx, &this.held))?;
            this.held.drain(..n);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

impl Leg for Session {
    fn unacknowledged(&self) -> Option<u64> {
        Some(0)
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn end_is_certain_after(&self, _: &io::Error) -> bool {
        true
    }

    fn reset_on_close(&self, _: bool) {}

    fn abort(self) {}
}

#[tokio::test(start_paused = true)]
async fn what_a_session_holds_arrives_before_the_reset_that_follows_a_break() {
    let ((mut client, inside), (outside, mut server)) = (duplex(1000), duplex(1 << 20));
    server.write_all(&[7; 50_000]).await.expect("room");
    drop(server);
    let relay = tokio::spawn(async move {
        let (forth, back) = (AtomicU64::new(0), AtomicU64::new(0));
        let terms = Terms {
            forth: &forth,
            back: &back,
            idle: None,
            half_closed: None,
            account: None,
        };
        let pair = (Session::new(inside, false), Session::new(outside, true));
        carry(pair.0, pair.1, terms).await
    });
    // It reads late.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.expect("in memory");
    assert_eq!(got.len(), 50_000);
    let error = relay.await.expect("no panic").expect_err("it broke");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}
