//! The openings in front of the host's TCP on loopback, as their clients see them.

mod connect;
mod convert;
mod curl;
mod http;
mod https;
mod judged;
mod limits;
mod proxy_protocol;
mod reload;
mod smuggling;
mod socks5;
mod support;
