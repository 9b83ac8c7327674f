//! RFC 8684 rule by rule: a stack against a scripted peer. Each test cites the rows of the checklist that it proves.

mod script;

mod balance;
mod close;
mod commands;
mod cookies;
mod data;
mod failures;
mod fallback;
mod fastopen;
mod handshake;
mod held;
mod join;
mod links;
mod paths;
mod reset;
mod windows;
