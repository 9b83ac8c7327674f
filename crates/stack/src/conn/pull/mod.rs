//! Which bytes a subflow sends next: the question to the scheduler and what it sees of the paths, reinjection, duplicates.

pub(in crate::conn) mod data_ack_delay;
pub(in crate::conn) mod path_view;
pub(in crate::conn) mod redundant;
pub(in crate::conn) mod reinject;
pub(in crate::conn) mod reprobe;
