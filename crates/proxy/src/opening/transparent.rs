//! Connections that the host's firewall has turned to us: the client knows nothing of a proxy, and the packet's own destination is the target
//! (nftables: `redirect`, `tproxy`).
//!
//! Who dials the listener itself has no other destination than the listener: that would come back to us for ever, and is refused as a loop.

use std::net::SocketAddr;
use std::time::Instant;

use crate::buffered::Buffered;
use crate::opening::proxy_protocol;
use crate::request::{Request, Target, Way};
use crate::serve::Refusal;
use crate::serve::session::Session;
use crate::serve::totals::Outcome;
use crate::stream::{Leg, Stream};

/// Carries a connection to where it was going.
pub(crate) async fn serve(session: &Session, stream: Buffered<Stream>) -> Outcome {
    let started = Instant::now();
    let (_, local) = session.socket;
    // What `tproxy` hands over has its destination as its own address.
    let original = stream.get_ref().original_destination();
    let Some(target) = original.or(local) else {
        session.refused(None, Refusal::BadTarget);
        stream.abort();
        return Outcome::Refused;
    };
    let target = SocketAddr::new(target.ip().to_canonical(), target.port());
    let request = Request {
        target: Target::Address(target),
        client: session.nobody(),
        way: Way::Transparent,
    };
    let first = match session.spec().proxy_out {
        Some(version) => proxy_protocol::header(version, session.client, Some(target)),
        None => Vec::new(),
    };
    let server = match session.reach(&request, &first).await {
        Ok(server) => server,
        Err(why) => {
            let outcome = session.unreached(&request, &why);
            // The client has no protocol in which more could be said.
            stream.abort();
            return outcome;
        }
    };
    // A stream that is broken already says so at the first read.
    let _ = server.set_nodelay(true);
    session.connected(&request, &server, started.elapsed());
    let reached = server.peer_addr().ok();
    let pair = (stream, server);
    session.tunnel(request, pair, reached, 0, started).await
}
