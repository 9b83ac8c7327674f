//! Loss recovery: one RFC a file, each a plain value with pure questions.
//!
//! [`scoreboard`] records what was sent and what the peer has; the others judge it: how long a round trip takes ([`rtt`],
//! [`rto`]), how fast data arrives ([`rate`]), what is lost ([`rack`]), when to probe the tail ([`tlp`]), how fast to send
//! while recovering ([`prr`]), whether a recovery was a mistake ([`spurious`]) and what the path can carry ([`pmtu`]).
//! Nothing here sends, and nothing here knows the congestion window: `send::loss` brings them together.

pub mod pmtu;
pub mod prr;
pub mod rack;
pub mod rate;
pub mod rto;
pub mod rtt;
pub mod scoreboard;
pub mod spurious;
pub mod tlp;
