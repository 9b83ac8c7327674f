//! Schedulers, congestion controls and path controllers of an application's own.
//!
//! Each is a trait, a `static` that names it, and an option that chooses it. Nothing of this crate has to be changed.
//!
//! | to decide | implement | name it with | choose it with |
//! |---|---|---|---|
//! | which subflow carries the next data | [`Schedule`] | [`CustomScheduler`] | [`Scheduler::Custom`](crate::Scheduler::Custom) |
//! | how a subflow's window grows and shrinks | [`CongestionControl`] | [`CustomCongestion`] | [`Congestion::Custom`](crate::Congestion::Custom) |
//! | which subflows there are | [`PathController`] | [`CustomController`] | [`PathManager::custom`](crate::PathManager::custom) |
//!
//! ```
//! use manypath::plug::{Choice, CustomScheduler, Need, PathView, Schedule, usable};
//! use manypath::{ConnectOptions, Scheduler};
//!
//! /// Whichever path has the widest congestion window left.
//! #[derive(Debug)]
//! struct Widest;
//!
//! impl Schedule for Widest {
//!     fn pick(&mut self, paths: &[PathView], need: &Need) -> Choice {
//!         usable(paths, need)
//!             .filter(|path| path.room.is_open())
//!             .max_by_key(|path| path.cwnd.room)
//!             .map_or(Choice::Wait, |path| Choice::Send(path.subflow))
//!     }
//! }
//!
//! static WIDEST: CustomScheduler = CustomScheduler::new("widest", || Box::new(Widest));
//!
//! let options = ConnectOptions::new().scheduler(Scheduler::Custom(&WIDEST));
//! # let _ = options;
//! ```
//!
//! `examples/own_policies.rs` has one of each at work.
//!
//! # What it costs
//!
//! The algorithms that come with this crate are called directly. One of an application's own is called through a pointer: a scheduler
//! once for each burst that leaves, a congestion control once for each acknowledgement, a controller once for each event. That is
//! a few nanoseconds beside the microsecond that a packet takes.
//!
//! # Time
//!
//! These traits work inside the protocol machine, which has no clock: [`Instant`] and [`Span`] are nanosecond counts that come in as
//! arguments. A [`Span`] converts from and to [`std::time::Duration`] by `into`.
//!
//! # Panics
//!
//! They run in the stack's own tasks, or in the task that writes or reads. A panic is told on standard error. In a task of the stack it
//! ends there; in the task that writes or reads it unwinds out of that call, as any other panic does, and the connection and the host go
//! on. A scheduler that panicked is not asked any more: its connection has the path with the lowest round trip from then on. What a congestion control or a
//! controller does to its connection by a panic is not defined; other connections go on.
//!
//! # Which end
//!
//! A scheduler and a congestion control decide about what their own end sends. In a download they belong to the server.
//!
//! # Stability
//!
//! What these traits see grows with the protocol machine, and may change with a minor version when the rest of this crate does not.

pub use manypath_stack::sched::{
    Choice, CustomScheduler, CwndView, HeldBack, History, Need, PathView, Purpose, RatesView, Room,
    RttView, Schedule, Tier, usable,
};
pub use manypath_stack::{
    CloseCause, Command, CustomController, Ending, EventKind, FallbackCause, LocalView, NewSubflow,
    Order, PathController, SubflowEnd, SubflowView, View,
};
pub use manypath_tcp::cc::{
    AckSample, CongestionControl, CustomCongestion, GroupView, PathSample, Window,
};
pub use manypath_tcp::time::{Duration as Span, Instant};
