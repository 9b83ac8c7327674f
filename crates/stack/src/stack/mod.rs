//! The stack as a whole.

pub(crate) mod demux;
pub(crate) mod ports;
pub(crate) mod timewait;
pub(crate) mod wheel;
