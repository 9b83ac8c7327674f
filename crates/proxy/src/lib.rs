//! Byte-stream relays between our stack, the host TCP and the host Multipath TCP.
#![forbid(unsafe_code)]
