//! One TCP subflow as a pure state machine (RFC 9293). It reads and writes no option of Multipath TCP.
//!
//! [`machine`] is what callers use; below it, [`recovery`] judges losses and [`cc`] sets the congestion window.
//!
//! # What serves Multipath TCP alone
//!
//! A reader of plain TCP may pass over this list. A connection with one subflow calls none of it.
//!
//! | where | what |
//! |---|---|
//! | `machine::multipath` | every call that only a connection of several subflows makes |
//! | `cc::multipath` | the coupled algorithms, penalties, the cap on the window |
//! | `send::loss::multipath`, `send::loss::capping` | what those calls ask of loss recovery |
//! | `recv::withheld`, the shared mode of `recv::window` | acknowledgements held back; one window for all subflows |
//! | [`Context`](machine::Context) | the other subflows' samples, and duplicates that came for their options (rfc8684:G1) |
//! | [`Offer::option_space`](machine::Offer::option_space), [`no_nagle`](machine::Offer::no_nagle) | room for options, and the connection's say on Nagle's rule |
//! | [`TimeoutOutcome`](machine::TimeoutOutcome): `late`, `silent` | when another subflow should carry the data |
//! | [`Rto`](recovery::rto::Rto): the ceiling | the back-off of a path that another one stands in for |
//! | the rates of `send::loss::round` | what a scheduler wants to know of a path |
//! | [`snd_una_ssn`](machine::Machine::snd_una_ssn) and its like | numbers that mappings count in (RFC 8684 section 3.3.1, appendix B) |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cc;
pub mod machine;
pub mod ranges;
pub mod recovery;
mod recv;
mod send;
pub mod time;
pub mod timer;
pub mod units;
