//! The receive side of a connection: the buffer, its window, the out-of-order queue.

pub(in crate::conn) mod autotune;
pub(in crate::conn) mod pages;
pub(in crate::conn) mod queue;
pub(in crate::conn) mod reorder;
