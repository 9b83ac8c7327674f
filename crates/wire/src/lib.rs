//! Bytes to values and back: IP, TCP, every Multipath TCP option, checksums. No state, no time.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
