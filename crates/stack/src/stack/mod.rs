//! The stack as a whole.

pub(crate) mod wheel;
