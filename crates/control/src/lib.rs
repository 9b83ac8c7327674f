//! Requests, replies and events by which other processes see and steer connections.
#![forbid(unsafe_code)]
