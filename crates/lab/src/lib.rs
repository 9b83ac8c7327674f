//! Experiments: emulated paths between network namespaces, the demo, the scenarios.
//!
//! Everything here works with real packets and real kernels: [`netns`] makes private networks without root,
//! [`emulator`] puts slow, long, lossy paths between them, [`testbed`] joins both into the networks of the papers,
//! [`kernel`] reads what the kernel's own Multipath TCP did, [`demo`] shows it all in two minutes,
//! [`mod@bench`] compares what it costs, [`mod@boxes`] what survives the simulator's middleboxes, [`attack`] says what an
//! attacker can do, [`handover`] what a path costs that dies and returns, and [`gauntlet`] holds it all to plain TCP on
//! thousands of random networks in the simulator.
#![forbid(unsafe_code)]

pub mod attack;
pub mod bench;
pub mod boxes;
pub mod demo;
pub mod emulator;
pub mod figure;
pub mod gauntlet;
pub mod grid;
pub mod handover;
mod interrupt;
pub mod kernel;
pub mod netns;
pub mod parallel;
mod relay;
pub mod relays;
mod spoken;
mod tap;
pub mod testbed;
mod whole;

pub use interrupt::was_terminated;
pub use whole::write_whole;
