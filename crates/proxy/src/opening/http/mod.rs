//! HTTP/1.1 as a forward proxy: requests in absolute form, and CONNECT (RFC 9110 sections 7 and 9.3.6, RFC 9112).

mod answer;
mod body;
pub mod chunk;
mod exchange;
pub mod fields;
pub mod framing;
mod halves;
pub mod head;
mod server;
mod session;
mod split;

pub(crate) use session::serve;
