//! A deterministic network simulator around the very stack that runs on the wire.
#![forbid(unsafe_code)]
