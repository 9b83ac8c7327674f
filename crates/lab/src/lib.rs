//! Experiments: emulated paths between network namespaces, the demo, the scenarios.
//!
//! Everything here works with real packets and real kernels: [`netns`] makes private networks without root,
//! [`emulator`] puts slow, long, lossy paths between them, [`testbed`] joins both into the networks of the papers,
//! [`kernel`] reads what the kernel's own Multipath TCP did, and [`demo`] shows it all in two minutes.
#![forbid(unsafe_code)]

pub mod demo;
pub mod emulator;
pub mod kernel;
pub mod netns;
pub mod testbed;
